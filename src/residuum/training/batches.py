"""Sources of batches: a batch is a function of its position, so a resumed run sees the batches it would have seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from residuum.errors import SettingError

Item = TypeVar("Item")

SORTED_BATCHES = 50  # batches that are sorted by length together
LEAST_STRETCHES = 4  # sorted stretches per epoch: an epoch sorted as a whole would repeat the same batches every time


class Batches(Protocol):
    """Gives the batch at a position 0, 1, 2, …; the same position gives the same batch in every process.

    Process r of W takes positions r, r + W, r + 2W, …, so no two processes see the same batch. `per_epoch` is the
    number of batches in one pass over the data, None if it is unknown.
    """

    @property
    def per_epoch(self) -> float | None: ...  # noqa: D102

    def __call__(self, position: int) -> Any: ...  # noqa: D102


class ShuffledBatches(Generic[Item]):
    """Batches of a data set in memory, shuffled in every epoch by (seed, epoch).

    Epochs follow each other without a gap, so every batch is full, and two batches of size B at positions 2p and
    2p + 1 hold the items of one batch of size 2B at p. With `lengths` (one per item) batches are cut from sorted
    stretches of the shuffled items to reduce padding; then another size gives the same items per epoch, but not per
    batch. `collate` turns a list of items into the argument of the losses.
    """

    def __init__(
        self,
        items: Sequence[Item],
        size: int,
        *,
        seed: int = 0,
        lengths: Sequence[int] | None = None,
        collate: Callable[[list[Item]], Any] = list,
    ) -> None:
        if size < 1 or not len(items):
            raise SettingError(f"{len(items)} examples in batches of {size}; expected at least 1 of each.")
        self.items, self.size, self.seed, self.collate = items, size, seed, collate
        self.lengths = None if lengths is None else np.asarray(lengths)
        self._order = lru_cache(maxsize=2)(self._shuffled)

    @property
    def per_epoch(self) -> float:
        """The number of batches in one pass over the data; the last one may be partial."""
        return len(self.items) / self.size

    def __call__(self, position: int) -> Any:
        """The collated batch at a position."""
        first = position * self.size
        places = (divmod(place, len(self.items)) for place in range(first, first + self.size))
        return self.collate([self.items[int(self._order(epoch)[index])] for epoch, index in places])

    def _shuffled(self, epoch: int) -> np.ndarray:
        generator = np.random.default_rng((self.seed, epoch))
        order = generator.permutation(len(self.items))
        if self.lengths is None:
            return order
        stretch = self.size * max(1, min(SORTED_BATCHES, len(order) // (LEAST_STRETCHES * self.size)))
        borrowed = -epoch * len(order) % self.size  # items that complete the last batch of the previous epoch
        for start in range(borrowed, len(order), stretch):
            part = order[start : start + stretch]
            by_length = part[np.argsort(self.lengths[part], kind="stable")]
            *whole, rest = np.split(by_length, range(self.size, len(part), self.size))
            places = generator.permutation(len(whole))
            order[start : start + stretch] = np.concatenate([*(whole[place] for place in places), rest])
        return order


class StreamBatches(Generic[Item]):
    """Batches of a text that is too long for memory: read once in order, skipped through after a resume.

    `stream(epoch)` gives the items of one pass, the same ones whenever it is called with the same epoch (see
    `shuffled_stream`). A position before the last one read starts the stream over.
    """

    def __init__(
        self,
        stream: Callable[[int], Iterable[Item]],
        size: int,
        *,
        collate: Callable[[list[Item]], Any] = list,
    ) -> None:
        if size < 1:
            raise SettingError(f"Batches of {size}; expected at least 1 example.")
        self.stream, self.size, self.collate = stream, size, collate
        self._items: Iterator[Item] = self._endless()
        self._read = 0

    @property
    def per_epoch(self) -> None:
        """Unknown before the stream ends."""
        return None

    def __call__(self, position: int) -> Any:
        """The collated batch at a position."""
        first = position * self.size
        if first < self._read:
            self._items, self._read = self._endless(), 0
        items = list(islice(self._items, first - self._read, first - self._read + self.size))
        self._read = first + self.size
        return self.collate(items)

    def _endless(self) -> Iterator[Item]:
        epoch = 0
        while True:
            empty = True
            for item in self.stream(epoch):
                empty = False
                yield item
            if empty:
                raise SettingError("The stream of text is empty; pass a source with at least one line.")
            epoch += 1


def shuffled_stream(items: Iterable[Item], buffer: int, seed: int, epoch: int = 0) -> Iterator[Item]:
    """Shuffle a stream through a buffer: each output is a random one of the next `buffer` items, by (seed, epoch)."""
    generator = np.random.default_rng((seed, epoch))
    waiting: list[Item] = []
    for item in items:
        if len(waiting) < buffer:
            waiting.append(item)
            continue
        place = int(generator.integers(buffer))
        yield waiting[place]
        waiting[place] = item
    yield from (waiting[int(place)] for place in generator.permutation(len(waiting)))
