"""What a result depends on besides its settings: the versions of what computed it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = (
    "residuum",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "scipy",
    "scikit-learn",
    "safetensors",
)


def environment() -> dict[str, object]:
    """Versions, platform and core count, for the record that goes with every result."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        **{package: _version(package) for package in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
