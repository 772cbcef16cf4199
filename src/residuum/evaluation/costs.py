"""What evaluations will take, by what a sample of the sentences takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from residuum.costs import Cost, Step, spread, timed
from residuum.evaluation.encoding import Encoded, Scratch, scratch
from residuum.evaluation.language_models import LanguageModel, load_language_model
from residuum.evaluation.pairs import SentencePairs
from residuum.evaluation.perplexity import LOGITS, Masking, Text, check_masking, line_losses, named_corpora
from residuum.evaluation.retrieval import SCORES, Plan, chosen_pairs, encode_sides, ranks_by, retrieval_plan
from residuum.models.loading import Model

PAIRS = 128
"""Pairs that are encoded and ranked to time the rest."""
LINES = 64
"""Lines that are predicted to time the rest."""


def retrieval_cost(
    model: Model | str | Path,
    pairs: SentencePairs | Sequence[SentencePairs] | str | Path,
    *,
    target_model: Model | str | Path | None = None,
    score: str | Sequence[str] = SCORES,
    layers: str | Sequence[str] | Sequence[int] = "all",
    special_tokens: bool = True,
    max_memory: int | None = None,
    device: str = "auto",
) -> Cost:
    """What `evaluate_retrieval` would take: encoding grows with the sentences, ranking with their square."""
    tasks = chosen_pairs(pairs)
    plan = retrieval_plan(model, target_model, score, layers, special_tokens, max_memory, device)
    with torch.inference_mode():
        found = [_of_task(plan, task) for task in tasks]
    steps = [
        replace(same[0], seconds=sum(step.seconds for step in same), memory=max(step.memory for step in same))
        for same in zip(*found, strict=True)
    ]
    names = plan.source.name if plan.source is plan.target else f"{plan.source.name} and {plan.target.name}"
    return Cost(f"{names}: {sum(map(len, tasks)):,} pairs of sentences", tuple(steps))


def perplexity_cost(
    model: LanguageModel | str | Path,
    texts: Text | Sequence[Text] | Mapping[str, Text],
    *,
    masking: Masking = "sampled",
    share: float = 0.15,
    limit: int | None = None,
    device: str = "auto",
    seed: int = 0,
) -> Cost:
    """What `evaluate_perplexity` would take, text by text."""
    corpora = named_corpora(texts, limit)
    check_masking(masking, share)
    network = model if isinstance(model, LanguageModel) else load_language_model(model, device=device)
    held = sum(p.numel() * p.element_size() for p in network.module.parameters()) + 4 * LOGITS
    steps = []
    for name, corpus in corpora.items():
        few = corpus.select(spread(len(corpus), LINES))
        seconds = timed(lambda few=few, name=name: line_losses(network, few, name, masking, share, seed, False))
        steps.append(Step(name, seconds * len(corpus) / len(few), memory=held))
    lines = sum(map(len, corpora.values()))
    return Cost(f"{network.body.name}: {lines:,} lines", tuple(steps))


def _of_task(plan: Plan, task: SentencePairs) -> list[Step]:
    chosen = spread(len(task), PAIRS)
    few = replace(task, source=[task.source[i] for i in chosen], target=[task.target[i] for i in chosen])
    more = len(task) / len(few)
    held = sum(one.n_bytes for one in {plan.source, plan.target})
    with scratch(1 << 62) as space:
        sides: list[tuple[Encoded, Encoded]] = []
        reading = timed(lambda: sides.append(encode_sides(plan, few, space)))
        states = round(more * _filled(space))
        room = min(states, plan.max_memory)
        steps = [Step("encoding", reading * more, memory=held + room, disk=max(0, states - plan.max_memory))]
        for score in plan.scores:
            seconds = timed(lambda score=score: ranks_by(score, *sides[0], plan.choices))
            steps.append(Step(score, seconds * more**2, memory=held + room))
    return steps


def _filled(space: Scratch) -> int:
    """The bytes that were taken of a space that had 2⁶²."""
    return (1 << 62) - space.memory
