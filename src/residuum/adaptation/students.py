"""Students on disk: their networks with a head for the problem, and the task's parts as their tokenizers split them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from residuum.corpus import Corpus
from residuum.models.loading import from_transformers, load_tokenizer, resolve_device
from residuum.models.surgery import files_fingerprint, keep_layers, kept_layers, layer_count
from residuum.training.encoding import Batch, Collator, Encoder, Part, pad_id
from residuum.training.heads import load_with_head, takes_types
from residuum.training.learning import Logits, score_part
from residuum.training.problems import Problem

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, eq=False)
class Student:
    """A model folder, which of its layers are kept, and the problem that it is to learn."""

    path: str
    problem: Problem
    keep: str | None = None  # top:6, bottom:6, alternate or a list of blocks
    max_length: int | None = 128
    device: str = "auto"
    _encoded: dict[str, Part] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, Any]:
        """What the student is, for a run's config."""
        return {"model": self.path, "files": files_fingerprint(self.path), "keep": self.keep}

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The student's tokenizer."""
        return load_tokenizer(self.path, False)

    def network(self, seed: int) -> PreTrainedModel:
        """The student with a head, in eval mode on its device; a head that it lacks is drawn from the seed."""
        network, _ = load_with_head(self.path, self.problem, seed=seed)
        if self.keep is not None:
            keep_layers(network, kept_layers(layer_count(network), keep=self.keep))
        network.to(resolve_device(self.device))  # pyright: ignore[reportArgumentType]
        return network.eval()

    @property
    def collator(self) -> Collator:
        """How examples become batches for this student."""
        return self._reading[0]

    def encoded(self, corpus: Corpus) -> Part:
        """A corpus as this student reads it; encoded once."""
        if corpus.fingerprint not in self._encoded:
            problem = problem_of_part(self.problem, corpus)
            encoder = Encoder(self.tokenizer, problem, self._reading[1], self.max_length)
            self._encoded[corpus.fingerprint] = encoder.encode(corpus)
        return self._encoded[corpus.fingerprint]

    def scores(self, network: PreTrainedModel, corpus: Corpus) -> dict[str, float]:
        """All scores of a network on a corpus."""
        network.eval()
        place = next(network.parameters()).device
        problem = problem_of_part(self.problem, corpus)
        return score_part(logits_of(network), problem, self.encoded(corpus), self.collator, place)

    @cached_property
    def _reading(self) -> tuple[Collator, int | None]:
        """The collator, and how many tokens are read at once."""
        network, tokenizer = load_with_head(self.path, self.problem)
        collator = Collator(self.problem.kind, pad_id(tokenizer), takes_types(network, tokenizer))
        return collator, from_transformers(network, tokenizer).window


def logits_of(network: PreTrainedModel) -> Logits:
    """A network as what answers batches."""

    def logits(batch: Batch) -> torch.Tensor:
        return network(**batch["inputs"]).logits

    return logits


def problem_of_part(problem: Problem, corpus: Corpus) -> Problem:
    """The problem as a part poses it: its questions may have another number of candidates (SIQA 3, XCOPA 2)."""
    if problem.kind != "choice" or corpus.choices is None:
        return problem
    return replace(problem, classes=tuple(str(place) for place in range(max(map(len, corpus.choices)))))
