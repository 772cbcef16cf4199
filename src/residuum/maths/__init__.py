"""Arrays in, arrays out: no files, no transformers, no plots."""
