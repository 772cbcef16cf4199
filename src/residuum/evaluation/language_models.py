"""Models with their language-modelling head: the logits of chosen tokens, masked or causal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from residuum.errors import ModelError
from residuum.models.loading import Model, from_transformers, resolve_device
from residuum.models.surgery import load_whole


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A network that gives a distribution over the vocabulary; `body` is it without the head."""

    module: nn.Module
    body: Model

    @property
    def causal(self) -> bool:
        """Whether a token is predicted from those before it; else from those around it."""
        return self.body.causal

    @property
    def vocabulary(self) -> int:
        """How many tokens it chooses among."""
        return _output_layer(self.module).weight.shape[0]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all weights, the head's too."""
        return replace(self.body, module=self.module).fingerprint

    @torch.inference_mode()
    def logits(self, batch: Mapping[str, Tensor], rows: Tensor, places: Tensor) -> Tensor:
        """The logits (token × vocabulary) at `places` of the sentences `rows` of a batch.

        Only these tokens reach the head: with a large vocabulary it costs more than the rest of the network.
        """

        def keep_chosen(_module: nn.Module, _inputs: object, output: Any) -> Any:
            output["last_hidden_state"] = output["last_hidden_state"][rows, places][None]
            return output

        hook = self.body.module.register_forward_hook(keep_chosen)
        try:
            return self.module(**batch).logits[0].float()
        finally:
            hook.remove()


def load_language_model(name_or_path: str | Path, *, device: str = "auto") -> LanguageModel:
    """Load a masked or causal language model with its head; a model without one is an error."""
    module, tokenizer = load_whole(name_or_path)
    if _output_layer(module) is None:
        raise ModelError(
            f"{name_or_path} is a {type(module).__name__}, which has no language-modelling head; perplexity needs one "
            "(such as …ForMaskedLM or …ForCausalLM in its config.json, and its weights)."
        )
    module.to(resolve_device(device))  # pyright: ignore[reportArgumentType]
    path = Path(name_or_path)
    body = from_transformers(module, tokenizer, name=path.resolve().name if path.exists() else str(name_or_path))
    return LanguageModel(module, body)


def _output_layer(module: nn.Module) -> Any:
    """The matrix from states to the vocabulary, or None."""
    return module.get_output_embeddings()  # pyright: ignore[reportCallIssue]
