"""English forms.

Cells: a noun is `book`, `man/men`, or `water/` if it has no plural; a verb is its base and past, then an -ing form
that the rules miss, `+up` for a particle and `>for` for the preposition of its object.
"""

from dataclasses import dataclass
from functools import cache

from residuum.samples import lexicon

_SIBILANTS = ("s", "x", "z", "ch", "sh")
_VOWELS = "aeiou"
_SPOKEN_VOWEL_FIRST = ("honest",)


@dataclass(frozen=True)
class VerbForms:
    """The forms of a verb, with its particle and the preposition of its object."""

    base: str
    third: str
    past: str
    participle: str
    particle: str
    preposition: str


@cache
def noun_form(key: str, number: str) -> str:
    """A noun in the singular or plural."""
    singular, slash, plural = lexicon.nouns()[key].en.partition("/")
    if number == "sg":
        return singular
    assert plural or not slash, f"{key} has no plural"
    return plural or with_s(singular)


@cache
def verb_forms(key: str) -> VerbForms:
    """All forms of a verb."""
    base, past, *rest = lexicon.verbs()[key].en.split()
    participles = [cell for cell in rest if cell[0] not in "+>"]
    marked = {cell[0]: cell[1:] for cell in rest if cell[0] in "+>"}
    participle = participles[0] if participles else with_ing(base)
    return VerbForms(base, with_s(base), past, participle, marked.get("+", ""), marked.get(">", ""))


def with_s(word: str) -> str:
    """The regular plural of a noun, or third person of a verb."""
    if word.endswith("y") and word[-2] not in _VOWELS:
        return word[:-1] + "ies"
    if word.endswith(_SIBILANTS) or word in ("go", "do"):
        return word + "es"
    return word + "s"


def with_ing(base: str) -> str:
    """The -ing form: `write`, writing; `cut`, cutting; `see`, seeing."""
    if base.endswith("e") and not base.endswith("ee"):
        return base[:-1] + "ing"
    return base + (base[-1] if _doubles(base) else "") + "ing"


def indefinite_article(next_word: str) -> str:
    """`an` before the sound of a vowel, else `a`."""
    return "an" if next_word[0] in _VOWELS or next_word in _SPOKEN_VOWEL_FIRST else "a"


def _doubles(base: str) -> bool:
    """Whether the last consonant is written twice: in one syllable with one vowel, and where the stress is last."""
    if base in ("begin", "forget"):
        return True
    ends_short = len(base) > 2 and base[-1] not in _VOWELS + "wxy" and base[-2] in _VOWELS
    return ends_short and base[-3] not in _VOWELS and sum(letter in _VOWELS for letter in base) == 1
