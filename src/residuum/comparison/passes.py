"""One pass over a group of sentences: the sums that all measures are made of.

Everything here is a pure function of a group, so that groups can be computed anywhere, in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from typing import Any, Protocol, cast

import numpy as np
from jaxtyping import Float, Int

from residuum.activations.auditing import Audited
from residuum.activations.store import Block, word_places
from residuum.engine import cut_into_tasks
from residuum.errors import DataError, SettingError
from residuum.maths.arrays import SINGLE
from residuum.maths.attention import HEAD_MEASURES, AttentionAccumulator, AttentionSums, word_pairs
from residuum.maths.attention import merge as merge_heads
from residuum.maths.layouts import Layout, Pair
from residuum.maths.moments import Moments, MomentsAccumulator, merge
from residuum.maths.profiles import ContextAccumulator, ContextSums
from residuum.maths.profiles import merge as merge_contexts

PIECE_WORDS = 512  # read at once
CLIP_WORDS = 2000  # whose quantiles are those of a neuron
WORD_TYPES = 500  # whose contexts are compared: the most frequent ones


class Activations(Audited, Protocol):
    """What is compared: a store, or a model that is read while it is needed."""

    @property
    def layers(self) -> list[int]:
        """The layers that can be read, by their number in the model."""
        ...

    @property
    def widths(self) -> list[int]:
        """The number of neurons of each layer."""
        ...

    @property
    def n_heads(self) -> int:
        """The number of attention heads of each block; 0 without attention."""
        ...

    @property
    def unit(self) -> str:
        """What a row is: `word` or `sentence`."""
        ...

    @property
    def sentences(self) -> list[list[str]]:
        """The words of every sentence."""
        ...

    def read(self, first: int, stop: int) -> Block:
        """All layers of sentences first … stop − 1."""
        ...

    def read_attention(self, first: int, stop: int) -> list[list[np.ndarray]]:
        """Attention in these sentences: for each a list over blocks of heads × words × words."""
        ...


@dataclass(frozen=True)
class SentenceGroup:
    """Neighbouring sentences that a jackknife leaves out together."""

    number: int
    first: int
    stop: int
    words: int
    part: int = 0  # where a group is cut into tasks


@dataclass(frozen=True, eq=False)
class Side:
    """What the first pass collects beside the moments: word contexts, and a sample of words in all layers.

    `counts`, `sums` and `squares` are n, Σx and Σ‖x‖² of all words (0) and of the first words of sentences (1).
    """

    contexts: ContextSums | None
    sample: list[Float[np.ndarray, "word neuron"]]
    counts: Int[np.ndarray, "2"]
    sums: Float[np.ndarray, "2 neuron"]
    squares: Float[np.ndarray, "2 layer"]

    def first_share(self, widths: Sequence[int]) -> Float[np.ndarray, " layer"]:
        """The share of each layer's variance that the first words of sentences carry: Σ_first ‖x − μ‖² / Σ ‖x − μ‖²."""
        mean, layout = self.sums[0] / max(self.counts[0], 1), Layout(tuple(widths))
        about = self.squares - 2 * layout.sum_by_layer(self.sums * mean)
        about += self.counts[:, None] * layout.sum_by_layer(mean**2)
        return np.divide(about[1], about[0], out=np.zeros(len(widths)), where=about[0] > 0)


@dataclass(frozen=True, eq=False)
class AttentionPass:
    """What a pass over attention leaves: sums of pairs of heads, and moments over word pairs."""

    heads: AttentionSums
    moments: Moments


def cut_into_groups(rows: Sequence[int], n_groups: int) -> list[SentenceGroup]:
    """Cut a corpus, with so many rows in each sentence, into at most `n_groups` runs with about as many rows each."""
    ends = np.cumsum(rows)
    if not len(ends) or ends[-1] == 0:
        raise DataError("The corpus has no words; expected at least one sentence.")
    targets = ends[-1] * np.arange(1, n_groups) / n_groups
    cuts = sorted({0, len(ends), *(np.searchsorted(ends, targets) + 1).tolist()})
    words = np.concatenate([[0], ends])
    runs = [(a, b) for a, b in pairwise(cuts) if words[b] > words[a]]
    return [SentenceGroup(i, a, b, int(words[b] - words[a])) for i, (a, b) in enumerate(runs)]


def group_parts(rows: Sequence[int], group: SentenceGroup) -> list[SentenceGroup]:
    """A group as the tasks that it is worth; they depend on the words alone."""
    sizes = rows[group.first : group.stop]
    runs = enumerate(cut_into_tasks(sizes))
    return [
        replace(
            group, first=group.first + run.start, stop=group.first + run.stop, words=sum(sizes[i] for i in run), part=i
        )
        for i, run in runs
    ]


def group_moments(
    sources: Sequence[Activations], group: SentenceGroup, pairs: list[Pair], products: str = "float64", threads: int = 1
) -> Moments:
    """The moments of a group for some pairs of layers of all models side by side."""
    accumulator = MomentsAccumulator(_widths(sources), pairs=pairs, products=products, threads=threads)
    for layers, _ in read_pieces(sources, group):
        accumulator.update(layers)
    return accumulator.result()


def group_null(
    sources: Sequence[Activations],
    group: SentenceGroup,
    pairs: list[Pair],
    seed: Sequence[int],
    products: str = "float64",
    threads: int = 1,
) -> Moments:
    """The same with the words of the second layer of each pair permuted, as layers L, L + 1, …."""
    widths = _widths(sources)
    shifted = [(i, len(widths) + j) for i, j in pairs]
    accumulator = MomentsAccumulator([*widths, *widths], pairs=shifted, products=products, threads=threads)
    rng = np.random.default_rng([*seed, group.number, group.part])
    for layers, _ in read_pieces(sources, group):
        order = rng.permutation(len(layers[0]))
        accumulator.update([*layers, *(layer[order] for layer in layers)])
    return accumulator.result()


def group_side(
    sources: Sequence[Activations], group: SentenceGroup, types: dict[str, int], sample: Int[np.ndarray, " word"]
) -> Side:
    """The contexts of frequent words, and the rows of the sampled words."""
    widths = _widths(sources)
    contexts = ContextAccumulator(len(types), widths) if types else None
    sampled: list[list[np.ndarray]] = [[np.zeros((0, width), dtype=np.float32) for width in widths]]
    counts, sums, squares = np.zeros(2, dtype=np.int64), np.zeros((2, sum(widths))), np.zeros((2, len(widths)))
    for layers, places in read_pieces(sources, group):
        for k, rows in enumerate((slice(None), places[:, 1] == 0)):
            chosen = [layer[rows].astype(np.float64) for layer in layers]
            counts[k] += len(chosen[0])
            sums[k] += np.concatenate([layer.sum(axis=0) for layer in chosen])
            squares[k] += [np.vdot(layer, layer) for layer in chosen]
        kept = np.isin(_keys(places), sample)
        sampled.append([layer[kept] for layer in layers])
        if contexts is not None:
            words = [types.get(sources[0].sentences[sentence][word]) for sentence, word in places]
            rows = np.array([i for i, t in enumerate(words) if t is not None], dtype=np.int64)
            numbers = np.array([t for t in words if t is not None], dtype=np.int64)
            if len(rows):
                contexts.update(numbers, [layer[rows] for layer in layers])
    joined = [np.concatenate(parts) for parts in zip(*sampled, strict=True)]
    return Side(None if contexts is None else contexts.result(), joined, counts, sums, squares)


def group_attention(
    sources: Sequence[Activations], group: SentenceGroup, measures: Sequence[str], seed: Sequence[int] = ()
) -> AttentionPass:
    """The sums over a group's sentences of all attention heads of all models that have some.

    With a `seed` all layers follow once more, with the words of each sentence permuted.
    """
    sources = [source for source in sources if source.n_heads]
    heads = [source.n_heads for source in sources for layer in source.layers if layer > 0] * (2 if seed else 1)
    rng = np.random.default_rng([*seed, group.number, group.part])
    chosen = [measure for measure in HEAD_MEASURES if measure in measures]
    accumulator, moments = AttentionAccumulator(heads, measures=chosen), MomentsAccumulator(heads)
    for first, stop in _ranges(sources[0].sentences, group):
        readings = [source.read_attention(first, stop) for source in sources]
        for sentence in zip(*readings, strict=True):
            layers = [layer for reading in sentence for layer in reading]
            if seed:
                order = rng.permutation(layers[0].shape[1])
                layers += [layer[:, order][:, :, order] for layer in layers]
            if layers[0].shape[1]:
                accumulator.update(layers)
                moments.update([word_pairs(layer) for layer in layers])
    return AttentionPass(accumulator.result(), moments.result())


def merge_sides(a: Side, b: Side) -> Side:
    """What was collected in two runs of words, the one after the other."""
    sample = [np.concatenate(rows) for rows in zip(a.sample, b.sample, strict=True)]
    contexts = None if a.contexts is None or b.contexts is None else merge_contexts(a.contexts, b.contexts)
    return Side(contexts, sample, a.counts + b.counts, a.sums + b.sums, a.squares + b.squares)


def merge_attention(a: AttentionPass, b: AttentionPass) -> AttentionPass:
    """The sums over two runs of words."""
    return AttentionPass(merge_heads(a.heads, b.heads), merge(a.moments, b.moments))


@dataclass(frozen=True, eq=False)
class Treated:
    """Activations without what a few outliers do to them; all else is that of the `source`.

    Without the first `skip_first` words of each sentence, without neurons `dropped` of each layer (they become
    constant), and per neuron cut at `bounds` (low, high) and then divided by `scales`.
    """

    source: Activations
    skip_first: int = 0
    dropped: dict[int, list[int]] = field(default_factory=dict)
    bounds: list[Float[np.ndarray, "2 neuron"]] | None = None
    scales: list[Float[np.ndarray, " neuron"]] | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "source":
            raise AttributeError(name)
        return getattr(self.source, name)

    def read(self, first: int, stop: int) -> Block:
        """All layers of sentences first … stop − 1, treated."""
        block = self.source.read(first, stop)
        kept = block.places[:, 1] >= self.skip_first
        layers = []
        for i, (number, layer) in enumerate(zip(self.source.layers, block.layers, strict=True)):
            treated = layer[kept]
            if self.bounds is not None:
                treated = np.clip(treated, *self.bounds[i])
            if self.scales is not None:
                treated = treated / self.scales[i]
            if number in self.dropped:
                treated = treated.copy()
                treated[:, self.dropped[number]] = 0.0
            layers.append(treated.astype(layer.dtype, copy=False))
        return replace(block, layers=layers, places=block.places[kept])


def without_outliers(
    source: Activations, dropped: dict[int, list[int]], skip_first: int, clip: float | None, standardize: bool
) -> Activations:
    """The activations with some remedies against outliers, as `Treated`; clipping and scales take a pass each.

    `clip` keeps that central share of each neuron's values, by the quantiles of `CLIP_WORDS` words; `standardize`
    gives each neuron variance 1.
    """
    if not (dropped or skip_first or clip or standardize):
        return source
    for layer, neurons in dropped.items():
        width = dict(zip(source.layers, source.widths, strict=True)).get(layer, 0)
        if outside := [neuron for neuron in neurons if neuron >= width]:
            raise SettingError(f"Neuron {layer}:{outside[0]} is not in {source.name}; its layer {layer} has {width}.")
    treated = Treated(source, skip_first, dropped)
    rows = rows_of_sentences(source)
    whole = SentenceGroup(0, 0, len(rows), sum(rows))
    if clip:
        chosen = sample_rows(rows, CLIP_WORDS, seed=0)
        read = read_pieces([cast(Activations, treated)], whole)
        pieces = [[x[np.isin(_keys(places), chosen)] for x in layers] for layers, places in read]
        share = [(1 - clip) / 2, (1 + clip) / 2]
        bounds = [np.quantile(np.concatenate(parts), share, axis=0) for parts in zip(*pieces, strict=True)]
        treated = replace(treated, bounds=bounds)
    if standardize:
        n, mean, scatter = 0, [np.zeros(w) for w in source.widths], [np.zeros(w) for w in source.widths]
        for layers, _ in read_pieces([cast(Activations, treated)], whole):
            m = len(layers[0])
            for i, layer in enumerate(layers):
                piece_mean = layer.mean(axis=0, dtype=np.float64)
                scatter[i] += np.square(layer - piece_mean).sum(axis=0) + (piece_mean - mean[i]) ** 2 * n * m / (n + m)
                mean[i] += (piece_mean - mean[i]) * m / (n + m)
            n += m
        roots = [np.sqrt(s / max(n, 1)) for s in scatter]
        scales = [np.where(root > SINGLE * np.abs(mu), root, 1.0) for root, mu in zip(roots, mean, strict=True)]
        treated = replace(treated, scales=scales)
    return cast(Activations, treated)


def rows_of_sentences(source: Activations) -> list[int]:
    """How many rows each sentence has: one a word, or one."""
    return [len(words) if source.unit == "word" else 1 for words in source.sentences]


def frequent_types(sentences: Sequence[Sequence[str]]) -> dict[str, int]:
    """The words that occur most often, and at least twice, numbered."""
    counts = Counter(word for words in sentences for word in words)
    chosen = sorted((word for word in counts if counts[word] > 1), key=lambda word: (-counts[word], word))
    return {word: i for i, word in enumerate(chosen[:WORD_TYPES])}


def sample_rows(rows: Sequence[int], size: int, seed: int) -> Int[np.ndarray, " row"]:
    """The keys of a random sample of the rows, so many in each sentence, in corpus order."""
    keys = _keys(word_places(rows))
    if len(keys) <= size:
        return keys
    return np.sort(np.random.default_rng(seed).choice(keys, size, replace=False))


def read_pieces(
    sources: Sequence[Activations], group: SentenceGroup
) -> Iterator[tuple[list[Float[np.ndarray, "word neuron"]], Int[np.ndarray, "word 2"]]]:
    """A group's words in all layers of all models, some sentences at a time; words that a model lacks are left out."""
    for first, stop in _ranges(sources[0].sentences, group):
        blocks = [source.read(first, stop) for source in sources]
        keys = [_keys(block.places) for block in blocks]
        if any(not np.array_equal(keys[0], other) for other in keys[1:]):
            common = reduce(np.intersect1d, keys)
            masks = [np.isin(key, common) for key in keys]
            blocks = [
                replace(block, layers=[layer[mask] for layer in block.layers], places=block.places[mask])
                for block, mask in zip(blocks, masks, strict=True)
            ]
        if len(blocks[0].places):
            yield [layer for block in blocks for layer in block.layers], blocks[0].places


def _ranges(sentences: Sequence[Sequence[str]], group: SentenceGroup) -> Iterator[tuple[int, int]]:
    first, words = group.first, 0
    for i in range(group.first, group.stop):
        if words and words + len(sentences[i]) > PIECE_WORDS:
            yield first, i
            first, words = i, 0
        words += len(sentences[i])
    yield first, group.stop


def _keys(places: Int[np.ndarray, "word 2"]) -> Int[np.ndarray, " word"]:
    """One number per word that sorts as the corpus does."""
    return (places[:, 0].astype(np.int64) << 32) + places[:, 1]


def _widths(sources: Sequence[Activations]) -> list[int]:
    return [width for source in sources for width in source.widths]
