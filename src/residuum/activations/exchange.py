"""Activations from and for other programs: a store from what they wrote, and their formats from a store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from residuum.activations.foreign import ARROW, FORMATS, HDF5, Foreign, import_h5py, known_suffix, read_foreign
from residuum.activations.manifests import Manifest, plan_shards
from residuum.activations.store import ActivationStore, StoreWriter, words_fingerprint
from residuum.environment import environment
from residuum.errors import SettingError, StoreError
from residuum.files import checksum, lone_file
from residuum.remote import local_path

if TYPE_CHECKING:
    from residuum.corpus import Corpus


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
    foreign = read_foreign(source)
    words = _words(foreign, corpus, source)
    writer = StoreWriter(Path(out), _manifest(source, foreign, words, corpus, shard_words), words, fresh=fresh)
    _copy(foreign, writer, [len(record["words"]) for record in words], source)
    return ActivationStore.open(out)


def export_activations(store: ActivationStore, target: str | Path) -> Path:
    """Write a store as NeuroX `.hdf5` or `.json`, as `.npz` or as an Arrow file, by the target's suffix."""
    here = local_path(target)
    if here is None:
        raise SettingError(f"{target} is an address; expected a file on this machine, which can be copied there.")
    target = here
    if store.unit != "word":
        raise SettingError(f"{store.path} has a row per {store.unit}; only words can be exported.")
    writers = {
        **dict.fromkeys(HDF5, _write_hdf5),
        ".json": _write_json,
        ".npz": _write_npz,
        **dict.fromkeys(ARROW, _write_arrow),
    }
    known_suffix(target)
    with lone_file(target) as temporary:
        writers[target.suffix](store, temporary)
    return target


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
            block = next(stream, None)
            if block is None:
                raise StoreError(f"{source} ends before sentence {i + 1}; it has changed while it was read.")
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


def _write_hdf5(store: ActivationStore, path: Path) -> None:
    h5py = import_h5py()
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
