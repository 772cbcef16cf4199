"""What the findings of Durrani et al. (2021) come to in numbers: each function gives one number for every case."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from residuum.results import Run
from residuum.studies.declarations import Results
from residuum.studies.numbers import mean
from residuum.studies.verdicts import Measured

SHARE = 0.05  # of neurons, in the top and bottom sets that are compared


def upper_layers_lose_more(results: Results) -> Measured | None:
    """Change of the score by fine-tuning: mean over the lower half of the layers less that over the upper half."""
    return Measured.of([_mean(own, upper=False) - _mean(own, upper=True) for own in _changes(results)])


def lower_layers_keep_what_they_know(results: Results) -> Measured | None:
    """Mean change of the score by fine-tuning over the lower half of the layers."""
    return Measured.of([_mean(own, upper=False) for own in _changes(results)])


def bottom_neurons_lose_more(results: Results) -> Measured | None:
    """What the bottom neurons lose by fine-tuning less what the top neurons lose, each with a probe of its own."""
    values = []
    for step, run in results.of("diff"):
        table = run.tables["selection"]
        rows = table.loc[table["share"] == SHARE].to_dict("records")
        scores = {(row["task"], row["model"], row["set"]): float(row["retrained"]) for row in rows}
        for task, model in _others(run, step.model):
            lost = {name: scores[task, step.model, name] - scores[task, model, name] for name in ("top", "bottom")}
            values.append(lost["bottom"] - lost["top"])
    return Measured.of(values)


def salient_neurons_move_down(results: Results) -> Measured | None:
    """Mean relative depth of the most salient neurons before fine-tuning less that after."""
    values = []
    for step, run in results.of("diff"):
        table = run.tables["spread"]
        top = table.loc[table["set"] == f"top {SHARE:.3g}"]
        depth: dict[tuple[str, str], float] = {}
        for row in top.to_dict("records"):
            key = (row["task"], row["model"])
            depth[key] = depth.get(key, 0.0) + row["share"] * row["depth"]
        values += [depth[task, step.model] - depth[task, model] for task, model in _others(run, step.model)]
    return Measured.of(values)


def pruning_the_bottom_costs_more(results: Results) -> Measured | None:
    """Test score without the top half of the layers less that without the bottom half."""
    scores = {(step.model, step.task, step.variant): _test_score(run) for step, run in results.of("pruned")}
    return Measured.of(
        [value - scores[model, task, "bottom"] for (model, task, end), value in scores.items() if end == "top"]
    )


def few_neurons_are_enough(results: Results) -> Measured | None:
    """The share of neurons in the minimal set of the model before fine-tuning, for each task."""
    values = []
    for step, run in results.of("diff"):
        table = run.tables["minimal"]
        values += table.loc[(table["model"] == step.model) & (table["set"] == "minimal"), "share"].tolist()
    return Measured.of(values)


def minimal_sets_are_selective(results: Results) -> Measured | None:
    """Selectivity on the minimal set less that on all neurons, before fine-tuning, for each task."""
    values = []
    for step, run in results.of("diff"):
        table = run.tables["minimal"]
        own = table.loc[table["model"] == step.model].pivot(index="task", columns="set", values="selectivity")
        values += (own["minimal"] - own["all"]).tolist()
    return Measured.of(values)


def pruned_score(task: str, end: str, model: str, results: Results) -> float | None:
    """The test score of a model on a task without half of its layers."""
    found = results.of("pruned" if end else "finetune", model=model, task=task, variant=end)
    return _test_score(found[0][1]) if found else None


def _changes(results: Results) -> Iterator[pd.DataFrame]:
    """The change of each layer, for each word task and fine-tuned model."""
    for _, run in results.of("diff"):
        table = run.tables["change"]
        for _, own in table.loc[table["layer"].notna()].groupby(["task", "model"], sort=False):
            yield own


def _mean(layers: pd.DataFrame, *, upper: bool) -> float:
    chosen = layers["depth"] > 0.5 if upper else layers["depth"] <= 0.5
    return mean(layers.loc[chosen, "change"])


def _others(run: Run, base: str) -> list[tuple[str, str]]:
    """Each word task with each fine-tuned model."""
    table = run.tables["minimal"]
    pairs = zip(table["task"], table["model"], strict=True)
    return [(task, model) for task, model in dict.fromkeys(pairs) if model != base]


def _test_score(run: Run) -> float:
    return float(run.summary[f"test {run.summary['metric']}"])
