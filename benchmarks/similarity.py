"""Similarity of all layers from one pass, against computing each pair of layers from arrays.

    RESIDUUM_DATA=… [RESIDUUM_MPNET=…] python benchmarks/similarity.py

Two 7 × 384 models (all-MiniLM-L6-v2 and its random twin), UD English PUD (21,000 words), 2 threads. The pair-by-pair
peer computes the five measures of Wu et al. (2020) in float32 as their formulas stand, for some pairs of layers, and is
scaled to all of them; its memory is that of one pair beside the arrays. Memory is what a process and its children hold
above an interpreter that has only imported its libraries.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import THREADS, data, in_fresh_process, line, minilm, peak_memory, report, seconds

PAIRS = [(0, 7), (3, 10), (6, 13), (2, 5)]  # for the peer: across and inside models, low and high
MEASURES = ("neuron", "mixed", "svcca", "pwcca", "cka")


def main() -> None:
    holds = []
    with tempfile.TemporaryDirectory() as folder:
        in_fresh_process(__file__, "extract", minilm(), folder)
        peer = in_fresh_process(__file__, "peer", folder)
        pass_ = in_fresh_process(__file__, "pass", folder)
        free = in_fresh_process(__file__, "compare", folder, 1)
        small = in_fresh_process(__file__, "compare", folder, 1, int(peer["memory_mb"] / 5))
        large = in_fresh_process(__file__, "compare", folder, 10, int(peer["memory_mb"] / 5))
        print(f"   pair by pair {peer['seconds']:.0f} s (from {len(PAIRS)} of 105 pairs), {peer['memory_mb']:.0f} MB")
        print(
            f"   compare {free['seconds']:.1f} s, {free['memory_mb']:.0f} MB; with little memory "
            f"{small['seconds']:.1f} s, {small['memory_mb']:.0f} MB, {large['memory_mb']:.0f} MB for 10 × words"
        )
        print(
            f"   one pass: {pass_['accumulate']:.1f} s of products at {pass_['rate']:.0f} GFLOP/s (a plain product "
            f"{pass_['gemm']:.0f}), {pass_['decompose']:.1f} s of decompositions"
        )
        holds += [
            line("time: pair by pair / compare in little memory", peer["seconds"] / small["seconds"], 6, at_least=True),
            line("memory: compare in little memory / pair by pair", small["memory_mb"] / peer["memory_mb"], 0.25),
            line("memory of 10 × the words / 1 ×", large["memory_mb"] / small["memory_mb"], 1.10),
            line("share of the machine's matrix-product rate", pass_["rate"] / pass_["gemm"], 0.6, at_least=True),
        ]
    heads = in_fresh_process(__file__, "heads")
    holds.append(line("attention heads: loop over pairs and sentences / streamed", heads["ratio"], 5, at_least=True))
    if "RESIDUUM_MPNET" in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            in_fresh_process(__file__, "extract", os.environ["RESIDUUM_MPNET"], folder, "alone")
            alone = in_fresh_process(__file__, "compare", folder, 1)
            print(f"   MPNet 13 × 768 alone: {alone['seconds']:.1f} s, {alone['memory_mb']:.0f} MB")
    sys.exit(not all(holds))


def extract_stores(model: str, folder: str, alone: bool) -> None:
    from residuum import extract, load_model, read_corpus

    corpus = read_corpus(data("treebanks", "UD_English-PUD"))
    extract(load_model(model), corpus, Path(folder) / "0", progress=False)
    if not alone:
        extract(load_model(model, random_init=True), corpus, Path(folder) / "1", progress=False)
    report()


def run_peer(folder: str) -> None:
    """Arrays of all layers in memory, every pair of layers by itself."""
    import scipy.linalg

    from residuum import open_store

    with peak_memory() as peak:
        layers = [np.array(a) for k in (0, 1) for a in np.moveaxis(open_store(Path(folder) / str(k)).array(), 1, 0)]
        start = time.perf_counter()
        for i, j in PAIRS:
            x, y = layers[i] - layers[i].mean(axis=0), layers[j] - layers[j].mean(axis=0)
            pair_by_pair(x, y, scipy.linalg)
        elapsed = time.perf_counter() - start
    report(seconds=elapsed / len(PAIRS) * 105, memory_mb=peak())


def pair_by_pair(x: np.ndarray, y: np.ndarray, linalg) -> None:
    """The five measures of one pair of layers, both directions, as the paper writes them."""
    unit_x, unit_y = x / np.linalg.norm(x, axis=0), y / np.linalg.norm(y, axis=0)
    correlation = np.abs(unit_x.T @ unit_y)
    correlation.max(axis=1).mean(), correlation.max(axis=0).mean()
    for a, b in ((x, y), (y, x)):
        solution = linalg.lstsq(b, a, lapack_driver="gelsd")[0]
        (np.linalg.norm(b @ solution, axis=0) / np.linalg.norm(a, axis=0)).mean()
    spaces = []
    for z in (x, y):
        u, s, _ = linalg.svd(z, full_matrices=False)
        kept = int(np.searchsorted(np.cumsum(s**2) / (s**2).sum(), 0.99)) + 1
        spaces.append(u[:, :kept])
    u, rho, vt = linalg.svd(spaces[0].T @ spaces[1], full_matrices=False)
    for z, space, turn in ((x, spaces[0], u), (y, spaces[1], vt.T)):
        weights = np.abs((space @ turn).T @ z).sum(axis=1)
        float(weights @ rho / weights.sum())
    np.linalg.norm(x.T @ y) ** 2 / np.linalg.norm(x.T @ x) / np.linalg.norm(y.T @ y)


def run_compare(folder: str, copies: int, max_mb: int | None) -> None:
    import pandas  # noqa: F401 - libraries are loaded before memory is watched, here as in the peer
    import safetensors.numpy  # noqa: F401
    import scipy.linalg  # noqa: F401

    from residuum.activations.store import ActivationStore, open_store
    from residuum.comparison.compare import compare

    stores = [open_store(path) for path in sorted(Path(folder).iterdir()) if path.name.isdecimal()]
    if copies > 1:
        stores = [_repeat(store, copies) for store in stores]
    assert all(isinstance(store, ActivationStore) for store in stores)
    workers = 1 if max_mb else THREADS
    with peak_memory() as peak:
        start = time.perf_counter()
        compare(
            stores,
            measures=MEASURES,
            intervals=False,
            workers=workers,
            max_memory=max_mb and max_mb * 10**6,
            progress=False,
        )
        elapsed = time.perf_counter() - start
    report(seconds=elapsed, memory_mb=peak())


def run_pass(folder: str) -> None:
    """The parts of the pass, with all threads in one process, beside a plain matrix product."""
    from residuum.activations.store import open_store
    from residuum.maths.moments import MomentsAccumulator
    from residuum.maths.similarity import similarity_matrices

    stores = [open_store(Path(folder) / str(k)) for k in (0, 1)]
    widths = [width for store in stores for width in store.widths]
    blocks = [[layer for store in stores for layer in store.shard(i)] for i in range(len(stores[0].manifest.shards))]
    words, neurons = sum(len(block[0]) for block in blocks), sum(widths)
    accumulator = MomentsAccumulator(widths)
    start = time.perf_counter()
    for block in blocks:
        accumulator.update(block)
    moments = accumulator.result()
    accumulate = time.perf_counter() - start
    decompose = seconds(lambda: similarity_matrices(moments, MEASURES), repeats=1)
    products = words * neurons * (neurons + widths[0])  # each unordered pair of layers once, 2 operations a product
    square = np.random.default_rng(0).normal(size=(3000, 3000))
    gemm = 2 * 3000**3 / seconds(lambda: square @ square) / 1e9
    report(accumulate=accumulate, decompose=decompose, rate=products / accumulate / 1e9, gemm=gemm)


def run_heads() -> None:
    from residuum.maths.attention import AttentionAccumulator

    rng = np.random.default_rng(0)
    heads = [12] * 12
    sentences = [
        [rng.dirichlet(np.ones(words), size=(h, words)) for h in heads] for words in rng.integers(5, 40, 60).tolist()
    ]

    def streamed() -> None:
        accumulator = AttentionAccumulator(heads)
        for sentence in sentences:
            accumulator.update(sentence)
        for measure in ("attention_norm", "attention_pearson", "attention_js"):
            accumulator.result().layer_similarity(measure)

    few = sentences[:3]
    loop = seconds(lambda: [_head_pairs(sentence) for sentence in few], repeats=1)
    share = sum(s[0].shape[1] ** 2 for s in few) / sum(s[0].shape[1] ** 2 for s in sentences)
    report(ratio=loop / share / seconds(streamed, repeats=2))


def _head_pairs(sentence: list[np.ndarray]) -> None:
    """All three measures of every unordered pair of heads in one sentence, one pair at a time."""
    flat = [head for layer in sentence for head in layer]
    for i, a in enumerate(flat):
        for b in flat[:i]:
            np.linalg.norm(a - b)
            da, db = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
            (np.sum(da * db, axis=1) / np.linalg.norm(da, axis=1) / np.linalg.norm(db, axis=1)).sum()
            m = (a + b) / 2
            (np.sum(a * np.log(a / m), axis=1) + np.sum(b * np.log(b / m), axis=1)).sum() / 2


def _repeat(store, copies: int):
    """A store whose shards are those of another, several times over."""
    import json
    import shutil
    from dataclasses import asdict, replace

    from residuum.activations.store import open_store, read_words, shard_path, words_fingerprint

    folder = store.path.parent / f"{store.path.name}-repeated"
    if not folder.exists():
        folder.mkdir()
        records, n = read_words(store.path, store.manifest), len(store.sentences)
        shards = []
        for copy in range(copies):
            for index, shard in enumerate(store.manifest.shards):
                shutil.copy(shard_path(store.path, index), shard_path(folder, len(shards)))
                shards.append(replace(shard, first=shard.first + copy * n, stop=shard.stop + copy * n))
        words = records * copies
        (folder / "words.jsonl").write_text("".join(json.dumps(w, ensure_ascii=False) + "\n" for w in words))
        corpus = {**store.manifest.corpus, "words_fingerprint": words_fingerprint(words)}
        manifest = replace(store.manifest, shards=shards, corpus=corpus)
        (folder / "manifest.json").write_text(json.dumps(asdict(manifest)))
    return open_store(folder)


if __name__ == "__main__":
    command, *arguments = sys.argv[1:] or ["main"]
    if command == "main":
        main()
    elif command == "extract":
        extract_stores(arguments[0], arguments[1], len(arguments) > 2)
    elif command == "peer":
        run_peer(arguments[0])
    elif command == "pass":
        run_pass(arguments[0])
    elif command == "compare":
        run_compare(arguments[0], int(arguments[1]), int(arguments[2]) if len(arguments) > 2 else None)
    elif command == "heads":
        run_heads()
