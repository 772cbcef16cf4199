"""The section of a `rank` run: how few neurons suffice, where they lie, and what they react to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from residuum.reporting.cards import CAPTIONS as CARD_CAPTIONS
from residuum.reporting.cards import neuron_cards
from residuum.reporting.charts import Series, line_chart, plain, value_map
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Card, Finding, Panel, Section, Table, View
from residuum.reporting.wording import CONFIDENCE, interval
from residuum.storage.results import Run

COLUMNS = {
    "ranking": ("method", "rank", "neuron", "layer", "score"),
    "agreement": ("first", "second", "k", "overlap", "spearman"),
    "selection": (
        "method",
        "share",
        "set",
        "neurons",
        "kept",
        "kept_low",
        "kept_high",
        "retrained",
        "sd",
        "low",
        "high",
    ),
    "minimal": ("set", "neurons", "share", "accuracy", "low", "high", "control", "selectivity"),
    "growth": ("neurons", "dev", "required"),
    "spread": ("method", "set", "layer", "neurons", "share"),
}
CAPTIONS = {
    "minimal": "All neurons beside the minimal set, on the test part: means over seeds, their deviation, the interval "
    "over sentences, and the control task (random labels of words).",
    "selection": "Scores on the test part with only these neurons: in the probe of all neurons (kept), and in one of "
    "their own (retrained, with `sd`, `low` and `high`): means over seeds, their deviation, and the interval over "
    "sentences.",
    "agreement": "How far rankings agree: on their first k neurons (overlap), and on all (rank correlations).",
    "spread": "How many neurons of each set lie in each layer.",
    "growth": "The sizes that were tried for the minimal set, and their score on the development part.",
    "penalties": "The grid of penalties: accuracy, and with only the top or bottom fifth of neurons.",
    "ranking": "Every neuron by every ranking.",
    "class_ranking": "The first neurons of each class by their share of its weights.",
    **CARD_CAPTIONS,
}
OPEN = ("minimal", "selection", "agreement")
NAMES = {"lca": "LCA", "iou": "IoU", "mean_difference": "mean difference", "gaussian": "Gaussian"}


def ranking_section(run: Run, source: str = "") -> Section:
    """Which neurons of a model a task needs."""
    check_tables(run, source or "This run", "ranking", "rank", COLUMNS)
    return Section(
        command=run.command,
        title=f"Which neurons of {run.config['model']} does {run.config['task']} need?",
        source=source,
        facts=_facts(run),
        findings=tuple(_findings(run)),
        panels=tuple(_panels(run)),
        tables=tuple(
            Table(name, run.tables[name], caption, folded=name not in OPEN)
            for name, caption in CAPTIONS.items()
            if name in run.tables
        ),
        config=run.config,
        environment=run.environment,
        cards=tuple(_cards(run)),
    )


def _facts(run: Run) -> dict[str, str]:
    whole, reduced = run.tables["minimal"].iloc[0], run.tables["minimal"].iloc[-1]
    return {
        "neurons": f"{whole['neurons']:,}",
        _measure(run): f"{whole['accuracy']:.3f}",
        "neurons that suffice": f"{reduced['neurons']:,}",
        "of all": f"{reduced['share']:.1%}",
    }


def _measure(run: Run) -> str:
    return "Pearson" if "oracle pearson" in run.summary else "accuracy"


def _findings(run: Run) -> list[Finding]:
    whole, reduced = run.tables["minimal"].to_dict("records")
    found = [
        Finding("All neurons", _score_text(run, whole)),
        Finding("Minimal set", _minimal_text(run, reduced)),
        Finding("Top and bottom", _selection_text(run)),
        Finding("Where they lie", _spread_text(run)),
    ]
    if len(run.tables["agreement"]):
        found.append(Finding("Rankings", _agreement_text(run.tables["agreement"])))
    if left_out := run.summary.get("left out"):
        found.append(Finding("Left out", f"{left_out}."))
    return found + [Finding("Data", f"{note}.") for note in run.config.get("notes", [])]


def _score_text(run: Run, row: dict[str, Any]) -> str:
    text = f"A probe of all {row['neurons']:,} neurons scores {row['accuracy']:.3f} ({CONFIDENCE} interval "
    text += f"{interval(row['low'], row['high'])}) on the test part."
    if not np.isnan(row["control"]):
        text += f" On random labels of words it scores {row['control']:.3f}: selectivity is {row['selectivity']:.3f}."
    baselines = {
        name: run.summary[name] for name in ("majority", "word majority", "bag of words") if name in run.summary
    }
    if "random_twin" in row:
        text += f" The same model with random weights scores {row['random_twin']:.3f}."
    if baselines:
        text += f" Without the model: {', '.join(f'{name} {value:.3f}' for name, value in baselines.items())}."
    return text


def _minimal_text(run: Run, row: dict[str, Any]) -> str:
    reached = "" if run.summary.get("within delta on dev", True) else " No smaller set came that close."
    text = f"{row['neurons']:,} neurons ({row['share']:.1%}) suffice to come within {run.config['delta']:g} on the "
    text += f"development part; on the test part they score {row['accuracy']:.3f} ({interval(row['low'], row['high'])})"
    selective = "" if np.isnan(row["selectivity"]) else f", with a selectivity of {row['selectivity']:.3f}"
    twin = f" As many of the random twin score {row['random_twin']:.3f}." if "random_twin" in row else ""
    return f"{text}{selective}.{twin}{reached}"


def _selection_text(run: Run) -> str:
    table = run.tables["selection"]
    rows = table.loc[table["method"] == run.config["by"]]
    share = min(rows["share"], key=lambda value: abs(value - 0.05))
    own = {row["set"]: row for row in rows.loc[rows["share"] == share].to_dict("records")}
    return (
        f"With {share:.0%} of the neurons kept in the same probe, the top of {_name(run.config['by'])} scores "
        f"{own['top']['kept']:.3f} and the bottom {own['bottom']['kept']:.3f}; probes of their own score "
        f"{own['top']['retrained']:.3f} and {own['bottom']['retrained']:.3f}."
    )


def _spread_text(run: Run) -> str:
    rows = run.tables["spread"].query("set == 'minimal'")
    first = rows.sort_values("neurons", ascending=False).head(2).to_dict("records")
    named = " and ".join(f"layer {row['layer']} ({row['neurons']:,})" for row in first)
    return f"Most neurons of the minimal set are in {named}."


def _agreement_text(table: pd.DataFrame) -> str:
    """Which rankings agree most, and how steady LCA is from seed to seed (if it is not, its order means little)."""
    seeds = table["second"].str.contains("seed", regex=False)
    methods = table.loc[~seeds & (table["first"] != "random") & (table["second"] != "random")]
    same = table.loc[seeds & (table["first"] == "lca")]
    parts = []
    if len(methods):
        best = methods.sort_values("overlap", ascending=False).iloc[0]
        parts.append(
            f"{_name(best['first'])} and {_name(best['second'])} agree most: they share {best['overlap']:.0%} of their "
            f"first {best['k']:,} neurons."
        )
    if len(same):
        parts.append(f"LCA shares {same['overlap'].mean():.0%} of them with LCA of another seed.")
    return " ".join(parts) or f"The overlap with neurons drawn by lot is {table['overlap'].iloc[0]:.0%}."


def _name(method: str) -> str:
    return NAMES.get(method, method)


def _panels(run: Run) -> list[Panel]:
    measure = _measure(run)
    panels = [
        Panel(
            "Only the top, only the bottom",
            "Scores on the test part with a share of the neurons. What the bottom keeps is redundant information.",
            tuple(_selection_views(run.tables["selection"], measure)),
            first=run.config["by"],
            choice="Ranking",
        ),
        Panel(
            "How many neurons suffice",
            "Probes of the first neurons of the ranking, on the development part, and the score that was asked for.",
            (View("growth", "growth", _growth(run.tables["growth"], measure), "growth"),),
        ),
        Panel(
            "Where the neurons lie",
            "How many neurons of a set are in each layer; layer 0 is the embeddings.",
            tuple(_spread_views(run.tables["spread"])),
            choice="Set",
        ),
    ]
    if len(run.tables["agreement"]):
        panels.append(_agreement_panel(run.tables["agreement"]))
    if "card_classes" in run.tables:
        panels.append(_class_panel(run.tables["card_classes"]))
    return panels


def _selection_views(table: pd.DataFrame, measure: str) -> list[View]:
    views = []
    for method, rows in table.groupby("method", sort=False):
        series = []
        for name, own in rows.groupby("set", sort=False):
            x = own["share"].tolist()
            low, high = own["low"].tolist(), own["high"].tolist()
            series.append(Series(f"{name}, retrained", x, own["retrained"].tolist(), low, high))
            low, high = own["kept_low"].tolist(), own["kept_high"].tolist()
            series.append(Series(f"{name}, kept in the probe of all", x, own["kept"].tolist(), low, high))
        figure = line_chart(series, x="share of neurons", y=measure)
        views.append(View(str(method), _name(str(method)), figure, "selection", {"method": str(method)}))
    return views


def _growth(table: pd.DataFrame, measure: str) -> go.Figure:
    sizes = table["neurons"].tolist()
    asked = Series("asked for", sizes, table["required"].tolist())
    figure = line_chart([Series("probe", sizes, table["dev"].tolist()), asked], x="neurons", y=measure)
    return figure.update_xaxes(type="log")


def _spread_views(table: pd.DataFrame) -> list[View]:
    views = []
    for method, name in dict.fromkeys(zip(table["method"], table["set"], strict=True)):
        rows = table.loc[(table["method"] == method) & (table["set"] == name)]
        line = Series(f"{_name(method)}, {name}", rows["layer"].tolist(), rows["neurons"].tolist())
        figure = line_chart([line], x="layer", y="neurons", step=max(1, -(-len(rows) // 13)))
        figure.update_yaxes(rangemode="tozero")
        key, where = f"{method} {name}", {"method": method, "set": name}
        views.append(View(key, f"{_name(method)}: {name}", figure, "spread", where, group=_name(method)))
    return views


def _agreement_panel(table: pd.DataFrame) -> Panel:
    names = list(dict.fromkeys([*table["first"], *table["second"]]))
    views = []
    for key, label in (("overlap", "overlap of the first neurons"), ("spearman", "rank correlation of all")):
        square = np.full((len(names), len(names)), np.nan)
        np.fill_diagonal(square, 1.0)
        for row in table.to_dict("records"):
            a, b = names.index(row["first"]), names.index(row["second"])
            square[a, b] = square[b, a] = row[key]
        shown = [_name(name) for name in names]
        figure = value_map(square.tolist(), shown, shown, x="ranking", y="ranking", colours=label)
        views.append(View(f"agreement {key}", label, figure, "agreement"))
    caption = "Rankings of the same neurons by other means, and LCA with probes of other seeds."
    return Panel("How far rankings agree", caption, tuple(views), choice="Measure")


def _class_panel(table: pd.DataFrame) -> Panel:
    views = []
    for neuron, rows in table.groupby("neuron", sort=False):
        figure = line_chart([], x="class", y="activation")
        figure.add_box(
            x=[plain(label) for label in rows["label"]],
            lowerfence=rows["q05"].tolist(),
            q1=rows["q25"].tolist(),
            median=rows["median"].tolist(),
            q3=rows["q75"].tolist(),
            upperfence=rows["q95"].tolist(),
            mean=rows["mean"].tolist(),
            marker={"color": "#0072B2"},
            name=str(neuron),
        )
        figure.update_layout(showlegend=False)
        figure.update_xaxes(type="category")  # else labels such as 1 or 2020-01-01 would be numbers and dates
        views.append(View(str(neuron), str(neuron), figure, "card_classes", {"neuron": str(neuron)}))
    caption = "Activations of a neuron in each class: median, quartiles, 5 % and 95 %."
    return Panel("What a neuron does in each class", caption, tuple(views), choice="Neuron")


def _cards(run: Run) -> list[Card]:
    ranks = run.tables["ranking"].query("method == @run.config['by']").set_index("neuron")["rank"]
    by = _name(run.config["by"])
    return neuron_cards(run, lambda neuron: f"Number {ranks[neuron]:,} of {len(ranks):,} by {by}.")
