"""Online description length of labels given representations (Voita & Titov 2020)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from residuum.errors import DataError, SettingError
from residuum.maths.features import BLOCK
from residuum.maths.probing import Probe, Recipe, TrainedProbe, check_battery, fit
from residuum.maths.targets import Target

FRACTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""The growing shares of the data of Voita & Titov (2020)."""


@dataclass(frozen=True)
class DescriptionLength:
    """Bits to send all labels: by the online code, and by one that knows only the number of classes."""

    online_bits: float
    uniform_bits: float

    @property
    def compression(self) -> float:
        """uniform / online: 1 when the representation says nothing of the labels, larger the more it says."""
        return self.uniform_bits / self.online_bits


def description_lengths(
    x: Float[np.ndarray, "word neuron"],
    targets: Mapping[str, Target],
    probes: Sequence[Probe],
    generator: np.random.Generator,
    *,
    fractions: Sequence[float] = FRACTIONS,
    recipe: Recipe | None = None,
) -> list[DescriptionLength]:
    """Online code length of each probe's labels, all probes together.

    L = t₁ log₂ C − Σᵢ log₂ p_θᵢ(y of words tᵢ+1 … tᵢ₊₁), where θᵢ is trained on the first tᵢ words. The words
    are shuffled by the generator first; steps that hold no new word are left out.
    """
    _check(x, targets, probes, fractions)
    order = generator.permutation(len(x))
    stops = np.unique(np.maximum(np.round(np.asarray(fractions) * len(x)).astype(int), 1))
    classes = np.array([targets[probe.target].n_classes for probe in probes])
    bits = stops[0] * np.log2(classes)
    for known, until in pairwise(stops.tolist()):
        trained = _train_on(x, targets, probes, order[:known], recipe or Recipe())
        bits += [_bits(probe, x, targets[probe.probe.target], order[known:until]) for probe in trained]
    uniform = len(x) * np.log2(classes)
    return [DescriptionLength(*pair) for pair in zip(bits.tolist(), uniform.tolist(), strict=True)]


def _check(
    x: Float[np.ndarray, "word neuron"],
    targets: Mapping[str, Target],
    probes: Sequence[Probe],
    fractions: Sequence[float],
) -> None:
    if not fractions or fractions[-1] != 1 or min(fractions) <= 0 or list(fractions) != sorted(set(fractions)):
        raise SettingError(f"The fractions are {list(fractions)}; they must grow from above 0 to exactly 1.")
    check_battery(x, targets, probes)
    for probe in probes:
        target = targets[probe.target]
        if target.n_classes < 2:
            raise DataError(f"The target {probe.target!r} has no classes; a description length is of class labels.")
        if len(target.values) != len(x):
            raise DataError(f"{len(x)} words came with {len(target.values)} labels of {probe.target!r}.")


def _train_on(
    x: Float[np.ndarray, "word neuron"],
    targets: Mapping[str, Target],
    probes: Sequence[Probe],
    words: Int[np.ndarray, " known"],
    recipe: Recipe,
) -> list[TrainedProbe]:
    known = {name: Target(target.values[words], target.classes) for name, target in targets.items()}
    return fit(x[words], known, probes, recipe)


def _bits(
    probe: TrainedProbe, x: Float[np.ndarray, "word neuron"], target: Target, words: Int[np.ndarray, " new"]
) -> float:
    """−Σ log₂ p(label) over the words, block by block."""
    total = 0.0
    for start in range(0, len(words), BLOCK):
        block = words[start : start + BLOCK]
        log_p = probe.log_probabilities(x[block])
        total -= float(log_p[np.arange(len(block)), target.values[block]].sum())
    return total / np.log(2)
