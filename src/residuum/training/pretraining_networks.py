"""Fresh networks of the known architectures, and their parts that the objectives run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, GPT2Config, PretrainedConfig, PreTrainedTokenizerBase, XLMRobertaConfig

from residuum.models.loading import find_blocks
from residuum.training.pretraining_settings import NetworkSettings


def build_network(settings: NetworkSettings, tokenizer: PreTrainedTokenizerBase, seed: int) -> nn.Module:
    """A network with fresh weights drawn from a seed, with its language-model head (tied to the embeddings)."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    config = _CONFIGS[settings.architecture](settings, tokenizer)
    head = AutoModelForCausalLM if settings.architecture == "gpt2" else AutoModelForMaskedLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return head.from_config(config)


def states_of_layer(network: nn.Module, ids: Tensor, mask: Tensor, layer: int) -> Tensor:
    """The states of a layer (batch × token × hidden) without running the ones above it; 0 is the embeddings."""
    body: Any = network.base_model
    parent, attribute, blocks = find_blocks(body)
    assert blocks is not None
    if layer == len(blocks):
        return body(input_ids=ids, attention_mask=mask).last_hidden_state
    norm = getattr(parent, "ln_f", None)  # GPT-2 closes the last layer only
    try:
        setattr(parent, attribute, blocks[:layer])
        if norm is not None:
            parent.ln_f = nn.Identity()
        return body(input_ids=ids, attention_mask=mask).last_hidden_state
    finally:
        setattr(parent, attribute, blocks)
        if norm is not None:
            parent.ln_f = norm


def vocabulary_head(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """What turns states (… × hidden) into logits over the vocabulary."""
    return getattr(network, "lm_head", None) or getattr(network, "cls")  # noqa: B009 (pyright)


def _xlm_roberta(settings: NetworkSettings, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
    positions = settings.window + 2  # they begin behind the padding id
    return XLMRobertaConfig(**_encoder_sizes(settings, tokenizer, positions), layer_norm_eps=1e-5)


def _bert(settings: NetworkSettings, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
    return BertConfig(**_encoder_sizes(settings, tokenizer, settings.window))


def _encoder_sizes(settings: NetworkSettings, tokenizer: PreTrainedTokenizerBase, positions: int) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "num_hidden_layers": settings.layers,
        "hidden_size": settings.hidden,
        "num_attention_heads": settings.heads,
        "intermediate_size": settings.feed_forward,
        "max_position_embeddings": positions,
        "type_vocab_size": 1,
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.attention_dropout,
        **_special_ids(tokenizer),
    }


def _gpt2(settings: NetworkSettings, tokenizer: PreTrainedTokenizerBase) -> PretrainedConfig:
    return GPT2Config(
        vocab_size=len(tokenizer),
        n_layer=settings.layers,
        n_embd=settings.hidden,
        n_head=settings.heads,
        n_inner=settings.feed_forward,
        n_positions=settings.window,
        resid_pdrop=settings.dropout,
        embd_pdrop=settings.dropout,
        attn_pdrop=settings.attention_dropout,
        **_special_ids(tokenizer),
    )


def _special_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    return {name: getattr(tokenizer, name) for name in names}


_CONFIGS = {"xlm-roberta": _xlm_roberta, "bert": _bert, "gpt2": _gpt2}
