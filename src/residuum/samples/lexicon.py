"""The words of the sample world, read from the tables beside this module.

A row is one meaning with its forms in all languages. How the cells of a language are to be read is told in the
module of its forms (`english_forms`, `german_forms`, ...).
"""

from collections.abc import Callable, Iterator
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
