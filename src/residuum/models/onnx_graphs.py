"""A network as an ONNX graph for any number of texts and tokens, checked against the network itself."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from residuum.errors import ModelError, SettingError
from residuum.models.loading import probe_batch
from residuum.storage.files import whole_file

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOLERANCE = 1e-4
FILE = "model.onnx"
NAMES = ("input_ids", "attention_mask")
"""The inputs that every graph has; `token_type_ids` and `word_ids` are those that it may have beside them."""
OPSET = 18  # the first in which a scatter can take the largest value


def check_packages() -> None:
    """Say before anything is computed that a graph cannot be written."""
    missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise SettingError(f"{' and '.join(missing)} cannot be imported; ONNX needs pip install 'residuum[onnx]'.")


@torch.no_grad()
def write_graph(
    graph: nn.Module,
    network: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    output: str,
    names: Sequence[str] = NAMES,
) -> float:
    """Write `model.onnx` and return its largest difference from the network in torch, which is at most 1e-4.

    `graph`, called with the inputs `names` in that order, gives batch × token × …; `network` is the part whose
    embeddings know the tokens.
    """
    check_packages()
    import onnxruntime

    graph.eval()
    with whole_file(folder / FILE) as path:
        _export(graph, some_inputs(network, tokenizer, names), path, output)
        inputs = some_inputs(network, tokenizer, names, n_texts=3)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        found: Any = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})[0]
        shown = inputs["attention_mask"].bool().numpy()
        difference = float(np.abs(found - graph(*inputs.values()).numpy())[shown].max())
        if difference > TOLERANCE:
            raise ModelError(
                f"The ONNX graph differs from the network by {difference:.1e}; expected {TOLERANCE} at most."
            )
    return difference


def write_states_graph(network: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> float:
    """Write `model.onnx` of a network without its head: batch × token × neuron; returns the largest difference."""
    base = getattr(network, "base_model", network)
    typed = "token_type_ids" in tokenizer.model_input_names and getattr(base.config, "type_vocab_size", 1) > 1
    names = (*NAMES, "token_type_ids") if typed else NAMES
    return write_graph(_States(base, names), base, tokenizer, folder, "last_hidden_state", names)


class _States(nn.Module):
    """The states of the last layer."""

    def __init__(self, network: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.network, self.names = network, names

    def forward(self, *inputs: Tensor) -> Tensor:
        """Batch × token × neuron."""
        extra = {"use_cache": False} if getattr(self.network.config, "use_cache", False) else {}
        return self.network(**dict(zip(self.names, inputs, strict=True)), **extra).last_hidden_state


def some_inputs(
    network: nn.Module, tokenizer: PreTrainedTokenizerBase, names: Sequence[str] = NAMES, n_texts: int = 2
) -> dict[str, Tensor]:
    """Some tokens and what belongs to them, the later texts shorter, so that the mask matters.

    `token_type_ids`: the second half is another segment, where the network knows more than one. `word_ids`: words of
    two tokens, and −1 for the first token, as special ones have.
    """
    ids = probe_batch(network, tokenizer, size=6 + n_texts)["input_ids"].cpu().repeat(n_texts, 1)
    place = torch.arange(ids.shape[1])
    mask = (place[None] < torch.arange(len(place), len(place) - n_texts, -1)[:, None]).to(ids.dtype)
    segments = getattr(network.config, "type_vocab_size", 2)
    made = {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": (place >= len(place) // 2).to(ids.dtype).expand_as(ids) * (segments > 1) * mask,
        "word_ids": torch.where(mask > 0, (place + 1) // 2 - 1, -1),
    }
    return {name: made[name] for name in names}


def _export(graph: nn.Module, inputs: dict[str, Tensor], path: Path, output: str) -> None:
    axes = {0: "text", 1: "token"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own notices
        torch.onnx.export(
            graph,
            tuple(inputs.values()),
            path,
            input_names=list(inputs),
            output_names=[output],
            dynamic_axes=dict.fromkeys((*inputs, output), axes),
            opset_version=OPSET,
            dynamo=False,
        )
