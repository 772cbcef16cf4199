"""Narrower students from essential neurons: those that correlation clustering keeps of the residual stream.

All blocks write into one residual stream, so a neuron must be kept in every layer or in none. Its correlations are
therefore averaged over the layers (|corr|, from the teacher's states on some text), clustered by average linkage, and
cut where as many clusters are left as the student has neurons; the medoid of each stays. Attention heads and inner
neurons of the feed-forward layers, which belong to one block each, are kept by the size of their weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster
from torch import Tensor

from residuum.distillation.networks import LanguageModel
from residuum.errors import ModelError, SettingError
from residuum.maths.clustering import by_first_member, cluster_correlation, medoids
from residuum.maths.moments import MomentsAccumulator

# The axes of each weight, by the end of its name: r residual stream, h heads, i inner neurons, . none of them.
AXES = (
    (r"(query|key|value|q_lin|k_lin|v_lin|attn\.[qkv])\.weight", "hr"),
    (r"(query|key|value|q_lin|k_lin|v_lin|attn\.[qkv])\.bias", "h"),
    (r"(attention\.output\.dense|out_lin|attn\.o)\.weight", "rh"),
    (r"(intermediate\.dense|lin1)\.weight", "ir"),
    (r"(intermediate\.dense|lin1)\.bias", "i"),
    (r"(layer\.\d+\.output\.dense|lin2)\.weight", "ri"),
    (r"(attention\.output\.dense|out_lin|attn\.o|layer\.\d+\.output\.dense|lin2)\.bias", "r"),
    (r"(LayerNorm|layer_norm|sa_layer_norm|output_layer_norm|vocab_layer_norm)\.(weight|bias)", "r"),
    (r"embeddings\.\w+\.weight", ".r"),
    (r"(lm_head|predictions\.transform|pooler)\.dense\.weight|vocab_transform\.weight", "rr"),
    (r"(lm_head|predictions\.transform|pooler)\.dense\.bias|vocab_transform\.bias", "r"),
    (r"(decoder|vocab_projector)\.weight", ".r"),
    (r"(decoder|vocab_projector|lm_head|predictions)\.bias", "."),
)


@dataclass(frozen=True, eq=False)
class EssentialNeurons:
    """What a narrower student keeps: neurons of the residual stream, and how many heads and inner neurons."""

    neurons: np.ndarray
    heads: int
    head_size: int
    inner: int


def essential_neurons(
    teacher: LanguageModel, batches: Iterable[Mapping[str, Tensor]], size: int, heads: int, inner: int
) -> EssentialNeurons:
    """The `size` neurons of the residual stream that stand for all, from the teacher's states on some batches."""
    head_size = teacher.hidden_size // teacher.n_heads
    if not size <= teacher.hidden_size or size != heads * head_size or heads > teacher.n_heads:
        raise SettingError(
            f"A student from essential neurons keeps whole heads of {head_size}: shape.hidden_size {size} with "
            f"shape.heads {heads} does not fit; give hidden_size = heads × {head_size}, at most {teacher.hidden_size}."
        )
    correlation, constant = _mean_correlation(teacher, batches)
    clustering = cluster_correlation(correlation, constant)
    labels = by_first_member(fcluster(clustering.tree, size, criterion="maxclust"))
    kept = np.sort(medoids(correlation, labels, constant))
    return EssentialNeurons(_filled_up(kept, size, teacher.hidden_size), heads, head_size, inner)


def narrowed_weights(weights: Mapping[str, Tensor], kept: EssentialNeurons) -> dict[str, Tensor]:
    """The weights of the kept neurons, heads and inner neurons."""
    neurons = torch.from_numpy(kept.neurons).to(next(iter(weights.values())).device)
    of_block: dict[str, dict[str, Tensor]] = {}
    narrow = {}
    for key, value in weights.items():
        block = _block(key)
        if block and block not in of_block:
            of_block[block] = _largest(block, weights, kept)
        places = {"r": neurons, **of_block.get(block, {})}
        narrow[key] = _selected(value, _axes(key, value), places)
    return narrow


@torch.inference_mode()
def _mean_correlation(teacher: LanguageModel, batches: Iterable[Mapping[str, Tensor]]) -> tuple[np.ndarray, np.ndarray]:
    """|corr| of every pair of residual neurons, averaged over the layers; which are constant in all of them."""
    layers = range(teacher.n_layers + 1)
    accumulator = MomentsAccumulator([teacher.hidden_size] * len(layers), pairs=[(layer, layer) for layer in layers])
    for batch in batches:
        real = batch["attention_mask"].bool()
        states = teacher.run(batch["input_ids"], batch["attention_mask"]).hidden
        accumulator.update([layer[real].cpu().numpy() for layer in states])
    moments = accumulator.result()
    total = np.zeros((teacher.hidden_size,) * 2)
    constant = np.ones(teacher.hidden_size, dtype=bool)
    for layer in layers:
        scatter = moments.scatter([layer])
        alive = np.ones(len(scatter), dtype=bool)
        alive[moments.dead(layer)] = False
        scale = np.where(alive, np.sqrt(np.diagonal(scatter)), np.inf)
        total += np.abs(scatter / scale / scale[:, None])
        constant &= ~alive
    return total / len(layers), constant


def _filled_up(kept: np.ndarray, size: int, width: int) -> np.ndarray:
    """Exactly `size` neurons: equal distances can leave fewer clusters, then the first others come in."""
    others = np.setdiff1d(np.arange(width), kept)
    return np.sort(np.concatenate([kept, others[: size - len(kept)]]))


def _block(key: str) -> str:
    found = re.match(r".*?layer\.\d+\.", key)
    return found[0] if found else ""


def _axes(key: str, value: Tensor) -> str:
    for pattern, axes in AXES:
        if re.search(rf"(^|\.)({pattern})$", key) and len(axes) == value.ndim:
            return axes
    if value.ndim == 0 or not value.is_floating_point():
        return "." * value.ndim
    raise ModelError(f"Which axes of {key} are neurons is not known; set initialise to random for this architecture.")


def _largest(block: str, weights: Mapping[str, Tensor], kept: EssentialNeurons) -> dict[str, Tensor]:
    """The heads and inner neurons of a block whose outgoing weights are largest, in their old order."""
    out = {_axes(key, value): value for key, value in weights.items() if key.startswith(block) and value.ndim == 2}
    if "rh" not in out or "ri" not in out:
        raise ModelError(f"The attention of {block} is not known; set initialise to random for this architecture.")
    by_head = out["rh"].square().sum(dim=0).view(-1, kept.head_size).sum(dim=1)
    heads = by_head.topk(kept.heads).indices.sort().values
    inner = out["ri"].square().sum(dim=0).topk(kept.inner).indices.sort().values
    places = heads[:, None] * kept.head_size + torch.arange(kept.head_size, device=heads.device)
    return {"h": places.reshape(-1), "i": inner}


def _selected(value: Tensor, axes: str, places: Mapping[str, Tensor]) -> Tensor:
    for dimension, axis in enumerate(axes):
        if axis in places:
            value = value.index_select(dimension, places[axis])
    return value
