"""How often the 95 % intervals that `compare` prints hold the true value, for all of its measures and curves.

Words of a sentence are correlated, as are occurrences of a type. The true value is the mean over corpora of the same
size: what other sentences of the same kind give.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from residuum.activations.store import Block
from residuum.comparison.compare import Comparison, _measure, chosen_measures
from residuum.comparison.estimates import ComparisonPlan
from residuum.comparison.passes import cut_into_groups, rows_of_sentences
from residuum.comparison.tables import beside_table
from residuum.engine import Engine
from residuum.maths.similarity import MEASURES
from residuum.models.alignment import Audit

WIDTH, TYPES, GROUPS = 6, 30, 10
CELLS = ["measure", "model_a", "layer_a", "model_b", "layer_b"]
CURVE = ["measure", "curve", "model", "layer"]
PRINTED = [
    name
    for name in chosen_measures("all")
    if np.isfinite(MEASURES[name].words_per_neuron) and MEASURES[name].function is None
]


@dataclass(frozen=True, eq=False)
class Simulated:
    """Layers of Gaussian words whose types, sentences and noise add up, and heads that look at near words."""

    sentences: list[list[str]]
    arrays: list[list[np.ndarray]]
    heads: list[list[np.ndarray]]

    name, fingerprint, text_name, unit, n_heads = "simulated", "00", "text", "word", 2
    layers, widths, left_out, audit = [1, 2, 3], [WIDTH] * 3, {}, Audit()

    def read(self, first: int, stop: int) -> Block:
        places = [(s, w) for s in range(first, stop) for w in range(len(self.sentences[s]))]
        layers = [np.concatenate([self.arrays[s][layer] for s in range(first, stop)]) for layer in range(3)]
        return Block(layers, np.array(places, dtype=np.int64).reshape(-1, 2))

    def read_attention(self, first: int, stop: int) -> list[list[np.ndarray]]:
        return self.heads[first:stop]


def text(rng: np.random.Generator, sentences: int) -> Simulated:
    """Sentences over a fixed network: layers and heads are the same for every text."""
    fixed = np.random.default_rng(0)
    types = fixed.standard_normal((3, TYPES, WIDTH))
    maps = [np.linalg.qr(fixed.standard_normal((WIDTH, WIDTH)))[0] * np.arange(1, WIDTH + 1) ** -0.5 for _ in range(3)]
    own = np.linspace(0.9, 0.3, WIDTH)  # how much of a direction all layers share
    reach = fixed.uniform(0.5, 3.0, (3, 2))
    often = 1 / np.arange(1, TYPES + 1)
    words, arrays, heads = [], [], []
    for _ in range(sentences):
        chosen = rng.choice(TYPES, rng.integers(4, 14), p=often / often.sum())

        def latent(part: int, chosen: np.ndarray = chosen) -> np.ndarray:
            shared, noise = rng.standard_normal((1, WIDTH)), rng.standard_normal((len(chosen), WIDTH))
            return np.sqrt(0.4) * types[part][chosen] + np.sqrt(0.2) * shared + np.sqrt(0.4) * noise

        z, parts = latent(0), (latent(1), latent(2))
        shares = (np.ones(WIDTH), own, own**2)
        mixed = [s * z + np.sqrt(1 - s**2) * parts[k % 2] for k, s in enumerate(shares)]
        arrays.append([(m @ a).astype(np.float32) for m, a in zip(mixed, maps, strict=True)])
        words.append([f"w{t}" for t in chosen])
        apart = np.abs(np.subtract.outer(np.arange(len(chosen)), np.arange(len(chosen))))
        scores = -apart / reach[:, :, None, None] + rng.standard_normal((3, 2, 1, 1)) * 0.3
        weights = np.exp(scores + 0.5 * rng.standard_normal(scores.shape[:2] + apart.shape))
        heads.append(list(weights / weights.sum(axis=3, keepdims=True)))
    return Simulated(words, arrays, heads)


def measured(rng: np.random.Generator, sentences: int, folder: Path) -> Comparison:
    """What `compare` prints of one text."""
    source = text(rng, sentences)
    plan = ComparisonPlan(
        sources=[source],  # pyright: ignore[reportArgumentType]
        groups=cut_into_groups(rows_of_sentences(source), GROUPS),  # pyright: ignore[reportArgumentType]
        measures=PRINTED,
        options={},
        intervals=True,
        permutations=0,
        sample=80,
        seed=0,
        engine=Engine(),
        max_memory=None,
        scratch=folder,
    )
    return Comparison(_measure(plan, {}, "", progress=False))


def differences(result: Comparison) -> pd.DataFrame:
    """Layers 1 and 2 minus layers 2 and 3."""
    rows = []
    for measure in PRINTED:
        cells = [("simulated", x, "simulated", y) for x, y in ((1, 2), (2, 3))]
        one = result.difference(measure, *cells)
        rows.append((f"difference {measure}", float(one.value), float(one.low), float(one.high)))
    return pd.DataFrame(rows, columns=["measure", "value", "low", "high"])


def coverage(rng: np.random.Generator, sentences: int, texts: int, root: Path) -> pd.Series:
    """For each measure, curve and difference the share of intervals that hold the mean over all texts."""
    results = [measured(rng, sentences, root / str(number)) for number in range(texts)]
    cells = [one.frame.query("layer_a != layer_b") for one in results]
    curves = [one.curves.assign(measure=one.curves["curve"] + " " + one.curves["measure"]) for one in results]
    beside = [beside_table(a, b).query("layer_a != layer_b") for a, b in zip(cells[::2], cells[1::2], strict=True)]
    beside = [rows.assign(measure="two texts: " + rows["measure"], value=rows["difference"]) for rows in beside]
    found = []
    for frames, keys in (
        (cells, CELLS),
        (curves, CURVE),
        (beside, CELLS),
        ([differences(one) for one in results], ["measure"]),
    ):
        rows = pd.concat(frames)
        truth = rows.groupby(keys)["value"].transform("mean") if frames is not beside else 0.0
        inside = (rows["low"] - 1e-9 <= truth) & (truth <= rows["high"] + 1e-9)
        found.append(inside.where(rows["low"].notna()).groupby(rows["measure"]).mean())
    return pd.concat(found).astype(float)


def test_every_interval_that_is_printed_covers(tmp_path):
    found = coverage(np.random.default_rng(1), sentences=80, texts=12, root=tmp_path)
    assert set(PRINTED) <= set(found.index)
    assert found.notna().all(), found[found.isna()]
    assert (found >= 0.75).all(), found[found < 0.75]


@pytest.mark.slow
def test_every_interval_covers_as_often_as_it_says(tmp_path):
    found = coverage(np.random.default_rng(2), sentences=80, texts=200, root=tmp_path)
    assert (found >= 0.9).all(), found[found < 0.9]
