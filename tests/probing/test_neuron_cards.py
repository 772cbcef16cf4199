"""Cards of any neuron: the words and contexts of a store or of what a model reads, without labels."""

import numpy as np
import pandas as pd
import pytest
from ranked_tasks import IDS, TAGS, tagged_activations, tagged_sentences, tagged_store, tags

from made_stores import broken_store, made_store
from residuum import describe, extract, load_model, rank
from residuum.corpus import Corpus
from residuum.errors import DataError, SettingError, StoreError
from residuum.reporting.report import section
from residuum.storage.results import read_run
from tiny import TEXT

SENTENCES = tagged_sentences()
CORPUS = Corpus(name="text", sentences=[line.split() for line in TEXT])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tagged_store(tmp_path_factory.mktemp("described") / "store", SENTENCES)


def test_words_and_contexts_are_those_of_every_row_of_the_store(store):
    found = describe(store, neurons=[IDS["VERB"], "0:0"])
    card = found.card(IDS["VERB"])
    verbs = {word for word, tag in TAGS.items() if tag == "VERB"}
    assert set(card["words"].query("end == 'high'")["word"]) == verbs
    x = store.array()[:, 2, 0].astype(float)
    words = np.array([word for sentence in SENTENCES for word in sentence])
    row = card["words"].query("word == 'go'").iloc[0]
    assert row["count"] == (words == "go").sum()
    assert row["mean"] == pytest.approx(x[words == "go"].mean(), rel=1e-5)
    assert row["z"] == pytest.approx((x[words == "go"].mean() - x.mean()) / x.std(), rel=1e-5)
    assert set(card) == {"words", "contexts"}
    assert "label" not in card["contexts"]
    for _, own in card["contexts"].groupby("context"):
        assert own["word"].tolist() == SENTENCES[own["sentence"].iloc[0]]


def test_a_card_is_the_one_of_a_ranking_where_all_words_train(store):
    """The negative control of labels: without them nothing but the classes is gone."""
    paper = {"recipe": "paper", "epochs": 1, "batch_size": 64, "seeds": 1}
    ranked = rank(store, tags(SENTENCES), neurons=["1:2"], methods=["lca"], **paper)
    ours = ranked.card("1:2")["contexts"].drop(columns="label")
    all_rows = describe(store, neurons=["1:2"]).card("1:2")["contexts"]
    assert list(ours.columns) == list(all_rows.columns)
    assert ours["activation"].abs().max() <= all_rows["activation"].abs().max()


def test_shards_read_in_windows_give_the_same_cards(store):
    whole = describe(store, neurons=["1:2", "2:0"])
    windowed = describe(store, neurons=["1:2", "2:0"], max_memory=4_000)
    pd.testing.assert_frame_equal(windowed.frame, whole.frame)
    pd.testing.assert_frame_equal(windowed.contexts, whole.contexts)


def test_a_model_reads_only_the_layers_of_its_neurons(tiny_folder, tmp_path):
    model = load_model(tiny_folder("bert"))
    found = describe(model, CORPUS, ["3:1", " 1:4", "3:1"], out=tmp_path / "run", progress=False)
    assert found.run.config["neurons"] == ["3:1", "1:4"]
    whole = extract(model, CORPUS, tmp_path / "whole", progress=False)
    pd.testing.assert_frame_equal(found.frame, describe(whole, neurons=["3:1", "1:4"]).frame)
    again = describe(model, CORPUS, ["3:1", "1:4"], out=tmp_path / "run", progress=False)
    pd.testing.assert_frame_equal(again.frame, found.frame)
    assert read_run(tmp_path / "run").command == "describe"
    with pytest.raises(StoreError, match="holds another run"):
        describe(model, CORPUS, ["3:1", "1:5"], out=tmp_path / "run", progress=False)


def test_sentences_are_described_where_rows_are_sentences(tiny_folder, tmp_path):
    model = load_model(tiny_folder("bert"))
    found = describe(model, CORPUS, ["2:3"], unit="sentence", progress=False)
    assert set(found.frame["word"]) <= {" ".join(words) for words in CORPUS.sentences}
    assert found.run.summary["sentences"] == len(CORPUS)


def test_neurons_that_say_nothing_are_named(tmp_path):
    x = tagged_activations(SENTENCES)
    x[:, 0, 5] *= 1e-32
    x[:, 1, 0] = 3.0
    found = describe(made_store(tmp_path / "store", SENTENCES, x), neurons=["0:5", "0:1", "1:0"])
    assert found.run.summary["constant"] == "0:5, 1:0"
    assert (found.card("0:5")["contexts"]["z"] == 0).all()
    assert "Constant." in [card.note for card in section(found.run).cards]


def test_the_report_shows_a_card_for_each_neuron(store):
    found = describe(store, neurons=["2:0", "0:0"])
    shown = section(found.run)
    assert [card.title for card in shown.cards] == ["Neuron 2:0", "Neuron 0:0"]
    assert shown.cards[0].note == "Over 900 words."
    assert "What do neurons of store react to?" in found._repr_html_()
    assert "highest on" in found.text()
    assert found.plot(view="0:0").data


def test_what_cannot_be_described_is_explained(store, tiny_folder, tmp_path):
    for neurons, message in (
        ([], "No neuron was named"),
        (["three"], "'three' is not a neuron id"),
        (["9:0"], "Layer 9"),
        (["1:6"], "Neuron 1:6 does not exist: layer 1 has the neurons 0–5"),
    ):
        with pytest.raises(SettingError, match=message):
            describe(store, neurons=neurons)
    with pytest.raises(SettingError, match="give the corpus to read"):
        describe(load_model(tiny_folder("bert")), neurons=["1:1"])
    with pytest.raises(SettingError, match="Neuron 2:5 has no card; the cards are 2:0"):
        describe(store, neurons=["2:0"]).card("2:5")
    x = tagged_activations(SENTENCES)
    x[7, 1, 1] = np.nan
    with pytest.raises(DataError, match="Word 7 has a NaN"):
        describe(broken_store(tmp_path / "store", SENTENCES, x), neurons=["1:1"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_store_of_half_precision_tells_the_same_as_one_of_float32(dtype, tiny_folder, tmp_path):
    model = load_model(tiny_folder("bert"))
    whole = extract(model, CORPUS, tmp_path / "whole", progress=False)
    half = extract(model, CORPUS, tmp_path / "half", dtype=dtype, progress=False)
    for found, expected in zip(half.shard(0), whole.shard(0), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0.01, atol=0.02)
    found, expected = (describe(own, neurons=["2:3"]).frame.set_index("word")["z"] for own in (half, whole))
    np.testing.assert_allclose(np.sort(found), np.sort(expected), atol=0.05)
    common = found.index.intersection(expected.index)
    for end in (expected[expected > 0], -expected[expected < 0]):  # only at the cut may rounding exchange words
        assert set(end.index[end > end.min() + 0.11]) <= set(common)
    np.testing.assert_allclose(found[common], expected[common], atol=0.05)
