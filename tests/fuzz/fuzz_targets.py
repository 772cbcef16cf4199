"""Everything that reads what others wrote: a valid input of each, and how it is read."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from mutations import Mutation, changed_header, changed_json, changed_json_lines, damaged, generated

from made_stores import known_data
from residuum.activations.exchange import export_activations, import_activations
from residuum.activations.store import ActivationStore, shard_path
from residuum.adaptation.changes import FILE as CHANGE
from residuum.adaptation.changes import Change, read_change, save_change
from residuum.adaptation.folders import RECORD, read_record
from residuum.corpus import read_corpus, read_parallel
from residuum.corpus.streams import text_lines
from residuum.distillation.settings import read_settings
from residuum.evaluation.pairs import read_pairs
from residuum.feature_transfer.product import DESCRIPTION, TENSORS, read_classifier
from residuum.files import checksum
from residuum.pretraining.config import read_config
from residuum.results import Run, finished_run, write_run
from residuum.training.checkpoints import load_checkpoint, open_run, write_checkpoint
from residuum.training.records import Progress

CONLLU = (
    "# sent_id = s1\n# text = Im Haus ist es.\n1-2\tIm\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tIn\tin\tADP\tAPPR\t_\t3\tcase\t_\t_\n2\tdem\tder\tDET\tART\tCase=Dat|Number=Sing\t3\tdet\t_\t_\n"
    "3\tHaus\tHaus\tNOUN\tNN\tCase=Dat\t0\troot\t_\t_\n3.1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "4\tist\tsein\tAUX\tVAFIN\t_\t3\tcop\t_\tSpaceAfter=No\n\n# sent_id = s2\n1\tEs\tes\tPRON\t_\t_\t0\troot\t_\t_\n\n"
)
COLUMNS = "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\nPeter NNP I-NP B-PER\n"
PMB = "### en/p00\n# tok\tsym\tsem\tcat\n# raw sent = Tom~sleeps\nTom\ttom\tPER\tNP\nsleeps\tsleep\tENS\tS\\NP\n\n"
TSV = "sentence1\tsentence2\tlabel\nA man\tA dog\t0\nIt rains\tSun\t1\n"
CSV = 'id,text,score\n1,"a, b",0.5\n2,"c ""d""",1.5\n'
RECORDS = [{"tokens": ["a", "b"], "tags": [0, 1], "label": 1}, {"tokens": ["c"], "tags": [1], "label": 0}]
CHOICES = [{"context": "It rains.", "question": "Why?", "choice1": "clouds", "choice2": "sun", "label": 1}]
PRETRAIN = """name: m
text: {en: [a.txt], de: ["${HOME}/b.txt"]}
pairs: [{languages: [en, de], files: [a.en, a.de], weight: 2.0}]
network: {architecture: bert, layers: 2, hidden: 8, heads: 2, window: 32}
objectives: [{kind: mlm, length: 16}, {kind: ranking, layer: 1, length: 16}]
training: {steps: 10, learning_rate: 1.0e-3}
evaluation: {every: 5, retrieval: {en-de: {files: [x, y]}}}
"""
DISTILL = """teacher: t
texts: {en: a.txt, de: b.txt}
students: {one: {languages: [en]}, two: {languages: [de, en]}}
shape: {layers: 2, hidden_size: 8}
losses: {soft: 0.5, mlm: 0.5}
layer_map: [1, 2]
optimiser: {steps: 3, learning_rate: 0.001}
evaluation: {every: 2, pairs: {de-en: [x, y]}}
"""
LINES = "The fox reads.\nIt does not.\n\nà ñ 日本\n"


@dataclass(frozen=True)
class Target:
    """A reader: a valid input, the words that its format is made of, and the ways to spoil the input."""

    name: str
    seed: bytes
    read: Callable[[bytes], object]
    words: tuple[bytes, ...] = ()
    mutations: tuple[Mutation, ...] = (damaged, damaged, generated)


def all_targets(folder: Path) -> list[Target]:
    """Every reader, with what it needs in `folder`."""
    return [
        *_corpora(folder / "corpora"),
        *_settings(folder / "settings"),
        *_stores(folder / "stores"),
        *_foreign(folder / "foreign"),
        *_runs(folder / "runs"),
        *_products(folder / "products"),
        *_checkpoints(folder / "training"),
    ]


def _corpora(folder: Path) -> list[Target]:
    folder.mkdir(parents=True)
    records, choices = (b"\n".join(json.dumps(r).encode() for r in rows) for rows in (RECORDS, CHOICES))
    cells = (b"sentence\t", b"text\t", b"tokens", b"label", b"\tO\n", b"B-PER", b"-DOCSTART-", b"en:", b"# tok\t")
    ids = (b"1\t", b"2\t", b"1-2\t", b"1.1\t", b"_\t" * 8, b"0\t", b"A=B|", b"SpaceAfter=No", b"# text = ", b"\n\n")
    keys = (b'{"text": "a"}', b'{"tokens": ["a"], "tags": [1]}', b'"choices": ["a", "b"]', b'"label": ', b"}\n{")
    pq = folder / "seed.parquet"
    pd.DataFrame(RECORDS).to_parquet(pq)
    in_lines = (damaged, generated, changed_json_lines)
    return [
        _corpus(folder, "conllu", CONLLU, ids),
        _corpus(folder, "columns", COLUMNS, cells, written=False),
        _corpus(folder, "columns", PMB, cells, name="meaning bank"),
        _corpus(folder, "tsv", TSV, cells),
        _corpus(folder, "csv", CSV, (b'""', b'",\n"', *cells)),
        _corpus(folder, "json", json.dumps(RECORDS), keys, mutations=(damaged, changed_json), written=False),
        _corpus(folder, "jsonl", records, keys, mutations=in_lines, written=False),
        _corpus(folder, "jsonl", choices, keys, mutations=in_lines, name="choices"),
        _corpus(folder, "lines", LINES, ()),
        _corpus(folder, None, COLUMNS, (*cells, *ids), name="format found", written=False),
        _corpus(folder, "lines", gzip.compress(LINES.encode() * 9, mtime=0), (), name="gzip", mutations=(damaged,)),
        _corpus(folder, "lines", lzma.compress(LINES.encode() * 9), (), name="xz", mutations=(damaged,)),
        _corpus(folder, "parquet", pq.read_bytes(), (), mutations=(damaged,), written=False),
        _file(folder / "raw.txt", LINES.encode(), lambda path: list(text_lines(path)), "raw lines"),
        _file(folder / "pairs.tsv", TSV.encode(), _read_twice, "pairs"),
    ]


def _read_twice(path: Path) -> None:
    read_pairs(path)
    read_parallel({"a": path, "b": path}, text=0)


def _corpus(
    folder: Path,
    format: str | None,
    seed: str | bytes,
    words: tuple[bytes, ...],
    *,
    name: str | None = None,
    written: bool = True,
    mutations: tuple[Mutation, ...] = (damaged, damaged, generated),
) -> Target:
    """A corpus reader, which is asked for the text as written too where it is there, and for all that a corpus has."""
    path = folder / f"{name or format}.txt"

    def read(data: bytes) -> None:
        path.write_bytes(data)
        corpus = read_corpus(path, format=format, spacing="text" if written and len(data) % 2 else "words")
        corpus.fingerprint  # noqa: B018 - what a corpus is known by must be had for whatever was read
        _ = [corpus.text(i) for i in range(len(corpus))]

    return Target(name or format or "", seed.encode() if isinstance(seed, str) else seed, read, words, mutations)


def _settings(folder: Path) -> list[Target]:
    folder.mkdir()
    words = (
        b"&a ",
        b"*a",
        b"<<: ",
        b"!!int ",
        b"!!python/object:os.system ",
        b"? ",
        b"- ",
        b"| ",
        b"2001-99-99",
        b"{",
        b"[",
    )
    return [
        _file(folder / "pretrain.yaml", PRETRAIN.encode(), read_config, "pretrain settings", words),
        _file(folder / "distill.yaml", DISTILL.encode(), read_settings, "distill settings", words),
        _as_json(folder / "pretrain.json", read_config, "pretrain settings, changed", PRETRAIN),
        _as_json(folder / "distill.json", read_settings, "distill settings, changed", DISTILL),
    ]


def _as_json(path: Path, read: Callable[[Path], object], name: str, settings: str) -> Target:
    """Settings changed value by value; JSON is YAML too."""
    import yaml

    return replace(_file(path, json.dumps(yaml.safe_load(settings)).encode(), read, name), mutations=(changed_json,))


def _stores(folder: Path) -> list[Target]:
    store = known_data(n_sentences=3).store(folder / "acts", shard_words=8)
    shard = shard_path(store.path, 0)

    def read_manifest(path: Path) -> None:
        _read_all(ActivationStore.open(path.parent))

    def read_shard(path: Path) -> None:
        """The manifest is of the same hand as the shard, so that checksums fit whatever is in it."""
        first = replace(store.manifest.shards[0], bytes=path.stat().st_size, checksum=checksum(path))
        manifest = replace(store.manifest, shards=[first, *store.manifest.shards[1:]])
        _read_all(ActivationStore(path.parent, manifest))

    manifest, words = store.path / "manifest.json", store.path / "words.jsonl"
    return [
        _restored(manifest, read_manifest, "manifest", mutations=(damaged, changed_json, changed_json)),
        _restored(words, read_manifest, "words of a store", mutations=(damaged, changed_json_lines)),
        _restored(shard, read_shard, "shard", mutations=(damaged, changed_header, changed_header)),
    ]


def _read_all(store: ActivationStore) -> None:
    _ = (store.audit, store.name, store.unit, store.fingerprint, store.n_rows, store.sentences, repr(store))
    for block in store.batches():
        assert block.dtype == np.float32
    store.read(0, min(2, len(store.sentences)))


def _foreign(folder: Path) -> list[Target]:
    store = known_data(n_sentences=2).store(folder / "acts")
    # not HDF5: its C library never returns from some damaged files, so only trusted ones may be imported (see the docs)
    kinds = {".json": (damaged, changed_json_lines), ".npz": (damaged,), ".arrow": (damaged,)}
    targets = []
    for suffix, mutations in kinds.items():
        path = export_activations(store, folder / f"activations{suffix}")
        out = folder / f"out{suffix}"
        reading = lambda p, out=out: import_activations(p, out, fresh=True)  # noqa: E731 - one reader a suffix
        targets.append(_restored(path, reading, f"activations {suffix}", mutations=mutations))
    return targets


def _runs(folder: Path) -> list[Target]:
    config = {"measures": ["cka"], "seed": 0, "models": {"a": "1f"}}
    table = pd.DataFrame({"measure": ["cka", "größe"], "value": [0.5, 0.25], "layer": [0, 1]})
    run = Run("compare", config, {"cka": 0.5}, {"similarity": table}, {"map": np.eye(2, dtype=np.float32)})
    write_run(folder, run)

    def read(path: Path) -> None:
        finished_run(folder, "compare", config)

    in_json = (damaged, changed_json, changed_json)
    return [
        _restored(folder / "result.json", read, "result", mutations=in_json),
        _restored(folder / "environment.json", read, "environment", mutations=in_json),
        _restored(folder / "config.yaml", read, "config of a run"),
        _restored(folder / "similarity.parquet", read, "table", mutations=(damaged,)),
        _restored(folder / "tensors.safetensors", read, "tensors", mutations=(damaged, changed_header)),
    ]


def _products(folder: Path) -> list[Target]:
    from safetensors.numpy import save_file

    folder.mkdir()
    layers, indices = np.array([0, 0, 1]), np.array([0, 2, 1])
    save_file(
        {"weight": np.ones((2, 3), np.float32), "bias": np.ones(2, np.float32), "layers": layers, "indices": indices},
        folder / TENSORS,
    )
    description = {"version": 1, "task": "upos", "labels": ["a", "b"], "unit": "word", "pooling": "last"}
    description |= {"position": "auto", "pairs": False, "layer": 1, "neurons": 3}
    (folder / DESCRIPTION).write_text(json.dumps(description))
    record = {"version": 1, "strategy": "full", "task": "sentence", "kind": "classification", "classes": ["a", "b"]}
    record |= {"targets": {"en": "x"}, "keep": None, "max_length": 32}
    (folder / RECORD).write_text(json.dumps(record))
    save_change(folder, Change(values={"w": torch.ones(2, 2)}))
    read = lambda path: read_classifier(path.parent)  # noqa: E731 - the same for two files
    return [
        _restored(folder / DESCRIPTION, read, "classifier", mutations=(damaged, changed_json, changed_json)),
        _restored(folder / TENSORS, read, "classifier's tensors", mutations=(damaged, changed_header, changed_header)),
        _restored(folder / RECORD, lambda p: read_record(p.parent), "adaptation", mutations=(damaged, changed_json)),
        _restored(folder / CHANGE, lambda p: read_change(p.parent), "change", mutations=(damaged, changed_header)),
    ]


def _checkpoints(folder: Path) -> list[Target]:
    module = torch.nn.Linear(2, 2)
    optimiser = torch.optim.AdamW(module.parameters())
    module(torch.ones(1, 2)).sum().backward()
    optimiser.step()
    open_run(folder, {"seed": 0})
    row = {"step": 1.0, "loss": 0.5}
    write_checkpoint(folder, {"m": module}, optimiser, Progress(1, 10, 0.5, [row], [row], {"loss": [1.0, 1.0]}, 1, 0.5))
    place = folder / "checkpoints"
    last = place / "step-000000001"
    load = lambda path: load_checkpoint(folder, {"m": module})  # noqa: E731 - the same for two files
    in_json = (damaged, changed_json, changed_json)
    return [
        _restored(last / "progress.json", load, "progress", mutations=in_json),
        _restored(last / "weights.safetensors", load, "weights", mutations=(damaged, changed_header)),
        _restored(place / "run.json", lambda p: open_run(folder, {"seed": 0}), "identity of a run", mutations=in_json),
    ]


def _file(path: Path, seed: bytes, read: Callable[[Path], object], name: str, words: tuple[bytes, ...] = ()) -> Target:
    """A reader of one file that stands alone."""

    def read_bytes(data: bytes) -> None:
        path.write_bytes(data)
        read(path)

    return Target(name, seed, read_bytes, words)


def _restored(
    path: Path,
    read: Callable[[Path], object],
    name: str,
    *,
    mutations: tuple[Mutation, ...] = (damaged, damaged, generated),
) -> Target:
    """A reader of one file among others, which are valid; the file is valid again after every input."""
    seed = path.read_bytes()

    def read_bytes(data: bytes) -> None:
        path.write_bytes(data)
        try:
            read(path)
        finally:
            path.write_bytes(seed)

    return Target(name, seed, read_bytes, (), mutations)
