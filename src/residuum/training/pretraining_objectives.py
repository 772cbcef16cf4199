"""Networks, batches, losses and scores of pretraining: masked, causal and translation LM, translation ranking."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, GPT2Config, PretrainedConfig, PreTrainedTokenizerBase, XLMRobertaConfig

from residuum.models.loading import find_blocks
from residuum.training.batches import ShuffledBatches
from residuum.training.loop import StepLosses
from residuum.training.pretraining_texts import N_SPECIAL
from residuum.training.settings import NetworkSettings, PretrainingObjective

IGNORED = -100  # a token that the loss skips
SCORED_TOGETHER = 64  # sentences per batch of an evaluation
Ids = np.ndarray  # the pieces of a sentence without special tokens


def build_network(settings: NetworkSettings, tokenizer: PreTrainedTokenizerBase, seed: int) -> nn.Module:
    """A network with random weights and a language-model head that is tied to the embeddings."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    special = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    is_bert = settings.architecture == "bert"
    config: PretrainedConfig
    if settings.architecture == "gpt2":
        config = GPT2Config(
            vocab_size=len(tokenizer),
            n_layer=settings.layers,
            n_embd=settings.hidden,
            n_head=settings.heads,
            n_inner=settings.feed_forward,
            n_positions=settings.window,
            resid_pdrop=settings.dropout,
            embd_pdrop=settings.dropout,
            attn_pdrop=settings.attention_dropout,
            **special,
        )
    else:
        sizes: dict[str, Any] = {
            "vocab_size": len(tokenizer),
            "num_hidden_layers": settings.layers,
            "hidden_size": settings.hidden,
            "num_attention_heads": settings.heads,
            "intermediate_size": settings.feed_forward,
            "max_position_embeddings": settings.window + (0 if is_bert else 2),  # XLM-R's begin after the padding id
            "type_vocab_size": 1,
            "hidden_dropout_prob": settings.dropout,
            "attention_probs_dropout_prob": settings.attention_dropout,
            **special,
        }
        config = BertConfig(**sizes) if is_bert else XLMRobertaConfig(**sizes, layer_norm_eps=1e-5)
    head = AutoModelForCausalLM if settings.architecture == "gpt2" else AutoModelForMaskedLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return head.from_config(config)


def states_of_layer(network: nn.Module, ids: Tensor, mask: Tensor, layer: int) -> Tensor:
    """The states of a layer (batch × token × hidden) without running the layers above it; 0 is the embeddings."""
    body: Any = network.base_model
    parent, attribute, blocks = find_blocks(body)
    assert blocks is not None
    if layer == len(blocks):
        return body(input_ids=ids, attention_mask=mask).last_hidden_state
    norm = getattr(parent, "ln_f", None)  # GPT-2 normalises the last layer only
    try:
        setattr(parent, attribute, blocks[:layer])
        if norm is not None:
            parent.ln_f = nn.Identity()
        return body(input_ids=ids, attention_mask=mask).last_hidden_state
    finally:
        setattr(parent, attribute, blocks)
        if norm is not None:
            parent.ln_f = norm


def vocabulary_head(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """The function from states (… × hidden) to logits over the vocabulary."""
    return getattr(network, "lm_head", None) or getattr(network, "cls")  # noqa: B009 (pyright)


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of the special tokens, and the size of the vocabulary."""

    begin: int
    end: int
    padding: int
    mask: int
    size: int


@dataclass(frozen=True, eq=False)
class TokenSource:
    """Tokenized sentences (or pairs) of one language or text, and their sampling weight."""

    items: Sequence[tuple[Ids, ...]]
    chance: float


class MixedBatches:
    """Batches of several objectives: the objective and the source of a batch are sampled by (seed, position).

    Each source shuffles its own sentences in every epoch and groups them by length.
    """

    per_epoch = None

    def __init__(
        self,
        objectives: Sequence[PretrainingObjective],
        texts: Sequence[TokenSource],
        pairs: Sequence[TokenSource],
        pieces: SpecialTokens,
        seed: int,
    ) -> None:
        self.objectives, self.pieces, self.seed = objectives, pieces, seed
        self.chances = _normalised([objective.share for objective in objectives])
        self.sources: list[list[ShuffledBatches[tuple[Ids, ...]]]] = []
        self.source_chances: list[np.ndarray] = []
        for objective in objectives:
            chosen = pairs if objective.kind in ("tlm", "ranking") else texts
            self.source_chances.append(_normalised([source.chance for source in chosen]))
            self.sources.append([_batches(source, objective, seed) for source in chosen])

    def __call__(self, position: int) -> dict[str, Any]:
        """The batch at a position, with the index of its objective."""
        generator = np.random.default_rng((self.seed, 1, position))
        number = int(generator.choice(len(self.objectives), p=self.chances))
        source = int(generator.choice(len(self.sources[number]), p=self.source_chances[number]))
        items = self.sources[number][source](position)
        objective = self.objectives[number]
        return {"objective": number, **BUILDERS[objective.kind](items, objective, self.pieces, generator)}


def losses_of(network: nn.Module, objectives: Sequence[PretrainingObjective], batch: Mapping[str, Any]) -> StepLosses:
    """The loss of a batch by its objective."""
    objective = objectives[batch["objective"]]
    if objective.kind == "ranking":
        assert objective.layer is not None
        sides = [batch["first"], batch["second"]]
        states = [states_of_layer(network, side["ids"], side["mask"], objective.layer) for side in sides]
        first, second = (mean_pooled(layer, side["mask"]) for layer, side in zip(states, sides, strict=True))
        loss = info_nce(first, second, objective.temperature, batch["same"])
        name, tokens = f"ranking {objective.layer}", sum(int(side["mask"].sum()) for side in sides)
    else:
        loss = prediction_loss(network, batch)
        name, tokens = objective.kind, int(batch["mask"].sum())
    return StepLosses(loss, {name: loss.detach()}, tokens=tokens)


def prediction_loss(network: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
    """Mean cross-entropy of the predicted tokens; only their states meet the vocabulary."""
    body: Any = network.base_model
    states = body(input_ids=batch["ids"], attention_mask=batch["mask"]).last_hidden_state
    wanted = batch["wanted"] != IGNORED
    logits = vocabulary_head(network)(states[wanted])
    return functional.cross_entropy(logits, batch["wanted"][wanted])


def mean_pooled(states: Tensor, mask: Tensor) -> Tensor:
    """The mean state of the tokens without padding: batch × token × hidden → batch × hidden."""
    weights = mask.to(states.dtype)[..., None]
    return (states * weights).sum(1) / weights.sum(1)


def info_nce(first: Tensor, second: Tensor, temperature: float, same: Tensor | None = None) -> Tensor:
    """Symmetric InfoNCE of cosines c: mean over i of −log softmax_j(c_ij / t)_i, both ways (van den Oord et al. 2018).

    `first` and `second` are pair × hidden. `same` (pair × pair) marks pairs that are no negatives.
    """
    cosine = functional.normalize(first, dim=-1) @ functional.normalize(second, dim=-1).T / temperature
    if same is not None:
        off_diagonal = ~torch.eye(len(first), dtype=torch.bool, device=first.device)
        cosine = cosine.masked_fill(same & off_diagonal, -torch.inf)
    target = torch.arange(len(first), device=first.device)
    return (functional.cross_entropy(cosine, target) + functional.cross_entropy(cosine.T, target)) / 2


def masked_batch(
    items: Sequence[tuple[Ids, ...]], objective: PretrainingObjective, pieces: SpecialTokens, generator: Any
) -> dict:
    """A batch with some tokens to predict: 80 % of them masked, 10 % random, 10 % unchanged."""
    batch = padded_batch(items, objective.length, pieces)
    ids = batch["ids"].numpy()
    ordinary = (ids >= N_SPECIAL) & (ids != pieces.mask)
    chosen = ordinary & (generator.random(ids.shape) < objective.mask)
    if not chosen.any():
        chosen[tuple(np.argwhere(ordinary)[0])] = True
    wanted = np.where(chosen, ids, IGNORED)
    fate = generator.random(ids.shape)
    ids[chosen & (fate < 0.8)] = pieces.mask
    replaced = chosen & (fate >= 0.8) & (fate < 0.9)
    ids[replaced] = generator.integers(N_SPECIAL, pieces.size - 1, replaced.sum())
    return {**batch, "wanted": torch.from_numpy(wanted)}


def _normalised(chances: Sequence[float]) -> np.ndarray:
    return np.array(chances) / np.sum(chances)


def padded_batch(items: Sequence[tuple[Ids, ...]], length: int, pieces: SpecialTokens) -> dict[str, Tensor]:
    """Ids and mask (batch × token) of sentences or pairs, with their special tokens."""
    return _padded([_joined(item, length, pieces) for item in items], pieces)


def _batches(source: TokenSource, objective: PretrainingObjective, seed: int) -> ShuffledBatches[tuple[Ids, ...]]:
    lengths = [sum(len(side) for side in item) for item in source.items]
    return ShuffledBatches(source.items, min(objective.batch, len(source.items)), seed=seed, lengths=lengths)


def _causal_batch(
    items: Sequence[tuple[Ids, ...]], objective: PretrainingObjective, pieces: SpecialTokens, generator: Any
) -> dict:
    """A batch in which every token is predicted from those before it."""
    batch = padded_batch(items, objective.length, pieces)
    following = batch["ids"][:, 1:].masked_fill(batch["mask"][:, 1:] == 0, IGNORED)
    return {**batch, "wanted": functional.pad(following, (0, 1), value=IGNORED)}


def _ranking_batch(
    items: Sequence[tuple[Ids, ...]], objective: PretrainingObjective, pieces: SpecialTokens, generator: Any
) -> dict:
    """Both sides of some pairs, and which pairs share a side, so that no translation counts as a negative."""
    sides = [[_joined((item[side],), objective.length, pieces) for item in items] for side in (0, 1)]
    same = torch.zeros(len(items), len(items), dtype=torch.bool)
    for side in sides:
        keys = [line.tobytes() for line in side]
        numbers = torch.tensor([keys.index(key) for key in keys])
        same |= numbers[:, None] == numbers[None]
    return {"first": _padded(sides[0], pieces), "second": _padded(sides[1], pieces), "same": same}


def _joined(item: tuple[Ids, ...], length: int, pieces: SpecialTokens) -> Ids:
    """`<s> a </s>` or `<s> a </s> </s> b </s>`, each sentence cut to fit."""
    room = (length - 2) // len(item) - (2 if len(item) > 1 else 0)
    parts: list[Any] = [[pieces.begin]]
    for number, side in enumerate(item):
        parts += [[pieces.end]] * (number > 0) + [side[: max(room, 1)], [pieces.end]]
    return np.concatenate(parts).astype(np.int64)


def _padded(lines: Sequence[Ids], pieces: SpecialTokens) -> dict[str, Tensor]:
    width = max(len(line) for line in lines)
    ids = np.full((len(lines), width), pieces.padding, np.int64)
    for row, line in zip(ids, lines, strict=True):
        row[: len(line)] = line
    tensor = torch.from_numpy(ids)
    return {"ids": tensor, "mask": (tensor != pieces.padding).long()}


BUILDERS = {"mlm": masked_batch, "tlm": masked_batch, "clm": _causal_batch, "ranking": _ranking_batch}


def perplexity(
    network: nn.Module,
    sentences: Sequence[tuple[Ids, ...]],
    objective: PretrainingObjective,
    pieces: SpecialTokens,
    seed: int,
) -> float:
    """exp of the mean cross-entropy of predicted tokens; the seed decides which ones are masked."""
    total, count = 0.0, 0
    for number, items in enumerate(_in_batches(sentences)):
        batch = BUILDERS[objective.kind](items, objective, pieces, np.random.default_rng((seed, number)))
        batch = {name: value.to(_device(network)) for name, value in batch.items()}
        guessed = int((batch["wanted"] != IGNORED).sum())
        total += float(prediction_loss(network, batch)) * guessed
        count += guessed
    return math.exp(total / count)


def retrieval_by_layer(
    network: nn.Module, pairs: Sequence[tuple[Ids, Ids]], length: int, pieces: SpecialTokens
) -> list[tuple[float, float]]:
    """Retrieval accuracy per layer: the nearest second sentence by cosine is the translation, and vice versa."""
    first, second = (layer_means(network, [(pair[side],) for pair in pairs], length, pieces) for side in (0, 1))
    translation = torch.arange(len(pairs))
    accuracies = []
    for a, b in zip(first, second, strict=True):
        cosine = functional.normalize(a, dim=-1) @ functional.normalize(b, dim=-1).T
        forth, back = cosine.argmax(1) == translation, cosine.argmax(0) == translation
        accuracies.append((forth.double().mean().item(), back.double().mean().item()))
    return accuracies


def layer_means(network: nn.Module, sentences: Sequence[tuple[Ids, ...]], length: int, pieces: SpecialTokens) -> Tensor:
    """Mean-pooled states of all layers: layer × sentence × hidden."""
    order = sorted(range(len(sentences)), key=lambda place: len(sentences[place][0]))
    body: Any = network.base_model
    parts = []
    for items in _in_batches([sentences[place] for place in order]):
        batch = {name: value.to(_device(network)) for name, value in padded_batch(items, length, pieces).items()}
        hidden = body(input_ids=batch["ids"], attention_mask=batch["mask"], output_hidden_states=True).hidden_states
        parts.append(torch.stack([mean_pooled(states, batch["mask"]) for states in hidden]).cpu())
    back = torch.empty(len(order), dtype=torch.long)
    back[torch.tensor(order)] = torch.arange(len(order))
    return torch.cat(parts, 1)[:, back]


def evaluation(
    network: nn.Module,
    held_out: Mapping[str, Sequence[tuple[Ids, ...]]],
    retrieval: Mapping[str, Sequence[tuple[Ids, Ids]]],
    objectives: Sequence[PretrainingObjective],
    pieces: SpecialTokens,
    seed: int,
) -> Callable[[int], dict[str, float]]:
    """The scores at a step: perplexity per language, retrieval per set and layer, mean over the best layers."""
    predicting = next((objective for objective in objectives if objective.kind in ("mlm", "clm")), None)
    length = max(objective.length for objective in objectives)

    def scores(step: int) -> dict[str, float]:
        values: dict[str, float] = {}
        if predicting is not None:
            for language, sentences in held_out.items():
                values[f"perplexity {language}"] = perplexity(network, sentences, predicting, pieces, seed)
        best = []
        for name, pairs in retrieval.items():
            by_layer = retrieval_by_layer(network, pairs, length, pieces)
            for layer, (forth, back) in enumerate(by_layer):
                values[f"retrieval {name} layer {layer}"] = forth
                values[f"retrieval {name} back layer {layer}"] = back
            best.append(max(forth for forth, _ in by_layer))
        if best:
            values["retrieval"] = float(np.mean(best))
        return values

    return scores


def _in_batches(items: Sequence[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), SCORED_TOGETHER):
        yield list(items[start : start + SCORED_TOGETHER])


def _device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device
