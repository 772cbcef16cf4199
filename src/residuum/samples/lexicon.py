"""The words of the sample world, read from the tables beside this module.

A row is one meaning with its forms in all languages. How the cells of a language are to be read is told in the
module of its forms (`english_forms`, `german_forms`, ...).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


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
    """How a place is said: prepositions of rest (English), of rest, goal and source (German), Swahili's -ni form."""

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
    place as object. Aspects: dyn (goes on), stat (a state), once (no present), hab (may be a habit).
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


@dataclass(frozen=True)
class Adjective:
    """An adjective: the nouns that it fits, and its opposite if it has one."""

    key: str
    applies: tuple[str, ...]
    antonym: str
    en: str
    de: str
    tr: str
    sw: str


@dataclass(frozen=True)
class Adverb:
    """An adverb of manner or frequency, or together; with the verbs that it fits."""

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
    return {row["key"]: Noun(**row | {"tags": _listed(row["tags"])}) for row in _rows("nouns")}


@cache
def places() -> dict[str, Place]:
    """The nouns that are places, by key."""
    return {row["key"]: Place(**row) for row in _rows("places")}


@cache
def names() -> dict[str, Name]:
    """The names by key."""
    return {row["key"]: Name(**row) for row in _rows("names")}


@cache
def verbs() -> dict[str, Verb]:
    """The verbs by key."""
    lists = ("aspect", "subject", "object", "place")
    return {
        row["key"]: Verb(**row | {name: _listed(row[name]) for name in lists})  # type: ignore[arg-type]
        for row in _rows("verbs")
    }


@cache
def adjectives() -> dict[str, Adjective]:
    """The adjectives by key."""
    return {row["key"]: Adjective(**row | {"applies": _listed(row["applies"])}) for row in _rows("adjectives")}


@cache
def adverbs() -> dict[str, Adverb]:
    """The adverbs by key."""
    return {row["key"]: Adverb(**row | {"applies": _listed(row["applies"])}) for row in _rows("adverbs")}


@cache
def times() -> dict[str, Time]:
    """The times by key."""
    return {row["key"]: Time(**row | {"tenses": _listed(row["tenses"])}) for row in _rows("times")}


def _rows(table: str) -> Iterator[dict[str, str]]:
    """The rows of a table by the names in its first line; `-` is an empty cell."""
    text = (files("residuum.samples") / f"{table}.tsv").read_text(encoding="utf-8")
    header, *lines = text.splitlines()
    names = header.split("\t")
    for line in lines:
        cells = ["" if cell == "-" else cell for cell in line.split("\t")]
        yield dict(zip(names, cells, strict=True))


def _listed(cell: str) -> tuple[str, ...]:
    return tuple(cell.split())
