"""Results, tables and tensors on disk, and where they come from."""
