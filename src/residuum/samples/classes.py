"""Single sentences whose class must be read off the main clause: is it denied, and when is it?

Most sentences have a second clause of another class, so that which words occur tells little. Words for times are
left out.
"""

from dataclasses import dataclass, replace

from residuum.samples.clauses import sample_clause
from residuum.samples.meanings import Meaning, Tense
from residuum.samples.sampling import sample_linked, sample_relative
from residuum.samples.sources import Source

POLARITIES = ("affirmative", "negative")
TENSES: tuple[Tense, ...] = ("past", "present", "future")
_SHAPES = {"linked": 0.7, "relative": 0.15, "simple": 0.15}
_MISLEADING = 0.9


@dataclass(frozen=True)
class Labelled:
    """A meaning, and the class of its first (or only) main clause."""

    meaning: Meaning
    label: str


def sample_polarity(source: Source, label: str) -> Labelled:
    """A sentence whose main clause is affirmative or negative; mostly the other clause is the opposite."""
    draw = source.draw
    negated = label == "negative"
    other = not negated if draw.chance(_MISLEADING) else negated
    shape = draw.weighted(_SHAPES)
    if shape == "linked":
        meaning = sample_linked(source, polarities=(negated, other))
    elif shape == "relative":
        meaning = sample_relative(source, negated=negated, inner_negated=other)
    else:
        meaning = Meaning((sample_clause(source, negated=negated),))
    return Labelled(_timeless(meaning), label)


def sample_tense(source: Source, label: Tense) -> Labelled:
    """A sentence whose main clause has a tense; mostly the other clause has another."""
    draw = source.draw
    others: tuple[Tense, ...] = tuple(tense for tense in TENSES if tense != label)
    other: Tense = draw.of(others) if draw.chance(_MISLEADING) else label
    shape = draw.weighted(_SHAPES)
    if shape == "linked":
        meaning = sample_linked(source, tenses=(label, other))
    elif shape == "relative":
        meaning = sample_relative(source, tense=label)
    else:
        meaning = Meaning((sample_clause(source, tense=label),))
    return Labelled(_timeless(meaning), label)


def _timeless(meaning: Meaning) -> Meaning:
    clauses = (replace(clause, time="", time_first=False, frequency="") for clause in meaning.clauses)
    return replace(meaning, clauses=tuple(clauses))
