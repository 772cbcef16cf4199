"""Networks without upper layers or hidden dimensions: what stays is what it was."""

import numpy as np
import pytest
import torch
from tagged_words import tagged_corpus

from residuum.errors import ModelError
from residuum.models.loading import from_module, load_model, probe_batch
from residuum.models.vocabularies import cut_model
from residuum.shrinking.networks import check_can_be_cut, narrowed, saved_parameters, size_of, truncated, vocabulary_of
from tiny import RecurrentLanguageModel, build_tokenizer

FAMILIES = ["bert", "distilbert", "electra", "mpnet", "roberta", "modernbert", "gpt2", "llama", "albert", "xlnet"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_kept_layers_are_what_they_were(family, tiny_folder):
    model = load_model(tiny_folder(family))
    batch = probe_batch(model.module, model.tokenizer)
    for layer in range(model.n_layers + 1):
        network = truncated(model, layer)
        with torch.inference_mode():
            found = model.reader(network, batch, [layer], False).hidden[0]
        torch.testing.assert_close(found, model.read(batch, [layer]).hidden[0])
        assert size_of(network).blocks <= min(layer + 1, model.n_layers)


def test_the_model_itself_keeps_all_its_layers_and_the_weights_are_shared(tiny_folder):
    model = load_model(tiny_folder())
    network = truncated(model, 1)
    assert model.module.config.num_hidden_layers == 3
    assert network.embeddings.word_embeddings.weight is model.module.embeddings.word_embeddings.weight
    assert size_of(network).parameters < model.n_parameters


def test_what_is_no_single_stack_of_transformers_layers_is_refused(tiny_folder):
    with pytest.raises(ModelError, match="only models with one stack"):
        check_can_be_cut(load_model(tiny_folder("t5")))
    tokenizer = build_tokenizer("wordpiece")
    network = from_module(RecurrentLanguageModel(len(tokenizer)), tokenizer, ["embedding", "first"])
    with pytest.raises(ModelError, match="not a transformers model"):
        check_can_be_cut(network)


def test_the_weights_that_trimming_saves_are_counted_before_it_is_done(tiny_folder):
    model = load_model(tiny_folder())
    network = truncated(model, 1)
    vocabulary = vocabulary_of(model, [tagged_corpus(20)])
    small = cut_model(network, vocabulary)
    assert saved_parameters(network, vocabulary) == size_of(network).parameters - size_of(small).parameters > 0


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra", "mpnet", "roberta", "gpt2", "llama"])
def test_with_all_dimensions_narrowing_changes_nothing(family, tiny_folder):
    model = load_model(tiny_folder(family))
    small = narrowed(model, 2, np.arange(model.hidden_size))
    batch = probe_batch(model.module, model.tokenizer)
    torch.testing.assert_close(small.read(batch, [2]).hidden[0], model.read(batch, [2]).hidden[0])


def test_narrowed_embeddings_are_those_of_the_kept_dimensions(tiny_folder):
    """Against the embeddings of BERT written out: a sum of three tables, and a norm over what is left."""
    model = load_model(tiny_folder())
    dimensions = np.array([1, 2, 5, 11])
    small = narrowed(model, 1, dimensions)
    batch = probe_batch(model.module, model.tokenizer)
    tables = model.module.embeddings
    total = (
        tables.word_embeddings(batch["input_ids"])
        + tables.position_embeddings.weight[: batch["input_ids"].shape[1]]
        + tables.token_type_embeddings.weight[0]
    )[..., dimensions]
    norm = tables.LayerNorm
    expected = torch.nn.functional.layer_norm(total, (4,), norm.weight[dimensions], norm.bias[dimensions], norm.eps)
    torch.testing.assert_close(small.read(batch, [0]).hidden[0], expected.detach())
    assert small.read(batch, [1]).hidden[0].shape[-1] == 4


def test_narrowing_takes_off_what_reads_and_writes_the_dropped_dimensions(tiny_folder):
    """BERT: per block and dropped dimension, columns of query, key, value and inner map, rows of two outputs, norms."""
    model = load_model(tiny_folder())
    width, inner, dropped = 16, 24, 12
    small = narrowed(model, 2, np.arange(width - dropped))
    before = truncated(model, 2)
    embeddings = sum(m.num_embeddings for m in before.modules() if isinstance(m, torch.nn.Embedding)) + 2
    block = 3 * width + inner + (width + 1) + (inner + 1) + 4
    pooler = width
    lost = dropped * (embeddings + 2 * block + pooler)
    assert size_of(small.module).parameters == size_of(before).parameters - lost
    assert size_of(model.module).parameters == model.n_parameters


def test_an_architecture_that_cannot_be_narrowed_is_named(tiny_folder):
    with pytest.raises(ModelError, match="XLNetModel cannot be narrowed"):
        narrowed(load_model(tiny_folder("xlnet")), 2, np.arange(8))
