"""Find what a transformer repeats, and keep only what it needs.

The public names below are loaded on first use, so that `import residuum` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "ActivationStore": "residuum.activations.store",
    "Comparison": "residuum.comparison",
    "Corpus": "residuum.corpus",
    "MEASURES": "residuum.maths.similarity",
    "Model": "residuum.models",
    "ResiduumError": "residuum.errors",
    "compare": "residuum.comparison",
    "export_activations": "residuum.activations.exchange",
    "extract": "residuum.activations.extraction",
    "from_module": "residuum.models",
    "from_transformers": "residuum.models",
    "import_activations": "residuum.activations.exchange",
    "load_model": "residuum.models",
    "open_store": "residuum.activations.store",
    "read_corpus": "residuum.corpus",
    "read_parallel": "residuum.corpus",
    "report": "residuum.reports",
    "sample": "residuum.samples",
    "similarity": "residuum.maths.similarity",
}

__all__ = ["__version__", *_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from residuum.activations.exchange import export_activations, import_activations
    from residuum.activations.extraction import extract
    from residuum.activations.store import ActivationStore, open_store
    from residuum.comparison import Comparison, compare
    from residuum.corpus import Corpus, read_corpus, read_parallel
    from residuum.errors import ResiduumError
    from residuum.maths.similarity import MEASURES, similarity
    from residuum.models import Model, from_module, from_transformers, load_model
    from residuum.reports import report
    from residuum.samples import sample


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'residuum' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
