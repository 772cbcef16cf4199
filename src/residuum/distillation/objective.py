"""What a student is trained to match, term by term."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from residuum.distillation.networks import AttentionInputs, States
from residuum.distillation.settings import ATTENTION_TERMS, EMBEDDING_TERMS, HIDDEN_TERMS, TERMS, Recipe
from residuum.maths import losses
from residuum.maths.losses import LayerMap
from residuum.maths.vocabulary_losses import Divergence


@dataclass(frozen=True, eq=False)
class TeacherOutput:
    """The teacher on a batch: states and attention of the compared layers, features at chosen positions, vectors."""

    hidden: Mapping[int, Tensor]
    attention: Mapping[int, AttentionInputs]
    features: Tensor  # position × neuron, after the head's transform; empty where no logits are needed
    vectors: Tensor  # sentence × neuron, mean of the last layer


@dataclass(frozen=True)
class Counts:
    """The divisor of each kind of term: tokens, sentences, predicted and softly compared positions."""

    tokens: float
    sentences: float
    predicted: float
    soft: float


@dataclass(frozen=True)
class DistillationObjective:
    """The weights of the terms, the layer map g and the rules of a recipe."""

    weights: Mapping[str, float]
    layers: LayerMap
    temperature: float
    recipe: Recipe
    causal: bool
    divergence: Divergence = "forward"
    layer_weights: tuple[float, ...] | None = None  # of each mapped layer, from the bottom; None: 1 each
    schedules: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # of the temperature and of weights

    def at(self, progress: float) -> DistillationObjective:
        """The objective when a share of the training is done: what has a schedule is on the line between its ends."""
        now = {name: first + progress * (last - first) for name, (first, last) in self.schedules.items()}
        temperature = now.pop("temperature", self.temperature)
        return replace(self, weights={**self.weights, **now}, temperature=temperature, schedules={})

    @property
    def reads_text(self) -> bool:
        """Whether any term is computed on the texts and not on translations alone."""
        return self.uses(*(term for term in TERMS if term != "translation_mse"))

    def over_layers(self, values: Iterable[Tensor]) -> Tensor:
        """The weighted sum of one value per mapped layer."""
        found = list(values)
        weights = self.layer_weights or (1.0,) * len(found)
        return torch.stack([weight * value for weight, value in zip(weights, found, strict=True)]).sum()

    def uses(self, *terms: str) -> bool:
        """Whether any of these terms has a weight."""
        return any(self.weights.get(term, 0) > 0 for term in terms)

    @property
    def needs_attention(self) -> bool:
        """Whether attention must be read."""
        return self.uses(*ATTENTION_TERMS)

    @property
    def teacher_layers(self) -> list[int]:
        """The teacher's layers whose states are compared or pooled."""
        wanted = set(self.layers.values()) if self.uses(*HIDDEN_TERMS) else set()
        if self.uses(*EMBEDDING_TERMS):
            wanted.add(0)
        return sorted(wanted)


class Projections(nn.Module):
    """Learnable maps into the teacher's space: W per layer where widths differ, a GELU map for hidden_kl."""

    def __init__(self, objective: DistillationObjective, student: int, teacher: int) -> None:
        super().__init__()
        layers = [0, *objective.layers]
        self.linear = nn.ModuleDict()
        if student != teacher:
            self.linear.update({str(m): nn.Linear(student, teacher, bias=False) for m in layers})
        self.curved = nn.ModuleDict()
        if objective.uses("hidden_kl"):
            self.curved.update(
                {str(m): nn.Sequential(nn.Linear(student, teacher), nn.GELU()) for m in objective.layers}
            )

    def forward(self, layer: int, states: Tensor) -> Tensor:
        """The student's states of a layer in the teacher's width."""
        return self.linear[str(layer)](states) if str(layer) in self.linear else states


def token_terms(
    objective: DistillationObjective,
    student: States,
    teacher: TeacherOutput,
    mask: Tensor,
    projections: Projections,
    counts: Counts,
) -> Iterator[tuple[str, Tensor]]:
    """Every used term on states, attention and embeddings; terms over layers are summed over the mapped ones."""
    published = objective.recipe == "published"
    counted = torch.ones_like(mask) if published else mask
    tokens = float(mask.numel()) if published else counts.tokens

    def mean(per_token: Tensor) -> Tensor:
        return losses.token_mean(per_token, counted, tokens)

    for term in ("hidden_mse", "hidden_cos"):
        if objective.uses(term):
            loss = getattr(losses, term)
            pairs = ((projections(m, student.hidden[m]), teacher.hidden[n]) for m, n in objective.layers.items())
            yield term, objective.over_layers(mean(loss(s, t)) for s, t in pairs)
    for term in EMBEDDING_TERMS:
        if objective.uses(term):
            loss = losses.hidden_mse if term == "embedding_mse" else losses.hidden_cos
            yield term, mean(loss(projections(0, student.hidden[0]), teacher.hidden[0]))
    if objective.uses("hidden_kl"):
        curved = ((projections.curved[str(m)](student.hidden[m]), n) for m, n in objective.layers.items())
        yield "hidden_kl", objective.over_layers(mean(losses.hidden_kl(s, teacher.hidden[n])) for s, n in curved)
    yield from _first_token_terms(objective, student, teacher, mask, projections, counts)
    if objective.needs_attention:
        for term in ATTENTION_TERMS:
            if objective.uses(term):
                values = _attention_values(term, objective, student, teacher, mask)
                yield term, objective.over_layers(map(mean, values))


def _first_token_terms(
    objective: DistillationObjective,
    student: States,
    teacher: TeacherOutput,
    mask: Tensor,
    projections: Projections,
    counts: Counts,
) -> Iterator[tuple[str, Tensor]]:
    """Terms on the token that stands for the sentence: the first, in decoders the last."""
    place = mask.sum(dim=1, keepdim=True) - 1 if objective.causal else torch.zeros_like(mask[:, :1], dtype=torch.long)

    def of_sentence(states: Tensor) -> Tensor:
        return states.gather(1, place[..., None].expand(-1, -1, states.shape[-1]))

    for term, loss in (("cls_mse", losses.normalized_mse), ("cls_cos", losses.hidden_cos)):
        if objective.uses(term):
            pairs = [
                (projections(m, of_sentence(student.hidden[m])), of_sentence(teacher.hidden[n]))
                for m, n in objective.layers.items()
            ]
            yield term, objective.over_layers(loss(s, t).sum() / counts.sentences for s, t in pairs)


def _attention_values(
    term: str, objective: DistillationObjective, student: States, teacher: TeacherOutput, mask: Tensor
) -> Iterator[Tensor]:
    """A term's values per token, for each mapped layer."""
    for m, n in objective.layers.items():
        mine, theirs = student.attention[m - 1], teacher.attention[n]
        if term == "value_relation":
            visible = losses.visible_keys(mask, mine.value.shape[1], objective.causal)
            yield losses.relation_kl(mine.value, theirs.value, visible)
            continue
        visible = losses.visible_keys(mask, mine.query.shape[1], objective.causal)
        if term == "attention_kl":
            loss = losses.attention_kl
        else:
            loss = losses.published_attention_mse if objective.recipe == "published" else losses.attention_mse
        yield loss(mine.scores, theirs.scores, visible)
