"""Healing: what is trained, in which precision and at which rate."""

from types import SimpleNamespace

import pytest
import torch
import transformers as hf

from residuum.models.surgery import keep_layers, load_whole
from residuum.shrinking.healing import heal, healing_recipe, multiplies_bfloat16, relative_error, state_losses
from tiny import TEXT

SETTINGS = {"heal": 12, "heal_batch": 8, "heal_rate": None, "seed": 0, "device": "cpu", "progress": False}


def healed(folder, space, *, precision="float32", pairs=()):
    """A tiny model without its second block before and after healing, and the curve."""
    (teacher, tokenizer), (student, _) = load_whole(folder), load_whole(folder)
    keep_layers(student, [1, 3])
    before = {name: parameter.detach().clone() for name, parameter in student.named_parameters()}
    settings = SimpleNamespace(**SETTINGS, heal_precision=precision, model=folder)
    curve = heal(student, tokenizer, teacher, TEXT[:8], settings, space, kept=[1, 3], pairs=pairs)
    return before, dict(student.named_parameters()), curve


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_embeddings_stay_those_of_the_original(family, tiny_folder, tmp_path):
    before, after, _ = healed(tiny_folder(family), tmp_path)
    moved = {name for name, parameter in after.items() if not torch.equal(parameter, before[name])}
    first = "embeddings." if family == "bert" else ("wte.", "wpe.")
    assert moved
    assert not any(name.startswith(first) for name in moved)
    assert all(parameter.requires_grad for parameter in after.values())


def test_translations_train_the_embeddings_too(tiny_folder, tmp_path):
    pairs = [(TEXT[i], TEXT[i + 1]) for i in range(4)]
    before, after, curve = healed(tiny_folder("bert"), tmp_path, pairs=pairs)
    name = "embeddings.word_embeddings.weight"
    assert not torch.equal(after[name], before[name])
    assert curve["translations"].notna().any()  # some batches hold none


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_both_precisions_heal_and_leave_float32_weights(precision, tiny_folder, tmp_path):
    _, after, curve = healed(tiny_folder("bert"), tmp_path, precision=precision)
    assert curve["loss"].iloc[-1] < curve["loss"].iloc[0]
    assert {parameter.dtype for parameter in after.values()} == {torch.float32}


def test_wide_models_take_smaller_steps():
    settings = SimpleNamespace(**SETTINGS, heal_precision="float32")
    rates = [
        healing_recipe(settings, SimpleNamespace(config=hf.BertConfig(hidden_size=size))).learning_rate
        for size in (16, 384, 768)
    ]
    assert rates == pytest.approx([1e-3, 3.125e-4, 1.5625e-4])
    settings.heal_rate = 2e-5
    assert healing_recipe(settings, None).learning_rate == 2e-5


@pytest.mark.parametrize(
    ("abilities", "expected"), [({"avx512_bf16": True}, True), ({"avx2": True}, False), (None, False)]
)
def test_bfloat16_is_chosen_where_the_processor_multiplies_it(abilities, expected, monkeypatch):
    if abilities is None:  # an older torch, which does not tell
        monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    else:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: abilities, raising=False)
    assert multiplies_bfloat16(torch.device("cpu")) is expected
    settings = SimpleNamespace(**SETTINGS, heal_precision="auto")
    network = SimpleNamespace(config=hf.BertConfig(hidden_size=16))
    assert healing_recipe(settings, network).precision == ("bfloat16" if expected else "float32")


def test_a_kept_block_shall_read_what_it_read_in_the_original():
    generator = torch.Generator().manual_seed(0)
    teacher = [torch.randn(2, 5, 4, generator=generator) for _ in range(7)]  # the embeddings, then six blocks
    student = [teacher[0], teacher[2], teacher[4], teacher[6]]  # kept are 1, 3 and 5
    mask = torch.ones(2, 5)
    terms = state_losses(student, teacher, [1, 3, 5], mask, inner=True)
    assert terms == {"states": 0, "inner states": 0}
    assert state_losses(student, teacher, [1, 4, 5], mask, inner=True)["inner states"] > 0
    assert set(state_losses(student, teacher, [1, 3, 5], mask, inner=False)) == {"states"}


def test_relative_error_is_1_for_the_mean_and_0_for_the_goal():
    goal = 100 + torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    assert relative_error(goal, goal) == 0
    torch.testing.assert_close(relative_error(goal.mean(dim=0).expand_as(goal), goal), torch.tensor(1.0))
    near = goal.to(torch.bfloat16)  # is compared in float32, not rounded again
    assert relative_error(near, goal) == relative_error(near.float(), goal)
