"""German forms.

Cells: a noun is its form, gender, plural and genitive (`Buch n Bücher Buches`; `m!` is weak, plural `-` is none); a
verb is its infinitive with `~` after a prefix that comes off, the third person of present and past, then the
case it governs unless accusative (`@dat`, or a preposition: `@auf`); an adjective is its form and the stem
that endings go to, if another. Names with gender f that are places take the article (die Türkei).
"""

from dataclasses import dataclass
from functools import cache

from residuum.samples import lexicon

GENDERS = {"m": "Masc", "f": "Fem", "n": "Neut"}
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}
_CASES = ("Nom", "Acc", "Dat", "Gen")
_COLUMNS = ("m", "f", "n", "pl")


def _table(rows: str) -> dict[tuple[str, str], str]:
    """Forms by case and gender (or plural), from a line a case."""
    lines = [line.split() for line in rows.strip().splitlines()]
    return {
        (case, column): form
        for case, line in zip(_CASES, lines, strict=True)
        for column, form in zip(_COLUMNS, line, strict=True)
    }


DEFINITE = _table("der die das die\nden die das die\ndem der dem den\ndes der des der")
RELATIVE = _table("der die das die\nden die das die\ndem der dem denen\ndessen deren dessen deren")
# the endings of dieser and jeder, and of ein and kein
STRONG_DETERMINER = _table("er e es e\nen e es e\nem er em en\nes er es er")
MIXED_DETERMINER = _table("- e - e\nen e - e\nem er em en\nes er es er")
STRONG = _table("er e es e\nen e es e\nem er em en\nen er en er")
MIXED = _table("er e es en\nen e es en\nen en en en\nen en en en")
WEAK = _table("e e e en\nen e e en\nen en en en\nen en en en")


@dataclass(frozen=True)
class NounForms:
    """A noun: gender, and its forms by case and number."""

    lemma: str
    gender: str
    forms: dict[tuple[str, str], str]


@dataclass(frozen=True)
class VerbForms:
    """A verb: the prefix that comes off, the forms without it, and what its object is governed by."""

    prefix: str
    infinitive: str
    present: dict[str, str]
    past: dict[str, str]
    governs: str

    @property
    def lemma(self) -> str:
        """The infinitive with its prefix."""
        return self.prefix + self.infinitive


@cache
def noun_forms(key: str) -> NounForms:
    """All forms of a noun."""
    form, gender, plural, *genitive = lexicon.nouns()[key].de.split()
    weak = gender.endswith("!")
    oblique = plural if weak else form
    forms = {
        ("Nom", "sg"): form,
        ("Acc", "sg"): oblique,
        ("Dat", "sg"): oblique,
        ("Gen", "sg"): genitive[0] if genitive else oblique,
    }
    if plural != "-":
        forms |= {(case, "pl"): plural for case in _CASES}
        forms["Dat", "pl"] = plural if plural[-1] in "ns" else plural + "n"
    return NounForms(form, gender[0], forms)


@cache
def verb_forms(key: str) -> VerbForms:
    """All forms of a verb, by person and number (1Sing, 3Sing, Plur)."""
    infinitive, third, past, *governs = lexicon.verbs()[key].de.split()
    prefix, _, infinitive = infinitive.rpartition("~")
    past_plural = past + ("n" if past.endswith("e") else "en")
    return VerbForms(
        prefix,
        infinitive,
        {"1Sing": _first_person(infinitive), "3Sing": third, "Plur": infinitive},
        {"1Sing": past, "3Sing": past, "Plur": past_plural},
        governs[0][1:] if governs else "acc",
    )


def adjective_form(key: str, ending: str) -> str:
    """An adjective with an ending: teuer, teure, teuren."""
    form, *inflected = lexicon.adjectives()[key].de.split()
    return (inflected[0] if inflected else form) + ending


def _first_person(infinitive: str) -> str:
    if infinitive.endswith("eln"):
        return infinitive[:-3] + "le"
    return (infinitive[:-1] if infinitive.endswith("ern") else infinitive[:-2]) + "e"
