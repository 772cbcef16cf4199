"""`adapt` as a whole: every kind of task, resume, baselines, few examples, folders that are loaded again."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats
from transfers import QUICK, TASKS, batch_of, corpus_of, student_of, transfer_of
from typer.testing import CliRunner

from residuum.adaptation import adapting, stages
from residuum.adaptation.adapted import evaluate_adapted, load_adapted
from residuum.adaptation.adapting import adapt, baseline_text, mean_scores
from residuum.adaptation.stages import drawn_examples
from residuum.adaptation.strategies import STRATEGIES
from residuum.adaptation.students import logits_of
from residuum.cli import app
from residuum.errors import MemoryLimitError, ModelError, SettingError, StoreError
from residuum.models.loading import weights_fingerprint
from residuum.reporting.report import section
from residuum.samples import sample_text
from residuum.storage.results import read_run
from tiny import save_model


@pytest.fixture(scope="module")
def run(students, tmp_path_factory):
    """Three strategies and few-shot training for one target language."""
    out = tmp_path_factory.mktemp("adapted")
    return adapt(
        students[0], target={"tr": students[1]}, task=TASKS["pair"], out=out, data=transfer_of(), **QUICK,
        strategy="full-target,adapter-source,bitfit-joint", few_shot=[2, 6], draws=2, save_few_shot=True,
        progress=False,
    )  # fmt: skip


def test_every_strategy_is_scored_in_the_target_language_before_and_after_few_examples(run):
    scores = run.scores[run.scores["metric"] == "accuracy"]
    counted = scores.groupby(["strategy", "k", "part"]).size().unstack("k")
    assert set(scores["strategy"]) == {"full-target", "adapter-source", "bitfit-joint"}
    assert (counted[0] == 1).all()
    assert (counted[[2, 6]] == 2).all().all()
    assert scores["value"].between(0, 1).all()
    assert list(run.table().columns) == ["language", "full-target", "adapter-source", "bitfit-joint"]


def test_one_training_serves_where_only_the_source_student_reads(run):
    folders = set(run.run.tables["trainings"]["folder"])
    assert folders == {"full-target/tr/seed-0", "adapter-source/seed-0", "bitfit-joint/tr/seed-0"}


def test_the_same_run_again_returns_at_once_and_another_one_is_an_error(run, students, monkeypatch):
    same = {"task": TASKS["pair"], "out": run.out, "data": transfer_of(), **QUICK, "progress": False}
    same |= {"strategy": "full-target,adapter-source,bitfit-joint", "few_shot": [2, 6], "draws": 2}
    monkeypatch.setattr(adapting, "learn_zero_shot", None)
    again = adapt(students[0], target={"tr": students[1]}, **same)
    pd.testing.assert_frame_equal(again.scores, run.scores)
    with pytest.raises(StoreError, match="another run"):
        adapt(students[0], target={"tr": students[1]}, **{**same, "few_shot": [2]})


def test_what_was_finished_before_a_run_was_killed_is_not_trained_again(students, tmp_path, monkeypatch):
    options = {"task": TASKS["pair"], "out": tmp_path, "data": transfer_of(), **QUICK, "progress": False}
    options |= {"strategy": "freeze+0,bitfit-target", "few_shot": [2], "draws": 1}
    with monkeypatch.context() as patch:
        patch.setattr(stages, "write_run", _killed_at("bitfit-target/tr/seed-0/scores"))
        with pytest.raises(KeyboardInterrupt):
            adapt(students[0], target={"tr": students[1]}, **options)
    trained = []
    monkeypatch.setattr(stages, "learn", _recording(stages.learn, trained))
    resumed = adapt(students[0], target={"tr": students[1]}, **options)
    assert [Path(out).relative_to(tmp_path).parts[0] for out in trained] == ["bitfit-target"]
    whole = adapt(students[0], target={"tr": students[1]}, **{**options, "out": tmp_path / "whole"})
    pd.testing.assert_frame_equal(resumed.scores, whole.scores)


def test_another_target_student_in_the_same_folder_is_noticed(students, tmp_path):
    options = {"task": TASKS["pair"], "data": transfer_of(), **QUICK, "strategy": "freeze+0"}
    adapt(students[0], target={"tr": students[1]}, out=tmp_path, progress=False, **options)
    (tmp_path / "result.json").unlink()
    with pytest.raises(StoreError, match="answering"):
        adapt(students[0], target={"tr": students[0]}, out=tmp_path, progress=False, **options)


def _killed_at(name):
    def write(folder, run):
        if name in str(folder):
            raise KeyboardInterrupt
        from residuum.storage.results import write_run

        return write_run(folder, run)

    return write


def _recording(learn, seen):
    def recorded(modules, readers, lesson, settings, out, **others):
        seen.append(out)
        return learn(modules, readers, lesson, settings, out, **others)

    return recorded


@pytest.mark.parametrize("strategy", ["full-target/tr", "adapter-source", "bitfit-joint/tr"])
def test_a_folder_is_loaded_again_and_scores_the_same(strategy, run):
    folder = run.out / strategy / "seed-0"
    found = evaluate_adapted(folder, transfer_of().targets["tr"].test, device="cpu")
    expected = run.scores.query("strategy == @strategy.split('/')[0] and k == 0 and part == 'test'")
    assert found.frame["value"].tolist() == expected["value"].tolist()


@pytest.mark.parametrize("strategy", ["full-target/tr", "adapter-source", "bitfit-joint/tr"])
def test_what_few_examples_made_is_loaded_again_and_scores_the_same(strategy, run):
    folder = run.out / strategy / "seed-0/scores/tr/k-6/draw-1"
    found = evaluate_adapted(folder, transfer_of().targets["tr"].test, device="cpu")
    expected = run.scores.query("strategy == @strategy.split('/')[0] and k == 6 and draw == 1 and part == 'test'")
    assert found.frame["value"].tolist() == expected["value"].tolist()
    network = load_adapted(folder, device="cpu").network
    zero_shot = load_adapted(run.out / strategy / "seed-0", device="cpu").network
    assert weights_fingerprint(network) != weights_fingerprint(zero_shot)  # the head at least has learnt further


def test_evaluating_an_adapted_folder_shows_its_result(run):
    folder, test = run.out / "adapter-source/seed-0", transfer_of().targets["tr"].test
    found = evaluate_adapted(folder, test, device="cpu")
    assert found.plot().data[0].x == tuple(found.frame["value"].round(4))
    assert "How well does the student solve sentence?" in found._repr_html_()


def test_what_was_put_in_can_be_taken_out_again(run, students):
    adapted = load_adapted(run.out / "adapter-source/seed-0", device="cpu")
    student = student_of(students[1])
    batch = batch_of(student)
    with torch.no_grad():
        plain, changed = logits_of(student.network(0))(batch), logits_of(adapted.network)(batch)
        assert not torch.equal(plain, changed)
        assert weights_fingerprint(adapted.remove()) == weights_fingerprint(student.network(0))
        assert torch.equal(logits_of(adapted.network)(batch), plain)


def test_a_whole_model_is_a_plain_folder_and_has_nothing_to_take_out(run):
    import transformers as hf

    folder = run.out / "full-target/tr/seed-0"
    network = hf.AutoModelForSequenceClassification.from_pretrained(folder)
    assert set(network.config.id2label.values()) == {"contradiction", "entailment", "neutral"}
    assert not (folder / "change.safetensors").exists()
    assert not (folder / "checkpoints").exists()
    with pytest.raises(SettingError, match="All of this network learnt"):
        load_adapted(folder).remove()


def test_folders_of_efficient_strategies_hold_only_what_changed(run):
    rows = run.run.tables["trainings"].set_index("strategy")
    for name, folder in (("adapter-source", "adapter-source"), ("bitfit-joint", "bitfit-joint/tr")):
        assert not (run.out / folder / "seed-0/model.safetensors").exists()
        assert rows.loc[name, "parameters saved"] == rows.loc[name, "parameters trained"]
        assert rows.loc[name, "parameters saved"] < rows.loc[name, "parameters"] / 4


def test_few_shot_training_moves_only_what_the_strategy_changed(run):
    from residuum.adaptation.changes import read_change

    before = read_change(run.out / "adapter-source/seed-0")
    after = read_change(run.out / "adapter-source/seed-0/scores/tr/k-6/draw-1")
    assert before.values.keys() == after.values.keys()
    assert before.adapters.keys() == after.adapters.keys()
    assert any(not torch.equal(before.adapters[n], after.adapters[n]) for n in before.adapters)
    assert not after.layers
    assert not after.added


def test_fewer_examples_are_among_more_and_each_draw_is_another():
    pool = corpus_of("pair", size=12)
    few, more = drawn_examples(pool, 3, seed=0, draw=0), drawn_examples(pool, 7, seed=0, draw=0)
    assert more.ids[:3] == few.ids
    assert drawn_examples(pool, 7, seed=0, draw=1).ids != more.ids
    assert len(set(more.ids)) == 7


def test_against_scipy_the_intervals_are_students(run):
    values = np.array([0.5, 0.7, 0.65, 0.9])
    keys = {"strategy": "s", "language": "tr", "k": 5, "part": "test", "metric": "accuracy"}
    found = mean_scores(pd.DataFrame([{**keys, "value": value} for value in values])).iloc[0]
    low, high = stats.t.interval(0.95, 3, loc=values.mean(), scale=stats.sem(values))
    assert (found["value"], found["low"], found["high"]) == pytest.approx((values.mean(), low, high))
    assert run.means.query("k == 0")["low"].isna().all()
    assert run.means.query("k > 0")["low"].notna().all()


@pytest.mark.parametrize(
    ("metric", "low", "high"), [("span_f1", 0, 1), ("matthews", -1, 1), ("mean_squared_error", 0, 3.04)]
)
def test_intervals_end_where_the_metric_does(metric, low, high):
    keys = {"strategy": "s", "language": "tr", "k": 5, "part": "test", "metric": metric}
    found = mean_scores(pd.DataFrame([{**keys, "value": value} for value in (0.3, 0.7)])).iloc[0]
    assert (found["low"], found["high"]) == pytest.approx((low, high), abs=0.01)


def test_scores_stand_beside_those_of_a_constant_answer(run):
    """Against a count of labels: the tiny students have learnt nothing, and the result says so."""
    corpora = transfer_of()
    (train,), (test,) = (part.sentence_labels.values() for part in (corpora.train, corpora.targets["tr"].test))
    counts = {label: train.count(label) for label in train}
    expected = test.count(max(counts, key=counts.get)) / len(test)  # the first of equally frequent ones
    assert run.run.summary["test accuracy baseline"] == pytest.approx(expected)
    assert f"Always answering the most frequent training label has a test accuracy of {expected:.3f}" in run.text()
    summary = {
        "metric": "accuracy", "kind": "classification", "test accuracy baseline": 0.5,
        "target examples": {"tr": {"test": 100}}, "test accuracy": {"a": 0.7, "b": 0.55},
    }  # fmt: skip
    assert baseline_text(summary).endswith("clearly better: a; not: b.")
    assert "no strategy is clearly better on 100 examples" in baseline_text({**summary, "test accuracy": {"b": 0.55}})


def test_the_report_shows_strategies_and_few_shot_curves(run):
    shown = section(read_run(run.out), str(run.out))
    assert [panel.title for panel in shown.panels] == [
        "Zero-shot score of each strategy", "Score with a few examples"
    ]  # fmt: skip
    assert "transfer to tr" in shown.title
    texts = " ".join(finding.text for finding in shown.findings)
    assert "The best strategy on the test part" in texts
    assert "Always answering the most frequent training label" in texts
    assert "6 examples of the target language changed" in texts
    (curve,) = shown.panels[1].views
    assert {trace.name for trace in curve.figure.data if trace.name} == set(run.run.config["strategies"])


@pytest.mark.parametrize("kind", ["tagging", "choice"])
def test_other_kinds_of_tasks_with_a_teacher_and_few_examples(kind, students, tmp_path):
    common = {"task": TASKS[kind], "data": transfer_of(kind), **QUICK, "progress": False}
    taught = adapt(students[0], language="tr", out=tmp_path / "teacher", **common)
    found = adapt(
        students[0], target={"tr": students[1]}, out=tmp_path / "students", strategy="adapter-joint,sparse-delta",
        teacher=taught.out / "full-target/tr/seed-0", few_shot=[4], draws=1, **common,
    )  # fmt: skip
    assert (read_run(found.out / "adapter-joint/tr/seed-0").tables["history"]["logits"] > 0).all()
    assert found.run.summary["metric"] == {"tagging": "span_f1", "choice": "accuracy"}[kind]
    assert len(found.means.query("part == 'test' and k == 4")) == 2 * len(set(found.means["metric"]))


def test_questions_of_the_target_language_may_have_another_number_of_candidates(students, tmp_path):
    corpora = transfer_of("choice")
    wider = [replace(c, choices=[[*row, "nothing of it"] for row in c.choices]) for c in (corpora.train, corpora.dev)]
    corpora = replace(corpora, train=wider[0], dev=wider[1])
    found = adapt(
        students[0], target={"tr": students[1]}, task=TASKS["choice"], out=tmp_path, data=corpora, **QUICK,
        strategy="freeze+2", few_shot=[4], draws=1, progress=False,
    )  # fmt: skip
    assert set(found.scores["k"]) == {0, 4}


def test_a_multilingual_model_is_source_and_target_and_layers_can_be_left_out(students, tmp_path):
    found = adapt(
        students[0], task=TASKS["pair"], out=tmp_path, data=transfer_of("pair", ("tr", "sw")), language=["tr", "sw"],
        strategy="full-source", keep_layers="top:2", **QUICK, seeds=2, few_shot=[2], draws=2, progress=False,
    )  # fmt: skip
    assert found.table()["language"].tolist() == ["tr", "sw", "average"]
    assert found.run.tables["trainings"]["layers"].tolist() == [2, 2]
    assert found.table()["full-source"].iloc[2] == pytest.approx(found.table()["full-source"].iloc[:2].mean())
    assert found.means.groupby("k")["n"].unique().map(list).to_dict() == {0: [2], 2: [4]}  # seeds, and their draws


def test_task_distillation_stands_on_top_of_a_strategy(run, students, tmp_path):
    found = adapt(
        students[0], target={"tr": students[1]}, task=TASKS["pair"], out=tmp_path, data=transfer_of(), **QUICK,
        strategy="bitfit-target", teacher=run.out / "full-target/tr/seed-0", progress=False,
    )  # fmt: skip
    history = read_run(tmp_path / "bitfit-target/tr/seed-0").tables["history"]
    torch.testing.assert_close(torch.tensor(history["task"] + history["logits"]), torch.tensor(history["loss"]))
    assert found.run.config["teacher"]["model"].endswith("full-target/tr/seed-0")


def test_students_of_different_vocabularies_cannot_read_one_batch(students, tiny_folder, tmp_path):
    with pytest.raises(ModelError, match="different tokens, so that no batch can go through both"):
        adapt(
            students[0], target={"tr": tiny_folder("bert")}, task=TASKS["pair"], out=tmp_path, data=transfer_of(),
            **QUICK, strategy="bitfit-joint", progress=False,
        )  # fmt: skip


def test_users_mistakes_are_said_in_one_line(students, tmp_path):
    common = {"task": TASKS["pair"], "out": tmp_path, "data": transfer_of(), "progress": False}
    with pytest.raises(SettingError, match="target languages are not given"):
        adapt(students[0], target=students[1], **common)
    with pytest.raises(SettingError, match="no data for the target language sw; the corpora have tr"):
        adapt(students[0], target={"sw": students[1]}, **common)
    with pytest.raises(SettingError, match="few_shot is 50, but sample-nli-tr-train has only 12"):
        adapt(students[0], target={"tr": students[1]}, few_shot=[50], **common)
    with pytest.raises(SettingError, match="few_shot is 5, 5; expected different numbers"):
        adapt(students[0], target={"tr": students[1]}, few_shot=[5, 5], **common)
    with pytest.raises(SettingError, match="seeds is 0; expected a whole number at least 1"):
        adapt(students[0], target={"tr": students[1]}, seeds=0, **common)
    with pytest.raises(StoreError, match="holds no adaptation.json"):
        load_adapted(tmp_path)


def test_a_strategy_that_does_not_fit_into_the_memory_limit_is_refused(run, students, tmp_path):
    weights = 4 * sum(p.numel() for p in student_of(students[0]).network(0).parameters())
    common = {"task": TASKS["pair"], "out": tmp_path / "out", "data": transfer_of(), **QUICK, "progress": False}
    with pytest.raises(MemoryLimitError, match="--max-memory allows"):
        adapt(students[0], target={"tr": students[1]}, strategy="freeze+0", max_memory=weights // 4, **common)
    with pytest.raises(MemoryLimitError, match="Training by full-target needs"):
        adapt(students[0], target={"tr": students[1]}, max_memory=3 * weights, **common)
    assert not (tmp_path / "out").exists()
    with pytest.raises(MemoryLimitError, match="--max-memory allows"):
        evaluate_adapted(run.out / "adapter-source/seed-0", transfer_of().targets["tr"].test, max_memory=1000)


def test_the_command_line_gives_the_numbers_of_python(students, tmp_path):
    for split, language, n in (("train", "en", 16), ("dev", "en", 8), ("dev", "tr", 8), ("test", "tr", 8)):
        text = sample_text("nli", language=language, size=n, split=split)
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / f"data/{split}-{language}.tsv").write_text(text, encoding="utf-8")
    out = tmp_path / "cli"
    arguments = [
        "adapt", str(students[0]), str(tmp_path / "data"), "--target", f"tr={students[1]}", "--task", "sentence",
        "--strategy", "freeze+0", "--out", str(out), "--epochs", "1", "--batch-size", "8",
        "--learning-rate", "3e-3", "--few-shot", "4", "--draws", "2", "--few-shot-epochs", "2",
        "--few-shot-learning-rate", "3e-3", "--reduction", "4", "--device", "cpu",
    ]  # fmt: skip
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "test accuracy, 4 examples of the target language, mean of 2 runs\nlanguage    tr\nfreeze+0" in result.output
    same = adapt(
        students[0], target={"tr": students[1]}, task="sentence", out=tmp_path / "python", data=tmp_path / "data",
        strategy="freeze+0", few_shot=[4], draws=2, **QUICK, device="cpu", progress=False,
    )  # fmt: skip
    pd.testing.assert_frame_equal(read_run(out).tables["scores"], same.scores)
    few = same.means.query("k == 4 and part == 'test' and metric == 'accuracy'")
    assert same.table("test", k=4)["freeze+0"].tolist() == few["value"].tolist()
    scored = CliRunner().invoke(
        app,
        ["evaluate", "adapted", str(out / "freeze+0/seed-0"), str(tmp_path / "data/test-tr.tsv"), "--out",
         str(tmp_path / "scored")],
        catch_exceptions=False,
    )  # fmt: skip
    value = same.scores.query("k == 0 and part == 'test' and metric == 'accuracy'")["value"].item()
    assert f"accuracy: {value:.4f}" in scored.output


@pytest.mark.slow
def test_two_processes_give_what_one_with_twice_the_batch_gives(tmp_path):
    """Without dropout, which each process draws for itself, and with batches that are not grouped by length."""
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    source, target = (save_model("xlm-roberta", tmp_path / name, seed=seed, **still) for seed, name in enumerate("st"))
    (tmp_path / "data").mkdir()
    for split, language, n in (("train", "en", 16), ("dev", "en", 8), ("dev", "tr", 8), ("test", "tr", 8)):
        text = sample_text("nli", language=language, size=n, split=split)
        (tmp_path / f"data/{split}-{language}.tsv").write_text(text, encoding="utf-8")
    arguments = ["adapt", source, tmp_path / "data", "--target", f"tr={target}", "--task", "sentence", "--epochs", 1]
    arguments += [
        "--strategy",
        "adapter-joint",
        "--few-shot",
        4,
        "--draws",
        1,
        "--few-shot-epochs",
        1,
        "--no-by-length",
    ]
    arguments += ["--learning-rate", 3e-3, "--few-shot-learning-rate", 3e-3, "--reduction", 4, "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    for processes, size in ((1, 8), (2, 4)):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
        options = ["--batch-size", size, "--save-few-shot", "--out", tmp_path / str(processes)]
        command = [*launcher, "-m", "residuum", *arguments, *options]
        done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("test accuracy, zero-shot") == 1, "only the main process speaks"
    one, two = (read_run(tmp_path / name) for name in ("1", "2"))
    pd.testing.assert_frame_equal(two.tables["scores"], one.tables["scores"])
    changes = [sorted((tmp_path / name).rglob("change.safetensors")) for name in ("1", "2")]
    assert len(changes[0]) == len(changes[1]) == 2  # after the source language, and after few examples
    for alone, together in zip(*changes, strict=True):
        learnt = load_file(together)
        for name, value in load_file(alone).items():
            torch.testing.assert_close(learnt[name], value, rtol=1e-4, atol=2e-5)
    assert not list(tmp_path.rglob("checkpoints"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", TASKS)
def test_the_whole_grid_for_every_kind_of_task(kind, students, tmp_path):
    found = adapt(
        students[0], target={"tr": students[1], "sw": students[1]}, task=TASKS[kind], out=tmp_path,
        data=transfer_of(kind, ("tr", "sw")), strategy="all", few_shot=[4], draws=2, **QUICK, progress=False,
    )  # fmt: skip
    assert list(found.table().columns) == ["language", *STRATEGIES]
    assert len(found.run.tables["trainings"]) == 7 + 2 * 5
