"""Activations from and for other programs: a store from what they wrote, and their formats from a store."""

from __future__ import annotations

import io
import json
import zipfile
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from residuum.activations.foreign import (
    ARROW,
    FORMATS,
    HDF5,
    Foreign,
    import_h5py,
    known_suffix,
    read_foreign,
)
from residuum.activations.settings import ExportSettings, ImportSettings
from residuum.activations.store import (
    ActivationStore,
    Manifest,
    StoreWriter,
    plan_shards,
    words_fingerprint,
)
from residuum.corpus import Corpus, read_corpus
from residuum.costs import Cost, CostStep, within
from residuum.errors import SettingError, StoreError
from residuum.settings import command, plain_path
from residuum.storage.files import checksum, lone_file
from residuum.storage.remote import local_path
from residuum.storage.results import environment

_SMALLER = "Allow more, or write it in smaller pieces (sentences, record batches; of npz words one after the other)"


@command(ImportSettings)
def import_activations(settings: ImportSettings) -> ActivationStore:
    """Turn a NeuroX `.hdf5` or `.json`, an `.npz` or an Arrow file into a store.

    Give the `corpus` where the file does not tell words apart; every sentence's length is checked against it. Shards
    have about `shard_words` words, or fewer where `max_memory` bytes hold no more.
    """
    source, corpus = plain_path("source", settings.source), settings.corpus
    if not source.is_file():
        raise StoreError(f"{source} does not exist; expected a file of activations ({', '.join(FORMATS)}).")
    if corpus is not None and not isinstance(corpus, Corpus):
        corpus = read_corpus(corpus, format=settings.format, split=settings.split)
    foreign = read_foreign(source)
    words = _words(foreign, corpus, source)
    longest = max(len(record["words"]) for record in words)  # which is a shard of its own where memory is short
    row_bytes = 8 * len(foreign.layers) * foreign.hidden  # as it waits and as it is written
    least = CostStep("import", 0.0, memory=foreign.held + longest * row_bytes)
    what = f"{source.name}: {len(foreign.layers)} layers of {foreign.hidden:,} neurons"
    within(Cost(what, (least,)), settings.max_memory, _SMALLER)
    shard_words = settings.shard_words
    if settings.max_memory is not None:
        fitting = (settings.max_memory - foreign.held) // row_bytes
        shard_words = max(1, min(shard_words, fitting))
    manifest = _manifest(source, foreign, words, corpus, shard_words)
    writer = StoreWriter(Path(settings.out), manifest, words, fresh=settings.fresh)
    _copy(foreign, writer, [len(record["words"]) for record in words], source)
    return ActivationStore.open(settings.out)


@command(ExportSettings)
def export_activations(settings: ExportSettings) -> Path:
    """Write a store as NeuroX `.hdf5` or `.json`, as `.npz` or as an Arrow file, by the target's suffix."""
    store = settings.store if isinstance(settings.store, ActivationStore) else ActivationStore.open(settings.store)
    target = local_path(settings.target)
    if target is None:
        raise SettingError(f"{settings.target} is an address; expected a local file, which can be copied there.")
    if store.unit != "word":
        raise SettingError(f"{store.path} has a row per {store.unit}; only words can be exported.")
    writers = {
        **dict.fromkeys(HDF5, write_hdf5),
        ".json": write_json_lines,
        ".npz": write_npz,
        **dict.fromkeys(ARROW, write_arrow),
    }
    known_suffix(target)
    with lone_file(target) as temporary:
        writers[target.suffix](store, temporary)
    return target


def _words(foreign: Foreign, corpus: Corpus | None, source: Path) -> list[dict[str, Any]]:
    sentences = foreign.words if corpus is None else corpus.sentences
    if not foreign.words:
        raise StoreError(f"{source} has no sentences; expected at least one.")
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
    stream = foreign.stream()

    def block(i: int) -> np.ndarray:
        found, expected = next(stream, None), (lengths[i], len(foreign.layers), foreign.hidden)
        if found is None:
            raise StoreError(f"{source} ends before sentence {i + 1}; it has changed while it was read.")
        if found.shape != expected:
            raise StoreError(f"Sentence {i + 1} of {source} has shape {found.shape} instead of {expected}.")
        return found

    for index, shard in enumerate(writer.manifest.shards):
        rows = sum(lengths[shard.first : shard.stop])
        blocks = map(block, range(shard.first, shard.stop))
        if shard.written:
            deque(blocks, maxlen=0)
            continue
        tensors = _tensors(foreign, blocks, rows)
        if shard.stop == len(lengths) and next(stream, None) is not None:  # some formats are checked at their end
            raise StoreError(f"{source} has more than {shard.stop} sentences; it has changed while it was read.")
        writer.write(index, tensors, rows=rows)


def _tensors(foreign: Foreign, blocks: Iterable[np.ndarray], rows: int) -> dict[str, Any]:
    """The layers of some sentences, filled one by one, so that they are never there twice."""
    import torch

    layers = [torch.empty(rows, foreign.hidden) for _ in foreign.layers]
    row = 0
    for block in blocks:
        for k, layer in enumerate(layers):
            layer.numpy()[row : row + len(block)] = block[:, k]
        row += len(block)
    return {f"layer-{number}": layer for number, layer in zip(foreign.layers, layers, strict=True)}


def _sentences(store: ActivationStore) -> Iterator[tuple[int, list[str], Float[np.ndarray, "word layer hidden"]]]:
    """Every sentence's number, words and activations."""
    for shard in store.manifest.shards:
        block = store.read(shard.first, shard.stop)
        values = np.stack(block.layers, axis=1)
        for sentence in range(shard.first, shard.stop):
            rows = block.places[:, 0] == sentence
            yield sentence, [store.sentences[sentence][w] for w in block.places[rows, 1]], values[rows]


def write_hdf5(store: ActivationStore, path: Path) -> None:
    """NeuroX HDF5: a data set of layers × words × hidden per sentence, and the sentences by number."""
    h5py = import_h5py()
    index: dict[str, str] = {}
    with _Patient(path) as raw:
        with h5py.File(raw, "w") as file:
            for sentence, words, block in _sentences(store):
                file.create_dataset(str(sentence), data=np.swapaxes(block, 0, 1))
                text, count = " ".join(words), 1
                while text in index:
                    count += 1
                    text = f"{' '.join(words)} (Occurrence {count})"
                index[text] = str(sentence)
                if raw.complaint:
                    break
            table = file.create_dataset("sentence_to_index", (1,), dtype=h5py.string_dtype())
            table[0] = json.dumps(index)
        if raw.complaint:
            raise raw.complaint


class _Patient(io.FileIO):
    """A file that takes what a full disk does not, with its complaint: the HDF5 library dies of a write that fails."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self.complaint: OSError | None = None
        self.kept: list[tuple[int, bytes]] = []  # what the library wrote since then, and where; it may read it again

    def write(self, data: Any) -> int:
        start, written = self.tell(), 0
        try:
            while written < len(data) and self.complaint is None:
                written += super().write(data[written:])
        except OSError as error:
            self.complaint = error
        if self.complaint:
            self.kept.append((start, bytes(data)))
        return len(data)

    def readinto(self, buffer: Any) -> int:
        start = self.tell()
        super().readinto(buffer)
        for place, piece in self.kept:
            first, stop = max(start, place), min(start + len(buffer), place + len(piece))
            if first < stop:
                buffer[first - start : stop - start] = piece[first - place : stop - place]
        return len(buffer)


def write_json_lines(store: ActivationStore, path: Path) -> None:
    """NeuroX JSON: a line per sentence, of words, layers and values."""
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


def write_npz(store: ActivationStore, path: Path) -> None:
    """What numpy.savez writes, of which the activations are never in memory at once."""
    places, texts = store.row_words, store.sentences
    arrays = {
        "layers": np.array(store.layers),
        "sentence": places[:, 0],
        "word": np.array([texts[s][w] for s, w in places.tolist()]),
    }
    shape = (store.n_rows, len(store.layers), store.widths[0])
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("activations.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_2_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
            for block in store.batches():
                file.write(np.ascontiguousarray(block, "<f4").data)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def write_arrow(store: ActivationStore, path: Path) -> None:
    """An Arrow file with a row per word: its sentence, its text and a list of numbers per layer."""
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
