"""Loading models, naming and keeping layers."""

import shutil

import pytest
import torch
import transformers as hf
from torch import nn

from reference import plain_model
from residuum.errors import ModelError, SettingError
from residuum.models.loading import (
    first_layers,
    from_module,
    from_transformers,
    load_model,
    only_first_layers,
    parse_layers,
    resolve_device,
)
from residuum.samples import teacher_folder
from tiny import FAMILIES, RecurrentLanguageModel, build_tokenizer

BATCH = {
    "input_ids": torch.tensor([[9, 12, 31, 17, 8]]),
    "attention_mask": torch.ones(1, 5, dtype=torch.long),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_are_those_of_transformers(family, tiny_folder):
    model = load_model(tiny_folder(family))
    assert (model.n_layers, model.hidden_size, model.n_heads) == (3, 16, 2)
    with torch.inference_mode():
        expected = plain_model(tiny_folder(family))(**BATCH, output_hidden_states=True).hidden_states
    for ours, theirs in zip(model.read(BATCH, range(4)).hidden, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("family", FAMILIES)
def test_decoders_are_told_from_encoders(family, tiny_folder):
    assert load_model(tiny_folder(family)).causal == (family in {"gpt", "gpt2", "llama"})


@pytest.mark.parametrize("family", FAMILIES)
def test_the_window_is_what_the_positions_allow(family, tiny_folder):
    assert load_model(tiny_folder(family)).window == {"xlnet": None, "t5": None}.get(family, 48)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("k", [0, 2])
def test_the_first_layers_are_unchanged_and_the_others_do_not_run(family, k, tiny_folder):
    model = load_model(tiny_folder(family))
    whole = model.read(BATCH, range(k + 1)).hidden
    with only_first_layers(model, k):
        kept = model.read(BATCH, range(k + 1)).hidden
        ran = _runs_of_the_last_block(model)
    for a, b in zip(kept, whole, strict=True):
        torch.testing.assert_close(a, b)
    assert not ran
    assert _runs_of_the_last_block(model)
    torch.testing.assert_close(
        model.read(BATCH, [3]).hidden[0], load_model(tiny_folder(family)).read(BATCH, [3]).hidden[0]
    )


def _runs_of_the_last_block(model) -> bool:
    """Whether a pass reaches layer 3, seen from outside: how many hidden states transformers collects."""
    with torch.inference_mode():
        return len(model.module(**BATCH, output_hidden_states=True).hidden_states) == 4


def test_keeping_the_first_layers_at_loading_drops_weights(tiny_folder):
    whole, half = load_model(tiny_folder("bert")), load_model(tiny_folder("bert"), layers=1)
    assert half.n_layers == 1
    assert half.n_parameters < whole.n_parameters
    with pytest.raises(SettingError, match="Cannot keep the first 9 layers of bert: it has 3"):
        first_layers(whole, 9)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_random_twin_really_differs_in_every_weight_matrix(family, tiny_folder):
    real = load_model(tiny_folder(family))
    twin = load_model(tiny_folder(family), random_init=True, seed=3)
    assert twin.random_init
    assert twin.name.endswith("(random)")
    weights = dict(real.module.named_parameters())
    for name, parameter in twin.module.named_parameters():
        if parameter.ndim > 1 and "token_type" not in name:
            assert not torch.allclose(parameter, weights[name], atol=1e-3), name
    assert twin.fingerprint == load_model(tiny_folder(family), random_init=True, seed=3).fingerprint
    assert twin.fingerprint != load_model(tiny_folder(family), random_init=True, seed=4).fingerprint


def test_drawing_a_twin_leaves_the_callers_random_state_alone(tiny_folder):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    load_model(tiny_folder("bert"), random_init=True)
    torch.testing.assert_close(torch.rand(3), expected)


def test_a_recurrent_model_is_read_through_the_same_interface():
    tokenizer = build_tokenizer("wordpiece")
    torch.manual_seed(0)
    network = RecurrentLanguageModel(len(tokenizer))
    model = from_module(network, tokenizer, ["embedding", "first", "second"], name="elmo-like")
    assert (model.widths, model.pads) == ((16, 16, 16), False)
    layers = model.read(BATCH, [0, 2]).hidden
    with torch.inference_mode():
        torch.testing.assert_close(layers[1], network(BATCH["input_ids"]))


def test_outputs_of_another_shape_are_refused():
    tokenizer = build_tokenizer("wordpiece")
    network = nn.Sequential(nn.Embedding(len(tokenizer), 4), nn.Flatten())
    with pytest.raises(ModelError, match=r"'network.1' gave shape \(1, 32\); expected \(1, 8, 'hidden'\)"):
        from_module(_WithInputIds(network), tokenizer, ["network.0", "network.1"])


def test_an_unknown_submodule_is_refused_with_the_names_there_are():
    network = RecurrentLanguageModel(200)
    with pytest.raises(ModelError, match="No submodule 'third'.*embedding, first, second"):
        from_module(network, build_tokenizer("wordpiece"), ["third"])


def test_a_model_in_memory_is_taken_without_its_head():
    config = hf.BertConfig(**FAMILIES["bert"][2], vocab_size=180)
    model = from_transformers(hf.BertForMaskedLM(config), build_tokenizer("wordpiece"))
    assert model.module.__class__ is hf.BertModel


@pytest.mark.parametrize(
    ("text", "expected"),
    [("all", [0, 1, 2, 3]), ("last", [3]), ("0,2-3", [0, 2, 3]), ("1", [1]), (2, [2]), ([3, 1], [1, 3])],
)
def test_layers_are_named_by_numbers_ranges_and_words(text, expected):
    assert parse_layers(text, 3) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [("4", "Layer 4 does not exist: the model has layers 0–3"), ("1,x", "'x' is neither"), ([], "No layer")],
)
def test_unknown_layers_are_refused(text, message):
    with pytest.raises(SettingError, match=message):
        parse_layers(text, 3)


def test_a_missing_folder_is_named():
    with pytest.raises(ModelError, match="/nowhere/model does not exist"):
        load_model("/nowhere/model")


def test_a_hub_name_that_cannot_be_reached_is_named():
    with pytest.raises(ModelError, match="nobody/nothing does not exist here, and cannot be loaded from the hub"):
        load_model("nobody/nothing")


def test_a_folder_without_weights_says_what_it_holds(tiny_folder, tmp_path):
    shutil.copy(tiny_folder("bert") / "config.json", tmp_path)
    with pytest.raises(ModelError, match=r"holds no model.safetensors \(found: config.json\)"):
        load_model(tmp_path)


def test_pickled_weights_are_read_only_on_request(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder("bert"), tmp_path / "pickled")
    weights = tmp_path / "pickled" / "model.safetensors"
    torch.save(
        hf.AutoModel.from_pretrained(tiny_folder("bert")).state_dict(),
        tmp_path / "pickled" / "pytorch_model.bin",
    )
    weights.unlink()
    with pytest.raises(ModelError, match="Pickled weights are read only with allow_pickle"):
        load_model(tmp_path / "pickled")
    assert (
        load_model(tmp_path / "pickled", allow_pickle=True).fingerprint == load_model(tiny_folder("bert")).fingerprint
    )


def test_weights_that_do_not_fit_the_config_are_refused(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder("bert"), tmp_path / "deeper")
    config = tmp_path / "deeper" / "config.json"
    config.write_text(config.read_text().replace('"num_hidden_layers": 3', '"num_hidden_layers": 5'))
    with pytest.raises(ModelError, match="lack 32 tensors of BertModel"):
        load_model(tmp_path / "deeper")


def test_damaged_weights_are_named(tiny_folder, tmp_path):
    shutil.copytree(tiny_folder("bert"), tmp_path / "damaged")
    weights = tmp_path / "damaged" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match="damaged"):
        load_model(tmp_path / "damaged")


def test_an_unknown_device_is_refused():
    with pytest.raises(SettingError, match="Device 'tpu' is not known; choose one of auto, cpu"):
        resolve_device("tpu")
    assert resolve_device("auto").type in {"cpu", "cuda", "mps"}


def test_attention_needs_a_model_loaded_for_it(tiny_folder):
    with pytest.raises(ModelError, match="attention=True"):
        load_model(tiny_folder("bert")).read(BATCH, [1], attention=True)


class _WithInputIds(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.network(input_ids)


def test_a_model_without_a_pooler_is_the_same_model_whenever_it_is_loaded():
    """What the weights lack would be drawn at random, and the drawn pooler told one loading from the next."""
    first, again = load_model(teacher_folder()), load_model(teacher_folder())
    assert first.fingerprint == again.fingerprint
    assert not any("pooler" in name for name, _ in first.module.named_parameters())
