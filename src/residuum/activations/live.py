"""A model's activations read while they are needed, without a store."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from residuum.activations.extraction import Buffers, Extraction, Room
from residuum.activations.settings import ReadingSettings
from residuum.activations.store import Block, words_fingerprint
from residuum.corpus import Corpus
from residuum.errors import CorpusError
from residuum.models.alignment import Aligner, Alignment, Audit
from residuum.models.loading import Model, only_first_layers, parse_layers

AUDITED = 1000  # sentences that are aligned at once for the audit


@dataclass(frozen=True, eq=False)
class LiveActivations:
    """A model over a corpus, read like a store; every reading runs the model again."""

    extraction: Extraction
    max_loss: float = 0.0

    @classmethod
    def of(
        cls,
        model: Model,
        corpus: Corpus,
        *,
        layers: str = "all",
        pooling: Literal["last", "first", "mean", "max"] = "last",
        attention: bool = False,
        max_loss: float = 0.0,
    ) -> LiveActivations:
        """All words of a corpus in a model."""
        if not corpus.n_words:
            raise CorpusError(f"{corpus.name} holds no words; expected a sentence of one word or more.")
        settings = ReadingSettings(pooling=pooling, attention=attention)
        return cls(Extraction(model, corpus, parse_layers(layers, model.n_layers), settings), max_loss)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.extraction.model.name

    @property
    def layers(self) -> list[int]:
        """The layers that are read."""
        return self.extraction.layers

    @property
    def widths(self) -> list[int]:
        """The number of neurons of each layer."""
        return [self.extraction.model.widths[layer] for layer in self.layers]

    @property
    def n_heads(self) -> int:
        """The number of attention heads of each block; 0 where attention is not read."""
        return self.extraction.model.n_heads if self.extraction.settings.attention else 0

    @property
    def unit(self) -> str:
        """What a row is."""
        return self.extraction.settings.unit

    @property
    def sentences(self) -> list[list[str]]:
        """The words of every sentence."""
        return self.extraction.corpus.sentences

    @property
    def fingerprint(self) -> str:
        """A hash of the words and the weights."""
        return f"{words_fingerprint(self.extraction.words)}-{self.extraction.model.fingerprint}"

    @property
    def text_name(self) -> str:
        """The name of the corpus."""
        return self.extraction.corpus.name

    @property
    def left_out(self) -> dict[str, int]:
        """What of the corpus' file was not read, and how often."""
        return dict(self.extraction.corpus.skipped)

    @property
    def audit(self) -> Audit:
        """What becomes of the corpus' words; they are aligned for it once more, which is little beside the model."""
        return self._audit

    @cached_property
    def _audit(self) -> Audit:  # apart: what is cached is no property to the protocol `Audited`
        corpus, audit = self.extraction.corpus, Audit()
        for first in range(0, len(corpus), AUDITED):
            alignments = self.extraction.align(self._aligner, first, min(first + AUDITED, len(corpus)))
            for i, alignment in enumerate(alignments, start=first):
                audit += Audit.of(alignment, corpus.sentences[i], corpus.ids[i])
        return audit

    def read(self, first: int, stop: int) -> Block:
        """All layers of sentences first … stop − 1."""
        alignments, buffers = self._run(first, stop)
        places = [(first + s, w) for s, alignment in enumerate(alignments) for w in alignment.kept.tolist()]
        return Block([layer.numpy() for layer in buffers.hidden], np.array(places, dtype=np.int64).reshape(-1, 2))

    def read_attention(self, first: int, stop: int) -> list[list[np.ndarray]]:
        """Attention in sentences first … stop − 1: for each a list over blocks of heads × words × words."""
        alignments, buffers = self._run(first, stop)
        return [
            [
                flat[buffers.first_pair[s] : buffers.first_pair[s + 1]]
                .numpy()
                .reshape(len(alignment.kept), len(alignment.kept), -1)
                .transpose(2, 0, 1)
                for flat in buffers.attention
            ]
            for s, alignment in enumerate(alignments)
        ]

    @cached_property
    def _aligner(self) -> Aligner:
        return Aligner(self.extraction.model.tokenizer, self.extraction.model.window)

    def _run(self, first: int, stop: int) -> tuple[list[Alignment], Buffers]:
        extraction, corpus = self.extraction, self.extraction.corpus
        if self.max_loss < 1:  # else nothing can be refused, and all words need not be aligned for it
            self.audit.check(self.max_loss, corpus.n_words)
        alignments = extraction.align(self._aligner, first, stop)
        buffers = extraction.buffers(alignments, Room())
        with only_first_layers(extraction.model, max(extraction.layers)):
            extraction.fill(alignments, buffers)
        return alignments, buffers
