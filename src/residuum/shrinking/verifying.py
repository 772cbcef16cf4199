"""What a smaller model lost and won: quality, sentence tasks, size, speed and memory, beside the original."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from residuum.corpus import Corpus
from residuum.corpus.tasks import labels_of, named_task
from residuum.evaluation.pairs import SentencePairs
from residuum.maths.metrics import Truth, score_interval
from residuum.maths.statistics import bootstrap_mean
from residuum.models.loading import from_transformers
from residuum.models.sentences import SentenceLayout
from residuum.shrinking.measuring import in_turns, speed_up
from residuum.shrinking.planning import LONGEST, encoded, inputs_of, no_cache, sentence_vectors

BATCHES = (1, 32)
"""Texts per batch at which speed and memory are measured."""
TIMED_LINES = 32
AT_ONCE = 64


@torch.inference_mode()
def text_vectors(network: Any, tokenizer: Any, texts: Sequence[str], layout: SentenceLayout | None) -> Tensor:
    """The sentence vectors of texts, in their order."""
    base: Any = getattr(network, "base_model", network)
    window, device = from_transformers(network, tokenizer).window or LONGEST, next(base.parameters()).device
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    rows = []
    for first in range(0, len(order), AT_ONCE):
        batch = encoded(tokenizer, [texts[i] for i in order[first : first + AT_ONCE]], layout, window)
        rows.append(sentence_vectors(base, inputs_of(batch, device), layout).cpu())
    found = torch.cat(rows)
    return torch.zeros_like(found).index_copy(0, torch.tensor(order), found)


def similarity_score(
    network: Any, tokenizer: Any, task: str, corpus: Corpus, layout: SentenceLayout | None, seed: int
) -> dict[str, float]:
    """Spearman's ρ between the cosines of pairs of sentences and their gold similarity, with its interval."""
    pairs = [(corpus.text(i), corpus.pair_text(i) or "") for i in range(len(corpus))]
    first, second = (
        text_vectors(network, tokenizer, [pair[side] for pair in pairs], layout).double() for side in (0, 1)
    )
    gold = np.array([float(label) for label in labels_of(corpus, named_task(task))])
    truth = Truth("spearman", gold, np.arange(len(gold)))
    interval = score_interval([truth.sums(torch.cosine_similarity(first, second).numpy())], seed=seed)
    bounds = (interval.value, interval.low, interval.high)
    return {name: float(value) for name, value in zip((task, f"{task}_low", f"{task}_high"), bounds, strict=True)}


def retrieval_score(
    network: Any, tokenizer: Any, pairs: Sequence[SentencePairs], layout: SentenceLayout | None
) -> dict[str, float]:
    """How often a sentence is nearest to its translation, over both directions of all language pairs."""
    hits = []
    for task in pairs:
        sides = [text_vectors(network, tokenizer, texts, layout) for texts in (task.source, task.target)]
        a, b = (nn.functional.normalize(vectors, dim=1) for vectors in sides)
        cosines, gold = a @ b.T, torch.arange(len(a))
        hits += [cosines.argmax(dim=1) == gold, cosines.argmax(dim=0) == gold]
    interval = bootstrap_mean(torch.cat(hits).double().numpy())
    return {
        "retrieval": float(interval.value),
        "retrieval_low": float(interval.low),
        "retrieval_high": float(interval.high),
    }


def measured_costs(before: Any, after: Any, tokenizers: Sequence[Any], lines: Sequence[str]) -> list[dict[str, float]]:
    """Milliseconds per text and megabytes of tensors of two models at batches of 1 and 32, and the speed-up.

    Tokenising counts; the models take turns, so that what else the machine does meets both.
    """
    lines = list(lines[:TIMED_LINES])
    rows: list[dict[str, float]] = [{}, {}]
    for size in BATCHES:
        works = [
            batch_reader(network, tokenizer, lines, size)
            for network, tokenizer in zip((before, after), tokenizers, strict=True)
        ]
        times = in_turns(*works)
        ratio = speed_up(times)
        for row, seconds, work in zip(rows, times.min(axis=0), works, strict=True):
            row[f"ms_{size}"] = 1e3 * float(seconds) / len(lines)
            with LiveBytes() as live:
                work(lines[:size])
            row[f"mb_{size}"] = live.peak / 1e6
        rows[1] |= {
            f"speedup_{size}": float(ratio.value),
            f"speedup_{size}_low": float(ratio.low),
            f"speedup_{size}_high": float(ratio.high),
        }
    for row, network in zip(rows, (before, after), strict=True):
        weights = sum(p.numel() * p.element_size() for p in network.parameters()) / 1e6
        row |= {f"mb_{size}": row[f"mb_{size}"] + weights for size in BATCHES}
    return rows


def batch_reader(network: Any, tokenizer: Any, lines: Sequence[str], size: int) -> Any:
    """What reads lines in batches of `size`, tokenising included."""
    base: Any = getattr(network, "base_model", network)
    window = from_transformers(network, tokenizer).window

    @torch.inference_mode()
    def read(texts: Sequence[str] = lines) -> None:
        for first in range(0, len(texts), size):
            batch = encoded(tokenizer, texts[first : first + size], None, window)
            base(**inputs_of(batch, next(base.parameters()).device), **no_cache(base))

    return read


class LiveBytes(TorchDispatchMode):
    """The most bytes that tensors made inside the context held at once."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._held = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count the memory of what it gave that is new."""
        before = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        output = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(output):
            if not isinstance(leaf, Tensor):
                continue
            storage = leaf.untyped_storage()
            place, size = storage.data_ptr(), storage.nbytes()
            if not size or place in self._known or place in before:
                continue
            self._known.add(place)
            self._held += size
            self.peak = max(self.peak, self._held)
            weakref.finalize(storage, self._freed, place, size)
        return output

    def _freed(self, place: int, size: int) -> None:
        self._known.discard(place)
        self._held -= size
