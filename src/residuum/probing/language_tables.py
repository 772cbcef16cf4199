"""The tables of `probe_languages`: per language, family and threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from residuum.maths.clustering import Clustering
from residuum.maths.probe_scores import ClassScores
from residuum.probing.batteries import Bench
from residuum.probing.families import family_of
from residuum.probing.measuring import Measurement, NeuronSet
from residuum.probing.parallel import ParallelTreebanks
from residuum.probing.tables import score_columns, unseen_table


def language_table(
    model: str,
    language: str,
    measured: Measurement,
    sets: Sequence[NeuronSet],
    treebanks: ParallelTreebanks,
    twin: float = np.nan,
    families: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """A row for each set of neurons of one model in one language.

    `held_out` is the score on the sentences whose counterparts were not learnt from. The control task is one of word
    types, so it says something only in the language that was learnt from; elsewhere it stays blank. `twin` is what all
    neurons of the model's random twin get, and stands beside every set.
    """
    at_home = language == treebanks.source
    rows = []
    for one in sets:
        columns = score_columns(measured, one.name)
        if not at_home:
            columns |= {"control": np.nan, "control_sd": np.nan, "selectivity": np.nan}
        rows.append(
            {
                "model": model,
                "language": language,
                "family": family_of(language, families),
                "kind": one.kind,
                "features": one.name,
                "threshold": _threshold(one),
                "neurons": one.n_neurons,
                **columns,
                "random_twin": twin,
                "held_out": _score_on(measured, one.name, treebanks.held_out),
                "words": len(measured.bench.splits.test),
                "unseen": _n_unseen(measured, one.name),
            }
        )
    return pd.DataFrame(rows)


def family_table(languages: pd.DataFrame, source: str) -> pd.DataFrame:
    """Means over the languages of a family, without the language that was learnt from."""
    abroad = languages.loc[languages["language"] != source]
    rows = []
    for (model, family, kind, features), own in abroad.groupby(["model", "family", "kind", "features"], sort=False):
        rows.append(
            {
                "model": model,
                "family": family,
                "kind": kind,
                "features": features,
                "threshold": own["threshold"].iloc[0],
                "neurons": own["neurons"].iloc[0],
                "languages": own["language"].nunique(),
                "score": own["score"].mean(),
                "held_out": own["held_out"].mean(),
            }
        )
    return pd.DataFrame(rows)


def wide_table(languages: pd.DataFrame) -> pd.DataFrame:
    """A row for each threshold, a column for each family, language and model, families together."""
    rows = languages.loc[languages["kind"] == "threshold"].sort_values(by=["family", "language"], kind="stable")
    columns: dict[str, dict[float, float]] = {}
    for row in rows.to_dict("records"):
        name = f"{row['family']}, {row['language']}, {row['model']}"
        columns.setdefault(name, {})[row["threshold"]] = row["score"]
    return pd.DataFrame(columns).sort_index().rename_axis("threshold").reset_index()


def cluster_table(model: str, kept: Sequence[NeuronSet], clustering: Clustering) -> pd.DataFrame:
    """How many neurons each threshold leaves, and how many of a model's neurons are constant."""
    total = len(clustering.constant)
    return pd.DataFrame(
        {
            "model": model,
            "threshold": [_threshold(one) for one in kept],
            "neurons": [one.n_neurons for one in kept],
            "share": [one.n_neurons / total for one in kept],
            "constant": clustering.n_constant,
        }
    )


def language_baselines(benches: Mapping[str, Bench], families: Mapping[str, str] | None = None) -> pd.DataFrame:
    """What the source's most frequent label, and its most frequent label of each word, get right in each language."""
    found = {language: bench.baselines("test") for language, bench in benches.items()}
    return pd.DataFrame(
        [
            {"language": language, "family": family_of(language, families), "baseline": name, "score": score}
            for language, scores in found.items()
            for name, score in scores.items()
        ]
    )


def unseen_labels(benches: Mapping[str, Bench]) -> pd.DataFrame:
    """The labels that the source never has, by language; they count as errors."""
    found = {language: unseen_table(bench).to_dict("records") for language, bench in benches.items()}
    rows = [{"language": language, **row} for language, labels in found.items() for row in labels]
    return pd.DataFrame(rows, columns=["language", "label", "examples"]).astype({"examples": int})


def _threshold(one: NeuronSet) -> float:
    return float(one.name.removeprefix("threshold ")) if one.kind == "threshold" else np.nan


def _score_on(measured: Measurement, name: str, sentences: Sequence[int]) -> float:
    """The mean accuracy over seeds on some sentences; NaN where none of their words has a label."""
    chosen = np.isin(measured.bench.splits.test.sentences, sentences)
    details = [s.details for s in measured.scores[name, "task"] if isinstance(s.details, ClassScores)]
    return float(np.mean([d.correct[chosen].mean() for d in details])) if chosen.any() else np.nan


def _n_unseen(measured: Measurement, name: str) -> int:
    details = measured.scores[name, "task"][0].details
    return details.n_unseen if isinstance(details, ClassScores) else 0
