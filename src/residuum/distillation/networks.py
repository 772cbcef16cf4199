"""A language model in the parts that distillation needs: states of chosen layers, attention inputs, head, decoder.

The head runs only at chosen positions, and the decoder's matrix is passed on, so that logits of a large vocabulary are
computed only where they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from residuum.errors import ModelError
from residuum.maths.losses import attention_scores
from residuum.maths.vocabulary_losses import Projection
from residuum.models.loading import find_blocks, is_causal, probe_batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RECORDING = "residuum_recording"  # the name under which transformers knows our attention
TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """What one block's attention is computed from: sentence × head × token × dimension."""

    query: Tensor
    key: Tensor
    value: Tensor
    scaling: float
    bias: Tensor | None = None  # of relative positions

    @property
    def scores(self) -> Tensor:
        """A = QKᵀ·scaling (+ bias), before the softmax; grouped keys are repeated for their queries."""
        repeats = self.query.shape[1] // self.key.shape[1]
        scores = attention_scores(self.query, self.key.repeat_interleave(repeats, dim=1), self.scaling)
        return scores if self.bias is None else scores + self.bias


@dataclass(frozen=True, eq=False)
class States:
    """The states of every layer (0: the embeddings) and, on request, the attention inputs of every block."""

    hidden: Sequence[Tensor]
    attention: Sequence[AttentionInputs]


@dataclass(frozen=True, eq=False)
class Head:
    """From the last layer to the vocabulary: features = transform(state), logits = decoder(features)."""

    transform: Callable[[Tensor], Tensor]
    decoder: Any  # a linear layer, or what holds the weight and the bias of one

    @property
    def projection(self) -> Projection:
        """The decoder's matrix and bias."""
        return Projection(self.decoder.weight, self.decoder.bias)


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A transformers model with (or without) a language-model head."""

    module: PreTrainedModel
    causal: bool

    @property
    def head(self) -> Head | None:
        """The head that the module has now; sharing replaces the one that a student was built with."""
        return None if self.base is self.module else find_head(self.module)

    @property
    def base(self) -> nn.Module:
        """The network without its head."""
        return getattr(self.module, "base_model", self.module)

    @property
    def blocks(self) -> nn.ModuleList:
        """The list of blocks."""
        blocks = find_blocks(self.base)[2]
        if blocks is None:
            raise ModelError(
                f"{type(self.module).__name__} runs one block repeatedly; its layers cannot be mapped one by one."
            )
        return blocks

    @property
    def n_layers(self) -> int:
        """The number of blocks."""
        return self.module.config.num_hidden_layers

    @property
    def hidden_size(self) -> int:
        """The width of the states."""
        return self.module.config.hidden_size

    @property
    def n_heads(self) -> int:
        """Attention heads of a block."""
        return self.module.config.num_attention_heads

    def run(self, input_ids: Tensor, attention_mask: Tensor, *, attention: bool = False) -> States:
        """The states of all layers; with `attention` also what each block's attention is computed from."""
        extra = {"use_cache": False} if getattr(self.module.config, "use_cache", False) else {}
        with _recorded(self.base if attention else None) as recorded:
            output = self.base(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=True, **extra)
        if attention and len(recorded) != self.n_layers:
            raise ModelError(f"The attention of {type(self.module).__name__} cannot be read; choose losses without it.")
        return States(output.hidden_states, recorded)


def language_model(module: PreTrainedModel, *, attention: bool = False) -> LanguageModel:
    """Wrap a model; `attention` makes its attention readable. The head must give the logits of the model itself."""
    base: nn.Module = getattr(module, "base_model", module)
    if attention and not _mpnet_attentions(base):
        _let_attention_be_recorded()
        module.set_attn_implementation(RECORDING)
    model = LanguageModel(module, is_causal(base))
    if (head := model.head) is None:
        return model
    was_training = module.training
    module.eval()
    batch = probe_batch(module)
    with torch.inference_mode():
        states = model.run(batch["input_ids"], batch["attention_mask"]).hidden[-1].flatten(0, 1)
        mine, theirs = head.projection(head.transform(states)), module(**batch).logits.flatten(0, 1)
    module.train(was_training)
    if not torch.allclose(mine, theirs, atol=TOLERANCE, rtol=TOLERANCE):
        raise ModelError(f"The head of {type(module).__name__} does more than is known; it cannot be distilled.")
    return model


def find_head(module: nn.Module) -> Head:
    """The head of a masked or causal language model, by the parts that transformers' models have."""
    parts: Any = module
    if isinstance(head := getattr(parts, "lm_head", None), nn.Linear):  # GPT-2, Llama
        return Head(lambda x: x, head)
    if head is not None and hasattr(head, "layer_norm"):  # RoBERTa, XLM-R, MPNet
        return Head(lambda x: head.layer_norm(nn.functional.gelu(head.dense(x))), head.decoder)
    if hasattr(parts, "cls") and hasattr(parts.cls, "predictions"):  # BERT
        return Head(parts.cls.predictions.transform, parts.cls.predictions.decoder)
    if hasattr(parts, "vocab_projector"):  # DistilBERT
        return Head(lambda x: parts.vocab_layer_norm(parts.activation(parts.vocab_transform(x))), parts.vocab_projector)
    if isinstance(getattr(parts, "decoder", None), nn.Linear) and hasattr(parts, "head"):  # ModernBERT
        return Head(parts.head, parts.decoder)
    if hasattr(parts, "lm_predictions"):  # DeBERTa v3, whose decoder is the embeddings
        last = parts.lm_predictions.lm_head
        words = parts.get_input_embeddings().weight
        return Head(
            lambda x: last.LayerNorm(last.transform_act_fn(last.dense(x))),
            SimpleNamespace(weight=words, bias=last.bias),
        )
    if hasattr(parts, "generator_lm_head"):  # ELECTRA
        return Head(parts.generator_predictions, parts.generator_lm_head)
    raise ModelError(
        f"The head of {type(module).__name__} is not known; distil from BERT, RoBERTa, XLM-R, DistilBERT, MPNet, "
        "ELECTRA, ModernBERT, DeBERTa, GPT-2, Llama or Qwen, or choose a loss without mlm and soft."
    )


def has_known_head(module: nn.Module) -> bool:
    """Whether `find_head` knows the head of a model, if it has one."""
    try:
        return getattr(module, "base_model", module) is module or find_head(module) is not None
    except ModelError:
        return False


_RECORD: ContextVar[list[AttentionInputs] | None] = ContextVar("recorded attention", default=None)


@contextmanager
def _recorded(base: nn.Module | None) -> Iterator[list[AttentionInputs]]:
    """Collect the attention inputs of all blocks that run in this context, in their order."""
    found: list[AttentionInputs] = []
    if base is None:
        yield found
        return

    def record_mpnet(part: Any, inputs: tuple[Any, ...], options: dict[str, Any], _output: object) -> None:
        states = inputs[0]
        bias = options.get("position_bias", inputs[2] if len(inputs) > 2 else None)
        shape = (*states.shape[:-1], -1, part.attention_head_size)
        query, key, value = (layer(states).view(shape).transpose(1, 2) for layer in (part.q, part.k, part.v))
        found.append(AttentionInputs(query, key, value, part.attention_head_size**-0.5, bias))

    hooks = [part.register_forward_hook(record_mpnet, with_kwargs=True) for part in _mpnet_attentions(base)]
    token = _RECORD.set(found)
    try:
        yield found
    finally:
        _RECORD.reset(token)
        for hook in hooks:
            hook.remove()


def _let_attention_be_recorded() -> None:
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    def forward(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
    ) -> Any:
        if (found := _RECORD.get()) is not None:
            scaling = options.get("scaling")
            found.append(AttentionInputs(query, key, value, query.shape[-1] ** -0.5 if scaling is None else scaling))
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)

    AttentionInterface.register(RECORDING, forward)
    AttentionMaskInterface.register(RECORDING, sdpa_mask)


def _mpnet_attentions(base: nn.Module) -> list[nn.Module]:
    """The attention modules of MPNet, which computes its attention itself, so that hooks must read it."""
    return [part for part in base.modules() if type(part).__name__ == "MPNetSelfAttention"]
