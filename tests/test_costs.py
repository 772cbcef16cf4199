"""What long work will take: scaled by what it grows with, said in one way, and nothing written."""

from itertools import cycle, islice

import pytest
from typer.testing import CliRunner

from made_stores import known_data
from residuum import compare, extract, load_model
from residuum.cli import app
from residuum.comparison.costs import array_step, evaluation_step, moments_step
from residuum.corpus import Corpus
from residuum.costs import (
    Cost,
    CostStep,
    duration,
    operations_a_second,
    size,
    spread,
    within,
)
from residuum.engine import Engine
from residuum.errors import MemoryLimitError
from tiny import TEXT

ONE = Engine(1)
CORPUS = Corpus("text", [sentence.split() for sentence in islice(cycle(TEXT), 300)])
DATA = known_data()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return DATA.store(tmp_path_factory.mktemp("costs") / "known")


def test_tasks_are_taken_in_turn():
    step = CostStep("sums", seconds=12.0, tasks=6)
    assert [step.lasts(workers) for workers in (1, 2, 4, 6, 100)] == [12.0, 6.0, 4.0, 2.0, 2.0]


def test_a_cost_is_the_sum_of_its_steps_and_the_largest_memory():
    cost = Cost("all", (CostStep("a", 10.0, 10, memory=5, disk=7), CostStep("b", 3.0, memory=9, disk=1)), workers=5)
    assert (cost.seconds, cost.memory, cost.disk) == (5.0, 9, 8)


def test_what_may_not_be_held_at_once_is_taken_by_fewer_workers():
    step = CostStep("probes", seconds=12.0, tasks=6, memory=10, at_once=2)
    assert [step.lasts(workers) for workers in (1, 2, 6)] == [12.0, 6.0, 6.0]
    assert Cost("all", (step,), workers=6).largest == (step, 20)
    assert Cost("all", (step,), workers=6, elsewhere=True).largest == (step, 10)


def test_more_than_the_memory_is_refused_naming_the_step_what_it_needs_and_what_to_do():
    cost = Cost(
        "bert: 5 words", (CostStep("reading", 1.0, memory=10**6), CostStep("training", 1.0, 4, memory=2 * 10**9)), 2
    )
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
    cost = Cost("bert: 5 words", (CostStep("extraction", 7200.0, 4, memory=2 * 10**9, disk=3 * 10**12),), workers=2)
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

    monkeypatch.setattr("residuum.comparison.costs.quickest", seconds)
    step = moments_step("sums", [64] * 5, words=1024, tasks=3, engine=ONE)
    assert step.seconds == pytest.approx(2 * 0.5 + 3 * 1)
    assert step.memory == 15 * 64 * 64 * 8 + 512 * 8 * 320
    monkeypatch.setattr("residuum.comparison.costs.SCATTER", 3 * 64 * 64 * 8)  # two layers: three pairs of fifteen
    assert moments_step("sums", [64] * 5, 1024, 3, ONE).seconds == pytest.approx(5 * (2 * 0.5 + 3 * 1))


def test_measures_grow_with_replicates():
    once, often = (evaluation_step([16] * 4, ["cka"], n, threads=1) for n in (1, 11))
    assert often.tasks == 1
    assert often.seconds > once.seconds > 0


def test_groups_are_kept_on_disk_for_intervals(store):
    settings = {"measures": "cka", "workers": 1}
    none, some = (compare.estimate([store], groups=4, intervals=known, **settings).steps[1] for known in (False, True))
    assert none.disk == 0
    assert some.disk == 4 * 6 * 8 * 8 * 8


def test_a_measure_of_sampled_words_is_one_task():
    assert array_step("rsa", [8, 8], 50, 3, memory=7).tasks == 1


def test_extraction_counts_words_layers_and_bytes(tiny_folder):
    model = load_model(tiny_folder("bert"))
    whole = extract.estimate(model, CORPUS, "none", workers=1)
    half = extract.estimate(model, CORPUS, "none", layers=[0, 1], dtype="float16", workers=2)
    (step,) = whole.steps
    assert step.disk == 4 * CORPUS.n_words * 4 * 16
    assert half.disk == step.disk / 4
    assert step.seconds > 0
    assert half.workers == 2
    assert "words × 4 layers" in str(whole)


def test_a_comparison_lists_its_parts(store):
    cost = compare.estimate([store], measures="cka,rsa", groups=4, workers=1)
    assert [step.name for step in cost.steps] == ["contexts and sample", "moments", "measures", "rsa"]
    assert cost.steps[2].tasks == 1
    tight = compare.estimate([store], measures="cka", groups=4, workers=1, max_memory=108_000)
    assert "passes" in tight.steps[1].name


def test_the_command_line_says_it_and_writes_nothing(store, tmp_path):
    out = tmp_path / "run"
    done = CliRunner().invoke(app, ["compare", str(store.path), "--out", str(out), "--estimate", "--workers", "1"])
    assert done.exit_code == 0, done.output
    assert "about" in done.output
    assert not out.exists()
