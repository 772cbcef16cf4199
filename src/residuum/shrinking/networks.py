"""Smaller networks: without the upper layers, without unused vocabulary, without unused hidden dimensions.

Every layer writes its output into the same hidden dimensions. `narrowed` goes beyond the paper: it cuts those that no
chosen neuron uses out of the embeddings, the norms, and what each block reads and writes; heads and inner layers stay.
The rest of the network was not trained for that, so its states change: whether it pays is measured, not assumed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from residuum.corpus import Corpus
from residuum.errors import ModelError
from residuum.models.loading import Model, find_blocks, first_layers, from_transformers, probe_batch
from residuum.models.surgery import keep_layers, layer_count
from residuum.models.vocabularies import Vocabulary, count_pieces, cut_vocabulary

TOLERANCE = 1e-5
Dimensions = Int[np.ndarray, " dimension"]


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
    batch = probe_batch(model.module, model.tokenizer)
    expected = model.reader(model.module, batch, [layer], False).hidden[0]
    tensors = (*model.module.parameters(), *model.module.buffers())
    for blocks in range(layer, model.n_layers + 1):
        network = copy.deepcopy(model.module, {id(tensor): tensor for tensor in tensors})
        keep_layers(network, range(1, blocks + 1))
        if torch.allclose(expected, model.reader(network, batch, [layer], False).hidden[0], atol=TOLERANCE):
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
    texts = [text for corpus in corpora for i in range(len(corpus)) for text in (corpus.text(i), corpus.pair_text(i))]
    lines = [text for text in texts if text is not None]
    return cut_vocabulary(model.tokenizer, count_pieces(model.tokenizer, lines))


def saved_parameters(network: nn.Module, vocabulary: Vocabulary | None) -> int:
    """How many weights trimming takes off the embeddings."""
    if vocabulary is None:
        return 0
    config: Any = network.config
    tables = [m for m in network.modules() if isinstance(m, nn.Embedding) and m.num_embeddings == config.vocab_size]
    return sum((config.vocab_size - len(vocabulary.kept)) * table.embedding_dim for table in tables)


def narrowed(model: Model, layer: int, dimensions: Dimensions) -> Model:
    """The network up to a layer with these hidden dimensions only, in memory; `model` is left as it is."""
    network: Any = truncated(model, layer)
    width = model.hidden_size
    chosen = torch.from_numpy(dimensions)
    reading = _readers(network, width)
    for module in list(network.modules()):
        _narrow_module(module, chosen, width, module in reading)
    network.config.hidden_size = len(dimensions)
    try:
        small = from_transformers(network, model.tokenizer, name=f"{model.name} ({len(dimensions)} dimensions)")
    except RuntimeError as error:
        raise ModelError(f"The layers of {type(network).__name__} cannot be narrowed ({error}).") from error
    return first_layers(small, layer)


def _readers(network: nn.Module, width: int) -> set[nn.Module]:
    """The linear maps that read the hidden states: their input is a block's input, or what a norm gave."""
    held: list[Tensor] = []  # kept alive, so that no other tensor gets their memory meanwhile
    found: set[nn.Module] = set()
    blocks = find_blocks(network)[2]
    hooks = [
        m.register_forward_hook(lambda *args: held.append(args[2])) for m in network.modules() if _is_norm(m, width)
    ]
    hooks += [block.register_forward_pre_hook(lambda _, inputs: held.append(inputs[0])) for block in blocks or ()]

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs[0].shape[-1] == width and any(inputs[0].data_ptr() == states.data_ptr() for states in held):
            found.add(module)

    hooks += [m.register_forward_pre_hook(note) for m in network.modules() if _is_linear(m)]
    try:
        with torch.inference_mode():
            network(**probe_batch(network))
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _narrow_module(module: nn.Module, chosen: Tensor, width: int, reads: bool) -> None:
    """A map that reads hidden states loses inputs; one that writes them, and reads something else, loses outputs."""
    part: Any = module
    if isinstance(module, nn.Embedding) and module.embedding_dim == width:
        module.weight = _taken(module.weight, 1, chosen)
        module.embedding_dim = len(chosen)
    elif _is_norm(module, width):
        part.weight = _taken(part.weight, 0, chosen)
        if getattr(part, "bias", None) is not None:
            part.bias = _taken(part.bias, 0, chosen)
        if isinstance(module, nn.LayerNorm):
            module.normalized_shape = (len(chosen),)
    elif _is_linear(module):
        transposed = not isinstance(module, nn.Linear)  # GPT-2 keeps its maps as input × output
        inputs, outputs = (0, 1) if transposed else (1, 0)
        if reads:
            part.weight = _taken(part.weight, inputs, chosen)
        elif part.weight.shape[outputs] == width:
            part.weight = _taken(part.weight, outputs, chosen)
            if part.bias is not None:
                part.bias = _taken(part.bias, 0, chosen)
            if transposed:
                part.nf = len(chosen)


def _is_norm(module: nn.Module, width: int) -> bool:
    weight = getattr(module, "weight", None)
    return "norm" in type(module).__name__.lower() and isinstance(weight, Tensor) and weight.shape == (width,)


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def _taken(weight: Tensor, axis: int, chosen: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().index_select(axis, chosen.to(weight.device)), requires_grad=False)
