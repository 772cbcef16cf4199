"""Whole models: every family is cut, frozen and written back, and what cannot be is said."""

import pytest
import torch
import transformers as hf

from residuum.errors import ModelError, SettingError
from residuum.models.loading import find_blocks, probe_batch
from residuum.models.surgery import (
    embedding_modules,
    files_fingerprint,
    freeze,
    keep_layers,
    kept_layers,
    layer_count,
    load_whole,
    named_layers,
    save_whole,
)
from tiny import FAMILIES

PAIRED = ("t5", "marian")
SINGLE = [family for family in FAMILIES if family not in PAIRED]


@pytest.mark.parametrize(
    ("choice", "kept"),
    [
        ({"drop": "top:4"}, [1, 2]),
        ({"drop": "bottom:4"}, [5, 6]),
        ({"drop": "alternate"}, [1, 3, 5]),
        ({"drop": "2,4-5"}, [1, 3, 6]),
        ({"keep": "top:2"}, [5, 6]),
        ({"keep": "bottom:1"}, [1]),
        ({"keep": "alternate"}, [1, 3, 5]),
        ({"keep": "6,1"}, [1, 6]),
        ({"drop": "last"}, [1, 2, 3, 4, 5]),
    ],
)
def test_layers_are_named_by_position(choice, kept):
    assert kept_layers(6, **choice) == kept


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({}, "drop is None and keep is None; give exactly one"),
        ({"drop": "top:1", "keep": "top:1"}, "give exactly one"),
        ({"drop": "top:7"}, "names 7 layers; the model has 1–6"),
        ({"drop": "top:6"}, "leaves none of the 6 layers"),
        ({"drop": "0"}, "names layer 0, the embeddings, which stay; the model has layers 1–6"),
        ({"keep": "5-7"}, "Layer 7 does not exist"),
        ({"drop": "middle"}, "Cannot read layers 'middle'"),
        ({"drop": "5-4"}, "No layer was named"),
    ],
)
def test_layers_that_do_not_exist_are_named(choice, message):
    with pytest.raises(SettingError, match=message):
        kept_layers(6, **choice)


def test_alternate_begins_where_it_is_told():
    assert named_layers("alternate", 5) == [1, 3, 5]
    assert named_layers("alternate", 5, first=2) == [2, 4]


@pytest.mark.parametrize("family", SINGLE)
def test_the_lower_layers_of_a_cut_model_are_those_of_the_whole_one(family, tiny_folder, tmp_path):
    whole, tokenizer = load_whole(tiny_folder(family))
    batch = probe_batch(whole)
    with torch.inference_mode():
        before = whole(**batch, output_hidden_states=True).hidden_states
    keep_layers(whole, [1, 3])
    folder = save_whole(whole, tokenizer, tmp_path / "cut")
    cut = hf.AutoModel.from_pretrained(folder)
    assert layer_count(cut) == 2
    with torch.inference_mode():
        after = cut.eval()(**batch, output_hidden_states=True).hidden_states
    assert len(after) == 3
    torch.testing.assert_close(after[1], before[1])
    if family not in ("albert", "llama", "gpt2", "modernbert"):  # shared blocks; closing norms
        assert not torch.allclose(after[2], before[2], atol=1e-4)


@pytest.mark.parametrize("family", PAIRED)
def test_pairs_of_encoder_and_decoder_are_refused(family, tiny_folder):
    with pytest.raises(ModelError, match="it has an encoder and a decoder"):
        keep_layers(load_whole(tiny_folder(family))[0], [1])


def test_a_layer_that_depends_on_its_place_is_not_written_elsewhere(tiny_folder, tmp_path):
    network, tokenizer = load_whole(tiny_folder("modernbert"))
    keep_layers(network, [2, 3])  # only the first block of ModernBERT goes without a norm
    with pytest.raises(ModelError, match="some of its layers depend on their places"):
        save_whole(network, tokenizer, tmp_path / "cut")
    assert list((tmp_path / "cut").iterdir()) == []


def test_heads_are_loaded_and_kept(tiny_folder, tmp_path):
    config = hf.AutoConfig.from_pretrained(tiny_folder("bert"), num_labels=5)
    torch.manual_seed(0)
    hf.BertForTokenClassification(config).save_pretrained(tmp_path / "tagger")
    hf.AutoTokenizer.from_pretrained(tiny_folder("bert")).save_pretrained(tmp_path / "tagger")
    network, tokenizer = load_whole(tmp_path / "tagger")
    head = network.classifier.weight.clone()
    keep_layers(network, [3])
    save_whole(network, tokenizer, tmp_path / "cut")
    again, _ = load_whole(tmp_path / "cut")
    assert isinstance(again, hf.BertForTokenClassification)
    torch.testing.assert_close(again.classifier.weight, head)


def test_weights_that_would_be_random_are_refused(tiny_folder, tmp_path):
    network, tokenizer = load_whole(tiny_folder("bert"))
    save_whole(network, tokenizer, tmp_path)
    (tmp_path / "config.json").write_text(
        (tmp_path / "config.json").read_text().replace('"num_hidden_layers": 3', '"num_hidden_layers": 4')
    )
    with pytest.raises(ModelError, match="lack 16 tensors of BertModel .* they would be random"):
        load_whole(tmp_path)


@pytest.mark.parametrize("family", [family for family in SINGLE if family != "albert"])
def test_no_gradient_and_no_noise_below_what_is_frozen(family, tiny_folder):
    network, _ = load_whole(tiny_folder(family))
    network.train()
    freeze(network, [1, 2], embeddings=True)
    blocks = find_blocks(network)[2]
    inputs = []
    blocks[2].register_forward_pre_hook(
        lambda _, args, kwargs: inputs.append((*args, *kwargs.values())[0]), with_kwargs=True
    )
    for seed in (0, 1):
        torch.manual_seed(seed)
        network(**probe_batch(network)).last_hidden_state.sum().backward()
    assert not inputs[0].requires_grad
    torch.testing.assert_close(inputs[0], inputs[1], rtol=0, atol=0)
    assert all(p.grad is None for block in blocks[:2] for p in block.parameters())
    assert any(p.grad is not None for p in blocks[2].parameters())


def test_freezing_upper_layers_lets_gradients_pass_to_lower_ones(tiny_folder):
    network, _ = load_whole(tiny_folder("bert"))
    freeze(network, [3], embeddings=False)
    network(**probe_batch(network)).last_hidden_state.pow(3).sum().backward()
    assert network.embeddings.word_embeddings.weight.grad.abs().sum() > 0
    assert all(p.grad is None for p in network.encoder.layer[2].parameters())


def test_what_runs_before_the_first_block_is_found(tiny_folder):
    network, _ = load_whole(tiny_folder("electra"))
    names = [name for name, part in network.named_modules() if part in embedding_modules(network)]
    assert "embeddings_project" in names
    assert "embeddings.word_embeddings" in names
    assert not any(name.startswith("encoder") for name in names)


def test_shared_blocks_cannot_be_frozen_one_by_one(tiny_folder):
    network, _ = load_whole(tiny_folder("albert"))
    with pytest.raises(ModelError, match="runs one block again and again"):
        freeze(network, [1], embeddings=True)
    freeze(network, [], embeddings=True)
    assert not network.embeddings.word_embeddings.weight.requires_grad


def test_a_local_model_is_known_by_its_weights_config_and_tokenizer_and_by_nothing_else(tmp_path):
    for name in ("model.safetensors", "config.json", "tokenizer.json", "special_tokens_map.json", "result.json"):
        (tmp_path / name).write_text(name)
    known = files_fingerprint(tmp_path)
    (tmp_path / "result.json").write_text("another run")
    assert files_fingerprint(tmp_path) == known
    for name in ("model.safetensors", "config.json", "tokenizer.json", "special_tokens_map.json"):
        (tmp_path / name).write_text("changed")
        assert files_fingerprint(tmp_path) != known
        (tmp_path / name).write_text(name)
    assert files_fingerprint(tmp_path) == known
