"""Probes that are solved, not trained: penalised softmax and least-squares regressions over the same words.

    minimise over W, b:   mean loss(Z Wᵀ + b) + λ1 ‖W‖₁ + λ2 ‖W‖²        Z: neurons with mean 0 and deviation 1

The loss is the cross-entropy, or the squared error where numbers are predicted. With λ2 > 0 the problem has one
solution, so there is no seed, no order of words and no initial weight. L-BFGS (Nocedal & Wright 2006) finds it, in the
orthant of the current signs where λ1 > 0 (OWL-QN, Andrew & Gao 2007). Logits are linear in the step, so a line search
costs no look at the neurons: an iteration is one product with Z and one with Zᵀ, shared by all probes of a view.
Products are float32; sums over words, weights and gradients are float64.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from residuum.maths.features import Features, windows

Columns = slice | Int[np.ndarray, " _"]
ROWS = 8192
"""Words multiplied at once; their float32 products are summed in float64."""
HISTORY = 30
"""Pairs of steps and gradient changes from which L-BFGS knows the curvature."""
FAR = 30.0
"""|mean| / deviation from which a neuron is centred before it is multiplied, because float32 would lose its digits."""
LOOSE = 10
"""The solutions among which λ2 is chosen are this much further from the minimum than the chosen one will be."""
FLAT = 0.1
"""A line search ends where the slope is this fraction of the initial one."""


@dataclass(frozen=True, eq=False)
class ConvexProblem:
    """One probe to solve: its columns of the features, its target (no classes: numbers), λ1 and the λ2 to try.

    Several λ2 are a path from large to small; each solution starts the next. `score` is the metric of predicted
    classes where it is not accuracy.
    """

    columns: Columns
    values: np.ndarray
    n_classes: int
    l1: float
    path: tuple[float, ...]
    truth: np.ndarray | None = None  # of the held-out examples, on which λ2 is chosen
    score: Callable[[np.ndarray], float] | None = None


@dataclass(frozen=True, eq=False)
class Solution:
    """Weights for standardised neurons, the λ2 they were solved with, and whether the gradient became small enough."""

    weight: Float[np.ndarray, "class neuron"]
    bias: Float[np.ndarray, " class"]
    l2: float
    converged: bool
    iterations: int


def solve(
    features: Features,
    moments: tuple[Float[np.ndarray, " neuron"], Float[np.ndarray, " neuron"]],
    problems: Sequence[ConvexProblem],
    held_out: Features | None,
    *,
    tolerance: float,
    iterations: int,
) -> list[Solution]:
    """Solve all problems together; `moments` are the mean of each neuron and its deviation, 0 where it is constant.

    A solution is at most `tolerance` above the minimum of its objective: ‖gradient‖² ≤ 4 λ2 · tolerance, because the
    objective is strongly convex. On `held_out` examples the λ2 of a path is chosen; a path of one needs none.
    """
    design = Design(features, *moments)
    descents = [Descent(problem, design.shape[0], design.width(problem.columns)) for problem in problems]
    several = [i for i, problem in enumerate(problems) if len(problem.path) > 1]
    if several:
        assert held_out is not None, "a path is chosen on held-out examples"
        judge = Design(held_out, *moments)
        _choose_penalties(
            design, judge, [problems[i] for i in several], [descents[i] for i in several], LOOSE * tolerance, iterations
        )
    for problem, descent in zip(problems, descents, strict=True):
        if len(problem.path) == 1:
            descent.set_penalty(problem.path[0])
    _minimise(design, descents, tolerance, iterations)
    return [descent.solution() for descent in descents]


def _choose_penalties(
    design: "Design",
    judge: "Design",
    problems: Sequence[ConvexProblem],
    descents: Sequence["Descent"],
    tolerance: float,
    iterations: int,
) -> None:
    """Follow each path with warm starts, and put every descent where its best λ2 left it."""
    choices = [PathChoice() for _ in problems]
    for stage in range(max(len(problem.path) for problem in problems)):
        active = [i for i, p in enumerate(problems) if stage < len(p.path) and not choices[i].finished]
        for i in active:
            descents[i].set_penalty(problems[i].path[stage])
        _minimise(design, [descents[i] for i in active], tolerance, iterations)
        solutions = [descents[i].solution() for i in active]
        weights = [torch.from_numpy(solution.weight).double() for solution in solutions]
        logits = judge.logits([(descents[i].columns, weight) for i, weight in zip(active, weights, strict=True)])
        for i, solution, product in zip(active, solutions, logits, strict=True):
            choices[i].add(solution, *_held_out_losses(problems[i], product.numpy() + solution.bias[:, None]))
    returning = [(d, choice.solution) for d, choice in zip(descents, choices, strict=True)]
    returning = [(descent, solution) for descent, solution in returning if descent.l2 != solution.l2]
    products = design.logits([(descent.columns, torch.from_numpy(s.weight).double()) for descent, s in returning])
    for (descent, solution), product in zip(returning, products, strict=True):
        descent.return_to(solution, product)


def _held_out_losses(problem: ConvexProblem, scores: Float[np.ndarray, "class example"]) -> tuple[float, float]:
    """The share of errors (or what is missing of another score) and the mean cross-entropy; of numbers, the mean
    squared error twice.
    """
    assert problem.truth is not None
    if not problem.n_classes:
        error = float(np.mean((scores[0] - problem.truth).astype(np.float64) ** 2))
        return error, error
    known = np.flatnonzero(problem.truth >= 0)
    top = scores.max(axis=0)
    surprise = np.log(np.exp(scores - top).sum(axis=0)) + top - scores[problem.truth, np.arange(scores.shape[1])]
    predicted = scores.argmax(axis=0)
    missing = np.mean(predicted != problem.truth) if problem.score is None else 1 - problem.score(predicted)
    return float(missing), float(surprise[known].mean()) if len(known) else 0.0


@dataclass(eq=False)
class PathChoice:
    """The λ2 with the lowest held-out loss (share of errors, 1 − score, mean squared error); of equal ones the largest.

    The path ends at a λ2 that lowers neither the loss nor the cross-entropy, which falls before any answer changes.
    """

    best: Solution | None = None
    loss: float = np.inf
    entropy: float = np.inf
    finished: bool = False

    def add(self, solution: Solution, loss: float, entropy: float) -> None:
        """Judge the next λ2 of the path."""
        self.finished = loss >= self.loss and entropy >= self.entropy
        if loss < self.loss:
            self.best, self.loss = solution, loss
        self.entropy = min(self.entropy, entropy)

    @property
    def solution(self) -> Solution:
        """The chosen one."""
        assert self.best is not None, "a path has at least one λ2, and its loss is finite"
        return self.best


class Design:
    """Z = (X − μ)/σ as a linear map; X is neither copied nor changed, a constant neuron is 0 in Z.

    Neurons far from 0 are centred block by block. For the others μ and σ are moved into the weights.
    """

    def __init__(self, features: Features, mean: np.ndarray, deviation: np.ndarray):
        self._features = features
        alive = deviation > 0
        self._mean = torch.from_numpy(np.where(alive, mean, 0.0))
        self._scale = torch.from_numpy(np.where(alive, 1 / np.where(alive, deviation, 1.0), 0.0))
        self._far = np.flatnonzero(alive & (np.abs(mean) > FAR * np.where(alive, deviation, 1.0)))

    @property
    def shape(self) -> tuple[int, int]:
        """Words and neurons."""
        return self._features.shape

    def width(self, columns: Columns) -> int:
        """How many neurons a view has."""
        return len(self._scale[_index(columns)])

    def logits(self, weights: Sequence[tuple[Columns, Float[Tensor, "_ _"]]]) -> list[Float[Tensor, "_ word"]]:
        """Z Wᵀ of each W, which stands on its own columns; one pass over the words."""
        if not weights:
            return []
        logits = [torch.empty(len(weight), self.shape[0]) for _, weight in weights]
        stacks = [self._stack(columns, members, weights) for columns, members in _views(weights)]
        for rows, block in self._blocks():
            for columns, members, scaled, far_weight, offset, far in stacks:
                view = _take(block, columns)
                product = torch.mm(scaled, view.T)
                if len(far):
                    product += torch.mm(far_weight, self._centred(view, columns, far).T)
                product -= offset
                for i, part in zip(members, product.split([len(weights[i][1]) for i in members]), strict=True):
                    logits[i][:, rows] = part
        return logits

    def gradients(self, errors: Sequence[tuple[Columns, Float[Tensor, "_ word"]]]) -> list[Float[Tensor, "_ _"]]:
        """E Z / n of each E, in float64; one pass over the words."""
        if not errors:
            return []
        views = [(columns, members, self._far_of(columns)) for columns, members in _views(errors)]
        stacked = [torch.cat([errors[i][1] for i in members]) for _, members, _ in views]
        totals = [
            torch.zeros(len(error), self.width(columns), dtype=torch.float64)
            for error, (columns, _, _) in zip(stacked, views, strict=True)
        ]
        for rows, block in self._blocks():
            for error, total, (columns, _, far) in zip(stacked, totals, views, strict=True):
                view = _take(block, columns)
                product = torch.mm(error[:, rows], view)
                if len(far):
                    product[:, far] = torch.mm(error[:, rows], self._centred(view, columns, far))
                total += product
        gradients: list[Tensor] = [torch.empty(0)] * len(errors)
        for error, total, (columns, members, far) in zip(stacked, totals, views, strict=True):
            mean = self._mean[_index(columns)].clone()
            mean[far] = 0
            total -= error.sum(dim=1, dtype=torch.float64)[:, None] * mean
            total *= self._scale[_index(columns)] / self.shape[0]
            for i, part in zip(members, total.split([len(errors[i][1]) for i in members]), strict=True):
                gradients[i] = part
        return gradients

    def _stack(
        self, columns: Columns, members: list[int], weights: Sequence[tuple[Columns, Tensor]]
    ) -> tuple[Columns, list[int], Tensor, Tensor, Tensor, Tensor]:
        """The weights of one view as one matrix: for raw neurons, for centred ones, and the product with the means."""
        far = self._far_of(columns)
        scaled = torch.cat([weights[i][1] for i in members]) * self._scale[_index(columns)]
        far_weight = scaled[:, far].float()
        scaled[:, far] = 0
        offset = (scaled @ self._mean[_index(columns)])[:, None].float()
        return columns, members, scaled.float(), far_weight, offset, far

    def _far_of(self, columns: Columns) -> Int[Tensor, " far"]:
        if not len(self._far):
            return torch.empty(0, dtype=torch.int64)
        chosen = np.arange(self.shape[1])[columns]
        return torch.from_numpy(np.flatnonzero(np.isin(chosen, self._far)))

    def _centred(self, view: Tensor, columns: Columns, far: Tensor) -> Tensor:
        return (view[:, far] - self._mean[_index(columns)][far]).float()

    def _blocks(self) -> Iterator[tuple[slice, Float[Tensor, "word neuron"]]]:
        for window in windows(self._features):  # in the order of the words
            for start in range(0, len(window.x), ROWS):
                block = torch.from_numpy(window.x[start : start + ROWS])
                first = int(window.words[start])
                yield slice(first, first + len(block)), block


class Descent:
    """One probe on its way to the minimum: weights (bias last), logits, gradient, and what L-BFGS remembers.

    Numbers are solved with mean 0 and deviation 1, for which λ1 is divided by the deviation.
    """

    def __init__(self, problem: ConvexProblem, n_words: int, width: int):
        self.columns, self._n_classes = problem.columns, problem.n_classes
        self._loss = _Softmax(problem) if problem.n_classes else _SquaredError(problem)
        self._l1, self.l2 = problem.l1 / self._loss.unit, 0.0
        self._at = torch.zeros(max(problem.n_classes, 1), width + 1, dtype=torch.float64)
        self._at[:, -1] = self._loss.initial_bias
        self._logits = self._at[:, -1:].float().expand(-1, n_words).contiguous()
        self._smooth: Tensor | None = None  # gradient without λ1
        self.moved = True  # since the gradient was taken
        self._curvature = _Curvature(*self._at.shape)
        self._iterations, self._converged, self._stalled = 0, False, False

    def set_penalty(self, l2: float) -> None:
        """Go on with another λ2; the gradient and all that is known of the curvature follow exactly."""
        change, self.l2 = 2 * (l2 - self.l2), l2
        if self._smooth is not None:
            self._smooth[:, :-1] += change * self._at[:, :-1]
        self._curvature.penalise(change)
        self._iterations, self._converged, self._stalled = 0, False, False

    def return_to(self, solution: Solution, product: Float[Tensor, "row word"]) -> None:
        """Go back to an earlier solution; `product` is Z times its weights."""
        self.set_penalty(solution.l2)
        self._at[:, :-1] = torch.from_numpy(solution.weight).double() / self._loss.unit
        self._at[:, -1] = (torch.from_numpy(solution.bias).double() - self._loss.zero) / self._loss.unit
        self._logits = product.div_(self._loss.unit).add_(self._at[:, -1:].float())
        self._smooth, self.moved = None, True

    def done(self, tolerance: float, iterations: int) -> bool:
        """Whether the gradient is small enough, or nothing more can be gained."""
        self._converged = float(self._gradient().square().sum()) <= 4 * self.l2 * tolerance
        return self._converged or self._stalled or self._iterations >= iterations

    def error(self) -> Float[Tensor, "row word"]:
        """The derivative of the loss of each word by its logits."""
        return self._loss.error(self._logits)

    def add_gradient(self, loss_gradient: Float[Tensor, "row neuron"], error: Float[Tensor, "row word"]) -> None:
        """Take the gradient at the current weights, and learn from its change along the last step."""
        bias_gradient = error.mean(dim=1, dtype=torch.float64, keepdim=True)
        smooth = torch.cat([loss_gradient + 2 * self.l2 * self._at[:, :-1], bias_gradient], dim=1)
        if self._smooth is not None:
            self._curvature.add(self._step, smooth - self._smooth)
        self._smooth, self.moved = smooth, False

    def direction(self) -> Float[Tensor, "row neuron"]:
        """The quasi-Newton step; where λ1 > 0, kept in the orthant that the signs (at 0: the slope) span."""
        gradient = self._gradient()
        step = -self._curvature.solve(gradient)
        if self._l1:
            step[:, :-1] *= step[:, :-1] * gradient[:, :-1] < 0
            weight = self._at[:, :-1]
            orthant = torch.where(weight == 0, -gradient[:, :-1].sign(), weight.sign())
            reached = weight + step[:, :-1]
            step[:, :-1] = torch.where(reached * orthant > 0, reached, 0.0) - weight
        slope = float((step * gradient).sum())
        self._stalled = slope >= 0
        self._step, self._slope = step, slope
        return step[:, :-1]

    def move(self, product: Float[Tensor, "row word"]) -> None:
        """Step as far as the objective falls; `product` is Z times the direction."""
        change = product.add_(self._step[:, -1:].float())
        length = self._search(change) if not self._stalled else 0.0
        self._step = length * self._step
        self._stalled |= length == 0
        self._at += self._step
        self._logits.add_(change, alpha=length)
        self.moved = True
        self._iterations += 1

    def solution(self) -> Solution:
        """The weights now, for values in their own unit."""
        at = (self._at * self._loss.unit).numpy()
        bias = (at[:, -1] + self._loss.zero).astype(np.float32)
        return Solution(at[:, :-1].astype(np.float32), bias, self.l2, self._converged, self._iterations)

    def _gradient(self) -> Float[Tensor, "row neuron"]:
        """The gradient; where λ1 > 0 the subgradient of least norm."""
        assert self._smooth is not None
        if not self._l1:
            return self._smooth
        weight, smooth = self._at[:, :-1], self._smooth[:, :-1]
        at_zero = smooth.sign() * (smooth.abs() - self._l1).clamp_min(0)
        penalised = torch.where(weight == 0, at_zero, smooth + self._l1 * weight.sign())
        return torch.cat([penalised, self._smooth[:, -1:]], dim=1)

    def _search(self, change: Float[Tensor, "row word"]) -> float:
        """Newton's method, kept in a bracket, for the slope along the step; at most the whole step where λ1 > 0.

        |W| is linear inside an orthant, so there it adds its slope at 0.
        """
        curvature = 2 * self.l2 * float(self._step[:, :-1].square().sum())
        weight, step = self._at[:, :-1], self._step[:, :-1]
        constant = 2 * self.l2 * float((weight * step).sum())
        if self._l1:
            constant += self._l1 * float((weight + step).abs().sum() - weight.abs().sum())
        low, high, length = 0.0, np.inf, 1.0
        if not self._curvature.known:
            length = min(1.0, 1 / float(self._step.norm()))
        for _ in range(20):
            slope, bend = self._loss.slope(self._logits, change, length)
            slope, bend = slope + constant + length * curvature, bend + curvature
            if abs(slope) <= FLAT * -self._slope or (self._l1 and length == 1 and slope < 0):
                return length
            low, high = (length, high) if slope < 0 else (low, length)
            newton = length - slope / bend if bend > 0 else np.inf
            inside = low < newton < high
            length = newton if inside and np.isfinite(newton) else (low + high) / 2 if np.isfinite(high) else 2 * length
            length = min(length, 1.0) if self._l1 else length
        return low


class _Softmax:
    """Mean cross-entropy of classes."""

    unit, zero = 1.0, 0.0

    def __init__(self, problem: ConvexProblem):
        self._truth = torch.from_numpy(problem.values.astype(np.int64))[None]
        counts = torch.bincount(self._truth[0], minlength=problem.n_classes).double()
        self.initial_bias = torch.log((counts + 0.5) / (counts + 0.5).sum())

    def error(self, logits: Float[Tensor, "class word"]) -> Float[Tensor, "class word"]:
        error = torch.softmax(logits, dim=0)
        return error.scatter_add_(0, self._truth, torch.full((1, 1), -1.0).expand_as(self._truth))

    def slope(self, logits: Tensor, change: Tensor, length: float) -> tuple[float, float]:
        """First and second derivative by the length of the step."""
        probability = torch.softmax(torch.add(logits, change, alpha=length), dim=0)
        weighted = probability * change
        expected = weighted.sum(dim=0)
        first = expected - change.gather(0, self._truth)[0]
        second = (weighted * change).sum(dim=0) - expected.square()
        return float(first.mean(dtype=torch.float64)), float(second.mean(dtype=torch.float64))


class _SquaredError:
    """Mean squared error of numbers, which are given mean 0 and deviation 1."""

    initial_bias = 0.0

    def __init__(self, problem: ConvexProblem):
        values = problem.values.astype(np.float64)
        self.zero, self.unit = float(values.mean()), float(values.std()) or 1.0
        self._truth = torch.from_numpy((values - self.zero) / self.unit).float()[None]

    def error(self, logits: Float[Tensor, "1 word"]) -> Float[Tensor, "1 word"]:
        return 2 * (logits - self._truth)

    def slope(self, logits: Tensor, change: Tensor, length: float) -> tuple[float, float]:
        """First and second derivative by the length of the step."""
        residual = torch.add(logits - self._truth, change, alpha=length)
        first, second = (residual * change).mean(dtype=torch.float64), change.square().mean(dtype=torch.float64)
        return 2 * float(first), 2 * float(second)


class _Curvature:
    """What L-BFGS knows of the Hessian: the last steps s, the changes y of the gradient along them, s·y and y·y.

    The inner products are kept, so that a direction reads the pairs by four products of a matrix and a vector.
    """

    def __init__(self, rows: int, columns: int):
        self._shape = rows, columns
        self._steps, self._changes = torch.zeros(2, 0, rows * columns)
        self._cross, self._square = np.zeros((2, 0, 0))

    @property
    def known(self) -> int:
        """How many pairs are held."""
        return len(self._cross)

    def add(self, step: Float[Tensor, "row column"], change: Float[Tensor, "row column"]) -> None:
        """Take in a pair where the objective curves upwards, and forget the oldest beyond `HISTORY`."""
        s, y = step.float().flatten(), change.float().flatten()
        if not float(s @ y) > 0:
            return
        self._steps = torch.cat([self._steps[1 - HISTORY :], s[None]])
        self._changes = torch.cat([self._changes[1 - HISTORY :], y[None]])
        first = max(0, len(self._cross) + 1 - HISTORY)
        cross, square = (np.pad(old[first:, first:], (0, 1)) for old in (self._cross, self._square))
        cross[:, -1], cross[-1] = self._steps @ y, self._changes @ s
        square[:, -1] = square[-1] = self._changes @ y
        self._cross, self._square = cross, square

    def penalise(self, more: float) -> None:
        """Follow the gradient to a penalty that adds `more` times the weights (not the bias) to it."""
        weights = self._changes.view(-1, *self._shape)[:, :, :-1]
        weights += more * self._steps.view(-1, *self._shape)[:, :, :-1]
        self._cross = (self._steps @ self._changes.T).double().numpy()
        self._square = (self._changes @ self._changes.T).double().numpy()

    def solve(self, gradient: Float[Tensor, "row column"]) -> Float[Tensor, "row column"]:
        """The approximate inverse Hessian times the gradient (Nocedal & Wright 2006, algorithm 7.4)."""
        if not self.known:
            return gradient.clone()
        slope, cross, square = gradient.flatten(), self._cross, self._square
        along_steps, along_changes = ((side @ slope.float()).double().numpy() for side in (self._steps, self._changes))
        down, up = np.zeros(self.known), np.zeros(self.known)  # weights of y in the first loop, of s in the second
        for i in reversed(range(self.known)):
            down[i] = (along_steps[i] - cross[i] @ down) / cross[i, i]
        scale = cross[-1, -1] / square[-1, -1]
        for i in range(self.known):
            up[i] = down[i] - (scale * (along_changes[i] - square[i] @ down) + cross[:, i] @ up) / cross[i, i]
        changes, steps = torch.from_numpy(down).float() @ self._changes, torch.from_numpy(up).float() @ self._steps
        return (scale * (slope - changes) + steps).view(self._shape)


def _minimise(design: Design, descents: Sequence[Descent], tolerance: float, iterations: int) -> None:
    """Iterate until all are done; those that are done take part in no more products."""
    moving = list(descents)
    while moving:
        moved = [descent for descent in moving if descent.moved]
        errors = [descent.error() for descent in moved]
        gradients = design.gradients([(d.columns, error) for d, error in zip(moved, errors, strict=True)])
        for descent, gradient, error in zip(moved, gradients, errors, strict=True):
            descent.add_gradient(gradient, error)
        moving = [descent for descent in moving if not descent.done(tolerance, iterations)]
        products = design.logits([(descent.columns, descent.direction()) for descent in moving])
        for descent, product in zip(moving, products, strict=True):
            descent.move(product)


def _views(items: Sequence[tuple[Columns, Tensor]]) -> list[tuple[Columns, list[int]]]:
    """The items that stand on the same columns, by their numbers."""
    members: dict[object, list[int]] = {}
    for i, (columns, _) in enumerate(items):
        key = (columns.start, columns.stop) if isinstance(columns, slice) else columns.tobytes()
        members.setdefault(key, []).append(i)
    return [(items[numbers[0]][0], numbers) for numbers in members.values()]


def _take(block: Tensor, columns: Columns) -> Tensor:
    return block[:, columns] if isinstance(columns, slice) else block.index_select(1, torch.from_numpy(columns))


def _index(columns: Columns) -> slice | Tensor:
    return columns if isinstance(columns, slice) else torch.from_numpy(columns)
