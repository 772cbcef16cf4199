"""Measures beside the code of ReSi (Klabunde et al. 2025) and of netrep (Williams et al. 2021).

`RESIDUUM_PEERS` is a folder with checkouts of github.com/mklabunde/resi and github.com/ahwillia/netrep.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from residuum.maths.similarity import similarity

PEERS = Path(os.environ.get("RESIDUUM_PEERS", "peers"))
ONE = {"n_jobs": 1}


@pytest.fixture
def layers():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 12))
    y = x @ rng.standard_normal((12, 16)) + rng.standard_normal((300, 16))
    return x - x.mean(axis=0), y - y.mean(axis=0)


@pytest.fixture
def resi(monkeypatch):
    """A function of ReSi by its module and name; only numpy, scipy, scikit-learn and torch are needed for these."""
    if not (PEERS / "resi").exists():
        pytest.skip("RESIDUUM_PEERS names no folder with a checkout of mklabunde/resi")
    for name, held in (("loguru", "logger"), ("einops", "rearrange")):
        module = ModuleType(name)
        setattr(module, held, import_module("logging").getLogger(name))
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("repsim", "repsim.measures"):  # whose own __init__ loads what is not needed here
        module = ModuleType(name)
        module.__path__ = [str(PEERS / "resi" / name.replace(".", "/"))]
        monkeypatch.setitem(sys.modules, name, module)
    return lambda module, name: getattr(import_module(f"repsim.measures.{module}"), name)


@pytest.mark.parametrize(
    ("measure", "module", "name", "ours", "theirs"),
    [
        ("knn_jaccard", "nearest_neighbor", "jaccard_similarity", {}, ONE),
        ("rank_similarity", "nearest_neighbor", "rank_similarity", {}, ONE),
        ("distance_correlation", "distance_correlation", "distance_correlation", {}, ONE),
        ("rsa", "rsa", "representational_similarity_analysis", {"distance": "correlation"}, ONE),
        (
            "rsa",
            "rsa",
            "representational_similarity_analysis",
            {"distance": "euclidean"},
            {"inner": "euclidean", **ONE},
        ),
        ("eigenspace_overlap", "eigenspace_overlap", "eigenspace_overlap_score", {"variance": 1.0}, {}),
        ("cka", "cka", "centered_kernel_alignment", {}, {}),
    ],
)
def test_similarities_are_those_of_resi(measure, module, name, ours, theirs, layers, resi):
    expected = float(resi(module, name)(*layers, "nd", **theirs))
    assert similarity(*layers, measure, **ours) == pytest.approx(expected, abs=1e-9)


def test_similarities_are_made_from_the_distances_of_resi(layers, resi):
    distance = float(resi("procrustes", "orthogonal_procrustes_centered_and_normalized")(*layers, "nd"))
    assert similarity(*layers, "procrustes") == pytest.approx(1 - distance**2 / 2, abs=1e-9)
    angle = float(resi("procrustes", "orthogonal_angular_shape_metric_centered")(*layers, "nd"))
    assert similarity(*layers, "shape") == pytest.approx(1 - 2 / np.pi * angle, abs=1e-9)


def test_matching_is_the_hard_match_of_resi_where_no_correlation_is_negative(resi):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 12))
    x += 3 * x.mean(axis=1, keepdims=True)
    y = x @ np.abs(rng.standard_normal((12, 9)))
    expected = float(resi("correlation_match", "hard_correlation_match")(x, y, "nd"))
    assert similarity(x, y, "matching") == pytest.approx(expected, abs=1e-9)


def test_gulp_is_a_share_of_the_distance_of_resi(layers, resi):
    x, y = layers[0], layers[1][:, :12]
    weight = 0.01 / 12  # theirs is per total variance, ours per mean variance of a neuron
    largest = 0.0
    for z in (x, y):
        values = np.linalg.eigvalsh(z.T @ z)
        largest += float(np.sum((values / values.sum() / (values / values.sum() + weight)) ** 2))
    expected = 1 - resi("gulp", "gulp")(x, y, "nd", lmbda=weight) / largest
    assert similarity(x, y, "gulp", regularization=0.01) == pytest.approx(expected, abs=1e-9)


def test_shape_is_the_angular_metric_of_netrep(layers, monkeypatch):
    if not (PEERS / "netrep").exists():
        pytest.skip("RESIDUUM_PEERS names no folder with a checkout of ahwillia/netrep")
    monkeypatch.syspath_prepend(str(PEERS / "netrep"))
    metrics = import_module("netrep.metrics")
    x, y = layers
    wide = np.hstack([x, np.zeros((len(x), y.shape[1] - x.shape[1]))])
    angle = metrics.LinearMetric(alpha=1.0, center_columns=True, score_method="angular").fit_score(wide, y)
    assert similarity(x, y, "shape") == pytest.approx(1 - 2 / np.pi * angle, abs=1e-9)
