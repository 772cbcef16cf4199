"""Corpora one after another are one corpus."""

import pytest

from residuum.corpus import Corpus, WrittenText, join_corpora
from residuum.errors import CorpusError

FIRST = Corpus("a", [["A", "cat"], ["It"]], {"upos": [["DET", "NOUN"], ["PRON"]]}, ids=["a1", "a2"], language="en")
SECOND = Corpus("b", [["Go", "!"]], {"xpos": [["VB", "."]]}, {"mood": ["order"]}, ids=["b1"], language="en")


def test_sentences_and_ids_follow_each_other():
    joined = join_corpora([FIRST, SECOND], "both")
    assert joined.sentences == [*FIRST.sentences, *SECOND.sentences]
    assert joined.ids == ["a1", "a2", "b1"]
    assert (joined.name, joined.language) == ("both", "en")


def test_labels_that_a_part_lacks_are_none_there():
    joined = join_corpora([FIRST, SECOND], "both")
    assert joined.labels == {
        "upos": [["DET", "NOUN"], ["PRON"], [None, None]],
        "xpos": [[None, None], [None], ["VB", "."]],
    }
    assert joined.sentence_labels == {"mood": [None, None, "order"]}


def test_what_a_model_reads_stays_what_it_was():
    written = Corpus("c", [["Go", "!"]], written=WrittenText(["Go!"], [[(0, 2), (2, 3)]]))
    joined = join_corpora([FIRST, written], "both")
    assert [joined.text(i) for i in range(3)] == ["A cat", "It", "Go!"]
    assert joined.spans(0) == FIRST.spans(0)
    assert joined.spans(2) == [(0, 2), (2, 3)]


def test_parts_of_a_corpus_join_to_the_corpus():
    joined = join_corpora([SECOND.select([0]), SECOND.select([])], "b")
    assert joined.fingerprint == SECOND.fingerprint


def test_pairs_do_not_join_with_single_sentences():
    pairs = Corpus("p", [["A"]], pairs=[["B"]])
    with pytest.raises(CorpusError, match="Some parts of x have pairs and others have none"):
        join_corpora([FIRST, pairs], "x")
    with pytest.raises(CorpusError, match="nothing to join"):
        join_corpora([], "x")
    assert join_corpora([pairs, pairs], "x").pairs == [["B"], ["B"]]
