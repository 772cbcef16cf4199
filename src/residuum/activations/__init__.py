"""Extract activations into a store, and read them back."""

from residuum.activations.store import ActivationStore, check_same_words, open_store

__all__ = ["ActivationStore", "check_same_words", "open_store"]
