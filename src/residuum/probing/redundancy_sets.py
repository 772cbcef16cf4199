"""The fewest neurons that a task needs: the head of an LCA ranking, of all neurons and of the clustered ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Int

from residuum.errors import StoreError
from residuum.maths.selection import MinimalSet, Scorer, minimal_set
from residuum.probing.batteries import Bench
from residuum.probing.redundancy_probes import ORACLE, SCORE_COLUMNS, Penalty, score_subsets, score_table
from residuum.probing.redundancy_settings import Settings
from residuum.storage.files import read_json, write_json
from residuum.storage.results import Run

Neurons = Int[np.ndarray, " neuron"]
SETS = {"lca": "minimal set", "lca clustered": "minimal set after clustering"}
"""The rankings that are cut, and what their heads are called."""


def find_minimal_sets(
    bench: Bench,
    probes: Run,
    settings: Settings,
    penalty: Penalty,
    folder: Path,
    say: Callable[[str], object],
) -> Run:
    """Search the smallest sufficient head of each ranking on dev, then probe it with all seeds and the control task.

    Probes are retrained on every head that is tried (Dalvi et al. 2020, table 8; after clustering: CCFS, table 9).
    Scores are kept in `folder` as they come, so that a killed search goes on.
    """
    required = probes.config["required of the first seed"]
    found = {}
    for ranking, name in SETS.items():
        if ranking in probes.tensors:
            say(f"Looking for the {name} ({len(probes.tensors[ranking]):,} neurons ranked).")
            scorer = _remembered(bench.set_scorer("dev", l1=penalty.l1, l2=penalty.l2), folder / f"{ranking}.json")
            found[name] = minimal_set(probes.tensors[ranking], scorer, required)
    return Run(
        "redundancy",
        {},
        {name: len(minimal.neurons) for name, minimal in found.items()},
        {
            "reduction": _reduction_table(bench, probes, found, settings, penalty, say),
            "tried": _tried_table(found),
            "selected": _selected_table(bench, found),
        },
    )


def _remembered(score_sets: Scorer, path: Path) -> Scorer:
    """The same scorer of heads of one ranking, that looks in a file first: a head is known by its size."""
    known = _known_scores(path)

    def scored(sets: Sequence[Neurons]) -> list[float]:
        new = [neurons for neurons in sets if str(len(neurons)) not in known]
        if new:
            known.update({str(len(n)): float(s) for n, s in zip(new, score_sets(new), strict=True)})
            write_json(path, known)
        return [known[str(len(neurons))] for neurons in sets]

    return scored


def _known_scores(path: Path) -> dict[str, float]:
    """The scores that a killed search left, by the number of neurons."""
    known = read_json(path) if path.exists() else {}
    named = isinstance(known, dict) and all(size.isdecimal() for size in known)
    if not named or not all(isinstance(score, float) for score in known.values()):
        raise StoreError(f"{path} does not hold scores by number of neurons; remove it, and they are computed again.")
    return known


def _reduction_table(
    bench: Bench,
    probes: Run,
    found: Mapping[str, MinimalSet],
    settings: Settings,
    penalty: Penalty,
    say: Callable[[str], object],
) -> pd.DataFrame:
    """Oracle, lowest sufficient layer, clustered neurons and minimal sets side by side."""
    layers, thresholds = probes.tables["layers"], probes.tables["thresholds"]
    parts = [_named(ORACLE, thresholds.iloc[[0]])]
    if not (enough := layers.loc[layers["enough"]]).empty:
        parts.append(_named(f"layer {enough.iloc[0]['layer']} alone", enough.iloc[[0]]))
    if (chosen := probes.summary["threshold"]) is not None:
        parts.append(_named(f"clustered at {chosen:g}", thresholds.loc[thresholds["threshold"] == chosen]))
    subsets = {name: lambda seed, neurons=minimal.neurons: np.sort(neurons) for name, minimal in found.items()}
    measured = score_table(bench, score_subsets(bench, subsets, settings, penalty, say))
    measured = measured.assign(enough=measured["dev"] >= probes.summary["required on dev"])
    table = pd.concat([*parts, *(_named(name, measured.loc[[name]]) for name in found)], ignore_index=True)
    table.insert(2, "share", table["neurons"] / bench.splits.layout.n_neurons)
    return table


def _named(name: str, row: pd.DataFrame) -> pd.DataFrame:
    own = row.loc[:, ["neurons", *SCORE_COLUMNS, "enough"]].astype({"neurons": int})
    own.insert(0, "set", name)
    return own


def _tried_table(found: Mapping[str, MinimalSet]) -> pd.DataFrame:
    """Every size that was tried, and its score on dev."""
    rows = [(name, size, score, score >= m.required) for name, m in found.items() for size, score in m.tried]
    return pd.DataFrame(rows, columns=pd.Index(["set", "neurons", "dev", "enough"]))


def _selected_table(bench: Bench, found: Mapping[str, MinimalSet]) -> pd.DataFrame:
    """The neurons of each minimal set, most important first."""
    layout = bench.splits.layout
    layers = np.array(layout.layers)[layout.positions]
    parts = [
        pd.DataFrame(
            {
                "set": name,
                "rank": np.arange(1, len(minimal.neurons) + 1),
                "neuron": layout.format(minimal.neurons.tolist()),
                "layer": layers[minimal.neurons],
            }
        )
        for name, minimal in found.items()
    ]
    return pd.concat(parts, ignore_index=True)
