"""What a store says of itself: which model and text, which layers, which shards; checked before it is believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from residuum.alignment import Audit
from residuum.errors import StoreError
from residuum.files import read_json
from residuum.schemas import conforming

FORMAT = "residuum activations"
VERSION = 1
DTYPES = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes of a number
UNITS = ("word", "sentence")
REMEDY = "The store is damaged, or another program's; extract it again with --fresh."


@dataclass(frozen=True)
class Shard:
    """What the manifest says of one shard: which sentences, how many rows, and the file's size and checksum."""

    first: int  # sentences first … stop − 1
    stop: int
    rows: int = 0
    absent: list[tuple[int, int]] = field(default_factory=list)  # (sentence, word) without a row
    audit: dict[str, Any] = field(default_factory=dict)
    bytes: int = 0
    checksum: str = ""

    @property
    def written(self) -> bool:
        """Whether the file was finished."""
        return bool(self.checksum)


@dataclass(frozen=True)
class Manifest:
    """All that a store says of itself; the shards' file names follow from their number."""

    model: dict[str, Any]  # name, fingerprint, n_layers, …
    corpus: dict[str, Any]  # name, fingerprint, language, sentences, words
    settings: dict[str, Any]  # pooling, dtype, unit, …
    layers: list[int]
    widths: list[int]
    n_heads: int  # 0: no attention
    shards: list[Shard]
    environment: dict[str, Any] = field(default_factory=dict)
    format: str = FORMAT
    version: int = VERSION

    @property
    def complete(self) -> bool:
        """Whether every shard was written."""
        return all(shard.written for shard in self.shards)

    def differences(self, other: Manifest) -> list[str]:
        """What another run would do differently, in words; empty if it would write the same store."""
        mine, theirs = (
            {
                "model": m.model["fingerprint"],
                "corpus": m.corpus["words_fingerprint"],
                "layers": m.layers,
                **m.settings,
            }
            for m in (self, other)
        )
        return [f"{key} {mine.get(key)} → {theirs.get(key)}" for key in theirs if mine.get(key) != theirs[key]]


def shard_path(folder: Path, index: int) -> Path:
    """Where shard `index` of a store is."""
    return folder / f"shard-{index:05d}.safetensors"


def plan_shards(sentences: Sequence[Sequence[str]], shard_words: int) -> list[Shard]:
    """Cut a corpus into runs of whole sentences of about `shard_words` words: the same for every model."""
    shards, first, size = [], 0, 0
    for i, words in enumerate(sentences):
        if size and size + len(words) > shard_words:
            shards.append(Shard(first, i))
            first, size = i, 0
        size += len(words)
    return [*shards, Shard(first, len(sentences))]


def read_manifest(path: Path) -> Manifest:
    """Read and check a store's manifest."""
    file = path / "manifest.json"
    if not path.exists():
        raise StoreError(f"{path} does not exist; expected an activation store (see `residuum extract`).")
    if not file.exists():
        raise StoreError(f"{path} is not an activation store: it has no manifest.json.")
    raw = read_json(file)
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise StoreError(f"{file} is not a manifest of activations.")
    if raw.get("version") != VERSION:
        raise StoreError(
            f"{path} has format version {str(raw.get('version'))[:20]}; this residuum reads version {VERSION}. "
            "Extract it again."
        )
    manifest = conforming(raw, Manifest, file, StoreError, REMEDY)
    for shard in manifest.shards:
        conforming(shard.audit, Audit, f"{file}, shard of sentences from {shard.first} on", StoreError, REMEDY)
    if fault := _contradiction(manifest):
        raise StoreError(f"{file} contradicts itself: {fault}. {REMEDY}")
    return manifest


def _contradiction(manifest: Manifest) -> str | None:
    """What cannot be, in words; None where all that a manifest says fits together."""
    texts = {
        "model.name": manifest.model.get("name"),
        "model.fingerprint": manifest.model.get("fingerprint"),
        "corpus.words_fingerprint": manifest.corpus.get("words_fingerprint"),
    }
    missing = [name for name, value in texts.items() if not isinstance(value, str)]
    if missing:
        return f"{missing[0]} is no text"
    unit, dtype = manifest.settings.get("unit"), manifest.settings.get("dtype")
    if unit not in UNITS or dtype not in tuple(DTYPES):
        return f"unit {str(unit)[:40]!r} and dtype {str(dtype)[:40]!r} must be of {UNITS} and {tuple(DTYPES)}"
    layers, widths = manifest.layers, manifest.widths
    ascend = all(a < b for a, b in pairwise([-1, *layers]))
    if not layers or not ascend or len(widths) != len(layers) or min(widths) < 1 or manifest.n_heads < 0:
        return f"{len(layers)} layers (ascending: {ascend}), {len(widths)} widths, {manifest.n_heads} heads"
    starts = [shard.first for shard in manifest.shards]
    stops = [shard.stop for shard in manifest.shards]
    if starts != [0, *stops[:-1]] or any(a > b for a, b in zip(starts, stops, strict=True)):
        return "its shards are not one run of sentences after another"
    if any(shard.rows < 0 or any(min(place) < 0 for place in shard.absent) for shard in manifest.shards):
        return "a shard has fewer than no rows"
    return None
