"""Activations that other programs wrote: NeuroX HDF5 and JSON lines, npz, Arrow; checked as they are read.

All stream sentence by sentence (Arrow by record batch), so that size does not matter; an npz array whose words do not
lie one after the other is read whole.
"""

from __future__ import annotations

import json
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from residuum.errors import SettingError, StoreError
from residuum.storage.compression import MOST_GROWTH, arrow_bytes, unpacked_limit

ARROW = (".arrow", ".feather")
HDF5 = (".hdf5", ".h5")
FORMATS = (*HDF5, ".json", ".npz", *ARROW)
MOST_GAPS = 1_000_000
"""Sentences without words beyond which a file's numbers of sentences are not believed."""
LONGEST_LINE = 1_000_000_000
"""Characters of a line of JSON, which holds all layers of a sentence: 500 words of a large model take 300 million."""
READ_BYTES, PARSED_BYTES = 16, 80
"""What a number takes while it is read: as raw bytes, as it was written and as float32; of JSON as text and object."""


@dataclass(frozen=True)
class Foreign:
    """Activations in another program's file: its sentences, its layers, and a stream of words × layers × hidden."""

    words: list[list[str] | None]  # None: the file does not say, a corpus must
    layers: list[int]
    hidden: int
    held: int  # bytes that reading the largest piece takes: a sentence, a record batch, or all
    stream: Callable[[], Iterator[Float[np.ndarray, "word layer hidden"]]]


def read_foreign(path: Path) -> Foreign:
    """Read the sentences and layers of a file by its suffix; the activations follow as a stream."""
    known_suffix(path)
    readers: dict[str, Callable[[Path], Foreign]] = {
        **dict.fromkeys(HDF5, read_hdf5),
        ".json": read_json_lines,
        ".npz": read_npz,
        **dict.fromkeys(ARROW, read_arrow),
    }
    with _clear_errors(path):
        return _checked(path, readers[path.suffix](path))


def _checked(path: Path, found: Foreign) -> Foreign:
    ascend = all(isinstance(b, int) and a < b for a, b in pairwise([-1, *found.layers]))
    if not found.layers or not ascend or found.hidden < 1:
        shown = f"layers {str(found.layers)[:60]} of {found.hidden} neurons"
        raise StoreError(f"{path} has {shown}; expected layers that ascend from 0 on, of one neuron or more.")

    def stream() -> Iterator[np.ndarray]:
        with _clear_errors(path):
            blocks = found.stream()
        while True:
            with _clear_errors(path):
                block = next(blocks, None)
            if block is None:
                return
            yield block

    return replace(found, stream=stream)


def known_suffix(path: Path) -> None:
    """Refuse a file whose name does not end as those of the known formats."""
    if path.suffix not in FORMATS:
        raise SettingError(f"{path} has suffix {path.suffix!r}; known are {', '.join(FORMATS)}.")


def import_h5py() -> Any:
    """The library of HDF5 files, which is an extra."""
    try:
        import h5py
    except ImportError:
        raise SettingError("HDF5 files need h5py: pip install 'residuum[hdf5]'.") from None
    return h5py


@contextmanager
def _clear_errors(path: Path) -> Iterator[None]:
    """Say in one line what a library found wrong with a file: each has errors of its own, many of them undocumented."""
    import pyarrow as pa

    try:
        yield
    except (
        *(OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError),
        *(RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error, struct.error, pa.ArrowException),
    ) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise StoreError(
            f"{path} cannot be read as {path.suffix} activations ({reason}); it is damaged or of another kind."
        ) from None


def read_hdf5(path: Path) -> Foreign:
    """NeuroX HDF5, whose words are known where its sentences can be split at spaces."""
    h5py = import_h5py()
    with h5py.File(path, "r") as file:
        keys = sorted((k for k in file if k.isdecimal()), key=int)
        if not keys:
            raise StoreError(f"{path} holds no sentences; expected data sets named 0, 1, 2, ….")
        shapes = {k: _shape(path, k, file[k].shape) for k in keys}
        raw = file["sentence_to_index"][0] if "sentence_to_index" in file else "{}"
        table = json.loads(raw.decode() if isinstance(raw, bytes) else raw)
    # NeuroX numbers repeated sentences in their text.
    texts = {str(index): re.sub(r" \(Occurrence \d+\)$", "", sentence) for sentence, index in table.items()}
    n_layers, _, hidden = shapes[keys[0]]

    def stream() -> Iterator[np.ndarray]:
        with h5py.File(path, "r") as file:
            for key in keys:
                yield np.swapaxes(_finite(path, f"sentence {int(key) + 1}", file[key][:]), 0, 1)

    words = [texts.get(k, "").split(" ") for k in keys]
    known = [w if len(w) == shapes[k][1] else None for w, k in zip(words, keys, strict=True)]
    held = READ_BYTES * max(math.prod(shape) for shape in shapes.values())
    return Foreign(known, list(range(n_layers)), hidden, held, stream)


def _shape(path: Path, key: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) != 3:
        raise StoreError(f"Sentence {key} of {path} has shape {shape}; expected layers × words × hidden.")
    return shape


def _finite(path: Path, where: str, values: np.ndarray) -> Float[np.ndarray, "..."]:
    """Numbers as float32, or what is wrong with them."""
    found = np.asarray(values)
    if found.dtype.kind not in "fiu":
        raise StoreError(f"{path}, {where}: found values of type {found.dtype}; expected numbers.")
    with np.errstate(over="ignore"):
        found = found.astype(np.float32)
    if not np.isfinite(found).all():
        raise StoreError(f"{path}, {where}: found values that are not finite as float32; expected finite numbers.")
    return found


def read_json_lines(path: Path, most: int | None = None) -> Foreign:
    """All lines, or the first ones, of about so many characters."""
    words, layers, hidden = [], [], 0
    for number, features in _json_lines(path, most):
        words.append([_token(path, number, feature["token"]) for feature in features])
        if features and not hidden:
            layers = [layer["index"] for layer in features[0]["layers"]]
            hidden = len(features[0]["layers"][0]["values"])
    if not hidden:
        raise StoreError(f"{path} holds no activations.")

    def stream() -> Iterator[np.ndarray]:
        for number, features in _json_lines(path, most):
            values = [[layer["values"] for layer in feature["layers"]] for feature in features]
            found = np.array(values, dtype=np.float64).reshape(len(values), len(layers), hidden)
            yield _finite(path, f"line {number}", found)

    held = PARSED_BYTES * max(map(len, words)) * len(layers) * hidden
    return Foreign(words, layers, hidden, held, stream)


def _token(path: Path, number: int, token: object) -> str:
    if not isinstance(token, str) or any("\ud800" <= character <= "\udfff" for character in token):
        raise StoreError(f"{path}, line {number}: found the token {token!r}; expected text.")
    return token


def _json_lines(path: Path, most: int | None = None) -> Iterator[tuple[int, list[Any]]]:
    read = 0
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE + 1), ""), 1):
            if len(line) > LONGEST_LINE:
                raise StoreError(
                    f"{path}, line {number}: longer than {LONGEST_LINE:,} characters; expected a sentence."
                )
            read += len(line)
            if most is not None and read > most and number > 1:
                return
            try:
                features = json.loads(line)["features"]
                for feature in features:
                    _ = feature["token"], [(layer["index"], layer["values"]) for layer in feature["layers"]]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise StoreError(
                    f"{path}, line {number}: found {line[:40]!r}, expected a JSON object with 'features', each of them "
                    "with a 'token' and 'layers'."
                ) from None
            yield number, features


def read_npz(path: Path) -> Foreign:
    """An array of words × layers × hidden beside the numbers of its layers and sentences, and its words."""
    with zipfile.ZipFile(path) as archive:
        _check_unpacked(path, (part.file_size for part in archive.infolist()))
    try:
        # opened here, because numpy leaves a file open that turns out to be no archive
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            layers, sentence, word = (file[key] for key in ("layers", "sentence", "word"))
        with zipfile.ZipFile(path) as archive, archive.open("activations.npy") as file:
            array = _npy_head(file)
            size = archive.getinfo("activations.npy").file_size - file.tell()
    except KeyError as error:
        raise StoreError(
            f"{path} cannot be read ({error}); expected arrays 'activations' (words × layers × hidden), 'layers', "
            "'sentence' and 'word' (one per word)."
        ) from None
    if math.prod(array.shape) * array.dtype.itemsize != size:
        raise ValueError(f"{size:,} bytes are no array of shape {array.shape} of {array.dtype}")
    _check_arrays(path, array.shape, layers, sentence, word)
    stops = np.searchsorted(sentence, np.arange(sentence[-1] + 1), side="right")
    bounds = list(pairwise([0, *stops.tolist()]))
    longest = max(stop - start for start, stop in bounds) if array.by_words else len(sentence)
    words = [[str(w) for w in word[start:stop]] for start, stop in bounds]
    held = READ_BYTES * longest * math.prod(array.shape[1:])
    return Foreign(list(words), layers.tolist(), array.shape[2], held, lambda: _npz_sentences(path, bounds))


@dataclass(frozen=True)
class _ArrayOutline:
    """What the head of an array says: its shape, its type, and whether its words lie one after the other."""

    shape: tuple[int, ...]
    by_words: bool
    dtype: np.dtype


def _npy_head(file: Any) -> _ArrayOutline:
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, fortran, dtype = readers[version](file)
    return _ArrayOutline(shape, not fortran, dtype)


def _npz_sentences(path: Path, bounds: list[tuple[int, int]]) -> Iterator[np.ndarray]:
    """Sentence by sentence, as they lie in the file, or from the whole array where they do not lie together."""
    with zipfile.ZipFile(path) as archive, archive.open("activations.npy") as file:
        head = _npy_head(file)
        if head.by_words:
            for start, stop in bounds:
                shape = (stop - start, *head.shape[1:])
                values = np.frombuffer(file.read(math.prod(shape) * head.dtype.itemsize), head.dtype)
                yield _finite(path, "activations", values.reshape(shape))
            file.read(1)  # at its end the archive compares the checksum
            return
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        values = _finite(path, "activations", file["activations"])
    for start, stop in bounds:
        yield values[start:stop]


def _check_unpacked(path: Path, parts: Iterable[int]) -> None:
    """Refuse a file that unpacks beyond all measure; no more is read of a part than it says it has."""
    limit = unpacked_limit(path)
    for size in accumulate(parts):
        if size > limit:
            raise StoreError(
                f"{path} unpacks to {size:,} bytes or more, over {MOST_GROWTH} times its size; expected activations, "
                "which never do. Write it unpacked if it is meant so."
            )


def _check_arrays(path: Path, shape: tuple[int, ...], layers: Any, sentence: Any, word: Any) -> None:
    """The four arrays fit each other, and sentences are numbered from 0 on."""
    shapes = f"{shape}, {layers.shape}, {sentence.shape} and {word.shape}"
    if len(shape) != 3 or not shape[0] or layers.shape != shape[1:2]:
        raise StoreError(f"{path} has arrays of shape {shapes}; expected words × layers × hidden, and layers.")
    if sentence.shape != word.shape or sentence.shape != shape[:1] or word.dtype.kind != "U":
        raise StoreError(f"{path} has arrays of shape {shapes}; expected a sentence and a word (text) for each row.")
    numbered = sentence.dtype.kind in "iu" and layers.dtype.kind in "iu"
    if not numbered or sentence[0] < 0 or (np.diff(sentence) < 0).any() or sentence[-1] > len(sentence) + MOST_GAPS:
        raise StoreError(f"{path} does not number its sentences and layers by whole numbers that ascend from 0.")


def read_arrow(path: Path) -> Foreign:
    """An Arrow file with a row per word; a sentence lies whole in one record batch."""
    import pyarrow as pa

    with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as file:
        schema = file.schema
    columns = [name for name in schema.names if re.fullmatch(r"layer-\d+", name)]
    if not columns or not {"sentence", "word"} <= set(schema.names):
        raise StoreError(f"{path} has columns {str(schema.names)[:200]}; expected sentence, word, layer-0, ….")
    sizes = {getattr(schema.field(name).type, "list_size", 0) for name in columns}
    if len(sizes) > 1 or not pa.types.is_string(schema.field("word").type):
        found = f"layers of {sorted(sizes)} neurons and words of type {schema.field('word').type}"
        raise StoreError(f"{path} has {found}; expected lists of one size, and text.")
    _check_unpacked(path, arrow_bytes(path))

    words, largest = [], 0
    for batch in _arrow_batches(path, ["sentence", "word"]):
        largest = max(largest, batch.num_rows)
        tokens = [_token(path, len(words), word) for word in batch["word"].to_pylist()]
        words += [tokens[start:stop] for start, stop in _sentence_bounds(batch)]
    hidden = sizes.pop()
    held = READ_BYTES * largest * len(columns) * hidden

    def stream() -> Iterator[np.ndarray]:
        for batch in _arrow_batches(path, ["sentence", *columns]):
            layers = [batch[c].flatten().to_numpy().reshape(batch.num_rows, -1) for c in columns]
            for start, stop in _sentence_bounds(batch):
                yield _finite(path, "layers", np.stack([layer[start:stop] for layer in layers], axis=1))

    return Foreign(words, [int(c[6:]) for c in columns], hidden, held, stream)


def _arrow_batches(path: Path, columns: list[str]) -> Iterator[Any]:
    """The record batches of a file; only some columns are read."""
    import pyarrow as pa

    with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as file:
        wanted = [file.schema.get_field_index(name) for name in columns]
    options = pa.ipc.IpcReadOptions(included_fields=wanted)
    with pa.OSFile(str(path)) as source, pa.ipc.open_file(source, options=options) as file:
        for i in range(file.num_record_batches):
            batch = file.get_batch(i)
            batch.validate(full=True)
            yield batch


def _sentence_bounds(batch: Any) -> list[tuple[int, int]]:
    sentence = batch["sentence"].to_numpy()
    return list(pairwise([0, *(np.flatnonzero(np.diff(sentence)) + 1).tolist(), len(sentence)]))
