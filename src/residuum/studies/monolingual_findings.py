"""What the findings on monolingual students come to in numbers: each function gives one number for every case."""

from __future__ import annotations

import pandas as pd

from residuum.results import Run
from residuum.studies.declarations import Results
from residuum.studies.verdicts import Measured

SUBSETS = ("uniform", "bottom", "top")
START, WITHOUT_START = "monoshot", "monoshot-without-teacher-start"


def middle_layers_align_best(results: Results) -> Measured | None:
    """Accuracy of the best layer of the middle third less that of the best of the others, by each score."""
    ((_, run),) = results.of("retrieval")
    table = run.tables["averages"]
    single = table.loc[table["layer"].notna() & (table["direction"] == "forward")]
    values = []
    for _, own in single.groupby("score", sort=False):
        depth = own["layer"].astype(float) / float(own["layer"].max())
        middle = (depth > 1 / 3) & (depth <= 2 / 3)
        values.append(max(own.loc[middle, "accuracy"].tolist()) - max(own.loc[~middle, "accuracy"].tolist()))
    return Measured.of(values)


def cosine_beats_bertscore(results: Results) -> Measured | None:
    """Accuracy by cosine less that by BERTScore, over all layers of the teacher, for each pair of languages."""
    ((_, run),) = results.of("retrieval")
    own = _whole(run).pivot(index="pair", columns="score", values="accuracy")
    return Measured.of((own["cosine"] - own["bertscore"]).tolist())


def monoalignment_beats_the_teacher(results: Results) -> Measured | None:
    """Accuracy of the students by BERTScore less the teacher's, for each pair of languages."""
    ((_, teacher),) = results.of("retrieval")
    before = _by_bertscore(teacher)
    after = {pair: value for _, run in results.of("aligned") for pair, value in _by_bertscore(run).items()}
    return Measured.of([after[pair] - before[pair] for pair in after])


def monoshot_beats_layer_subsets(results: Results) -> Measured | None:
    """Zero-shot score of MonoShot less that of the best subset of layers, for each task."""
    return Measured.of([own["monoshot"] - max(own[name] for name in SUBSETS) for own in _zero_shot(results)])


def teacher_beats_monoshot(results: Results) -> Measured | None:
    """Zero-shot score of the teacher less that of MonoShot, for each task."""
    return Measured.of([own["teacher"] - own["monoshot"] for own in _zero_shot(results)])


def bottom_layers_are_the_best_subset(results: Results) -> Measured | None:
    """Zero-shot score of the bottom layers less that of the better of the other subsets, for each task."""
    return Measured.of([own["bottom"] - max(own["uniform"], own["top"]) for own in _zero_shot(results)])


def full_target_is_best(results: Results) -> Measured | None:
    """Zero-shot score of `full-target` less that of the best other strategy, for each task."""
    values = []
    for _, run in results.of("adapt", variant="monoshot"):
        scores = dict(run.summary[f"test {run.summary['metric']}"])
        values.append(scores.pop("full-target") - max(scores.values()))
    return Measured.of(values)


def teacher_start_helps(results: Results) -> Measured | None:
    """Perplexity of students that start at random as a multiple of that of the others, for each student."""
    ((_, run),) = results.of("losses")
    table = run.tables["scores"]
    own = table.loc[table["score"] == "perplexity"].pivot(index="subject", columns="row", values="value")
    return Measured.of((own[WITHOUT_START] / own[START]).tolist())


def _whole(run: Run) -> pd.DataFrame:
    table = run.tables["retrieval"]
    return table.loc[(table["layers"] == "all") & (table["direction"] == "forward")]


def _by_bertscore(run: Run) -> dict[str, float]:
    own = _whole(run)
    rows = own.loc[own["score"] == "bertscore"]
    return dict(zip(rows["pair"], rows["accuracy"], strict=True))


def _zero_shot(results: Results) -> list[dict[str, float]]:
    """For each task, the test score of `full-target` by variant, a mean over languages."""
    found: dict[str, dict[str, float]] = {}
    for step, run in results.of("adapt"):
        score = run.summary[f"test {run.summary['metric']}"]["full-target"]
        found.setdefault(step.task, {})[step.variant] = float(score)
    return list(found.values())
