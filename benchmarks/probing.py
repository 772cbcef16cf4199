"""Batteries of probes against a straightforward PyTorch loop that trains the same probes one after another.

    RESIDUUM_DATA=… python benchmarks/probing.py
    RESIDUUM_DATA=… RESIDUUM_MPNET=… python benchmarks/probing.py paper [--limit SENTENCES]

all-MiniLM-L6-v2 on UD English PUD (21,000 words, the first 900 sentences to learn from), UPOS, ten epochs, batches of
128, 2 threads. Both sides start from the same weights, see the same batches in the same order and make the same
updates; what is timed is training alone. The grid is one of 9 × 9 penalties (0, 1e-1 … 1e-8); that of `probe --penalty
search` is the 8 × 8 of the paper (0, 1e-1 … 1e-7), and ranks and ablates neurons beside. Of the grid, whose 81 probes
are alike, the loop trains some and its time is scaled to all of them. The clustering sweep is nine thresholds from one
linkage against correlation and linkage for each threshold anew.

`paper` is the job of the size of the paper, by the command that users give: MPNet (13 × 768 = 9,984 neurons) reads the
training part of UD English EWT, its neurons are clustered at nine thresholds, all neurons and each layer are probed for
UPOS, and the minimal sets are found. And the clustering alone, of 9,984 made-up neurons that correlate, by its memory.
`--limit` reads fewer sentences, to see that it works; its figures are then no evidence.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import THREADS, data, in_fresh_process, line, minilm, report, watched

SEEDS = 3
GRID = (0.0, *(10.0**-power for power in range(1, 9)))  # 9 × 9 penalties
GRID_CELLS = [(0.0, 0.0), (1e-3, 1e-3), (1e-5, 1e-8)]  # of these the loop is timed
SCALED = {"grid": f" (scaled from {len(GRID_CELLS)} of {len(GRID) ** 2} probes)"}
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def main() -> None:
    holds = []
    with tempfile.TemporaryDirectory() as folder:
        in_fresh_process(__file__, "extract", folder)
        for name, claim, limit in (
            ("battery", "7 layers + all × (UPOS, control) × 3 seeds: one after another / battery", 3),
            ("grid", "training a 9 × 9 grid of penalties (the search has 8 × 8): one after another / battery", 5),
        ):
            ours = in_fresh_process(__file__, name, folder, "ours")
            loop = in_fresh_process(__file__, name, folder, "loop")
            apart = max(abs(ours[key] - loop[key]) for key in loop if key.startswith("accuracy")) * 100
            scaled = SCALED.get(name, "")
            print(f"   {name}: {ours['seconds']:.1f} s against {loop['seconds']:.0f} s one after another{scaled}")
            holds.append(line(claim, loop["seconds"] / ours["seconds"], limit, at_least=True))
            holds.append(line(f"{name}: largest difference of test accuracies", apart, 0.3, unit="points"))
        sweep = in_fresh_process(__file__, "sweep", folder)
        print(f"   sweep: {sweep['ours']:.1f} s against {sweep['again']:.1f} s")
        holds.append(
            line("clustering, nine thresholds: anew / one linkage", sweep["again"] / sweep["ours"], 5, at_least=True)
        )
        holds.append(line("clustering: equal partitions", sweep["equal"], 9, unit="of 9", at_least=True))
    sys.exit(not all(holds))


def paper(limit: str | None = None) -> None:
    """The job of the size of the paper, and the memory of its clustering."""
    if "RESIDUUM_MPNET" not in os.environ:
        sys.exit("Set RESIDUUM_MPNET to the folder of all-mpnet-base-v2 to run the job of the size of the paper.")
    with tempfile.TemporaryDirectory() as folder:
        in_fresh_process(__file__, "make", folder)
        clusters = in_fresh_process(__file__, "clusters", folder)
        print(f"   clustering: {clusters['neurons']:,.0f} neurons in {clusters['seconds']:.0f} s")
        holds = [line("clustering 9,984 neurons: peak memory", gigabytes(clusters), 3, unit="GB")]
        corpus = data("treebanks", "UD_English-EWT")
        options = ["--task", "upos", "--seeds", 1, "--max-memory", 6, "--out", Path(folder, "run")]
        options += ["--limit", limit] if limit else []
        job = watched("residuum", "redundancy", os.environ["RESIDUUM_MPNET"], corpus, *options)
    which = f"the first {limit} sentences" if limit else "all sentences"
    holds.append(line(f"MPNet, EWT ({which}), UPOS: the whole job", job["seconds"], 3600, unit="s"))
    holds.append(line("MPNet, EWT, UPOS: peak memory of all its processes", gigabytes(job), 12, unit="GB"))
    sys.exit(not all(holds))


def gigabytes(measured: dict[str, float]) -> float:
    return measured["peak_mb"] * 2**20 / 1e9


def make_store(folder: str) -> None:
    """A store of 13 × 768 neurons that are mixtures of 256 sources each, with noise of their own."""
    from residuum import import_activations

    layers, hidden, words, length = 13, 768, 8192, 16
    rng = np.random.default_rng(0)
    mixtures = rng.standard_normal((256, layers * hidden), np.float32) * rng.random(layers * hidden, np.float32)
    x = rng.standard_normal((words, 256), np.float32) @ mixtures / 16
    x += rng.standard_normal(x.shape, np.float32)
    np.savez(
        Path(folder, "made.npz"),
        activations=x.reshape(words, layers, hidden),
        layers=np.arange(layers),
        sentence=np.arange(words) // length,
        word=np.array([f"w{i % 500}" for i in range(words)]),
    )
    import_activations(Path(folder, "made.npz"), Path(folder, "made"))
    report()


def run_clusters(folder: str) -> None:
    """Everything that `redundancy` does without a task: correlation, one linkage, nine thresholds, all tables."""
    from residuum import redundancy

    start = time.perf_counter()
    found = redundancy(Path(folder, "made"), progress=False)
    report(seconds=time.perf_counter() - start, neurons=float(found.run.summary["neurons"]))


def extract_store(folder: str) -> None:
    from residuum import extract, load_model, read_corpus

    extract(
        load_model(minilm()), read_corpus(data("treebanks", "UD_English-PUD")), Path(folder) / "acts", progress=False
    )
    report()


def prepared(folder: str):
    """The bench of PUD: 900 sentences to learn from, 100 to test on; features are in memory before the clock starts."""
    from residuum import open_store, read_corpus
    from residuum.corpus.tasks import named_task
    from residuum.probing.batteries import Bench
    from residuum.probing.examples import Splits, examples

    corpus = read_corpus(data("treebanks", "UD_English-PUD"))
    whole = examples(open_store(Path(folder) / "acts"), corpus.labels["upos"])
    train, test = whole.select(range(900)), whole.select(range(900, 1000))
    bench = Bench(Splits(named_task("upos"), train, test, test))
    bench.features("train"), bench.features("test"), bench.targets
    return bench


def probes_of(name: str, bench) -> tuple[list, list]:
    """All probes of a battery, and those that the loop trains."""
    from residuum.maths.probing import Probe

    layout = bench.splits.layout
    if name == "grid":
        every = [Probe("task", None, l1, l2) for l1 in GRID for l2 in GRID]
        return every, [probe for probe in every if (probe.l1, probe.l2) in GRID_CELLS]
    sets = [*(layout.layer_slice(layer) for layer in layout.layers), None]
    every = [
        Probe(target, neurons, seed=seed) for neurons in sets for target in ("task", "control") for seed in range(SEEDS)
    ]
    return every, every


def run_battery(name: str, folder: str, side: str) -> None:
    import torch

    torch.set_num_threads(THREADS)
    bench = prepared(folder)
    every, timed = probes_of(name, bench)
    x, test = bench.features("train"), bench.features("test")
    if side == "ours":
        start = time.perf_counter()
        trained = bench.train(every)
        seconds = time.perf_counter() - start
        chosen = [trained[every.index(probe)] for probe in timed]
        predictions = [probe.predict(test) for probe in chosen]
    else:
        start = time.perf_counter()
        networks = [train_alone(x, bench.targets[probe.target], probe, bench.recipe) for probe in timed]
        seconds = (time.perf_counter() - start) * len(every) / len(timed)
        with torch.no_grad():
            predictions = [
                network(torch.from_numpy(test[:, columns(probe)])).argmax(dim=1).numpy()
                for network, probe in zip(networks, timed, strict=True)
            ]
    accuracies = [np.mean(p == bench.truth("test", probe.target)) for p, probe in zip(predictions, timed, strict=True)]
    report(seconds=seconds, **{f"accuracy{i}": float(value) for i, value in enumerate(accuracies)})


def train_alone(x: np.ndarray, target, probe, recipe):
    """One probe as anyone would write it: a linear layer, cross-entropy plus penalties, torch's own Adam."""
    import torch
    from torch import nn

    from residuum.maths.probing import initial_parameters, word_order

    features = torch.from_numpy(np.ascontiguousarray(x[:, columns(probe)]))
    labels = torch.from_numpy(target.values)
    network = nn.Linear(features.shape[1], target.n_classes)
    weight, bias = initial_parameters(probe.seed, target.n_classes, features.shape[1])
    with torch.no_grad():
        network.weight.copy_(torch.from_numpy(weight))
        network.bias.copy_(torch.from_numpy(bias))
    optimizer = torch.optim.Adam(network.parameters(), lr=recipe.learning_rate)
    for epoch in range(recipe.epochs):
        for rows in torch.from_numpy(word_order(probe.seed, epoch, len(features))).split(recipe.batch_size):
            loss = nn.functional.cross_entropy(network(features[rows]), labels[rows])
            loss = loss + probe.l1 * network.weight.abs().sum() + probe.l2 * network.weight.square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network


def columns(probe) -> slice:
    return slice(None) if probe.neurons is None else probe.neurons


def run_sweep(folder: str) -> None:
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    from residuum import open_store
    from residuum.maths.clustering import by_first_member, cluster_correlation, neuron_correlation

    store = open_store(Path(folder) / "acts")
    x = np.concatenate([np.concatenate(store.shard(i), axis=1) for i in range(len(store.manifest.shards))])
    start = time.perf_counter()
    clustering = cluster_correlation(*neuron_correlation(x))
    partitions = [clustering.labels(threshold) for threshold in THRESHOLDS]
    ours = time.perf_counter() - start
    start = time.perf_counter()
    again = []
    for threshold in THRESHOLDS:
        distances = 1 - np.abs(np.corrcoef(x.T))
        distances[clustering.constant] = 1  # MiniLM has dead neurons, of which a correlation says nothing
        distances[:, clustering.constant] = 1
        np.fill_diagonal(distances, 0)
        condensed = squareform(np.clip(distances, 0, None), checks=False)
        again.append(fcluster(linkage(condensed, method="average"), threshold, criterion="distance"))
    seconds = time.perf_counter() - start
    equal = sum(np.array_equal(a, by_first_member(b)) for a, b in zip(partitions, again, strict=True))
    report(ours=ours, again=seconds, equal=float(equal))


if __name__ == "__main__":
    command, *arguments = sys.argv[1:] or ["main"]
    if command == "main":
        main()
    elif command == "paper":
        paper(arguments[1] if arguments[:1] == ["--limit"] else None)
    elif command in ("make", "clusters", "extract"):
        {"make": make_store, "clusters": run_clusters, "extract": extract_store}[command](arguments[0])
    elif command == "sweep":
        run_sweep(arguments[0])
    else:
        run_battery(command, *arguments)
