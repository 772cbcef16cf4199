"""The words of the sample grammar, read from the tables beside this module, and which of them may be used together.

One row is one meaning with its forms in all languages. The module of each language (`english`, `german`,
`turkish_forms`, `swahili_forms`) says how its cells are read. With disjoint lexemes, each split has its own nouns,
names, verbs, adjectives and adverbs of manner; words for times and the closed classes (articles, pronouns, numerals,
prepositions, conjunctions, be) are shared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TypeVar

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Noun:
    """A noun: the more general noun it falls under, and the tags by which verbs and adjectives choose it."""

    key: str
    isa: str
    tags: tuple[str, ...]
    en: str
    de: str
    tr: str
    sw: str

    @property
    def is_mass(self) -> bool:
        """Whether it is not counted."""
        return "mass" in self.tags

    @property
    def is_human(self) -> bool:
        """Whether it is a person."""
        return "human" in self.tags or self.key == "person"

    @property
    def is_animate(self) -> bool:
        """Whether it is a person or an animal."""
        return self.is_human or "animal" in self.tags or self.key == "animal"


@dataclass(frozen=True)
class Place:
    """How a place is said: the preposition of rest (English), those of rest and goal (German), Swahili's -ni form."""

    key: str
    en: str
    de: str
    sw: str


@dataclass(frozen=True)
class Name:
    """A name: PER (a given name), SUR (a family name), LOC or ORG."""

    key: str
    type: str
    gender: str
    en: str
    de: str
    tr: str
    sw: str


@dataclass(frozen=True)
class Verb:
    """A verb: its frame, aspect, what it takes as subject and object, and where it happens.

    Frames: i intransitive, t transitive, d with a recipient, m motion to a goal, l with the place where, e with a
    place as object. Aspects: dyn (goes on), stat (a state), once (no present); then hab (may be a habit), and whether
    it is done with somebody, for somebody, or by some vehicle.
    """

    key: str
    frame: str
    aspect: tuple[str, ...]
    subject: tuple[str, ...]
    object: tuple[str, ...]
    place: tuple[str, ...]
    en: str
    de: str
    tr: str
    sw: str

    @property
    def is_stative(self) -> bool:
        """Whether it tells a state."""
        return "stat" in self.aspect

    @property
    def takes_people(self) -> bool:
        """Whether its object is somebody in the first place."""
        return not {"person", "young_one"}.isdisjoint(self.object)


@dataclass(frozen=True)
class Adjective:
    """An adjective: the nouns that it fits, and its opposite if it has one.

    Traits: passing (a state that ends), ungraded (not more or less), colour, character (what somebody always is).
    """

    key: str
    applies: tuple[str, ...]
    traits: tuple[str, ...]
    antonym: str
    en: str
    de: str
    tr: str
    sw: str


@dataclass(frozen=True)
class Adverb:
    """An adverb of manner, of the moment or of frequency, or together; with the verbs that it fits."""

    key: str
    kind: str
    applies: tuple[str, ...]
    en: str
    de: str
    tr: str
    sw: str


@dataclass(frozen=True)
class Time:
    """A time, with the tenses that it fits (`habit`: the present of what is done again and again)."""

    key: str
    tenses: tuple[str, ...]
    en: str
    de: str
    tr: str
    sw: str


@cache
def nouns() -> dict[str, Noun]:
    """The nouns by key."""
    return _table("nouns", Noun, "tags")


@cache
def places() -> dict[str, Place]:
    """The nouns that are places, by key."""
    return _table("places", Place)


@cache
def names() -> dict[str, Name]:
    """The names by key."""
    return _table("names", Name)


@cache
def verbs() -> dict[str, Verb]:
    """The verbs by key."""
    return _table("verbs", Verb, "aspect", "subject", "object", "place")


@cache
def adjectives() -> dict[str, Adjective]:
    """The adjectives by key."""
    return _table("adjectives", Adjective, "applies", "traits")


@cache
def adverbs() -> dict[str, Adverb]:
    """The adverbs by key."""
    return _table("adverbs", Adverb, "applies")


@cache
def times() -> dict[str, Time]:
    """The times by key."""
    return _table("times", Time, "tenses")


@cache
def causes() -> tuple[dict[str, str], ...]:
    """The rows of the table of causes and effects."""
    return tuple(_rows("causes"))


@cache
def plausible() -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Causes and effects of different themes that are no rows of the table, though each might follow from each."""
    return tuple((tuple(row["causes"].split(", ")), tuple(row["effects"].split(", "))) for row in _rows("plausible"))


def _table(name: str, entry: Callable[..., Entry], *lists: str) -> dict[str, Entry]:
    """The entries of a table by key; the cells of the columns named in `lists` hold several words."""
    rows = (
        {cell: tuple(value.split()) if cell in lists else value for cell, value in row.items()} for row in _rows(name)
    )
    return {str(row["key"]): entry(**row) for row in rows}


def _rows(table: str) -> Iterator[dict[str, str]]:
    """The rows of a table by the names in its first line; `-` is an empty cell."""
    text = (files("residuum.samples") / f"{table}.tsv").read_text(encoding="utf-8")
    header, *lines = text.splitlines()
    names = header.split("\t")
    for line in lines:
        cells = ["" if cell == "-" else cell for cell in line.split("\t")]
        yield dict(zip(names, cells, strict=True))


_SHARES = {"train": 0.6, "test": 0.2, "dev": 0.2}
_LANGUAGES = ("en", "de", "tr", "sw")


@dataclass(frozen=True)
class SplitVocabulary:
    """The lexemes of one part of the lexicon (or of all of it), and what fits what among them.

    There are four vocabularies at most, so what they hold is kept for good.
    """

    part: str = ""

    @property
    @cache  # noqa: B019
    def verbs(self) -> dict[str, tuple[str, ...]]:
        """The verbs of each frame that find a subject, and an object or a place if they need one."""
        kept: dict[str, list[str]] = {}
        for verb in verbs().values():
            needed = [verb.subject, *([verb.object] * (verb.frame in "td")), *([verb.place] * (verb.frame in "mle"))]
            is_usable = all(
                self.nouns(tags) or any(map(self.names, {"PER", "LOC", "ORG"} & set(tags))) for tags in needed
            )
            if is_usable and self.has(f"verb {verb.key}"):
                kept.setdefault(verb.frame, []).append(verb.key)
        return {frame: tuple(keys) for frame, keys in kept.items()}

    @property
    @cache  # noqa: B019
    def qualities(self) -> tuple[str, ...]:
        """The adjectives that fit some noun."""
        fitting = (own.key for own in adjectives().values() if self.nouns(own.applies))
        return tuple(key for key in fitting if self.has(f"adjective {key}"))

    @cache  # noqa: B019
    def nouns(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """The nouns that have one of the tags or keys that are wanted; the most general ones are never meant."""
        return tuple(
            noun.key
            for noun in nouns().values()
            if not {noun.key, *noun.tags}.isdisjoint(wanted)
            and "hypernym" not in noun.tags
            and self.has(f"noun {noun.key}")
        )

    @cache  # noqa: B019
    def names(self, type: str) -> tuple[str, ...]:
        """The names of a type: PER, SUR, LOC or ORG."""
        return tuple(name.key for name in names().values() if name.type == type and self.has(f"name {name.key}"))

    @cache  # noqa: B019
    def adjectives(self, noun: str) -> tuple[str, ...]:
        """The adjectives that a noun may have."""
        tags = {noun, *nouns()[noun].tags}
        fitting = (own.key for own in adjectives().values() if not tags.isdisjoint(own.applies))
        return tuple(key for key in fitting if self.has(f"adjective {key}"))

    @cache  # noqa: B019
    def adverbs(self, kind: str, verb: str = "") -> tuple[str, ...]:
        """The adverbs of a kind that a verb may have; those of frequency go with any."""
        of_kind = [adverb for adverb in adverbs().values() if adverb.kind == kind]
        if kind == "frequency":
            return tuple(adverb.key for adverb in of_kind)
        return tuple(adverb.key for adverb in of_kind if verb in adverb.applies and self.has(f"adverb {adverb.key}"))

    def has(self, lexeme: str) -> bool:
        """Whether a lexeme, such as `noun book`, is one of these."""
        return not self.part or _parts()[lexeme] == self.part


@cache
def _parts() -> dict[str, str]:
    """The split of each lexeme when these are disjoint: three in five of every kind to train, one each to the others.

    Lexemes that share a written word in some language (Swahili ndege is both bird and plane) go together.
    """
    kinds = dict(_lexemes())
    parent = {lexeme: lexeme for lexeme in kinds}  # each lexeme's group is the first lexeme that it leads to
    owners: dict[str, str] = {}
    for lexeme in kinds:
        for word in _words_of(lexeme):
            first = owners.setdefault(word, lexeme)
            parent[_root(parent, lexeme)] = _root(parent, first)
    members: dict[str, list[str]] = {}
    for lexeme in kinds:
        members.setdefault(_root(parent, lexeme), []).append(lexeme)
    counts: Counter[tuple[str, str]] = Counter()
    parts: dict[str, str] = {}
    for group, lexemes in members.items():
        part = min(_SHARES, key=lambda part: counts[part, kinds[group]] / _SHARES[part])  # has least for its share
        counts.update((part, kinds[lexeme]) for lexeme in lexemes)
        parts |= dict.fromkeys(lexemes, part)
    return parts


def _lexemes() -> Iterator[tuple[str, str]]:
    """Every lexeme, with what it is drawn from: the first tag of a noun, the frame of a verb, ..."""
    for noun in nouns().values():
        yield f"noun {noun.key}", f"noun {noun.tags[0]}"
    for name in names().values():
        yield f"name {name.key}", f"name {name.type}"
    for verb in verbs().values():
        yield f"verb {verb.key}", f"verb {verb.frame}"
    for adjective in adjectives().values():
        yield f"adjective {adjective.key}", "adjective"
    for adverb in adverbs().values():
        if adverb.kind != "frequency":
            yield f"adverb {adverb.key}", "adverb"


def _words_of(lexeme: str) -> Iterable[str]:
    """The written words of a lexeme, each with its language: lemmas, and stems as the tables give them."""
    kind, key = lexeme.split(" ", 1)
    tables = {
        "noun": nouns,
        "name": names,
        "verb": verbs,
        "adjective": adjectives,
        "adverb": adverbs,
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


def _root(parent: dict[str, str], lexeme: str) -> str:
    while parent[lexeme] != lexeme:
        lexeme = parent[lexeme]
    return lexeme
