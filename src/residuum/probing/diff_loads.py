"""How many operations the steps of a `diff` take, roughly: what takes longest begins first, so that all end alike."""

from __future__ import annotations

from collections.abc import Sequence

from residuum.activations.store import ActivationStore
from residuum.corpus.tasks import known_labels
from residuum.probing.diff_settings import Settings
from residuum.probing.diff_texts import Text

DECOMPOSITION = 20  # operations for each cube of a layer's width: singular values of the product of two layers
SALIENCE = 1.5  # probes of fewer neurons take half as long again as those of all layers


def probing_load(store: ActivationStore, text: Text, settings: Settings) -> float:
    """Probes of each layer and of all of them, task and control: two products a step, of two operations each."""
    classes = sum(len(set(known_labels(text.corpus, task))) for task in text.tasks)
    weights = 2 * sum(store.widths) * 2 * classes
    return SALIENCE * 4 * weights * store.n_rows * settings.recipe.epochs * settings.seeds


def similarity_load(stores: Sequence[ActivationStore], settings: Settings) -> float:
    """Sums of all pairs of neurons, and a decomposition for each pair of layers and each group that is left out."""
    widths = [width for store in stores for width in store.widths]
    pairs = len(widths) * (len(widths) + 1) / 2
    decompositions = (settings.groups + 1) * pairs * DECOMPOSITION * max(widths) ** 3
    return stores[0].n_rows * sum(widths) ** 2 + decompositions


def clustering_load(store: ActivationStore) -> float:
    """Sums of all pairs of neurons; their tree takes no longer."""
    return 2 * store.n_rows * sum(store.widths) ** 2
