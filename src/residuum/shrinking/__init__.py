"""Smaller models: feature transfer, pruned blocks, trimmed vocabularies."""
