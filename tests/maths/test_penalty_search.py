import numpy as np
import pytest

from residuum.errors import DataError
from residuum.maths.penalty_search import LAMBDAS, PenaltyScore, best_penalty, search_penalty
from residuum.maths.probing import Probe, Recipe, train_probes
from residuum.maths.rankings import lca_ranking
from residuum.maths.targets import class_target, number_target

RNG = np.random.default_rng(0)
X = RNG.standard_normal((1500, 30)).astype(np.float32)
TAGS = (X[:, :6] @ RNG.standard_normal((6, 3))).argmax(axis=1)
TARGET = class_target([str(tag) for tag in TAGS])


def test_a_cell_is_scored_like_the_same_probe_ablated_by_hand():
    grid = search_penalty(X, TARGET, X[:500], TARGET.values[:500], lambdas=(0.0, 1e-2), recipe=Recipe(epochs=5))
    assert [(cell.l1, cell.l2) for cell in grid] == [(0, 0), (0, 1e-2), (1e-2, 0), (1e-2, 1e-2)]
    (probe,) = train_probes(X, {"t": TARGET}, [Probe("t", l1=1e-2, l2=0.0)], Recipe(epochs=5))
    order = lca_ranking(probe.weight).order
    for neurons, found in ((order, grid[2].accuracy), (order[:6], grid[2].top), (order[-6:], grid[2].bottom)):
        masked = np.zeros_like(X[:500])
        masked[:, neurons] = X[:500, neurons]
        expected = np.mean(probe.predict(masked) == TARGET.values[:500])
        assert found == pytest.approx(expected, abs=0.003)


def test_informative_neurons_stand_on_top():
    grid = search_penalty(X, TARGET, X, TARGET.values, lambdas=(0.0, 1e-4), recipe=Recipe(epochs=200))
    for cell in grid:
        assert cell.top > 0.9 > 0.6 > cell.bottom


def test_the_best_penalty_weighs_separation_against_lost_accuracy():
    none = PenaltyScore(0.0, 0.0, accuracy=0.9, top=0.7, bottom=0.5)
    sharp = PenaltyScore(1e-3, 1e-3, accuracy=0.88, top=0.85, bottom=0.2)
    ruined = PenaltyScore(1e-1, 1e-1, accuracy=0.3, top=0.3, bottom=0.1)
    assert sharp.merit(0.9) == pytest.approx(0.5 * 0.65 - 0.5 * 0.02)
    assert best_penalty([none, sharp, ruined]) == sharp


def test_equal_merits_go_to_the_stronger_penalty():
    cells = [PenaltyScore(l1, 0.0, 0.9, 0.7, 0.5) for l1 in (0.0, 1e-3, 1e-5)]
    assert best_penalty(cells).l1 == 1e-3


def test_the_published_grid_starts_at_zero_and_ends_at_1e_7():
    assert len(LAMBDAS) == 8
    np.testing.assert_allclose(LAMBDAS, [0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7])


def test_bad_input_is_explained():
    with pytest.raises(DataError, match="λ1 = λ2 = 0"):
        best_penalty([PenaltyScore(1e-3, 0.0, 0.9, 0.7, 0.5)])
    with pytest.raises(DataError, match="no classes"):
        search_penalty(X, number_target(X[:, 0]), X, TARGET.values)
