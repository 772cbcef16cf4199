"""What a store says of itself: which model and text, which layers, which shards; checked before it is believed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from sys import intern
from typing import Any

import numpy as np
import xxhash
from jaxtyping import Float32, Float64, Int
from safetensors import SafetensorError, safe_open

from residuum.activations.settings import VerifySettings
from residuum.errors import OtherRunError, SettingError, StoreError
from residuum.models.alignment import Audit
from residuum.settings import coerced, command
from residuum.storage.files import (
    checksum,
    clear_disk_errors,
    hold_folder,
    is_as_noted,
    lone_file,
    note_checksum,
    private_folder,
    read_json,
    release_folder,
    remove_temporaries,
    reserve_space,
    whole_file,
    write_json,
)
from residuum.storage.notebook import facts_html
from residuum.storage.remote import fetch, fetch_versioned, local_path
from residuum.storage.schemas import conforming

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
    """What contradicts itself in a manifest; None where nothing does."""
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


_SHARD_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


@dataclass(frozen=True, eq=False)
class Block:
    """The activations of some sentences: one array per layer, and each row's sentence and word."""

    layers: list[Float32[np.ndarray, "row _"]]
    places: Int[np.ndarray, "row 2"]


@dataclass(frozen=True, eq=False)
class ActivationStore:
    """Activations on disk: rows are words (or sentences) in corpus order, one tensor per layer.

    `array` gives words × layers × hidden, memory-mapped; `batches` streams blocks of it.
    """

    path: Path
    manifest: Manifest
    address: str = ""  # where it lies, if not here: `path` is then a copy, whose shards come as they are needed

    @classmethod
    def open(cls, path: str | Path) -> ActivationStore:
        """Open a finished store in a folder, or at an address such as s3://bucket/acts; what is damaged is said."""
        here = local_path(path)
        if here is None:
            folder = fetch_versioned(str(path), "manifest.json")
            fetch(str(path), "words.jsonl", folder)
            return replace(cls.open(folder), address=str(path))
        path = here
        manifest = read_manifest(path)
        if not manifest.complete:
            done = sum(shard.written for shard in manifest.shards)
            raise StoreError(
                f"{path} is unfinished ({done} of {len(manifest.shards)} shards); run the same extract command again."
            )
        return cls(path, manifest)

    @property
    def layers(self) -> list[int]:
        """The layers that are here, by their number in the model."""
        return self.manifest.layers

    @property
    def widths(self) -> list[int]:
        """The number of neurons of each layer that is here."""
        return self.manifest.widths

    @property
    def n_rows(self) -> int:
        """The number of words (or sentences) that have activations."""
        return sum(shard.rows for shard in self.manifest.shards)

    @property
    def n_heads(self) -> int:
        """The number of attention heads of each block; 0 where attention was not kept."""
        return self.manifest.n_heads

    @property
    def name(self) -> str:
        """The model's name."""
        return self.manifest.model["name"]

    @property
    def unit(self) -> str:
        """What a row is: `word` or `sentence`."""
        return self.manifest.settings["unit"]

    @property
    def fingerprint(self) -> str:
        """A hash of all shards' checksums."""
        return xxhash.xxh3_64_hexdigest("".join(shard.checksum for shard in self.manifest.shards).encode())

    @property
    def audit(self) -> Audit:
        """What became of the corpus' words."""
        return sum((Audit(**shard.audit) for shard in self.manifest.shards), Audit())

    def _repr_html_(self) -> str:
        facts = {
            "model": self.name,
            "corpus": self.text_name,
            "rows": f"{self.n_rows:,} {self.unit}s",
            "layers": ", ".join(map(str, self.layers)),
            "neurons per layer": ", ".join(map(str, dict.fromkeys(self.widths))),
            "attention heads": self.n_heads or "not kept",
            "precision": self.manifest.settings["dtype"],
            "folder": self.address or self.path,
            "what became of the words": self.audit,
        }
        return facts_html("Activations", facts)

    @property
    def text_name(self) -> str:
        """The name of the corpus."""
        return str(self.manifest.corpus["name"])

    @property
    def left_out(self) -> dict[str, int]:
        """What of the corpus' file was not read, and how often."""
        return dict(self.manifest.corpus.get("skipped") or {})

    @property
    def sentences(self) -> list[list[str]]:
        """The words of every sentence, as they were read."""
        return self._segments[0]

    @property
    def pairs(self) -> list[list[str]] | None:
        """The words of every second segment, or None where the corpus has no pairs."""
        return self._segments[1]

    @cached_property
    def _segments(self) -> tuple[list[list[str]], list[list[str]] | None]:
        records = read_words(self.path, self.manifest)
        expected = self.manifest.shards[-1].stop if self.manifest.shards else 0
        if len(records) != expected:
            raise StoreError(f"{self.path} has words of {len(records)} sentences and shards of {expected}. {REMEDY}")
        paired = bool(records) and "pair" in records[0]
        return [record["words"] for record in records], [record["pair"] for record in records] if paired else None

    @cached_property
    def row_words(self) -> Int[np.ndarray, "row 2"]:
        """The sentence and word number of every row (word 0 where a row is a sentence)."""
        if self.unit == "sentence":
            places = np.stack([np.arange(len(self.sentences)), np.zeros(len(self.sentences), dtype=np.int64)], axis=1)
        else:
            places = word_places([len(words) for words in self.sentences])
        absent = {place for shard in self.manifest.shards for place in map(tuple, shard.absent)}
        if absent:
            places = places[[place not in absent for place in map(tuple, places.tolist())]]
        if len(places) != self.n_rows:
            raise StoreError(f"{self.path} has {len(places):,} words and shards of {self.n_rows:,} rows. {REMEDY}")
        return places

    def array(self, layers: Any = None) -> Float32[np.ndarray, "word layer hidden"]:
        """All rows of the wanted layers, memory-mapped from a file that is built on first use."""
        layers = self._known(layers)
        key = xxhash.xxh3_64_hexdigest(json.dumps([layers, [s.checksum for s in self.manifest.shards]]).encode())
        path = self.path / f"array-{key}.npy"
        try:
            self._ensure_array(path, layers)
        except StoreError:  # a folder that cannot be written
            path = private_folder() / path.name
            self._ensure_array(path, layers)
        return np.load(path, mmap_mode="r")

    def batches(
        self, layers: Any = None, neurons: Sequence[str] | None = None
    ) -> Iterator[Float32[np.ndarray, "word ..."]]:
        """Stream blocks, a shard at a time: words × layers × hidden, or words × neurons for ids such as `3:17`."""
        if neurons is None:
            known = self._known(layers)
            self._common_width(known)
            for index in range(len(self.manifest.shards)):
                yield np.stack(self.shard(index, known), axis=1)
            return
        wanted = [self._neuron(neuron) for neuron in neurons]
        known = sorted({layer for layer, _ in wanted})
        columns = [(known.index(layer), index) for layer, index in wanted]
        for index in range(len(self.manifest.shards)):
            blocks = self.shard(index, known)
            yield np.stack([blocks[layer][:, neuron] for layer, neuron in columns], axis=1)

    def shard(self, index: int, layers: Any = None) -> list[Float32[np.ndarray, "word _"]]:
        """One shard's wanted layers, each words × hidden, as float32."""
        return self._tensors(index, [f"layer-{layer}" for layer in self._known(layers)])

    def read(self, first: int, stop: int) -> Block:
        """All layers of sentences first … stop − 1; only their rows are read from disk."""
        lengths = self.lengths
        rows = slice(int(lengths[:first].sum()), int(lengths[:stop].sum()))
        return Block(
            layers=self._slices([f"layer-{layer}" for layer in self.layers], first, stop, lengths),
            places=self.row_words[rows],
        )

    def read_attention(self, first: int, stop: int) -> list[list[Float32[np.ndarray, "_ _ _"]]]:
        """Attention in sentences first … stop − 1: for each a list over blocks, rows summing to 1."""
        if not self.n_heads:
            raise StoreError(f"{self.path} holds no attention; extract it with --attention.")
        names = [f"attention-{layer}" for layer in self.layers if layer > 0]
        flat = self._slices(names, first, stop, np.square(self.lengths))
        lengths = self.lengths[first:stop]
        stops = np.cumsum(np.square(lengths))[:-1]
        parts = [np.split(layer, stops) for layer in flat]
        return [[part[s].reshape(n, n, -1).transpose(2, 0, 1) for part in parts] for s, n in enumerate(lengths)]

    def verify(self) -> list[str]:
        """Read every file again and say what is wrong; an empty list means that nothing is."""
        faults = []
        for index in range(len(self.manifest.shards)):
            try:
                self._check(index)
            except StoreError as error:
                faults.append(str(error))
        try:
            read_words(self.path, self.manifest)
        except StoreError as error:
            faults.append(str(error))
        return faults

    def renamed(self, name: str) -> ActivationStore:
        """The same store under another model name."""
        return replace(self, manifest=replace(self.manifest, model={**self.manifest.model, "name": name}))

    def text(self) -> str:
        """What was read, and where it is."""
        left_out = ", ".join(f"{count:,} {what}" for what, count in self.left_out.items() if count)
        not_read = f"; not read: {left_out}" if left_out else ""
        size = f"{self.n_rows:,} {self.unit}s × {len(self.layers)} layers of {self.name}"
        return f"{self.text_name}: {self.audit}{not_read}.\n{size} are in {self.address or self.path}."

    def __reduce__(self) -> tuple[Any, ...]:
        """A store travels to a worker as its place; one that the worker has opened before is not read again."""
        facts = (tuple(self.layers), tuple(self.widths), self.name)
        return _store_here, (self.address or str(self.path.absolute()), self.fingerprint, *facts)

    def __repr__(self) -> str:
        size = f"{self.n_rows:,} {self.unit}s × {len(self.layers)} layers"
        return f"ActivationStore({str(self.path)!r}, {self.name}, {size})"

    @cached_property
    def lengths(self) -> Int[np.ndarray, " sentence"]:
        """The number of rows of each sentence."""
        return np.bincount(self.row_words[:, 0], minlength=len(self.sentences))

    def _slices(
        self, names: list[str], first: int, stop: int, sizes: Int[np.ndarray, " sentence"]
    ) -> list[Float32[np.ndarray, "_ _"]]:
        """The rows of some sentences, from all shards they lie in, when sentence s takes `sizes[s]` rows."""
        pieces = []
        for index, shard in enumerate(self.manifest.shards):
            a, b = max(first, shard.first), min(stop, shard.stop)
            if a < b:
                start = int(sizes[shard.first : a].sum())
                pieces.append(self._tensors(index, names, slice(start, start + int(sizes[a:b].sum()))))
        if len(pieces) == 1:
            return pieces[0]
        return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]

    def _tensors(self, index: int, names: list[str], rows: slice = slice(None)) -> list[np.ndarray]:
        if index not in self._checked:
            self._check(index)
            self._checked.add(index)
        file = shard_path(self.path, index)
        stored = _SHARD_DTYPES[self.manifest.settings["dtype"]]
        try:
            with safe_open(file, framework="pt" if stored == "BF16" else "numpy") as tensors:
                slices = [tensors.get_slice(name) for name in names]
                for name, part in zip(names, slices, strict=True):  # before a value of it is used
                    shape, kind = tuple(part.get_shape()), part.get_dtype()
                    if shape != (expected := self._shape(index, name)) or kind != stored:
                        held = f"{name} of shape {shape} and type {kind}"
                        raise StoreError(f"{file} holds {held}; expected {expected} and {stored}. {REMEDY}")
                if stored == "BF16":  # numpy has no such type
                    return [part[rows].float().numpy() for part in slices]
                return [part[rows].astype(np.float32, copy=False) for part in slices]
        except (SafetensorError, OSError) as error:
            raise StoreError(f"{file} cannot be read ({error}). {REMEDY}") from None

    def _shape(self, index: int, name: str) -> tuple[int, int]:
        """The shape that a tensor of a shard has, by the manifest."""
        kind, _, layer = name.partition("-")
        shard = self.manifest.shards[index]
        if kind == "layer":
            return shard.rows, self.widths[self.layers.index(int(layer))]
        return int(np.square(self.lengths[shard.first : shard.stop]).sum()), self.n_heads

    @cached_property
    def _checked(self) -> set[int]:
        return set()

    def _check(self, index: int) -> None:
        """A shard that is cut short or altered is never read as right."""
        file, shard = shard_path(self.path, index), self.manifest.shards[index]
        if self.address and not file.exists():
            fetch(self.address, file.name, self.path)
        if not file.exists():
            raise StoreError(f"{file} is missing; run the same extract command with --fresh.")
        size = file.stat().st_size
        if size != shard.bytes:
            raise StoreError(f"{file} has {size:,} bytes instead of {shard.bytes:,}; extract again with --fresh.")
        if checksum(file) != shard.checksum:
            raise StoreError(f"{file} has been altered (checksum differs); extract again with --fresh.")

    def _known(self, layers: Any) -> list[int]:
        if layers is None:
            return self.layers
        try:
            layers = coerced(layers, tuple[int, ...])
        except (TypeError, ValueError):
            raise SettingError(
                f"layers is {layers!r:.80}; expected one of {_ranges(self.layers)}, or several."
            ) from None
        for layer in layers:
            if layer not in self.layers:
                here = f"{self.path} (it has {_ranges(self.layers)})"
                raise SettingError(f"Layer {layer} is not in {here}; extract it with --layers {layer}.")
        return list(layers)

    def _common_width(self, layers: list[int]) -> int:
        widths = {self.widths[self.layers.index(layer)] for layer in layers}
        if len(widths) > 1:
            here = f"Layers {_ranges(layers)} of {self.path}"
            raise SettingError(f"{here} differ in width ({sorted(widths)}); ask for each by itself.")
        return widths.pop()

    def _neuron(self, neuron: str) -> tuple[int, int]:
        layer, _, index = str(neuron).partition(":")
        if not (layer.isdecimal() and index.isdecimal() and len(neuron) < 20):
            raise SettingError(f"Neuron {neuron!r} is not of the form layer:index, for example 3:17.")
        self._known([int(layer)])
        width = self.widths[self.layers.index(int(layer))]
        if int(index) >= width:
            raise SettingError(f"Neuron {neuron} does not exist: layer {layer} has neurons 0–{width - 1}.")
        return int(layer), int(index)

    def _ensure_array(self, path: Path, layers: list[int]) -> None:
        """Build the file, unless it is there with the checksum that was noted when it was built."""
        if path in self._mapped:
            return
        if not is_as_noted(path):
            shape = (self.n_rows, len(layers), self._common_width(layers))
            with lone_file(path) as temporary:
                array = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
                reserve_space(temporary)
                row = 0
                for block in self.batches(layers):
                    array[row : row + len(block)] = block
                    row += len(block)
                array.flush()
                del array
            note_checksum(path)
        self._mapped.add(path)

    @cached_property
    def _mapped(self) -> set[Path]:
        return set()


def open_store(path: str | Path) -> ActivationStore:
    """Open a finished activation store."""
    return ActivationStore.open(path)


@command(VerifySettings)
def verify(settings: VerifySettings) -> str:
    """Read every file of a store again and compare it with its manifest; faults are an error."""
    store = settings.store if isinstance(settings.store, ActivationStore) else ActivationStore.open(settings.store)
    if faults := store.verify():
        raise StoreError("\n".join(faults))
    place = store.address or store.path
    return f"{place} is whole: {len(store.manifest.shards)} shards, {store.n_rows:,} {store.unit}s."


@lru_cache(maxsize=16)
def _store_here(
    path: str, fingerprint: str, layers: tuple[int, ...], widths: tuple[int, ...], name: str
) -> ActivationStore:
    """The store that another process spoke of, with the layers and the name that it has there."""
    store = ActivationStore.open(path)
    if store.fingerprint != fingerprint:
        raise StoreError(f"{path} holds other activations on a worker than where the work was begun; share the folder.")
    model = {**store.manifest.model, "name": name}
    return replace(store, manifest=replace(store.manifest, model=model, layers=list(layers), widths=list(widths)))


class StoreWriter:
    """Writes a store shard by shard; begun again with the same manifest, it goes on where it was stopped."""

    def __init__(
        self, path: Path, manifest: Manifest, words: Sequence[Mapping[str, Any]], *, fresh: bool = False
    ) -> None:
        self.path = path
        hold_folder(path)
        with clear_disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            remove_temporaries(path)
            if fresh:
                _clear(path)
        if (path / "manifest.json").exists():
            self.manifest = read_manifest(path)
            if differences := self.manifest.differences(manifest):
                raise OtherRunError(
                    f"{path} holds other activations ({'; '.join(differences)}); choose another folder or pass --fresh."
                )
        else:
            _clear(path)
            if any(path.iterdir()):
                raise StoreError(f"{path} is not empty and holds no activations; choose another folder.")
            self.manifest = manifest
            with whole_file(path / "words.jsonl") as temporary, temporary.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in words)
            write_json(path / "manifest.json", asdict(self.manifest))
        if self.manifest.complete:
            release_folder(path)

    @property
    def files(self) -> list[str]:
        """The names of the store's files; the manifest, which makes it one, is the last."""
        shards = [shard_path(self.path, i).name for i in range(len(self.manifest.shards))]
        return ["words.jsonl", *shards, "manifest.json"]

    @property
    def missing(self) -> list[int]:
        """The shards that are still to be written."""
        return [i for i, shard in enumerate(self.manifest.shards) if not shard.written]

    def write(self, index: int, tensors: Mapping[str, Any], **facts: Any) -> None:
        """Write one shard (torch tensors by name), then note it and its facts (rows, absent, audit) in the manifest."""
        self.note({index: write_shard(self.path, index, replace(self.manifest.shards[index], **facts), tensors)})

    def note(self, written: Mapping[int, Shard]) -> None:
        """Enter shards that were written, here or by a worker, in the manifest."""
        shards = list(self.manifest.shards)
        for index, shard in written.items():
            file = shard_path(self.path, index)
            if not file.exists() or file.stat().st_size != shard.bytes:
                raise StoreError(f"A worker wrote {file}, but it is not here; choose a folder that all workers share.")
            shards[index] = shard
        self.manifest = replace(self.manifest, shards=shards)
        write_json(self.path / "manifest.json", asdict(self.manifest))
        if self.manifest.complete:
            release_folder(self.path)


def write_shard(folder: Path, index: int, shard: Shard, tensors: Mapping[str, Any]) -> Shard:
    """Write one shard (torch tensors by name), and give its entry in the manifest."""
    from safetensors.torch import save_file

    with whole_file(shard_path(folder, index)) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)
        return replace(shard, bytes=temporary.stat().st_size, checksum=checksum(temporary))


def _read_record(line: str) -> dict[str, Any]:
    """One sentence; equal words share their memory, which then grows with the vocabulary and not with the text."""
    record = json.loads(line)
    if not all(isinstance(word, str) for word in record.get("pair", [])):
        raise TypeError(f"found {str(record['pair'])[:60]!r} for the words of a second segment")
    return {**record, "words": [intern(word) for word in record["words"]]}


def words_fingerprint(words: Sequence[Mapping[str, Any]]) -> str:
    """A hash of the words of all sentences: two stores over the same words have the same one."""
    digest = xxhash.xxh3_128()
    for record in words:
        digest.update(json.dumps([record["words"], record.get("pair")], ensure_ascii=False).encode())
    return digest.hexdigest()


def read_words(path: Path, manifest: Manifest) -> list[dict[str, Any]]:
    """The sentences of a store, checked against the manifest."""
    file = path / "words.jsonl"
    try:
        with file.open(encoding="utf-8") as lines:
            records = [_read_record(line) for line in lines]
        intact = words_fingerprint(records) == manifest.corpus["words_fingerprint"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{file} cannot be read ({error}); extract again with --fresh.") from None
    if not intact:
        raise StoreError(f"{file} has been altered (it differs from the manifest); extract again with --fresh.")
    return records


def word_places(lengths: Sequence[int]) -> Int[np.ndarray, "word 2"]:
    """The sentence and the number in it of every word of sentences of these lengths."""
    counts = np.asarray(lengths, dtype=np.int64)
    sentence = np.repeat(np.arange(len(counts)), counts)
    return np.stack([sentence, np.arange(len(sentence)) - (np.cumsum(counts) - counts)[sentence]], axis=1)


def check_same_words(stores: Sequence[Any]) -> None:
    """Refuse to compare activations over different words, and say which sentence differs first."""
    first = stores[0]
    for other in stores[1:]:
        if other.unit != first.unit:
            raise StoreError(f"{first.name} has a row per {first.unit}, {other.name} per {other.unit}.")
        if other.sentences == first.sentences:
            continue
        pairs = zip(first.sentences, other.sentences, strict=False)
        differing = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if differing is None:
            found = f"{len(first.sentences)} and {len(other.sentences)} sentences"
        else:
            found = (
                f"sentence {differing + 1} is {' '.join(first.sentences[differing])[:60]!r} in the one and "
                f"{' '.join(other.sentences[differing])[:60]!r} in the other"
            )
        raise StoreError(f"{first.name} and {other.name} are over different words: {found}. Use one corpus for both.")


def _clear(path: Path) -> None:
    """Remove what a store consists of, and nothing else that a user may keep there."""
    for pattern in ("manifest.json", "words.jsonl", "shard-*.safetensors", "array-*.npy", "array-*.json"):
        for file in path.glob(pattern):
            file.unlink()


def _ranges(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 → `0–2, 5`."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def neuron_means(store: ActivationStore) -> dict[int, Float64[np.ndarray, " neuron"]]:
    """The mean of every neuron over all rows of a store, by layer; read a shard at a time."""
    sums = {layer: np.zeros(width) for layer, width in zip(store.layers, store.widths, strict=True)}
    for index in range(len(store.manifest.shards)):
        for layer, block in zip(store.layers, store.shard(index), strict=True):
            sums[layer] += block.sum(axis=0, dtype=np.float64)
    return {layer: total / store.n_rows for layer, total in sums.items()}
