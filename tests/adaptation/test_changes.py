"""Adapters, and changes that are put into a network, saved, and taken out again."""

import peft
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional
from transfers import batch_of, student_of, take_steps

from residuum.adaptation.changes import (
    CHANGE_FILE,
    Adapters,
    Applied,
    Change,
    LowRankUpdates,
    applied,
    closing_norms,
    read_change,
    save_change,
)
from residuum.adaptation.strategies import named_strategies, strategy_plan
from residuum.errors import ModelError, SettingError, StoreError
from residuum.models.loading import weights_fingerprint
from tiny import save_model

NAMES = ("full-source", "freeze+2", "adapter-source", "bitfit-source", "sparse-delta", "lora-source")


@pytest.fixture(scope="module")
def changes(students):
    """What each family of strategies changed after two steps with the source student."""
    found = {}
    batch = batch_of(student_of(students[0]))
    for name in NAMES:
        (strategy,) = named_strategies(name)
        recipe = strategy_plan(strategy, [student_of(students[0]).network(0)], reduction=4)
        take_steps(recipe, batch)
        found[name] = recipe.change()
    return found


def answers(network, batch):
    with torch.no_grad():
        return network.eval()(**batch["inputs"]).logits


@pytest.mark.parametrize("name", NAMES)
def test_a_change_goes_in_and_out_and_leaves_the_student_bit_equal(name, changes, students):
    student = student_of(students[1])
    network, batch = student.network(0), batch_of(student)
    fingerprint, before = weights_fingerprint(network), answers(network, batch)
    for _ in range(2):
        with applied(network, changes[name]):
            assert not torch.equal(answers(network, batch), before)
        assert weights_fingerprint(network) == fingerprint
        assert torch.equal(answers(network, batch), before)


@pytest.mark.parametrize("name", NAMES)
def test_a_change_that_was_saved_gives_the_same_answers_to_the_bit(name, changes, students, tmp_path):
    student = student_of(students[1])
    network, batch = student.network(0), batch_of(student)
    with applied(network, changes[name]):
        before = answers(network, batch)
    save_change(tmp_path, changes[name])
    with applied(network, read_change(tmp_path)):
        assert torch.equal(answers(network, batch), before)


def test_only_what_changed_is_saved(changes, students, tmp_path):
    network = student_of(students[1]).network(0)
    whole = sum(p.numel() for p in network.parameters())
    for name in ("adapter-source", "bitfit-source"):
        save_change(tmp_path / name, changes[name])
        saved = load_file(tmp_path / name / CHANGE_FILE)
        assert sum(t.numel() for t in saved.values()) == changes[name].n_parameters < whole / 4
    assert all("bias" in n or n.startswith("classifier") for n in changes["bitfit-source"].values)
    assert not any("embeddings" in n for n in changes["sparse-delta"].added)
    assert all(n.startswith("classifier") for n in changes["adapter-source"].values)


def test_the_network_is_restored_when_something_fails_inside(changes, students):
    network = student_of(students[1]).network(0)
    fingerprint = weights_fingerprint(network)
    with pytest.raises(RuntimeError), applied(network, changes["freeze+2"]):
        raise RuntimeError
    assert weights_fingerprint(network) == fingerprint
    assert network.config.num_hidden_layers == 3


def test_what_is_learnt_further_is_part_of_the_change(changes, students):
    network = student_of(students[1]).network(0)
    there = Applied(network, changes["adapter-source"])
    with torch.no_grad():
        for parameter in there.changed:
            parameter.add_(1.0)
    batch = batch_of(student_of(students[1]))
    further, later = answers(network, batch), there.current()
    there.remove()
    with applied(network, later):
        assert torch.equal(answers(network, batch), further)


def test_a_change_of_another_shape_is_refused(students, tmp_path):
    other = student_of(save_model("xlm-roberta", tmp_path, hidden_size=8)).network(0)
    name = "roberta.encoder.layer.0.output.dense.bias"
    with pytest.raises(ModelError, match="has shape .8,.. Use a student of the same shape"):
        Applied(other, Change(values={name: torch.zeros(16)}))
    with pytest.raises(ModelError, match="none of that name"):
        Applied(other, Change(added={"no.such.weight": torch.zeros(16)}))
    with pytest.raises(ModelError, match="adapters for 2 blocks"):
        Adapters(2, 8, 2).hang_in(other)


def test_a_folder_without_a_change_or_with_a_damaged_one_is_named(tmp_path):
    with pytest.raises(StoreError, match="holds no change.safetensors"):
        read_change(tmp_path)
    (tmp_path / CHANGE_FILE).write_bytes(b"no tensors")
    with pytest.raises(StoreError, match="damaged"):
        read_change(tmp_path)


def test_an_adapter_stands_where_pfeiffer_put_it(students):
    network = student_of(students[0]).network(0)
    block = network.base_model.encoder.layer[1]
    adapters = Adapters(3, 16, 4, seed=1)
    with torch.no_grad():
        for parameter in adapters.parameters():
            parameter.add_(torch.randn_like(parameter))
    adapter, norm = adapters.blocks[1], block.output.LayerNorm
    states, residual = torch.randn(2, 5, 24), torch.randn(2, 5, 16)
    forward, plain = block.output.dense(states), block.output(states, residual)
    normed = functional.layer_norm(forward + residual, (16,), norm.weight, norm.bias, norm.eps)
    down = functional.linear(normed, adapter.down.weight, adapter.down.bias).clamp(min=0)
    inner = functional.linear(down, adapter.up.weight, adapter.up.bias)
    expected = functional.layer_norm(inner + forward + residual, (16,), norm.weight, norm.bias, norm.eps)
    handles = adapters.hang_in(network)
    torch.testing.assert_close(block.output(states, residual), expected)
    assert not torch.allclose(plain, expected)
    for handle in handles:
        handle.remove()
    assert torch.equal(block.output(states, residual), plain)


def test_low_rank_updates_are_those_of_peft(students):
    student = student_of(students[0])
    network, batch = student.network(0), batch_of(student)
    plain = answers(network, batch)
    updates = LowRankUpdates.of_network(network, rank=3, seed=0)
    handles = updates.hang_in(network)
    assert torch.equal(answers(network, batch), plain)  # U starts at 0
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in updates.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    mine = answers(network, batch)
    for handle in handles:
        handle.remove()
    assert torch.equal(answers(network, batch), plain)
    config = peft.LoraConfig(r=3, lora_alpha=6, target_modules=["query", "value"])
    theirs = peft.get_peft_model(network, config)
    with torch.no_grad():
        for block, own in zip(theirs.base_model.model.base_model.encoder.layer, updates.blocks, strict=True):
            for name in ("query", "value"):
                part = getattr(block.attention.self, name)
                part.lora_A["default"].weight.copy_(own[name].down.weight)
                part.lora_B["default"].weight.copy_(own[name].up.weight)
    torch.testing.assert_close(mine, answers(theirs, batch), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(mine, plain, atol=1e-4)


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "mpnet", "roberta", "llama"])
def test_low_rank_updates_find_queries_and_values_of_every_family(family, tiny_folder):
    network = student_of(tiny_folder(family)).network(0)
    assert [len(block) for block in LowRankUpdates.of_network(network, 2, 0).blocks] == [2, 2, 2]


def test_networks_with_fused_projections_are_refused(tiny_folder):
    with pytest.raises(ModelError, match="projections of GPT2ForSequenceClassification are not known"):
        LowRankUpdates.of_network(student_of(tiny_folder("gpt2")).network(0), 2, 0)


def test_fresh_adapters_hardly_change_a_network(students):
    student = student_of(students[0])
    network, batch = student.network(0), batch_of(student)
    before = answers(network, batch)
    Adapters(3, 16, 4).hang_in(network)
    after = answers(network, batch)
    assert not torch.equal(after, before)
    torch.testing.assert_close(after, before, atol=0.01, rtol=0.01)


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "mpnet", "roberta"])
def test_every_encoder_in_the_manner_of_bert_has_a_place_for_adapters(family, tiny_folder):
    network = student_of(tiny_folder(family)).network(0)
    norms = closing_norms(network)
    assert len(norms) == 3
    names = [name for name, part in network.named_modules() if part in norms]
    assert all(name.endswith(("output.LayerNorm", "output_layer_norm")) and "attention" not in name for name in names)


@pytest.mark.parametrize(("family", "said"), [("gpt2", "do not end with a norm"), ("albert", "again and again")])
def test_other_networks_are_refused_with_the_reason(family, said, tiny_folder):
    with pytest.raises(ModelError, match=said):
        closing_norms(student_of(tiny_folder(family)).network(0))


def test_an_adapter_is_not_wider_than_a_layer_nor_empty():
    for reduction in (0, 17):
        with pytest.raises(SettingError, match="from 1 to the 16 neurons"):
            Adapters(3, 16, reduction)
