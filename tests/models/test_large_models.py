"""Half precision, weights on disk, sharded checkpoints and chosen layers: less memory, the same states."""

import numpy as np
import pytest
import torch
import transformers as hf

from residuum import prune, trim
from residuum.activations.extraction import extract
from residuum.errors import MemoryLimitError, SettingError
from residuum.models.loading import (
    TRANSFORMER_READERS,
    _read_every_layer,
    load_model,
    only_first_layers,
)
from residuum.storage.tensors import stored_bytes, stored_kinds
from tiny import FAMILIES, TEXT, build_tokenizer, save_model

BATCH = {"input_ids": torch.tensor([[5, 9, 11, 7, 20, 31], [6, 8, 40, 2, 1, 1]])}
BATCH["attention_mask"] = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])


@pytest.fixture
def folder(tmp_path):
    return save_model("bert", tmp_path / "bert")


@pytest.mark.parametrize("family", FAMILIES)
def test_chosen_layers_are_those_that_transformers_notes(family, tmp_path):
    model = load_model(save_model(family, tmp_path / "model"))
    with torch.inference_mode():
        every = _read_every_layer(model.module, BATCH, range(model.n_layers + 1), False).hidden
    for layers in ([0], [2], [3], [1, 3], [0, 1, 2, 3]):
        read = model.read(BATCH, layers).hidden
        assert all(torch.equal(a, every[layer]) for a, layer in zip(read, layers, strict=True))
    one_by_one = model.reader is TRANSFORMER_READERS[0]
    assert one_by_one == (family not in ("albert", "xlnet"))
    with only_first_layers(model, 2):
        assert torch.allclose(model.read(BATCH, [2]).hidden[0], every[2], atol=1e-6)


def test_layers_that_nobody_wants_are_not_held(folder):
    model = load_model(folder)
    model.module.register_forward_hook(lambda _m, _i, output: held.append(output.hidden_states))
    held = []
    model.read(BATCH, [2])
    assert held == [None]


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("family", ["bert", "llama", "roberta", "t5"])
def test_half_precision_takes_half_the_memory_and_changes_little(family, precision, tmp_path):
    place = save_model(family, tmp_path / "model")
    whole, half = load_model(place), load_model(place, precision=precision)
    kept = 0.5 if family != "t5" or precision == "bfloat16" else 0.6  # T5 keeps what float16 cannot hold
    assert half.n_bytes <= kept * whole.n_bytes
    assert half.fingerprint != whole.fingerprint
    assert half.origin.load().fingerprint == half.fingerprint
    for a, b in zip(whole.read(BATCH, [0, 3]).hidden, half.read(BATCH, [0, 3]).hidden, strict=True):
        shown = BATCH["attention_mask"].bool()
        cosine = torch.nn.functional.cosine_similarity(a[shown].double(), b[shown].double(), dim=-1)
        assert cosine.min() > 0.99


def test_auto_reads_weights_as_they_are_stored(folder, tmp_path):
    hf.AutoModel.from_pretrained(folder).to(torch.bfloat16).save_pretrained(tmp_path / "half")
    hf.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "half")
    assert next(load_model(tmp_path / "half", precision="auto").module.parameters()).dtype == torch.bfloat16
    assert next(load_model(tmp_path / "half").module.parameters()).dtype == torch.float32
    assert next(load_model(folder, precision="auto").module.parameters()).dtype == torch.float32
    with pytest.raises(SettingError, match="Precision 'int3' is not known; choose one of float32, auto"):
        load_model(folder, precision="int3")


def test_the_memory_limit_counts_the_chosen_precision(folder):
    n_bytes = load_model(folder).n_bytes
    limit = int(0.7 * n_bytes)
    with pytest.raises(MemoryLimitError):
        load_model(folder, max_memory=limit)
    assert load_model(folder, precision="bfloat16", max_memory=limit).n_bytes <= limit


def test_weights_on_disk_give_the_same_states(folder):
    whole = load_model(folder)
    spread = load_model(folder, device="spread", max_memory=int(0.9 * whole.n_bytes))
    places = set(spread.module.hf_device_map.values())
    assert places == {"cpu", "disk"}  # so some weights are really away
    assert any(p.is_meta for p in spread.module.parameters())
    assert spread.fingerprint == whole.fingerprint
    for a, b in zip(whole.read(BATCH, range(4)).hidden, spread.read(BATCH, range(4)).hidden, strict=True):
        assert torch.equal(a, b)
    again = spread.origin.load()
    assert again.fingerprint == whole.fingerprint
    assert set(again.module.hf_device_map.values()) == {"cpu", "disk"}


def test_a_sharded_checkpoint_is_one_model(folder, tmp_path):
    model = hf.AutoModel.from_pretrained(folder)
    model.save_pretrained(tmp_path / "sharded", max_shard_size="10KB")
    hf.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "sharded")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    sharded, whole = load_model(tmp_path / "sharded"), load_model(folder)
    assert sharded.fingerprint == whole.fingerprint
    with pytest.raises(MemoryLimitError):  # its files are counted together
        load_model(tmp_path / "sharded", max_memory=whole.n_bytes - 1)


def test_commands_read_in_the_chosen_precision(folder, tmp_path, run):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(TEXT[:4]))
    whole = extract(folder, text, tmp_path / "whole", progress=False)
    run("extract", folder, text, "--precision", "bfloat16", "--out", tmp_path / "half")
    half = extract(folder, text, tmp_path / "half", precision="bfloat16", progress=False)
    assert half.fingerprint != whole.fingerprint
    a, b = (store.read(0, 4).layers[-1].astype(np.float64) for store in (whole, half))
    assert 0 < np.abs(a - b).max() < 0.1 * np.abs(a).max()


@pytest.fixture
def half_folder(tmp_path):
    """A tiny decoder that is stored in bfloat16."""
    folder = save_model("llama", tmp_path / "half")
    hf.AutoModelForCausalLM.from_pretrained(folder).to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("precision", ["float32", "auto"])
def test_a_model_stored_in_half_precision_is_pruned_and_trimmed_into_one(half_folder, precision, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(TEXT))
    options = {"precision": precision, "progress": False}
    prune(half_folder, tmp_path / "pruned", drop="3", **options)
    trim(half_folder, [tmp_path / "text.txt"], tmp_path / "trimmed", **options)
    for made in ("pruned", "trimmed"):
        assert set(stored_kinds(tmp_path / made).values()) == {"BF16"}
        assert stored_bytes(tmp_path / made) <= stored_bytes(half_folder)
        assert hf.AutoConfig.from_pretrained(tmp_path / made).dtype == torch.bfloat16
    old, new = load_model(half_folder), load_model(tmp_path / "pruned")  # float32 holds the stored weights exactly
    assert torch.equal(old.read(BATCH, [1]).hidden[0], new.read(BATCH, [1]).hidden[0])


def test_layers_are_chosen_in_half_precision_as_in_whole(half_folder, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(TEXT))
    for by in ("influence", "fidelity", "perplexity", "cka", "angular"):
        kept = [
            prune(half_folder, tmp_path / f"{by}-{precision}", drop="1", by=by, corpus=tmp_path / "text.txt",
                  ffn=0.5, precision=precision, device="cpu", progress=False).kept
            for precision in ("float32", "auto")
        ]  # fmt: skip
        assert kept[0] == kept[1]
    with pytest.raises(SettingError, match="precision is auto, but healing trains in float32"):
        prune(half_folder, tmp_path / "x", drop="1", corpus=tmp_path / "text.txt", heal=2, precision="auto")


@pytest.fixture
def seven_billion(tmp_path):
    """The config of a Llama of 7 billion weights, with a small tokenizer and no weights."""
    folder = tmp_path / "llama-7b"
    hf.LlamaConfig(dtype="bfloat16").save_pretrained(folder)  # the defaults are those of Llama 7B
    build_tokenizer("plain bytes").save_pretrained(folder)
    return folder


def test_a_model_of_seven_billion_weights_is_planned_without_them(seven_billion):
    model = load_model(seven_billion, device="meta", precision="auto")
    layer = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    assert model.n_parameters == 32000 * 4096 + 32 * layer + 4096  # counted by hand
    assert model.n_bytes == 2 * model.n_parameters
    assert load_model(seven_billion, device="meta").n_bytes == 4 * model.n_parameters
    assert (model.n_layers, model.hidden_size, model.causal, model.n_heads) == (32, 4096, True, 32)
    lower = load_model(seven_billion, device="meta", layers=8)
    assert (lower.n_layers, lower.n_parameters) == (8, 32000 * 4096 + 8 * layer)


def test_the_plan_of_an_extraction_tells_what_half_precision_and_few_layers_save(seven_billion, tmp_path, run):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(TEXT))
    n_words = sum(len(line.split()) for line in TEXT)
    command = ("extract", seven_billion, text, "--device", "meta", "--out", tmp_path / "store", "--estimate")
    assert run(*command)[0] == 0
    plans = {}
    for precision in ("float32", "bfloat16"):
        for layers in ("all", "last"):
            options = {"device": "meta", "precision": precision, "layers": layers, "progress": False}
            plans[precision, layers] = extract.estimate(seven_billion, text, tmp_path / "store", **options)
    weights = load_model(seven_billion, device="meta").n_bytes
    saved = plans["float32", "all"].memory - plans["bfloat16", "all"].memory
    assert saved == weights // 2
    assert plans["float32", "all"].disk == 33 * plans["float32", "last"].disk == 4 * 33 * 4096 * n_words
    with pytest.raises(MemoryLimitError):
        extract.estimate(seven_billion, text, tmp_path / "store", device="meta", max_memory=10**9)
    with pytest.raises(SettingError, match="device is 'meta', which loads no weights; it is for --estimate"):
        extract(seven_billion, text, tmp_path / "store", device="meta")
    assert not (tmp_path / "store").exists()
