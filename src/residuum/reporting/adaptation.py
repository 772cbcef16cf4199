"""The section of an `adapt` run: the table of strategies, and what a few examples of the target language bring."""

from __future__ import annotations

import pandas as pd

from residuum.reporting.charts import Series, line_chart, value_map
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.reporting.wording import count, listed
from residuum.storage.results import Run

COLUMNS = {
    "scores": ("strategy", "language", "seed", "k", "draw", "part", "metric", "value"),
    "means": ("strategy", "language", "k", "part", "metric", "value", "low", "high", "n"),
    "trainings": ("strategy", "language", "seed", "parameters", "parameters trained", "source dev"),
    "curves": ("strategy", "language", "seed", "step", "metric", "value"),
}
CAPTIONS = {
    "means": "Means over seeds and draws with Student's intervals; k target examples were given. One value has none.",
    "scores": "Every score: k examples of the target language, drawn anew each time.",
    "trainings": "What each training cost, and its score on the source language's development part.",
    "curves": "Scores on the source language's development part along the way.",
}
PARTS = {"test": "test part", "dev": "development part"}


def adaptation_section(run: Run, source: str = "") -> Section:
    """How well a task reached the target languages."""
    check_tables(run, source or "This run", "adaptation", "adapt", COLUMNS)
    panels = [_strategy_panel(run)]
    if run.config["few_shot"]:
        panels.append(_few_shot_panel(run))
    return Section(
        command=run.command,
        title=f"How does {run.summary['task']} reach {listed(_languages(run))}?",
        source=source,
        facts=_facts(run),
        findings=tuple(_findings(run)),
        panels=tuple(panels),
        tables=tuple(Table(name, run.tables[name], CAPTIONS[name], folded=name != "means") for name in CAPTIONS),
        config=run.config,
        environment=run.environment,
    )


def _languages(run: Run) -> list[str]:
    return list(run.config["targets"])


def _facts(run: Run) -> dict[str, str]:
    return {
        "strategies": str(len(run.config["strategies"])),
        "target languages": str(len(_languages(run))),
        "training examples": f"{run.summary['training examples']:,}",
        "seeds": str(len(run.config["seeds"])),
    }


def _findings(run: Run) -> list[Finding]:
    summary, metric = run.summary, run.summary["metric"]
    averages = summary[f"test {metric}"]
    best = max(averages, key=lambda name: averages[name])
    mean = "" if len(_languages(run)) == 1 else ", the mean over languages"
    found = [Finding("Zero-shot", f"Best on the test part is {best}: {metric} {averages[best]:.3f}{mean}.")]
    if len(averages) > 1:
        ranked = sorted(averages, key=lambda name: -averages[name])
        order = listed([f"{name} {averages[name]:.3f}" for name in ranked])
        found.append(Finding("All strategies", f"{metric} on the test part: {order}."))
    if run.config["teacher"]:
        found.append(Finding("Teacher", f"Task distillation from {run.config['teacher']['model']}."))
    if run.config["few_shot"]:
        found.append(Finding("Few-shot", _few_shot_text(run)))
    return found + [Finding("Data", f"{note}.") for note in summary["notes"]]


def _few_shot_text(run: Run) -> str:
    largest = max(run.config["few_shot"])
    gains = [
        f"{name} {_average(run, name, largest) - _average(run, name, 0):+.3f}" for name in run.config["strategies"]
    ]
    return f"{count(largest, 'example')} of the target language changed the test score by {listed(gains)}."


def _average(run: Run, strategy: str, k: int) -> float:
    """The main score on the test part, a mean over languages."""
    means = _main(run, "test")
    return float(means.loc[(means["strategy"] == strategy) & (means["k"] == k), "value"].to_numpy(dtype=float).mean())


def _main(run: Run, part: str) -> pd.DataFrame:
    means = run.tables["means"]
    return means.loc[(means["metric"] == run.summary["metric"]) & (means["part"] == part)]


def _strategy_panel(run: Run) -> Panel:
    strategies, languages = run.config["strategies"], _languages(run)
    views = []
    for part, name in PARTS.items():
        own = _main(run, part)
        table = own.loc[own["k"] == 0].pivot(index="strategy", columns="language", values="value")
        values = table.reindex(index=strategies, columns=languages).to_numpy(dtype=float).tolist()
        figure = value_map(
            values, strategies, languages, x="language", y="strategy", colours=str(run.summary["metric"])
        )
        where = {"part": part, "metric": run.summary["metric"], "k": "0"}
        views.append(View(part, name, figure, table="means", where=where))
    caption = "Zero-shot scores: trained on labels of the source language only, asked in the target language."
    return Panel("Which strategy carries the task over?", caption, tuple(views), choice="Part")


def _few_shot_panel(run: Run) -> Panel:
    own = _main(run, "test")
    views = []
    for language in _languages(run):
        rows = own.loc[own["language"] == language]
        lines = [_line(name, rows.loc[rows["strategy"] == name].sort_values("k")) for name in run.config["strategies"]]
        figure = line_chart(lines, x="examples of the target language", y=f"test {run.summary['metric']}")
        where = {"part": "test", "language": language, "metric": run.summary["metric"]}
        views.append(View(language, language, figure, table="means", where=where))
    caption = "The target student tuned on k examples, drawn several times; bands are 95 % intervals of the mean."
    return Panel("What do a few examples bring?", caption, tuple(views), choice="Language")


def _line(name: str, rows: pd.DataFrame) -> Series:
    k, value, low, high = (rows[column].tolist() for column in ("k", "value", "low", "high"))
    return Series(name, k, value, low, high)
