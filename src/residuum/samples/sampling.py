"""Sampling meanings: clauses alone, with a relative clause, or coordinated."""

from dataclasses import replace
from functools import partial

from residuum.samples import lexicon, participants
from residuum.samples.adjuncts import times_of, with_place
from residuum.samples.clauses import find_clause, sample_clause
from residuum.samples.lexicon import Verb
from residuum.samples.meanings import Clause, Entity, Link, Meaning, Tense
from residuum.samples.participants import Freedom
from residuum.samples.sources import Source

SHAPES = {"simple": 0.62, "relative": 0.14, "linked": 0.14, "shared": 0.1}
_INNER_ATTEMPTS = 100


def sample_meaning(source: Source) -> Meaning:
    """A meaning of any shape."""
    shape = source.draw.weighted(SHAPES)
    if shape == "simple":
        return Meaning((sample_clause(source),))
    if shape == "relative":
        return sample_relative(source)
    return sample_linked(source) if shape == "linked" else sample_shared(source)


def sample_relative(
    source: Source,
    *,
    tense: Tense | None = None,
    negated: bool | None = None,
    inner_negated: bool | None = None,
) -> Meaning:
    """A clause whose subject or object has a relative clause."""
    free = Freedom(pronoun=False, group=False)
    while True:
        clause = sample_clause(source, tense=tense, negated=negated, adjuncts=1, free=free)
        for _ in range(_INNER_ATTEMPTS):
            described = _with_relative(source, clause, inner_negated)
            if described is not None and source.accepts(Meaning((described,))):
                return Meaning((described,))


def sample_linked(
    source: Source,
    *,
    polarities: tuple[bool, bool] | None = None,
    tenses: tuple[Tense, Tense] | None = None,
) -> Meaning:
    """Two clauses with subjects of their own: `and` if both affirm or both deny, else `but`."""
    if polarities is None:
        polarities = (source.draw.chance(0.3), source.draw.chance(0.3))
    link: Link = "and" if polarities[0] == polarities[1] else "but"
    while True:
        first = sample_clause(source, tense=tenses and tenses[0], negated=polarities[0], adjuncts=1)
        tense = tenses[1] if tenses else first.tense
        second = find_clause(source, tense=tense, negated=polarities[1], adjuncts=1, fits=partial(_differ, first))
        if second is not None:
            return Meaning((first, replace(second, time="", time_first=False)), link)


def _differ(first: Clause, second: Clause) -> bool:
    """Whether two clauses have other subjects and tell different things."""
    subjects = {entity.lexeme for entity in first.subject}
    return not _is_same_verb(first, second) and subjects.isdisjoint(
        entity.lexeme for entity in (*second.subject, *second.object)
    )


def _is_same_verb(first: Clause, second: Clause) -> bool:
    """Whether two clauses have one verb in English, which says two things by `watched` and by `fell`."""
    verbs = lexicon.verbs()
    if first.predicate not in verbs or second.predicate not in verbs:
        return first.predicate == second.predicate
    return verbs[first.predicate].en.split()[0] == verbs[second.predicate].en.split()[0]


def sample_shared(source: Source) -> Meaning:
    """A motion and what is done then, with one subject."""
    while True:
        first = sample_clause(source, frames={"m": 0.7, "e": 0.3}, negated=False, adjuncts=1)
        time = "" if first.time in times_of("habit") else first.time
        first = replace(first, frequency="", manner="", means="", time=time, time_first=bool(time))
        second = find_clause(
            source,
            frames={"t": 0.8, "i": 0.2},
            tense=first.tense,
            negated=False,
            adjuncts=0,
            subject=first.subject,
            fits=_may_follow_motion,
        )
        if second is not None:
            return Meaning((first, replace(second, subject=())), "and", shared_subject=True)


def _may_follow_motion(clause: Clause) -> bool:
    """Whether it is something to do where one has come to: no state, not waking up, nothing of another place."""
    verb = lexicon.verbs()[clause.predicate]
    at_place = any(entity.lexeme in lexicon.places() or _is_city(entity) for entity in clause.object)
    return not (verb.is_stative or verb.key == "wake_up" or at_place or "sea" in verb.place)


def _is_city(entity: Entity) -> bool:
    return entity.kind == "name" and lexicon.names()[entity.lexeme].type == "LOC"


def _with_relative(source: Source, clause: Clause, negated: bool | None) -> Clause | None:
    """The clause with a relative clause at its subject, or at its object if nothing else follows there."""
    draw = source.draw
    roles = ["subject"]
    if clause.object and _may_end_in_relative(clause):
        roles.append("object")
    role = draw.of(roles)
    (entity, *others) = clause.subject if role == "subject" else clause.object
    if others or not _may_have_relative(entity):
        return None
    tense: Tense = "past" if clause.tense == "past" else "present"
    inner = _inner_clause(source, entity, tense, draw.chance(0.15) if negated is None else negated)
    if inner is None or _shares_lexeme(clause, inner):
        return None
    described = replace(entity, relative=inner, adjectives=entity.adjectives[:1])
    if role == "object":
        return replace(clause, object=(described,), time_first=True)
    return replace(clause, subject=(described,))


def _may_end_in_relative(clause: Clause) -> bool:
    """An object with a relative clause is last in English and German: no bracket, nicht or adjunct after it."""
    verb = lexicon.verbs()[clause.predicate]
    after = (clause.place, clause.companion, clause.beneficiary, clause.manner, clause.recipient)
    return clause.tense != "future" and not clause.negated and "~" not in verb.de and not any(after)


def _may_have_relative(entity: Entity) -> bool:
    plain = entity.kind == "noun" and not entity.possessor
    return plain and entity.determiner in ("the", "a")


def _inner_clause(source: Source, entity: Entity, tense: Tense, negated: bool) -> Clause | None:
    """A clause with a gap for the entity; what happened is past, a state has the time of the main clause."""
    draw, words = source.draw, source.words
    gap = draw.of(("subject", "object"))
    verb = lexicon.verbs()[draw.of(words.verbs[draw.of(tuple("ttmi" if gap == "subject" else "t"))])]
    fillers = verb.subject if gap == "subject" else verb.object
    if entity.lexeme not in words.nouns(fillers):
        return None
    free = Freedom(described=False, indefinite=False, counted=False, group=False)
    clause = Clause(verb.key, tense=tense if verb.is_stative else "past", negated=negated, gap=gap)
    if gap == "object":
        if _has_preposition(verb):
            return None
        return replace(clause, subject=participants.subject(draw, words, verb.subject, free))
    if verb.frame == "t":
        free = replace(free, indefinite=not verb.is_stative and not negated)
        return replace(clause, object=(participants.object_(draw, words, verb.object, free),))
    if verb.frame == "m":
        return replace(clause, ground=participants.place(draw, words, verb.place))
    return with_place(source, clause) if verb.place else None


def _has_preposition(verb: Verb) -> bool:
    return ">" in verb.en or "@auf" in verb.de or "@na" in verb.sw


def _shares_lexeme(clause: Clause, inner: Clause) -> bool:
    outer = {entity.lexeme for entity in (*clause.subject, *clause.object)}
    outer |= {entity.lexeme for entity in (clause.ground, clause.recipient, clause.place) if entity}
    within = [*inner.subject, *inner.object, *(entity for entity in (inner.ground, inner.place) if entity)]
    return any(entity.lexeme in outer for entity in within) or _is_same_verb(clause, inner)
