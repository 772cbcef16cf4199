"""What the findings on monolingual students come to in numbers: each function gives one number for every case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from residuum.storage.results import Run
from residuum.studies.declarations import Results
from residuum.studies.estimates import Estimate, accuracy_estimate, mean_estimate
from residuum.studies.verdicts import Measured

SUBSETS = ("uniform", "bottom", "top")
START, WITHOUT_START = "monoshot", "monoshot-without-teacher-start"


def middle_layers_align_best(results: Results) -> Measured | None:
    """Accuracy of the best layer of the middle third less that of the best of the others, by each score."""
    ((_, run),) = results.of("retrieval")
    table = run.tables["averages"]
    single = table.loc[table["layer"].notna() & (table["direction"] == "forward")]
    cases = {}
    for score, own in single.groupby("score", sort=False):
        depth = own["layer"].astype(float) / float(own["layer"].max())
        middle = (depth > 1 / 3) & (depth <= 2 / 3)
        cases[str(score)] = _best(own.loc[middle]) - _best(own.loc[~middle])
    return Measured.of(cases)


def cosine_beats_bertscore(results: Results) -> Measured | None:
    """Accuracy by cosine less that by BERTScore, over all layers of the teacher, for each pair of languages."""
    ((_, run),) = results.of("retrieval")
    cosine, bertscore = (_by_score(run, score) for score in ("cosine", "bertscore"))
    return Measured.of({pair: cosine[pair] - bertscore[pair] for pair in cosine})


def monoalignment_beats_the_teacher(results: Results) -> Measured | None:
    """Accuracy of the students by BERTScore less the teacher's, for each pair of languages."""
    ((_, teacher),) = results.of("retrieval")
    before = _by_score(teacher, "bertscore")
    after = {pair: value for _, run in results.of("aligned") for pair, value in _by_score(run, "bertscore").items()}
    return Measured.of({pair: after[pair] - before[pair] for pair in after})


def monoshot_beats_layer_subsets(results: Results) -> Measured | None:
    """Zero-shot score of MonoShot less that of the best subset of layers, for each task."""
    return Measured.of(
        {task: own["monoshot"] - _largest(own[name] for name in SUBSETS) for task, own in _zero_shot(results).items()}
    )


def teacher_beats_monoshot(results: Results) -> Measured | None:
    """Zero-shot score of the teacher less that of MonoShot, for each task."""
    return Measured.of({task: own["teacher"] - own["monoshot"] for task, own in _zero_shot(results).items()})


def bottom_layers_are_the_best_subset(results: Results) -> Measured | None:
    """Zero-shot score of the bottom layers less that of the better of the other subsets, for each task."""
    return Measured.of(
        {
            task: own["bottom"] - _largest(own[name] for name in ("uniform", "top"))
            for task, own in _zero_shot(results).items()
        }
    )


def full_target_is_best(results: Results) -> Measured | None:
    """Zero-shot score of `full-target` less that of the best other strategy, for each task."""
    cases = {}
    for step, run in results.of("adapt", variant="monoshot"):
        scores = _strategy_scores(run)
        cases[step.task] = scores.pop("full-target") - _largest(scores.values())
    return Measured.of(cases)


def joint_and_target_adapters_beat_source(results: Results) -> Measured | str | None:
    """Zero-shot score of the worse of `adapter-joint` and `adapter-target` less `adapter-source`, for each task."""
    cases = {}
    for step, run in results.of("adapt", variant="monoshot"):
        scores = _strategy_scores(run)
        if not {"adapter-source", "adapter-target", "adapter-joint"} <= set(scores):
            return "this scale does not train all adapters; the scale small does"
        both = min((scores["adapter-joint"], scores["adapter-target"]), key=lambda score: score.value)
        cases[step.task] = both - scores["adapter-source"]
    return Measured.of(cases)


def alignment_goes_with_scores(results: Results) -> Measured | None:
    """Pearson's correlation over models of retrieval accuracy with the mean downstream score, by each score."""
    ((_, run),) = results.of("correlate")
    table = run.tables["correlations"]
    own = table.loc[(table["measure"] == "pearson") & (table["direction"] == "forward")]
    return Measured.of({str(row["score"]): _interval(row) for row in own.to_dict("records")})


def teacher_start_helps(results: Results) -> Measured | None:
    """Perplexity of students that start at random as a multiple of that of the others, for each student."""
    ((_, run),) = results.of("losses")
    table = run.tables["scores"]
    own = table.loc[table["score"] == "perplexity"].pivot(index="subject", columns="row", values="value")
    return Measured.counted({str(subject): ratio for subject, ratio in (own[WITHOUT_START] / own[START]).items()})


def _interval(row: Mapping[Any, Any]) -> Estimate:
    return Estimate(float(row["value"]), float(row["low"]), float(row["high"]))


def _best(rows: pd.DataFrame) -> Estimate:
    return mean_estimate(rows.loc[rows["accuracy"] == rows["accuracy"].max()].head(1), "accuracy")


def _largest(scores: Iterable[Estimate]) -> Estimate:
    return max(scores, key=lambda score: score.value)


def _by_score(run: Run, score: str) -> dict[str, Estimate]:
    """Accuracy over all layers, for each pair of languages; a bootstrap of 100 % would have no width."""
    table = run.tables["retrieval"]
    own = table.loc[(table["layers"] == "all") & (table["direction"] == "forward") & (table["score"] == score)]
    numbers = zip(own["pair"], own["accuracy"], own["sentences"], strict=True)
    return {str(pair): accuracy_estimate(float(accuracy), int(n)) for pair, accuracy, n in numbers}


def _zero_shot(results: Results) -> dict[str, dict[str, Estimate]]:
    """For each task, the test score of `full-target` by variant, a mean over languages."""
    found: dict[str, dict[str, Estimate]] = {}
    for step, run in results.of("adapt"):
        found.setdefault(step.task, {})[step.variant] = _strategy_scores(run)["full-target"]
    return found


def _strategy_scores(run: Run) -> dict[str, Estimate]:
    """The test score of each strategy over the examples of all languages; only accuracy has an interval."""
    metric = run.summary["metric"]
    scores = run.summary[f"test {metric}"]
    if metric != "accuracy":
        return {name: Estimate.counted(value) for name, value in scores.items()}
    examples = sum(sizes["test"] for sizes in run.summary["target examples"].values())
    return {name: accuracy_estimate(value, examples) for name, value in scores.items()}
