"""Turkish forms: suffixes with vowel harmony, buffer letters and voicing.

Suffixes are written with A (a, e), I (ı, i, u, ü), D (d, t), and a buffer letter in brackets that only follows a
vowel. Cells: a noun is its form and its stem before a vowel if another (`kitap kitab`), with `~` if it takes
front vowels against the rule; a verb is its stem and that before a vowel (`git/gid`), after a noun and `+` if the
two make one verb, with `!` if what lasted in the past is told in -yordu (tanıdı: recognised, tanıyordu: knew), then
the case it governs unless accusative (`@dat`).
"""

from dataclasses import dataclass
from functools import cache

from residuum.samples import lexicon

VOWELS = "aeıioöuü"
_FRONT = "eiöü"
_ROUND = "oöuü"
_VOICELESS = "fstkçşhp"
_LOWER = str.maketrans("Iİ", "ıi")
_FRONTED = str.maketrans("aıou", "eiöü")

CASES = {
    "Nom": "",
    "Acc": "(y)I",
    "Gen": "(n)In",
    "Dat": "(y)A",
    "Loc": "DA",
    "Abl": "DAn",
    "Ins": "(y)lA",
}
# after the possessive of the third person
_CASES_OF_POSSESSED = {
    "Nom": "",
    "Acc": "nI",
    "Gen": "nIn",
    "Dat": "nA",
    "Loc": "nDA",
    "Abl": "nDAn",
    "Ins": "(y)lA",
}
_PAST = {"1Sing": "m", "1Plur": "k", "3Sing": "", "3Plur": "lAr"}
_PRESENT = {"1Sing": "(y)Im", "1Plur": "(y)Iz", "3Sing": "", "3Plur": "lAr"}
_POSSESSED_PARTICIPLE = {"1Sing": "DIğIm", "1Plur": "DIğImIz", "3Sing": "DIğI", "3Plur": "DIklArI"}


@dataclass(frozen=True)
class TurkishVerbStem:
    """A verb: the noun that belongs to it, its stem, that before a vowel, the case it governs, whether it lasts."""

    noun: str
    stem: str
    before_vowel: str
    governs: str
    is_lasting: bool


def suffixed(word: str, *suffixes: str, before_vowel: str = "", front: bool = False) -> str:
    """A word with suffixes one after the other.

    `before_vowel` is the stem when the first suffix begins with a vowel; `front` makes that suffix harmonise with
    front vowels.
    """
    for suffix in suffixes:
        if not suffix:
            continue
        letters = suffix
        if suffix.startswith("("):
            # su (water) is the one noun with y for every buffer: suyu, suyun
            buffer = "y" if word == "su" else suffix[1]
            letters = (buffer if word[-1] in VOWELS else "") + suffix[3:]
        if before_vowel and letters[0] in VOWELS + "AI":
            word = before_vowel
        harmony = word.translate(_FRONTED) if front else word
        word += _harmonised(harmony, letters)
        before_vowel, front = "", False
    return word


@cache
def noun_form(key: str, number: str, case: str, possessed: bool = False) -> str:
    """A noun in a number and case, possessed by a third person or not."""
    form, *stems = lexicon.nouns()[key].tr.split()
    front = form.endswith("~")
    plural = "lAr" if number == "pl" else ""
    possessive = ("I" if plural else "(s)I") if possessed else ""
    suffix = (_CASES_OF_POSSESSED if possessed else CASES)[case]
    before_vowel = stems[0] if stems else ""
    return suffixed(form.rstrip("~"), plural, possessive, suffix, before_vowel=before_vowel, front=front)


def name_form(name: str, case: str) -> str:
    """A name in a case, the suffix after an apostrophe."""
    ending = suffixed(name.translate(_LOWER).lower(), CASES[case])[len(name) :]
    return f"{name}'{ending}" if ending else name


@cache
def verb_stem(key: str) -> TurkishVerbStem:
    """The parts of a verb."""
    cell, *governs = lexicon.verbs()[key].tr.split()
    noun, _, stems = cell.rstrip("!").rpartition("+")
    stem, _, before_vowel = stems.partition("/")
    case = governs[0][1:].capitalize() if governs else "Acc"
    return TurkishVerbStem(noun, stem, before_vowel, case, cell.endswith("!"))


@cache
def finite_form(key: str, tense: str, negated: bool, agreement: str) -> str:
    """The past in -DI or -yordu, the present in -yor or the future in -AcAk, for a person and number."""
    verb = verb_stem(key)
    if tense == "past" and verb.is_lasting:
        endings = ("lAr", "DI") if agreement == "3Plur" else ("DI", _PAST[agreement])
        return suffixed(_progressive(verb, negated), *endings)
    if tense == "past":
        return suffixed(verb.stem, "mA" if negated else "", "DI", _PAST[agreement])
    if tense == "present":
        return suffixed(_progressive(verb, negated), _PRESENT[agreement])
    return future_form(verb.stem, verb.before_vowel, negated, agreement)


def future_form(stem: str, before_vowel: str, negated: bool, agreement: str) -> str:
    """The future: gidecek, gitmeyeceğim."""
    start = suffixed(stem, "mA") if negated else raised(stem)
    word = suffixed(start, "(y)AcAk", before_vowel=before_vowel)
    suffix = _PRESENT[agreement]
    return suffixed(word[:-1] + "ğ" if suffix.startswith("(y)") else word, suffix)


@cache
def subject_participle(key: str, negated: bool) -> str:
    """The participle of who does something: gelen, okumayan."""
    verb = verb_stem(key)
    start = suffixed(verb.stem, "mA") if negated else raised(verb.stem)
    return suffixed(start, "(y)An", before_vowel="" if negated else verb.before_vowel)


@cache
def object_participle(key: str, negated: bool, agreement: str) -> str:
    """The participle of what somebody does something to: okuduğu, almadığım."""
    return suffixed(verb_stem(key).stem, "mA" if negated else "", _POSSESSED_PARTICIPLE[agreement])


def copula_suffix(word: str, tense: str, agreement: str) -> str:
    """The ending by which a word says was, or am and are."""
    endings = (_PRESENT[agreement],) if tense == "present" else ("(y)DI", _PAST[agreement])
    lowered = word.translate(_LOWER).lower()
    return suffixed(lowered, *endings)[len(word) :]


def capital(word: str) -> str:
    """The first letter of a word made big: i becomes İ."""
    return {"i": "İ", "ı": "I"}.get(word[0], word[0].upper())


def raised(stem: str) -> str:
    """The stem before y: ye becomes yi."""
    return "yi" if stem == "ye" else stem


def _progressive(verb: TurkishVerbStem, negated: bool) -> str:
    """The present stem: geliyor, bekliyor, gelmiyor."""
    if negated:
        return suffixed(verb.stem, "mIyor")
    stem = raised(verb.stem)
    if stem[-1] in "ae":
        return suffixed(stem[:-1], "Iyor")
    if stem[-1] in VOWELS:
        return stem + "yor"
    return suffixed(stem, "Iyor", before_vowel=verb.before_vowel)


def _harmonised(word: str, letters: str) -> str:
    """The letters of a suffix as they are after a word."""
    written = ""
    for letter in letters:
        last = next(vowel for vowel in reversed(word + written) if vowel in VOWELS)
        if letter == "A":
            letter = "e" if last in _FRONT else "a"
        elif letter == "I":
            letter = ("ü" if last in _FRONT else "u") if last in _ROUND else "i" if last in _FRONT else "ı"
        elif letter == "D":
            letter = "t" if (word + written)[-1] in _VOICELESS else "d"
        written += letter
    return written
