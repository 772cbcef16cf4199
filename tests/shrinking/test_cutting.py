"""Cutting blocks, feed-forward neurons and heads: what is chosen, what is written, and what healing brings back."""

import json
from itertools import combinations

import numpy as np
import pytest
import torch
import transformers as hf

from residuum.corpus import Corpus
from residuum.models.surgery import feed_forward, linear_weight, load_whole, model_blocks, without_layers
from residuum.shrinking import planning
from residuum.shrinking.planning import Sample, block_influence, harm, line_fidelity
from residuum.shrinking.pruning import Lines, prune
from tiny import SIZES, TEXT, WINDOW, build_tokenizer

DECODERS = {"gpt2": hf.GPT2LMHeadModel, "llama": hf.LlamaForCausalLM}


@pytest.fixture(scope="module")
def corpus():
    return Corpus(name="words", sentences=[sentence.split() for sentence in TEXT[:8]])


def save_headed(family, folder, tiny_folder, **changes):
    """A tiny language model with its head."""
    if family == "qwen3":
        config = hf.Qwen3Config(
            vocab_size=len(build_tokenizer("plain bytes")), head_dim=8, num_key_value_heads=2,
            max_position_embeddings=WINDOW, bos_token_id=0, eos_token_id=0, **SIZES,
        )  # fmt: skip
        source, auto = tiny_folder("gpt2"), hf.AutoModelForCausalLM
    else:
        source = tiny_folder(family)
        config = hf.AutoConfig.from_pretrained(source)
        auto = hf.AutoModelForCausalLM if family in DECODERS else hf.AutoModelForMaskedLM
    for name, value in changes.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    network = auto.from_config(config)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    network.save_pretrained(folder)
    hf.AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


def states(folder):
    network = hf.AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        return network(input_ids=torch.tensor([[12, 9, 11, 23, 17]])).last_hidden_state


@pytest.mark.parametrize(
    "family", ["bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "modernbert", "gpt2", "llama", "qwen3"]
)
def test_neurons_that_others_repeat_go_without_a_trace(family, tiny_folder, corpus, tmp_path):
    folder = save_headed(family, tmp_path / "model", tiny_folder) if family == "qwen3" else tiny_folder(family)
    network, tokenizer = load_whole(folder)
    inner = feed_forward(network)
    half = 0
    with torch.no_grad():
        for block in model_blocks(network):  # the second half of the neurons repeats the first
            for name in inner.into:
                part = block.get_submodule(name)
                weight = linear_weight(part)  # a view: writing it changes the map
                for rows in weight.chunk(2) if inner.fused else [weight]:
                    half = len(rows) // 2
                    rows[half:] = rows[:half]
                for bias in [part.bias] if part.bias is not None else []:
                    for rows in bias.chunk(2) if inner.fused else [bias]:
                        rows[half:] = rows[:half]
    network.save_pretrained(tmp_path / "doubled")
    tokenizer.save_pretrained(tmp_path / "doubled")
    result = prune(tmp_path / "doubled", tmp_path / "out", ffn=0.5, corpus=corpus, progress=False)
    config = hf.AutoConfig.from_pretrained(tmp_path / "out")
    assert getattr(config, inner.key) == half
    assert result.run.summary["parameters after"] < result.run.summary["parameters before"]
    torch.testing.assert_close(states(tmp_path / "out"), states(tmp_path / "doubled"), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_heads_whose_values_are_silent_go_first(family, tiny_folder, corpus, tmp_path):
    folder = save_headed(family, tmp_path / "model", tiny_folder, num_key_value_heads=2, head_dim=8)
    network, tokenizer = load_whole(folder)
    with torch.no_grad():
        for block in model_blocks(network):
            block.self_attn.v_proj.weight[:8] = 0
    network.save_pretrained(tmp_path / "silent")
    tokenizer.save_pretrained(tmp_path / "silent")
    prune(tmp_path / "silent", tmp_path / "out", heads=0.5, corpus=corpus, progress=False)
    config = hf.AutoConfig.from_pretrained(tmp_path / "out")
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (1, 1, 8)
    torch.testing.assert_close(states(tmp_path / "out"), states(tmp_path / "silent"), atol=1e-2, rtol=1e-2)


def test_what_cannot_be_cut_is_told_in_one_line(tiny_folder, run, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(TEXT[:8]), "utf-8")
    cases = [
        ("bert", ["--heads", "0.5"], "Heads of BertModel cannot be cut: its config ties their width"),
        ("xlnet", ["--ffn", "0.5"], "Feed-forward neurons of XLNetModel cannot be cut"),
        ("albert", ["--ffn", "0.5"], "AlbertModel runs one block again and again; it cannot be cut"),
        ("bert", ["--keep", "1", "--by", "perplexity"], "has no language-modelling head, so it has no perplexity"),
    ]
    for number, (family, words, message) in enumerate(cases):
        out = tmp_path / str(number)
        status, _, err = run("prune", tiny_folder(family), *words, "--corpus", tmp_path / "text.txt", "--out", out)
        assert status == 1
        assert message in err
        assert len(err.strip().splitlines()) == 1


def test_without_layers_restores_the_model(tiny_folder):
    for family in ("bert", "modernbert", "gpt2"):
        network, _ = load_whole(tiny_folder(family))
        ids = torch.tensor([[12, 9, 11]])
        with torch.inference_mode():
            before = network(ids).last_hidden_state
            with without_layers(network, [1, 3]), without_layers(network, [2]):
                assert network.config.num_hidden_layers == 1
                assert not torch.allclose(network(ids).last_hidden_state, before)
            torch.testing.assert_close(network(ids).last_hidden_state, before, atol=0, rtol=0)
        assert network.config.num_hidden_layers == 3


def test_block_influence_is_that_of_the_paper(tiny_folder):
    network, tokenizer = load_whole(tiny_folder("bert"))
    lines = TEXT[:3]
    found = block_influence(network, Sample.of(network, tokenizer, lines, None))
    cosines = [[] for _ in found]
    for line in lines:  # one by one, from the states that transformers gives
        hidden = network(**tokenizer(line, return_tensors="pt"), output_hidden_states=True).hidden_states
        for i in range(len(found)):
            cosines[i] += torch.cosine_similarity(hidden[i][0], hidden[i + 1][0], dim=-1).tolist()
    np.testing.assert_allclose(found, [1 - np.mean(values) for values in cosines], atol=1e-5)


@pytest.mark.parametrize("held_bytes", [1 << 30, 0])
@pytest.mark.parametrize("family", ["bert", "mpnet", "distilbert", "modernbert", "gpt2", "llama"])
def test_candidates_score_as_if_each_were_cut(family, held_bytes, tiny_folder, monkeypatch):
    monkeypatch.setattr(planning, "HELD_BYTES", held_bytes)
    network, tokenizer = load_whole(tiny_folder(family))
    sample = Sample.of(network, tokenizer, TEXT[:8] * 5, None)  # two batches
    original, runs = sample.vectors(network), []
    hooks = [block.register_forward_hook(lambda *_: runs.append(1)) for block in model_blocks(network)]
    found = planning.candidate_harms(network, lambda network: harm(network, sample, original, "fidelity"))
    for hook in hooks:
        hook.remove()
    expected = []
    for gone in (1, 2, 3):
        with without_layers(network, [layer for layer in (1, 2, 3) if layer != gone]):
            expected.append(harm(network, sample, original, "fidelity"))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # of 3 blocks: all once, the upper 2 as a check, then the 2 and 1 above a block; the last goes from the whole
    assert len(runs) == len(sample.batches) * ((3 + 2 + 2 + 1 + 2) if held_bytes else (3 + 6))
    assert network.config.num_hidden_layers == 3


def test_iterative_perplexity_drops_what_brute_force_drops(tiny_folder, corpus, tmp_path):
    folder = save_headed("gpt2", tmp_path / "model", tiny_folder)
    result = prune(folder, tmp_path / "out", by="perplexity", keep=1, iterative=True, corpus=corpus, progress=False)
    network, tokenizer = load_whole(folder)
    sample = Lines.of(corpus).sample(network, tokenizer, folder, "plan")

    def loss(kept):
        with without_layers(network, kept):
            return harm(network, sample, sample.vectors(network), "perplexity")

    first = min(combinations([1, 2, 3], 2), key=loss)
    assert tuple(result.kept) == min([(first[0],), (first[1],)], key=loss)
    curve = result.run.tables["curve"]
    assert curve["layers"].tolist() == [3, 2, 1]
    assert curve["kept"].tolist() == ["1,2,3", ",".join(map(str, first)), str(result.kept[0])]
    assert (curve["perplexity_low"] <= curve["perplexity"]).all()


def test_lines_that_judge_are_never_learnt_from():
    lines = [f"line {i % 7} {i // 14}" for i in range(70)]  # each occurs twice
    parts = Lines.of(lines)
    assert not set(parts.plan) & set(parts.held_out)
    assert set(parts.plan) | set(parts.held_out) == set(lines)
    few = Lines.of(lines[:9])
    assert few.plan is few.held_out
    same = Lines.of(["one"] * 20)
    assert same.plan == same.held_out == ["one"] * 20


def test_fidelity_is_one_for_the_same_vectors_and_ignores_their_mean():
    vectors = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)) + 100
    np.testing.assert_allclose(line_fidelity(vectors, vectors), 1, atol=1e-5)
    noise = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)) + 100
    assert torch.cosine_similarity(noise, vectors).min() > 0.99
    assert line_fidelity(noise, vectors).mean() < 0.8


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_healing_brings_a_pruned_model_nearer_to_the_original(family, tiny_folder, corpus, tmp_path):
    folder = tiny_folder("bert") if family == "bert" else save_headed(family, tmp_path / "model", tiny_folder)
    result = prune(folder, tmp_path / "out", drop="2", corpus=corpus, heal=40, heal_batch=8, progress=False)
    stages = result.run.tables["stages"].set_index("stage")
    assert stages.loc["original", "fidelity"] == pytest.approx(1)
    assert stages.loc["healed", "fidelity"] > stages.loc["pruned", "fidelity"]
    losses = result.run.tables["healing"]["loss"]
    assert losses.iloc[-1] < losses.iloc[0]
    assert not list((tmp_path / "out").glob("scratch-*"))
    assert "healed: 2 layers" in result.text()
    tokenizers = [json.loads((place / "tokenizer.json").read_text("utf-8")) for place in (folder, tmp_path / "out")]
    assert tokenizers[0] == tokenizers[1], "reading lines must not change the tokenizer"


def test_merging_averages_neighbours(tiny_folder, tmp_path):
    folder = tiny_folder("bert")
    prune(folder, tmp_path, drop="2", merge=True)
    before, after = (hf.AutoModel.from_pretrained(f).encoder.layer for f in (folder, tmp_path))
    for name, weight in after[0].named_parameters():
        mean = (before[0].get_parameter(name) + before[1].get_parameter(name)) / 2
        torch.testing.assert_close(weight, mean)
    torch.testing.assert_close(after[1].output.dense.weight, before[2].output.dense.weight)
    assert json.loads((tmp_path / "config.json").read_text())["num_hidden_layers"] == 2
