"""Adjuncts: when, where, how, with whom, for whom and by what means."""

from dataclasses import replace
from functools import cache

from residuum.samples import lexicon, participants
from residuum.samples.meanings import BE, BE_AT, Clause
from residuum.samples.sources import Source

_FAR = ("city", "village")


def with_adjuncts(source: Source, clause: Clause, at_most: int) -> Clause:
    """The clause with at most so many adjuncts that fit it."""
    draw = source.draw
    if at_most and _may_be_habit(clause) and draw.chance(0.4):
        clause, at_most = _as_habit(source, clause), at_most - 1
    additions = [_with_time, with_place, _with_manner, _with_companion]
    added = 0
    for add in additions:
        if added < at_most and draw.chance(0.4):
            more = add(source, clause)
            added += more != clause
            clause = more
    return clause


def with_something_more(source: Source, clause: Clause) -> Clause:
    """The clause with one more adjunct, or as it was if the one that was drawn does not fit or is there already."""
    role, add = source.draw.of(
        (("time", _with_time), ("place", with_place), ("manner", _with_manner), ("companion", _with_companion))
    )
    return clause if getattr(clause, role) else add(source, clause)


@cache
def times_of(tense: str) -> tuple[str, ...]:
    """The times that fit a tense."""
    return tuple(time.key for time in lexicon.times().values() if tense in time.tenses)


def _with_time(source: Source, clause: Clause) -> Clause:
    """With a time of the tense, where one makes sense and none is said, nor a word for the moment."""
    if clause.time or clause.frequency or _tells_moment(clause):
        return clause
    if clause.predicate == BE and "passing" not in lexicon.adjectives()[clause.quality].traits:
        return clause
    if clause.predicate not in (BE, BE_AT) and lexicon.verbs()[clause.predicate].is_stative:
        return clause
    return replace(clause, time=source.draw.of(times_of(clause.tense)), time_first=source.draw.chance(0.4))


def _tells_moment(clause: Clause) -> bool:
    return bool(clause.manner) and lexicon.adverbs()[clause.manner].kind == "moment"


def _may_be_habit(clause: Clause) -> bool:
    """Whether it may be done again and again: in the present, by and to somebody or something definite."""
    if clause.predicate in (BE, BE_AT) or clause.tense != "present" or clause.negated:
        return False
    told = (*clause.subject, *clause.object)
    definite = all(entity.determiner in ("the", "bare", "this") for entity in told)
    return definite and "hab" in lexicon.verbs()[clause.predicate].aspect


def _as_habit(source: Source, clause: Clause) -> Clause:
    """The clause as a habit: often, every day."""
    draw = source.draw
    if draw.chance(0.7):
        return replace(clause, frequency=draw.of(source.words.adverbs("frequency")))
    return replace(clause, time=draw.of(times_of("habit")), time_first=draw.chance(0.4))


def with_place(source: Source, clause: Clause) -> Clause:
    """With a place where the verb is at home, unless it has one."""
    if clause.ground or clause.predicate in (BE, BE_AT):
        return clause
    tags = lexicon.verbs()[clause.predicate].place
    if not tags or not (source.words.nouns(tags) or "LOC" in tags or "ORG" in tags):
        return clause
    where = participants.place(source.draw, source.words, tags)
    taken = [entity.lexeme for entity in (*clause.subject, *clause.object)]
    return clause if where.lexeme in taken or where.possessor else replace(clause, place=where)


def _with_manner(source: Source, clause: Clause) -> Clause:
    """With an adverb: of manner, of the moment if no other time is said, or together for several with nobody else."""
    if clause.negated or clause.frequency or clause.predicate in (BE, BE_AT):
        return clause
    several = not clause.companion and (len(clause.subject) > 1 or any(e.number == "pl" for e in clause.subject))
    at_a_moment = not clause.time and clause.tense != "present"
    kinds = ["manner"] + ["moment"] * at_a_moment + ["together"] * several
    fitting = [key for kind in kinds for key in source.words.adverbs(kind, clause.predicate)]
    return replace(clause, manner=source.draw.of(fitting)) if fitting else clause


def _with_companion(source: Source, clause: Clause) -> Clause:
    """With somebody, for somebody, or by some vehicle: whichever fits the verb."""
    if clause.companion or clause.beneficiary or clause.means:
        return clause
    draw, words = source.draw, source.words
    aspect = lexicon.verbs()[clause.predicate].aspect if clause.predicate not in (BE, BE_AT) else ()
    rides = _rides(source, clause) if "by" in aspect else ()
    if rides and draw.chance(0.6):
        return replace(clause, means=draw.of(rides))
    role = "companion" if "with" in aspect else "beneficiary" if "for" in aspect else ""
    if not role or clause.manner == "together" or clause.subject[0].kind == "pronoun":
        return clause
    other = participants.companion(draw, words)
    taken = [entity.lexeme for entity in (*clause.subject, *clause.object)]
    return clause if other.lexeme in taken else replace(clause, **{role: other})


def _rides(source: Source, clause: Clause) -> tuple[str, ...]:
    """The vehicles that take one to the place: any to a city that has a name, by land to another."""
    if clause.ground is None or clause.ground.possessor:
        return ()
    if clause.ground.kind == "name":
        return source.words.nouns(("ridden",))
    return source.words.nouns(("car", "bus", "bicycle", "motorcycle")) if clause.ground.lexeme in _FAR else ()
