"""The sections of `evaluate retrieval`, `perplexity`, `correlate` and `adapted`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from residuum.errors import StoreError
from residuum.reporting.charts import frame_dots, layer_chart, lines
from residuum.reporting.content import Finding, Panel, Section, TableSpec, records, single_view, views_by
from residuum.reporting.wording import count, listed, with_interval
from residuum.storage.results import Run

RETRIEVAL_TABLES = {
    "retrieval": TableSpec(
        "Accuracy and mean reciprocal rank of every direction, score and choice of layers.",
        "pair, query, candidates, score, layers, layer, sentences, accuracy, low, high, mrr",
    ),
    "averages": TableSpec("The mean over language pairs."),
}
PERPLEXITY_TABLES = {
    "perplexity": TableSpec(
        "exp of the mean −log p of a predicted token; intervals are over lines. Only models with the same tokenizer "
        "are comparable.",
        "text, lines, tokens, loss, perplexity, low, high",
    )
}
CORRELATE_TABLES = {
    "correlations": TableSpec(
        "Correlation over models of retrieval accuracy with the downstream score; with few models intervals are wide.",
        "direction, score, layers, measure, value, low, high, p_value, runs",
    )
}
ADAPTED_TABLES = {"scores": TableSpec("Each score of the task, over all examples of the file.", "metric, value")}
SCORES = {"cosine": "cosine of mean states", "bertscore": "BERTScore"}
SCORE_NOTES = {
    "cosine": "One vector per sentence: the mean of its token states, averaged over the layers.",
    "bertscore": "Each token is matched with the most similar token of the other sentence; shared names help.",
}


def retrieval_section(run: Run) -> Section:
    """How well models align languages."""
    table = run.tables["retrieval"]
    if table.empty:
        place = run.folder or "This run"
        raise StoreError(f"{place} is empty: its table retrieval has no rows. Run `{run.command}` again with --fresh.")
    pairs = table.drop_duplicates("pair")
    best = table.loc[table.groupby("pair", sort=False)["accuracy"].idxmax()]
    findings = [
        Finding(
            str(row["pair"]),
            f"Retrieval accuracy is {with_interval(row['accuracy'], row['low'], row['high'])} over "
            f"{count(int(row['sentences']), 'sentence')} ({row['query']} → {row['candidates']}, "
            f"{_layers_text(row['layers'])}, {SCORES.get(row['score'], row['score'])}), the best of "
            f"{(table['pair'] == row['pair']).sum()} measurements; chance is {1 / row['sentences']:.3f}.",
        )
        for row in records(best)
    ]
    return Section(
        title=f"How often do {listed(run.summary.get('models', ['this model']))} find a sentence's translation?"
        if len(run.summary.get("models", ())) > 1
        else f"How often does {listed(run.summary.get('models', ['this model']))} find a sentence's translation?",
        facts={
            "best accuracy": f"{table['accuracy'].max():.3f}",
            "language pairs": len(pairs),
            "sentence pairs": sum(pairs["sentences"].tolist()),
        },
        findings=findings,
        panels=_retrieval_panels(table),
    )


def _layers_text(layers: object) -> str:
    """`layer 2`, `all layers`, `layers 1,3`."""
    text = str(layers)
    return "all layers" if text == "all" else f"layer{'' if text.isdigit() else 's'} {text}"


def _retrieval_panels(table: pd.DataFrame) -> Iterator[Panel]:
    """A curve over layers where several were used alone, and dots for combined layers."""

    def curves(rows: pd.DataFrame) -> go.Figure:
        named = rows.assign(direction=rows["query"] + " → " + rows["candidates"])
        return layer_chart(lines(named, "layer", "accuracy", "direction"), y="accuracy")

    def dots(rows: pd.DataFrame) -> go.Figure:
        names = [f"{row['query']} → {row['candidates']}, {_layers_text(row['layers'])}" for row in records(rows)]
        return frame_dots(rows, names, "accuracy", x="accuracy")

    words: dict[str, Any] = {
        "label": lambda score: SCORES.get(score, str(score)),
        "note": lambda score: SCORE_NOTES.get(score, ""),
    }
    single = table.loc[table["layer"].notna()]
    combined = table.loc[table["layer"].isna()]
    measured = "How often a sentence's translation is the nearest of all sentences of the other language"
    if single["layer"].nunique() < 2:
        single, combined = single.iloc[:0], table
    if len(single):
        yield Panel(
            "Retrieval accuracy of each layer",
            f"{measured}, with each layer alone. Layer 0 is the embeddings.",
            views_by("score", single, "retrieval", curves, having=("layer",), **words),
            choice="Score",
        )
    if len(combined):
        layers = {"layers": tuple(combined["layers"].unique())}
        yield Panel(
            "Retrieval accuracy by choice of layers",
            f"{measured}, with the layers of each choice combined.",
            views_by("score", combined, "retrieval", dots, where=layers, **words),
            choice="Score",
        )


def perplexity_section(run: Run) -> Section:
    """How well a model predicts some texts."""
    table = run.tables["perplexity"]
    figure = frame_dots(table, table["text"].astype(str).tolist(), "perplexity", x="perplexity")
    return Section(
        title=f"How well does {run.summary['model']} predict text?",
        facts={"texts": len(table), "tokens predicted": sum(table["tokens"].tolist())},
        findings=[
            Finding(str(row["text"]), f"Perplexity {with_interval(row['perplexity'], row['low'], row['high'], '.4g')}.")
            for row in records(table)
        ],
        panels=[
            Panel(
                "Perplexity of each text",
                PERPLEXITY_TABLES["perplexity"].caption,
                single_view(figure, "perplexity"),
            )
        ],
    )


def correlation_section(run: Run) -> Section:
    """Whether alignment correlates with downstream scores."""
    table = run.tables["correlations"]
    clear = sum(low > 0 or high < 0 for low, high in zip(table["low"], table["high"], strict=True))

    def draw(rows: pd.DataFrame) -> go.Figure:
        names = [f"{row['direction']}, {row['score']}, layers {row['layers']}" for row in records(rows)]
        return frame_dots(rows, names, "value", x="correlation", bound=0.0)

    return Section(
        title="Does alignment correlate with downstream scores?",
        facts={"models": run.summary["models"]},
        findings=[Finding("Correlation", f"{clear} of {len(table)} correlations have an interval that excludes 0.")],
        panels=[
            Panel(
                "Alignment and downstream scores",
                CORRELATE_TABLES["correlations"].caption,
                views_by("measure", table, "correlations", draw, label=lambda measure: str(measure).capitalize()),
            )
        ],
    )


def adapted_section(run: Run) -> Section:
    """The scores of an adapted student on another file."""
    table, examples = run.tables["scores"], run.summary["examples"]
    figure = frame_dots(table, table["metric"].astype(str).tolist(), "value", x="score")
    return Section(
        title=f"How well does the student solve {run.summary['task']}?",
        facts={"examples": examples},
        findings=[
            Finding(str(row["metric"]), f"{row['value']:.3f} over {count(examples, 'example')}.")
            for row in records(table)
        ],
        panels=[Panel("Scores", ADAPTED_TABLES["scores"].caption, single_view(figure, "scores"))],
    )
