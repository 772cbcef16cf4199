"""Every long command says before it begins what it would take, writes nothing then, and keeps to its memory."""

import re

import pytest
import typer
import yaml
from typer.testing import CliRunner

from made_stores import conllu, known_data
from residuum.cli import app
from residuum.errors import MemoryLimitError
from residuum.samples import sample_text
from teachers import save_teacher, write_texts
from tiny import TEXT, save_model

QUICK = {"verify", "export", "predict", "report", "sample", "correlate"}
"""Commands that read or write little; all others are long."""
CHOOSING = {
    "compare", "diff", "probe", "rank", "ablate", "describe", "probe-languages", "transfer"
}  # fmt: skip
"""Long commands that choose how much they hold at once; of `redundancy` that is true of its probes only."""


def commands(group=None, path=()):
    """Every command of the program with the words that call it."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


LONG = {" ".join(path): command for path, command in commands() if path[-1] not in QUICK}


def options(name):
    return {option for parameter in LONG[name].params for option in parameter.opts}


ESTIMATED = {name for name in LONG if "--estimate" in options(name)}


@pytest.mark.parametrize("name", LONG)
def test_every_long_command_has_a_memory_limit(name):
    assert "--max-memory" in options(name)


def test_commands_that_may_take_hours_offer_an_estimate():
    assert {"extract", "compare", "distill", "pretrain"} <= ESTIMATED


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """Tiny models and data for every command."""
    root = tmp_path_factory.mktemp("estimates")
    data = known_data(40)
    for language in ("en", "de"):
        (root / f"{language}.conllu").write_text(conllu(data.sentences, data.tags))
    (root / "text.txt").write_text("\n".join(TEXT * 5) + "\n", encoding="utf-8")
    (root / "lines.en").write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    (root / "lines.tr").write_text("\n".join(line.upper() for line in TEXT) + "\n", encoding="utf-8")
    data.store(root / "store")
    save_model("bert", root / "bert")
    save_teacher("xlm-roberta", root / "teacher")
    (root / "nli").mkdir()
    for name, language, split in (("train-en", "en", "train"), ("dev-en", "en", "dev"), ("dev-tr", "tr", "dev")):
        text = sample_text("nli", language=language, size=24, split=split)
        (root / "nli" / f"{name}.tsv").write_text(text, encoding="utf-8")
    (root / "nli" / "test-tr.tsv").write_text(sample_text("nli", language="tr", size=24, split="test"), "utf-8")
    (root / "distill.yaml").write_text(yaml.safe_dump(distillation(root)))
    (root / "pretrain.yaml").write_text(yaml.safe_dump(pretraining(root)))
    return root


def distillation(root):
    return {
        "teacher": str(root / "teacher"),
        "texts": write_texts(root / "texts", "en", "tr"),
        "preset": "monoshot",
        "text": {"batch_size": 3, "held_out": 2, "shuffle_buffer": 8},
        "optimiser": {"steps": 30, "warmup": 0},
    }


def pretraining(root):
    for language in ("en", "tr"):
        (root / f"{language}.txt").write_text(sample_text("text", language=language, size=200), encoding="utf-8")
    return {
        "text": {language: [str(root / f"{language}.txt")] for language in ("en", "tr")},
        "tokenizer": {"pieces": 300},
        "network": {"layers": 2, "hidden": 16, "heads": 2, "feed_forward": 32, "window": 48},
        "objectives": [{"kind": "mlm", "batch": 8, "length": 24}],
        "training": {"steps": 40},
        "evaluation": {"every": 10, "held_out": 10},
    }


CALLS = {
    "extract": "extract {w}/bert {w}/en.conllu",
    "compare": "compare {w}/store --measures cka --workers 1",
    "pretrain": "pretrain --config {w}/pretrain.yaml",
    "distill": "distill --config {w}/distill.yaml",
    "study similarity": "study similarity",
    "study redundancy": "study redundancy",
    "study transfer-learning": "study transfer-learning",
    "study distilled": "study distilled",
    "study monolingual": "study monolingual",
}


@pytest.fixture
def hurried(monkeypatch):
    """Measure as little as can be: what is measured is tested elsewhere."""
    monkeypatch.setattr("residuum.training.loop.REHEARSED_STEPS", (1, 1))
    monkeypatch.setattr("residuum.activations.estimates.SECONDS", 0.01)


def run(line, world, out, *more):
    words = [*line.format(w=world).split(), "--out", str(out), *more]
    return CliRunner().invoke(app, words, catch_exceptions=False)


@pytest.mark.parametrize("call", list(CALLS)[:-1])
def test_an_estimate_says_time_and_memory_and_writes_nothing(call, world, hurried, tmp_path):
    before = sorted(world.rglob("*"))
    done = run(CALLS[call], world, tmp_path / "out", "--estimate")
    assert done.exit_code == 0, done.output
    first, *steps = done.output.splitlines()
    assert re.search(r": about .+ with (one worker|\d+ workers), .+ in memory, .+ on disk$", first), done.output
    assert steps
    assert not (tmp_path / "out").exists()
    assert sorted(world.rglob("*")) == before


def test_every_command_with_an_estimate_is_among_those_calls():
    called = {name for name in LONG if any(line.startswith(f"{name} ") or line == name for line in CALLS.values())}
    assert called == ESTIMATED


def fixed():
    """Commands whose memory follows from model and batch; one study stands for all, which are one function."""
    others = {name for name in LONG if name.startswith("study ")} - {"study similarity"}
    return sorted(ESTIMATED - CHOOSING - others - {"redundancy"})


@pytest.mark.parametrize("name", fixed())
def test_what_cannot_choose_is_refused_by_name_before_it_begins(name, world, hurried, tmp_path):
    line = next(line for line in CALLS.values() if line.startswith(name))
    with pytest.raises(MemoryLimitError, match=r"^The step '.+' of .+ needs .+ of memory, but --max-memory allows 0"):
        run(line, world, tmp_path / "out", "--max-memory", "0.000001")
    assert not (tmp_path / "out").exists()


def test_redundancy_is_refused_where_its_tree_does_not_fit(world, tmp_path):
    with pytest.raises(MemoryLimitError, match=r"24 neurons of .+--layers"):
        run("redundancy {w}/store", world, tmp_path / "out", "--max-memory", "0.000001")


def test_a_training_counts_its_steps_evaluations_and_bytes():
    from residuum.training.loop import Rehearsal, training_step
    from residuum.training.settings import TrainingSettings

    settings = TrainingSettings(epochs=2, evaluate_every=10, best_score="accuracy")
    step = training_step("training", Rehearsal(0.5, 100, 30), settings, batches_per_epoch=25, evaluation=3.0)
    assert step.seconds == pytest.approx(50 * 0.5 + 5 * 3.0)
    assert (step.memory, step.disk) == (100, 2 * 30)
