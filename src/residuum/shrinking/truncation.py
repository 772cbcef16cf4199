"""A model without the layers that nobody looks at, as a folder that plain transformers reads."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from residuum.corpus import Corpus
from residuum.errors import ModelError
from residuum.models.loading import Model, probe_batch
from residuum.models.surgery import keep_layers, layer_count
from residuum.models.vocabularies import Vocabulary, count_pieces, cut_model, cut_vocabulary

TOLERANCE = 1e-5


@dataclass(frozen=True)
class Size:
    """What a truncated network is made of."""

    blocks: int
    parameters: int
    n_bytes: int


def check_can_be_cut(model: Model) -> None:
    """Say at once, before anything is computed, that a network cannot be written without its upper layers."""
    if not hasattr(model.module, "save_pretrained") or model.layer_names:
        raise ModelError(
            f"{model.name} is not a transformers model, so it cannot be cut and written; `probe` reads it."
        )
    config: Any = model.module.config
    if config.is_encoder_decoder:
        raise ModelError(f"{model.name} has an encoder and a decoder; only models with one stack of layers can be cut.")


def truncated(model: Model, layer: int) -> nn.Module:
    """A network that gives layers 0 … `layer` as `model` does, and has as few blocks as can be; weights are shared.

    Where a norm closes the stack (most decoders), it would change the last layer, so one block more is kept: its
    input is the wanted layer.
    """
    for blocks in range(layer, model.n_layers + 1):
        network = _first_blocks(model.module, blocks)
        if _same_layer(model, network, layer):
            return network
    raise ModelError(f"Layers of {model.name} cannot be cut: layer {layer} would change.")


def size_of(network: nn.Module) -> Size:
    """The blocks, weights and bytes of a network as it will be written."""
    weights = {id(p): p for p in network.parameters()}.values()
    return Size(
        layer_count(network), sum(p.numel() for p in weights), sum(p.numel() * p.element_size() for p in weights)
    )


def vocabulary_of(model: Model, corpora: list[Corpus]) -> Vocabulary:
    """The pieces that some corpora use; their texts are split as before."""
    lines = [text for corpus in corpora for i in range(len(corpus)) for text in _texts(corpus, i)]
    return cut_vocabulary(model.tokenizer, count_pieces(model.tokenizer, lines))


def trimmed(network: Any, vocabulary: Vocabulary) -> nn.Module:
    """The network with the embeddings of the kept pieces only."""
    return cut_model(network, vocabulary)


def saved_parameters(network: nn.Module, vocabulary: Vocabulary | None) -> int:
    """How many weights trimming takes off the embeddings."""
    if vocabulary is None:
        return 0
    config: Any = network.config
    tables = [m for m in network.modules() if isinstance(m, nn.Embedding) and m.num_embeddings == config.vocab_size]
    return sum((config.vocab_size - len(vocabulary.kept)) * table.embedding_dim for table in tables)


def _first_blocks(module: nn.Module, blocks: int) -> nn.Module:
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    network = copy.deepcopy(module, shared)
    keep_layers(network, range(1, blocks + 1))
    return network


def _same_layer(model: Model, network: nn.Module, layer: int) -> bool:
    batch = probe_batch(model.module, model.tokenizer)
    before, after = (model.reader(module, batch, [layer], False).hidden[0] for module in (model.module, network))
    return torch.allclose(before, after, atol=TOLERANCE)


def _texts(corpus: Corpus, index: int) -> list[str]:
    pair = corpus.pair_text(index)
    return [corpus.text(index)] if pair is None else [corpus.text(index), pair]
