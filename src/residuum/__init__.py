"""Find what a transformer repeats, and keep only what it needs."""

__version__ = "0.1.0"
