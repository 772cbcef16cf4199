"""Events and what they lead to: a premise, the question for its cause or effect, and two answers.

The links are in a table. A row says who takes part (`x`), what happens, and what follows from it; an event is its
subject (`x`, `x 's dog`, `the doctor`), a predicate, and an object, `>` a goal, `@` a place or a quality. All that is
told is told of one participant, who belongs to one split only. The wrong answer is from another theme; a second table
has the events of different themes that might follow from each other as well, and these never meet.
"""

from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from residuum.samples import lexicon
from residuum.samples.draws import Draw, split_of
from residuum.samples.meanings import BE, Clause, Entity, Meaning
from residuum.samples.vocabulary import Vocabulary

QUESTIONS = ("cause", "effect")
_ARTICLES = ("a", "the")


@dataclass(frozen=True)
class Choice:
    """A premise, a question for its cause or effect, the two choices, and which of them (0 or 1) is right."""

    premise: Meaning
    question: str
    choices: tuple[Meaning, Meaning]
    label: int


@dataclass(frozen=True)
class Link:
    """A row of the table: what happens to whom, and what follows."""

    theme: str
    who: tuple[str, ...]
    cause: str
    effect: str

    def event(self, question: str) -> str:
        """The event that is the cause or the effect."""
        return self.cause if question == "cause" else self.effect


def sample_choice(draw: Draw, split: str, words: Vocabulary, label: int) -> Choice:
    """A question about a link, with an answer from a link of another theme as the wrong choice."""
    right, wrong = draw.of(_rivals(links()))
    while not _participants(words, right.who, split):
        right, wrong = draw.of(_rivals(links()))
    told = f"{right.cause} {right.effect} {wrong.cause} {wrong.effect}".split(" ")
    who = draw.of([entity for entity in _participants(words, right.who, split) if entity.lexeme not in told])
    question = draw.of(QUESTIONS)
    given = "effect" if question == "cause" else "cause"
    premise = _told(right.event(given), who)
    answer, other = _told(right.event(question), who), _told(wrong.event(question), who)
    choices = (answer, other) if label == 0 else (other, answer)
    return Choice(premise, question, choices, label)


@cache
def links() -> tuple[Link, ...]:
    """The table."""
    return tuple(Link(row["theme"], tuple(row["who"].split()), row["cause"], row["effect"]) for row in lexicon.causes())


@cache
def _rivals(links: tuple[Link, ...]) -> tuple[tuple[Link, Link], ...]:
    """All pairs of a right and a wrong link, both ways round: so each answer is as often wrong as it is right.

    Only crimes are never the wrong choice, as it would be told of people who commit none.
    """
    return tuple((a, b) for a, b in product(links, repeat=2) if b.theme != "crime" and _are_told_apart(a, b))


def _are_told_apart(one: Link, other: Link) -> bool:
    """Whether two links have different themes and events, and the cause of neither may lead to the other's effect."""
    if one.theme == other.theme or not {one.cause, one.effect}.isdisjoint((other.cause, other.effect)):
        return False
    return not is_plausible(one.cause, other.effect) and not is_plausible(other.cause, one.effect)


def is_plausible(cause: str, effect: str) -> bool:
    """Whether an event may follow from another by either table."""
    return (cause, effect) in _plausible()


@cache
def _plausible() -> frozenset[tuple[str, str]]:
    known = {(row["cause"], row["effect"]) for row in lexicon.causes()}
    return frozenset(known.union(*(product(causes, effects) for causes, effects in lexicon.plausible())))


@cache
def _participants(words: Vocabulary, who: tuple[str, ...], split: str) -> tuple[Entity, ...]:
    """Everybody of a split: names, and nouns with at most one adjective that is no cause and no effect itself."""
    names = [(key, surname) for key in words.names("PER") for surname in ("", *words.names("SUR"))]
    everybody = [Entity(key, "name", surname, determiner="bare") for key, surname in names if "PER" in who]
    for key in words.nouns(who):
        lasting = [key for key in words.adjectives(key) if "character" in lexicon.adjectives()[key].traits]
        everybody += [Entity(key), *(Entity(key, adjectives=(adjective,)) for adjective in lasting)]
    return tuple(entity for entity in everybody if split_of(_identity(entity)) == split)


def _identity(entity: Entity) -> str:
    return " ".join([entity.lexeme, entity.surname, *entity.adjectives])


def _told(event: str, who: Entity) -> Meaning:
    """An event of the table as a meaning about somebody, in the past."""
    subject, rest = _subject(event.split(" "), who)
    negated = rest[0] == "not"
    predicate, *arguments = rest[1:] if negated else rest
    clause = Clause(predicate, (subject,), negated=negated)
    if not arguments:
        return Meaning((clause,))
    first = arguments[0]
    if predicate == BE:
        clause = replace(clause, quality=first)
    elif first[0] == ">":
        clause = replace(clause, ground=Entity(first[1:]))
    elif first[0] == "@":
        clause = replace(clause, place=Entity(first[1:]))
    else:
        clause = replace(clause, object=(_object(arguments, who),))
    return Meaning((clause,))


def _subject(tokens: list[str], who: Entity) -> tuple[Entity, list[str]]:
    """The subject of an event, and the rest of it."""
    if tokens[0] == "the":
        return Entity(tokens[1]), tokens[2:]
    if tokens[1] == "'s":
        return Entity(tokens[2], possessor=who), tokens[3:]
    return who, tokens[1:]


def _object(tokens: list[str], who: Entity) -> Entity:
    if tokens == ["x"]:
        return who
    determiner = tokens[0] if tokens[0] in _ARTICLES else "bare"
    *adjectives, key = tokens[1:] if determiner != "bare" else tokens
    return Entity(key, determiner=determiner, adjectives=tuple(adjectives))
