"""Students: smaller copies of the teacher, with weights from it, and parts that they share."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from residuum.distillation.essential import EssentialNeurons, narrowed_weights
from residuum.distillation.networks import LanguageModel, language_model
from residuum.distillation.settings import ShapeSettings
from residuum.errors import ModelError, SettingError
from residuum.maths.losses import LayerMap
from residuum.models.loading import find_blocks
from residuum.models.vocabularies import Vocabulary, cut_model

# What the published initialisation left random.
HEAD_TRANSFORM = (
    "lm_head.dense",
    "lm_head.layer_norm",
    "cls.predictions.transform",
    "vocab_transform",
    "vocab_layer_norm",
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
    return shape if shape.heads is not None else shape.model_copy(update={"heads": heads})


def share_parts(students: Sequence[LanguageModel], sharing: str | Sequence[str | int]) -> None:
    """Make the parts that are shared one and the same module in all students; tied decoders follow the embeddings."""
    parts = {"none": [], "embeddings": ["embeddings"]}.get(sharing) if isinstance(sharing, str) else list(sharing)
    assert parts is not None, "sharing all makes one student, before any is built"
    first, others = students[0], students[1:]
    for student in others:
        for part in parts:
            if part == "embeddings":
                _share_embeddings(first, student)
            elif part == "head":
                _share_head(first, student)
            else:
                _share_block(first, student, int(part))


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
    blocks = _blocks_name(teacher)
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


def _blocks_name(model: LanguageModel) -> str:
    """The name of the list of blocks in the whole model, with a dot at its end."""
    blocks = find_blocks(model.base)[2]
    return next(f"{name}." for name, part in model.module.named_modules() if part is blocks)


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


def _share_embeddings(first: LanguageModel, student: LanguageModel) -> None:
    """All that runs before the blocks: the embeddings of BERT's kin, the tables of GPT-2's and Llama's."""
    names = [name for name in ("embeddings", "wte", "wpe", "embed_tokens") if hasattr(first.base, name)]
    if not names:
        raise ModelError(f"The embeddings of {type(first.module).__name__} are not known; set share to none.")
    tied = student.module.config.tie_word_embeddings
    for name in names:
        setattr(student.base, name, getattr(first.base, name))
    if tied and student.head is not None:
        student.head.decoder.weight = student.module.get_input_embeddings().weight  # pyright: ignore[reportAttributeAccessIssue]


def _share_head(first: LanguageModel, student: LanguageModel) -> None:
    """Every part of the model beside the network itself, its decoder included."""
    if first.head is None:
        raise SettingError("share names the head, but the teacher has none; leave it out of the list.")
    for name, part in first.module.named_children():
        if part is not first.base:
            setattr(student.module, name, part)


def _share_block(first: LanguageModel, student: LanguageModel, layer: int) -> None:
    if layer > first.n_layers:
        raise SettingError(f"share names layer {layer}; the students have layers 1–{first.n_layers}.")
    student.blocks[layer - 1] = first.blocks[layer - 1]
