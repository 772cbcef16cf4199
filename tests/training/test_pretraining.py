"""`pretrain` on a tiny world: what it writes, that it learns, that it resumes."""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from pretraining_runs import write_world
from typer.testing import CliRunner

from residuum.cli import app
from residuum.errors import SettingError, StoreError
from residuum.storage.files import read_json, write_json
from residuum.storage.results import read_run
from residuum.training.pretraining import pretrain


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    return pretrain(**world, out=tmp_path_factory.mktemp("finished"), progress=False)


def test_the_model_is_a_plain_folder_with_tokenizer_and_card(finished):
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    model, info = AutoModelForMaskedLM.from_pretrained(finished.model, output_loading_info=True)
    tokenizer = AutoTokenizer.from_pretrained(finished.model)
    assert not info["missing_keys"]
    assert model.config.model_type == "xlm-roberta"
    assert [tokenizer.convert_tokens_to_ids(t) for t in ("<s>", "<pad>", "</s>", "<unk>")] == [0, 1, 2, 3]
    assert tokenizer.mask_token_id == len(tokenizer) - 1 == model.config.vocab_size - 1
    batch = tokenizer(["A small sentence.", "Another"], padding=True, return_tensors="pt")
    assert model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits.isfinite().all()
    card = (finished.model / "README.md").read_text()
    assert "| in held-out text |" in card
    for part in ("## Data", "## Made with", "## Curve", "## Scores", "perplexity en", "pairs.tsv"):
        assert part in card


def test_the_model_is_read_by_load_model(finished):
    from residuum.models.loading import load_model

    model = load_model(finished.model)
    assert (model.n_layers, model.hidden_size, model.window) == (2, 16, 48)


def test_the_run_has_curves_scores_and_counts(finished):
    run = read_run(finished.model.parent)
    assert list(run.tables["history"]["step"]) == [2, 4, 6, 8]
    last = run.tables["scores"].query("step == 8")
    assert list(run.tables["scores"]["step"].unique()) == [4, 8]
    assert list(last.query("score == 'perplexity'")["subject"]) == ["en", "tr"]
    assert list(last.query("subject == 'tr' and score == 'retrieval'")["layer"]) == [0, 1, 2]
    assert set(last["subject"]) == {"en", "tr", "tr back"}
    assert run.summary["steps"] == 8
    assert run.summary["pairs in held-out text"] == run.tables["pairs"]["held_out"].sum() > 0
    assert not (finished.model.parent / "checkpoints").exists()


def test_a_finished_run_returns_at_once_and_another_is_refused(world, finished):
    weights = finished.model / "model.safetensors"
    before = weights.stat().st_mtime_ns
    again = pretrain(**world, out=finished.model.parent, progress=False)
    assert again.run.summary == finished.run.summary
    assert weights.stat().st_mtime_ns == before
    with pytest.raises(StoreError, match="holds another run"):
        pretrain(**(world | {"seed": 5}), out=finished.model.parent, progress=False)


@pytest.fixture(scope="module")
def killed_once(world, finished, tmp_path_factory):
    """The folder of a run that was killed behind its first checkpoint; it has the tokenizer of the finished one."""
    out = tmp_path_factory.mktemp("killed")
    shutil.copytree(finished.model.parent / "tokenizer", out / "tokenizer")
    process = multiprocessing.get_context("forkserver").Process(target=_killed_pretraining, args=(world, out))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    return out


@pytest.fixture
def killed(killed_once, tmp_path):
    return shutil.copytree(killed_once, tmp_path, dirs_exist_ok=True)


def test_a_killed_run_ends_with_the_same_model(world, finished, killed):
    resumed = pretrain(**world, out=killed, progress=False)
    file = "model.safetensors"
    assert (resumed.model / file).read_bytes() == (finished.model / file).read_bytes()


def test_a_checkpoint_can_be_written_as_it_is_and_trained_on(world, killed):
    early = pretrain(**world, out=killed, as_is=True, progress=False)
    assert early.run.summary["steps"] == 3
    assert "for 3 steps" in (early.model / "README.md").read_text()
    assert not (killed / "result.json").exists()
    assert pretrain(**world, out=killed, progress=False).run.summary["steps"] == 8


def test_a_checkpoint_before_the_first_row_of_the_curve_can_be_written_too(world, killed_once, tmp_path):
    folder = shutil.copytree(killed_once, tmp_path / "early")
    path = next(folder.glob("checkpoints/step-*/progress.json"))
    write_json(path, {**read_json(path), "losses": []})
    early = pretrain(**world, out=folder, as_is=True, progress=False)
    assert "for 3 steps" in (early.model / "README.md").read_text()


@pytest.mark.parametrize("changed", [{"tokenizer": {"pieces": 280}}, {"exponent": 0.7}, {"seed": 3}])
def test_a_tokenizer_of_other_settings_is_not_used_again(changed, world, finished, tmp_path):
    shutil.copytree(finished.model.parent / "tokenizer", tmp_path / "tokenizer")
    with pytest.raises(StoreError, match="holds a tokenizer of other settings or another text"):
        pretrain(**(world | changed), out=tmp_path, progress=False)
    assert len(pretrain(**(world | changed), out=tmp_path, fresh=True, progress=False).history) == 4


@pytest.mark.slow
def test_two_processes_give_one_model_that_was_trained_by_both(world, tmp_path):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(world))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "residuum"]
    command = [
        *launcher,
        "pretrain",
        "--config",
        tmp_path / "config.yaml",
        "--device",
        "cpu",
        "--out",
        tmp_path / "two",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    for _ in range(2):  # the second time it returns at once
        done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("The model is in") == 1, "only the main process speaks"
    two, one = read_run(tmp_path / "two"), pretrain(**world, out=tmp_path / "one", progress=False).run
    assert list(two.tables["history"]["step"]) == list(one.tables["history"]["step"]) == [2, 4, 6, 8]
    assert two.summary["tokens"] > 1.5 * one.summary["tokens"]
    assert list(two.tables["scores"]["subject"]) == list(one.tables["scores"]["subject"])
    assert "for 8 steps" in (tmp_path / "two" / "model" / "README.md").read_text()
    assert not (tmp_path / "two" / "checkpoints").exists()


def test_a_checkpoint_is_written_as_it_is_by_one_process(world, killed, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SettingError, match="as_is trains nothing, and 2 processes were started"):
        pretrain(**world, out=killed, as_is=True, progress=False)


def test_it_learns_to_guess_and_to_find_translations(world, tmp_path):
    longer = world | {
        "training": {"steps": 150, "learning_rate": 0.01},
        "evaluation": world["evaluation"] | {"every": 75},
    }
    result = pretrain(**longer, out=tmp_path, progress=False)
    last = result.scores[result.scores["step"] == 150].set_index(["score", "subject", "layer"])["value"]
    chance = 1 / 20
    assert last["retrieval", "tr", 1] > 4 * chance
    assert last["perplexity", "en", -1] < 150  # of 300 pieces
    assert result.history["mlm"].iloc[-1] < result.history["mlm"].iloc[0] - 0.5


@pytest.mark.parametrize(("architecture", "kinds"), [("bert", ("mlm", "tlm", "ranking")), ("gpt2", ("clm", "ranking"))])
def test_other_architectures_train_and_load_plainly(world, tmp_path, architecture, kinds):
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    objectives = [
        {"kind": kind, "batch": 8, "length": 24} | ({"layer": 1} if kind == "ranking" else {}) for kind in kinds
    ]
    network = world["network"] | {"architecture": architecture}
    result = pretrain(**(world | {"network": network, "objectives": objectives}), out=tmp_path, progress=False)
    auto = AutoModelForCausalLM if architecture == "gpt2" else AutoModelForMaskedLM
    _, info = auto.from_pretrained(result.model, output_loading_info=True)
    assert not info["missing_keys"]
    assert math.isfinite(result.run.summary["perplexity en"])


def test_weights_are_written_in_the_wanted_precision(world, tmp_path):
    from safetensors.torch import load_file

    result = pretrain(**(world | {"dtype": "float16"}), out=tmp_path, progress=False)
    assert {value.dtype for value in load_file(result.model / "model.safetensors").values()} == {torch.float16}


def test_the_command_line_gives_the_same_model(world, finished, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(world))
    out = tmp_path / "out"
    shutil.copytree(finished.model.parent / "tokenizer", out / "tokenizer")
    result = CliRunner().invoke(app, ["pretrain", "--config", str(config), "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0
    assert f"The model is in {out / 'model'}." in result.output
    file = "model.safetensors"
    assert (out / "model" / file).read_bytes() == (finished.model / file).read_bytes()


def _killed_pretraining(world: dict, out: Path) -> None:
    from residuum.training import checkpoints

    write = checkpoints.write_checkpoint

    def write_then_die(*arguments) -> None:
        write(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    from residuum.training import loop

    loop.write_checkpoint = write_then_die
    pretrain(**world, out=out, progress=False)
