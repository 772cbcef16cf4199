"""Numbers, lists and the names of measures as people write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

CONFIDENCE = "95\u00a0%"  # of the intervals that the commands write


def count(n: int, noun: str) -> str:
    """`1 layer`, `4,284 words`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def shown(value: Any) -> str:
    """A value of a summary: counts in full, other numbers with four significant digits, lists with commas."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "; ".join(f"{key} {shown(part)}" for key, part in value.items())
    return ", ".join(map(shown, value)) if isinstance(value, list | tuple) else str(value)


def listed(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def claim_text(row: Mapping[Any, Any]) -> str:
    """A claim of a document, its quantity with the interval, the rule, and what else is to be said."""
    text = str(row["finding"]).removesuffix(".") + "."
    if row["cases"]:
        if row["low"] == row["high"]:  # one number, counted rather than sampled
            bounds = ""
        elif np.isnan(row["low"]):
            bounds = "no interval; "
        else:
            bounds = f"{row['low']:.3g} to {row['high']:.3g} over all cases and their {CONFIDENCE} intervals; "
        text += f" {row['quantity']}: {row['ours']:.3g} ({bounds}claim: {row['rule']}); true in {row['cases']} cases"
        text += "." if np.isnan(row["document"]) else f"; the document has {row['document']:.4g}."
    return f"{text} Note: {row['note'].removesuffix('.')}." if row["note"] else text


def capital(text: str) -> str:
    """The text with a capital first letter; the others stay."""
    return text[:1].upper() + text[1:]


def layer_range(layers: Sequence[int]) -> str:
    """`layers 0–6` where none is missing, else `layers 0, 3, 6`."""
    if len(layers) == 1:
        return f"layer {layers[0]}"
    if list(layers) == list(range(layers[0], layers[-1] + 1)):
        return f"layers {layers[0]}–{layers[-1]}"
    return f"layers {', '.join(map(str, layers))}"


def with_interval(value: float, low: float = np.nan, high: float = np.nan, form: str = ".3f") -> str:
    """`0.921 (95 % CI 0.911–0.932)`, `99.0% (95 % CI 97.1–100.7%)`; the value alone where there is no interval."""
    if np.isnan(low) or np.isnan(high):
        return f"{value:{form}}"
    dash = "–" if low >= 0 else " to "
    lowest = f"{low:{form}}".removesuffix("%")
    return f"{value:{form}} ({CONFIDENCE} CI {lowest}{dash}{high:{form}})"


def short_name(model: object) -> str:
    """The last part of a model's path or hub name."""
    return str(model).rstrip("/").rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Term:
    """A name for people, a note on what it says and what it does not see, and the label of its axis."""

    title: str
    note: str = ""
    axis: str = ""  # by default that of the measure


_MEASURES = {
    "neuron": Term(
        "Single neurons",
        "Mean over the neurons of the row's layer of the largest |correlation| with a neuron of the column's layer. "
        "High only where single neurons do the same. Not symmetric.",
    ),
    "mixed": Term(
        "Neuron from layer",
        "How well each neuron of the row's layer is predicted from all neurons of the column's layer (mean R of least "
        "squares). Not symmetric, and high by chance with few words and many neurons: see the null value.",
    ),
    "svcca": Term(
        "SVCCA",
        "Mean canonical correlation of the directions that hold most of each layer's variance. Invariant to any "
        "invertible linear map of these directions.",
    ),
    "pwcca": Term(
        "PWCCA",
        "Canonical correlations as in SVCCA, weighted by how much of the row's layer each direction explains. "
        "Not symmetric.",
    ),
    "cka": Term(
        "CKA",
        "Linear centred kernel alignment: are the same words near each other in both layers? Invariant to rotation "
        "and scale; dominated by directions of large variance.",
    ),
    "cka_debiased": Term(
        "Debiased CKA",
        "CKA without the upward bias of few words and many neurons: unrelated layers give 0 on average.",
    ),
    "procrustes": Term(
        "Procrustes", "What two layers of unit norm share after the best rotation of one onto the other."
    ),
    "ridge": Term(
        "Neuron from layer, unseen sentences",
        "R² of each neuron of the row's layer, predicted by ridge regression from the column's layer in sentences that "
        "the regression did not see. About 0 for unrelated layers. Not symmetric.",
    ),
    "shape": Term("Shape metric", "One minus the angle between two layers after the best rotation, as a share of 90°."),
    "permutation": Term("Permutation Procrustes", "What two layers share after the best order and sign of neurons."),
    "matching": Term("Matched neurons", "Mean |correlation| of neurons that are matched one to one."),
    "soft_matching": Term("Softly matched neurons", "The same by optimal transport, where layers differ in width."),
    "eigenspace_overlap": Term("Eigenspace overlap", "What the subspaces of most variance have in common."),
    "gulp": Term("GULP", "How alike the predictions of ridge regressions from both layers are, in the worst case."),
    "distance_correlation": Term("Distance correlation", "Of the distances between words. On a sample of words."),
    "knn_jaccard": Term("Neighbours (Jaccard)", "Common nearest words of those that either layer has. On a sample."),
    "cknna": Term("CKNNA", "CKA of near neighbours only. On a sample of words."),
    "second_order_cosine": Term("Second-order cosine", "Are a word's cosines with its neighbours alike? Sampled."),
    "rank_similarity": Term("Rank similarity", "Do common neighbours rank alike? On a sample of words."),
    "imd": Term("IMD", "Do two clouds of words have the same shape, whichever word is which? On a sample."),
    "cka_rbf": Term("RBF CKA", "CKA with a Gaussian kernel, which only sees near words. On a sample of words."),
    "rsa": Term("RSA", "Correlation of the distances between all pairs of words in both layers. On a sample of words."),
    "knn": Term(
        "Nearest neighbours", "Share of a word's nearest words that are the same in both layers. On a sample of words."
    ),
    "output_js": Term(
        "Outputs: Jensen–Shannon", "One minus the mean Jensen–Shannon divergence of what both predict, from 0 to 1."
    ),
    "output_agreement": Term("Outputs: agreement", "How often both find the same class or token most probable."),
    "attention_norm": Term(
        "Heads: matrix norm",
        "Each head is paired with the most similar head of the other layer, by the norm of the difference of their "
        "attention matrices; 1 for equal heads, 0 for heads that never attend to the same word. Not symmetric.",
    ),
    "attention_pearson": Term(
        "Heads: Pearson",
        "Each head is paired with the head whose attention correlates most, word by word; the mean. Not symmetric.",
    ),
    "attention_js": Term(
        "Heads: Jensen–Shannon",
        "Each head is paired with the head of least Jensen–Shannon divergence, word by word, on a scale where 1 is "
        "equal and 0 is disjoint. Not symmetric.",
    ),
    "attention_svcca": Term("Attention: SVCCA", "SVCCA of the heads' weights over all pairs of words."),
    "attention_pwcca": Term("Attention: PWCCA", "PWCCA of the heads' weights over all pairs of words. Not symmetric."),
    "attention_cka": Term("Attention: CKA", "CKA of the heads' weights over all pairs of words."),
}

_CURVES = {
    "layer_average": Term(
        "Similarity to all other layers",
        "Mean similarity of a layer to all other layers of its model. A high value means that the layer repeats what "
        "other layers hold.",
    ),
    "to_next_layer": Term(
        "Similarity to the next layer",
        "Similarity of a layer to the one after it. A dip marks where the model rewrites its representation.",
    ),
    "localization": Term(
        "Localization: single neurons or directions?",
        "Mean single-neuron similarity minus mean SVCCA to all layers. Higher where shared information sits in single "
        "neurons, lower where it is distributed over directions.",
        axis="single neurons − SVCCA",
    ),
    "context_specificity": Term(
        "Dependence of words on their context",
        "One minus the mean cosine of a word's occurrences in different sentences, corrected by the mean cosine of "
        "different words. Higher where context matters more.",
        axis="1 − corrected cosine",
    ),
}


def measure_term(measure: str) -> Term:
    """A measure's name and note; an unknown measure keeps its name."""
    return _MEASURES.get(measure) or Term(measure)


def curve_term(curve: str) -> Term:
    """A curve's heading and note; an unknown curve keeps its name."""
    return _CURVES.get(curve) or Term(curve)


def known_curves_first(curves: Iterable[str]) -> list[str]:
    """The curves in the order of the page."""
    present = list(dict.fromkeys(curves))
    return [curve for curve in _CURVES if curve in present] + [curve for curve in present if curve not in _CURVES]


def main_measure(measures: Iterable[str]) -> str:
    """The measure that findings quote: CKA if it was measured, else the first."""
    present = list(dict.fromkeys(measures))
    return "cka" if "cka" in present else present[0]


def measure_group(measure: str) -> str:
    """The heading of a measure in the list of views."""
    return "Attention" if measure.startswith("attention_") else "Representations"
