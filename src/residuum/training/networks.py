"""The network that learns a task: its head, its frozen layers, and the states of a frozen bottom, computed once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from residuum.errors import ModelError, SettingError
from residuum.models.loading import (
    check_blocks,
    check_no_fresh_weights,
    check_vocabulary,
    clear_loading_errors,
    encoder_class,
    evaluating,
    find_blocks,
    load_tokenizer,
    probe_batch,
)
from residuum.models.surgery import freeze, layer_count, named_layers
from residuum.storage.files import is_as_noted, note_checksum, reserve_space, whole_file
from residuum.storage.notebook import progress_bar
from residuum.training.encoding import EncodedSplit, Problem, TokenSequence, pad_id
from residuum.training.processes import is_main_process

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

AUTO_CLASSES = {
    "classification": "AutoModelForSequenceClassification",
    "regression": "AutoModelForSequenceClassification",
    "tagging": "AutoModelForTokenClassification",
    "choice": "AutoModelForMultipleChoice",
}
TOLERANCE = 1e-5  # between the outputs of the whole network and of its shortcuts
WINDOW_SETTINGS = ("sliding_window", "attention_chunk_size")
NARROW_WINDOW = 2  # tokens, where a shortcut is tried on a few tokens
BATCH_TOKENS = 2048  # padded tokens per batch of the frozen bottom

Pad = Callable[[Sequence[TokenSequence]], dict[str, Tensor]]


def load_with_head(
    name_or_path: str | Path, problem: Problem, *, seed: int = 0
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model with a head that fits the problem, and its tokenizer; a missing head is initialised from the seed.

    An existing head with the right number of outputs is kept, so a fine-tuned model can be trained further.
    """
    import transformers

    name = str(name_or_path)
    auto = getattr(transformers, AUTO_CLASSES[problem.kind])
    tokenizer = load_tokenizer(name, False)
    labels: dict[str, Any] = {}
    if problem.kind == "regression":
        labels = {"num_labels": 1, "problem_type": "regression"}
    elif problem.kind != "choice":
        names = dict(enumerate(problem.classes))
        labels = {"id2label": names, "label2id": {name: place for place, name in names.items()}}
    with clear_loading_errors(name), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = transformers.AutoConfig.from_pretrained(name, **labels)
        check_blocks(config, name)
        if encoder_class(config) is not None and problem.kind != "tagging":
            raise ModelError(f"{name} is the encoder of a pair; transformers has a head for tagging on it, no other.")
        if config.is_encoder_decoder:
            raise ModelError(f"{name} has an encoder and a decoder; pass a model that is one or the other.")
        if type(config) not in auto._model_mapping:
            raise ModelError(
                f"transformers has no head for {problem.kind} on {type(config).__name__}; use another model."
            )
        config.pad_token_id = pad_id(tokenizer)
        module, info = auto.from_pretrained(
            name,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    check_vocabulary(module, tokenizer, name)
    check_no_fresh_weights(module, info, name, allowed=f"^(?!{module.base_model_prefix}\\.)")
    return module, tokenizer


def takes_types(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the model reads the segment of each token."""
    return "token_type_ids" in tokenizer.model_input_names and getattr(module.config, "type_vocab_size", 2) > 1


def after_attention(network: nn.Module, kind: str) -> nn.Module | None:
    """The part of the last block after which the first token is sufficient for the logits; None if there is none.

    Attention needs the keys and values of all tokens; the output projection and the feed-forward part, three quarters
    of a block, come after it. Blocks that are built differently, and heads that read more tokens, have no such part.
    """
    base: Any = getattr(network, "base_model", network)
    _, _, blocks = find_blocks(base)
    part = getattr(getattr(blocks[-1] if blocks else None, "attention", None), "output", None)
    if not isinstance(part, nn.Module):
        return None
    batch = probe_batch(base)
    if kind == "choice":  # example × candidate × token
        batch = {name: tensor[None] for name, tensor in batch.items()}
    with evaluating([network]):
        whole = network(**batch).logits
        try:
            with first_token_only(part):
                narrowed = network(**batch).logits
        except (RuntimeError, IndexError):  # the rest of the block, or the head, needs the other tokens
            return None
    same = narrowed.shape == whole.shape and torch.allclose(whole, narrowed, atol=TOLERANCE)
    return part if same else None


@contextmanager
def first_token_only(part: nn.Module | None) -> Iterator[None]:
    """Let `part`, and everything after it, read the first token only; None changes nothing."""

    def cut(value: Any) -> Any:
        return value[:, :1] if isinstance(value, Tensor) and value.dim() == 3 else value

    def first(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        return tuple(map(cut, args)), {name: cut(value) for name, value in kwargs.items()}

    hook = part.register_forward_pre_hook(first, with_kwargs=True) if part is not None else None
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()


@dataclass(frozen=True)
class FrozenLayers:
    """Blocks (1 … L) that do not learn, and whether the embeddings are frozen too."""

    layers: tuple[int, ...] = ()
    embeddings: bool = False

    @property
    def bottom(self) -> int:
        """The number of lowest blocks that are frozen together with everything below them."""
        count = 0
        while self.embeddings and count + 1 in self.layers:
            count += 1
        return count


def parse_frozen(text: str | None, n_layers: int) -> FrozenLayers:
    """`bottom:6` (with the embeddings), `top:4`, `embeddings`, a list such as `1,4-6`, or several joined by `+`."""
    layers: set[int] = set()
    embeddings = False
    for part in text.split("+") if text else ():
        part = part.strip()
        if part == "embeddings":
            embeddings = True
            continue
        layers |= set(named_layers(part, n_layers))
        embeddings |= part.startswith("bottom:")
    return FrozenLayers(tuple(sorted(layers)), embeddings)


def apply_frozen(module: nn.Module, frozen: FrozenLayers) -> None:
    """Put a model into training mode except for its frozen part, which has no gradients and no dropout."""
    module.train()
    if not frozen.layers and not frozen.embeddings:
        return
    freeze(module, frozen.layers, embeddings=frozen.embeddings)
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise SettingError("Everything is frozen; nothing can be trained.")


class _Reached(Exception):
    """The forward pass has reached the cut."""


class SplitNetwork:
    """A network cut between two blocks: `lower` gives the states at the cut, `resumed` continues from given states.

    Both run the network's own code: the lower run stops at the cut; the upper run skips the blocks below it and uses
    the given states in place of their output. `fits` says whether both together equal the whole network, which fails
    if a network passes more than states from block to block.
    """

    def __init__(self, module: nn.Module, bottom: int) -> None:
        base: Any = getattr(module, "base_model", module)
        self.module, self.base = module, base
        self.parent, self.attribute, blocks = find_blocks(base)
        # The block above the cut must exist: if all blocks are frozen, the last one runs again.
        self.bottom = min(bottom, layer_count(module) - 1) if blocks is not None else 0
        self.blocks = blocks
        self.upper = None if blocks is None else blocks[self.bottom :]

    @torch.no_grad()
    def lower(self, inputs: dict[str, Tensor]) -> Tensor:
        """The states that enter the first block above the cut: sequence × token × hidden."""
        assert self.blocks is not None, "a network that can be cut has blocks"
        seen: list[Tensor] = []

        def stop(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            seen.append(args[0] if args else kwargs["hidden_states"])
            raise _Reached

        hook = self.blocks[self.bottom].register_forward_pre_hook(stop, with_kwargs=True)
        try:
            self.base(**inputs)
        except _Reached:
            pass
        finally:
            hook.remove()
        return seen[0]

    @contextmanager
    def resumed(self, states: Tensor) -> Iterator[Callable[..., Any]]:
        """The network without the blocks below the cut, with `states` in place of their output."""
        assert self.blocks is not None, "a network that can be cut has blocks"

        def put(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
            return ((states, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": states})

        hook = self.blocks[self.bottom].register_forward_pre_hook(put, with_kwargs=True)
        setattr(self.parent, self.attribute, self.upper)
        try:
            yield self.module
        finally:
            setattr(self.parent, self.attribute, self.blocks)
            hook.remove()

    def fits(self) -> bool:
        """Whether resuming from the lower states gives the output of the whole network."""
        if self.bottom < 1:
            return False
        batch = probe_batch(self.base)
        with evaluating([self.module]), _narrow_windows(self.base.config):
            whole = self.base(**batch).last_hidden_state
            states = self.lower(batch)
            with self.resumed(states):
                resumed = self.base(**batch).last_hidden_state
        same_shape = states.shape[:2] == batch["input_ids"].shape
        return same_shape and torch.allclose(whole, resumed, atol=TOLERANCE)


@contextmanager
def _narrow_windows(config: Any) -> Iterator[None]:
    """Attention windows so narrow that a few tokens distinguish blocks with a window from blocks without.

    Many decoders (Gemma 2, GPT-OSS) choose a block's mask by its index. Without the lower blocks an upper one may get
    another block's mask, which only text longer than the window would reveal.
    """
    before = {name: getattr(config, name) for name in WINDOW_SETTINGS if isinstance(getattr(config, name, None), int)}
    for name in before:
        setattr(config, name, NARROW_WINDOW)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


@dataclass(frozen=True, eq=False)
class StateCache:
    """States of all tokens in a row: sequence i has rows `starts[i]` … `starts[i + 1] − 1`."""

    states: Tensor  # token × hidden; memory-mapped if it is on disk
    starts: np.ndarray
    on_disk: bool

    def padded(self, numbers: Sequence[int], length: int) -> Tensor:
        """The states of some sequences, padded with zeros: sequence × token × hidden."""
        block = torch.zeros(len(numbers), length, self.states.shape[1])
        for row, number in enumerate(numbers):
            first, stop = self.starts[number], self.starts[number + 1]
            block[row, : stop - first] = self.states[first:stop]
        return block


def cache_bytes(split: EncodedSplit, width: int) -> int:
    """The size of the states of a split."""
    return 4 * width * sum(_lengths(split))


def fill_cache(
    network: SplitNetwork,
    split: EncodedSplit,
    pad: Pad,
    *,
    width: int,
    memory: int,
    folder: Path,
    identity: str,
    progress: bool = False,
) -> StateCache:
    """Run the bottom over a split once; states larger than `memory` bytes go to a file in `folder`.

    `identity` names the weights; an undamaged file of the same weights and the same split is used again.
    """
    starts = np.cumsum([0, *_lengths(split)])
    shape = (int(starts[-1]), width)
    if cache_bytes(split, width) <= memory:
        states = torch.empty(shape)
        _fill(states, starts, network, split, pad, progress)
        return StateCache(states, starts, on_disk=False)
    key = hashlib.blake2b(f"{identity} {split.fingerprint} {shape}".encode(), digest_size=8).hexdigest()
    path = folder / f"states-{key}-{os.environ.get('RANK', '0')}.bin"
    if not is_as_noted(path):
        with whole_file(path) as temporary:
            array = np.memmap(temporary, np.float32, "w+", shape=shape)
            reserve_space(temporary)
            _fill(torch.from_numpy(array), starts, network, split, pad, progress)
            array.flush()
        note_checksum(path)
    # Mapped copy-on-write: torch warns about arrays that it cannot write to.
    return StateCache(torch.from_numpy(np.memmap(path, np.float32, "c", shape=shape)), starts, on_disk=True)


def _fill(
    states: Tensor, starts: np.ndarray, network: SplitNetwork, split: EncodedSplit, pad: Pad, progress: bool
) -> None:
    """Compute states in batches sorted by length, longest first; a resumed run computes the same batches."""
    device = next(network.module.parameters()).device
    sequences = [sequence for example in split.examples for sequence in example.sequences]
    sizes = np.diff(starts)
    batches: list[list[int]] = []
    for number in np.argsort(-sizes, kind="stable").tolist():
        if not batches or int(sizes[batches[-1][0]]) * (len(batches[-1]) + 1) > BATCH_TOKENS:
            batches.append([])
        batches[-1].append(number)
    shown = progress and is_main_process()
    with progress_bar(total=len(sequences), desc="frozen layers", unit=" sequences", shown=shown, leave=False) as bar:
        for numbers in batches:
            inputs = {name: tensor.to(device) for name, tensor in pad([sequences[i] for i in numbers]).items()}
            for number, output in zip(numbers, network.lower(inputs).cpu(), strict=True):
                states[starts[number] : starts[number + 1]] = output[: sizes[number]]
            bar.update(len(numbers))


def _lengths(split: EncodedSplit) -> list[int]:
    return [len(sequence.ids) for example in split.examples for sequence in example.sequences]
