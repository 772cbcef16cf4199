"""Events and what they lead to: a premise, the question for its cause or effect, and two answers.

The links are in a table. A row says who takes part (`x`), what happens, and what follows from it; an event is its
subject (`x`, `x 's dog`, `the doctor`), a predicate, and an object, `>` a goal, `@` a place or a quality. All that is
told is told of one participant, who belongs to one split only.
"""

from dataclasses import dataclass, replace
from functools import cache

from residuum.samples import lexicon, participants
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
    right = draw.of(links())
    wrong = draw.of([link for link in links() if link.theme not in (right.theme, "crime")])
    question = draw.of(QUESTIONS)
    given = "effect" if question == "cause" else "cause"
    who = _participant(draw, words, right, wrong, split)
    premise = _told(right.event(given), who)
    answer, other = _told(right.event(question), who), _told(wrong.event(question), who)
    choices = (answer, other) if label == 0 else (other, answer)
    return Choice(premise, question, choices, label)


@cache
def links() -> tuple[Link, ...]:
    """The table."""
    return tuple(Link(row["theme"], tuple(row["who"].split()), row["cause"], row["effect"]) for row in lexicon.causes())


def _participant(draw: Draw, words: Vocabulary, right: Link, wrong: Link, split: str) -> Entity:
    """Somebody of the split, a name or a noun with at most one adjective, of whom no event tells otherwise."""
    told = f"{right.cause} {right.effect} {wrong.cause} {wrong.effect}".split(" ")
    while True:
        named = "PER" in right.who and draw.chance(0.5)
        entity = participants.name(draw, words, "PER") if named else _noun(draw, words, right.who)
        identity = f"{entity.lexeme} {entity.surname} {' '.join(entity.adjectives)}"
        if split_of(identity) == split and entity.lexeme not in told:
            return entity


def _noun(draw: Draw, words: Vocabulary, who: tuple[str, ...]) -> Entity:
    key = draw.of(words.nouns(who))
    lasting = [adjective.key for adjective in lexicon.adjectives().values() if "character" in adjective.traits]
    fitting = [adjective for adjective in words.adjectives(key) if adjective in lasting]
    return Entity(key, adjectives=(draw.of(fitting),)) if fitting and draw.chance(0.6) else Entity(key)


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
