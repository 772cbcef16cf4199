"""Activations from and for other programs: NeuroX HDF5 and JSON lines, npz, Arrow.

All but npz (read whole) stream sentence by sentence, so that size does not matter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from residuum.activations.store import (
    ActivationStore,
    Manifest,
    StoreWriter,
    plan_shards,
    words_fingerprint,
)
from residuum.environment import environment
from residuum.errors import SettingError, StoreError
from residuum.files import checksum, whole_file

if TYPE_CHECKING:
    from residuum.corpus import Corpus

ARROW = (".arrow", ".feather")
HDF5 = (".hdf5", ".h5")
FORMATS = (*HDF5, ".json", ".npz", *ARROW)


@dataclass(frozen=True)
class Foreign:
    """Activations in another program's file: its sentences, its layers, and a stream of words × layers × hidden."""

    words: list[list[str] | None]  # None: the file does not say, a corpus must
    layers: list[int]
    hidden: int
    stream: Callable[[], Iterator[Float[np.ndarray, "word layer hidden"]]]


def import_activations(
    source: str | Path,
    out: str | Path,
    *,
    corpus: Corpus | None = None,
    shard_words: int = 4096,
    fresh: bool = False,
) -> ActivationStore:
    """Turn a NeuroX `.hdf5` or `.json`, an `.npz` or an Arrow file into a store.

    Give the `corpus` where the file does not tell words apart; every sentence's length is checked against it.
    """
    source = Path(source)
    if not source.is_file():
        raise StoreError(f"{source} does not exist; expected a file of activations ({', '.join(FORMATS)}).")
    foreign = _reader(source)(source)
    words = _words(foreign, corpus, source)
    writer = StoreWriter(Path(out), _manifest(source, foreign, words, corpus, shard_words), words, fresh=fresh)
    _copy(foreign, writer, [len(record["words"]) for record in words], source)
    return ActivationStore.open(out)


def export_activations(store: ActivationStore, target: str | Path) -> Path:
    """Write a store as NeuroX `.hdf5` or `.json`, as `.npz` or as an Arrow file, by the target's suffix."""
    target = Path(target)
    if store.unit != "word":
        raise SettingError(f"{store.path} has a row per {store.unit}; only words can be exported.")
    writers = {
        **dict.fromkeys(HDF5, _write_hdf5),
        ".json": _write_json,
        ".npz": _write_npz,
        **dict.fromkeys(ARROW, _write_arrow),
    }
    _known_suffix(target)
    with whole_file(target) as temporary:
        writers[target.suffix](store, temporary)
    return target


def _reader(path: Path) -> Callable[[Path], Foreign]:
    _known_suffix(path)
    readers = {
        **dict.fromkeys(HDF5, _read_hdf5),
        ".json": _read_json,
        ".npz": _read_npz,
        **dict.fromkeys(ARROW, _read_arrow),
    }
    return readers[path.suffix]


def _known_suffix(path: Path) -> None:
    if path.suffix not in FORMATS:
        raise SettingError(f"{path} has suffix {path.suffix!r}; known are {', '.join(FORMATS)}.")


def _words(foreign: Foreign, corpus: Corpus | None, source: Path) -> list[dict[str, Any]]:
    sentences = foreign.words if corpus is None else corpus.sentences
    if len(sentences) != len(foreign.words):
        raise StoreError(f"{source} has {len(foreign.words)} sentences, the corpus {len(sentences)}.")
    for i, sentence in enumerate(sentences):
        if sentence is None:
            raise StoreError(f"{source} does not tell the words of sentence {i + 1} apart; give the corpus.")
    ids = corpus.ids if corpus is not None else [str(i + 1) for i in range(len(sentences))]
    return [{"id": i, "words": list(w or [])} for i, w in zip(ids, sentences, strict=True)]


def _manifest(
    source: Path, foreign: Foreign, words: list[dict[str, Any]], corpus: Corpus | None, shard_words: int
) -> Manifest:
    return Manifest(
        model={
            "name": source.stem,
            "fingerprint": checksum(source),
            "n_layers": max(foreign.layers),
            "random_init": False,
        },
        corpus={
            "name": source.stem if corpus is None else corpus.name,
            "language": None if corpus is None else corpus.language,
            "sentences": len(words),
            "words": sum(len(record["words"]) for record in words),
            "fingerprint": None if corpus is None else corpus.fingerprint,
            "words_fingerprint": words_fingerprint(words),
        },
        settings={"unit": "word", "dtype": "float32", "shard_words": shard_words, "source": source.suffix},
        layers=foreign.layers,
        widths=[foreign.hidden] * len(foreign.layers),
        n_heads=0,
        shards=plan_shards([record["words"] for record in words], shard_words),
        environment=environment(),
    )


def _copy(foreign: Foreign, writer: StoreWriter, lengths: list[int], source: Path) -> None:
    import torch

    stream = foreign.stream()
    for index, shard in enumerate(writer.manifest.shards):
        blocks = []
        for i in range(shard.first, shard.stop):
            block = next(stream)
            expected = (lengths[i], len(foreign.layers), foreign.hidden)
            if block.shape != expected:
                raise StoreError(f"Sentence {i + 1} of {source} has shape {block.shape} instead of {expected}.")
            blocks.append(block)
        if shard.written:
            continue
        rows = np.concatenate(blocks)
        tensors = {
            f"layer-{layer}": torch.from_numpy(np.ascontiguousarray(rows[:, k], dtype=np.float32))
            for k, layer in enumerate(foreign.layers)
        }
        writer.write(index, tensors, rows=len(rows))


def _sentences(store: ActivationStore) -> Iterator[tuple[int, list[str], Float[np.ndarray, "word layer hidden"]]]:
    """Every sentence's number, words and activations."""
    for shard in store.manifest.shards:
        block = store.read(shard.first, shard.stop)
        values = np.stack(block.layers, axis=1)
        for sentence in range(shard.first, shard.stop):
            rows = block.places[:, 0] == sentence
            yield sentence, [store.sentences[sentence][w] for w in block.places[rows, 1]], values[rows]


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise SettingError("HDF5 files need h5py: pip install 'residuum[hdf5]'.") from None
    return h5py


def _read_hdf5(path: Path) -> Foreign:
    h5py = _h5py()
    try:
        with h5py.File(path, "r") as file:
            keys = sorted((k for k in file if k.isdecimal()), key=int)
            if not keys:
                raise StoreError(f"{path} holds no sentences; expected data sets named 0, 1, 2, ….")
            shapes = {k: file[k].shape for k in keys}
            texts = _neurox_sentences(file)
    except OSError as error:
        raise StoreError(f"{path} cannot be read as HDF5 ({error}).") from None
    n_layers, _, hidden = shapes[keys[0]]

    def stream() -> Iterator[np.ndarray]:
        with h5py.File(path, "r") as file:
            for key in keys:
                yield np.swapaxes(file[key][:], 0, 1)

    words = [texts.get(k, "").split(" ") for k in keys]
    known = [w if len(w) == shapes[k][1] else None for w, k in zip(words, keys, strict=True)]
    return Foreign(known, list(range(n_layers)), hidden, stream)


def _neurox_sentences(file: Any) -> dict[str, str]:
    """Sentence by index; NeuroX numbers repeated sentences in their text."""
    if "sentence_to_index" not in file:
        return {}
    raw = file["sentence_to_index"][0]
    table = json.loads(raw.decode() if isinstance(raw, bytes) else raw)
    return {str(index): re.sub(r" \(Occurrence \d+\)$", "", sentence) for sentence, index in table.items()}


def _write_hdf5(store: ActivationStore, path: Path) -> None:
    h5py = _h5py()
    index: dict[str, str] = {}
    with h5py.File(path, "w") as file:
        for sentence, words, block in _sentences(store):
            file.create_dataset(str(sentence), data=np.swapaxes(block, 0, 1))
            text, count = " ".join(words), 1
            while text in index:
                count += 1
                text = f"{' '.join(words)} (Occurrence {count})"
            index[text] = str(sentence)
        table = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())
        table[0] = json.dumps(index)


def _read_json(path: Path) -> Foreign:
    words, layers, hidden = [], [], 0
    for record in _json_lines(path):
        words.append([feature["token"] for feature in record["features"]])
        if record["features"] and not hidden:
            layers = [layer["index"] for layer in record["features"][0]["layers"]]
            hidden = len(record["features"][0]["layers"][0]["values"])
    if not hidden:
        raise StoreError(f"{path} holds no activations.")

    def stream() -> Iterator[np.ndarray]:
        for record in _json_lines(path):
            values = [[layer["values"] for layer in feature["layers"]] for feature in record["features"]]
            yield np.array(values, dtype=np.float32).reshape(len(values), len(layers), hidden)

    return Foreign(words, layers, hidden, stream)


def _json_lines(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                record["features"]
            except (ValueError, KeyError, TypeError):
                raise StoreError(
                    f"{path}, line {number}: found {line[:40]!r}, expected a JSON object with 'features'."
                ) from None
            yield record


def _write_json(store: ActivationStore, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for sentence, words, block in _sentences(store):
            features = [
                {
                    "token": word,
                    "layers": [
                        {"index": layer, "values": values}
                        for layer, values in zip(store.layers, block[w].astype(float).tolist(), strict=True)
                    ],
                }
                for w, word in enumerate(words)
            ]
            file.write(json.dumps({"linex_index": sentence, "features": features}) + "\n")


def _read_npz(path: Path) -> Foreign:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in ("activations", "layers", "sentence", "word")}
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(
            f"{path} cannot be read ({error}); expected arrays 'activations' (words × layers × hidden), 'layers', "
            "'sentence' and 'word' (one per word)."
        ) from None
    activations, sentence = arrays["activations"], arrays["sentence"]
    stops = np.searchsorted(sentence, np.arange(sentence.max() + 1), side="right")
    bounds = list(pairwise([0, *stops.tolist()]))

    def stream() -> Iterator[np.ndarray]:
        for start, stop in bounds:
            yield activations[start:stop]

    words = [[str(w) for w in arrays["word"][start:stop]] for start, stop in bounds]
    return Foreign(list(words), arrays["layers"].tolist(), activations.shape[2], stream)


def _write_npz(store: ActivationStore, path: Path) -> None:
    places, texts = store.row_words, store.sentences
    with path.open("wb") as file:
        np.savez(
            file,
            activations=store.array(),
            layers=np.array(store.layers),
            sentence=places[:, 0],
            word=np.array([texts[s][w] for s, w in places.tolist()]),
        )


def _read_arrow(path: Path) -> Foreign:
    import pyarrow as pa

    try:
        with pa.ipc.open_file(path) as file:
            schema = file.schema
    except pa.ArrowInvalid as error:
        raise StoreError(f"{path} cannot be read as an Arrow file ({error}).") from None
    columns = [name for name in schema.names if re.fullmatch(r"layer-\d+", name)]
    if not columns or not {"sentence", "word"} <= set(schema.names):
        raise StoreError(f"{path} has columns {schema.names}; expected sentence, word, layer-0, ….")

    def stream() -> Iterator[np.ndarray]:
        for _, _, block in _arrow_sentences(path, columns):
            yield block

    words = [list(w) for _, w, _ in _arrow_sentences(path, [])]
    return Foreign(list(words), [int(c[6:]) for c in columns], schema.field(columns[0]).type.list_size, stream)


def _arrow_sentences(path: Path, columns: list[str]) -> Iterator[tuple[int, list[str], np.ndarray]]:
    """Sentences of an Arrow file; a sentence lies whole in one record batch."""
    import pyarrow as pa

    with pa.ipc.open_file(path) as file:
        for i in range(file.num_record_batches):
            batch = file.get_batch(i)
            sentence = batch["sentence"].to_numpy()
            words = batch["word"].to_pylist()
            layers = [batch[c].flatten().to_numpy().reshape(len(sentence), -1) for c in columns]
            block = np.stack(layers, axis=1) if layers else np.zeros((len(sentence), 0, 0), dtype=np.float32)
            bounds = [0, *(np.flatnonzero(np.diff(sentence)) + 1).tolist(), len(sentence)]
            for start, stop in pairwise(bounds):
                yield int(sentence[start]), words[start:stop], block[start:stop]


def _write_arrow(store: ActivationStore, path: Path) -> None:
    import pyarrow as pa

    hidden = store.widths[0]
    columns = {f"layer-{layer}": pa.list_(pa.float32(), hidden) for layer in store.layers}
    schema = pa.schema({"sentence": pa.int64(), "word": pa.string(), **columns})
    places, texts, row = store.row_words, store.sentences, 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for block in store.batches():
            here = places[row : row + len(block)]
            layers = [
                pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(block[:, k]).reshape(-1)), hidden)
                for k in range(len(store.layers))
            ]
            words = pa.array([texts[s][w] for s, w in here.tolist()])
            writer.write_batch(pa.record_batch([pa.array(here[:, 0]), words, *layers], schema=schema))
            row += len(block)
