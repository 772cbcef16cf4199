"""`compare` on whole models: the same numbers as two arrays, whatever the memory, the workers and the source."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

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
    return compare(stores, measures="all", groups=5, null=True, workers=1, progress=False)


@pytest.mark.parametrize("measure", FROM_ARRAYS)
def test_values_are_those_of_two_arrays(measure, stores, whole):
    a, b = (store.array() for store in stores)
    matrix = whole.matrix(measure)
    # Least squares takes the one direction behind a LayerNorm that is only float32 rounding for a regressor; of
    # that, moments keep two digits, and it is worth 1/words of R.
    close = {"abs": 1e-4 if measure == "mixed" else 1e-9}
    for i, j in [(0, 3), (2, 1), (3, 3)]:
        there, back = similarity(a[:, i], b[:, j], measure), similarity(b[:, j], a[:, i], measure)
        assert matrix.loc[("bert", i), ("gpt2", j)] == pytest.approx(there, **close)
        assert matrix.loc[("gpt2", j), ("bert", i)] == pytest.approx(back, **close)


@pytest.mark.parametrize("measure", [name for name in MEASURES if name not in FROM_ARRAYS])
def test_attention_is_compared_block_by_block(measure, stores, whole):
    a, b = ([[s[k] for s in store.read_attention(0, 60)] for k in range(3)] for store in stores)
    matrix = whole.matrix(measure)
    assert matrix.shape == (6, 6)
    assert matrix.loc[("bert", 1), ("gpt2", 3)] == pytest.approx(similarity(a[0], b[2], measure), abs=1e-9)
    assert matrix.loc[("gpt2", 2), ("gpt2", 2)] == pytest.approx(1)


def test_the_frame_is_tidy_and_complete(whole):
    frame = whole.frame
    assert list(frame) == ["measure", "model_a", "layer_a", "model_b", "layer_b", "value", "low", "high", "null"]
    assert set(frame["measure"]) == set(MEASURES)
    assert len(frame) == 10 * 8 * 8 + 6 * 6 * 6
    assert frame["value"].notna().all()
    assert (frame["low"] <= frame["value"] + 1e-9).all()
    assert (frame["high"] >= frame["value"] - 1e-9).all()


def test_a_layer_is_wholly_similar_to_itself_and_hardly_to_permuted_words(whole):
    frame = whole.frame
    own = (frame["model_a"] == frame["model_b"]) & (frame["layer_a"] == frame["layer_b"])
    np.testing.assert_allclose(frame.loc[own, "value"], 1, atol=1e-9)
    cka = frame[frame["measure"] == "cka_debiased"]
    assert cka["null"].abs().max() < 0.2
    assert cka["value"].mean() > 0.3


@pytest.mark.parametrize("workers", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_any_number_of_workers_gives_the_same_table(workers, stores, whole):
    measures = ["neuron", "mixed", "pwcca", "cka_debiased", "attention_js", "attention_cka"]
    again = compare(stores, measures=measures, groups=5, null=True, workers=workers, progress=False).frame
    expected = whole.frame[whole.frame["measure"].isin(measures)].reset_index(drop=True)
    pd.testing.assert_frame_equal(again, expected, check_exact=True)


def test_less_memory_means_more_passes_and_the_same_table(stores, whole):
    needed = 3 * 8 * 16 * 16 * 36 + 8 * 512 * 16 * 8
    room = needed // 2 + 8 * 512 * 64
    measures = [name for name in FROM_ARRAYS if MEASURES[name].source == "moments"]
    tight = compare(stores, measures=measures, groups=5, null=True, workers=1, max_memory=room, progress=False)
    expected = whole.frame[whole.frame["measure"].isin(measures)].reset_index(drop=True)
    pd.testing.assert_frame_equal(tight.frame, expected, rtol=1e-10, atol=1e-12)
    with pytest.raises(MemoryLimitError, match=r"max_memory is 0.5 MB, but reading alone needs 0.5 MB"):
        compare(stores, max_memory=520_000, workers=1, progress=False)


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
    settings = (["attention_js"], {}, True, False, 1000, 0, Engine(), 1_000_000_000, Path())
    check_memory(estimates.ComparisonPlan([source], groups, *settings))
    source.n_heads = 24
    with pytest.raises(MemoryLimitError, match="The step 'attention' of 1,010 words × 3 layers needs"):
        check_memory(estimates.ComparisonPlan([source], groups, *settings))


def test_a_killed_run_goes_on_with_other_memory(stores, tmp_path, monkeypatch):
    settings = {"measures": "cka", "groups": 3, "workers": 1, "progress": False}
    with monkeypatch.context() as patch:
        patch.setattr(estimates, "_evaluate_all", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            compare(stores, out=tmp_path / "run", max_memory=8 * 512 * 16 * 8 + 80_000, **settings)
    resumed = compare(stores, out=tmp_path / "run", **settings)
    pd.testing.assert_frame_equal(resumed.frame, compare(stores, **settings).frame)


def test_models_are_compared_without_storing_anything(tiny_folder, stores, whole):
    models = [load_model(tiny_folder(family), attention=True) for family in ("bert", "gpt2")]
    stable = [measure for measure in MEASURES if measure != "mixed"]  # which hangs on float32 rounding, see above
    live = compare(models, CORPUS, measures=stable, groups=5, null=True, workers=1, progress=False)
    expected = whole.frame[whole.frame["measure"].isin(stable)].reset_index(drop=True)
    pd.testing.assert_frame_equal(live.frame, expected, rtol=1e-3, atol=1e-4)


def test_intervals_can_be_left_out(stores, whole):
    plain = compare(stores, measures=["cka", "rsa"], intervals=False, groups=5, workers=1, progress=False)
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
    assert np.isfinite(result.frame[["value", "low", "high"]]).all(axis=None)


def test_words_that_one_model_lacks_are_left_out_for_all(tiny_folder, tmp_path):
    holes = Corpus(name="holes", sentences=[*SENTENCES[:20], ["fox", "\u200b", "dog"], ["\u200b"]])
    bert = extract(load_model(tiny_folder("bert")), holes, tmp_path / "a", max_loss=0.5)
    gpt2 = extract(load_model(tiny_folder("gpt2")), holes, tmp_path / "b")
    assert gpt2.n_rows == bert.n_rows + 2
    value = compare([bert, gpt2], measures="cka", workers=1, progress=False).matrix("cka").loc[("bert", 1), ("gpt2", 1)]
    kept = [r for r, (s, w) in enumerate(gpt2.row_words.tolist()) if holes.sentences[s][w] != "\u200b"]
    assert value == pytest.approx(similarity(bert.array()[:, 1], gpt2.array()[kept, 1], "cka"), abs=1e-9)


def test_a_finished_run_is_read_back_and_another_is_refused(stores, tmp_path):
    first = compare(stores, measures="cka", out=tmp_path / "run", workers=1, progress=False)
    again = compare(stores, measures="cka", out=tmp_path / "run", workers=1, progress=False)
    pd.testing.assert_frame_equal(first.frame, again.frame)
    assert not list((tmp_path / "run").glob("scratch-*"))
    with pytest.raises(StoreError, match="groups 10 → 4"):
        compare(stores, measures="cka", groups=4, out=tmp_path / "run", progress=False)


def test_products_in_float32_change_no_digit_that_is_shown(stores):
    settings = {"measures": "neuron,svcca,pwcca,cka", "groups": 3, "null": True, "workers": 1, "progress": False}
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
    stopped = compare(stores, **settings)
    assert calls == [0, 1, 2, 3, 3, 4, 5]
    expected = compare(stores, measures="neuron", groups=6, workers=1, progress=False)
    pd.testing.assert_frame_equal(stopped.frame, expected.frame)


def test_what_cannot_be_compared_is_said(stores, tiny_folder, tmp_path):
    with pytest.raises(SettingError, match="Measure magic is not known; choose from paper, attention, all, neuron"):
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
    assert result.matrix("cka").loc[("bert", 1), ("bert", 3)] == pytest.approx(expected, abs=1e-9)
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
    assert best.loc[("bert", 1), ("gpt2", 2)] == pytest.approx(expected)


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
    standardised = compare([model], CORPUS, measures="cka", standardize=True, workers=1, progress=False)
    assert standardised.matrix().loc[("bert", 1), ("bert", 2)] != result.matrix().loc[("bert", 1), ("bert", 2)]
