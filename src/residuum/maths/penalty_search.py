"""Choosing λ1 and λ2 by how well the probe's weights separate neurons (Durrani et al. 2021, A.7–A.8)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from residuum.errors import DataError
from residuum.maths.features import Features
from residuum.maths.probing import Probe, Recipe, TrainedProbe, predict_probes, train_probes
from residuum.maths.rankings import lca_ranking
from residuum.maths.selection import top_and_bottom
from residuum.maths.targets import Target

LAMBDAS = (0.0, *(10.0**-power for power in range(1, 8)))
"""The values of Durrani et al. (2021): 0, 1e-1, … 1e-7."""
SEARCH_COPIES = 2
"""Copies of a probe that has learnt: with its top neurons alone, and with its bottom ones."""
SHARE = 0.2
"""Share of neurons in the top and bottom sets while the penalties are searched (M = 20 %)."""


@dataclass(frozen=True)
class PenaltyScore:
    """One cell of the λ grid: accuracy of the whole probe, and with only its top or bottom neurons."""

    l1: float
    l2: float
    accuracy: float
    top: float
    bottom: float

    def merit(self, unpenalised: float) -> float:
        """½ (top − bottom) − ½ (unpenalised − accuracy): tells neurons apart, costs little accuracy.

        The criterion of Dalvi et al. (2019) with α = β = ½.
        """
        return 0.5 * (self.top - self.bottom) - 0.5 * (unpenalised - self.accuracy)


def search_penalty(
    train: Features,
    target: Target,
    held_out: Features,
    truth: Int[np.ndarray, " word"],
    *,
    lambdas: Sequence[float] = LAMBDAS,
    share: float = SHARE,
    seed: int = 0,
    recipe: Recipe | None = None,
    at_once: int | None = None,
) -> list[PenaltyScore]:
    """Score every pair of penalties: N² probes in one battery, ranked by LCA, ablated without retraining.

    The size of the neuron sets stays at `share` here and is searched afterwards with the chosen penalties, so
    the whole search is O(M + N²) probes, not O(M N²). `truth` numbers the held-out classes as `target` does.
    Where memory is short, no more than `at_once` of the probes learn together.
    """
    if target.n_classes == 0:
        raise DataError("The λ search scores accuracies; the target has no classes.")
    probes = penalty_grid("task", lambdas, seed)
    found, at_once = [], at_once or len(probes)
    for start in range(0, len(probes), at_once):
        some = probes[start : start + at_once]
        trained = train_probes(train, {"task": target}, some, recipe)
        variants = [variant for probe in trained for variant in (probe, *_ablated(probe, share))]
        accuracy = [float(np.mean(predicted == truth)) for predicted in predict_probes(variants, held_out)]
        scores = zip(*(accuracy[kind::3] for kind in range(3)), strict=True)
        found += [PenaltyScore(probe.l1, probe.l2, *own) for probe, own in zip(some, scores, strict=True)]
    return found


def penalty_grid(target: str, lambdas: Sequence[float] = LAMBDAS, seed: int = 0) -> list[Probe]:
    """A probe of all neurons for every pair of penalties."""
    return [Probe(target, None, l1, l2, seed) for l1 in lambdas for l2 in lambdas]


def best_penalty(grid: Sequence[PenaltyScore]) -> PenaltyScore:
    """The cell with the highest merit; equal merits: the larger penalties, which leave fewer neurons."""
    unpenalised = [cell.accuracy for cell in grid if cell.l1 == 0 and cell.l2 == 0]
    if not unpenalised:
        raise DataError("The λ grid has no cell with λ1 = λ2 = 0; add 0 to the values, the others are compared to it.")
    return max(grid, key=lambda cell: (cell.merit(unpenalised[0]), cell.l1, cell.l2))


def _ablated(probe: TrainedProbe, share: float) -> tuple[TrainedProbe, TrainedProbe]:
    top, bottom = top_and_bottom(probe.neurons[lca_ranking(probe.weight).order], share)
    return probe.keeping(top), probe.keeping(bottom)
