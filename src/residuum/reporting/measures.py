"""What the measures and curves of `compare` are called on the page, and how a reader should take them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Term:
    """A name for people, a note on what it says and what it does not see, and the label of its axis."""

    title: str
    note: str = ""
    axis: str = ""  # else that of the measure


_MEASURES = {
    "neuron": Term(
        "Single neurons",
        "Each neuron of the row's layer is paired with the one of the column's layer that it correlates with most; "
        "the mean of these |correlations|. High only where single neurons do the same. Not symmetric.",
    ),
    "mixed": Term(
        "Neuron from layer",
        "How well each neuron of the row's layer follows from all neurons of the column's layer (mean R of least "
        "squares). Not symmetric, and high by chance when there are few words for many neurons: see the null.",
    ),
    "svcca": Term(
        "SVCCA",
        "Mean canonical correlation of the directions that hold most of each layer's variance. Blind to any "
        "invertible linear change of these directions.",
    ),
    "pwcca": Term(
        "PWCCA",
        "Canonical correlations as in SVCCA, weighted by how much of the row's layer each direction explains. "
        "Not symmetric.",
    ),
    "cka": Term(
        "CKA",
        "Linear centred kernel alignment: are the same words near each other in both layers? Blind to rotation and "
        "scale; directions of large variance decide.",
    ),
    "cka_debiased": Term(
        "Debiased CKA",
        "CKA without the upward bias that few words and many neurons cause: unrelated layers give 0 on average.",
    ),
    "procrustes": Term(
        "Procrustes", "What is left in common after the best rotation of one layer onto the other; both scaled to one."
    ),
    "cka_rbf": Term("RBF CKA", "CKA with a Gaussian kernel: near words count, far ones do not. On a sample of words."),
    "rsa": Term(
        "RSA", "Correlation of the two layers' tables of distances between all pairs of words. On a sample of words."
    ),
    "knn": Term(
        "Nearest neighbours", "Share of a word's nearest words that are the same in both layers. On a sample of words."
    ),
    "attention_norm": Term(
        "Heads: matrix norm",
        "Each head is paired with the most alike head of the other layer, by the norm of the difference of their "
        "attention matrices; 1 for equal heads, 0 for heads that never look at the same word. Not symmetric.",
    ),
    "attention_pearson": Term(
        "Heads: Pearson",
        "Each head is paired with the head whose attention correlates most, word by word; the mean. Not symmetric.",
    ),
    "attention_js": Term(
        "Heads: Jensen–Shannon",
        "Each head is paired with the head of least Jensen–Shannon divergence, word by word; turned round so that 1 "
        "is equal and 0 is disjoint. Not symmetric.",
    ),
    "attention_svcca": Term("Attention: SVCCA", "SVCCA of the heads' weights over all pairs of words."),
    "attention_pwcca": Term("Attention: PWCCA", "PWCCA of the heads' weights over all pairs of words. Not symmetric."),
    "attention_cka": Term("Attention: CKA", "CKA of the heads' weights over all pairs of words."),
}

_CURVES = {
    "layer_average": Term(
        "How much each layer repeats the others",
        "Mean similarity of a layer to all other layers of its own model. A layer that stands high says little that "
        "the others do not.",
    ),
    "to_next_layer": Term(
        "How much is kept from one layer to the next",
        "Similarity of a layer to the one after it. A dip is where the model rewrites what it has.",
    ),
    "localization": Term(
        "Localization: single neurons or directions?",
        "Mean single-neuron similarity minus mean SVCCA to all layers. Higher where what layers share sits in single "
        "neurons, lower where it is spread over directions.",
        axis="single neurons − SVCCA",
    ),
    "context_specificity": Term(
        "How much words depend on their context",
        "One minus the mean cosine of a word's occurrences in different sentences, after the mean cosine of different "
        "words is taken off. Higher where the context decides more.",
        axis="1 − corrected cosine",
    ),
}


def measure_term(measure: str) -> Term:
    """A measure's name and note; a measure that is not known here keeps its own name."""
    return _MEASURES.get(measure) or Term(measure)


def curve_term(curve: str) -> Term:
    """A curve's heading and note; a curve that is not known here keeps its own name."""
    return _CURVES.get(curve) or Term(curve)


def known_curves_first(curves: Iterable[str]) -> list[str]:
    """The curves in the order of the page."""
    found = list(dict.fromkeys(curves))
    return [curve for curve in _CURVES if curve in found] + [curve for curve in found if curve not in _CURVES]


def main_measure(measures: Iterable[str]) -> str:
    """The measure that speaks for all where there is room for one: CKA if it was measured, else the first."""
    found = list(dict.fromkeys(measures))
    return "cka" if "cka" in found else found[0]


def measure_group(measure: str) -> str:
    """Under which heading a measure is chosen."""
    return "Attention" if measure.startswith("attention_") else "Representations"
