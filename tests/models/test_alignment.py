"""Words and sub-words: nothing is lost, and what is lost is said."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from residuum.errors import CorpusError, ModelError
from residuum.models.alignment import Aligner, Alignment, Audit, _word_places
from tiny import build_tokenizer

KINDS = ("wordpiece", "bytes", "plain bytes", "bpe", "unigram", "unigram end", "unigram eos")
SENTENCES = [
    ["The", "quick", "fox", "jumps", "."],
    ["naïve", "café", "résumé", "Ünlü", "İstanbul"],
    ["cafe\u0301", "e\u0301te\u0301", "g\u0308oz"],  # letters and combining marks apart
    ["東京", "は", "日本", "の", "首都", "です", "。"],
    ["don't", "e-mail", "3.14", "(", "x", ")"],
    ["[SEP]", "<s>", "</s>", "[MASK]", "fox"],  # special tokens as plain words
    ["Привет", "мир", "👩‍👩‍👧", "ok"],
    ["a"],
]


def align(kind: str, sentence: list[str], window: int | None = None) -> Alignment:
    return Aligner(build_tokenizer(kind), window).align([" ".join(sentence)], [spans(sentence)])[0]


def spans(sentence: list[str]) -> list[tuple[int, int]]:
    starts = np.cumsum([0] + [len(w) + 1 for w in sentence])[:-1].tolist()
    return [(a, a + len(w)) for a, w in zip(starts, sentence, strict=True)]


def ranges_in(alignment: Alignment, window: int = 0) -> np.ndarray:
    """word × (first, stop) in a window; 0, 0 where the word has no sub-word there."""
    places = alignment.words_in(window)
    ranges = np.zeros((alignment.n_words, 2), dtype=int)
    ranges[places.word] = np.stack([places.first, places.stop], axis=1)
    return ranges


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda s: s[0])
def test_every_word_has_its_own_subwords_in_order(kind, sentence):
    alignment = align(kind, sentence)
    ranges = ranges_in(alignment)
    assert alignment.lost == []
    assert (ranges[:, 0] < ranges[:, 1]).all()
    assert (ranges[1:, 0] >= ranges[:-1, 1]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_subwords_spell_the_word_they_belong_to(kind):
    tokenizer = build_tokenizer(kind)
    sentence = ["the", "lazy", "dog", "reads", "word", "by", "word"]
    alignment = align(kind, sentence)
    for word, (first, stop) in zip(sentence, ranges_in(alignment), strict=True):
        pieces = tokenizer.convert_ids_to_tokens(alignment.windows[0].ids[first:stop])
        letters = "".join(pieces).replace("##", "").replace("</w>", "").replace("▁", "").replace("Ġ", "")
        assert letters == word


def test_special_tokens_in_the_text_are_read_as_plain_text():
    tokenizer = build_tokenizer("wordpiece")
    alignment = align("wordpiece", ["[SEP]", "fox"])
    assert alignment.windows[0].ids.count(tokenizer.sep_token_id) == 1


def test_a_word_that_vanishes_in_normalisation_is_reported():
    alignment = align("wordpiece", ["fox", "\u200b", "dog"])
    assert alignment.lost == [1]
    audit = Audit.of(alignment, ["fox", "\u200b", "dog"], "s7")
    assert audit.dropped == 1
    with pytest.raises(CorpusError, match=r"1 of 3 words are lost .*word 2 '\\u200b' of sentence s7.*--max-loss"):
        audit.check(0.0, 3)
    audit.check(0.34, 3)


def test_unknown_words_are_counted_but_not_lost():
    alignment = align("wordpiece", ["fox", "ꙮ", "dog"])
    assert (alignment.unknown, alignment.lost) == (1, [])


def test_the_tokenizers_own_truncation_and_padding_are_switched_off():
    tokenizer = build_tokenizer("wordpiece")
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=64)
    try:
        alignment = align("wordpiece", ["fox"] * 20)
    finally:
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    assert alignment.lost == []
    assert len(alignment.windows[0].ids) < 64


@pytest.mark.parametrize("kind", KINDS)
def test_long_sentences_are_read_in_windows_and_no_word_is_lost(kind):
    sentence = ["the", "quick", "brown", "fox", "größere"] * 30
    alignment = align(kind, sentence, window=20)
    assert len(alignment.windows) > 1
    assert all(len(w.ids) <= 20 for w in alignment.windows)
    assert alignment.lost == []
    whole = align(kind, sentence)
    for w, v in enumerate(alignment.choice):
        first, stop = ranges_in(alignment, int(v))[w]
        a, b = ranges_in(whole)[w]
        assert alignment.windows[v].ids[first:stop] == whole.windows[0].ids[a:b]


def test_a_word_is_read_where_it_has_most_context():
    sentence = ["fox"] * 60
    alignment = align("wordpiece", sentence, window=20)
    for w in range(20, 40):
        first, stop = ranges_in(alignment, int(alignment.choice[w]))[w]
        content = alignment.windows[alignment.choice[w]].content
        assert min(first - content[0], content[-1] + 1 - stop) >= 3


def test_pairs_that_do_not_fit_are_cut_and_counted():
    aligner = Aligner(build_tokenizer("wordpiece"), 16)
    long, short = " ".join(["fox"] * 30), "dog"
    cut, whole = aligner.align_pairs([long, short], [short, short])
    per_word = len(align("wordpiece", ["fox"]).windows[0].content)
    room = 16 - 3 - len(align("wordpiece", ["dog"]).windows[0].content)
    assert (cut.truncated, whole.truncated) == (30 - room // per_word, 0)
    assert len(cut.windows[0].ids) == 16
    assert set(whole.windows[0].types) == {0, 1}


def test_a_tokenizer_without_offsets_is_refused():
    class Slow:
        unk_token_id = None

    with pytest.raises(ModelError, match="Slow gives no character offsets"):
        Aligner(Slow(), None)


def test_a_window_without_room_is_refused():
    with pytest.raises(ModelError, match="no room"):
        Aligner(build_tokenizer("wordpiece"), 2)


@settings(max_examples=60)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=("Cs", "Zs", "Cc")), min_size=1, max_size=6),
        min_size=1,
        max_size=8,
    )
)
def test_words_of_any_script_are_aligned_or_reported(sentence):
    for kind in ("wordpiece", "bytes", "unigram"):
        alignment = align(kind, sentence)
        kept = alignment.kept
        assert len(kept) + len(alignment.lost) == len(sentence)
        ranges = ranges_in(alignment)[kept]
        assert (ranges[:, 0] < ranges[:, 1]).all()
        if kind == "bytes":  # byte-level pieces can spell anything
            assert not alignment.lost


spans_of_chars = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 5)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=8
)


class Encoding:
    """What a tokenizer may give: offsets in any order, special tokens anywhere."""

    def __init__(self, offsets: list[tuple[int, int]], special: int) -> None:
        self.offsets = offsets
        self.special_tokens_mask = [int(i == special) for i in range(len(offsets))]

    def __len__(self) -> int:
        return len(self.offsets)


@settings(max_examples=300)
@given(st.lists(st.tuples(spans_of_chars, st.lists(spans_of_chars, min_size=1, max_size=3)), max_size=3))
def test_against_comparing_every_word_with_every_token(sentences):
    encodings = [[Encoding(offsets, special=1) for offsets in windows] for _, windows in sentences]
    found = _word_places(encodings, [words for words, _ in sentences])
    for (words, _), windows, places in zip(sentences, encodings, found, strict=True):
        expected = []
        for v, window in enumerate(windows):
            for w, (start, stop) in enumerate(words):
                tokens = [i for i, (a, b) in enumerate(window.offsets) if i != 1 and a < stop and b > start]
                expected += [(v, w, tokens[0], tokens[-1] + 1)] if tokens else []
        columns = (places.window, places.word, places.first, places.stop)
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected


def peak_per_word(n_words: int) -> float:
    aligner = Aligner(build_tokenizer("wordpiece"), 48)
    sentence = ["the"] * n_words
    text, places = " ".join(sentence), spans(sentence)
    tracemalloc.start()
    [alignment] = aligner.align([text], [places])
    words = sum(len(alignment.words_read_in(v)) for v in range(len(alignment.windows)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert words == n_words
    return peak / n_words


def test_memory_grows_with_a_sentence_and_not_with_its_square():
    assert peak_per_word(20_000) < 1.2 * peak_per_word(2_000)


def test_a_batch_is_aligned_as_its_sentences_are_one_by_one():
    sentences = [["a", "dog"], ["the"] * 40, [], ["cats", "run", "fast"], ["x"] * 11]
    aligner = Aligner(build_tokenizer("wordpiece"), 12)
    texts = [" ".join(sentence) for sentence in sentences]
    together = aligner.align(texts, [spans(sentence) for sentence in sentences])
    assert len(together[1].windows) > 1
    for text, sentence, found in zip(texts, sentences, together, strict=True):
        [alone] = aligner.align([text], [spans(sentence)])
        assert [w.ids for w in found.windows] == [w.ids for w in alone.windows]
        assert all((ranges_in(found, v) == ranges_in(alone, v)).all() for v in range(len(found.windows)))
        assert found.choice.tolist() == alone.choice.tolist()


def test_audits_add_up():
    total = Audit(1, 5, 7, examples=["x"]) + Audit(1, 3, 4, dropped=1, examples=["y"] * 9)
    assert (total.sentences, total.words, total.subwords, total.lost) == (2, 8, 11, 1)
    assert len(total.examples) == 5
    assert "8 words in 2 sentences" in str(total)
