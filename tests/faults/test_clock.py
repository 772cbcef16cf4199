"""The clock leaps by years and files bear dates of any age: no result, no resumption and no lock goes by them."""

import datetime
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from itertools import cycle, islice

import pytest
import torch
from kill import TIMED
from kill_snapshots import differences, snapshot
from torch import nn

from residuum.activations.extraction import extract
from residuum.activations.store import StoreWriter
from residuum.corpus import Corpus
from residuum.errors import StoreError
from residuum.models.loading import load_model
from residuum.samples import sample
from residuum.storage.files import release_folder
from residuum.storage.results import finished_run, read_run
from residuum.training.batches import ShuffledBatches
from residuum.training.finetuning import finetune
from residuum.training.loop import StepLosses, train
from residuum.training.settings import TrainingSettings
from tiny import TEXT

YEAR = 365 * 86_400
LEAPS = (30, -20, 0, 5, -10)  # years from the true time
CORPUS = Corpus("text", [sentence.split() for sentence in islice(cycle(TEXT), 24)])
SETTINGS = {"epochs": 4, "batch_size": 8, "learning_rate": 1e-3, "checkpoint_every": 3}


@pytest.fixture
def leaping_clock(monkeypatch):
    """Whoever asks for the time or the date is told one years before or after what was told last."""
    true, leaps = time.time, cycle(LEAPS)

    def now() -> float:
        return true() + YEAR * next(leaps)

    class Leaping(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(now(), tz)

        today = utcnow = now

    monkeypatch.setattr(time, "time", now)
    monkeypatch.setattr(time, "time_ns", lambda: int(now() * 1e9))
    monkeypatch.setattr(datetime, "datetime", Leaping)


def age(folder):
    """Give files dates as a clock that goes backwards would: what was written last is the oldest."""
    paths = sorted(folder.rglob("*"), key=lambda path: path.stat().st_mtime_ns)
    for number, path in enumerate([*paths, folder]):
        os.utime(path, (0, 1e9 - 86_400 * number))


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def stop_extraction(patched, after):
    note, left = StoreWriter.note, iter(range(after))

    def noted(*arguments):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return note(*arguments)

    patched.setattr(StoreWriter, "note", noted)


@pytest.fixture
def undisturbed(tiny_folder, tmp_path):
    """A store and a fine-tuned model, made before the clock leaps."""
    extract(load_model(tiny_folder()), CORPUS, tmp_path / "true/acts", shard_words=20, progress=False)
    tune(tiny_folder(), tmp_path / "true/tuned")
    return tmp_path / "true"


def tune(model, out):
    finetune(model, sample("polarity", size=40), "sentence", out, progress=False, **SETTINGS)


def test_a_clock_that_leaps_between_and_within_runs_changes_no_byte(
    undisturbed, request, broken_off, tiny_folder, tmp_path
):
    request.getfixturevalue("leaping_clock")
    acts, tuned = tmp_path / "acts", tmp_path / "tuned"
    model = load_model(tiny_folder())
    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        stop_extraction(patched, after=3)
        extract(model, CORPUS, acts, shard_words=20, progress=False)
    age(acts)
    extract(model, CORPUS, acts, shard_words=20, progress=False)
    assert content(acts) == content(undisturbed / "acts")

    with broken_off():
        tune(tiny_folder(), tuned)
    assert len(list(tuned.glob("checkpoints/*/progress.json"))) > 1, "of which the newest has the oldest date"
    age(tuned)
    tune(tiny_folder(), tuned)
    differing = differences(snapshot(tuned), snapshot(undisturbed / "tuned"))
    assert not [place for place in differing if not TIMED.search(place)]
    assert 0 < read_run(tuned).summary["seconds"] < 600


def test_training_goes_on_from_the_last_checkpoint_and_not_from_the_one_with_the_latest_date(leaping_clock, tmp_path):
    def steps_of_a_run(last):
        net, steps = nn.Linear(1, 1), []
        batches = ShuffledBatches(range(8), 4, collate=lambda rows: torch.ones(len(rows), 1))

        def losses(batch):
            error = (net(batch) ** 2).mean()
            return StepLosses(error, {"error": error.detach()}, tokens=len(batch))

        def after_step(step):
            steps.append(step)
            if step == last:
                raise MemoryError

        settings = TrainingSettings(steps=9, checkpoint_every=2, evaluate_every=2, best_score="luck")
        options = {"evaluate": lambda step: {"luck": -step}, "after_step": after_step, "progress": False}
        with pytest.raises(MemoryError) if last else nullcontext():
            train({"net": net}, batches, losses, settings, tmp_path, **options)
        return steps

    assert steps_of_a_run(last=7) == [1, 2, 3, 4, 5, 6, 7]
    assert {path.name[-1] for path in tmp_path.glob("checkpoints/step-*")} == {"2", "6"}, "the best and the last"
    age(tmp_path)
    assert steps_of_a_run(last=None) == [7, 8, 9]


def test_a_finished_run_is_known_whatever_its_date(undisturbed, leaping_clock, monkeypatch, tiny_folder):
    age(undisturbed)
    before = content(undisturbed)
    monkeypatch.setattr("residuum.training.finetuning.finetune_seed", None)  # it must not train
    tune(tiny_folder(), undisturbed / "tuned")
    assert content(undisturbed) == before


HOLD = """
import sys, time
from pathlib import Path
true = time.time
time.time = lambda: true() - float(sys.argv[2])
from residuum.storage.files import hold_folder
hold_folder(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_folder_is_held_as_long_as_its_process_lives_and_no_longer(leaping_clock, tmp_path):
    for years in (50, -50):
        command = [sys.executable, "-c", HOLD, tmp_path, str(years * YEAR)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout.readline() == b"held\n"
            os.utime(tmp_path, (0, 0))
            for _ in LEAPS:
                with pytest.raises(StoreError, match="Another process is writing to"):
                    finished_run(tmp_path, "compare", {"seed": 0})
            holder.kill()
        assert finished_run(tmp_path, "compare", {"seed": 0}) is None
        release_folder(tmp_path)
