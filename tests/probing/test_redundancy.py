"""`redundancy` on a tiny model and on stores whose truth is known: planted copies of neurons, planted labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from made_stores import broken_store, made_store
from residuum.corpus import Corpus
from residuum.errors import DataError, MemoryLimitError, SettingError, StoreError
from residuum.maths.clustering import cluster_neurons
from residuum.maths.selection import MinimalSet
from residuum.maths.similarity import similarity
from residuum.probing import clusters as clusters_module
from residuum.probing import redundancy as redundancy_module
from residuum.probing.clusters import representatives
from residuum.probing.redundancy import redundancy
from residuum.storage.files import read_json

PAPER = {"recipe": "paper", "epochs": 4, "batch_size": 32, "learning_rate": 0.05}
THRESHOLDS = (0.1, 0.3, 0.6)
QUICK = {"thresholds": THRESHOLDS, "seeds": 2, **PAPER, "progress": False}


def planted(n_sentences=90, seed=0):
    """Two layers of eight neurons: 0:0, 0:1 and (mirrored) 1:0 are one; 0:2 and 1:1 tell the tag; 1:7 is dead."""
    rng = np.random.default_rng(seed)
    sentences = [[f"w{word}" for word in rng.integers(40, size=rng.integers(4, 10))] for _ in range(n_sentences)]
    n_words = sum(map(len, sentences))
    tags = rng.integers(3, size=n_words)
    layers = rng.standard_normal((2, n_words, 8)).astype(np.float32)
    for layer, index, sign in ((0, 0, 1), (0, 1, 1), (1, 0, -1)):
        layers[layer, :, index] = sign * layers[0, :, 0] + 0.05 * rng.standard_normal(n_words)
    layers[0, :, 2] += 3 * (tags == 1)
    layers[1, :, 1] += 3 * (tags == 2)
    layers[1, :, 7] = 0
    ends = np.cumsum([len(words) for words in sentences])
    labels = [[f"T{tag}" for tag in part] for part in np.split(tags, ends[:-1])]
    return sentences, layers.transpose(1, 0, 2), labels


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    sentences, layers, labels = planted()
    return made_store(tmp_path_factory.mktemp("store") / "acts", sentences, layers), labels


@pytest.fixture(scope="module")
def general(labelled):
    return redundancy(labelled[0], thresholds=THRESHOLDS, agreement=(0.3,), progress=False)


@pytest.fixture(scope="module")
def tasked(labelled, tmp_path_factory):
    return redundancy(*labelled, out=tmp_path_factory.mktemp("run") / "run", **QUICK)


def test_the_planted_copies_are_one_cluster_and_the_rest_stand_alone(general):
    neurons = general.neurons.set_index("neuron")
    assert neurons.loc[["0:0", "0:1", "1:0"], "cluster 0.1"].nunique() == 1
    assert general.frame["neurons"].tolist()[:2] == [16, 14]
    assert general.frame["largest cluster"].tolist()[:2] == [1, 3]
    assert general.frame["grouped"].tolist()[:2] == [0, 3]
    assert general.run.summary["constant neurons"] == 1
    assert general.layers["constant"].tolist() == [0, 1]


def test_clusters_are_those_of_the_whole_array(labelled, general):
    store, _ = labelled
    whole = store.array().reshape(store.n_rows, -1)
    for threshold in THRESHOLDS:
        assert general.neurons[f"cluster {threshold:g}"].tolist() == cluster_neurons(whole, threshold).tolist()


def test_layers_are_compared_from_the_same_pass(labelled, general):
    store, _ = labelled
    a, b = store.array().transpose(1, 0, 2)
    cka = general.similarity.set_index(["layer_a", "layer_b"])["value"]
    assert cka[0, 1] == pytest.approx(similarity(a, b, "cka"), abs=1e-6)


def test_a_layer_s_mean_likeness_is_that_to_the_other_layers(labelled, tmp_path):
    sentences, layers, _ = planted(30)
    third = np.concatenate([layers, layers[:, :1] ** 2], axis=1)
    found = redundancy(made_store(tmp_path / "three", sentences, third), progress=False)
    cka = found.similarity.set_index(["layer_a", "layer_b"])["value"]
    assert found.layers["mean cka"].tolist()[0] == pytest.approx((cka[0, 1] + cka[0, 2]) / 2)
    alone = redundancy(labelled[0], layers="1", progress=False)
    assert alone.layers["mean cka"].isna().all()


def test_survivors_and_windows_count_every_cluster_once(general):
    left = general.frame.set_index("threshold")["neurons"]
    kept = general.survivors.groupby("threshold")[["random", "medoid", "first"]].sum()
    for rule in kept:
        assert kept[rule].tolist() == left.tolist()
    assert general.windows.groupby("threshold")["clusters"].sum().tolist() == left.tolist()[1:]
    np.testing.assert_allclose(general.windows.groupby("threshold")["share"].sum(), 1)
    first = general.survivors[general.survivors["threshold"] == 0.1].set_index("layer")["first"]
    assert first.tolist() == [7, 7]  # of 0:0, 0:1 and 1:0 the lowest stays


def test_two_layers_hold_the_planted_cluster(general):
    own = general.windows[general.windows["threshold"] == 0.1].set_index("window")
    assert own["share of groups"].to_dict() == {"1": 0, "2": 1, "3": 0, "further": 0}
    assert own["clusters"].to_dict() == {"1": 13, "2": 1, "3": 0, "further": 0}


def test_other_methods_are_asked_where_told(general):
    assert general.run.tables["agreement"]["method"].tolist() == ["k-means", "DBSCAN"]
    assert general.run.tables["agreement"]["agreement"].tolist() == [1.0, 1.0]


def test_the_partitions_of_other_methods_stand_beside_each_neuron(general):
    neurons = general.neurons.set_index("neuron")
    for method in ("k-means", "DBSCAN"):
        assert neurons.loc[["0:0", "0:1", "1:0"], f"{method} 0.3"].nunique() == 1
        assert neurons[f"{method} 0.3"].nunique() == neurons["cluster 0.3"].nunique()
    assert "k-means 0.1" not in neurons


@pytest.mark.parametrize(("clusters", "name"), [("kmeans", "k-means"), ("dbscan", "DBSCAN")])
def test_another_method_s_clusters_can_be_the_ones_that_are_used(clusters, name, labelled):
    from residuum.activations.correlation import cluster_store
    from residuum.maths.clustering import dbscan_partition, kmeans_partition, square_distances

    store, _ = labelled
    found = redundancy(store, thresholds=(0.2, 0.97), clusters=clusters, focus=0.97, progress=False)
    tree = cluster_store(store)
    n_clusters = int(tree.labels(0.97).max()) + 1
    distances = square_distances(tree)
    own = dbscan_partition(distances, 0.97) if clusters == "dbscan" else kmeans_partition(distances, n_clusters)
    assert found.neurons["cluster 0.97"].tolist() == own.tolist()
    assert found.neurons["average linkage 0.97"].tolist() == tree.labels(0.97).tolist() != own.tolist()
    left = found.frame.set_index("threshold")["neurons"]
    assert left[0.97] == len(set(own)) == len(found.representatives(0.97))
    assert found.survivors.groupby("threshold")["medoid"].sum()[0.97] == left[0.97]
    agreement = found.run.tables["agreement"]
    assert agreement["threshold"].tolist() == [0.2, 0.97]
    assert set(agreement["method"]) == {name}
    assert agreement["agreement"].iloc[1] < 1


def test_a_killed_sweep_of_clusters_goes_on_with_those_that_are_left(labelled, tmp_path, monkeypatch):
    settings = {"thresholds": (0.2, 0.9), "clusters": "kmeans", "progress": False, "workers": 1}
    found: list[float] = []
    partition = clusters_module.kmeans_partition

    def counted(distances, n_clusters, seed):
        if len(found) == 1:
            raise KeyboardInterrupt
        found.append(n_clusters)
        return partition(distances, n_clusters, seed)

    monkeypatch.setattr(clusters_module, "kmeans_partition", counted)
    with pytest.raises(KeyboardInterrupt):
        redundancy(labelled[0], out=tmp_path / "run", **settings)
    monkeypatch.setattr(clusters_module, "kmeans_partition", partition)
    again: list[float] = []
    monkeypatch.setattr(clusters_module, "kmeans_partition", lambda *cell: again.append(cell[1]) or partition(*cell))
    resumed = redundancy(labelled[0], out=tmp_path / "run", **settings)
    assert len(again) == 2  # 0.9, and 0.3 for the pictures
    monkeypatch.undo()
    pd.testing.assert_frame_equal(resumed.neurons, redundancy(labelled[0], **settings).neurons)


def test_thresholds_that_are_written_alike_are_one(labelled):
    cuts = {"thresholds": tuple(np.arange(0.1, 1, 0.1)), "agreement": (0.3,)}
    plain = {"thresholds": tuple(round(0.1 * i, 1) for i in range(1, 10)), "agreement": (0.3,)}
    found, expected = (redundancy(labelled[0], clusters="kmeans", progress=False, **own) for own in (cuts, plain))
    pd.testing.assert_frame_equal(found.frame, expected.frame)
    pd.testing.assert_frame_equal(found.neurons, expected.neurons)


def test_k_means_that_does_not_fit_the_memory_is_refused(labelled):
    settings = {"thresholds": (0.3,), "progress": False, "max_memory": 20 * 16**2}
    redundancy(labelled[0], **settings)
    with pytest.raises(MemoryLimitError, match="28 bytes for each pair"):
        redundancy(labelled[0], clusters="kmeans", **settings)


def test_distances_are_gone_when_the_workers_are_done(labelled, tmp_path):
    from residuum.activations.correlation import cluster_store
    from residuum.probing.clusters import ClusterSettings as Settings
    from residuum.probing.clusters import Partitions

    found = Partitions(cluster_store(labelled[0]), Settings(agreement=(0.3, 0.5)))
    found.find_others(tmp_path, 2, 1 << 30)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dbscan-0.3", "dbscan-0.5", "kmeans-0.3", "kmeans-0.5"]


def test_workers_that_cannot_hold_the_distances_at_once_are_fewer(labelled, tmp_path, monkeypatch):
    from residuum.activations.correlation import cluster_store

    settings = clusters_module.ClusterSettings(agreement=(0.3,))
    partitions, workers = clusters_module.Partitions(cluster_store(labelled[0]), settings), []

    def run_here(work, arguments, engine):
        workers.append(engine.workers)
        return [partitions.clustering.labels(cell[1]) for cell in arguments]

    monkeypatch.setattr(clusters_module, "run_tasks", run_here)
    for memory in (28, 48, 68, 400):
        (tmp_path / str(memory)).mkdir()
        partitions.find_others(tmp_path / str(memory), 4, memory * 16**2)
    assert workers == [1, 2, 3, 4]


def test_the_ends_of_the_thresholds_keep_all_neurons_and_one(labelled):
    found = redundancy(labelled[0], thresholds=(0, 0.3, 1), focus=0, progress=False)
    assert found.frame["threshold"].tolist() == [0, 0.3, 1]
    assert found.frame["neurons"].tolist()[0] == 16
    assert found.frame["neurons"].tolist()[-1] == 1
    assert len(found.representatives(0)) == 16
    assert len(found.representatives(1)) == 1
    assert found.pictures.empty
    whole = redundancy(labelled[0], thresholds=(0,), progress=False)
    assert whole.frame["neurons"].tolist() == [16]
    assert "How much does" in whole._repr_html_()


def test_pictures_show_the_words_activations_of_a_cluster(labelled, general):
    store, _ = labelled
    picture = general.pictures
    assert set(picture["neuron"]) == {"0:0", "0:1", "1:0"}
    row_of = {tuple(place): row for row, place in enumerate(store.row_words.tolist())}
    for row in picture.itertuples():
        layer, index = map(int, row.neuron.split(":"))
        value = store.array()[row_of[row.sentence, row.position], layer, index]
        assert row.activation == pytest.approx(value)
        assert row.word == store.sentences[row.sentence][row.position]
    signs = picture.groupby("neuron")["correlation"].first()
    assert np.sign(signs["0:0"]) == np.sign(signs["0:1"]) == -np.sign(signs["1:0"])


def test_representatives_are_one_of_each_cluster_by_every_rule(general):
    for rule in ("random", "medoid", "first"):
        kept = representatives(general.neurons, 0.3, rule, seed=4)
        labels = general.neurons["cluster 0.3"].to_numpy()
        assert sorted(labels[kept]) == sorted(set(labels))
    assert "0:0" in general.representatives(0.1, "first")
    draws = {tuple(representatives(general.neurons, 0.1, "random", seed)) for seed in range(20)}
    assert len(draws) > 1
    with pytest.raises(SettingError, match=r"threshold 0.2 was not measured; there are 0.1, 0.3, 0.6"):
        general.representatives(0.2)


def test_probes_know_the_planted_tags_and_control_labels_cannot_be_known(tasked):
    oracle = tasked.frame.iloc[0]
    assert oracle["score"] > 0.75
    assert oracle["control"] < 0.55
    assert oracle["selectivity"] == pytest.approx(oracle["score"] - oracle["control"])
    assert oracle["low"] <= oracle["score"] <= oracle["high"]
    layers = tasked.layers.set_index("layer")["score"]
    assert (layers < oracle["score"]).all()  # each layer knows one of the two tags


def test_dropping_copies_costs_nothing_and_the_minimal_set_finds_the_two_neurons(tasked):
    assert tasked.frame.set_index("threshold").loc[0.1, "score"] > 0.75
    rows = tasked.reduction.set_index("set")
    assert {"oracle", "minimal set"} <= set(rows.index)
    assert rows.loc["minimal set", "score"] > 0.7
    order = tasked.selected[tasked.selected["set"] == "minimal set"]["neuron"].tolist()
    assert set(order[:2]) == {"0:2", "1:1"}
    assert rows.loc["minimal set", "neurons"] == len(order)


def test_converged_probes_find_exactly_the_planted_neurons(labelled):
    found = redundancy(*labelled, thresholds=THRESHOLDS, progress=False)
    rows = found.reduction.set_index("set")
    assert rows.loc["minimal set", "neurons"] == 2
    assert set(found.selected.query("set == 'minimal set'")["neuron"]) == {"0:2", "1:1"}
    assert rows.loc["minimal set", "score"] > rows.loc["oracle", "score"] - 0.05
    assert {"majority", "word_majority"} <= set(found.reduction)
    assert "baselines: majority" in found.text()
    assert "of 16 neurons" in found.text()


@pytest.mark.parametrize(
    ("sizes", "sufficient", "answer"),
    [
        ((3, 5), (True, True), "Minimal set: 3 of 16 neurons"),
        ((5, 3), (True, True), "Minimal set after clustering: 3 of 16 neurons"),
        ((5, 3), (True, False), "Minimal set: 5 of 16 neurons"),
        ((16, 3), (True, False), "No smaller set of neurons is sufficient."),
    ],
)
def test_the_answer_is_the_smallest_sufficient_set(sizes, sufficient, answer, labelled, monkeypatch):
    found = iter(zip(sizes, sufficient, strict=True))

    def search(data, ranker, order, keep, **options):
        size, enough = next(found)
        return MinimalSet(order[:size], 0.9, 0.9, enough, ((size, 0.9),))

    monkeypatch.setattr(redundancy_module, "find_minimal_set", search)
    result = redundancy(*labelled, thresholds=(0.1,), keep=0.5, progress=False)
    assert result.run.summary["answer"].startswith(answer)


def test_layers_and_minimal_sets_have_bars_of_their_own(labelled):
    found = redundancy(*labelled, **QUICK, keep=0.5, keep_layers=1.0)
    oracle = found.frame["dev"].iloc[0]
    assert found.run.summary["required on dev"] == pytest.approx(0.5 * oracle)
    assert found.run.summary["required of layers on dev"] == pytest.approx(oracle)
    assert (found.layers["dev"] > 0.5 * oracle).all()
    assert not found.layers[
        "sufficient"
    ].any()  # each layer knows one of the two tags, which is sufficient at a half only
    assert found.reduction.set_index("set").loc["minimal set", "sufficient"]
    loose = redundancy(*labelled, **QUICK, keep=0.99, keep_layers=0.5)
    assert loose.layers["sufficient"].all()
    assert loose.reduction.set_index("set").loc["layer 0 alone", "sufficient"]


def test_each_class_has_the_layers_that_find_it(tasked):
    classes = tasked.classes.set_index(["features", "class"])["recall"]
    assert classes["layer 0", "T1"] > classes["layer 0", "T2"]  # 0:2 tells T1, 1:1 tells T2
    assert classes["layer 1", "T2"] > classes["layer 1", "T1"]
    assert tasked.class_layers["class"].tolist() == ["T0", "T1", "T2"]
    oracle = tasked.class_layers.set_index("class")["oracle_recall"]
    assert oracle.to_dict() == classes["all layers"].to_dict()
    for row in tasked.class_layers.to_dict("records"):
        named = {f"layer {layer}" for layer in row["sufficient_layers"].split(",") if layer}
        own = tasked.classes[(tasked.classes["class"] == row["class"]) & tasked.classes["layer"].notna()]
        assert set(own.loc[own["sufficient"], "features"]) == named


def test_a_random_twin_scores_beside_all_neurons_and_each_layer(labelled, tmp_path, tasked):
    store, labels = labelled
    sentences, layers, _ = planted()
    noise = np.random.default_rng(5).standard_normal(layers.shape).astype(np.float32)
    twin = made_store(tmp_path / "noise", sentences, noise)
    found = redundancy(store, labels, twin_stores=twin, **QUICK)
    assert (found.layers["random_twin"] < 0.6).all()
    assert found.frame["random_twin"].iloc[0] < 0.6 < found.frame["score"].iloc[0]
    assert found.frame["random_twin"].iloc[1:].isna().all()
    assert found.reduction["random_twin"].iloc[0] == found.frame["random_twin"].iloc[0]
    assert "random twin" in found._repr_html_()
    assert tasked.layers["random_twin"].isna().all()
    pd.testing.assert_series_equal(found.frame["score"], tasked.frame["score"])
    with pytest.raises(SettingError, match="There is no random twin: activations were given"):
        redundancy(store, labels, random_twin=True, **QUICK)
    with pytest.raises(SettingError, match="without a task there are none"):
        redundancy(store, random_twin=True, progress=False)


def test_parts_for_probes_are_refused_where_there_is_no_task(labelled, tmp_path):
    with pytest.raises(SettingError, match="tested on the dev and test part, and without a task there are none"):
        redundancy(labelled[0], dev=tmp_path / "dev.conllu", test=tmp_path / "test.conllu", progress=False)


def test_probes_score_higher_on_what_they_learnt_from_and_both_tables_say_it(tasked):
    for table in (tasked.frame, tasked.layers):
        assert table["train"].between(0, 1).all()
        assert table["train"].mean() >= table["score"].mean()


def test_clusters_of_one_store_are_found_on_its_training_sentences(labelled, tasked):
    store, _ = labelled
    assert tasked.run.summary["words"] == tasked.run.config["examples"]["train"] < store.n_rows


def test_the_training_part_decides_the_clusters_not_the_test_part(tmp_path):
    parts, labels = {}, {}
    for seed, part in enumerate(("train", "dev", "test")):
        sentences, layers, tags = planted(40, seed)
        if part == "test":
            layers[:, 1, 5] = layers[:, 0, 5]
        parts[part], labels[part] = made_store(tmp_path / part, sentences, layers), tags
    found = redundancy(parts, labels, **QUICK).neurons.set_index("neuron")["cluster 0.6"]
    assert found["1:5"] != found["0:5"]


def test_a_finished_run_returns_at_once_and_another_is_refused(labelled, tasked, tmp_path, monkeypatch):
    first = redundancy(*labelled, out=tmp_path / "run", **QUICK)
    pd.testing.assert_frame_equal(first.frame, tasked.frame)
    monkeypatch.setattr(redundancy_module, "general_redundancy", None)
    again = redundancy(*labelled, out=tmp_path / "run", **QUICK)
    pd.testing.assert_frame_equal(again.reduction, first.reduction)
    assert not list((tmp_path / "run").glob("scratch-*"))
    with pytest.raises(StoreError, match="keep 0.99 → 0.9"):
        redundancy(*labelled, out=tmp_path / "run", keep=0.9, **QUICK)


@pytest.mark.parametrize("step", ["probes", "minimal"])
def test_a_killed_run_keeps_its_finished_steps(step, labelled, tasked, tmp_path, monkeypatch):
    name = {"probes": "class_table", "minimal": "_minimal_tables"}[step]
    with monkeypatch.context() as patch:
        patch.setattr(redundancy_module, name, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            redundancy(*labelled, out=tmp_path / "run", **QUICK)
    (folder,) = (tmp_path / "run").glob("scratch-*")
    assert (folder / "general" / "result.json").exists()
    assert (folder / "probes" / "result.json").exists() == (step == "minimal")
    if step == "minimal":
        tried = read_json(folder / "minimal set.json")
        own = tasked.run.tables["tried"].set_index(["set", "neurons"])["dev"]
        assert {size: score for size, (score, *_) in tried.items()} == {
            str(size): own["minimal set", size] for size in map(int, tried)
        }
    monkeypatch.setattr(redundancy_module, "general_redundancy", None)
    resumed = redundancy(*labelled, out=tmp_path / "run", **QUICK)
    pd.testing.assert_frame_equal(resumed.reduction, tasked.reduction)
    pd.testing.assert_frame_equal(resumed.layers, tasked.layers)


def test_little_memory_streams_and_learns_the_same_things(labelled, tasked):
    tight = redundancy(*labelled, max_memory=4 * 16 * 250, **QUICK)
    assert tight.neurons.equals(tasked.neurons)
    assert tight.frame["score"].iloc[0] == pytest.approx(tasked.frame["score"].iloc[0], abs=0.08)


def test_numbers_are_predicted_too_and_have_no_control_task(tmp_path):
    rng = np.random.default_rng(0)
    sentences = [[f"s{i}"] for i in range(300)]
    layers = rng.standard_normal((300, 2, 6)).astype(np.float32)
    scores = layers[:, 0, 3] + 0.1 * rng.standard_normal(300)
    store = made_store(tmp_path / "acts", sentences, layers)
    found = redundancy(store, [[score] for score in scores.tolist()], **QUICK)
    assert found.frame["score"].iloc[0] > 0.9
    assert found.frame["control"].isna().all()
    assert found.selected["neuron"].iloc[0] == "0:3"
    assert found.run.summary["metric"] == "pearson"
    assert "pearson on test" in [trace.name for trace in found.plot("Neurons left").data]
    with pytest.raises(SettingError, match="no table class_layers: the task predicts numbers"):
        _ = found.class_layers


def test_a_model_reads_the_corpus_into_the_run_and_python_needs_no_folder(tiny_folder, tmp_path):
    sentences, _, labels = planted(60)
    corpus = Corpus(name="planted", sentences=sentences, labels={"upos": labels})
    kept = redundancy(tiny_folder("bert"), corpus, "upos", out=tmp_path / "run", **QUICK)
    assert (tmp_path / "run" / "activations" / "train" / "manifest.json").exists()
    away = redundancy(tiny_folder("bert"), corpus, "upos", **QUICK)
    pd.testing.assert_frame_equal(kept.frame, away.frame)
    unlabelled = redundancy(tiny_folder("bert"), corpus, progress=False)
    assert unlabelled.run.summary["words"] == corpus.n_words
    assert "score" not in unlabelled.frame
    with pytest.raises(SettingError, match="no table reduction: no task was given"):
        _ = unlabelled.reduction


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"thresholds": (0.2, 1.5)},
            r"thresholds is \(0.2, 1.5\); expected numbers separated by commas at least 0 and at most 1",
        ),
        ({"thresholds": (0.4, 0.2)}, "give each once, in ascending order"),
        ({"representatives": "best"}, "representatives is 'best'; expected one of random, medoid, first"),
        ({"keep": 1.2}, "keep is 1.2; expected a number above 0 and at most 1"),
        ({"keep_layers": 0}, r"keep_layers is 0\.0; expected a number above 0"),
        ({"clusters": "spectral"}, "clusters is 'spectral'; expected one of average, kmeans, dbscan"),
        ({"seeds": 0}, "seeds is 0"),
        ({"penalty": "search"}, "penalty is 'search'"),
    ],
)
def test_impossible_settings_are_said_before_anything_is_read(change, message, labelled):
    with pytest.raises(SettingError, match=message):
        redundancy(*labelled, **{**QUICK, **change})


def test_impossible_data_is_said(labelled, tmp_path):
    store, labels = labelled
    with pytest.raises(DataError, match="All .* labels are 'X'; a probe needs at least two classes"):
        redundancy(store, [["X"] * len(row) for row in labels], **QUICK)
    with pytest.raises(DataError, match="90 sentences, but labels of 89"):
        redundancy(store, labels[1:], **QUICK)
    with pytest.raises(SettingError, match="is a model, not an activation store; give the corpus"):
        redundancy("no-such-model", progress=False)
    sentences, layers, _ = planted(20)
    layers[5, 1, 3] = np.nan
    broken = broken_store(tmp_path / "broken", sentences, layers)
    with pytest.raises(DataError, match="holds nan at word 5"):
        redundancy(broken, progress=False)
