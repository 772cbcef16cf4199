"""Sampling meanings: clauses whose participants fit, with adjuncts, relative clauses and coordination."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from residuum.samples import lexicon, participants
from residuum.samples.draws import Draw, split_of
from residuum.samples.lexicon import Verb
from residuum.samples.meanings import BE, BE_AT, Clause, Entity, Link, Meaning, Tense, cores
from residuum.samples.participants import Freedom
from residuum.samples.vocabulary import Vocabulary

FRAMES = {"t": 0.42, "i": 0.16, "m": 0.1, "l": 0.05, "e": 0.04, "d": 0.08, BE: 0.1, BE_AT: 0.05}
SHAPES = {"simple": 0.62, "relative": 0.14, "linked": 0.14, "shared": 0.1}

TEMPORARY = frozenset(
    [
        "happy",
        "sad",
        "angry",
        "hungry",
        "sick",
        "healthy",
        "tired",
        "clean",
        "dirty",
        "empty",
        "expensive",
        "cheap",
        "ripe",
        "hot",
        "cold",
        "dark",
    ]
)
UNGRADED = frozenset(
    {
        "red",
        "white",
        "black",
        "green",
        "blue",
        "yellow",
        "brown",
        "round",
        "empty",
        "ripe",
        "rotten",
        "healthy",
        "modern",
    }
)
_MOMENTARY = frozenset({"immediately", "suddenly", "early", "again"})
_TENSES = {
    "once": {"past": 0.6, "future": 0.4},
    "stat": {"past": 0.5, "present": 0.5},
    "dyn": {"past": 0.45, "present": 0.3, "future": 0.25},
    "lasting": {"past": 0.4, "present": 0.6},
    "temporary": {"past": 0.45, "present": 0.4, "future": 0.15},
}
_COMPANIED = frozenset({"go", "travel", "return", "swim", "eat", "work", "sing", "pray", "play", "come"})
_BENEFICIAL = frozenset({"buy", "write", "cook", "sew", "draw", "build"})
_RIDDEN = ("car", "bus", "train", "bicycle", "motorcycle", "ship", "plane")
_RIDES = frozenset({"travel", "return", "come"})
_ATTEMPTS = 10_000
_INNER_ATTEMPTS = 100
ANY = Freedom()


@dataclass(frozen=True)
class Source:
    """Where meanings come from: choices, the lexemes, and the split that every clause must belong to."""

    draw: Draw
    words: Vocabulary
    split: str

    def accepts(self, meaning: Meaning) -> bool:
        """Whether all that a meaning says belongs to the split."""
        return all(split_of(core) == self.split for core in cores(meaning))


def sample_meaning(source: Source) -> Meaning:
    """A meaning of any shape."""
    shape = source.draw.weighted(SHAPES)
    if shape == "simple":
        return Meaning((sample_clause(source),))
    if shape == "relative":
        return sample_relative(source)
    return sample_linked(source) if shape == "linked" else sample_shared(source)


def sample_clause(
    source: Source,
    *,
    frames: dict[str, float] = FRAMES,
    tense: Tense | None = None,
    negated: bool | None = None,
    adjuncts: int = 2,
    free: Freedom = ANY,
    subject: tuple[Entity, ...] = (),
    fits: Callable[[Clause], bool] = lambda clause: True,
) -> Clause:
    """A clause of one of the frames; a tense, a polarity, a subject and any condition can be asked for."""
    for _ in range(_ATTEMPTS):
        frame = source.draw.weighted(frames)
        negation = source.draw.chance(0.2) if negated is None else negated
        clause = _bare_clause(source, frame, tense, negation, free, subject)
        if clause is None or not is_sensible(clause) or not source.accepts(Meaning((clause,))):
            continue
        clause = _with_adjuncts(source, clause, adjuncts)
        if fits(clause):
            return clause
    raise AssertionError("no clause fits; the tables allow too little")


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
    first = sample_clause(source, tense=tenses and tenses[0], negated=polarities[0], adjuncts=1)
    second = sample_clause(
        source,
        tense=tenses[1] if tenses else first.tense,
        negated=polarities[1],
        adjuncts=1,
        fits=lambda clause: _differ(first, clause),
    )
    link: Link = "and" if polarities[0] == polarities[1] else "but"
    return Meaning((first, replace(second, time="", time_first=False)), link)


def sample_shared(source: Source) -> Meaning:
    """A motion and what is done then, with one subject."""
    first = sample_clause(source, frames={"m": 0.7, "e": 0.3}, negated=False, adjuncts=1)
    time = "" if first.time in times_of("habit") else first.time
    first = replace(first, frequency="", manner="", means="", time=time, time_first=bool(time))
    second = sample_clause(
        source,
        frames={"t": 0.8, "i": 0.2},
        tense=first.tense,
        negated=False,
        adjuncts=0,
        subject=first.subject,
        fits=lambda clause: not lexicon.verbs()[clause.predicate].is_stative,
    )
    return Meaning((first, replace(second, subject=())), "and", shared_subject=True)


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
    freedom = replace(free, indefinite=not stative, counted=free.counted and verb.frame == "t")
    first = participants.object_(source.draw, source.words, verb.object, freedom)
    if free.group and not negated and not first.adjectives and verb.frame == "t" and source.draw.chance(0.1):
        second = participants.another(source.draw, source.words, verb.object, first)
        if second is not None and first.number == "sg" and not first.possessor:
            return first, second
    return (first,)


def _quality_clause(source: Source, tense: Tense | None, negated: bool, free: Freedom) -> Clause | None:
    draw, words = source.draw, source.words
    quality = lexicon.adjectives()[draw.of(words.qualities)]
    temporary = quality.key in TEMPORARY
    chosen = _tense(draw, "temporary" if temporary else "lasting", tense)
    if chosen is None:
        return None
    subject = participants.subject(draw, words, quality.applies, replace(free, described=False, indefinite=False))
    very = not negated and quality.key not in UNGRADED and draw.chance(0.2)
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
    chosen = _tense(draw, "temporary", tense)
    if chosen is None:
        return None
    subject = participants.subject(draw, words, tags, replace(free, indefinite=False, group=False))
    return Clause(BE_AT, subject, ground=participants.place(draw, words, where[tags]), tense=chosen, negated=negated)


def is_sensible(clause: Clause) -> bool:
    """Whether nobody meets himself: participants differ, and nobody owns what a language would call his own.

    That somebody did not greet a man is odd in all languages, as it leaves open which; so this is out too.
    """
    if clause.negated and any(_is_some_animate(entity) for entity in clause.object):
        return False
    own = [*clause.subject, *clause.object]
    own += [entity for entity in (clause.recipient, clause.ground) if entity]
    lexemes = [entity.lexeme for entity in own]
    lexemes += [entity.possessor.lexeme for entity in own if entity.possessor]
    pronouns = [entity.lexeme for entity in own if entity.kind == "pronoun"]
    if pronouns and clause.object and "@na" in lexicon.verbs()[clause.predicate].sw:
        return clause.object[0].kind != "pronoun"
    return len(set(lexemes)) == len(lexemes) and not {"i", "we"} <= set(pronouns)


def _is_some_animate(entity: Entity) -> bool:
    return entity.kind == "noun" and entity.determiner == "a" and lexicon.nouns()[entity.lexeme].is_animate


def _with_adjuncts(source: Source, clause: Clause, at_most: int) -> Clause:
    """The clause with at most so many adjuncts that fit it."""
    draw = source.draw
    additions = [_with_time, _with_place, _with_manner, _with_companion]
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
        (("time", _with_time), ("place", _with_place), ("manner", _with_manner), ("companion", _with_companion))
    )
    return clause if getattr(clause, role) else add(source, clause)


def _with_time(source: Source, clause: Clause) -> Clause:
    """With a time of the tense, or as a habit where the verb may be one."""
    draw = source.draw
    if clause.predicate == BE and clause.quality not in TEMPORARY:
        return clause
    if clause.predicate not in (BE, BE_AT):
        verb = lexicon.verbs()[clause.predicate]
        if _may_be_habit(clause) and draw.chance(0.5):
            if draw.chance(0.7):
                return replace(clause, frequency=draw.of(source.words.adverbs("frequency")))
            return replace(clause, time=draw.of(times_of("habit")), time_first=draw.chance(0.4))
        if verb.is_stative:
            return clause
    return replace(clause, time=draw.of(times_of(clause.tense)), time_first=draw.chance(0.4))


def _may_be_habit(clause: Clause) -> bool:
    indefinite = any(entity.determiner not in ("the", "bare", "this") for entity in clause.object)
    habitual = "hab" in lexicon.verbs()[clause.predicate].aspect
    return habitual and clause.tense == "present" and not clause.negated and not indefinite


@cache
def times_of(tense: str) -> tuple[str, ...]:
    """The times that fit a tense."""
    return tuple(time.key for time in lexicon.times().values() if tense in time.tenses)


def _with_place(source: Source, clause: Clause) -> Clause:
    if clause.ground or clause.predicate in (BE, BE_AT):
        return clause
    tags = lexicon.verbs()[clause.predicate].place
    if not tags or not (source.words.nouns(tags) or "LOC" in tags or "ORG" in tags):
        return clause
    where = participants.place(source.draw, source.words, tags)
    taken = [entity.lexeme for entity in (*clause.subject, *clause.object)]
    return clause if where.lexeme in taken or where.possessor else replace(clause, place=where)


def _with_manner(source: Source, clause: Clause) -> Clause:
    if clause.negated or clause.frequency or clause.predicate in (BE, BE_AT):
        return clause
    several = len(clause.subject) > 1 or any(entity.number == "pl" for entity in clause.subject)
    kind = "together" if several and source.draw.chance(0.5) else "manner"
    fitting = source.words.adverbs(kind, clause.predicate)
    if clause.time:
        fitting = tuple(key for key in fitting if key not in _MOMENTARY)
    return replace(clause, manner=source.draw.of(fitting)) if fitting else clause


def _with_companion(source: Source, clause: Clause) -> Clause:
    """With somebody, for somebody, or by some means of transport: whichever fits the verb."""
    draw, words = source.draw, source.words
    rides = words.nouns(_RIDDEN)
    if clause.predicate in _RIDES and rides and draw.chance(0.6):
        return replace(clause, means=draw.of(rides))
    role = "companion" if clause.predicate in _COMPANIED else "beneficiary"
    if role == "beneficiary" and clause.predicate not in _BENEFICIAL:
        return clause
    other = participants.companion(draw, words)
    taken = [entity.lexeme for entity in (*clause.subject, *clause.object)]
    plain = clause.manner != "together" and clause.subject[0].kind != "pronoun"
    return replace(clause, **{role: other}) if plain and other.lexeme not in taken else clause


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
    """An object with a relative clause is last in English and German: no bracket and no adjunct after it."""
    verb = lexicon.verbs()[clause.predicate]
    after = (clause.place, clause.companion, clause.beneficiary, clause.manner, clause.recipient)
    return clause.tense != "future" and "~" not in verb.de and not any(after)


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
    return _with_place(source, clause) if verb.place else None


def _has_preposition(verb: Verb) -> bool:
    return ">" in verb.en or "@auf" in verb.de or "@na" in verb.sw


def _shares_lexeme(clause: Clause, inner: Clause) -> bool:
    outer = {entity.lexeme for entity in (*clause.subject, *clause.object)}
    outer |= {entity.lexeme for entity in (clause.ground, clause.recipient, clause.place) if entity}
    within = [*inner.subject, *inner.object, *(entity for entity in (inner.ground, inner.place) if entity)]
    return any(entity.lexeme in outer for entity in within) or clause.predicate == inner.predicate


def _differ(first: Clause, second: Clause) -> bool:
    """Whether two clauses have other subjects and tell different things."""
    subjects = {entity.lexeme for entity in first.subject}
    return first.predicate != second.predicate and subjects.isdisjoint(
        entity.lexeme for entity in (*second.subject, *second.object)
    )


def _may_act(source: Source, subject: tuple[Entity, ...], verb: Verb) -> bool:
    """Whether a subject that another verb has may be that of this verb."""
    return all(_is_among(source.words, entity, verb.subject) for entity in subject)


def _is_among(words: Vocabulary, entity: Entity, tags: tuple[str, ...]) -> bool:
    if entity.kind == "noun":
        return entity.lexeme in words.nouns(tags)
    if entity.kind == "pronoun" or lexicon.names()[entity.lexeme].type == "PER":
        return "person" in tags or ("PER" in tags and entity.kind == "name")
    return lexicon.names()[entity.lexeme].type in tags
