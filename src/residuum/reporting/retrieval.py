"""The section of an `evaluate retrieval` run: accuracy over layers, and the table of pairs of languages."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from residuum.errors import StoreError
from residuum.reporting.charts import Series, interval_chart, line_chart
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.reporting.wording import count, interval, listed
from residuum.storage.results import Run

COLUMNS = ("pair", "query", "candidates", "score", "layers", "layer", "sentences", "accuracy", "low", "high", "mrr")
TITLES = {"cosine": "Cosine of mean states", "bertscore": "BERTScore"}
NOTES = {
    "cosine": "The mean of all token states of a sentence, averaged over the layers: one vector a sentence.",
    "bertscore": "Every token is matched with the most alike token of the other sentence; shared words and names help.",
}


def retrieval_section(run: Run, source: str = "") -> Section:
    """How well these models align languages."""
    table = _checked(run, source or "This run")
    return Section(
        command=run.command,
        title=f"Does a sentence find its translation with {listed(run.summary.get('models', ['this model']))}?",
        source=source,
        facts=_facts(table),
        findings=tuple(_findings(table)),
        panels=tuple(_panels(table)),
        tables=_tables(run),
        config=run.config,
        environment=run.environment,
    )


def _checked(run: Run, source: str) -> pd.DataFrame:
    check_tables(run, source, "retrieval", "evaluate retrieval", {"retrieval": COLUMNS})
    if run.tables["retrieval"].empty:
        raise StoreError(f"{source} is no whole retrieval: its table retrieval has no rows. Run it again with --fresh.")
    return run.tables["retrieval"]


def _facts(table: pd.DataFrame) -> dict[str, str]:
    pairs = table.drop_duplicates("pair")
    return {
        "pairs of languages": f"{len(pairs):,}",
        "pairs of sentences": f"{sum(pairs['sentences'].tolist()):,}",
        "best accuracy": f"{table['accuracy'].max():.3f}",
    }


def _findings(table: pd.DataFrame) -> list[Finding]:
    """For each pair of languages the best way to find a translation, against chance."""
    findings = []
    for pair, own in table.groupby("pair", sort=False):
        best = own.loc[own["accuracy"].idxmax()]
        findings.append(
            Finding(
                str(pair),
                f"Of {count(int(best['sentences']), 'sentence')}, {best['accuracy']:.1%} find their translation "
                f"({best['query']} → {best['candidates']}, {TITLES.get(best['score'], best['score'])}, layers "
                f"{best['layers']}; interval {interval(best['low'], best['high'])}); chance is "
                f"{1 / best['sentences']:.1%}.",
            )
        )
    return findings


def _panels(table: pd.DataFrame) -> list[Panel]:
    """A curve over layers where several were taken alone, and dots for what is no part of it."""
    single = table.loc[table["layer"].notna()]
    if single["layer"].nunique() < 2:
        return [_dots(table)]
    together = table.loc[table["layer"].isna()]
    return [_curves(single), *([] if together.empty else [_dots(together)])]


def _dots(rows: pd.DataFrame) -> Panel:
    views = tuple(
        View(
            key=str(score),
            label=TITLES.get(str(score), str(score)),
            figure=_dot_chart(own),
            table="retrieval",
            where={"score": str(score), "layers": tuple(own["layers"].unique())},
            note=NOTES.get(str(score), ""),
        )
        for score, own in rows.groupby("score", sort=False)
    )
    return Panel(
        title="Alignment by choice of layers",
        caption="How often a sentence's translation is the nearest of all sentences of the other language, with the "
        "layers of each choice together.",
        views=views,
        choice="Score",
    )


def _dot_chart(rows: pd.DataFrame) -> go.Figure:
    names = [f"{row['query']} → {row['candidates']}, layers {row['layers']}" for row in rows.to_dict("records")]
    value, low, high = (rows[column].tolist() for column in ("accuracy", "low", "high"))
    return interval_chart(names, value, low, high, x="accuracy")


def _curves(single: pd.DataFrame) -> Panel:
    views = tuple(
        View(
            key=str(score),
            label=TITLES.get(str(score), str(score)),
            figure=_chart(own),
            table="retrieval",
            where={"score": str(score)},
            having=("layer",),
            note=NOTES.get(str(score), ""),
        )
        for score, own in single.groupby("score", sort=False)
    )
    return Panel(
        title="Alignment layer by layer",
        caption="How often a sentence's translation is the nearest of all sentences of the other language, with each "
        "layer alone. Layer 0 is the embeddings.",
        views=views,
        choice="Score",
    )


def _chart(rows: pd.DataFrame) -> go.Figure:
    ordered = rows.sort_values("layer")
    lines = [
        Series(
            name=str(direction),
            x=own["layer"].astype(int).tolist(),
            y=own["accuracy"].tolist(),
            low=own["low"].tolist(),
            high=own["high"].tolist(),
        )
        for direction, own in ordered.groupby(ordered["query"] + " → " + ordered["candidates"], sort=False)
    ]
    layers = ordered["layer"].astype(int).tolist()
    depth = layers[-1] - layers[0]
    return line_chart(lines, x="layer", y="accuracy", step=max(1, -(-depth // 12)))


def _tables(run: Run) -> tuple[Table, ...]:
    captions = {
        "retrieval": "Accuracy and mean reciprocal rank of every direction, score and choice of layers.",
        "averages": "The mean over pairs of languages.",
    }
    return tuple(
        Table(name, frame, captions.get(name, ""), folded=name == "averages") for name, frame in run.tables.items()
    )
