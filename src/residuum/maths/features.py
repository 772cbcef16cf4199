"""The features of a probe: one array, or shards of which only a window is in memory at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Int

from residuum.errors import DataError
from residuum.maths.arrays import constant_neurons, rounding_floor

BLOCK = 4096
"""Rows that are checked or predicted at a time."""
MEASURED = 256
"""Rows that are copied as float64 at a time."""


@dataclass(frozen=True, eq=False)
class ShardedFeatures:
    """Words × neurons in shards that are read when they are needed.

    `window` is how many words may be in memory at once. Training shuffles the order of the shards and the
    words inside a window, not across windows: the larger the window, the closer to a full shuffle.
    """

    loaders: tuple[Callable[[], Float[np.ndarray, "word neuron"]], ...]
    lengths: tuple[int, ...]
    n_neurons: int
    window: int = 100_000

    def __post_init__(self) -> None:
        if len(self.loaders) != len(self.lengths) or not self.loaders or self.window < 1:
            raise DataError(
                f"{len(self.loaders)} shards came with {len(self.lengths)} lengths and a window of "
                f"{self.window} words; give one length per shard and a positive window."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Words and neurons, as an array would say."""
        return sum(self.lengths), self.n_neurons


Features = Float[np.ndarray, "_ _"] | ShardedFeatures


@dataclass(frozen=True, eq=False)
class FeatureWindow:
    """Words that are in memory together: their numbers in the whole data, and their features."""

    words: Int[np.ndarray, " word"]
    x: Float[np.ndarray, "word neuron"]


def windows(features: Features, shuffle: np.random.Generator | None = None) -> Iterator[FeatureWindow]:
    """The features as float32 windows: an array is one window, shards are as many as they need.

    `shuffle` permutes the order of the shards. All windows of shards share one buffer, so a window holds
    until the next one is asked for.
    """
    if isinstance(features, np.ndarray):
        yield FeatureWindow(np.arange(len(features)), np.asarray(features, np.float32))
        return
    starts = np.cumsum((0, *features.lengths))
    buffer = np.empty((window_words(features), features.n_neurons), np.float32)
    for group in _shard_groups(features, shuffle):
        words = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in group])
        end = 0
        for number in group:
            start, end = end, end + features.lengths[number]
            buffer[start:end] = _load(features, number)
        yield FeatureWindow(words, buffer[:end])


def window_words(features: Features) -> int:
    """The most words that are in memory at once."""
    if isinstance(features, np.ndarray):
        return len(features)
    return min(max(features.window, *features.lengths), sum(features.lengths))


def select_columns(features: Features, columns: Int[np.ndarray, " chosen"]) -> Features:
    """The same words with these neurons only, as a copy.

    With fewer neurons, more words fit the memory of a window. If all of them fit, the shards are read once, here, and
    not again in every pass over the words. Otherwise columns are cut when a shard is read.
    """
    if isinstance(features, np.ndarray):
        return np.take(features, columns, axis=1)  # row by row, unlike [:, columns], whose rows are scattered
    loaders = tuple(partial(_load_some, features, i, columns, 1) for i in range(len(features.loaders)))
    window = features.window * features.n_neurons // len(columns)
    narrow = replace(features, loaders=loaders, n_neurons=len(columns), window=window)
    return narrow if sum(features.lengths) > window else next(windows(narrow)).x


def select_words(features: Features, words: Int[np.ndarray, " chosen"]) -> Features:
    """Some of the words (ascending): a copy where they fit a window, else cut from their shards when these are read."""
    if isinstance(features, np.ndarray):
        return np.take(features, words, axis=0)
    starts = np.cumsum((0, *features.lengths))
    cuts = np.searchsorted(words, starts)
    parts = [(i, words[cuts[i] : cuts[i + 1]] - starts[i]) for i in range(len(features.lengths))]
    parts = [(i, rows) for i, rows in parts if len(rows)]
    loaders = tuple(partial(_load_some, features, i, rows, 0) for i, rows in parts)
    some = replace(features, loaders=loaders, lengths=tuple(len(rows) for _, rows in parts))
    return some if len(words) > features.window else next(windows(some)).x


def check_finite(window: FeatureWindow) -> None:
    """Raise a DataError that names the first word with a NaN or infinite activation."""
    for start in range(0, len(window.x), BLOCK):
        # A row's sum is finite when all its values are: no mask as large as the block is needed.
        bad = np.flatnonzero(~np.isfinite(window.x[start : start + BLOCK].sum(axis=1)))
        if bad.size:
            raise DataError(
                f"Word {window.words[start + bad[0]]} has a NaN or infinite activation; extract it "
                "again (float16 overflows in some models: use float32) or drop that word."
            )


def column_moments(features: Features) -> tuple[Float[np.ndarray, " neuron"], Float[np.ndarray, " neuron"]]:
    """Mean and standard deviation of each neuron in float64; exactly 0 for a constant neuron's deviation."""
    mean, scatter = _mean_and_scatter(features)
    constant = constant_neurons(scatter, rounding_floor(features.shape[0], mean))
    return mean, np.where(constant, 0.0, np.sqrt(scatter / features.shape[0]))


def constant_columns(features: Features) -> Bool[np.ndarray, " neuron"]:
    """Which neurons are constant beside the others that are given (`maths.arrays`)."""
    mean, scatter = _mean_and_scatter(features)
    return constant_neurons(scatter, rounding_floor(features.shape[0], mean))


def column_scatter(features: Features) -> Float[np.ndarray, " neuron"]:
    """Σ(x − μ)² of each neuron in float64, exactly 0 where it is constant."""
    mean, scatter = _mean_and_scatter(features)
    return np.where(constant_neurons(scatter, rounding_floor(features.shape[0], mean)), 0.0, scatter)


def _mean_and_scatter(features: Features) -> tuple[Float[np.ndarray, " neuron"], Float[np.ndarray, " neuron"]]:
    """μ and Σ(x − μ)² of each neuron in one pass, blocks being merged by Chan's formula."""
    n, mean, scatter = 0, np.zeros(features.shape[1]), np.zeros(features.shape[1])
    for block in _blocks(features):
        block_mean = block.mean(axis=0)
        block -= block_mean
        share = len(block) / (n + len(block))
        scatter += np.einsum("wn,wn->n", block, block) + n * share * (block_mean - mean) ** 2
        mean += share * (block_mean - mean)
        n += len(block)
    return mean, scatter


def _blocks(features: Features) -> Iterator[Float[np.ndarray, "word neuron"]]:
    for window in windows(features):
        for start in range(0, len(window.x), MEASURED):
            yield window.x[start : start + MEASURED].astype(np.float64)


def _shard_groups(features: ShardedFeatures, shuffle: np.random.Generator | None) -> Iterator[list[int]]:
    """Shards that share a window; a shard larger than the window stands alone."""
    numbers = np.arange(len(features.lengths)) if shuffle is None else shuffle.permutation(len(features.lengths))
    group: list[int] = []
    held = 0
    for number in numbers.tolist():
        if group and held + features.lengths[number] > features.window:
            yield group
            group, held = [], 0
        group.append(number)
        held += features.lengths[number]
    if group:
        yield group


def _load(features: ShardedFeatures, number: int) -> Float[np.ndarray, "word neuron"]:
    x = features.loaders[number]()
    expected = (features.lengths[number], features.n_neurons)
    if x.shape != expected:
        raise DataError(f"Shard {number} has the shape {x.shape}; {expected} was announced. Extract it again.")
    return x


def _load_some(features: ShardedFeatures, number: int, chosen: np.ndarray, axis: int) -> np.ndarray:
    return np.take(_load(features, number), chosen, axis=axis)
