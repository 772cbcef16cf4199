"""`probe`: what a layer knows is found, what it only remembers is told apart, and the tables say so."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from made_stores import BOTH, HIDDEN, NOISE, TAG, TAGS, KnownData, conllu, known_data
from residuum.cli import app
from residuum.corpus import Corpus
from residuum.corpus.tasks import TASKS, Task
from residuum.errors import DataError, SettingError, StoreError
from residuum.maths.probing import PaperRecipe, Probe, train_probes
from residuum.maths.targets import class_target
from residuum.models.loading import load_model
from residuum.probing.examples import labelled_splits
from residuum.probing.probe import probe
from residuum.probing.probe_data import TASK
from residuum.storage.results import read_run

DATA = known_data(150)
RECIPE = PaperRecipe(epochs=15, batch_size=32, learning_rate=0.01)
PAPER = {"recipe": "paper", "epochs": 15, "batch_size": 32, "learning_rate": 0.01}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return DATA.store(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture(scope="module")
def result(store):
    twin = known_data(150)
    random = np.random.default_rng(1).standard_normal(twin.activations.shape).astype(np.float32)
    without = type(twin)(twin.sentences, twin.tags, random).store(store.path.parent / "twin")
    return probe(store, DATA.tags, **PAPER, twin_stores=without, description_length=True)


def row(result, features):
    return result.frame.set_index("features").loc[features]


def test_there_is_a_row_for_each_layer_all_layers_and_each_subset(result):
    assert result.frame["features"].tolist() == [
        *("layer 0", "layer 1", "layer 2", "all layers"),
        *("alternate", "bottom half", "top half", "embeddings", "all but embeddings"),
    ]
    assert row(result, "alternate")["layers"] == "0,2"
    assert row(result, "all layers")["neurons"] == 3 * HIDDEN


def test_the_layer_that_knows_the_tag_is_found_and_is_enough(result):
    assert row(result, "layer 1")["score"] > 0.97
    assert row(result, "layer 0")["score"] < 0.55
    sufficient = result.frame.set_index("features")["sufficient"]
    assert sufficient["layer 1"]
    assert not sufficient["layer 0"]
    assert result.run.summary["lowest sufficient layer"] == TAG
    assert row(result, "embeddings")["score"] == pytest.approx(row(result, "layer 0")["score"], abs=0.02)


def test_selectivity_tells_remembering_words_from_knowing_tags(result):
    assert row(result, "layer 0")["control"] > 0.95
    assert row(result, "layer 1")["control"] < 0.75
    for name in ("layer 0", "layer 1", "all layers"):
        own = row(result, name)
        assert own["selectivity"] == pytest.approx(own["score"] - own["control"])
    assert row(result, "layer 0")["selectivity"] < 0 < row(result, "layer 1")["selectivity"]


def test_random_weights_know_nothing(result):
    assert (result.frame.loc[result.frame["kind"] == "layer", "random_twin"] < 0.6).all()
    assert result.frame.loc[result.frame["kind"] == "subset", "random_twin"].isna().all()


def test_a_score_is_the_mean_over_seeds_of_probes_trained_alone(store, result):
    splits = labelled_splits(store, DATA.tags)
    target = class_target(splits.train.labels)
    x, held_out = splits.train.features(), splits.test.features()
    accuracies = []
    for seed in range(3):
        alone = Probe(TASK, slice(0, HIDDEN), seed=seed)
        (trained,) = train_probes(x, {TASK: target}, [alone], RECIPE)
        accuracies.append(np.mean(trained.predict(held_out) == target.encode(splits.test.labels)))
    own = row(result, "layer 0")
    assert own["score"] == pytest.approx(np.mean(accuracies), abs=0.01)
    assert own["sd"] == pytest.approx(np.std(accuracies, ddof=1), abs=0.01)
    assert own["low"] < own["score"] < own["high"]


def test_classes_have_precision_recall_and_the_layers_that_are_enough(result):
    classes = result.classes
    assert len(classes) == 4 * len(TAGS)
    own = classes[classes["features"] == "layer 1"]
    assert own["class"].tolist() == list(TAGS)
    assert (own[["precision", "recall", "f1"]] > 0.9).to_numpy().all()
    assert own["support"].sum() == result.run.config["examples"]["test"]
    blind = classes[(classes["features"] == "layer 0") & (classes["sufficient"])]
    assert blind.empty
    assert result.class_layers["lowest_layer"].tolist() == [TAG] * 3
    assert result.class_layers["sufficient_layers"].str.contains("1").all()


def test_labels_cost_few_bits_where_a_layer_knows_them(result):
    table = result.run.tables["description"].set_index(["features", "target"])
    assert table.loc[("layer 1", "task"), "compression"] > 2 * table.loc[("layer 0", "task"), "compression"]
    assert table.loc[("layer 0", "control"), "compression"] > 1.5 * table.loc[("layer 1", "control"), "compression"]


def test_baselines_and_notes_stand_beside(result):
    assert result.baselines["baseline"].tolist() == ["majority", "word majority"]
    assert (result.baselines["score"] < 0.6).all()
    assert "cut into 80%, 10%, 10%" in result.run.config["notes"][0]
    assert result.unseen.empty
    assert "layer 1" in result._repr_html_()


def test_labels_unseen_in_training_are_counted(store):
    tags = [list(row) for row in DATA.tags]
    last = labelled_splits(store, tags).test.sentences[0]
    tags[last][0] = "INTJ"
    found = probe(store, tags, **PAPER, seeds=1, subsets=False)
    assert found.unseen.to_dict("records") == [{"label": "INTJ", "examples": 1}]
    assert found.run.summary["unseen labels"] == 1
    assert found.frame["sd"].isna().all()


def test_converged_probes_are_the_default_and_depend_on_no_seed(store):
    first, second = (probe(store, DATA.tags, subsets=False, seed=seed, layers="1-2") for seed in (0, 0))
    pd.testing.assert_frame_equal(first.frame, second.frame)
    assert first.run.config["recipe"] == "converged"
    assert first.frame["seeds"].tolist() == [1, 1, 1]
    assert first.frame["sd"].isna().all()
    assert set(first.run.tables["penalties"]["target"]) == {"task", "control"}
    fixed = probe(store, DATA.tags, subsets=False, penalty=(0, 0.05)).run.tables["penalties"]
    assert (fixed["l2"] == 0.05).all()


def test_intervals_of_several_seeds_contain_the_variance_between_them(store):
    found = row(probe(store, DATA.tags, layers="0", subsets=False, **PAPER | {"epochs": 1}), "layer 0")
    assert found["seeds"] == 3
    assert found["high"] - found["low"] > 4 * found["sd"] / np.sqrt(3)


def test_quick_probes_are_close_to_converged_ones_and_say_how_close(store):
    quick, solved = (probe(store, DATA.tags, subsets=False, quick=quick) for quick in (True, False))
    np.testing.assert_allclose(quick.frame["score"], solved.frame["score"], atol=0.05)
    assert quick.frame["control"].isna().all()
    near = quick.run.summary["quick against converged"]
    assert near["features"] == f"layer {quick.run.summary['best layer']}"
    assert near["quick"] == row(quick, near["features"])["score"]
    assert near["converged"] == row(solved, near["features"])["score"]
    assert near["difference"] == pytest.approx(near["quick"] - near["converged"])
    assert any(f"the converged one {near['converged']:.3f}" in line for line in quick.run.summary["warnings"])
    assert "These are quick probes" in quick.text()
    assert "quick" not in solved.text()


@pytest.mark.parametrize(("keep", "decided"), [(0.95, True), (0.99, False)])
def test_quick_probes_recommend_a_layer_only_if_they_are_as_close_as_the_allowed_loss(
    keep, decided, store, monkeypatch
):
    far = {"features": "layer 1", "quick": 0.90, "converged": 0.93, "difference": -0.03, "standard error": 0.01}
    monkeypatch.setattr("residuum.probing.probe._distance", lambda *_: far)
    found = probe(store, DATA.tags, subsets=False, quick=True, keep=keep)
    assert found.run.summary["answer"].startswith("Use " if decided else "Quick probes cannot tell here")
    assert found.run.summary["next"].startswith("residuum rank " if decided else "residuum probe ")
    assert ("Run again without --quick" in found.text()) == (not decided)


@pytest.mark.parametrize(("settings", "warned"), [({"recipe": "paper", "seeds": 1, "epochs": 1}, True), ({}, False)])
def test_scores_of_one_stochastic_run_say_so(settings, warned, store):
    found = probe(store, DATA.tags, layers="0", subsets=False, **settings)
    assert any("those of 1 seed" in line for line in found.run.summary["warnings"]) == warned


def test_the_text_answers_which_layer_to_use_and_names_the_next_command(result):
    text = result.text()
    assert "Use layer 1: it is the lowest that keeps 99% of the accuracy of all layers on dev" in text
    assert "baselines  majority 0.3" in text
    assert "Next: residuum rank MODEL CORPUS --task labels --layers 1" in text
    assert "one of the 98 dev examples is worth 0.0102, more than the allowed loss" in text


def test_an_oracle_that_does_not_beat_a_baseline_is_said_in_words(store):
    found = probe(store, DATA.tags, layers="0", subsets=False)
    assert any("the word majority baseline" in line for line in found.run.summary["warnings"])
    assert "Warning: the probe of all layers" in found.text()
    assert found.run.summary["answer"].startswith("Use no layer: all of them together (accuracy ")
    assert not any("baseline" in line for line in probe(store, DATA.tags, layers="1").run.summary["warnings"])


def test_no_layer_is_recommended_where_the_random_twin_is_as_good(store):
    found = probe(store, DATA.tags, layers="1", subsets=False, twin_stores=store)
    assert "do not beat the random twin (" in found.run.summary["answer"]
    assert any("does not beat the random twin" in line for line in found.run.summary["warnings"])


def test_nothing_is_said_of_classes_with_few_examples(store):
    rare = [[("X" if i % 40 == 0 and j == 0 else tag) for j, tag in enumerate(row)] for i, row in enumerate(DATA.tags)]
    classes = probe(store, rare, subsets=False).class_layers.set_index("class")
    assert not classes.loc["X", "supported"]
    assert classes.loc["X", "n_sufficient"] == 0


def test_a_task_has_its_own_metric(store):
    spans = [["B-NP" if tag == "NOUN" else "I-NP" if tag == "VERB" else "O" for tag in row] for row in DATA.tags]
    found = probe(store, spans, "chunk", subsets=False)
    assert set(found.frame["metric"]) == {"span_f1"}
    own = row(found, "layer 0")
    assert own["score"] != pytest.approx(own["accuracy"])
    assert own["selectivity"] == pytest.approx(own["accuracy"] - own["control"])
    assert found.baselines.set_index("baseline")["score"]["majority"] < 0.5
    two = [["a" if tag == "NOUN" else "b" for tag in row] for row in DATA.tags]
    assert set(probe(store, two, Task("made", metric="matthews"), subsets=False).frame["metric"]) == {"matthews"}


def test_numbers_are_scored_by_pearson(store):
    targets = [[float(TAGS.index(tag)) + 0.5 for tag in row] for row in DATA.tags]
    found = probe(store, targets, subsets=False)
    assert found.run.summary["metric"] == "pearson"
    assert row(found, "layer 1")["score"] > 0.95 > 0.4 > row(found, "layer 0")["score"]
    assert found.frame["control"].isna().all()
    with pytest.raises(SettingError, match="has no table classes; it has scores"):
        found.classes  # noqa: B018
    with pytest.raises(SettingError, match="The description length is defined for classes"):
        probe(store, targets, **PAPER, description_length=True)


def test_stsb_is_scored_by_spearman_with_pearson_beside_it(store):
    targets = [[float(TAGS.index(tag)) ** 3 for tag in row] for row in DATA.tags]
    found = probe(store, targets, replace(TASKS["stsb"], unit="word"), subsets=False)
    assert set(found.frame["metric"]) == {"spearman"}
    assert found.frame["pearson"].notna().all()


def test_sentences_are_probed_at_their_own_position(tiny_folder, tmp_path):
    rows = "".join(f"{'the quick fox' if i % 2 else 'a small model'} word {i % 7}\t{i % 2}\n" for i in range(80))
    (tmp_path / "made.tsv").write_text(f"sentence\tlabel\n{rows}")
    options = {"layers": "2,3", "random_twin": False}
    found = probe(tiny_folder("bert"), tmp_path / "made.tsv", "sst2", out=tmp_path / "run", **options)
    assert row(found, "layer 3")["score"] > 0.9
    assert found.frame["control"].isna().all()
    assert found.baselines.set_index("baseline")["score"]["bag of words"] == 1
    assert json.loads((tmp_path / "run/activations/train/manifest.json").read_text())["settings"]["unit"] == "sentence"


def test_the_bag_of_words_of_a_pair_knows_which_segment_a_word_is_in(tiny_folder, tmp_path):
    rows = "".join(f"{'fox' if i % 2 else 'model'}\t{'model' if i % 2 else 'fox'}\t{i % 2}\n" for i in range(60))
    (tmp_path / "made.tsv").write_text(f"sentence1\tsentence2\tlabel\n{rows}")
    options = {**PAPER, "seeds": 1, "layers": "1", "subsets": False, "random_twin": False}
    found = probe(tiny_folder("bert"), tmp_path / "made.tsv", "rte", out=tmp_path / "run", **options)
    assert found.baselines.set_index("baseline")["score"]["bag of words"] == 1


def test_the_same_run_again_returns_at_once_and_another_is_refused(store, tmp_path):
    options = {**PAPER, "seeds": 1, "subsets": False, "out": tmp_path / "run"}
    first = probe(store, DATA.tags, **options)
    stamp = (tmp_path / "run" / "result.json").stat().st_mtime_ns
    again = probe(store, DATA.tags, **options)
    assert (tmp_path / "run" / "result.json").stat().st_mtime_ns == stamp
    pd.testing.assert_frame_equal(first.frame, again.frame, check_dtype=False)
    with pytest.raises(StoreError, match="holds another run .*seeds 1 → 2"):
        probe(store, DATA.tags, **{**options, "seeds": 2})
    other = [list(reversed(row)) for row in DATA.tags]
    with pytest.raises(StoreError, match="holds another run .*labels"):
        probe(store, other, **options)
    probe(store, DATA.tags, **{**options, "seeds": 2, "fresh": True})
    assert read_run(tmp_path / "run").config["seeds"] == 2


def test_a_model_is_probed_beside_its_random_twin_by_command_and_python(tiny_folder, tmp_path):
    data = known_data(40)
    text = conllu([[word.replace("w", "fox") for word in row] for row in data.sentences], data.tags)
    (tmp_path / "made.conllu").write_text(text)
    arguments = [str(tiny_folder("bert")), str(tmp_path / "made.conllu"), "--task", "upos"]
    options = [
        "--recipe",
        "paper",
        "--seeds",
        "1",
        "--epochs",
        "2",
        "--layers",
        "0,3",
        "--no-subsets",
        "--out",
        str(tmp_path / "cli"),
    ]
    done = CliRunner().invoke(app, ["probe", *arguments, *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "random twin" in done.output
    python = probe(
        tiny_folder("bert"),
        tmp_path / "made.conllu",
        "upos",
        random_twin=True,
        seeds=1,
        recipe="paper",
        epochs=2,
        layers="0,3",
        subsets=False,
    )
    table = read_run(tmp_path / "cli").tables["scores"]
    pd.testing.assert_frame_equal(table, python.frame, check_dtype=False)
    assert (tmp_path / "cli" / "activations-random" / "train").is_dir()
    options[-1] = str(tmp_path / "alone")
    done = CliRunner().invoke(app, ["probe", *arguments, *options, "--no-random-twin"], catch_exceptions=False)
    assert "andom twin" not in done.output
    assert not (tmp_path / "alone" / "activations-random").exists()
    assert read_run(tmp_path / "alone").tables["scores"]["random_twin"].isna().all()


def test_a_loaded_model_has_a_twin_and_one_that_cannot_be_built_again_is_noted(tiny_folder, tmp_path):
    data = known_data(30)
    corpus = Corpus("made", data.sentences, {"upos": data.tags})
    options = {**PAPER, "seeds": 1, "layers": "1", "subsets": False}
    model = load_model(tiny_folder("bert"))
    found = probe(model, corpus, "upos", **options)
    assert found.frame["random_twin"].notna().all()
    assert found.run.config["random_twin"].startswith("bert (random)")
    made_here = probe(replace(model, origin=None), corpus, "upos", **options)
    assert made_here.frame["random_twin"].isna().all()
    assert "there is no random twin to compare with: bert is not as it was loaded" in made_here.run.config["notes"][-1]
    itself = probe(load_model(tiny_folder("bert"), random_init=True), corpus, "upos", **options)
    assert "are random themselves" in itself.run.config["notes"][-1]


def test_activations_have_no_twin_and_the_result_says_so(store):
    found = probe(store, DATA.tags, **PAPER, seeds=1, subsets=False)
    assert "no random twin to compare with: activations were given" in found.run.config["notes"][-1]
    quiet = probe(store, DATA.tags, **PAPER, seeds=1, subsets=False, random_twin=False)
    assert not any("twin" in note for note in quiet.run.config["notes"])


def test_a_control_task_that_cannot_vary_is_left_out_and_noted(tmp_path):
    data = known_data(60)
    same = KnownData([["w"] * len(row) for row in data.sentences], data.tags, data.activations)
    found = probe(same.store(tmp_path / "one"), data.tags, **PAPER, seeds=1, subsets=False)
    assert found.frame["control"].isna().all()
    assert found.frame["score"].max() > 0.9
    assert any("no control task: random labels of the 1 word types" in note for note in found.run.config["notes"])


def test_classes_that_never_recur_or_are_more_than_the_examples_are_refused(store, tmp_path):
    numbered = iter(range(10**6))
    each = [[f"class {next(numbered)}" for _ in row] for row in DATA.tags]
    with pytest.raises(DataError, match=r"Found (\d+) training examples of \1 classes, and \d+ classes in all parts"):
        probe(store, each)
    small, large = known_data(3), known_data(40, seed=1)
    stores = {"train": small.store(tmp_path / "train"), "dev": large.store(tmp_path / "dev")}
    labels = {"train": small.tags, "dev": [[f"class {next(numbered)}" for _ in row] for row in large.tags]}
    with pytest.raises(DataError, match="training examples of 3 classes, and .* classes in all parts; expected"):
        probe({**stores, "test": stores["dev"]}, {**labels, "test": labels["dev"]})


@pytest.mark.parametrize("share", [2, 0.8])
def test_description_lengths_of_words_read_in_windows_are_much_the_same(share, store):
    features = 4 * 3 * HIDDEN * sum(map(len, DATA.tags))
    settings = {"description_length": True, **PAPER, "seeds": 1, "subsets": False}
    whole = probe(store, DATA.tags, **settings).run.tables["description"]
    tight = probe(store, DATA.tags, max_memory=int(share * features), **settings).run.tables["description"]
    np.testing.assert_allclose(tight["compression"], whole["compression"], rtol=0 if share == 2 else 0.1)


def test_mistakes_are_said_in_one_line(store):
    with pytest.raises(SettingError, match="seeds is 0; expected a whole number at least 1"):
        probe(store, DATA.tags, seeds=0)
    with pytest.raises(SettingError, match=r"keep is 0\.0; expected a number above 0"):
        probe(store, DATA.tags, keep=0)
    with pytest.raises(SettingError, match="There is no random twin: activations were given, and these have no model"):
        probe(store, DATA.tags, random_twin=True)
    other = labelled_splits(store, DATA.tags, layers="1").train.store
    with pytest.raises(SettingError, match="has other layers than the model"):
        probe(store, DATA.tags, twin_stores=other, **PAPER, seeds=1)
    with pytest.raises(DataError, match="a probe needs at least two classes"):
        probe(store, [["A"] * len(row) for row in DATA.tags])


def test_layers_have_their_own_numbers(store):
    found = probe(store, DATA.tags, layers="1-2", **PAPER, seeds=1)
    assert found.frame["layer"].dropna().tolist() == [TAG, BOTH]
    assert NOISE not in found.frame["layer"].dropna().tolist()
    assert "embeddings" not in found.frame["features"].tolist()
