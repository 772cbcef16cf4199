"""The same meaning in every language: parallel sets, splits and lexemes."""

import re
from collections import Counter
from functools import cache

import pytest
from samples_reading import LANGUAGES, Tree, trees

from residuum.samples import lexicon, sample, sample_text
from residuum.samples.lexicon import SplitVocabulary
from residuum.samples.meanings import SPLITS, Clause, Entity, Meaning, cores, described, skeleton, split_of
from residuum.samples.settings import SampleSettings
from residuum.samples.tasks import sentences

CONTENT = {"NOUN", "PROPN", "VERB", "ADJ"}


def request(split: str = "train", size: int = 2000, seed: int = 0, disjoint: bool = False) -> SampleSettings:
    return SampleSettings("text", size=size, seed=seed, split=split, disjoint_lexemes=disjoint)


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


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_says_the_nouns_names_and_adjectives_of_the_meaning_and_no_others(language):
    meanings = sentences(request(size=2000, seed=5))
    words = {lemma for key in lexicon_keys() for lemma in lemmas_of(key, language)} - otherwise_said(language)
    for meaning, tree in zip(meanings, trees(language), strict=True):
        expected = Counter(lemma for key in said(meaning) for lemma in lemmas_of(key, language))
        found = Counter(token.lemma.lstrip("-") for token in tree.tokens if token.upos in ("NOUN", "PROPN", "ADJ"))
        assert expected <= found, (tree.meaning, tree.text, expected - found)
        assert not (found - expected).keys() & words, (tree.meaning, tree.text, found - expected)


def lexicon_keys() -> list[tuple[str, str]]:
    """All nouns, names and adjectives: their table and their key."""
    tables = {"nouns": lexicon.nouns(), "names": lexicon.names(), "adjectives": lexicon.adjectives()}
    return [(table, key) for table, entries in tables.items() for key in entries]


def lemmas_of(key: tuple[str, str], language: str) -> list[str]:
    """The lemmas by which a language says a noun, name or adjective, read from its cell of the lexicon."""
    table, name = key
    cell = getattr(getattr(lexicon, table)()[name], language)
    if table == "names":
        return cell.split()
    if ":" in cell:  # Swahili's of + noun, having + noun, and pairs of singular and plural
        return [cell.split(":")[1].split("/")[0]]
    return [re.split("[ /]", cell.lstrip("-="))[0].rstrip("~")]


def said(meaning: Meaning) -> list[tuple[str, str]]:
    """The nouns, names and adjectives of a meaning, as often as it has them."""
    return [key for clause in meaning.clauses for key in said_in(clause)]


def said_in(clause: Clause) -> list[tuple[str, str]]:
    single = (clause.recipient, clause.ground, clause.place, clause.companion, clause.beneficiary)
    found = [key for entity in (*clause.subject, *clause.object, *single) if entity for key in said_of(entity)]
    found += [("adjectives", clause.quality)] * bool(clause.quality)
    return found + [("nouns", clause.means)] * bool(clause.means)


def said_of(entity: Entity) -> list[tuple[str, str]]:
    found = [("adjectives", key) for key in entity.adjectives]
    if entity.kind != "pronoun":
        found.append(("nouns" if entity.kind == "noun" else "names", entity.lexeme))
    found += [("names", entity.surname)] * bool(entity.surname)
    found += said_of(entity.possessor) if entity.possessor else []
    return found + (said_in(entity.relative) if entity.relative else [])


def otherwise_said(language: str) -> set[str]:
    """Words of times, adverbs and verbs, which may be nouns or adjectives too."""
    tables = (lexicon.times(), lexicon.adverbs(), lexicon.verbs())
    cells = [getattr(row, language) for table in tables for row in table.values()]
    return {part for cell in cells for part in re.split(r"[ /+@:=~!-]", cell)}


@pytest.mark.parametrize("task", ["nli", "polarity", "tense", "copa"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_example_is_given_twice_and_no_sentence_of_one_is_in_two_splits(task, language):
    seen: set[str] = set()
    for split in SPLITS:
        corpus = sample(task, language=language, size=300, split=split)
        examples = {
            (corpus.text(i), corpus.pair_text(i) or "", *(corpus.choices[i] if corpus.choices else ()))
            for i in range(len(corpus))
        }
        assert len(examples) == 300
        assert not set(corpus.written.texts) & seen
        seen |= set(corpus.written.texts)


@pytest.mark.parametrize("task", ["text", "ner", "nli", "polarity", "tense"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_task_keeps_the_content_words_of_its_splits_apart(task, language):
    train, dev, test = (content_forms(task, language, split) for split in SPLITS)
    assert min(len(train), len(dev), len(test)) > 40
    assert not train & dev
    assert not train & test
    assert not dev & test


def content_forms(task: str, language: str, split: str) -> set[str]:
    """The words of a set that are forms of content words only, in any treebank."""
    corpus = sample(task, language=language, size=200, split=split, disjoint_lexemes=True)
    rows = [*corpus.sentences, *(corpus.pairs or [])]
    return {word.strip(".,").lower() for row in rows for word in row} & forms_of_content(language)


@cache
def forms_of_content(language: str) -> set[str]:
    """Forms that stand for one lemma only, which is that of a content word that is not shared."""
    lemmas: dict[str, set[tuple[str, bool]]] = {}
    for tree in trees(language):
        for token in tree.tokens:
            content = token.upos in CONTENT and token.lemma not in shared_words(language)
            lemmas.setdefault(token.form.lower(), set()).add((token.lemma, content))
    return {form for form, told in lemmas.items() if len(told) == 1 and next(iter(told))[1]}


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
    """The lemmas of nouns, names, verbs and adjectives, but for those of times and of common trees."""
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
    words = SplitVocabulary()
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
