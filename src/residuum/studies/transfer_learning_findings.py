"""What the findings of Durrani et al. (2021) come to in numbers: each function gives one number for every case."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from residuum.storage.results import Run
from residuum.studies.declarations import Results
from residuum.studies.estimates import Estimate, mean_estimate, score_on_test
from residuum.studies.verdicts import Measured

SHARE = 0.05  # of neurons, in the top and bottom sets that are compared


def upper_layers_lose_more(results: Results) -> Measured | None:
    """Change of the score by fine-tuning: mean over the lower half of the layers less that over the upper half."""
    changes = _changes(results)
    return Measured.of({case: _mean(own, upper=False) - _mean(own, upper=True) for case, own in changes})


def lower_layers_keep_what_they_know(results: Results) -> Measured | None:
    """Mean change of the score by fine-tuning over the lower half of the layers."""
    return Measured.of({case: _mean(own, upper=False) for case, own in _changes(results)})


def bottom_neurons_lose_more(results: Results) -> Measured | None:
    """What the bottom neurons lose by fine-tuning less what the top neurons lose, each with a probe of its own."""
    cases = {}
    for step, run in results.of("diff"):
        table = run.tables["selection"]
        rows = table.loc[table["share"] == SHARE].groupby(["task", "model", "set"])
        scores = {key: mean_estimate(own, "retrained") for key, own in rows}
        for task, model in _others(run, step.model):
            top, bottom = (scores[task, step.model, end] - scores[task, model, end] for end in ("top", "bottom"))
            cases[f"{step.model}, {task} after {model}"] = bottom - top
    return Measured.of(cases)


def salient_neurons_move_down(results: Results) -> Measured | None:
    """Mean relative depth of the most salient neurons before fine-tuning less that after."""
    cases = {}
    for step, run in results.of("diff"):
        table = run.tables["spread"]
        top = table.loc[table["set"] == f"top {SHARE:.3g}"]
        depth: dict[tuple[str, str], float] = {}
        for row in top.to_dict("records"):
            key = (row["task"], row["model"])
            depth[key] = depth.get(key, 0.0) + row["share"] * row["depth"]
        for task, model in _others(run, step.model):
            cases[f"{step.model}, {task} after {model}"] = depth[task, step.model] - depth[task, model]
    return Measured.counted(cases)


def pruning_the_bottom_costs_more(results: Results) -> Measured | None:
    """Test score without the top half of the layers less that without the bottom half."""
    scores = {(step.model, step.task, step.variant): score_on_test(run) for step, run in results.of("pruned")}
    return Measured.of(
        {
            f"{model}, {task}": score - scores[model, task, "bottom"]
            for (model, task, end), score in scores.items()
            if end == "top"
        }
    )


def few_neurons_are_enough(results: Results) -> Measured | None:
    """The share of neurons in the minimal set of the model before fine-tuning, for each task."""
    cases = {}
    for step, run in results.of("diff"):
        table = run.tables["minimal"]
        own = table.loc[(table["model"] == step.model) & (table["set"] == "minimal")]
        cases |= {f"{step.model}, {task}": share for task, share in zip(own["task"], own["share"], strict=True)}
    return Measured.counted(cases)


def minimal_sets_are_selective(results: Results) -> Measured | None:
    """Selectivity on the minimal set less that on all neurons, before fine-tuning, for each task."""
    cases = {}
    for step, run in results.of("diff"):
        table = run.tables["minimal"]
        own = table.loc[table["model"] == step.model].pivot(index="task", columns="set", values="selectivity")
        cases |= {f"{step.model}, {task}": gain for task, gain in (own["minimal"] - own["all"]).items()}
    return Measured.counted(cases)


def _changes(results: Results) -> Iterator[tuple[str, pd.DataFrame]]:
    """The change of each layer, for each word task and fine-tuned model."""
    for step, run in results.of("diff"):
        table = run.tables["change"]
        for (task, model), own in table.loc[table["layer"].notna()].groupby(["task", "model"], sort=False):
            yield f"{step.model}, {task} after {model}", own


def _mean(layers: pd.DataFrame, *, upper: bool) -> Estimate:
    chosen = layers["depth"] > 0.5 if upper else layers["depth"] <= 0.5
    return mean_estimate(layers.loc[chosen], "change")


def _others(run: Run, base: str) -> list[tuple[str, str]]:
    """Each word task with each fine-tuned model."""
    table = run.tables["minimal"]
    pairs = zip(table["task"], table["model"], strict=True)
    return [(task, model) for task, model in dict.fromkeys(pairs) if model != base]
