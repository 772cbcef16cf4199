"""Healing: a model that was cut learns from the original, on plain text, what it gave before.

Sentence encoders learn the original's sentence vectors and token states; with translations, the vector of a
translation moves to the original's vector of the source (Reimers and Gurevych 2020). Language models learn its
predictions, too. Losses on states are shares of the variance of what is to be learnt, so that layers count alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from residuum.models.loading import from_transformers, resolve_device
from residuum.models.sentences import SentenceLayout, pooled, read_sentence_layout
from residuum.models.surgery import freeze
from residuum.shrinking.planning import IGNORED, encoded, has_language_head, no_cache, only_places, predicted_tokens
from residuum.training.batches import ShuffledBatches
from residuum.training.loop import StepLosses, train
from residuum.training.settings import TrainingSettings

if TYPE_CHECKING:
    import pandas as pd

INNER_WEIGHT = 0.3  # of the states between the blocks, beside those at the end
WARMUP = 0.06
BETAS = (0.9, 0.98)
RATE_TIMES_WIDTH, HIGHEST_RATE = 0.12, 1e-3  # the wider a model, the smaller the steps that AdamW may take

States = Float[Tensor, "line token neuron"]


@dataclass(frozen=True, eq=False)
class Lesson:
    """A student, its teacher, and how both read: `kept` are the teacher's blocks that the student has."""

    student: Any
    teacher: Any
    tokenizer: Any
    layout: SentenceLayout | None
    kept: Sequence[int]
    teacher_tokenizer: Any
    kept_ids: Tensor | None  # the teacher's ids of the student's vocabulary, where that was trimmed
    causal: bool
    window: int | None

    def encoded(self, lines: Sequence[str], tokenizer: Any = None) -> dict[str, Tensor]:
        """Lines as one padded batch."""
        return encoded(tokenizer or self.tokenizer, lines, self.layout, self.window)

    @property
    def own_tokens(self) -> bool:
        """Whether student and teacher read the same tokens."""
        return self.kept_ids is None


def heal(
    student: Any,
    tokenizer: Any,
    teacher: Any,
    lines: Sequence[str],
    settings: Any,
    folder: Path,
    *,
    kept: Sequence[int],
    pairs: Sequence[tuple[str, str]] = (),
    kept_ids: Tensor | None = None,
    teacher_tokenizer: Any = None,
) -> pd.DataFrame:
    """Train the student for `settings.heal` steps and return the curve; a killed run goes on from its checkpoint.

    Lines and pairs of sentences, translations of each other, are mixed as they are many. The embeddings stay those of
    the original, so that words the lines do not hold still fit the blocks; with translations they are trained, too.
    """
    teacher.eval().requires_grad_(False).to(next(student.parameters()).device)
    model = from_transformers(student, tokenizer)
    lesson = Lesson(
        student, teacher, tokenizer, read_sentence_layout(settings.model), kept,
        teacher_tokenizer or tokenizer, kept_ids, model.causal, model.window,
    )  # fmt: skip
    items: list[tuple[str, str | None]] = [*((line, None) for line in lines), *pairs]
    batches = ShuffledBatches(
        items, settings.heal_batch, seed=settings.seed, lengths=[len(line) + len(other or "") for line, other in items],
        collate=lambda batch: _collated(lesson, batch),
    )  # fmt: skip
    for name, parameter in student.named_parameters():
        parameter.requires_grad_(".pooler." not in f".{name}")  # which nothing here reads
    freeze(student, (), embeddings=not pairs)
    result = train(
        {"student": student},
        batches,
        losses_of(lesson),
        healing_recipe(settings, student),
        folder / "healing",
        config={"healing": [settings.heal_batch, list(kept), len(lines), len(pairs)]},
        device=settings.device,
        progress=settings.progress,
    )
    student.requires_grad_(True).eval()
    return result.history


def healing_recipe(settings: Any, student: Any) -> TrainingSettings:
    """The recipe: AdamW without decay (what is not trained by a line stays as it is), linear to 0."""
    rate = settings.heal_rate or min(HIGHEST_RATE, RATE_TIMES_WIDTH / student.config.hidden_size)
    precision: Any = settings.heal_precision
    if precision == "auto":
        precision = "bfloat16" if multiplies_bfloat16(resolve_device(settings.device)) else "float32"
    return TrainingSettings(
        steps=settings.heal, learning_rate=rate, warmup=WARMUP, weight_decay=0.0, betas=BETAS, precision=precision,
        checkpoint_every=100, seed=settings.seed, log_every=max(1, settings.heal // 100),
    )  # fmt: skip


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 matrices itself; where it only emulates that, float32 is faster."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    known = getattr(torch.cpu, "get_capabilities", dict)()  # older versions of torch do not tell
    return device.type == "cpu" and any(known.get(name) for name in ("avx512_bf16", "amx_bf16"))


def _collated(lesson: Lesson, items: list[tuple[str, str | None]]) -> dict[str, Any]:
    """What student and teacher read: the lines, and the translations of those that have one."""
    lines = [line for line, _ in items]
    batch: dict[str, Any] = {"lines": lesson.encoded(lines)}
    if not lesson.own_tokens:
        batch["teacher"] = lesson.encoded(lines, lesson.teacher_tokenizer)
    places = [place for place, (_, other) in enumerate(items) if other is not None]
    if places:
        batch["places"] = torch.tensor(places)
        batch["translations"] = lesson.encoded([other for _, other in items if other is not None])
    return batch


def losses_of(lesson: Lesson) -> Callable[[dict[str, Any]], StepLosses]:
    """The losses of a batch: states of all tokens, sentence vectors, translations, and predictions."""
    predicts = has_language_head(lesson.student) and has_language_head(lesson.teacher)

    def losses(batch: dict[str, Any]) -> StepLosses:
        inputs = batch["lines"]
        mask = inputs["attention_mask"]
        labels = None
        taught = batch.get("teacher", inputs)
        if predicts:
            shown, labels = predicted_tokens(lesson.tokenizer, inputs["input_ids"], mask, lesson.causal, seed=None)
            if not lesson.causal:
                inputs = inputs | {"input_ids": shown}
                taught = taught | {"input_ids": shown if lesson.kept_ids is None else lesson.kept_ids[shown]}
        places = None if labels is None else labels != IGNORED
        with torch.no_grad():
            teacher = _outputs(lesson.teacher, taught, places)
        student = _outputs(lesson.student, inputs, places)
        terms = state_losses(student.hidden_states, teacher.hidden_states, lesson.kept, mask, inner=not lesson.causal)
        if lesson.layout is not None or not predicts:
            goal = _pooled(lesson, teacher.hidden_states[-1], mask)
            terms["vectors"] = relative_error(_pooled(lesson, student.hidden_states[-1], mask), goal)
            if "translations" in batch:
                other = _outputs(lesson.student, batch["translations"]).hidden_states[-1]
                found = _pooled(lesson, other, batch["translations"]["attention_mask"])
                terms["translations"] = relative_error(found, goal[batch["places"]], around=goal)
        if places is not None and places.any():
            terms["predictions"] = prediction_loss(student.logits[0], teacher.logits[0], lesson.kept_ids)
        return StepLosses(torch.stack(list(terms.values())).sum(), terms, tokens=int(mask.sum()))

    return losses


def state_losses(
    student: Sequence[States], teacher: Sequence[States], kept: Sequence[int], mask: Tensor, *, inner: bool
) -> dict[str, Tensor]:
    """Relative error of the last layer's states and, with `inner`, the mean over the blocks below, weighted.

    What enters a kept block shall be what entered it in the original: the states of the block right below it there.
    """
    shown = mask.bool()
    terms = {"states": relative_error(student[-1][shown], teacher[-1][shown])}
    below = [(student[own], teacher[layer - 1]) for own, layer in enumerate(kept[1:], 1)]
    if inner and below:
        errors = [relative_error(found[shown], goal[shown]) for found, goal in below]
        terms["inner states"] = INNER_WEIGHT * torch.stack(errors).mean()
    return terms


def relative_error(
    found: Float[Tensor, "row neuron"],
    goal: Float[Tensor, "row neuron"],
    around: Float[Tensor, "other neuron"] | None = None,
) -> Float[Tensor, ""]:
    """Mean ‖x − t‖² divided by the mean ‖t − μ‖², μ the mean of the goals (or of `around`); 1 for a constant x = μ."""
    found, goal = found.float(), goal.float()  # differences of vectors that lie close together
    reference = goal if around is None else around.float()
    spread = (reference - reference.mean(dim=0)).square().sum(dim=1).mean().clamp(min=1e-6)
    return (found - goal).square().sum(dim=1).mean() / spread


def prediction_loss(
    student: Float[Tensor, "place piece"], teacher: Float[Tensor, "place whole"], kept_ids: Tensor | None
) -> Float[Tensor, ""]:
    """KL(teacher ‖ student), mean over places, over the pieces that both know."""
    goal = (teacher if kept_ids is None else teacher[:, kept_ids]).float().log_softmax(dim=-1)
    return (goal.exp() * (goal - student.float().log_softmax(dim=-1))).sum(dim=-1).mean()


def _outputs(network: Any, inputs: dict[str, Tensor], places: Tensor | None = None) -> Any:
    with only_places(network, places):
        return network(**inputs, **no_cache(network), output_hidden_states=True)


def _pooled(lesson: Lesson, states: States, mask: Tensor) -> Tensor:
    modes = lesson.layout.pooling if lesson.layout else ("mean",)
    return torch.cat([pooled(states, mask, mode) for mode in modes], dim=1)
