"""The sections of `rank`, `ablate` and `describe`: how few neurons suffice, whether they are used, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from residuum.reporting.charts import (
    box_chart,
    interval_chart,
    layer_bars,
    layer_chart,
    level,
    line_chart,
    lines,
    square,
    value_map,
)
from residuum.reporting.content import (
    Card,
    ColouredWord,
    Finding,
    Panel,
    Row,
    Section,
    TableSpec,
    View,
    is_known,
    records,
    single_view,
    views_by,
)
from residuum.reporting.probing import baseline_scores, oracle_text
from residuum.reporting.wording import capital, count, listed, short_name, with_interval
from residuum.storage.results import Run

CARD_TABLES = {
    "card_words": TableSpec(
        "The words with the highest and lowest mean activation of each described neuron.",
        "neuron, end, rank, word, mean, z, count",
    ),
    "card_contexts": TableSpec(
        "Its strongest activations, with the surrounding words.", "neuron, context, word, activation, z, peak"
    ),
}
RANK_TABLES = {
    "minimal": TableSpec(
        "All neurons beside the minimal set, on the test part: means over seeds, their deviation, the interval over "
        "sentences, and the control task (random labels per word type).",
        "set, neurons, share, metric, score, low, high, control, selectivity",
    ),
    "selection": TableSpec(
        "Scores on the test part with only these neurons: in the probe on all neurons (kept), and in a new probe "
        "(retrained, with `sd`, `low` and `high`).",
        "method, share, set, neurons, kept, kept_low, kept_high, retrained, low, high",
    ),
    "agreement": TableSpec(
        "Agreement of rankings: overlap of their first k neurons, and rank correlations of all neurons.",
        "first, second, k, overlap, spearman",
    ),
    "spread": TableSpec("Neurons of each set per layer.", "method, set, layer, neurons, share"),
    "growth": TableSpec(
        "Sizes that were tried for the minimal set, and their score on the development part.", "neurons, dev, required"
    ),
    "ranking": TableSpec("Every neuron by every ranking.", "method, rank, neuron, layer, score"),
    "class_ranking": TableSpec("The first neurons of each class by their share of its weights."),
    "class_forward": TableSpec("The first neurons of each class by forward selection."),
    **{name: TableSpec(spec.caption) for name, spec in CARD_TABLES.items()},
    "card_classes": TableSpec("Activations of each described neuron per class."),
}
ABLATE_TABLES = {
    "ablation": TableSpec(
        "Scores on the test part: with the intact model (intact), with neurons hidden from the probe only (masked), "
        "and with neurons silenced in the running model (running, with its deviation over seeds, its interval and its "
        "loss). `used` is what the running model loses beyond the masked probe; `change` is the distance that words "
        "moved; `retrained` are probes trained on the ablated model; `control` is the control task.",
        "set, share, neurons, probe, layer, intact, masked, running, low, high, drop, change",
    ),
    "neurons": TableSpec("The neurons of each set."),
}
METHODS = {
    "forward": "forward selection",
    "discriminant": "discriminant",
    "lca": "LCA",
    "iou": "IoU",
    "mean_difference": "mean difference",
    "gaussian": "Gaussian",
}
SILENCED = {"zero": "set to zero", "mean": "set to their means", "keep": "kept and the others of their layers silenced"}
LEVELS = (0.5, 1.0, 2.0)
"""Standard deviations from the mean at which a word's colour becomes stronger."""


def ranking_section(run: Run) -> Section:
    """Which neurons of a model a task needs."""
    whole, minimal = records(run.tables["minimal"])
    by, ranking = run.config["by"], run.tables["ranking"]
    ranks = ranking.loc[ranking["method"] == by].set_index("neuron")["rank"]
    metric = str(run.summary.get("metric") or ("Pearson" if "oracle pearson" in run.summary else "accuracy"))
    text = f"{count(minimal['neurons'], 'neuron')} ({minimal['share']:.1%}) are sufficient to keep "
    text += f"{run.config['keep']:.0%} of the score of all neurons on the development part. They score "
    text += f"{with_interval(minimal['score'], minimal['low'], minimal['high'])} on the test part"
    text += f", with a selectivity of {minimal['selectivity']:.3f}." if is_known(minimal["selectivity"]) else "."
    if is_known(minimal.get("random_twin")):
        text += f" As many neurons of the random twin score {minimal['random_twin']:.3f}."
    text += "" if run.summary["sufficient"] else " No smaller set keeps as much."
    spread = run.tables["spread"].query("set == 'minimal'").sort_values("neurons", ascending=False)
    layers = listed([f"layer {row['layer']} ({row['neurons']:,})" for row in records(spread.head(2))])
    findings = [
        Finding("Minimal set", text),
        Finding("All neurons", oracle_text(run, whole)),
        Finding("Top and bottom", _selection_text(run.tables["selection"], by)),
        Finding("Layers", f"Most neurons of the minimal set are in {layers}."),
    ]
    if len(run.tables["agreement"]):
        findings.append(Finding("Rankings", _agreement_text(run.tables["agreement"])))
    return Section(
        title=f"Which neurons of {short_name(run.config['model'])} does {run.config['task']} need?",
        facts={
            "sufficient neurons": minimal["neurons"],
            "of all neurons": f"{minimal['share']:.1%}",
            f"{metric} with them": f"{minimal['score']:.3f}",
            f"{metric} with all": f"{whole['score']:.3f}",
            "neurons": whole["neurons"],
        },
        findings=findings,
        panels=_ranking_panels(run, metric),
        cards=_neuron_cards(run, lambda neuron: f"Rank {ranks[neuron]:,} of {len(ranks):,} by {_method(by)}."),
    )


def _method(name: str) -> str:
    return METHODS.get(name, name)


def _selection_text(table: pd.DataFrame, by: str) -> str:
    rows = table.loc[table["method"] == by]
    share = min(rows["share"], key=lambda value: abs(value - 0.05))
    sets = {row["set"]: row for row in records(rows, share=share)}
    top, bottom = sets["top"], sets["bottom"]
    return (
        f"With {share:.0%} of the neurons kept in the same probe, the top of {_method(by)} scores {top['kept']:.3f} "
        f"and the bottom {bottom['kept']:.3f}; new probes on them score {top['retrained']:.3f} and "
        f"{bottom['retrained']:.3f}."
    )


def _agreement_text(table: pd.DataFrame) -> str:
    """Which rankings agree most, and how stable LCA is across seeds (if it is not, its order means little)."""
    seeds = table["second"].str.contains("seed", regex=False)
    random = (table["first"].str.startswith("random")) | (table["second"].str.startswith("random"))
    methods, same = table.loc[~seeds & ~random], table.loc[seeds & (table["first"] == "lca")]
    parts = []
    if len(methods):
        best = methods.sort_values("overlap", ascending=False).iloc[0]
        parts.append(
            f"{capital(_method(best['first']))} and {_method(best['second'])} agree most: they share "
            f"{best['overlap']:.0%} of their first {best['k']:,} neurons."
        )
    if len(same):
        parts.append(f"LCA shares {same['overlap'].mean():.0%} of its first neurons with LCA of another seed.")
    return " ".join(parts) or f"The overlap with neurons chosen at random is {table['overlap'].iloc[0]:.0%}."


def _ranking_panels(run: Run, metric: str) -> Iterator[Panel]:
    tables = run.tables

    def selection(rows: pd.DataFrame):
        series = []
        for name, own in rows.groupby("set", sort=False):
            series += lines(own, "share", "retrained", name=f"{name}, retrained")
            series += lines(own, "share", "kept", name=f"{name}, in the same probe", bounds=("kept_low", "kept_high"))
        return line_chart(series, x="share of neurons", y=metric)

    yield Panel(
        "Score of the top and of the bottom neurons",
        "Scores on the test part with a share of the neurons. What the bottom keeps is redundant information.",
        views_by("method", tables["selection"], "selection", selection, label=_method),
        first=run.config["by"],
        choice="Ranking",
    )
    growth = lines(tables["growth"], "neurons", "dev", name="probe")
    growth.append(level("required score", tables["growth"]["neurons"], tables["growth"]["required"].iloc[0]))
    yield Panel(
        "Number of neurons that suffice",
        "Probes on the first neurons of the ranking, on the development part, and the required score.",
        single_view(line_chart(growth, x="neurons", y=metric, log=True), "growth"),
    )
    yield Panel(
        "Layers of the neurons",
        "Neurons of a set per layer; layer 0 is the embeddings.",
        tuple(_spread_views(tables["spread"])),
        choice="Set",
    )
    if len(tables["agreement"]):
        yield _agreement_panel(tables["agreement"])
    if "card_classes" in tables:
        yield Panel(
            "Activations per class",
            "Activations of a neuron in each class: median, quartiles, 5 % and 95 %.",
            views_by(
                "neuron",
                tables["card_classes"],
                "card_classes",
                lambda rows: box_chart(rows, "label", x="class", y="activation"),
            ),
            choice="Neuron",
        )


def _spread_views(table: pd.DataFrame) -> Iterator[View]:
    for method, name in dict.fromkeys(zip(table["method"], table["set"], strict=True)):
        rows = table.loc[(table["method"] == method) & (table["set"] == name)]
        figure = layer_bars(rows, "neurons")
        label = f"{_method(str(method))}: {name}"
        where = {"method": str(method), "set": str(name)}
        yield View(f"{method} {name}", label, figure, "spread", where, group=_method(str(method)))


def _agreement_panel(table: pd.DataFrame) -> Panel:
    names = list(dict.fromkeys([*table["first"], *table["second"]]))
    both = pd.concat([table, table.rename(columns={"first": "second", "second": "first"})])
    views = []
    for key, label in (("overlap", "overlap of the first neurons"), ("spearman", "rank correlation of all")):
        values = (
            square(both, "first", "second", key).reindex(index=names, columns=names).to_numpy(dtype=float, copy=True)
        )
        np.fill_diagonal(values, 1.0)
        methods = [_method(name) for name in names]
        figure = value_map(pd.DataFrame(values, methods, methods), x="ranking", y="ranking", colours=label)
        views.append(View(f"agreement {key}", label, figure, "agreement"))
    caption = "Rankings of the same neurons by other methods, and LCA with probes of other seeds."
    return Panel("Agreement of rankings", caption, tuple(views))


def ablation_section(run: Run) -> Section:
    """Whether the model uses what its neurons encode."""
    frame = run.tables["ablation"]
    whole = records(frame.loc[frame["layer"].isna()])
    findings = [
        Finding(
            f"{row['set'].capitalize()}, {row['share']:.1%}",
            f"With {row['neurons']:,} neurons {SILENCED[run.config['how']]}, the probe on all layers falls from "
            f"{row['intact']:.3f} to {row['masked']:.3f} where they are hidden from the probe only, and to "
            f"{with_interval(row['running'], row['low'], row['high'])} where the model runs without them.",
            minor=str(row["set"]).startswith("random"),
        )
        for row in whole
    ]
    scores = baseline_scores(run) | {name: run.summary[name] for name in ("control task",) if name in run.summary}
    if scores:
        text = ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
        findings.append(Finding("Baselines", f"Without ablation: {text}."))
    return Section(
        title=f"Does {short_name(run.config['model'])} use the neurons that encode {run.config['task']}?",
        facts={
            f"score without {whole[0]['set']} {whole[0]['share']:.0%}": f"{whole[0]['running']:.3f}",
            "intact score": f"{whole[0]['intact']:.3f}",
            "sets of neurons": len(whole),
        },
        findings=findings,
        panels=_ablation_panels(frame.loc[frame["layer"].notna()]),
    )


def _ablation_panels(layers: pd.DataFrame) -> Iterator[Panel]:
    scores, changes = [], []
    for name, share in dict.fromkeys(zip(layers["set"], layers["share"], strict=True)):
        rows = layers.loc[(layers["set"] == name) & (layers["share"] == share)]
        series = [one for key in ("intact", "masked") for one in lines(rows, "layer", key, bounds=None)]
        series += lines(rows, "layer", "running")
        if "retrained" in rows and rows["retrained"].notna().all():
            series += lines(rows, "layer", "retrained", bounds=None)
        label, where = f"{name}, {share:.1%}", {"set": name, "share": f"{share:.7g}"}
        figure = layer_chart(series, y="score")
        scores.append(View(f"{name} {share}", label, figure, "ablation", where, having=("layer",)))
        changes += lines(rows, "layer", "change", name=label, bounds=None)
    yield Panel(
        "Probes of each layer",
        "Masked: the neurons are hidden from the probe. Running: the model runs without them, so layers above compute "
        "without them. Where running falls below masked, the model used them.",
        tuple(scores),
        choice="Silenced",
    )
    yield Panel(
        "Distance that words moved",
        "Distance of the test words from their place in the intact model, as a share of their spread there.",
        single_view(layer_chart(changes, y="distance moved"), "ablation", having=("layer",)),
    )


def description_section(run: Run) -> Section:
    """Which words some neurons of a model react to."""
    words, unit = run.tables["card_words"], run.config["unit"]
    constant = str(run.summary.get("constant", ""))
    findings = [Finding("Constant", f"{constant} have the same value on every {unit}.")] if constant else []
    for neuron, own in words.loc[words["rank"] == 1].groupby("neuron", sort=False):
        ends = [f"{_end(row['end']).lower()} on {row['word']} ({_signed(row['z'])})" for row in records(own)]
        findings.append(
            Finding(f"Neuron {neuron}", f"Mean activation is {' and '.join(ends)}.", minor=len(findings) > 4)
        )

    def note(neuron: str) -> str:
        constants = constant.split(", ")
        return "Constant." if neuron in constants else f"Over {count(run.summary[unit + 's'], unit)}."

    def draw(rows: pd.DataFrame):
        ordered = rows.sort_values("z", ascending=False, kind="stable")
        return interval_chart(ordered["word"].tolist(), ordered["z"].tolist(), x="standard deviations", bound=0.0)

    caption = "Mean activation on the most extreme words of a neuron, as distance from its mean over all words."
    return Section(
        title=f"What do neurons of {short_name(run.config['model'])} react to?",
        facts={"neurons": words["neuron"].nunique(), f"{unit}s": run.summary[f"{unit}s"]},
        findings=findings,
        panels=[Panel("Most extreme words", caption, views_by("neuron", words, "card_words", draw), choice="Neuron")],
        cards=_neuron_cards(run, note),
    )


def _neuron_cards(run: Run, note: Callable[[str], str]) -> Iterator[Card]:
    """One card per neuron that a run describes; `note` gives its first line."""
    if not CARD_TABLES.keys() <= run.tables.keys():
        return
    contexts = run.tables["card_contexts"]
    for neuron, words in run.tables["card_words"].groupby("neuron", sort=False):
        texts = contexts.loc[contexts["neuron"] == neuron].groupby("context")
        yield Card(
            title=f"Neuron {neuron}",
            note=note(str(neuron)),
            lists={
                f"{_end(end)} on": tuple(f"{row['word']} {_signed(row['z'])}" for row in records(own))
                for end, own in words.groupby("end")
            },
            texts=tuple(
                tuple(ColouredWord(str(row["word"]), _level(row), _signed(row["z"])) for row in records(text))
                for _, text in texts
            ),
        )


def _end(end: object) -> str:
    return "Highest" if end == "high" else "Lowest"


def _level(row: Row) -> int:
    size = 4 if row["peak"] else sum(abs(row["z"]) >= bound for bound in LEVELS)
    return int(np.sign(row["z"])) * size


def _signed(z: float) -> str:
    return f"{z:+.1f}".replace("-", "−")
