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
    "compare", "diff", "probe", "rank", "ablate", "describe", "probe-languages", "transfer", "evaluate retrieval"
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


@pytest.mark.parametrize("name", LONG)
def test_every_long_command_offers_an_estimate_and_a_bound_of_memory(name):
    options = {option for parameter in LONG[name].params for option in parameter.opts}
    assert {"--estimate", "--max-memory"} <= options


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
    "import": "import {w}/store.npz",
    "compare": "compare {w}/store --measures cka --workers 1",
    "diff of models": "diff {w}/bert again={w}/bert --corpus {w}/en.conllu --tasks upos --workers 1 --groups 2",
    "diff of a store": "diff {w}/store again={w}/store --corpus {w}/en.conllu --tasks upos --workers 1 --groups 2",
    "redundancy": "redundancy {w}/bert {w}/en.conllu",
    "probe": "probe {w}/bert {w}/en.conllu --task upos",
    "probe-languages": "probe-languages {w}/en.conllu {w}/de.conllu -m {w}/bert --task upos",
    "rank": "rank {w}/bert {w}/en.conllu --task upos",
    "describe": "describe {w}/bert {w}/en.conllu --neurons 1:2",
    "describe a store": "describe {w}/store --neurons 1:2",
    "ablate": "ablate {w}/bert {w}/en.conllu --task upos --retrain",
    "prune by position": "prune {w}/bert --drop top:1",
    "prune by likeness": "prune {w}/bert --drop 1 --by cka --corpus {w}/en.conllu",
    "prune by probes": "prune {w}/bert --drop 1 --by probe --corpus {w}/en.conllu --task upos",
    "trim": "trim {w}/teacher --text {w}/texts/en.txt",
    "transfer": "transfer {w}/bert {w}/en.conllu --task upos",
    "finetune": "finetune {w}/bert upos --data {w}/en.conllu --batch-size 4",
    "finetune frozen": "finetune {w}/bert upos --data {w}/en.conllu --freeze bottom:2 --seeds 2",
    "pretrain": "pretrain {w}/pretrain.yaml",
    "distill": "distill {w}/distill.yaml",
    "adapt": "adapt --source {w}/bert --language tr --task sentence --data {w}/nli --strategy freeze+0,adapter-target "
    "--few-shot 4 --draws 2 --epochs 1 --batch-size 8",
    "evaluate retrieval": "evaluate retrieval {w}/bert {w}/lines.en --translations {w}/lines.tr",
    "evaluate perplexity": "evaluate perplexity {w}/teacher {w}/text.txt",
    "study similarity": "study similarity",
    "study redundancy": "study redundancy",
    "study transfer-learning": "study transfer-learning",
    "study distilled": "study distilled",
    "study monolingual": "study monolingual",
    "study distillation": "study distillation {w}/distill.yaml --tables 4.8",
    "demo": "demo",
}


@pytest.fixture
def hurried(monkeypatch):
    """Measure as little as can be: what is measured is tested elsewhere."""
    monkeypatch.setattr("residuum.training.costs.SECONDS", 0.0)
    monkeypatch.setattr("residuum.training.costs.FEWEST", 1)
    monkeypatch.setattr("residuum.activations.estimates.SECONDS", 0.01)
    monkeypatch.setattr("residuum.costs.TREE_NEURONS", 50)


def run(line, world, out, *more):
    words = [*line.format(w=world).split(), "--out", str(out), *more]
    return CliRunner().invoke(app, words, catch_exceptions=False)


@pytest.mark.parametrize("call", [*list(CALLS)[:-1], pytest.param("demo", marks=pytest.mark.slow)])
def test_an_estimate_says_time_and_memory_and_writes_nothing(call, world, hurried, tmp_path):
    before = sorted(world.rglob("*"))
    done = run(CALLS[call], world, tmp_path / "out", "--estimate")
    assert done.exit_code == 0, done.output
    first, *steps = done.output.splitlines()
    assert re.search(r": about .+ with (one worker|\d+ workers), .+ in memory, .+ on disk$", first), done.output
    assert steps
    assert not (tmp_path / "out").exists()
    assert sorted(world.rglob("*")) == before


def test_every_long_command_is_among_those_calls():
    called = {name for name in LONG if any(line.startswith(f"{name} ") or line == name for line in CALLS.values())}
    assert called == set(LONG) - {"evaluate adapted"}, "evaluate adapted needs what adapt wrote: tested with it"


def fixed():
    """Commands whose memory follows from model and batch; one study stands for all, which are one function."""
    others = {name for name in LONG if name.startswith("study ")} - {"study similarity"}
    return sorted(set(LONG) - CHOOSING - others - {"evaluate adapted", "redundancy", "demo"})


@pytest.mark.parametrize("name", fixed())
def test_what_cannot_choose_is_refused_by_name_before_it_begins(name, world, hurried, tmp_path):
    line = next(line for line in CALLS.values() if line.startswith(name))
    with pytest.raises(MemoryLimitError, match=r"^The step '.+' of .+ needs .+ of memory, but --max-memory allows 0"):
        run(line, world, tmp_path / "out", "--max-memory", "0.000001")
    assert not (tmp_path / "out").exists()


def test_redundancy_is_refused_where_its_tree_does_not_fit(world, tmp_path):
    with pytest.raises(MemoryLimitError, match=r"24 neurons of .+--layers"):
        run("redundancy {w}/store", world, tmp_path / "out", "--max-memory", "0.000001")


def test_what_adapt_wrote_is_estimated_too(world, hurried, tmp_path):
    line = CALLS["adapt"].replace("--few-shot 4 --draws 2", "").replace("freeze+0,adapter-target", "freeze+0")
    assert run(line, world, tmp_path / "adapted").exit_code == 0
    folder, data = tmp_path / "adapted" / "freeze+0" / "seed-0", world / "nli" / "test-tr.tsv"
    done = run(f"evaluate adapted {folder} {data} --student {world}/bert", world, tmp_path / "out", "--estimate")
    assert "24 examples: about" in done.output
    assert not (tmp_path / "out").exists()


def test_a_training_counts_its_steps_evaluations_and_bytes():
    from residuum.training import TrainingSettings
    from residuum.training.costs import Rehearsal, training_step

    settings = TrainingSettings(epochs=2, evaluate_every=10, best_score="accuracy")
    step = training_step("training", Rehearsal(0.5, 100, 30), settings, batches_per_epoch=25, evaluation=3.0)
    assert step.seconds == pytest.approx(50 * 0.5 + 5 * 3.0)
    assert (step.memory, step.disk) == (100, 2 * 30)
