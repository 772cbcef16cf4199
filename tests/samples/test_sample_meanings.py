"""The same meaning in every language: parallel sets, splits and lexemes."""

import re
from collections import Counter

from samples_reading import LANGUAGES, Tree, trees

from residuum.samples import lexicon, sample, sample_text
from residuum.samples.draws import SPLITS, split_of
from residuum.samples.meanings import cores, described, skeleton
from residuum.samples.tasks import Request, sentences
from residuum.samples.vocabulary import Vocabulary

CONTENT = {"NOUN", "PROPN", "VERB", "ADJ"}


def request(split: str = "train", size: int = 2000, seed: int = 0, disjoint: bool = False) -> Request:
    return Request("text", "en", size, seed, split, disjoint)


def denials(tree: Tree) -> int:
    german = {"nicht", "kein"}
    return sum(token.feats.get("Polarity") == "Neg" or token.lemma in german for token in tree.tokens)


def entity_types(language: str) -> list[Counter[str]]:
    corpus = sample("ner", language=language, size=1500, seed=3)
    return [Counter(tag for tag in row if tag.startswith("B-")) for row in corpus.labels["ner"]]


def test_every_language_tells_the_same_meanings_in_the_same_order():
    told = [[tree.meaning for tree in trees(language)] for language in LANGUAGES]
    assert told[0] == told[1] == told[2] == told[3]
    assert [described(meaning) for meaning in sentences(request(size=2000, seed=5))] == told[0]


def test_treebank_text_translation_and_entities_are_in_step():
    texts = {language: sample("text", language=language, size=50).written.texts for language in LANGUAGES}
    pairs = sample("translation", language="sw-tr", size=50)
    assert pairs.written.texts == texts["sw"]
    assert pairs.written.pair_texts == texts["tr"]
    for language in LANGUAGES:
        assert sample("treebank", language=language, size=50).written.texts == texts[language]
        assert sample("ner", language=language, size=50).written.texts == texts[language]


def test_every_language_denies_what_the_meaning_denies():
    for language in LANGUAGES:
        for tree in trees(language):
            assert denials(tree) == len(re.findall(r"\((?:past|present|future) not ", tree.meaning)), tree.text


def test_every_language_names_the_same_kinds_of_entities():
    english, *others = map(entity_types, LANGUAGES)
    assert all(other == english for other in others)
    assert sum(map(bool, english)) > 600


def test_a_larger_set_begins_with_the_smaller_one():
    small, large = sample_text("text", size=50), sample_text("text", size=120)
    assert large.startswith(small)


def test_other_seeds_give_other_sentences():
    first, second = (set(sample_text("text", size=500, seed=seed).splitlines()) for seed in (0, 1))
    assert len(first & second) < 25


def test_no_sentence_is_told_twice_in_a_set_or_in_two_splits():
    seen: dict[str, set[str]] = {language: set() for language in LANGUAGES}
    for split in SPLITS:
        for language in LANGUAGES:
            lines = set(sample_text("text", language=language, size=1500, split=split).splitlines())
            assert len(lines) == 1500
            assert not lines & seen[language]
            seen[language] |= lines


def test_each_clause_belongs_to_the_split_that_its_core_hashes_to():
    for split in SPLITS:
        for meaning in sentences(request(split, 500)):
            assert {split_of(core) for core in cores(meaning)} == {split}


def test_meanings_that_swahili_may_not_tell_apart_count_as_one():
    (first, *_) = sentences(request(size=1))
    assert skeleton(first) != described(first)


def test_splits_with_disjoint_lexemes_share_no_content_word():
    lemmas = {(split, language): content_lemmas(language, split) for split in SPLITS for language in LANGUAGES}
    for language in LANGUAGES:
        train, dev, test = (lemmas[split, language] for split in SPLITS)
        assert not train & test
        assert not train & dev
        assert not dev & test
        assert min(len(train), len(dev), len(test)) > 50


def content_lemmas(language: str, split: str) -> set[str]:
    """The lemmas of nouns, names, verbs and adjectives, but for those of times and of common adverbials."""
    corpus = sample("treebank", language=language, size=700, split=split, disjoint_lexemes=True)
    rows = zip(corpus.labels["lemma"], corpus.labels["upos"], strict=True)
    lemmas = {lemma for words, tags in rows for lemma, upos in zip(words, tags, strict=True) if upos in CONTENT}
    return lemmas - shared_words(language)


def shared_words(language: str) -> set[str]:
    frequency = [adverb for adverb in lexicon.adverbs().values() if adverb.kind == "frequency"]
    cells = [getattr(row, language) for row in (*lexicon.times().values(), *frequency)]
    lemmas = {word.split("/")[1] for cell in cells for word in cell.split(" ") if "/" in word}
    # many, and what Swahili says be with, and for the sake of
    return lemmas | {"many", "wa", "na", "ajili"}


def test_without_disjoint_lexemes_the_splits_do_share_words():
    corpora = [sample("treebank", size=500, split=split) for split in ("train", "test")]
    first, second = ({lemma for row in corpus.labels["lemma"] for lemma in row} for corpus in corpora)
    assert len(first & second) > 200


def test_the_lexicon_has_some_hundreds_of_meanings():
    tables = (lexicon.nouns, lexicon.verbs, lexicon.adjectives, lexicon.adverbs, lexicon.times, lexicon.names)
    assert sum(len(table()) for table in tables) > 450
    assert len(lexicon.nouns()) > 150
    assert len(lexicon.verbs()) > 100


def test_every_lexeme_is_used():
    words = Vocabulary()
    verbs = {key for keys in words.verbs.values() for key in keys}
    assert verbs == set(lexicon.verbs())
    assert set(words.qualities) == set(lexicon.adjectives())
    told = " ".join(described(meaning) for meaning in sentences(request(size=8000)))
    words_told = set(re.findall(r"[\w]+", told))
    unused = set(lexicon.nouns()) - words_told - {"person", "animal", "fruit", "tool"}
    assert not unused
    assert not set(lexicon.verbs()) - words_told
    assert not set(lexicon.names()) - words_told
    assert not set(lexicon.adverbs()) - words_told
    assert not set(lexicon.times()) - words_told
