"""A unigram vocabulary with the special tokens of XLM-R."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from residuum.errors import CorpusError

N_SPECIAL = 4  # <s> <pad> </s> <unk>
SPECIAL = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "mask_token": "<mask>",
}


def train_tokenizer(
    sentences: Mapping[str, Sequence[str]], *, pieces: int, lines: int, exponent: float, window: int, seed: int
) -> PreTrainedTokenizerFast:
    """Train a unigram model (Kudo 2018) on lines of all languages, drawn with p ∝ size^exponent.

    Ids are as in XLM-R: <s> 0, <pad> 1, </s> 2, <unk> 3, <mask> last.
    """
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=pieces - 1,  # <mask> comes last
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        show_progress=False,
    )
    tokenizer.train_from_iterator(_drawn(sentences, lines, exponent, seed), trainer)
    if tokenizer.get_vocab_size() < pieces - 1:
        raise CorpusError(
            f"The text gives only {tokenizer.get_vocab_size() + 1} pieces; expected {pieces}. "
            "Set tokenizer.pieces lower."
        )
    tokenizer.model = _in_fixed_order(tokenizer)
    tokenizer.add_special_tokens(["<mask>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=window, **SPECIAL)


def shares(sizes: Mapping[str, float], exponent: float) -> dict[str, float]:
    """How often each is drawn: p ∝ size^exponent (1: as they come; 0: all alike)."""
    powers = {name: size**exponent for name, size in sizes.items()}
    total = sum(powers.values())
    return {name: power / total for name, power in powers.items()}


def _in_fixed_order(tokenizer: Tokenizer) -> models.Unigram:
    """The trained pieces by score, then by spelling.

    The trainer appends rare letters below all pieces, each a little lower, in an order that changes from call to call;
    here they share one score.
    """
    pieces = [(piece, round(score, 6)) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]
    special, ordinary = pieces[:N_SPECIAL], pieces[N_SPECIAL:]
    lowest = min((score for piece, score in ordinary if len(piece) > 1), default=0.0)
    settled = [(piece, lowest - 1 if len(piece) == 1 and score < lowest else score) for piece, score in ordinary]
    settled.sort(key=lambda entry: (-entry[1], entry[0]))
    return models.Unigram([*special, *settled], unk_id=3)


def _drawn(sentences: Mapping[str, Sequence[str]], lines: int, exponent: float, seed: int) -> list[str]:
    wanted = shares({language: len(texts) for language, texts in sentences.items()}, exponent)
    generator = np.random.default_rng(seed)
    drawn: list[str] = []
    for language, texts in sentences.items():
        count = min(len(texts), round(lines * wanted[language]))
        drawn += [texts[int(place)] for place in generator.permutation(len(texts))[:count]]
    return drawn
