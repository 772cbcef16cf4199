"""`finetune`: every kind of task, frozen and cut models, resume to the last bit, and what is written."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file

from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, TaskCorpora, named_task
from residuum.errors import DataError, MemoryLimitError, SettingError, StoreError
from residuum.reporting.report import section
from residuum.samples import sample, sample_text
from residuum.storage.results import read_run
from residuum.training.encoding import Problem
from residuum.training.finetuning import finetune, prepare
from residuum.training.networks import SplitNetwork, fill_cache
from residuum.training.settings import FinetuneSettings
from teachers import save_teacher
from tiny import save_model

QUICK = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3}
STS = "score\tsentence1\tsentence2\n" + "".join(f"{i % 5}.5\ta fox {i}\tthe dog {i % 3}\n" for i in range(40))


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A task of every kind: its name, its data, and the class that reads the result."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "copa.jsonl").write_text(sample_text("copa", size=40), encoding="utf-8")
    (folder / "sts.tsv").write_text(STS)
    return {
        "single": ("sentence", sample("polarity", size=40), hf.AutoModelForSequenceClassification),
        "pair": ("sentence", sample("nli", size=40), hf.AutoModelForSequenceClassification),
        "regression": ("stsb", folder / "sts.tsv", hf.AutoModelForSequenceClassification),
        "tagging": ("ner", sample("ner", size=40), hf.AutoModelForTokenClassification),
        "choice": ("choice", folder / "copa.jsonl", hf.AutoModelForMultipleChoice),
    }


@pytest.mark.parametrize("kind", ["single", "pair", "regression", "tagging", "choice"])
def test_every_kind_of_task_gives_a_model_that_from_pretrained_reads(kind, corpora, tiny_folder, tmp_path):
    task, data, auto = corpora[kind]
    result = finetune(tiny_folder("bert"), data, task, tmp_path, progress=False, **QUICK)
    network = auto.from_pretrained(tmp_path)
    assert hf.AutoTokenizer.from_pretrained(tmp_path)("the fox")["input_ids"]
    assert set(result.scores["part"]) == {"dev", "test"}
    assert result.scores["value"].notna().all()
    metric = result.run.summary["metric"]
    assert metric == {"regression": "spearman", "tagging": "span_f1"}.get(kind, "accuracy")
    if kind != "regression" and kind != "choice":
        assert set(network.config.id2label.values()) != {"LABEL_0", "LABEL_1"}
    assert not (tmp_path / "checkpoints").exists()
    best = result.curves[result.curves["metric"] == metric].set_index("step")["value"]
    dev = result.scores.query("part == 'dev' and metric == @metric")["value"].item()
    assert dev == pytest.approx(best.max())
    assert best[result.run.summary["best step"]] == best.max()


def weights(folder):
    return load_file(Path(folder) / "model.safetensors")


@pytest.mark.parametrize("cache", [True, False])
def test_frozen_layers_stay_what_they_were_to_the_bit(cache, corpora, tiny_folder, tmp_path):
    task, data, _ = corpora["single"]
    base = load_file(tiny_folder("bert") / "model.safetensors")
    result = finetune(
        tiny_folder("bert"), data, task, tmp_path, freeze="bottom:2", cache=cache, progress=False, **QUICK
    )
    after = weights(tmp_path)
    for name, weight in base.items():
        frozen = name.startswith(("embeddings", "encoder.layer.0.", "encoder.layer.1."))
        assert torch.equal(weight, after[f"bert.{name}"]) == frozen, name
    assert result.run.summary["frozen bottom"] == ("2 layers, computed once" if cache else "none")
    assert result.run.summary["parameters trained"] < result.run.summary["parameters"]


@pytest.mark.parametrize("memory", [1 << 30, 0], ids=["in memory", "on disk"])
def test_a_frozen_bottom_is_computed_once_for_all_seeds(memory, corpora, tiny_folder, tmp_path, monkeypatch):
    task, data, _ = corpora["single"]
    read, lower = [], SplitNetwork.lower

    def counted(network, inputs):
        read.append(len(inputs["input_ids"]))
        return lower(network, inputs)

    monkeypatch.setattr(SplitNetwork, "lower", counted)
    parts = TaskCorpora(*data.split((0.8, 0.1, 0.1)))
    options = {"data": parts, "freeze": "bottom:2", "cache_memory": memory, **QUICK, "progress": False}
    finetune(tiny_folder("bert"), task=task, out=tmp_path / "one", seed=1, **options)
    once = sum(read)
    finetune(tiny_folder("bert"), task=task, out=tmp_path / "both", seeds=2, **options)
    trials = 2  # each network is tried on a sequence before it is cut
    assert once < sum(read) - once <= once + trials
    one, other = weights(tmp_path / "one"), weights(tmp_path / "both" / "seed-1")
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not list(tmp_path.rglob("*.bin"))


def test_states_do_not_depend_on_what_a_seed_draws(corpora, tmp_path, monkeypatch):
    """A model without a pooler is given a random one by every seed."""
    task, data, _ = corpora["single"]
    model, filled = save_teacher("bert", tmp_path / "model"), []
    monkeypatch.setattr(
        "residuum.training.finetuning.fill_cache", lambda *a, **k: filled.append(1) or fill_cache(*a, **k)
    )
    finetune(model, data, task, tmp_path / "out", freeze="bottom:2", seeds=2, progress=False, **QUICK)
    assert len(filled) == 2  # the training and the development part


def test_a_fresh_run_of_several_seeds_that_was_stopped_can_go_on(corpora, tiny_folder, tmp_path, monkeypatch):
    task, data, _ = corpora["single"]
    options = {"data": data, "seeds": 2, "progress": False}
    finetune(tiny_folder("bert"), task=task, out=tmp_path, **{**QUICK, "epochs": 0.5}, **options)

    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("residuum.training.finetuning.finetune_seed", stopped)
        finetune(tiny_folder("bert"), task=task, out=tmp_path, fresh=True, **QUICK, **options)
    assert len(finetune(tiny_folder("bert"), task=task, out=tmp_path, **QUICK, **options).folders) == 2
    (tmp_path / "seed-1" / "model.safetensors").unlink()
    with pytest.raises(StoreError, match="seed-1 had a model, which is gone"):
        finetune(tiny_folder("bert"), task=task, out=tmp_path, **QUICK, **options)


def test_a_fresh_run_leaves_no_model_of_other_seeds(corpora, tiny_folder, tmp_path):
    task, data, _ = corpora["single"]
    options = {"data": data, "progress": False, **QUICK, "epochs": 0.5, "fresh": True}

    def models_after(seeds):
        finetune(tiny_folder("bert"), task=task, out=tmp_path, seeds=seeds, **options)
        return sorted(str(path.parent.relative_to(tmp_path)) for path in tmp_path.glob("**/model.safetensors"))

    assert models_after(1) == ["."]
    assert models_after(2) == ["seed-0", "seed-1"]
    assert models_after([1, 2]) == ["seed-1", "seed-2"]
    assert models_after(1) == ["."]


def test_candidates_must_be_there_to_be_chosen_from(corpora, tiny_folder, tmp_path):
    with pytest.raises(DataError, match="has no candidates to choose from"):
        finetune(tiny_folder("bert"), corpora["single"][1], "choice", tmp_path, progress=False, **QUICK)


def test_what_learns_has_dropout_and_what_is_frozen_has_none(corpora, tiny_folder, tmp_path):
    task, data, _ = corpora["single"]
    settings = FinetuneSettings(tiny_folder("bert"), None, task, tmp_path, freeze="bottom:2", device="cpu")
    model, _, _ = prepare(settings, named_task(task), TaskCorpora(*data.split((0.8, 0.1, 0.1))), tmp_path, 0)
    noisy = {
        name.split("bert.")[-1][:15]
        for name, part in model.network.named_modules()
        if isinstance(part, torch.nn.Dropout) and part.training
    }
    assert noisy == {"encoder.layer.2", "dropout"}


def test_the_cache_changes_no_result_but_rounding(corpora, tiny_folder, tmp_path):
    task, data, _ = corpora["pair"]
    found = [
        finetune(
            tiny_folder("bert"),
            data,
            task,
            tmp_path / name,
            freeze="bottom:2",
            progress=False,
            **QUICK,
            **options,
        )
        for name, options in {
            "plain": {"cache": False},
            "memory": {},
            "disk": {"cache_memory": 0},
        }.items()
    ]
    plain, memory, disk = (weights(result.folders[0]) for result in found)
    for name in plain:
        torch.testing.assert_close(memory[name], plain[name], atol=1e-4, rtol=1e-3)
        assert torch.equal(memory[name], disk[name])
    assert not (tmp_path / "disk" / "cache").exists()


def test_layers_are_dropped_before_training(corpora, tiny_folder, tmp_path):
    task, data, _ = corpora["single"]
    result = finetune(tiny_folder("bert"), data, task, tmp_path, drop="top:2", progress=False, **QUICK)
    assert hf.AutoConfig.from_pretrained(tmp_path).num_hidden_layers == 1
    assert result.run.summary["layers"] == 1


def test_several_seeds_give_several_models_and_one_table(corpora, tiny_folder, tmp_path):
    task, data, _ = corpora["single"]
    run = lambda **options: finetune(  # noqa: E731
        tiny_folder("bert"), data, task, tmp_path, seeds=2, seed=3, progress=False, **QUICK, **options
    )
    result = run()
    assert [folder.name for folder in result.folders] == ["seed-3", "seed-4"]
    first, second = (weights(folder) for folder in result.folders)
    assert not torch.equal(first["classifier.weight"], second["classifier.weight"])
    accuracy = result.scores.query("part == 'test' and metric == 'accuracy'")["value"]
    assert result.run.summary["test accuracy"] == pytest.approx(accuracy.mean())
    assert result.run.summary["test accuracy deviation"] == pytest.approx(accuracy.std())
    written = (result.folders[0] / "model.safetensors").stat().st_mtime_ns
    (tmp_path / "result.json").unlink()  # as if killed after both seeds
    pd.testing.assert_frame_equal(run().scores, result.scores)
    assert (result.folders[0] / "model.safetensors").stat().st_mtime_ns == written


def test_the_text_gives_the_score_beside_a_constant_answer_over_seeds(corpora, tiny_folder, tmp_path):
    task, data, _ = corpora["pair"]
    result = finetune(tiny_folder("bert"), data, task, tmp_path, seeds=2, progress=False, **QUICK)
    test = result.scores.query("part == 'test' and metric == 'accuracy'")
    labels = [str(label) for label in data.split((0.8, 0.1, 0.1), 0)[2].targets()]
    most_frequent = Counter(map(str, data.split((0.8, 0.1, 0.1), 0)[0].targets())).most_common(1)[0][0]
    assert list(test["baseline"]) == [labels.count(most_frequent) / len(labels)] * 2
    answer = next(line for line in result.text().splitlines() if line.startswith("Fine-tuned on sentence, bert"))
    assert f"test accuracy of {test['value'].mean():.4f} (mean of 2 seeds, standard deviation" in answer
    assert answer.endswith(f"than always answering the most frequent label ({test['baseline'].iloc[0]:.4f}).")
    assert result.text().splitlines()[-1].startswith("Next: residuum diff before=")


@pytest.mark.parametrize(
    ("kind", "train", "truth", "expected"),
    [
        ("classification", ["a", "b", "b"], ["b", "a"], {"accuracy": 0.5, "matthews": 0.0}),
        ("regression", [1.0, 3.0], [1.0, 2.0], {"pearson": 0.0, "mean_squared_error": 0.5}),
        ("tagging", [["O", "B-X"], ["O", None]], [["B-X", "O", None]], {"accuracy": 0.5, "span_f1": 0.0}),
        ("choice", ["1", "1", "0"], ["1", "0"], {"accuracy": 0.5}),
    ],
)
def test_the_baseline_is_the_score_of_a_constant(kind, train, truth, expected):
    classes = {"classification": ("a", "b"), "regression": (), "tagging": ("B-X", "O"), "choice": ("0", "1")}[kind]
    baseline = Problem(Task("any"), kind, classes).baseline(train, truth)
    assert {name: baseline[name] for name in expected} == pytest.approx(expected)


def test_the_same_run_returns_at_once_and_another_needs_fresh(corpora, tiny_folder, tmp_path):
    task, data, _ = corpora["single"]
    options = {"data": data, **QUICK, "progress": False}
    first = finetune(tiny_folder("bert"), task=task, out=tmp_path, **options)
    written = (tmp_path / "model.safetensors").stat().st_mtime_ns
    second = finetune(tiny_folder("bert"), task=task, out=tmp_path, **options)
    pd.testing.assert_frame_equal(first.scores, second.scores)
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == written
    with pytest.raises(StoreError, match="freeze None → embeddings"):
        finetune(tiny_folder("bert"), task=task, out=tmp_path, freeze="embeddings", **options)
    finetune(tiny_folder("bert"), task=task, out=tmp_path, freeze="embeddings", fresh=True, **options)
    assert read_run(tmp_path).config["freeze"] == "embeddings"


def test_broken_off_between_checkpoints_it_ends_with_the_same_bits(corpora, broken_off, tiny_folder, tmp_path):
    task, data, _ = corpora["single"]
    settings = {**QUICK, "epochs": 4, "checkpoint_every": 3}

    def run(name):
        finetune(tiny_folder("bert"), data, task, tmp_path / name, freeze="bottom:1", progress=False, **settings)

    with broken_off():
        run("broken")
    assert list((tmp_path / "broken" / "checkpoints").glob("*/progress.json"))
    run("broken")
    run("whole")
    whole, resumed = weights(tmp_path / "whole"), weights(tmp_path / "broken")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


RUN = """
import sys
from residuum.training.encoding import Problem
from residuum.training.finetuning import finetune, prepare
from residuum.samples import sample
settings = {"epochs": 5, "batch_size": 4, "learning_rate": 1e-3, "checkpoint_every": 3}
finetune(sys.argv[1], sample("polarity", size=40), "sentence", sys.argv[2], freeze="bottom:1", **settings)
"""


@pytest.mark.slow
def test_killed_and_started_again_it_ends_with_the_same_bits(tiny_folder, tmp_path):
    command = [sys.executable, "-c", RUN, str(tiny_folder("bert"))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    subprocess.run([*command, str(tmp_path / "whole")], env=environment, check=True, capture_output=True)
    killed = subprocess.Popen([*command, str(tmp_path / "killed")], env=environment, stderr=subprocess.DEVNULL)
    progress = tmp_path / "killed" / "checkpoints"
    deadline = time.monotonic() + 120
    while killed.poll() is None and not list(progress.glob("*/progress.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL, "it ended before it could be killed"
    subprocess.run([*command, str(tmp_path / "killed")], env=environment, check=True, capture_output=True)
    whole, resumed = (weights(tmp_path / name) for name in ("whole", "killed"))
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.slow
def test_two_processes_give_what_one_with_twice_the_batch_gives(tmp_path):
    """Without dropout, which differs by the batch, and with two seeds, a frozen bottom and its states on disk."""
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = save_model("bert", tmp_path / "bert", **quiet)
    (tmp_path / "train.tsv").write_text(sample_text("polarity", size=40), encoding="utf-8")
    arguments = ["finetune", model, tmp_path / "train.tsv", "--task", "sentence", "--seeds", 2, "--epochs", 2]
    arguments += ["--learning-rate", 1e-3, "--freeze", "bottom:1", "--cache-memory", 0, "--device", "cpu", "--fresh"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    for processes, size in ((1, 8), (2, 4)):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        command = [*launcher, "-m", "residuum", *arguments, "--batch-size", size, "--out", tmp_path / str(processes)]
        done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("The model is in") == 1, "only the main process speaks"
    one, two = (read_run(tmp_path / name) for name in ("1", "2"))
    pd.testing.assert_frame_equal(two.tables["scores"], one.tables["scores"])
    for table in ("curves", "history"):
        values = two.tables[table].drop(columns="seconds", errors="ignore")
        pd.testing.assert_frame_equal(values, one.tables[table].drop(columns="seconds", errors="ignore"), rtol=1e-3)
    assert list(two.tables["curves"]["epoch"].unique()) == [1, 2]
    for seed in ("seed-0", "seed-1"):
        alone, together = (weights(tmp_path / name / seed) for name in ("1", "2"))
        for name, value in alone.items():
            torch.testing.assert_close(together[name], value, rtol=1e-4, atol=1e-5)
        assert not (tmp_path / "2" / seed / "checkpoints").exists()
        assert not (tmp_path / "2" / seed / "cache").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"max_length": 16}, "max_length 128 → 16"),
        ({"task": Task("sentence", "second", "sentence")}, "label label → second"),
        ({"drop": "top:1"}, "drop None → top:1"),
    ],
)
def test_a_broken_off_run_goes_on_under_the_same_settings_only(changed, message, broken_off, tiny_folder, tmp_path):
    polarity = sample("polarity", size=40)
    labels = polarity.targets()
    data = replace(polarity, sentence_labels={"label": labels, "second": labels[::-1]})
    task = Task("sentence", "label", "sentence")
    options = {"data": data, **QUICK, "epochs": 4, "checkpoint_every": 3, "progress": False}

    with broken_off():
        finetune(tiny_folder("bert"), task=task, out=tmp_path, **options)
    with pytest.raises(StoreError, match=f"holds checkpoints of another run .*{message}"):
        finetune(tiny_folder("bert"), **{"task": task, "out": tmp_path, **options, **changed})
    finetune(tiny_folder("bert"), task=task, out=tmp_path, **options)


def test_the_card_tells_scores_data_and_settings(corpora, tiny_folder, tmp_path):
    task, data, _ = corpora["pair"]
    result = finetune(tiny_folder("bert"), data, task, tmp_path, freeze="top:1", progress=False, **QUICK)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    test = result.scores.query("part == 'test' and metric == 'accuracy'")["value"].item()
    assert f"| test | 4 | {test:.4f} |" in card
    assert "Frozen: top:1." in card
    assert "sample-nli-en-train was cut into 80%, 10%, 10% by seed 0" in card
    assert "learning rate: 0.001" in card
    assert card.startswith("---\nlibrary_name: transformers\n")


def test_names_add_no_lines_and_no_html_to_the_card(corpora, tiny_folder, tmp_path):
    task, data, _ = corpora["single"]
    model = shutil.copytree(tiny_folder("bert"), tmp_path / "a\n# b <script>")
    finetune(model, data, task, tmp_path / "out", progress=False, **{**QUICK, "epochs": 0.5})
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "# a # b &lt;script&gt;, fine-tuned on sentence\n" in card
    assert "<script>" not in card


def test_the_report_shows_the_curves(corpora, tiny_folder, tmp_path):
    task, data, _ = corpora["tagging"]
    result = finetune(tiny_folder("bert"), data, task, tmp_path, progress=False, **QUICK)
    shown = section(read_run(tmp_path))
    assert shown.title == "What did bert learn about ner?"
    assert f"{result.run.summary['test span_f1']:.3f}" in shown.facts["test span_f1"]
    scores, losses = shown.panels
    assert scores.first == "span_f1"
    assert [trace.name for trace in losses.views[0].figure.data] == ["seed 0"]
    assert list(losses.views[0].figure.data[0].y) == pytest.approx(result.history["loss"].round(4).tolist())


def test_a_model_that_cannot_be_trained_within_the_memory_limit_is_refused(corpora, tiny_folder, tmp_path):
    task, data, _ = corpora["single"]
    options = {"data": data, **QUICK, "progress": False, "max_memory": 100_000}
    with pytest.raises(MemoryLimitError, match=r"^Training bert needs .+ GB for weights, gradients and optimiser, but"):
        finetune(tiny_folder("bert"), task=task, out=tmp_path / "out", **options)
    assert not (tmp_path / "out" / "checkpoints").exists()
    finetune(tiny_folder("bert"), task=task, out=tmp_path / "out", freeze="bottom:3", **options)


def test_decoders_learn_too(corpora, tiny_folder, tmp_path):
    task, data, _ = corpora["pair"]
    finetune(tiny_folder("gpt2"), data, task, tmp_path, freeze="bottom:1", progress=False, **QUICK)
    assert hf.AutoModelForSequenceClassification.from_pretrained(tmp_path).config.pad_token_id is not None


def test_a_fine_tuned_model_answers_as_it_was_scored(corpora, tiny_folder, tmp_path):
    task, data, _ = corpora["single"]
    result = finetune(tiny_folder("bert"), data, task, tmp_path, progress=False, **QUICK)
    network = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path)
    test = data.split((0.8, 0.1, 0.1), 0)[2]
    right = 0
    for i, label in enumerate(test.targets()):
        batch = tokenizer(test.text(i), truncation=True, max_length=48, return_tensors="pt")
        with torch.inference_mode():
            place = int(network(batch["input_ids"], batch["attention_mask"]).logits.argmax())
        right += network.config.id2label[place] == label
    assert right / len(test) == result.scores.query("part == 'test' and metric == 'accuracy'")["value"].item()


def test_the_command_gives_the_numbers_of_python(corpora, tiny_folder, tmp_path, monkeypatch, capfd):
    from residuum.cli import main

    (tmp_path / "train.tsv").write_text(sample_text("polarity", size=40), encoding="utf-8")
    arguments = [
        "finetune",
        tiny_folder("bert"),
        tmp_path / "train.tsv",
        "--task",
        "sentence",
        "--out",
        tmp_path / "cli",
    ]
    arguments += ["--epochs", 2, "--learning-rate", 1e-3, "--freeze", "bottom:1"]
    monkeypatch.setattr(sys, "argv", ["residuum", *map(str, arguments)])
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit, match="^0?$"):
            main()
    finally:
        signal.signal(signal.SIGINT, handler)
    python = finetune(
        tiny_folder("bert"),
        tmp_path / "train.tsv",
        "sentence",
        tmp_path / "python",
        freeze="bottom:1",
        progress=False,
        **QUICK,
    )
    pd.testing.assert_frame_equal(read_run(tmp_path / "cli").tables["scores"], python.scores)
    assert "seed 0, test: accuracy" in capfd.readouterr().out
    assert json.loads((tmp_path / "cli" / "config.json").read_text())["architectures"] == [
        "BertForSequenceClassification"
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "sentence"}, "The task 'sentence' has no data of its own; pass a corpus"),
        ({"seeds": 0}, "seeds is 0; expected a number from 1"),
        ({"seeds": [1, 1]}, r"seeds is \[1, 1\]"),
        ({"max_length": 4}, "max_length is 4; expected a whole number at least 8"),
        ({"freeze": "bottom:9"}, "names 9 layers; the model has 1–3"),
        ({"drop": "all"}, "'all' names layer 0, the embeddings, which stay"),
    ],
)
def test_mistakes_are_said_before_training(options, message, tiny_folder, tmp_path):
    task = options.pop("task", None)
    data = None if task else Corpus(name="c", sentences=[["a"]] * 20, sentence_labels={"label": ["x", "y"] * 10})
    with pytest.raises(SettingError, match=message):
        finetune(tiny_folder("bert"), data, task or "sentence", tmp_path, progress=False, **options)
