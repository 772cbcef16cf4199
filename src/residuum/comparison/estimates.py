"""Each measure's value for all pairs of layers, with its values when one group of sentences is left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from residuum.comparison.passes import (
    Activations,
    SentenceGroup,
    frequent_types,
    group_attention,
    group_moments,
    group_null,
    group_parts,
    group_side,
    merge_attention,
    merge_sides,
    rows_of_sentences,
    sample_rows,
)
from residuum.engine import Engine, merge_tree, reduce_tasks, tree_height
from residuum.errors import DataError, MemoryLimitError, StoreError
from residuum.maths import attention
from residuum.maths import profiles as contexts
from residuum.maths.attention import HEAD_MEASURES
from residuum.maths.cca import LayerSpectra
from residuum.maths.layouts import Pair, plan_passes, scatter_bytes
from residuum.maths.moments import CHUNK, Moments, merge, subtract
from residuum.maths.profiles import ContextSums
from residuum.maths.similarity import (
    MEASURES,
    array_similarity_matrix,
    fold_similarity,
    jackknife_matrices,
    known_options,
    similarity_matrices,
)
from residuum.storage.tensors import read_tensors, write_tensors

GRADIENTS = {"mixed": 2.0, "procrustes": 0.5, "shape": 0.5}
"""What the gradients of these measures take, of what the sums of all pairs of layers take."""
_AGAIN = "Run the same comparison with --fresh."

Progress = Callable[[int], object]


@dataclass(frozen=True, eq=False)
class LayerEstimate:
    """A quantity over layers (a matrix or a curve), without each group in turn, and under the null.

    `bias` is known beside the values without a group where they do not show it.
    """

    value: Float[np.ndarray, "*shape"]
    left_out: Float[np.ndarray, " group *shape"]
    null: Float[np.ndarray, " permutation *shape"] | None = None
    bias: Float[np.ndarray, "*shape"] | None = None


@dataclass(frozen=True, eq=False)
class ComparisonPlan:
    """What is to be compared, and how."""

    sources: list[Activations]
    groups: list[SentenceGroup]
    measures: list[str]
    options: dict[str, Any]
    intervals: bool
    permutations: int
    sample: int
    seed: int
    engine: Engine
    max_memory: int | None
    scratch: Path
    products: str = "float64"
    threads: int = 1

    @property
    def widths(self) -> list[int]:
        """The neurons of all layers of all models, side by side."""
        return [width for source in self.sources for width in source.widths]

    @property
    def readers(self) -> Engine:
        """Who may read: the workers of a cluster, or this process, which alone reads a model in memory."""
        from residuum.activations.store import ActivationStore

        stored = all(isinstance(s, ActivationStore) for s in self.sources)
        return self.engine if stored and self.engine.client is not None else Engine()

    @cached_property
    def parts(self) -> list[list[SentenceGroup]]:
        """The tasks that each group is cut into."""
        rows = rows_of_sentences(self.sources[0])
        return [group_parts(rows, group) for group in self.groups]

    def of(self, source: str) -> list[str]:
        """The measures that are made from moments, arrays, attention or attention moments."""
        return [measure for measure in self.measures if MEASURES[measure].source == source]

    @property
    def has_attention(self) -> bool:
        """Whether attention is read."""
        return bool(self.of("attention") or self.of("attention moments"))

    @property
    def sampled_words(self) -> int:
        """The words whose activations themselves are kept."""
        return min(self.sample, sum(group.words for group in self.groups)) if self.of("arrays") else 0

    def options_for(self, measures: Sequence[str]) -> dict[str, Any]:
        """The options that these measures know."""
        return known_options(measures, self.options)

    def passes(self) -> list[list[Pair]]:
        """The pairs of layers of each pass over the words: as few passes as the memory allows."""
        if self.max_memory is None:
            return plan_passes(self.widths, scatter_bytes(self.widths))
        readers = self.readers.workers  # of a cluster each worker has this room to itself
        buffers = readers * 8 * CHUNK * sum(self.widths)
        # Both halves, their sum, a group and the words without it, and what is still being merged of a group; each
        # reader has an accumulator, and a process also its result, twice: as it leaves there and as it waits here.
        copies = 4 + tree_height(max(map(len, self.parts))) + readers * (1 if readers == 1 else 3)
        copies += sum(GRADIENTS.get(measure, 0.0) for measure in self.measures) if self.intervals else 0.0
        room = int((self.max_memory - buffers) / copies)
        if room <= 0:
            raise MemoryLimitError(
                f"max_memory is {self.max_memory / 1e6:.1f} MB, but reading alone needs {buffers / 1e6:.1f} MB; "
                "allow more, or use fewer workers or layers."
            )
        return plan_passes(self.widths, room)


@dataclass(frozen=True)
class LayerVariance:
    """How a layer's variance is spread over its neurons: what decides whether one neuron speaks for all."""

    constant: int
    top_neuron: int
    top_share: float
    effective_rank: float
    directions: int


def moment_estimates(plan: ComparisonPlan, progress: Progress) -> tuple[dict[str, LayerEstimate], list[LayerVariance]]:
    """All measures that are made from moments, and how the variance of each layer is spread."""
    measures = [*plan.of("moments"), *plan.of("folds")]
    n, groups = len(plan.widths), len(plan.groups) if plan.intervals and len(plan.groups) > 1 else 0
    values = {
        measure: LayerEstimate(
            np.full((n, n), np.nan),
            np.full((groups if np.isfinite(MEASURES[measure].words_per_neuron) else 0, n, n), np.nan),
            np.full((plan.permutations, n, n), np.nan) if measure in plan.of("moments") else None,
            np.full((n, n), np.nan),
        )
        for measure in measures
    }
    variances: dict[int, LayerVariance] = {}
    passes = plan.passes()
    for number, pairs in enumerate(passes):
        # Their number tells which pairs each of them takes: what is left of a run with other memory is of no use.
        folder = plan.scratch / f"pass-{number}-of-{len(passes)}"
        halves = _accumulate(plan, pairs, folder, progress)
        with threadpool_limits(1):
            total = halves[0] if len(halves) == 1 else merge(*halves, threads=plan.threads)
            for layer in {layer for pair in pairs for layer in pair} - variances.keys():
                layer_moments = total.layer(layer)
                kept = LayerSpectra(layer_moments, plan.options.get("variance") or 0.99).principal.whitening.shape[1]
                variances[layer] = LayerVariance(
                    len(total.dead(layer)), *layer_moments.top_neuron, layer_moments.effective_rank, directions=kept
                )
            evaluated = _evaluate(plan, halves, total, folder)
            del halves, total  # the sums under permuted words take their room
            nulls = list(_null_matrices(plan, pairs)) if plan.of("moments") else []
        both = [*pairs, *((j, i) for i, j in pairs)]
        cells = tuple(np.array(both).T)
        for measure, estimate in evaluated.items():
            values[measure].value[cells] = estimate.value[cells]
            values[measure].left_out[(slice(None), *cells)] = estimate.left_out[(slice(None), *cells)]
            if estimate.bias is not None:
                values[measure].bias[cells] = estimate.bias[cells]  # pyright: ignore[reportOptionalSubscript]
        for k, null in enumerate(nulls):
            for measure, matrix in null.items():
                values[measure].null[(k, *cells)] = matrix[cells]  # pyright: ignore[reportOptionalSubscript]
    return values, [variances[layer] for layer in range(n)]


def array_estimates(plan: ComparisonPlan, sample: list[np.ndarray], sizes: list[int]) -> dict[str, LayerEstimate]:
    """The measures that need the activations themselves, on the sampled words (`sizes` of them in each group)."""
    estimates = {}
    group, n = np.repeat(np.arange(len(sizes)), sizes), len(sample)
    orders = [np.random.default_rng([plan.seed, k]).permutation(len(group)) for k in range(plan.permutations)]
    for measure in plan.of("arrays"):
        options, known = plan.options_for([measure]), MEASURES[measure]
        if "sample" in known.options:
            options["sample"] = plan.sample
        compute = partial(array_similarity_matrix, measure=measure, **options)
        covered = plan.intervals and np.isfinite(known.words_per_neuron)
        left_out = [compute([layer[group != g] for layer in sample]) for g in range(len(sizes) if covered else 0)]
        permuted = [] if "word order" in known.unchanged_by else orders  # they would change nothing
        nulls = [compute([*sample, *(layer[order] for layer in sample)])[:n, n:] for order in permuted]
        estimates[measure] = LayerEstimate(
            compute(sample), _stack(left_out, (n, n)), _stack(nulls, (n, n)) if nulls else None
        )
    return estimates


def attention_estimates(plan: ComparisonPlan, progress: Progress) -> tuple[dict[str, LayerEstimate], int]:
    """The measures of attention, and the number of rows of attention that are uniform."""
    measures = [*plan.of("attention"), *plan.of("attention moments")]

    def read(*seed: int) -> list[Any]:
        tasks = [[(plan.sources, part, measures, seed) for part in parts] for parts in plan.parts]
        finished = partial(_tell, progress) if not seed else lambda *_: None
        return list(reduce_tasks(group_attention, tasks, merge_attention, plan.readers, finished))

    def matrices(part: Any) -> dict[str, np.ndarray]:
        of_heads = {m: part.heads.layer_similarity(m) for m in HEAD_MEASURES if m in plan.measures}
        known = plan.of("attention moments")
        return of_heads | (similarity_matrices(part.moments, known, **plan.options_for(known)) if known else {})

    parts = read()
    total = reduce(merge_attention, parts)
    without = parts if plan.intervals and len(parts) > 1 else []
    value, n = matrices(total), len(total.heads.heads)
    left_out = [
        matrices(type(part)(attention.subtract(total.heads, part.heads), subtract(total.moments, part.moments)))
        for part in without
    ]
    nulls = [matrices(reduce(merge_attention, read(plan.seed, k))) for k in range(plan.permutations)]
    estimates = {}
    for measure in measures:
        covered = left_out if np.isfinite(MEASURES[measure].words_per_neuron) else []
        null = _stack([by_measure[measure][:n, n:] for by_measure in nulls], (n, n)) if nulls else None
        estimates[measure] = LayerEstimate(
            value[measure], _stack([by_measure[measure] for by_measure in covered], (n, n)), null
        )
    return estimates, int(total.heads.constant_rows.sum())


@dataclass(frozen=True, eq=False)
class SideEstimates:
    """Context-specificity of each layer, the share of its variance on first words, the sample, and words per group."""

    context: LayerEstimate | None
    first_share: Float[np.ndarray, " layer"]
    sample: list[np.ndarray]
    sizes: list[int]


def side_pass(plan: ComparisonPlan, progress: Progress) -> SideEstimates:
    """What one pass collects beside the moments."""
    sentences = plan.sources[0].sentences
    types = frequent_types(sentences) if plan.sources[0].unit == "word" else {}
    sample = (
        sample_rows(rows_of_sentences(plan.sources[0]), plan.sample, plan.seed)
        if plan.of("arrays")
        else np.zeros(0, dtype=np.int64)
    )
    tasks = [[(plan.sources, part, types, sample) for part in parts] for parts in plan.parts]
    total, samples, files = None, [], []
    sides = reduce_tasks(group_side, tasks, merge_sides, plan.readers, partial(_tell, progress))
    for side, group in zip(sides, plan.groups, strict=True):
        samples.append(side.sample)
        if side.contexts is not None and plan.intervals:
            files.append(plan.scratch / f"contexts-{group.number}.safetensors")
            _save_contexts(side.contexts, files[-1])
        total = merge_sides(replace(total, sample=[]), replace(side, sample=[])) if total else side
    assert total is not None
    context = None
    if total.contexts is not None:
        without = (contexts.subtract(total.contexts, _load_contexts(total.contexts, file)) for file in files)
        value = _specificity(total.contexts)
        left_out = [_specificity(sums) for sums in without] if len(files) > 1 else []
        context = None if np.isnan(value).all() else LayerEstimate(value, _stack(left_out, value.shape))
    share = total.first_share(plan.widths) if plan.sources[0].unit == "word" else np.full(len(plan.widths), np.nan)
    joined = [np.concatenate(parts) for parts in zip(*samples, strict=True)]
    return SideEstimates(context, share, joined, [len(layer_sample[0]) for layer_sample in samples])


def _specificity(sums: ContextSums) -> Float[np.ndarray, " layer"]:
    """Context-specificity; NaN for words, as those without a group, of which no two are of one type, or all are."""
    try:
        return sums.context_specificity()
    except DataError:
        return np.full(len(sums.widths), np.nan)


def _tell(progress: Progress, sources: object, part: SentenceGroup, *_: object) -> None:
    progress(part.words)


def _accumulate(plan: ComparisonPlan, pairs: list[Pair], folder: Path, progress: Progress) -> list[Moments]:
    """The moments of the even and of the odd groups; each group's are kept on disk where they will be left out again.

    A group that is already on disk is not computed again, unless its file was damaged when the machine went down.
    """
    kept = plan.intervals or plan.of("folds")
    files = {g.number: folder / f"group-{g.number}.safetensors" for g in plan.groups}
    on_disk = [g for g in plan.groups if kept and _is_whole(files[g.number])]
    missing = [g for g in plan.groups if g not in on_disk]
    task = partial(group_moments, plan.sources, products=plan.products, threads=plan.threads)
    computed = reduce_tasks(task, [[(p, pairs) for p in plan.parts[g.number]] for g in missing], merge, plan.readers)
    halves: dict[int, Moments] = {}
    for number, group in enumerate(plan.groups):
        if group in on_disk:
            part = load_moments(files[group.number])
        else:
            part = next(computed)
            if kept:
                save_moments(part, files[group.number])
        half = number % 2
        halves[half] = merge(halves[half], part, threads=plan.threads) if half in halves else part
        progress(group.words)
    return [halves[half] for half in sorted(halves)]


def _is_whole(path: Path) -> bool:
    """Whether a group's moments are on disk, as they were written."""
    try:
        return path.exists() and load_moments(path) is not None
    except StoreError:
        return False


def _evaluate(plan: ComparisonPlan, halves: list[Moments], total: Moments, folder: Path) -> Mapping[str, Any]:
    """All measures of these moments, with the values without each group where there are to be intervals."""
    files = [folder / f"group-{group.number}.safetensors" for group in plan.groups]
    parts = [partial(load_moments, file) for file in files]
    evaluated, measures = {}, plan.of("moments")
    if plan.of("folds"):
        evaluated["ridge"] = fold_similarity(parts, total, threads=plan.threads)
    options = {**plan.options_for(measures), "threads": plan.threads}
    if plan.intervals and len(halves) > 1 and measures:
        return evaluated | jackknife_matrices(parts, (halves[0], halves[1]), measures, total=total, **options)
    n = len(plan.widths)
    matrices = similarity_matrices(total, measures, **options) if measures else {}
    return evaluated | {m: LayerEstimate(matrix, np.zeros((0, n, n))) for m, matrix in matrices.items()}


def _null_matrices(plan: ComparisonPlan, pairs: list[Pair]) -> Iterator[dict[str, np.ndarray]]:
    """The measures of these pairs with the words of y permuted, once for each permutation."""
    n, measures = len(plan.widths), plan.of("moments")
    upper = np.triu(np.ones((n, n), dtype=bool))
    for k in range(plan.permutations):
        tasks = [
            [(plan.sources, part, pairs, (plan.seed, k), plan.products, plan.threads) for part in parts]
            for parts in plan.parts
        ]
        total = merge_tree(reduce_tasks(group_null, tasks, merge, plan.readers), merge)
        matrices = similarity_matrices(total, measures, threads=plan.threads, **plan.options_for(measures))
        yield {measure: np.where(upper, matrix[:n, n:], matrix[n:, :n]) for measure, matrix in matrices.items()}


def _stack(matrices: list[np.ndarray], shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    return np.stack(matrices) if matrices else np.zeros((0, *shape))


def _save_contexts(sums: ContextSums, path: Path) -> None:
    write_tensors(path, {"counts": sums.counts, "sums": sums.sums, "squares": sums.squares}, forced=False)


def _load_contexts(total: ContextSums, path: Path) -> ContextSums:
    """The sums of a group, which are of the same types and layers as those of all groups."""
    parts = read_tensors(path, remedy=_AGAIN)
    expected = {name: _kind(getattr(total, name)) for name in ("counts", "sums", "squares")}
    if {name: _kind(part) for name, part in parts.items()} != expected:
        raise StoreError(f"{path} holds other tensors than the sums of a group's words. {_AGAIN}")
    return ContextSums(total.widths, **parts)


def _kind(array: np.ndarray) -> tuple[np.dtype, tuple[int, ...]]:
    return array.dtype, array.shape


def save_moments(moments: Moments, path: Path) -> None:
    """Write moments to a file that is whole or absent, and not forced to disk: the words give them again."""
    write_tensors(path, moments.to_arrays(), forced=False)


def load_moments(path: Path) -> Moments:
    """Read what `save_moments` wrote."""
    arrays = read_tensors(path, remedy=_AGAIN)
    if not _are_moments(arrays):
        raise StoreError(f"{path} holds other tensors than the moments of layers. {_AGAIN}")
    return Moments.from_arrays(arrays)


def _are_moments(arrays: Mapping[str, np.ndarray]) -> bool:
    """Whether names, types and shapes are those of the moments of some layers over one word or more."""
    if not {"n", "widths"} <= arrays.keys() or any(arrays[name].dtype != np.int64 for name in ("n", "widths")):
        return False
    n, widths = arrays["n"], arrays["widths"]
    if n.shape != () or widths.ndim != 1 or not widths.size or min(n, widths.min()) < 1:
        return False
    layers, total = len(widths), sum(widths.tolist())
    expected: dict[str, tuple[int, ...] | None] = {
        "mean": (total,),
        "third": (layers, total),
        "fourth": (layers, layers),
        "floor": (total,),
    }
    expected |= {"resolution": (), "rounding": (), "precision": (layers,)}
    sums = {name: array for name, array in arrays.items() if name not in ("n", "widths")}
    for name in sums.keys() - expected.keys():  # a block by its name; None where it is no block of these layers
        matched = re.fullmatch(r"scatter\.(\d{1,6})\.(\d{1,6})", name)
        i, j = (int(number) for number in matched.groups()) if matched else (1, 0)
        expected[name] = (int(widths[i]), int(widths[j])) if i <= j < layers else None
    return {name: _kind(array) for name, array in sums.items()} == {
        name: (np.dtype(np.float64), shape) for name, shape in expected.items()
    }
