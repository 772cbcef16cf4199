"""Choices that a seed decides, the same on every machine, and the hash that divides what is said among splits."""

import hashlib
from collections.abc import Sequence
from random import Random
from typing import TypeVar

Item = TypeVar("Item")

SPLITS = ("train", "dev", "test")
# of five buckets: three for training, one each for development and test
_BUCKETS = ("train", "train", "train", "dev", "test")


class Draw:
    """A stream of choices. It uses `random()` only, which Python promises to keep the same for a seed."""

    def __init__(self, *seed: object) -> None:
        text = "\n".join(map(str, seed))
        self._random = Random(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random.random() < probability

    def of(self, items: Sequence[Item]) -> Item:
        """One of the items, each as likely."""
        return items[int(self._random.random() * len(items))]

    def weighted(self, weights: dict[str, float]) -> str:
        """One of the keys, as likely as its weight says."""
        assert weights
        key = ""
        drawn = self._random.random() * sum(weights.values())
        for key, weight in weights.items():
            drawn -= weight
            if drawn < 0:
                return key
        return key


def split_of(text: str) -> str:
    """The split that a text belongs to, always the same: three in five to train, one each to dev and test."""
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return _BUCKETS[number % len(_BUCKETS)]
