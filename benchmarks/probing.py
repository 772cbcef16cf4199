"""Converged probes and orders of neurons on real data, beside NeuroX's training loop.

    RESIDUUM_DATA=… [RESIDUUM_MODELS=…] [RESIDUUM_PEERS=…] python benchmarks/probing.py
    RESIDUUM_DATA=… RESIDUUM_MPNET=… python benchmarks/probing.py paper [--limit SENTENCES]

**Orders.** all-MiniLM-L6-v2 on UD English EWT (UPOS) and gte-small (in the folder RESIDUUM_MODELS) on CoNLL-2000
(chunks), 1,500 and 1,200 training sentences: test accuracy of a converged probe on the first 1, 2.5, 5 and 10 % of the
neurons by forward selection, LCA, probeless and three random orders, and the smallest sets that keep 97 and 99 % of the
accuracy of all neurons on dev. **Permuted.** The same probe again with words and neurons in another order. **NeuroX.**
Its own training function (a checkout in the folder RESIDUUM_PEERS/NeuroX) on 8 probes of UD English PUD (21,000 words,
ten epochs, batches of 128), against the whole table of ours: 16 probes (UPOS and control) with λ2 chosen on held-out
words, test accuracies and intervals. **Sweep.** Nine thresholds from one linkage against correlation and linkage for
each threshold anew.

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
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
from measure import THREADS, data, in_fresh_process, line, minilm, report, watched

SHARES = (0.01, 0.025, 0.05, 0.1)
RANDOM_ORDERS = 3
KEEP = (0.97, 0.99)
THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        holds = ewt_orders(folder) + conll_orders(folder) + neurox_table(folder)
        sweep = in_fresh_process(__file__, "sweep", folder)
        print(f"   sweep: {sweep['ours']:.1f} s against {sweep['again']:.1f} s")
        holds.append(
            line("clustering, nine thresholds: anew / one linkage", sweep["again"] / sweep["ours"], 5, at_least=True)
        )
        holds.append(line("clustering: equal partitions", sweep["equal"], 9, unit="of 9", at_least=True))
    sys.exit(not all(holds))


def ewt_orders(folder: str) -> list[bool]:
    """MiniLM, EWT, UPOS: the default order, the minimal sets, and a permuted run."""
    found = in_fresh_process(__file__, "orders", folder, "ewt")
    print_orders("MiniLM, EWT UPOS", found)
    forward = dict(zip(SHARES, found["forward"], strict=True))
    holds = [
        line(f"MiniLM, EWT UPOS: forward selection, {share:.0%} of neurons", forward[share], limit, "", at_least=True)
        for share, limit in ((0.01, 0.80), (0.05, 0.92), (0.1, 0.935))
    ]
    for keep, limit in ((0.97, 5), (0.99, 10)):
        claim = f"MiniLM, EWT UPOS: neurons that keep {keep:.0%} of the oracle"
        holds.append(line(claim, 100 * found[f"minimal {keep}"], limit, "%"))
    permuted = in_fresh_process(__file__, "permuted", folder)
    holds.append(
        line("words and neurons permuted: equal predictions", 100 * permuted["equal"], 99.9, "%", at_least=True)
    )
    return holds


def conll_orders(folder: str) -> list[bool]:
    """gte-small, CoNLL-2000, chunks: the minimal set."""
    if "RESIDUUM_MODELS" not in os.environ:
        print("   gte-small is left out: set RESIDUUM_MODELS to the folder that holds it.")
        return []
    found = in_fresh_process(__file__, "orders", folder, "conll")
    print_orders("gte-small, CoNLL-2000 chunks", found)
    claim = "gte-small, CoNLL-2000 chunks: neurons that keep 97% of the oracle"
    return [line(claim, 100 * found["minimal 0.97"], 6, "%")]


def print_orders(title: str, found: dict) -> None:
    print(
        f"   {title}: oracle {found['oracle']:.4f} (λ2 = {found['l2']:g}); moments {found['moments seconds']:.0f} s, ",
        end="",
    )
    print(f"forward selection {found['selection seconds']:.0f} s, quick probe {found['quick']:.4f}")
    for name in ("forward", "discriminant", "lca", "probeless", *(f"random {i}" for i in range(RANDOM_ORDERS))):
        print(f"   {name:>12}: " + "  ".join(f"{s:.1%} {v:.3f}" for s, v in zip(SHARES, found[name], strict=True)))
    for keep in KEEP:
        size, kept = found[f"minimal {keep}"], found[f"kept {keep}"]
        print(f"   {keep:.0%} of the oracle: {size:.2%} of neurons, {kept:.2%} kept on test")


def neurox_table(folder: str) -> list[bool]:
    """The whole table of a battery of converged probes against NeuroX's bare training."""
    in_fresh_process(__file__, "extract", folder)
    ours = in_fresh_process(__file__, "table", folder)
    print("   our table (16 probes, λ2 chosen, scores, intervals): ", end="")
    print(f"{ours['seconds']:.1f} s, CPU time {ours['cpu_seconds']:.1f} s")
    if "RESIDUUM_PEERS" not in os.environ:
        print("   NeuroX is left out: set RESIDUUM_PEERS to a folder with a checkout of fdalvi/NeuroX.")
        return []
    neurox = in_fresh_process(__file__, "neurox", folder)
    print(f"   NeuroX (8 probes, training alone): {neurox['seconds']:.1f} s, CPU time {neurox['cpu_seconds']:.1f} s")
    print("   accuracies, ours: " + " ".join(f"{v:.3f}" for v in ours["accuracies"]))
    print("   accuracies, NeuroX: " + " ".join(f"{v:.3f}" for v in neurox["accuracies"]))
    behind = max(b - a for a, b in zip(ours["accuracies"], neurox["accuracies"], strict=True)) * 100
    return [
        line("our whole table / NeuroX's training", ours["seconds"] / neurox["seconds"], 1),
        line("largest lead of NeuroX in accuracy", behind, 0.3, "points"),
    ]


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
    holds.append(line(f"MPNet, EWT ({which}), UPOS: the whole job", job["seconds"], 1200, unit="s"))
    holds.append(line("MPNet, EWT, UPOS: peak memory of all its processes", gigabytes(job), 8, unit="GB"))
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


def task_splits(folder: str, name: str):
    """Train, dev and test of a task; activations are read once per folder."""
    from residuum.probing.examples import labelled_splits

    activations = Path(folder) / name
    if name == "ewt":
        corpus = data("treebanks", "UD_English-EWT")
        return labelled_splits(str(minilm()), corpus, "upos", activations=activations, limit=1500)
    model = Path(os.environ["RESIDUUM_MODELS"], "gte-small")
    return labelled_splits(str(model), data("token", "conll2000"), "chunk", activations=activations, limit=1200)


class Trial:
    """The features of a task in memory, and probes on any neurons of it."""

    def __init__(self, folder: str, name: str):
        import torch

        from residuum.maths.probing import HeldOut
        from residuum.maths.targets import class_target

        torch.set_num_threads(THREADS)
        splits = task_splits(folder, name)
        self.train, self.dev, self.test = (
            np.asarray(part.features(1 << 40)) for part in (splits.train, splits.dev, splits.test)
        )
        self.target = class_target(splits.train.labels)
        self.dev_truth, self.test_truth = (self.target.encode(part.labels) for part in (splits.dev, splits.test))
        self.dev_sentences = np.unique(splits.dev.sentences, return_inverse=True)[1]
        self.held_out = HeldOut(self.dev, {"task": self.dev_truth})

    def solve(self, neurons=None, l1=None, l2=None):
        from residuum.maths.probing import Probe, train_probes

        held_out = self.held_out if l2 is None else None
        return train_probes(self.train, {"task": self.target}, [Probe("task", neurons, l1, l2)], None, held_out)[0]

    def accuracy(self, probe) -> float:
        return float(np.mean(probe.predict(self.test) == self.test_truth))

    def sums(self, probe):
        """Right answers and words per sentence of dev."""
        from residuum.maths.metrics import SentenceSums

        right = np.bincount(self.dev_sentences, weights=probe.predict(self.dev) == self.dev_truth)
        return SentenceSums("accuracy", np.stack([right, np.bincount(self.dev_sentences)], axis=1))


def run_orders(folder: str, name: str) -> None:
    """Accuracies of heads of several orders, and minimal sets of the default one."""
    from residuum.maths.metrics import paired_loss
    from residuum.maths.probing import Probe
    from residuum.maths.rankings import LCA_PENALTY, class_sums, lca_ranking, probeless_ranking, random_rankings
    from residuum.maths.selection import smallest_sufficient_set
    from residuum.maths.task_moments import forward_selection, quick_probes, task_moments

    trial = Trial(folder, name)
    start = time.perf_counter()
    moments = task_moments(trial.train, trial.target)
    moments_seconds, start = time.perf_counter() - start, time.perf_counter()
    orders = {"forward": forward_selection(moments).order}
    selection_seconds = time.perf_counter() - start
    oracle, n_neurons = trial.solve(), trial.train.shape[1]
    orders["discriminant"] = forward_selection(moments, discriminant=True).order
    orders["lca"] = lca_ranking(trial.solve(None, *LCA_PENALTY).weight).order
    orders["probeless"] = probeless_ranking(class_sums(trial.train, trial.target.values, trial.target.n_classes)).order
    for i, ranking in enumerate(random_rankings(n_neurons, np.random.default_rng(0), RANDOM_ORDERS)):
        orders[f"random {i}"] = ranking.order
    found = {
        key: [trial.accuracy(trial.solve(order[: round(share * n_neurons)])) for share in SHARES]
        for key, order in orders.items()
    }
    whole, score = trial.sums(oracle), trial.accuracy(oracle)
    for keep in KEEP:
        probes: dict[int, object] = {}

        def measure(sets, keep=keep, probes=probes):
            probes |= {len(own): trial.solve(own) for own in sets}
            return [paired_loss(trial.sums(probes[len(own)]), whole, keep) for own in sets]

        minimal = smallest_sufficient_set(orders["forward"], measure)
        found[f"minimal {keep}"] = len(minimal.neurons) / n_neurons
        found[f"kept {keep}"] = trial.accuracy(probes[len(minimal.neurons)]) / score
    seconds = {"moments seconds": moments_seconds, "selection seconds": selection_seconds}
    quick = trial.accuracy(quick_probes(moments, [Probe("task")])[0])
    report(oracle=score, l2=oracle.penalty[1], quick=quick, **seconds, **found)


def run_permuted(folder: str) -> None:
    from residuum.maths.probing import Probe, train_probes
    from residuum.maths.targets import Target

    trial, rng = Trial(folder, "ewt"), np.random.default_rng(0)
    words, neurons = rng.permutation(len(trial.train)), rng.permutation(trial.train.shape[1])
    first = trial.solve(l2=1e-2).predict(trial.test)
    target = Target(trial.target.values[words], trial.target.classes)
    (again,) = train_probes(trial.train[words][:, neurons], {"task": target}, [Probe("task", l2=1e-2)])
    report(equal=float(np.mean(again.predict(trial.test[:, neurons]) == first)))


def extract_store(folder: str) -> None:
    from residuum import extract, load_model, read_corpus

    corpus = read_corpus(data("treebanks", "UD_English-PUD"))
    extract(load_model(minilm()), corpus, Path(folder) / "acts", progress=False)
    report()


def pud(folder: str):
    """Features and labels of PUD in memory: 900 sentences to learn from, 100 to test on, and their words."""
    from residuum import open_store, read_corpus
    from residuum.probing.examples import examples

    corpus = read_corpus(data("treebanks", "UD_English-PUD"))
    whole = examples(open_store(Path(folder) / "acts"), corpus.labels["upos"])
    train, test = whole.select(range(900)), whole.select(range(900, 1000))
    layout = train.layout
    sets = [*(layout.layer_slice(layer) for layer in layout.layers), None]
    return train, test, np.asarray(train.features(1 << 40)), np.asarray(test.features(1 << 40)), sets


def run_table(folder: str) -> None:
    """16 probes with λ2 chosen on a tenth of the training sentences, their test accuracies, and intervals."""
    import torch

    from residuum.maths.probing import HeldOut, Probe, predict_probes, train_probes
    from residuum.maths.statistics import bootstrap_ratio
    from residuum.maths.targets import Target, class_target, control_task

    torch.set_num_threads(THREADS)
    train, test, x, held, sets = pud(folder)
    target, control = class_target(train.labels), control_task(train.labels)
    truths = {"task": target.encode(test.labels), "control": control.values(test.words)}
    targets = {"task": target, "control": control.target(train.words)}
    sentences = np.unique(test.sentences, return_inverse=True)[1]
    start, cpu = time.perf_counter(), time.process_time()
    dev = np.isin(train.sentences, np.unique(train.sentences)[::10])
    learning = {name: Target(own.values[~dev], own.classes) for name, own in targets.items()}
    tasks = [Probe("task", neurons) for neurons in sets]
    trained = train_probes(x[~dev], learning, tasks, None, HeldOut(x[dev], {"task": target.values[dev]}))
    controls = [Probe("control", own.probe.neurons, l2=own.penalty[1]) for own in trained]
    trained += train_probes(x[~dev], learning, controls)
    accuracies = []
    for probe, predicted in zip(trained, predict_probes(trained, held), strict=True):
        right = np.bincount(sentences, weights=predicted == truths[probe.probe.target])
        interval = bootstrap_ratio(right, np.bincount(sentences))
        if probe.probe.target == "task":
            accuracies.append(float(interval.value))
    report(seconds=time.perf_counter() - start, cpu_seconds=time.process_time() - cpu, accuracies=accuracies)


def run_neurox(folder: str) -> None:
    """NeuroX's own training function on the 8 probes of the task, at the papers' penalties."""
    import torch

    sys.path.insert(0, str(Path(os.environ["RESIDUUM_PEERS"], "NeuroX")))
    if find_spec("imblearn") is None:  # NeuroX imports it to balance classes, which its training does not do
        sys.modules["imblearn"] = sys.modules["imblearn.under_sampling"] = ModuleType("imblearn")
        sys.modules["imblearn"].RandomUnderSampler = None  # pyright: ignore[reportAttributeAccessIssue]
    from neurox.interpretation.linear_probe import train_logistic_regression_probe

    from residuum.maths.targets import class_target

    torch.set_num_threads(THREADS)
    train, test, x, held, sets = pud(folder)
    target = class_target(train.labels)
    parts = [np.ascontiguousarray(x[:, slice(None) if own is None else own]) for own in sets]
    start, cpu = time.perf_counter(), time.process_time()
    trained = [
        train_logistic_regression_probe(part, target.values, lambda_l1=1e-5, lambda_l2=1e-5, batch_size=128)
        for part in parts
    ]
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    truth, accuracies = target.encode(test.labels), []
    with torch.no_grad():
        for own, probe in zip(sets, trained, strict=True):
            part = torch.from_numpy(np.ascontiguousarray(held[:, slice(None) if own is None else own]))
            accuracies.append(float(np.mean(probe(part).argmax(dim=1).numpy() == truth)))
    report(seconds=seconds, cpu_seconds=cpu_seconds, accuracies=accuracies)


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
    commands = {
        "make": make_store,
        "clusters": run_clusters,
        "extract": extract_store,
        "orders": run_orders,
        "permuted": run_permuted,
        "table": run_table,
        "neurox": run_neurox,
        "sweep": run_sweep,
    }
    if command == "main":
        main()
    elif command == "paper":
        paper(arguments[1] if arguments[:1] == ["--limit"] else None)
    else:
        commands[command](*arguments)
