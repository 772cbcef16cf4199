"""The sections of `study`: every claim of the paper beside our numbers, and several distillations side by side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from residuum.reporting.charts import (
    chart_grid,
    frame_dots,
    interval_chart,
    line_chart,
    lines,
    square,
    stacked_bars,
    value_map,
    word_picture,
)
from residuum.reporting.content import Finding, Panel, Row, Section, SectionTable, TableSpec, View, records, views_by
from residuum.reporting.similarity import heatmap
from residuum.reporting.wording import CONFIDENCE, claim_text, count, curve_term, listed
from residuum.storage.results import Run

STUDY_TABLES = {
    "findings": TableSpec(
        "`ours` is the mean of the quantity over cases (a model, or a model and a task); low and high cover the "
        "intervals of all cases. A claim holds where that interval lies on its side of the bound, does not hold "
        "where it lies on the other side, and is inconclusive where it contains the bound. The paper's number is "
        "given only for its own models and data.",
        "where, finding, quantity, document, ours, low, high, rule, bound, cases, verdict, note",
    ),
    "cases": TableSpec(
        "Every number behind the verdicts. A number that was counted, not sampled, is its own interval.",
        "where, finding, case, value, low, high, agrees",
    ),
    "trained": TableSpec(
        "Every fine-tuned model on the test part of its task, means over seeds; left_out and frozen name the layers "
        "that were dropped before training or not trained. majority is the accuracy of the majority label."
    ),
    "exhibits": TableSpec(
        "The document's tables and figures in order. `table` names ours, with CSV and parquet in the folder; one "
        "without rows cannot be made from these models, data or steps.",
        "document, shows, table, rows, steps, shape, x, y, by, panel",
    ),
    "steps": TableSpec("What was run, in order; each step has a folder of that name.", "step, title, command, seconds"),
}
ROW_TABLES = {
    "scores": TableSpec(
        "The last scores of each distillation; all had the same steps, texts and teacher.",
        "row, score, subject, value, parameters",
    )
}
AXES = {"layer_a": "layer", "layer_b": "layer", "value": "CKA", "redundant": "redundant (1)"}  # columns, for people
LOWER_IS_BETTER = ("perplexity",)
VERDICTS = {
    "holds": ("holds", "hold"),
    "does not hold": ("does not hold", "do not hold"),
    "inconclusive": ("is inconclusive", "are inconclusive"),
    "not measured": ("was not measured", "were not measured"),
}
"""Verdicts in the order of the page, in the singular and the plural."""
DECIDED = ("holds", "does not hold")
TILES = {"holds": "claims hold", "does not hold": "claims do not hold"}
LABEL_LENGTH = 70  # characters of a claim in the list of views


def study_section(run: Run) -> Section:
    """Which claims of a paper hold."""
    claims = run.tables["findings"]
    verdicts = Counter(claims["verdict"].tolist())
    models = listed(list(run.config["models"]))
    overview = (
        f"{run.summary['source']}. Of {count(len(claims), 'claim')}, {_counts_text(verdicts)}, with {models} "
        f"(--scale {run.config['scale']})."
    )
    findings = [Finding("Study", overview)]
    for row in records(claims):
        verdict = str(row["verdict"])
        findings.append(Finding(str(row["where"]), claim_text(row), verdict, minor=verdict not in DECIDED))
    reached = [verdict for verdict in VERDICTS if verdicts[verdict] or verdict != "not measured"]
    facts = {TILES.get(verdict, verdict): verdicts[verdict] for verdict in reached}
    return Section(
        title=str(run.summary["title"]),
        facts={**facts, "steps": run.summary["steps"]},
        findings=findings,
        panels=_study_panels(run),
        tables=tuple(
            SectionTable(row["table"], run.tables[row["table"]], f"{row['document']}: {row['shows']}.")
            for row in records(run.tables["exhibits"])
            if row["table"] in run.tables
        ),
    )


def study_overview(sections: Sequence[Section]) -> str:
    """How many claims of the studies hold, in one sentence; empty where there is none."""
    studies = [section for section in sections if section.command == "study"]
    if len(studies) < 2:
        return "".join(finding.text for study in studies for finding in list(study.findings)[:1])
    verdicts = Counter(finding.verdict for section in studies for finding in section.findings if finding.verdict)
    total = count(sum(verdicts.values()), "claim")
    return f"{len(studies)} studies tested {total} from the papers: {_counts_text(verdicts)}."


def _counts_text(verdicts: Counter[str]) -> str:
    """`4 hold, 1 does not hold and 2 are inconclusive`."""
    names = [*VERDICTS, *(name for name in verdicts if name not in VERDICTS)]
    numbers = {name: verdicts[name] for name in names if verdicts[name]}
    return listed([f"{n} {VERDICTS.get(name, (name, name))[n != 1]}" for name, n in numbers.items()])


def exhibit_panels(run: Run) -> Iterator[Panel]:
    """Every figure of the document under its own number, drawn from its table."""
    for row in records(run.tables["exhibits"]):
        if not row["shape"] or row["table"] not in run.tables:
            continue
        frame = run.tables[row["table"]]
        panels = tuple(filter(None, str(row["panel"]).split(",")))  # columns: one chart per value
        title = f"{row['document']}: {row['shows']}"
        if row["shape"] == "heatmaps":
            groups = frame.groupby([name for name in ("model", "measure") if name in frame], sort=False)
            views = [(_key_text(key, " "), rows, heatmap(rows, str(rows["measure"].iloc[0]))) for key, rows in groups]
        elif row["shape"] == "words":
            views = [("cluster", frame, word_picture(frame))]
        else:
            several = len(panels) > 1  # such as model and family: one grid per value of the first
            groups = frame.groupby(panels[0], sort=False) if several else [("all", frame)]
            views = []
            for key, rows in groups:
                beside = rows.groupby(list(panels[several:]), sort=False) if panels[several:] else [((), rows)]
                charts = {_key_text(name): _chart(part, row) for name, part in beside}
                views.append((str(key), rows, chart_grid(charts)))
        named = [name.removeprefix("step ") for name in panels if name != "panel"]
        caption = f"One panel per {' and '.join(named)}." if named else "All models." if not panels else ""
        drawn = tuple(View(key, key, figure, row["table"], points=rows) for key, rows, figure in views)
        yield Panel(title, caption, drawn, choice="View", shape="square" if row["shape"] == "heatmaps" else "wide")


def _key_text(key: object, joint: str = ", ") -> str:
    """The values of a group as one name."""
    return joint.join(map(str, key)) if isinstance(key, tuple) else str(key)


def _chart(rows: pd.DataFrame, row: Row) -> go.Figure:
    x, y, by = str(row["x"]), str(row["y"]), str(row["by"])
    if row["shape"] == "maps":
        return value_map(square(rows, y, x, by), x=AXES.get(x, x), y=AXES.get(y, y), colours=AXES.get(by, by))
    if row["shape"] == "bars":
        return stacked_bars(rows, x, y, by, x_title=x, y_title=y)
    if not pd.api.types.is_numeric_dtype(rows[x]):
        return frame_dots(rows, [f"{name}, {place}" for name, place in zip(rows[by], rows[x], strict=True)], y, x=y)
    curves = set(map(str, rows["curve"])) if y == "value" and "curve" in rows else set()
    title = curve_term(curves.pop()).axis or y if len(curves) == 1 else y
    return line_chart(lines(rows, x, y, by), x=x, y=title)


def _study_panels(run: Run) -> Iterator[Panel]:
    def trained(rows: pd.DataFrame) -> go.Figure:
        names = []
        for row in records(rows):
            changes = [
                f"without {row['left_out']}" if row["left_out"] else "",
                f"frozen {row['frozen']}" if row["frozen"] else "",
            ]
            names.append(", ".join(filter(None, (row["model"], *changes))))
        majority, metric = float(rows["majority"].iloc[0]), str(rows["metric"].iloc[0])
        bound = None if np.isnan(majority) or metric != "accuracy" else majority
        return frame_dots(rows, names, "score", x=metric.replace("_", " "), bound=bound)

    cases = run.tables["cases"]
    claims = run.tables["findings"].drop_duplicates(subset=["where", "finding"])
    views = []
    for place, row in enumerate(records(claims), start=1):
        own = cases.loc[(cases["where"] == row["where"]) & (cases["finding"] == row["finding"])]
        if own.empty:
            continue
        figure = frame_dots(
            own, own["case"].astype(str).tolist(), "value", x=f"value (claim: {row['rule']})", bound=float(row["bound"])
        )
        label = f"{row['where']}: {row['finding']}"
        label = label if len(label) <= LABEL_LENGTH else f"{label[: LABEL_LENGTH - 1].rstrip()}…"
        where = {"where": row["where"], "finding": row["finding"]}
        note = f"{row['finding']} The value: {row['quantity']}. Verdict: {row['verdict']}."
        views.append(View(f"claim {place}", label, figure, "cases", where, note=note))
    caption = f"One dot per case with its {CONFIDENCE} interval; the dashed line is the bound of the claim."
    yield Panel("Every claim, case by case", caption, tuple(views), choice="Claim")
    if "trained" in run.tables:
        yield Panel(
            "Score of every fine-tuned model",
            "The score on the test part, with all layers, with some dropped and with some frozen. The dashed line is "
            f"the accuracy of the majority label; lines through dots are {CONFIDENCE} intervals of accuracies.",
            views_by("task", run.tables["trained"], "trained", trained, prefix="task "),
            choice="Task",
        )
    yield from exhibit_panels(run)


def distillation_rows_section(run: Run) -> Section:
    """Which way of distilling works best: means over students and languages, the best first."""
    scores = run.tables["scores"]
    findings, views = [], []
    for score, own in scores.groupby("score", sort=False):
        values = {str(row): rows["value"].tolist() for row, rows in own.groupby("row", sort=False)}
        means = {row: math.fsum(numbers) / len(numbers) for row, numbers in values.items()}
        means = dict(sorted(means.items(), key=lambda item: item[1], reverse=score not in LOWER_IS_BETTER))
        order = ", ".join(f"{row} {value:.4g}" for row, value in means.items())
        text = f"From best to worst of {count(len(means), 'distillation')}: {order}."
        findings.append(Finding(str(score).capitalize(), text))
        points = pd.DataFrame({"row": list(means), "mean": list(means.values())})
        figure = interval_chart(list(means), list(means.values()), x=str(score))
        views.append(View(str(score), str(score), figure, "scores", {"score": str(score)}, points=points))
    caption = f"{ROW_TABLES['scores'].caption} One dot is a mean over students."
    return Section(
        title="What does each part of the distillation contribute?",
        facts={"distillations": scores["row"].nunique(), "scores": ", ".join(scores["score"].astype(str).unique())},
        findings=findings,
        panels=[Panel("Distillations side by side", caption, tuple(views), choice="Score")],
    )
