"""Each measure's value for all pairs of layers, with its values when one group of sentences is left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from residuum.comparison.passes import (
    Activations,
    AttentionPass,
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
from residuum.engine import Engine, reduce_tasks, run_tasks, tree_height
from residuum.errors import MemoryLimitError, StoreError
from residuum.maths import attention
from residuum.maths import profiles as contexts
from residuum.maths.attention import HEAD_MEASURES
from residuum.maths.layer_blocks import Pair, plan_passes, scatter_bytes
from residuum.maths.moments import CHUNK, Moments, merge, subtract
from residuum.maths.profiles import ContextSums
from residuum.maths.similarity import MEASURES, array_similarity_matrix, similarity_matrices
from residuum.storage.tensors import read_tensors, write_tensors

_AGAIN = "Run the same comparison with --fresh."

Progress = Callable[[int], object]


@dataclass(frozen=True, eq=False)
class LayerEstimate:
    """A quantity over layers (a matrix or a curve), without each group in turn, and under the null."""

    value: Float[np.ndarray, "*shape"]
    left_out: Float[np.ndarray, " group *shape"]
    null: Float[np.ndarray, "*shape"] | None = None


@dataclass(frozen=True, eq=False)
class ComparisonPlan:
    """What is to be compared, and how."""

    sources: list[Activations]
    groups: list[SentenceGroup]
    measures: list[str]
    options: dict[str, Any]
    intervals: bool
    null: bool
    sample: int
    seed: int
    engine: Engine
    max_memory: int | None
    scratch: Path
    products: str = "float64"

    @property
    def widths(self) -> list[int]:
        """The neurons of all layers of all models, side by side."""
        return [width for source in self.sources for width in source.widths]

    @property
    def readers(self) -> Engine:
        """Who may read: a model in memory is read by this process alone."""
        from residuum.activations.store import ActivationStore

        return self.engine if all(isinstance(s, ActivationStore) for s in self.sources) else Engine()

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
        known = {option for measure in measures for option in MEASURES[measure].options}
        return {name: value for name, value in self.options.items() if name in known}

    def passes(self) -> list[list[Pair]]:
        """The pairs of layers of each pass over the words: as few passes as the memory allows."""
        if self.max_memory is None:
            return plan_passes(self.widths, scatter_bytes(self.widths))
        readers = self.readers.workers  # of a cluster each worker has this room to itself
        buffers = readers * 8 * CHUNK * sum(self.widths)
        # The total and one group beside it, and what is still being merged of that; each reader has an accumulator,
        # and a process also its result, twice: as it leaves there and as it waits here.
        copies = 2 + tree_height(max(map(len, self.parts))) + readers * (1 if readers == 1 else 3)
        room = (self.max_memory - buffers) // copies
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


def moment_estimates(plan: ComparisonPlan, progress: Progress) -> tuple[dict[str, LayerEstimate], list[LayerVariance]]:
    """All measures that are made from moments, and how the variance of each layer is spread."""
    measures = plan.of("moments")
    values = {measure: _empty(plan) for measure in measures}
    variances: dict[int, LayerVariance] = {}
    passes = plan.passes()
    for number, pairs in enumerate(passes):
        # Their number tells which pairs each of them takes: what is left of a run with other memory is of no use.
        folder = plan.scratch / f"pass-{number}-of-{len(passes)}"
        task = partial(group_moments, plan.sources, products=plan.products)
        total = _accumulate(plan, task, pairs, folder, progress)
        for layer in {layer for pair in pairs for layer in pair} - variances.keys():
            moments = total.layer(layer)
            rank = moments.effective_rank
            variances[layer] = LayerVariance(len(total.dead(layer)), *moments.top_neuron, rank)
        results = _evaluate_all(plan, total, folder, measures)
        nulls = _null_matrices(plan, pairs, measures) if plan.null else {}
        for measure in measures:
            _fill(values[measure], pairs, [result[measure] for result in results], nulls.get(measure))
    return values, [variances[layer] for layer in range(len(plan.widths))]


def array_estimates(plan: ComparisonPlan, sample: list[np.ndarray], sizes: list[int]) -> dict[str, LayerEstimate]:
    """The measures that need the activations themselves, on the sampled words (`sizes` of them in each group)."""
    estimates = {}
    group = np.repeat(np.arange(len(sizes)), sizes)
    order = np.random.default_rng(plan.seed).permutation(len(group))
    for measure in plan.of("arrays"):
        options = plan.options_for([measure])
        if "sample" in MEASURES[measure].options:
            options["sample"] = plan.sample
        compute = partial(array_similarity_matrix, measure=measure, **options)
        removed = range(len(sizes)) if plan.intervals else ()
        left_out = [compute([layer[group != g] for layer in sample]) for g in removed]
        null = _array_null(sample, order, measure, options) if plan.null else None
        estimates[measure] = LayerEstimate(compute(sample), _stack(left_out, len(sample)), null)
    return estimates


def attention_estimates(plan: ComparisonPlan, progress: Progress) -> tuple[dict[str, LayerEstimate], int]:
    """The measures of attention, and the number of rows of attention that are uniform."""
    measures = [*plan.of("attention"), *plan.of("attention moments")]
    tasks = [[(plan.sources, part, measures) for part in parts] for parts in plan.parts]
    finished = partial(_tell, progress)
    parts = list(reduce_tasks(group_attention, tasks, merge_attention, plan.readers, finished))
    total = reduce(merge_attention, parts)
    without = [_subtract_attention(total, part) for part in parts] if plan.intervals and len(parts) > 1 else []
    results = [_attention_matrices(plan, one) for one in (total, *without)]
    estimates = {
        measure: LayerEstimate(results[0][measure], _stack([r[measure] for r in results[1:]], len(total.heads.heads)))
        for measure in measures
    }
    return estimates, int(total.heads.constant_rows.sum())


def side_pass(plan: ComparisonPlan, progress: Progress) -> tuple[LayerEstimate | None, list[np.ndarray], list[int]]:
    """Context-specificity of each layer, the sampled words, and how many of them lie in each group."""
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
        if side.contexts is not None:
            total = side.contexts if total is None else contexts.merge(total, side.contexts)
            if plan.intervals:
                files.append(plan.scratch / f"contexts-{group.number}.safetensors")
                _save_contexts(side.contexts, files[-1])
    joined = [np.concatenate(parts) for parts in zip(*samples, strict=True)]
    return _context_estimate(total, files), joined, [len(sample[0]) for sample in samples]


def _tell(progress: Progress, sources: object, part: SentenceGroup, *_: object) -> None:
    progress(part.words)


def _accumulate(
    plan: ComparisonPlan,
    task: Callable[[SentenceGroup, list[Pair]], Moments],
    pairs: list[Pair],
    folder: Path | None,
    progress: Progress,
) -> Moments:
    """The moments of all groups together; each group's are kept on disk where they will be left out again.

    A group that is already on disk is not computed again.
    """
    files = {g.number: folder / f"group-{g.number}.safetensors" for g in plan.groups} if folder else {}
    missing = [g for g in plan.groups if not (files and files[g.number].exists())]
    tasks = [[(part, pairs) for part in plan.parts[group.number]] for group in missing]
    computed = reduce_tasks(task, tasks, merge, plan.readers)
    total: Moments | None = None
    for group in plan.groups:
        if group in missing:
            part = next(computed)
            if files and plan.intervals:
                save_moments(part, files[group.number])
        else:
            part = load_moments(files[group.number])
        total = part if total is None else merge(total, part)
        progress(group.words)
    assert total is not None
    return total


def _evaluate_all(
    plan: ComparisonPlan, total: Moments, folder: Path, measures: list[str]
) -> list[dict[str, np.ndarray]]:
    """The matrices of all words, then of all words but each group's."""
    options = plan.options_for(measures)
    if not plan.intervals or len(plan.groups) < 2:
        return list(run_tasks(_evaluate, [(total, None, measures, options)]))
    save_moments(total, folder / "total.safetensors")
    files = [None, *(folder / f"group-{group.number}.safetensors" for group in plan.groups)]
    tasks = [(folder / "total.safetensors", file, measures, options) for file in files]
    return list(run_tasks(_evaluate, tasks, plan.engine))


def _evaluate(total: Moments | Path, without: Path | None, measures: list[str], options: dict[str, Any]) -> Any:
    moments = load_moments(total) if isinstance(total, Path) else total
    if without is not None:
        moments = subtract(moments, load_moments(without))
    return similarity_matrices(moments, measures, **options)


def _null_matrices(plan: ComparisonPlan, pairs: list[Pair], measures: list[str]) -> dict[str, np.ndarray]:
    n = len(plan.widths)
    task = partial(group_null, plan.sources, seed=plan.seed, products=plan.products)
    total = _accumulate(plan, task, pairs, None, lambda _: None)
    matrices = similarity_matrices(total, measures, **plan.options_for(measures))
    nulls = {}
    for measure, matrix in matrices.items():
        upper, lower = matrix[:n, n:], matrix[n:, :n]
        nulls[measure] = np.where(np.triu(np.ones((n, n), dtype=bool)), upper, lower)
    return nulls


def _array_null(
    sample: list[np.ndarray], order: Int[np.ndarray, " word"], measure: str, options: dict[str, Any]
) -> Float[np.ndarray, "layer layer"]:
    n = len(sample)
    both = array_similarity_matrix([*sample, *(layer[order] for layer in sample)], measure, **options)
    return both[:n, n:]


def _empty(plan: ComparisonPlan) -> LayerEstimate:
    n = len(plan.widths)
    replicates = len(plan.groups) if plan.intervals and len(plan.groups) > 1 else 0
    null = np.full((n, n), np.nan) if plan.null else None
    return LayerEstimate(np.full((n, n), np.nan), np.full((replicates, n, n), np.nan), null)


def _fill(estimate: LayerEstimate, pairs: list[Pair], matrices: list[np.ndarray], null: np.ndarray | None) -> None:
    """Write what a pass found into the whole."""
    for i, j in {*pairs, *((j, i) for i, j in pairs)}:
        estimate.value[i, j] = matrices[0][i, j]
        estimate.left_out[:, i, j] = [matrix[i, j] for matrix in matrices[1:]]
        if null is not None and estimate.null is not None:
            estimate.null[i, j] = null[i, j]


def _context_estimate(total: ContextSums | None, files: list[Path]) -> LayerEstimate | None:
    if total is None:
        return None
    without = (contexts.subtract(total, _load_contexts(total, file)) for file in files)
    left_out = [sums.context_specificity() for sums in without] if len(files) > 1 else []
    value = total.context_specificity()
    return LayerEstimate(value, np.stack(left_out) if left_out else np.zeros((0, *value.shape)))


def _save_contexts(sums: ContextSums, path: Path) -> None:
    write_tensors(path, {"counts": sums.counts, "sums": sums.sums, "squares": sums.squares})


def _load_contexts(total: ContextSums, path: Path) -> ContextSums:
    """The sums of a group, which are of the same types and layers as those of all groups."""
    parts = read_tensors(path, remedy=_AGAIN)
    expected = {name: _kind(getattr(total, name)) for name in ("counts", "sums", "squares")}
    if {name: _kind(part) for name, part in parts.items()} != expected:
        raise StoreError(f"{path} holds other tensors than the sums of a group's words. {_AGAIN}")
    return ContextSums(total.widths, **parts)


def _kind(array: np.ndarray) -> tuple[np.dtype, tuple[int, ...]]:
    return array.dtype, array.shape


def _attention_matrices(plan: ComparisonPlan, part: AttentionPass) -> dict[str, np.ndarray]:
    measures = plan.of("attention moments")
    matrices = {m: part.heads.layer_similarity(m) for m in HEAD_MEASURES if m in plan.measures}
    if measures:
        matrices |= similarity_matrices(part.moments, measures, **plan.options_for(measures))
    return matrices


def _subtract_attention(total: AttentionPass, part: AttentionPass) -> AttentionPass:
    return AttentionPass(attention.subtract(total.heads, part.heads), subtract(total.moments, part.moments))


def _stack(matrices: list[np.ndarray], n: int) -> Float[np.ndarray, "group layer layer"]:
    return np.stack(matrices) if matrices else np.zeros((0, n, n))


def save_moments(moments: Moments, path: Path) -> None:
    """Write moments to a file that is whole or absent."""
    write_tensors(path, moments.to_arrays())


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
    expected = {"mean": (total,), "third": (layers, total), "fourth": (layers, layers), "floor": (total,)}
    expected["resolution"] = ()
    sums = {name: array for name, array in arrays.items() if name not in ("n", "widths")}
    expected |= {name: _scatter_shape(name, widths.tolist()) for name in sums if name not in expected}
    return {name: _kind(array) for name, array in sums.items()} == {
        name: (np.dtype(np.float64), shape) for name, shape in expected.items()
    }


def _scatter_shape(name: str, widths: list[int]) -> tuple[int, int] | None:
    """The shape of a block by its name; None where it is no block of these layers."""
    found = re.fullmatch(r"scatter\.(\d{1,6})\.(\d{1,6})", name)
    i, j = (int(number) for number in found.groups()) if found else (1, 0)
    return (widths[i], widths[j]) if i <= j < len(widths) else None
