"""Seeded random parts of a corpus."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from random import Random

from residuum.errors import CorpusError, SettingError


def split_indices(n: int, sizes: Sequence[float], seed: int = 0) -> list[list[int]]:
    """Disjoint random parts of range(n), each in ascending order: a pure function of (n, sizes, seed).

    `sizes` are whole numbers of sentences (`[900, 100]`) or shares (`[0.9, 0.1]`); what they do not add
    up to stays out. Parallel corpora have the same n, so they get the same parts.
    """
    counts = _counts(n, sizes)
    # Python promises that random() never changes for a seed; it does not promise that of shuffle().
    draw = Random(seed)
    order = sorted(range(n), key=lambda _: draw.random())
    bounds = accumulate(counts, initial=0)
    return [sorted(order[start:end]) for start, end in pairwise(bounds)]


def _counts(n: int, sizes: Sequence[float]) -> list[int]:
    if not sizes or any(isinstance(size, bool) or not size > 0 for size in sizes):
        raise SettingError(f"sizes are {list(sizes)}; expected positive numbers, such as [900, 100] or [0.9, 0.1].")
    whole = [isinstance(size, int) for size in sizes]
    if not all(whole) and any(whole):
        raise SettingError(f"sizes are {list(sizes)}; expected all whole numbers or all shares, not both.")
    counts = [int(size) for size in sizes] if all(whole) else _counts_of_shares(n, sizes)
    if sum(counts) > n or 0 in counts:
        raise CorpusError(f"{n} sentences cannot be split into parts of {list(sizes)}.")
    return counts


def _counts_of_shares(n: int, shares: Sequence[float]) -> list[int]:
    if sum(shares) > 1 + 1e-9:
        raise SettingError(f"sizes are {list(shares)}, together {sum(shares):g}; expected shares of at most 1.")
    bounds = [round(n * total) for total in accumulate(shares, initial=0.0)]
    return [end - start for start, end in pairwise(bounds)]
