"""Silencing neurons in the running model."""

import numpy as np
import pytest
import torch
from torch import nn

from residuum.activations.extraction import extract
from residuum.activations.store import neuron_means
from residuum.corpus import Corpus
from residuum.errors import ModelError, SettingError
from residuum.models.ablation import WAYS, ablated
from residuum.models.loading import from_module, from_transformers, load_model
from tiny import FAMILIES, RecurrentLanguageModel, build_tokenizer

BATCH = {
    "input_ids": torch.tensor([[9, 12, 31, 17, 8], [7, 11, 6, 0, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
}
LAYERS = range(4)
CORPUS = Corpus(name="x", sentences=[["The", "quick", "fox"], ["A", "small", "text", "."]])


def states(model):
    return [layer.clone() for layer in model.read(BATCH, LAYERS).hidden]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_layer_is_silenced_those_below_stay_and_those_above_notice(family, tiny_folder):
    model = load_model(tiny_folder(family))
    whole = states(model)
    others = [neuron for neuron in range(16) if neuron not in (3, 15)]
    for layer in LAYERS:
        with ablated(model, [f"{layer}:3", f"{layer}:15"]):
            lesioned = states(model)
        for below in range(layer):
            assert torch.equal(lesioned[below], whole[below])
        assert (lesioned[layer][..., [3, 15]] == 0).all()
        assert torch.equal(lesioned[layer][..., others], whole[layer][..., others])
        for above in range(layer + 1, 4):
            assert (lesioned[above] - whole[above]).abs().max() > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_everything_is_restored_to_the_bit(family, tiny_folder):
    model = load_model(tiny_folder(family))
    whole, weights = states(model), model.fingerprint
    hooks = _hooks(model.module)
    with pytest.raises(RuntimeError, match="on the way"), ablated(model, ["0:1", "2:2", "3:0"]):
        raise RuntimeError("on the way")
    assert _hooks(model.module) == hooks
    assert all(torch.equal(a, b) for a, b in zip(states(model), whole, strict=True))
    assert load_model(tiny_folder(family)).fingerprint == weights


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "mpnet", "gpt2", "llama"])
def test_upper_layers_compute_from_exactly_the_silenced_states(family, tiny_folder):
    """The oracle: the next block is run by hand on the edited states of the whole model."""
    model = load_model(tiny_folder(family))
    for layer in (0, 2):
        edited = states(model)[layer]
        edited[..., 5] = 0
        with ablated(model, [f"{layer}:5"]):
            lesioned = states(model)
        torch.testing.assert_close(_run_from(model.module, layer, edited), lesioned[layer + 1])


@pytest.mark.parametrize("family", ["bert", "gpt2", "albert"])
def test_means_replace_what_a_neuron_says(family, tiny_folder, tmp_path):
    model = load_model(tiny_folder(family))
    store = extract(model, CORPUS, tmp_path / "whole", progress=False)
    means = neuron_means(store)
    np.testing.assert_allclose(means[2], store.array([2])[:, 0].mean(axis=0, dtype=np.float64), rtol=1e-6)
    with ablated(model, ["2:4"], "mean", means):
        lesioned = states(model)
    np.testing.assert_allclose(lesioned[2][..., 4], means[2][4], rtol=1e-6)
    assert not torch.equal(lesioned[3], states(model)[3])


def test_keeping_silences_the_others_of_the_named_layers_only(tiny_folder):
    model = load_model(tiny_folder("bert"))
    whole = states(model)
    with ablated(model, ["1:4", "1:7"], "keep"):
        kept = states(model)
    assert torch.equal(kept[0], whole[0])
    assert torch.equal(kept[1][..., [4, 7]], whole[1][..., [4, 7]])
    assert kept[1].count_nonzero() == 2 * kept[1][..., 0].numel()
    assert kept[2].count_nonzero() == kept[2].numel()
    every = [f"1:{index}" for index in range(16)]
    with ablated(model, every, "keep"):
        assert all(torch.equal(a, b) for a, b in zip(states(model), whole, strict=True))
    means = {1: np.full(16, 2.0)}
    with ablated(model, ["1:4"], "keep", means):
        assert (states(model)[1][..., 5] == 2).all()


def test_lesions_add_up(tiny_folder):
    model = load_model(tiny_folder("llama"))
    with ablated(model, ["1:2", "3:9"]):
        together = states(model)
    with ablated(model, ["1:2"]) as first, ablated(first, ["3:9"]) as second:
        assert all(torch.equal(a, b) for a, b in zip(states(second), together, strict=True))
        assert len({model.fingerprint, first.fingerprint, second.fingerprint}) == 3


def test_a_lesioned_model_is_never_taken_for_the_whole_one(tiny_folder, tmp_path):
    model = load_model(tiny_folder("bert"))
    extract(model, CORPUS, tmp_path / "acts", progress=False)
    with ablated(model, ["1:2"]) as lesioned:
        assert lesioned.name == "bert (zero 1 neurons)"
        with pytest.raises(Exception, match="model"):
            extract(lesioned, CORPUS, tmp_path / "acts", progress=False)
        other = extract(lesioned, CORPUS, tmp_path / "other", layers="0-1", progress=False)
    assert (other.array([1])[:, 0, 2] == 0).all()
    assert model.fingerprint == load_model(tiny_folder("bert")).fingerprint


def test_gradients_flow_around_a_silenced_neuron(tiny_folder):
    model = load_model(tiny_folder("bert"))
    with ablated(model, ["0:3", "3:1"]):
        output = model.module(**BATCH).last_hidden_state
    output.square().sum().backward()
    assert model.module.embeddings.word_embeddings.weight.grad.abs().sum() > 0


def test_any_network_can_be_lesioned_by_the_names_of_its_layers():
    tokenizer = build_tokenizer("wordpiece")
    model = from_module(RecurrentLanguageModel(len(tokenizer)), tokenizer, ["embedding", "first", "second"])
    batch = {"input_ids": BATCH["input_ids"][:1]}
    whole = model.read(batch, range(3)).hidden
    with ablated(model, ["1:0"]):
        lesioned = model.read(batch, range(3)).hidden
    assert torch.equal(lesioned[0], whole[0])
    assert (lesioned[1][..., 0] == 0).all()
    assert not torch.equal(lesioned[2], whole[2])


class Unreachable(nn.Module):
    """A model whose first list of modules looks like its blocks, and is never run."""

    def __init__(self, module):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Identity() for _ in range(3)])
        self.inner, self.config = module, module.config

    def forward(self, **batch):
        return self.inner(**batch)


def test_a_network_that_does_not_obey_is_refused(tiny_folder):
    whole = load_model(tiny_folder("bert"))
    model = from_transformers(Unreachable(whole.module), whole.tokenizer)
    with pytest.raises(ModelError, match="cannot be ablated: layer 1 keeps its values"), ablated(model, ["1:0"]):
        pass
    assert not _hooks(model.module) - _hooks(whole.module)


@pytest.mark.parametrize(
    ("neurons", "how", "means", "message"),
    [
        (["4:0"], "zero", None, "Layer 4 is not here"),
        (["3:16"], "zero", None, "Neuron 3:16 does not exist: layer 3 has the neurons 0–15"),
        (["three"], "zero", None, "'three' is not a neuron id"),
        ([], "zero", None, "No neuron was named"),
        (["1:1"], "burn", None, f"'burn'; choose one of {', '.join(WAYS)}"),
        (["1:1"], "mean", None, "No means were given"),
        (["1:1"], "mean", {0: np.zeros(16)}, "The means of layer 1 are nothing; expected 16 numbers"),
        (["1:1"], "mean", {1: np.zeros(4)}, r"The means of layer 1 are \(4,\)"),
    ],
)
def test_mistakes_are_explained(neurons, how, means, message, tiny_folder):
    model = load_model(tiny_folder("bert"))
    with pytest.raises(SettingError, match=message), ablated(model, neurons, how, means):
        pass


def _hooks(module):
    return {key for part in module.modules() for key in (*part._forward_hooks, *part._forward_pre_hooks)}


def _run_from(module, layer, edited):
    """What the block after `layer` makes of the edited states, the rest of its inputs being those of a real pass."""
    blocks = next(m for m in module.modules() if isinstance(m, nn.ModuleList) and len(m) == 3)
    seen = {}

    def note(_block, inputs, options):
        seen["inputs"], seen["options"] = inputs, options

    handle = blocks[layer].register_forward_pre_hook(note, with_kwargs=True)
    with torch.inference_mode():
        module(**BATCH, **({"use_cache": False} if getattr(module.config, "use_cache", False) else {}))
        handle.remove()
        output = blocks[layer](edited, *seen["inputs"][1:], **seen["options"])
        output = output if isinstance(output, torch.Tensor) else output[0]
        for name in ("norm", "ln_f"):
            if layer == 2 and hasattr(module, name):
                output = getattr(module, name)(output)
    return output
