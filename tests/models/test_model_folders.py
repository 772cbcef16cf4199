"""Folders whose parts do not belong together are refused in one line."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from residuum.activations.extraction import extract
from residuum.corpus import Corpus
from residuum.errors import ModelError
from residuum.models.loading import load_model
from residuum.models.surgery import load_whole
from residuum.shrinking.trimming import trim


@pytest.fixture
def folder(tiny_folder, tmp_path):
    return shutil.copytree(tiny_folder("bert"), tmp_path / "model")


def change_json(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_tokenizer_with_more_entries_than_embeddings_is_refused(folder, tmp_path):
    path = folder / "tokenizer.json"
    stored = json.loads(path.read_text())
    vocabulary = stored["model"]["vocab"]
    rows = len(vocabulary)
    vocabulary["fox-trot"] = rows + 5
    path.write_text(json.dumps(stored))
    expected = rf"token ids up to {rows + 5}, but the model has embeddings of {rows} tokens only"
    with pytest.raises(ModelError, match=expected):
        load_model(folder)
    with pytest.raises(ModelError, match=expected):
        load_whole(folder)
    (tmp_path / "text.txt").write_text("the fox\n")
    with pytest.raises(ModelError, match=expected):
        trim(folder, tmp_path / "text.txt", out=tmp_path / "out")


@pytest.mark.parametrize("place", ["pre_tokenizer", "normalizer"])
def test_a_pattern_that_never_ends_is_a_clear_error(folder, tmp_path, place, monkeypatch):
    monkeypatch.setenv("RUST_BACKTRACE", "0")
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    replace = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "x"}
    change_json(folder / "tokenizer.json", **{place: split if place == "pre_tokenizer" else replace})
    model = load_model(folder)
    with pytest.raises(ModelError, match=r"The tokenizer failed on this text \(Onig: Regex search error: retry-limit"):
        extract(model, Corpus("x", [["a" * 60 + "b", "c"]]), tmp_path / "acts", progress=False)


@pytest.mark.parametrize("family", ["bert", "gpt2", "xlm-roberta", "distilbert"])
def test_weights_of_more_layers_than_the_config_counts_are_refused(family, tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder(family), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    key = next(k for k in ("num_hidden_layers", "n_layer", "n_layers") if k in config)
    change_json(folder / "config.json", **{key: 2})
    if "layer_types" in config:
        change_json(folder / "config.json", layer_types=config["layer_types"][:2])
    with pytest.raises(ModelError, match=r"a block that its config\.json does not count; it would be left out"):
        load_model(folder)


def test_a_tokenizer_whose_unknown_token_is_not_in_its_vocabulary_is_a_clear_error(folder, tmp_path):
    """Its library raises a bare Exception, when it first meets a word that it does not know."""
    path = folder / "tokenizer.json"
    stored = json.loads(path.read_text())
    stored["model"]["unk_token"] = "[NOTHING]"
    path.write_text(json.dumps(stored))
    with pytest.raises(ModelError, match="The tokenizer failed on this text .* lacks its unknown token"):
        extract(load_model(folder), Corpus("text", [["fox", "\u2603\u2603"]]), tmp_path / "acts", progress=False)


@pytest.mark.filterwarnings("ignore:Casting complex")  # torch says so while the weights are read
@pytest.mark.parametrize("dtype", [torch.int8, torch.complex64])
def test_weights_that_are_no_real_numbers_are_refused(dtype, folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = next(key for key in tensors if key.endswith("layer.1.attention.self.query.weight"))
    tensors[name] = tensors[name].to(dtype)
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"query\.weight in .* is stored as (I8|C64); expected floating-point weights"):
        load_model(folder)


def test_whole_numbers_beside_the_weights_are_no_weights(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path) | {"embeddings.position_ids": torch.arange(48)[None]}
    save_file(tensors, path, metadata={"format": "pt"})
    assert load_model(folder).n_layers == 3
