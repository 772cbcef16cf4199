"""A pretrained model with a head for a problem: the classes that `from_pretrained` knows, drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from residuum.errors import ModelError
from residuum.models.loading import (
    check_no_fresh_weights,
    clear_loading_errors,
    find_blocks,
    load_tokenizer,
    probe_batch,
)
from residuum.training.encoding import pad_id
from residuum.training.problems import Problem

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

AUTO_CLASSES = {
    "classification": "AutoModelForSequenceClassification",
    "regression": "AutoModelForSequenceClassification",
    "tagging": "AutoModelForTokenClassification",
    "choice": "AutoModelForMultipleChoice",
}


def load_with_head(
    name_or_path: str | Path, problem: Problem, *, seed: int = 0
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model whose head fits the problem, and its tokenizer; a head that the folder lacks is drawn from the seed.

    A head that is there is kept if it has as many outputs, so that a fine-tuned model can be trained further.
    """
    import transformers

    name = str(name_or_path)
    auto = getattr(transformers, AUTO_CLASSES[problem.kind])
    tokenizer = load_tokenizer(name, False)
    with clear_loading_errors(name), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = transformers.AutoConfig.from_pretrained(name, **_labels(problem))
        if config.is_encoder_decoder:
            raise ModelError(f"{name} has an encoder and a decoder; give a model that is one or the other.")
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
    check_no_fresh_weights(module, info, name, allowed=f"^(?!{module.base_model_prefix}\\.)")
    return module, tokenizer


def takes_types(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the model is given the segment that each token belongs to."""
    return "token_type_ids" in tokenizer.model_input_names and getattr(module.config, "type_vocab_size", 2) > 1


def _labels(problem: Problem) -> dict[str, Any]:
    if problem.kind == "regression":
        return {"num_labels": 1, "problem_type": "regression"}
    if problem.kind == "choice":
        return {}
    names = dict(enumerate(problem.classes))
    return {"id2label": names, "label2id": {name: place for place, name in names.items()}}


TOLERANCE = 1e-5


def after_attention(network: nn.Module, kind: str) -> nn.Module | None:
    """The part of the last block from which on the first token is enough for the logits, if there is one.

    Keys and values are those of all tokens; the output projection and the feed-forward part, three quarters of a
    block, come after them. Networks whose blocks are built otherwise, or whose head reads more, have no such part.
    """
    base: Any = getattr(network, "base_model", network)
    _, _, blocks = find_blocks(base)
    part = getattr(getattr(blocks[-1] if blocks else None, "attention", None), "output", None)
    if not isinstance(part, nn.Module):
        return None
    batch = probe_batch(base)
    if kind == "choice":  # example × candidate × token
        batch = {name: tensor[None] for name, tensor in batch.items()}
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        return part if _is_enough(part, network, batch) else None
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def first_token_only(part: nn.Module | None) -> Iterator[None]:
    """Give `part`, and so all that comes after it, the first token alone; with None nothing is changed."""
    hook = part.register_forward_pre_hook(_first, with_kwargs=True) if part is not None else None
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()


@torch.no_grad()
def _is_enough(part: nn.Module, network: nn.Module, batch: dict[str, Tensor]) -> bool:
    """Whether the logits are the same without the other tokens."""
    whole = network(**batch).logits
    try:
        with first_token_only(part):
            narrowed = network(**batch).logits
    except (RuntimeError, IndexError):  # the rest of the block, or the head, needs the other tokens
        return False
    return narrowed.shape == whole.shape and torch.allclose(whole, narrowed, atol=TOLERANCE)


def _first(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    return tuple(_cut(a) for a in args), {name: _cut(value) for name, value in kwargs.items()}


def _cut(value: Any) -> Any:
    return value[:, :1] if isinstance(value, Tensor) and value.dim() == 3 else value
