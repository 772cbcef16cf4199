"""What a pretraining will take: the tokenizer is trained, then a few steps of the real network on part of the text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from residuum.costs import Cost, Step, spread, timed
from residuum.training.costs import rehearse, training_step
from residuum.training.pretraining import (
    encode_lines,
    encode_pairs,
    new_tokenizer,
    settings_of,
    special_pieces,
    token_sources,
)
from residuum.training.pretraining_networks import build_network
from residuum.training.pretraining_objectives import MixedBatches, losses_of
from residuum.training.pretraining_scores import evaluation
from residuum.training.pretraining_settings import PretrainConfig
from residuum.training.pretraining_texts import Texts, read_texts
from residuum.training.processes import evaluating

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SAMPLE = 2000
"""Lines of each language, and pairs of each text, from which the batches of timed steps are drawn."""
SCORED = 64
"""Held-out lines and pairs that are scored to time the scores."""


def pretrain_cost(config: PretrainConfig | Mapping[str, Any] | str | Path, *, device: str = "auto") -> Cost:
    """What `pretrain` would take with the same settings."""
    settings = settings_of(config)
    read: list[Texts] = []
    reading = timed(lambda: read.append(read_texts(settings)))
    tokenizers: list[PreTrainedTokenizerBase] = []
    learning = timed(lambda: tokenizers.append(new_tokenizer(settings, read[0])))
    (texts,), (tokenizer,) = read, tokenizers
    few = _sampled(texts, max(SAMPLE, *(objective.batch for objective in settings.objectives)))
    network = build_network(settings.network, tokenizer, settings.seed)
    batches: list[MixedBatches] = []
    splitting = timed(lambda: batches.append(_batches(tokenizer, settings, few)))
    network.train()
    plan = settings.training_settings()
    rehearsal = rehearse(
        {"network": network},
        batches[0],
        lambda batch: losses_of(network, settings.objectives, batch),
        plan,
        device=device,
    )
    scoring = _scoring_seconds(network, tokenizer, settings, texts)
    steps = (
        Step("reading", reading + splitting * _lines(texts) / _lines(few)),
        Step("tokenizer", learning),
        training_step("training", rehearsal, plan, None, scoring),
    )
    parameters = sum(p.numel() for p in network.parameters())
    return Cost(f"{settings.name}: {_lines(texts):,} lines, {parameters:,} parameters", steps)


def _sampled(texts: Texts, most: int) -> Texts:
    """Lines and pairs from all over the texts, at most so many of each."""
    sentences = {name: [rows[i] for i in spread(len(rows), most)] for name, rows in texts.sentences.items()}
    pairs = [
        replace(paired, sentences=[paired.sentences[i] for i in spread(len(paired.sentences), most)])
        for paired in texts.pairs
    ]
    return replace(texts, sentences=sentences, pairs=pairs)


def _batches(tokenizer: PreTrainedTokenizerBase, settings: PretrainConfig, texts: Texts) -> MixedBatches:
    sources = token_sources(tokenizer, settings, texts)
    return MixedBatches(settings.objectives, *sources, special_pieces(tokenizer), settings.seed)


def _scoring_seconds(
    network: nn.Module, tokenizer: PreTrainedTokenizerBase, settings: PretrainConfig, texts: Texts
) -> float:
    """Of all held-out lines and pairs, by a few of each."""
    kept = {name: rows[:SCORED] for name, rows in texts.held_out.items() if rows}
    held_out = {name: [(ids,) for ids in encode_lines(tokenizer, rows)] for name, rows in kept.items()}
    retrieval = {name: encode_pairs(tokenizer, rows[:SCORED]) for name, rows in texts.retrieval.items()}
    pieces = special_pieces(tokenizer)
    scores = evaluation(network, held_out, retrieval, settings.objectives, pieces, settings.seed)
    with evaluating([network]):
        seconds = timed(lambda: scores(0))
    scored = sum(map(len, (*held_out.values(), *retrieval.values())))
    return seconds * sum(map(len, (*texts.held_out.values(), *texts.retrieval.values()))) / max(1, scored)


def _lines(texts: Texts) -> int:
    return sum(map(len, texts.sentences.values())) + sum(len(paired.sentences) for paired in texts.pairs)
