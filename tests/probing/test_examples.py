"""Stores joined with labels: every row has the label of its own word, whatever the parts come from."""

import numpy as np
import pytest

from made_stores import BOTH, HIDDEN, TAG, conllu, known_data
from residuum.activations.extraction import extract
from residuum.corpus import Corpus
from residuum.corpus.tasks import read_task
from residuum.errors import CorpusError, DataError, SettingError
from residuum.maths.features import ShardedFeatures, windows
from residuum.models.loading import load_model
from residuum.probing.examples import activations_folder, examples, labelled_splits

DATA = known_data(60)
FLAT_TAGS = [tag for row in DATA.tags for tag in row]
FLAT_WORDS = [word for row in DATA.sentences for word in row]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return DATA.store(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def treebank(tmp_path):
    path = tmp_path / "made.conllu"
    path.write_text(conllu(DATA.sentences, DATA.tags))
    return path


def with_gaps():
    return [[None if tag == "VERB" else tag for tag in row] for row in DATA.tags]


def test_every_row_has_the_label_of_its_word(store):
    whole = examples(store, DATA.tags)
    assert whole.labels == tuple(FLAT_TAGS)
    assert whole.words == FLAT_WORDS
    assert len(whole) == len(FLAT_TAGS)
    np.testing.assert_array_equal(whole.features(), DATA.activations.reshape(len(FLAT_TAGS), -1))


def test_words_without_a_label_are_left_out_and_counted(store):
    whole = examples(store, with_gaps())
    kept = np.array([tag != "VERB" for tag in FLAT_TAGS])
    assert whole.n_unlabelled == (~kept).sum()
    assert set(whole.labels) == {"ADJ", "NOUN"}
    np.testing.assert_array_equal(whole.features(), DATA.activations[kept].reshape(kept.sum(), -1))
    some = whole.select([4, 7])
    rows = [tag for sentence in (4, 7) for tag in DATA.tags[sentence]]
    assert some.n_unlabelled == rows.count("VERB")
    assert some.labels == tuple(tag for tag in rows if tag != "VERB")


def test_labels_that_training_never_saw_are_said_of_dev_and_test(store):
    labels = [list(row) for row in DATA.tags]
    plain = labelled_splits(store, labels)
    assert not any("never saw" in note for note in plain.facts["notes"])
    for part, label in ((plain.dev, "NEW"), (plain.test, "<b>")):
        labels[part.sentences[0]][0] = label
    notes = labelled_splits(store, labels).facts["notes"][-2:]
    assert notes[0].startswith("1 of ")
    assert "dev examples have labels that training never saw (NEW)" in notes[0]
    assert "test examples have labels that training never saw (<b>)" in notes[1]


def test_a_part_that_shares_no_label_with_training_is_refused(store):
    labels = [list(row) for row in DATA.tags]
    for sentence in np.unique(labelled_splits(store, labels).test.sentences):
        labels[sentence] = ["X"] * len(labels[sentence])
    with pytest.raises(DataError, match=r"No label of the test part \(X, …\) is one of the training part \(ADJ, NOUN"):
        labelled_splits(store, labels)


def test_features_that_do_not_fit_are_read_in_windows_and_are_the_same(store):
    whole = examples(store, with_gaps())
    small = whole.features(max_memory=4 * 3 * HIDDEN * 150)
    assert isinstance(small, ShardedFeatures)
    read = np.concatenate([window.x.copy() for window in windows(small)])
    np.testing.assert_array_equal(read, whole.features())


def test_some_neurons_are_some_columns(store):
    whole = examples(store, DATA.tags)
    np.testing.assert_array_equal(whole.features(neurons=np.array([3, 20])), whole.features()[:, [3, 20]])


def test_numbers_with_a_decimal_point_are_numbers_and_others_classes(store):
    numbers = [[len(tag) / 2 for tag in row] for row in DATA.tags]
    assert isinstance(examples(store, numbers).labels, np.ndarray)
    assert examples(store, [[len(tag) for tag in row] for row in DATA.tags]).labels[0] in ("3", "4")


def test_one_store_is_cut_by_sentences(store):
    splits = labelled_splits(store, DATA.tags, seed=5)
    parts = [set(part.sentences.tolist()) for part in (splits.train, splits.dev, splits.test)]
    assert [len(part) for part in parts] == [48, 6, 6]
    assert len(set.union(*parts)) == 60
    assert splits.notes == ("the sentences were cut into 80%, 10%, 10% by seed 5",)
    sentence = int(splits.test.sentences[0])
    assert splits.test.labels[0] == DATA.tags[sentence][0]


def test_a_store_by_its_folder_with_a_treebank_is_the_same(store, treebank):
    by_hand, read = labelled_splits(store, DATA.tags), labelled_splits(str(store.path), treebank, "upos")
    assert read.train.labels == by_hand.train.labels
    np.testing.assert_array_equal(read.test.rows, by_hand.test.rows)
    assert read.facts["task"] == "upos"
    assert read.facts["examples"]["train"] == len(read.train)


def test_a_model_reads_the_parts_once(tiny_folder, treebank, tmp_path):
    splits = labelled_splits(tiny_folder("bert"), treebank, "upos", activations=tmp_path / "acts", layers="1-2")
    assert splits.layout.layers == (1, 2)
    assert splits.train.labels == tuple(t for row in read_task("upos", treebank).train.labels["upos"] for t in row)
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "acts").rglob("*.safetensors")}
    again = labelled_splits(tmp_path / "acts", treebank, "upos")
    model = labelled_splits(tiny_folder("bert"), treebank, "upos", activations=tmp_path / "acts", layers="1-2")
    assert again.facts == splits.facts == model.facts
    assert written == {path: path.stat().st_mtime_ns for path in (tmp_path / "acts").rglob("*.safetensors")}


def test_layers_can_be_taken_from_a_store_that_has_more(store):
    splits = labelled_splits(store, DATA.tags, layers="1-2")
    assert splits.layout.layers == (TAG, BOTH)
    whole = DATA.activations[splits.dev.rows][:, [TAG, BOTH]].reshape(len(splits.dev), -1)
    np.testing.assert_array_equal(splits.dev.features(), whole)
    one = labelled_splits(store, DATA.tags, layers="1")
    with pytest.raises(SettingError, match=r"Layer 0 is not in .*; it has the layers \[1\]"):
        labelled_splits(one.train.store, DATA.tags, layers="0")


def test_labels_of_a_store_of_sentences_are_of_sentences(tiny_folder, tmp_path):
    corpus = Corpus(name="c", sentences=DATA.sentences)
    sentences = extract(load_model(tiny_folder("bert")), corpus, tmp_path / "s", unit="sentence")
    splits = labelled_splits(sentences, [str(i % 2) for i in range(60)])
    assert splits.task.unit == "sentence"
    assert [len(part) for part in (splits.train, splits.dev, splits.test)] == [48, 6, 6]
    assert splits.test.words[0] == " ".join(DATA.sentences[splits.test.rows[0]])
    with pytest.raises(SettingError, match="upos is about words, but the rows of .* are sentences"):
        labelled_splits(sentences, Corpus(name="c", sentences=DATA.sentences, labels={"upos": DATA.tags}), "upos")


def test_three_stores_and_three_lists_of_labels(store):
    parts = dict.fromkeys(("train", "dev", "test"), store)
    splits = labelled_splits(parts, dict.fromkeys(parts, DATA.tags))
    assert len(splits.train) == len(splits.test) == len(FLAT_TAGS)
    with pytest.raises(SettingError, match="no store for dev and test"):
        labelled_splits({"train": store}, dict.fromkeys(parts, DATA.tags))
    with pytest.raises(SettingError, match="no list of labels for test"):
        labelled_splits(parts, {"train": DATA.tags, "dev": DATA.tags})
    fewer = parts | {"dev": labelled_splits(store, DATA.tags, layers="1").train.store}
    with pytest.raises(DataError, match="hold different layers"):
        labelled_splits(fewer, dict.fromkeys(parts, DATA.tags))


def test_what_cannot_be_joined_is_said(store, tiny_folder, treebank, tmp_path):
    with pytest.raises(DataError, match="has 60 sentences, but labels of 59 came with it"):
        examples(store, DATA.tags[:-1])
    with pytest.raises(DataError, match=r"Sentence 0 of .* has \d words, but 0 labels"):
        examples(store, [[], *DATA.tags[1:]])
    with pytest.raises(CorpusError, match=r"None of the \d+ words of .* has a label"):
        examples(store, [[None] * len(row) for row in DATA.tags])
    with pytest.raises(SettingError, match="is a model; say in which folder"):
        labelled_splits(tiny_folder("bert"), treebank, "upos")
    with pytest.raises(SettingError, match="is a model; give it a corpus to read, not labels alone"):
        labelled_splits(tiny_folder("bert"), DATA.tags, activations=tmp_path)
    with pytest.raises(SettingError, match="is one store, which is cut into train, dev and test"):
        labelled_splits(store, treebank, "upos", dev=treebank)
    with pytest.raises(SettingError, match="is one store; give one for each"):
        labelled_splits(store, read_task("upos", treebank), "upos")


def test_activations_go_where_they_are_sent(tmp_path):
    with activations_folder(tmp_path / "a", tmp_path / "out") as folder:
        assert folder == tmp_path / "a"
    with activations_folder(None, tmp_path / "out") as folder:
        assert folder == tmp_path / "out" / "activations"
    with activations_folder(None, None) as folder:
        folder.mkdir()
    assert not folder.exists()
