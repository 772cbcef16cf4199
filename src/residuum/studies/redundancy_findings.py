"""What the findings of Dalvi et al. (2020) come to in numbers: each function gives one number for every case."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from residuum.results import Run
from residuum.studies.declarations import Results, Step
from residuum.studies.numbers import mean
from residuum.studies.verdicts import Measured

ENOUGH = 0.99  # of the oracle's score
FOCUS = 0.3  # the threshold at which the paper looks at clusters
MINIMAL = "minimal set"

Number = Callable[[Run], float]


def neighbours_are_alike(results: Results) -> Measured | None:
    """CKA of adjacent layers less that of others, for each model."""
    values = []
    for own in _own_layers(results):
        distance = (own["layer_a"] - own["layer_b"]).abs()
        values.append(mean(own.loc[distance == 1, "value"]) - mean(own.loc[distance > 1, "value"]))
    return Measured.of(values)


def last_layers_differ(results: Results) -> Measured | None:
    """Mean CKA of the other neighbours less that of the last two layers, for each model."""
    values = []
    for own in _own_layers(results):
        steps = own.loc[own["layer_b"] - own["layer_a"] == 1].sort_values("layer_a")["value"]
        values.append(mean(steps.iloc[:-1]) - mean(steps.iloc[-1:]))
    return Measured.of(values)


def most_neurons_can_go(results: Results) -> Measured | None:
    """The largest share of neurons that clustering removes with 99 % of the oracle's test score left, for each case."""
    return Measured.of([_removable(run.tables["thresholds"]) for _, run in results.of("redundancy")])


def clusters_are_local(results: Results) -> Measured | None:
    """The share of clusters at c_t = 0.3 that lie in one layer or in two adjacent ones, for each case."""
    values = []
    for _, run in results.of("redundancy"):
        windows = run.tables["windows"]
        at = windows.loc[(windows["threshold"] == FOCUS) & windows["window"].astype(str).isin(["1", "2"])]
        values.append(float(at["share"].sum()))
    return Measured.of(values)


def sentence_tasks_have_fewer_redundant_layers(results: Results) -> Measured | str | None:
    """Mean number of layers that keep 99 % of the oracle: of word tasks less of sentence tasks, for each model."""
    return _words_less_sentences(results, "redundancy", _redundant_layers)


def minimal_sets_are_small(results: Results) -> Measured | None:
    """The share of neurons in the minimal set of each case."""
    return Measured.of([_minimal(run)["share"] for _, run in results.of("redundancy")])


def word_tasks_need_more_neurons(results: Results) -> Measured | str | None:
    """Mean size of minimal sets: of word tasks less of sentence tasks, for each model."""
    return _words_less_sentences(results, "redundancy", lambda run: _minimal(run)["neurons"])


def transfer_keeps_few_neurons(results: Results) -> Measured | None:
    """The share of neurons that LayerSelector and CCFS leave out, for each case."""
    return Measured.of([1 - float(run.summary["share of neurons"]) for _, run in results.of("transfer")])


def word_tasks_need_fewer_layers(results: Results) -> Measured | str | None:
    """Mean number of layers that LayerSelector keeps: of sentence tasks less of word tasks, for each model."""
    found = _words_less_sentences(results, "transfer", lambda run: float(run.summary["layers"]))
    return Measured.of([-value for value in found.values]) if isinstance(found, Measured) else found


def minimal_set_size(model: str, task: str, results: Results) -> float | None:
    """How many neurons the minimal set of a model and a task has."""
    found = results.of("redundancy", model=model, task=task)
    return _minimal(found[0][1])["neurons"] if found else None


def _own_layers(results: Results) -> list[pd.DataFrame]:
    """The pairs of layers of each model."""
    ((_, run),) = results.of("compare")
    table = run.tables["similarity"]
    inside = table.loc[(table["measure"] == "cka") & (table["model_a"] == table["model_b"])]
    return [own for _, own in inside.groupby("model_a", sort=False)]


def _removable(thresholds: pd.DataFrame) -> float:
    oracle = mean(thresholds.loc[thresholds["threshold"] == 0, "test"])
    enough = thresholds.loc[thresholds["test"] >= ENOUGH * oracle]
    return 1 - min(enough["share"].tolist(), default=1.0)


def _redundant_layers(run: Run) -> float:
    layers, thresholds = run.tables["layers"], run.tables["thresholds"]
    oracle = mean(thresholds.loc[thresholds["threshold"] == 0, "test"])
    return float(sum(score >= ENOUGH * oracle for score in layers["test"].tolist()))


def _minimal(run: Run) -> dict[str, float]:
    """The smallest set of all neurons that keeps enough of the oracle; not a number where none was found."""
    table = run.tables["reduction"]
    rows = table.loc[table["set"] == MINIMAL]
    return {column: mean(rows[column]) for column in ("neurons", "share")}


def _words_less_sentences(results: Results, kind: str, number: Number) -> Measured | str | None:
    values = []
    for model in dict.fromkeys(step.model for step, _ in results.of(kind)):
        words, sentences = (_mean(results.of(kind, model=model, unit=unit), number) for unit in ("word", "sentence"))
        if words is None or sentences is None:
            return "there are no tasks of both words and sentences"
        values.append(words - sentences)
    return Measured.of(values)


def _mean(found: list[tuple[Step, Run]], number: Number) -> float | None:
    return sum(number(run) for _, run in found) / len(found) if found else None
