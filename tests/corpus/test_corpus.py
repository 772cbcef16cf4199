"""What a corpus is, whichever reader made it."""

import pickle
from dataclasses import replace

import pytest

from residuum.corpus import Corpus, WrittenText
from residuum.errors import CorpusError, SettingError


def small_corpus() -> Corpus:
    return Corpus(
        name="small",
        sentences=[["They", "buy", "books"], ["New", "York"], ["Sí"]],
        labels={"upos": [["PRON", "VERB", "NOUN"], ["PROPN", "PROPN"], [None]]},
        sentence_labels={"label": ["yes", "no", None], "score": [0.5, 1.0, None]},
        pairs=[["a", "b"], ["c"], ["d"]],
        skipped={"blank lines": 2},
    )


def test_a_corpus_counts_its_sentences_and_words():
    assert len(small_corpus()) == 3
    assert small_corpus().n_words == 6


def test_sentences_without_ids_are_numbered_from_one():
    assert small_corpus().ids == ["1", "2", "3"]
    assert small_corpus().numbered


def test_text_joins_words_by_spaces_and_spans_point_into_it():
    corpus = small_corpus()
    assert corpus.text(0) == "They buy books"
    assert [corpus.text(0)[start:end] for start, end in corpus.spans(0)] == corpus.sentences[0]


def test_written_text_takes_the_place_of_joined_words():
    written = WrittenText(["NewYork!"], [[(0, 3), (3, 7)]], ["as  is"])
    corpus = Corpus("w", [["New", "York"]], pairs=[["as", "is"]], written=written)
    assert corpus.text(0) == "NewYork!"
    assert corpus.spans(0) == [(0, 3), (3, 7)]
    assert corpus.pair_text(0) == "as  is"


def test_pair_text_is_none_without_pairs():
    assert small_corpus().pair_text(0) == "a b"
    assert replace(small_corpus(), pairs=None).pair_text(0) is None


def test_labels_that_are_absent_are_reported_with_those_there_are():
    assert small_corpus().word_labels("upos")[1] == ["PROPN", "PROPN"]
    with pytest.raises(CorpusError, match=r"small has no word labels 'xpos'; it has upos\."):
        small_corpus().word_labels("xpos")
    with pytest.raises(CorpusError, match=r"no word labels 'xpos'; it has none\."):
        Corpus("bare", [["a"]]).word_labels("xpos")


def test_targets_need_a_name_only_where_there_are_several():
    corpus = small_corpus()
    assert corpus.targets("score") == [0.5, 1.0, None]
    assert replace(corpus, sentence_labels={"label": ["a", "b", "c"]}).targets() == ["a", "b", "c"]
    with pytest.raises(CorpusError, match="one kind of sentence labels; it has label, score"):
        corpus.targets()
    with pytest.raises(CorpusError, match="sentence labels 'genre'; it has label, score"):
        corpus.targets("genre")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"labels": {"upos": [["X"]]}}, "3 sentences but 1 entries of 'upos'"),
        (
            {"labels": {"upos": [["X"] * 3, ["X"], ["X"]]}},
            "Sentence 2 of small has 2 words, but 1 labels 'upos'",
        ),
        ({"sentence_labels": {"label": ["yes"]}}, "but 1 entries of 'label'"),
        ({"pairs": [["a"]]}, "but 1 entries of 'pairs'"),
        ({"ids": ["1"]}, "but 1 entries of 'ids'"),
    ],
)
def test_labels_of_another_shape_are_refused(wrong, message):
    with pytest.raises(CorpusError, match=message):
        replace(small_corpus(), **wrong)


def test_select_keeps_everything_in_step():
    written = WrittenText(["A b", "c", "d"], [[(0, 1), (2, 3)], [(0, 1)], [(0, 1)]], ["x", "y", "z"])
    corpus = Corpus(
        "all",
        [["A", "b"], ["c"], ["d"]],
        {"pos": [["1", "2"], ["3"], ["4"]]},
        {"label": ["p", "q", "r"]},
        [["x"], ["y"], ["z"]],
        written=written,
    )
    chosen = corpus.select([2, 0])
    assert chosen.sentences == [["d"], ["A", "b"]]
    assert chosen.labels == {"pos": [["4"], ["1", "2"]]}
    assert chosen.targets() == ["r", "p"]
    assert chosen.pairs == [["z"], ["x"]]
    assert chosen.ids == ["3", "1"]
    assert [chosen.text(0), chosen.spans(1), chosen.pair_text(0)] == ["d", [(0, 1), (2, 3)], "z"]


def test_select_and_limit_refuse_what_is_not_there():
    with pytest.raises(CorpusError, match="no sentence 3 in small; it has sentences 0 to 2"):
        small_corpus().select([0, 3])
    with pytest.raises(SettingError, match="limit is 0"):
        small_corpus().limit(0)
    assert len(small_corpus().limit(2)) == 2
    assert len(small_corpus().limit(99)) == 3


def test_fingerprint_depends_on_content_and_not_on_names():
    corpus = small_corpus()
    assert corpus.fingerprint == small_corpus().fingerprint
    assert corpus.fingerprint == replace(corpus, name="other", ids=["x", "y", "z"], language="en").fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"sentences": [["They", "buy", "book"], ["New", "York"], ["Sí"]]},
        {"sentences": [["They", "buy", "books"], ["New York", ""], ["Sí"]]},
        {"labels": {}},
        {"labels": {"xpos": [["PRON", "VERB", "NOUN"], ["PROPN", "PROPN"], [None]]}},
        {"labels": {"upos": [["PRON", "VERB", "NOUN"], ["PROPN", "PROPN"], ["None"]]}},
        {"sentence_labels": {}},
        {"pairs": None},
        {"pairs": [["a", "b"], ["c"], ["e"]]},
        {"written": WrittenText(["They buybooks", "NewYork", "Sí"], [[], [], []])},
    ],
)
def test_fingerprint_changes_with_any_content(change):
    assert replace(small_corpus(), **change).fingerprint != small_corpus().fingerprint


def test_fingerprint_sees_where_sentences_end():
    one, two = Corpus("c", [["a", "b"], ["c"]]), Corpus("c", [["a"], ["b", "c"]])
    assert one.fingerprint != two.fingerprint


def test_text_fingerprint_leaves_the_labels_out():
    corpus = small_corpus()
    assert corpus.text_fingerprint == replace(corpus, labels={}, sentence_labels={}).text_fingerprint
    assert corpus.text_fingerprint != replace(corpus, pairs=None).text_fingerprint


def test_fingerprint_of_more_sentences_than_one_slice_sees_the_last():
    sentences = [[str(number)] for number in range(2500)]
    changed = [*sentences[:-1], ["x"]]
    assert Corpus("c", sentences).fingerprint != Corpus("c", changed).fingerprint


def test_repr_says_what_there_is_and_what_was_left_out():
    shown = repr(small_corpus())
    assert shown == (
        "Corpus('small', 3 sentences; 6 words; pairs; labels: upos, label, score; left out: 2 blank lines)"
    )
    many = Corpus("many", [["a"]], {f"l{i}": [["x"]] for i in range(10)})
    assert "l7 and 2 more" in repr(many)


def test_html_shows_the_first_sentences_escaped():
    corpus = Corpus("h", [["<b>", "&"], *[["x"]] * 6], sentence_labels={"label": ["<i>", *"abcdef"]})
    page = corpus._repr_html_()
    assert "&lt;b&gt; &amp;" in page
    assert "<b>" not in page
    assert "<i>" not in page
    assert page.count("<tr>") == 6


def test_a_corpus_survives_pickling():
    corpus = small_corpus()
    assert pickle.loads(pickle.dumps(corpus)).fingerprint == corpus.fingerprint
