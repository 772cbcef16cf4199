"""What a `compare` run found, in numbers, and these numbers in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from residuum.reporting.content import Finding
from residuum.reporting.measures import main_measure, measure_term
from residuum.reporting.wording import CONFIDENCE, count, interval, layer_range, listed, shown
from residuum.storage.results import Run

SAMPLED_MEASURES = ("cka_rbf", "rsa", "knn")
SAID = ("words", "layers", "groups", "dead neurons", "words sampled", "left out")  # in sentences of their own
Row = dict[str, Any]


@dataclass(frozen=True)
class Estimate:
    """A value with its interval, and what permuted words would give; NaN where these are not known."""

    value: float
    low: float
    high: float
    null: float = np.nan


@dataclass(frozen=True)
class LayerPair:
    """Two layers, and how alike they are."""

    model_a: str
    layer_a: int
    model_b: str
    layer_b: int
    estimate: Estimate


@dataclass(frozen=True)
class ModelProfile:
    """One model: its layers, the mean of their layer averages, and the layer whose average is highest."""

    name: str
    layers: tuple[int, ...]
    neurons: int
    constant: dict[int, int] | None  # constant neurons of the layers that have some; None where they were not counted
    repetition: float  # NaN where the model has one layer
    top_layer: int | None
    top_average: Estimate | None


@dataclass(frozen=True)
class ComparisonSummary:
    """The numbers of a comparison that its front page speaks of."""

    models: tuple[ModelProfile, ...]
    measures: tuple[str, ...]
    main: str
    words: int | None
    groups: int | None
    sampled: int | None
    closest: LayerPair | None
    largest_step: LayerPair | None
    left_out: str
    counted: dict[str, Any]  # whatever else the run counted


def summarise_comparison(run: Run) -> ComparisonSummary:
    """Find what is worth saying first, all of it by one measure: CKA, or the first that was measured."""
    similarity, curves, layers = run.tables["similarity"], run.tables["curves"], _records(run.tables["layers"])
    measures = tuple(similarity["measure"].unique().tolist())
    main = main_measure(measures)
    averages = _records(curves, curve="layer_average", measure=main)
    steps = _records(curves, curve="to_next_layer", measure=main)
    has_intervals = similarity["low"].notna().to_numpy().any()
    return ComparisonSummary(
        models=tuple(_profile(model, layers, averages) for model in dict.fromkeys(row["model"] for row in layers)),
        measures=measures,
        main=main,
        words=run.summary.get("words"),
        groups=run.summary.get("groups") if has_intervals else None,
        sampled=run.summary.get("words sampled"),
        closest=_closest(_records(similarity, measure=main)),
        largest_step=_largest_step(steps, layers),
        left_out=str(run.summary.get("left out", "")),
        counted={key: value for key, value in run.summary.items() if key not in SAID and value},
    )


def comparison_findings(summary: ComparisonSummary) -> list[Finding]:
    """The summary in sentences, for the front of the page."""
    findings = [
        Finding("Compared", _scope(summary)),
        Finding(_closest_topic(summary), _closest_sentence(summary)),
        Finding("Repetition", _repetition_sentences(summary)),
        Finding("Largest step", _step_sentence(summary)),
        Finding("Constant neurons", _constant_sentence(summary.models)),
        Finding("Certainty", _certainty(summary)),
        Finding("Left out", summary.left_out and f"{_capital(summary.left_out)}."),
        Finding("Also counted", "; ".join(f"{name}: {shown(value)}" for name, value in summary.counted.items())),
    ]
    return [finding for finding in findings if finding.text]


def _records(frame: pd.DataFrame, **where: str) -> list[Row]:
    """The rows where all of `where` holds, without those whose value is missing."""
    for column, wanted in where.items():
        frame = frame.loc[frame[column] == wanted]
    if "value" in frame.columns:
        frame = frame.loc[frame["value"].notna()]
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def _profile(model: str, layers: list[Row], averages: list[Row]) -> ModelProfile:
    own = [row for row in layers if row["model"] == model]
    mine = [row for row in averages if row["model"] == model]
    top = max(mine, key=lambda row: row["value"], default=None)
    counted = all(pd.notna(row["constant"]) for row in own)
    return ModelProfile(
        name=model,
        layers=tuple(int(row["layer"]) for row in own),
        neurons=sum(int(row["neurons"]) for row in own),
        constant={int(row["layer"]): int(row["constant"]) for row in own if row["constant"] > 0} if counted else None,
        repetition=float(np.mean([row["value"] for row in mine])) if mine else np.nan,
        top_layer=int(top["layer"]) if top else None,
        top_average=_estimate(top) if top else None,
    )


def _estimate(row: Row) -> Estimate:
    return Estimate(*(float(row.get(part, np.nan)) for part in ("value", "low", "high", "null")))


def _closest(pairs: list[Row]) -> LayerPair | None:
    """The two most alike layers of different models; of one model where there is no other."""
    across = [row for row in pairs if row["model_a"] != row["model_b"]]
    others = across or [row for row in pairs if row["layer_a"] != row["layer_b"]]
    row = max(others, key=lambda row: row["value"], default=None)
    if row is None:
        return None
    return LayerPair(row["model_a"], int(row["layer_a"]), row["model_b"], int(row["layer_b"]), _estimate(row))


def _largest_step(steps: list[Row], layers: list[Row]) -> LayerPair | None:
    row = min(steps, key=lambda row: row["value"], default=None)
    if row is None:
        return None
    model, layer = row["model"], int(row["layer"])
    following = min(int(other["layer"]) for other in layers if other["model"] == model and other["layer"] > layer)
    return LayerPair(model, layer, model, following, _estimate(row))


def _scope(summary: ComparisonSummary) -> str:
    models = listed([f"{model.name} ({layer_range(model.layers)})" for model in summary.models])
    over = f" over {count(summary.words, 'word')}" if summary.words is not None else ""
    n_layers = sum(len(model.layers) for model in summary.models)
    return (
        f"{count(n_layers, 'layer')} of {count(len(summary.models), 'model')} were compared{over} with "
        f"{count(len(summary.measures), 'measure')} of similarity: {models}."
    )


def _closest_topic(summary: ComparisonSummary) -> str:
    return "Most alike across models" if len(summary.models) > 1 else "Most alike"


def _closest_sentence(summary: ComparisonSummary) -> str:
    pair = summary.closest
    if pair is None:
        return ""
    if pair.model_a == pair.model_b:
        layers = f"Layers {pair.layer_a} and {pair.layer_b} of {pair.model_a}"
    else:
        layers = f"Layer {pair.layer_a} of {pair.model_a} and layer {pair.layer_b} of {pair.model_b}"
    null = pair.estimate.null
    chance = "" if np.isnan(null) else f" With permuted words the same two would have {null:.3f}."
    return f"{layers} have the highest {_name(summary)}, {_with_interval(pair.estimate)}.{chance}"


def _repetition_sentences(summary: ComparisonSummary) -> str:
    deep = [model for model in summary.models if model.top_average is not None]
    ranked = sorted(deep, key=lambda model: model.repetition, reverse=True)
    if not ranked:
        return ""
    most = ranked[0]
    assert most.top_average is not None
    others = listed([f"{model.name} {model.repetition:.3f}" for model in ranked[1:]])
    return (
        f"{_repeats(most.name, len(ranked))} its layers have a mean {_name(summary)} of {most.repetition:.3f} with its "
        f"other layers{f' ({others})' if others else ''}. "
        f"Its layer {most.top_layer} repeats the others most, {_with_interval(most.top_average)}."
    )


def _repeats(name: str, models: int) -> str:
    return f"{name} repeats itself most:" if models > 1 else f"In {name},"


def _step_sentence(summary: ComparisonSummary) -> str:
    step = summary.largest_step
    if step is None:
        return ""
    where = f"layer {step.layer_a} to layer {step.layer_b} of {step.model_a}"
    return f"Between neighbouring layers most changes from {where}: {_name(summary)} {_with_interval(step.estimate)}."


def _constant_sentence(models: Sequence[ModelProfile]) -> str:
    if any(model.constant is None for model in models):
        return ""
    total = sum(model.neurons for model in models)
    places = [
        f"{n:,} in layer {layer} of {model.name}" for model in models for layer, n in (model.constant or {}).items()
    ]
    constant = sum(sum((model.constant or {}).values()) for model in models)
    if not constant:
        return f"None: all {total:,} neurons vary over these words."
    named = listed(places if len(places) <= 4 else [*places[:3], f"more in {len(places) - 3} other layers"])
    return f"{constant:,} of {total:,} neurons never vary over these words: {named}."


def _certainty(summary: ComparisonSummary) -> str:
    if summary.groups is None:
        said = "No intervals were computed."
    else:
        said = f"Intervals are {CONFIDENCE} jackknife intervals over {count(summary.groups, 'group')} of sentences."
    if summary.sampled is None:
        return said
    names = ", ".join(measure_term(measure).title for measure in SAMPLED_MEASURES if measure in summary.measures)
    return f"{said} Measured on {count(summary.sampled, 'sampled word')}: {names}."


def _with_interval(estimate: Estimate) -> str:
    bounds = interval(estimate.low, estimate.high)
    return f"{estimate.value:.3f}" + (f" ({CONFIDENCE} interval {bounds})" if bounds else "")


def _name(summary: ComparisonSummary) -> str:
    return measure_term(summary.main).title


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
