"""Sample tasks: a request, and the meanings that answer it, which are the same in every language.

Sentences of `polarity` and `tense` take their class from the main clause. Most have a second clause of another class,
so word lookup says little, and words for times are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, repeat
from typing import TypeVar

from residuum.errors import SettingError
from residuum.samples.clauses import sample_clause, sample_linked, sample_meaning, sample_relative
from residuum.samples.english import english
from residuum.samples.german import german
from residuum.samples.inference import LABELS, CausalChoice, InferencePair, sample_choice, sample_pair
from residuum.samples.lexicon import SplitVocabulary
from residuum.samples.meanings import Draw, Meaning, MeaningSource, Tense, skeleton
from residuum.samples.settings import SampleSettings
from residuum.samples.swahili import swahili
from residuum.samples.trees import SentenceTree
from residuum.samples.turkish import turkish

RENDERERS: dict[str, Callable[[Meaning], SentenceTree]] = {
    "en": english,
    "de": german,
    "tr": turkish,
    "sw": swahili,
}

# so many repetitions in a row say that all has been said
_PATIENCE = 5_000
Item = TypeVar("Item")
Label = TypeVar("Label")


def sentences(request: SampleSettings) -> tuple[Meaning, ...]:
    """The meanings of a treebank, of text, of translations and of texts with names: these four are in step."""
    return _sentences(replace(request, task="text", language="en"))


@lru_cache(maxsize=2)
def _sentences(request: SampleSettings) -> tuple[Meaning, ...]:
    """The meanings, kept for the next language."""
    source = _source(request, "sentences")
    return tuple(_distinct(request, repeat(None), lambda _: sample_meaning(source), skeleton))


def pairs(request: SampleSettings) -> list[InferencePair]:
    """Premises and hypotheses, the labels in equal shares."""
    source = _source(request, "nli")
    return _distinct(
        request,
        _in_shares(source.draw, LABELS),
        lambda label: sample_pair(source, label),
        lambda pair: f"{skeleton(pair.premise)} {skeleton(pair.hypothesis)}",
    )


def choices(request: SampleSettings) -> list[CausalChoice]:
    """Questions for causes and effects, the right choice as often the first as the second."""
    source = _source(request, "copa")
    return _distinct(
        request,
        _in_shares(source.draw, (0, 1)),
        lambda label: sample_choice(source.draw, request.split, source.words, label),
        lambda choice: " ".join(map(skeleton, (choice.premise, *sorted(choice.choices, key=skeleton)))),
    )


def labelled(request: SampleSettings) -> list[LabelledMeaning]:
    """Sentences with their polarity or tense, the classes in equal shares."""
    source = _source(request, request.task)
    if request.task == "polarity":
        polarities = _in_shares(source.draw, POLARITIES)
        return _distinct(request, polarities, lambda label: sample_polarity(source, label), _skeleton_of)
    tenses: Iterator[Tense] = _in_shares(source.draw, TENSES)
    return _distinct(request, tenses, lambda label: sample_tense(source, label), _skeleton_of)


def _skeleton_of(item: LabelledMeaning) -> str:
    return skeleton(item.meaning)


def _source(request: SampleSettings, stream: str) -> MeaningSource:
    part = request.split if request.disjoint_lexemes else ""
    return MeaningSource(Draw(stream, request.split, part, request.seed), SplitVocabulary(part), request.split)


def _distinct(
    request: SampleSettings, labels: Iterator[Label], draw: Callable[[Label], Item], key: Callable[[Item], str]
) -> list[Item]:
    """As many items as asked for, one for each label in turn, no two alike by their keys."""
    seen: set[str] = set()
    items: list[Item] = []
    for label in islice(labels, request.size):
        for _ in range(_PATIENCE):
            item = draw(label)
            if key(item) not in seen:
                break
        else:
            raise SettingError(
                f"size is {request.size}, but the {request.split} split of {request.task} has only about "
                f"{len(items)} different items; ask for fewer."
            )
        seen.add(key(item))
        items.append(item)
    return items


def _in_shares(draw: Draw, labels: tuple[Label, ...]) -> Iterator[Label]:
    """The labels for ever, each once in every round, in an order that is drawn."""
    while True:
        left = list(labels)
        while left:
            label = draw.of(left)
            left.remove(label)
            yield label


POLARITIES = ("affirmative", "negative")
TENSES: tuple[Tense, ...] = ("past", "present", "future")
_SHAPES = {"linked": 0.7, "relative": 0.15, "simple": 0.15}
_MISLEADING = 0.9


@dataclass(frozen=True)
class LabelledMeaning:
    """A meaning, and the class of its first (or only) main clause."""

    meaning: Meaning
    label: str


def sample_polarity(source: MeaningSource, label: str) -> LabelledMeaning:
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
    return LabelledMeaning(_timeless(meaning), label)


def sample_tense(source: MeaningSource, label: Tense) -> LabelledMeaning:
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
    return LabelledMeaning(_timeless(meaning), label)


def _timeless(meaning: Meaning) -> Meaning:
    clauses = (replace(clause, time="", time_first=False, frequency="") for clause in meaning.clauses)
    return replace(meaning, clauses=tuple(clauses))
