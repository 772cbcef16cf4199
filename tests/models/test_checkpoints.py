"""Checkpoints as people have them: encoders of pairs, computed positions, parts side by side, wrong tokenizers."""

import copy
import json

import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from residuum import load_model, prune, trim
from residuum.errors import ModelError
from residuum.models.loading import probe_batch
from tiny import FAMILIES, SIZES, TEXT, build_tokenizer, save_model

T5 = FAMILIES["t5"][2]
XLM = {"n_layers": 3, "n_heads": 2, "emb_dim": 16, "max_position_embeddings": 48, "pad_index": 1}
DECODER = {**SIZES, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 48, "sliding_window": 8}
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
FORMS = {
    "t5 encoder": ("unigram eos", hf.T5EncoderModel, T5),
    "mt5 encoder": ("unigram eos", hf.MT5EncoderModel, T5),
    "umt5 encoder": ("unigram eos", hf.UMT5EncoderModel, T5),
    "umt5": ("unigram eos", hf.UMT5Model, T5),
    "marian": ("unigram eos", hf.MarianMTModel, FAMILIES["marian"][2]),
    "xlm": ("bpe", hf.XLMModel, XLM),
    "xlm, sinusoidal": ("bpe", hf.XLMModel, {**XLM, "sinusoidal_embeddings": True}),
    "distilbert, sinusoidal": (
        "wordpiece",
        hf.DistilBertModel,
        {**FAMILIES["distilbert"][2], "sinusoidal_pos_embds": True},
    ),
    "qwen3": ("plain bytes", hf.Qwen3ForCausalLM, {**DECODER, "layer_types": KINDS, "use_sliding_window": True}),
    "gemma3": ("plain bytes", hf.Gemma3ForCausalLM, {**DECODER, "layer_types": KINDS}),
    "modernbert": ("bytes", hf.ModernBertModel, FAMILIES["modernbert"][2]),
}
PAIRS = ("umt5", "marian")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    root, built = tmp_path_factory.mktemp("checkpoints"), {}

    def make(form):
        if form not in built:
            kind, model_class, sizes = FORMS[form]
            tokenizer = build_tokenizer(kind)
            special = {"pad_token_id": tokenizer.pad_token_id, "decoder_start_token_id": tokenizer.pad_token_id}
            torch.manual_seed(0)
            model = model_class(model_class.config_class(vocab_size=len(tokenizer), **special, **sizes))
            folder = built[form] = root / form.replace(", ", "-")
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        return built[form]

    return make


@pytest.mark.parametrize("form", FORMS)
def test_layers_are_those_of_the_models_own_class(form, checkpoint):
    folder = checkpoint(form)
    model = load_model(folder, device="cpu")
    whole = FORMS[form][1].from_pretrained(folder).eval()
    whole = whole.get_encoder() if form in PAIRS else whole.base_model
    batch = {"input_ids": torch.tensor([model.tokenizer(TEXT[0])["input_ids"]])}
    with torch.inference_mode():
        expected = whole(**batch, output_hidden_states=True).hidden_states
    found = model.read({**batch, "attention_mask": torch.ones_like(batch["input_ids"])}, range(4)).hidden
    for layer in range(4):
        torch.testing.assert_close(found[layer], expected[layer])


@pytest.mark.parametrize("form", [form for form in FORMS if form not in PAIRS])
def test_a_pruned_model_can_be_read_and_its_first_layers_are_the_old_ones(form, checkpoint, tmp_path):
    prune(checkpoint(form), tmp_path / "pruned", drop="top:1")
    old, new = (load_model(folder, device="cpu") for folder in (checkpoint(form), tmp_path / "pruned"))
    assert new.n_layers == 2
    batch = {"input_ids": torch.tensor([old.tokenizer(TEXT[0])["input_ids"]])}
    batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    torch.testing.assert_close(new.read(batch, [1]).hidden[0], old.read(batch, [1]).hidden[0])


def test_the_kinds_of_layers_go_with_their_layers(checkpoint, tmp_path):
    for form in ("qwen3", "gemma3"):
        prune(checkpoint(form), tmp_path / form, keep="2-3")
        assert hf.AutoConfig.from_pretrained(tmp_path / form).layer_types == KINDS[1:]


def test_positions_that_are_learnt_are_still_missed(tmp_path):
    folder = save_model("distilbert", tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: tensor for name, tensor in weights.items() if "position" not in name},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    with pytest.raises(ModelError, match=r"lack 1 tensors of DistilBertModel \(first: embeddings.position_embeddings"):
        load_model(folder)


def test_settings_of_generation_go_with_a_trimmed_vocabulary(tmp_path):
    folder = save_model("gpt2", tmp_path / "model")
    model = hf.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    ends, banned = tokenizer(TEXT[0])["input_ids"][:2], tokenizer(TEXT[0])["input_ids"][3]
    model.config.eos_token_id = model.generation_config.eos_token_id = ends
    model.generation_config.bad_words_ids = [[banned]]
    model.generation_config.max_new_tokens = 7
    model.save_pretrained(folder)
    (tmp_path / "text.txt").write_text(TEXT[0])
    trim(folder, [tmp_path / "text.txt"], tmp_path / "trimmed")
    after = hf.AutoTokenizer.from_pretrained(tmp_path / "trimmed")
    found = hf.GenerationConfig.from_pretrained(tmp_path / "trimmed")
    kept = [after.convert_tokens_to_ids(tokenizer.convert_ids_to_tokens(i)) for i in (*ends, banned)]
    assert kept != [*ends, banned]
    assert [*found.eos_token_id, *found.bad_words_ids[0]] == kept
    assert hf.AutoConfig.from_pretrained(tmp_path / "trimmed").eos_token_id == kept[:2]
    assert found.max_new_tokens == 7


@pytest.mark.parametrize("load", [load_model, lambda folder: prune(folder, folder / "pruned", drop="1")])
def test_a_tokenizer_larger_than_the_embeddings_is_refused_at_once(load, tmp_path):
    folder = save_model("bert", tmp_path / "model")
    tokenizer = hf.AutoTokenizer.from_pretrained(folder)
    size = len(tokenizer)
    tokenizer.add_tokens(["neologism"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(ModelError, match=f"token ids up to {size}, but the model has embeddings of {size} tokens"):
        load(folder)


def write_gguf(path, folder):
    """A tiny Llama as a GGUF file, whose attention has its rows in llama.cpp's order."""
    gguf = pytest.importorskip("gguf", reason="the extra [gguf] is not installed")
    model, tokenizer = hf.AutoModelForCausalLM.from_pretrained(folder), hf.AutoTokenizer.from_pretrained(folder)
    config, state = model.config, json.loads(tokenizer.backend_tokenizer.to_str())
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([tokenizer.convert_ids_to_tokens(i) for i in range(len(tokenizer))])
    writer.add_token_types([1] * len(tokenizer))
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in state["model"]["merges"]])
    writer.add_bos_token_id(len(tokenizer) - 1)
    writer.add_eos_token_id(len(tokenizer) - 1)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        values = tensor.numpy()
        if (n := heads.get(name.split(".")[-2])) is not None:
            values = values.reshape(n, 2, len(values) // n // 2, -1).swapaxes(1, 2).reshape(values.shape)
        writer.add_tensor(f"{names.get_name(name.removesuffix('.weight'))}.weight", values.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_is_read_and_pruned_into_a_plain_folder(tmp_path):
    tokenizer, folder = copy.deepcopy(build_tokenizer("plain bytes")), tmp_path / "llama"
    tokenizer.add_special_tokens({"eos_token": "<|endoftext|>"})  # which the tokenizer of a GGUF file has in any case
    torch.manual_seed(0)
    sizes = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, **FAMILIES["llama"][2]}
    hf.LlamaForCausalLM(hf.LlamaConfig(**sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_gguf(tmp_path / "model.gguf", folder)
    batch, layers = probe_batch(load_model(folder).module), [0, 1, 2, 3]
    whole = load_model(folder).read(batch, layers).hidden
    for states, expected in zip(load_model(tmp_path / "model.gguf").read(batch, layers).hidden, whole, strict=True):
        torch.testing.assert_close(states, expected)
    prune(tmp_path / "model.gguf", tmp_path / "pruned", drop="top:1")
    pruned = load_model(tmp_path / "pruned")
    assert pruned.n_layers == 2
    torch.testing.assert_close(pruned.read(batch, [1]).hidden[0], whole[1])


def test_a_gguf_file_names_the_extra_that_reads_it(tmp_path, monkeypatch):
    monkeypatch.setattr("residuum.models.loading.find_spec", lambda name: None)
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    for load in (load_model, lambda file: prune(file, tmp_path / "out", drop="1")):
        with pytest.raises(ModelError, match=r"model\.gguf is a GGUF file.*pip install 'residuum\[gguf\]'"):
            load(tmp_path / "model.gguf")
