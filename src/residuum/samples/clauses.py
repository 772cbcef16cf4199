"""Sample clauses whose participants fit the predicate and each other: alone, coordinated, or with a relative clause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from residuum.samples import lexicon, participants
from residuum.samples.lexicon import SplitVocabulary, Verb
from residuum.samples.meanings import BE, BE_AT, Clause, Draw, Entity, Link, Meaning, MeaningSource, Tense
from residuum.samples.participants import Freedom, times_of, with_adjuncts, with_place

FRAMES = {"t": 0.42, "i": 0.16, "m": 0.1, "l": 0.05, "e": 0.04, "d": 0.08, BE: 0.1, BE_AT: 0.05}
ANY = Freedom()
_TENSES = {
    "once": {"past": 0.6, "future": 0.4},
    "stat": {"past": 0.5, "present": 0.5},
    "dyn": {"past": 0.45, "present": 0.3, "future": 0.25},
    "lasting": {"past": 0.4, "present": 0.6},
    "passing": {"past": 0.45, "present": 0.4, "future": 0.15},
}
_ATTEMPTS = 300
# what is not yet, or no longer, what the adjective says when this is done to it
_UNFIT = {"clean": "clean", "wash": "clean", "build": "old", "sew": "old", "treat": "healthy"}


def sample_clause(
    source: MeaningSource,
    *,
    frames: dict[str, float] = FRAMES,
    tense: Tense | None = None,
    negated: bool | None = None,
    adjuncts: int = 2,
    free: Freedom = ANY,
) -> Clause:
    """A clause of one of the frames; a tense and a polarity can be asked for."""
    while True:
        clause = find_clause(source, frames, tense, negated, adjuncts, free)
        if clause is not None:
            return clause


def find_clause(
    source: MeaningSource,
    frames: dict[str, float] = FRAMES,
    tense: Tense | None = None,
    negated: bool | None = None,
    adjuncts: int = 2,
    free: Freedom = ANY,
    subject: tuple[Entity, ...] = (),
    fits: Callable[[Clause], bool] = lambda clause: True,
) -> Clause | None:
    """A clause with a given subject, or on any condition; None if none is found."""
    for _ in range(_ATTEMPTS):
        frame = source.draw.weighted(frames)
        negation = source.draw.chance(0.2) if negated is None else negated
        clause = _bare_clause(source, frame, tense, negation, free, subject)
        if clause is None or not is_sensible(clause) or not source.accepts(Meaning((clause,))):
            continue
        clause = with_adjuncts(source, clause, adjuncts)
        if is_sensible(clause) and fits(clause):
            return clause
    return None


def _bare_clause(
    source: MeaningSource,
    frame: str,
    tense: Tense | None,
    negated: bool,
    free: Freedom,
    subject: tuple[Entity, ...],
) -> Clause | None:
    """Predicate, participants, tense and polarity; None if what is asked for does not fit."""
    draw, words = source.draw, source.words
    free = replace(free, indefinite=free.indefinite and not negated, counted=free.counted and not negated)
    if frame == BE:
        quality = lexicon.adjectives()[draw.of(words.qualities)]
        chosen = _tense(draw, "passing" if "passing" in quality.traits else "lasting", tense)
        if chosen is None:
            return None
        subject = participants.subject(draw, words, quality.applies, replace(free, described=False, indefinite=False))
        very = not negated and "ungraded" not in quality.traits and draw.chance(0.2)
        return Clause(BE, subject, quality=quality.key, very=very, tense=chosen, negated=negated)
    if frame == BE_AT:
        return _location_clause(source, tense, negated, free)
    if not words.verbs.get(frame):
        return None
    verb = lexicon.verbs()[draw.of(words.verbs[frame])]
    chosen = _tense(draw, verb.aspect[0], tense)
    # Whether a subject that another verb has may be that of this verb.
    if chosen is None or not all(_is_among(source.words, entity, verb.subject) for entity in subject):
        return None
    subject = subject or participants.subject(draw, words, verb.subject, free)
    objects = _objects(source, verb, negated, free) if frame in "td" else ()
    recipient = participants.companion(draw, words) if frame == "d" else None
    ground = participants.place(draw, words, verb.place) if frame in "mle" else None
    return Clause(verb.key, subject, objects, recipient, ground=ground, tense=chosen, negated=negated)


def _tense(draw: Draw, aspect: str, asked: Tense | None) -> Tense | None:
    weights = _TENSES[aspect]
    if asked is not None:
        return asked if asked in weights else None
    return draw.weighted(weights)  # type: ignore[return-value]


def _objects(source: MeaningSource, verb: Verb, negated: bool, free: Freedom) -> tuple[Entity, ...]:
    """The object, now and then with another; a negated one may be indefinite (not a book: kein Buch)."""
    stative = verb.is_stative
    freedom = replace(free, indefinite=not stative, counted=free.counted and verb.frame == "t" and not stative)
    first = participants.object_(source.draw, source.words, verb.object, freedom)
    if free.group and not negated and not first.adjectives and verb.frame == "t" and source.draw.chance(0.1):
        second = participants.another(source.draw, source.words, verb.object, first)
        if second is not None and first.number == "sg" and not first.possessor:
            return first, second
    return (first,)


def _is_among(words: SplitVocabulary, entity: Entity, tags: tuple[str, ...]) -> bool:
    if entity.kind == "noun":
        return entity.lexeme in words.nouns(tags)
    if entity.kind == "pronoun" or lexicon.names()[entity.lexeme].type == "PER":
        return "person" in tags or ("PER" in tags and entity.kind == "name")
    return lexicon.names()[entity.lexeme].type in tags


def _location_clause(source: MeaningSource, tense: Tense | None, negated: bool, free: Freedom) -> Clause | None:
    """Somebody or something is somewhere that it can be."""
    draw, words = source.draw, source.words
    where = {
        ("person",): ("building", "inside", "outdoors", "settlement", "LOC", "store", "harbour", "bridge"),
        ("pet", "farm"): ("garden", "house", "field", "forest", "street", "village", "kitchen"),
        ("small",): ("room", "kitchen", "house", "office", "shop", "hotel", "workshop"),
    }
    tags = draw.of(tuple(where))
    if not words.nouns(tags) or not words.nouns(where[tags]):
        return None
    chosen = _tense(draw, "passing", tense)
    if chosen is None:
        return None
    subject = participants.subject(draw, words, tags, replace(free, indefinite=False, group=False))
    return Clause(BE_AT, subject, ground=participants.place(draw, words, where[tags]), tense=chosen, negated=negated)


def is_sensible(clause: Clause) -> bool:
    """Whether nobody meets himself: participants differ, and nobody owns what a language would call his own.

    That somebody did not greet a man is odd in all languages, as it leaves open which; so this is out too. And German
    would run two names into one if Ali gave Anna Emma's book.
    """
    if clause.negated and any(_leaves_open_which(clause.predicate, entity) for entity in clause.object):
        return False
    if any(_UNFIT.get(clause.predicate) in entity.adjectives for entity in clause.object):
        return False
    owner = clause.object[0].possessor if clause.object else None
    if clause.recipient and clause.recipient.kind == "name" and owner is not None and owner.kind == "name":
        return False
    own = [*clause.subject, *clause.object]
    own += [entity for entity in (clause.recipient, clause.ground, clause.companion, clause.beneficiary) if entity]
    lexemes = [entity.lexeme for entity in own]
    lexemes += [entity.possessor.lexeme for entity in own if entity.possessor]
    pronouns = [entity.lexeme for entity in own if entity.kind == "pronoun"]
    if pronouns and clause.object and "@na" in lexicon.verbs()[clause.predicate].sw:
        return clause.object[0].kind != "pronoun"
    return len(set(lexemes)) == len(lexemes) and not {"i", "we"} <= set(pronouns)


def _leaves_open_which(predicate: str, entity: Entity) -> bool:
    """Whether it is some person or animal, or some place that one visits like a person."""
    if entity.kind != "noun" or entity.determiner != "a":
        return False
    visited = lexicon.verbs()[predicate].takes_people and entity.lexeme in lexicon.places()
    return visited or lexicon.nouns()[entity.lexeme].is_animate


SHAPES = {"simple": 0.62, "relative": 0.14, "linked": 0.14, "shared": 0.1}
_INNER_ATTEMPTS = 100


def sample_meaning(source: MeaningSource) -> Meaning:
    """A meaning of any shape."""
    shape = source.draw.weighted(SHAPES)
    if shape == "simple":
        return Meaning((sample_clause(source),))
    if shape == "relative":
        return sample_relative(source)
    return sample_linked(source) if shape == "linked" else sample_shared(source)


def sample_relative(
    source: MeaningSource,
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
    source: MeaningSource,
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


def sample_shared(source: MeaningSource) -> Meaning:
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
    at_place = any(
        entity.lexeme in lexicon.places() or (entity.kind == "name" and lexicon.names()[entity.lexeme].type == "LOC")
        for entity in clause.object
    )
    return not (verb.is_stative or verb.key == "wake_up" or at_place or "sea" in verb.place)


def _with_relative(source: MeaningSource, clause: Clause, negated: bool | None) -> Clause | None:
    """The clause with a relative clause at its subject, or at its object if nothing else follows there."""
    draw, verb = source.draw, lexicon.verbs().get(clause.predicate)
    roles = ["subject"]
    after = (clause.place, clause.companion, clause.beneficiary, clause.manner, clause.recipient)
    # An object with a relative clause is last in English and German: no bracket, nicht or adjunct after it.
    if (
        clause.object
        and verb
        and clause.tense != "future"
        and not clause.negated
        and "~" not in verb.de
        and not any(after)
    ):
        roles.append("object")
    role = draw.of(roles)
    (entity, *others) = clause.subject if role == "subject" else clause.object
    if others or entity.kind != "noun" or entity.possessor or entity.determiner not in ("the", "a"):
        return None
    tense: Tense = "past" if clause.tense == "past" else "present"
    inner = _inner_clause(source, entity, tense, draw.chance(0.15) if negated is None else negated)
    if inner is None or _is_same_verb(clause, inner):
        return None
    outside = {other.lexeme for other in (*clause.subject, *clause.object)}
    outside |= {other.lexeme for other in (clause.ground, clause.recipient, clause.place) if other}
    inside = [*inner.subject, *inner.object, *(other for other in (inner.ground, inner.place) if other)]
    if any(other.lexeme in outside for other in inside):
        return None
    described = replace(entity, relative=inner, adjectives=entity.adjectives[:1])
    if role == "object":
        return replace(clause, object=(described,), time_first=True)
    return replace(clause, subject=(described,))


def _inner_clause(source: MeaningSource, entity: Entity, tense: Tense, negated: bool) -> Clause | None:
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
        if ">" in verb.en or "@auf" in verb.de or "@na" in verb.sw:
            return None
        return replace(clause, subject=participants.subject(draw, words, verb.subject, free))
    if verb.frame == "t":
        free = replace(free, indefinite=not verb.is_stative and not negated)
        return replace(clause, object=(participants.object_(draw, words, verb.object, free),))
    if verb.frame == "m":
        return replace(clause, ground=participants.place(draw, words, verb.place))
    return with_place(source, clause) if verb.place else None
