"""The sections of `pretrain`, `finetune`, `distill` and `adapt`: how losses fell, and which scores were reached."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from residuum.reporting.charts import Series, level, line_chart, lines, square, value_map
from residuum.reporting.content import Finding, Panel, Row, Section, TableSpec, View, records, single_view, views_by
from residuum.reporting.wording import count, listed, short_name
from residuum.storage.results import Run

PRETRAIN_TABLES = {
    "pairs": TableSpec(
        "Translations that were read, and what was left out; excluded: a side occurs in a retrieval set.",
        "name, languages, read, kept, excluded",
    ),
    "scores": TableSpec(
        "Perplexity on held-out sentences; retrieval is the share of sentences that find their translation.",
        "step, score, subject, layer, value",
    ),
    "history": TableSpec(
        "The training log, averaged between rows; one column per objective.", "step, loss, learning_rate, tokens"
    ),
}
FINETUNE_TABLES = {
    "scores": TableSpec(
        "The checkpoint with the best development score per seed. The test part was not used to choose it.",
        "seed, part, metric, value",
    ),
    "curves": TableSpec("Scores on the development part during training.", "seed, step, epoch, metric, value"),
    "history": TableSpec("The training log, averaged between rows.", "seed, step, epoch, loss, learning_rate"),
}
DISTILL_TABLES = {
    "scores": TableSpec(
        "Perplexity on held-out lines by student and language; retrieval is the share of sentences that find their "
        "translation.",
        "step, score, subject, value",
    ),
    "parameters": TableSpec(
        "Distinct parameters; what students share is counted once in the total.", "part, parameters"
    ),
    "losses": TableSpec(
        "Every term of the loss, unweighted, per student and language; a mean over the steps between rows.",
        "step, student, language, term, value",
    ),
}
ADAPT_TABLES = {
    "means": TableSpec(
        "Means over seeds and draws with Student's t intervals, for k target examples. A single value has no interval.",
        "strategy, language, k, part, metric, value, low, high, n",
    ),
    "scores": TableSpec(
        "Every score, with k examples of the target language chosen at random each time.",
        "strategy, language, seed, k, draw, part, metric, value",
    ),
    "trainings": TableSpec(
        "Parameters of each training, and its score on the source language's development part.",
        "strategy, language, seed, parameters, parameters trained, source dev",
    ),
    "curves": TableSpec(
        "Scores on the source language's development part during training.",
        "strategy, language, seed, step, metric, value",
    ),
}
NO_LOSS = ("step", "learning_rate", "gradient_norm", "tokens", "seconds")
FIRST_TERMS = ("loss", "learning_rate")
PARTS = {"test": "test part", "dev": "development part"}


def pretraining_section(run: Run) -> Section:
    """How a model was trained."""
    history, scores = run.tables["history"], run.tables["scores"]
    losses = []
    for name in (str(name) for name in history if name not in NO_LOSS):
        figure = line_chart(lines(history.loc[history[name].notna()], "step", name), x="step", y=name)
        losses.append(View(name, name, figure, "history", having=(name,)))
    panels = [
        Panel(
            "Training loss",
            "The loss of each objective, a mean over its batches between points; `loss` is the mean over all batches.",
            tuple(losses),
            first="loss",
            choice="Objective",
        )
    ]
    views = []  # one line per layer where the score is of a layer
    for score, subject in dict.fromkeys(zip(scores["score"], scores["subject"], strict=True)):
        rows = scores.loc[(scores["score"] == score) & (scores["subject"] == subject)]
        names = [f"layer {layer}" if layer >= 0 else str(subject) for layer in rows["layer"]]
        ordered = rows.assign(name=names).sort_values("layer", kind="stable")
        figure = line_chart(lines(ordered, "step", "value", "name"), x="step", y=str(score))
        name, where = f"{score} {subject}", {"score": str(score), "subject": str(subject)}
        views.append(View(name, name, figure, "scores", where))
    if views:
        caption = PRETRAIN_TABLES["scores"].caption
        panels.append(Panel("Scores during training", caption, tuple(views), choice="Score"))
    return Section(
        title=f"How did {run.config['settings']['name']} learn?",
        facts={name: run.summary[name] for name in ("parameters", "steps", "tokens")},
        findings=_pretraining_findings(run, scores),
        panels=panels,
    )


def _pretraining_findings(run: Run, scores: pd.DataFrame) -> Iterator[Finding]:
    last = records(scores.loc[scores["step"] == scores["step"].max()])
    if perplexities := [f"{row['subject']} {row['value']:.1f}" for row in last if row["score"] == "perplexity"]:
        yield Finding("Perplexity", f"On held-out sentences after training: {listed(perplexities)}.")
    best: dict[str, Row] = {}
    for row in last:
        if row["score"] == "retrieval" and row["value"] > best.get(row["subject"], {"value": -1})["value"]:
            best[row["subject"]] = row
    if best:
        parts = listed([f"{name} {row['value']:.3f} (layer {row['layer']})" for name, row in best.items()])
        yield Finding("Retrieval", f"Translation retrieval by the best layer after training: {parts}.")
    if excluded := run.summary["pairs excluded"]:
        text = f"{count(excluded, 'training pair')} occurred in a retrieval set and were excluded from training."
        yield Finding("Held out", text)


def finetuning_section(run: Run) -> Section:
    """What a model learnt about a task."""
    summary, metric = run.summary, run.summary["metric"]
    curves, history = run.tables["curves"], run.tables["history"]
    panels = [
        Panel(
            "Score during training",
            "The score on the development part during training; the best checkpoint was kept.",
            views_by(
                "metric",
                curves,
                "curves",
                lambda rows: line_chart(
                    _seed_lines(rows, "value"), x="epoch", y=f"development {rows['metric'].iloc[0]}"
                ),
            ),
            first=str(metric),
            choice="Score",
        ),
        Panel(
            "Training loss",
            "The loss on the training part, a mean over the steps between points.",
            single_view(line_chart(_seed_lines(history, "loss"), x="epoch", y="training loss"), "history"),
        ),
    ]
    return Section(
        title=f"What did {short_name(run.config['model'])} learn about {summary['task']}?",
        facts={
            f"test {metric}": f"{summary[f'test {metric}']:.3f}",
            "layers": summary["layers"],
            "parameters trained": summary["parameters trained"],
            "training examples": summary["examples"]["train"],
            "seeds": len(run.config["seeds"]),
        },
        findings=_finetuning_findings(run, metric),
        panels=panels,
    )


def _finetuning_findings(run: Run, metric: str) -> Iterator[Finding]:
    summary, config = run.summary, run.config
    text = f"{metric} is {summary[f'test {metric}']:.3f} on the test part and {summary[f'dev {metric}']:.3f} on the "
    text += "development part"
    if (deviation := summary.get(f"test {metric} deviation")) is not None:
        text += (
            f" (means of {count(len(config['seeds']), 'seed')}; standard deviation {deviation:.3f} on the test part)"
        )
    constant = "the mean" if summary["kind"] == "regression" else "the majority label"
    text += f"; {constant} as a constant answer has {summary[f'test {metric} baseline']:.3f}"
    yield Finding("Score", f"{text}.")
    changes = [f"layers {config['drop']} were dropped"] if config["drop"] else []
    if config["freeze"]:
        changes.append(f"{config['freeze']} were frozen (computed once: {summary['frozen bottom']})")
    if changes:
        yield Finding("Changes", f"Before training, {listed(changes)}.")
    if cut := sum(summary["cut short"].values()):
        yield Finding("Length", f"{count(cut, 'sentence')} exceeded the model's length limit and were truncated.")


def _seed_lines(frame: pd.DataFrame, column: str) -> list[Series]:
    named = frame.sort_values("seed", kind="stable").assign(seed=lambda rows: "seed " + rows["seed"].astype(str))
    return lines(named, "epoch", column, "seed", bounds=None)


def distillation_section(run: Run) -> Section:
    """What the students of a teacher learnt."""
    summary, losses, scores = run.summary, run.tables["losses"], run.tables["scores"]
    names = (losses["student"] + "/" + losses["language"]).str.strip("/").replace("", "all students")
    order = sorted(losses["term"].unique(), key=lambda term: (term not in FIRST_TERMS, term))
    ordered = pd.concat([losses.assign(name=names).loc[losses["term"] == term] for term in order])
    panels = [
        Panel(
            "Training loss",
            "Each term of the loss before weighting; `loss` is the weighted sum that was minimised.",
            views_by(
                "term",
                ordered,
                "losses",
                lambda rows: line_chart(
                    lines(rows, "step", "value", "name", bounds=None), x="step", y=str(rows["term"].iloc[0])
                ),
            ),
            first="loss",
            choice="Term",
        )
    ]
    if len(scores):
        named = scores.assign(name=scores["subject"].map(_subject))
        teacher = summary.get("teacher scores", {})
        views = views_by("score", named, "scores", lambda rows: _beside_teacher(rows, teacher))
        panels.append(Panel("Scores of the students", DISTILL_TABLES["scores"].caption, views, choice="Score"))
    findings, total = [], summary["parameters of all students"]
    for kind in ("perplexity", "retrieval"):
        values = {name.partition(" ")[2]: value for name, value in summary.items() if name.startswith(f"{kind} ")}
        teacher = summary.get("teacher scores", {})
        if values:
            form = ",.1f" if kind == "perplexity" else ".3f"
            known = {s: f" (teacher {teacher[f'{kind} {s}']:{form}})" for s in values if f"{kind} {s}" in teacher}
            parts = [f"{_subject(name)} {value:{form}}{known.get(name, '')}" for name, value in values.items()]
            findings.append(Finding(kind.capitalize(), f"On held-out text after training: {listed(parts)}."))
    weights = listed([f"{term} {weight:.3g}" for term, weight in summary["weights"].items()])
    recipe = f"{run.config['preset'] or 'Custom weights'} with the recipe {run.config['recipe']}"
    mapped = ", ".join(f"{student} ← {teacher}" for student, teacher in summary["layer map"].items())
    findings.append(Finding("Weights of the loss", f"{recipe}: {weights}.", minor=True))
    findings.append(Finding("Layers", f"Student layer ← teacher layer: {mapped}.", minor=True))
    return Section(
        title=f"What did the students of {summary['teacher']} learn?",
        facts={
            "of the teacher's parameters": f"{total / summary['teacher parameters']:.0%}",
            "students": len(summary["students"]),
            "parameters of all": total,
            "steps": summary["steps"],
        },
        findings=findings,
        panels=panels,
    )


def _subject(name: str) -> str:
    """A student and the language that it was scored on, once where both have one name."""
    student, _, language = name.partition("/")
    return student if language in ("", student) else f"{student} on {language}"


def _beside_teacher(scores: pd.DataFrame, teacher: Mapping[str, float]) -> go.Figure:
    """The scores of the students during training, with a level line of the teacher's for each."""
    kind = str(scores["score"].iloc[0])
    known = {subject: f"{kind} {subject}" for subject in dict.fromkeys(scores["subject"])}
    levels = [
        level(f"teacher, {_subject(subject)}", scores["step"], teacher[name])
        for subject, name in known.items()
        if name in teacher
    ]
    return line_chart([*lines(scores, "step", "value", "name", bounds=None), *levels], x="step", y=kind)


def adaptation_section(run: Run) -> Section:
    """How well a task transfers to the target languages."""
    languages, metric = list(run.config["targets"]), run.summary["metric"]
    averages = run.summary[f"test {metric}"]
    ranked = sorted(averages, key=lambda name: -averages[name])
    mean = "" if len(languages) == 1 else ", averaged over languages"
    best = f"The best strategy on the test part is {ranked[0]}: {metric} {averages[ranked[0]]:.3f}{mean}."
    findings = [Finding("Zero-shot", best)]
    if len(averages) > 1:
        order = listed([f"{name} {averages[name]:.3f}" for name in ranked])
        findings.append(Finding("All strategies", f"{metric} on the test part: {order}."))
    if (baseline := run.summary.get(f"test {metric} baseline")) is not None:
        constant = "the mean" if run.summary["kind"] == "regression" else "the most frequent training label"
        findings.append(Finding("Baseline", f"Always answering {constant} has a test {metric} of {baseline:.3f}."))
    if run.config["teacher"]:
        findings.append(Finding("Teacher", f"Task distillation from {run.config['teacher']['model']}."))
    if run.config["few_shot"]:
        most, means = max(run.config["few_shot"]), _main_scores(run, "test")
        score = {key: float(np.mean(own["value"])) for key, own in means.groupby(["strategy", "k"])}
        gains = [f"{name} {score[name, most] - score[name, 0]:+.3f}" for name in run.config["strategies"]]
        text = f"{count(most, 'example')} of the target language changed the test score by {listed(gains)}."
        findings.append(Finding("Few-shot", text))
    return Section(
        title=f"How well does {run.summary['task']} transfer to {listed(languages)}?",
        facts={
            "strategies": len(run.config["strategies"]),
            "target languages": len(languages),
            "training examples": run.summary["training examples"],
            "seeds": len(run.config["seeds"]),
        },
        findings=findings,
        panels=_adaptation_panels(run, languages),
    )


def _main_scores(run: Run, part: str) -> pd.DataFrame:
    means = run.tables["means"]
    return means.loc[(means["metric"] == run.summary["metric"]) & (means["part"] == part)]


def _adaptation_panels(run: Run, languages: list[str]) -> Iterator[Panel]:
    strategies, metric = run.config["strategies"], str(run.summary["metric"])
    views = []
    for part, name in PARTS.items():
        rows = _main_scores(run, part)
        table = square(rows.loc[rows["k"] == 0], "strategy", "language", "value")
        figure = value_map(
            table.reindex(index=strategies, columns=languages), x="language", y="strategy", colours=metric
        )
        views.append(View(part, name, figure, "means", {"part": part, "metric": metric, "k": "0"}))
    yield Panel(
        "Zero-shot score of each strategy",
        "Trained on labels of the source language only, tested in the target language.",
        tuple(views),
        choice="Part",
    )
    if run.config["few_shot"]:
        rows, x = _main_scores(run, "test"), "examples of the target language"
        yield Panel(
            "Score with a few examples",
            "The target student fine-tuned on k examples, chosen at random several times; bands are 95 % intervals of "
            "the mean.",
            views_by(
                "language",
                rows.loc[rows["strategy"].isin(strategies)],
                "means",
                lambda own: line_chart(lines(own, "k", "value", "strategy"), x=x, y=f"test {metric}"),
                where={"part": "test", "metric": metric},
            ),
            choice="Language",
        )
