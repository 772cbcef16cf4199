"""Freezing: what does not learn is not run backwards, and a frozen bottom can be computed once."""

from dataclasses import replace
from functools import partial

import pytest
import torch
import transformers as hf
from task_data import task_data_of

from residuum.errors import SettingError, StoreError
from residuum.training.encoding import padded_inputs
from residuum.training.learning import task_loss
from residuum.training.networks import (
    FrozenLayers,
    SplitNetwork,
    apply_frozen,
    cache_bytes,
    fill_cache,
    parse_frozen,
)
from tiny import FAMILIES

WHOLE = [family for family in FAMILIES if family not in ("albert", "xlnet", "t5", "marian")]


@pytest.mark.parametrize(
    ("text", "frozen", "bottom"),
    [
        (None, FrozenLayers(), 0),
        ("bottom:2", FrozenLayers((1, 2), True), 2),
        ("top:2", FrozenLayers((3, 4), False), 0),
        ("embeddings", FrozenLayers((), True), 0),
        ("1-2", FrozenLayers((1, 2), False), 0),
        ("embeddings+1,2,4", FrozenLayers((1, 2, 4), True), 2),
        ("bottom:1+top:1", FrozenLayers((1, 4), True), 1),
    ],
)
def test_what_is_frozen_is_read_from_words(text, frozen, bottom):
    assert parse_frozen(text, 4) == frozen
    assert frozen.bottom == bottom


@pytest.mark.parametrize("text", ["bottom:5", "middle", "bottom", "top:-1"])
def test_layers_that_do_not_exist_cannot_be_frozen(text):
    with pytest.raises(SettingError, match="bottom:5|Cannot read layers"):
        parse_frozen(text, 4)


def test_only_the_head_may_be_left_to_learn(tiny_folder):
    network, _, _ = task_data_of("classification", tiny_folder("bert"))
    apply_frozen(network, parse_frozen("bottom:3", 3))
    learning = [name for name, p in network.named_parameters() if p.requires_grad]
    assert learning == ["bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "classifier.bias"]


@pytest.mark.parametrize("family", WHOLE)
def test_lower_and_upper_part_together_are_the_network(family, tiny_folder):
    network, _, data = task_data_of("classification", tiny_folder(family))
    network.eval()
    batch = data.collate_train(data.train.examples[:4])["inputs"]
    for bottom in (1, 2):
        split = SplitNetwork(network, bottom)
        assert split.fits()
        whole = network(**batch).logits
        with split.resumed(split.lower(batch)) as upper:
            torch.testing.assert_close(upper(**batch).logits, whole)
        torch.testing.assert_close(network(**batch).logits, whole, rtol=0, atol=0)  # and all is back


@pytest.mark.parametrize("family", ["albert", "xlnet"])
def test_networks_that_cannot_be_cut_say_so(family, tiny_folder):
    network, _, _ = task_data_of("classification", tiny_folder(family))
    assert not SplitNetwork(network, 2).fits()


@pytest.mark.parametrize("window", [4, 4096])
def test_blocks_whose_window_goes_by_their_place_are_cut_only_where_each_keeps_its_own(window):
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "head_dim": 8}
    config = hf.Gemma2Config(**sizes, num_hidden_layers=4, num_key_value_heads=1, sliding_window=window)
    assert config.layer_types == ["sliding_attention", "full_attention"] * 2
    network = hf.AutoModel.from_config(config).eval()
    assert [SplitNetwork(network, bottom).fits() for bottom in (1, 2, 3)] == [False, True, False]
    assert config.sliding_window == window
    batch = {"input_ids": torch.arange(12)[None], "attention_mask": torch.ones(1, 12, dtype=torch.long)}
    split = SplitNetwork(network, 2)
    with torch.no_grad(), split.resumed(split.lower(batch)) as upper:
        resumed = upper(**batch).last_hidden_state
    torch.testing.assert_close(resumed, network(**batch).last_hidden_state)


def test_the_lower_part_stops_at_the_cut(tiny_folder):
    network, _, data = task_data_of("classification", tiny_folder("bert"))
    ran = []
    for block in network.bert.encoder.layer:
        block.register_forward_hook(lambda block, *_: ran.append(block))
    split = SplitNetwork(network, 2)
    batch = data.collate_train(data.train.examples[:2])["inputs"]
    states = split.lower(batch)
    assert ran == list(network.bert.encoder.layer[:2])
    ran.clear()
    with split.resumed(states) as upper:
        upper(**batch)
    assert ran == [network.bert.encoder.layer[2]]


@pytest.mark.parametrize("kind", ["classification", "pair", "regression", "tagging", "choice"])
def test_gradients_from_the_cache_are_those_of_autograd_frozen_training(kind, tiny_folder):
    network, _, data = task_data_of(kind, tiny_folder("bert"))
    apply_frozen(network, parse_frozen("bottom:2", 3))
    for part in network.modules():  # so that both see the same network
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    cached = replace(data.collate_train, cache=_filled(network, data))
    examples = data.train.examples[3:9]
    gradients = []
    for collate in (data.collate_train, cached):
        network.zero_grad()
        batch = collate(examples)
        if "states" in batch:
            with SplitNetwork(network, 2).resumed(batch["states"]) as upper:
                logits = upper(**batch["inputs"]).logits
        else:
            logits = network(**batch["inputs"]).logits
        task_loss(data.problem.kind, logits, batch["labels"]).backward()
        gradients.append({name: p.grad for name, p in network.named_parameters()})
    assert any(g is not None and g.abs().sum() > 0 for g in gradients[0].values())
    for name, expected in gradients[0].items():
        assert (expected is None) == (gradients[1][name] is None), name
        if expected is not None:
            torch.testing.assert_close(gradients[1][name], expected, atol=1e-6, rtol=1e-4)


def _filled(network, data, **changes):
    settings = {"width": 16, "memory": 1 << 30, "folder": None, "identity": "w", **changes}
    pad = partial(padded_inputs, pad=data.collate_train.pad, with_types=data.collate_train.with_types)
    return fill_cache(SplitNetwork(network, 2), data.train, pad, **settings)


def test_states_on_disk_are_those_in_memory_and_are_used_again(tiny_folder, tmp_path):
    network, _, data = task_data_of("choice", tiny_folder("bert"))
    apply_frozen(network, parse_frozen("bottom:2", 3))
    size = cache_bytes(data.train, 16)
    in_memory = _filled(network, data, memory=size)
    on_disk = _filled(network, data, memory=size - 1, folder=tmp_path)
    assert (in_memory.on_disk, on_disk.on_disk) == (False, True)
    torch.testing.assert_close(in_memory.states, on_disk.states, rtol=0, atol=0)
    (file,) = tmp_path.glob("*.bin")
    assert file.stat().st_size == size
    written = file.stat().st_mtime_ns
    _filled(network, data, memory=0, folder=tmp_path)
    assert file.stat().st_mtime_ns == written
    _filled(network, data, memory=0, folder=tmp_path, identity="other weights")
    assert len(list(tmp_path.glob("*.bin"))) == 2


@pytest.mark.parametrize("damage", ["cut", "bit", "note"])
def test_damaged_states_on_disk_are_made_anew(damage, tiny_folder, tmp_path):
    network, _, data = task_data_of("choice", tiny_folder("bert"))
    apply_frozen(network, parse_frozen("bottom:2", 3))
    whole = _filled(network, data, memory=0, folder=tmp_path).states.clone()
    (file,) = tmp_path.glob("*.bin")
    held = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(held[: len(held) // 2])
    elif damage == "bit":
        held[len(held) // 2] ^= 1
        file.write_bytes(held)
    else:
        file.with_suffix(".json").write_text("{")
    torch.testing.assert_close(_filled(network, data, memory=0, folder=tmp_path).states, whole, rtol=0, atol=0)


def test_a_full_disk_is_an_error_before_states_are_mapped(tiny_folder, small_disk):
    network, _, data = task_data_of("choice", tiny_folder("bert"))
    apply_frozen(network, parse_frozen("bottom:2", 3))
    (small_disk / "filling").write_bytes(b"x" * (296 * 1024))
    assert cache_bytes(data.train, 16) > 4096
    with pytest.raises(StoreError, match="The disk is full"):
        _filled(network, data, memory=0, folder=small_disk)
    assert [path.name for path in small_disk.iterdir()] == ["filling"]


def test_cached_states_are_padded_with_zeros(tiny_folder):
    network, _, data = task_data_of("classification", tiny_folder("bert"))
    apply_frozen(network, parse_frozen("bottom:2", 3))
    cache = _filled(network, data)
    lengths = [len(example.sequences[0].ids) for example in data.train.examples]
    block = cache.padded([3, 0], max(lengths) + 2)
    assert block.shape == (2, max(lengths) + 2, 16)
    assert (block[0, lengths[3] :] == 0).all()
    assert (block[0, : lengths[3]] != 0).any()
    inputs = padded_inputs([data.train.examples[3].sequences[0]], 0, with_types=False)
    torch.testing.assert_close(block[0, : lengths[3]], SplitNetwork(network, 2).lower(inputs)[0], atol=1e-5, rtol=1e-4)
