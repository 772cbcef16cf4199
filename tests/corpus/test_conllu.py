"""CoNLL-U treebanks."""

import conllu
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from residuum.corpus import read_corpus
from residuum.errors import CorpusError

FRENCH = """\
# newdoc id = d1
# sent_id = s1
# text = Je parle aux enfants, « 25 000 »…
1\tJe\tmoi\tPRON\t_\tNumber=Sing|Person=1\t2\tnsubj\t_\t_
2\tparle\tparler\tVERB\tV\tMood=Ind|Number=Sing\t0\troot\t_\t_
3-4\taux\t_\t_\t_\t_\t_\t_\t_\t_
3\tà\tà\tADP\t_\t_\t5\tcase\t_\t_
4\tles\tle\tDET\t_\tDefinite=Def|Number=Plur\t5\tdet\t_\t_
5\tenfants\tenfant\tNOUN\tN\tNumber=Plur\t2\tobl:arg\t_\tSpaceAfter=No
5.1\tparle\tparler\tVERB\t_\t_\t_\t_\t2:conj\t_
6\t,\t,\tPUNCT\t_\t_\t2\tpunct\t_\t_
7\t«\t«\tPUNCT\t_\t_\t8\tpunct\t_\t_
8\t25 000\t25000\tNUM\t_\t_\t2\tobl\t_\t_
9\t»\t»\tPUNCT\t_\t_\t8\tpunct\t_\tSpaceAfter=No
10\t…\t…\tPUNCT\t_\t_\t2\tpunct\t_\t_

# sent_id = s2
# text = don't
1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tdo\tdo\tAUX\tVBP\t_\t0\troot\t_\t_
2\tn't\tnot\tPART\tRB\tPolarity=Neg\t1\tadvmod\t_\t_
"""


@pytest.fixture
def french(tmp_path):
    path = tmp_path / "fr_tiny-ud-test.conllu"
    path.write_text(FRENCH, encoding="utf-8")
    return path


def treebank(tmp_path, *lines: str):
    """A file whose lines have blanks for the columns that do not matter."""
    path = tmp_path / "t.conllu"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def word(number: object, form: str = "w", feats: str = "_", head: str = "_", misc: str = "_") -> str:
    return f"{number}\t{form}\t_\tX\t_\t{feats}\t{head}\t_\t_\t{misc}"


def test_words_are_the_syntactic_words(french):
    corpus = read_corpus(french)
    first = ["Je", "parle", "à", "les", "enfants", ",", "«", "25 000", "»", "…"]
    assert corpus.sentences == [first, ["do", "n't"]]
    assert corpus.ids == ["s1", "s2"]
    assert not corpus.numbered
    assert (corpus.name, corpus.language) == ("fr_tiny-ud-test", "fr")


def test_multiword_ranges_and_empty_nodes_are_left_out_and_counted(french):
    assert read_corpus(french).skipped == {"multiword ranges": 2, "empty nodes": 1}


def test_every_column_and_feature_is_a_label_with_none_for_the_underscore(french):
    corpus = read_corpus(french)
    assert corpus.word_labels("upos")[1] == ["AUX", "PART"]
    assert corpus.word_labels("xpos")[0][:4] == [None, "V", None, None]
    assert corpus.word_labels("lemma")[0][:4] == ["moi", "parler", "à", "le"]
    assert corpus.word_labels("head")[1] == ["0", "1"]
    assert corpus.word_labels("deprel")[0][4] == "obl:arg"
    assert corpus.word_labels("deprel_main")[0][4] == "obl"
    assert corpus.word_labels("Number") == [["Sing", "Sing", None, "Plur", "Plur", *[None] * 5], [None, None]]
    assert corpus.word_labels("Polarity")[1] == [None, "Neg"]


def test_labels_that_no_word_has_are_not_there(tmp_path):
    corpus = read_corpus(treebank(tmp_path, word(1)))
    assert list(corpus.labels) == ["upos"]


def test_text_as_written_is_the_comment_and_words_of_a_range_share_its_span(french):
    corpus = read_corpus(french, spacing="text")
    text, spans = corpus.text(0), corpus.spans(0)
    assert text == "Je parle aux enfants, « 25 000 »…"
    assert [text[start:end] for start, end in spans] == [
        *["Je", "parle", "aux", "aux", "enfants", ",", "«", "25 000", "»", "…"]
    ]
    assert corpus.spans(1) == [(0, 2), (2, 5)]
    assert corpus.sentences == read_corpus(french).sentences


def test_text_without_a_comment_is_spelled_by_space_after(tmp_path):
    path = treebank(tmp_path, word(1, "a", misc="Gloss=x|SpaceAfter=No"), word(2, "b"), word(3, "."))
    corpus = read_corpus(path, spacing="text")
    assert corpus.text(0) == "ab ."
    assert corpus.spans(0) == [(0, 1), (1, 2), (3, 4)]
    assert corpus.skipped == {}


@pytest.mark.parametrize("comment", ["something else", "ab and more"])
def test_a_text_comment_that_the_tokens_do_not_spell_is_counted_and_not_used(tmp_path, comment):
    path = treebank(tmp_path, f"# text = {comment}", word(1, "a", misc="SpaceAfter=No"), word(2, "b"))
    corpus = read_corpus(path, spacing="text")
    assert corpus.text(0) == "ab"
    assert corpus.skipped == {"texts that the tokens do not spell": 1}


def test_words_are_kept_exactly_as_written(tmp_path):
    decomposed, spaced, joined = "e\u0301te\u0301", "Việt Nam", "में\u200dरे"
    path = treebank(tmp_path, word(1, decomposed), word(2, spaced), word(3, joined), word(4, "2009 "), word(5, "日本"))
    assert read_corpus(path).sentences == [[decomposed, spaced, joined, "2009 ", "日本"]]


def test_an_underscore_is_a_word_with_a_lemma(tmp_path):
    path = treebank(tmp_path, "1\t_\t_\tPUNCT\t_\t_\t0\troot\t_\t_", "2\tx\t_\tX\t_\t_\t1\tdep\t_\t_")
    corpus = read_corpus(path)
    assert corpus.sentences == [["_", "x"]]
    assert corpus.word_labels("lemma") == [["_", None]]


def test_sentences_without_sent_id_are_numbered(tmp_path):
    corpus = read_corpus(treebank(tmp_path, "# 16888", word(1), "", word(1)))
    assert corpus.ids == ["1", "2"]
    assert corpus.numbered
    partly = read_corpus(treebank(tmp_path, "# sent_id = a", word(1), "", word(1)))
    assert partly.ids == ["a", "2"]
    assert not partly.numbered


def test_comments_alone_are_no_sentence(tmp_path):
    assert len(read_corpus(treebank(tmp_path, "# global", "", word(1), "", "# the end"))) == 1


def test_a_feature_given_twice_has_both_values(tmp_path):
    feats = "Tense=Past|Voice=Act|Tense=Past||Voice=Cau"
    corpus = read_corpus(treebank(tmp_path, word(1, feats=feats)))
    assert corpus.word_labels("Voice") == [["Act,Cau"]]
    assert corpus.word_labels("Tense") == [["Past"]]


def test_the_last_blank_line_may_be_missing_and_lines_may_end_in_crlf(tmp_path):
    path = tmp_path / "t.conllu"
    path.write_bytes((word(1) + "\r\n\r\n" + word(1, "v")).encode())
    assert read_corpus(path).sentences == [["w"], ["v"]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["1\tw\tX"],
            r"t\.conllu, line 2: found 3 tab-separated columns in '1\\tw\\tX'; expected 10 columns",
        ),
        (["no tabs here"], "line 2: found 1 tab-separated column in 'no tabs here'; expected 10"),
        ([word(1) + "\textra"], "line 2: found 11 tab-separated columns"),
        ([word("one")], "line 2: found the id 'one'; expected the id 1 of the next word"),
        ([word(1), word(3)], "line 3: found the id '3'; expected the id 2"),
        ([word(2)], "line 2: found the id '2'; expected the id 1"),
        ([word(1), word(1)], "line 3: found the id '1'; expected the id 2"),
        ([word("01")], "line 2: found the id '01'; expected the id 1"),
        ([word("3.1")], r"line 2: found the id '3\.1'; expected the id 1"),
        ([word("2-3"), word(1)], "line 2: found the range 2-3; expected one that starts at word 1"),
        ([word("2-1"), word(1)], "line 2: found the range 2-1"),
        (
            [word("1-2"), word(1), word("2-3"), word(2)],
            "line 4: found the range 2-3; expected one that starts at word 3",
        ),
        (
            [word("1-3"), word(1), word(2)],
            "line 4: found the end of the sentence at word 2; expected words 1 to 3",
        ),
        ([word("0.1")], "line 2: found a sentence without words"),
        ([word(1, head="2")], "line 2: found the head '2'; expected a number from 0 to 1, or _ for none"),
        ([word(1), word(2, head="x")], "line 3: found the head 'x'; expected a number from 0 to 2"),
        ([word(1, head="-1")], "line 2: found the head '-1'"),
        ([word(1, head="1")], "line 2: found word 1 as its own head"),
        ([word(1, form="")], "line 2: found an empty column 2; expected a value, or _ for none"),
        ([word(1), word(2, feats="Number")], "line 3: found the features 'Number'; expected Key=Value"),
        ([word(1, feats="=Sing")], "line 2: found the features '=Sing'"),
        (
            [word(1), "# sent_id = b", word(1)],
            r"line 3: found a comment inside a sentence \(is the blank line",
        ),
    ],
)
def test_a_malformed_line_is_named_with_what_was_expected(tmp_path, lines, message):
    with pytest.raises(CorpusError, match=message):
        read_corpus(treebank(tmp_path, "# sent_id = a", *lines))


def test_the_line_number_counts_earlier_sentences(tmp_path):
    with pytest.raises(CorpusError, match=r"t\.conllu, line 4: found the id"):
        read_corpus(treebank(tmp_path, word(1), word(2), "", word(7)))


def test_limit_does_not_parse_what_follows(tmp_path):
    path = treebank(tmp_path, word(1), "", word(1, "v"), "", "broken")
    assert read_corpus(path, limit=2).sentences == [["w"], ["v"]]
    with pytest.raises(CorpusError, match="line 5"):
        read_corpus(path, limit=3)


def test_a_treebank_with_another_suffix_is_recognised(tmp_path, french):
    path = tmp_path / "treebank.txt"
    path.write_bytes(french.read_bytes())
    assert read_corpus(path).fingerprint == read_corpus(french).fingerprint


PLAIN = st.characters(exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp"))
FORMS = st.lists(st.text(PLAIN, min_size=1, max_size=4), min_size=1, max_size=2).map(" ".join)
TAGS = st.sampled_from(["NOUN", "VERB", None])


@st.composite
def sentences(draw):
    n = draw(st.integers(1, 6))
    heads = [draw(st.integers(0, n).filter(lambda head, i=i: head != i)) for i in range(1, n + 1)]
    return [(draw(FORMS), draw(TAGS), draw(TAGS), head, draw(st.booleans())) for head in heads]


def rendered(sentence) -> str:
    return "".join(
        f"{number}\t{form}\tl\t{upos or '_'}\t_\t{'Tag=' + tag if tag else '_'}\t{head}\tdep\t_\t"
        f"{'_' if space else 'SpaceAfter=No'}\n"
        for number, (form, upos, tag, head, space) in enumerate(sentence, 1)
    )


@given(st.lists(sentences(), min_size=1, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_what_is_rendered_is_read_back_equal(tmp_path, corpus_of):
    path = tmp_path / "t.conllu"
    path.write_text("\n".join(map(rendered, corpus_of)), encoding="utf-8", newline="\n")
    corpus = read_corpus(path, spacing="text")
    assert corpus.sentences == [[form for form, *_ in sentence] for sentence in corpus_of]
    assert corpus.labels.get("upos", []) in (
        [],
        [[upos for _, upos, *_ in sentence] for sentence in corpus_of],
    )
    assert corpus.labels.get("Tag", []) in (
        [],
        [[tag for _, _, tag, *_ in sentence] for sentence in corpus_of],
    )
    assert corpus.word_labels("head") == [[str(head) for *_, head, _ in sentence] for sentence in corpus_of]
    for index, sentence in enumerate(corpus_of):
        text = corpus.text(index)
        assert [text[start:end] for start, end in corpus.spans(index)] == corpus.sentences[index]
        assert text == "".join(form + " " * space for form, *_, space in sentence)[: len(text)]


def test_against_the_conllu_package(french):
    corpus = read_corpus(french)
    for index, tokens in enumerate(conllu.parse(FRENCH)):
        words = tokens.filter(id=lambda number: isinstance(number, int))
        assert corpus.sentences[index] == [token["form"] for token in words]
        assert corpus.word_labels("deprel")[index] == [token["deprel"] for token in words]
        assert corpus.word_labels("Number")[index] == [(token["feats"] or {}).get("Number") for token in words]
        assert corpus.ids[index] == tokens.metadata["sent_id"]
