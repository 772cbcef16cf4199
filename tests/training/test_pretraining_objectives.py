"""The objectives against slow oracles."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from residuum.training.pretraining_objectives import (
    BUILDERS,
    IGNORED,
    MixedBatches,
    SpecialTokens,
    TokenSource,
    build_network,
    info_nce,
    losses_of,
    masked_batch,
    mean_pooled,
    padded_batch,
    perplexity,
    prediction_loss,
    retrieval_by_layer,
    states_of_layer,
)
from residuum.training.settings import NetworkSettings, PretrainingObjective

PIECES = SpecialTokens(begin=0, end=2, padding=1, mask=59, size=60)
GENERATOR = np.random.default_rng


class FakeTokenizer:
    pad_token_id, bos_token_id, eos_token_id = 1, 0, 2

    def __len__(self) -> int:
        return 60


def network(architecture: str = "xlm-roberta", dropout: float = 0.0):
    settings = NetworkSettings(
        architecture=architecture, layers=3, hidden=16, heads=2, feed_forward=24, window=32, dropout=dropout
    )
    return build_network(settings, FakeTokenizer(), seed=0).eval().requires_grad_(False)


def sentences(count: int, seed: int = 0, sides: int = 1) -> list[tuple[np.ndarray, ...]]:
    draw = GENERATOR(seed)
    return [tuple(draw.integers(4, 59, draw.integers(1, 12)) for _ in range(sides)) for _ in range(count)]


def test_about_a_share_of_the_pieces_is_guessed_by_the_eighty_ten_ten_rule():
    items = [(np.full(20, 7),)] * 2000
    batch = masked_batch(items, PretrainingObjective(kind="mlm", mask=0.2, length=32), PIECES, GENERATOR(0))
    ids, wanted = batch["ids"].numpy(), batch["wanted"].numpy()
    guessed = wanted != IGNORED
    assert (wanted[guessed] == 7).all()
    assert not guessed[(ids < 4)].any(), "special tokens are never guessed"
    assert (ids[~guessed & (ids >= 4)] == 7).all(), "what is not guessed stays"
    assert guessed.sum() / 40_000 == pytest.approx(0.2, abs=0.01)
    assert (ids[guessed] == PIECES.mask).mean() == pytest.approx(0.8, abs=0.02)
    kept = (ids[guessed] == 7).mean()
    assert kept == pytest.approx(0.1 + 0.1 / 55, abs=0.02)
    assert (ids[guessed] >= 4).all(), "no special token but the mask is put in"


def test_a_batch_too_short_to_draw_from_still_has_something_to_guess():
    batch = masked_batch([(np.array([9]),)], PretrainingObjective(kind="mlm", mask=0.01), PIECES, GENERATOR(0))
    assert (batch["wanted"] != IGNORED).sum() == 1


def test_sentences_and_pairs_get_the_special_tokens_of_xlm_r_and_are_cut_to_length():
    single = padded_batch([(np.array([5, 6]),), (np.array([7]),)], 16, PIECES)
    assert single["ids"].tolist() == [[0, 5, 6, 2], [0, 7, 2, 1]]
    assert single["mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    pair = padded_batch([(np.array([5, 6]), np.array([7]))], 16, PIECES)
    assert pair["ids"].tolist() == [[0, 5, 6, 2, 2, 7, 2]]
    assert padded_batch([(np.arange(4, 50), np.arange(4, 50))], 16, PIECES)["ids"].shape[1] <= 16


@pytest.mark.parametrize("kind", ["mlm", "tlm"])
def test_the_loss_at_masked_positions_equals_that_of_all_positions(kind):
    """transformers' own loss multiplies every position by the vocabulary and ignores most."""
    model = network()
    items = sentences(6, sides=2 if kind == "tlm" else 1)
    batch = BUILDERS[kind](items, PretrainingObjective(kind=kind, length=30, mask=0.3), PIECES, GENERATOR(1))
    whole = model(input_ids=batch["ids"], attention_mask=batch["mask"], labels=batch["wanted"])
    assert float(prediction_loss(model, batch)) == pytest.approx(float(whole.loss), abs=1e-5)


def test_the_causal_loss_equals_that_of_transformers():
    model = network("gpt2")
    batch = BUILDERS["clm"](sentences(6), PretrainingObjective(kind="clm", length=30), PIECES, GENERATOR(1))
    labels = batch["ids"].masked_fill(batch["mask"] == 0, IGNORED)
    whole = model(input_ids=batch["ids"], attention_mask=batch["mask"], labels=labels)
    assert float(prediction_loss(model, batch)) == pytest.approx(float(whole.loss), abs=1e-5)


@pytest.mark.parametrize("architecture", ["xlm-roberta", "bert", "gpt2"])
@pytest.mark.parametrize("layer", [0, 1, 3])
def test_states_of_a_layer_are_those_of_the_whole_network(architecture, layer):
    model = network(architecture)
    batch = padded_batch(sentences(4), 30, PIECES)
    hidden = model.base_model(
        input_ids=batch["ids"], attention_mask=batch["mask"], output_hidden_states=True
    ).hidden_states
    real = batch["mask"].bool()
    found = states_of_layer(model, batch["ids"], batch["mask"], layer)
    assert torch.allclose(found[real], hidden[layer][real], atol=1e-6)
    again = model.base_model(
        input_ids=batch["ids"], attention_mask=batch["mask"], output_hidden_states=True
    ).hidden_states
    assert len(again) == 4, "the network is whole again"


def test_mean_pooling_leaves_padding_out():
    states = torch.randn(2, 4, 3)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    assert torch.allclose(mean_pooled(states, mask)[0], states[0, :2].mean(0))
    assert torch.allclose(mean_pooled(states, mask)[1], states[1].mean(0))


def test_info_nce_equals_its_formula_written_out():
    first, second = torch.randn(5, 7, dtype=torch.float64), torch.randn(5, 7, dtype=torch.float64)
    expected = 0.0
    for a, b in ((first, second), (second, first)):
        for i in range(5):
            similarity = [float(functional.cosine_similarity(a[i], b[j], dim=0)) / 0.2 for j in range(5)]
            expected -= math.log(math.exp(similarity[i]) / sum(map(math.exp, similarity))) / 10
    assert float(info_nce(first, second, 0.2)) == pytest.approx(expected)


def test_info_nce_does_not_see_scale_and_is_zero_for_orthogonal_twins():
    first, second = torch.randn(5, 7), torch.randn(5, 7)
    assert torch.allclose(info_nce(first, second, 0.1), info_nce(3 * first, second / 7, 0.1), atol=1e-5)
    assert float(info_nce(torch.eye(4), torch.eye(4), 0.01)) == pytest.approx(0, abs=1e-6)


def test_a_translation_is_no_negative_of_its_double():
    items = [(np.array([5, 6]), np.array([9])), (np.array([5, 6]), np.array([10])), (np.array([8]), np.array([11]))]
    batch = BUILDERS["ranking"](items, PretrainingObjective(kind="ranking", layer=1), PIECES, GENERATOR(0))
    assert batch["same"].tolist() == [[True, True, False], [True, True, False], [False, False, True]]
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    without = [info_nce(x[[i, 2]], y[[i, 2]], 0.1) for i in (0, 1)]
    assert float(info_nce(x[:2], y[:2], 0.1, batch["same"][:2, :2])) == pytest.approx(0, abs=1e-6)
    assert all(float(loss) > 0 for loss in without)


def test_padding_does_not_change_the_ranking_loss():
    model = network()
    objective = PretrainingObjective(kind="ranking", layer=2, length=30)
    batch = BUILDERS["ranking"](sentences(6, sides=2), objective, PIECES, GENERATOR(0))
    padded = {"objective": 0, "same": batch["same"]} | {
        side: {
            "ids": functional.pad(batch[side]["ids"], (0, 5), value=1),
            "mask": functional.pad(batch[side]["mask"], (0, 5)),
        }
        for side in ("first", "second")
    }
    losses = [losses_of(model, [objective], b) for b in ({"objective": 0, **batch}, padded)]
    assert float(losses[0].total) == pytest.approx(float(losses[1].total), abs=1e-5)
    assert losses[0].tokens == losses[1].tokens


def test_objectives_and_sources_are_drawn_by_their_shares():
    objectives = [
        PretrainingObjective(kind="mlm", share=3, batch=2),
        PretrainingObjective(kind="ranking", share=1, batch=2, layer=1),
    ]
    texts = [TokenSource([(np.array([10]),)] * 4, 0.8), TokenSource([(np.array([20]),)] * 4, 0.2)]
    pairs = [TokenSource(sentences(4, sides=2), 1.0)]
    batches = MixedBatches(objectives, texts, pairs, PIECES, seed=0)
    drawn = [batches(position) for position in range(800)]
    plain = [batch for batch in drawn if batch["objective"] == 0]
    assert len(plain) / 800 == pytest.approx(0.75, abs=0.05)
    tens = sum(int(batch["wanted"].max() == 10) for batch in plain)
    assert tens / len(plain) == pytest.approx(0.8, abs=0.05)


def test_a_batch_is_a_function_of_its_position():
    def source():
        return MixedBatches(
            [PretrainingObjective(kind="mlm", batch=3)], [TokenSource(sentences(20), 1.0)], [], PIECES, seed=4
        )

    first, second = source(), source()
    later = {position: first(position) for position in range(12)}
    for position in (11, 0, 5):
        again = second(position)
        assert torch.equal(again["ids"], later[position]["ids"])
        assert torch.equal(again["wanted"], later[position]["wanted"])


def test_perplexity_of_an_even_guess_is_the_size_of_the_vocabulary():
    model = network()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert perplexity(model, sentences(70), PretrainingObjective(kind="mlm"), PIECES, 0) == pytest.approx(60, rel=1e-5)


def test_retrieval_of_equal_sentences_is_perfect_and_of_unrelated_ones_near_chance():
    model = network()
    distinct = [(np.array([4 + i % 50, 4 + (7 * i) % 50, 4 + i // 2]),) for i in range(80)]
    twins = [(item[0], item[0]) for item in distinct]
    assert retrieval_by_layer(model, twins, 30, PIECES) == [(1.0, 1.0)] * 4
    shuffled = [(a, distinct[(i + 31) % 80][0]) for i, (a, _) in enumerate(twins)]
    assert all(forth < 0.1 and back < 0.1 for forth, back in retrieval_by_layer(model, shuffled, 30, PIECES))
