"""Sentence-transformers models: which modules make the sentence vector, the vector itself, and copies of the layout.

Such a folder lists its modules in `modules.json`: a transformer, a pooling of its last layer, often a dense layer or
a normalisation. Together with the prompts and the longest input they define the model as much as its weights do.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from residuum.errors import ModelError, StoreError
from residuum.storage.files import read_json

if TYPE_CHECKING:
    from residuum.models.loading import Model

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
LENGTHS = "sentence_*_config.json"
POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The switches of older files, and the names of newer ones."""
WIDTHS = ("embedding_dimension", "word_embedding_dimension")
BATCH = 32


@dataclass(frozen=True)
class Module:
    """One module of `modules.json`: the last part of its class name, its folder, and its settings."""

    kind: str
    path: str
    config: dict[str, Any]


@dataclass(frozen=True)
class SentenceLayout:
    """What makes a sentence vector of the states of a transformer, in order; and the inputs it is made for."""

    folder: Path
    transformer: str  # its folder below `folder`, mostly ""
    modules: tuple[Module, ...]  # what comes after the transformer
    max_length: int | None
    lowercase: bool
    prompts: dict[str, str]
    default_prompt: str | None

    @property
    def pooling(self) -> tuple[str, ...]:
        """How tokens become one vector: cls, mean, max, lasttoken, …; several are put side by side."""
        config = next((module.config for module in self.modules if module.kind == "Pooling"), {})
        stated = config.get("pooling_mode")
        if stated is None:
            stated = [name for key, name in POOLINGS.items() if config.get(key)] or ["mean"]
        return (stated,) if isinstance(stated, str) else tuple(stated)

    @property
    def normalised(self) -> bool:
        """Whether the vector has length 1."""
        return any(module.kind == "Normalize" for module in self.modules)

    @property
    def width(self) -> int | None:
        """The width that the pooling expects of the transformer, where it says so."""
        config = next((module.config for module in self.modules if module.kind == "Pooling"), {})
        return next((config[key] for key in WIDTHS if key in config), None)

    @property
    def default_text(self) -> str:
        """The prompt that stands before every text unless another is chosen."""
        return self.prompts.get(self.default_prompt or "", "")

    @property
    def prompt_texts(self) -> list[str]:
        """The prompts that are not blank."""
        return [prompt for prompt in self.prompts.values() if prompt.strip()]


def read_sentence_layout(source: str | Path) -> SentenceLayout | None:
    """The layout of a sentence-transformers folder or hub name; None for any other model."""
    folder = layout_folder(source)
    if folder is None or not (folder / MODULES).exists():
        return None
    listed = read_json(folder / MODULES)
    try:
        entries = [(str(entry["type"]).rpartition(".")[2], str(entry["path"])) for entry in listed]
    except (TypeError, KeyError) as error:
        raise StoreError(f"{folder / MODULES} is not a list of modules with type and path; copy it again.") from error
    if not entries or entries[0][0] != "Transformer":
        return None  # bags of words and static embeddings have no layers
    paths = [path for _, path in entries]
    if any(Path(path).is_absolute() or ".." in Path(path).parts for path in paths):
        raise StoreError(f"{folder / MODULES} names a folder outside the model; expected folders such as 1_Pooling.")
    lengths = {key: value for file in _length_files(folder / paths[0]) for key, value in read_json(file).items()}
    settings = read_json(folder / SETTINGS) if (folder / SETTINGS).exists() else {}
    files = {path: folder / path / "config.json" for path in paths[1:]}  # a normalisation has none
    configs = {path: read_json(file) if file.exists() else {} for path, file in files.items()}
    return SentenceLayout(
        folder=folder,
        transformer=paths[0],
        modules=tuple(Module(kind, path, configs[path]) for kind, path in entries[1:]),
        max_length=lengths.get("max_seq_length"),
        lowercase=bool(lengths.get("do_lower_case")),
        prompts=settings.get("prompts") or {},
        default_prompt=settings.get("default_prompt_name"),
    )


def copy_sentence_layout(source: str | Path, out: str | Path) -> bool:
    """Make the model in the folder `out` a sentence-transformers model as `source` is one; False if that is none.

    `out` holds the transformer itself, which may have another width: the pooling then gets that one. A dense layer
    after the pooling has weights of its own and is refused for another width.
    """
    layout, out = read_sentence_layout(source), Path(out)
    if layout is None:
        return False
    config = read_json(out / "config.json")
    width = next((config[key] for key in ("hidden_size", "d_model", "dim", "n_embd") if key in config), None)
    check_layout_width(layout, width)
    for file in [*_length_files(layout.folder / layout.transformer), layout.folder / SETTINGS]:
        if file.exists():
            shutil.copyfile(file, out / file.name)
    for module in layout.modules:
        if not (layout.folder / module.path).is_dir():  # a normalisation has no settings
            continue
        shutil.copytree(layout.folder / module.path, out / module.path, dirs_exist_ok=True)
        if module.kind == "Pooling" and width is not None:
            config = {key: width if key in WIDTHS else value for key, value in module.config.items()}
            _write(out / module.path / "config.json", config)
    listed = json.loads((layout.folder / MODULES).read_text(encoding="utf-8"))
    listed[0]["path"] = ""  # older models have their transformer in a folder of its own
    _write(out / MODULES, listed)
    return True


def stated_position(model: Model, position: str) -> Any:
    """What stands for a sentence: as asked for, or, of `auto`, as a sentence-transformers model pools by itself."""
    if position != "auto" or model.origin is None:
        return position
    layout = read_sentence_layout(model.origin.name_or_path)
    known: dict[tuple[str, ...], str] = {("cls",): "cls", ("mean",): "all", ("lasttoken",): "last"}
    return "auto" if layout is None else known.get(layout.pooling, "auto")


def check_layout_width(layout: SentenceLayout, width: int | None) -> None:
    """Refuse a width that the dense layers and norms after the pooling do not take."""
    learnt = [module for module in layout.modules if module.kind not in ("Pooling", "Normalize", "Dropout")]
    if learnt and layout.width is not None and width is not None and width != layout.width:
        raise ModelError(
            f"The {learnt[0].kind} module of {layout.folder.name} takes vectors of {layout.width} numbers, the new "
            f"model gives {width}. Keep the width, or remove the module from {MODULES}."
        )


def layout_folder(source: str | Path) -> Path | None:
    """The local folder of a model: itself, or what the hub's cache holds of its settings; None without either."""
    path = Path(source)
    if path.is_dir():
        return path
    if path.is_file() or str(source).count("/") > 1:
        return None
    from huggingface_hub import snapshot_download

    patterns = [MODULES, SETTINGS, LENGTHS, "README.md", "[0-9]_*/*"]
    name, _, revision = str(source).partition("@")
    try:
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=patterns))
    except Exception:  # not on the hub, or no hub: whoever loads its weights says so
        return None


@dataclass(frozen=True, eq=False)
class SentenceEncoder:
    """A sentence-transformers model as our own code runs it: text → vector."""

    model: Model
    layout: SentenceLayout

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], *, prompt: str | None = None) -> np.ndarray:
        """One vector per text; `prompt` names one of the model's prompts, which is put before every text.

        Texts longer than the model's longest input are cut off there, as in sentence-transformers.
        """
        if prompt is not None and prompt not in self.layout.prompts:
            known = ", ".join(self.layout.prompts) or "none"
            raise ModelError(f"{self.model.name} has no prompt {prompt!r}; it has {known}.")
        before = self.layout.default_text if prompt is None else self.layout.prompts[prompt]
        vectors = [self._vectors([before + text for text in texts[i : i + BATCH]]) for i in range(0, len(texts), BATCH)]
        return torch.cat(vectors).cpu().numpy() if vectors else np.zeros((0, self.model.hidden_size), np.float32)

    def _vectors(self, texts: Sequence[str]) -> Tensor:
        model, limits = self.model, [self.layout.max_length, self.model.window]
        texts = [text.strip().lower() if self.layout.lowercase else text.strip() for text in texts]
        batch = model.tokenizer(
            list(texts),
            padding=True,
            truncation=True,
            max_length=min((limit for limit in limits if limit), default=None),
            return_tensors="pt",
        ).to(model.device)
        mask = batch["attention_mask"]
        states = model.read(batch, [model.n_layers]).hidden[0].float()  # pyright: ignore[reportArgumentType]
        vectors = torch.cat([pooled(states, mask, mode) for mode in self.layout.pooling], dim=1)
        for step in self._steps:
            vectors = step(vectors)
        return vectors

    @cached_property
    def _steps(self) -> list[nn.Module]:
        return [_step(self.layout, module, self.model.device) for module in self.layout.modules[1:]]


def sentence_encoder(source: str | Path, **loading: Any) -> SentenceEncoder:
    """Load a sentence-transformers folder or hub name for `encode`; `loading` are options of `load_model`."""
    from residuum.models.loading import load_model

    layout = read_sentence_layout(source)
    if layout is None or not layout.modules or layout.modules[0].kind != "Pooling":
        raise ModelError(f"{source} is no sentence-transformers model: it lacks {MODULES} with a pooling.")
    return SentenceEncoder(load_model(source, **loading), layout)


def sentence_text(line: str, layout: SentenceLayout | None) -> str:
    """A line as the model reads it: with the prompt that stands before every text, in lower case where it says so."""
    if layout is None:
        return line.strip()
    line = (layout.default_text + line).strip()
    return line.lower() if layout.lowercase else line


def lines_as_read(lines: Iterable[str], layout: SentenceLayout | None) -> Iterator[str]:
    """Every line, and where a sentence-transformers model reads it in another way (in lower case), that way too."""
    for line in lines:
        yield line
        if layout is not None and (read := sentence_text(line, layout)) != line:
            yield read


def pooled(states: Tensor, mask: Tensor, mode: str) -> Tensor:
    """Text × token × neuron → text × neuron, as sentence-transformers pools; padding may be on either side."""
    shown = mask.bool()
    if mode == "max":
        return states.masked_fill(~shown[..., None], -torch.inf).amax(dim=1)
    return torch.einsum("bt,btn->bn", token_weights(shown, mode).to(states), states)


def token_weights(shown: Tensor, mode: str) -> Tensor:
    """The weight of each token (text × token) in a pooling that is a weighted sum; `shown` is False for padding."""
    place = shown.cumsum(dim=1) * shown  # 1, 2, … among the tokens of a text
    count = shown.sum(dim=1, keepdim=True).clamp(min=1)
    if mode == "cls":
        return (place == 1).float()
    if mode == "lasttoken":
        return ((place == count) & shown).float()
    if mode == "weightedmean":
        return place / place.sum(dim=1, keepdim=True)
    if mode in ("mean", "mean_sqrt_len_tokens"):
        return shown / (count if mode == "mean" else count.sqrt())
    raise ModelError(f"The model pools tokens by {mode!r}; expected one of {', '.join(POOLINGS.values())}.")


class _Unit(nn.Module):
    def forward(self, vectors: Tensor) -> Tensor:
        """Each vector divided by its length."""
        return nn.functional.normalize(vectors, dim=1)


def _step(layout: SentenceLayout, module: Module, device: torch.device) -> nn.Module:
    """A module after the pooling."""
    if module.kind == "Normalize":
        return _Unit()
    if module.kind == "Dropout":
        return nn.Identity()
    if module.kind == "Dense":
        from safetensors.torch import load_file

        config = module.config
        linear = nn.Linear(config["in_features"], config["out_features"], bias=config.get("bias", True))
        weights = load_file(layout.folder / module.path / "model.safetensors")
        linear.load_state_dict({name.removeprefix("linear."): value for name, value in weights.items()})
        activation = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
        return nn.Sequential(linear, getattr(nn, activation)()).to(device).eval()
    raise ModelError(f"The module {module.kind} of {layout.folder.name} cannot be run here; Dense and Normalize can.")


def _length_files(folder: Path) -> list[Path]:
    """`sentence_bert_config.json` and its older names; SETTINGS ends alike but begins with `config`."""
    return sorted(folder.glob(LENGTHS))


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
