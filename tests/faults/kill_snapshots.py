"""What a folder holds, value by value, so that two runs can be compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

Snapshot = dict[str, Any]


def snapshot(folder: Path) -> Snapshot:
    """Every value of every file by its name; tensors and texts by their hash."""
    found: Snapshot = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        found |= {f"{path.relative_to(folder)}{place}": value for place, value in _values(path, folder)}
    return found


def differences(a: Snapshot, b: Snapshot) -> set[str]:
    """The places where two folders differ, or that only one has."""
    return {place for place in {**a, **b} if place not in a or place not in b or a[place] != b[place]}


def _values(path: Path, folder: Path) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".parquet":
        for name, column in pd.read_parquet(path).items():
            yield f":{name}", _column(column)
    elif path.suffix == ".safetensors":
        yield from _tensors(path)
    elif path.suffix in (".json", ".yaml"):
        text = path.read_text(encoding="utf-8").replace(str(folder), "OUT")
        value = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
        if path.name == "result.json":  # the values are compared; checksums would tell of their seconds too
            value["tables"] = sorted(value["tables"])
            value.pop("xxh3", None)
        yield from _flat("", value)
    elif path.suffix != ".csv":  # the same as the parquet beside it, but for its rounding
        yield "", _hash(path.read_bytes().replace(str(folder).encode(), b"OUT"))


def _column(column: pd.Series) -> list[Any]:
    """Values that are equal to themselves: NaN is not."""
    return [value.hex() if isinstance(value, float) else repr(value) for value in column.tolist()]


def _tensors(path: Path) -> Iterator[tuple[str, str]]:
    import torch
    from safetensors.torch import load_file

    for name, tensor in load_file(path).items():
        raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        yield f":{name}", f"{tuple(tensor.shape)} {_hash(raw)}"


def _flat(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _flat(f"{place}.{key}", part)
    elif isinstance(value, list):
        yield f"{place}.length", len(value)
        for number, part in enumerate(value):
            yield from _flat(f"{place}.{number}", part)
    else:
        yield place, repr(value)


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
