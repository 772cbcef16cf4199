"""Ranking the neurons of a task."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from ranked_tasks import IDS, TAGS, tagged_activations, tagged_sentences, tagged_store, tags
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression

from made_stores import broken_store, made_store
from residuum.errors import CorpusError, DataError, MemoryLimitError, SettingError, StoreError
from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.probing import Probe, Recipe
from residuum.probing.batteries import Bench
from residuum.probing.examples import labelled_splits
from residuum.probing.orders import METHODS, task_rankings
from residuum.probing.rank_sets import Penalty, seeded_probes
from residuum.probing.ranking import rank_neurons
from residuum.probing.sampling import FEWEST, SAMPLED, Sample, sample_of
from residuum.storage.results import read_run

SENTENCES = tagged_sentences()
RECIPE = Recipe(epochs=20, batch_size=32, learning_rate=0.01)
QUICK = {"recipe": RECIPE, "shares": (0.2, 0.4), "seeds": 2, "delta": 0.05}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tagged_store(tmp_path_factory.mktemp("tagged") / "store", SENTENCES)


@pytest.fixture(scope="module")
def ranking(store):
    return rank_neurons(store, tags(SENTENCES), neurons=[*IDS.values(), "0:0"], **QUICK)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "random"])
def test_every_ranking_finds_the_neurons_that_know_the_tags(method, ranking):
    assert set(ranking.top(3, method)) == set(IDS.values())


def test_a_random_ranking_is_a_permutation_that_knows_nothing(ranking):
    order = ranking.frame.query("method == 'random'")["neuron"]
    assert sorted(order) == sorted(ranking.frame.query("method == 'lca'")["neuron"])
    rows = ranking.selection.query("share == 0.2").set_index(["method", "set"])["retrained"]
    assert rows["lca", "top"] > 0.9
    assert rows["lca", "bottom"] < 0.6
    assert rows["random", "top"] + rows["random", "bottom"] < 2 * rows["lca", "top"]


def test_each_class_is_led_by_its_own_neuron_with_a_positive_weight(ranking):
    first = ranking.classes.query("rank == 1").set_index("label")
    assert first["neuron"].to_dict() == IDS
    assert (first["weight"] > 0).all()


def test_the_minimal_set_is_small_is_within_delta_on_dev_and_is_scored_on_test(ranking, store):
    whole, reduced = ranking.minimal.to_dict("records")
    assert reduced["neurons"] < whole["neurons"] == 18
    assert set(IDS.values()) <= set(ranking.minimal_neurons)
    assert reduced["dev"] >= whole["dev"] - 0.05
    assert whole["low"] <= whole["accuracy"] <= whole["high"]
    assert whole["selectivity"] == pytest.approx(whole["accuracy"] - whole["control"])


def test_the_oracle_scores_like_scikit_learn(ranking, store):
    splits = labelled_splits(store, tags(SENTENCES))
    peer = LogisticRegression(C=1e3, max_iter=2000).fit(splits.train.features(), splits.train.labels)
    expected = peer.score(splits.test.features(), splits.test.labels)
    assert ranking.minimal["accuracy"].iloc[0] == pytest.approx(expected, abs=0.03)


def test_kept_and_retrained_are_means_over_the_seeds_of_what_they_say(ranking, store):
    bench = Bench(labelled_splits(store, tags(SENTENCES)), RECIPE)
    oracles = bench.train(seeded_probes(bench, None, Penalty(1e-5, 1e-5), 2)[:2])
    order = bench.splits.layout.parse(ranking.top(18))
    row = ranking.selection.query("method == 'lca' and share == 0.2 and set == 'bottom'").iloc[0]
    x = np.zeros_like(bench.features("test"))
    x[:, order[-4:]] = bench.features("test")[:, order[-4:]]
    assert row["neurons"] == 4
    kept = [np.mean(oracle.predict(x) == bench.truth("test")) for oracle in oracles]
    assert row["kept"] == pytest.approx(np.mean(kept))
    assert row["kept_sd"] == pytest.approx(np.std(kept, ddof=1))
    assert row["kept_low"] <= row["kept"] <= row["kept_high"]
    own = [Probe("task", np.sort(order[-4:]), 1e-5, 1e-5, seed) for seed in range(2)]
    retrained = [score.value for score in bench.score(bench.train(own), "test")]
    assert row["retrained"] == pytest.approx(np.mean(retrained))
    assert row["sd"] == pytest.approx(np.std(retrained, ddof=1))
    assert row["low"] <= row["retrained"] <= row["high"]
    peer = LogisticRegression(C=1e3, max_iter=2000).fit(bench.features("train")[:, order[-4:]], bench.truth("train"))
    expected = peer.score(bench.features("test")[:, order[-4:]], bench.truth("test"))
    assert row["retrained"] == pytest.approx(expected, abs=0.04)


def test_the_spread_counts_every_neuron_of_a_set_in_its_layer(ranking):
    minimal = ranking.spread.query("set == 'minimal'").set_index("layer")["neurons"]
    expected = pd.Series([int(neuron[0]) for neuron in ranking.minimal_neurons]).value_counts()
    assert minimal.to_dict() == {layer: expected.get(layer, 0) for layer in range(3)}
    assert ranking.spread.groupby(["method", "set"])["share"].sum().to_numpy() == pytest.approx(1)


def test_agreement_is_that_of_the_orders_in_the_table(ranking):
    ranks = ranking.frame.pivot_table(index="neuron", columns="method", values="rank")
    row = ranking.agreement.query("first == 'lca' and second == 'probeless'").iloc[0]
    assert row["spearman"] == pytest.approx(spearmanr(ranks["lca"], ranks["probeless"]).statistic)
    assert "lca (seed 1)" in set(ranking.agreement["second"])


def test_shards_read_in_windows_rank_as_one_array_does(tmp_path):
    store = tagged_store(tmp_path / "store", SENTENCES, shard_words=100)
    splits = labelled_splits(store, tags(SENTENCES))
    whole, windowed = Bench(splits, RECIPE), Bench(splits, RECIPE, max_memory=30_000)
    assert isinstance(whole.features("train"), np.ndarray)
    assert not isinstance(windowed.features("train"), np.ndarray)
    (oracle,) = whole.train(seeded_probes(whole, None, Penalty(1e-5, 1e-5), 1)[:1])
    first, second = (task_rankings(bench, oracle, METHODS, 10_000) for bench in (whole, windowed))
    for method in METHODS:
        np.testing.assert_array_equal(first[method].order, second[method].order)


def test_a_sample_of_words_finds_the_same_neurons(store):
    bench = Bench(labelled_splits(store, tags(SENTENCES)), RECIPE)
    (oracle,) = bench.train(seeded_probes(bench, None, Penalty(1e-5, 1e-5), 1)[:1])
    few = task_rankings(bench, oracle, ["gaussian", "iou"], 300)
    for ranking in few.values():  # two of the three neurons already tell all tags apart
        assert set(bench.splits.layout.format(ranking.order[:2])) <= set(IDS.values())


def test_features_give_way_to_rankings_that_need_the_room_and_nothing_else_changes(store, monkeypatch):
    splits = labelled_splits(store, tags(SENTENCES))
    ample = Bench(splits, RECIPE)
    sample = sample_of(ample, 300)
    needed = max(sample.n_bytes(method) for method in SAMPLED)
    tight = replace(ample, max_memory=needed + 1000)
    (oracle,) = ample.train(seeded_probes(ample, None, Penalty(1e-5, 1e-5), 1)[:1])
    tight.features("train")
    few = task_rankings(tight, oracle, SAMPLED, 300)
    assert not vars(tight)["_held"]
    monkeypatch.setattr("residuum.probing.sampling.JOINT_NEURONS", 0)  # the other form of the scatter, too
    for ranking, expected in zip(few.values(), task_rankings(ample, oracle, SAMPLED, 300).values(), strict=True):
        np.testing.assert_array_equal(ranking.order, expected.order)
    assert set(vars(ample)["_held"]) == {"train"}


def test_a_ranking_that_does_not_fit_is_refused_before_anything_is_trained(store, monkeypatch):
    monkeypatch.setattr(Bench, "train", lambda *_: pytest.fail("a probe was trained"))
    said = r"^The step 'gaussian ranking' of 720 sampled words × 18 neurons needs .+ allows 0.0 MB.+--methods"
    with pytest.raises(MemoryLimitError, match=said):
        rank_neurons(store, tags(SENTENCES), methods=["lca", "gaussian"], max_memory=20_000)
    monkeypatch.undo()
    others = [method for method in METHODS if method not in SAMPLED]
    assert rank_neurons(store, tags(SENTENCES), methods=others, max_memory=20_000, **QUICK).minimal_neurons


def test_the_scatter_of_all_neurons_is_held_where_it_fits_and_saves_time():
    narrow, wide = NeuronLayout((768,) * 13), NeuronLayout((1024,) * 25)
    roomy = Sample.of(100_000, narrow, 17, 20_000, 4 << 30)
    assert (roomy.n_words, roomy.joint) == (20_000, True)
    assert not Sample.of(100_000, narrow, 17, 20_000, 1 << 30).joint
    assert not Sample.of(100_000, wide, 17, 20_000, 1 << 40).joint
    assert Sample.of(100_000, narrow, 17, 20_000, 1 << 20).n_words == FEWEST


def test_cards_show_the_words_of_the_tag_that_a_neuron_knows(ranking):
    for tag, neuron in IDS.items():
        words = ranking.card(neuron)["words"]
        own = {word for word, of_word in TAGS.items() if of_word == tag}
        assert set(words.query("end == 'high'")["word"].head(len(own))) == own
        assert not own & set(words.query("end == 'low'")["word"].head(3))


def test_card_numbers_are_means_and_quantiles_of_the_training_words(ranking, store):
    train = labelled_splits(store, tags(SENTENCES)).train
    own = pd.Series(train.features()[:, 8].astype(float))
    words, labels = np.array(train.words), np.array(train.labels)
    row = ranking.card("1:2")["words"].query("word == 'red'").iloc[0]
    assert row["count"] == (words == "red").sum()
    assert row["mean"] == pytest.approx(own[words == "red"].mean(), rel=1e-5)
    assert row["z"] == pytest.approx((own[words == "red"].mean() - own.mean()) / own.std(ddof=0), rel=1e-5)
    table = ranking.card("1:2")["classes"].set_index("label")
    assert table.loc["AGE", "median"] == pytest.approx(own[labels == "AGE"].median(), rel=1e-5)
    assert table["count"].sum() == len(own)


def test_contexts_are_whole_stretches_of_sentences_around_the_strongest_words(ranking, store):
    contexts = ranking.card("2:0")["contexts"]
    x = store.array()[:, 2, 0]
    for _, own in contexts.groupby("context"):
        assert own["sentence"].nunique() == 1
        sentence = SENTENCES[own["sentence"].iloc[0]]
        assert own["word"].tolist() == [sentence[place] for place in own["position"]]
        assert own["z"].abs().idxmax() == own.index[own["peak"]][0]
        start = 6 * own["sentence"].iloc[0]
        np.testing.assert_allclose(own["activation"], x[start + own["position"]], rtol=1e-6)
    assert contexts.groupby("context")["z"].apply(lambda z: z.abs().max()).is_monotonic_decreasing


def test_a_constant_neuron_has_a_card_without_reactions(tmp_path):
    x = tagged_activations(SENTENCES)
    x[:, 0, 5] = 0.25
    dead = rank_neurons(made_store(tmp_path / "store", SENTENCES, x), tags(SENTENCES), neurons=["0:5"], **QUICK)
    assert (dead.card("0:5")["words"]["z"] == 0).all()
    assert dead.top(18, "mean_difference")[-1] == "0:5"


def test_cards_show_the_words_that_have_no_label_too(store):
    """As where a task is a feature that only some words have."""
    labels = [[TAGS[word] if word != "red" else None for word in sentence] for sentence in SENTENCES]
    labels[0] = [None] * 6
    found = rank_neurons(store, labels, neurons=[IDS["COLOUR"]], **{**QUICK, "methods": ["lca"], "seeds": 1})
    card = found.card(IDS["COLOUR"])
    assert "red" in set(card["words"].query("end == 'high'")["word"])
    train = labelled_splits(store, labels).train
    words = [SENTENCES[s][w] for s, w in store.row_words[np.isin(store.row_words[:, 0], train.among)].tolist()]
    assert card["words"].set_index("word").loc["red", "count"] == words.count("red")
    for _, own in card["contexts"].groupby("context"):
        assert own["word"].tolist() == SENTENCES[own["sentence"].iloc[0]]
    unlabelled = card["contexts"]["word"] == "red"
    assert unlabelled.any()
    assert (card["contexts"].loc[unlabelled, "label"] == "").all()
    assert (card["contexts"].loc[~unlabelled & (card["contexts"]["sentence"] != 0), "label"] != "").all()
    assert card["classes"]["count"].sum() == len(train)


def test_a_neuron_that_is_nothing_beside_its_layer_has_a_card_without_reactions(tmp_path):
    x = tagged_activations(SENTENCES)
    x[:, 0, 5] *= 1e-32
    store = made_store(tmp_path / "store", SENTENCES, x)
    found = rank_neurons(store, tags(SENTENCES), neurons=["0:5"], **{**QUICK, "seeds": 1})
    assert (found.card("0:5")["words"]["z"] == 0).all()
    for method in ("mean_difference", "iou", "gaussian", "probeless"):
        assert found.top(18, method)[-1] == "0:5", method


def test_the_random_twin_stands_beside_all_neurons_and_the_minimal_set(store, tmp_path):
    noise = np.random.default_rng(7).standard_normal(tagged_activations(SENTENCES).shape).astype(np.float32)
    twin = made_store(tmp_path / "twin", SENTENCES, noise)
    found = rank_neurons(store, tags(SENTENCES), random_twin=twin, **{**QUICK, "methods": ["lca"]})
    whole, reduced = found.minimal.to_dict("records")
    assert whole["random_twin"] < whole["accuracy"] - 0.2
    assert reduced["random_twin"] < reduced["accuracy"] - 0.2
    assert found.run.summary["random twin"] == whole["random_twin"]
    bench = Bench(labelled_splits(twin, tags(SENTENCES)), RECIPE)
    probes = seeded_probes(bench, None, Penalty(1e-5, 1e-5), 2)[:2]
    expected = np.mean([score.value for score in bench.score(bench.train(probes), "test")])
    assert whole["random_twin"] == pytest.approx(expected)
    with pytest.raises(SettingError, match="activations were given"):
        rank_neurons(store, tags(SENTENCES), random_twin=True, **QUICK)


def test_the_same_run_again_returns_at_once_and_another_is_refused(store, tmp_path):
    options = {**QUICK, "methods": ["lca", "random"], "out": tmp_path / "run", "seeds": 1}
    first = rank_neurons(store, tags(SENTENCES), **options)
    said = []
    again = rank_neurons(store, tags(SENTENCES), say=said.append, **options)
    assert said == []
    pd.testing.assert_frame_equal(first.frame, again.frame)
    run = read_run(tmp_path / "run")
    np.testing.assert_array_equal(
        again.run.tensors["order.lca"], labelled_splits(store, tags(SENTENCES)).layout.parse(first.top(18))
    )
    assert run.tensors["weight"].shape == (3, 18)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["summary"]["neurons"] == 18
    with pytest.raises(StoreError, match="holds another run"):
        rank_neurons(store, tags(SENTENCES), **{**options, "delta": 0.2})
    wider = rank_neurons(store, tags(SENTENCES), fresh=True, **{**options, "delta": 0.2})
    assert len(wider.minimal_neurons) <= len(first.minimal_neurons)


def test_the_penalty_search_writes_its_grid_and_uses_the_best_cell(store):
    found = rank_neurons(store, tags(SENTENCES), penalty="search", **{**QUICK, "methods": ["lca"], "seeds": 1})
    grid = found.run.tables["penalties"]
    chosen = grid[grid["chosen"]].iloc[0]
    assert len(grid) == 64
    assert chosen["merit"] == grid["merit"].max()
    assert found.run.summary["penalty"] == f"{chosen['l1']:g},{chosen['l2']:g}"
    assert len(found.agreement) == 0


def test_numbers_are_ranked_by_what_needs_no_classes(store):
    x = store.array()
    values = [[float(v) for v in row] for row in (2 * x[:, 0, 1] - x[:, 2, 3]).reshape(len(SENTENCES), 6)]
    found = rank_neurons(store, values, **QUICK)
    assert set(found.top(2)) == {"0:1", "2:3"}
    assert found.run.summary["oracle pearson"] > 0.95
    assert "probeless" in found.run.summary["left out"]
    assert set(found.frame["method"]) == {"lca", "random"}
    assert found.minimal["control"].isna().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["lca", "magic"]}, "Ranking magic is not known; choose from lca"),
        ({"methods": []}, "Ranking none is not known"),
        ({"by": "magic"}, "magic"),
        ({"shares": (0.6,)}, r"shares of neurons are \[0.6\]; expected numbers above 0 and at most 0.5"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"seeds": 0}, "0 seeds"),
        ({"neurons": ["3:0"]}, "Layer 3 is not here"),
        ({"neurons": ["1:6"]}, "Neuron 1:6 does not exist: layer 1 has the neurons 0–5"),
        ({"penalty": "much"}, "expected λ1,λ2"),
    ],
)
def test_settings_that_cannot_be_are_explained(options, message, store):
    with pytest.raises(SettingError, match=message):
        rank_neurons(store, tags(SENTENCES), **{**QUICK, **options})


def test_data_that_cannot_be_ranked_is_explained(store, tmp_path):
    with pytest.raises(DataError, match="a probe needs at least two classes"):
        rank_neurons(store, [["X"] * 6 for _ in SENTENCES], **QUICK)
    with pytest.raises(CorpusError, match="has a label"):
        rank_neurons(store, [[None] * 6 for _ in SENTENCES], **QUICK)
    with pytest.raises(DataError, match="150 sentences, but labels of 149"):
        rank_neurons(store, tags(SENTENCES)[1:], **QUICK)
    broken = tagged_activations(SENTENCES)
    broken[7, 1, 1] = np.nan
    with pytest.raises(DataError, match="NaN or infinite"):
        rank_neurons(broken_store(tmp_path / "store", SENTENCES, broken), tags(SENTENCES), **QUICK)


def test_a_label_unseen_in_training_is_an_error_that_is_counted(store):
    labels = tags(SENTENCES)
    splits = labelled_splits(store, labels)
    labels[splits.test.sentences[0]][0] = "NEW"
    found = rank_neurons(store, labels, **{**QUICK, "methods": ["lca"]})
    assert found.run.summary["test labels unseen in training"] == 1
    assert (
        "test examples have labels that training never saw (NEW) and count as errors" in found.run.config["notes"][-1]
    )


def test_what_was_not_ranked_or_described_is_said(ranking):
    with pytest.raises(SettingError, match="Neuron 2:5 has no card; rank again with neurons=\\['2:5'\\]"):
        ranking.card("2:5")
    with pytest.raises(SettingError, match="pca was not ranked; there are lca"):
        ranking.top(3, "pca")
    assert "Which neurons of store does labels need?" in ranking._repr_html_()
    assert "minimal" in ranking.text()
