"""Streaming, mergeable second moments of any set of layers of any set of models.

With x the activations of one word, μ their mean and x_l the part that belongs to layer l, one pass keeps

    n,  μ,  S_lm = Σ (x_l − μ_l)(x_m − μ_m)ᵀ               what CKA, CCA, regressions and correlations need
    Σ ‖x_l − μ_l‖² (x − μ),  Σ ‖x_l − μ_l‖² ‖x_m − μ_m‖²   what the exact debiased CKA needs besides

Sums run about a provisional mean that follows the data, so that a large mean costs no digits, and moments of two
corpora merge exactly (Chan, Golub and LeVeque 1983, here up to the fourth order). S is kept as one block for each
pair of layers, each unordered pair once: half the memory and half the work of the joint square.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from residuum.errors import DataError, SettingError
from residuum.maths.arrays import (
    DOUBLE,
    as_float_array,
    constant_neurons,
    precision_of,
    require_finite,
    resolution_of,
    rounding_floor,
)
from residuum.maths.layouts import Layout, Pair, held_pairs

EPSILON = float(np.finfo(np.float64).eps)
# What long float64 sums, and differences of them, may lose of their size.
ROUNDING = 1e3 * EPSILON
# Words multiplied at once: enough for full matrix-product speed, few enough for small buffers.
CHUNK = 512
# Norms of words whose float32 products neither overflow nor vanish; others are brought there by a power of two.
SAFE_NORMS = (1e-3, 1e15)


class MomentsAccumulator:
    """Adds up blocks of words and gives their `Moments`; memory does not grow with the number of words.

    `widths` are the neurons of each layer. `pairs` limits the blocks of S that are kept ((i, i) and (j, j) come along
    with (i, j)); by default all. `products="float32"` multiplies in float32 (about twice as fast) and sums in
    float64: S_kl is then good to about 1e-7 of √(S_kk S_ll) rather than 1e-14, and directions below 1e-6 of a neuron's
    variance do not count in `mixed`. `threads` share the pairs of layers.
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        pairs: Iterable[Pair] | None = None,
        products: str = "float64",
        threads: int = 1,
    ) -> None:
        if products not in ("float64", "float32"):
            raise SettingError(f"products is {products!r}; expected 'float64' or 'float32'.")
        layout = Layout(tuple(int(width) for width in widths))
        self._layout = layout
        self._product_type = np.dtype(products)
        self._threads = threads
        held = held_pairs(pairs, len(layout.widths))
        self._blocks = {(i, j): np.zeros((layout.widths[i], layout.widths[j])) for i, j in held}
        self._chunk = {i: np.empty((CHUNK, layout.widths[i])) for i, j in held if i == j}
        self._waiting = 0
        self._shift = np.full(layout.total, np.nan)
        self._resolution = DOUBLE
        self._precision = np.zeros(len(layout.widths))
        self._sum = np.zeros(layout.total)
        self._third = np.zeros((len(layout.widths), layout.total))
        self._fourth = np.zeros((len(layout.widths), len(layout.widths)))
        self._n = 0
        self._recentred_at = 0
        self._handed_out = False

    def update(self, block: Any) -> None:
        """Add words: one `words × all neurons` array, or a list of `words × neurons` arrays, one a layer.

        In a list, a layer that no pair asks for may be None.
        """
        layers = self._as_layers(block)
        words = len(next(iter(layers.values())))
        self._resolution = max(self._resolution, *(resolution_of(layer.dtype) for layer in layers.values()))
        require_finite([layers.get(i) for i in range(len(self._layout.widths))], first_word=self._n + self._waiting)
        if words and self._n + self._waiting == 0:
            for i, layer in layers.items():
                self._precision[i] = precision_of(layer)
                self._shift[self._layout.slices[i]] = layer.mean(axis=0, dtype=np.float64)
        start = 0
        while start < words:
            stop = min(words, start + CHUNK - self._waiting)
            self._fill({i: layer[start:stop] for i, layer in layers.items()})
            start = stop

    def result(self) -> "Moments":
        """The moments of all words so far; more may be added afterwards."""
        self._multiply()
        if self._n == 0:
            raise DataError("No words were added, so there are no moments; expected at least one word.")
        self._recentre()
        self._handed_out = True
        missing = ~self._layout.held(self._blocks)
        return Moments(
            widths=self._layout.widths,
            n=self._n,
            mean=self._shift.copy(),
            blocks=dict(self._blocks),
            third=np.where(missing[:, self._layout.layer_of_neuron], np.nan, self._third),
            fourth=np.where(missing, np.nan, self._fourth),
            floor=rounding_floor(self._n, self._shift, self._resolution),
            precision=self._precision.copy(),
            rounding=float(np.finfo(self._product_type).eps),
            resolution=self._resolution,
        )

    def _as_layers(self, block: Any) -> dict[int, np.ndarray]:
        """The layers that are kept, each `words × neurons`."""
        if isinstance(block, (list, tuple)):
            layers = {i: as_float_array(part) for i, part in enumerate(block) if i in self._chunk and part is not None}
        else:
            joint = as_float_array(block)
            fits = joint.ndim == 2 and joint.shape[1] == self._layout.total
            layers = {i: joint[:, self._layout.slices[i]] for i in self._chunk} if fits else {0: joint}
        words = max((layer.shape[:1] for layer in layers.values()), default=(0,))
        shapes = {i: layer.shape for i, layer in layers.items()}
        expected = {i: (*words, self._layout.widths[i]) for i in self._chunk}
        if shapes != expected:
            raise DataError(
                f"The block has layers of shape {[*shapes.values()]}; expected words × neurons, "
                f"{[*expected.values()]}. Pass the layers in the order of `widths`, side by side or as a list."
            )
        return layers

    def _fill(self, layers: dict[int, np.ndarray]) -> None:
        """Copy shifted words to the chunk; a full chunk is multiplied."""
        words = len(next(iter(layers.values())))
        for i, layer in layers.items():
            place = self._chunk[i][self._waiting : self._waiting + words]
            np.subtract(layer, self._shift[self._layout.slices[i]], out=place)
        self._waiting += words
        if self._waiting == CHUNK:
            self._multiply()

    def _multiply(self) -> None:
        """Add the waiting words to the sums."""
        if self._waiting == 0:
            return
        if self._handed_out:
            self._blocks = {pair: block.copy() for pair, block in self._blocks.items()}
            self._handed_out = False
        shifted = {i: chunk[: self._waiting] for i, chunk in self._chunk.items()}
        squares = np.zeros((self._waiting, len(self._layout.widths)))  # ‖x_l‖² of each waiting word and layer
        for i, z in shifted.items():
            self._sum[self._layout.slices[i]] += z.sum(axis=0)
            squares[:, i] = np.einsum("wn,wn->w", z, z)
        for i, z in shifted.items():
            self._third[:, self._layout.slices[i]] += squares.T @ z
        self._fourth += squares.T @ squares
        scales = {i: self._product_scale(float(squares[:, i].max())) for i in shifted}
        factors = {
            i: (z if scales[i] == 1 else z * scales[i]).astype(self._product_type, copy=False)
            for i, z in shifted.items()
        }

        def add(pair: Pair) -> None:
            i, j = pair
            product, scale = factors[i].T @ factors[j], scales[i] * scales[j]
            self._blocks[pair] += product if scale == 1 else product.astype(np.float64) / scale

        run_threads(add, self._blocks, self._threads)
        self._n += self._waiting
        self._waiting = 0
        # So the shift is the mean of at least an eighth of the words, and no sum outgrows the scatter by much.
        if self._n >= 8 * self._recentred_at:
            self._recentre()

    def _product_scale(self, largest_square: float) -> float:
        """The power of two by which words are multiplied so that float32 can hold their products."""
        norm = np.sqrt(largest_square)
        if self._product_type == np.float64 or norm == 0 or SAFE_NORMS[0] <= norm <= SAFE_NORMS[1]:
            return 1.0
        return float(np.exp2(-np.round(np.log2(norm))))

    def _recentre(self) -> None:
        """Move the shift to the mean of the words so far; the sums about it follow exactly."""
        self._recentred_at = self._n
        if not self._sum.any():
            return
        d = self._sum / self._n
        for (i, j), block in self._blocks.items():
            block -= self._n * np.outer(d[self._layout.slices[i]], d[self._layout.slices[j]])
        terms = ShiftTerms.of(self._layout, self._blocks, self._n, d)
        self._third -= terms.third()
        self._fourth -= terms.fourth(self._third)
        self._shift += d
        self._sum[:] = 0


def run_threads(work: Callable[[Any], Any], items: Iterable[Any], threads: int) -> list[Any]:
    """`work` of each item, in their order; each is computed by one thread, so their number changes no result."""
    if threads == 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


@dataclass(frozen=True, eq=False)
class LayerMoments:
    """The moments of one layer: `scatter` S_xx, `fourth` Σ‖x − μ‖⁴, and which neurons are not constant."""

    n: int
    mean: Float[np.ndarray, " neuron"]
    scatter: Float[np.ndarray, "neuron neuron"]
    fourth: float
    alive: Bool[np.ndarray, " neuron"]
    precision: float = DOUBLE
    """ε of the numbers that were added."""
    rounding: float = EPSILON
    """ε of the products that were summed."""

    @cached_property
    def deviation(self) -> Float[np.ndarray, " neuron"]:
        """√S_kk: the norm of each centred neuron, 0 for a constant one."""
        return np.sqrt(np.diag(self.scatter))

    @cached_property
    def trace(self) -> float:
        """Σ‖x − μ‖²: the variance of the whole layer, times n."""
        return float(np.trace(self.scatter))

    @property
    def top_neuron(self) -> tuple[int, float]:
        """The neuron with the most variance, and its share of the layer's: S_kk / tr S; 0 without any variance."""
        variances = np.diag(self.scatter)
        neuron = int(variances.argmax())
        return neuron, float(variances[neuron] / self.trace) if self.trace else 0.0

    @property
    def effective_rank(self) -> float:
        """(tr S)² / ‖S‖²: the directions among which the variance is spread, from 1 to all neurons (participation
        ratio); 0 without any variance."""
        return float((self.trace / np.linalg.norm(self.scatter)) ** 2) if self.trace else 0.0


@dataclass(frozen=True, eq=False)
class PairMoments:
    """Two layers over the same words: `cross` S_xy, `fourth` Σ‖x − μ_x‖²‖y − μ_y‖².

    `same` says that x and y hold the same numbers: one layer with itself, or a copy (means equal and x − y without
    variance, both up to rounding). A layer is wholly similar to itself even where neurons, or all of it, are
    constant.
    """

    x: LayerMoments
    y: LayerMoments
    cross: Float[np.ndarray, "neuron other"]
    fourth: float
    same: bool

    def swapped(self) -> "PairMoments":
        """The same with y as x."""
        return PairMoments(self.y, self.x, self.cross.T, self.fourth, self.same)


@dataclass(frozen=True, eq=False)
class Moments:
    """What one pass over the words leaves; made by `MomentsAccumulator`, `merge` and `subtract`.

    `blocks[i, j]`, i ≤ j, is S_ij; `third[l, k]` is Σ‖x_l − μ_l‖²(x_k − μ_k) for neuron k, and `fourth[l, m]` Σ‖x_l −
    μ_l‖²‖x_m − μ_m‖²; both are NaN for pairs of layers that are not kept. `floor[k]` is what rounding alone may leave
    in S_kk of a constant neuron, `resolution` the ε of the type that they came in (see `maths.arrays`), and `precision`
    the ε of the numbers themselves in each layer, which is larger where a model computed in half precision;
    `rounding` is the ε of the products.
    """

    widths: tuple[int, ...]
    n: int
    mean: Float[np.ndarray, " neuron"]
    blocks: Mapping[Pair, Float[np.ndarray, "_ _"]]
    third: Float[np.ndarray, "layer neuron"]
    fourth: Float[np.ndarray, "layer layer"]
    floor: Float[np.ndarray, " neuron"]
    precision: Float[np.ndarray, " layer"]
    resolution: float = DOUBLE
    rounding: float = EPSILON

    def __post_init__(self) -> None:
        for array in (self.mean, self.third, self.fourth, self.floor, self.precision, *self.blocks.values()):
            array.flags.writeable = False

    @property
    def n_layers(self) -> int:
        """How many layers there are."""
        return len(self.widths)

    @property
    def pairs(self) -> list[Pair]:
        """The pairs of layers (i, j), i ≤ j, whose scatter is kept."""
        return sorted(self.blocks)

    def layer(self, i: int) -> LayerMoments:
        """The moments of layer `i`, with exact zeros for its constant neurons."""
        if i not in self._layers:
            alive = self.alive(i)
            scatter = _without_dead(self._block(i, i), alive, alive)
            mean, precision = self.mean[self._layout.slices[i]], float(self.precision[i])
            sums = (self.n, mean, scatter, float(self.fourth[i, i]))
            self._layers[i] = LayerMoments(*sums, alive, precision, self.rounding)
        return self._layers[i]

    def pair(self, i: int, j: int) -> PairMoments:
        """The moments of layers `i` (as x) and `j` (as y)."""
        x, y = self.layer(i), self.layer(j)
        cross = _without_dead(self._block(i, j), x.alive, y.alive)
        fourth = float(self.fourth[min(i, j), max(i, j)])
        return PairMoments(x, y, cross, fourth, same=i == j or _is_copy(x, y, cross))

    def dead(self, i: int) -> Int[np.ndarray, " _"]:
        """The constant neurons of layer `i`: they correlate 0 with everything but themselves."""
        return np.flatnonzero(~self.alive(i))

    def alive(self, i: int) -> Bool[np.ndarray, " neuron"]:
        """Which neurons of layer `i` are not constant, by the rule of `maths.arrays`."""
        if not 0 <= i < self.n_layers:
            raise SettingError(f"Layer {i} is not in these moments (they have 0–{self.n_layers - 1}).")
        return ~constant_neurons(np.diag(self._block(i, i)), self.floor[self._layout.slices[i]], self.resolution)

    def scatter(self, layers: Sequence[int] | None = None) -> Float[np.ndarray, "neuron neuron"]:
        """S of some layers side by side (all by default) as one symmetric matrix."""
        layers = range(self.n_layers) if layers is None else layers
        alive = {i: self.alive(i) for i in layers}
        return np.block([[_without_dead(self._block(i, j), alive[i], alive[j]) for j in layers] for i in layers])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything as named arrays, to be stored; `from_arrays` is the way back."""
        blocks = {f"scatter.{i}.{j}": block for (i, j), block in self.blocks.items()}
        sums = {"mean": self.mean, "third": self.third, "fourth": self.fourth, "floor": self.floor}
        sums["precision"] = self.precision
        facts = {"n": np.array(self.n), "widths": np.array(self.widths), "resolution": np.array(self.resolution)}
        facts["rounding"] = np.array(self.rounding)
        return {**facts, **sums, **blocks}

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> "Moments":
        """The moments that `to_arrays` named."""
        names = {name: name.split(".") for name in arrays if name.startswith("scatter.")}
        return Moments(
            widths=tuple(int(width) for width in arrays["widths"]),
            n=int(arrays["n"]),
            blocks={(int(i), int(j)): arrays[name] for name, (_, i, j) in names.items()},
            resolution=float(arrays["resolution"]),
            rounding=float(arrays["rounding"]),
            **{name: arrays[name] for name in ("mean", "third", "fourth", "floor", "precision")},
        )

    @cached_property
    def _layout(self) -> Layout:
        return Layout(self.widths)

    @cached_property
    def _layers(self) -> dict[int, LayerMoments]:
        """The layers that were asked for: each is in many pairs."""
        return {}

    def _block(self, i: int, j: int) -> Float[np.ndarray, "_ _"]:
        pair = (min(i, j), max(i, j))
        if pair not in self.blocks:
            raise SettingError(f"The pair of layers {pair} was not accumulated; add it to `pairs` and stream again.")
        return self.blocks[pair] if i <= j else self.blocks[pair].T


def merge(a: Moments, b: Moments, *, threads: int = 1) -> Moments:
    """The moments of the words of `a` and the words of `b` together."""
    return _combine(a, b, 1, threads)


def subtract(total: Moments, part: Moments, *, threads: int = 1) -> Moments:
    """The moments of the words of `total` without those of `part`: one deletion of a jackknife."""
    if part.n >= total.n:
        raise DataError(f"Cannot take {part.n} words from {total.n}; expected a part with fewer words than the total.")
    return _combine(total, part, -1, threads)


def _combine(a: Moments, b: Moments, sign: Literal[1, -1], threads: int) -> Moments:
    """Bring both to the common mean, where sums add up (or are taken away) without cross terms.

    With δ = μ_b − μ_a both moves together add ± (n_a n_b / n) δδᵀ to the scatter S_a ± S_b.
    """
    if a.widths != b.widths or a.blocks.keys() != b.blocks.keys():
        raise DataError(
            f"The moments are of different layers ({a.widths} and {b.widths} neurons, {len(a.blocks)} and "
            f"{len(b.blocks)} pairs); expected the same. Accumulate both with the same `widths` and `pairs`."
        )
    layout, n = a._layout, a.n + sign * b.n
    mean = a.mean + sign * b.n / n * (b.mean - a.mean)
    da, db = a.mean - mean, b.mean - mean
    apart = np.sqrt(a.n * (b.n / n)) * (b.mean - a.mean)

    def combined(pair: Pair) -> Float[np.ndarray, "_ _"]:
        block = np.outer(*(apart[layout.slices[layer]] for layer in pair))
        block += b.blocks[pair]
        return np.add(a.blocks[pair], block, out=block) if sign > 0 else np.subtract(a.blocks[pair], block, out=block)

    blocks = dict(zip(a.blocks, run_threads(combined, a.blocks, threads), strict=True))
    terms_a = ShiftTerms.of(layout, a.blocks, a.n, da)
    terms_b = ShiftTerms.of(layout, b.blocks, b.n, db)
    third = a.third + terms_a.third() + sign * (b.third + terms_b.third())
    fourth = a.fourth + terms_a.fourth(a.third) + sign * (b.fourth + terms_b.fourth(b.third))
    floor = np.maximum(a.floor + b.floor, rounding_floor(n, mean, DOUBLE))
    if sign < 0:
        floor += ROUNDING * (layout.diagonal(a.blocks) + a.n * da**2)
    precision = np.maximum(a.precision, b.precision)
    types = max(a.resolution, b.resolution), max(a.rounding, b.rounding)
    return Moments(a.widths, n, mean, blocks, third, fourth, floor, precision, *types)


def _without_dead(
    block: Float[np.ndarray, "neuron other"],
    rows: Bool[np.ndarray, " neuron"],
    columns: Bool[np.ndarray, " other"],
) -> Float[np.ndarray, "neuron other"]:
    return block if rows.all() and columns.all() else np.where(np.outer(rows, columns), block, 0.0)


def _is_copy(x: LayerMoments, y: LayerMoments, cross: Float[np.ndarray, "neuron other"]) -> bool:
    """Whether the means agree and Σ‖(x − μ_x) − (y − μ_y)‖² = tr S_xx + tr S_yy − 2 tr S_xy is rounding."""
    if x.mean.shape != y.mean.shape:
        return False
    close = np.abs(x.mean - y.mean) <= ROUNDING * (np.abs(x.mean) + x.deviation)
    both = x.trace + y.trace
    return bool(close.all()) and both - 2 * float(np.trace(cross)) <= ROUNDING * both


@dataclass(frozen=True, eq=False)
class ShiftTerms:
    """What the third and fourth sums gain when the centred words y become y + d.

    With e_l = ‖d_l‖², t_l = tr S_ll and p_l = d_lᵀ S_l:, from ‖y_l + d_l‖² = ‖y_l‖² + 2 d_l·y_l + e_l:
    third  gains t_l d + 2 p_l + n e_l d;
    fourth gains 2 d_m·third_lm + 2 d_l·third_ml + t_l e_m + e_l t_m + 4 p_lm·d_m + n e_l e_m.
    """

    layout: Layout
    n: int
    d: Float[np.ndarray, " neuron"]
    e: Float[np.ndarray, " layer"]
    t: Float[np.ndarray, " layer"]
    p: Float[np.ndarray, "layer neuron"]

    @staticmethod
    def of(layout: Layout, blocks: Mapping[Pair, np.ndarray], n: int, d: Float[np.ndarray, " neuron"]) -> "ShiftTerms":
        """The terms for the centred scatter `blocks` of n words and the move d."""
        p = np.zeros((len(layout.widths), layout.total))
        for (i, j), block in blocks.items():
            p[i, layout.slices[j]] = d[layout.slices[i]] @ block
            p[j, layout.slices[i]] = block @ d[layout.slices[j]]
        t = layout.sum_by_layer(layout.diagonal(blocks))
        return ShiftTerms(layout, n, d, layout.sum_by_layer(d**2), t, p)

    def third(self) -> Float[np.ndarray, "layer neuron"]:
        """The gain of Σ‖y_l‖² y."""
        return np.outer(self.t + self.n * self.e, self.d) + 2 * self.p

    def fourth(self, third: Float[np.ndarray, "layer neuron"]) -> Float[np.ndarray, "layer layer"]:
        """The gain of Σ‖y_l‖²‖y_m‖², from the centred `third`."""
        half = 2 * self.layout.sum_by_layer(third * self.d) + np.outer(self.t, self.e)
        return half + half.T + 4 * self.layout.sum_by_layer(self.p * self.d) + self.n * np.outer(self.e, self.e)
