"""What the parts of a comparison hold beside the scatter, which is cut into passes: bytes in one process.

These parts are not cut: where one does not fit, the comparison is refused before it begins.
"""

from __future__ import annotations

from residuum.comparison.estimates import Plan
from residuum.comparison.passes import PIECE_WORDS, frequent_types
from residuum.costs import Cost, Step, within
from residuum.engine import tree_height

FLOAT32, FLOAT64 = 4, 8


def check_memory(plan: Plan) -> None:
    """Refuse a comparison of which a part that cannot be cut holds more than is allowed."""
    if plan.max_memory is None:
        return
    steps = [Step("contexts and sample", 0.0, tasks=plan.readers.workers, memory=side_bytes(plan))]
    steps += [Step(measure, 0.0, memory=array_bytes(plan)) for measure in plan.of("arrays")]
    if plan.has_attention:
        steps.append(Step("attention", 0.0, tasks=plan.readers.workers, memory=attention_bytes(plan)))
    words, readers = sum(group.words for group in plan.groups), plan.readers
    what = f"{words:,} {plan.sources[0].unit}s × {len(plan.widths)} layers"
    cost = Cost(what, tuple(steps), readers.workers, elsewhere=readers.client is not None)
    within(cost, plan.max_memory, "Allow more, use fewer workers or layers, lower --sample, or leave the measure out")


def side_bytes(plan: Plan) -> int:
    """Sums of the frequent words, in all that holds them at once, and the rows of the sample that were met so far."""
    types = len(frequent_types(plan.sources[0].sentences)) if plan.sources[0].unit == "word" else 0
    # All groups so far, this one, what is being merged of it, and the accumulator beside its result.
    copies = 4 + tree_height(max(map(len, plan.parts)))
    sampled = plan.sampled_words * sum(plan.widths) * FLOAT32
    piece = PIECE_WORDS * (sum(plan.widths) * FLOAT32 + max(plan.widths) * 2 * FLOAT64)
    return copies * types * sum(plan.widths) * FLOAT64 + 2 * sampled + piece


def array_bytes(plan: Plan) -> int:
    """The sample, the sample without a group, and twice a number for each pair of its words in all layers."""
    layers, words = len(plan.widths), plan.sampled_words
    times = 2 if plan.null else 1  # the same words in another order stand beside them
    rows = words * sum(plan.widths) * FLOAT32
    return (1 + times) * rows + (2 * times * layers + 3) * words**2 * FLOAT64


def attention_bytes(plan: Plan) -> int:
    """Weights of the sentences that are read at once, those of the longest in some copies, and sums of all heads."""
    heads = sum(source.n_heads for source in plan.sources for layer in source.layers if layer > 0)
    longest = max(map(len, plan.sources[0].sentences))
    read = max(longest, PIECE_WORDS) * longest * heads * FLOAT32
    measures = len(plan.of("attention")) + 1  # one more for the moments
    groups = len(plan.groups) + 2 if plan.intervals else 2
    return read + 4 * longest**2 * heads * FLOAT64 + groups * measures * heads**2 * FLOAT64
