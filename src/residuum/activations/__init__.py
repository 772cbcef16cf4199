"""Extract activations into a store, and read them back."""
