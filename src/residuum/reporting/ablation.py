"""The section of an `ablate` run: what probes lose when neurons are silenced, layer by layer."""

from __future__ import annotations

import pandas as pd

from residuum.reporting.charts import Series, line_chart
from residuum.reporting.completeness import check_tables
from residuum.reporting.content import Finding, Panel, Section, Table, View
from residuum.reporting.wording import CONFIDENCE, interval
from residuum.storage.results import Run

COLUMNS = ("set", "share", "neurons", "probe", "layer", "intact", "masked", "running", "low", "high", "drop", "change")
LAYERS = ("layer",)  # only rows of one layer are drawn; the others are of all layers together
CAPTION = (
    "Scores on the test part: with the intact model (intact), with neurons hidden from the probe only (masked), and "
    "with neurons silenced in the running model (running, with its deviation over seeds, its interval and what is "
    "lost). `change` is how far the words moved; `retrained` are probes that learnt from the ablated model; `control` "
    "is the same of random labels of words."
)
VERBS = {"zero": "set to zero", "mean": "set to their means", "keep": "kept while the others of their layers go"}


def ablation_section(run: Run, source: str = "") -> Section:
    """Whether the model uses what its neurons encode."""
    check_tables(run, source or "This run", "ablation", "ablate", {"ablation": COLUMNS})
    frame = run.tables["ablation"]
    whole = frame.loc[frame["layer"].isna()]
    return Section(
        command=run.command,
        title=f"Does {run.config['model']} use the neurons that encode {run.config['task']}?",
        source=source,
        facts={"sets of neurons": f"{len(whole):,}", "intact": f"{whole['intact'].iloc[0]:.3f}"},
        findings=tuple(_findings(run, whole)),
        panels=tuple(_panels(frame)),
        tables=(
            Table("ablation", frame, CAPTION),
            Table("neurons", run.tables["neurons"], "The neurons of each set.", folded=True),
        ),
        config=run.config,
        environment=run.environment,
    )


def _findings(run: Run, whole: pd.DataFrame) -> list[Finding]:
    sets = [
        Finding(
            f"{row['set'].capitalize()}, {row['share']:.1%}",
            f"With {row['neurons']:,} neurons {VERBS[run.config['how']]}, the probe of all layers falls from "
            f"{row['intact']:.3f} to {row['masked']:.3f} where only the probe misses them, and to {row['running']:.3f} "
            f"({CONFIDENCE} interval {interval(row['low'], row['high'])}) where the running model does.",
        )
        for row in whole.to_dict("records")
    ]
    return [*_baselines(run), *sets, *(Finding("Data", f"{note}.") for note in run.config.get("notes", []))]


def _baselines(run: Run) -> list[Finding]:
    """What the scores have to be held against, where it was measured."""
    names = {"majority": "the majority label", "word majority": "each word's majority label"}
    names |= {"bag of words": "a bag of words", "control task": "random labels of words (the control task)"}
    known = [f"{text} {run.summary[name]:.3f}" for name, text in names.items() if name in run.summary]
    return [Finding("Beside it", f"Without ablation: {', '.join(known)}.")] if known else []


def _panels(frame: pd.DataFrame) -> list[Panel]:
    layers = frame.loc[frame["layer"].notna()]
    scores, changes = [], []
    for name, share in dict.fromkeys(zip(layers["set"], layers["share"], strict=True)):
        rows = layers.loc[(layers["set"] == name) & (layers["share"] == share)]
        x = rows["layer"].astype(int).tolist()
        lines = [Series(key, x, rows[key].tolist()) for key in ("intact", "masked")]
        lines.append(Series("running", x, rows["running"].tolist(), rows["low"].tolist(), rows["high"].tolist()))
        if rows["retrained"].notna().all():
            lines.append(Series("retrained", x, rows["retrained"].tolist()))
        key, label = f"{name} {share}", f"{name}, {share:.1%}"
        figure = line_chart(lines, x="layer", y="score", step=max(1, -(-len(x) // 13)))
        scores.append(View(key, label, figure, "ablation", {"set": name, "share": f"{share:.7g}"}, LAYERS))
        changes.append(Series(label, x, rows["change"].tolist()))
    moved = line_chart(changes, x="layer", y="distance moved")
    return [
        Panel(
            "Probes of each layer",
            "Masked: the probe does not see the neurons. Running: the model does not have them, so layers above them "
            "compute without them. Where running falls below masked, the model used them.",
            tuple(scores),
            choice="Silenced",
        ),
        Panel(
            "How far words moved",
            "Distance of the test words from where they are in the intact model, as a share of their spread there.",
            (View("change", "change", moved, "ablation", having=LAYERS),),
        ),
    ]
