"""What a study costs, by one stated rule, before it starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from residuum.costs import Cost, operations_a_second
from residuum.costs import Step as Part
from residuum.storage.tensors import stored_weights
from residuum.studies.declarations import Load, Step

TOKENS = 30  # of a sentence
SHARE = 0.3  # of the speed of a bare product that a whole step reaches, all that stands between its products counted
PROBED = 1e7  # parameters of a model whose reading of a sentence takes as long as a battery of probes does on it
BYTES, TRAINED = 4, 4  # of a parameter; one that learns has its gradient and two moments beside it
START = 4.0  # seconds to load a model and write a folder
BASE_BLOCKS = 85e6  # parameters of twelve blocks of width 768, for a model that is not at hand

RULE = (
    f"2 operations for each parameter of the blocks and token read, 6 for each one trained on, {2 * PROBED:.0e} for a "
    f"token that probes see, {TOKENS} tokens a sentence, {{speed:.1e}} operations a second"
)


def machine_speed() -> float:
    """Operations a second that a step does on this machine now, by a product of matrices."""
    return SHARE * operations_a_second()


def step_minutes(step: Step, parameters: Mapping[str, float], speed: float) -> float:
    """The expected minutes of a step at so many operations a second; one that names no model works on all of them."""
    own = parameters.get(step.model)
    size = math.fsum(parameters.values()) if own is None else own
    return (START + operations(step.load, size) / speed) / 60


def operations(load: Load, parameters: float) -> float:
    """2·P·tokens for reading, 6·P·tokens for training, and for probes what reading with a small model takes.

    Measured with gte-small (4,992 neurons), whose P is twice that: probes have far fewer operations, but short ones.
    """
    return TOKENS * (parameters * (2 * load.read + 6 * load.trained) + 2 * PROBED * load.probed)


def block_parameters(model: str, known: Mapping[str, float]) -> float:
    """Parameters of a model's blocks: known by name, or counted in the headers of its weights."""
    if model in known:
        return known[model]
    found = stored_weights(model, without=("embed", "lm_head"))
    return BASE_BLOCKS if found is None else float(found)


def all_parameters(model: str, known: Mapping[str, float]) -> float:
    """Parameters of a model with its embeddings; of one that is not at hand, those of its blocks."""
    found = stored_weights(model)
    return block_parameters(model, known) if found is None else float(found)


def chain_cost(
    what: str, steps: Sequence[Step], parameters: Mapping[str, float], weights: Mapping[str, float], speed: float
) -> Cost:
    """The steps of a study with their times; memory is that of one model's weights, trained with gradients and moments.

    `weights` counts all parameters of the models, embeddings among them.
    """
    parts = []
    for step in steps:
        size = BYTES * weights.get(step.model, max(weights.values(), default=0.0))
        held = TRAINED * size if step.load.trained else size
        parts.append(Part(step.name, 60 * step_minutes(step, parameters, speed), memory=round(held)))
    return Cost(what, tuple(parts))


def cost_lines(steps: Sequence[Step], parameters: Mapping[str, float], sentences: int, speed: float) -> list[str]:
    """Models, words, steps and hours, to be read before anything starts."""
    hours = math.fsum(step_minutes(step, parameters, speed) for step in steps) / 60
    sizes = ", ".join(f"{name} ({size / 1e6:.0f} million)" for name, size in parameters.items())
    return [
        f"Models (parameters of their blocks): {sizes}.",
        f"Text: about {sentences:,} sentences of {TOKENS} tokens for each task.",
        f"Steps: {len(steps)}.",
        f"Time: about {hours:,.0f} hours, by this rule: {RULE.format(speed=speed)}.",
    ]
