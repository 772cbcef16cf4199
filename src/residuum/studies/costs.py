"""What a study costs, by one stated rule, before it starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from residuum.studies.declarations import Load, Step

TOKENS = 30  # of a sentence
OPERATIONS_A_SECOND = 3e10  # that two CPU cores do in float32 products; a GPU does a hundred times as many or more
START = 4.0  # seconds to load a model and write a folder
BASE_BLOCKS = 85e6  # parameters of twelve blocks of width 768, for a model that is not at hand

RULE = (
    f"2 operations for each parameter of the blocks and token read, 6 for each one trained on, {TOKENS} tokens a "
    f"sentence, {OPERATIONS_A_SECOND:.0e} operations a second (two CPU cores)"
)


def step_minutes(step: Step, parameters: Mapping[str, float]) -> float:
    """The expected minutes of a step; one that names no model works on all of them."""
    own = parameters.get(step.model)
    size = math.fsum(parameters.values()) if own is None else own
    return (START + operations(step.load, size) / OPERATIONS_A_SECOND) / 60


def operations(load: Load, parameters: float) -> float:
    """2·P·tokens for reading and 6·P·tokens for training; a battery of probes costs about what reading does."""
    return TOKENS * parameters * (2 * (load.read + load.probed) + 6 * load.trained)


def block_parameters(model: str, known: Mapping[str, float]) -> float:
    """Parameters of a model's blocks: known by name, or counted in the headers of its weights."""
    if model in known:
        return known[model]
    files = sorted(Path(model).glob("*.safetensors")) if Path(model).is_dir() else []
    return sum(map(_count, files)) if files else BASE_BLOCKS


def cost_lines(steps: Sequence[Step], parameters: Mapping[str, float], sentences: int) -> list[str]:
    """Models, words, steps and hours, to be read before anything starts."""
    hours = math.fsum(step_minutes(step, parameters) for step in steps) / 60
    sizes = ", ".join(f"{name} ({size / 1e6:.0f} million)" for name, size in parameters.items())
    return [
        f"Models (parameters of their blocks): {sizes}.",
        f"Text: about {sentences:,} sentences of {TOKENS} tokens for each task.",
        f"Steps: {len(steps)}.",
        f"Time: about {hours:,.0f} hours, by this rule: {RULE}.",
    ]


def _count(path: Path) -> float:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        names = [name for name in file.keys() if "embed" not in name and "lm_head" not in name]  # noqa: SIM118
        return float(sum(math.prod(file.get_slice(name).get_shape()) for name in names))
