"""Swahili forms: the concords of the noun classes, and verbs built of prefixes and a stem.

Cells: a noun is its singular, plural and their classes (`kitabu vitabu 7/8`; people and animals have the concords
of 1/2 whatever their form); a verb is its stem, with `!` if it keeps ku- for its stress, before `+` and a noun if
the two make one verb, then `@na` or `@hadi` for a preposition; an adjective is a stem with concord (`-kubwa`),
a word without (`=safi`), a noun after the -a of (`a:kijani:7`) or after -enye, having (`enye:njaa:9`), or a pair of
singular and plural.
"""

from dataclasses import dataclass
from functools import cache

from residuum.samples import lexicon

_PLURAL_CLASSES = (2, 4, 6, 8, 10)
_SUBJECTS = {1: "a", 2: "wa", 3: "u", 4: "i", 5: "li", 6: "ya", 7: "ki", 8: "vi", 9: "i", 10: "zi", 11: "u", 14: "u"}
_OBJECTS = _SUBJECTS | {1: "m"}
# the vowel of reference, as in ambaye, ambacho
_REFERENCE = {
    1: "ye",
    2: "o",
    3: "o",
    4: "yo",
    5: "lo",
    6: "yo",
    7: "cho",
    8: "vyo",
    9: "yo",
    10: "zo",
    11: "o",
    14: "o",
}
_OF = {1: "wa", 2: "wa", 3: "wa", 4: "ya", 5: "la", 6: "ya", 7: "cha", 8: "vya", 9: "ya", 10: "za", 11: "wa", 14: "wa"}
_HAVING = {
    1: "mwenye",
    2: "wenye",
    3: "wenye",
    4: "yenye",
    5: "lenye",
    6: "yenye",
    7: "chenye",
    8: "vyenye",
    9: "yenye",
    10: "zenye",
    11: "wenye",
    14: "wenye",
}
_THIS = {
    1: "huyu",
    2: "hawa",
    3: "huu",
    4: "hii",
    5: "hili",
    6: "haya",
    7: "hiki",
    8: "hivi",
    9: "hii",
    10: "hizi",
    11: "huu",
    14: "huu",
}
_ADJECTIVE = {1: "m", 2: "wa", 3: "m", 4: "mi", 5: "", 6: "ma", 7: "ki", 8: "vi", 9: "n", 10: "n", 11: "m", 14: "m"}
_BEFORE_E = {
    1: "mw",
    2: "w",
    3: "mw",
    4: "my",
    5: "j",
    6: "m",
    7: "ch",
    8: "vy",
    9: "ny",
    10: "ny",
    11: "mw",
    14: "mw",
}
_NUMERALS = {"two": "wili", "three": "tatu", "four": "nne", "five": "tano"}
_COUNTED = {2: "wa", 4: "mi", 6: "ma", 8: "vi", 10: ""}
_MANY = {2: "wengi", 4: "mingi", 6: "mengi", 8: "vingi", 10: "nyingi"}
_ALL = {2: "wote", 4: "yote", 6: "yote", 8: "vyote", 10: "zote"}
_PERSONS = {"i": "ni", "we": "tu"}
_TENSES = {"past": "li", "present": "na", "future": "ta"}


@dataclass(frozen=True)
class SwahiliNounForms:
    """A noun: its forms and classes by number."""

    forms: dict[str, str]
    classes: dict[str, int]


@dataclass(frozen=True)
class SwahiliVerbStem:
    """A verb: its stem, whether it is a short one that keeps ku-, the noun that belongs to it, its preposition."""

    stem: str
    is_short: bool
    noun: str
    preposition: str


@cache
def noun_forms(key: str) -> SwahiliNounForms:
    """All forms of a noun."""
    singular, plural, classes = lexicon.nouns()[key].sw.split()
    first, _, second = classes.partition("/")
    forms, by_number = {"sg": singular}, {"sg": int(first)}
    if plural != "-":
        forms["pl"], by_number["pl"] = plural, int(second)
    return SwahiliNounForms(forms, by_number)


@cache
def verb_stem(key: str) -> SwahiliVerbStem:
    """The parts of a verb."""
    cell, *preposition = lexicon.verbs()[key].sw.split()
    stem, _, noun = cell.partition("+")
    return SwahiliVerbStem(stem.rstrip("!"), stem.endswith("!"), noun, preposition[0][1:] if preposition else "")


def is_plural(noun_class: int) -> bool:
    """Whether a class is one of plurals."""
    return noun_class in _PLURAL_CLASSES


def finite_form(verb: SwahiliVerbStem, tense: str, negated: bool, subject: int | str, object_: int | str | None) -> str:
    """A verb form: alinunua, hakununua, anamwona; subject and object are classes, or `i` and `we`."""
    object_prefix = _object_prefix(verb.stem, object_) if object_ is not None else ""
    kept = "ku" if verb.is_short and not object_prefix else ""
    if not negated:
        return subject_prefix(subject) + _TENSES[tense] + kept + object_prefix + verb.stem
    start = negative_prefix(subject)
    if tense == "present":
        final = verb.stem[:-1] + "i" if verb.stem.endswith("a") else verb.stem
        return start + object_prefix + final
    if tense == "past":
        return start + "ku" + object_prefix + verb.stem
    return start + "ta" + kept + object_prefix + verb.stem


def infinitive(verb: SwahiliVerbStem, object_: int | str | None) -> str:
    """The infinitive: kununua, kumwona, kwenda."""
    if verb.stem == "enda":
        return "kwenda"
    return "ku" + (_object_prefix(verb.stem, object_) if object_ is not None else "") + verb.stem


def subject_prefix(subject: int | str) -> str:
    """The concord of a subject: a class, or the first person."""
    return _PERSONS[subject] if isinstance(subject, str) else _SUBJECTS[subject]


def negative_prefix(subject: int | str) -> str:
    """The negative concord of a subject: si- for I, ha- before the others (and for ha + a)."""
    if subject == "i":
        return "si"
    return "ha" if subject == 1 else "ha" + subject_prefix(subject)


def adjective_form(stem: str, noun_class: int) -> str:
    """An adjective with its concord: mkubwa, ndogo, jekundu, mpya."""
    if stem[0] == "e":
        if stem == "ema" and noun_class in (9, 10):
            return "njema"
        return _BEFORE_E[noun_class] + stem
    if stem == "pya" and noun_class in (5, 9, 10):
        return "jipya" if noun_class == 5 else "mpya"
    prefix = _ADJECTIVE[noun_class]
    if stem[0] == "a" and prefix == "m":
        return "mw" + stem
    if prefix == "n" and stem[0] == "r":
        return "nd" + stem[1:]
    if prefix == "n":  # which only some consonants show
        prefix = {"b": "m", "v": "m", "d": "n", "g": "n", "z": "n"}.get(stem[0], "")
    return prefix + stem


def numeral_form(numeral: str, noun_class: int) -> str:
    """A numeral with its concord: wawili, viwili, mbili."""
    if noun_class == 10 and numeral == "two":
        return "mbili"
    return _COUNTED[noun_class] + _NUMERALS[numeral]


def numeral_lemma(numeral: str) -> str:
    """The stem of a numeral."""
    return _NUMERALS[numeral]


def one_form(noun_class: int) -> str:
    """One, for a class of singulars: mmoja, kimoja, moja."""
    return {5: "", 9: "", 7: "ki"}.get(noun_class, "m") + "moja"


def many_form(noun_class: int) -> str:
    """Many, for a class of plurals."""
    return _MANY[noun_class]


def all_form(noun_class: int) -> str:
    """All, for a class of plurals."""
    return _ALL[noun_class]


def this_form(noun_class: int) -> str:
    """This or these."""
    return _THIS[noun_class]


def of_form(noun_class: int) -> str:
    """The -a of what is had: kitabu cha, watoto wa."""
    return _OF[noun_class]


def having_form(noun_class: int) -> str:
    """Having, before what is had: mwenye furaha."""
    return _HAVING[noun_class]


def relative_form(noun_class: int) -> str:
    """The relative pronoun: ambaye, ambacho."""
    return "amba" + _REFERENCE[noun_class]


def located_form(subject: int | str) -> str:
    """To be somewhere, in the present: yuko, kiko."""
    return ("yu" if subject == 1 else subject_prefix(subject)) + "ko"


def not_located_form(subject: int | str) -> str:
    """Not to be somewhere, in the present: hayuko, hakiko."""
    return "hayuko" if subject == 1 else negative_prefix(subject) + "ko"


def with_form(subject: int | str) -> str:
    """To have (be with), in the present: ana, kina."""
    return subject_prefix(subject) + "na"


def without_form(subject: int | str) -> str:
    """Not to have, in the present: hana, hakina."""
    return negative_prefix(subject) + "na"


def _object_prefix(stem: str, object_: int | str) -> str:
    prefix = _PERSONS[object_] if isinstance(object_, str) else _OBJECTS[object_]
    if prefix != "m" or stem[0] not in "aeiou":
        return prefix
    return "mu" if stem[0] == "u" else "mw"
