"""The section of a `finetune` run: how the loss fell, how the score rose, and where it ended."""

from __future__ import annotations

from typing import Any

import pandas as pd

from residuum.reporting.charts import Series, line_chart
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.reporting.wording import count, listed
from residuum.storage.results import Run

COLUMNS = {
    "scores": ("seed", "part", "metric", "value"),
    "curves": ("seed", "step", "epoch", "metric", "value"),
    "history": ("seed", "step", "epoch", "loss", "learning_rate"),
}
CAPTIONS = {
    "scores": "The checkpoint with the best development score of each seed. The test part chose nothing.",
    "curves": "Scores on the development part along the way.",
    "history": "What the training loop wrote down, averaged between rows.",
}


def finetuning_section(run: Run, source: str = "") -> Section:
    """What a model became when it learnt a task."""
    check_tables(run, source or "This run", "fine-tuning", "finetune", COLUMNS)
    return Section(
        command=run.command,
        title=f"What did {_model(run)} learn of {run.summary['task']}?",
        source=source,
        facts=_facts(run),
        findings=tuple(_findings(run)),
        panels=(_score_panel(run), _loss_panel(run.tables["history"])),
        tables=tuple(
            Table(name, frame, CAPTIONS.get(name, ""), folded=name != "scores") for name, frame in run.tables.items()
        ),
        config=run.config,
        environment=run.environment,
    )


def _model(run: Run) -> str:
    return str(run.config["model"]).rstrip("/").rsplit("/", 1)[-1]


def _facts(run: Run) -> dict[str, str]:
    summary = run.summary
    score = f"test {summary['metric']}"
    return {
        score: f"{summary[score]:.3f}",
        "layers": str(summary["layers"]),
        "parameters trained": f"{summary['parameters trained']:,}",
        "training examples": f"{summary['examples']['train']:,}",
        "seeds": str(len(run.config["seeds"])),
    }


def _findings(run: Run) -> list[Finding]:
    summary, config = run.summary, run.config
    found = [Finding("Score", _score_text(run))]
    if config["drop"] or config["freeze"]:
        changes = [f"layers {config['drop']} were dropped"] * bool(config["drop"])
        changes += [f"{config['freeze']} stayed frozen (computed once: {summary['frozen bottom']})"] * bool(
            config["freeze"]
        )
        found.append(Finding("Changes", f"Before training {listed(changes)}."))
    if cut := sum(summary["cut short"].values()):
        found.append(Finding("Length", f"{count(cut, 'sentence')} could not be read whole."))
    return found + [Finding("Data", f"{note}.") for note in summary["notes"]]


def _score_text(run: Run) -> str:
    summary, metric = run.summary, run.summary["metric"]
    text = f"{metric} is {summary[f'test {metric}']:.3f} on the test part and {summary[f'dev {metric}']:.3f} on the "
    text += "development part"
    if (deviation := summary.get(f"test {metric} deviation")) is not None:
        text += f" (means of {count(len(run.config['seeds']), 'seed')}; standard deviation {deviation:.3f} on test)"
    if (baseline := summary.get("test majority accuracy")) is not None:
        text += f"; always answering the most frequent label has accuracy {baseline:.3f}"
    return text + "."


def _score_panel(run: Run) -> Panel:
    curves = run.tables["curves"]
    views = tuple(
        View(
            key=metric,
            label=metric,
            figure=line_chart(_lines(rows, "value"), x="epoch", y=f"development {metric}"),
            table="curves",
            where={"metric": metric},
        )
        for metric, rows in ((str(m), curves.loc[curves["metric"] == m]) for m in curves["metric"].unique())
    )
    caption = "The score on the development part after each stretch of training; the best checkpoint was kept."
    return Panel("How the score rose", caption, views, first=str(run.summary["metric"]), choice="Score")


def _loss_panel(history: pd.DataFrame) -> Panel:
    view = View("loss", "loss", line_chart(_lines(history, "loss"), x="epoch", y="training loss"), table="history")
    return Panel("How the loss fell", "The loss on the training part, a mean over the steps between points.", (view,))


def _lines(frame: pd.DataFrame, column: str) -> list[Series]:
    groups: list[tuple[Any, pd.DataFrame]] = list(frame.groupby("seed", sort=True))
    return [Series(f"seed {seed}", own["epoch"].tolist(), own[column].tolist()) for seed, own in groups]
