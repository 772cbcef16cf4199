"""Participants of sampled meanings (who, what, how many, which) and adjuncts (when, where, how, with whom)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from residuum.samples import lexicon
from residuum.samples.lexicon import SplitVocabulary
from residuum.samples.meanings import BE, BE_AT, NUMERALS, PRONOUNS, Clause, Draw, Entity, MeaningSource, Number

_INDEFINITE_PLACES = ("hotel", "restaurant", "village", "shop", "house", "school", "church", "hospital", "island")


@dataclass(frozen=True)
class Freedom:
    """What a participant may be: a pronoun, indefinite or counted (not under a negation), owned, described."""

    pronoun: bool = True
    group: bool = True
    indefinite: bool = True
    counted: bool = True
    described: bool = True


def subject(draw: Draw, words: SplitVocabulary, tags: tuple[str, ...], free: Freedom) -> tuple[Entity, ...]:
    """One subject or two, of nouns with these tags, names and pronouns as these allow."""
    options = _options(words, tags, noun=0.5, name=0.38)
    if "person" in tags and free.pronoun:
        options["pronoun"] = 0.1
    keys = words.nouns(tags)
    # Swahili has no concord for things of two classes.
    if free.group and len(keys) > 1 and all(lexicon.nouns()[key].is_animate for key in keys):
        options["group"] = 0.1
    choice = draw.weighted(options)
    if choice == "group":
        return pair(draw, words, tags)
    if choice == "pronoun":
        return (_pronoun(draw),)
    if choice != "noun":
        return (name(draw, words, choice),)
    return (_determined(draw, words, draw.of(keys), free, as_object=False),)


def object_(draw: Draw, words: SplitVocabulary, tags: tuple[str, ...], free: Freedom) -> Entity:
    """An object of nouns with these tags, names and pronouns as these allow."""
    options = _options(words, tags, noun=0.55, name=0.37)
    if "person" in tags and free.pronoun:
        options["pronoun"] = 0.08
    choice = draw.weighted(options)
    if choice == "pronoun":
        return _pronoun(draw)
    if choice != "noun":
        return name(draw, words, choice)
    return _determined(draw, words, draw.of(words.nouns(tags)), free, as_object=True)


def pair(draw: Draw, words: SplitVocabulary, tags: tuple[str, ...]) -> tuple[Entity, Entity]:
    """Two coordinated participants: two names, or two definite nouns."""
    if "person" in tags and draw.chance(0.5) and len(words.names("PER")) > 1:
        first = draw.of(words.names("PER"))
        others = [key for key in words.names("PER") if key != first]
        return _named(first), _named(draw.of(others))
    first = draw.of(words.nouns(tags))
    others = [key for key in words.nouns(tags) if key != first]
    return Entity(first), Entity(draw.of(others))


def another(draw: Draw, words: SplitVocabulary, tags: tuple[str, ...], beside: Entity) -> Entity | None:
    """A second object beside one, with the same kind of article; None if there is none."""
    related = {beside.lexeme, lexicon.nouns()[beside.lexeme].isa} if beside.kind == "noun" else set()
    keys = [key for key in words.nouns(tags) if key not in related and lexicon.nouns()[key].isa != beside.lexeme]
    if beside.kind != "noun" or beside.determiner not in ("the", "a", "bare") or not keys:
        return None
    key = draw.of(keys)
    determiner = "bare" if lexicon.nouns()[key].is_mass and beside.determiner != "the" else beside.determiner
    if determiner == "bare" and not lexicon.nouns()[key].is_mass:
        determiner = "a"
    return Entity(key, determiner=determiner)


def name(draw: Draw, words: SplitVocabulary, type: str) -> Entity:
    """A name of a type; a person has a family name now and then."""
    surnames = words.names("SUR")
    if type == "PER" and surnames and draw.chance(0.4):
        return _named(draw.of(words.names("PER")), draw.of(surnames))
    return _named(draw.of(words.names(type)))


def place(draw: Draw, words: SplitVocabulary, tags: tuple[str, ...]) -> Entity:
    """A place of these tags: mostly plain and definite."""
    options = _options(words, tags, noun=0.55, name=0.45)
    choice = draw.weighted(options)
    if choice != "noun":
        return name(draw, words, choice)
    key = draw.of(words.nouns(tags))
    if key in _INDEFINITE_PLACES and draw.chance(0.12):
        return _described(draw, words, Entity(key, determiner="a"), 0.5)
    if "owned" in lexicon.nouns()[key].tags and draw.chance(0.08):
        return replace(Entity(key), possessor=_owner(draw, words))
    return _described(draw, words, Entity(key), 0.12)


def companion(draw: Draw, words: SplitVocabulary) -> Entity:
    """Somebody to do something with or for: a name, or a definite person."""
    if draw.chance(0.5) and words.names("PER"):
        return name(draw, words, "PER")
    key = draw.of(words.nouns(("person",)))
    return Entity(key, number="pl" if draw.chance(0.25) else "sg")


def _options(words: SplitVocabulary, tags: tuple[str, ...], *, noun: float, name: float) -> dict[str, float]:
    """The kinds of lexemes that the tags allow, weighted: nouns, and each type of names."""
    options = {"noun": noun} if words.nouns(tags) else {}
    types = [type for type in ("LOC", "ORG") if type in tags]
    if "person" in tags or "PER" in tags:
        types.append("PER")
    types = [type for type in types if words.names(type)]
    return options | {type: name / len(types) for type in types}


def _named(key: str, surname: str = "") -> Entity:
    return Entity(key, kind="name", surname=surname, determiner="bare")


def _pronoun(draw: Draw) -> Entity:
    lexeme = draw.of(PRONOUNS)
    return Entity(lexeme, kind="pronoun", number="sg" if lexeme == "i" else "pl", determiner="bare")


def _determined(draw: Draw, words: SplitVocabulary, key: str, free: Freedom, as_object: bool) -> Entity:
    """A noun with an article, a number, a quantity or an owner."""
    noun = lexicon.nouns()[key]
    if noun.is_mass:
        determiner = "bare" if as_object and draw.chance(0.7) else "the"
        return _described(draw, words, Entity(key, determiner=determiner), 0.25 if free.described else 0)
    weights = {"the": 0.5, "the pl": 0.15, "this": 0.06}
    if free.indefinite:
        weights["a"] = 0.5 if as_object else 0.15
    if free.counted:
        weights |= {"numeral": 0.06, "many": 0.03, "all": 0.04}
    if free.counted and noun.is_human and not as_object:
        weights["every"] = 0.02
    if "owned" in noun.tags:
        weights["owned"] = 0.12
    choice = draw.weighted(weights)
    if choice == "owned":
        entity = replace(Entity(key), possessor=_owner(draw, words, but=key))
    else:
        determiner = draw.of(NUMERALS) if choice == "numeral" else choice.split(" ")[0]
        entity = Entity(key, determiner=determiner, number=_number(draw, choice))
    return _described(draw, words, entity, 0.3 if free.described else 0)


def _number(draw: Draw, choice: str) -> Number:
    if choice == "this":
        return "pl" if draw.chance(0.3) else "sg"
    return "pl" if choice in ("the pl", "numeral", "many", "all") else "sg"


def _owner(draw: Draw, words: SplitVocabulary, but: str = "") -> Entity:
    if draw.chance(0.6) and words.names("PER"):
        return _named(draw.of(words.names("PER")))
    owners = [key for key in words.nouns(("person",)) if key != but]
    return Entity(draw.of(owners))


def _described(draw: Draw, words: SplitVocabulary, entity: Entity, probability: float) -> Entity:
    """The noun with an adjective, and now and then a colour after it."""
    fitting = words.adjectives(entity.lexeme)
    if not fitting or not draw.chance(probability):
        return entity
    first = draw.of(fitting)
    colours = [key for key in fitting if "colour" in lexicon.adjectives()[key].traits]
    if first not in colours and colours and draw.chance(0.2):
        return replace(entity, adjectives=(first, draw.of(colours)))
    return replace(entity, adjectives=(first,))


_FAR = ("city", "village")


def with_adjuncts(source: MeaningSource, clause: Clause, at_most: int) -> Clause:
    """The clause with at most so many adjuncts that fit it."""
    draw = source.draw
    may_be_habit = (  # in the present, by and to somebody or something definite
        clause.predicate not in (BE, BE_AT)
        and clause.tense == "present"
        and not clause.negated
        and all(entity.determiner in ("the", "bare", "this") for entity in (*clause.subject, *clause.object))
        and "hab" in lexicon.verbs()[clause.predicate].aspect
    )
    if at_most and may_be_habit and draw.chance(0.4):
        at_most -= 1
        if draw.chance(0.7):
            clause = replace(clause, frequency=draw.of(source.words.adverbs("frequency")))
        else:
            clause = replace(clause, time=draw.of(times_of("habit")), time_first=draw.chance(0.4))
    additions = [_with_time, with_place, _with_manner, _with_companion]
    added = 0
    for add in additions:
        if added < at_most and draw.chance(0.4):
            more = add(source, clause)
            added += more != clause
            clause = more
    return clause


def with_something_more(source: MeaningSource, clause: Clause) -> Clause:
    """The clause with one more adjunct, or as it was if the one that was drawn does not fit or is there already."""
    role, add = source.draw.of(
        (("time", _with_time), ("place", with_place), ("manner", _with_manner), ("companion", _with_companion))
    )
    return clause if getattr(clause, role) else add(source, clause)


@cache
def times_of(tense: str) -> tuple[str, ...]:
    """The times that fit a tense."""
    return tuple(time.key for time in lexicon.times().values() if tense in time.tenses)


def _with_time(source: MeaningSource, clause: Clause) -> Clause:
    """With a time of the tense, where one makes sense and none is said, nor a word for the moment."""
    if clause.time or clause.frequency or (bool(clause.manner) and lexicon.adverbs()[clause.manner].kind == "moment"):
        return clause
    if clause.predicate == BE and "passing" not in lexicon.adjectives()[clause.quality].traits:
        return clause
    if clause.predicate not in (BE, BE_AT) and lexicon.verbs()[clause.predicate].is_stative:
        return clause
    return replace(clause, time=source.draw.of(times_of(clause.tense)), time_first=source.draw.chance(0.4))


def with_place(source: MeaningSource, clause: Clause) -> Clause:
    """With a place where the verb is at home, unless it has one."""
    if clause.ground or clause.predicate in (BE, BE_AT):
        return clause
    tags = lexicon.verbs()[clause.predicate].place
    if not tags or not (source.words.nouns(tags) or "LOC" in tags or "ORG" in tags):
        return clause
    where = place(source.draw, source.words, tags)
    taken = [entity.lexeme for entity in (*clause.subject, *clause.object)]
    return clause if where.lexeme in taken or where.possessor else replace(clause, place=where)


def _with_manner(source: MeaningSource, clause: Clause) -> Clause:
    """With an adverb: of manner, of the moment if no other time is said, or together for several with nobody else."""
    if clause.negated or clause.frequency or clause.predicate in (BE, BE_AT):
        return clause
    several = not clause.companion and (len(clause.subject) > 1 or any(e.number == "pl" for e in clause.subject))
    at_a_moment = not clause.time and clause.tense != "present"
    kinds = ["manner"] + ["moment"] * at_a_moment + ["together"] * several
    fitting = [key for kind in kinds for key in source.words.adverbs(kind, clause.predicate)]
    return replace(clause, manner=source.draw.of(fitting)) if fitting else clause


def _with_companion(source: MeaningSource, clause: Clause) -> Clause:
    """With somebody, for somebody, or by some vehicle: whichever fits the verb."""
    if clause.companion or clause.beneficiary or clause.means:
        return clause
    draw, words = source.draw, source.words
    aspect = lexicon.verbs()[clause.predicate].aspect if clause.predicate not in (BE, BE_AT) else ()
    goal, rides = clause.ground, ()
    if "by" in aspect and goal and not goal.possessor:  # by any vehicle to a city that has a name, by land to another
        if goal.kind == "name":
            rides = words.nouns(("ridden",))
        elif goal.lexeme in _FAR:
            rides = words.nouns(("car", "bus", "bicycle", "motorcycle"))
    if rides and draw.chance(0.6):
        return replace(clause, means=draw.of(rides))
    role = "companion" if "with" in aspect else "beneficiary" if "for" in aspect else ""
    if not role or clause.manner == "together" or clause.subject[0].kind == "pronoun":
        return clause
    other = companion(draw, words)
    taken = [entity.lexeme for entity in (*clause.subject, *clause.object)]
    return clause if other.lexeme in taken else replace(clause, **{role: other})
