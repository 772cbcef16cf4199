"""A plain reading of a model, one sentence and one word at a time: the oracle for extraction."""

from __future__ import annotations

import numpy as np
import torch
import transformers as hf


def plain_model(folder) -> torch.nn.Module:
    """The network as transformers loads it."""
    module = hf.AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    return module.get_encoder() if module.config.is_encoder_decoder else module


def plain_words(folder, sentence: list[str], pooling: str) -> np.ndarray:
    """words × layers × hidden of one sentence, with loops for everything."""
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    text, spans = " ".join(sentence), []
    for word in sentence:
        start = spans[-1][1] + 1 if spans else 0
        spans.append((start, start + len(word)))
    encoded = tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True, return_tensors="pt")
    offsets = encoded.pop("offset_mapping")[0].tolist()
    special = encoded.pop("special_tokens_mask")[0].tolist()
    with torch.inference_mode():
        output = plain_model(folder)(**encoded, output_hidden_states=True)
    states = torch.stack(output.hidden_states)[:, 0].numpy()  # layers × tokens × hidden
    rows = []
    for start, stop in spans:
        own = [t for t, (a, b) in enumerate(offsets) if not special[t] and a < stop and b > start]
        pieces = states[:, own]
        rows.append(
            {
                "last": lambda x: x[:, -1],
                "first": lambda x: x[:, 0],
                "mean": lambda x: x.mean(axis=1),
                "max": lambda x: x.max(axis=1),
            }[pooling](pieces)
        )
    return np.stack(rows)


def plain_attention(folder, sentence: list[str]) -> np.ndarray:
    """layers × heads × words × words of one sentence: mean from, sum to, special tokens out, rows sum to 1."""
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer(" ".join(sentence), return_offsets_mapping=True, return_tensors="pt")
    offsets = encoded.pop("offset_mapping")[0].tolist()
    spans, start = [], 0
    for word in sentence:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    own = [[t for t, (a, b) in enumerate(offsets) if a < stop and b > start] for start, stop in spans]
    with torch.inference_mode():
        attention = plain_model(folder)(**encoded, output_attentions=True).attentions
    weights = torch.stack(attention)[:, 0].double().numpy()
    n = len(sentence)
    words = np.zeros((*weights.shape[:2], n, n))
    for i in range(n):
        for j in range(n):
            block = weights[:, :, own[i]][:, :, :, own[j]]
            words[:, :, i, j] = block.sum(axis=3).mean(axis=2)
    return words / words.sum(axis=-1, keepdims=True)
