"""What is asked for, and the meanings that answer it: the same ones in every language."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, repeat
from typing import TypeVar

from residuum.errors import SettingError
from residuum.samples.causation import Choice, sample_choice
from residuum.samples.classes import POLARITIES, TENSES, Labelled, sample_polarity, sample_tense
from residuum.samples.draws import SPLITS, Draw
from residuum.samples.english import english
from residuum.samples.german import german
from residuum.samples.inference import LABELS, Pair, sample_pair
from residuum.samples.meanings import Meaning, Tense, skeleton
from residuum.samples.sampling import sample_meaning
from residuum.samples.sources import Source
from residuum.samples.swahili import swahili
from residuum.samples.trees import Sentence
from residuum.samples.turkish import turkish
from residuum.samples.vocabulary import Vocabulary

TASKS = ("treebank", "ner", "nli", "copa", "translation", "polarity", "tense", "text")
RENDERERS: dict[str, Callable[[Meaning], Sentence]] = {
    "en": english,
    "de": german,
    "tr": turkish,
    "sw": swahili,
}
LANGUAGES = tuple(RENDERERS)

# so many repetitions in a row say that all has been said
_PATIENCE = 5_000
Item = TypeVar("Item")
Label = TypeVar("Label")


@dataclass(frozen=True)
class Request:
    """A task, its language (two for translation), how many, from which seed, for which split."""

    task: str
    language: str
    size: int
    seed: int
    split: str
    disjoint_lexemes: bool

    def __post_init__(self) -> None:
        _check_choice("task", self.task, TASKS)
        _check_choice("split", self.split, SPLITS)
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise SettingError(f"size is {self.size!r}; expected a whole number of at least 1.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise SettingError(f"seed is {self.seed!r}; expected a whole number.")
        _check_language(self.task, self.language)
        if self.task == "copa" and self.disjoint_lexemes:
            raise SettingError(
                "disjoint_lexemes is True, but copa tells of one table of events in every split; leave it out."
            )

    @property
    def languages(self) -> list[str]:
        """The language, or the two of a translation."""
        return self.language.split("-")

    @property
    def name(self) -> str:
        """What the corpus is called."""
        return f"sample-{self.task}-{self.language}-{self.split}"

    def ids(self) -> list[str]:
        """The ids of the sentences, the same in every language."""
        return [f"{self.split}-{self.seed}-{number:06d}" for number in range(1, self.size + 1)]


def sentences(request: Request) -> tuple[Meaning, ...]:
    """The meanings of a treebank, of text, of translations and of texts with names: these four are in step."""
    return _sentences(replace(request, task="text", language="en"))


@lru_cache(maxsize=2)
def _sentences(request: Request) -> tuple[Meaning, ...]:
    """The meanings, kept for the next language."""
    source = _source(request, "sentences")
    return tuple(_distinct(request, repeat(None), lambda _: sample_meaning(source), skeleton))


def pairs(request: Request) -> list[Pair]:
    """Premises and hypotheses, the labels in equal shares."""
    source = _source(request, "nli")
    return _distinct(
        request,
        _in_shares(source.draw, LABELS),
        lambda label: sample_pair(source, label),
        lambda pair: f"{skeleton(pair.premise)} {skeleton(pair.hypothesis)}",
    )


def choices(request: Request) -> list[Choice]:
    """Questions for causes and effects, the right choice as often the first as the second."""
    source = _source(request, "copa")
    return _distinct(
        request,
        _in_shares(source.draw, (0, 1)),
        lambda label: sample_choice(source.draw, request.split, source.words, label),
        lambda choice: " ".join(map(skeleton, (choice.premise, *sorted(choice.choices, key=skeleton)))),
    )


def labelled(request: Request) -> list[Labelled]:
    """Sentences with their polarity or tense, the classes in equal shares."""
    source = _source(request, request.task)
    if request.task == "polarity":
        polarities = _in_shares(source.draw, POLARITIES)
        return _distinct(request, polarities, lambda label: sample_polarity(source, label), _skeleton_of)
    tenses: Iterator[Tense] = _in_shares(source.draw, TENSES)
    return _distinct(request, tenses, lambda label: sample_tense(source, label), _skeleton_of)


def _skeleton_of(item: Labelled) -> str:
    return skeleton(item.meaning)


def _source(request: Request, stream: str) -> Source:
    part = request.split if request.disjoint_lexemes else ""
    return Source(Draw(stream, request.split, part, request.seed), Vocabulary(part), request.split)


def _distinct(
    request: Request, labels: Iterator[Label], draw: Callable[[Label], Item], key: Callable[[Item], str]
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


def _check_choice(setting: str, found: str, allowed: tuple[str, ...]) -> None:
    if found not in allowed:
        raise SettingError(f"{setting} is {found!r}; expected one of {', '.join(allowed)}.")


def _check_language(task: str, language: str) -> None:
    if task != "translation":
        _check_choice("language", language, LANGUAGES)
        return
    source, _, target = language.partition("-")
    if source not in LANGUAGES or target not in LANGUAGES or source == target:
        raise SettingError(
            f"language is {language!r}; expected two of {', '.join(LANGUAGES)} for translation, such as 'tr-en'."
        )
