"""What a comparison will take: time by what its first words take, and bytes by counting."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from residuum.comparison.estimates import ComparisonPlan
from residuum.comparison.passes import (
    PIECE_WORDS,
    SentenceGroup,
    frequent_types,
    group_attention,
    group_side,
    read_pieces,
)
from residuum.costs import Cost, CostStep, quickest, within
from residuum.engine import MOST_TASKS, Engine, tree_height
from residuum.maths.layouts import scatter_bytes
from residuum.maths.moments import CHUNK, MomentsAccumulator, merge
from residuum.maths.similarity import array_similarity_matrix, similarity_matrices

FLOAT32, FLOAT64 = 4, 8
FIRST_WORDS = 4 * PIECE_WORDS
"""Words that are read to measure the speed of reading."""
SCATTER = 1 << 27
"""Bytes of sums that the speed of summing is measured with, at most: more than a cache holds."""
MORE = 3
"""Chunks of words that are summed besides a first one."""


def comparison_cost(plan: ComparisonPlan, times: float = 1.0) -> Cost:
    """Reading, sums and measures of a comparison, step by step; of a text `times` as long as what is at hand."""
    words = round(times * sum(group.words for group in plan.groups))
    tasks = min(round(times * sum(map(len, plan.parts))), len(plan.groups) * MOST_TASKS)
    replicates = len(plan.groups) + 1 if plan.intervals and len(plan.groups) > 1 else 1
    types = frequent_types(plan.sources[0].sentences) if plan.sources[0].unit == "word" else {}
    reading = _per_word(plan, lambda group: group_side(plan.sources, group, types, np.zeros(0, np.int64)))
    steps = [CostStep("contexts and sample", reading * words, _tasks(plan, tasks), memory=side_bytes(plan))]
    if plan.of("moments"):
        steps += _moments(plan, words, tasks, replicates)
    for measure in plan.of("arrays"):
        matrices = replicates + 4 * plan.permutations  # with as many permuted layers beside them
        steps.append(array_step(measure, plan.widths, min(plan.sample, words), matrices, memory=array_bytes(plan)))
    if plan.has_attention:
        measures = [*plan.of("attention"), *plan.of("attention moments")]
        reading = _per_word(plan, lambda group: group_attention(plan.sources, group, measures))
        seconds = reading * words * (1 + 4 * plan.permutations)
        steps.append(CostStep("attention", seconds, _tasks(plan, tasks), memory=attention_bytes(plan)))
    names = ", ".join(source.name for source in plan.sources)
    what = f"{names}: {words:,} {plan.sources[0].unit}s × {len(plan.widths)} layers"
    return Cost(what, tuple(steps), plan.engine.width, plan.engine.client is not None)


def _moments(plan: ComparisonPlan, words: int, tasks: int, replicates: int) -> list[CostStep]:
    """One step for all passes: each reads the words again, and all together multiply each pair of layers once."""
    passes = plan.passes()
    reading = _per_word(plan, lambda group: [None for _ in read_pieces(plan.sources, group)])
    sums = moments_step("moments", plan.widths, words, _tasks(plan, tasks), plan.engine, plan.products, plan.threads)
    largest = max(scatter_bytes(plan.widths, pairs) for pairs in passes)
    times = 1 + 2 * plan.permutations
    seconds = times * (sums.seconds + reading * words * len(passes))
    name = "moments" if len(passes) == 1 else f"moments, {len(passes)} passes"
    # Without a group most measures are followed by their gradient, which takes little beside a decomposition.
    measures = evaluation_step(
        plan.widths, plan.of("moments"), min(replicates, 4), plan.threads, **plan.options_for(plan.of("moments"))
    )
    kept = len(plan.groups) * scatter_bytes(plan.widths) if replicates > 1 else 0
    memory = (4 if plan.permutations else 1) * largest
    return [CostStep(name, seconds, sums.tasks, memory=memory, disk=kept), measures]


def _tasks(plan: ComparisonPlan, tasks: int) -> int:
    return 1 if plan.readers.alone else tasks


def _per_word(plan: ComparisonPlan, read: Callable[[SentenceGroup], object]) -> float:
    """Seconds a word of a pass, by its first words; they are read once before, so that files are open and checked."""
    stop, words = 0, 0
    for sentence in plan.sources[0].sentences:
        stop, words = stop + 1, words + (len(sentence) if plan.sources[0].unit == "word" else 1)
        if words >= FIRST_WORDS:
            break
    group = SentenceGroup(0, 0, stop, words)
    with threadpool_limits(1):
        read(group)
        start = time.perf_counter()
        read(group)
        return (time.perf_counter() - start) / max(1, words)


def check_memory(plan: ComparisonPlan) -> None:
    """Refuse a comparison of which a part that cannot be cut holds more than is allowed."""
    if plan.max_memory is None:
        return
    steps = [CostStep("contexts and sample", 0.0, tasks=plan.readers.workers, memory=side_bytes(plan))]
    steps += [CostStep(measure, 0.0, memory=array_bytes(plan)) for measure in plan.of("arrays")]
    if plan.has_attention:
        steps.append(CostStep("attention", 0.0, tasks=plan.readers.workers, memory=attention_bytes(plan)))
    words, readers = sum(group.words for group in plan.groups), plan.readers
    what = f"{words:,} {plan.sources[0].unit}s × {len(plan.widths)} layers"
    cost = Cost(what, tuple(steps), readers.workers, elsewhere=readers.client is not None)
    within(cost, plan.max_memory, "Allow more, use fewer workers or layers, lower --sample, or leave the measure out")


def side_bytes(plan: ComparisonPlan) -> int:
    """Sums of the frequent words, in all that holds them at once, and the rows of the sample that were met so far."""
    types = len(frequent_types(plan.sources[0].sentences)) if plan.sources[0].unit == "word" else 0
    # All groups so far, this one, what is being merged of it, and the accumulator beside its result.
    copies = 4 + tree_height(max(map(len, plan.parts)))
    sampled = plan.sampled_words * sum(plan.widths) * FLOAT32
    piece = PIECE_WORDS * (sum(plan.widths) * FLOAT32 + max(plan.widths) * 2 * FLOAT64)
    return copies * types * sum(plan.widths) * FLOAT64 + 2 * sampled + piece


def array_bytes(plan: ComparisonPlan) -> int:
    """The sample, the sample without a group, and twice a number for each pair of its words in all layers."""
    layers, words = len(plan.widths), plan.sampled_words
    times = 2 if plan.permutations else 1  # the same words in another order stand beside them
    rows = words * sum(plan.widths) * FLOAT32
    return (1 + times) * rows + (2 * times * layers + 3) * words**2 * FLOAT64


def attention_bytes(plan: ComparisonPlan) -> int:
    """Weights of the sentences that are read at once, those of the longest in some copies, and sums of all heads."""
    heads = sum(source.n_heads for source in plan.sources for layer in source.layers if layer > 0)
    longest = max(map(len, plan.sources[0].sentences))
    read = max(longest, PIECE_WORDS) * longest * heads * FLOAT32
    measures = len(plan.of("attention")) + 1  # one more for the moments
    groups = len(plan.groups) + 2 if plan.intervals else 2
    return read + 4 * longest**2 * heads * FLOAT64 + groups * measures * heads**2 * FLOAT64


def moments_step(
    name: str,
    widths: Sequence[int],
    words: int,
    tasks: int,
    engine: Engine,
    products: str = "float64",
    threads: int = 1,
) -> CostStep:
    """Second moments of all pairs of layers, by those of as many layers as `SCATTER` allows.

    Each task begins and ends its sums, and each chunk of words is added to them; both grow with the pairs of neurons.
    `name` is what the step is called.
    """
    width, area = max(1, round(float(np.mean(widths)))), scatter_bytes(widths)
    few = next(n for n in range(len(widths), 0, -1) if n == 1 or scatter_bytes([width] * n) <= SCATTER)
    with threadpool_limits(engine.threads):
        _summing([width] * few, 1, products, threads)  # wakes the machine up
        one, more = (quickest(lambda n=n: _summing([width] * few, n, products, threads), 2) for n in (1, 1 + MORE))
    per_chunk = max(more - one, 0.0) / MORE
    per_task = max(one - per_chunk, 0.0)
    seconds = (words / CHUNK * per_chunk + tasks * per_task) * area / scatter_bytes([width] * few)
    return CostStep(name, seconds, tasks, memory=area + 8 * CHUNK * sum(widths))


def evaluation_step(
    widths: Sequence[int], measures: Sequence[str], replicates: int, threads: int, **options: Any
) -> CostStep:
    """Measures of all pairs of layers for each replicate: a layers + b layers², and taking a group's moments away."""
    width = max(1, round(float(np.mean(widths))))
    few = {}
    for n in (1, 3):
        accumulator = MomentsAccumulator([width] * n)
        for seed in range(-(-3 * width // CHUNK)):  # more words than neurons, as real text has
            accumulator.update(list(_random_layers([width] * n, seed)))
        few[n] = accumulator.result()
    with threadpool_limits(1):
        one, three = (
            quickest(lambda m=m: similarity_matrices(m, measures, threads=threads, **options)) for m in few.values()
        )
        away = quickest(lambda: merge(few[3], few[3])) / scatter_bytes([width] * 3)
    per_pair = max(three - 3 * one, 0.0) / 6
    per_layer = max(one - per_pair, 0.0)
    n, held = len(widths), scatter_bytes(widths)
    seconds = replicates * (per_layer * n + per_pair * n**2 + away * held)
    return CostStep("measures", seconds, memory=4 * held)


def array_step(measure: str, widths: Sequence[int], sample: int, replicates: int, memory: int) -> CostStep:
    """A measure of the sampled words themselves, which one process takes for each replicate."""
    width = max(1, round(float(np.mean(widths))))
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((sample, width), dtype=np.float32) for _ in range(3)]
    one, three = (quickest(lambda n=n: array_similarity_matrix(layers[:n], measure), 1) for n in (1, 3))
    per_pair = max(three - 3 * one, 0.0) / 6
    per_layer = max(one - per_pair, 0.0)
    n = len(widths)
    return CostStep(measure, replicates * (per_layer * n + per_pair * n**2), memory=memory)


def _summing(widths: Sequence[int], chunks: int, products: str, threads: int) -> None:
    """What a task does with so many chunks of words."""
    accumulator = MomentsAccumulator(widths, products=products, threads=threads)
    layers = list(_random_layers(widths))
    for _ in range(chunks):
        accumulator.update(layers)
    accumulator.result()


def _random_layers(widths: Sequence[int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((CHUNK, width), dtype=np.float32) for width in widths]
