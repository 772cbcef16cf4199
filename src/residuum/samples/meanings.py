"""What a sentence says, without a language: clauses, participants, links; and the seeded choices that draw it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeVar

from residuum.samples.lexicon import SplitVocabulary

Tense = Literal["past", "present", "future"]
Number = Literal["sg", "pl"]
Gap = Literal["", "subject", "object"]
Link = Literal["", "and", "but"]

BE = "be"
BE_AT = "be_at"
_ENTITY_ROLES = ("subject", "object", "recipient", "ground", "place", "companion", "beneficiary")
_WORD_ROLES = ("quality", "means", "manner", "frequency", "time", "gap")
PRONOUNS = ("i", "we", "they")
NUMERALS = ("two", "three", "four", "five")


@dataclass(frozen=True)
class Entity:
    """A participant: a noun with what determines it, a name, or a pronoun (`i`, `we`, `they`).

    `determiner` is the, a, this, a numeral, many, all, every, or bare (masses, names and pronouns). A possessor
    makes a noun definite. `relative` is a clause with a gap where this participant belongs.
    """

    lexeme: str
    kind: Literal["noun", "name", "pronoun"] = "noun"
    surname: str = ""
    number: Number = "sg"
    determiner: str = "the"
    adjectives: tuple[str, ...] = ()
    possessor: "Entity | None" = None
    relative: "Clause | None" = None

    @property
    def is_plain(self) -> bool:
        """Whether nothing but an article stands with the noun."""
        return not (self.adjectives or self.possessor or self.relative) and self.determiner in ("the", "bare")


@dataclass(frozen=True)
class Clause:
    """One event or state. Two subjects or objects are coordinated; a relative clause has a gap for one of them.

    `ground` is the place that the predicate asks for (go to, live in, enter), `place` where the rest happens.
    """

    predicate: str
    subject: tuple[Entity, ...] = ()
    object: tuple[Entity, ...] = ()
    recipient: Entity | None = None
    quality: str = ""
    very: bool = False
    ground: Entity | None = None
    place: Entity | None = None
    companion: Entity | None = None
    beneficiary: Entity | None = None
    means: str = ""
    manner: str = ""
    frequency: str = ""
    time: str = ""
    time_first: bool = False
    tense: Tense = "past"
    negated: bool = False
    gap: Gap = ""


@dataclass(frozen=True)
class Meaning:
    """One clause, or two that are linked; with `shared_subject` the second has the subject of the first."""

    clauses: tuple[Clause, ...]
    link: Link = ""
    shared_subject: bool = False


def described(meaning: Meaning) -> str:
    """A meaning as one line that is equal for equal meanings only; it stands above each sentence of a treebank."""
    return _described(meaning, bare=False)


def skeleton(meaning: Meaning) -> str:
    """The description without what a language may leave unsaid: articles, number, and whether the time stands first.

    Swahili has no articles, and many of its nouns have one form for both numbers; so meanings that differ in
    these only can have the same words.
    """
    return _described(meaning, bare=True)


def cores(meaning: Meaning) -> Iterator[str]:
    """Who does what to whom, for each clause: the predicate with the heads of its arguments."""
    first_subject = meaning.clauses[0].subject
    for clause in meaning.clauses:
        yield from _clause_cores(clause, clause.subject or first_subject, clause.object)


def _described(meaning: Meaning, bare: bool) -> str:
    link = f" {meaning.link}{'-then' if meaning.shared_subject else ''} "
    return link.join(_described_clause(clause, bare) for clause in meaning.clauses)


def _described_clause(clause: Clause, bare: bool) -> str:
    parts = [f"{clause.tense} {'not ' if clause.negated else ''}{clause.predicate}"]
    for role in _ENTITY_ROLES:
        if filler := getattr(clause, role):
            members = filler if isinstance(filler, tuple) else (filler,)
            parts.append(f"{role}={' + '.join([_described_entity(member, bare) for member in members])}")
    parts += [f"{role}={getattr(clause, role)}" for role in _WORD_ROLES if getattr(clause, role)]
    if clause.very:
        parts.append("very")
    if clause.time_first and not bare:
        parts.append("time first")
    return f"({'; '.join(parts)})"


def _described_entity(entity: Entity, bare: bool) -> str:
    words = [*entity.adjectives, entity.lexeme]
    if entity.surname:
        words.append(entity.surname)
    if not (bare and entity.determiner in ("the", "a")):
        words.insert(0, entity.determiner)
    if not bare:
        words.append(entity.number)
    if entity.possessor:
        words += ["of", _described_entity(entity.possessor, bare)]
    if entity.relative:
        words += ["such-that", _described_clause(entity.relative, bare)]
    return f"[{' '.join(words)}]"


def _clause_cores(clause: Clause, subject: tuple[Entity, ...], object_: tuple[Entity, ...]) -> Iterator[str]:
    heads = [entity.lexeme for entity in (*subject[:1], *object_[:1])]
    ground = clause.ground.lexeme if clause.ground else ""
    yield " ".join([clause.predicate, *heads, clause.quality, ground])
    others = (clause.recipient, clause.ground, clause.place, clause.companion, clause.beneficiary)
    for entity in (*clause.subject, *clause.object, *filter(None, others)):
        if inner := entity.relative:
            subject = (entity,) if inner.gap == "subject" else inner.subject
            object_ = (entity,) if inner.gap == "object" else inner.object
            yield from _clause_cores(inner, subject, object_)


Item = TypeVar("Item")

SPLITS = ("train", "dev", "test")
# of five buckets: three for training, one each for development and test
_BUCKETS = ("train", "train", "train", "dev", "test")


class Draw:
    """A stream of choices. It uses `random()` only, which Python promises to keep the same for a seed."""

    def __init__(self, *seed: object) -> None:
        text = "\n".join(map(str, seed))
        self._random = Random(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random.random() < probability

    def of(self, items: Sequence[Item]) -> Item:
        """One of the items, each as likely."""
        return items[int(self._random.random() * len(items))]

    def weighted(self, weights: dict[str, float]) -> str:
        """One of the keys, as likely as its weight says."""
        assert weights
        key = ""
        drawn = self._random.random() * sum(weights.values())
        for key, weight in weights.items():
            drawn -= weight
            if drawn < 0:
                return key
        return key


def split_of(text: str) -> str:
    """The split that a text belongs to, always the same: three in five to train, one each to dev and test."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return _BUCKETS[number % len(_BUCKETS)]


@dataclass(frozen=True)
class MeaningSource:
    """Where meanings come from: choices, the lexemes, and the split that every clause must belong to."""

    draw: Draw
    words: SplitVocabulary
    split: str

    def accepts(self, meaning: Meaning) -> bool:
        """Whether all that a meaning says belongs to the split."""
        return all(split_of(core) == self.split for core in cores(meaning))
