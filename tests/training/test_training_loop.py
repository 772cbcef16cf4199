"""The loop against hand-written steps, and what it must refuse."""

from __future__ import annotations

import copy
import threading
import time

import pytest
import torch
from torch import nn
from training_runs import regression

from residuum.errors import DataError, SettingError, StoreError
from residuum.training.batches import ShuffledBatches
from residuum.training.checkpoints import load_checkpoint
from residuum.training.loop import StepLosses, train
from residuum.training.optimisation import ParameterGroup, clip_gradients
from residuum.training.settings import TrainingSettings


def test_training_equals_a_hand_written_loop(tmp_path):
    task = regression()
    by_hand = copy.deepcopy(task.net)
    decayed = [p for p in by_hand.parameters() if p.ndim > 1]
    others = [p for p in by_hand.parameters() if p.ndim <= 1]
    optimiser = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}])
    for step in range(12):
        rate = 0.01 * (step / 3 if step < 3 else (12 - step) / 9)
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad()
        task.squared_error(by_hand, task.batches(step)).backward()
        nn.utils.clip_grad_norm_(by_hand.parameters(), 0.5)
        optimiser.step()

    task.train(tmp_path, steps=12, learning_rate=0.01, warmup=3, weight_decay=0.1, clip=0.5)

    assert _same(task.net, by_hand, atol=1e-6)
    assert not _same(task.net, regression().net, atol=1e-3), "the loop must move the weights"


def test_batches_are_prepared_ahead_once_each_and_the_waiting_is_counted(tmp_path):
    task, asked = regression(), []
    slow = task.batches

    class Watched:
        per_epoch = slow.per_epoch

        def __call__(self, position):
            asked.append((position, threading.current_thread() is threading.main_thread()))
            time.sleep(0.01)
            return slow(position)

    task.batches = Watched()
    progress = task.train(tmp_path, steps=5).progress
    assert asked == [(position, False) for position in range(5)]  # none beyond the last step
    assert 0.005 < progress.waited <= progress.seconds


def test_a_fault_in_the_data_is_raised_as_it_is(tmp_path):
    task = regression()

    class Broken:
        per_epoch = 8.0

        def __call__(self, position):
            raise DataError("line 7 is broken")

    task.batches = Broken()
    with pytest.raises(DataError, match="line 7 is broken"):
        task.train(tmp_path, steps=5)


def test_training_stops_after_as_many_evaluations_without_a_better_score(tmp_path):
    task, scores = regression(), iter([1.0, 3.0, 2.0, 2.5, 9.0])
    options = {"evaluate_every": 2, "best_score": "score", "patience": 2, "checkpoint_every": 1, "keep_checkpoints": 3}
    result = task.train(tmp_path, steps=20, evaluate=lambda step: {"score": next(scores)}, **options)
    assert (result.progress.step, result.best_step) == (8, 4)
    kept = sorted(path.name for path in (tmp_path / "checkpoints").glob("step-*"))
    assert kept == [f"step-{step:09d}" for step in (4, 6, 7, 8)]  # the best, and the last three
    again = task.train(tmp_path, steps=20, evaluate=lambda step: {"score": 0.0}, **options)
    assert again.progress.step == 8
    with pytest.raises(SettingError, match="patience is 2, but best_score is not set"):
        TrainingSettings(steps=2, patience=2)


def test_accumulated_batches_equal_one_large_batch(tmp_path):
    small, large = regression(size=4), regression(size=8)
    small.train(tmp_path / "small", steps=6, accumulation=2)
    large.train(tmp_path / "large", steps=6)
    assert _same(small.net, large.net, atol=1e-6)


def test_batches_of_different_size_weigh_by_their_weight(tmp_path):
    """Batches of 6 and 2 rows with weights 6 and 2 are one batch of 8 rows."""
    whole = regression(size=8)
    parts = regression(size=8)
    rows = parts.batches

    class Halves:
        per_epoch = 8.0

        def __call__(self, position):
            x, y = rows(position // 2)
            return (x[:6], y[:6]) if position % 2 == 0 else (x[6:], y[6:])

    whole.train(tmp_path / "whole", steps=5)
    train(
        {"net": parts.net},
        Halves(),
        lambda batch: StepLosses(parts.squared_error(parts.net, batch), weight=len(batch[0])),
        TrainingSettings(steps=5, accumulation=2),
        tmp_path / "parts",
        progress=False,
    )
    assert _same(whole.net, parts.net, atol=1e-6)


def test_a_parameter_that_two_modules_share_is_stepped_once(tmp_path):
    task = regression()
    twin = nn.Sequential(task.net[0], nn.ReLU(), nn.Linear(16, 1))
    single = copy.deepcopy(nn.ModuleList([task.net, twin]))

    def both(first, second):
        return lambda batch: StepLosses(task.squared_error(first, batch) + task.squared_error(second, batch))

    settings = TrainingSettings(steps=5, learning_rate=0.01)
    train({"a": task.net, "b": twin}, task.batches, both(task.net, twin), settings, tmp_path / "2", progress=False)
    train({"ab": single}, task.batches, both(*single), settings, tmp_path / "1", progress=False)
    assert _same(nn.ModuleList([task.net, twin]), single, atol=0)
    assert torch.equal(twin[0].weight, task.net[0].weight)


def test_a_parameter_given_twice_is_refused(tmp_path):
    task = regression()
    group = ParameterGroup(list(task.net.parameters()))
    with pytest.raises(SettingError, match="given twice; list a shared parameter once, in one group"):
        task.train(tmp_path, parameters=[group, group], steps=1)


def test_frozen_parameters_stay_and_take_no_optimiser_state(tmp_path):
    from safetensors.torch import load_file

    task = regression()
    task.net[0].requires_grad_(False)
    before = task.net[0].weight.clone()
    task.train(tmp_path, steps=4)
    assert torch.equal(task.net[0].weight, before)
    state = load_file(tmp_path / "checkpoints" / "step-000000004" / "optimiser.safetensors")
    assert {tuple(value.shape) for value in state.values()} == {(), (1, 16), (1,)}


def test_a_model_without_anything_to_train_is_refused(tmp_path):
    task = regression()
    task.net.requires_grad_(False)
    with pytest.raises(SettingError, match="nothing can be trained"):
        task.train(tmp_path, steps=1)


def test_dropout_depends_on_seed_and_position_only(tmp_path):
    first, second, other = (regression(dropout=0.5) for _ in range(3))
    first.train(tmp_path / "1", steps=5, seed=1)
    torch.rand(100)
    second.train(tmp_path / "2", steps=5, seed=1)
    other.train(tmp_path / "3", steps=5, seed=2)
    assert _same(first.net, second.net, atol=0)
    assert not _same(first.net, other.net, atol=1e-6)


def test_the_callers_random_numbers_are_left_alone(tmp_path):
    task = regression(dropout=0.5)
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    task.train(tmp_path, steps=3)
    assert torch.equal(torch.rand(4), expected)


def test_modules_keep_their_modes_through_evaluation(tmp_path):
    task = regression(dropout=0.5)
    task.net[0].eval()
    modes = []

    def evaluate(step):
        modes.append((task.net.training, task.net[1].training, torch.is_grad_enabled()))
        return {"error": 0.0}

    task.train(tmp_path, evaluate=evaluate, steps=2, evaluate_every=1)
    assert modes == [(False, False, False)] * 2
    assert (task.net.training, task.net[0].training, task.net[1].training) == (True, False, True)


def test_the_history_has_a_row_every_few_steps_with_means_of_all_terms(tmp_path):
    training = regression().train(tmp_path, steps=25, log_every=10)
    history = training.history
    assert list(history["step"]) == [10, 20, 25]
    assert {"learning_rate", "loss", "error", "gradient_norm", "tokens", "seconds"} <= set(history)
    assert list(history["tokens"]) == [80, 160, 200]
    assert history["loss"].to_list() == pytest.approx(history["error"].to_list())
    every = regression().train(tmp_path / "all", steps=25, log_every=1).history
    assert history["loss"][0] == pytest.approx(every["loss"][:10].mean())


def test_the_best_checkpoint_is_kept_beside_the_last(tmp_path):
    scores = {2: 0.1, 4: 0.9, 6: 0.5, 8: float("nan")}
    weights = {}
    task = regression()

    def evaluate(step):
        weights[step] = copy.deepcopy(task.net.state_dict())
        return {"accuracy": scores[step]}

    training = task.train(tmp_path, evaluate=evaluate, steps=8, evaluate_every=2, best_score="accuracy")
    assert training.best_step == 4
    assert list(training.scores["step"]) == [2, 4, 6, 8]
    assert [path.name for path in sorted(tmp_path.glob("checkpoints/step-*"))] == ["step-000000004", "step-000000008"]
    load_checkpoint(tmp_path, {"net": task.net}, best=True)
    assert torch.equal(task.net[0].weight, weights[4]["0.weight"])
    load_checkpoint(tmp_path, {"net": task.net})
    assert torch.equal(task.net[0].weight, weights[8]["0.weight"])


def test_a_loss_that_is_not_a_number_names_the_step_and_keeps_the_last_checkpoint(tmp_path):
    task = regression()

    def breaks(batch):
        error = task.squared_error(task.net, batch)
        breaks.calls += 1
        return StepLosses(error * float("nan") if breaks.calls == 7 else error)

    breaks.calls = 0
    with pytest.raises(DataError, match="loss is nan at step 7 of 20; the last checkpoint is kept"):
        task.train(tmp_path, losses=breaks, steps=20, checkpoint_every=3)
    progress = load_checkpoint(tmp_path, {"net": task.net})
    assert progress.step == 6
    assert all(torch.isfinite(p).all() for p in task.net.parameters())


def test_a_gradient_that_is_infinite_is_an_error_too(tmp_path):
    task = regression()
    with pytest.raises(DataError, match="gradient is .* at step 1"):
        task.train(
            tmp_path, losses=lambda batch: StepLosses((task.net(batch[0]) * 0).abs().sqrt().sum()), steps=2, clip=None
        )


def test_weights_that_are_not_finite_in_the_end_are_an_error_and_not_kept(tmp_path):
    task = regression()
    with pytest.raises(DataError, match="weights' sum is nan at step 1 of 1"):
        task.train(tmp_path, steps=1, warmup=0, learning_rate=1e39)
    assert not list(tmp_path.glob("checkpoints/step-*"))


def test_another_run_in_the_folder_is_refused_unless_fresh(tmp_path):
    regression().train(tmp_path, steps=4)
    with pytest.raises(StoreError, match=r"another run \(learning_rate 0.0002 → 0.1\).*--fresh"):
        regression().train(tmp_path, steps=4, learning_rate=0.1)
    with pytest.raises(StoreError, match="text None → 7"):
        regression().train(tmp_path, config={"text": 7}, steps=4)
    assert regression().train(tmp_path, fresh=True, steps=4, learning_rate=0.1).steps == 4


def test_a_checkpoint_of_other_modules_is_refused(tmp_path):
    regression().train(tmp_path, steps=2)
    with pytest.raises(StoreError, match="does not fit these modules"):
        load_checkpoint(tmp_path, {"net": nn.Linear(2, 2)})


def test_epochs_become_steps_over_batches_and_accumulation(tmp_path):
    training = regression(size=8).train(tmp_path, epochs=2.5, accumulation=2)  # 64 rows: 8 batches an epoch
    assert training.steps == 10


def test_after_step_runs_once_a_step(tmp_path):
    steps = []
    regression().train(tmp_path, after_step=steps.append, steps=3)
    assert steps == [1, 2, 3]


def test_bfloat16_trains_and_keeps_weights_in_float32(tmp_path):
    task = regression()
    before = task.squared_error(task.net, task.batches(0)).item()
    task.train(tmp_path, steps=60, precision="bfloat16", learning_rate=0.02)
    assert task.net[0].weight.dtype == torch.float32
    assert task.squared_error(task.net, task.batches(0)).item() < before / 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "pass exactly one"),
        ({"steps": 1, "epochs": 1}, "pass exactly one"),
        ({"steps": 0}, "steps is 0; expected a whole number at least 1"),
        ({"steps": 1, "schedule": "square"}, "schedule is 'square'; expected one of linear, cosine, constant"),
        ({"steps": 1, "precision": "int8"}, "expected one of float32, bfloat16, float16"),
        ({"steps": 1, "learning_rate": float("nan")}, "learning_rate is nan"),
        ({"steps": 1, "clip": 0.0}, "clip is 0.0"),
        ({"steps": 1, "best_score": "f1"}, "evaluate_every is not set"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_their_name(settings, message):
    with pytest.raises(SettingError, match=message):
        TrainingSettings(**settings)


def test_trackers_are_off_by_default_and_must_be_installed(tmp_path):
    regression().train(tmp_path / "quiet", steps=1)
    assert [path.name for path in (tmp_path / "quiet").iterdir()] == ["checkpoints"]
    with pytest.raises(SettingError, match="report_to names 'nowhere'"):
        regression().train(tmp_path, steps=1, report_to=("nowhere",))


def test_half_precision_on_a_cpu_is_refused(tmp_path):
    with pytest.raises(SettingError, match="a CPU cannot train in"):
        regression().train(tmp_path, device="cpu", steps=1, precision="float16")


def test_an_unknown_best_score_names_those_that_are_there(tmp_path):
    with pytest.raises(SettingError, match="best_score is 'f1'; the evaluation gives error"):
        regression().train(tmp_path, evaluate=lambda _: {"error": 1.0}, steps=1, evaluate_every=1, best_score="f1")


def test_empty_data_is_refused():
    with pytest.raises(SettingError, match="0 examples"):
        ShuffledBatches([], 4)


def _same(first: nn.Module, second: nn.Module, atol: float) -> bool:
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return all(torch.allclose(a, b, rtol=0, atol=atol) for a, b in pairs)


@pytest.mark.parametrize("bound", [None, 0.5, 1e6])
def test_clipping_equals_that_of_torch(bound):
    torch.manual_seed(0)
    ours, theirs = ([nn.Parameter(torch.zeros(n, 7)) for n in (3, 500)] for _ in range(2))
    for one, other in zip(ours, theirs, strict=True):
        one.grad = torch.randn(one.shape)
        other.grad = one.grad.clone()
    unused = nn.Parameter(torch.zeros(4))
    norm = clip_gradients([*ours, unused], bound)
    assert norm == pytest.approx(float(nn.utils.clip_grad_norm_(theirs, bound or float("inf"))), rel=1e-5)
    assert all(torch.allclose(a.grad, b.grad, rtol=1e-5) for a, b in zip(ours, theirs, strict=True))  # pyright: ignore[reportArgumentType]
    assert unused.grad is None
    assert clip_gradients([unused], bound) == 0
