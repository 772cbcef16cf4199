"""The named losses of the thesis (tables 3.1 and 4.7) and of its survey, with the weights that each recipe gives them.

The published configurations weigh sums that differ in size by orders of magnitude: `soft` is summed over all positions
and divided by the batch only, `attention` compares probabilities, most of which are near zero. `corrected` averages
every term per token and compares scores before the softmax, so equal weights would be another method. Its weights are
the published ones times what the published sums multiply them by:

    soft       × TOKENS         positions per line, padding included, that the sum runs over
    attention  ÷ (KEYS·TOKENS)  Δp ≈ p·(Δa − mean Δa): with KEYS keys sharing the mass evenly, the squared difference of
                                probabilities, averaged over TOKENS keys, is that of the scores ÷ (KEYS·TOKENS)

and then all are divided by their sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Recipe = Literal["corrected", "thesis", "published"]
RECIPES: tuple[Recipe, ...] = ("corrected", "thesis", "published")

HEAD_TERMS = ("mlm", "soft", "softmax_regression")
HIDDEN_TERMS = ("hidden_mse", "hidden_cos", "hidden_kl", "cls_mse", "cls_cos")
ATTENTION_TERMS = ("attention_mse", "attention_kl", "value_relation")
EMBEDDING_TERMS = ("embedding_mse", "embedding_cos")
ALIGNMENT_TERMS = ("adversarial", "contrastive")
TERMS = (*HEAD_TERMS, *HIDDEN_TERMS, *ATTENTION_TERMS, *EMBEDDING_TERMS, *ALIGNMENT_TERMS)

TOKENS = 128  # of the longest of 16 lines of web text, to which the others are padded
KEYS = 8  # that a query attends to
SUM_TOLERANCE = 0.01  # published weights add up to 0.999 or 1


@dataclass(frozen=True)
class Preset:
    """A loss by name: the published weight of each term, and which teacher layers it looks at."""

    weights: Mapping[str, float]
    layer_map: str = "uniform"
    temperature: float = 4.0
    share: str | None = None  # where the preset says so: one student for all languages
    averaged: bool = False  # weights already meant for averages: the same in every recipe

    def weights_for(self, recipe: Recipe) -> dict[str, float]:
        """The weights of the terms under a recipe."""
        if recipe != "corrected" or self.averaged:
            return dict(self.weights)
        return in_effect(self.weights)


def in_effect(published: Mapping[str, float]) -> dict[str, float]:
    """Weights of averaged terms that have the proportions which published weights have of published sums."""
    factors = {"soft": float(TOKENS), "attention_mse": 1 / (KEYS * TOKENS)}
    weights = {term: weight * factors.get(term, 1.0) for term, weight in published.items()}
    total = sum(weights.values())
    return {term: weight / total for term, weight in weights.items()}


_HINTON = {"mlm": 0.0005, "soft": 0.0005}
_MONOSHOT = {**_HINTON, "hidden_mse": 0.333, "attention_mse": 0.333, "embedding_mse": 0.333}
_COSINE = {**_HINTON, "hidden_cos": 0.333, "attention_mse": 0.333, "embedding_mse": 0.333}
_TINYBERT = {"hidden_mse": 0.333, "attention_mse": 0.333, "embedding_mse": 0.333}

_MONOLINGUAL = {
    "hinton": Preset({"mlm": 0.5, "soft": 0.5}),
    "hinton+hidden": Preset({**_HINTON, "hidden_mse": 0.999}),
    "hinton+hidden+attention": Preset({**_HINTON, "hidden_mse": 0.499, "attention_mse": 0.499}),
    "monoshot": Preset(_MONOSHOT),
    "hidden+attention+embedding": Preset(_TINYBERT),
    "monoshot-cos": Preset(_COSINE),
    "monoshot-cos-bottom": Preset(_COSINE, "bottom"),
    "monoshot-top": Preset(_MONOSHOT, "top"),
    "monoshot-bottom": Preset(_MONOSHOT, "bottom"),
    "monoalignment": Preset(_MONOSHOT, "last"),
}
TABLE_4_7 = tuple(_MONOLINGUAL)

PRESETS: dict[str, Preset] = {
    **_MONOLINGUAL,
    **{
        f"bilingual-{name}": Preset(preset.weights, preset.layer_map, share="all")
        for name, preset in _MONOLINGUAL.items()
    },
    "tinybert": Preset(_TINYBERT),
    "distilbert": Preset({"soft": 0.625, "mlm": 0.25, "hidden_cos": 0.125}, "last", temperature=2.0, averaged=True),
    "minilm": Preset({"attention_kl": 0.5, "value_relation": 0.5}, "last", averaged=True),
    "pkd": Preset({"mlm": 0.25, "soft": 0.25, "cls_mse": 0.5}, averaged=True),
    "sid": Preset({"mlm": 0.25, "soft": 0.25, "cls_cos": 0.25, "attention_kl": 0.25}, averaged=True),
    "xtremedistil": Preset({"mlm": 0.25, "soft": 0.25, "hidden_kl": 0.5}, averaged=True),
    "softmax-regression": Preset({"softmax_regression": 0.5, "hidden_mse": 0.5}, "last", averaged=True),
}
HEADLESS = tuple(name for name, preset in PRESETS.items() if not set(preset.weights) & set(HEAD_TERMS))
