"""Students: smaller copies of the teacher, with weights from it, and parts that they share.

A narrower student keeps the essential neurons of the residual stream. All blocks write into one stream, so a neuron is
kept in every layer or in none: its correlations are averaged over the layers (|corr|, from the teacher's states on some
text), clustered by average linkage, and cut where as many clusters are left as the student has neurons; the medoid of
each stays. Attention heads and inner feed-forward neurons belong to one block each and are kept by the size of their
weights.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster
from torch import Tensor, nn

from residuum.distillation.networks import LanguageModel, language_model
from residuum.distillation.settings import ShapeSettings
from residuum.errors import ModelError, SettingError
from residuum.maths.clustering import by_first_member, cluster_correlation, medoids
from residuum.maths.losses import LayerMap
from residuum.maths.moments import MomentsAccumulator
from residuum.models.loading import find_blocks
from residuum.models.vocabularies import Vocabulary, cut_model

# What the published initialisation left random.
HEAD_TRANSFORM = (
    "lm_head.dense",
    "lm_head.layer_norm",
    "cls.predictions.transform",
    "vocab_transform",
    "vocab_layer_norm",
    "head.",
    "lm_predictions.lm_head.dense",
    "lm_predictions.lm_head.LayerNorm",
)


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


@dataclass(frozen=True)
class Initialisation:
    """Where a student's weights come from: the teacher's layers by a map, random numbers, or essential neurons."""

    source: str  # teacher, random or neurons
    layers: LayerMap
    head: bool = True  # False, as published: the head's dense layer and norm stay random
    neurons: EssentialNeurons | None = None
    seed: int = 0


def build_student(
    teacher: LanguageModel,
    shape: ShapeSettings,
    start: Initialisation,
    *,
    tie: bool,
    vocabulary: Vocabulary | None,
    attention: bool,
) -> LanguageModel:
    """A student of a shape, initialised, tied or untied, with the whole or a trimmed vocabulary, in training mode."""
    config = student_config(teacher, shape, tie=tie)
    if types := getattr(config, "layer_types", None):  # such as local and global attention: as in the layer it copies
        config.layer_types = [types[start.layers.get(m, m) - 1] for m in range(1, config.num_hidden_layers + 1)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(start.seed)
        module: Any = type(teacher.module)(config)
    if hasattr(module, "pooler") and getattr(teacher.module, "pooler", None) is None:
        module.pooler = None  # the teacher's weights had none
    if start.source != "random":
        weights = _weights_by_layer(teacher, start.layers)
        if start.neurons is not None:
            weights = narrowed_weights(weights, start.neurons)
        _load(module, weights, tie=tie, head=start.head)
    if vocabulary is not None:
        module = cut_model(module, vocabulary)
    module.train()
    return language_model(module, attention=attention)


def student_config(teacher: LanguageModel, shape: ShapeSettings, *, tie: bool) -> Any:
    """The teacher's config with the student's layers and widths."""
    config = copy.deepcopy(teacher.module.config)
    config.num_hidden_layers = shape.layers or max(1, teacher.n_layers // 2)
    config.tie_word_embeddings = tie
    if shape.hidden_size is not None:
        config.hidden_size = shape.hidden_size
    if shape.heads is not None:
        config.num_attention_heads = shape.heads
    if config.hidden_size % config.num_attention_heads:
        raise SettingError(
            f"shape.hidden_size is {config.hidden_size}, which {config.num_attention_heads} heads cannot divide; "
            "change shape.heads or shape.hidden_size."
        )
    if shape.intermediate_size is not None:
        name = config.attribute_map.get("intermediate_size", "intermediate_size")
        name = {"distilbert": "hidden_dim", "gpt2": "n_inner"}.get(config.model_type, name)
        setattr(config, name, shape.intermediate_size)
    return config


def whole_shape(teacher: LanguageModel, shape: ShapeSettings, start: str) -> ShapeSettings:
    """The shape with its number of heads: the teacher's, but essential neurons come in whole heads of the teacher."""
    heads = teacher.n_heads
    if start == "neurons":
        heads = max(1, (shape.hidden_size or teacher.hidden_size) * teacher.n_heads // teacher.hidden_size)
    return shape if shape.heads is not None else replace(shape, heads=heads)


def share_parts(students: Sequence[LanguageModel], sharing: str | Sequence[str | int]) -> None:
    """Make the parts that are shared one and the same module in all students; tied decoders follow the embeddings."""
    parts = {"none": [], "embeddings": ["embeddings"]}.get(sharing) if isinstance(sharing, str) else list(sharing)
    assert parts is not None, "sharing all makes one student, before any is built"
    first, others = students[0], students[1:]
    for student in others:
        for part in parts:
            if part == "embeddings":  # all that runs before the blocks: of BERT's kin, the tables of GPT-2 and Llama
                names = [name for name in ("embeddings", "wte", "wpe", "embed_tokens") if hasattr(first.base, name)]
                if not names:
                    raise ModelError(
                        f"The embeddings of {type(first.module).__name__} are not known; set share to none."
                    )
                for name in names:
                    setattr(student.base, name, getattr(first.base, name))
                if student.module.config.tie_word_embeddings and student.head is not None:
                    tied: Any = student.module.get_input_embeddings()
                    student.head.decoder.weight = tied.weight
            elif part == "head":  # every part of the model beside the network itself, its decoder included
                if first.head is None:
                    raise SettingError("share names the head, but the teacher has none; leave it out of the list.")
                for name, module in first.module.named_children():
                    if module is not first.base:
                        setattr(student.module, name, module)
            elif int(part) > first.n_layers:
                raise SettingError(f"share names layer {part}; the students have layers 1–{first.n_layers}.")
            else:
                student.blocks[int(part) - 1] = first.blocks[int(part) - 1]


def parameter_counts(students: Mapping[str, LanguageModel]) -> dict[str, int]:
    """Distinct parameters of each student, of what several share, and of all together."""
    owners: dict[int, set[str]] = {}
    sizes: dict[int, int] = {}
    for name, student in students.items():
        for parameter in student.module.parameters():
            owners.setdefault(id(parameter), set()).add(name)
            sizes[id(parameter)] = parameter.numel()
    counts = {name: sum(sizes[key] for key, who in owners.items() if name in who) for name in students}
    shared = sum(sizes[key] for key, who in owners.items() if len(who) > 1)
    return {**counts, "shared": shared, "total": sum(sizes.values())}


def _weights_by_layer(teacher: LanguageModel, layers: LayerMap) -> dict[str, torch.Tensor]:
    """The teacher's weights under the student's names: block g(m) becomes block m, the other blocks are left out."""
    part = find_blocks(teacher.base)[2]
    blocks = next(f"{name}." for name, module in teacher.module.named_modules() if module is part)
    moved = {
        teacher_layer - 1: [m - 1 for m, n in layers.items() if n == teacher_layer] for teacher_layer in layers.values()
    }
    weights: dict[str, torch.Tensor] = {}
    for key, value in teacher.module.state_dict().items():
        if not key.startswith(blocks):
            weights[key] = value
            continue
        number, rest = key.removeprefix(blocks).split(".", 1)
        weights |= {f"{blocks}{m}.{rest}": value for m in moved.get(int(number), [])}
    return weights


def _load(module: nn.Module, weights: Mapping[str, torch.Tensor], *, tie: bool, head: bool) -> None:
    fitting = {key: value.clone() for key, value in weights.items() if head or not key.startswith(HEAD_TRANSFORM)}
    own = module.state_dict()
    misfit = [key for key, value in fitting.items() if key in own and own[key].shape != value.shape]
    if misfit:
        raise SettingError(
            f"The student's {misfit[0]} has shape {tuple(own[misfit[0]].shape)}, the teacher's "
            f"{tuple(fitting[misfit[0]].shape)}: a narrower student cannot start from the teacher's weights. "
            "Set initialise to neurons or random."
        )
    missing = [key for key in own if key not in fitting and (head or not key.startswith(HEAD_TRANSFORM))]
    if missing:
        raise ModelError(f"The teacher has no weights for the student's {missing[0]}; set initialise to random.")
    module.load_state_dict(fitting, strict=False)
    if tie:
        module.tie_weights()  # pyright: ignore[reportCallIssue]


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
    kept = medoids(correlation, labels, constant)
    # Equal distances can leave fewer clusters than asked for; then the first other neurons are kept too.
    others = np.setdiff1d(np.arange(teacher.hidden_size), kept)[: size - len(kept)]
    return EssentialNeurons(np.sort(np.concatenate([kept, others])), heads, head_size, inner)


def narrowed_weights(weights: Mapping[str, Tensor], kept: EssentialNeurons) -> dict[str, Tensor]:
    """The weights of the kept neurons, heads and inner neurons."""
    neurons = torch.from_numpy(kept.neurons).to(next(iter(weights.values())).device)
    of_block: dict[str, dict[str, Tensor]] = {}
    narrow = {}
    for key, value in weights.items():
        match = re.match(r".*?layer\.\d+\.", key)
        block = match[0] if match else ""
        if block and block not in of_block:
            of_block[block] = _largest(block, weights, kept)
        places = {"r": neurons, **of_block.get(block, {})}
        for dimension, axis in enumerate(_axes(key, value)):
            if axis in places:
                value = value.index_select(dimension, places[axis])
        narrow[key] = value
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
