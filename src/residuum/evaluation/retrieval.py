"""`evaluate retrieval`: does a sentence find its translation among all others?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from residuum.errors import ModelError, SettingError
from residuum.evaluation.encoding import Encoded, Scratch, encode, scratch
from residuum.evaluation.layer_choices import LayerChoice, layer_choices
from residuum.evaluation.pairs import SentencePairs, read_pairs
from residuum.evaluation.retrieval_tables import Outcome, average_table, retrieval_table
from residuum.maths.retrieval import Ranks, bertscore_ranks, cosine_ranks
from residuum.models.loading import Model, as_model, check_weights
from residuum.storage.results import Result, Run, finished_run, write_run

COMMAND = "evaluate retrieval"
SCORES = ("cosine", "bertscore")
STATES = 2_000_000_000  # bytes of states that are held unless told otherwise


@dataclass(frozen=True, eq=False)
class Retrieval(Result):
    """How often sentences found their translations."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each pair of languages, direction, score and choice of layers."""
        return self.run.tables["retrieval"]

    @property
    def averages(self) -> pd.DataFrame:
        """The mean over pairs of languages, for each direction, score and choice of layers."""
        return self.run.tables["averages"]

    def hits(self, row: int) -> np.ndarray:
        """What each sentence earned in a row of `frame`: 1 found, 0 not; for paired comparisons of models."""
        return self.run.tensors["hits"][self.run.tensors["first"][row] : self.run.tensors["first"][row + 1]]


def evaluate_retrieval(
    model: Model | str | Path,
    pairs: SentencePairs | Sequence[SentencePairs] | str | Path,
    *,
    target_model: Model | str | Path | None = None,
    score: str | Sequence[str] = SCORES,
    layers: str | Sequence[str] | Sequence[int] = "all",
    special_tokens: bool = True,
    resamples: int = 1000,
    max_memory: int | None = None,
    device: str = "auto",
    seed: int = 0,
    out: str | Path | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> Retrieval:
    """Let every sentence look for its translation, in both directions, and count how often it is the nearest.

    `model` reads the sources and, without `target_model`, the targets too. `pairs` is what `read_pairs` gives or
    reads. `layers` is `all`, `each`, or numbers; several choices are separated by `;`. Scores: `cosine` of the means
    over tokens (with special ones unless `special_tokens` is off) and over the chosen layers; `bertscore`, the mean
    over the chosen layers. Intervals are 95 % bootstrap intervals over sentences. What the models give beyond
    what `max_memory` bytes leave beside their weights (without it: 2 GB) waits in files.
    """
    tasks = chosen_pairs(pairs)
    plan = retrieval_plan(model, target_model, score, layers, special_tokens, max_memory, device)
    config = {
        "models": [f"{one.name} {one.fingerprint}" for one in (plan.source, plan.target)],
        "pairs": [f"{task.name} {task.fingerprint}" for task in tasks],
        "score": plan.scores,
        "layers": [choice.name for choice in plan.choices],
        "special_tokens": special_tokens,
        "resamples": resamples,
        "seed": seed,
    }
    if out is not None and (found := finished_run(out, COMMAND, config, fresh=fresh)):
        return Retrieval(found)
    run = _measure(plan, tasks, config, progress)
    if out is not None:
        write_run(out, run)
    return Retrieval(run)


@dataclass(frozen=True, eq=False)
class Plan:
    """What is scored: two models (or one twice), choices of layers, scores."""

    source: Model
    target: Model
    choices: list[LayerChoice]
    scores: list[str]
    special_tokens: bool
    max_memory: int

    def side(self, index: int) -> list[int]:
        """The layers that are needed of the source's model (0) or the target's (1)."""
        return sorted({pair[index] for choice in self.choices for pair in choice.pairs})


def retrieval_plan(
    model: Model | str | Path,
    target_model: Model | str | Path | None,
    score: str | Sequence[str],
    layers: str | Sequence[str] | Sequence[int],
    special_tokens: bool,
    max_memory: int | None,
    device: str,
) -> Plan:
    """The models, layers and scores that were asked for, checked."""
    scores = _chosen_scores(score)
    source, target = _models(model, target_model, device, max_memory)
    choices = layer_choices(layers, source.n_layers, target.n_layers)
    _check_widths(source, target, choices)
    room = STATES if max_memory is None else max(0, max_memory - sum(one.n_bytes for one in {source, target}))
    return Plan(source, target, choices, scores, special_tokens, room)


def _measure(plan: Plan, tasks: list[SentencePairs], config: dict[str, Any], progress: bool) -> Run:
    outcomes: list[Outcome] = []
    windowed = 0
    with tqdm(total=len(tasks), unit=" pairs of languages", disable=None if progress else True, leave=False) as bar:
        for task in tasks:
            found, long = _score_task(plan, task)
            outcomes += found
            windowed += long
            bar.update()
    table, hits = retrieval_table(outcomes, resamples=config["resamples"], seed=config["seed"])
    return Run(
        command=COMMAND,
        config=config,
        summary=_summary(plan, tasks, table, windowed),
        tables={"retrieval": table, "averages": average_table(table)},
        tensors={
            "hits": np.concatenate(hits).astype(np.float32),
            "first": np.concatenate([[0], np.cumsum([len(row) for row in hits])]),
        },
    )


def _score_task(plan: Plan, task: SentencePairs) -> tuple[list[Outcome], int]:
    """All scores of one pair of languages, and how many of its sentences did not fit a window."""
    with scratch(plan.max_memory) as space, torch.inference_mode():
        source, target = encode_sides(plan, task, space)
        ranks = {score: ranks_by(score, source, target, plan.choices) for score in plan.scores}
    outcomes = [
        Outcome(task, score, choice, backward, both[backward])
        for score, found in ranks.items()
        for choice, both in zip(plan.choices, found, strict=True)
        for backward in (False, True)
    ]
    return outcomes, source.windowed + target.windowed


def encode_sides(plan: Plan, task: SentencePairs, space: Scratch) -> tuple[Encoded, Encoded]:
    """What the models make of both sides of some pairs."""
    source, target = (
        encode(
            model,
            texts,
            plan.side(index),
            space,
            tokens="bertscore" in plan.scores,
            special_tokens=plan.special_tokens,
            source=f"{task.name} ({language})",
        )
        for index, (model, texts, language) in enumerate(
            zip((plan.source, plan.target), (task.source, task.target), task.languages, strict=True)
        )
    )
    return source, target


def ranks_by(score: str, source: Encoded, target: Encoded, choices: list[LayerChoice]) -> list[tuple[Ranks, Ranks]]:
    """The ranks of all translations in both directions, for each choice of layers."""
    if score == "bertscore":
        assert source.tokens is not None
        assert target.tokens is not None
        return bertscore_ranks(source.tokens, target.tokens, [choice.pairs for choice in choices])
    return [
        cosine_ranks(
            _mean_of_layers(source, [a for a, _ in choice.pairs]), _mean_of_layers(target, [b for _, b in choice.pairs])
        )
        for choice in choices
    ]


def _mean_of_layers(encoded: Encoded, layers: list[int]) -> Tensor:
    """One layer after the other, which may wait in files."""
    total = encoded.means[layers[0]].clone()
    for layer in layers[1:]:
        total += encoded.means[layer]
    return total / len(layers)


def _summary(plan: Plan, tasks: list[SentencePairs], table: pd.DataFrame, windowed: int) -> dict[str, Any]:
    names = [plan.source.name] if plan.source is plan.target else [plan.source.name, plan.target.name]
    best = table.loc[table["accuracy"].idxmax()]
    left_out = sum(task.left_out for task in tasks)
    return {
        "models": names,
        "pairs of languages": len(tasks),
        "pairs of sentences": sum(map(len, tasks)),
        "best": f"{best['query']} → {best['candidates']}, {best['score']}, layers {best['layers']}: "
        f"{best['accuracy']:.3f} ({best['low']:.3f} to {best['high']:.3f})",
        **({"blank pairs left out": left_out} if left_out else {}),
        **({"sentences read in windows": windowed} if windowed else {}),
    }


def chosen_pairs(pairs: SentencePairs | Sequence[SentencePairs] | str | Path) -> list[SentencePairs]:
    """The lists of pairs, read where they are not yet; each has at least two."""
    if isinstance(pairs, SentencePairs):
        tasks = [pairs]
    else:
        tasks = read_pairs(pairs) if isinstance(pairs, str | Path) else list(pairs)
    if not tasks:
        raise SettingError("No pairs of sentences were given; expected at least one list of them.")
    for task in tasks:
        if len(task) < 2:
            raise SettingError(f"{task.name} has {len(task)} pair of sentences; retrieval needs at least 2.")
    return tasks


def _chosen_scores(score: str | Sequence[str]) -> list[str]:
    names = [name.strip() for name in score.split(",")] if isinstance(score, str) else list(score)
    unknown = [name for name in names if name not in SCORES]
    if unknown or not names:
        raise SettingError(f"Score {', '.join(unknown) or 'none'} is not known; choose from {', '.join(SCORES)}.")
    return list(dict.fromkeys(names))


def _models(
    model: Model | str | Path, target: Model | str | Path | None, device: str, max_memory: int | None
) -> tuple[Model, Model]:
    check_weights([one for one in (model, target) if isinstance(one, str | Path)], max_memory)
    first = as_model(model, device=device)
    return first, first if target is None else as_model(target, device=device)


def _check_widths(source: Model, target: Model, choices: list[LayerChoice]) -> None:
    """A cosine, of sentences or of tokens, needs vectors of the same length."""
    for choice in choices:
        for a, b in choice.pairs:
            if source.widths[a] != target.widths[b]:
                raise ModelError(
                    f"Layer {a} of {source.name} has {source.widths[a]} neurons, layer {b} of {target.name} has "
                    f"{target.widths[b]}; both scores need as many in both. Compare models of the same width."
                )
        for model, own in ((source, {a for a, _ in choice.pairs}), (target, {b for _, b in choice.pairs})):
            widths = {model.widths[layer] for layer in own}
            if len(widths) > 1:
                raise ModelError(
                    f"The layers {choice.name} of {model.name} have {sorted(widths)} neurons and cannot be averaged; "
                    "choose layers of the same width, or `each`."
                )
