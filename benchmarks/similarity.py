"""Similarity of all layers from one pass, beside contextual-corr-analysis, the code of Wu et al. (2020).

    RESIDUUM_DATA=… [RESIDUUM_PEERS=…] [RESIDUUM_MPNET=…] python benchmarks/similarity.py

Two 7 × 384 models (all-MiniLM-L6-v2 and its random twin), UD English PUD (21,000 words), 2 threads. `RESIDUUM_PEERS`
is a folder with a checkout of github.com/johnmwu/contextual-corr-analysis, whose neuron, regression, SVCCA with PWCCA
and linear CKA are run for all pairs of layers on arrays in memory, and whose three measures of heads for all pairs of
12 layers × 12 heads; and of github.com/fdalvi/analyzing-redundancy-pretrained-transformer-models as `redundancy`, whose
clustering is run at nine thresholds. Without a checkout its lines are left out. Memory is what a process and its
children hold above an interpreter that has only imported its libraries.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from measure import THREADS, data, has_peer, in_fresh_process, line, minilm, peak_memory, report, seconds

MEASURES = ("neuron", "mixed", "svcca", "pwcca", "cka")
LITTLE = 600
"""MB that a comparison with little memory may hold; from 65,000 words on sums wait on two levels, and on no more."""


def main() -> None:
    holds = []
    with tempfile.TemporaryDirectory() as folder:
        in_fresh_process(__file__, "extract", minilm(), folder)
        pass_ = in_fresh_process(__file__, "pass", folder)
        plain = in_fresh_process(__file__, "compare", folder, 1)
        intervals = in_fresh_process(__file__, "compare", folder, 1, 0, "intervals")
        small = in_fresh_process(__file__, "compare", folder, 1, LITTLE)
        large = in_fresh_process(__file__, "compare", folder, 10, LITTLE)
        print(
            f"   compare {plain['seconds']:.1f} s, {plain['memory_mb']:.0f} MB; with intervals "
            f"{intervals['seconds']:.1f} s, {intervals['memory_mb']:.0f} MB; with little memory "
            f"{small['seconds']:.1f} s, {small['memory_mb']:.0f} MB, {large['memory_mb']:.0f} MB for 10 × words"
        )
        print(
            f"   one pass: {pass_['accumulate']:.1f} s of products at {pass_['rate']:.0f} GFLOP/s (a plain product of "
            f"float32 {pass_['gemm']:.0f}), {pass_['decompose']:.1f} s of decompositions; the same product in float64 "
            f"{pass_['bare']:.1f} s"
        )
        holds += [
            line("memory of compare", plain["memory_mb"] / 1000, 1.2, "GB"),
            line(f"memory of 10 × the words, of {LITTLE} MB allowed", large["memory_mb"], LITTLE, "MB"),
            line("share of the machine's matrix-product rate", pass_["rate"] / pass_["gemm"], 0.5, at_least=True),
            line("time: compare / bare symmetric product in float64", plain["seconds"] / pass_["bare"], 3.0),
        ]
        if has_peer("redundancy"):
            both = in_fresh_process(__file__, "clusters", folder)
            print(
                f"   nine thresholds: redundancy repository {both['peer']:.1f} s, cluster_neurons {both['ours']:.1f} s"
            )
            what = "time: redundancy repository / cluster_neurons at nine thresholds"
            holds.append(line(what, both["peer"] / both["ours"], 6.0, at_least=True))
        if has_peer("contextual-corr-analysis"):
            peer = in_fresh_process(__file__, "peer", folder)
            print(f"   contextual-corr-analysis {peer['seconds']:.1f} s, {peer['memory_mb']:.0f} MB")
            for what, own, target in (("compare", plain, 5.0), ("compare with intervals", intervals, 3.5)):
                ratio = peer["seconds"] / own["seconds"]
                holds.append(line(f"time: contextual-corr-analysis / {what}", ratio, target, at_least=True))
    if has_peer("contextual-corr-analysis"):
        heads = in_fresh_process(__file__, "heads")
        print(f"   attention: contextual-corr-analysis {heads['peer']:.2f} s, streamed {heads['ours']:.2f} s")
        what = "time: contextual-corr-analysis / attention heads streamed"
        holds.append(line(what, heads["peer"] / heads["ours"], 5.0, at_least=True))
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
    import torch

    from residuum.activations.store import open_store

    with peer_code("contextual-corr-analysis"):
        import corr_methods as peer  # pyright: ignore[reportMissingImports]

        with peak_memory() as peak:
            layers = {
                f"{k}_{i}": torch.from_numpy(np.array(layer))
                for k in (0, 1)
                for i, layer in enumerate(np.moveaxis(open_store(Path(folder) / str(k)).array(), 1, 0))
            }
            for layer in layers.values():
                deviations = layer.std(dim=0)  # the peer divides by their roots of squares in float32: 0 for 4e-32
                constant = deviations < 1e-6 * deviations.median()
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
    from threadpoolctl import threadpool_limits

    from residuum.activations.store import open_store
    from residuum.maths.moments import MomentsAccumulator
    from residuum.maths.similarity import similarity_matrices

    stores = [open_store(Path(folder) / str(k)) for k in (0, 1)]
    widths = [width for store in stores for width in store.widths]
    blocks = [[layer for store in stores for layer in store.shard(i)] for i in range(len(stores[0].manifest.shards))]
    words, neurons = sum(len(block[0]) for block in blocks), sum(widths)
    with threadpool_limits(1):  # each thread multiplies a pair of layers alone, as in `compare`
        accumulator = MomentsAccumulator(widths, products="float32", threads=THREADS)
        start = time.perf_counter()
        for block in blocks:
            accumulator.update(block)
        moments = accumulator.result()
        accumulate = time.perf_counter() - start
        decompose = seconds(lambda: similarity_matrices(moments, MEASURES, threads=THREADS), repeats=1)
    products = words * neurons * (neurons + widths[0])  # each unordered pair of layers once, 2 operations a product
    square = np.random.default_rng(0).normal(size=(3000, 3000)).astype(np.float32)
    gemm, double = (2 * 3000**3 / seconds(lambda x=x: x @ x) for x in (square, square.astype(np.float64)))
    rates = {"rate": products / accumulate / 1e9, "gemm": gemm / 1e9, "bare": products / double}
    report(accumulate=accumulate, decompose=decompose, **rates)


def run_heads() -> None:
    """Norm, Pearson and Jensen–Shannon of all pairs of layers: the peer's classes, and one sentence at a time."""
    import torch

    from residuum.maths.attention import HEAD_MEASURES, AttentionAccumulator

    torch.set_num_threads(THREADS)
    rng = np.random.default_rng(0)
    sentences = [
        [rng.dirichlet(np.ones(words), size=(12, words)).astype(np.float32) for _ in range(12)]
        for words in rng.integers(5, 40, 60).tolist()
    ]
    with peer_code("contextual-corr-analysis"):
        import attention_corr_methods as peer  # pyright: ignore[reportMissingImports]

        layers = {f"m_{i}": [torch.from_numpy(sentence[i]) for sentence in sentences] for i in range(12)}

        def peers() -> None:
            for method in (peer.MaxCorr, peer.PearsonMaxCorr, peer.JSMaxCorr):
                method(dict.fromkeys(layers, 12), layers, torch.device("cpu")).compute_correlations()

        theirs = seconds(peers, repeats=2)

    def streamed() -> None:
        accumulator = AttentionAccumulator([12] * 12)
        for sentence in sentences:
            accumulator.update(sentence)
        for measure in HEAD_MEASURES:
            accumulator.result().layer_similarity(measure)

    report(peer=theirs, ours=seconds(streamed, repeats=3))


def run_clusters(folder: str) -> None:
    """All neurons of the model in clusters at nine thresholds: the peer makes a tree for each, as its script does."""
    from residuum import cluster_neurons, open_store

    x = open_store(Path(folder) / "0").array()
    x, thresholds = x.reshape(len(x), -1), np.arange(1, 10) / 10
    x = x[:, x.std(axis=0, dtype=np.float64) > 1e-6]  # the peer takes what rounding leaves of constant neurons for data
    start = time.perf_counter()
    ours = cluster_neurons(x, thresholds)
    elapsed = time.perf_counter() - start
    with peer_code("redundancy/external/aux_classifier"):
        from aux_classifier.ranking import create_correlation_clusters  # pyright: ignore[reportMissingImports]

        start = time.perf_counter()
        theirs = [create_correlation_clusters(x, clustering_threshold=threshold) for threshold in thresholds]
        theirs_elapsed = time.perf_counter() - start
    counts = [(labels.max() + 1, other.max()) for labels, other in zip(ours, theirs, strict=True)]
    assert all(a == b for a, b in counts), counts
    report(ours=elapsed, peer=theirs_elapsed)


@contextlib.contextmanager
def peer_code(name: str) -> Iterator[None]:
    """The peer's modules can be imported, and what they print is thrown away."""
    sys.path.insert(0, str(Path(os.environ["RESIDUUM_PEERS"], name)))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


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
    elif command == "clusters":
        run_clusters(arguments[0])
