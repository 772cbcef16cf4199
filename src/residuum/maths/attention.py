"""Similarity of attention heads and of layers of heads, streamed sentence by sentence.

For one sentence of w words a layer is `heads × words × words`, A[h, i, j] the weight that word i gives to word j in
head h; rows sum to 1. Wu et al. (2020, appendix A.4) compare two heads in three ways, all kept as sums over
sentences:

    norm     mean over sentences of ‖A − B‖, Frobenius            similarity 1 − mean norm / mean √(2w)
    pearson  mean over words of the Pearson correlation of rows   similarity as it is, in [−1, 1]
    js       mean over words of the Jensen–Shannon divergence     similarity 1 − mean divergence / ln 2

√(2w) and ln 2 are the largest values that rows summing to 1 allow, so norm and js give 1 for equal heads and 0 for
heads that never look at the same word; both fall with the paper's distance, so the best head is the paper's. The
distributed measures need nothing of this: they are moments over word pairs × heads (`word_pairs`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from residuum.errors import DataError, SettingError
from residuum.maths.arrays import as_float_array
from residuum.maths.layouts import Layout

HEAD_MEASURES = ("attention_norm", "attention_pearson", "attention_js")
# Rows of half-precision weights miss 1 by up to a few rounding steps of 2⁻⁸.
ROW_SUM_TOLERANCE = 2e-2
# Numbers in one temporary of the entropies: it should stay in a core's cache.
CACHED_NUMBERS = 1 << 17
# Added to weights under the logarithm, so that 0 log 0 = 0; no weight above 1e-284 notices.
TINY = 1e-300


class AttentionAccumulator:
    """Adds up sentences and gives their `AttentionSums`, for all pairs of heads of all layers.

    `heads` are the heads of each layer, of as many models as are compared; `measures` limits the work.
    """

    def __init__(self, heads: Sequence[int], *, measures: Sequence[str] = HEAD_MEASURES) -> None:
        unknown = [measure for measure in measures if measure not in HEAD_MEASURES]
        if unknown:
            raise SettingError(f"Unknown measure {', '.join(unknown)}; expected some of {', '.join(HEAD_MEASURES)}.")
        self._layout = Layout(tuple(int(count) for count in heads))
        self._sums = {measure: np.zeros((self._layout.total, self._layout.total)) for measure in measures}
        self._constant_rows = np.zeros(self._layout.total, dtype=np.int64)
        self._norm_bound = 0.0
        self._sentences = self._words = 0

    def update(self, layers: Sequence[Any]) -> None:
        """Add one sentence: for each layer `heads × words × words`, or flat `words² × heads`."""
        arrays = [as_heads(layer) for layer in layers]
        heads, lengths = [len(array) for array in arrays], {array.shape[1] for array in arrays}
        if heads != list(self._layout.widths) or len(lengths) > 1:
            raise DataError(
                f"The sentence has layers of {heads} heads over {sorted(lengths)} words; expected "
                f"{list(self._layout.widths)} heads and the same words in each. Aggregate sub-words to words."
            )
        weights = np.concatenate(arrays, dtype=np.float64)
        wrong = ~(np.abs(weights.sum(axis=2) - 1) <= ROW_SUM_TOLERANCE) | (weights < 0).any(axis=2)
        if wrong.any():
            head, word = np.argwhere(wrong)[0]
            layer = int(self._layout.layer_of_neuron[head])
            row, in_layer = weights[head, word], head - self._layout.slices[layer].start
            raise DataError(
                f"The attention of word {word}, head {in_layer}, layer {layer}, sentence {self._sentences}, "
                f"is {row.min():.3g} or more and sums to {row.sum():.3g}; "
                "expected no negative weight and a sum of 1. "
                "Renormalise the rows after special tokens are dropped."
            )
        words = weights.shape[1]
        flat = weights.reshape(len(weights), -1)
        if "attention_norm" in self._sums:
            self._sums["attention_norm"] += difference_norms(flat)
        if "attention_pearson" in self._sums:
            correlation, constant = row_correlations(weights)
            self._sums["attention_pearson"] += correlation
            self._constant_rows += constant
        if "attention_js" in self._sums:
            self._sums["attention_js"] += jensen_shannon(flat)
        self._norm_bound += float(np.sqrt(2 * words))
        self._sentences += 1
        self._words += words

    def result(self) -> "AttentionSums":
        """The sums over all sentences so far."""
        return AttentionSums(
            heads=self._layout.widths,
            sentences=self._sentences,
            words=self._words,
            norm_bound=self._norm_bound,
            constant_rows=self._constant_rows.copy(),
            sums={measure: values.copy() for measure, values in self._sums.items()},
        )


@dataclass(frozen=True, eq=False)
class AttentionSums:
    """What the sentences leave: sums over sentences (norm) or words (others) for each pair of heads.

    `norm_bound` is Σ√(2w); `constant_rows[h]` counts words whose attention in head h is uniform (only counted with
    `attention_pearson`).
    """

    heads: tuple[int, ...]
    sentences: int
    words: int
    norm_bound: float
    constant_rows: Int[np.ndarray, " head"]
    sums: dict[str, Float[np.ndarray, "head head"]]

    def head_mean(self, measure: str) -> Float[np.ndarray, "head head"]:
        """The paper's quantity for each pair of heads: mean norm, correlation or divergence (nats)."""
        if measure not in self.sums:
            raise SettingError(f"{measure} was not accumulated; expected one of {', '.join(self.sums)}.")
        if self.sentences == 0:
            raise DataError("No sentences were added; expected at least one.")
        return self.sums[measure] / (self.sentences if measure == "attention_norm" else self.words)

    def head_similarity(self, measure: str) -> Float[np.ndarray, "head head"]:
        """The similarity of each pair of heads, higher = more alike, 1 with itself."""
        mean = self.head_mean(measure)
        if measure == "attention_pearson":
            result = np.clip(mean, -1, 1)
        elif measure == "attention_norm":
            result = np.maximum(1 - mean * (self.sentences / self.norm_bound), 0.0)
        else:
            result = np.clip(1 - mean / np.log(2), 0, 1)
        np.fill_diagonal(result, 1)
        return result

    def layer_similarity(self, measure: str) -> Float[np.ndarray, "layer layer"]:
        """For each head of layer x (row) the most similar of layer y (column); the mean over heads of x."""
        layout = Layout(self.heads)
        best = np.maximum.reduceat(self.head_similarity(measure), [part.start for part in layout.slices], axis=1)
        return layout.sum_by_layer(best.T).T / np.array(self.heads)[:, None]


def merge(a: AttentionSums, b: AttentionSums) -> AttentionSums:
    """The sums over the sentences of both."""
    return _combine(a, b, sign=1)


def subtract(total: AttentionSums, part: AttentionSums) -> AttentionSums:
    """The sums without the sentences of `part`."""
    return _combine(total, part, sign=-1)


def attention_similarity(x: Any, y: Any, measure: str) -> float:
    """The similarity of layer x to layer y, each `heads × words × words` of one sentence, or a list."""
    xs, ys = _sentences(x), _sentences(y)
    if len(xs) != len(ys) or not xs:
        raise DataError(f"Found {len(xs)} and {len(ys)} sentences; expected the same sentences, at least one.")
    accumulator = AttentionAccumulator([len(as_heads(xs[0])), len(as_heads(ys[0]))], measures=[measure])
    for pair in zip(xs, ys, strict=True):
        accumulator.update(pair)
    return float(accumulator.result().layer_similarity(measure)[0, 1])


def word_pairs(attention: Any) -> Float[np.ndarray, "pair head"]:
    """The layer as a matrix word pairs × heads, for `MomentsAccumulator`; of one sentence or of a list."""
    sentences = _sentences(attention)
    return np.concatenate([heads.reshape(len(heads), -1).T for heads in map(as_heads, sentences)])


def as_heads(layer: Any) -> Float[np.ndarray, "head word word"]:
    """A layer's attention in one sentence as `heads × words × words`, from that or from `words² × heads`."""
    array = as_float_array(layer)
    if array.ndim == 2:
        words = round(np.sqrt(len(array)))
        if words**2 == len(array):
            array = array.T.reshape(-1, words, words)
    if array.ndim != 3 or array.shape[1] != array.shape[2] or 0 in array.shape:
        raise DataError(f"The attention has shape {array.shape}; expected heads × words × words, or words² × heads.")
    return array


def difference_norms(flat: Float[np.ndarray, "head pair"]) -> Float[np.ndarray, "head head"]:
    """‖A_h − A_g‖ for all pairs of heads, from ‖A_h‖² + ‖A_g‖² − 2⟨A_h, A_g⟩; directly where that cancels."""
    products = flat @ flat.T
    squares = np.diag(products)
    both = squares[:, None] + squares
    squared = both - 2 * products
    for h, near in enumerate(np.triu(squared < 1e-6 * both, 1)):
        if near.any():
            squared[h, near] = squared[near, h] = np.square(flat[near] - flat[h]).sum(axis=1)
    np.fill_diagonal(squared, 0)
    return np.sqrt(squared)


def row_correlations(
    weights: Float[np.ndarray, "head word word"],
) -> tuple[Float[np.ndarray, "head head"], Int[np.ndarray, " head"]]:
    """Σ over words of the Pearson correlation of rows, for all pairs of heads; and each head's constant rows.

    A constant row is uniform, for it sums to 1, so two of them are equal: they correlate 1, and 0 with any other row.
    """
    words = weights.shape[1]
    deviations = weights - weights.mean(axis=2, keepdims=True)
    norms = np.linalg.norm(deviations, axis=2)
    constant = norms <= 1e-6 / words
    units = np.divide(deviations, norms[:, :, None], out=np.zeros_like(weights), where=~constant[:, :, None])
    flat, uniform = units.reshape(len(units), -1), constant.astype(np.float64)
    return flat @ flat.T + uniform @ uniform.T, constant.sum(axis=1)


def jensen_shannon(flat: Float[np.ndarray, "head pair"]) -> Float[np.ndarray, "head head"]:
    """Σ over words of the Jensen–Shannon divergence (nats) of rows, for all pairs of heads.

    With t = p + q, 2 JS = Σ p ln p + Σ q ln q − Σ t ln t + ln 2 Σ t; only t ln t needs work for each pair of heads.
    """
    heads, numbers = flat.shape
    safe = flat + TINY
    p_log_p = np.einsum("hp,hp->h", flat, np.log(safe))
    mixed = np.zeros((heads, heads))
    step = max(1, CACHED_NUMBERS // heads)
    for start in range(0, numbers, step):
        part = np.ascontiguousarray(safe[:, start : start + step])
        for h in range(heads - 1):
            total = part[h + 1 :] + part[h]
            mixed[h, h + 1 :] += np.einsum("gp,gp->g", total, np.log(total))
    totals = flat.sum(axis=1)
    doubled = p_log_p[:, None] + p_log_p - (mixed + mixed.T) + np.log(2) * (totals[:, None] + totals)
    np.fill_diagonal(doubled, 0)
    return np.maximum(doubled, 0) / 2


def _sentences(attention: Any) -> list[Any]:
    return list(attention) if isinstance(attention, (list, tuple)) else [attention]


def _combine(a: AttentionSums, b: AttentionSums, sign: int) -> AttentionSums:
    if a.heads != b.heads or a.sums.keys() != b.sums.keys():
        raise DataError(
            f"The sums are of different layers ({a.heads} and {b.heads} heads) or measures ({[*a.sums]} and "
            f"{[*b.sums]}); expected the same."
        )
    return replace(
        a,
        sentences=a.sentences + sign * b.sentences,
        words=a.words + sign * b.words,
        norm_bound=a.norm_bound + sign * b.norm_bound,
        constant_rows=a.constant_rows + sign * b.constant_rows,
        sums={measure: a.sums[measure] + sign * b.sums[measure] for measure in a.sums},
    )
