"""What long work will take: scaled by what it grows with, said in one way, and nothing written."""

from itertools import cycle, islice
from math import ceil

import numpy as np
import pytest
from typer.testing import CliRunner

from made_stores import HIDDEN, known_data
from residuum import compare_cost, extract_cost, load_model, probe_cost, rank_cost, redundancy_cost
from residuum.cli import app
from residuum.corpus import Corpus
from residuum.costs import (
    Cost,
    Step,
    array_step,
    clustering_step,
    duration,
    evaluation_step,
    moments_step,
    operations_a_second,
    partition_steps,
    size,
    spread,
    within,
)
from residuum.engine import Engine
from residuum.errors import MemoryLimitError
from residuum.maths.neuron_ids import NeuronLayout
from residuum.probing.batteries import step_seconds
from residuum.probing.examples import labelled_splits
from residuum.probing.rank_costs import _gaussian_seconds
from residuum.probing.sampling import Sample
from residuum.probing.task_costs import labelled_data
from tiny import TEXT

ONE = Engine(1)
CORPUS = Corpus("text", [sentence.split() for sentence in islice(cycle(TEXT), 300)])
DATA = known_data()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return DATA.store(tmp_path_factory.mktemp("costs") / "known")


def test_tasks_are_taken_in_turn():
    step = Step("sums", seconds=12.0, tasks=6)
    assert [step.lasts(workers) for workers in (1, 2, 4, 6, 100)] == [12.0, 6.0, 4.0, 2.0, 2.0]


def test_a_cost_is_the_sum_of_its_steps_and_the_largest_memory():
    cost = Cost("all", (Step("a", 10.0, 10, memory=5, disk=7), Step("b", 3.0, memory=9, disk=1)), workers=5)
    assert (cost.seconds, cost.memory, cost.disk) == (5.0, 9, 8)


def test_what_may_not_be_held_at_once_is_taken_by_fewer_workers():
    step = Step("probes", seconds=12.0, tasks=6, memory=10, at_once=2)
    assert [step.lasts(workers) for workers in (1, 2, 6)] == [12.0, 6.0, 6.0]
    assert Cost("all", (step,), workers=6).largest == (step, 20)
    assert Cost("all", (step,), workers=6, elsewhere=True).largest == (step, 10)


def test_more_than_the_memory_is_refused_naming_the_step_what_it_needs_and_what_to_do():
    cost = Cost("bert: 5 words", (Step("reading", 1.0, memory=10**6), Step("training", 1.0, 4, memory=2 * 10**9)), 2)
    assert within(cost, None) is cost
    assert within(cost, 4 * 10**9) is cost
    said = r"^The step 'training' of bert: 5 words needs 4\.00 GB of memory, but --max-memory allows 3\.99 GB\. Wait\.$"
    with pytest.raises(MemoryLimitError, match=said):
        within(cost, 3_990_000_000, "Wait")


def test_samples_are_spread_over_all():
    assert spread(10, 3) == [0, 4, 9]
    assert spread(2, 5) == [0, 1]


def test_the_speed_of_the_machine_is_measured():
    assert 1e7 < operations_a_second(0.001) < 1e17


def test_a_cost_reads_as_lines():
    cost = Cost("bert: 5 words", (Step("extraction", 7200.0, 4, memory=2 * 10**9, disk=3 * 10**12),), workers=2)
    first, second = str(cost).splitlines()
    assert first == "bert: 5 words: about 60 min with 2 workers, 2.0 GB in memory, 3.0 TB on disk"
    assert second.split() == "extraction 60 min 2.0 GB in memory 3.0 TB on disk".split()


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.31, "0.3 s"), (12, "12 s"), (119, "119 s"), (121, "2.0 min"), (7200, "2.0 h"), (86_400 * 20, "20 d")],
)
def test_durations_are_said_as_one_would(seconds, said):
    assert duration(seconds) == said


def test_sizes_are_said_as_one_would():
    assert [size(n) for n in (3_100_000, 2.5e9, 1.02e14)] == ["3 MB", "2.5 GB", "102.0 TB"]


def test_moments_grow_with_words_with_tasks_and_with_the_pairs_of_layers(monkeypatch):
    measured = []

    def seconds(work, times=3):
        measured.append(work)
        return 1.5 if len(measured) % 2 else 3.0  # of a task with one chunk, and with three more: 1 + ½ a chunk

    monkeypatch.setattr("residuum.costs._quickest", seconds)
    step = moments_step("sums", [64] * 5, words=1024, tasks=3, engine=ONE)
    assert step.seconds == pytest.approx(2 * 0.5 + 3 * 1)
    assert step.memory == 15 * 64 * 64 * 8 + 512 * 8 * 320
    monkeypatch.setattr("residuum.costs.SCATTER", 3 * 64 * 64 * 8)  # two layers: three pairs of fifteen
    assert moments_step("sums", [64] * 5, 1024, 3, ONE).seconds == pytest.approx(5 * (2 * 0.5 + 3 * 1))


def test_measures_grow_with_replicates():
    once, often = (evaluation_step([16] * 4, ["cka"], n, ONE) for n in (1, 11))
    assert often.tasks == 11
    assert often.seconds > once.seconds > 0
    assert often.disk == 11 * once.disk


def test_clustering_grows_a_little_faster_than_the_square_of_the_neurons(monkeypatch):
    monkeypatch.setattr("residuum.costs._quickest", lambda work, times=3: 1.0)
    assert clustering_step(3000, 7).seconds == 1
    assert clustering_step(20_000, 7).seconds == pytest.approx(4**2.2)
    assert clustering_step(3000, 7).memory == 7


def test_a_measure_of_sampled_words_is_one_task():
    assert array_step("rsa", [8, 8], 50, 3, memory=7).tasks == 1


def test_extraction_counts_words_layers_and_bytes(tiny_folder):
    model = load_model(tiny_folder("bert"))
    whole = extract_cost(model, CORPUS, workers=1)
    half = extract_cost(model, CORPUS, layers=[0, 1], dtype="float16", workers=2)
    (step,) = whole.steps
    assert step.disk == 4 * CORPUS.n_words * 4 * 16
    assert half.disk == step.disk / 4
    assert step.seconds > 0
    assert half.workers == 2
    assert "words × 4 layers" in str(whole)


def test_a_comparison_lists_its_parts(store):
    cost = compare_cost([store], measures="cka,rsa", groups=4, workers=1)
    assert [step.name for step in cost.steps] == ["contexts and sample", "moments", "measures", "rsa"]
    assert cost.steps[2].tasks == 5
    tight = compare_cost([store], measures="cka", groups=4, workers=1, max_memory=104_000)
    assert "passes" in tight.steps[1].name


def test_probes_count_weights(store, monkeypatch):
    monkeypatch.setattr("residuum.probing.task_costs.step_seconds", weights_of_step)
    splits = labelled_splits(store, DATA.tags)
    cost = probe_cost(store, DATA.tags, "labels", seeds=2, subsets=False, workers=1)
    layers = 3 * (HIDDEN + 1) + 3 * HIDDEN + 1  # each of three, and all of them
    learnt = 10 * ceil(len(splits.train) / 128)
    scored = (len(splits.dev) + len(splits.test)) / 128 / 3  # no gradient, and no step
    assert cost.seconds == pytest.approx(
        (learnt + scored) * 2 * 2 * 3 * layers
    )  # two seeds, two targets, three classes


def weights_of_step(n_neurons, widths, rows, batch, threads, *, picked=False):
    return rows * sum(width + 1 for width in widths)


@pytest.mark.parametrize("picked", [False, True])
@pytest.mark.parametrize(
    ("rows", "batch", "widths"),
    [
        (6, 32, (16, 16, 48)),
        (1, 32, (16,)),
        (3, 32, (9000,)),
        (2, 32, (9001, 9001)),
        (130, 600, (3000, 3000, 3000, 9000)),
    ],
)
def test_a_sample_of_a_battery_stands_for_all_its_weights_and_words(picked, rows, batch, widths, monkeypatch):
    clock = Clock()
    monkeypatch.setattr("residuum.probing.batteries.time.perf_counter", clock.now)
    monkeypatch.setattr("residuum.probing.batteries.fit", clock.fit)
    monkeypatch.setattr("residuum.probing.batteries.MOST_COLUMNS", 5000)
    found = step_seconds(max(widths), widths, rows, batch, picked=picked)
    assert found == pytest.approx(rows * batch * sum(widths))
    assert clock.columns <= 5000
    assert clock.kinds == {np.ndarray if picked else slice}


def test_steps_that_are_quicker_than_the_noise_still_take_time(monkeypatch):
    times = iter([0.0, 0.5, 0.5, 1.0, 1.0, 1.5, 1.5, 1.9, 1.9, 2.3, 2.3, 2.7])  # four steps 0.5 s, fourteen 0.4 s
    monkeypatch.setattr("residuum.probing.batteries.time.perf_counter", lambda: next(times))
    monkeypatch.setattr("residuum.probing.batteries.fit", lambda *_: None)
    assert step_seconds.__wrapped__(16, (16,), 3, 32) == pytest.approx(0.4 / 14)


class Clock:
    """Time goes by with the weights and words that are learnt, and with the first word of all."""

    def __init__(self):
        self.time, self.columns, self.kinds = 0, 0, set()

    def now(self):
        return self.time

    def fit(self, features, targets, probes, recipe):
        assert len(features) % recipe.batch_size == 0
        widths = [len(np.arange(features.shape[1])[probe.neurons]) for probe in probes]
        self.columns = max(self.columns, sum(widths))
        self.kinds |= {type(probe.neurons) for probe in probes}
        rows = max(1, targets["task"].n_classes)
        self.time += 1000 + rows * len(features) * sum(widths)


def test_every_candidate_of_a_choice_is_counted(tiny_folder):
    choices = Corpus(
        name="choices",
        sentences=[["one", "two"]] * 20,
        sentence_labels={"label": [str(i % 3) for i in range(20)]},
        choices=[["a", "b", "c"]] * 20,
    )
    found = labelled_data(load_model(tiny_folder("bert")), choices, "choice")
    assert (found.n_examples, found.n_train, found.n_classes) == (60, 48, 2)


def test_every_command_of_a_task_has_its_steps(store):
    ranked = rank_cost(store, DATA.tags, "labels", methods=["lca"], shares=[0.1], penalty="search")
    assert [step.name for step in ranked.steps] == [
        "search of penalties",
        "probes of all neurons",
        "top and bottom neurons",
        "search of the fewest neurons",
    ]
    sampled = rank_cost(store, DATA.tags, "labels", methods=["lca", "iou"], by="gaussian", sample=50, random_twin=True)
    assert [step.name for step in sampled.steps if "ranking" in step.name] == [
        "gaussian ranking",
        "iou ranking",
        "gaussian ranking of the twin",
    ]
    general = redundancy_cost(store, thresholds=[0.3])
    assert [step.name for step in general.steps] == ["correlation", "clustering"]
    task = redundancy_cost(store, DATA.tags, "labels", thresholds=[0.3])
    assert [step.name for step in task.steps][2:] == [
        "probes of layers",
        "probes of clusters",
        "search of the fewest neurons",
    ]
    twin = redundancy_cost(store, DATA.tags, "labels", thresholds=[0, 0.3], random_twin=True)
    assert twin.steps[-1].name == "probes of the twin"


def test_clusters_of_other_methods_are_counted_once_for_each_threshold(store, monkeypatch):
    settings = {"thresholds": [0.3, 0.5], "focus": 0.3, "agreement": [0.5, 0.7]}
    names = {step.name: step.tasks for step in redundancy_cost(store, clusters="kmeans", **settings).steps}
    assert names == {"correlation": 1, "clustering": 1, "k-means": 3, "DBSCAN": 2}
    monkeypatch.setattr("residuum.costs._quickest", lambda work, times=3: 1.0)
    slow, quick = partition_steps(8000, [0.5, 0.75], [0.5], ONE, 100 * 8000**2)
    assert slow.seconds == pytest.approx(64 * (4000 + 2000) / 125)
    assert quick.seconds == pytest.approx(64)
    assert (slow.memory, slow.beside, slow.at_once) == (20 * 8000**2, 8 * 8000**2, 4)


def test_a_description_length_takes_as_long_as_the_probes_of_one_seed_and_copies_half_of_the_words(store, monkeypatch):
    monkeypatch.setattr("residuum.probing.task_costs.step_seconds", weights_of_step)
    settings = {"seeds": 1, "subsets": False, "workers": 4}
    probes, lengths = probe_cost(store, DATA.tags, "labels", description_length=True, **settings).steps
    assert lengths.name == "description lengths"
    assert lengths.tasks == 1
    assert lengths.seconds == pytest.approx(probes.seconds, rel=0.01)
    train = 4 * 3 * HIDDEN * len(labelled_splits(store, DATA.tags).train)
    assert lengths.memory == pytest.approx(probes.memory + train / 2)
    tight = probe_cost(store, DATA.tags, "labels", description_length=True, max_memory=train, **settings).steps[-1]
    assert tight.memory < train + lengths.memory - probes.memory


def test_the_gaussian_ranking_grows_with_the_words_and_is_said_to_hold_no_more_than_the_memory(monkeypatch):
    monkeypatch.setattr("residuum.probing.rank_costs.timed", lambda work: 1.0)
    wide = NeuronLayout((1024,) * 25)
    few, many = (_gaussian_seconds(Sample.of(n, wide, 17, n, 4 << 30)) for n in (2000, 4000))
    assert many - few == pytest.approx(500 * 2000 / 512)
    for memory in (1 << 29, 1 << 30, 4 << 30):
        assert Sample.of(10**6, wide, 17, 20_000, memory).n_bytes("gaussian") <= memory


def test_a_model_is_read_first(tiny_folder):
    model = load_model(tiny_folder("bert"))
    cost = redundancy_cost(model, CORPUS, thresholds=[0.3])
    assert [step.name for step in cost.steps] == ["extraction", "correlation", "clustering"]
    tagged = Corpus("text", CORPUS.sentences, labels={"upos": [["A"] * len(words) for words in CORPUS.sentences]})
    names = [step.name for step in probe_cost(model, tagged, "upos", random_twin=True).steps]
    assert names == ["extraction"] * 3 + ["probes"] + ["extraction"] * 3 + ["probes of the twin"]


def test_the_command_line_says_it_and_writes_nothing(store, tmp_path):
    out = tmp_path / "run"
    done = CliRunner().invoke(app, ["compare", str(store.path), "--out", str(out), "--estimate", "--workers", "1"])
    assert done.exit_code == 0, done.output
    assert "about" in done.output
    assert not out.exists()
