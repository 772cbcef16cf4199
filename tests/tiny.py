"""Tiny models of every family that is supported, with tokenizers of fixed vocabularies: the same in every run.

`vocabularies.json` was learnt once from eight lines in seven languages. Training breaks ties at random, so tokenizers
that are trained anew differ from run to run, and so does all that is read with them.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import nn

TEXT = [
    "The quick brown fox jumps over the lazy dog .",
    "A small model reads a small text , word by word .",
    "Wir lesen einen kurzen Satz über größere Häuser .",
    "Çocuklar okulda kitap okuyor , öğretmen dinliyor .",
    "Watoto wanasoma vitabu shuleni kila siku .",
    "東京 は 日本 の 首都 です 。",
    "Привет , как дела ?",
    "naïve café résumé don't can't 3.14 e-mail",
] * 4

SIZES = {"num_hidden_layers": 3, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 24}
WINDOW = 48

FAMILIES = {
    "bert": ("wordpiece", hf.BertConfig, {**SIZES, "max_position_embeddings": WINDOW}),
    "distilbert": (
        "wordpiece",
        hf.DistilBertConfig,
        {"n_layers": 3, "n_heads": 2, "dim": 16, "hidden_dim": 24, "max_position_embeddings": WINDOW},
    ),
    "electra": (
        "wordpiece",
        hf.ElectraConfig,
        {**SIZES, "embedding_size": 8, "max_position_embeddings": WINDOW},
    ),
    "mpnet": ("wordpiece", hf.MPNetConfig, {**SIZES, "max_position_embeddings": WINDOW + 2}),
    "roberta": ("bytes", hf.RobertaConfig, {**SIZES, "max_position_embeddings": WINDOW + 2}),
    "modernbert": (
        "bytes",
        hf.ModernBertConfig,
        {**SIZES, "max_position_embeddings": WINDOW, "local_attention": 8, "global_attn_every_n_layers": 2},
    ),
    "gpt2": ("plain bytes", hf.GPT2Config, {"n_layer": 3, "n_head": 2, "n_embd": 16, "n_positions": WINDOW}),
    "llama": (
        "plain bytes",
        hf.LlamaConfig,
        {**SIZES, "num_key_value_heads": 1, "max_position_embeddings": WINDOW},
    ),
    "gpt": ("bpe", hf.OpenAIGPTConfig, {"n_layer": 3, "n_head": 2, "n_embd": 16, "n_positions": WINDOW}),
    "xlm-roberta": ("unigram", hf.XLMRobertaConfig, {**SIZES, "max_position_embeddings": WINDOW + 2}),
    "albert": ("unigram", hf.AlbertConfig, {**SIZES, "embedding_size": 8, "max_position_embeddings": WINDOW}),
    "xlnet": ("unigram end", hf.XLNetConfig, {"n_layer": 3, "n_head": 2, "d_model": 16, "d_inner": 24}),
    "t5": (
        "unigram eos",
        hf.T5Config,
        {"num_layers": 3, "num_heads": 2, "d_model": 16, "d_ff": 24, "d_kv": 8},
    ),
    "marian": (
        "unigram eos",
        hf.MarianConfig,
        {
            "encoder_layers": 3,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "d_model": 16,
            "encoder_ffn_dim": 24,
            "decoder_ffn_dim": 24,
            "max_position_embeddings": WINDOW,
        },
    ),
}


def save_model(family: str, folder: Path, seed: int = 0, **changes: int) -> Path:
    """Write a tiny model of a family, with random weights, as a plain `from_pretrained` folder."""
    kind, config_class, sizes = FAMILIES[family]
    tokenizer = build_tokenizer(kind)
    special = {
        f"{name}_token_id": getattr(tokenizer, f"{name}_token_id")
        for name in ("pad", "bos", "eos", "cls", "sep")
        if getattr(tokenizer, f"{name}_token_id") is not None
    }
    config = config_class(vocab_size=len(tokenizer), **special, **{**sizes, **changes})
    if family == "marian":
        config.decoder_start_token_id = config.pad_token_id
        config.start_token_id = config.pad_token_id
    torch.manual_seed(seed)
    model = hf.AutoModel.from_config(config)
    with torch.no_grad():  # larger than usual, so that layers differ and mistakes show
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    assert sum(p.numel() for p in model.parameters()) < 100_000, "not tiny"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@cache
def build_tokenizer(kind: str) -> hf.PreTrainedTokenizerFast:
    """A tokenizer of a fixed vocabulary: wordpiece, byte-level or plain BPE, or unigram."""
    build = {"wordpiece": _wordpiece, "bytes": _bytes, "plain bytes": _bytes, "bpe": _bpe}.get(kind, _unigram)
    tokenizer, special = build()
    _add_template(tokenizer, kind, special)
    limit = {} if kind in ("unigram end", "unigram eos") else {"model_max_length": WINDOW}
    names = {k: v for k, v in special.items() if not (kind.startswith("plain") and k != "pad_token")}
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names, **limit)


def _wordpiece() -> tuple[Tokenizer, dict[str, str]]:
    special = {
        "unk_token": "[UNK]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    tokenizer = Tokenizer(models.WordPiece(_numbered("wordpiece"), unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return _with_special(tokenizer, special)


_SPECIAL = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "cls_token": "<s>",
    "sep_token": "</s>",
}


def _bytes() -> tuple[Tokenizer, dict[str, str]]:
    tokenizer = Tokenizer(models.BPE(_numbered("bytes"), _merges("bytes")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _with_special(tokenizer, _SPECIAL)


def _bpe() -> tuple[Tokenizer, dict[str, str]]:
    model = models.BPE(_numbered("bpe"), _merges("bpe"), unk_token="<unk>", end_of_word_suffix="</w>")
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _with_special(tokenizer, {"unk_token": "<unk>", "pad_token": "<pad>"})


def _unigram() -> tuple[Tokenizer, dict[str, str]]:
    pieces = [(piece, score) for piece, score in _vocabularies()["unigram"]]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=[piece for piece, _ in pieces].index("<unk>")))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("  ", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return _with_special(tokenizer, _SPECIAL)


@cache
def _vocabularies() -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "vocabularies.json").read_text(encoding="utf-8"))


def _numbered(kind: str) -> dict[str, int]:
    return {token: number for number, token in enumerate(_vocabularies()[kind]["tokens"])}


def _merges(kind: str) -> list[tuple[str, str]]:
    return [(a, b) for a, b in map(str.split, _vocabularies()[kind]["merges"])]


def _with_special(tokenizer: Tokenizer, special: dict[str, str]) -> tuple[Tokenizer, dict[str, str]]:
    tokenizer.add_special_tokens(list(dict.fromkeys(special.values())))
    return tokenizer, special


def _add_template(tokenizer: Tokenizer, kind: str, special: dict[str, str]) -> None:
    first, last = special.get("cls_token"), special.get("sep_token")
    if kind.startswith(("plain", "bpe")):
        if kind.startswith("plain"):
            tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
        return
    ids = [(token, tokenizer.token_to_id(token)) for token in (first, last)]
    templates = {
        "unigram end": (f"$A {last} {first}", f"$A {last} $B {last} {first}"),
        "unigram eos": (f"$A {last}", f"$A $B {last}"),
    }
    single, pair = templates.get(kind, (f"{first} $A {last}", f"{first} $A {last} $B:1 {last}:1"))
    tokenizer.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)


class RecurrentLanguageModel(nn.Module):
    """A bidirectional recurrent language model in the manner of ELMo: embeddings and two LSTM layers."""

    def __init__(self, vocabulary: int, hidden: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 2 * hidden)
        self.first = nn.LSTM(2 * hidden, hidden, bidirectional=True, batch_first=True)
        self.second = nn.LSTM(2 * hidden, hidden, bidirectional=True, batch_first=True)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states, _ = self.first(self.embedding(input_ids))
        states, _ = self.second(states)
        return states
