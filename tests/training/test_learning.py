"""`learn`: our steps are those of the transformers Trainer, and any modules can be what learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers as hf
from task_data import task_data_of

from residuum.corpus.tasks import Task
from residuum.errors import ModelError, SettingError
from residuum.training.checkpoints import load_checkpoint
from residuum.training.encoding import Problem
from residuum.training.learning import LearningSettings, learn, score_split, task_loss
from residuum.training.networks import load_with_head
from residuum.training.optimisation import ParameterGroup

KINDS = ("classification", "pair", "regression", "tagging", "choice")
QUICK = LearningSettings(epochs=1, batch_size=8, learning_rate=1e-3)


def answers(network):
    return lambda batch: network(**batch["inputs"]).logits


def without_dropout(network):
    for part in network.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
        if hasattr(part, "dropout_prob"):
            part.dropout_prob = 0.0
    network.config.attention_probs_dropout_prob = 0.0
    return network


@pytest.mark.parametrize("kind", KINDS)
def test_against_the_transformers_trainer(kind, tiny_folder, tmp_path):
    ours, _, data = task_data_of(kind, tiny_folder("bert"), size=8)
    theirs, _, _ = task_data_of(kind, tiny_folder("bert"), size=8)
    examples = data.train.examples[:8]
    data = replace(data, train=replace(data.train, examples=examples))
    without_dropout(ours).train()
    settings = LearningSettings(epochs=3, batch_size=8, learning_rate=1e-3, weight_decay=0.1)
    learn({"model": ours}, [answers(ours)], data, settings, tmp_path / "ours", progress=False)

    def collate(numbers):
        batch = data.collate_train([examples[i["place"]] for i in numbers])
        return {**batch["inputs"], "labels": batch["labels"]}

    arguments = hf.TrainingArguments(
        output_dir=str(tmp_path / "theirs"), per_device_train_batch_size=8, num_train_epochs=3, learning_rate=1e-3,
        weight_decay=0.1, use_cpu=True, report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True,
        remove_unused_columns=False, dataloader_pin_memory=False,
    )  # fmt: skip
    places = [{"place": i} for i in range(8)]
    trainer = hf.Trainer(without_dropout(theirs), arguments, train_dataset=places, data_collator=collate)
    trainer.train()
    before, _, _ = task_data_of(kind, tiny_folder("bert"), size=8)
    moved = 0.0
    for (name, a), b, c in zip(ours.named_parameters(), theirs.parameters(), before.parameters(), strict=True):
        if (kind, name) != ("choice", "classifier.bias"):  # moves all candidates alike: its gradient is rounding
            torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-3, msg=lambda m, name=name: f"{name}: {m}")
        moved = max(moved, float((a - c).abs().max().detach()))
    assert moved > 1e-3  # or there was nothing to compare


@pytest.mark.parametrize("kind", KINDS)
def test_our_loss_is_the_loss_of_the_model_s_own_head(kind, tiny_folder):
    network, _, data = task_data_of(kind, tiny_folder("bert"))
    network.eval()
    batch = data.collate_train(data.train.examples[:6])
    output = network(**batch["inputs"], labels=batch["labels"])
    torch.testing.assert_close(task_loss(data.problem.kind, output.logits, batch["labels"]), output.loss)


@pytest.mark.parametrize("kind", KINDS)
def test_what_can_be_learnt_by_heart_is_learnt(kind, tiny_folder, tmp_path):
    network, _, data = task_data_of(kind, tiny_folder("bert"), size=8)
    without_dropout(network).train()  # noise is there against learning by heart
    settings = LearningSettings(epochs=100, batch_size=4, learning_rate=3e-3, evaluate_every=60)
    training = learn(
        {"m": network}, [lambda b: network(**b["inputs"]).logits], data, settings, tmp_path, progress=False
    )
    first, best = training.history["loss"].iloc[0], training.history["loss"].min()
    assert best < first / 2
    metric = data.problem.metrics[0]
    assert training.scores[metric].max() > 0.9
    load_checkpoint(tmp_path, {"m": network}, best=True)
    network.eval()
    found = score_split(answers(network), data.problem, data.dev, data.collate_dev, torch.device("cpu"))
    assert found[metric] == pytest.approx(training.scores[metric].max())


def test_two_readers_learn_from_the_mean_of_their_losses(tiny_folder, tmp_path):
    losses = []
    for place, chosen in enumerate(([0], [1], [0, 1])):
        models = [task_data_of("classification", tiny_folder("bert"), seed=seed) for seed in (0, 1)]
        networks = [network.eval() for network, _, _ in models]
        training = learn(
            {"one": networks[0], "other": networks[1]},
            [answers(networks[i]) for i in chosen],
            models[0][2],
            LearningSettings(epochs=0.5, batch_size=8),
            tmp_path / str(place),
            progress=False,
        )
        losses.append(training.history["loss"].iloc[0])
    assert losses[2] == pytest.approx((losses[0] + losses[1]) / 2, rel=1e-5)
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


def test_only_the_given_parameters_move(tiny_folder, tmp_path):
    network, _, data = task_data_of("classification", tiny_folder("bert"))
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    biases = [p for name, p in network.named_parameters() if name.endswith("bias")]
    learn(
        {"m": network}, [answers(network)], data, QUICK, tmp_path, parameters=[ParameterGroup(biases)], progress=False
    )
    moved = {name for name, p in network.named_parameters() if not torch.equal(p, before[name])}
    assert moved
    assert all(name.endswith("bias") for name in moved)


def test_extra_losses_are_added_and_recorded(tiny_folder, tmp_path):
    network, _, data = task_data_of("classification", tiny_folder("bert"))
    network.eval()
    steps = []
    training = learn(
        {"m": network}, [answers(network)], data, QUICK, tmp_path, progress=False, after_step=steps.append,
        extra=lambda batch, logits: {"squares": logits[0].pow(2).mean() + 5},
    )  # fmt: skip
    row = training.history.iloc[0]
    assert row["loss"] == pytest.approx(row["task"] + row["squares"])
    assert row["squares"] > 5
    assert steps == [1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; expected a whole number at least 1"),
        ({"epochs": 0}, "epochs is 0"),
        ({"schedule": "steps"}, "schedule is 'steps'"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
    ],
)
def test_settings_are_checked_when_they_are_made(changes, message):
    with pytest.raises(SettingError, match=message):
        LearningSettings(**changes)


@pytest.mark.parametrize(("processes", "accumulation", "steps"), [(1, 1, 10), (2, 1, 5), (1, 4, 3), (2, 4, 2)])
def test_an_epoch_is_as_many_steps_as_all_processes_need_for_it(processes, accumulation, steps):
    settings = LearningSettings(epochs=1, accumulation=accumulation)
    plan = settings.for_training(10, "accuracy", 0, processes)
    assert plan.evaluate_every == plan.total_steps(10, processes) == steps


def test_a_head_is_drawn_from_the_seed_and_kept_where_it_fits(tiny_folder, tmp_path):
    problem = Problem(Task("sentence", unit="sentence"), "classification", ("a", "b"))
    heads = [load_with_head(tiny_folder("bert"), problem, seed=seed)[0].classifier.weight for seed in (0, 0, 1)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    network, tokenizer = load_with_head(tiny_folder("bert"), problem, seed=5)
    assert network.config.id2label == {0: "a", 1: "b"}
    network.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again, _ = load_with_head(tmp_path, problem, seed=6)
    assert torch.equal(again.classifier.weight, network.classifier.weight)
    three = Problem(problem.task, "classification", ("a", "b", "c"))
    assert load_with_head(tmp_path, three)[0].classifier.weight.shape == (3, 16)


def test_models_without_such_a_head_are_refused(tiny_folder):
    choice = Problem(Task("choice", unit="sentence"), "choice", ("0", "1"))
    with pytest.raises(ModelError, match="no head for choice on GPT2Config"):
        load_with_head(tiny_folder("gpt2"), choice)
    with pytest.raises(ModelError, match="an encoder and a decoder"):
        load_with_head(tiny_folder("t5"), choice)


def test_seeding_a_head_leaves_the_generator_alone(tiny_folder):
    problem = Problem(Task("sentence", unit="sentence"), "classification", ("a", "b"))
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    load_with_head(tiny_folder("bert"), problem)
    np.testing.assert_array_equal(torch.rand(3), expected)
