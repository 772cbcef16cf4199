"""A real Dask cluster of two processes on loopback gives what one process gives, also when a worker is killed."""

import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from made_stores import known_data
from residuum import load_model, open_store
from residuum.activations import extraction
from residuum.activations.correlation import neuron_moments
from residuum.activations.extraction import extract
from residuum.activations.group_tasks import _model_here
from residuum.activations.store import StoreWriter, read_manifest
from residuum.comparison.compare import compare
from residuum.corpus import Corpus
from residuum.engine import opened_engine, reduce_tasks, run_tasks
from residuum.errors import DataError, ModelError, SettingError
from residuum.maths.probing import PaperRecipe, Probe
from residuum.models.loading import from_transformers
from residuum.probing.examples import labelled_splits
from residuum.probing.probe_data import TASK, ProbeData, probe_cells
from residuum.probing.redundancy import redundancy
from tiny import TEXT

distributed = pytest.importorskip("distributed")
CORPUS = Corpus("text", [sentence.split() for sentence in islice(cycle(TEXT), 120)])
SMALL = {"shard_words": 20, "progress": False}


@pytest.fixture(scope="module", autouse=True)
def _many_tasks():
    """Small text cut as finely as a large one would be."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(extraction, "GROUP_SHARDS", 1)
        patched.setattr("residuum.engine.TASK_ROWS", 100)
        yield


@pytest.fixture(scope="module")
def cluster():
    with opened_engine("dask", workers=2) as engine:
        yield engine


@pytest.fixture(scope="module")
def model(tiny_folder):
    return load_model(tiny_folder("bert"))


@pytest.fixture(scope="module")
def alone(model, tmp_path_factory):
    """The store that one worker writes: this process, with one thread."""
    return extract(model, CORPUS, tmp_path_factory.mktemp("alone") / "acts", workers=1, **SMALL)


def checksums(store):
    return [shard.checksum for shard in store.manifest.shards]


def same_moments(a, b):
    mine, theirs = a.to_arrays(), b.to_arrays()
    return mine.keys() == theirs.keys() and all((mine[name] == theirs[name]).all() for name in mine)


def slow_power(base, exponent):
    time.sleep(0.3)
    return base**exponent


def fail():
    raise DataError("No words.")


def pages_of_tensors():
    """The new pages that 200 tensors of 1 MB ask for, one after another: hundreds each where nothing is used again.

    Larger ones may be given pages of 2 MB, of which a few are enough.
    """
    import resource

    np.ones(1 << 18, np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(200):
        np.ones(1 << 18, np.float32)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def kill_a_worker(engine):
    victim = next(iter(engine.client.run(os.getpid).values()))
    os.kill(victim, signal.SIGKILL)
    return victim


def test_results_come_in_order_and_sums_are_merged_there(cluster):
    assert list(run_tasks(pow, [(2, n) for n in range(20)], cluster)) == [2**n for n in range(20)]
    groups = [[(2, n) for n in range(stop)] for stop in (3, 1, 20)]
    told = []
    assert list(reduce_tasks(pow, groups, int.__add__, cluster, lambda *a: told.append(a))) == [7, 1, 2**20 - 1]
    assert len(told) == 24


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have no such threshold")
def test_a_worker_uses_freed_memory_again(cluster):
    """Dask tells its workers not to; a process that is told so and left alone asks for every page anew."""
    told = cluster.client.run(lambda: os.environ.get("MALLOC_TRIM_THRESHOLD_"))
    assert set(told.values()) == {"65536"}
    alone = "from test_cluster import pages_of_tensors; print(pages_of_tensors())"
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536", "PYTHONPATH": str(Path(__file__).parent)}
    assert int(subprocess.check_output([sys.executable, "-c", alone], env=environment)) > 10_000
    assert max(run_tasks(pages_of_tensors, [()], cluster)) < 2_000
    assert max(run_tasks(pages_of_tensors, [(), ()], 2)) < 2_000  # processes begun beside a cluster


@pytest.mark.slow
def test_a_users_mistake_comes_back_as_itself(cluster):
    with pytest.raises(DataError, match="No words."):
        list(run_tasks(fail, [()], cluster))


@pytest.mark.slow
def test_tasks_of_a_killed_worker_are_run_again(cluster):
    results = run_tasks(slow_power, [(3, n) for n in range(12)], cluster)
    found = [next(results)]
    victim = kill_a_worker(cluster)
    assert [*found, *results] == [3**n for n in range(12)]
    assert victim not in cluster.client.run(os.getpid).values()


def test_extraction_and_moments_survive_a_killed_worker_to_the_bit(cluster, alone, model, tmp_path):
    folder, left = tmp_path / "acts", []

    def kill_half_way():
        while len(list(folder.glob("shard-*"))) < 5:
            time.sleep(0.005)
        kill_a_worker(cluster)
        left.append(len(alone.manifest.shards) - len(list(folder.glob("shard-*.safetensors"))))

    killer = threading.Thread(target=kill_half_way)
    killer.start()
    store = extract(model, CORPUS, folder, workers=cluster, **SMALL)
    killer.join()
    assert left[0] > 0, "the worker died after the work"
    assert checksums(store) == checksums(alone)
    assert store.audit == alone.audit
    assert same_moments(neuron_moments(store, workers=cluster), neuron_moments(alone, workers=1))


def test_a_comparison_is_the_same_on_a_cluster(cluster, alone, tmp_path):
    settings = {"measures": "cka,svcca,rsa", "groups": 3, "null": True, "progress": False}
    there = compare([alone], workers=cluster, out=tmp_path / "there", **settings)
    here = compare([alone], workers=1, out=tmp_path / "here", **settings)
    assert there.frame.equals(here.frame)
    assert there.curves.equals(here.curves)


@pytest.mark.parametrize("processes", [2, None])
def test_probes_learn_the_same_whoever_trains_them(processes, request, tmp_path, monkeypatch):
    monkeypatch.setattr("residuum.probing.probe_data.CELL_WEIGHTS", 100)
    data = known_data()
    splits = labelled_splits(data.store(tmp_path / "known"), data.tags)
    probes = [Probe(TASK, neurons, seed=seed) for seed in (0, 1) for neurons in (None, slice(0, 8), slice(8, 16))]
    workers = processes or request.getfixturevalue("cluster")
    alone, shared, at_once = (
        ProbeData(splits, PaperRecipe(epochs=2), workers=who).train(probes) for who in (1, workers, None)
    )
    for one, other, together in zip(alone, shared, at_once, strict=True):
        assert (one.weight == other.weight).all()
        assert (one.bias == other.bias).all()
        np.testing.assert_allclose(one.weight, together.weight, atol=1e-5)


@pytest.mark.parametrize("processes", [2, None])
def test_slow_clusters_are_the_same_whoever_finds_them(processes, request, tmp_path):
    data = known_data()
    store = data.store(tmp_path / "known")
    settings = {"thresholds": (0.2, 0.9), "clusters": "kmeans", "agreement": (0.5,), "progress": False}
    alone = redundancy(store, workers=1, **settings)
    workers = processes or request.getfixturevalue("cluster")
    shared = redundancy(store, workers=workers, out=tmp_path / "run", **settings)
    pd.testing.assert_frame_equal(alone.neurons, shared.neurons)
    pd.testing.assert_frame_equal(alone.run.tables["agreement"], shared.run.tables["agreement"])
    assert not list((tmp_path / "run").glob("**/distances.npy"))


def test_cells_have_one_seed_and_every_probe_once():
    probes = [Probe(TASK, seed=seed) for seed in (1, 0, 1, 0, 1)]
    assert probe_cells(probes, [300_000] * 5, 1_000_000) == [[1, 3], [0, 2, 4]]
    assert probe_cells(probes, [600_000] * 5, 1_000_000) == [[1], [3], [0], [2], [4]]


def test_a_model_that_only_this_process_has_is_not_sent(cluster, model, tmp_path):
    mine = from_transformers(model.module, model.tokenizer, name="mine")
    with pytest.raises(ModelError, match="mine exists in this process only, and workers load it themselves"):
        extract(mine, CORPUS, tmp_path / "acts", workers=cluster, **SMALL)


def test_a_model_changed_after_loading_is_not_taken_for_the_one_on_disk(cluster, tiny_folder, tmp_path):
    model = load_model(tiny_folder("bert"))
    next(model.module.parameters()).data += 1
    with pytest.raises(ModelError, match="has other weights on a worker than the model that was given"):
        extract(model, CORPUS, tmp_path / "acts", workers=cluster, **SMALL)


def test_a_worker_that_refused_one_model_still_reads_with_the_one_before(model):
    for _ in range(2):
        assert _model_here(model.origin, model.fingerprint).fingerprint == model.fingerprint
        with pytest.raises(ModelError, match="has other weights on a worker"):
            _model_here(model.origin, "of other weights")


def test_a_scheduler_that_does_not_answer_is_said(monkeypatch):
    monkeypatch.setattr("residuum.engine.SECONDS", 0.2)
    message = "No Dask scheduler answers at tcp://127.0.0.1:1"
    with pytest.raises(SettingError, match=message), opened_engine("dask", scheduler="tcp://127.0.0.1:1"):
        pass


def test_an_address_connects_to_the_cluster_that_is_there(cluster):
    with opened_engine("dask", scheduler=cluster.client.scheduler.address) as engine:
        assert list(run_tasks(pow, [(2, 5)], engine)) == [32]


def tasks_done(engine):
    """How many tasks each worker has run."""
    return sum(engine.client.run(lambda dask_worker: dask_worker.state.executed_count).values())


def test_the_command_line_reaches_a_cluster_by_its_address(cluster, run, tiny_folder, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(map(" ".join, CORPUS.sentences)), encoding="utf-8")
    words = ["extract", tiny_folder("bert"), tmp_path / "text.txt", "--shard-words", 20, "--out"]
    assert run(*words, tmp_path / "here", "--workers", 1)[0] == 0
    before, address = tasks_done(cluster), cluster.client.scheduler.address
    status, said, _ = run(*words, tmp_path / "there", "--engine", "dask", "--scheduler", address)
    assert status == 0
    assert f"are in {tmp_path / 'there'}." in said
    here, there = (open_store(tmp_path / name) for name in ("here", "there"))
    assert there.fingerprint == here.fingerprint
    assert tasks_done(cluster) - before >= len(there.manifest.shards) > 10, "the cluster did the work"


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tls://127.0.0.1:1", "nonsense"])
def test_the_command_line_says_in_one_line_that_no_scheduler_answers(address, run, tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("residuum.engine.SECONDS", 0.2)
    (tmp_path / "text.txt").write_text("The fox reads.")
    words = ["extract", tiny_folder("bert"), tmp_path / "text.txt", "--out", tmp_path / "acts"]
    status, _, said = run(*words, "--engine", "dask", "--scheduler", address)
    assert status == 1
    assert re.fullmatch(rf"residuum: No Dask scheduler answers at {address} \(.+\); start one, or give .+\n", said)
    assert not (tmp_path / "acts").exists()


def test_processes_of_this_machine_write_the_same_bytes(alone, model, tmp_path):
    store = extract(model, CORPUS, tmp_path / "acts", workers=2, **SMALL)
    assert checksums(store) == checksums(alone)
    assert same_moments(neuron_moments(store, workers=2), neuron_moments(alone, workers=1))
    assert open_store(store.path).verify() == []


def test_an_extraction_that_was_stopped_goes_on_with_any_number_of_workers(alone, model, tmp_path, monkeypatch):
    folder, note = tmp_path / "acts", StoreWriter.note
    with monkeypatch.context() as patched:
        patched.setattr(StoreWriter, "note", stop_after(3, note))
        with pytest.raises(KeyboardInterrupt):
            extract(model, CORPUS, folder, workers=1, **SMALL)
    assert sum(shard.written for shard in read_manifest(folder).shards) == 3
    assert checksums(extract(model, CORPUS, folder, workers=2, **SMALL)) == checksums(alone)


def stop_after(n, note):
    calls = iter([note] * n)

    def noted(*arguments):
        next(calls, stop)(*arguments)

    return noted


def stop(*_):
    raise KeyboardInterrupt
