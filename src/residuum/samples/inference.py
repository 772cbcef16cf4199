"""Tasks about what follows: premise and hypothesis (`nli`), cause and effect (`copa`).

`nli`: the hypothesis is drawn first, in the same way for every label, and the premise is made to fit; so the hypothesis
alone does not reveal the label. Adding something to a meaning says more, removing something says less:

- entailment: the premise says more than an affirmed hypothesis, or denies more generally than a denied one
- contradiction: the premise denies what the hypothesis says, or says what it denies, or states the opposite
- neutral: the premise says less than an affirmed hypothesis, denies something more specific, or says something else

`copa`: links between events are in a table. A row has the participants (`x`), an event and what follows from it; an
event is its subject (`x`, `x 's dog`, `the doctor`), a predicate, and an object, `>` a goal, `@` a place or a quality.
Each story has one participant, who belongs to one split only. The wrong answer comes from another theme; a second table
lists events of different themes that might follow from each other, and these are never combined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from residuum.samples import lexicon, participants
from residuum.samples.clauses import find_clause, is_sensible
from residuum.samples.lexicon import SplitVocabulary
from residuum.samples.meanings import BE, BE_AT, Clause, Draw, Entity, Link, Meaning, MeaningSource, split_of
from residuum.samples.participants import Freedom, with_something_more

LABELS = ("entailment", "neutral", "contradiction")

_DEFINITE = Freedom(indefinite=False, counted=False)
_DEEDS = {"t": 0.6, "i": 0.15, "m": 0.15, "d": 0.1}
_ATTEMPTS = 12
_OPPOSITE_VERBS = {"love": "hate", "hate": "love"}
# no two of these places are in each other
_APART = ("kitchen", "garden", "library", "forest", "beach", "market", "church", "street", "station")
_DETAILS = {"time": "", "place": None, "manner": "", "companion": None, "beneficiary": None, "means": "", "very": False}


@dataclass(frozen=True)
class InferencePair:
    """A premise, a hypothesis, and how they relate."""

    premise: Meaning
    hypothesis: Meaning
    label: str


def sample_pair(source: MeaningSource, label: str) -> InferencePair:
    """A premise and a hypothesis that relate as the label says.

    A hypothesis is a clause about somebody or something definite, without habits; some are denied, some more general.
    It is used only if a premise is found for every label, so that which ones are used does not depend on it.
    """
    while True:
        hypothesis = find_clause(source, negated=source.draw.chance(0.4), free=_DEFINITE, fits=_is_plain)
        if hypothesis is None:
            continue
        general = _generalised_object(hypothesis)
        if general and source.draw.chance(0.5) and source.accepts(Meaning((general,))):
            hypothesis = general
        premises = {name: _premise(source, hypothesis, name) for name in LABELS}
        premise = premises[label]
        if premise is not None and None not in premises.values():
            return InferencePair(_embedded(source, premise, hypothesis), Meaning((hypothesis,)), label)


def _is_plain(clause: Clause) -> bool:
    """Whether it tells no habit, and no time that the present implies (is working, is working now)."""
    return not clause.frequency and not (clause.time and clause.tense == "present")


def _premise(source: MeaningSource, hypothesis: Clause, label: str) -> Clause | None:
    """A premise by one of the ways that give the label; None if a few attempts find none that makes sense here."""
    said = replace(hypothesis, negated=False)
    ways: dict[tuple[str, bool], list[Callable[[], Clause | None]]] = {
        ("entailment", False): [lambda: _more(source, said), lambda: _hyponym(source, said)],
        ("entailment", True): [
            lambda: _deny(_less(source, said, in_scope=True)),
            lambda: _opposite(source, said),
        ],
        ("neutral", False): [
            lambda: _less(source, said),
            lambda: _deny(_more(source, said, in_scope=True)),
            lambda: _generalised_object(said),
            lambda: _something_else(source, said),
        ],
        ("neutral", True): [
            lambda: _deny(_more(source, said, in_scope=True)),
            lambda: _less(source, said, in_scope=True),
            lambda: _something_else(source, said),
        ],
        ("contradiction", False): [
            lambda: _deny(source.draw.of([said, *_generalisations(said)])),
            lambda: _opposite(source, said),
        ],
        ("contradiction", True): [lambda: _more(source, said), lambda: said],
    }
    for _ in range(_ATTEMPTS):
        premise = source.draw.of(ways[label, hypothesis.negated])()
        if premise is None or premise == hypothesis or not is_sensible(premise):
            continue
        if source.accepts(Meaning((premise,))):
            return premise
    return None


def _more(source: MeaningSource, clause: Clause, in_scope: bool = False) -> Clause | None:
    """The clause with an adjunct, an adjective or another participant more.

    `in_scope` is for clauses that will be denied: what is added must be what the denial is about. Not to see the old
    man is not to see the man, and that Ali and Anna did not come is that Ali did not come.
    """
    draw = source.draw
    way = draw.of(("adjunct", "adjunct", "adjective", "participant"))
    if way == "adjunct":
        more = with_something_more(source, clause)
    elif way == "adjective":
        more = _with_adjective(source, clause, in_scope)
    else:
        more = None if in_scope else _with_participant(source, clause)
    return more if more is not None and more != clause and _is_plain(more) else None


def _with_adjective(source: MeaningSource, clause: Clause, in_scope: bool) -> Clause | None:
    role = source.draw.of(("subject", "object"))
    members: tuple[Entity, ...] = getattr(clause, role)
    if len(members) != 1 or members[0].kind != "noun" or members[0].adjectives or clause.predicate == BE:
        return None
    fitting = source.words.adjectives(members[0].lexeme)
    if not fitting or (in_scope and not _is_indefinite(members[0])):
        return None
    return replace(clause, **{role: (replace(members[0], adjectives=(source.draw.of(fitting),)),)})


def _is_indefinite(entity: Entity) -> bool:
    return entity.determiner in ("a", "bare") and not entity.possessor


def _with_participant(source: MeaningSource, clause: Clause) -> Clause | None:
    """Another subject or object beside the one there is."""
    if clause.predicate in (BE, BE_AT):
        return None
    verb = lexicon.verbs()[clause.predicate]
    if source.draw.chance(0.5) and len(clause.object) == 1 and verb.frame == "t":
        (only,) = clause.object
        plain = not (only.adjectives or only.possessor) and only.number == "sg"
        other = participants.another(source.draw, source.words, verb.object, only) if plain else None
        return replace(clause, object=(only, other)) if other else None
    if len(clause.subject) != 1 or clause.subject[0].kind == "pronoun" or "person" not in verb.subject:
        return None
    first, _ = participants.pair(source.draw, source.words, ("person",))
    return replace(clause, subject=(clause.subject[0], first))


def _less(source: MeaningSource, clause: Clause, in_scope: bool = False) -> Clause | None:
    """The clause without one of its adjuncts, adjectives or further participants; None if it has none."""
    fewer = list(_generalisations(clause, in_scope))
    return source.draw.of(fewer) if fewer else None


def _generalisations(clause: Clause, in_scope: bool = False) -> Iterator[Clause]:
    for detail, empty in _DETAILS.items():
        if getattr(clause, detail):
            yield replace(clause, **{detail: empty}, time_first=clause.time_first and detail != "time")
    for role in ("subject", "object"):
        members: tuple[Entity, ...] = getattr(clause, role)
        if len(members) > 1 and clause.manner != "together" and not in_scope:
            yield replace(clause, **{role: members[:1]})
        elif members and members[0].adjectives and (_is_indefinite(members[0]) or not in_scope):
            first = replace(members[0], adjectives=members[0].adjectives[1:])
            yield replace(clause, **{role: (first, *members[1:])})


def _deny(clause: Clause | None) -> Clause | None:
    """The denial of a clause; how something was done, or that it was done to this and that, is not denied.

    He did not buy a book and a pen may be that he bought one of them.
    """
    if clause is None or clause.manner or (len(clause.object) > 1 and _is_indefinite(clause.object[0])):
        return None
    return replace(clause, negated=True, very=False)


def _opposite(source: MeaningSource, clause: Clause) -> Clause | None:
    """The clause with what cannot be true at once: the antonym, another place, love for hate."""
    if clause.predicate == BE:
        antonym = lexicon.adjectives()[clause.quality].antonym
        known = antonym and source.words.has(f"adjective {antonym}")
        return replace(clause, quality=antonym, very=False) if known else None
    if clause.predicate == BE_AT:
        # Nobody is at two places at the same time.
        subject, ground = clause.subject[0], clause.ground
        things = subject.kind == "noun" and not lexicon.nouns()[subject.lexeme].is_animate
        if things or ground is None or ground.lexeme not in _APART or clause.tense != "present":
            return None
        others = [key for key in source.words.nouns(_APART) if key != ground.lexeme]
        return replace(clause, ground=Entity(source.draw.of(others))) if others else None
    opposite = _OPPOSITE_VERBS.get(clause.predicate, "")
    known = opposite and source.words.has(f"verb {opposite}")
    return replace(clause, predicate=opposite) if known else None


def _generalised_object(clause: Clause) -> Clause | None:
    """The clause with a more general noun as its indefinite object: a fruit for an apple."""
    if not _has_bare_indefinite(clause):
        return None
    general = lexicon.nouns()[clause.object[0].lexeme].isa
    return replace(clause, object=(replace(clause.object[0], lexeme=general),)) if general else None


def _hyponym(source: MeaningSource, clause: Clause) -> Clause | None:
    """The clause with a more special noun for a general one."""
    if not _has_bare_indefinite(clause):
        return None
    general = clause.object[0].lexeme
    fitting = lexicon.verbs()[clause.predicate].object
    special = [key for key in source.words.nouns(fitting) if lexicon.nouns()[key].isa == general]
    return replace(clause, object=(replace(clause.object[0], lexeme=source.draw.of(special)),)) if special else None


def _has_bare_indefinite(clause: Clause) -> bool:
    return len(clause.object) == 1 and clause.object[0].determiner == "a" and not clause.object[0].adjectives


def _something_else(source: MeaningSource, clause: Clause) -> Clause | None:
    """Another thing that the same subject did, or did not do, with other things and at other places."""
    actor = clause.subject[0]  # many verbs can have a person as their subject
    if actor.kind == "name":
        is_person = lexicon.names()[actor.lexeme].type == "PER"
    else:
        is_person = actor.kind == "pronoun" or "person" in lexicon.nouns()[actor.lexeme].tags
    if not is_person or clause.predicate == BE_AT:
        return None
    return find_clause(
        source,
        frames=_DEEDS,
        tense=clause.tense,
        free=_DEFINITE,
        adjuncts=1,
        subject=clause.subject,
        fits=lambda other: _is_plain(other) and _is_unrelated(other, clause),
    )


def _is_unrelated(other: Clause, clause: Clause) -> bool:
    """Whether one deed says nothing of another: nobody does two things right now, or uses a thing in vain."""
    if other.predicate == clause.predicate or other.predicate in _OPPOSITE_VERBS:
        return False
    both_go_on = clause.tense == "present" and _goes_on(clause) and _goes_on(other) and not other.negated
    return not both_go_on and _concerned(other).isdisjoint(_concerned(clause))


def _goes_on(clause: Clause) -> bool:
    return clause.predicate != BE and not lexicon.verbs()[clause.predicate].is_stative


def _concerned(clause: Clause) -> set[str]:
    """The things, people and places that a subject has to do with."""
    others = (clause.recipient, clause.ground, clause.place, clause.companion, clause.beneficiary)
    return {entity.lexeme for entity in (*clause.object, *others) if entity}


def _embedded(source: MeaningSource, premise: Clause, hypothesis: Clause) -> Meaning:
    """The premise alone, or now and then beside a clause about somebody else."""
    if source.draw.chance(0.75):
        return Meaning((premise,))
    taken = {entity.lexeme for entity in (*premise.subject, *premise.object, *hypothesis.object)}
    other = find_clause(
        source,
        tense=premise.tense,
        adjuncts=0,
        fits=lambda clause: (
            clause.predicate != premise.predicate
            and taken.isdisjoint(entity.lexeme for entity in (*clause.subject, *clause.object))
        ),
    )
    if other is None:
        return Meaning((premise,))
    link: Link = "and" if premise.negated == other.negated else "but"
    if premise.time or source.draw.chance(0.5):
        return Meaning((premise, other), link)
    return Meaning((other, premise), link)


QUESTIONS = ("cause", "effect")
_ARTICLES = ("a", "the")


@dataclass(frozen=True)
class CausalChoice:
    """A premise, a question for its cause or effect, the two choices, and which of them (0 or 1) is right."""

    premise: Meaning
    question: str
    choices: tuple[Meaning, Meaning]
    label: int


@dataclass(frozen=True)
class CausalLink:
    """A row of the table: what happens to whom, and what follows."""

    theme: str
    who: tuple[str, ...]
    cause: str
    effect: str

    def event(self, question: str) -> str:
        """The event that is the cause or the effect."""
        return self.cause if question == "cause" else self.effect


def sample_choice(draw: Draw, split: str, words: SplitVocabulary, label: int) -> CausalChoice:
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
    return CausalChoice(premise, question, choices, label)


@cache
def links() -> tuple[CausalLink, ...]:
    """The table."""
    return tuple(
        CausalLink(row["theme"], tuple(row["who"].split()), row["cause"], row["effect"]) for row in lexicon.causes()
    )


@cache
def _rivals(links: tuple[CausalLink, ...]) -> tuple[tuple[CausalLink, CausalLink], ...]:
    """All pairs of a right and a wrong link, both ways round: so each answer is as often wrong as it is right.

    Only crimes are never the wrong choice, as it would be told of people who commit none.
    """
    return tuple((a, b) for a, b in product(links, repeat=2) if b.theme != "crime" and _are_told_apart(a, b))


def _are_told_apart(one: CausalLink, other: CausalLink) -> bool:
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
def _participants(words: SplitVocabulary, who: tuple[str, ...], split: str) -> tuple[Entity, ...]:
    """Everybody of a split: names, and nouns with at most one adjective that is no cause and no effect itself."""
    names = [(key, surname) for key in words.names("PER") for surname in ("", *words.names("SUR"))]
    everybody = [Entity(key, "name", surname, determiner="bare") for key, surname in names if "PER" in who]
    for key in words.nouns(who):
        lasting = [key for key in words.adjectives(key) if "character" in lexicon.adjectives()[key].traits]
        everybody += [Entity(key), *(Entity(key, adjectives=(adjective,)) for adjective in lasting)]
    texts = [" ".join([entity.lexeme, entity.surname, *entity.adjectives]) for entity in everybody]
    return tuple(entity for entity, text in zip(everybody, texts, strict=True) if split_of(text) == split)


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
