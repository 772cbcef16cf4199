"""Similarity of all layers from one pass, beside contextual-corr-analysis, the code of Wu et al. (2020).

    RESIDUUM_DATA=… [RESIDUUM_PEERS=…] [RESIDUUM_MPNET=…] python benchmarks/similarity.py

Two 7 × 384 models (all-MiniLM-L6-v2 and its random twin), UD English PUD (21,000 words), 2 threads. `RESIDUUM_PEERS`
is a folder with a checkout of github.com/johnmwu/contextual-corr-analysis, whose neuron, regression, SVCCA with PWCCA
and linear CKA are run for all pairs of layers on arrays in memory; without it their lines are left out. Memory is what
a process and its children hold above an interpreter that has only imported its libraries.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import THREADS, data, in_fresh_process, line, minilm, peak_memory, report, seconds

MEASURES = ("neuron", "mixed", "svcca", "pwcca", "cka")


def main() -> None:
    holds = []
    with tempfile.TemporaryDirectory() as folder:
        in_fresh_process(__file__, "extract", minilm(), folder)
        pass_ = in_fresh_process(__file__, "pass", folder)
        plain = in_fresh_process(__file__, "compare", folder, 1)
        intervals = in_fresh_process(__file__, "compare", folder, 1, 0, "intervals")
        small = in_fresh_process(__file__, "compare", folder, 1, 600)
        large = in_fresh_process(__file__, "compare", folder, 10, 600)
        print(
            f"   compare {plain['seconds']:.1f} s, {plain['memory_mb']:.0f} MB; with intervals "
            f"{intervals['seconds']:.1f} s, {intervals['memory_mb']:.0f} MB; with little memory "
            f"{small['seconds']:.1f} s, {small['memory_mb']:.0f} MB, {large['memory_mb']:.0f} MB for 10 × words"
        )
        print(
            f"   one pass: {pass_['accumulate']:.1f} s of products at {pass_['rate']:.0f} GFLOP/s (a plain product of "
            f"float32 {pass_['gemm']:.0f}), {pass_['decompose']:.1f} s of decompositions"
        )
        holds += [
            line("memory of compare", plain["memory_mb"] / 1000, 1.2, "GB"),
            line("memory of 10 × the words / 1 ×", large["memory_mb"] / small["memory_mb"], 1.10),
            line("share of the machine's matrix-product rate", pass_["rate"] / pass_["gemm"], 0.5, at_least=True),
        ]
        if "RESIDUUM_PEERS" in os.environ:
            peer = in_fresh_process(__file__, "peer", folder)
            print(f"   contextual-corr-analysis {peer['seconds']:.1f} s, {peer['memory_mb']:.0f} MB")
            for what, own, target in (("compare", plain, 5.0), ("compare with intervals", intervals, 3.5)):
                ratio = peer["seconds"] / own["seconds"]
                holds.append(line(f"time: contextual-corr-analysis / {what}", ratio, target, at_least=True))
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
    """The peer's own classes on all layers of both models in memory, as its script runs them."""
    import contextlib
    import io

    import torch

    from residuum.activations.store import open_store

    sys.path.insert(0, str(Path(os.environ["RESIDUUM_PEERS"], "contextual-corr-analysis")))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        import corr_methods as peer  # pyright: ignore[reportMissingImports]

        with peak_memory() as peak:
            layers = {
                f"{k}_{i}": torch.from_numpy(np.array(layer))
                for k in (0, 1)
                for i, layer in enumerate(np.moveaxis(open_store(Path(folder) / str(k)).array(), 1, 0))
            }
            for layer in layers.values():  # the peer divides by the deviation: a constant neuron would give NaN
                constant = layer.std(dim=0) <= 1e-6 * layer.abs().mean(dim=0)
                layer[:, constant] += 1e-3 * torch.randn(len(layer), int(constant.sum()))
            widths, device = {name: layer.shape[1] for name, layer in layers.items()}, torch.device("cpu")
            start = time.perf_counter()
            for method in (peer.MaxCorr, peer.MaxLinReg, peer.CCA, peer.LinCKA):
                method(widths, dict(layers), device).compute_correlations()
            elapsed = time.perf_counter() - start
    report(seconds=elapsed, memory_mb=peak())


def run_compare(folder: str, copies: int, max_mb: int, intervals: bool) -> None:
    import pandas  # noqa: F401 - libraries are loaded before memory is watched, here as in the peer
    import safetensors.numpy  # noqa: F401
    import scipy.linalg  # noqa: F401

    from residuum.activations.store import ActivationStore, open_store
    from residuum.comparison.compare import compare

    stores = [open_store(path) for path in sorted(Path(folder).iterdir()) if path.name.isdecimal()]
    if copies > 1:
        stores = [_repeat(store, copies) for store in stores]
    assert all(isinstance(store, ActivationStore) for store in stores)
    with peak_memory() as peak:
        start = time.perf_counter()
        compare(
            stores,
            measures=MEASURES,
            intervals=intervals,
            workers=THREADS,
            max_memory=max_mb * 10**6 or None,
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
    accumulator = MomentsAccumulator(widths, products="float32", threads=THREADS)
    start = time.perf_counter()
    for block in blocks:
        accumulator.update(block)
    moments = accumulator.result()
    accumulate = time.perf_counter() - start
    decompose = seconds(lambda: similarity_matrices(moments, MEASURES, threads=THREADS), repeats=1)
    products = words * neurons * (neurons + widths[0])  # each unordered pair of layers once, 2 operations a product
    square = np.random.default_rng(0).normal(size=(3000, 3000)).astype(np.float32)
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
        few = int(arguments[2]) if len(arguments) > 2 else 0
        run_compare(arguments[0], int(arguments[1]), few, intervals="intervals" in arguments)
    elif command == "heads":
        run_heads()
