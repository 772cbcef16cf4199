"""The sections of `transfer`, `prune`, `trim` and `shrink`: how small a model became, and what that cost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from residuum.reporting.charts import Series, layer_chart, level, line_chart, lines
from residuum.reporting.content import Finding, Panel, Section, TableSpec, View, is_known, single_view
from residuum.reporting.wording import count, layer_range, short_name, with_interval
from residuum.storage.results import Run

TRANSFER_TABLES = {
    "steps": TableSpec(
        "All neurons (oracle), what each step keeps, and the saved model, measured as it is.",
        "step, layer, neurons, share, dev, test, low, high, parameters, bytes, ms",
    ),
    "curve": TableSpec(
        "Every set of neurons that was tried; a front holds the sets that no other beats on dev at the same cost.",
        "step, layer, neurons, dev, test, low, high, bytes, ms, front neurons, front ms",
    ),
    "neurons": TableSpec("The chosen neurons, most important first."),
    "costs": TableSpec("Cost of the network up to each layer, with a probe on all its neurons."),
    "seconds": TableSpec("Duration of each step."),
}
STAGES = TableSpec("The model before and after: size and, where there is text, quality on lines kept for this.")
CURVE = TableSpec("Size and quality at every number of layers, before healing.")
HEALING = TableSpec("Losses of healing: shares of the variance of the original's states and vectors that are missed.")
PRUNE_TABLES = {
    "layers": TableSpec("Layers by their old numbers.", "layer, kept"),
    "stages": STAGES,
    "curve": CURVE,
    "healing": HEALING,
}
SHRINK_TABLES = {
    "stages": TableSpec(
        "The original, the pruned and the healed model on lines that neither planning nor healing read; milliseconds "
        "per text and MB of weights and states, in batches of 1 and 32.",
        "stage, layers, parameters, fidelity, fidelity_low, fidelity_high, ms_32, mb_32",
    ),
    "plan": TableSpec(
        "Every candidate: predicted quality before healing, parameters and speed-up.",
        "layers, ffn, quality, parameters, speedup, chosen",
    ),
    "curve": CURVE,
    "widths": TableSpec("Size and quality at shares of the feed-forward neurons, at full depth."),
    "healing": HEALING,
}
TRIM_TABLES = {
    "pieces": TableSpec(
        "Old and new id of each vocabulary entry, and how often the texts use it.", "piece, old_id, new_id, count"
    ),
    "stages": TableSpec("Size and quality of both models, each with its own tokenizer."),
}
CURVE_STEPS = {
    "layers": "all neurons of the lowest layers",
    "path": "few neurons of the lowest layers",
    "clusters": "one neuron per cluster",
    "neurons": "most important neurons",
}
COSTS = {"neurons": "neurons", "bytes": "megabytes of weights", "ms": "milliseconds per text"}
CRITERIA = {
    "cka": "CKA of a layer's input and output",
    "angular": "angle between a layer's input and output (share of 180°)",
    "probe": "gain in the probe's score by the layer",
    "influence": "block influence (1 − cosine of a layer's input and output)",
    "fidelity": "1 − fidelity of the sentence vectors without the layer",
    "perplexity": "loss per token without the layer",
}
HEALING_TERMS = ("states", "inner states", "vectors", "translations", "predictions")
COVERAGE_POINTS = 60  # of a curve over thousands of vocabulary entries


def transfer_section(run: Run) -> Section:
    """How small a model became for a task, and what that cost."""
    summary, metric, curve = run.summary, run.summary["metric"], run.tables["curve"]

    def draw(cost: str, axis: str) -> go.Figure:
        scaled = curve.assign(**{cost: (curve[cost] * (1e-6 if cost == "bytes" else 1.0)).round(4)})
        groups = [(name, scaled.loc[scaled["step"] == step]) for step, name in CURVE_STEPS.items()]
        groups.append(("Pareto front (on dev)", scaled.loc[scaled[f"front {cost}"]]))
        known = [(name, rows.sort_values("neurons")) for name, rows in groups if not rows.empty]
        tried = CURVE_STEPS["path"]  # sets of several orders: no line joins them
        series = [
            one
            for name, rows in known
            for one in lines(rows, cost, "test", name=name, bounds=None if name == tried else ("low", "high"))
        ]
        figure = line_chart(series, x=axis, y=f"{metric} on test", log=cost == "neurons")
        return figure.update_traces(mode="markers", selector={"name": tried})

    views = tuple(View(cost, axis, draw(cost, axis), "curve") for cost, axis in COSTS.items())
    kept = tuple(
        View(f"by {cost}", axis, kept_layers_chart(run, cost, axis), "curve", {"step": "layers"})
        for cost, axis in COSTS.items()
        if cost != "neurons"
    )
    front = Panel(
        "Score against speed and size, by the layers that are kept",
        f"A dot is a probe on all neurons of the lowest layers, from 0 (only the embeddings) to all "
        f"{summary['layers before']}, with its 95 % interval over sentences: its {metric} on the test part over what "
        "the network up to that layer costs. The square is the model that was written.",
        kept,
        first="by ms",
        choice="Cost in",
    )
    panel = Panel(
        "Score over size",
        f"The {metric} on the test part of every set of neurons that was tried, with 95 % intervals over sentences. "
        "The Pareto front was chosen on the development part.",
        views,
        choice="Size in",
    )
    before = int(run.tables["steps"].set_index("step").loc["oracle", "neurons"])
    return Section(
        title=f"How small can {short_name(run.config['model'])} be for {summary['task']}?",
        facts={
            "layers": f"{summary['layers']} of {summary['layers before']}",
            f"of {before:,} neurons": f"{summary['neurons']:,}",
            f"of the {metric} of all neurons": f"{summary['share of oracle']:.1%}",
            "faster": f"{summary['speed-up'][0]:.1f}×",
        },
        findings=_transfer_findings(run, metric),
        panels=[front, panel],
    )


def kept_layers_chart(run: Run, cost: str, axis: str) -> go.Figure:
    """The score of the lowest layers over their cost, a number on each dot, beside the model that was written."""
    unit = 1e-6 if cost == "bytes" else 1.0
    rows = run.tables["curve"].query("step == 'layers'").sort_values("layer")
    rows = rows.assign(**{cost: rows[cost] * unit})
    saved = run.tables["steps"].query("step == 'as saved'")
    saved = saved.assign(**{cost: saved[cost] * unit})
    lowest = "all neurons of the lowest 0, 1, 2 … layers"
    written = f"model that was written ({run.summary['layers']} layers, {run.summary['neurons']:,} neurons)"
    series = lines(rows, cost, "test", name=lowest) + lines(saved, cost, "test", name=written)
    if len(rows) and (baselines := run.summary.get("baselines")):
        name, value = max(baselines.items(), key=lambda item: item[1])
        series.append(level(f"{name} baseline", rows[cost], value))
    figure = line_chart(series, x=axis, y=f"{run.summary['metric']} on test", x_from_zero=True)
    numbers = {"mode": "lines+markers+text", "text": [f"{n}" for n in rows["layer"]], "textposition": "bottom right"}
    return figure.update_traces(numbers, selector={"name": lowest})


def _transfer_findings(run: Run, metric: str) -> Iterator[Finding]:
    summary, steps = run.summary, run.tables["steps"].set_index("step")
    speed, low, high = summary["speed-up"]
    share = "no known share"  # of an oracle that scores 0
    if is_known(summary["share of oracle"]):
        share = with_interval(summary["share of oracle"], *summary["interval of the share"], form=".1%")
    yield Finding(
        "Answer",
        f"{summary['layers']} of {summary['layers before']} layers and {count(summary['neurons'], 'neuron')} "
        f"({summary['share of neurons']:.1%}) of {short_name(run.config['model'])} keep {share} of its {metric} for "
        f"{summary['task']}, {speed:.1f} times as fast.",
    )
    yield Finding(
        "Score",
        f"The small model reaches {metric} {with_interval(summary['score'], *summary['interval'])} on the test part; "
        f"the oracle (a probe on all neurons of all layers) reaches {summary['oracle']:.3f}.",
    )
    beside = dict(summary.get("baselines", {}))
    if "random twin" in summary:
        beside["random twin"] = summary["random twin"]
    if beside:
        scores = ", ".join(f"{name} {score:.3f}" for name, score in beside.items())
        yield Finding("Baselines", f"To be compared with: {scores}.")
    yield Finding(
        "Speed",
        f"From text to labels it is {with_interval(speed, low, high, '.1f')} times as fast as the whole model; the "
        f"classifier alone is {summary['classifier speed-up'][0]:.1f} times as fast. Its weights take "
        f"{summary['bytes'] / 1e6:.1f} MB, those of the whole model {steps.loc['oracle', 'bytes'] / 1e6:.1f} MB.",
    )
    if not summary["sufficient"]:
        yield Finding("Not sufficient", "No smaller set of neurons kept the required score, so all were kept.")
    if "narrowing" in summary:
        text = f"Dropping hidden dimensions was not measured: {summary['narrowing']}."
        if "narrowed" in steps.index:
            narrow, saved = steps.loc["narrowed"], steps.loc["as saved"]
            pays = narrow["ms"] < saved["ms"] and narrow["high"] >= saved["test"]  # quicker, and not clearly worse
            text = f"With {summary['narrowing']}: score {narrow['test']:.3f} instead of {saved['test']:.3f}, "
            text += f"{narrow['ms']:.2f} ms per text instead of {saved['ms']:.2f}: "
            text += "it pays." if pays else "it does not pay without further training."
        yield Finding("Narrowing", text)


def pruning_section(run: Run) -> Section:
    """Which layers of a model were dropped."""
    summary, table = run.summary, run.tables["layers"]
    dropped = table.loc[~table["kept"], "layer"].tolist()
    names = layer_range(dropped).capitalize() if dropped else "No layer"
    verb = "was" if len(dropped) <= 1 else "were"
    share = 1 - summary["parameters after"] / summary["parameters before"]
    panels = []
    if "value" in table:
        named = table.assign(state=["kept" if kept else "dropped" for kept in table["kept"]])
        axis = CRITERIA.get(str(run.config["by"]), str(run.config["by"]))
        figure = layer_chart(lines(named, "layer", "value", "state"), y=axis)
        panels = [Panel("Criterion", "The measured value of every layer.", single_view(figure, "layers"))]
    kept = table.loc[table["kept"], "layer"].tolist()
    series = [Series("kept", kept, list(range(1, len(kept) + 1))), Series("dropped", dropped, [0] * len(dropped))]
    figure = line_chart([one for one in series if one.x], x="number before", y="number after (0: dropped)", step=1)
    caption = "Every layer by its number before, and its number in the smaller model."
    panels.append(Panel("Layers that were kept", caption, single_view(figure, "layers")))
    text = f"{names} {verb} dropped ({count(len(dropped), 'layer')}), which saves {share:.0%} of the parameters."
    return Section(
        title=f"Which layers of {short_name(run.config['model'])} were kept?",
        facts={
            "layers": f"{len(summary['kept'])} of {summary['layers']}",
            "parameters before": summary["parameters before"],
            "parameters after": summary["parameters after"],
        },
        findings=[Finding("Layers", text), *_stage_findings(run)],
        panels=[*panels, *_curve_panels(run)],
    )


def shrink_section(run: Run) -> Section:
    """What a smaller model kept of the original, and what it costs."""
    summary, stages = run.summary, run.tables["stages"]
    speed, low, high = summary["speed-up"]
    last = stages.iloc[-1]
    size = (
        f"{len(summary['kept'])} of {summary['layers']} layers and {summary['feed-forward']:.0%} of the feed-forward "
        f"neurons: {summary['parameters after']:,} of {summary['parameters before']:,} parameters. In batches of 32 it "
        f"is {with_interval(speed, low, high, '.2f')} times as fast and takes {last['mb_32']:.0f} MB instead of "
        f"{stages.iloc[0]['mb_32']:.0f}."
    )
    return Section(
        title=f"How small can {short_name(run.config['model'])} be?",
        facts={
            "parameters after": summary["parameters after"],
            "parameters before": summary["parameters before"],
            "faster": f"{speed:.1f}×",
            "fidelity": f"{summary['fidelity']:.3f}",
        },
        findings=[*_stage_findings(run), Finding("Size and speed", size)],
        panels=[*_shrink_panels(run), *_curve_panels(run)],
    )


def _stage_findings(run: Run) -> Iterator[Finding]:
    """What was lost, and what healing brought back, in every measure there is."""
    stages = run.tables.get("stages", pd.DataFrame())
    task = run.config.get("task")
    named = {"fidelity": "Fidelity", "perplexity": "Perplexity", "retrieval": "Retrieval", task: str(task)}
    for column, topic in named.items():
        if column is None or f"{column}_low" not in stages:
            continue
        parts = [
            f"{row['stage']} {with_interval(row[column], row[f'{column}_low'], row[f'{column}_high'])}"
            for row in stages.to_dict("records")
        ]
        yield Finding(topic, "; ".join(parts) + ".")


def _shrink_panels(run: Run) -> Iterator[Panel]:
    plan = run.tables["plan"].sort_values("parameters")
    named = plan.assign(share=[f"{share:.0%} of the feed-forward neurons" for share in plan["ffn"]])
    series = lines(named, "parameters", "quality", "share")
    chosen = plan.loc[plan["chosen"]]
    series.append(Series("chosen", chosen["parameters"].tolist(), chosen["quality"].tolist()))
    yield Panel(
        "Quality against size",
        "Predicted quality before healing of every candidate: fidelity of the sentence vectors, or the original's "
        "perplexity divided by the candidate's. Depth and width are measured apart and multiplied.",
        single_view(line_chart(series, x="parameters", y="predicted quality"), "plan"),
    )
    if "healing" in run.tables:
        curve = run.tables["healing"]
        terms = ["loss", *(name for name in HEALING_TERMS if name in curve)]
        series = [own for name in terms for own in lines(curve, "step", name, name=name)]
        yield Panel(
            "Healing",
            "The loss by training step, and its terms: shares of the variance of the original's states and vectors "
            "that are missed (states between the blocks weighted by 0.3), and the divergence of its predictions.",
            single_view(line_chart(series, x="training step", y="loss"), "healing"),
        )
    if "compensation" in run.tables:
        fitted = run.tables["compensation"]
        series = lines(fitted, "layer", "missed_before", name="as cut") + lines(
            fitted, "layer", "missed", name="fitted"
        )
        yield Panel(
            "States of the original that are missed",
            "Per kept layer, the share of the variance of the original's states below the next kept layer that it "
            "misses: as it was cut, and with its second feed-forward map fitted by least squares, before healing.",
            single_view(line_chart(series, x="layer", y="share of variance", step=1), "compensation"),
        )


def _curve_panels(run: Run) -> Iterator[Panel]:
    """Quality over the number of layers."""
    if "curve" not in run.tables:
        return
    curve, views = run.tables["curve"], []
    for name in ("fidelity", "perplexity"):
        if name in curve:
            series = lines(curve, "layers", name, bounds=(f"{name}_low", f"{name}_high"))
            views.append(View(name, name, line_chart(series, x="layers", y=name, step=1), "curve"))
    if views:
        caption = "Quality before healing at every number of layers, with 95 % intervals over lines."
        yield Panel("Quality over depth", caption, tuple(views))


def trimming_section(run: Run) -> Section:
    """How much of a vocabulary the texts use."""
    summary, counts = run.summary, np.sort(run.tables["pieces"]["count"].to_numpy(dtype=float))[::-1]
    covered = np.cumsum(counts) / max(counts.sum(), 1.0)
    places = np.unique(np.linspace(0, len(counts) - 1, COVERAGE_POINTS).astype(int))
    points = pd.DataFrame({"pieces": places + 1, "share": covered[places]})
    series = lines(points, "pieces", "share", name="share of the texts")
    figure = line_chart(series, x="vocabulary entries, most frequent first", y="share of the texts")
    text = (
        f"{summary['pieces after']:,} of {summary['pieces before']:,} vocabulary entries were kept, which saves "
        f"{summary['share saved']:.0%} of the parameters; {summary['lines split in another way']:,} lines of the texts "
        "are tokenised differently."
    )
    return Section(
        title="How much of the vocabulary is needed?",
        facts={
            "vocabulary": f"{summary['pieces after']:,} of {summary['pieces before']:,}",
            "parameters saved": f"{summary['share saved']:.0%}",
            "parameters after": summary["parameters after"],
        },
        findings=[Finding("Vocabulary", text), *_stage_findings(run)],
        panels=[
            Panel(
                "Coverage by the most frequent entries",
                "The share of the texts that the most frequent vocabulary entries cover.",
                single_view(figure, "pieces", points=points),
            )
        ],
    )
