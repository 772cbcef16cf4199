"""What an installation of Residuum consists of: name, version and licence of every package, as CycloneDX JSON.

    python tests/bill_of_materials.py > sbom.json

It follows what the installed packages require of each other, from Residuum and its extras on.
"""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

EXTRAS = ("dask", "demo", "figures", "gguf", "hdf5", "onnx")
"""What users install; documentation and development tools are none of it."""


def installed(name: str = "residuum", extras: tuple[str, ...] = EXTRAS) -> dict[str, Distribution]:
    """The packages that one needs, itself among them; those that are not installed are left out."""
    found: dict[str, Distribution] = {}
    waiting, seen = [(name, extras)], set()
    while waiting:
        name, extras = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if (key, extras) in seen:
            continue
        seen.add((key, extras))
        try:
            found[key] = distribution(name)
        except PackageNotFoundError:
            continue
        for requirement in map(Requirement, found[key].requires or ()):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                waiting.append((requirement.name, tuple(requirement.extras)))
    return found


def licence(package: Distribution) -> str:
    """A package's licence as it says itself: the expression, else the classifiers, else the first line of its text."""
    facts = package.metadata
    if expression := facts.get("License-Expression"):
        return expression
    classifiers = [c for c in facts.get_all("Classifier") or () if c.startswith("License ::")]
    named = [c.split(" :: ")[-1] for c in classifiers if not c.endswith("OSI Approved")]
    return " AND ".join(named) or (facts.get("License") or "").strip().partition("\n")[0]


def bill() -> dict[str, object]:
    """All packages in the form of CycloneDX 1.6."""
    packages = installed()
    components = [
        {
            "type": "library",
            "name": name,
            "version": package.version,
            "purl": f"pkg:pypi/{name}@{package.version}",
            "licenses": [{"license": {"name": licence(package)}}],
        }
        for name, package in sorted(packages.items())
        if name != "residuum"
    ]
    own = {"type": "application", "name": "residuum", "version": packages["residuum"].version}
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "metadata": {"component": own}, "components": components}


if __name__ == "__main__":
    json.dump(bill(), sys.stdout, indent=1)
