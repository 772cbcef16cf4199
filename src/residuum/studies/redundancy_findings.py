"""What the findings of Dalvi et al. (2020) come to in numbers: each function gives one number for every case."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from residuum.storage.results import Run
from residuum.studies.declarations import Results, Step
from residuum.studies.estimates import Estimate, mean_estimate
from residuum.studies.numbers import mean
from residuum.studies.similarity_findings import adjacent_less_distant, own_layers
from residuum.studies.verdicts import Measured

ENOUGH = 0.99  # of the oracle's score
FOCUS = 0.3  # the threshold at which the paper looks at clusters
MINIMAL = "minimal set"
NOT_BOTH = "there are no tasks of both words and sentences"

Number = Callable[[Run], float]


def neighbours_are_alike(results: Results) -> Measured | None:
    """CKA of adjacent layers less that of others, for each model."""
    return Measured.of({model: adjacent_less_distant(own) for model, own in own_layers(results).items()})


def last_layers_differ(results: Results) -> Measured | None:
    """Mean CKA of the other neighbours less that of the last two layers, for each model."""
    return Measured.of({model: _others_less_last(own) for model, own in own_layers(results).items()})


def most_neurons_can_go(results: Results) -> Measured | None:
    """The largest share of neurons that clustering removes with 99 % of the oracle's test score left, for each case."""
    return Measured.counted(_each(results, "redundancy", lambda run: _removable(run.tables["thresholds"])))


def clusters_are_local(results: Results) -> Measured | None:
    """The share of clusters at c_t = 0.3 that lie in one layer or in two adjacent ones, for each case."""
    return Measured.counted(_each(results, "redundancy", _local_share))


def sentence_tasks_have_fewer_redundant_layers(results: Results) -> Measured | str | None:
    """Layers that keep 99 % of the oracle: of each word task less of each sentence task, for each model."""
    return _words_less_sentences(results, "redundancy", _redundant_layers)


def minimal_sets_are_small(results: Results) -> Measured | None:
    """The share of neurons in the minimal set of each case."""
    return Measured.counted(_each(results, "redundancy", lambda run: _minimal(run)["share"]))


def word_tasks_need_more_neurons(results: Results) -> Measured | str | None:
    """Size of minimal sets: of each word task less of each sentence task, for each model."""
    return _words_less_sentences(results, "redundancy", lambda run: _minimal(run)["neurons"])


def transfer_keeps_few_neurons(results: Results) -> Measured | None:
    """The share of neurons that LayerSelector and CCFS leave out, for each case."""
    return Measured.counted(_each(results, "transfer", lambda run: 1 - float(run.summary["share of neurons"])))


def word_tasks_need_fewer_layers(results: Results) -> Measured | str | None:
    """Layers that LayerSelector keeps: of each sentence task less of each word task, for each model."""
    return _words_less_sentences(results, "transfer", lambda run: -float(run.summary["layers"]))


def minimal_set_size(run: Run) -> float:
    """How many neurons the minimal set has."""
    return _minimal(run)["neurons"]


def _each(results: Results, kind: str, number: Number) -> Mapping[str, float]:
    """A number of each model and task."""
    return {case_name(step): number(run) for step, run in results.of(kind)}


def case_name(step: Step) -> str:
    """A step's model and task."""
    return ", ".join(part for part in (step.model, step.task) if part)


def _others_less_last(own: pd.DataFrame) -> Estimate:
    steps = own.loc[own["layer_b"] - own["layer_a"] == 1].sort_values("layer_a")
    return mean_estimate(steps.iloc[:-1]) - mean_estimate(steps.iloc[-1:])


def _removable(thresholds: pd.DataFrame) -> float:
    oracle = mean(thresholds.loc[thresholds["threshold"] == 0, "test"])
    enough = thresholds.loc[thresholds["test"] >= ENOUGH * oracle]
    return 1 - min(enough["share"].tolist(), default=1.0)


def _local_share(run: Run) -> float:
    windows = run.tables["windows"]
    at = windows.loc[(windows["threshold"] == FOCUS) & windows["window"].astype(str).isin(["1", "2"])]
    return float(at["share"].sum())


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
    """Every word task against every sentence task of the same model."""
    words, sentences = (results.of(kind, unit=unit) for unit in ("word", "sentence"))
    if not words or not sentences:
        return NOT_BOTH
    return Measured.counted(
        {
            f"{word.model}, {word.task} and {sentence.task}": number(of_words) - number(of_sentences)
            for word, of_words in words
            for sentence, of_sentences in sentences
            if word.model == sentence.model
        }
    )
