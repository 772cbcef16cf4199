"""What a comparison will take, by what its first words take."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from residuum.comparison.estimates import Plan
from residuum.comparison.memory import array_bytes, attention_bytes, side_bytes
from residuum.comparison.passes import PIECE_WORDS, Group, frequent_types, group_attention, group_side, read_pieces
from residuum.costs import Cost, Step, array_step, evaluation_step, moments_step
from residuum.engine import MOST_TASKS
from residuum.maths.layer_blocks import scatter_bytes

FIRST_WORDS = 4 * PIECE_WORDS
"""Words that are read to measure the speed of reading."""


def comparison_cost(plan: Plan, times: float = 1.0) -> Cost:
    """Reading, sums and measures of a comparison, step by step; of a text `times` as long as what is at hand."""
    words = round(times * sum(group.words for group in plan.groups))
    tasks = min(round(times * sum(map(len, plan.parts))), len(plan.groups) * MOST_TASKS)
    replicates = len(plan.groups) + 1 if plan.intervals and len(plan.groups) > 1 else 1
    steps = [_side(plan, words, tasks)]
    if plan.of("moments"):
        steps += _moments(plan, words, tasks, replicates)
    for measure in plan.of("arrays"):
        matrices = replicates + plan.null
        steps.append(array_step(measure, plan.widths, min(plan.sample, words), matrices, memory=array_bytes(plan)))
    if plan.has_attention:
        steps.append(_attention(plan, words, tasks))
    names = ", ".join(source.name for source in plan.sources)
    what = f"{names}: {words:,} {plan.sources[0].unit}s × {len(plan.widths)} layers"
    return Cost(what, tuple(steps), plan.engine.width, plan.engine.client is not None)


def _side(plan: Plan, words: int, tasks: int) -> Step:
    types = frequent_types(plan.sources[0].sentences) if plan.sources[0].unit == "word" else {}
    seconds = _per_word(plan, lambda group: group_side(plan.sources, group, types, np.zeros(0, np.int64)))
    return Step("contexts and sample", seconds * words, _tasks(plan, tasks), memory=side_bytes(plan))


def _moments(plan: Plan, words: int, tasks: int, replicates: int) -> list[Step]:
    """One step for all passes: each reads the words again, and all together multiply each pair of layers once."""
    passes = plan.passes()
    reading = _per_word(plan, lambda group: [None for _ in read_pieces(plan.sources, group)])
    sums = moments_step("moments", plan.widths, words, _tasks(plan, tasks), plan.engine, plan.products)
    largest = max(scatter_bytes(plan.widths, pairs) for pairs in passes)
    times = 2 if plan.null else 1
    seconds = times * (sums.seconds + reading * words * len(passes))
    name = "moments" if len(passes) == 1 else f"moments, {len(passes)} passes"
    measures = evaluation_step(
        plan.widths, plan.of("moments"), replicates, plan.engine, **plan.options_for(plan.of("moments"))
    )
    return [Step(name, seconds, sums.tasks, memory=times**2 * largest), measures]


def _attention(plan: Plan, words: int, tasks: int) -> Step:
    measures = [*plan.of("attention"), *plan.of("attention moments")]
    seconds = _per_word(plan, lambda group: group_attention(plan.sources, group, measures))
    return Step("attention", seconds * words, _tasks(plan, tasks), memory=attention_bytes(plan))


def _tasks(plan: Plan, tasks: int) -> int:
    return 1 if plan.readers.alone else tasks


def _per_word(plan: Plan, read: Callable[[Group], object]) -> float:
    """Seconds a word of a pass, by its first words; they are read once before, so that files are open and checked."""
    stop, words = 0, 0
    for sentence in plan.sources[0].sentences:
        stop, words = stop + 1, words + (len(sentence) if plan.sources[0].unit == "word" else 1)
        if words >= FIRST_WORDS:
            break
    group = Group(0, 0, stop, words)
    with threadpool_limits(plan.readers.threads):
        read(group)
        start = time.perf_counter()
        read(group)
        return (time.perf_counter() - start) / max(1, words)
