"""From labelled sentences to what a model with a head reads: token ids, and a label where the loss expects it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from residuum.corpus import Corpus
from residuum.corpus.tasks import labels_of
from residuum.errors import CorpusError, ModelError
from residuum.models.alignment import Aligner, Alignment
from residuum.training.problems import Problem

if TYPE_CHECKING:
    from residuum.training.frozen_states import StateCache

IGNORED = -100  # a token that the loss passes over
# What COPA's questions ask in words; the word alone means little to a model.
QUESTIONS = {"cause": "What was the cause?", "effect": "What happened as a result?"}


@dataclass(frozen=True)
class Tokens:
    """One run of tokens."""

    ids: list[int]
    types: list[int]


@dataclass(frozen=True)
class Example:
    """What is learnt from at once: one sequence, or one for each candidate, with a label or one for each token.

    `first` numbers its first sequence among those of its part. `words` are the (sentence, word, token) that a tagged
    sequence answers for.
    """

    first: int
    sequences: tuple[Tokens, ...]
    label: float | list[int]
    words: tuple[tuple[int, int, int], ...] = ()

    @property
    def length(self) -> int:
        """Tokens of the longest sequence."""
        return max(len(sequence.ids) for sequence in self.sequences)


@dataclass(frozen=True, eq=False)
class Part:
    """The examples of one part of a task, its true labels, and how many sentences could not be read whole."""

    name: str
    examples: list[Example]
    truth: list[Any]  # a label for each example; of tagging a list for each sentence, None where there is none
    n_cut: int
    n_unlabelled: int
    fingerprint: str

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def n_sequences(self) -> int:
        """How many sequences there are in all examples."""
        return sum(len(example.sequences) for example in self.examples)


class Encoder:
    """Encodes the parts of a problem for one tokenizer, in at most `max_length` tokens."""

    def __init__(self, tokenizer: Any, problem: Problem, window: int | None, max_length: int | None) -> None:
        limits = [limit for limit in (window, max_length) if limit is not None]
        self.problem = problem
        self.window = min(limits, default=None)
        self.aligner = Aligner(tokenizer, self.window)

    def encode(self, corpus: Corpus) -> Part:
        """One part; sentences without a label are left out and counted."""
        labels = labels_of(corpus, self.problem.task)
        if self.problem.kind == "tagging":
            return self._tagged(corpus, labels)
        kept = [i for i, label in enumerate(labels) if label is not None]
        if not kept:
            raise CorpusError(f"{corpus.name} has no labelled sentence; expected at least one.")
        rows, cut = self._sequences(corpus.select(kept))
        numbers = np.cumsum([0, *map(len, rows)]).tolist()
        truth = [labels[i] for i in kept]
        encoded = self.problem.encode(truth)
        examples = [Example(n, row, label) for n, row, label in zip(numbers, rows, encoded, strict=False)]
        return Part(corpus.name, examples, truth, cut, len(labels) - len(kept), corpus.fingerprint)

    def _sequences(self, corpus: Corpus) -> tuple[list[tuple[Tokens, ...]], int]:
        if self.problem.kind == "choice":
            return self._candidates(corpus)
        texts = [corpus.text(i) for i in range(len(corpus))]
        if corpus.pairs is not None:
            aligned = self.aligner.align_pairs(texts, [corpus.pair_text(i) or "" for i in range(len(corpus))])
            cut = sum(alignment.truncated > 0 for alignment in aligned)
        else:
            aligned = self.aligner.align(texts, [corpus.spans(i) for i in range(len(corpus))])
            cut = sum(len(alignment.windows) > 1 for alignment in aligned)
        return [(Tokens(a.windows[0].ids, a.windows[0].types),) for a in aligned], cut

    def _candidates(self, corpus: Corpus) -> tuple[list[tuple[Tokens, ...]], int]:
        """`context · question · candidate`, each set apart as the tokenizer sets a pair apart."""
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
            found = [self._fitted(*self._joined(corpus.text(i), question, choice), where) for choice in choices]
            rows.append(tuple(tokens for tokens, _ in found))
            n_cut += any(was_cut for _, was_cut in found)
        return rows, n_cut

    def _joined(self, context: str, question: str | None, choice: str) -> tuple[Tokens, list[int]]:
        """The tokens of three segments, and the places of those that may go, the first to go last."""
        backend = self.aligner.backend
        if question is None:
            whole = backend.encode(context, choice)
            return Tokens(whole.ids, whole.type_ids), _places(whole, 0)
        # The tokenizer knows pairs only: what follows the question comes from the pair (question, candidate).
        head, tail = backend.encode(context, question), backend.encode(question, choice)
        end, start = _places(head, 1)[-1] + 1, _places(tail, 0)[-1] + 1
        types = head.type_ids[:end] + [tail.type_ids[-1]] * (len(tail.ids) - start)
        return Tokens(head.ids[:end] + tail.ids[start:], types), _places(head, 1) + _places(head, 0)

    def _fitted(self, tokens: Tokens, may_go: list[int], where: str) -> tuple[Tokens, bool]:
        """The tokens that fit the window: the context is cut from its end, then the question."""
        excess = 0 if self.window is None else max(len(tokens.ids) - self.window, 0)
        if excess > len(may_go):
            raise CorpusError(f"{where} has a candidate of more than {self.window} tokens, which cannot be cut.")
        gone = set(may_go[len(may_go) - excess :])
        kept = [i for i in range(len(tokens.ids)) if i not in gone]
        return Tokens([tokens.ids[i] for i in kept], [tokens.types[i] for i in kept]), excess > 0

    def _tagged(self, corpus: Corpus, labels: list[list[Any]]) -> Part:
        """A label on the first sub-word of each word; long sentences are read in windows, each word in one of them."""
        texts = [corpus.text(i) for i in range(len(corpus))]
        spans = [corpus.spans(i) for i in range(len(corpus))]
        examples: list[Example] = []
        n_lost = 0
        for sentence, alignment in enumerate(self.aligner.align(texts, spans)):
            n_lost += bool(alignment.lost)
            for window in range(len(alignment.windows)):
                example = self._tagged_window(sentence, window, alignment, labels[sentence], len(examples))
                if example is not None:
                    examples.append(example)
        if not examples:
            raise CorpusError(f"{corpus.name} has no labelled word; expected at least one.")
        unlabelled = sum(label is None for row in labels for label in row)
        return Part(corpus.name, examples, labels, n_lost, unlabelled, corpus.fingerprint)

    def _tagged_window(
        self, sentence: int, window: int, alignment: Alignment, labels: list[Any], number: int
    ) -> Example | None:
        part = alignment.windows[window]
        chosen = [w for w in np.flatnonzero(alignment.choice == window).tolist() if labels[w] is not None]
        if not chosen:
            return None
        places = [int(alignment.ranges[window, word, 0]) for word in chosen]
        classes = self.problem.encode([labels[word] for word in chosen])
        tokens = [IGNORED] * len(part.ids)
        for place, number_of_class in zip(places, classes, strict=True):
            tokens[place] = IGNORED if number_of_class < 0 else int(number_of_class)
        words = tuple((sentence, word, place) for word, place in zip(chosen, places, strict=True))
        return Example(number, (Tokens(part.ids, part.types),), tokens, words)


def pad_id(tokenizer: Any) -> int:
    """What fills a batch up; heads of decoders find the end of a sentence by it."""
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return token
    raise ModelError("The tokenizer has neither a padding nor an end token; set its pad_token and save it again.")


def length_sorted(examples: Sequence[Example], size: int) -> Iterator[list[Example]]:
    """All examples, longest first, `size` at a time, so that little is padded."""
    order = sorted(examples, key=lambda example: (-example.length, example.first))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _places(encoding: Any, segment: int) -> list[int]:
    return [i for i, s in enumerate(encoding.sequence_ids) if s == segment]


Batch = dict[str, Any]  # inputs: {name: tensor}, labels: tensor, and states: tensor where they are cached


@dataclass(frozen=True, eq=False)
class Collator:
    """Puts examples of one part side by side; `cache` holds the states of its sequences.

    Inputs are sequence × token, of choices example × candidate × token; labels are one number an example, or of
    tagging example × token with −100 where nothing is asked.
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
            assert isinstance(example.label, list), "a tagged example has a label for each token"
            table[row, : len(example.label)] = torch.tensor(example.label)
        return table


def padded_inputs(sequences: Sequence[Tokens], pad: int, with_types: bool) -> dict[str, Tensor]:
    """Token ids, mask and, where the model takes them, segments of some sequences, padded to the longest."""
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
