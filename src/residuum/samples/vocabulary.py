"""Which lexemes may be used, and which of them fit each other.

With disjoint lexemes each split has its own nouns, names, verbs, adjectives and adverbs of manner. Words for times
and the closed classes (articles, pronouns, numerals, prepositions, conjunctions, be) are everybody's.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from residuum.samples import lexicon
from residuum.samples.lexicon import Verb

_SHARES = {"train": 0.6, "test": 0.2, "dev": 0.2}
_LANGUAGES = ("en", "de", "tr", "sw")


@dataclass(frozen=True)
class Vocabulary:
    """The lexemes of one part of the lexicon (or of all of it), and what fits what among them."""

    part: str = ""

    @property
    def verbs(self) -> dict[str, tuple[str, ...]]:
        """The verbs of each frame that find a subject, and an object or a place if they need one."""
        return _verbs(self)

    @property
    def qualities(self) -> tuple[str, ...]:
        """The adjectives that fit some noun."""
        return _qualities(self)

    def nouns(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """The nouns that have one of the tags or keys that are wanted; the most general ones are never meant."""
        return _nouns(self, wanted)

    def names(self, type: str) -> tuple[str, ...]:
        """The names of a type: PER, SUR, LOC or ORG."""
        return _names(self, type)

    def adjectives(self, noun: str) -> tuple[str, ...]:
        """The adjectives that a noun may have."""
        return _adjectives(self, noun)

    def adverbs(self, kind: str, verb: str = "") -> tuple[str, ...]:
        """The adverbs of a kind that a verb may have; those of frequency go with any."""
        return _adverbs(self, kind, verb)

    def has(self, lexeme: str) -> bool:
        """Whether a lexeme, such as `noun book`, is one of these."""
        return not self.part or _parts()[lexeme] == self.part


@cache
def _verbs(words: Vocabulary) -> dict[str, tuple[str, ...]]:
    kept: dict[str, list[str]] = {}
    for verb in lexicon.verbs().values():
        if words.has(f"verb {verb.key}") and _is_usable(words, verb):
            kept.setdefault(verb.frame, []).append(verb.key)
    return {frame: tuple(keys) for frame, keys in kept.items()}


def _is_usable(words: Vocabulary, verb: Verb) -> bool:
    needed = [verb.subject]
    if verb.frame in "td":
        needed.append(verb.object)
    if verb.frame in "mle":
        needed.append(verb.place)
    return all(words.nouns(tags) or _has_names(words, tags) for tags in needed)


def _has_names(words: Vocabulary, tags: tuple[str, ...]) -> bool:
    return any(words.names(type) for type in ("PER", "LOC", "ORG") if type in tags)


@cache
def _nouns(words: Vocabulary, wanted: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        noun.key
        for noun in lexicon.nouns().values()
        if not {noun.key, *noun.tags}.isdisjoint(wanted)
        and "hypernym" not in noun.tags
        and words.has(f"noun {noun.key}")
    )


@cache
def _names(words: Vocabulary, type: str) -> tuple[str, ...]:
    return tuple(name.key for name in lexicon.names().values() if name.type == type and words.has(f"name {name.key}"))


@cache
def _adjectives(words: Vocabulary, noun: str) -> tuple[str, ...]:
    tags = {noun, *lexicon.nouns()[noun].tags}
    return tuple(
        adjective.key
        for adjective in lexicon.adjectives().values()
        if not tags.isdisjoint(adjective.applies) and words.has(f"adjective {adjective.key}")
    )


@cache
def _qualities(words: Vocabulary) -> tuple[str, ...]:
    return tuple(
        adjective.key
        for adjective in lexicon.adjectives().values()
        if words.has(f"adjective {adjective.key}") and words.nouns(adjective.applies)
    )


@cache
def _adverbs(words: Vocabulary, kind: str, verb: str) -> tuple[str, ...]:
    of_kind = [adverb for adverb in lexicon.adverbs().values() if adverb.kind == kind]
    if kind == "frequency":
        return tuple(adverb.key for adverb in of_kind)
    return tuple(adverb.key for adverb in of_kind if verb in adverb.applies and words.has(f"adverb {adverb.key}"))


@cache
def _parts() -> dict[str, str]:
    """The split of each lexeme when these are disjoint: three in five of every kind to train, one each to the others.

    Lexemes that share a written word in some language (Swahili ndege is both bird and plane) go together.
    """
    kinds = dict(_lexemes())
    members: dict[str, list[str]] = {}
    for lexeme, group in _grouped_by_words().items():
        members.setdefault(group, []).append(lexeme)
    counts: Counter[tuple[str, str]] = Counter()
    parts: dict[str, str] = {}
    for group, lexemes in members.items():
        part = _neediest(counts, kinds[group])
        counts.update((part, kinds[lexeme]) for lexeme in lexemes)
        parts |= dict.fromkeys(lexemes, part)
    return parts


def _neediest(counts: Counter[tuple[str, str]], kind: str) -> str:
    """The split that has least of a kind for its share."""
    return min(_SHARES, key=lambda part: counts[part, kind] / _SHARES[part])


def _lexemes() -> Iterator[tuple[str, str]]:
    """Every lexeme, with what it is drawn from: the first tag of a noun, the frame of a verb, ..."""
    for noun in lexicon.nouns().values():
        yield f"noun {noun.key}", f"noun {noun.tags[0]}"
    for name in lexicon.names().values():
        yield f"name {name.key}", f"name {name.type}"
    for verb in lexicon.verbs().values():
        yield f"verb {verb.key}", f"verb {verb.frame}"
    for adjective in lexicon.adjectives().values():
        yield f"adjective {adjective.key}", "adjective"
    for adverb in lexicon.adverbs().values():
        if adverb.kind != "frequency":
            yield f"adverb {adverb.key}", "adverb"


def _grouped_by_words() -> dict[str, str]:
    """The first lexeme of the group that each lexeme belongs to, where groups share words."""
    group = {lexeme: lexeme for lexeme, _ in _lexemes()}
    owners: dict[str, str] = {}
    for lexeme in group:
        for word in _words_of(lexeme):
            first = owners.setdefault(word, lexeme)
            _join(group, first, lexeme)
    return {lexeme: _root(group, lexeme) for lexeme in group}


def _words_of(lexeme: str) -> Iterable[str]:
    """The written words of a lexeme, each with its language: lemmas, and stems as the tables give them."""
    kind, key = lexeme.split(" ", 1)
    tables = {
        "noun": lexicon.nouns,
        "name": lexicon.names,
        "verb": lexicon.verbs,
        "adjective": lexicon.adjectives,
        "adverb": lexicon.adverbs,
    }
    row = tables[kind]()[key]
    for language in _LANGUAGES:
        for word in _lemmas(kind, language, getattr(row, language)):
            yield f"{language} {word}"


def _lemmas(kind: str, language: str, cell: str) -> list[str]:
    """The content words in a cell of a table."""
    if kind == "adverb" and "/" in cell:
        words = [word.split("/") for word in cell.split(" ")]
        return [lemma for _, lemma, upos, *_ in words if upos in ("NOUN", "ADJ", "ADV", "VERB")]
    if kind == "adjective" and language == "sw" and ":" in cell:
        _, word, *_ = cell.split(":")
        return [word.split("/")[0]]
    first = cell.split(" ")[0].split("/")[0].lstrip("-=").rstrip("~!")
    return first.replace("~", "").split("+")


def _root(group: dict[str, str], lexeme: str) -> str:
    while group[lexeme] != lexeme:
        lexeme = group[lexeme]
    return lexeme


def _join(group: dict[str, str], first: str, second: str) -> None:
    group[_root(group, second)] = _root(group, first)
