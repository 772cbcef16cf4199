"""The optimiser: parameter groups, learning-rate schedule, gradients and saved state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from residuum.errors import SettingError
from residuum.training.settings import TrainingSettings

if TYPE_CHECKING:
    from accelerate import Accelerator

STATE = ("step", "exp_avg", "exp_avg_sq")  # AdamW's state per parameter


@dataclass(frozen=True, eq=False)
class ParameterGroup:
    """Parameters that share a learning rate (times `rate`) and a weight decay (None: that of the settings)."""

    parameters: Sequence[nn.Parameter]
    rate: float = 1.0
    weight_decay: float | None = None


def trainable_groups(*modules: nn.Module, rate: float = 1.0) -> list[ParameterGroup]:
    """The parameters that take gradients, each once even if modules share it: matrices, then the rest.

    Vectors (biases, scales of normalisation) are not decayed.
    """
    unique = {id(p): p for module in modules for p in module.parameters() if p.requires_grad}
    matrices = [p for p in unique.values() if p.ndim > 1]
    vectors = [p for p in unique.values() if p.ndim <= 1]
    groups = [ParameterGroup(matrices, rate), ParameterGroup(vectors, rate, weight_decay=0.0)]
    return [group for group in groups if group.parameters]


def checked_groups(groups: Iterable[ParameterGroup]) -> list[ParameterGroup]:
    """The groups without frozen parameters; a parameter that occurs twice would be updated twice and is an error."""
    kept = []
    seen: set[int] = set()
    for group in groups:
        parameters = [p for p in group.parameters if p.requires_grad]
        for parameter in parameters:
            if id(parameter) in seen:
                raise SettingError(
                    f"A parameter of shape {tuple(parameter.shape)} is given twice; list a shared parameter once, in "
                    "one group."
                )
            seen.add(id(parameter))
        if parameters:
            kept.append(ParameterGroup(parameters, group.rate, group.weight_decay))
    if not kept:
        raise SettingError("No parameter takes gradients; nothing can be trained. Unfreeze a part of the model.")
    return kept


def build_optimiser(groups: Sequence[ParameterGroup], settings: TrainingSettings) -> torch.optim.AdamW:
    """AdamW over the groups; only parameters that get gradients have state."""
    rows = [
        {
            "params": list(group.parameters),
            "weight_decay": settings.weight_decay if group.weight_decay is None else group.weight_decay,
            "rate": group.rate,
        }
        for group in groups
    ]
    fused = groups[0].parameters[0].device.type in ("cpu", "cuda")
    return torch.optim.AdamW(rows, lr=settings.learning_rate, betas=settings.betas, eps=settings.epsilon, fused=fused)


def set_learning_rate(optimiser: torch.optim.Optimizer, settings: TrainingSettings, step: int, total: int) -> float:
    """Give every group its rate at a step (from 0) and return the common one."""
    rate = settings.learning_rate * schedule_factor(settings, step, total)
    for group in optimiser.param_groups:
        group["lr"] = rate * group["rate"]
    return rate


def schedule_factor(settings: TrainingSettings, step: int, total: int) -> float:
    """The fraction of the learning rate at step s of T: s/W in a warm-up of W steps, then by r = (T−s)/(T−W).

    linear: r; cosine: (1 − cos πr)/2; constant: 1.
    """
    warmup = math.ceil(settings.warmup * total) if settings.warmup < 1 else int(settings.warmup)
    if step < warmup:
        return step / warmup
    rest = max(0.0, (total - step) / max(1, total - warmup))
    return {"linear": rest, "cosine": (1 - math.cos(math.pi * rest)) / 2, "constant": 1.0}[settings.schedule]


def average_gradients(accelerator: Accelerator, parameters: Sequence[nn.Parameter], weight: float) -> None:
    """Divide summed gradients by the summed weight, over all processes; without any gradient `grad` stays None."""
    if accelerator.num_processes > 1:
        has_gradient = torch.tensor([float(p.grad is not None) for p in parameters], device=accelerator.device)
        anywhere = accelerator.reduce(has_gradient, "sum").tolist()  # pyright: ignore[reportAttributeAccessIssue]
        touched = [p for p, count in zip(parameters, anywhere, strict=True) if count]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in touched]
        flat = accelerator.reduce(torch.cat([g.reshape(-1) for g in gradients]), "sum")
        assert isinstance(flat, Tensor)
        for parameter, part in zip(touched, flat.split([g.numel() for g in gradients]), strict=True):
            parameter.grad = part.view_as(parameter)
    if weight != 1:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.div_(weight)


def clip_gradients(parameters: Sequence[nn.Parameter], bound: float | None) -> float:
    """Bound the norm of the whole gradient; returns the norm before clipping.

    The dot product of a gradient with itself is several times faster on a CPU than torch's norm of it.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    squares = [torch.dot(flat, flat) for flat in (gradient.float().reshape(-1) for gradient in gradients)]
    norm = math.sqrt(float(torch.stack(squares).cpu().double().sum())) if squares else 0.0
    if bound is not None and norm > bound:
        nn.utils.clip_grads_with_norm_(parameters, bound, torch.tensor(norm))
    return norm


def optimiser_state(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The tensors of the optimiser by `number of the parameter.name`."""
    return {
        f"{number}.{name}": value.detach().cpu().contiguous()
        for number, parameter in _numbered(optimiser).items()
        for name, value in optimiser.state.get(parameter, {}).items()
    }


def misplaced_state(optimiser: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> str | None:
    """The first tensor that is missing, has another shape or belongs to no parameter; None if the AdamW state fits.

    A parameter has all of its tensors or, if it never got a gradient, none.
    """
    begun = {key.partition(".")[0] for key in state}
    expected = {
        f"{number}.{name}": (torch.float32, ()) if name == "step" else (parameter.dtype, tuple(parameter.shape))
        for number, parameter in _numbered(optimiser).items()
        if str(number) in begun
        for name in STATE
    }
    actual = {key: (value.dtype, tuple(value.shape)) for key, value in state.items()}
    return min((key for key in expected.keys() | actual.keys() if expected.get(key) != actual.get(key)), default=None)


def restore_optimiser(optimiser: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> None:
    """Restore the result of `optimiser_state`."""
    parameters = _numbered(optimiser)
    optimiser.state.clear()
    for key, value in state.items():
        number, name = key.split(".", 1)
        parameter = parameters[int(number)]
        device = torch.device("cpu") if name == "step" and parameter.device.type == "cpu" else parameter.device
        optimiser.state[parameter][name] = value.to(device, copy=True)


def _numbered(optimiser: torch.optim.Optimizer) -> dict[int, nn.Parameter]:
    return dict(enumerate(p for group in optimiser.param_groups for p in group["params"]))
