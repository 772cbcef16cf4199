"""The states that a frozen bottom gives for every sequence: computed once, kept in memory or on disk.

They are computed in batches sorted by length, which are the same whenever a run is started, so that a resumed run
reads the very same numbers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from residuum.storage.files import is_as_noted, note_checksum, reserve_space, whole_file
from residuum.training import is_main_process
from residuum.training.encoding import Part, Tokens
from residuum.training.freezing import SplitNetwork

BATCH_TOKENS = 2048  # padded tokens that the bottom reads at once

Pad = Callable[[Sequence[Tokens]], dict[str, Tensor]]


@dataclass(frozen=True, eq=False)
class StateCache:
    """States of all tokens one after another: sequence i has rows `starts[i]` … `starts[i + 1] − 1`."""

    states: Tensor  # token × hidden; where it is on disk, mapped
    starts: np.ndarray
    on_disk: bool

    def padded(self, numbers: Sequence[int], length: int) -> Tensor:
        """The states of some sequences, filled up with zeros: sequence × token × hidden."""
        block = torch.zeros(len(numbers), length, self.states.shape[1])
        for row, number in enumerate(numbers):
            first, stop = self.starts[number], self.starts[number + 1]
            block[row, : stop - first] = self.states[first:stop]
        return block


def cache_bytes(part: Part, width: int) -> int:
    """What the states of a part take."""
    return 4 * width * sum(_sizes(part))


def fill_cache(
    network: SplitNetwork,
    part: Part,
    pad: Pad,
    *,
    width: int,
    memory: int,
    folder: Path,
    identity: str,
    progress: bool = False,
) -> StateCache:
    """Run the bottom over a part once; beyond `memory` bytes the states go to a file in `folder`.

    `identity` names the weights; a file of the same weights and the same part is used again, unless it is damaged.
    """
    fill = partial(_fill, network=network, part=part, pad=pad, progress=progress)
    starts = np.cumsum([0, *_sizes(part)])
    shape = (int(starts[-1]), width)
    if cache_bytes(part, width) <= memory:
        states = torch.empty(shape)
        fill(states, starts)
        return StateCache(states, starts, on_disk=False)
    key = hashlib.blake2b(f"{identity} {part.fingerprint} {shape}".encode(), digest_size=8).hexdigest()
    path = folder / f"states-{key}-{os.environ.get('RANK', '0')}.bin"
    if not is_as_noted(path):
        with whole_file(path) as temporary:
            array = np.memmap(temporary, np.float32, "w+", shape=shape)
            reserve_space(temporary)
            fill(torch.from_numpy(array), starts)
            array.flush()
        note_checksum(path)
    # Mapped copy-on-write: torch warns of arrays that it could not write to.
    return StateCache(torch.from_numpy(np.memmap(path, np.float32, "c", shape=shape)), starts, on_disk=True)


def _fill(states: Tensor, starts: np.ndarray, *, network: SplitNetwork, part: Part, pad: Pad, progress: bool) -> None:
    device = next(network.module.parameters()).device
    sequences = [sequence for example in part.examples for sequence in example.sequences]
    hidden = None if progress and is_main_process() else True
    with tqdm(total=len(sequences), desc="frozen layers", unit=" sequences", disable=hidden, leave=False) as bar:
        for numbers in _batches(np.diff(starts)):
            inputs = {name: tensor.to(device) for name, tensor in pad([sequences[i] for i in numbers]).items()}
            for number, found in zip(numbers, network.lower(inputs).cpu(), strict=True):
                size = starts[number + 1] - starts[number]
                states[starts[number] : starts[number + 1]] = found[:size]
            bar.update(len(numbers))


def _batches(sizes: np.ndarray) -> list[list[int]]:
    """Sequences by length, longest first, so many at a time that their padded tokens stay within the budget."""
    batches: list[list[int]] = []
    for number in np.argsort(-sizes, kind="stable").tolist():
        if not batches or int(sizes[batches[-1][0]]) * (len(batches[-1]) + 1) > BATCH_TOKENS:
            batches.append([])
        batches[-1].append(number)
    return batches


def _sizes(part: Part) -> list[int]:
    return [len(sequence.ids) for example in part.examples for sequence in example.sequences]
