"""The study of Bui (2022) on distillation: its ten losses (table 4.7) and its ablations (table 4.8), one run a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from residuum.costs import Cost
from residuum.distillation import distill
from residuum.distillation.distilling import plan, with_fingerprints
from residuum.distillation.presets import TABLE_4_7
from residuum.distillation.settings import read_settings
from residuum.errors import SettingError
from residuum.storage.results import Result, Run, finished_run, write_run

TABLES: dict[str, dict[str, dict[str, Any]]] = {
    "4.7": {preset: {"preset": preset} for preset in TABLE_4_7},
    "4.8": {
        "monoshot": {"preset": "monoshot"},
        "monoshot-without-sharing": {"preset": "monoshot", "share": "none"},
        "monoshot-without-teacher-start": {"preset": "monoshot", "initialise": "random"},
        "monoshot-without-tying": {"preset": "monoshot", "tie": False},
    },
}


@dataclass(frozen=True, eq=False)
class DistillationTables(Result):
    """The scores of the students of every row, side by side."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """row, score, subject, value and parameters."""
        return self.run.tables["scores"]


def study_distillation(
    config: str | Path | Mapping[str, Any],
    out: str | Path,
    *,
    tables: Sequence[str] = ("4.7", "4.8"),
    device: str = "auto",
    fresh: bool = False,
    progress: bool = True,
    say: Callable[[str], object] = lambda line: None,
) -> DistillationTables:
    """Distil once for each row of the tables, all from the settings of `config`, and put the scores side by side.

    `config` is one of `distill`; its preset is replaced by each row's. Rows that are done are not done again.
    """
    base, out = _base(config), Path(out)
    rows = _rows(tables)
    identity = {"config": with_fingerprints(base), "tables": list(tables)}
    if run := finished_run(out, "study distillation", identity, fresh=fresh):
        return DistillationTables(run)
    found = []
    for name, changes in rows.items():
        say(f"{name} …")
        result = distill({**base, **changes}, out / name, device=device, fresh=fresh, progress=progress)
        final = result.scores[result.scores["step"] == result.scores["step"].max()]
        parameters = result.run.summary["parameters of all students"]
        found.append(final.assign(row=name, parameters=parameters)[["row", "score", "subject", "value", "parameters"]])
    run = Run("study distillation", identity, {"rows": len(rows)}, {"scores": pd.concat(found, ignore_index=True)})
    write_run(out, run)
    return DistillationTables(run)


def study_distillation_cost(
    config: str | Path | Mapping[str, Any], *, tables: Sequence[str] = ("4.7", "4.8"), device: str = "auto"
) -> Cost:
    """What `study_distillation` would take: the plan of every row, each by its own first steps."""
    base = _base(config)
    steps = [
        replace(step, name=f"{name}: {step.name}")
        for name, changes in _rows(tables).items()
        for step in plan({**base, **changes}, device=device).cost.steps
    ]
    return Cost(f"distillation, tables {', '.join(tables)}", tuple(steps))


def _base(config: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    values = read_settings(config).model_dump(mode="json", exclude_unset=True)
    for key in ("losses", "preset", "layer_map", "out"):  # each row has its own
        values.pop(key, None)
    return values


def _rows(tables: Sequence[str]) -> dict[str, dict[str, Any]]:
    unknown = [table for table in tables if table not in TABLES]
    if unknown or not tables:
        raise SettingError(f"Table {(unknown or ['none'])[0]} is not of this study; choose from {', '.join(TABLES)}.")
    return {name: changes for table in tables for name, changes in TABLES[table].items()}
