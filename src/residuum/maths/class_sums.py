"""Sums of activations per class: all that the probeless, mean-difference and Gaussian rankings need."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from residuum.errors import DataError
from residuum.maths.arrays import constant_neurons, rounding_floor


@dataclass(frozen=True, eq=False)
class ClassSums:
    """Words, Σx and Σx² per class, in float64; sums of parts of the data add up with `+`."""

    counts: Int[np.ndarray, " class"]
    sums: Float[np.ndarray, "class neuron"]
    squares: Float[np.ndarray, "class neuron"]

    def __add__(self, other: "ClassSums") -> "ClassSums":
        return ClassSums(self.counts + other.counts, self.sums + other.sums, self.squares + other.squares)

    @property
    def present_means(self) -> Float[np.ndarray, "class neuron"]:
        """Class means of the classes that have words."""
        present = self.counts > 0
        return self.sums[present] / self.counts[present, None]

    @property
    def deviation(self) -> Float[np.ndarray, " neuron"]:
        """Standard deviation of each neuron over all words; exactly 0 where it is constant (`maths.constancy`)."""
        n_words = int(self.counts.sum())
        mean = self.sums.sum(axis=0) / n_words
        scatter = self.squares.sum(axis=0) - n_words * mean**2
        constant = constant_neurons(scatter, rounding_floor(n_words, mean))
        return np.sqrt(np.where(constant, 0, scatter) / n_words)

    def between_column(self, neuron: int) -> Float[np.ndarray, " neuron"]:
        """One column of the between-class scatter Σ_c n_c (μ_c − μ)(μ_c − μ)ᵀ."""
        centred = self.centred_means
        return (self.counts[self.counts > 0] * centred[:, neuron]) @ centred

    @property
    def between_diagonal(self) -> Float[np.ndarray, " neuron"]:
        """The diagonal of the between-class scatter."""
        return self.counts[self.counts > 0] @ self.centred_means**2

    @property
    def centred_means(self) -> Float[np.ndarray, "class neuron"]:
        """Class means around the mean of all words, classes with words only."""
        return self.present_means - self.sums.sum(axis=0) / self.counts.sum()


def class_sums(x: Float[np.ndarray, "word neuron"], classes: Int[np.ndarray, " label"], n_classes: int) -> ClassSums:
    """Sums of one block of words; add the blocks of a stream."""
    if len(x) != len(classes):
        raise DataError(f"{len(x)} words came with {len(classes)} labels; give one label per word.")
    if len(classes) and not 0 <= classes.min() <= classes.max() < n_classes:
        raise DataError(f"The labels run from {classes.min()} to {classes.max()}; there are {n_classes} classes.")
    x = np.asarray(x, np.float64)
    if not np.isfinite(x).all():
        raise DataError("The activations contain NaN or infinite values; extract them again or drop those words.")
    membership = np.eye(n_classes)[classes].T
    return ClassSums(np.bincount(classes, minlength=n_classes), membership @ x, membership @ x**2)
