"""Everything that reads what others wrote: a valid input of each, and how it is read."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from fuzz_model_targets import model_targets
from fuzz_run_targets import run_targets
from mutations import Mutation, changed_header, changed_json, changed_json_lines, changed_unmarked, damaged, generated
from target_kinds import Target, alone, among_others, in_a_child

from made_stores import known_data
from residuum.activations.exchange import export_activations, import_activations
from residuum.activations.store import ActivationStore, shard_path
from residuum.adaptation.corpora import read_transfer
from residuum.corpus import read_corpus, read_parallel
from residuum.corpus.streams import text_lines
from residuum.corpus.tasks import read_task
from residuum.distillation.settings import read_settings
from residuum.evaluation.pairs import read_pairs
from residuum.settings import read_record
from residuum.storage.files import checksum, read_json, write_json
from residuum.storage.results import Run, finished_run, write_run
from residuum.training.settings import PretrainSettings

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


def read_pretraining(path):
    """The settings of `pretrain` from a YAML file."""
    return read_record(PretrainSettings, path, out="out")


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
students: {one: [en], two: [de, en]}
shape: {layers: 2, hidden_size: 8}
losses: {soft: 0.5, mlm: 0.5}
layer_map: [1, 2]
optimiser: {steps: 3, learning_rate: 0.001}
evaluation: {every: 2, pairs: {de-en: [x, y]}}
"""
PAIRS = "".join(f"premise {i}\tit says {i}\t{('entailment', 'neutral', 'contradiction')[i % 3]}\n" for i in range(6))
LABELS = "neutral\nentailment\ncontradiction\n"
LINES = "The fox reads.\nIt does not.\n\nà ñ 日本\n"


def all_targets(folder: Path) -> list[Target]:
    """Every reader, with what it needs in `folder`."""
    return [
        *_corpora(folder / "corpora"),
        *_settings(folder / "settings"),
        *_stores(folder / "stores"),
        *_foreign(folder / "foreign"),
        *_runs(folder / "runs"),
        *run_targets(folder / "contents"),
        *_tasks(folder / "tasks"),
        *model_targets(folder / "models"),
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
        alone(folder / "raw.txt", LINES.encode(), lambda path: list(text_lines(path)), "raw lines"),
        alone(folder / "pairs.tsv", TSV.encode(), _read_twice, "pairs"),
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
        alone(folder / "pretrain.yaml", PRETRAIN.encode(), read_pretraining, "pretrain settings", words),
        alone(folder / "distill.yaml", DISTILL.encode(), read_settings, "distill settings", words),
        _as_json(folder / "pretrain.json", read_pretraining, "pretrain settings, changed", PRETRAIN),
        _as_json(folder / "distill.json", read_settings, "distill settings, changed", DISTILL),
    ]


def _as_json(path: Path, read: Callable[[Path], object], name: str, settings: str) -> Target:
    """Settings changed value by value; JSON is YAML too."""
    import yaml

    return replace(alone(path, json.dumps(yaml.safe_load(settings)).encode(), read, name), mutations=(changed_json,))


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
        among_others(manifest, read_manifest, "manifest", mutations=(damaged, changed_json, changed_json)),
        among_others(words, read_manifest, "words of a store", mutations=(damaged, changed_json_lines)),
        among_others(shard, read_shard, "shard", mutations=(damaged, changed_header, changed_header)),
    ]


def _read_all(store: ActivationStore) -> None:
    _ = (store.audit, store.name, store.unit, store.fingerprint, store.n_rows, store.sentences, repr(store))
    for block in store.batches():
        assert block.dtype == np.float32
    store.read(0, min(2, len(store.sentences)))


def _foreign(folder: Path) -> list[Target]:
    store = known_data(n_sentences=2).store(folder / "acts")
    kinds = {".json": (damaged, changed_json_lines), ".npz": (damaged,), ".arrow": (damaged,), ".hdf5": (damaged,)}
    targets = []
    for suffix, mutations in kinds.items():
        path = export_activations(store, folder / f"activations{suffix}")
        out = folder / f"out{suffix}"
        reading = lambda p, out=out: import_activations(p, out, fresh=True)  # noqa: E731 - one reader a suffix
        # the C library of HDF5 never returns from some damaged files, so only trusted ones may be imported
        own = in_a_child(reading) if suffix == ".hdf5" else reading
        targets.append(among_others(path, own, f"activations {suffix}", mutations=mutations))
    return targets


def _runs(folder: Path) -> list[Target]:
    config = {"measures": ["cka"], "seed": 0, "models": {"a": "1f"}}
    table = pd.DataFrame({"measure": ["cka", "größe"], "value": [0.5, 0.25], "layer": [0, 1]})
    run = Run("compare", config, {"cka": 0.5}, {"similarity": table}, {"map": np.eye(2, dtype=np.float32)})
    write_run(folder, run)
    record = read_json(folder / "result.json")
    write_json(folder / "result.json", {**record, "files": {}})  # whose checksums would hide what is behind them

    def read(path: Path) -> None:
        finished_run(folder, "compare", config)

    in_json = (damaged, changed_json, changed_json)
    return [
        among_others(folder / "result.json", read, "result", mutations=in_json),
        among_others(folder / "environment.json", read, "environment", mutations=in_json),
        among_others(folder / "config.yaml", read, "config of a run"),
        among_others(folder / "similarity.parquet", read, "table", mutations=(damaged,)),
        among_others(
            folder / "tensors.safetensors", read, "tensors", mutations=(damaged, changed_header, changed_unmarked)
        ),
    ]


def _tasks(folder: Path) -> list[Target]:
    """Data of a task in parts, and of one that is carried from language to language."""
    rows = [f"{number} says\t{number} says not\t{number % 2}\n" for number in range(8)]
    table = "sentence1\tsentence2\tlabel\n" + "".join(rows)
    files = {
        "rte/train.tsv": table,
        "rte/dev.tsv": table,
        "xnli/train-en.tsv": PAIRS,
        "xnli/dev-en.tsv": PAIRS.replace("premise", "dev"),
        "xnli/dev-tr.tsv": PAIRS.replace("premise", "tr"),
        "xnli/test-tr.tsv": "test 1\tit says\ntest 2\tit says\ntest 3\tit says\n",
        "xnli/test_labels.txt": LABELS,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    read = lambda path: read_transfer("xnli", path.parent, ["tr"])  # noqa: E731 - the same for three files
    return [
        among_others(folder / "rte/train.tsv", lambda path: read_task("rte", path.parent), "part of a task"),
        among_others(folder / "xnli/train-en.tsv", read, "source of a transfer"),
        among_others(folder / "xnli/test-tr.tsv", read, "target of a transfer"),
        among_others(folder / "xnli/test_labels.txt", read, "labels of a transfer"),
    ]
