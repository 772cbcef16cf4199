"""Silencing neurons in the running model and measuring a task again."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from residuum.activations.extraction import extract
from residuum.activations.store import neuron_means
from residuum.corpus import Corpus
from residuum.corpus.tasks import read_task
from residuum.errors import SettingError, StoreError
from residuum.maths.probing import PaperRecipe, Probe, train_probes
from residuum.maths.targets import class_target
from residuum.models.ablation import ablated
from residuum.models.loading import load_model
from residuum.probing.ablate import _masked, ablate
from residuum.probing.baselines import baselines
from residuum.probing.examples import examples, labelled_splits
from residuum.probing.probe_data import ProbeData
from tiny import TEXT

RECIPE = PaperRecipe(epochs=5, batch_size=16, learning_rate=0.02)
PAPER = {"recipe": "paper", "epochs": 5, "batch_size": 16, "learning_rate": 0.02, "by": "lca"}


def corpus() -> Corpus:
    """Sentences whose tag is the length of the word, which a tiny model's embeddings can tell."""
    sentences = [line.split() for line in TEXT * 2]
    tags = [["LONG" if len(word) > 4 else "MIDDLE" if len(word) > 2 else "SHORT" for word in s] for s in sentences]
    return Corpus(name="lengths", sentences=sentences, labels={"size": tags})


@pytest.fixture(scope="module")
def model(tiny_folder):
    return load_model(tiny_folder("bert"))


@pytest.fixture(scope="module")
def result(model, tmp_path_factory):
    out = tmp_path_factory.mktemp("ablation") / "run"
    return ablate(model, corpus(), "size", shares=(0.1,), retrain=True, draws=2, seeds=2, out=out, **PAPER)


def test_every_set_is_measured_by_every_probe(result):
    assert list(dict.fromkeys(result.frame["set"])) == ["top", "bottom", "random 1", "random 2"]
    assert (result.frame.groupby("set")["probe"].nunique() == 5).all()
    assert (result.frame["neurons"] == 6).all()
    assert not result.frame.drop(columns="layer").isna().to_numpy().any()


def test_random_sets_lie_in_the_same_layers_as_the_top_and_share_nothing_with_it(result):
    sets = dict(iter(result.neurons.groupby("set")))
    for name in ("random 1", "random 2"):
        assert sorted(sets[name]["layer"]) == sorted(sets["top"]["layer"])
        assert not set(sets[name]["neuron"]) & set(sets["top"]["neuron"])
    assert set(sets["random 1"]["neuron"]) != set(sets["random 2"]["neuron"])


def test_the_embeddings_lose_what_their_probe_no_longer_sees_and_nothing_more(result):
    """Nothing lies below layer 0, so hiding a neuron from its probe and from the model are the same there."""
    lowest = result.frame.query("layer == 0")
    np.testing.assert_array_equal(lowest["masked"], lowest["running"])


def test_running_is_the_intact_probe_on_what_the_ablated_model_gives(result, model, tmp_path):
    """The oracle: the steps by hand, with extract and ablated alone."""
    corpora = read_task("size", corpus())
    ids = result.neurons.query("set == 'top'")["neuron"].tolist()
    stores = {part: extract(model, own, tmp_path / part) for part, own in corpora.items()}
    with ablated(model, ids) as lesioned:
        after = extract(lesioned, corpora.test, tmp_path / "after")
    train = examples(stores["train"], corpora.train.word_labels("size"))
    test = examples(after, corpora.test.word_labels("size"))
    target = class_target(train.labels)
    probes = train_probes(train.features(), {"task": target}, [Probe("task", seed=seed) for seed in range(2)], RECIPE)
    by_seed = [np.mean(probe.predict(test.features()) == target.encode(test.labels)) for probe in probes]
    expected = np.mean(by_seed)
    row = result.frame.query("set == 'top' and probe == 'all layers'").iloc[0]
    assert row["running"] == pytest.approx(expected)
    assert row["sd"] == pytest.approx(np.std(by_seed, ddof=1))
    assert row["drop"] == pytest.approx(row["intact"] - expected)
    assert row["drop_low"] <= row["drop"] <= row["drop_high"]


def test_what_the_running_model_loses_beyond_the_masked_probe_answers_whether_neurons_are_used(result):
    frame = result.frame
    np.testing.assert_allclose(frame["used"], frame["masked"] - frame["running"])
    assert (frame["used_low"] <= frame["used"]).all()
    assert (frame["used"] <= frame["used_high"]).all()
    first = frame.query("set == 'top' and probe == 'all layers'").iloc[0]
    random = frame.query("set in ('random 1', 'random 2') and probe == 'all layers'")["used"]
    cost = f"costs the running model {first['used']:.3f} (95 % CI {first['used_low']:.3f} to {first['used_high']:.3f})"
    assert cost in result.answer
    assert f"random sets of the same size cost {random.min():.3f} to {random.max():.3f}" in result.answer
    used = first["used_low"] > random.max()
    assert result.answer.endswith("The model uses what they encode." if used else "uses them more than others.")
    assert "accuracy; majority baseline 0." in result.text()
    assert "Next: residuum describe" in result.text()
    assert "; 2 probe seeds." in result.text()


def test_baselines_and_the_control_task_stand_beside_the_scores(result, model, tmp_path):
    splits = labelled_splits(model, corpus(), "size", activations=tmp_path)
    bench = ProbeData(splits, RECIPE)
    assert {name: result.run.summary[f"{name} baseline"] for name in baselines(bench)} == baselines(bench)
    controls = bench.train([Probe("control", l1=1e-5, l2=1e-5, seed=seed) for seed in range(2)])
    expected = np.mean([score.value for score in bench.score(controls, "test")])
    row = result.frame.query("set == 'top' and probe == 'all layers'").iloc[0]
    assert row["control_intact"] == result.run.summary["control task"] == pytest.approx(expected)
    assert f"control task {expected:.3f}" in result._repr_html_()


def test_probes_that_do_not_beat_a_baseline_are_warned_of(model):
    noise = np.random.default_rng(0)
    made = replace(corpus(), labels={"noise": [noise.choice(["a", "b"], len(s)).tolist() for s in corpus().sentences]})
    found = ablate(model, made, "noise", shares=(0.1,), draws=0)
    assert any("the probe of all layers (accuracy" in line for line in found.run.summary["warnings"])
    assert "Warning: the probe of all layers" in found.text()


def test_every_candidate_of_a_choice_is_read_with_its_own_label(model, tmp_path):
    """Rows of the ablated model are those of the intact one, so a lesion that changes nothing changes no score."""
    rng = np.random.default_rng(0)
    words = [word for line in TEXT for word in line.split()]
    choices = Corpus(
        name="choices",
        sentences=[rng.choice(words, 3).tolist() for _ in range(30)],
        sentence_labels={"label": [str(i % 2) for i in range(30)]},
        choices=[[str(word) for word in rng.choice(words, 2)] for _ in range(30)],
    )
    every = [f"2:{index}" for index in range(16)]
    options = {"how": "keep", "draws": 0, "seeds": 1, **PAPER}
    found = ablate(model, choices, "choice", neurons=every, **options)
    assert found.run.config["examples"] == {"train": 48, "dev": 6, "test": 6}
    np.testing.assert_array_equal(found.frame["intact"], found.frame["running"])
    assert found.frame["control_intact"].isna().all()


def test_layers_below_the_silenced_ones_do_not_change(model):
    found = ablate(model, corpus(), "size", neurons=["2:3", "2:7"], draws=1, **PAPER).frame
    named = found.query("set == 'named'").set_index("probe")
    for below in ("layer 0", "layer 1"):
        assert named.loc[below, "change"] == 0
        assert named.loc[below, "intact"] == named.loc[below, "masked"] == named.loc[below, "running"]
    assert named.loc["layer 2", "change"] > 0
    assert named.loc["layer 3", "change"] > 0
    assert named.loc["layer 3", "masked"] == named.loc["layer 3", "intact"]


def test_the_change_is_a_distance_in_units_of_the_layer_s_own_spread(model, tmp_path):
    corpora = read_task("size", corpus())
    means = neuron_means(extract(model, corpora.train, tmp_path / "train"))
    whole = extract(model, corpora.test, tmp_path / "whole").array().astype(float)
    with ablated(model, ["1:2", "1:9"], "mean", means) as lesioned:
        moved = extract(lesioned, corpora.test, tmp_path / "moved").array().astype(float)
    found = ablate(model, corpora, "size", neurons=["1:2", "1:9"], how="mean", draws=0, **PAPER).frame
    spread = np.square(whole - whole.mean(axis=0)).sum(axis=(0, 2))
    expected = np.sqrt(np.square(moved - whole).sum(axis=(0, 2)) / spread)
    np.testing.assert_allclose(found["change"][1:], expected, rtol=1e-4)


@pytest.mark.parametrize("standardize", [False, True])
def test_a_masked_probe_sees_fixed_values(standardize, model, tmp_path):
    splits = labelled_splits(model, corpus(), "size", activations=tmp_path)
    x = splits.test.features()
    target = class_target(splits.train.labels)
    recipe = PaperRecipe(epochs=2, standardize=standardize)
    for neurons in (None, np.array([3, 20, 41])):
        (probe,) = train_probes(splits.train.features(), {"task": target}, [Probe("task", neurons)], recipe)
        filled = x.copy()
        filled[:, [3, 41, 50]] = [0.5, -2.0, 1.0]
        masked = _masked(probe, np.array([3, 41, 50]), np.array([0.5, -2.0, 1.0]))
        np.testing.assert_allclose(masked.logits(x), probe.logits(filled), rtol=1e-4, atol=1e-4)


def test_keeping_all_neurons_of_a_layer_changes_nothing(model):
    every = [f"1:{index}" for index in range(16)]
    found = ablate(model, corpus(), "size", neurons=every, how="keep", draws=0, **PAPER).frame
    np.testing.assert_array_equal(found["intact"], found["running"])
    assert (found["change"] == 0).all()


def test_only_the_named_layers_are_ranked(model):
    found = ablate(model, corpus(), "size", shares=(0.25,), within="1-2", draws=0, **PAPER)
    assert set(found.neurons["layer"]) <= {1, 2}
    assert (found.frame["neurons"] == 8).all()


def test_the_same_run_again_returns_at_once_and_leaves_nothing_behind(result, model, tmp_path_factory, capsys):
    out = next(tmp_path_factory.getbasetemp().glob("ablation*")) / "run"
    options = {"shares": (0.1,), "retrain": True, "draws": 2, "seeds": 2, "out": out, **PAPER}
    again = ablate(model, corpus(), "size", **options)
    pd.testing.assert_frame_equal(again.frame, result.frame)
    assert capsys.readouterr().err == ""
    assert not list(out.glob("scratch*"))
    with pytest.raises(StoreError, match="how zero → mean"):
        ablate(model, corpus(), "size", how="mean", **options)
    assert "Does bert use the neurons that encode size?" in result._repr_html_()
    assert "masked" in result.text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "burn"}, "how is 'burn'; expected one of zero, mean, keep"),
        ({"shares": (0.7,)}, "at most 0.5"),
        ({"draws": -1}, "draws is -1; expected a whole number at least 0"),
        ({"seeds": 0}, "seeds is 0; expected a whole number at least 1"),
        ({"penalty": "search"}, "penalty is 'search'; expected 2 numbers"),
        ({"neurons": ["9:1"]}, "Layer 9 is not here"),
        ({"within": "9"}, "Layer 9 does not exist"),
    ],
)
def test_mistakes_are_explained(options, message, model):
    with pytest.raises(SettingError, match=message):
        ablate(model, corpus(), "size", **{**PAPER, **options})


def test_a_store_cannot_be_ablated(model, tmp_path):
    extract(model, corpus(), tmp_path / "acts")
    with pytest.raises(SettingError, match="is a store of activations; neurons are silenced in a running model"):
        ablate(tmp_path / "acts", corpus(), "size")
