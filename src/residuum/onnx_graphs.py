"""A network as an ONNX graph for any number of texts and tokens, checked against the network itself."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from residuum.errors import ModelError, SettingError
from residuum.files import whole_file
from residuum.models import probe_batch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TOLERANCE = 1e-4
FILE = "model.onnx"
NAMES = ("input_ids", "attention_mask")


def check_packages() -> None:
    """Say before anything is computed that a graph cannot be written."""
    missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise SettingError(f"{' and '.join(missing)} cannot be imported; ONNX needs pip install 'residuum[onnx]'.")


@torch.no_grad()
def write_graph(
    graph: nn.Module, network: nn.Module, tokenizer: PreTrainedTokenizerBase, folder: Path, output: str
) -> float:
    """Write `model.onnx` and return its largest difference from the network in torch, which is at most 1e-4.

    `graph(input_ids, attention_mask)` gives batch × token × …; `network` is the part whose embeddings know the tokens.
    """
    check_packages()
    graph.eval()
    with whole_file(folder / FILE) as path:
        _export(graph, some_tokens(network, tokenizer), path, output)
        difference = _difference(graph, some_tokens(network, tokenizer, n_texts=3), path)
        if difference > TOLERANCE:
            raise ModelError(
                f"The ONNX graph differs from the network by {difference:.1e}; expected {TOLERANCE} at most."
            )
    return difference


def some_tokens(network: nn.Module, tokenizer: PreTrainedTokenizerBase, n_texts: int = 2) -> tuple[Tensor, Tensor]:
    """Some tokens and their mask, the later texts shorter, so that the mask matters."""
    one = probe_batch(network, tokenizer, size=6 + n_texts)["input_ids"].cpu()
    ids = one.repeat(n_texts, 1)
    lengths = torch.arange(ids.shape[1], ids.shape[1] - n_texts, -1)
    mask = (torch.arange(ids.shape[1])[None] < lengths[:, None]).to(ids.dtype)
    return ids, mask


def _export(graph: nn.Module, inputs: tuple[Tensor, Tensor], path: Path, output: str) -> None:
    axes = {0: "text", 1: "token"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own notices
        torch.onnx.export(
            graph,
            inputs,
            path,
            input_names=list(NAMES),
            output_names=[output],
            dynamic_axes=dict.fromkeys((*NAMES, output), axes),
            dynamo=False,
        )


def _difference(graph: nn.Module, inputs: tuple[Tensor, Tensor], path: Path) -> float:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    named = dict(zip(NAMES, (part.numpy() for part in inputs), strict=True))
    found: Any = session.run(None, named)[0]
    shown = inputs[1].bool().numpy()
    return float(np.abs(found - graph(*inputs).numpy())[shown].max())
