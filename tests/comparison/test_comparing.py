"""`compare` on whole models: the same numbers as two arrays, whatever the memory, the workers and the source."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from made_stores import made_store
from residuum.activations.extraction import extract
from residuum.comparison import estimates
from residuum.comparison.compare import compare
from residuum.comparison.costs import check_memory
from residuum.comparison.passes import cut_into_groups
from residuum.corpus import Corpus
from residuum.engine import Engine
from residuum.errors import DataError, MemoryLimitError, SettingError, StoreError
from residuum.maths.similarity import MEASURES, similarity
from residuum.models.loading import load_model

RNG = np.random.default_rng(0)
TEXT = "the quick brown fox jumps over lazy dog reads a small text word by größere Häuser 東京 naïve ."
WORDS = TEXT.split()
SENTENCES = [[str(w) for w in RNG.choice(WORDS, RNG.integers(2, 12))] for _ in range(60)]
CORPUS = Corpus(name="test", sentences=SENTENCES)
FROM_ARRAYS = [name for name, measure in MEASURES.items() if measure.source in ("moments", "arrays")]
FROM_HEADS = [name for name, measure in MEASURES.items() if "attention" in measure.source]
SETTINGS = {"groups": 5, "null": True, "permutations": 2, "products": "float64", "workers": 1, "progress": False}


@pytest.fixture(scope="module")
def stores(tiny_folder, tmp_path_factory):
    """Two models that differ in tokenizer, with attention."""
    root = tmp_path_factory.mktemp("stores")
    return [
        extract(load_model(tiny_folder(family), attention=True), CORPUS, root / family, attention=True, shard_words=90)
        for family in ("bert", "gpt2")
    ]


@pytest.fixture(scope="module")
def whole(stores):
    return compare(stores, measures="all", **SETTINGS)


@pytest.mark.parametrize("measure", FROM_ARRAYS)
def test_values_are_those_of_two_arrays(measure, stores, whole):
    a, b = (store.array() for store in stores)
    matrix = whole.matrix(measure)
    close = {"abs": 1e-9}
    for i, j in [(0, 3), (2, 1), (3, 3)]:
        there, back = similarity(a[:, i], b[:, j], measure), similarity(b[:, j], a[:, i], measure)
        assert matrix.loc[("bert", i), ("gpt2", j)] == pytest.approx(there, **close)
        assert matrix.loc[("gpt2", j), ("bert", i)] == pytest.approx(back, **close)


@pytest.mark.parametrize("measure", FROM_HEADS)
def test_attention_is_compared_block_by_block(measure, stores, whole):
    a, b = ([[s[k] for s in store.read_attention(0, 60)] for k in range(3)] for store in stores)
    matrix = whole.matrix(measure)
    assert matrix.shape == (6, 6)
    assert matrix.loc[("bert", 1), ("gpt2", 3)] == pytest.approx(similarity(a[0], b[2], measure), abs=1e-9)
    assert matrix.loc[("gpt2", 2), ("gpt2", 2)] == pytest.approx(1)


def test_the_frame_is_tidy_and_complete(whole):
    frame = whole.frame
    cells = ["measure", "model_a", "layer_a", "model_b", "layer_b"]
    assert list(frame) == [*cells, "value", "low", "high", "null", "null_sd", "p"]
    assert set(frame["measure"]) == {"ridge", *FROM_ARRAYS, *FROM_HEADS}
    assert len(frame) == (1 + len(FROM_ARRAYS)) * 8 * 8 + 6 * 6 * 6
    assert frame["value"].notna().all()
    covered = frame[frame["low"].notna()]
    assert set(covered["measure"]) == {m for m in frame["measure"] if MEASURES[m].words_per_neuron < 40}
    assert (covered["low"] <= covered["value"] + 1e-9).all()
    assert (covered["high"] >= covered["value"] - 1e-9).all()
    known = frame[~frame["measure"].isin(["ridge", "imd"])]
    assert frame.loc[~frame.index.isin(known.index), "p"].isna().all()
    assert known["p"].isin([1 / 3, 2 / 3, 1]).all()
    assert (known["null_sd"] >= 0).all()


def test_a_layer_is_wholly_similar_to_itself_and_hardly_to_permuted_words(whole):
    frame = whole.frame
    own = (frame["model_a"] == frame["model_b"]) & (frame["layer_a"] == frame["layer_b"])
    np.testing.assert_allclose(frame.loc[own, "value"], 1, atol=1e-9)
    cka = frame[frame["measure"] == "cka_debiased"]
    assert cka["null"].abs().max() < 0.2
    heads = frame[(frame["measure"] == "attention_pearson") & own]
    assert (heads["null"] < heads["value"] - 0.1).all()
    assert cka["value"].mean() > 0.3


@pytest.mark.parametrize("workers", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_any_number_of_workers_gives_the_same_table(workers, stores, whole):
    measures = ["neuron", "mixed", "pwcca", "cka_debiased", "attention_js", "attention_cka"]
    again = compare(stores, measures=measures, **SETTINGS | {"workers": workers}).frame
    expected = whole.frame[whole.frame["measure"].isin(measures)].reset_index(drop=True)
    pd.testing.assert_frame_equal(again, expected, check_exact=True)


def test_less_memory_means_more_passes_and_the_same_table(stores, whole):
    room = 6 * 8 * 16 * 16 * 36 // 2 + 8 * 512 * 16 * 8
    measures = [name for name in FROM_ARRAYS if MEASURES[name].source == "moments"]
    tight = compare(stores, measures=measures, max_memory=room, **SETTINGS)
    expected = whole.frame[whole.frame["measure"].isin(measures)].reset_index(drop=True)
    pd.testing.assert_frame_equal(tight.frame, expected, rtol=1e-10, atol=1e-12)
    with pytest.raises(MemoryLimitError, match=r"max_memory is 0.5 MB, but reading alone needs 0.5 MB"):
        compare(stores, max_memory=520_000, workers=1, progress=False)


def test_a_comparison_with_intervals_and_a_null_stays_within_its_memory(tmp_path):
    """Gradients and permuted words are counted; the peak is that of numpy's own numbers."""
    import tracemalloc

    sentences, room = [["w", "v"] * 5] * 60, 38_000_000
    activations = np.random.default_rng(0).standard_normal((600, 8, 128)).astype(np.float32)
    store = made_store(tmp_path / "store", sentences, activations)
    tracemalloc.start()
    compare([store], measures="mixed,procrustes", null=True, permutations=1, groups=4, max_memory=room, progress=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < room


@pytest.mark.parametrize(
    ("measures", "room", "step"), [("rsa", 2_000_000, "rsa"), ("cka", 400_000, "contexts and sample")]
)
def test_what_cannot_be_cut_and_does_not_fit_is_refused_by_name(measures, room, step, stores):
    settings = {"measures": measures, "groups": 3, "workers": 1, "progress": False}
    with pytest.raises(MemoryLimitError, match=rf"The step '{step}' of \d+ words × 8 layers needs .* lower --sample"):
        compare(stores, max_memory=room, **settings)
    assert len(compare(stores, max_memory=100_000_000, **settings).frame)


def test_attention_of_a_long_sentence_is_refused_before_it_is_read():
    source = SimpleNamespace(
        sentences=[["w"] * 1000, ["v"] * 10], layers=[0, 1, 2], widths=[8] * 3, n_heads=12, unit="word"
    )
    groups = cut_into_groups([1000, 10], 2)
    settings = (["attention_js"], {}, True, 0, 1000, 0, Engine(), 1_000_000_000, Path())
    check_memory(estimates.ComparisonPlan([source], groups, *settings))
    source.n_heads = 24
    with pytest.raises(MemoryLimitError, match="The step 'attention' of 1,010 words × 3 layers needs"):
        check_memory(estimates.ComparisonPlan([source], groups, *settings))


def test_a_killed_run_goes_on_with_other_memory(stores, tmp_path, monkeypatch):
    settings = {"measures": "cka", "groups": 3, "workers": 1, "progress": False}
    with monkeypatch.context() as patch:
        patch.setattr(estimates, "_evaluate", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            compare(stores, out=tmp_path / "run", max_memory=8 * 512 * 16 * 8 + 80_000, **settings)
    resumed = compare(stores, out=tmp_path / "run", **settings)
    pd.testing.assert_frame_equal(resumed.frame, compare(stores, **settings).frame)


def test_models_are_compared_without_storing_anything(tiny_folder, stores, whole):
    models = [load_model(tiny_folder(family), attention=True) for family in ("bert", "gpt2")]
    live = compare(models, CORPUS, measures="paper,ridge,cka_rbf,attention", **SETTINGS)
    expected = whole.frame[whole.frame["measure"].isin(live.frame["measure"])]
    order = ["measure", "model_a", "layer_a", "model_b", "layer_b"]
    both = [frame.sort_values(order).reset_index(drop=True).drop(columns="p") for frame in (live.frame, expected)]
    pd.testing.assert_frame_equal(*both, rtol=1e-3, atol=1e-4)


def test_intervals_can_be_left_out(stores, whole):
    plain = compare(stores, measures=["cka", "rsa"], **SETTINGS | {"intervals": False, "null": False})
    assert plain.frame["low"].isna().all()
    pd.testing.assert_frame_equal(plain.matrix("cka"), whole.matrix("cka"))


def test_a_random_twin_is_less_alike_than_the_model_itself(tiny_folder, stores):
    twin = load_model(tiny_folder("bert"), random_init=True, seed=1)
    real = load_model(tiny_folder("bert"))
    result = compare([real, twin], CORPUS, measures="cka_debiased", workers=1, progress=False)
    cross = result.matrix("cka_debiased").loc[("bert", 3), ("bert (random)", 3)]
    assert cross < 0.95


def test_a_model_compared_with_itself_is_numbered_and_the_same(stores):
    result = compare([stores[0], stores[0]], measures="cka", workers=1, progress=False)
    matrix = result.matrix("cka")
    assert matrix.loc[("bert #1", 2), ("bert #2", 2)] == pytest.approx(1)
    assert set(result.frame["model_a"]) == {"bert #1", "bert #2"}


def test_curves_follow_from_the_matrices(whole):
    curves = whole.curves.set_index(["model", "curve", "measure", "layer"])["value"]
    neuron, svcca = whole.matrix("neuron"), whole.matrix("svcca")
    expected = neuron.mean(axis=0) - svcca.mean(axis=0)
    assert curves["bert", "localization", "neuron − svcca", 2] == pytest.approx(expected["bert", 2])
    cka = whole.matrix("cka").loc["gpt2", "gpt2"]
    assert curves["gpt2", "layer_average", "cka", 1] == pytest.approx((cka.loc[1].sum() - 1) / 3)
    assert curves["gpt2", "to_next_layer", "cka", 1] == pytest.approx(cka.loc[1, 2])
    assert ("bert", "context_specificity", "cosine", 0) in curves.index


def test_dead_neurons_are_counted_and_harmless(tiny_folder):
    import torch

    model = load_model(tiny_folder("bert"))
    with torch.no_grad():
        norm = model.module.encoder.layer[2].output.LayerNorm
        norm.weight[[3, 7]] = 0
    result = compare([model], CORPUS, measures=FROM_ARRAYS, workers=1, progress=False)
    assert result.layers.set_index("layer").loc[3, "constant"] == 2
    assert result.run.summary["dead neurons"] == 2
    assert np.isfinite(result.frame["value"]).all()
    assert np.isfinite(result.frame.loc[result.frame["measure"] == "cka", ["low", "high"]]).all(axis=None)


def test_words_that_one_model_lacks_are_left_out_for_all(tiny_folder, tmp_path):
    holes = Corpus(name="holes", sentences=[*SENTENCES[:20], ["fox", "\u200b", "dog"], ["\u200b"]])
    bert = extract(load_model(tiny_folder("bert")), holes, tmp_path / "a", max_loss=0.5)
    gpt2 = extract(load_model(tiny_folder("gpt2")), holes, tmp_path / "b")
    assert gpt2.n_rows == bert.n_rows + 2
    value = compare([bert, gpt2], measures="cka", workers=1, progress=False).matrix("cka").loc[("bert", 1), ("gpt2", 1)]
    kept = [r for r, (s, w) in enumerate(gpt2.row_words.tolist()) if holes.sentences[s][w] != "\u200b"]
    assert value == pytest.approx(similarity(bert.array()[:, 1], gpt2.array()[kept, 1], "cka"), abs=1e-6)


def test_a_finished_run_is_read_back_and_another_is_refused(stores, tmp_path):
    first = compare(stores, measures="cka", out=tmp_path / "run", workers=1, progress=False)
    again = compare(stores, measures="cka", out=tmp_path / "run", workers=1, progress=False)
    pd.testing.assert_frame_equal(first.frame, again.frame)
    assert not list((tmp_path / "run").glob("scratch-*"))
    with pytest.raises(StoreError, match="groups 10 → 4"):
        compare(stores, measures="cka", groups=4, out=tmp_path / "run", progress=False)


def test_products_in_float32_change_no_digit_that_is_shown(stores):
    settings = {"measures": "neuron,svcca,pwcca,cka", "groups": 3, "null": True, "workers": 1, "progress": False}
    settings["measures"] += ",mixed,procrustes"
    whole, half = (compare(stores, products=products, **settings) for products in ("float64", "float32"))
    for column in ("value", "low", "high", "null"):
        np.testing.assert_allclose(half.frame[column], whole.frame[column], atol=1e-5)
    assert not np.array_equal(half.frame["value"], whole.frame["value"]), "it makes no difference what is asked for"
    assert half.run.config["products"] == "float32"


def test_a_stopped_run_goes_on_with_the_groups_it_has(stores, tmp_path, monkeypatch):
    from residuum.comparison import estimates

    calls = []
    original = estimates.group_moments

    def counting(sources, group, pairs, **options):
        calls.append(group.number)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(sources, group, pairs, **options)

    monkeypatch.setattr(estimates, "group_moments", counting)
    settings = {"measures": "neuron", "out": tmp_path / "run", "groups": 6, "workers": 1, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        compare(stores, **settings)
    (damaged,) = (tmp_path / "run").glob("scratch-*/pass-*/group-1.safetensors")
    damaged.write_bytes(damaged.read_bytes()[:-8] + bytes(8))  # as after a power cut
    stopped = compare(stores, **settings)
    assert calls == [0, 1, 2, 3, 1, 3, 4, 5]
    expected = compare(stores, measures="neuron", groups=6, workers=1, progress=False)
    pd.testing.assert_frame_equal(stopped.frame, expected.frame)


def test_what_cannot_be_compared_is_said(stores, tiny_folder, tmp_path):
    with pytest.raises(SettingError, match="magic is not known; choose from paper, attention, standard, outputs, all"):
        compare(stores, measures="magic")
    with pytest.raises(SettingError, match="is a model, not an activation store; pass --corpus"):
        compare([tiny_folder("bert")])
    with pytest.raises(SettingError, match="Nothing to compare"):
        compare([])
    other = extract(load_model(tiny_folder("bert")), Corpus(name="o", sentences=[["other"]]), tmp_path / "o")
    with pytest.raises(StoreError, match="over different words: sentence 1 is"):
        compare([stores[0], other])
    plain = extract(load_model(tiny_folder("bert")), CORPUS, tmp_path / "p")
    with pytest.raises(SettingError, match="bert gives no attention"):
        compare([plain], measures="attention_js")
    everything = compare([plain], measures="all", workers=1, progress=False)
    assert "attention measures" in everything.run.summary["left out"]
    with pytest.raises(DataError, match="no words"):
        cut_into_groups([], 3)


def test_a_source_is_named_where_it_is_given(stores):
    named = compare([f"base={stores[0].path}", stores[1]], measures="cka", intervals=False, workers=1, progress=False)
    assert list(dict.fromkeys(named.frame["model_a"])) == ["base", stores[1].name]


def test_attention_is_compared_where_there_is_some(stores, tiny_folder, tmp_path):
    plain = extract(load_model(tiny_folder("bert")), CORPUS, tmp_path / "plain")
    result = compare([stores[0], f"plain={plain.path}", stores[1]], measures="cka,attention_js", **SETTINGS)
    heads = result.frame[result.frame["measure"] == "attention_js"]
    assert set(heads["model_a"]) == {"bert", "gpt2"}
    assert len(heads) == 36
    assert set(result.frame.loc[result.frame["measure"] == "cka", "model_a"]) == {"bert", "plain", "gpt2"}
    assert "plain without attention" in result.run.summary["left out"]


def test_differences_of_cells_have_narrower_intervals_than_the_cells(whole):
    first, second = ("bert", 1, "bert", 2), ("bert", 1, "bert", 3)
    found = whole.difference("cka", first, second)
    matrix = whole.matrix("cka")
    assert float(found.value) == pytest.approx(matrix.loc[first[:2], first[2:]] - matrix.loc[second[:2], second[2:]])
    assert float(found.low) < float(found.value) < float(found.high)
    nothing = whole.difference("cka", first, ("bert", 2, "bert", 1))
    assert float(nothing.low) == pytest.approx(0, abs=1e-12)
    with pytest.raises(SettingError, match="two directions of a pair of layers have no interval .* by attention_js"):
        whole.difference("attention_js", first, ("bert", 2, "bert", 1))
    with pytest.raises(SettingError, match="no intervals of svcca"):
        whole.difference("svcca", first, second)


def test_the_first_order_jackknife_agrees_with_leaving_groups_out(stores):
    """Of 60 sentences; the leave-one-group-out values themselves are those of `similarity_matrices`."""
    from residuum.maths.moments import MomentsAccumulator, merge, subtract
    from residuum.maths.similarity import jackknife_matrices, similarity_matrices

    rng = np.random.default_rng(0)
    x = rng.standard_normal((4000, 6)) @ rng.standard_normal((6, 12)) + 0.5 * rng.standard_normal((4000, 12))
    y = np.tanh(x[:, :8]) + 0.3 * rng.standard_normal((4000, 8))
    parts = []
    for rows in np.array_split(np.arange(4000), 10):
        accumulator = MomentsAccumulator([12, 8])
        accumulator.update([x[rows], y[rows]])
        parts.append(accumulator.result())
    halves = [parts[half] for half in (0, 1)]
    for i in range(2, 10):
        halves[i % 2] = merge(halves[i % 2], parts[i])
    measures = ["mixed", "procrustes", "shape", "cka", "neuron"]
    found = jackknife_matrices([lambda part=part: part for part in parts], (halves[0], halves[1]), measures)
    total = merge(*halves)
    for measure in measures:
        exact = np.stack([similarity_matrices(subtract(total, part), [measure])[measure] for part in parts])
        spread = exact.std(axis=0)[[0, 1], [1, 0]]
        error = np.abs(found[measure].left_out - exact).max(axis=0)[[0, 1], [1, 0]]
        assert (error < 0.4 * spread).all(), measure


def test_outlier_dimensions_have_remedies(stores):
    a = stores[0].array()[:, 2]
    settings = {"measures": "cka,cka_debiased,rsa,svcca", "intervals": False, "sample": 10_000, "progress": False}
    settings["products"] = "float64"
    places = stores[0].row_words

    def cka(**remedy):
        result = compare([stores[0]], **settings, **remedy)
        return result.matrix("cka").loc[("bert", 2), ("bert", 3)], result

    b = stores[0].array()[:, 3]
    later = places[:, 1] > 0
    assert cka(skip_first=1)[0] == pytest.approx(similarity(a[later], b[later], "cka"), abs=1e-6)
    scaled, result = cka(standardize=True)
    assert scaled == pytest.approx(similarity(a / a.std(0), b / b.std(0), "cka"), abs=1e-6)
    for measure in ("cka_debiased", "rsa", "svcca"):
        expected = similarity(a / a.std(0), b / b.std(0), measure)
        assert result.matrix(measure).loc[("bert", 2), ("bert", 3)] == pytest.approx(expected, abs=1e-4), measure
    without = a.copy()
    without[:, [1, 4]] = 0
    assert cka(drop_neurons=["2:1", "bert/2:4"])[0] == pytest.approx(similarity(without, b, "cka"), abs=1e-6)
    cut = [np.clip(z, *np.quantile(z, [0.05, 0.95], axis=0)) for z in (a, b)]
    assert cka(clip=0.9)[0] == pytest.approx(similarity(*cut, "cka"), abs=1e-5)
    with pytest.raises(SettingError, match="Neuron 2:99 is not in bert"):
        cka(drop_neurons=["2:99"])
    with pytest.raises(SettingError, match="nobody/2:1 names no model"):
        cka(drop_neurons=["nobody/2:1"])


def test_layers_say_where_their_variance_is(stores):
    row = compare([stores[0]], measures="svcca", intervals=False, progress=False).layers.iloc[2]
    x = stores[0].array()[:, 2].astype(np.float64)
    z = np.square(x - x.mean(axis=0)).sum(axis=1)
    assert row["first_word_share"] == pytest.approx(z[stores[0].row_words[:, 1] == 0].sum() / z.sum(), rel=1e-6)
    values = np.linalg.svd(x - x.mean(axis=0), compute_uv=False) ** 2
    assert row["directions"] == int(np.argmax(np.cumsum(values) / values.sum() >= 0.99)) + 1
    assert row["depth"] == pytest.approx(2 / 3)


def test_models_are_summed_up_by_their_best_layers(whole):
    block = whole.matrix("cka").loc["bert", "gpt2"].to_numpy()
    row = whole.models.query("measure == 'cka' and model_a == 'bert' and model_b == 'gpt2'").iloc[0]
    assert row["best_layers"] == pytest.approx(block.max(axis=1).mean())
    assert row["all_layers"] == pytest.approx(block.mean())


def test_checkpoints_of_a_training_are_a_series(tiny_folder, tmp_path):
    import shutil

    for step in (20, 100, 3):
        shutil.copytree(tiny_folder("bert"), tmp_path / "run" / f"checkpoint-{step}")
    result = compare([tmp_path / "run"], CORPUS, measures="cka", intervals=False, progress=False)
    names = list(dict.fromkeys(result.layers["model"]))
    assert names == ["run checkpoint-3", "run checkpoint-20", "run checkpoint-100"]


def test_two_texts_are_set_beside_each_other(tiny_folder, tmp_path):
    model, settings = load_model(tiny_folder("bert")), {"measures": "cka,svcca", "groups": 5, "progress": False}
    other = compare([model], Corpus(name="second", sentences=SENTENCES[30:]), out=tmp_path / "second", **settings)
    result = compare([model], CORPUS, beside=tmp_path / "second", out=tmp_path / "first", **settings)
    rows = result.beside.set_index(["measure", "layer_a", "layer_b"])
    row = rows.loc[("cka", 1, 3)]
    cells = [("bert", 1), ("bert", 3)]
    assert row["value"] == result.matrix().loc[*cells]
    assert row["difference"] == pytest.approx(result.matrix().loc[*cells] - other.matrix().loc[*cells])
    assert row["low"] < row["difference"] < row["high"]
    assert rows.loc["svcca"]["low"].isna().all()
    assert result.run.summary["beside"] == "second"
    again = compare([model], CORPUS, beside=other, out=tmp_path / "first", **settings)
    pd.testing.assert_frame_equal(again.beside, result.beside)
    with pytest.raises(SettingError, match="was not set beside another"):
        other.beside  # noqa: B018
    with pytest.raises(SettingError, match="no measure of a pair of layers in common"):
        compare([replace(model, name="else")], CORPUS, beside=other, **settings)


def test_models_in_half_precision_are_compared(tiny_folder):
    model, half = load_model(tiny_folder("bert")), load_model(tiny_folder("bert"))
    half.module.to(torch.bfloat16)
    result = compare([model, replace(half, name="half")], CORPUS, measures="cka,mixed", progress=False)
    assert result.matrix("cka").loc[("bert", 2), ("half", 2)] > 0.99
    assert np.isfinite(result.frame["value"]).all()


@pytest.mark.parametrize("text", [[["w"]] * 20, [["a", "a"], *([w] for w in "bcdefghijk")]])
def test_words_too_alike_or_too_unlike_for_their_contexts_are_compared_all_the_same(text, tmp_path):
    words = sum(map(len, text))
    store = made_store(tmp_path / "store", text, np.random.default_rng(0).standard_normal((words, 2, 3)))
    result = compare([store], measures="cka", groups=3, progress=False)
    assert result.frame["value"].notna().all()
    context = result.curves.query("curve == 'context_specificity'")
    assert context["low"].isna().all()


def test_groups_are_even_whole_and_never_empty():
    groups = cut_into_groups([len(s) for s in SENTENCES], 10)
    assert [g.first for g in groups] == [0, *(g.stop for g in groups[:-1])]
    assert groups[-1].stop == len(SENTENCES)
    assert max(g.words for g in groups) < 3 * min(g.words for g in groups)
    assert len(cut_into_groups([1, 1], 10)) == 2
    assert len(cut_into_groups([100, 0, 1], 2)) <= 2


def test_rows_can_be_sentences(tiny_folder, tmp_path):
    model = load_model(tiny_folder("bert"))
    store = extract(model, CORPUS, tmp_path / "s", unit="sentence")
    result = compare([store], measures=["cka", "knn"], groups=4, sample=50, workers=1, progress=False)
    expected = similarity(store.array()[:, 1], store.array()[:, 3], "cka")
    assert result.matrix("cka").loc[("bert", 1), ("bert", 3)] == pytest.approx(expected, abs=1e-6)
    assert result.run.summary["sentences"] == 60
    assert result.run.summary["words sampled"] == 50
    assert "context_specificity" not in set(result.curves["curve"])


def test_options_are_checked_and_reach_their_measure(stores):
    with pytest.raises(TypeError, match="has no setting 'nonsense'"):
        compare(stores, measures="cka", nonsense=1)
    with pytest.raises(SettingError, match="cka has no option top_k"):
        compare(stores, measures="cka", top_k=1)
    best = compare(stores, measures="neuron", top_k=1, intervals=False, workers=1, progress=False).matrix("neuron")
    a, b = (store.array() for store in stores)
    expected = similarity(a[:, 1], b[:, 2], "neuron", top_k=1)
    assert best.loc[("bert", 1), ("gpt2", 2)] == pytest.approx(expected, abs=1e-6)


def test_a_model_loaded_without_attention_is_compared_without_it(tiny_folder):
    result = compare([load_model(tiny_folder("bert"))], CORPUS, measures="all", workers=1, progress=False)
    assert "attention measures" in result.run.summary["left out"]


def test_models_that_read_without_a_store_leave_the_sums_what_is_left_of_the_memory(tiny_folder):
    model = load_model(tiny_folder("bert"))
    settings = {"measures": "cka", "groups": 3, "workers": 1, "progress": False}
    enough = compare([model], CORPUS, max_memory=model.n_bytes + 100_000_000, **settings)
    assert len(enough.frame) == 16
    with pytest.raises(MemoryLimitError, match=r"^The step 'loading' of bert, other needs .+ of memory"):
        compare([model, replace(model, name="other")], CORPUS, max_memory=2 * model.n_bytes - 1, **settings)
    with pytest.raises(MemoryLimitError, match="The step 'contexts and sample'"):
        compare([model], CORPUS, max_memory=model.n_bytes + 100_000, **settings)


def test_a_neuron_that_has_most_of_the_variance_is_named_with_the_remedy(tiny_folder, tmp_path):
    model = load_model(tiny_folder("bert"))
    plain = compare([model], CORPUS, measures="cka", workers=1, intervals=False, progress=False)
    assert "outlier neurons" not in plain.run.summary
    with torch.no_grad():
        model.module.encoder.layer[1].output.LayerNorm.weight[3] = 1000.0
    result = compare([model], CORPUS, measures="cka", workers=1, intervals=False, progress=False)
    row = result.layers.query("layer == 2").iloc[0]
    assert row["top_neuron"] == 3
    assert row["top_share"] > 0.9
    assert row["effective_rank"] < 1.3
    assert "neuron 3 of layer 2 of bert" in result.run.summary["outlier neurons"]
    assert "--standardize" in result.text()
    assert row["directions"] < 16
    standardised = compare([model], CORPUS, measures="cka", standardize=True, workers=1, progress=False)
    assert standardised.matrix().loc[("bert", 1), ("bert", 2)] != result.matrix().loc[("bert", 1), ("bert", 2)]
