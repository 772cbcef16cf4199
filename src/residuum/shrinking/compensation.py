"""What stays makes up for what went, by least squares on second moments.

Inside a block, the inputs of a map that are kept take over from those that go (`cut_inner`). Across blocks, the second
feed-forward map of every kept block is fitted to the original's states (`fit_to_original`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from residuum.errors import ModelError
from residuum.maths.elimination import eliminate
from residuum.models.surgery import (
    attention_heads,
    feed_forward,
    keep_heads,
    keep_neurons,
    linear_weight,
    model_blocks,
)
from residuum.shrinking.planning import Sample, inputs_of, no_cache

ROUNDS = 64  # of elimination: costs are computed again after each
RIDGES = (1e-3, 1e-2, 1e-1, 1.0)  # shares of the mean second moment that are added to each
JUDGED = 5  # every fifth line chooses the ridge
FIT_LINES = 1024
"""Lines on which maps are fitted to the original: about ten tokens per neuron."""

States = Float[Tensor, "line token neuron"]


@torch.no_grad()
def fit_to_original(network: Any, original: Any, kept: Sequence[int], sample: Sample) -> pd.DataFrame:
    """Fit the second feed-forward map of every block to the original's states, the lowest block first.

    Block j of `network` was block k_j of `original`. The next one, k_{j+1}, expects the states that come out of block
    t = k_{j+1} − 1 (t = L above the last). With h what the map reads, z the block's states and z_t those of block t,

        ΔW = argmin E[‖z_t − z − ΔW h‖² / ‖z_t‖²] + λ‖ΔW‖²

    Errors are relative, as the next norm sees them: the states of some tokens of decoders are a thousand times longer
    than others. z is taken where the map's output is added, in BERT before the closing norm, which is copied from
    block t. Every fifth line chooses λ, or that the map stays as it is. Returns per block the share of the variance of
    z_t that is missed on these lines, before and after; nothing where blocks do more than add that map's output.
    """
    try:
        name = feed_forward(network).out
    except ModelError:
        return pd.DataFrame()
    inputs, extras = _block_inputs(original, sample)
    masks = [batch["attention_mask"].bool() for batch in sample.batches]
    source = model_blocks(original)
    norm = _closing_norm(source[0], inputs[0], extras[0][0])
    if inputs[0].shape[:2] != masks[0].shape or not _only_adds(source[0], name, norm, inputs[0], extras[0][0]):
        return pd.DataFrame()
    ours, goals, rows, below = inputs, inputs, [], 0
    for block, layer, top in zip(model_blocks(network), kept, [*(k - 1 for k in kept[1:]), len(source)], strict=True):
        wanted = goals
        for place in range(below, top):
            wanted = goals
            goals = [_run(source[place], x, extra) for x, extra in zip(goals, extras[place], strict=True)]
        below, target = top, source[top - 1]
        if norm is not None and top != layer:
            block.get_submodule(norm).load_state_dict(target.get_submodule(norm).state_dict())
        part: Any = block.get_submodule(name)
        fitted, judged = _Regression.empty(part), _Regression.empty(part)
        for number, mask in enumerate(masks):
            h, z = _read_and_added(block, name, norm, ours[number], extras[layer - 1][number])
            z_t = _read_and_added(target, name, norm, wanted[number], extras[top - 1][number])[1]
            judging = (torch.arange(len(mask), device=mask.device) % JUDGED == 0)[:, None]
            fitted.add(h, z, z_t, mask & ~judging)
            judged.add(h, z, z_t, mask & judging)
        weight = linear_weight(part)
        change, before, after = _best_change(fitted, judged, weight.shape[1])
        weight.data += change[: weight.shape[1]].T.to(weight)
        if part.bias is not None:
            part.bias.data += change[-1].to(part.bias)
        rows.append({"layer": layer, "fitted_to": top, "missed_before": before, "missed": after})
        ours = [_run(block, x, extra) for x, extra in zip(ours, extras[layer - 1], strict=True)]
    return pd.DataFrame(rows)


@dataclass(eq=False)
class _Regression:
    """Sums over tokens, each divided by ‖z_t‖²: of u = (h, 1), r = z_t − z and z_t, for ΔW and what it misses."""

    inputs: Tensor  # Σuuᵀ
    cross: Tensor  # Σurᵀ
    goal: Tensor  # Σz_t
    square: float = 0.0  # Σ‖r‖²
    weight: float = 0.0  # Σ1
    count: int = 0  # tokens; of each, z_t divided by ‖z_t‖ has the square 1

    @staticmethod
    def empty(part: Any) -> _Regression:
        """Nothing read yet; u has the 1 where the map has a bias."""
        n_out, n_in = linear_weight(part).shape
        n_in += part.bias is not None
        square, cross, goal = (torch.zeros(*shape).double() for shape in ((n_in, n_in), (n_in, n_out), (n_out,)))
        return _Regression(square, cross, goal)

    def add(self, h: Tensor, z: Tensor, z_t: Tensor, shown: Tensor) -> None:
        """Add the tokens that are shown."""
        h, z, goal = (states[shown].float().cpu() for states in (h, z, z_t))
        scale = 1 / goal.norm(dim=1, keepdim=True).clamp(min=1e-6)
        u = scale * torch.cat([h, torch.ones(len(h), len(self.inputs) - h.shape[1])], dim=1)
        r = scale * (goal - z)
        self.inputs += (u.T @ u).double()
        self.cross += (u.T @ r).double()
        self.goal += (scale.square() * goal).sum(dim=0).double()
        self.square += float(r.double().square().sum())
        self.weight += float(scale.double().square().sum())
        self.count += len(h)

    def missed(self, change: Tensor) -> float:
        """The error of ΔWᵀ = `change` as a share of the variance of z_t."""
        error = self.square - 2 * (change * self.cross).sum() + (change * (self.inputs @ change)).sum()
        return float(error) / max(self.count - float(self.goal.square().sum()) / self.weight, 1e-12)


def _best_change(fitted: _Regression, judged: _Regression, n_read: int) -> tuple[Tensor, float, float]:
    """ΔWᵀ, the bias last, that misses least on the judged lines (0 is one of them); what is missed before and after."""
    best = torch.zeros_like(fitted.cross)
    if not fitted.count or not judged.count:
        return best, float("nan"), float("nan")
    before = after = judged.missed(best)
    penalty = (torch.arange(len(fitted.inputs)) < n_read).double()  # the bias is free
    scale = (fitted.inputs.diagonal() * penalty).sum() / penalty.sum()
    for ridge in RIDGES:
        change = torch.linalg.solve(fitted.inputs + torch.diag((ridge * scale * penalty).clamp(min=1e-9)), fitted.cross)
        if (missed := judged.missed(change)) < after:
            best, after = change, missed
    return best, before, after


def _block_inputs(network: Any, sample: Sample) -> tuple[list[States], list[list[Any]]]:
    """What enters the first block, per batch; and per block and batch, what each gets beside the states."""
    base: Any = getattr(network, "base_model", network)
    blocks = model_blocks(network)
    states: list[States] = []
    extras: list[list[Any]] = [[] for _ in blocks]

    def note(place: int) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if place == 0:
                states.append(args[0] if args else kwargs["hidden_states"])
            extras[place].append((args[1:], {name: own for name, own in kwargs.items() if name != "hidden_states"}))

        return hook

    hooks = [block.register_forward_pre_hook(note(i), with_kwargs=True) for i, block in enumerate(blocks)]
    try:
        for batch in sample.batches:
            base(**inputs_of(batch, next(base.parameters()).device), **no_cache(base))
    finally:
        for hook in hooks:
            hook.remove()
    return states, extras


def _run(block: nn.Module, states: States, extra: Any) -> States:
    output = block(states, *extra[0], **extra[1])
    return output[0] if isinstance(output, tuple) else output


def _read_and_added(block: nn.Module, name: str, norm: str | None, states: States, extra: Any) -> tuple[Tensor, States]:
    """What the map reads, and the states where its output is added: before the closing norm, if there is one."""
    seen: dict[str, Tensor] = {}

    def note(key: str) -> Callable[..., None]:
        return lambda _, args: seen.__setitem__(key, args[0])

    hooks = [block.get_submodule(name).register_forward_pre_hook(note("read"))]
    if norm is not None:
        hooks.append(block.get_submodule(norm).register_forward_pre_hook(note("added")))
    try:
        output = _run(block, states, extra)
    finally:
        for hook in hooks:
            hook.remove()
    return seen["read"].reshape(*states.shape[:2], -1), seen.get("added", output)


def _closing_norm(block: nn.Module, states: States, extra: Any) -> str | None:
    """The norm whose output is that of the block, as in BERT; None where blocks end by an addition."""
    seen: dict[str, Any] = {}
    hooks = [
        part.register_forward_hook(lambda _, __, output, own=own: seen.__setitem__(own, output))
        for own, part in block.named_modules()
        if "norm" in type(part).__name__.lower()
    ]
    try:
        output = _run(block, states, extra)
    finally:
        for hook in hooks:
            hook.remove()
    return next((own for own, found in seen.items() if torch.equal(found, output)), None)


def _only_adds(block: nn.Module, name: str, norm: str | None, states: States, extra: Any) -> bool:
    """Whether what the map gives is added as it is: 1 more in its output is 1 more in the states."""

    def add_one(_module: nn.Module, _inputs: object, output: Any) -> Any:
        return output + 1

    before = _read_and_added(block, name, norm, states, extra)[1]
    hook = block.get_submodule(name).register_forward_hook(add_one)
    try:
        after = _read_and_added(block, name, norm, states, extra)[1]
    finally:
        hook.remove()
    return torch.allclose(after - before, torch.ones_like(before), atol=1e-2)


def cut_inner(
    network: Any, sample: Sample, *, neurons: float | None = None, heads: float | None = None
) -> dict[str, np.ndarray]:
    """Keep a share of the feed-forward neurons and of the heads of every block; what stays makes up for the rest.

    Returns per block the share of the variance of each part's output that is lost.
    """
    errors: dict[str, np.ndarray] = {}
    for part, share in (("feed-forward", neurons), ("heads", heads)):
        if share is None:
            continue
        if part == "heads":
            groups, width = attention_heads(network)
            name, keep = "self_attn.o_proj", keep_heads
        else:
            name, width, keep = feed_forward(network).out, 1, keep_neurons
            groups = linear_weight(model_blocks(network)[0].get_submodule(name)).shape[1]
        n_kept = max(1, round(share * groups))
        kept, weights, lost = [], [], []
        for block, sums in zip(model_blocks(network), inner_moments(network, sample, [name])[name], strict=True):
            out: Any = block.get_submodule(name)
            weight = linear_weight(out).detach().cpu()
            mean, scatter = sums.centred(out.bias is not None)
            chosen = eliminate(weight, scatter, n_kept, width=width, at_once=max(1, (groups - n_kept) // ROUNDS))
            places = (chosen.kept[:, None] * width + torch.arange(width)).flatten()
            if out.bias is not None:
                shift = weight.double() @ mean - chosen.weight.double() @ mean[places]
                out.bias.data += shift.to(out.bias)
            kept.append(chosen.kept)
            weights.append(chosen.weight)
            lost.append(chosen.error)
        keep(network, kept, weights)
        errors[part] = np.array(lost)
    return errors


@dataclass(eq=False)
class _Moments:
    """Sums of what enters a map: n, Σx and Σxxᵀ."""

    count: int
    total: Tensor
    scatter: Tensor

    def centred(self, bias: bool) -> tuple[Tensor, Tensor]:
        """The mean (0 where there is no bias to take it up) and the second moments about it."""
        mean = self.total / self.count if bias else torch.zeros_like(self.total)
        return mean, self.scatter / self.count - torch.outer(mean, mean)


def inner_moments(network: Any, sample: Sample, names: Sequence[str]) -> dict[str, list[_Moments]]:
    """The second moments of what enters the named maps of every block, in one pass."""
    base: Any = getattr(network, "base_model", network)
    blocks, shown = model_blocks(network), []
    found: dict[str, list[_Moments]] = {}
    hooks = []
    for name in names:
        parts: list[Any] = [block.get_submodule(name) for block in blocks]
        sizes = [linear_weight(part).shape[1] for part in parts]
        found[name] = [_Moments(0, torch.zeros(n).double(), torch.zeros(n, n).double()) for n in sizes]
        for part, sums in zip(parts, found[name], strict=True):

            def note(_: nn.Module, args: tuple[Any, ...], sums: _Moments = sums) -> None:
                n_texts, n_tokens = shown[-1].shape
                states = args[0].reshape(n_texts, -1, args[0].shape[-1])[:, :n_tokens]  # Longformer pads by itself
                x = states[shown[-1]].float().cpu()
                sums.count += len(x)
                sums.total += x.sum(dim=0).double()
                sums.scatter += (x.T @ x).double()

            hooks.append(part.register_forward_pre_hook(note))
    try:
        with torch.inference_mode():
            for batch in sample.batches:
                inputs = inputs_of(batch, next(base.parameters()).device)
                shown.append(inputs["attention_mask"].bool())
                base(**inputs, **no_cache(base))
    finally:
        for hook in hooks:
            hook.remove()
    return found
