"""The record of a transfer: its summary and its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from residuum.probing.batteries import Bench
from residuum.probing.examples import PARTS
from residuum.shrinking.candidates import Candidate, Candidates
from residuum.shrinking.costs import Costs
from residuum.shrinking.tables import curve_table, neuron_table, share_of_oracle, step_row
from residuum.storage.results import Run

NAMES = {"layers": "LayerSelector", "clusters": "clustering", "neurons": "feature selection"}


@dataclass(frozen=True, eq=False)
class Chosen:
    """The candidates of each step, and which steps were asked for (the oracle is trained in any case)."""

    by_step: Mapping[str, Candidates]
    steps: tuple[str, ...]

    @property
    def oracle(self) -> Candidate:
        """All neurons of all layers."""
        return self.by_step["layers"].tried[-1]

    @property
    def last(self) -> Candidate:
        """What the last step chose: what is written."""
        return [*self.by_step.values()][-1].best

    @property
    def named(self) -> dict[str, Candidate]:
        """The oracle and what each step chose."""
        return {"oracle": self.oracle} | {NAMES[name]: self.by_step[name].best for name in NAMES if name in self.steps}


def transfer_run(
    config: dict[str, Any],
    bench: Bench,
    chosen: Chosen,
    costs: Costs,
    measured: dict[str, Any],
    facts: dict[str, Any],
    seconds: Mapping[str, float],
    scores: Mapping[str, Sequence[float]],
) -> Run:
    """All that is kept of a transfer; `scores` are those of each step on test, one for each seed.

    The score that speaks for all is that of the folder as it was written, with its own interval: a trimmed vocabulary
    reads unseen words in other pieces than the probes did.
    """
    layout, oracle, last = bench.splits.layout, chosen.oracle, chosen.last
    steps = _steps_table(chosen, costs, measured, layout.n_neurons, scores, bool(config["trim"]))
    saved = steps.loc[steps["step"] == "as saved"].iloc[0]
    summary = {
        "task": config["task"],
        "metric": "pearson" if bench.splits.regression else "accuracy",
        "oracle": oracle.test,
        "score": measured["score"],
        "interval": measured["interval"],
        "share of oracle": share_of_oracle(measured["score"], oracle),
        "layers": last.layer,
        "neurons": last.n_neurons,
        "share of neurons": last.n_neurons / layout.n_neurons,
        "parameters": int(saved["parameters"]),
        "bytes": int(saved["bytes"]),
        **{key: value for key, value in measured.items() if key != "narrowed"},
        **facts,
        "good enough": all(own.sufficient for own in chosen.by_step.values()),
        "baselines": bench.baselines(),
        "examples": {part: len(getattr(bench.splits, part)) for part in PARTS},
    }
    tables = {
        "steps": steps,
        "curve": curve_table([*chosen.by_step.values()], costs),
        "neurons": neuron_table(last, layout),
        "costs": pd.DataFrame(list(costs.values())),
        "seconds": pd.DataFrame({"step": list(seconds), "seconds": list(seconds.values())}),
        "audit": bench.splits.audit,
    }
    return Run("transfer", config, summary, tables)


def _steps_table(
    chosen: Chosen,
    costs: Costs,
    measured: dict[str, Any],
    n_neurons: int,
    scores: Mapping[str, Sequence[float]],
    trimmed: bool,
) -> pd.DataFrame:
    """A row for each step, one for what was written, and one for the narrowed network where it was measured."""
    oracle, unknown = chosen.oracle, float("nan")
    rows = [
        {**step_row(name, own, oracle, costs, n_neurons), **_over_seeds(scores[name])}
        for name, own in chosen.named.items()
    ]
    rows[0]["ms"] = measured["ms of the whole model"]
    written = {
        "step": "as saved",
        "dev": unknown if trimmed else rows[-1]["dev"],
        "test": measured["score"],
        "low": measured["interval"][0],
        "high": measured["interval"][1],
        "share_of_oracle": share_of_oracle(measured["score"], oracle),
        "ms": measured["ms"],
        "mean": unknown,  # one classifier is written
        "sd": unknown,
    }
    rows.append({**rows[-1], **written})
    if "narrowed" in measured:
        own = measured["narrowed"]
        shares = {"share": own["neurons"] / n_neurons, "share_of_oracle": share_of_oracle(own["test"], oracle)}
        rows.append({"step": "narrowed", **own, **shares})
    return pd.DataFrame(rows)


def _over_seeds(scores: Sequence[float]) -> dict[str, float]:
    """Mean and standard deviation; one seed has none."""
    return {"mean": float(np.mean(scores)), "sd": float(np.std(scores, ddof=1)) if len(scores) > 1 else float("nan")}
