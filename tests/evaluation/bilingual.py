"""A made-up bilingual model: it reads a word and its disguise alike, so that the truth about retrieval is known."""

from __future__ import annotations

import transformers as hf

from residuum.evaluation.pairs import SentencePairs
from tiny import TEXT

WORDS = sorted({word.lower() for line in TEXT[:3] for word in line.split() if word.isalpha() and word.isascii()})


def sentence_pairs(n: int = 24) -> SentencePairs:
    """Sentences and the same in upper case, which a tokenizer that lowers all letters reads alike."""
    sentences = [" ".join(WORDS[(i * k + i) % len(WORDS)] for k in range(1, 4 + i % 3)) for i in range(n)]
    unique = list(dict.fromkeys(sentences))
    return SentencePairs(("low", "up"), unique, [sentence.upper() for sentence in unique])


def shifted_pairs(n: int = 24) -> SentencePairs:
    """The same with every sentence beside the wrong one."""
    pairs = sentence_pairs(n)
    return SentencePairs(pairs.languages, pairs.source, [*pairs.target[1:], pairs.target[0]])


def save_language_model(folder, family: str, kind: str, seed: int = 0):
    """A tiny model with its language-modelling head, as a plain folder."""
    import torch

    from tiny import FAMILIES, build_tokenizer

    tokenizer_kind, config_class, sizes = FAMILIES[family]
    tokenizer = build_tokenizer(tokenizer_kind)
    config = config_class(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **sizes)
    torch.manual_seed(seed)
    loader = hf.AutoModelForMaskedLM if kind == "masked" else hf.AutoModelForCausalLM
    model = loader.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    assert sum(p.numel() for p in model.parameters()) < 100_000, "not tiny"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
