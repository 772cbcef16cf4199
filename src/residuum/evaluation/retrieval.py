"""Retrieval of translations, and whether models that are better at it score better downstream (`correlate`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import xxhash
from scipy import stats
from torch import Tensor

from residuum.errors import ModelError, SettingError
from residuum.evaluation.encoding import EncodedSentences, encode, scratch
from residuum.evaluation.pairs import SentencePairs, chosen_pairs
from residuum.evaluation.settings import CorrelationSettings, RetrievalSettings
from residuum.maths.losses import layer_map
from residuum.maths.retrieval import LayerPair, Ranks, bertscore_ranks, cosine_ranks
from residuum.maths.statistics import bootstrap_mean, pearson, spearman
from residuum.models.loading import Model, as_model, check_weights, parse_layers
from residuum.settings import command, named_values
from residuum.storage.notebook import progress_bar
from residuum.storage.results import Result, Run, clear_content_errors, finished_run, read_run, write_run

COMMAND = "evaluate retrieval"
CORRELATION = "evaluate correlate"
STATES = 2_000_000_000  # bytes of states that are held without a memory limit
NORMAL = float(stats.norm.ppf(0.975))
CORRELATIONS = {"pearson": pearson, "spearman": spearman}


@dataclass(frozen=True, eq=False)
class Retrieval(Result):
    """How often sentences found their translations."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """One row per language pair, direction, score and choice of layers."""
        return self.run.tables["retrieval"]

    @property
    def averages(self) -> pd.DataFrame:
        """The mean over language pairs, per direction, score and choice of layers."""
        return self.run.tables["averages"]

    def hits(self, row: int) -> np.ndarray:
        """Per sentence of a row of `frame`, 1 where its translation was found, else 0; for paired comparisons."""
        return self.run.tensors["hits"][self.run.tensors["first"][row] : self.run.tensors["first"][row + 1]]

    def text(self) -> str:
        """One line per row."""
        return "\n".join(
            f"{row['query']} → {row['candidates']}  {row['score']:9}  layers {row['layers']:5}  "
            f"accuracy {row['accuracy']:.3f} ({row['low']:.3f} to {row['high']:.3f})  MRR {row['mrr']:.3f}  "
            f"F1 {row['f1']:.3f}"
            for row in self.frame.to_dict("records")
        )


@command(RetrievalSettings)
def evaluate_retrieval(settings: RetrievalSettings) -> Retrieval:
    """Count how often the translation of a sentence is its nearest neighbour, in both directions.

    `model` encodes the first language and, without `target_model`, the second too. `pairs` is a file or folder, or what
    `read_pairs` returns. `cosine` and `margin` compare means over tokens and over the chosen layers, `margin` (CSLS)
    less what either sentence has in common with its nearest neighbours; `bertscore` is averaged over the chosen layers.
    Intervals are 95 % bootstrap intervals over sentences. States that do not fit into `max_memory` beside the weights
    (2 GB of states without a limit) are kept in temporary files.
    """
    tasks = chosen_pairs(settings)
    wanted = [name for name in (settings.model, settings.target_model) if name is not None]
    check_weights([name for name in wanted if not isinstance(name, Model)], settings.max_memory, settings.precision)
    loaded = [as_model(name, device=settings.device, precision=settings.precision) for name in wanted]
    models = loaded[0], loaded[-1]
    choices = layer_choices(settings.layers, models[0].n_layers, models[1].n_layers)
    _check_widths(models, choices)
    config = {
        "models": [f"{model.name} {model.fingerprint}" for model in models],
        "pairs": [f"{task.name} {task.fingerprint}" for task in tasks],
        "layers": [choice.name for choice in choices],
        **settings.identity(),
    }
    if settings.out is not None and (run := finished_run(settings.out, COMMAND, config, fresh=settings.fresh)):
        return Retrieval(run)
    run = _measure(settings, models, choices, tasks, config)
    if settings.out is not None:
        write_run(settings.out, run)
    return Retrieval(run)


def _check_widths(models: tuple[Model, Model], choices: Sequence[LayerChoice]) -> None:
    """A cosine, of sentences or of tokens, needs vectors of the same length."""
    source, target = models
    for choice in choices:
        for a, b in choice.pairs:
            if source.widths[a] != target.widths[b]:
                raise ModelError(
                    f"Layer {a} of {source.name} has {source.widths[a]} neurons, layer {b} of {target.name} has "
                    f"{target.widths[b]}; both scores need as many in both. Compare models of the same width."
                )
        for side, model in enumerate(models):
            widths = {model.widths[layer] for layer in choice.side(side)}
            if len(widths) > 1:
                raise ModelError(
                    f"The layers {choice.name} of {model.name} have {sorted(widths)} neurons and cannot be averaged; "
                    "choose layers of the same width, or `each`."
                )


def _measure(
    settings: RetrievalSettings,
    models: tuple[Model, Model],
    choices: list[LayerChoice],
    tasks: list[SentencePairs],
    config: dict[str, Any],
) -> Run:
    """Encode and rank every language pair, and put the scores into tables."""
    weights = sum(model.n_bytes for model in set(models))
    memory = STATES if settings.max_memory is None else max(0, settings.max_memory - weights)
    rows: list[dict[str, Any]] = []
    hits: list[np.ndarray] = []
    windowed = 0
    for task in progress_bar(tasks, unit=" language pairs", shown=settings.progress, leave=False):
        with scratch(memory) as space, torch.inference_mode():
            source, target = (
                encode(
                    model,
                    texts,
                    sorted({layer for choice in choices for layer in choice.side(side)}),
                    space,
                    tokens="bertscore" in settings.score,
                    special_tokens=settings.special_tokens,
                    source=f"{task.name} ({task.languages[side]})",
                )
                for side, (model, texts) in enumerate(zip(models, (task.source, task.target), strict=True))
            )
            for score in settings.score:
                for choice, directions in zip(choices, _ranks(settings, score, source, target, choices), strict=True):
                    for backward, ranks in enumerate(directions):
                        rows.append(_row(task, score, choice, bool(backward), ranks, settings))
                        hits.append(ranks.hits)
        windowed += source.windowed + target.windowed
    table = pd.DataFrame(rows).astype({"layer": "Int64"})
    return Run(
        command=COMMAND,
        config=config,
        summary=_summary(models, tasks, table, windowed),
        tables={"retrieval": table, "averages": average_table(table)},
        tensors={
            "hits": np.concatenate(hits).astype(np.float32),
            "first": np.concatenate([[0], np.cumsum([len(row) for row in hits])]),
        },
    )


def _ranks(
    settings: RetrievalSettings,
    score: str,
    source: EncodedSentences,
    target: EncodedSentences,
    choices: list[LayerChoice],
) -> list[tuple[Ranks, Ranks]]:
    """The ranks of all translations in both directions, per choice of layers."""
    if score == "bertscore":
        assert source.tokens is not None
        assert target.tokens is not None
        return bertscore_ranks(source.tokens, target.tokens, [choice.pairs for choice in choices])

    def mean_of_layers(encoded: EncodedSentences, layers: list[int]) -> Tensor:
        total = encoded.means[layers[0]].clone()
        for layer in layers[1:]:  # one after the other, since they may lie in files
            total += encoded.means[layer]
        return total / len(layers)

    neighbours = settings.neighbours if score == "margin" else None
    sides = ((mean_of_layers(source, choice.side(0)), mean_of_layers(target, choice.side(1))) for choice in choices)
    return [cosine_ranks(*vectors, neighbours=neighbours) for vectors in sides]


def _row(
    task: SentencePairs, score: str, choice: LayerChoice, backward: bool, ranks: Ranks, settings: RetrievalSettings
) -> dict[str, Any]:
    """Accuracy, mean reciprocal rank and F1 of one direction, with intervals."""
    values = np.stack([ranks.hits, ranks.reciprocals, ranks.f1], axis=1)
    estimate = bootstrap_mean(values, resamples=settings.resamples, rng=settings.seed)
    query, candidates = task.languages[::-1] if backward else task.languages
    return {
        "pair": task.name,
        "direction": "backward" if backward else "forward",
        "query": query,
        "candidates": candidates,
        "score": score,
        "layers": choice.name,
        "layer": choice.layer,
        "sentences": len(values),
        "accuracy": estimate.value[0],
        "low": estimate.low[0],
        "high": estimate.high[0],
        "error": estimate.standard_error[0],
        "mrr": estimate.value[1],
        "mrr_low": estimate.low[1],
        "mrr_high": estimate.high[1],
        "f1": estimate.value[2],
        "f1_low": estimate.low[2],
        "f1_high": estimate.high[2],
    }


def average_table(table: pd.DataFrame) -> pd.DataFrame:
    """The mean over language pairs; the interval takes their errors as independent."""
    averages = (
        table.groupby(["direction", "score", "layers"], sort=False)
        .agg(
            layer=("layer", "first"),
            pairs=("pair", "size"),
            accuracy=("accuracy", "mean"),
            mrr=("mrr", "mean"),
            f1=("f1", "mean"),
            query=("query", _common),
            candidates=("candidates", _common),
            error=("error", lambda errors: float(np.sqrt((errors**2).sum())) / len(errors)),
        )
        .reset_index()
    )
    reach = NORMAL * averages["error"]
    low, high = averages["accuracy"] - reach, averages["accuracy"] + reach
    return averages.assign(low=low.clip(lower=0), high=high.clip(upper=1))


def _common(languages: pd.Series) -> str:
    """The language of all rows, or `each` where they differ: `each → en` are all directions into English."""
    return str(languages.iloc[0]) if languages.nunique() == 1 else "each"


def _summary(
    models: tuple[Model, Model], tasks: list[SentencePairs], table: pd.DataFrame, windowed: int
) -> dict[str, Any]:
    best = table.loc[table["accuracy"].idxmax()]
    left_out = sum(task.left_out for task in tasks)
    return {
        "models": [model.name for model in dict.fromkeys(models)],
        "pairs of languages": len(tasks),
        "pairs of sentences": sum(map(len, tasks)),
        "best": f"{best['query']} → {best['candidates']}, {best['score']}, layers {best['layers']}: "
        f"{best['accuracy']:.3f} ({best['low']:.3f} to {best['high']:.3f})",
        **({"blank pairs left out": left_out} if left_out else {}),
        **({"sentences read in windows": windowed} if windowed else {}),
    }


@dataclass(frozen=True)
class LayerChoice:
    """Layers whose representations are averaged: pairs of a layer of the first model and one of the second."""

    name: str
    pairs: tuple[LayerPair, ...]

    @property
    def layer(self) -> int | None:
        """The layer of the first model, where it is the only one."""
        return self.pairs[0][0] if len(self.pairs) == 1 else None

    def side(self, index: int) -> list[int]:
        """The layers of the first model (0) or of the second (1)."""
        return [pair[index] for pair in self.pairs]


def layer_choices(layers: str | Sequence[str] | Sequence[int], source: int, target: int) -> list[LayerChoice]:
    """The choices of `layers` for models of `source` and `target` blocks, without repeats.

    `all` is every block without the embeddings (layer 0). `each` is every layer alone, 0 included. Otherwise numbers
    and ranges, `1,3,5-7`; `3:6` pairs layer 3 of the first model with layer 6 of the second. Several choices are
    separated by `;` or given as a list of texts. Models of different depth are paired by relative depth.
    """
    if isinstance(layers, str):
        parts = layers.split(";")
    elif layers and all(isinstance(layer, int) for layer in layers):
        parts = [",".join(map(str, layers))]
    elif layers and all(isinstance(layer, str) for layer in layers):
        parts = list(map(str, layers))
    else:
        raise SettingError(
            f"layers is {list(layers)!r}; expected numbers, or choices such as ['all', 'each', '1,3,5']."
        )
    choices = [choice for part in parts for choice in _parsed_choices(part.strip(), source, target)]
    return list({choice.pairs: choice for choice in choices}.values())


def _parsed_choices(text: str, source: int, target: int) -> Iterator[LayerChoice]:
    shallow, deep = sorted((source, target))
    by_depth = [(0, 0), *layer_map("uniform", shallow, deep).items()]
    side_by_side = by_depth if source <= target else [(b, a) for a, b in by_depth]
    if text == "all":
        yield LayerChoice("all", tuple(side_by_side[1:]))
    elif text == "each":
        yield from (LayerChoice(str(a) if a == b else f"{a}:{b}", ((a, b),)) for a, b in side_by_side)
    else:
        pairs: list[LayerPair] = []
        for part in map(str.strip, text.split(",")):
            first, colon, second = part.partition(":")
            if not colon:
                pairs += [(layer, layer) for layer in parse_layers(part, min(source, target))]
                continue
            sides = parse_layers(first, source), parse_layers(second, target)
            if len(sides[0]) != len(sides[1]):
                raise SettingError(
                    f"Cannot read layers {part!r}: {len(sides[0])} layers beside {len(sides[1])}; expected as many."
                )
            pairs += zip(*sides, strict=True)
        yield LayerChoice(text, tuple(dict.fromkeys(pairs)))


@dataclass(frozen=True, eq=False)
class AlignmentCorrelation(Result):
    """Correlation of retrieval accuracy with downstream scores over models (table 4.11 of the thesis)."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """direction, score, layers, measure, value, low, high, p_value and runs."""
        return self.run.tables["correlations"]

    def text(self) -> str:
        """One line per correlation."""
        return "\n".join(
            f"{row['direction']}  {row['score']:9}  layers {row['layers']:5}  {row['measure']} {row['value']:+.3f} "
            f"({row['low']:+.3f} to {row['high']:+.3f}), {row['runs']} models"
            for row in self.frame.to_dict("records")
        )


@command(CorrelationSettings)
def correlate_alignment(settings: CorrelationSettings) -> AlignmentCorrelation:
    """Correlate the retrieval accuracy of several models with their downstream scores, both named by model.

    A downstream score is a number, or the folder of a run of `adapt` with one strategy or of `evaluate adapted`. Per
    direction, score and choice of layers that all runs have: Pearson's and Spearman's correlation with intervals and
    p-values. A run's accuracy is its mean over language pairs.
    """
    retrievals, downstream = named_values(settings.retrievals), named_values(settings.downstream)
    if not isinstance(retrievals, Mapping) or not isinstance(downstream, Mapping):
        raise SettingError("Retrieval runs and downstream scores are matched by name; write all as NAME=FOLDER.")
    if set(retrievals) != set(downstream) or len(retrievals) < 2:
        named = [", ".join(names) or "no model" for names in (retrievals, downstream)]
        raise SettingError(
            f"Retrieval is given for {named[0]}, downstream scores for {named[1]}; expected both for the same two or "
            "more models."
        )
    scores = {name: _downstream_score(value) for name, value in downstream.items()}
    accuracies = {name: _accuracies(retrieval) for name, retrieval in retrievals.items()}
    prints = {name: xxhash.xxh3_64_hexdigest(values.to_csv().encode()) for name, values in accuracies.items()}
    config = {**settings.identity(), "retrievals": prints, "downstream": scores}
    if settings.out is not None and (run := finished_run(settings.out, CORRELATION, config, fresh=settings.fresh)):
        return AlignmentCorrelation(run)
    aligned = pd.DataFrame(accuracies).dropna()
    if aligned.empty:
        raise SettingError(
            "The runs have no score and choice of layers in common; evaluate them with the same --layers."
        )
    downstream_scores = np.array([scores[name] for name in aligned.columns], dtype=float)
    rows = []
    for key, values in zip(aligned.index, aligned.to_numpy(dtype=float), strict=True):
        for name, measure in CORRELATIONS.items():
            r = measure(values, downstream_scores, level=settings.level)
            estimate = {"value": r.r, "low": r.low, "high": r.high, "p_value": r.p_value, "runs": r.n}
            rows.append({**dict(zip(aligned.index.names, key, strict=True)), "measure": name, **estimate})
    table = pd.DataFrame(rows)
    run = Run(CORRELATION, config, {"models": len(scores)}, {"correlations": table})
    if settings.out is not None:
        write_run(settings.out, run)
    return AlignmentCorrelation(run)


def _accuracies(retrieval: Retrieval | str | Path) -> pd.Series:
    """The mean accuracy over language pairs, by direction, score and layers."""
    if not isinstance(retrieval, Retrieval):
        run = read_run(retrieval)
        if run.command != COMMAND:
            raise SettingError(f"{retrieval} holds a run of `{run.command}`; expected one of `{COMMAND}`.")
        retrieval = Retrieval(run)
    with clear_content_errors(COMMAND, retrieval.run.folder):
        keys = ["direction", "score", "layers"]
        table = retrieval.averages.astype({**dict.fromkeys(keys, str), "accuracy": float})
        accuracies = table.set_index(keys).loc[:, "accuracy"]
        if not accuracies.index.is_unique:
            raise ValueError("two averages of one direction, score and choice of layers")
        return accuracies


def _downstream_score(score: Any) -> float:
    """A number as it is, or the first test score of a run: zero-shot, the mean over languages."""
    try:
        return float(score)
    except (TypeError, ValueError):
        run = read_run(score)
    with clear_content_errors(run.command, run.folder):
        if run.command == "evaluate adapted":
            return float(run.tables["scores"]["value"].iloc[0])
        scores = run.summary.get(f"test {run.summary.get('metric')}") if run.command == "adapt" else None
        if isinstance(scores, dict) and len(scores) == 1:
            return float(next(iter(scores.values())))
        named = f" with the strategies {', '.join(scores)}" if isinstance(scores, dict) else ""
        raise SettingError(
            f"{score} holds a run of `{run.command}`{named}; expected one of `adapt` with one strategy or of "
            "`evaluate adapted`, or write the number."
        )
