"""Participants of sampled meanings: who and what, how many, which."""

from dataclasses import dataclass, replace

from residuum.samples import lexicon
from residuum.samples.draws import Draw
from residuum.samples.meanings import NUMERALS, PRONOUNS, Entity, Number
from residuum.samples.vocabulary import Vocabulary

_INDEFINITE_PLACES = ("hotel", "restaurant", "village", "shop", "house", "school", "church", "hospital", "island")


@dataclass(frozen=True)
class Freedom:
    """What a participant may be: a pronoun, indefinite or counted (not under a negation), owned, described."""

    pronoun: bool = True
    group: bool = True
    indefinite: bool = True
    counted: bool = True
    described: bool = True


def subject(draw: Draw, words: Vocabulary, tags: tuple[str, ...], free: Freedom) -> tuple[Entity, ...]:
    """One subject or two, of nouns with these tags, names and pronouns as these allow."""
    options = _options(words, tags, noun=0.5, name=0.38)
    if "person" in tags and free.pronoun:
        options["pronoun"] = 0.1
    if free.group and _may_be_several(words, tags):
        options["group"] = 0.1
    choice = draw.weighted(options)
    if choice == "group":
        return pair(draw, words, tags)
    if choice == "pronoun":
        return (_pronoun(draw),)
    if choice != "noun":
        return (name(draw, words, choice),)
    return (_determined(draw, words, draw.of(words.nouns(tags)), free, as_object=False),)


def object_(draw: Draw, words: Vocabulary, tags: tuple[str, ...], free: Freedom) -> Entity:
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


def pair(draw: Draw, words: Vocabulary, tags: tuple[str, ...]) -> tuple[Entity, Entity]:
    """Two coordinated participants: two names, or two definite nouns."""
    if "person" in tags and draw.chance(0.5) and len(words.names("PER")) > 1:
        first = draw.of(words.names("PER"))
        others = [key for key in words.names("PER") if key != first]
        return _named(first), _named(draw.of(others))
    first = draw.of(words.nouns(tags))
    others = [key for key in words.nouns(tags) if key != first]
    return Entity(first), Entity(draw.of(others))


def another(draw: Draw, words: Vocabulary, tags: tuple[str, ...], beside: Entity) -> Entity | None:
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


def name(draw: Draw, words: Vocabulary, type: str) -> Entity:
    """A name of a type; a person has a family name now and then."""
    surnames = words.names("SUR")
    if type == "PER" and surnames and draw.chance(0.4):
        return _named(draw.of(words.names("PER")), draw.of(surnames))
    return _named(draw.of(words.names(type)))


def place(draw: Draw, words: Vocabulary, tags: tuple[str, ...]) -> Entity:
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


def companion(draw: Draw, words: Vocabulary) -> Entity:
    """Somebody to do something with or for: a name, or a definite person."""
    if draw.chance(0.5) and words.names("PER"):
        return name(draw, words, "PER")
    key = draw.of(words.nouns(("person",)))
    return Entity(key, number="pl" if draw.chance(0.25) else "sg")


def _options(words: Vocabulary, tags: tuple[str, ...], *, noun: float, name: float) -> dict[str, float]:
    """The kinds of lexemes that the tags allow, weighted: nouns, and each type of names."""
    options = {"noun": noun} if words.nouns(tags) else {}
    types = [type for type in ("LOC", "ORG") if type in tags]
    if "person" in tags or "PER" in tags:
        types.append("PER")
    types = [type for type in types if words.names(type)]
    return options | {type: name / len(types) for type in types}


def _may_be_several(words: Vocabulary, tags: tuple[str, ...]) -> bool:
    """Whether two of these nouns go together: Swahili has no concord for things of two classes."""
    keys = words.nouns(tags)
    return len(keys) > 1 and all(lexicon.nouns()[key].is_animate for key in keys)


def _named(key: str, surname: str = "") -> Entity:
    return Entity(key, kind="name", surname=surname, determiner="bare")


def _pronoun(draw: Draw) -> Entity:
    lexeme = draw.of(PRONOUNS)
    return Entity(lexeme, kind="pronoun", number="sg" if lexeme == "i" else "pl", determiner="bare")


def _determined(draw: Draw, words: Vocabulary, key: str, free: Freedom, as_object: bool) -> Entity:
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
        entity = Entity(key, determiner=_determiner(draw, choice), number=_number(draw, choice))
    return _described(draw, words, entity, 0.3 if free.described else 0)


def _determiner(draw: Draw, choice: str) -> str:
    return draw.of(NUMERALS) if choice == "numeral" else choice.split(" ")[0]


def _number(draw: Draw, choice: str) -> Number:
    if choice == "this":
        return "pl" if draw.chance(0.3) else "sg"
    return "pl" if choice in ("the pl", "numeral", "many", "all") else "sg"


def _owner(draw: Draw, words: Vocabulary, but: str = "") -> Entity:
    if draw.chance(0.6) and words.names("PER"):
        return _named(draw.of(words.names("PER")))
    owners = [key for key in words.nouns(("person",)) if key != but]
    return Entity(draw.of(owners))


def _described(draw: Draw, words: Vocabulary, entity: Entity, probability: float) -> Entity:
    """The noun with an adjective, and now and then a colour after it."""
    fitting = words.adjectives(entity.lexeme)
    if not fitting or not draw.chance(probability):
        return entity
    first = draw.of(fitting)
    colours = [key for key in fitting if "colour" in lexicon.adjectives()[key].traits]
    if first not in colours and colours and draw.chance(0.2):
        return replace(entity, adjectives=(first, draw.of(colours)))
    return replace(entity, adjectives=(first,))
