"""Load a model, name its layers uniformly, read them, keep some of them.

Layer 0 is the output of the embeddings, layers 1 … L the outputs of the blocks, as `hidden_states` of transformers.
"""

from __future__ import annotations

import atexit
import hashlib
import inspect
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from residuum.costs import Cost, CostStep, size, within
from residuum.errors import ModelError, ResiduumError, SettingError, clear_panics
from residuum.settings import LAYERS, layer_numbers, whole_number
from residuum.storage.notebook import facts_html, quiet_libraries
from residuum.storage.tensors import stored_bytes, stored_kinds, stored_weights

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Batch = Mapping[str, Tensor]

DEVICES = ("auto", "cpu", "cuda", "mps", "spread", "meta")
PRECISIONS = ("float32", "auto", "bfloat16", "float16")
"""`auto` reads weights as they are stored."""
MOST_BLOCKS = 1_000
"""Blocks beyond which a config is not believed."""
CLOSING_NORMS = ("ln_f", "norm", "final_norm", "final_layer_norm", "norm_f")
WEIGHT_BYTES = 4  # a weight is read as float32 unless another precision is chosen


_IMPORTING = Lock()


@contextmanager
def evaluating(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Eval mode without gradients; afterwards every submodule is back in its previous mode."""
    modes = [part for module in modules for part in module.modules() if part.training]
    for part in modes:
        part.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for part in modes:
            part.training = True


@dataclass(frozen=True)
class Reading:
    """What one forward pass gave: the wanted layers, and their attention where it was asked for."""

    hidden: list[Tensor]  # batch × token × hidden, one per wanted layer
    attention: list[Tensor]  # batch × head × token × token, one per wanted block


@dataclass(frozen=True)
class Origin:
    """How a model was loaded, so that another process can load it, too."""

    name_or_path: str
    random_init: bool
    seed: int
    layers: int | None
    device: str
    attention: bool
    allow_pickle: bool
    trust_remote_code: bool
    precision: str
    max_memory: int | None

    def load(self) -> Model:
        """Load it again."""
        return load_model(**asdict(self))


@dataclass(frozen=True, eq=False)
class Model:
    """A network whose layers can be read by number, with its tokenizer.

    `read` runs it once; `window` is the number of tokens that it can take, special ones included (None: no limit).
    """

    name: str
    module: nn.Module
    tokenizer: PreTrainedTokenizerBase
    widths: tuple[int, ...]
    reader: Callable[[nn.Module, Batch, Sequence[int], bool], Reading]
    n_heads: int = 0
    window: int | None = None
    causal: bool = False
    pads: bool = True  # False: only sequences of one length may share a batch
    random_init: bool = False
    layer_names: tuple[str, ...] = ()  # the submodules that are the layers, where `from_module` was told
    surgery: str = ""  # what is done to the running network; part of its identity
    origin: Origin | None = None  # None: it exists in this process only

    @property
    def n_layers(self) -> int:
        """The number of blocks; the embeddings (layer 0) are not counted."""
        return len(self.widths) - 1

    @property
    def hidden_size(self) -> int:
        """The number of neurons of the last layer."""
        return self.widths[-1]

    @property
    def device(self) -> torch.device:
        """Where the weights are; of one that is spread over several places, the first of them."""
        return main_device(self.module)

    @property
    def reads_chosen_layers(self) -> bool:
        """Whether a pass holds the states of the wanted layers only."""
        return self.reader is _read_transformer

    @property
    def gives_attention(self) -> bool:
        """Whether attention weights can be read: transformers loaded with `attention=True`."""
        return getattr(getattr(self.module, "config", None), "_attn_implementation", None) == "eager"

    @property
    def n_parameters(self) -> int:
        """The number of distinct weights."""
        return sum(p.numel() for p in self.module.parameters())

    @property
    def n_bytes(self) -> int:
        """What the weights take in memory."""
        return sum(p.numel() * p.element_size() for p in self.module.parameters())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the names and values of all weights and buffers, and of what is done to the running network."""
        return weights_fingerprint(self.module, self.surgery)

    @torch.inference_mode()
    def read(self, batch: Batch, layers: Sequence[int], attention: bool = False) -> Reading:
        """Run the network on a padded batch, in eval mode for as long as that takes, and return the wanted layers."""
        with evaluating([self.module]):
            return self.reader(self.module, batch, layers, attention)

    def __repr__(self) -> str:
        twin = ", random weights" if self.random_init else ""
        return f"Model({self.name!r}, {self.n_layers} layers × {self.hidden_size}{twin})"

    def _repr_html_(self) -> str:
        widths = ", ".join(map(str, dict.fromkeys(self.widths)))
        facts = {
            "layers": f"{self.n_layers} above the embeddings",
            "neurons per layer": widths,
            "attention heads": self.n_heads or "unknown",
            "parameters": f"{self.n_parameters:,}",
            "weights": f"{size(self.n_bytes)}, {next(self.module.parameters()).dtype}".replace("torch.", ""),
            "longest input": f"{self.window:,} tokens" if self.window else "no limit",
            "reads": "from left to right" if self.causal else "both sides of a word",
            "device": self.device,
        }
        return facts_html(repr(self), facts)


def load_model(
    name_or_path: str | os.PathLike[str],
    *,
    random_init: bool = False,
    seed: int = 0,
    layers: int | None = None,
    device: str = "auto",
    attention: bool = False,
    allow_pickle: bool = False,
    trust_remote_code: bool = False,
    precision: str = "float32",
    max_memory: int | None = None,
) -> Model:
    """Load a transformers encoder or decoder (of a sequence-to-sequence model: its encoder) from a folder or hub name.

    `random_init` gives a twin of the same architecture with fresh weights drawn from `seed`; `layers=k` keeps the
    first k blocks, so that the forward pass is really shorter; `attention` makes attention weights readable (slower).
    Only safetensors are read unless `allow_pickle`. `precision` is float32, bfloat16, float16, or auto: as the weights
    are stored. Weights of more than `max_memory` bytes are refused unread, but with `device="spread"`, where Accelerate
    puts them on all GPUs, the CPU (at most `max_memory` there) and the disk. `device="meta"` loads no weights: such a
    model knows its layers and its size, for a plan, and cannot be run.
    """
    _import_transformers()
    if not isinstance(name_or_path, str | os.PathLike):
        raise ModelError(f"Found {name_or_path!r:.80}; expected a model folder, a hub name or a Model.")
    name_or_path = os.fspath(name_or_path)
    seed, layers = whole_number("seed", seed), None if layers is None else whole_number("layers", layers)
    max_memory = None if max_memory is None else whole_number("max_memory", max_memory)
    options: dict[str, Any] = {"dtype": load_dtype(precision), "trust_remote_code": trust_remote_code}
    options |= {} if random_init else placement(device, max_memory)
    if "device_map" not in options and device != "meta":
        check_weights([name_or_path], max_memory, precision)
    drawn = seed if random_init else None
    module = _load_module(name_or_path, options, drawn=drawn, empty=device == "meta", allow_pickle=allow_pickle)
    tokenizer = load_tokenizer(name_or_path, trust_remote_code)
    check_vocabulary(module, tokenizer, name_or_path)
    with clear_loading_errors(name_or_path):  # a config can be of a network that loads and does not run
        model = from_transformers(module, tokenizer, name=short_name(name_or_path), attention=attention)
    if random_init:
        model = replace(model, name=f"{model.name} (random)", random_init=True)
    if layers is not None:
        model = first_layers(model, layers)
    if not hasattr(module, "hf_device_map") and device != "meta":
        model.module.to(resolve_device(device))
    model.module.eval()
    place = str(Path(name_or_path).absolute()) if Path(name_or_path).exists() else name_or_path
    origin = Origin(
        place,
        random_init,
        seed,
        layers,
        device,
        attention,
        allow_pickle,
        trust_remote_code,
        precision,
        max_memory if "device_map" in options else None,
    )
    return replace(model, origin=origin)


def _import_transformers() -> None:
    """Import what loading needs, one thread at a time: what another thread is importing has half of its names."""
    with _IMPORTING:
        from transformers import AutoConfig, AutoModel, AutoTokenizer  # noqa: F401


def as_model(model: Model | str | os.PathLike[str], **loading: Any) -> Model:
    """A model as it is, or `load_model` of its folder or name."""
    return model if isinstance(model, Model) else load_model(model, **loading)


def check_configs(models: Iterable[object]) -> None:
    """Raise for the first name or folder among these that has no model, before any other has been read for hours."""
    from transformers import AutoConfig

    for name in models:
        if isinstance(name, str | os.PathLike):
            place, extra = weights_place(os.fspath(name))
            with clear_loading_errors(os.fspath(name)):
                check_blocks(AutoConfig.from_pretrained(place, **extra), os.fspath(name))


def check_weights(models: Sequence[str | Path], max_memory: int | None, precision: str = "float32") -> None:
    """Refuse models whose weights take more than `max_memory` bytes together, by the headers of their files alone.

    Of one that is no folder of safetensors nothing is known before it is loaded.
    """
    if max_memory is not None:
        each = getattr(load_dtype(precision), "itemsize", None)
        held = sum(stored_bytes(model) if each is None else each * (stored_weights(model) or 0) for model in models)
        within(Cost(", ".join(map(short_name, models)), (CostStep("loading", 0.0, memory=held),)), max_memory)


def from_transformers(
    module: nn.Module, tokenizer: PreTrainedTokenizerBase, *, name: str = "model", attention: bool = False
) -> Model:
    """Wrap a transformers model that is already in memory; heads are dropped, encoders are taken out of pairs.

    The network stays in the mode that it has, training or not; it is read in eval mode.
    """
    module = getattr(module, "base_model", module)
    config: Any = module.config
    causal = not config.is_encoder_decoder and is_causal(module)
    if config.is_encoder_decoder and hasattr(module, "get_encoder"):
        module = module.get_encoder()  # pyright: ignore[reportCallIssue]
    if attention:
        module.set_attn_implementation("eager")  # pyright: ignore[reportCallIssue]
    n_layers, reader = _count_and_reader(module)
    return Model(
        name=name,
        module=module,
        tokenizer=tokenizer,
        widths=(config.hidden_size,) * (n_layers + 1),
        reader=reader,
        n_heads=getattr(config, "encoder_attention_heads", None) or getattr(config, "num_attention_heads", 0),
        window=_window(module, tokenizer),
        causal=causal,
    )


def from_module(
    module: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    layers: Sequence[str],
    *,
    name: str = "model",
    window: int | None = None,
    causal: bool = False,
) -> Model:
    """Read any network through the same interface: `layers` names the submodules whose outputs are layers 0, 1, ….

    The network is called with `input_ids` (batch × token), and with `attention_mask` if it takes one; a layer's
    output is batch × token × hidden, or a tuple that begins with it. Without `attention_mask` only sentences of the
    same length share a batch, so padding cannot leak into the states.
    """
    modules = dict(module.named_modules())
    for layer in layers:
        if layer not in modules:
            raise ModelError(
                f"No submodule {layer!r} in {type(module).__name__}; it has {', '.join(filter(None, modules))}."
            )
    pads = "attention_mask" in inspect.signature(module.forward).parameters
    reader = _hooked_reader(tuple(layers), pads)
    with evaluating([module]):
        probe = reader(module, probe_batch(module, tokenizer), range(len(layers)), False)
    return Model(
        name=name,
        module=module,
        tokenizer=tokenizer,
        widths=tuple(h.shape[-1] for h in probe.hidden),
        reader=reader,
        window=window,
        causal=causal,
        pads=pads,
        layer_names=tuple(layers),
    )


def first_layers(model: Model, k: int) -> Model:
    """Keep blocks 1 … k for good; layers 0 … k stay what they were in the whole model."""
    k = whole_number("layers", k)
    if k > model.n_layers:
        raise SettingError(f"Cannot keep the first {k} layers of {model.name}: it has {model.n_layers}.")
    if k == model.n_layers:
        return model
    _cut(model, k)
    return replace(model, widths=model.widths[: k + 1])


@contextmanager
def only_first_layers(model: Model, k: int) -> Iterator[Model]:
    """Run only blocks 1 … k inside this context; the whole model is back after it.

    Where the architecture is not known well enough to be cut, the whole model runs and gives the same values.
    """
    if k >= model.n_layers or model.reader not in TRANSFORMER_READERS:
        yield model
        return
    try:
        restore = _cut(model, k)
    except ModelError:
        yield model
        return
    try:
        yield model
    finally:
        restore()


def parse_layers(text: str | int | Sequence[int], n_layers: int) -> list[int]:
    """Turn `all`, `0,4-6` or `last` into layer numbers of a model with `n_layers` blocks."""
    if not isinstance(text, str):
        try:
            wanted = list(layer_numbers(text))
        except (TypeError, ValueError):
            raise SettingError(f"layers is {text!r}; expected {LAYERS}.") from None
    elif text == "all":
        wanted = list(range(n_layers + 1))
    elif text == "last":
        wanted = [n_layers]
    else:
        wanted = []
        for part in map(str.strip, text.split(",")):
            first, _, last = map(str.strip, part.partition("-"))
            if not (first.isdecimal() and (last or first).isdecimal()) or max(len(first), len(last)) > 6:
                raise SettingError(
                    f"Cannot read layers {text!r}: {part!r} is neither a number nor a range; "
                    "write for example 'all', 'last' or '0,4-6'."
                )
            wanted += range(int(first), int(last or first) + 1)
    unknown = [layer for layer in wanted if not 0 <= layer <= n_layers]
    if unknown:
        raise SettingError(f"Layer {unknown[0]} does not exist: the model has layers 0–{n_layers}.")
    if not wanted:
        raise SettingError("No layer was named; write for example 'all', 'last' or '0,4-6'.")
    return sorted(set(wanted))


def weights_fingerprint(module: nn.Module, surgery: str = "") -> str:
    """A hash of the names and values of all weights and buffers, and of what is done to the running network."""
    return tensors_fingerprint(_present(module), surgery)


def _present(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All weights and buffers; those that were put on disk are read one by one."""
    for name, tensor in module.state_dict().items():
        if tensor.is_meta:
            from accelerate.utils import align_module_device

            owner, _, leaf = name.rpartition(".")
            with align_module_device(module.get_submodule(owner), torch.device("cpu")):
                yield name, getattr(module.get_submodule(owner), leaf)
        else:
            yield name, tensor


def tensors_fingerprint(tensors: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]], surgery: str = "") -> str:
    """A hash of the names and values of tensors, and of what is done to them."""
    digest = hashlib.blake2b(surgery.encode(), digest_size=16)
    for name, tensor in tensors.items() if isinstance(tensors, Mapping) else tensors:
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def resolve_device(device: str) -> torch.device:
    """Turn `auto` into the best device that is there."""
    if device not in DEVICES and not str(device).startswith("cuda:"):
        raise SettingError(f"Device {device!r} is not known; choose one of {', '.join(DEVICES)}.")
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if device in ("auto", "spread"):
        device = next(d for d in ("cuda", "mps", "cpu") if available[d])
    if not available[device.partition(":")[0]]:
        raise SettingError(f"Device {device!r} is not available here; use --device cpu or auto.")
    return torch.device(device)


def main_device(module: nn.Module) -> torch.device:
    """Where a network takes its inputs: the place of its first weights that are not on disk."""
    away = any(hasattr(part, "_hf_hook") for part in module.modules())
    first = next(module.parameters()).device
    return next((p.device for p in module.parameters() if not p.is_meta), torch.device("cpu") if away else first)


def load_dtype(precision: str) -> torch.dtype | str:
    """What transformers is to read weights as; "auto": as they are stored."""
    if precision not in PRECISIONS:
        raise SettingError(f"Precision {precision!r} is not known; choose one of {', '.join(PRECISIONS)}.")
    return precision if precision == "auto" else getattr(torch, precision)


def placement(device: str, max_memory: int | None) -> dict[str, Any]:
    """How `from_pretrained` spreads weights: over GPUs as far as they have room, then the CPU, then the disk."""
    if device != "spread":
        return {}
    folder = tempfile.mkdtemp(prefix="residuum-weights-")  # for weights that no memory has room for
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    options: dict[str, Any] = {"device_map": "auto", "offload_folder": folder}
    if max_memory is not None:
        room = {gpu: torch.cuda.mem_get_info(gpu)[0] for gpu in range(torch.cuda.device_count())}
        options["max_memory"] = {**room, "cpu": max_memory}
    return options


def _load_module(
    name: str, options: dict[str, Any], *, drawn: int | None, empty: bool, allow_pickle: bool
) -> nn.Module:
    """The network with its weights, with weights `drawn` from a seed, or without memory for weights (`empty`)."""
    from transformers import AutoConfig, AutoModel

    place, extra = weights_place(name)
    remote = {"trust_remote_code": options["trust_remote_code"]}
    with clear_loading_errors(name):
        config = None
        if "gguf_file" not in extra or empty or drawn is not None:  # transformers unpacks a GGUF file for its config
            config = AutoConfig.from_pretrained(place, **remote, **extra)
            check_blocks(config, name)
        if config is not None and (empty or drawn is not None):
            dtype = config.dtype or torch.float32 if options["dtype"] == "auto" else options["dtype"]
            if empty:
                with torch.device("meta"):
                    return AutoModel.from_config(config, dtype=dtype, **remote)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(drawn or 0)
                return AutoModel.from_config(config, dtype=torch.float32, **remote).to(dtype)
        kind: Any = encoder_class(config) or AutoModel
        module, info = read_weights(kind, place, allow_pickle, {**options, **extra})
    check_no_fresh_weights(module, info, name)
    return module


def read_weights(kind: Any, place: str, allow_pickle: bool, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """`from_pretrained`, and what it says of loading; weights of a GGUF file are unpacked, so they can be written."""
    import transformers

    packed = "gguf_file" in options
    if packed and hasattr(transformers, "GgufConfig"):  # else weights may stay in blocks that only kernels read
        options = {**options, "quantization_config": transformers.GgufConfig(dequantize=True)}
    safe = None if allow_pickle or packed else True
    module, info = kind.from_pretrained(place, use_safetensors=safe, output_loading_info=True, **options)
    if packed and (quantizer := getattr(module, "hf_quantizer", None)) is not None:
        quantizer.remove_quantization_config(module)
    return module, info


def encoder_class(config: Any) -> Any:
    """The class of a checkpoint that holds the encoder of a pair alone, such as T5EncoderModel; else None."""
    import transformers

    named = (getattr(config, "architectures", None) or [""])[0]
    return getattr(transformers, named, None) if named.endswith("EncoderModel") else None


def check_blocks(config: Any, name: str) -> None:
    """Refuse a config that asks for more blocks than any model has, before they are built one by one."""
    for key in ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_decoder_layers"):
        count = getattr(config, key, None)
        if isinstance(count, int) and count > MOST_BLOCKS:
            raise ModelError(f"The config of {name} has {key} {str(count)[:40]}; expected at most {MOST_BLOCKS:,}.")


def weights_place(name: str) -> tuple[str, dict[str, str]]:
    """What transformers is to load, and how: the folder of `folder/file.gguf`, the name in `owner/name@revision`."""
    path = Path(name)
    if "@" in name and not path.exists():
        place, _, revision = name.rpartition("@")
        return place, {"revision": revision}
    if path.suffix == ".gguf" and path.is_file():
        if find_spec("gguf") is None:
            raise ModelError(f"{name} is a GGUF file, which the package gguf reads; pip install 'residuum[gguf]'.")
        return str(path.parent), {"gguf_file": path.name}
    return name, {}


def load_tokenizer(name: str, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """The tokenizer of a model's folder or hub name."""
    from transformers import AutoTokenizer

    place, extra = weights_place(name)
    with clear_loading_errors(name):
        return AutoTokenizer.from_pretrained(place, trust_remote_code=trust_remote_code, **extra)


def check_no_fresh_weights(module: nn.Module, info: dict[str, Any], name: str, allowed: str = "^$") -> None:
    """Refuse weights that are not those of the config.

    Those that the folder lacks must match `allowed` (an absent pooler is taken off). Blocks that the config does not
    know would be left out, and whole numbers or complex ones read as if they were weights.
    """
    names, weights = set(module.state_dict()), {key for key, _ in module.named_parameters()}
    for key in sorted(info.get("unexpected_keys", ())):
        parts = key.split(".")
        numbers = [i for i, part in enumerate(parts) if part.isdecimal()]
        first = [".".join(["0" if i == n else part for n, part in enumerate(parts)]) for i in numbers]
        if any(tail in names for other in first for tail in _tails(other)):
            raise ModelError(
                f"The weights in {name} have {key}, a block that its config.json does not count; it would be left out. "
                "Set the number of layers in config.json to that of the weights."
            )
    packed = getattr(getattr(module, "config", None), "quantization_config", None) is not None
    for key, kind in () if packed else stored_kinds(name).items():  # counters and masks may be whole numbers
        no_real_number = kind[0] not in "FB" or kind == "BOOL"
        if no_real_number and any(tail in weights for tail in _tails(key)):
            raise ModelError(
                f"{key} in {name} is stored as {kind}; expected floating-point weights (F32, F16 or BF16). "
                "Convert the model, or name how it was quantized in config.json."
            )
    fresh = [key for key in fresh_weights(module, info) if not re.search(allowed, key)]
    if fresh:
        raise ModelError(
            f"The weights in {name} lack {len(fresh)} tensors of {type(module).__name__} (first: {fresh[0]}); "
            "they would be random. Give a folder whose weights match its config.json."
        )
    is_base = getattr(module, "base_model", module) is module  # DeBERTa's classifiers have a pooler that learns too
    if is_base and any("pooler" in key for key in info["missing_keys"]) and hasattr(module, "pooler"):
        setattr(module, "pooler", None)  # noqa: B010 - a module knows its parts as tensors and modules only


def _tails(name: str) -> list[str]:
    """A weight's name, and what is left of it without its first words (`bert.encoder…`, `encoder…`)."""
    parts = name.split(".")
    return [".".join(parts[i:]) for i in range(min(3, len(parts)))]


def check_vocabulary(module: nn.Module, tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """Refuse a tokenizer whose tokens have no embedding."""
    embeddings = getattr(module, "get_input_embeddings", lambda: None)()
    rows = getattr(embeddings, "num_embeddings", None)
    largest = max(tokenizer.get_vocab().values(), default=-1)
    if isinstance(rows, int) and largest >= rows:
        raise ModelError(
            f"The tokenizer of {name} has token ids up to {largest}, but the model has embeddings of {rows} tokens "
            "only; give the tokenizer that belongs to it, or enlarge the embeddings with resize_token_embeddings."
        )


def fresh_weights(module: nn.Module, info: dict[str, Any]) -> list[str]:
    """The tensors that were missing and are random now, by what transformers tells of loading.

    Poolers do not count, nor do sinusoidal positions: these are computed, and many checkpoints leave them out.
    """
    parts, config = dict(module.named_modules()), getattr(module, "config", None)
    computed = [name for name, part in parts.items() if "Sinusoidal" in type(part).__name__]
    if getattr(config, "sinusoidal_pos_embds", False) or getattr(config, "sinusoidal_embeddings", False):
        computed += [name for name in parts if name.rpartition(".")[2] == "position_embeddings"]  # DistilBERT, XLM
    return sorted(key for key in info["missing_keys"] if "pooler" not in key and key.rpartition(".")[0] not in computed)


@contextmanager
def clear_loading_errors(name: str) -> Iterator[None]:
    """Say in one line what transformers found wrong with a model's folder or name."""
    from safetensors import SafetensorError

    check_folder_or_name(name)
    path = Path(name)
    try:
        with clear_panics(), quiet_libraries():
            yield
    except ResiduumError:
        raise
    except SafetensorError as error:
        raise ModelError(f"The weights in {name} are damaged ({error}); copy the model again.") from error
    except Exception as error:  # what a damaged config or tokenizer leads to is of every kind, and undocumented
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if path.is_dir() and not list(path.glob("*.safetensors")):
            found = sorted(p.name for p in path.iterdir())[:6]
            hint = " Pickled weights are read only with allow_pickle." if list(path.glob("*.bin")) else ""
            raise ModelError(
                f"{name} holds no model.safetensors (found: {', '.join(found) or 'nothing'}).{hint}"
            ) from error
        if isinstance(error, OSError) and not path.exists():
            raise ModelError(f"{name} does not exist here, and cannot be loaded from the hub: {reason}") from error
        raise ModelError(f"Cannot load {name}: {reason}") from error


def check_folder_or_name(name: str) -> None:
    """Refuse what is written as a path where no folder is."""
    looks_local = Path(name).is_absolute() or name.startswith((".", "~")) or name.count("/") > 1
    if looks_local and not Path(name).exists():
        raise ModelError(f"{name} does not exist; expected a model folder or a hub name such as 'owner/model'.")


def short_name(name_or_path: str | Path) -> str:
    """The hub name as it is, or the last folder of a path that says something."""
    path = Path(name_or_path)
    if not path.exists():
        return str(name_or_path)
    parts = [part for part in path.resolve().parts if part not in {"model", "models", "snapshots", "/"}]
    return parts[-1] if parts else str(path)


def is_causal(module: nn.Module) -> bool:
    """Whether a later token leaves the states of an earlier one untouched."""
    size = 8
    batch = probe_batch(module, None, size)
    if batch["input_ids"].is_meta:  # nothing can be compared
        return any(getattr(part, "is_causal", False) for part in module.modules())
    changed = dict(batch, input_ids=batch["input_ids"].clone())
    changed["input_ids"][:, -1] += 1
    with evaluating([module]):
        first, second = (module(**b).last_hidden_state[:, : size - 1] for b in (batch, changed))
    return torch.allclose(first, second, atol=1e-6)


def probe_batch(
    module: nn.Module, tokenizer: PreTrainedTokenizerBase | None = None, size: int = 8
) -> dict[str, Tensor]:
    """A few ordinary tokens, for asking a network about its shape; no special token is among them."""
    tables = [m.num_embeddings for m in module.modules() if isinstance(m, nn.Embedding)]
    stated = getattr(getattr(module, "config", None), "vocab_size", None)
    larger = [size for size in tables if size > 32] or [size for size in tables if size == stated]
    vocabulary = min([*larger, stated] if isinstance(stated, int) else larger, default=len(tokenizer or range(64)))
    device = main_device(module)
    ids = (torch.arange(size, device=device) * 7919 % max(vocabulary // 2, 1) + vocabulary // 4)[None]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _window(module: nn.Module, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The number of tokens that the position embeddings and the tokenizer allow."""
    limits = [tokenizer.model_max_length] if 0 < tokenizer.model_max_length < 10**6 else []
    tables = [
        m.num_embeddings - (0 if m.padding_idx is None else m.padding_idx + 1)
        for name, m in module.named_modules()
        if isinstance(m, nn.Embedding) and ("position" in name.lower() or name.endswith("wpe"))
    ]
    config = module.config
    stated = getattr(config, "max_position_embeddings", None) or 0
    if not tables and stated > 0:  # XLNet says −1: no limit
        tables = [stated]
    return min(limits + tables, default=None)


def _read_transformer(module: nn.Module, batch: Batch, layers: Sequence[int], attention: bool) -> Reading:
    """The wanted layers of a pass, the others dropped as it goes on: layer k is what enters block k + 1."""
    blocks = find_blocks(module)[2]
    assert blocks is not None, "such networks are read by _read_every_layer"
    wanted: set[int] = {layer % (len(blocks) + 1) for layer in layers}
    seen: dict[int, Any] = {}

    def keep(_block: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], layer: int) -> None:
        seen[layer] = inputs[0] if inputs else options["hidden_states"]

    hooks = [
        blocks[layer].register_forward_pre_hook(partial(keep, layer=layer), with_kwargs=True)
        for layer in wanted - {len(blocks)}
    ]
    try:
        output = module(**batch, **_uncached(module), output_attentions=attention or None)
    finally:
        for hook in hooks:
            hook.remove()
    hidden = [seen.get(layer % (len(blocks) + 1), output.last_hidden_state) for layer in layers]
    return Reading(hidden, _attention(output, layers) if attention else [])


def _read_every_layer(module: nn.Module, batch: Batch, layers: Sequence[int], attention: bool) -> Reading:
    """The wanted layers of what transformers notes of all, for networks without a list of blocks."""
    output = module(**batch, **_uncached(module), output_hidden_states=True, output_attentions=attention or None)
    hidden = [_states(output)[layer] for layer in layers]
    return Reading(hidden, _attention(output, layers) if attention else [])


TRANSFORMER_READERS = (_read_transformer, _read_every_layer)


def _uncached(module: nn.Module) -> dict[str, bool]:
    return {"use_cache": False} if getattr(module.config, "use_cache", False) else {}


def _attention(output: Any, layers: Sequence[int]) -> list[Tensor]:
    if not getattr(output, "attentions", None) or output.attentions[0] is None:
        raise ModelError("The model gave no attention weights: it has none, or was loaded without attention=True.")
    chosen = [output.attentions[layer - 1] for layer in layers if layer > 0]
    if any(weights.shape[-1] != weights.shape[-2] for weights in chosen):
        raise ModelError("The model gives attention over a window of tokens (as Longformer does), not over all tokens.")
    return chosen


def _count_and_reader(module: nn.Module) -> tuple[int, Callable[..., Reading]]:
    """The number of blocks, counted in a pass because configs name it in a dozen ways, and what reads them.

    Blocks whose inputs are not the hidden states of transformers, to the bit, are not read one by one. Mamba alone
    notes what leaves each block and never the embeddings; its layers are numbered like all others here.
    """
    batch = probe_batch(module)
    if batch["input_ids"].is_meta:  # nothing can be compared
        return module.config.num_hidden_layers, _read_transformer  # pyright: ignore[reportReturnType, reportAttributeAccessIssue]
    with evaluating([module]), torch.inference_mode():
        states = _states(module(**batch, **_uncached(module), output_hidden_states=True))
        n_layers, blocks = len(states) - 1, None
        if getattr(module.config, "num_hidden_layers", None) == n_layers > 0:
            blocks = find_blocks(module)[2]
        try:
            found = _read_transformer(module, batch, range(n_layers + 1), False).hidden if blocks is not None else []
        except (KeyError, AttributeError, TypeError):  # blocks that are called in a way of their own
            found = []
        left = [*states[:-2], states[-1]]
        entering = len(found) == len(states) and all(map(torch.equal, found, states))
        leaving = len(found) == len(states) > 2 and all(map(torch.equal, found[1:], left))
    return n_layers, _read_transformer if entering or leaving else _read_every_layer


def _hooked_reader(names: tuple[str, ...], pads: bool) -> Callable[..., Reading]:
    def read(module: nn.Module, batch: Batch, layers: Sequence[int], attention: bool) -> Reading:
        if attention:
            raise ModelError("Attention can be read from transformers models only.")
        seen: dict[str, Tensor] = {}
        modules = dict(module.named_modules())

        def keep(part: nn.Module, _inputs: object, output: Any, name: str) -> None:
            if not isinstance(output, Tensor | nn.utils.rnn.PackedSequence):
                output = output[0]
            if isinstance(output, nn.utils.rnn.PackedSequence):
                output, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
            elif getattr(part, "batch_first", True) is False:
                output = output.transpose(0, 1)
            if output.ndim != 3 or output.shape[:2] != batch["input_ids"].shape:
                shape, expected = tuple(output.shape), tuple(batch["input_ids"].shape)
                raise ModelError(f"Submodule {name!r} gave shape {shape}; expected {(*expected, 'hidden')}.")
            seen[name] = output

        hooks = [modules[n].register_forward_hook(partial(keep, name=n)) for n in set(names)]
        inputs = {"input_ids": batch["input_ids"]}
        if pads:
            inputs["attention_mask"] = batch["attention_mask"]
        try:
            module(**inputs)
        finally:
            for hook in hooks:
                hook.remove()
        missing = [n for n in names if n not in seen]
        if missing:
            raise ModelError(f"Submodule {missing[0]!r} was not run by the network's forward pass.")
        return Reading([seen[names[layer]] for layer in layers], [])

    return read


def _states(output: Any) -> Sequence[Tensor]:
    """What enters the first block and what each block gives; of a network without blocks its output alone."""
    return output.hidden_states or (output.last_hidden_state,)


def _cut(model: Model, k: int) -> Callable[[], None]:
    """Keep blocks 1 … k, take the closing norm off, check that layers 0 … k are unchanged; return what undoes it."""
    if model.reader not in TRANSFORMER_READERS:
        raise ModelError(f"Layers of {model.name} cannot be cut: it is not a transformers model.")
    module: Any = model.module
    batch, n_layers = probe_batch(module, model.tokenizer), module.config.num_hidden_layers
    has_values = not batch["input_ids"].is_meta
    before = model.read(batch, [k]).hidden[0] if has_values else None
    parent, _, blocks = find_blocks(module)
    lists = block_lists(parent, n_layers) if blocks is not None else {}
    closing = closing_modules(model) if lists else {}

    def undo() -> None:
        set_block_count(module, n_layers)
        for name, part in {**closing, **lists}.items():
            setattr(parent, name, part)

    set_block_count(module, k)
    for name, parts in lists.items():
        setattr(parent, name, parts[:k])
    for name in closing:
        setattr(parent, name, nn.Identity())
    if before is not None and not torch.allclose(before, model.read(batch, [-1]).hidden[0], atol=1e-5):
        undo()
        raise ModelError(f"Layers of {type(module).__name__} cannot be cut: layer {k} would change.")
    return undo


def closing_modules(model: Model) -> dict[str, nn.Module]:
    """The modules between the last block and the last layer, mostly a norm; they stand beside the list of blocks.

    They run once, and their output is the last layer; on `meta`, where nothing has a value, they are known by name.
    """
    parent, module = find_blocks(model.module)[0], model.module
    beside = {name: part for name, part in parent.named_children() if not isinstance(part, nn.ModuleList)}
    batch = probe_batch(module, model.tokenizer)
    if batch["input_ids"].is_meta:
        return {name: part for name, part in beside.items() if name in CLOSING_NORMS}
    outputs: dict[str, list[Any]] = {name: [] for name in beside}
    hooks = [
        part.register_forward_hook(lambda _part, _inputs, output, name=name: outputs[name].append(output))
        for name, part in beside.items()
    ]
    try:
        last = model.read(batch, [model.n_layers]).hidden[0]
    finally:
        for hook in hooks:
            hook.remove()
    closing = {}
    for name, given in outputs.items():  # T5 has one dropout for the embeddings and the end
        if len(given) == 1 and isinstance(given[0], Tensor) and given[0].shape == last.shape:
            closing |= {name: beside[name]} if torch.equal(given[0], last) else {}
    return closing


def find_blocks(module: nn.Module) -> tuple[nn.Module, str, nn.ModuleList | None]:
    """The list of blocks, its owner and its name there; None where one block is run again and again (ALBERT)."""
    config: Any = module.config
    n_layers = config.num_hidden_layers
    for name, child in module.named_modules():
        if isinstance(child, nn.ModuleList) and len(child) == n_layers:
            owner, _, attribute = name.rpartition(".")
            return module.get_submodule(owner), attribute, child
    return module, "", None


def block_lists(parent: nn.Module, n_layers: int) -> dict[str, nn.ModuleList]:
    """The lists that hold one part per block: one list of blocks, or in XLM one each of attention, norms and so on."""
    return {
        name: part
        for name, part in parent.named_children()
        if isinstance(part, nn.ModuleList) and len(part) == n_layers
    }


def set_block_count(module: nn.Module, count: int) -> None:
    """State the number of blocks in the config, and in the network where that counts by itself (XLM)."""
    config: Any = module.config
    try:
        config.num_hidden_layers = count
    except NotImplementedError as error:  # Funnel counts its blocks in another way
        raise ModelError(f"Layers of {type(module).__name__} cannot be cut: {error}") from error
    if isinstance(getattr(module, "n_layers", None), int):
        module.n_layers = count  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
