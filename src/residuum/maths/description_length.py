"""Online description length of labels given representations (Voita & Titov 2020)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int

from residuum.errors import DataError, SettingError
from residuum.maths.features import BLOCK, Features, select_words, windows
from residuum.maths.probing import PaperRecipe, Probe, ProbeRecipe, check_battery, fit
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
    features: Features,
    targets: Mapping[str, Target],
    probes: Sequence[Probe],
    generator: np.random.Generator,
    *,
    fractions: Sequence[float] = FRACTIONS,
    recipe: ProbeRecipe | None = None,
) -> list[DescriptionLength]:
    """Online code length of each probe's labels, all probes together.

    L = t₁ log₂ C − Σᵢ log₂ p_θᵢ(y of words tᵢ+1 … tᵢ₊₁), where θᵢ is trained on the first tᵢ words. The words
    are shuffled by the generator first; steps that hold no new word are left out. At most
    half of an array is copied, and at most a window of shards is held.
    """
    _check(features, targets, probes, fractions)
    n_words = features.shape[0]
    order = generator.permutation(n_words)
    stops = np.unique(np.maximum(np.round(np.asarray(fractions) * n_words).astype(int), 1))
    classes = np.array([targets[probe.target].n_classes for probe in probes])
    bits = stops[0] * np.log2(classes)
    for known, until in pairwise(stops.tolist()):
        words = np.sort(order[:known])
        learnt = {name: Target(target.values[words], target.classes) for name, target in targets.items()}
        trained = fit(select_words(features, words), learnt, probes, recipe or PaperRecipe())
        for rows, x in _blocks(features, np.sort(order[known:until])):
            for place, probe in enumerate(trained):
                values = targets[probe.probe.target].values[rows]
                bits[place] -= probe.log_probabilities(x)[np.arange(len(x)), values].sum() / np.log(2)
    uniform = n_words * np.log2(classes)
    return [DescriptionLength(*pair) for pair in zip(bits.tolist(), uniform.tolist(), strict=True)]


def _check(
    features: Features,
    targets: Mapping[str, Target],
    probes: Sequence[Probe],
    fractions: Sequence[float],
) -> None:
    if not fractions or fractions[-1] != 1 or min(fractions) <= 0 or list(fractions) != sorted(set(fractions)):
        raise SettingError(f"The fractions are {list(fractions)}; they must grow from above 0 to exactly 1.")
    check_battery(features, targets, probes)
    for probe in probes:
        target = targets[probe.target]
        if target.n_classes < 2:
            raise DataError(f"The target {probe.target!r} has no classes; a description length is of class labels.")
        if len(target.values) != features.shape[0]:
            raise DataError(f"{features.shape[0]} words came with {len(target.values)} labels of {probe.target!r}.")


def _blocks(
    features: Features, words: Int[np.ndarray, " new"]
) -> Iterator[tuple[Int[np.ndarray, " word"], Float[np.ndarray, "word neuron"]]]:
    """Some words, some at a time, without a copy of all of them."""
    if isinstance(features, np.ndarray):
        for start in range(0, len(words), BLOCK):
            rows = words[start : start + BLOCK]
            yield rows, features[rows]
        return
    for window in windows(select_words(features, words)):
        for start in range(0, len(window.x), BLOCK):
            yield words[window.words[start : start + BLOCK]], window.x[start : start + BLOCK]
