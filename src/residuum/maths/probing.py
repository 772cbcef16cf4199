"""Linear probes with an elastic net, many at a time (Dalvi et al. 2020; Durrani et al. 2021).

A *battery* is any list of probes over the same words: each layer, their concatenation, sets of neurons, a
grid of penalties, seeds, the task and its control task. All of them share every pass over the data. By default each
probe is solved to convergence (`maths.convex_probes`); `PaperRecipe` trains it with Adam as the papers do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int

from residuum.errors import DataError, SettingError
from residuum.maths.convex_probes import HISTORY, ConvexProblem, solve
from residuum.maths.features import (
    BLOCK,
    Features,
    FeatureWindow,
    check_finite,
    column_moments,
    select_columns,
    windows,
)
from residuum.maths.layouts import check_columns
from residuum.maths.probe_stack import Columns, ProbeStack, StackedProbe
from residuum.maths.targets import Target

LAMBDA = 1e-5
"""λ1 and λ2 of Dalvi et al. (2020)."""
PATH = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5)
"""λ2 of converged probes, from large to small."""


@dataclass(frozen=True, eq=False)
class Probe:
    """One probe of a battery: what it predicts, from which neurons (None: all), and its penalties.

    Penalties that are None are the recipe's. The seed is that of the paper recipe: it decides the initial weights and
    the order of the batches. A converged probe does not depend on it.
    """

    target: str
    neurons: Columns | None = None
    l1: float | None = None
    l2: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class ConvergedRecipe:
    """Probes with one solution each: standardised neurons, solved to within `tolerance` of the objective's minimum.

    A probe without its own λ2 gets the best one of `path` on held-out data, or `l2` where there are none; its λ1 is 0.
    """

    path: tuple[float, ...] = PATH
    l2: float = 1e-2
    tolerance: float = 3e-4
    iterations: int = 1000

    weight_bytes: ClassVar[int] = 8 * HISTORY + 80
    """Bytes per weight while solving: weight, gradient and step, the pairs of L-BFGS, and copies for products."""

    def __post_init__(self) -> None:
        if not self.path or min(*self.path, self.l2) <= 0 or list(self.path) != sorted(self.path, reverse=True):
            raise SettingError(
                f"Found λ2 {list(self.path)} and {self.l2}; expected positive ones, from large to small."
            )
        if not 0 < self.tolerance < np.inf or self.iterations < 1:
            raise SettingError(
                f"Found the tolerance {self.tolerance} and {self.iterations} iterations; expected both to be positive."
            )


@dataclass(frozen=True)
class PaperRecipe:
    """The papers' protocol: Adam, shuffled batches, the penalty added once per batch to the mean loss.

    `penalty="published"` is λ2‖θ‖₂, as the papers' code has it, instead of the λ2‖θ‖₂² that they write.
    `standardize` gives each neuron mean 0 and deviation 1 over the training words first (off in the papers).
    """

    epochs: int = 10
    batch_size: int = 128
    learning_rate: float = 1e-3
    penalty: str = "squared"
    standardize: bool = False

    weight_bytes: ClassVar[int] = 24
    """Bytes per weight while training: the weight, its gradient, Adam's two moments, the initial value, the result."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1 or not 0 < self.learning_rate < np.inf:
            raise SettingError(
                f"Probes cannot train for {self.epochs} epochs with batches of {self.batch_size} and the "
                f"learning rate {self.learning_rate}; all three must be positive and finite."
            )
        if self.penalty not in ("squared", "published"):
            raise SettingError(f"There is no penalty {self.penalty!r}; choose squared or published.")


ProbeRecipe = ConvergedRecipe | PaperRecipe


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Examples on which λ2 is chosen: their features and, for each target, the true classes (−1: unseen) or numbers.

    `scores` are the metrics of targets that are not judged by accuracy, as functions of the predicted classes: a
    constant answer can have the fewest errors and tell nothing.
    """

    features: Features
    truths: Mapping[str, np.ndarray]
    scores: Mapping[str, Callable[[np.ndarray], float]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TrainedProbe:
    """A probe that has learnt: `weight[c, j]` belongs to class c and column `neurons[j]` of the features.

    `penalty` is (λ1, λ2). `converged` says that the objective is within the tolerance of its minimum, after so many
    `iterations` for the last λ2; a probe of the paper recipe never is.
    """

    probe: Probe
    neurons: Int[np.ndarray, " neuron"]
    weight: Float[np.ndarray, "class neuron"]
    bias: Float[np.ndarray, " class"]
    n_classes: int
    n_features: int
    centre: Float[np.ndarray, " neuron"] | None = None
    scale: Float[np.ndarray, " neuron"] | None = None
    penalty: tuple[float, float] = (LAMBDA, LAMBDA)
    converged: bool = False
    iterations: int = 0

    def logits(self, x: Float[np.ndarray, "word neuron"]) -> Float[np.ndarray, "word class"]:
        """Class scores before the softmax (or the predicted numbers) for words × *all* neurons."""
        if x.shape[1] != self.n_features:
            raise DataError(
                f"The features have {x.shape[1]} neurons, the probe learnt from {self.n_features}. Give it "
                "the same layers of the same model."
            )
        chosen = np.asarray(x[:, as_index(self.probe.neurons)], np.float32)
        if self.centre is not None and self.scale is not None:
            chosen = (chosen - self.centre) / self.scale
        return chosen @ self.weight.T + self.bias

    def predict(self, x: Float[np.ndarray, "word neuron"]) -> np.ndarray:
        """The most likely class of each word, or its predicted number."""
        logits = self.logits(x)
        return logits.argmax(axis=1) if self.n_classes else logits[:, 0]

    def log_probabilities(self, x: Float[np.ndarray, "word neuron"]) -> Float[np.ndarray, "word class"]:
        """Natural logarithms of the class probabilities, in float64."""
        logits = self.logits(x).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def keeping(self, neurons: Int[np.ndarray, " kept"]) -> "TrainedProbe":
        """The same probe, not retrained, that sees zero (standardised: the mean) in all neurons but these."""
        return replace(self, weight=self.weight * np.isin(self.neurons, neurons))


def train_probes(
    features: Features,
    targets: Mapping[str, Target],
    probes: Sequence[Probe],
    recipe: ProbeRecipe | None = None,
    held_out: HeldOut | None = None,
) -> list[TrainedProbe]:
    """Train a battery (converged unless a recipe says otherwise); results stand in the order of `probes`.

    Minimises mean cross-entropy (squared error without classes) + λ1‖θ‖₁ + λ2‖θ‖₂², biases not penalised.
    `targets` hold one value per word for every name that a probe asks for.
    """
    check_battery(features, targets, probes)
    n_words = features.shape[0]
    for name in {probe.target for probe in probes}:
        target = targets[name]
        if len(target.values) != n_words:
            raise DataError(
                f"The features have {n_words} words and the target {name!r} has {len(target.values)} values; "
                "they must describe the same words."
            )
        if target.n_classes == 0:
            if not np.isfinite(target.values).all():
                raise DataError(f"The target {name!r} contains NaN or infinite values; drop those words.")
            continue
        if target.values.min() < 0 or target.values.max() >= target.n_classes:
            raise DataError(f"The target {name!r} has values outside its {target.n_classes} classes.")
        if len(np.unique(target.values)) < 2:
            raise DataError(f"The target {name!r} has one class in the training words; a probe needs at least two.")
        if n_words < target.n_classes:
            raise DataError(
                f"The target {name!r} has {target.n_classes} classes and only {n_words} training words; give at "
                "least one word per class, or merge the rare classes."
            )
    return fit(features, targets, probes, recipe or ConvergedRecipe(), held_out)


def fit(
    features: Features,
    targets: Mapping[str, Target],
    probes: Sequence[Probe],
    recipe: ProbeRecipe,
    held_out: HeldOut | None = None,
) -> list[TrainedProbe]:
    """`train_probes` without its checks of the labels: for prefixes of data that were checked as a whole."""
    if isinstance(recipe, PaperRecipe):
        return _train_as_papers(features, targets, probes, recipe)
    return _solve_converged(features, targets, probes, recipe, held_out)


def _solve_converged(
    features: Features,
    targets: Mapping[str, Target],
    probes: Sequence[Probe],
    recipe: ConvergedRecipe,
    held_out: HeldOut | None,
) -> list[TrainedProbe]:
    columns = _nested_columns(probes, features.shape[1])
    needed, judged = features, held_out.features if held_out else None
    if columns is not None:
        needed = select_columns(features, columns)
        judged = None if judged is None else select_columns(judged, columns)
    for window in windows(needed):
        check_finite(window)
    mean, deviation = column_moments(needed)
    problems = _convex_problems(probes, targets, recipe, held_out, columns, features.shape[1])
    solutions = solve(
        needed,
        (mean, deviation),
        [*problems.values()],
        judged,
        tolerance=recipe.tolerance,
        iterations=recipe.iterations,
    )
    solved = dict(zip(problems, zip(problems.values(), solutions, strict=True), strict=True))
    trained = []
    for probe in probes:
        problem, solution = solved[_problem_key(probe)]
        scale = deviation[problem.columns]
        trained.append(
            TrainedProbe(
                probe,
                np.arange(features.shape[1])[as_index(probe.neurons)],
                solution.weight,
                solution.bias,
                problem.n_classes,
                features.shape[1],
                mean[problem.columns].astype(np.float32),
                np.where(scale > 0, scale, 1.0).astype(np.float32),
                (problem.l1, solution.l2),
                solution.converged,
                solution.iterations,
            )
        )
    return trained


def _convex_problems(
    probes: Sequence[Probe],
    targets: Mapping[str, Target],
    recipe: ConvergedRecipe,
    held_out: HeldOut | None,
    columns: Int[np.ndarray, " neuron"] | None,
    n_neurons: int,
) -> dict[object, ConvexProblem]:
    """What is to be solved; probes that differ in their seed alone are one problem."""
    truths, scores = (held_out.truths, held_out.scores) if held_out else ({}, {})
    problems: dict[object, ConvexProblem] = {}
    for probe in probes:
        target, l2 = targets[probe.target], probe.l2
        if l2 == 0:
            raise SettingError("A probe has λ2 = 0, for which no unique solution exists; give a positive λ2.")
        truth = truths.get(probe.target) if l2 is None else None
        path = (l2,) if l2 is not None else (recipe.l2,) if truth is None else recipe.path
        view, score = _view(probe.neurons, columns, n_neurons), scores.get(probe.target)
        problem = ConvexProblem(view, target.values, target.n_classes, probe.l1 or 0.0, path, truth, score)
        problems.setdefault(_problem_key(probe), problem)
    return problems


def _problem_key(probe: Probe) -> object:
    return probe.target, view_key(probe.neurons), probe.l1 or 0.0, probe.l2


def _train_as_papers(
    features: Features, targets: Mapping[str, Target], probes: Sequence[Probe], recipe: PaperRecipe
) -> list[TrainedProbe]:
    moments = None
    if recipe.standardize:
        mean, deviation = column_moments(features)
        moments = mean, np.where(deviation > 0, deviation, 1.0)
    battery = _Battery(features.shape[1], targets, probes, recipe, moments)
    needed = features if battery.columns is None else select_columns(features, battery.columns)
    for epoch in range(recipe.epochs):
        for number, window in enumerate(windows(needed, np.random.default_rng([epoch]))):
            if epoch == 0:
                check_finite(window)
            battery.train(window, epoch, number)
    trained = battery.trained()
    if not all(np.isfinite(probe.weight).all() and np.isfinite(probe.bias).all() for probe in trained):
        raise DataError(
            f"Probes have weights that are not finite after training with the learning rate {recipe.learning_rate}; "
            "lower it, or give each neuron mean 0 and deviation 1 (standardize)."
        )
    return trained


def predict_probes(trained: Sequence[TrainedProbe], features: Features) -> list[np.ndarray]:
    """Predictions of every probe for the same words, in one pass over the features."""
    if features.shape[0] == 0:
        raise DataError("There are no words to predict; the test set is empty.")
    predicted: list[list[np.ndarray]] = [[] for _ in trained]
    for window in windows(features):
        check_finite(window)
        for start in range(0, len(window.x), BLOCK):
            block = window.x[start : start + BLOCK]
            for predictions, probe in zip(predicted, trained, strict=True):
                predictions.append(probe.predict(block))
    return [np.concatenate(predictions) for predictions in predicted]


def initial_parameters(
    seed: int, n_rows: int, width: int
) -> tuple[Float[np.ndarray, "row neuron"], Float[np.ndarray, " row"]]:
    """Weight and bias with which a probe starts: uniform on ±1/√width, as in a fresh linear layer of torch."""
    uniform = np.random.default_rng([seed, 0]).uniform(-1, 1, (n_rows, width + 1)) / np.sqrt(width)
    weight, bias = np.split(uniform.astype(np.float32), [width], axis=1)
    return np.ascontiguousarray(weight), bias[:, 0].copy()


def word_order(seed: int, epoch: int, n_words: int, window: int = 0) -> Int[np.ndarray, " word"]:
    """The order in which a seed's probes see the words of a window; batches are consecutive pieces of it."""
    return np.random.default_rng([seed, 1, epoch, window]).permutation(n_words)


def check_battery(features: Features, targets: Mapping[str, Target], probes: Sequence[Probe]) -> None:
    """Raise an error that explains the first probe that cannot be trained on these features and targets."""
    n_words, n_neurons = features.shape
    if not probes or n_words == 0:
        raise DataError(f"{len(probes)} probes and {n_words} words were given; training needs at least one of each.")
    for probe in probes:
        if probe.target not in targets:
            raise SettingError(f"A probe asks for {probe.target!r}; the targets are {sorted(targets)}.")
        penalties = [0.0 if penalty is None else penalty for penalty in (probe.l1, probe.l2)]
        if not (all(0 <= penalty < np.inf for penalty in penalties) and probe.seed >= 0):
            raise SettingError(f"λ1={probe.l1}, λ2={probe.l2} and seed={probe.seed} must be finite and not negative.")
        index = as_index(probe.neurons)
        if isinstance(index, np.ndarray):
            check_columns(index, n_neurons)
            if len(np.unique(index)) != len(index):
                raise SettingError("A probe names a neuron twice; give each neuron once.")
        elif index.step not in (None, 1) or (index.stop or 0) > n_neurons:
            raise SettingError(f"A probe asks for the neurons {index}; there are {n_neurons}, taken one by one.")
        if _n_columns(index, n_neurons) == 0:
            raise SettingError("A probe has no neurons; give it at least one.")


class _Battery:
    """The probes of a battery as one stack per seed, and the batch that each stack sees."""

    def __init__(
        self,
        n_neurons: int,
        targets: Mapping[str, Target],
        probes: Sequence[Probe],
        recipe: PaperRecipe,
        moments: tuple[np.ndarray, np.ndarray] | None,
    ):
        self._probes, self._recipe, self._n_neurons = probes, recipe, n_neurons
        self.columns = _needed_columns(probes, n_neurons)
        self._moments = moments
        self._batch_moments = None if moments is None else self._tensors(moments)
        self._targets = {probe.target: targets[probe.target] for probe in probes}
        self._values = {
            name: target.values.astype(np.int64 if target.n_classes else np.float32)
            for name, target in self._targets.items()
        }
        self._stacks = {seed: self._stack(seed) for seed in sorted({probe.seed for probe in probes})}

    def train(self, window: FeatureWindow, epoch: int, number: int) -> None:
        """One pass of every stack over a window, in batches shuffled by the stack's seed."""
        values = {name: value[window.words] for name, value in self._values.items()}
        size = self._recipe.batch_size
        buffer = np.empty((size, window.x.shape[1]), np.float32)
        for seed, stack in self._stacks.items():
            order = word_order(seed, epoch, len(window.x), number)
            for start in range(0, len(order), size):
                rows = order[start : start + size]
                # `mode` is not about clipping (all rows exist): only with it does take write straight into `out`.
                np.take(window.x, rows, axis=0, out=buffer[: len(rows)], mode="clip")
                batch = torch.from_numpy(buffer[: len(rows)])
                if self._batch_moments is not None:
                    batch.sub_(self._batch_moments[0]).div_(self._batch_moments[1])
                stack.step(batch, {name: torch.from_numpy(value[rows]) for name, value in values.items()})

    def trained(self) -> list[TrainedProbe]:
        """The probes with their weights, in the order in which they were asked for."""
        weights = {seed: iter(stack.trained()) for seed, stack in self._stacks.items()}
        trained = []
        for probe in self._probes:
            index, n_classes = as_index(probe.neurons), self._targets[probe.target].n_classes
            centre, scale = (None, None) if self._moments is None else [m[index].astype("f4") for m in self._moments]
            learnt = (np.arange(self._n_neurons)[index], *next(weights[probe.seed]), n_classes, self._n_neurons)
            trained.append(TrainedProbe(probe, *learnt, centre, scale, _paper_penalty(probe)))
        return trained

    def _stack(self, seed: int) -> ProbeStack:
        probes = [probe for probe in self._probes if probe.seed == seed]
        keys = [view_key(probe.neurons) for probe in probes]
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        views = [_view(probes[keys.index(key)].neurons, self.columns, self._n_neurons) for key in places]
        classes = [self._targets[probe.target].n_classes for probe in probes]
        stacked = [
            StackedProbe(probe.target, places[key], n_classes, *_paper_penalty(probe))
            for probe, key, n_classes in zip(probes, keys, classes, strict=True)
        ]
        widths = [_n_columns(probe.neurons, self._n_neurons) for probe in probes]
        initial = [initial_parameters(seed, probe.n_rows, width) for probe, width in zip(stacked, widths, strict=True)]
        weights, biases = zip(*initial, strict=True)
        recipe = self._recipe
        return ProbeStack(stacked, views, weights, biases, learning_rate=recipe.learning_rate, penalty=recipe.penalty)

    def _tensors(self, moments: tuple[np.ndarray, np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
        mean, deviation = (m if self.columns is None else m[self.columns] for m in moments)
        return torch.from_numpy(mean.astype(np.float32)), torch.from_numpy(deviation.astype(np.float32))


def _paper_penalty(probe: Probe) -> tuple[float, float]:
    return LAMBDA if probe.l1 is None else probe.l1, LAMBDA if probe.l2 is None else probe.l2


def _view(neurons: Columns | None, columns: Int[np.ndarray, " neuron"] | None, n_neurons: int) -> Columns:
    """Where a probe's neurons stand among the columns that were copied (None: all neurons)."""
    if isinstance(neurons, slice | None) and columns is None:
        return as_index(neurons)
    places = np.arange(n_neurons)[as_index(neurons)]
    if columns is not None:
        place_of = np.empty(n_neurons, np.int64)
        place_of[columns] = np.arange(len(columns))
        places = place_of[places]
    # A slice of a block is a view; a list of columns would be copied at every step.
    return slice(int(places[0]), int(places[-1]) + 1) if (np.diff(places) == 1).all() else places


def as_index(neurons: Columns | None) -> Columns:
    """Neurons as an index of columns; None is all of them."""
    return slice(None) if neurons is None else neurons


def view_key(neurons: Columns | None) -> object:
    """What probes on the same neurons, which share one copy of them, have in common."""
    index = as_index(neurons)
    return (index.start, index.stop) if isinstance(index, slice) else index.tobytes()


def _needed_columns(probes: Sequence[Probe], n_neurons: int) -> Int[np.ndarray, " neuron"] | None:
    """The neurons that any probe uses; None when they are so many that a copy is not worth its memory."""
    used = np.zeros(n_neurons, bool)
    for probe in probes:
        used[as_index(probe.neurons)] = True
    return np.flatnonzero(used) if used.sum() <= n_neurons // 2 else None


def _nested_columns(probes: Sequence[Probe], n_neurons: int) -> Int[np.ndarray, " neuron"] | None:
    """`_needed_columns` with the longest list of neurons first, so that nested sets of one order are slices."""
    needed = _needed_columns(probes, n_neurons)
    lists = [probe.neurons for probe in probes if isinstance(probe.neurons, np.ndarray)]
    if needed is None or not lists:
        return needed
    first = max(lists, key=len)
    return np.concatenate([first, np.setdiff1d(needed, first)])


def _n_columns(neurons: Columns | None, n_neurons: int) -> int:
    index = as_index(neurons)
    return len(range(*index.indices(n_neurons))) if isinstance(index, slice) else len(index)
