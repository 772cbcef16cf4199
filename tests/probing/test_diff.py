"""`diff`: nothing is found between equals, change is found where it was made, and every model reads once."""

import shutil
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from labelled_text import labelled_text

import residuum
from residuum.activations.correlation import clustering_bytes
from residuum.comparison.estimates import ComparisonPlan
from residuum.corpus import Corpus
from residuum.engine import run_tasks
from residuum.errors import MemoryLimitError, ModelError, StoreError
from residuum.models.loading import Model
from residuum.probing.diff import diff, steps_at_once
from residuum.probing.diff_tables import probe_tasks

PAPER = {"recipe": "paper", "seeds": 1, "epochs": 1, "batch_size": 64, "learning_rate": 0.01}
QUICK = {**PAPER, "by": "lca", "groups": 2, "thresholds": (0.3, 0.7), "shares": (0.1,), "workers": 1}
TASKS = ("upos", "length", "some")


@contextmanager
def counted_readings():
    """Count the sentences that each model reads, by the name of its folder."""
    counts, read = Counter(), Model.read

    def counting(self, batch, layers, attention=False):
        counts[self.name] += len(batch["input_ids"])
        return read(self, batch, layers, attention)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Model, "read", counting)
        yield counts


@pytest.fixture(scope="module")
def models(tiny_folder, tmp_path_factory):
    """A base, the same again, the same without its last layer, and a decoder with another tokenizer."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(tiny_folder("bert"), folder / "twin")
    residuum.prune(tiny_folder("bert"), folder / "pruned", drop="top:1")
    return [tiny_folder("bert"), folder / "twin", folder / "pruned", tiny_folder("gpt2")]


@pytest.fixture(scope="module")
def text():
    return labelled_text()


@pytest.fixture(scope="module")
def measured(models, text, tmp_path_factory):
    """The result, and how many sentences each model read for it."""
    with counted_readings() as counts:
        out = tmp_path_factory.mktemp("runs") / "diff"
        return diff(models, text, TASKS, out=out, progress=False, **QUICK), counts, out


@pytest.fixture(scope="module")
def result(measured):
    return measured[0]


def of(table, **where):
    for column, value in where.items():
        table = table.loc[table[column] == value]
    return table.reset_index(drop=True)


def test_every_model_reads_every_sentence_once_for_all_tasks_clusters_and_similarities(measured, text):
    _, counts, _ = measured
    assert counts == dict.fromkeys(("bert", "twin", "pruned", "gpt2"), len(text))


def test_equal_models_differ_by_exactly_nothing(result):
    change = of(result.frame, model="twin")
    assert len(change) == len(TASKS) * 5
    assert (change[["change", "low", "high"]] == 0).all(axis=None)
    for name in ("scores", "selection", "minimal", "spread", "properties", "survivors", "thresholds"):
        base, twin = (of(result.run.tables[name], model=model).drop(columns="model") for model in ("bert", "twin"))
        pd.testing.assert_frame_equal(base, twin)
    assert np.allclose(of(result.likeness, model="twin")["value"], 1)


def test_a_model_whose_probe_does_not_beat_a_baseline_is_warned_of(result):
    whole, known = result.scores.loc[result.scores["layer"].isna()], result.run.tables["baselines"]
    expected = {
        f"of {row['model']} for {row['task']}"
        for row in whole.to_dict("records")
        if row["low"] <= known.loc[known["task"] == row["task"], "score"].max()
    }
    assert expected
    warnings = result.run.summary["warnings"]
    assert {own for own in expected if any(own in line for line in warnings)} == expected
    assert all(any(own in line for own in expected) for line in warnings)
    assert warnings[0] in result.text()


def test_other_models_do_differ(result):
    assert (of(result.frame, model="gpt2")["change"] != 0).any()
    assert (of(result.likeness, model="gpt2", measure="cka")["value"] < 0.99).all()


def test_a_shallower_model_is_compared_at_relative_depth(result):
    change = of(result.frame, model="pruned", task="upos")
    assert change["depth"].tolist()[:-1] == [0, 0.5, 1]
    assert change["base_layer"].tolist()[:-1] == [0, 1.5, 3]
    base = of(result.scores, model="bert", task="upos")["score"].tolist()
    expected = [base[0], (base[1] + base[2]) / 2, base[3], base[4]]
    assert np.allclose(change["base"], expected)
    assert np.allclose(change["change"], change["score"] - expected)


def test_the_layers_that_pruning_left_are_found_in_the_base(result):
    kept = of(result.likeness, model="pruned", measure="cka")
    assert kept["closest_layer"].tolist() == [0, 1, 2]
    assert np.allclose(kept["closest"], 1)
    assert kept["value"].iloc[-1] == pytest.approx(
        of(result.similarity, measure="cka", model_a="pruned", layer_a=2, model_b="bert", layer_b=3)["value"].item()
    )


def test_scores_are_those_of_probe_alone(result, models, text, tmp_path):
    for task in ("upos", "some"):
        options = {**PAPER, "subsets": False, "random_twin": False}
        alone = residuum.probe(residuum.load_model(models[0], attention=True), text, task, **options).frame
        together = of(result.scores, model="bert", task=task)
        columns = ["features", "score", "low", "high", "control", "dev", "sufficient"]
        pd.testing.assert_frame_equal(together[columns], alone[columns])


def test_minimal_sets_and_survivors_are_counted_layer_by_layer(result):
    sizes = of(result.minimal, set="minimal").set_index(["task", "model"])["neurons"]
    spread = of(result.spread, set="minimal").groupby(["task", "model"])["neurons"].sum()
    assert spread.to_dict() == sizes.to_dict()
    left = result.survivors.groupby(["model", "threshold"])["medoid"].sum()
    assert left.to_dict() == result.run.tables["thresholds"].set_index(["model", "threshold"])["neurons"].to_dict()


def test_every_table_tells_the_depth_of_a_layer(result):
    for name in ("scores", "spread", "properties", "curves", "survivors", "likeness"):
        table = result.run.tables[name].dropna(subset="layer")
        blocks = table["model"].map({"bert": 3, "twin": 3, "pruned": 2, "gpt2": 3})
        assert np.allclose(table["depth"], table["layer"].astype(float) / blocks), name


def test_the_same_run_returns_at_once_and_another_is_refused(measured, models, text, monkeypatch):
    first, _, out = measured
    monkeypatch.setattr("residuum.probing.diff.probe_tasks", None)
    with counted_readings() as counts:
        again = diff(models, text, TASKS, out=out, progress=False, **QUICK)
    pd.testing.assert_frame_equal(again.frame, first.frame)
    assert not counts
    with pytest.raises(StoreError, match=r"holds another run \(keep 0.99 → 0.5"):
        diff(models, text, TASKS, out=out, progress=False, keep=0.5, **QUICK)


def test_an_interrupted_run_goes_on_without_reading_or_probing_again(models, text, tmp_path, monkeypatch):
    options = {**QUICK, "measures": "cka", "progress": False, "out": tmp_path / "run"}
    probed = []

    def stopping(store, *rest):
        if store.name == "pruned" and len(probed) == 1:
            raise KeyboardInterrupt
        probed.append(store.name)
        return probe_tasks(store, *rest)

    monkeypatch.setattr("residuum.probing.diff.probe_tasks", stopping)
    chosen = [models[0], models[2]]
    with pytest.raises(KeyboardInterrupt):
        diff(chosen, text, "upos", **options)
    probed.append("then")
    with counted_readings() as counts:
        resumed = diff(chosen, text, "upos", **options)
    assert probed == ["bert", "then", "pruned"]
    assert not counts
    whole = diff(chosen, text, "upos", **{**options, "out": None})
    pd.testing.assert_frame_equal(resumed.frame, whole.frame)
    pd.testing.assert_frame_equal(resumed.similarity, whole.similarity)
    assert not list((tmp_path / "run").glob("scratch-*"))


def test_tasks_may_come_from_texts_of_their_own(models, text, tmp_path):
    other = labelled_text(30, "other")
    with counted_readings() as counts:
        result = diff(models[:2], text, {"upos": None, "length": other}, measures="cka", progress=False, **QUICK)
    assert counts == dict.fromkeys(("bert", "twin"), len(text) + len(other))
    assert result.run.config["tasks"] == {"upos": "text", "length": "other"}
    assert result.frame["task"].unique().tolist() == ["upos", "length"]
    assert result.run.summary["words"] == text.n_words + other.n_words


def test_tasks_of_whole_sentences_are_compared_without_attention(models):
    sentences = labelled_text(40).sentences
    corpus = Corpus("moods", sentences, sentence_labels={"mood": ["a" if len(s) % 2 else "b" for s in sentences]})
    result = diff(models[:2], corpus, "sentence", progress=False, **QUICK)
    assert "sentence is about sentences" in result.run.summary["left out"]
    assert (result.frame["change"] == 0).all()
    assert result.scores["control"].isna().all()


def test_models_are_probed_beside_each_other_where_no_workers_are_asked_for(models, text, result, monkeypatch):
    engines = []

    def watched(task, arguments, engine):
        engines.append(engine)
        return run_tasks(task, arguments, engine)

    monkeypatch.setattr("residuum.probing.diff.run_tasks", watched)
    monkeypatch.setattr("residuum.probing.diff.worker_count", lambda workers: 2)
    again = diff(models, text, TASKS, progress=False, **{**QUICK, "workers": None})
    assert [engine.workers for engine in engines] == [2]
    for name in ("scores", "minimal", "selection"):
        numbers = [run.tables[name].select_dtypes("number") for run in (again.run, result.run)]
        pd.testing.assert_frame_equal(*numbers, check_exact=False, rtol=0.02, atol=0.02)


def test_only_as_many_models_are_probed_at_a_time_as_have_memory(monkeypatch):
    monkeypatch.setattr("residuum.probing.diff.worker_count", lambda workers: 4)
    readings = [SimpleNamespace(widths=[10], n_rows=rows) for rows in (1000, 3000, 2000)]
    features, tree = 2 * 4 * 10 * 3000, clustering_bytes(10, [10])
    assert tree < features
    assert steps_at_once(readings, 10**9) == 3
    assert steps_at_once(readings, 2 * features) == 2
    assert steps_at_once(readings, features // 2) == 1
    few = [SimpleNamespace(widths=[10], n_rows=1) for _ in range(3)]
    assert steps_at_once(few, 2 * tree) == 2


def test_similarities_keep_to_the_memory_of_the_run_and_stay_the_same(models, text, result, monkeypatch):
    passes, planned = [], ComparisonPlan.passes

    def watched(plan):
        passes.append(len(planned(plan)))
        return planned(plan)

    monkeypatch.setattr(ComparisonPlan, "passes", watched)
    tight = diff(models, text, TASKS, progress=False, max_memory=1_400_000, **QUICK)
    assert min(passes) > 1
    pd.testing.assert_frame_equal(tight.similarity, result.similarity, rtol=1e-10, atol=1e-12)


def test_too_many_neurons_are_refused_before_any_step(models, text, tmp_path, monkeypatch):
    stores = {name: residuum.extract(models[0], text, tmp_path / name, progress=False) for name in ("bert", "other")}
    monkeypatch.setattr("residuum.probing.diff.probe_tasks", lambda *_: pytest.fail("a step was begun"))
    with pytest.raises(MemoryLimitError, match=r"^The step 'clustering' of 64 neurons of bert needs .+--layers"):
        diff(stores, text, "upos", measures="cka", progress=False, max_memory=10_000, **QUICK)


def test_a_model_that_is_not_there_is_missed_before_another_is_read(models, text, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    for missing in (tmp_path / "gone", empty):
        with counted_readings() as counts, pytest.raises(ModelError, match=missing.name):
            diff([models[0], missing], text, "upos", progress=False, **QUICK)
        assert not counts


def test_a_model_that_is_too_large_is_refused_before_it_is_read(models, text):
    with pytest.raises(MemoryLimitError, match=r"^The step 'loading' of bert needs .+ --max-memory allows 0\.0 MB"):
        diff(models, text, "upos", progress=False, max_memory=10_000, **QUICK)
