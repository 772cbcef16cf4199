"""The section of a `prune` run: which layers went, and what decided."""

from __future__ import annotations

import pandas as pd

from residuum.errors import StoreError
from residuum.reporting.charts import Series, line_chart
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.reporting.wording import count, layer_range
from residuum.storage.results import Run

AXES = {
    "cka": "CKA of a layer's input and output",
    "angular": "angle between a layer's input and output (share of 180°)",
    "probe": "what the layer adds to the probe's score",
}


def pruning_section(run: Run, source: str = "") -> Section:
    """Which layers of a model went."""
    if not {"layer", "kept"} <= set(run.tables["layers"].columns if "layers" in run.tables else ()):
        raise StoreError(f"{source or 'This run'} is no whole pruning; run `prune` again with --fresh.")
    summary = run.summary
    name = str(run.config["model"]).rstrip("/").rsplit("/", 1)[-1]
    return Section(
        command=run.command,
        title=f"Which layers of {name} stayed?",
        source=source,
        facts={
            "layers": f"{len(summary['kept'])} of {summary['layers']}",
            "parameters before": f"{summary['parameters before']:,}",
            "parameters after": f"{summary['parameters after']:,}",
        },
        findings=(Finding("Layers", _layer_text(run)),),
        panels=tuple(_panels(run)),
        tables=(Table("layers", run.tables["layers"], "Layers by their old numbers."),),
        config=run.config,
        environment=run.environment,
    )


def _layer_text(run: Run) -> str:
    table = run.tables["layers"]
    dropped = table.loc[~table["kept"], "layer"].tolist()
    went = layer_range(dropped).capitalize() if dropped else "No layer"
    share = 1 - run.summary["parameters after"] / run.summary["parameters before"]
    verb = "was" if len(dropped) <= 1 else "were"
    return f"{went} {verb} dropped ({count(len(dropped), 'layer')}); with them went {share:.0%} of the parameters."


def _panels(run: Run) -> list[Panel]:
    decided = [_value_panel(run)] if "value" in run.tables["layers"] else []
    return [*decided, _number_panel(run.tables["layers"])]


def _number_panel(table: pd.DataFrame) -> Panel:
    kept, dropped = table.loc[table["kept"], "layer"].tolist(), table.loc[~table["kept"], "layer"].tolist()
    lines = [Series("kept", kept, list(range(1, len(kept) + 1))), Series("dropped", dropped, [0] * len(dropped))]
    figure = line_chart([line for line in lines if line.x], x="number before", y="number after (0: dropped)", step=1)
    caption = "Every layer by its number before, and the number that it has in the smaller model."
    return Panel("Which layers stayed", caption, (View("kept", "kept", figure, table="layers"),))


def _value_panel(run: Run) -> Panel:
    table = run.tables["layers"]
    lines = [
        Series(label, rows["layer"].tolist(), rows["value"].tolist())
        for label, rows in (("kept", table.loc[table["kept"]]), ("dropped", table.loc[~table["kept"]]))
    ]
    by = str(run.config["by"])
    axis = AXES.get(by, by)
    view = View("value", by, line_chart(lines, x="layer", y=axis, step=1), table="layers")
    return Panel("What decided", "The measured value of every layer.", (view,))
