"""What is kept is fitted to the original: exact where it can be, never worse on lines that chose the ridge."""

import copy

import numpy as np
import pytest
import torch
import transformers as hf
from test_cutting import save_headed

from residuum.corpus import Corpus
from residuum.errors import SettingError
from residuum.models.surgery import feed_forward, keep_layers, linear_weight, load_whole, model_blocks
from residuum.shrinking.compensation import _best_change, _Regression, fit_to_original
from residuum.shrinking.planning import Sample, line_fidelity
from residuum.shrinking.pruning import prune
from tiny import TEXT, WINDOW, build_tokenizer

WORDS = " ".join(TEXT).split()
LINES = [" ".join(WORDS[i % 57 : i % 57 + 3 + i % 6]) for i in range(120)]


def sample_of(network, tokenizer):
    return Sample.of(network, tokenizer, LINES, None)


@pytest.mark.parametrize(
    "family", ["bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "modernbert", "gpt2", "llama", "qwen3"]
)
def test_a_map_that_was_disturbed_is_found_again(family, tiny_folder, tmp_path):
    folder = save_headed(family, tmp_path / "model", tiny_folder) if family == "qwen3" else tiny_folder(family)
    original, tokenizer = load_whole(folder)
    network = copy.deepcopy(original)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for block in model_blocks(network):
            weight = linear_weight(block.get_submodule(feed_forward(network).out))
            weight += 0.3 * weight.std() * torch.randn(weight.shape, generator=generator)
    sample = sample_of(original, tokenizer)
    disturbed = line_fidelity(sample.vectors(network), sample.vectors(original)).mean()
    fitted = fit_to_original(network, original, [1, 2, 3], sample)
    assert fitted["fitted_to"].tolist() == [1, 2, 3]
    assert (fitted["missed"] < 0.2 * fitted["missed_before"]).all()
    healed = line_fidelity(sample.vectors(network), sample.vectors(original)).mean()
    assert 1 - healed < 0.2 * (1 - disturbed)


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert", "gpt2", "llama"])
def test_blocks_take_over_from_those_that_went(family, tiny_folder):
    original, tokenizer = load_whole(tiny_folder(family))
    network = copy.deepcopy(original)
    keep_layers(network, [1, 3])
    sample = sample_of(original, tokenizer)
    goal = sample.vectors(original)
    before = line_fidelity(sample.vectors(network), goal).mean()
    fitted = fit_to_original(network, original, [1, 3], sample)
    assert fitted[["layer", "fitted_to"]].to_numpy().tolist() == [[1, 2], [3, 3]]
    assert (fitted["missed"] <= fitted["missed_before"]).all()
    assert line_fidelity(sample.vectors(network), goal).mean() > before


def test_the_closing_norm_comes_with_the_states(tiny_folder):
    original, tokenizer = load_whole(tiny_folder("bert"))
    network = copy.deepcopy(original)
    keep_layers(network, [1, 3])
    fit_to_original(network, original, [1, 3], sample_of(original, tokenizer))
    norms = [block.output.LayerNorm.weight for block in model_blocks(network)]
    assert torch.equal(norms[0], model_blocks(original)[1].output.LayerNorm.weight)
    assert torch.equal(norms[1], model_blocks(original)[2].output.LayerNorm.weight)


def test_the_change_is_ridge_regression_and_0_where_nothing_is_to_be_learnt():
    rng = np.random.default_rng(0)
    part = torch.nn.Linear(5, 3)
    h, truth = rng.standard_normal((400, 5)), rng.standard_normal((3, 5))
    z, noise = rng.standard_normal((400, 3)), 0.01 * rng.standard_normal((400, 3))
    goal = z + h @ truth.T + 2 + noise
    relative = 1 / (goal**2).sum(axis=1, keepdims=True)
    fitted, judged = _Regression.empty(part), _Regression.empty(part)
    shown = torch.arange(400) % 5 != 0
    arrays = [torch.from_numpy(own).float() for own in (h, z, goal)]
    fitted.add(*arrays, shown)
    judged.add(*arrays, ~shown)
    change, before, after = _best_change(fitted, judged, 5)
    np.testing.assert_allclose(change[:5].T, truth, atol=0.01)
    np.testing.assert_allclose(change[5], 2, atol=0.01)
    rows = ~shown.numpy()
    centred = goal[rows] - np.average(goal[rows], axis=0, weights=relative[rows, 0])
    expected = (relative * (goal - z) ** 2)[rows].sum() / (relative[rows] * centred**2).sum()
    assert before == pytest.approx(expected, rel=1e-4)
    assert after < 1e-3 * before
    for sums in (pure := _Regression.empty(part)), (test := _Regression.empty(part)):
        sums.add(arrays[0], arrays[1], arrays[1], shown if sums is pure else ~shown)
    change, before, after = _best_change(pure, test, 5)
    assert not change.any()
    assert before == after == 0


def test_blocks_that_rescale_the_map_are_left_alone():
    tokenizer = build_tokenizer("plain bytes")
    config = hf.Gemma2Config(
        vocab_size=len(tokenizer), num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
        hidden_size=16, intermediate_size=24, max_position_embeddings=WINDOW, sliding_window=8,
    )  # fmt: skip
    original = hf.Gemma2ForCausalLM(config).eval()
    network = copy.deepcopy(original)
    keep_layers(network, [1, 3])
    weights = {name: parameter.clone() for name, parameter in network.named_parameters()}
    assert fit_to_original(network, original, [1, 3], sample_of(original, tokenizer)).empty
    assert all(torch.equal(parameter, weights[name]) for name, parameter in network.named_parameters())


def test_prune_compensates_on_request(tiny_folder, tmp_path):
    corpus = Corpus(name="words", sentences=[line.split() for line in LINES])
    fidelity = []
    for compensate in (False, True):
        result = prune(
            tiny_folder("bert"), tmp_path / str(compensate), drop="2", corpus=corpus, compensate=compensate,
            progress=False,
        )  # fmt: skip
        fidelity.append(result.run.tables["stages"].set_index("stage").loc["pruned", "fidelity"])
    assert fidelity[1] > fidelity[0]
    assert result.run.tables["compensation"]["layer"].tolist() == [1, 3]
    with pytest.raises(SettingError, match="compensate is True, which needs text"):
        prune(tiny_folder("bert"), tmp_path / "none", drop="2", compensate=True)
