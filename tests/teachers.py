"""Tiny teachers with language-model heads, and texts to distil on."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
import transformers as hf

from tiny import FAMILIES, TEXT, build_tokenizer

CAUSAL = ("gpt2", "llama", "qwen3")
_SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "max_position_embeddings": 64}
TAUGHT = {  # families with a language-model head; the others of `tiny` too
    **FAMILIES,
    "qwen3": ("plain bytes", hf.Qwen3Config, {**_SIZES, "num_key_value_heads": 1, "head_dim": 8}),
    "deberta-v2": (
        "wordpiece",
        hf.DebertaV2Config,
        {**_SIZES, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False},
    ),
}
LINES = {
    "en": ["The quick brown fox jumps over the lazy dog .", "A small model reads a small text , word by word ."],
    "tr": ["Çocuklar okulda kitap okuyor , öğretmen dinliyor .", "Çocuklar kitap okuyor ."],
    "sw": ["Watoto wanasoma vitabu shuleni kila siku .", "Watoto wanasoma kila siku ."],
}


def tokenizer_of(family: str) -> hf.PreTrainedTokenizerFast:
    """The tiny tokenizer of a family, with a mask token where its models need one."""
    tokenizer = copy.deepcopy(build_tokenizer(TAUGHT[family][0]))
    if tokenizer.mask_token is None and family not in CAUSAL:
        tokenizer.add_special_tokens({"mask_token": "<mask>"})
    return tokenizer


def save_teacher(family: str, folder: Path, *, layers: int = 4, seed: int = 0, **changes) -> Path:
    """A tiny teacher with its head, as a plain `from_pretrained` folder."""
    _, config_class, sizes = TAUGHT[family]
    tokenizer = tokenizer_of(family)
    names = {"distilbert": "n_layers", "gpt2": "n_layer"}
    special = {
        f"{name}_token_id": getattr(tokenizer, f"{name}_token_id")
        for name in ("pad", "bos", "eos", "cls", "sep", "mask")
        if getattr(tokenizer, f"{name}_token_id", None) is not None
    }
    sizes = {**sizes, names.get(family, "num_hidden_layers"): layers, **changes}
    config = config_class(vocab_size=len(tokenizer), **special, **sizes)
    torch.manual_seed(seed)
    kind = hf.AutoModelForCausalLM if family in CAUSAL else hf.AutoModelForMaskedLM
    model = kind.from_config(config)
    with torch.no_grad():  # larger than usual, so that layers differ and mistakes show
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    assert sum(p.numel() for p in model.parameters()) < 100_000, "not tiny"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_texts(folder: Path, *languages: str, repeats: int = 10) -> dict[str, str]:
    """A text file for each language: the path by the language's name."""
    folder.mkdir(parents=True, exist_ok=True)
    for language in languages:
        (folder / f"{language}.txt").write_text("\n".join(LINES[language] * repeats) + "\n", encoding="utf-8")
    return {language: str(folder / f"{language}.txt") for language in languages}


__all__ = ["CAUSAL", "LINES", "TEXT", "save_teacher", "tokenizer_of", "write_texts"]
