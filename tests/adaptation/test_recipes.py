"""What each strategy trains, moves and leaves alone, to the bit."""

import pytest
import torch
from transfers import allowed, batch_of, mean_loss, student_of, take_steps, without_dropout

from residuum.adaptation.changes import applied
from residuum.adaptation.strategies import (
    LORA,
    STRATEGIES,
    bias_parameters,
    body_parameters,
    head_parameters,
    named_strategies,
    strategy_plan,
)
from residuum.errors import ModelError
from tiny import save_model


def networks_of(strategy, students, kind="pair"):
    """The strategy, and the networks that read for it."""
    (strategy,) = named_strategies(strategy)
    source, target = (student_of(folder, kind) for folder in students)
    reading = {"source": [source], "target": [target], "joint": [source, target]}[strategy.reads]
    return strategy, [student.network(0) for student in reading]


def state(network):
    return {name: p.detach().clone() for name, p in network.named_parameters()}


def moved(before, network):
    after = dict(network.named_parameters())
    return {name for name, value in before.items() if not torch.equal(value, after[name])}


@pytest.mark.parametrize("name", [*STRATEGIES, *LORA])
def test_what_is_frozen_is_unchanged_to_the_bit(name, students):
    strategy, networks = networks_of(name, students)
    before = [state(network) for network in networks]
    may_move = [allowed(strategy, network) for network in networks]
    recipe = strategy_plan(strategy, networks, reduction=4)
    started = {key: state(module) for key, module in recipe.modules.items()}
    take_steps(recipe, batch_of(student_of(students[0])))
    for old, network, names in zip(before, networks, may_move, strict=True):
        assert moved(old, network) <= names
        assert moved(old, network) & set(head_parameters(network))
    for part in {"adapters", "low_rank"} & set(recipe.modules):
        assert moved(started[part], recipe.modules[part]) == set(started[part])
    if strategy.family == "freeze":
        new = {n for n, _ in networks[0].named_parameters()} - set(before[0])
        kept = new - moved({n: started["model"][n] for n in new}, networks[0])
        assert all(n.endswith("key.bias") for n in kept)  # softmax does not feel the same number on all keys


@pytest.mark.parametrize("name", ["bitfit-source", "sparse-delta", "full-target"])
def test_what_may_learn_does_learn(name, students):
    strategy, networks = networks_of(name, students)
    before = state(networks[0])
    may_move = allowed(strategy, networks[0])
    take_steps(strategy_plan(strategy, networks), batch_of(student_of(students[0])))
    unmoved = may_move - moved(before, networks[0])
    assert all(name.endswith(("key.bias", "pooler.dense.weight", "pooler.dense.bias")) for name in unmoved)


@pytest.mark.parametrize("name", ["adapter-joint", "bitfit-joint", "lora-joint"])
def test_joint_networks_have_the_very_same_parameters_that_learn(name, students):
    strategy, networks = networks_of(name, students)
    recipe = strategy_plan(strategy, networks, reduction=4)
    first, second = ({n: p for n, p in network.named_parameters() if p.requires_grad} for network in networks)
    assert first.keys() == second.keys()
    assert all(first[name] is second[name] for name in first)
    take_steps(recipe, batch_of(student_of(students[0])))
    change = recipe.change()
    for network in networks:
        assert all(torch.equal(network.get_parameter(n), value) for n, value in change.values.items())


@pytest.mark.parametrize("family", ["adapter", "bitfit", "lora"])
def test_the_joint_gradient_is_the_mean_of_both_students(family, students):
    strategy, networks = networks_of(f"{family}-joint", students)
    recipe = strategy_plan(strategy, networks, reduction=4)
    without_dropout(*networks)
    batch = batch_of(student_of(students[0]))
    learning = list({id(p): p for m in recipe.modules.values() for p in m.parameters() if p.requires_grad}.values())

    def gradients(readers):
        alone = type(recipe)(recipe.modules, readers, recipe.change)
        return torch.autograd.grad(mean_loss(alone, batch), learning, allow_unused=True)

    joint, source, target = gradients(networks), gradients(networks[:1]), gradients(networks[1:])
    pairs = [(j, s, t) for j, s, t in zip(joint, source, target, strict=True) if j is not None]
    assert len(pairs) > 10
    for both, one, other in pairs:
        torch.testing.assert_close(both, (one + other) / 2, rtol=1e-4, atol=1e-7)
    assert any(not torch.allclose(one, other) for _, one, other in pairs)


def test_students_of_different_sizes_cannot_share(students, tmp_path):
    strategy, (source, _) = networks_of("bitfit-joint", students)
    narrow = student_of(save_model("xlm-roberta", tmp_path, hidden_size=8)).network(0)
    with pytest.raises(ModelError, match="cannot share .*; use students of one architecture and size"):
        strategy_plan(strategy, [source, narrow])


def test_source_biases_overwrite_those_of_the_target(students):
    strategy, (source,) = networks_of("bitfit-source", students)
    recipe = strategy_plan(strategy, [source])
    take_steps(recipe, batch_of(student_of(students[0])))
    target = student_of(students[1]).network(0)
    before = state(target)
    with applied(target, recipe.change()):
        overwritten = {*bias_parameters(target), *head_parameters(target)}
        for name in overwritten:
            assert torch.equal(target.get_parameter(name), source.get_parameter(name)), name
        assert moved(before, target) <= overwritten
        assert moved(before, target) >= {n for n in overwritten if n.endswith("query.bias")}


def test_the_delta_is_what_the_steps_would_have_added_one_by_one(students):
    strategy, (source,) = networks_of("sparse-delta", students)
    target = student_of(students[1]).network(0)
    stepwise = state(target)
    names = list(body_parameters(target))
    recipe = strategy_plan(strategy, [source])
    last = state(source)

    def add_change():
        for name in names:
            now = source.get_parameter(name).detach()
            stepwise[name] += now - last[name]
            last[name] = now.clone()

    take_steps(recipe, batch_of(student_of(students[0])), steps=4, after=add_change)
    before = state(target)
    with applied(target, recipe.change()):
        for name in names:
            torch.testing.assert_close(target.get_parameter(name).detach(), stepwise[name], rtol=1e-5, atol=1e-6)
        assert not any("embeddings" in name for name in moved(before, target))


@pytest.mark.parametrize("count", [0, 2, 4])
def test_new_layers_stand_over_the_frozen_source_and_then_over_the_target(count, students):
    strategy, (source,) = networks_of(f"freeze+{count}", students)
    recipe = strategy_plan(strategy, [source], seed=3)
    take_steps(recipe, batch_of(student_of(students[0])))
    target = student_of(students[1]).network(0)
    with applied(target, recipe.change()):
        blocks = target.base_model.encoder.layer
        assert len(blocks) == target.config.num_hidden_layers == 3 + count
        for own, other in zip(blocks[3:], source.base_model.encoder.layer[3:], strict=True):
            assert all(torch.equal(a, b) for a, b in zip(own.parameters(), other.parameters(), strict=True))
        batch = batch_of(student_of(students[1]))
        states = target.base_model(**batch["inputs"], output_hidden_states=True).hidden_states
    alone = target.base_model(**batch["inputs"], output_hidden_states=True).hidden_states
    assert len(states) == 4 + count
    assert torch.equal(states[3], alone[3])


def test_only_what_learns_over_a_frozen_student_has_dropout(students):
    strategy, (source,) = networks_of("freeze+2", students)
    strategy_plan(strategy, [source])
    noisy = {n for n, part in source.named_modules() if isinstance(part, torch.nn.Dropout) and part.training}
    assert noisy
    assert all(n.startswith(("classifier", *(f"roberta.encoder.layer.{i}" for i in (3, 4)))) for n in noisy)


def test_new_layers_are_drawn_from_the_seed(students):
    def drawn(seed):
        strategy, networks = networks_of("freeze+2", students)
        return strategy_plan(strategy, networks, seed=seed).change().layers["1.output.dense.weight"]

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_parameter_efficient_strategies_train_few_parameters(students):
    counts = {}
    for name in ("full-target", "adapter-target", "bitfit-target", "freeze+0"):
        strategy, networks = networks_of(name, students)
        counts[name] = strategy_plan(strategy, networks, reduction=4).n_trained
    head = sum(p.numel() for p in head_parameters(networks[0]).values())
    assert counts["freeze+0"] == head
    assert counts["adapter-target"] == head + 3 * (16 * 4 + 4 + 4 * 16 + 16)
    assert counts["bitfit-target"] < counts["full-target"] / 4
