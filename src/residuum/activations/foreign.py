"""Activations that other programs wrote: NeuroX HDF5 and JSON lines, npz, Arrow; checked as they are read.

All but npz (read whole) stream sentence by sentence, so that size does not matter.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from residuum.corpus.files import MOST_GROWTH, unpacked_limit
from residuum.errors import SettingError, StoreError

ARROW = (".arrow", ".feather")
HDF5 = (".hdf5", ".h5")
FORMATS = (*HDF5, ".json", ".npz", *ARROW)
MOST_GAPS = 1_000_000
"""Sentences without words beyond which a file's numbers of sentences are not believed."""


@dataclass(frozen=True)
class Foreign:
    """Activations in another program's file: its sentences, its layers, and a stream of words × layers × hidden."""

    words: list[list[str] | None]  # None: the file does not say, a corpus must
    layers: list[int]
    hidden: int
    stream: Callable[[], Iterator[Float[np.ndarray, "word layer hidden"]]]


def read_foreign(path: Path) -> Foreign:
    """Read the sentences and layers of a file by its suffix; the activations follow as a stream."""
    known_suffix(path)
    readers: dict[str, Callable[[Path], Foreign]] = {
        **dict.fromkeys(HDF5, _read_hdf5),
        ".json": _read_json,
        ".npz": _read_npz,
        **dict.fromkeys(ARROW, _read_arrow),
    }
    with _clear_errors(path):
        found = readers[path.suffix](path)
    ascend = all(isinstance(b, int) and a < b for a, b in pairwise([-1, *found.layers]))
    if not found.layers or not ascend or found.hidden < 1:
        shown = f"layers {str(found.layers)[:60]} of {found.hidden} neurons"
        raise StoreError(f"{path} has {shown}; expected layers that ascend from 0 on, of one neuron or more.")
    return Foreign(found.words, found.layers, found.hidden, lambda: _clear_stream(path, found.stream))


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
        *(RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error, pa.ArrowException),
    ) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise StoreError(
            f"{path} cannot be read as {path.suffix} activations ({reason}); it is damaged or of another kind."
        ) from None


def _clear_stream(path: Path, stream: Callable[[], Iterator[np.ndarray]]) -> Iterator[np.ndarray]:
    with _clear_errors(path):
        blocks = stream()
    while True:
        with _clear_errors(path):
            block = next(blocks, None)
        if block is None:
            return
        yield block


def _read_hdf5(path: Path) -> Foreign:
    h5py = import_h5py()
    with h5py.File(path, "r") as file:
        keys = sorted((k for k in file if k.isdecimal()), key=int)
        if not keys:
            raise StoreError(f"{path} holds no sentences; expected data sets named 0, 1, 2, ….")
        shapes = {k: _shape(path, k, file[k].shape) for k in keys}
        texts = _neurox_sentences(file)
    n_layers, _, hidden = shapes[keys[0]]

    def stream() -> Iterator[np.ndarray]:
        with h5py.File(path, "r") as file:
            for key in keys:
                yield np.swapaxes(_finite(path, f"sentence {int(key) + 1}", file[key][:]), 0, 1)

    words = [texts.get(k, "").split(" ") for k in keys]
    known = [w if len(w) == shapes[k][1] else None for w, k in zip(words, keys, strict=True)]
    return Foreign(known, list(range(n_layers)), hidden, stream)


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


def _neurox_sentences(file: Any) -> dict[str, str]:
    """Sentence by index; NeuroX numbers repeated sentences in their text."""
    if "sentence_to_index" not in file:
        return {}
    raw = file["sentence_to_index"][0]
    table = json.loads(raw.decode() if isinstance(raw, bytes) else raw)
    return {str(index): re.sub(r" \(Occurrence \d+\)$", "", sentence) for sentence, index in table.items()}


def _read_json(path: Path) -> Foreign:
    words, layers, hidden = [], [], 0
    for number, features in _json_lines(path):
        words.append([_token(path, number, feature["token"]) for feature in features])
        if features and not hidden:
            layers = [layer["index"] for layer in features[0]["layers"]]
            hidden = len(features[0]["layers"][0]["values"])
    if not hidden:
        raise StoreError(f"{path} holds no activations.")

    def stream() -> Iterator[np.ndarray]:
        for number, features in _json_lines(path):
            values = [[layer["values"] for layer in feature["layers"]] for feature in features]
            found = np.array(values, dtype=np.float64).reshape(len(values), len(layers), hidden)
            yield _finite(path, f"line {number}", found)

    return Foreign(words, layers, hidden, stream)


def _token(path: Path, number: int, token: object) -> str:
    if not isinstance(token, str) or not _is_unicode(token):
        raise StoreError(f"{path}, line {number}: found the token {token!r}; expected text.")
    return token


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _json_lines(path: Path) -> Iterator[tuple[int, list[Any]]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
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


def _read_npz(path: Path) -> Foreign:
    wanted = ("activations", "layers", "sentence", "word")
    _check_unpacked(path)
    try:
        # opened here, because numpy leaves a file open that turns out to be no archive
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            activations, layers, sentence, word = (file[key] for key in wanted)
    except KeyError as error:
        raise StoreError(
            f"{path} cannot be read ({error}); expected arrays 'activations' (words × layers × hidden), 'layers', "
            "'sentence' and 'word' (one per word)."
        ) from None
    _check_arrays(path, activations, layers, sentence, word)
    stops = np.searchsorted(sentence, np.arange(sentence[-1] + 1), side="right")
    bounds = list(pairwise([0, *stops.tolist()]))
    values = _finite(path, "activations", activations)

    def stream() -> Iterator[np.ndarray]:
        for start, stop in bounds:
            yield values[start:stop]

    words = [[str(w) for w in word[start:stop]] for start, stop in bounds]
    return Foreign(list(words), layers.tolist(), activations.shape[2], stream)


def _check_unpacked(path: Path) -> None:
    """Refuse an archive that unpacks beyond all measure; no more is read of a part than it says it has."""
    with zipfile.ZipFile(path) as archive:
        size = sum(part.file_size for part in archive.infolist())
    if size > unpacked_limit(path):
        raise StoreError(
            f"{path} unpacks to {size:,} bytes, more than {MOST_GROWTH} times its size; expected activations, which "
            "never do. Write it unpacked (numpy.savez) if it is meant so."
        )


def _check_arrays(path: Path, activations: Any, layers: Any, sentence: Any, word: Any) -> None:
    """The four arrays fit each other, and sentences are numbered from 0 on."""
    shapes = f"{activations.shape}, {layers.shape}, {sentence.shape} and {word.shape}"
    if activations.ndim != 3 or not len(activations) or layers.shape != activations.shape[1:2]:
        raise StoreError(f"{path} has arrays of shape {shapes}; expected words × layers × hidden, and layers.")
    if sentence.shape != word.shape or sentence.shape != activations.shape[:1] or word.dtype.kind != "U":
        raise StoreError(f"{path} has arrays of shape {shapes}; expected a sentence and a word (text) for each row.")
    numbered = sentence.dtype.kind in "iu" and layers.dtype.kind in "iu"
    if not numbered or sentence[0] < 0 or (np.diff(sentence) < 0).any() or sentence[-1] > len(sentence) + MOST_GAPS:
        raise StoreError(f"{path} does not number its sentences and layers by whole numbers that ascend from 0.")


def _read_arrow(path: Path) -> Foreign:
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

    def stream() -> Iterator[np.ndarray]:
        for _, _, block in _arrow_sentences(path, columns):
            yield _finite(path, "layers", block)

    words = [list(w) for _, w, _ in _arrow_sentences(path, [])]
    return Foreign(list(words), [int(c[6:]) for c in columns], sizes.pop(), stream)


def _arrow_sentences(path: Path, columns: list[str]) -> Iterator[tuple[int, list[str], np.ndarray]]:
    """Sentences of an Arrow file; a sentence lies whole in one record batch."""
    import pyarrow as pa

    with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as file:
        for i in range(file.num_record_batches):
            batch = file.get_batch(i)
            batch.validate(full=True)
            sentence = batch["sentence"].to_numpy()
            words = [_token(path, i, word) for word in batch["word"].to_pylist()]
            layers = [batch[c].flatten().to_numpy().reshape(len(sentence), -1) for c in columns]
            block = np.stack(layers, axis=1) if layers else np.zeros((len(sentence), 0, 0), dtype=np.float32)
            bounds = [0, *(np.flatnonzero(np.diff(sentence)) + 1).tolist(), len(sentence)]
            for start, stop in pairwise(bounds):
                yield int(sentence[start]), words[start:stop], block[start:stop]
