"""Tables of classes: how well each is found from each layer, and which layers are enough for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from residuum.maths.probe_scores import ClassScores
from residuum.maths.selection import sufficient_classes
from residuum.probing.batteries import Score

SetScores = Mapping[str, Sequence[Score]]
"""The scores of the task's probes on each set of neurons, one for each seed."""


def class_table(
    layers: Mapping[str, int | None], classes: Sequence[str], dev: SetScores, test: SetScores, keep: float
) -> pd.DataFrame:
    """A row for each class and set of neurons: precision, recall and F1 on test, means over seeds.

    `layers` names the sets, each with the layer that it is; the one without is the oracle. A class counts as sufficient
    where its recall on dev keeps the share `keep` of the oracle's.
    """
    whole = next(name for name, layer in layers.items() if layer is None)
    oracle = _means(dev[whole])["recall"]
    parts = []
    for name, layer in layers.items():
        enough = sufficient_classes(_means(dev[name])["recall"], oracle, keep)
        columns = {"features": name, "layer": layer, "class": classes, **_means(test[name])}
        parts.append(pd.DataFrame({**columns, "sufficient": enough}).astype({"layer": "Int64"}))
    return pd.concat(parts, ignore_index=True)


def class_layer_table(classes: pd.DataFrame) -> pd.DataFrame:
    """A row for each class: what the oracle finds of it, and which layers are enough (Dalvi et al. 2020, A.3)."""
    rows: list[dict[str, Any]] = []
    for label, own in classes.groupby("class", sort=False):
        enough = own.loc[own["sufficient"] & own["layer"].notna(), "layer"].tolist()
        oracle = own.loc[own["layer"].isna()].iloc[0]
        rows.append(
            {
                "class": label,
                "support": oracle["support"],
                "oracle_recall": oracle["recall"],
                "lowest_layer": min(enough, default=None),
                "sufficient_layers": ",".join(map(str, enough)),
                "n_sufficient": len(enough),
            }
        )
    return pd.DataFrame(rows).astype({"lowest_layer": "Int64"})


def _means(scores: Sequence[Score]) -> dict[str, np.ndarray]:
    """Support, and the means over seeds of precision, recall and F1 of each class."""
    found = [score.details for score in scores if isinstance(score.details, ClassScores)]
    means = {key: np.mean([getattr(s, key) for s in found], axis=0) for key in ("precision", "recall", "f1")}
    return {"support": found[0].support, **means}
