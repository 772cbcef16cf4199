"""Loading transformers, aligning words with sub-words, and cutting models down."""
