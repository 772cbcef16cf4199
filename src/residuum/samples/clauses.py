"""Sampling clauses whose participants fit the predicate and each other."""

from collections.abc import Callable
from dataclasses import replace

from residuum.samples import lexicon, participants
from residuum.samples.adjuncts import with_adjuncts
from residuum.samples.draws import Draw
from residuum.samples.lexicon import Verb
from residuum.samples.meanings import BE, BE_AT, Clause, Entity, Meaning, Tense
from residuum.samples.participants import Freedom
from residuum.samples.sources import Source
from residuum.samples.vocabulary import Vocabulary

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
    source: Source,
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
    source: Source,
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
    source: Source,
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
        return _quality_clause(source, tense, negated, free)
    if frame == BE_AT:
        return _location_clause(source, tense, negated, free)
    if not words.verbs.get(frame):
        return None
    verb = lexicon.verbs()[draw.of(words.verbs[frame])]
    chosen = _tense(draw, verb.aspect[0], tense)
    if chosen is None or not _may_act(source, subject, verb):
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


def _objects(source: Source, verb: Verb, negated: bool, free: Freedom) -> tuple[Entity, ...]:
    """The object, now and then with another; a negated one may be indefinite (not a book: kein Buch)."""
    stative = verb.is_stative
    freedom = replace(free, indefinite=not stative, counted=free.counted and verb.frame == "t" and not stative)
    first = participants.object_(source.draw, source.words, verb.object, freedom)
    if free.group and not negated and not first.adjectives and verb.frame == "t" and source.draw.chance(0.1):
        second = participants.another(source.draw, source.words, verb.object, first)
        if second is not None and first.number == "sg" and not first.possessor:
            return first, second
    return (first,)


def _may_act(source: Source, subject: tuple[Entity, ...], verb: Verb) -> bool:
    """Whether a subject that another verb has may be that of this verb."""
    return all(_is_among(source.words, entity, verb.subject) for entity in subject)


def _is_among(words: Vocabulary, entity: Entity, tags: tuple[str, ...]) -> bool:
    if entity.kind == "noun":
        return entity.lexeme in words.nouns(tags)
    if entity.kind == "pronoun" or lexicon.names()[entity.lexeme].type == "PER":
        return "person" in tags or ("PER" in tags and entity.kind == "name")
    return lexicon.names()[entity.lexeme].type in tags


def _quality_clause(source: Source, tense: Tense | None, negated: bool, free: Freedom) -> Clause | None:
    draw, words = source.draw, source.words
    quality = lexicon.adjectives()[draw.of(words.qualities)]
    chosen = _tense(draw, "passing" if "passing" in quality.traits else "lasting", tense)
    if chosen is None:
        return None
    subject = participants.subject(draw, words, quality.applies, replace(free, described=False, indefinite=False))
    very = not negated and "ungraded" not in quality.traits and draw.chance(0.2)
    return Clause(BE, subject, quality=quality.key, very=very, tense=chosen, negated=negated)


def _location_clause(source: Source, tense: Tense | None, negated: bool, free: Freedom) -> Clause | None:
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
    if clause.recipient and clause.recipient.kind == "name" and _has_named_owner(clause.object[0]):
        return False
    own = [*clause.subject, *clause.object]
    own += [entity for entity in (clause.recipient, clause.ground, clause.companion, clause.beneficiary) if entity]
    lexemes = [entity.lexeme for entity in own]
    lexemes += [entity.possessor.lexeme for entity in own if entity.possessor]
    pronouns = [entity.lexeme for entity in own if entity.kind == "pronoun"]
    if pronouns and clause.object and "@na" in lexicon.verbs()[clause.predicate].sw:
        return clause.object[0].kind != "pronoun"
    return len(set(lexemes)) == len(lexemes) and not {"i", "we"} <= set(pronouns)


def _has_named_owner(entity: Entity) -> bool:
    return entity.possessor is not None and entity.possessor.kind == "name"


def _leaves_open_which(predicate: str, entity: Entity) -> bool:
    """Whether it is some person or animal, or some place that one visits like a person."""
    if entity.kind != "noun" or entity.determiner != "a":
        return False
    visited = lexicon.verbs()[predicate].takes_people and entity.lexeme in lexicon.places()
    return visited or lexicon.nouns()[entity.lexeme].is_animate
