"""Ranking the neurons of a task."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from ranked_tasks import IDS, TAGS, tagged_activations, tagged_sentences, tagged_store, tags
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression

from made_stores import broken_store, made_store
from residuum.errors import CorpusError, DataError, MemoryLimitError, SettingError, StoreError
from residuum.maths.layouts import NeuronLayout
from residuum.maths.probing import PaperRecipe, Probe
from residuum.maths.targets import class_target
from residuum.maths.task_moments import task_moments
from residuum.probing.examples import FeatureCache, labelled_splits
from residuum.probing.orders import FEWEST, SAMPLED, OrderSettings, WordSample, neuron_orders
from residuum.probing.probe_data import ProbeData
from residuum.probing.rank import rank
from residuum.probing.settings import METHODS
from residuum.storage.results import read_run

SENTENCES = tagged_sentences()
RECIPE = PaperRecipe(epochs=20, batch_size=32, learning_rate=0.01)
PAPER = {"recipe": "paper", "epochs": 20, "batch_size": 32, "learning_rate": 0.01, "by": "lca"}
QUICK = {**PAPER, "shares": (0.2, 0.4), "seeds": 2, "keep": 0.95}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tagged_store(tmp_path_factory.mktemp("tagged") / "store", SENTENCES)


@pytest.fixture(scope="module")
def ranking(store):
    return rank(store, tags(SENTENCES), neurons=[*IDS.values(), "0:0"], **QUICK)


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


def test_the_minimal_set_is_small_keeps_its_share_on_dev_and_is_scored_on_test(ranking, store):
    whole, reduced = ranking.minimal.to_dict("records")
    assert reduced["neurons"] < whole["neurons"] == 18
    assert set(IDS.values()) <= set(ranking.minimal_neurons)
    assert reduced["dev"] >= 0.95 * whole["dev"] - 0.02
    assert whole["low"] <= whole["accuracy"] <= whole["high"]
    assert whole["selectivity"] == pytest.approx(whole["accuracy"] - whole["control"])


def test_the_set_that_is_reported_is_the_set_that_was_scored(store, ranking):
    """Its probe has the same neurons in the same order, so growth and minimal tables tell the same score."""
    for found in (rank(store, tags(SENTENCES), keep=0.95), ranking):
        size = found.minimal["neurons"].iloc[-1]
        assert size in found.run.tables["growth"]["neurons"].tolist()
    data = ProbeData(labelled_splits(store, tags(SENTENCES)), RECIPE)
    order = data.splits.layout.parse(ranking.top(18))
    probes = data.train([data.probe("task", order[:size], seed) for seed in range(2)])
    assert ranking.minimal["dev"].iloc[-1] == pytest.approx(np.mean([s.value for s in data.score(probes, "dev")]))


def test_the_answer_gives_what_the_set_keeps_on_test(ranking):
    whole, reduced = ranking.minimal.to_dict("records")
    answer = ranking.run.summary["answer"]
    assert "the fewest that keep 95% of the accuracy of all neurons on held-out data" in answer
    assert f"{reduced['score'] / whole['score']:.1%} of the {whole['score']:.3f} of all neurons." in answer


def test_forward_selection_is_the_default_order_and_random_orders_stand_beside(store):
    found = rank(store, tags(SENTENCES), methods=("forward",), shares=(0.2,))
    assert set(found.minimal_neurons[:3]) == set(IDS.values())
    rows = found.selection.query("set == 'top'").set_index("method")
    assert rows.loc["random", "runs"] == 3
    assert rows.loc["random", "sd"] > 0
    assert rows.loc["forward", "beats_random"]


def test_forward_selection_tells_each_class_from_the_others_and_can_scale_classes_alike(store):
    found = rank(store, tags(SENTENCES), methods=("forward", "discriminant"), by="discriminant", shares=(0.2,))
    first = found.class_forward.query("rank == 1").set_index("label")
    assert first["neuron"].to_dict() == IDS
    assert set(found.minimal_neurons[:3]) == set(IDS.values())
    train = labelled_splits(store, tags(SENTENCES)).train
    target = class_target(train.labels)
    ridge = task_moments(train.features(), target).ridge
    is_age = target.values == target.classes.index("AGE")
    peer = max(np.corrcoef(column, is_age)[0, 1] ** 2 for column in train.features().T)
    assert first.loc["AGE", "share"] == pytest.approx(peer / (1 + ridge), rel=1e-3)


def test_neurons_of_a_class_with_few_training_examples_are_marked(store):
    rare = [
        ["X" if i % 40 == 0 and j == 0 else tag for j, tag in enumerate(row)] for i, row in enumerate(tags(SENTENCES))
    ]
    found = rank(store, rare, methods=("forward",), shares=(0.2,), cards=0)
    counts = Counter(labelled_splits(store, rare).train.labels)
    assert counts["X"] < 20
    for table in (found.classes, found.class_forward):
        support = table.groupby("label")[["support", "supported"]].first()
        assert support["support"].to_dict() == dict(counts)
        assert support["supported"].to_dict() == {label: label != "X" for label in counts}


def test_an_order_that_does_not_beat_random_is_said(store):
    noise = np.random.default_rng(7).integers(0, 3, (len(SENTENCES), 6))
    labels = [[f"T{tag}" for tag in row] for row in noise]
    found = rank(store, labels, methods=("forward", "probeless"), shares=(0.2,))
    assert any("not better than random orders" in line for line in found.run.summary["warnings"])


def test_the_oracle_scores_like_scikit_learn(ranking, store):
    splits = labelled_splits(store, tags(SENTENCES))
    peer = LogisticRegression(C=1e3, max_iter=2000).fit(splits.train.features(), splits.train.labels)
    expected = peer.score(splits.test.features(), splits.test.labels)
    assert ranking.minimal["accuracy"].iloc[0] == pytest.approx(expected, abs=0.03)


def test_kept_and_retrained_are_means_over_the_seeds_of_what_they_say(ranking, store):
    bench = ProbeData(labelled_splits(store, tags(SENTENCES)), RECIPE)
    oracles = bench.train([Probe("task", seed=seed) for seed in range(2)])
    order = bench.splits.layout.parse(ranking.top(18))
    row = ranking.selection.query("method == 'lca' and share == 0.2 and set == 'bottom'").iloc[0]
    x = np.zeros_like(bench.features("test"))
    x[:, order[-4:]] = bench.features("test")[:, order[-4:]]
    assert row["neurons"] == 4
    kept = [np.mean(oracle.predict(x) == bench.truth("test").values) for oracle in oracles]
    assert row["kept"] == pytest.approx(np.mean(kept))
    assert row["kept_sd"] == pytest.approx(np.std(kept, ddof=1))
    assert row["kept_low"] <= row["kept"] <= row["kept_high"]
    own = [Probe("task", np.sort(order[-4:]), 1e-5, 1e-5, seed) for seed in range(2)]
    retrained = [score.value for score in bench.score(bench.train(own), "test")]
    assert row["retrained"] == pytest.approx(np.mean(retrained))
    assert row["sd"] == pytest.approx(np.std(retrained, ddof=1))
    assert row["low"] <= row["retrained"] <= row["high"]
    peer = LogisticRegression(C=1e3, max_iter=2000).fit(
        bench.features("train")[:, order[-4:]], bench.truth("train").values
    )
    expected = peer.score(bench.features("test")[:, order[-4:]], bench.truth("test").values)
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
    whole, windowed = ProbeData(splits, RECIPE), ProbeData(splits, RECIPE, max_memory=30_000)
    assert isinstance(whole.features("train"), np.ndarray)
    assert not isinstance(windowed.features("train"), np.ndarray)
    (oracle,) = whole.train([whole.probe("task")])
    options = OrderSettings(sample=10_000)
    first, second = (neuron_orders(bench, METHODS, options, oracle) for bench in (whole, windowed))
    for method in METHODS:
        np.testing.assert_array_equal(first[method].order, second[method].order)


def test_a_sample_of_words_finds_the_same_neurons(store):
    bench = ProbeData(labelled_splits(store, tags(SENTENCES)), RECIPE)
    few = neuron_orders(bench, ["gaussian", "iou"], OrderSettings(sample=300))
    for ranking in few.values():  # two of the three neurons already tell all tags apart
        assert set(bench.splits.layout.format(ranking.order[:2])) <= set(IDS.values())


def test_features_give_way_to_rankings_that_need_the_room_and_nothing_else_changes(store, monkeypatch):
    splits = labelled_splits(store, tags(SENTENCES))
    ample = ProbeData(splits, RECIPE)
    sample = WordSample.of(ample, 300)
    needed = max(sample.n_bytes(method) for method in SAMPLED)
    tight = replace(ample, max_memory=needed + 1000, cache=FeatureCache())
    whole = ample.features("train")
    tight.features("train")
    few = neuron_orders(tight, SAMPLED, OrderSettings(sample=300))
    assert tight.cache.n_bytes == 0
    monkeypatch.setattr("residuum.probing.orders.JOINT_NEURONS", 0)  # the other form of the scatter, too
    other = neuron_orders(ample, SAMPLED, OrderSettings(sample=300))
    for ranking, expected in zip(few.values(), other.values(), strict=True):
        np.testing.assert_array_equal(ranking.order, expected.order)
    assert ample.cache.n_bytes == whole.nbytes


def test_a_ranking_that_does_not_fit_is_refused_before_anything_is_trained(store, monkeypatch):
    monkeypatch.setattr(ProbeData, "train", lambda *_: pytest.fail("a probe was trained"))
    said = r"^The step 'gaussian order' of 720 sampled words × 18 neurons needs .+ allows 0.0 MB.+--methods"
    with pytest.raises(MemoryLimitError, match=said):
        rank(store, tags(SENTENCES), methods=["lca", "gaussian"], by="lca", max_memory=20_000)
    monkeypatch.undo()
    others = [method for method in METHODS if method not in SAMPLED]
    assert rank(store, tags(SENTENCES), methods=others, max_memory=20_000, **QUICK).minimal_neurons


def test_the_scatter_of_all_neurons_is_held_where_it_fits_and_saves_time(store):
    data = ProbeData(labelled_splits(store, tags(SENTENCES)))
    narrow, wide = NeuronLayout((768,) * 13), NeuronLayout((1024,) * 25)
    assert WordSample(20_000, narrow, 17, 4 << 30).joint
    assert not WordSample(20_000, narrow, 17, 1 << 30).joint
    assert not WordSample(20_000, wide, 17, 1 << 40).joint
    assert WordSample.of(data, 300).n_words == 300
    assert WordSample.of(replace(data, max_memory=1 << 10), 20_000).n_words == min(FEWEST, len(data.splits.train))


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
    dead = rank(made_store(tmp_path / "store", SENTENCES, x), tags(SENTENCES), neurons=["0:5"], **QUICK)
    assert (dead.card("0:5")["words"]["z"] == 0).all()
    assert dead.top(18, "mean_difference")[-1] == "0:5"


def test_cards_show_the_words_that_have_no_label_too(store):
    """As where a task is a feature that only some words have."""
    labels = [[TAGS[word] if word != "red" else None for word in sentence] for sentence in SENTENCES]
    labels[0] = [None] * 6
    found = rank(store, labels, neurons=[IDS["COLOUR"]], **{**QUICK, "methods": ["lca"], "seeds": 1})
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
    found = rank(store, tags(SENTENCES), neurons=["0:5"], **{**QUICK, "seeds": 1})
    assert (found.card("0:5")["words"]["z"] == 0).all()
    for method in ("mean_difference", "iou", "gaussian", "probeless"):
        assert found.top(18, method)[-1] == "0:5", method


def test_the_random_twin_stands_beside_all_neurons_and_the_minimal_set(store, tmp_path):
    noise = np.random.default_rng(7).standard_normal(tagged_activations(SENTENCES).shape).astype(np.float32)
    twin = made_store(tmp_path / "twin", SENTENCES, noise)
    found = rank(store, tags(SENTENCES), twin_stores=twin, **{**QUICK, "methods": ["lca"]})
    whole, reduced = found.minimal.to_dict("records")
    assert whole["random_twin"] < whole["accuracy"] - 0.2
    assert reduced["random_twin"] < reduced["accuracy"] - 0.2
    bench = ProbeData(labelled_splits(twin, tags(SENTENCES)), RECIPE)
    probes = [Probe("task", seed=seed) for seed in range(2)]
    expected = np.mean([score.value for score in bench.score(bench.train(probes), "test")])
    assert whole["random_twin"] == pytest.approx(expected)
    with pytest.raises(SettingError, match="activations were given"):
        rank(store, tags(SENTENCES), random_twin=True, **QUICK)


def test_the_same_run_again_returns_at_once_and_another_is_refused(store, tmp_path):
    options = {**QUICK, "methods": ["lca", "random"], "out": tmp_path / "run", "seeds": 1}
    first = rank(store, tags(SENTENCES), **options)
    stamp = (tmp_path / "run" / "result.json").stat().st_mtime_ns
    again = rank(store, tags(SENTENCES), **options)
    assert (tmp_path / "run" / "result.json").stat().st_mtime_ns == stamp
    pd.testing.assert_frame_equal(first.frame, again.frame)
    run = read_run(tmp_path / "run")
    np.testing.assert_array_equal(
        again.run.tensors["order.lca"], labelled_splits(store, tags(SENTENCES)).layout.parse(first.top(18))
    )
    assert run.tensors["weight"].shape == (3, 18)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["summary"]["neurons"] == 18
    with pytest.raises(StoreError, match="holds another run"):
        rank(store, tags(SENTENCES), **{**options, "keep": 0.8})
    wider = rank(store, tags(SENTENCES), fresh=True, **{**options, "keep": 0.8})
    assert len(wider.minimal_neurons) <= len(first.minimal_neurons)


def test_numbers_are_ranked_by_what_needs_no_classes(store):
    x = store.array()
    values = [[float(v) for v in row] for row in (2 * x[:, 0, 1] - x[:, 2, 3]).reshape(len(SENTENCES), 6)]
    found = rank(store, values, **QUICK)
    assert set(found.top(2)) == {"0:1", "2:3"}
    assert found.run.summary["metric"] == "pearson"
    assert found.run.summary["oracle"] > 0.95
    assert "probeless" in found.run.summary["left out"]
    assert set(found.frame["method"]) == {"forward", "lca", "random"}
    assert found.minimal["control"].isna().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["lca", "magic"]}, "There is no order of neurons magic; choose from forward"),
        ({"methods": []}, "There is no order of neurons given"),
        ({"by": "magic"}, "magic"),
        ({"shares": (0.6,)}, r"shares is \(0.6,\); expected numbers separated by commas above 0 and at most 0.5"),
        ({"keep": 1.5}, "keep is 1.5"),
        ({"seeds": 0}, "seeds is 0"),
        ({"neurons": ["3:0"]}, "Layer 3 is not here"),
        ({"neurons": ["1:6"]}, "Neuron 1:6 does not exist: layer 1 has the neurons 0–5"),
        ({"penalty": "much"}, "penalty is 'much'; expected 2 numbers separated by commas"),
    ],
)
def test_settings_that_cannot_be_are_explained(options, message, store):
    with pytest.raises(SettingError, match=message):
        rank(store, tags(SENTENCES), **{**QUICK, **options})


def test_data_that_cannot_be_ranked_is_explained(store, tmp_path):
    with pytest.raises(DataError, match="a probe needs at least two classes"):
        rank(store, [["X"] * 6 for _ in SENTENCES], **QUICK)
    with pytest.raises(CorpusError, match="has a label"):
        rank(store, [[None] * 6 for _ in SENTENCES], **QUICK)
    with pytest.raises(DataError, match="150 sentences, but labels of 149"):
        rank(store, tags(SENTENCES)[1:], **QUICK)
    broken = tagged_activations(SENTENCES)
    broken[7, 1, 1] = np.nan
    with pytest.raises(DataError, match="NaN or infinite"):
        rank(broken_store(tmp_path / "store", SENTENCES, broken), tags(SENTENCES), **QUICK)


def test_a_label_unseen_in_training_is_an_error_that_is_counted(store):
    labels = tags(SENTENCES)
    splits = labelled_splits(store, labels)
    labels[splits.test.sentences[0]][0] = "NEW"
    found = rank(store, labels, **{**QUICK, "methods": ["lca"]})
    assert found.run.summary["unseen labels"] == 1
    assert (
        "test examples have labels that training never saw (NEW) and count as errors" in found.run.config["notes"][-1]
    )


def test_what_was_not_ranked_or_described_is_said(ranking):
    with pytest.raises(SettingError, match="Neuron 2:5 has no card; rank again with neurons=\\['2:5'\\]"):
        ranking.card("2:5")
    with pytest.raises(SettingError, match="pca was not ranked; there are forward, discriminant, lca"):
        ranking.top(3, "pca")
    assert "Which neurons of store does labels need?" in ranking._repr_html_()
    assert "minimal" in ranking.text()
