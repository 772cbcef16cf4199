"""Few examples of the target language on top of every strategy, each of which was taught by a teacher too."""

import pytest
import torch
from transfers import QUICK, TASKS, allowed, student_of, transfer_of

from residuum.adaptation import stages
from residuum.adaptation.adapted import evaluate_adapted, load_adapted
from residuum.adaptation.adapting import adapt
from residuum.adaptation.strategies import STRATEGIES, named_strategies
from residuum.models.loading import weights_fingerprint
from residuum.storage.results import read_run

K, DRAW = 4, "scores/tr/k-4/draw-0"


@pytest.fixture(scope="module")
def grid(students, tmp_path_factory):
    """All strategies with task distillation, then few examples; what learns in the second stage is noted."""
    out, seen = tmp_path_factory.mktemp("grid"), {}
    common = {"task": TASKS["pair"], "data": transfer_of(), **QUICK, "device": "cpu", "progress": False}
    teacher = adapt(students[0], language="tr", out=out / "teacher", **common).out / "full-target/tr/seed-0"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "learn", _noting(stages.learn, seen))
        options = {"strategy": "all", "teacher": teacher, "few_shot": [K], "draws": 1, "save_few_shot": True}
        found = adapt(students[0], target={"tr": students[1]}, out=out / "grid", **options, **common)
    return found, seen


def _noting(learn, seen):
    def noted(modules, readers, lesson, settings, out, **others):
        config = others["config"]["adaptation"]
        if "k" in config:  # the second stage
            parts = modules["model"].named_modules()
            noisy = {name for name, part in parts if isinstance(part, torch.nn.Dropout) and part.training}
            seen[config["strategy"]] = len(readers), noisy, len(lesson.train)
        return learn(modules, readers, lesson, settings, out, **others)

    return noted


def folder_of(found, name):
    return found.out / name / ("seed-0" if named_strategies(name)[0].for_any_target else "tr/seed-0")


def test_task_distillation_and_few_examples_stand_on_top_of_every_strategy(grid):
    found, seen = grid
    assert list(found.scores["strategy"].unique()) == list(seen) == list(STRATEGIES)
    assert set(found.scores.query("k == @K")["strategy"]) == set(STRATEGIES)
    for name in STRATEGIES:
        history = read_run(folder_of(found, name)).tables["history"]
        assert (history["logits"] > 0).all(), name


@pytest.mark.parametrize("name", STRATEGIES)
def test_few_examples_move_what_the_strategy_moved_in_the_student_that_answers(name, grid, students):
    (strategy,), folder = named_strategies(name), folder_of(grid[0], name)
    answering = students[0] if strategy.evaluates_source else students[1]
    zero, few = load_adapted(folder, device="cpu"), load_adapted(folder / DRAW, device="cpu")
    own, before, after = (
        dict(n.named_parameters()) for n in (student_of(answering).network(0), zero.network, few.network)
    )
    may_move = allowed(strategy, zero.network)
    added = set(after) - set(own)
    assert (len(added) > 0) == (strategy.new_layers > 0)
    for key in own.keys() - may_move:
        assert torch.equal(after[key], own[key]), key
    assert any(not torch.equal(after[key], before[key]) for key in may_move)
    if added:
        assert any(not torch.equal(after[key], before[key]) for key in added)
    if strategy.family == "adapter":
        first, second = (dict(adapted.applied.adapters.named_parameters()) for adapted in (zero, few))
        assert any(not torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_few_examples_made_of_any_strategy_is_loaded_again_and_scores_the_same(name, grid):
    found = evaluate_adapted(folder_of(grid[0], name) / DRAW, transfer_of().targets["tr"].test, device="cpu")
    expected = grid[0].scores.query("strategy == @name and k == @K and part == 'test'")
    assert found.frame["value"].tolist() == expected["value"].tolist()


def test_only_the_student_that_answers_reads_the_few_examples(grid):
    assert {name: (readers, size) for name, (readers, _, size) in grid[1].items()} == dict.fromkeys(STRATEGIES, (1, K))


def test_a_frozen_student_is_a_fixed_reader_of_few_examples_too(grid):
    for name in ("freeze+0", "freeze+2", "freeze+4"):
        noisy = grid[1][name][1]
        assert noisy
        assert not any(
            n.startswith(("roberta.embeddings", *(f"roberta.encoder.layer.{i}." for i in range(3)))) for n in noisy
        )
    assert any(n.startswith("roberta.encoder.layer.0") for n in grid[1]["adapter-source"][1])


@pytest.mark.parametrize("name", ["full-source", "full-target"])
def test_a_whole_student_that_learnt_from_few_examples_is_a_plain_folder(name, grid):
    import transformers as hf

    folder = folder_of(grid[0], name) / DRAW
    assert not (folder / "change.safetensors").exists()
    plain = hf.AutoModelForSequenceClassification.from_pretrained(folder)
    assert weights_fingerprint(plain) == weights_fingerprint(load_adapted(folder, device="cpu").network)


def test_what_few_examples_changed_is_taken_out_again_to_the_bit(grid, students):
    own = weights_fingerprint(student_of(students[1]).network(0))
    for name in STRATEGIES[:-2]:
        assert weights_fingerprint(load_adapted(folder_of(grid[0], name) / DRAW, device="cpu").remove()) == own, name
