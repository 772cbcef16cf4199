"""What a head has to answer, and the token ids and labels that a model with that head reads."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, labels_of
from residuum.errors import CorpusError, DataError, ModelError
from residuum.maths.probe_scores import classification_scores, regression_scores, span_scores
from residuum.maths.targets import encode_labels
from residuum.models.alignment import Aligner

if TYPE_CHECKING:
    from residuum.training.networks import StateCache

IGNORED = -100  # a token that the loss skips
QUESTIONS = {"cause": "What was the cause?", "effect": "What happened as a result?"}  # COPA's, in words
_SPAN_TAG = re.compile(r"[BIESLU]-\S+|O")
_METRICS = {
    "classification": ("accuracy", "macro_f1", "matthews"),
    "regression": ("pearson", "spearman", "mean_squared_error"),
    "tagging": ("accuracy",),
    "choice": ("accuracy",),
}


@dataclass(frozen=True)
class Problem:
    """A task as a head sees it: its kind, the classes in the order of the head's outputs, and its main score."""

    task: Task
    kind: str  # classification, regression, tagging or choice
    classes: tuple[str, ...]  # for choice: the numbers of the candidates

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the scores, the main one first."""
        names = list(_METRICS[self.kind])
        if self.kind == "classification" and len(self.classes) == 2:
            names.append("f1")
        if self.has_spans:
            names += ["span_f1", "span_precision", "span_recall"]
        asked = self.task.metric or ("span_f1" if self.has_spans else "")
        main = asked if asked in names else names[0]
        return (main, *(name for name in names if name != main))

    @property
    def has_spans(self) -> bool:
        """Whether the tags mark spans, as named-entity tags do."""
        spans = len(self.classes) > 1 and all(_SPAN_TAG.fullmatch(tag) for tag in self.classes)
        return self.kind == "tagging" and spans

    def encode(self, labels: Sequence[Any]) -> list[float]:
        """Labels as numbers: the index of the class (−1: not in the training part), or the number itself."""
        if self.kind == "regression":
            return [float(label) for label in labels]
        return encode_labels([str(label) for label in labels], self.classes).tolist()

    def scores(self, predicted: Sequence[Any], truth: Sequence[Any]) -> dict[str, float]:
        """All scores, from predicted and true labels (for tagging: one list per sentence)."""
        if self.kind == "regression":
            scores = regression_scores(np.asarray(predicted, np.float64), np.asarray(truth, np.float64))
        elif self.kind == "tagging":
            pairs = [pair for rows in zip(predicted, truth, strict=True) for pair in zip(*rows, strict=True)]
            scores = {"accuracy": sum(a == b for a, b in pairs) / len(pairs)}
            scores |= span_scores(predicted, truth) if self.has_spans else {}
        else:
            sides = [np.asarray(self.encode(side), np.int64) for side in (predicted, truth)]
            # Labels are sorted, so the second of 0 and 1 is the positive class.
            positive = self.classes.index(self.task.positive) if self.task.positive in self.classes else 1
            scores = classification_scores(sides[0], sides[1], len(self.classes), positive)
        return {name: scores[name] for name in self.metrics}

    def baseline(self, train: Sequence[Any], truth: Sequence[Any]) -> dict[str, float]:
        """The scores of a constant answer: the most frequent training label, or the mean for regression.

        The correlation with a constant is undefined and counts as 0.
        """
        if self.kind == "regression":
            error = float(np.mean((np.asarray(truth, np.float64) - np.mean(np.asarray(train, np.float64))) ** 2))
            return {name: error if name == "mean_squared_error" else 0.0 for name in self.metrics}
        if self.kind == "tagging":
            (answer, _), *_ = Counter(tag for row in train for tag in row if tag is not None).most_common()
            truth = [[tag for tag in row if tag is not None] for row in truth]
            return self.scores([[answer] * len(row) for row in truth], truth)
        (answer, _), *_ = Counter(map(str, train)).most_common()
        return self.scores([answer] * len(truth), truth)


def problem_of(task: Task, train: Corpus) -> Problem:
    """The problem that a task's training part poses."""
    labels = labels_of(train, task)
    if task.unit == "word":
        return Problem(task, "tagging", _classes(train, (label for row in labels for label in row)))
    if task.name == "choice" and train.choices is None:
        raise DataError(f"{train.name} has no candidates to choose from; expected several per text.")
    if train.choices is not None:
        return Problem(task, "choice", tuple(str(place) for place in range(max(map(len, train.choices)))))
    if task.regression or all(label is None or isinstance(label, float) for label in labels):
        return Problem(task, "regression", ())
    return Problem(task, "classification", _classes(train, labels))


def _classes(corpus: Corpus, labels: Any) -> tuple[str, ...]:
    classes = tuple(sorted({str(label) for label in labels if label is not None}))
    if len(classes) < 2:
        raise DataError(f"{corpus.name} has the label {', '.join(classes) or 'none'} only; expected at least two.")
    return classes


@dataclass(frozen=True)
class TokenSequence:
    """One sequence of tokens with their segments."""

    ids: list[int]
    types: list[int]


@dataclass(frozen=True)
class Example:
    """One unit of training: one sequence, or one per candidate, with one label or one per token.

    `first` is the number of its first sequence in its split. `words` are the (sentence, word, token) that a tagged
    sequence answers for.
    """

    first: int
    sequences: tuple[TokenSequence, ...]
    label: float | list[int]
    words: tuple[tuple[int, int, int], ...] = ()

    @property
    def length(self) -> int:
        """Number of tokens of the longest sequence."""
        return max(len(sequence.ids) for sequence in self.sequences)


@dataclass(frozen=True, eq=False)
class EncodedSplit:
    """The examples of one split, its gold labels, and the number of sentences that were cut."""

    name: str
    examples: list[Example]
    truth: list[Any]  # one label per example; for tagging one list per sentence, None for unlabelled words
    n_cut: int
    n_unlabelled: int
    fingerprint: str

    def __len__(self) -> int:
        return len(self.examples)


class ExampleEncoder:
    """Encodes the splits of a problem for one tokenizer, in at most `max_length` tokens per sequence."""

    def __init__(self, tokenizer: Any, problem: Problem, window: int | None, max_length: int | None) -> None:
        limits = [limit for limit in (window, max_length) if limit is not None]
        self.problem = problem
        self.window = min(limits, default=None)
        self.aligner = Aligner(tokenizer, self.window)

    def encode(self, corpus: Corpus) -> EncodedSplit:
        """Encode one split; sentences without a label are left out and counted."""
        labels = labels_of(corpus, self.problem.task)
        if self.problem.kind == "tagging":
            return self._tagged(corpus, labels)
        kept = [i for i, label in enumerate(labels) if label is not None]
        if not kept:
            raise CorpusError(f"{corpus.name} has no labelled sentence; expected at least one.")
        labelled = corpus.select(kept)
        texts = [labelled.text(i) for i in range(len(labelled))]
        aligned: Sequence[Any] = ()
        rows: list[tuple[TokenSequence, ...]] = []
        if self.problem.kind == "choice":
            rows, cut = self._candidates(labelled)
        elif labelled.pairs is not None:
            aligned = self.aligner.align_pairs(texts, [labelled.pair_text(i) or "" for i in range(len(labelled))])
            cut = sum(alignment.truncated > 0 for alignment in aligned)
        else:
            aligned = self.aligner.align(texts, [labelled.spans(i) for i in range(len(labelled))])
            cut = sum(len(alignment.windows) > 1 for alignment in aligned)
        if aligned:
            rows = [(TokenSequence(a.windows[0].ids, a.windows[0].types),) for a in aligned]
        numbers = np.cumsum([0, *map(len, rows)]).tolist()
        truth = [labels[i] for i in kept]
        encoded = self.problem.encode(truth)
        examples = [Example(n, row, label) for n, row, label in zip(numbers, rows, encoded, strict=False)]
        return EncodedSplit(corpus.name, examples, truth, cut, len(labels) - len(kept), corpus.fingerprint)

    def _candidates(self, corpus: Corpus) -> tuple[list[tuple[TokenSequence, ...]], int]:
        """`context · question · candidate`, separated as the tokenizer separates a pair."""
        assert corpus.choices is not None, "a problem of choices has candidates"
        n_choices = len(self.problem.classes)
        self.aligner.backend.no_truncation()
        rows, n_cut = [], 0
        for i, choices in enumerate(corpus.choices):
            where = f"Question {corpus.ids[i]} of {corpus.name}"
            if len(choices) != n_choices:
                raise CorpusError(f"{where} has {len(choices)} candidates; expected {n_choices}, as in training.")
            question = corpus.pair_text(i)
            question = None if question is None else QUESTIONS.get(question.strip(), question)
            fitted = [self._fitted(*self._joined(corpus.text(i), question, choice), where) for choice in choices]
            rows.append(tuple(tokens for tokens, _ in fitted))
            n_cut += any(was_cut for _, was_cut in fitted)
        return rows, n_cut

    def _joined(self, context: str, question: str | None, choice: str) -> tuple[TokenSequence, list[int]]:
        """The tokens of three segments, and the positions of those that may be cut, the first to be cut last."""
        backend = self.aligner.backend
        if question is None:
            whole = backend.encode(context, choice)
            return TokenSequence(whole.ids, whole.type_ids), _places(whole, 0)
        # The tokenizer knows pairs only: the tokens after the question come from the pair (question, candidate).
        head, tail = backend.encode(context, question), backend.encode(question, choice)
        end, start = _places(head, 1)[-1] + 1, _places(tail, 0)[-1] + 1
        types = head.type_ids[:end] + [tail.type_ids[-1]] * (len(tail.ids) - start)
        return TokenSequence(head.ids[:end] + tail.ids[start:], types), _places(head, 1) + _places(head, 0)

    def _fitted(self, tokens: TokenSequence, may_go: list[int], where: str) -> tuple[TokenSequence, bool]:
        """The tokens that fit the window: the context is cut from its end, then the question."""
        excess = 0 if self.window is None else max(len(tokens.ids) - self.window, 0)
        if excess > len(may_go):
            raise CorpusError(f"{where} has a candidate of more than {self.window} tokens, which cannot be cut.")
        gone = set(may_go[len(may_go) - excess :])
        kept = [i for i in range(len(tokens.ids)) if i not in gone]
        return TokenSequence([tokens.ids[i] for i in kept], [tokens.types[i] for i in kept]), excess > 0

    def _tagged(self, corpus: Corpus, labels: list[list[Any]]) -> EncodedSplit:
        """Label the first sub-word of each word; long sentences are read in windows, each word in one of them."""
        texts = [corpus.text(i) for i in range(len(corpus))]
        spans = [corpus.spans(i) for i in range(len(corpus))]
        examples: list[Example] = []
        n_lost = 0
        for sentence, alignment in enumerate(self.aligner.align(texts, spans)):
            n_lost += bool(alignment.lost)
            for window in range(len(alignment.windows)):
                part, read = alignment.windows[window], alignment.words_read_in(window)
                starts = zip(read.word.tolist(), read.first.tolist(), strict=True)
                places = {word: first for word, first in starts if labels[sentence][word] is not None}
                if not places:
                    continue
                tokens = [IGNORED] * len(part.ids)
                classes = self.problem.encode([labels[sentence][word] for word in places])
                for place, number_of_class in zip(places.values(), classes, strict=True):
                    tokens[place] = IGNORED if number_of_class < 0 else int(number_of_class)
                words = tuple((sentence, word, place) for word, place in places.items())
                examples.append(Example(len(examples), (TokenSequence(part.ids, part.types),), tokens, words))
        if not examples:
            raise CorpusError(f"{corpus.name} has no labelled word; expected at least one.")
        unlabelled = sum(label is None for row in labels for label in row)
        return EncodedSplit(corpus.name, examples, labels, n_lost, unlabelled, corpus.fingerprint)


def pad_id(tokenizer: Any) -> int:
    """The padding id of a batch, by which decoder heads find the end of a sentence."""
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return token
    raise ModelError("The tokenizer has neither a padding nor an end token; set its pad_token and save it again.")


def length_sorted(examples: Sequence[Example], size: int) -> Iterator[list[Example]]:
    """All examples, longest first, `size` at a time, which reduces padding."""
    order = sorted(examples, key=lambda example: (-example.length, example.first))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _places(encoding: Any, segment: int) -> list[int]:
    return [i for i, s in enumerate(encoding.sequence_ids) if s == segment]


Batch = dict[str, Any]  # inputs: {name: tensor}, labels: tensor, and states: tensor if they are cached


@dataclass(frozen=True, eq=False)
class Collator:
    """Makes batches of examples of one split; `cache` holds the states of its sequences.

    Inputs are sequence × token, for choices example × candidate × token. Labels are one number per example, for
    tagging example × token with −100 for tokens that the loss skips.
    """

    kind: str
    pad: int
    with_types: bool
    cache: StateCache | None = None

    def __call__(self, examples: Sequence[Example]) -> Batch:
        """The batch of some examples."""
        sequences = [sequence for example in examples for sequence in example.sequences]
        inputs = padded_inputs(sequences, self.pad, self.with_types)
        length = inputs["input_ids"].shape[1]
        batch: Batch = {"labels": self._labels(examples, length)}
        if self.cache is not None:
            numbers = [e.first + i for e in examples for i in range(len(e.sequences))]
            batch["states"] = self.cache.padded(numbers, length)
        if self.kind == "choice":
            inputs = {name: tensor.view(len(examples), -1, length) for name, tensor in inputs.items()}
        return {"inputs": inputs, **batch}

    def _labels(self, examples: Sequence[Example], length: int) -> Tensor:
        if self.kind == "regression":
            return torch.tensor([example.label for example in examples], dtype=torch.float32)
        if self.kind != "tagging":
            return torch.tensor([int(example.label) for example in examples])  # pyright: ignore[reportArgumentType]
        table = torch.full((len(examples), length), IGNORED)
        for row, example in enumerate(examples):
            assert isinstance(example.label, list), "a tagged example has one label per token"
            table[row, : len(example.label)] = torch.tensor(example.label)
        return table


def padded_inputs(sequences: Sequence[TokenSequence], pad: int, with_types: bool) -> dict[str, Tensor]:
    """Token ids, mask and, if the model takes them, segments of some sequences, padded to the longest."""
    length = max(len(sequence.ids) for sequence in sequences)
    ids = torch.full((len(sequences), length), pad)
    mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        size = len(sequence.ids)
        ids[row, :size] = torch.tensor(sequence.ids)
        types[row, :size] = torch.tensor(sequence.types)
        mask[row, :size] = 1
    inputs = {"input_ids": ids, "attention_mask": mask}
    return {**inputs, "token_type_ids": types} if with_types else inputs
