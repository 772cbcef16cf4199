"""Each strategy against section 3.3 of the thesis, written out sentence by sentence in plain torch.

The transcription shares nothing with the package but the initial weights of what is added to a student. Two networks
that train jointly keep parameters of their own here: the same averaged gradient moves both.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from transfers import batch_of, student_of, take_steps, without_dropout

from residuum.adaptation.changes import applied
from residuum.adaptation.strategies import STRATEGIES, named_strategies, strategy_plan

STEPS = 3


def plain_optimiser(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


def loss_of(logits, batch):
    return F.cross_entropy(logits, batch["labels"])


def fine_tune(parameters, logits, batch, after=lambda: None):
    """Some steps in which only these parameters are fine-tuned."""
    optimiser = plain_optimiser(parameters)
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss_of(logits(), batch).backward()
        optimiser.step()
        after()


def fine_tune_jointly(sides, batch):
    """The same values in both models: each step moves them by the gradient of the averaged loss."""
    optimisers = [plain_optimiser(parameters) for parameters, _ in sides]
    for _ in range(STEPS):
        gradients = [torch.autograd.grad(loss_of(logits(), batch), ps, allow_unused=True) for ps, logits in sides]
        for (parameters, _), optimiser in zip(sides, optimisers, strict=True):
            for parameter, one, other in zip(parameters, *gradients, strict=True):
                parameter.grad = None if one is None else (one + other) / 2
            optimiser.step()


def named(network, chosen):
    return {name: p for name, p in network.named_parameters() if chosen(name)}


def is_head(name):
    return name.startswith("classifier.")


def is_bias(name):
    """b, but neither W nor g: of attention, feed-forward and norms."""
    return name.endswith(".bias")


@torch.no_grad()
def copy_into(target, values):
    for name, value in values.items():
        target.get_parameter(name).copy_(value)


def with_adapters(network, weights):
    """A network whose blocks end in LN(z + U·relu(D·LN(z) + d) + u) and not in LN(z); the weights of every block."""
    adapters = [{name: w.clone().requires_grad_() for name, w in block.items()} for block in weights]
    for block, a in zip(network.roberta.encoder.layer, adapters, strict=True):

        def forward(states, residual, part=block.output, a=a):
            z = part.dense(states) + residual
            normed = part.LayerNorm(z)
            narrow = torch.relu(normed @ a["down.weight"].T + a["down.bias"])
            return part.LayerNorm(z + narrow @ a["up.weight"].T + a["up.bias"])

        block.output.forward = forward
    return [w for block in adapters for w in block.values()], adapters


def over(network, blocks, inputs):
    """The logits of a head over new blocks over a network's last layer."""
    states = network.roberta(**inputs).last_hidden_state
    visible = inputs["attention_mask"][:, None, None, :].expand(-1, 1, states.shape[1], -1).bool()
    for block in blocks:
        output = block(states, attention_mask=visible)
        states = output[0] if isinstance(output, tuple) else output
    return network.classifier(states)


def transcribed(name, source, target, batch, added):
    """The function from inputs in the target language to logits, as section 3.3 makes it."""
    inputs = batch["inputs"]
    family, _, side = name.partition("-")
    if family == "full":
        model = source if side == "source" else target
        fine_tune(list(model.parameters()), lambda: model(**inputs).logits, batch)
        return lambda x: model(**x).logits
    if family.startswith("freeze"):
        fine_tune([*source.classifier.parameters(), *added.parameters()], lambda: over(source, added, inputs), batch)
        target.classifier.load_state_dict(source.classifier.state_dict())
        return lambda x: over(target, added, x)
    if family == "adapter":
        models = {"source": [source], "target": [target], "joint": [source, target]}[side]
        sides, adapters = [], None
        for model in models:
            weights, adapters = with_adapters(model, added)
            sides.append(([*weights, *model.classifier.parameters()], lambda model=model: model(**inputs).logits))
        fine_tune_jointly(sides, batch) if side == "joint" else fine_tune(*sides[0], batch)
        if side == "source":
            with_adapters(target, [{name: w.detach() for name, w in block.items()} for block in adapters])
            target.classifier.load_state_dict(source.classifier.state_dict())
        return lambda x: target(**x).logits
    if family == "bitfit":
        if side == "joint":  # one set of bias terms, those of the source
            copy_into(target, named(source, is_bias))
        models = {"source": [source], "target": [target], "joint": [source, target]}[side]
        sides = [
            (
                list(named(model, lambda n: is_bias(n) or is_head(n)).values()),
                lambda model=model: model(**inputs).logits,
            )
            for model in models
        ]
        fine_tune_jointly(sides, batch) if side == "joint" else fine_tune(*sides[0], batch)
        copy_into(target, named(models[0], lambda n: is_bias(n) or is_head(n)))
        return lambda x: target(**x).logits
    assert name == "sparse-delta"  # each step's difference of the source is added to the target
    theta = named(source, lambda n: "embeddings" not in n and not is_head(n))
    last = {n: p.detach().clone() for n, p in theta.items()}

    @torch.no_grad()
    def add_difference():
        for n, p in theta.items():
            target.get_parameter(n).add_(p - last[n])
            last[n] = p.detach().clone()

    fine_tune(
        [*theta.values(), *source.classifier.parameters()], lambda: source(**inputs).logits, batch, add_difference
    )
    target.classifier.load_state_dict(source.classifier.state_dict())
    return lambda x: target(**x).logits


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_against_its_transcription(name, students):
    """The students answer alike in the target language after the same steps, and not as they did before."""
    (strategy,) = named_strategies(name)
    source, target = (student_of(folder).network(0) for folder in students)
    plain = copy.deepcopy(source), copy.deepcopy(target)
    readers = {"source": [source], "target": [target], "joint": [source, target]}[strategy.reads]
    plan = strategy_plan(strategy, readers, reduction=4, seed=3)
    added = None
    if strategy.family == "adapter":
        start = plan.modules["adapters"]
        added = [{n: p.detach().clone() for n, p in block.named_parameters()} for block in start.blocks]
    if strategy.family == "freeze":
        source.eval()  # no layer has dropout here, the new ones neither
        added = copy.deepcopy(source.roberta.encoder.layer[3:])
    without_dropout(source, target, *plain)
    batch = batch_of(student_of(students[0]))
    asked = batch_of(student_of(students[1]), size=5)["inputs"]
    take_steps(plan, batch, steps=STEPS)
    answering = student_of(students[0 if strategy.evaluates_source else 1]).network(0)
    before = answering(**asked).logits
    with applied(answering, plan.change()), torch.no_grad():
        found = answering(**asked).logits
    expected = transcribed(name, *plain, batch, added)(asked)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=2e-5)
    assert not torch.allclose(found, before, atol=1e-3)
