"""A network and a classifier that reads a few of its neurons: texts in, labels out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import nn

from residuum.activations.extraction import Extraction, Room
from residuum.activations.extraction import Settings as ExtractionSettings
from residuum.corpus import Corpus
from residuum.models.alignment import Aligner, Alignment
from residuum.models.loading import Batch, Model, Reading
from residuum.shrinking.classifiers import Classifier
from residuum.shrinking.texts import Text, corpus_of

BATCH = 32
BATCH_TOKENS = 8192  # a batch with longer sentences is read in parts


@dataclass(frozen=True)
class Unit:
    """What is labelled, and which tokens stand for it (as in `extract`)."""

    unit: str = "word"
    pooling: str = "last"
    position: str = "auto"
    pairs: bool = False


@dataclass(frozen=True, eq=False)
class Predictor:
    """A network, the classifier on its neurons, and what it labels."""

    model: Model
    classifier: Classifier
    unit: Unit

    def predict(self, texts: Iterable[Text], *, batch_size: int = BATCH) -> list[Any]:
        """The label of each text (a number in a regression), or of a word task a list with the label of each word.

        A word that no sub-word of the tokenizer stands for has the label None.
        """
        return self.predict_corpus(corpus_of(texts, unit=self.unit.unit, pairs=self.unit.pairs), batch_size=batch_size)

    def predict_corpus(self, corpus: Corpus, *, batch_size: int = BATCH) -> list[Any]:
        """The same for the sentences of a corpus, which are read longest first, `batch_size` at a time."""
        order = sorted(range(len(corpus)), key=lambda i: -len(corpus.sentences[i]))
        extraction = self._extraction(corpus, order)
        found: list[Any] = [None] * len(order)
        room = Room()
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            alignments = extraction.align(self._aligner, first, first + len(chosen))
            buffers = extraction.buffers(alignments, room)
            extraction.fill(alignments, buffers)
            labels = self.classifier.decide(np.concatenate(buffers.hidden, axis=1))
            for place, label in zip(chosen, self._by_sentence(labels, alignments, buffers.first_row), strict=True):
                found[place] = label
        return found

    @cached_property
    def _aligner(self) -> Aligner:
        return Aligner(self.model.tokenizer, self.model.window)

    @cached_property
    def _reader(self) -> Model:
        """The network as one whose layers have the chosen neurons only."""
        chosen = self.classifier.by_layer()
        widths = tuple(len(chosen.get(layer, ())) for layer in range(len(self.model.widths)))
        return replace(self.model, widths=widths, reader=_chosen_reader(self.model, chosen))

    def _extraction(self, corpus: Corpus, order: list[int]) -> Extraction:
        unit = self.unit
        bare = replace(corpus, labels={}, sentence_labels={}, choices=None).select(order)
        settings = ExtractionSettings(
            pooling=unit.pooling, unit=unit.unit, position=unit.position, batch_tokens=BATCH_TOKENS
        )
        return Extraction(self._reader, bare, list(self.classifier.by_layer()), settings)

    def _by_sentence(self, labels: np.ndarray, alignments: list[Alignment], first_row: np.ndarray) -> list[Any]:
        if self.unit.unit == "sentence":
            return labels.tolist()
        return [
            _word_labels(labels[first_row[i] : first_row[i + 1]].tolist(), alignment)
            for i, alignment in enumerate(alignments)
        ]


def predict(folder: str | Path, texts: Iterable[Text], *, batch_size: int = BATCH, device: str = "auto") -> Iterator:
    """Label texts, as they come, with what `transfer` wrote to `folder`: one label a text, or of words one list.

    Texts are read `batch_size` at a time, so a stream of any length is answered while it runs.
    """
    from residuum.shrinking.product import load_product

    predictor = load_product(folder, device=device)
    stream = iter(texts)
    while batch := list(islice(stream, batch_size)):
        yield from predictor.predict(batch, batch_size=batch_size)


def _chosen_reader(model: Model, chosen: Mapping[int, Int[np.ndarray, " neuron"]]):
    """A reader that gives, of each layer, the chosen neurons; all of them are not copied."""
    read = model.reader
    columns = {
        layer: None if len(indices) == model.widths[layer] else torch.from_numpy(indices)
        for layer, indices in chosen.items()
    }

    def read_chosen(module: nn.Module, batch: Batch, layers: Sequence[int], attention: bool) -> Reading:
        whole = read(module, batch, layers, attention)
        hidden = [_columns(states, columns[layer]) for layer, states in zip(layers, whole.hidden, strict=True)]
        return Reading(hidden, whole.attention)

    return read_chosen


def _columns(states: torch.Tensor, columns: torch.Tensor | None) -> torch.Tensor:
    return states if columns is None else states.index_select(-1, columns.to(states.device))


def _word_labels(labels: list[Any], alignment: Alignment) -> list[Any]:
    if not alignment.lost:
        return labels
    found: list[Any] = [None] * alignment.n_words
    for word, label in zip(alignment.kept.tolist(), labels, strict=True):
        found[word] = label
    return found
