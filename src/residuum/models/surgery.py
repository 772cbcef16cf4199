"""Whole models with their heads: loading them, keeping some of their layers, freezing others, writing them back.

Layers are numbered as everywhere: 0 is the embeddings, blocks are 1 … L. What is written is a plain folder that
`from_pretrained` reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import xxhash
from torch import Tensor, nn

from residuum.errors import ModelError, SettingError, StoreError
from residuum.models.loading import (
    block_lists,
    check_blocks,
    check_no_fresh_weights,
    check_vocabulary,
    clear_loading_errors,
    find_blocks,
    fresh_weights,
    load_dtype,
    load_tokenizer,
    parse_layers,
    probe_batch,
    read_weights,
    set_block_count,
    weights_place,
)
from residuum.models.sentences import copy_sentence_layout
from residuum.storage.files import checksum, files_for
from residuum.storage.notebook import quiet_libraries

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_MODEL_FILES = ("*.safetensors", "config.json", "token*.json", "vocab*", "merges.txt", "*.model", "*_token*.json")
_PER_LAYER = re.compile(r"layer\w*|\w+_layer_types|\w+_per_layer|attention_(layers|window)|no_rope_layers")
TOLERANCE = 1e-5  # by how much a model may differ after it was written and read again


def load_whole(
    name_or_path: str | Path,
    *,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    precision: str = "float32",
    **placed: Any,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model with the head that its config names (without one: the bare network), and its tokenizer, in eval mode."""
    import transformers

    name = str(name_or_path)
    place, extra = weights_place(name)
    options = {"dtype": load_dtype(precision), "trust_remote_code": trust_remote_code, **placed, **extra}
    with clear_loading_errors(name):
        config = transformers.AutoConfig.from_pretrained(place, trust_remote_code=trust_remote_code, **extra)
        check_blocks(config, name)
        unnamed = transformers.AutoModelForCausalLM if "gguf_file" in extra else transformers.AutoModel
        named: Any = getattr(transformers, (config.architectures or [""])[0], unnamed)
        module, info = read_weights(named, place, allow_pickle, options)
        if fresh_weights(module, info):  # the config names a head that the folder does not hold
            module, info = read_weights(transformers.AutoModel, place, allow_pickle, options)
    check_no_fresh_weights(module, info, name)
    tokenizer = load_tokenizer(name, trust_remote_code)
    check_vocabulary(module, tokenizer, name)
    return module.eval(), tokenizer


def files_fingerprint(model: str | Path) -> str:
    """A hash of a local model's weights, config and tokenizer, so that another one of that name is told from it."""
    files = sorted({path for pattern in _MODEL_FILES for path in Path(model).glob(pattern) if path.is_file()})
    return xxhash.xxh3_64_hexdigest("".join(map(checksum, files)).encode()) if files else ""


def layer_count(module: nn.Module) -> int:
    """The number of blocks of a transformers model."""
    config: Any = module.config
    return config.num_hidden_layers


def kept_layers(n_layers: int, *, drop: str | None = None, keep: str | None = None) -> list[int]:
    """The blocks that stay of 1 … n: all but those that `drop` names, or those that `keep` names.

    Both are written `top:6`, `bottom:6`, `alternate` (2, 4, 6, … for `drop`; 1, 3, 5, … for `keep`) or `1,4-6`.
    """
    if (drop is None) == (keep is None):
        raise SettingError(f"drop is {drop!r} and keep is {keep!r}; give exactly one of them.")
    named = named_layers(drop or keep or "", n_layers, first=2 if drop is not None else 1)
    kept = sorted(set(range(1, n_layers + 1)) - set(named)) if drop is not None else named
    if not kept:
        raise SettingError(f"drop is {drop!r}, which leaves none of the {n_layers} layers; keep at least one.")
    return kept


def named_layers(text: str, n_layers: int, first: int = 1) -> list[int]:
    """The blocks that `top:6`, `bottom:6`, `alternate` (from `first` on) or a list such as `1,4-6` or `last` name."""
    whole, (kind, _, count) = text.strip(), text.strip().partition(":")
    if kind in ("top", "bottom") and count.isdecimal():
        size = int(count)
        if not 1 <= size <= n_layers:
            raise SettingError(f"{whole!r} names {size} layers; the model has 1–{n_layers}.")
        return list(range(1, size + 1)) if kind == "bottom" else list(range(n_layers - size + 1, n_layers + 1))
    if whole == "alternate":
        return list(range(first, n_layers + 1, 2))
    layers = parse_layers(whole, n_layers)
    if 0 in layers:
        raise SettingError(f"{whole!r} names layer 0, the embeddings, which stay; the model has layers 1–{n_layers}.")
    return layers


def body_of(module: nn.Module) -> nn.Module:
    """The part of a model that gives its head the last states: of OPT and the decoders of pairs, the decoder in it."""
    base: Any = getattr(module, "base_model", module)
    return base if base.config.is_encoder_decoder else getattr(base, "decoder", base)


def check_one_stack(module: nn.Module) -> None:
    """Refuse a model whose layers are those of an encoder and of a decoder."""
    base: Any = getattr(module, "base_model", module)
    if base.config.is_encoder_decoder and hasattr(base, "decoder"):  # UMT5 says so of its encoder alone, too
        raise ModelError(f"Layers of {type(module).__name__} cannot be dropped: it has an encoder and a decoder.")


def keep_layers(module: nn.Module, kept: Sequence[int]) -> None:
    """Keep only these blocks of a model, for good; embeddings, closing norm and head stay what they are."""
    check_one_stack(module)
    base: Any = getattr(module, "base_model", module)
    config, n_layers = base.config, base.config.num_hidden_layers
    parent, _, blocks = find_blocks(base)
    per_layer = _layer_settings(config)
    set_block_count(base, len(kept))
    if blocks is not None:  # one block that is run again and again needs only the number
        for name, parts in block_lists(parent, n_layers).items():
            chosen = [parts[layer - 1] for layer in kept]
            setattr(parent, name, nn.ModuleList(chosen))
            _number_blocks(chosen)
    _set_layer_settings(config, {key: [values[layer - 1] for layer in kept] for key, values in per_layer.items()})


def _layer_settings(config: Any) -> dict[str, list[Any]]:
    """The settings that have one value per layer, such as `layer_types`."""
    return {
        key: list(values)
        for key, values in config.to_dict().items()
        if isinstance(values, list) and len(values) == config.num_hidden_layers and _PER_LAYER.fullmatch(key)
    }


def _set_layer_settings(config: Any, per_layer: Mapping[str, list[Any]]) -> None:
    for key, values in per_layer.items():
        setattr(config, key, values)
    if "attention_layers" in per_layer and hasattr(config, "attention_types"):  # GPT-Neo reads this when it is loaded
        config.attention_types = [[per_layer["attention_layers"], 1]]


@contextmanager
def without_layers(module: nn.Module, kept: Sequence[int]) -> Iterator[None]:
    """Run a model with only these blocks, which are shared; afterwards it is what it was."""
    base: Any = getattr(module, "base_model", module)
    config, n_layers = base.config, base.config.num_hidden_layers
    parent, _, blocks = find_blocks(base)
    lists = block_lists(parent, n_layers) if blocks is not None else {}
    per_layer = _layer_settings(config)
    try:
        keep_layers(module, kept)
        yield
    finally:
        for name, parts in lists.items():
            setattr(parent, name, parts)
            _number_blocks(list(parts))
        _set_layer_settings(config, per_layer)
        set_block_count(base, n_layers)


def merge_layers(module: nn.Module, kept: Sequence[int]) -> None:
    """Give each kept block the mean weights of itself and of the dropped blocks that are nearest to it."""
    base: Any = getattr(module, "base_model", module)
    blocks = find_blocks(base)[2]
    if blocks is None:
        raise ModelError(f"{type(module).__name__} runs one block again and again; there is nothing to merge.")
    nearest = {layer: min(kept, key=lambda k: (abs(k - layer), k)) for layer in range(1, len(blocks) + 1)}
    states = [{name: tensor.clone() for name, tensor in block.named_parameters()} for block in blocks]
    for layer in kept:
        merged = [states[other - 1] for other, target in nearest.items() if target == layer]
        for name, parameter in blocks[layer - 1].named_parameters():
            if any(name not in state or state[name].shape != parameter.shape for state in merged):
                raise ModelError(f"Blocks of {type(module).__name__} differ in {name}, so they cannot be merged.")
            parameter.data = torch.stack([state[name].detach() for state in merged]).mean(dim=0)


@dataclass(frozen=True)
class Inner:
    """A part of every block that can be made narrower: the maps into it, the one out of it, and its size in the config.

    `fused` maps hold the input and its gate one after the other; `width` is the size of one unit (a head's).
    """

    into: tuple[str, ...]
    out: str
    key: str
    fused: bool = False


FEED_FORWARDS = (
    Inner(("intermediate.dense",), "output.dense", "intermediate_size"),  # BERT, RoBERTa, XLM-R, MPNet
    Inner(("ffn.lin1",), "ffn.lin2", "hidden_dim"),  # DistilBERT
    Inner(("mlp.Wi",), "mlp.Wo", "intermediate_size", fused=True),  # ModernBERT
    Inner(("mlp.c_fc",), "mlp.c_proj", "n_inner"),  # GPT-2
    Inner(("mlp.gate_proj", "mlp.up_proj"), "mlp.down_proj", "intermediate_size"),  # Llama, Qwen
    Inner(("mlp.gate_up_proj",), "mlp.down_proj", "intermediate_size", fused=True),  # Phi-3
    Inner(("mlp.dense_h_to_4h",), "mlp.dense_4h_to_h", "intermediate_size"),  # GPT-NeoX
    Inner(("mlp.dense_h_to_4h",), "mlp.dense_4h_to_h", "ffn_hidden_size"),  # Falcon
    Inner(("mlp.c_fc",), "mlp.c_proj", "intermediate_size"),  # GPT-Neo
    Inner(("fc1",), "fc2", "ffn_dim"),  # OPT
    Inner(("layer.1.DenseReluDense.wi",), "layer.1.DenseReluDense.wo", "d_ff"),  # encoders of T5
    Inner(("layer.1.DenseReluDense.wi_0", "layer.1.DenseReluDense.wi_1"), "layer.1.DenseReluDense.wo", "d_ff"),
)
ATTENTION = Inner(("self_attn.q_proj",), "self_attn.o_proj", "num_attention_heads")
"""Only where the width of a head is a setting of its own can a config say that there are fewer heads."""


def feed_forward(module: nn.Module) -> Inner:
    """Where the feed-forward neurons of a model are; a ModelError for architectures that are not known."""
    blocks, config = model_blocks(module), getattr(module, "base_model", module).config
    for inner in FEED_FORWARDS:
        names = (*inner.into, inner.out)
        if hasattr(config, inner.key) and all(_part(block, name) is not None for block in blocks for name in names):
            return inner
    if not any(hasattr(config, key) for key in ("d_inner", *(inner.key for inner in FEED_FORWARDS))):  # XLNet's
        reason = "its config has no setting for their number, which follows from the hidden size"
    else:
        reason = (
            "its blocks are none of BERT, RoBERTa, MPNet, DistilBERT, ModernBERT, T5 (encoder), GPT-2, GPT-Neo, "
            "GPT-NeoX, Falcon, OPT, Phi-3, Llama or Qwen"
        )
    raise ModelError(f"Feed-forward neurons of {type(module).__name__} cannot be cut: {reason}.")


def attention_heads(module: nn.Module) -> tuple[int, int]:
    """The groups of query heads that share a key, and the inputs of the output map per group."""
    config: Any = getattr(module, "base_model", module).config
    blocks = model_blocks(module)
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    known = all(_part(block, f"self_attn.{name}") is not None for block in blocks for name in names)
    if not known or not getattr(config, "head_dim", None):
        raise ModelError(
            f"Heads of {type(module).__name__} cannot be cut: its config ties their width to the hidden size "
            "(heads × width). Llama and Qwen models have a head_dim of their own."
        )
    return config.num_key_value_heads, config.head_dim * config.num_attention_heads // config.num_key_value_heads


def model_blocks(module: nn.Module) -> list[nn.Module]:
    """The blocks of a model; a ModelError where one block is run again and again."""
    blocks = find_blocks(getattr(module, "base_model", module))[2]
    if blocks is None:
        raise ModelError(f"{type(module).__name__} runs one block again and again; it cannot be cut.")
    return list(blocks)


@torch.no_grad()
def keep_neurons(module: nn.Module, kept: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
    """Keep some feed-forward neurons of every block, the same number; `weights` (output × kept) read them."""
    inner = feed_forward(module)
    for block, chosen, weight in zip(model_blocks(module), kept, weights, strict=True):
        for name in inner.into:
            part = block.get_submodule(name)
            size = linear_weight(part).shape[0] // 2 if inner.fused else 0
            _take_outputs(part, torch.cat([chosen, chosen + size]) if inner.fused else chosen)
        _set_inputs(block.get_submodule(inner.out), weight)
    config: Any = getattr(module, "base_model", module).config
    setattr(config, inner.key, len(kept[0]))


@torch.no_grad()
def keep_heads(module: nn.Module, kept: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
    """Keep some groups of heads (those that share a key) of every block, the same number; `weights` read them."""
    config: Any = getattr(module, "base_model", module).config
    groups, width = attention_heads(module)
    each = config.num_attention_heads // groups
    for block, chosen, weight in zip(model_blocks(module), kept, weights, strict=True):
        attention: Any = block.get_submodule("self_attn")
        for name, size in (("q_proj", width), ("k_proj", config.head_dim), ("v_proj", config.head_dim)):
            rows = (chosen[:, None] * size + torch.arange(size)).flatten()
            _take_outputs(getattr(attention, name), rows)
        _set_inputs(attention.o_proj, weight)
    config.num_attention_heads, config.num_key_value_heads = each * len(kept[0]), len(kept[0])


def linear_weight(part: Any) -> Tensor:
    """The weight of a linear map as output × input, also where GPT-2 keeps it the other way round."""
    return part.weight if isinstance(part, nn.Linear) else part.weight.T


def _take_outputs(part: Any, chosen: Tensor) -> None:
    axis = 0 if isinstance(part, nn.Linear) else 1
    chosen = chosen.to(part.weight.device)
    part.weight = nn.Parameter(part.weight.index_select(axis, chosen).clone())
    if part.bias is not None:
        part.bias = nn.Parameter(part.bias[chosen].clone())
    if isinstance(part, nn.Linear):
        part.out_features = len(chosen)
    else:
        part.nf = len(chosen)


def _set_inputs(part: Any, weight: Tensor) -> None:
    stored = weight if isinstance(part, nn.Linear) else weight.T
    part.weight = nn.Parameter(stored.to(part.weight).contiguous())
    if isinstance(part, nn.Linear):
        part.in_features = weight.shape[1]
    else:
        part.nx = weight.shape[1]


def _part(block: nn.Module, name: str) -> nn.Module | None:
    return dict(block.named_modules()).get(name)


def add_layers(module: nn.Module, blocks: Sequence[nn.Module]) -> None:
    """Put blocks on top of those of a model; `keep_layers` of the first ones takes them off again."""
    base: Any = getattr(module, "base_model", module)
    config = base.config
    parent, attribute, below = find_blocks(base)
    if below is None:
        raise ModelError(f"{type(module).__name__} runs one block again and again; no other can be put on top.")
    per_layer = _layer_settings(config).items()
    _set_layer_settings(config, {key: [*values, *[values[-1]] * len(blocks)] for key, values in per_layer})
    grown = nn.ModuleList([*below, *blocks])
    setattr(parent, attribute, grown)
    _number_blocks(list(grown))
    config.num_hidden_layers = len(grown)


def freeze(module: nn.Module, layers: Sequence[int], *, embeddings: bool) -> None:
    """Take gradients and dropout off these blocks, and off everything below the blocks if `embeddings`."""
    base: Any = getattr(module, "base_model", module)
    blocks = find_blocks(base)[2]
    if blocks is None and layers:
        raise ModelError(f"{type(module).__name__} runs one block again and again; its layers cannot be frozen alone.")
    frozen: list[nn.Module] = [blocks[layer - 1] for layer in layers] if blocks is not None else []
    if embeddings:
        frozen += embedding_modules(base)
    for part in frozen:
        part.requires_grad_(False).eval()


def embedding_modules(base: nn.Module) -> list[nn.Module]:
    """What runs before the first block: tables of embeddings, their norm, dropout and projection."""
    blocks = find_blocks(base)[2]
    if blocks is None:
        return [base.embeddings]  # pyright: ignore[reportReturnType]

    class AtFirstBlock(Exception):
        pass

    def stop(*_: object) -> None:
        raise AtFirstBlock

    inside = set(blocks.modules())
    leaves = [part for part in base.modules() if not list(part.children()) and part not in inside]
    before: list[nn.Module] = []
    hooks = [leaf.register_forward_pre_hook(lambda part, _: before.append(part)) for leaf in leaves]
    hooks.append(blocks[0].register_forward_pre_hook(stop))
    try:
        with torch.inference_mode():
            base(**probe_batch(base))
    except AtFirstBlock:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return before


def check_elsewhere(model: str | Path, out: str | Path) -> None:
    """Refuse to write a model over the one that it is made of."""
    if Path(model).is_dir() and Path(out).exists() and Path(model).samefile(out):
        raise SettingError(f"{out} is the model itself, which would be lost; choose another folder to write.")


def check_written(*folders: Path) -> None:
    """Refuse a finished run whose model is not there any more."""
    for folder in folders:
        if not any(folder.glob("*.safetensors")):
            raise StoreError(f"{folder} had a model, which is gone; make it again with --fresh.")


def to_stored_precision(module: PreTrainedModel, source: str | Path) -> None:
    """Turn the weights of a model back into the precision in which its source is stored, by the source's config."""
    from transformers import AutoConfig

    place, extra = weights_place(str(source))
    stored = None if "gguf_file" in extra else AutoConfig.from_pretrained(place, **extra).dtype
    if stored not in (torch.float16, torch.bfloat16):
        return
    fixed = set(getattr(module, "_keep_in_fp32_modules_strict", None) or ())
    if stored == torch.float16:  # T5 has parts that transformers never reads in it
        fixed |= set(getattr(module, "_keep_in_fp32_modules", None) or ())
    for name, parameter in module.named_parameters():
        if fixed.isdisjoint(name.split(".")):
            parameter.data = parameter.data.to(stored)  # buffers such as rotary frequencies keep theirs


def save_whole(
    module: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    *,
    source: str | Path | None = None,
) -> Path:
    """Write a model and its tokenizer; what would not be the same when it is read again is not written.

    `source` is the model it was made of: where that is a sentence-transformers model, the new one is, too.
    """
    folder = Path(folder)
    with files_for(folder) as temporary, quiet_libraries():
        module.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        try:
            again = type(module).from_pretrained(temporary, dtype=module.dtype)
        except (RuntimeError, ValueError, AssertionError) as error:  # of blocks that have more parts of that size
            raise ModelError(
                f"{type(module).__name__} could not be read again: its config cannot say what was cut; keep that whole."
            ) from error
        before, after = _states(module), _states(again)
        if before.shape != after.shape or not torch.allclose(before, after, atol=TOLERANCE):
            raise ModelError(
                f"{type(module).__name__} would not be the same when it is read again: some of its layers depend on "
                "their places. Keep others (the first one, for instance)."
            )
        if source is not None:
            copy_sentence_layout(source, temporary)
    return folder


def _number_blocks(blocks: Sequence[nn.Module]) -> None:
    """Give blocks the places that they have now; some look themselves up in caches or scales by it."""
    for place, block in enumerate(blocks):
        for part in block.modules():
            for name in ("layer_idx", "layer_id"):  # XLM has the second
                if isinstance(getattr(part, name, None), int):
                    setattr(part, name, place)


@torch.inference_mode()
def _states(module: nn.Module) -> Tensor:
    was_training = module.training
    module.eval()
    base: Callable[..., Any] = getattr(module, "base_model", module)
    batch = probe_batch(module)
    if module.config.is_encoder_decoder and hasattr(base, "decoder"):  # pyright: ignore[reportAttributeAccessIssue]
        batch["decoder_input_ids"] = batch["input_ids"]
    output = base(**batch)
    module.train(was_training)
    return (output.last_hidden_state if "last_hidden_state" in output else output.logits).cpu()  # T5 is its own base
