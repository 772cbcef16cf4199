"""What a model can do without: blocks, feed-forward neurons and heads, scored on a sample of text.

Everything is judged by what comes out of the model: the vector of each sentence (as sentence-transformers pool it,
else the mean over tokens), and, with a language-modelling head, the loss per token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from residuum.errors import CorpusError, ModelError
from residuum.maths.statistics import Interval, bootstrap_ratio
from residuum.models.loading import from_transformers
from residuum.models.sentences import SentenceLayout, pooled, read_sentence_layout, sentence_text
from residuum.models.surgery import (
    body_of,
    model_blocks,
    without_layers,
)

SAMPLE_LINES = 256
"""Lines on which candidates are scored, spread evenly over the text."""
BATCH_LINES = 32
LONGEST = 128  # tokens of a line that are read
HIDDEN = 0.15  # share of the tokens that a masked model has to guess
IGNORED = -100
HELD_BYTES = 1 << 30  # of the states between blocks that are kept while blocks are scored
LOGITS = 1 << 26  # numbers that the head gives at once: 256 MB

Vectors = Float[Tensor, "line neuron"]
LineLosses = Float[np.ndarray, "line 2"]


@dataclass(frozen=True, eq=False)
class Sample:
    """Lines of text as batches that a model reads, in order of length, with the tokens that it has to predict."""

    batches: list[dict[str, Tensor]]
    labels: list[Tensor]  # IGNORED where nothing is predicted
    order: Tensor  # the line of each row
    layout: SentenceLayout | None

    @staticmethod
    def of(network: Any, tokenizer: Any, lines: Sequence[str], source: Any, *, size: int = SAMPLE_LINES) -> Sample:
        """A sample of some lines for a model that was loaded from `source`."""
        layout = read_sentence_layout(source) if isinstance(source, str) or hasattr(source, "__fspath__") else None
        places = spread_places(len(lines), size)
        chosen = [lines[place] for place in places if lines[place].strip()]
        if not chosen:
            raise CorpusError("The text has no line; expected one sentence per line.")
        model = from_transformers(network, tokenizer)
        batches, labels, order = [], [], sorted(range(len(chosen)), key=lambda i: len(chosen[i]))
        for first in range(0, len(order), BATCH_LINES):
            texts = [chosen[i] for i in order[first : first + BATCH_LINES]]
            batch = encoded(tokenizer, texts, layout, model.window)
            shown, wanted = predicted_tokens(tokenizer, batch["input_ids"], batch["attention_mask"], model.causal)
            batches.append(batch | {"shown_ids": shown})
            labels.append(wanted)
        return Sample(batches, labels, torch.tensor(order), layout)

    @cached_property
    def n_lines(self) -> int:
        """The number of lines."""
        return len(self.order)

    @torch.inference_mode()
    def vectors(self, network: nn.Module) -> Vectors:
        """The sentence vector of each line."""
        base: Any = getattr(network, "base_model", network)
        device = next(base.parameters()).device
        rows = [sentence_vectors(base, inputs_of(batch, device), self.layout).cpu() for batch in self.batches]
        found = torch.cat(rows)
        return torch.zeros_like(found).index_copy(0, self.order, found)

    @torch.inference_mode()
    def losses(self, network: Any) -> LineLosses:
        """Per line Σ −log p of its predicted tokens, and their number."""
        device = next(network.parameters()).device
        vocabulary = network.get_output_embeddings().weight.shape[0]
        totals, done = np.zeros((self.n_lines, 2)), 0
        for batch, labels in zip(self.batches, self.labels, strict=True):
            most = max(1, int((labels != IGNORED).sum(dim=1).max()))
            inputs = inputs_of(batch, device) | {"input_ids": batch["shown_ids"].to(device)}
            for rows in torch.arange(len(labels)).split(max(1, LOGITS // (vocabulary * most))):
                part = {name: tensor[rows] for name, tensor in inputs.items()}
                places = labels[rows] != IGNORED
                with only_places(network, places):
                    logits = network(**part, **no_cache(network)).logits[0].float().cpu()
                losses = torch.zeros(places.shape, dtype=torch.float64)
                gold = labels[rows][places]
                losses[places] = nn.functional.cross_entropy(logits, gold, reduction="none").double()
                sums = torch.stack([losses.sum(dim=1), places.sum(dim=1)], dim=1)
                totals[self.order[done + rows].numpy()] = sums.numpy()
            done += len(labels)
        return totals


@contextmanager
def only_places(network: Any, places: Tensor | None) -> Iterator[None]:
    """Let only these tokens (line × token) reach the head: with a large vocabulary it costs more than all blocks.

    The logits are then 1 × token × vocabulary. None changes nothing.
    """

    def keep_chosen(_module: nn.Module, _inputs: object, output: Any) -> Any:
        states = output["last_hidden_state"]
        output["last_hidden_state"] = states[places.to(states.device)][None]  # pyright: ignore[reportOptionalMemberAccess]
        return output

    hook = None if places is None else body_of(network).register_forward_hook(keep_chosen)
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()


def spread_places(n_lines: int, size: int) -> list[int]:
    """Numbers of `size` lines, spread evenly over a text."""
    return np.unique(np.linspace(0, n_lines - 1, min(size, n_lines)).astype(int)).tolist() if n_lines else []


def encoded(tokenizer: Any, lines: Sequence[str], layout: SentenceLayout | None, window: int | None) -> dict[str, Any]:
    """Lines as a batch that is padded on the right and cut at the longest input; the tokenizer stays what it is."""
    limits = [LONGEST, window, layout.max_length if layout else None]
    texts = [sentence_text(line, layout) for line in lines]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    before = getattr(backend, "truncation", None)  # a fast tokenizer keeps the last one, and writes it with itself
    try:
        rows = tokenizer(texts, truncation=True, max_length=min(limit for limit in limits if limit))
    finally:
        if backend is not None:
            backend.enable_truncation(**before) if before else backend.no_truncation()
    length = max(map(len, rows["input_ids"]))
    padding = {"input_ids": tokenizer.pad_token_id if isinstance(tokenizer.pad_token_id, int) else 0}
    return {
        name: torch.tensor([row + [padding.get(name, 0)] * (length - len(row)) for row in rows[name]])
        for name in ("input_ids", "attention_mask", "token_type_ids")
        if name in rows
    }


def predicted_tokens(
    tokenizer: Any, ids: Tensor, mask: Tensor, causal: bool, seed: int | None = 0
) -> tuple[Tensor, Tensor]:
    """What a language model is shown, and what each place has to predict: the next token, or a hidden one.

    Without a `seed` torch's own generator chooses what is hidden.
    """
    if causal:
        following = torch.cat([ids[:, 1:], ids[:, :1]], dim=1)
        seen = torch.cat([mask[:, 1:] * mask[:, :-1], torch.zeros_like(mask[:, :1])], dim=1).bool()
        return ids, following.masked_fill(~seen, IGNORED)
    if tokenizer.mask_token_id is None:
        return ids, torch.full_like(ids, IGNORED)
    ordinary = mask.bool() & ~torch.isin(ids, torch.tensor(tokenizer.all_special_ids, device=ids.device))
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    chance = torch.rand(ids.shape, generator=generator).to(ids.device).masked_fill(~ordinary, 2.0)
    hidden = (chance < HIDDEN) | ((chance == chance.amin(dim=1, keepdim=True)) & ordinary)  # at least one per line
    return ids.masked_fill(hidden, tokenizer.mask_token_id), ids.masked_fill(~hidden, IGNORED)


def inputs_of(batch: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """What the network takes of a batch."""
    return {name: tensor.to(device) for name, tensor in batch.items() if name != "shown_ids"}


def no_cache(network: Any) -> dict[str, bool]:
    """The option that keeps decoders from storing keys."""
    return {"use_cache": False} if getattr(network.config, "use_cache", False) else {}


def sentence_vectors(base: Any, inputs: dict[str, Tensor], layout: SentenceLayout | None) -> Vectors:
    """The pooled states of the last layer."""
    states = base(**inputs, **no_cache(base)).last_hidden_state.float()
    modes = layout.pooling if layout else ("mean",)
    return torch.cat([pooled(states, inputs["attention_mask"], mode) for mode in modes], dim=1)


def has_language_head(network: Any) -> bool:
    """Whether the network predicts tokens."""
    return network.get_output_embeddings() is not None


def line_fidelity(vectors: Vectors, original: Vectors) -> Float[np.ndarray, " line"]:
    """cos(v − μ, v₀ − μ) per line, with μ the mean of the original's vectors v₀.

    Vectors of many models lie close together, so that plain cosines are near 1 whatever happens; differences between
    sentences are what they are used for.
    """
    centre = original.mean(dim=0)
    return torch.cosine_similarity(vectors - centre, original - centre).double().numpy()


def quality(network: Any, sample: Sample, original: Vectors) -> dict[str, float]:
    """Fidelity and cosine to the original's vectors, and the perplexity where there is a head; with intervals."""
    cosines = line_fidelity(vectors := sample.vectors(network), original)
    measured = _bounds("fidelity", bootstrap_ratio(cosines, np.ones(len(cosines))))
    measured["cosine"] = float(torch.cosine_similarity(vectors, original).mean())
    if has_language_head(network) and (losses := sample.losses(network))[:, 1].any():
        loss = bootstrap_ratio(losses[:, 0], losses[:, 1])
        measured |= {name: float(np.exp(value)) for name, value in _bounds("perplexity", loss).items()}
    return measured


def _bounds(name: str, interval: Interval) -> dict[str, float]:
    return {name: float(interval.value), f"{name}_low": float(interval.low), f"{name}_high": float(interval.high)}


def harm(network: Any, sample: Sample, original: Vectors, by: str) -> float:
    """What was lost: 1 − fidelity, or the mean loss per token."""
    if by == "fidelity":
        return 1 - float(line_fidelity(sample.vectors(network), original).mean())
    if not has_language_head(network):
        raise ModelError(
            f"{type(network).__name__} has no language-modelling head, so it has no perplexity; use --by fidelity."
        )
    losses = sample.losses(network)
    return float(losses[:, 0].sum() / losses[:, 1].sum())


def block_influence(network: Any, sample: Sample) -> np.ndarray:
    """1 − E[cos(x, block(x))] of each block over all tokens: block influence of ShortGPT (Men et al. 2024)."""
    blocks = model_blocks(network)
    totals, n_tokens = np.zeros(len(blocks)), 0
    base: Any = getattr(network, "base_model", network)
    shown: list[Tensor] = []

    def note(number: int) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            before = args[0] if args else kwargs["hidden_states"]
            after = output[0] if isinstance(output, tuple) else output
            cosines = torch.cosine_similarity(before.float(), after.float(), dim=-1)
            cosines = cosines.T if base.config.model_type == "xlnet" else cosines  # its blocks have the tokens first
            cosines = cosines[:, : shown[-1].shape[1]]  # Longformer pads by itself
            totals[number] += float((1 - cosines)[shown[-1]].double().sum())

        return hook

    hooks = [block.register_forward_hook(note(i), with_kwargs=True) for i, block in enumerate(blocks)]
    try:
        with torch.inference_mode():
            for batch in sample.batches:
                inputs = inputs_of(batch, next(base.parameters()).device)
                shown.append(inputs["attention_mask"].bool())
                n_tokens += int(shown[-1].sum())
                base(**inputs, **no_cache(base))
    finally:
        for hook in hooks:
            hook.remove()
    return totals / n_tokens


def candidate_harms(network: Any, score: Callable[[Any], float]) -> np.ndarray:
    """What is lost when each block goes, alone; `score` runs the network on the same batches whenever it is called.

    With the loss per token, and again after each removal, this is SLEB (Song et al. 2024). What lies below a block does
    not change when it goes, so states that enter blocks are kept; the deeper the model, the nearer this spares half.
    """
    blocks, n_bytes = model_blocks(network), 0
    held: list[list[Any]] = [[] for _ in blocks]

    def note(place: int) -> Callable[..., None]:
        def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            nonlocal n_bytes
            states = args[0] if args else kwargs["hidden_states"]
            n_bytes += states.nbytes
            held[place].append(states if n_bytes <= HELD_BYTES else None)

        return hook

    hooks = [block.register_forward_pre_hook(note(i), with_kwargs=True) for i, block in enumerate(blocks)]
    try:
        whole = score(network)
    finally:
        for hook in hooks:
            hook.remove()

    def from_block(place: int, states: list[Tensor]) -> float:
        """The score of the blocks from this place on, if these states enter the first of them."""
        with without_layers(network, range(place + 1, len(blocks) + 1)), _reading(blocks[place], states):
            return score(network)

    middle = len(blocks) // 2
    spared = n_bytes <= HELD_BYTES and np.isclose(from_block(middle, held[middle]), whole, rtol=1e-4, atol=1e-5)
    harms, layers = [], range(1, len(blocks) + 1)
    for layer in layers:
        if spared and layer < len(blocks):  # the next block reads what this one read
            harms.append(from_block(layer, held[layer - 1]))
            continue
        with without_layers(network, [own for own in layers if own != layer]):
            harms.append(score(network))
    return np.array(harms)


@contextmanager
def _reading(block: nn.Module, states: list[Tensor]) -> Iterator[None]:
    """Let a block read these states, one item per call, whatever it is given."""
    coming = iter(states)

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        return ((next(coming), *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": next(coming)})

    handle = block.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
