"""Examples → padded batches, with the states of a frozen bottom where they are at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from residuum.tuning.caching import StateCache
from residuum.tuning.encoding import IGNORED, Example, Tokens

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
