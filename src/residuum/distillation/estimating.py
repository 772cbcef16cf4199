"""The cost of a distillation: measured on its first steps, or counted for another device."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch

from residuum.costs import Cost, CostStep, timed
from residuum.distillation.networks import LanguageModel
from residuum.distillation.preparation import Prepared, prepare
from residuum.distillation.settings import ATTENTION_TERMS, DistillSettings
from residuum.distillation.students import parameter_counts
from residuum.distillation.texts import batch_sizes
from residuum.errors import ModelError
from residuum.maths.losses import drawn
from residuum.maths.vocabulary_losses import CHUNK_BYTES
from residuum.models.loading import evaluating
from residuum.training.loop import kept_for_backward, rehearse, training_step
from residuum.training.settings import TrainingSettings

NUMBER = 4  # bytes of a float32
PER_WEIGHT = 4  # numbers per trained weight: itself, its gradient and AdamW's two moments
SCORE_TABLES = 4  # tables of attention scores that a term keeps: student's, teacher's, their difference and its square
LOGIT_CHUNKS = 4  # chunks of logits that are held at once


@dataclass(frozen=True, kw_only=True)
class DistillationPlan(Cost):
    """The cost of a distillation, and what its students are."""

    parameters: dict[str, int]  # per student, shared, total
    teacher_parameters: int
    seconds_per_step: float
    layer_map: str
    initialisation: str

    def __str__(self) -> str:
        students = {name: n for name, n in self.parameters.items() if name not in ("shared", "total")}
        lines = [
            super().__str__(),
            f"time per step: {self.seconds_per_step:.3g} s",
            f"teacher: {self.teacher_parameters:,} parameters",
            *(f"student {name}: {n:,} parameters ({n / self.teacher_parameters:.0%})" for name, n in students.items()),
            f"shared by students: {self.parameters['shared']:,}; all students together: {self.parameters['total']:,}",
            self.initialisation,
            self.layer_map,
        ]
        return "\n".join(lines)


def estimate_distillation(settings: DistillSettings, training: TrainingSettings) -> DistillationPlan:
    """Time, memory, parameters and layer map; nothing is written.

    The first steps are taken here or, with `flops`, a step's operations and memory are counted without running it.
    """
    prepared = prepare(replace(settings, teacher_cache=None))  # the cache would be written
    teacher = prepared.teacher.model
    counts = parameter_counts({student.name: student.model for student in prepared.students})
    checkpoint = NUMBER * (PER_WEIGHT - 1) * counts["total"]
    students = f"students {', '.join(settings.learners)}: {settings.optimiser.steps:,} steps"
    if settings.flops is None:
        rehearsal = rehearse(
            prepared.modules,
            prepared.batches,
            prepared.step,
            training,
            parameters=prepared.parameter_groups(),
            device=settings.device,
            beside=sum(p.numel() * p.element_size() for m in prepared.teachers for p in m.module.parameters()),
        )
        with evaluating(prepared.modules.values()):
            scoring = timed(prepared.monitor)
        per_step = rehearsal.seconds * settings.turns
        steps = (
            training_step("training", rehearsal, training, None, scoring),
            CostStep("scores", scoring, disk=NUMBER * counts["total"]),
        )
    else:
        operations, memory = count_step(prepared)
        per_step = operations / settings.flops
        students += f" at {settings.flops:.3g} FLOP/s, every line {line_length(prepared)} tokens long"
        steps = (CostStep("training", per_step * settings.optimiser.steps, memory=memory, disk=checkpoint),)
    return DistillationPlan(
        students,
        steps,
        parameters=counts,
        teacher_parameters=teacher.module.num_parameters(),
        seconds_per_step=per_step,
        layer_map=drawn(prepared.objective.layers, prepared.students[0].model.n_layers, teacher.n_layers),
        initialisation=f"initialised from: {settings.initialise} ({settings.initialise_map})",
    )


def count_step(prepared: Prepared) -> tuple[float, int]:
    """Floating-point operations of one step over all languages and students, and the bytes that a process holds.

    Networks are run with shapes only, every line at its longest. In the recipe `corrected` the passes of all pairs of
    a language and a student are held at once, in the others those of one.
    """
    settings, objective, teacher = prepared.settings, prepared.objective, prepared.teacher.model
    length, half = line_length(prepared), settings.optimiser.precision != "float32"
    sizes = batch_sizes(settings.texts, settings.text)
    runs = settings.optimiser.accumulation
    heads = 0 if not objective.uses("mlm", "soft", "softmax_regression") else 1
    positions = length if settings.soft_positions == "all" or teacher.causal else length * settings.text.masked
    taught, _ = _counted_pass(teacher, length, half=False, learns=False)
    student = prepared.students[0].model
    learnt, activations = _counted_pass(student, length, half=half, learns=True)
    state = length * student.hidden_size * NUMBER
    if settings.optimiser.gradient_checkpointing:  # one block's activations, and the input of every block
        forward, _ = _counted_pass(student, length, half=half, learns=False)
        learnt, activations = learnt + forward, activations / student.n_layers + student.n_layers * state
    teachers = {language: len(group.members) for language, group in prepared.step.groups.items()}
    operations = float(sum(size * teachers.get(language, 1) for language, size in sizes.items())) * taught
    pass_bytes = []
    tables = sum(objective.uses(term) for term in ATTENTION_TERMS) * SCORE_TABLES * student.n_heads * length**2
    kept = (
        activations + len(objective.layers) * (NUMBER * tables + 2 * state) + len(objective.teacher_layers) * state
    )  # the last: the teacher's copies
    pieces = {s.name: s.model.module.config.vocab_size for s in prepared.students}
    for language, name in settings.language_student_pairs:
        product = 2.0 * positions * pieces[name] * student.hidden_size  # of features and the vocabulary
        operations += sizes[language] * (learnt + heads * product * (3 + objective.uses("soft", "softmax_regression")))
        pass_bytes.append(sizes[language] * kept)
    weights = parameter_counts({s.name: s.model for s in prepared.students})["total"]
    of_teacher = sum(model.module.num_parameters() for model in prepared.teachers)
    held = sum(pass_bytes) if settings.recipe == "corrected" else max(pass_bytes)
    memory = NUMBER * (PER_WEIGHT * weights + of_teacher) + half * 2 * (weights + of_teacher)
    return operations * runs, int(memory + held + heads * LOGIT_CHUNKS * CHUNK_BYTES)


def line_length(prepared: Prepared) -> int:
    """The most tokens of a line."""
    return max(encoder.max_length for encoder in prepared.monitor.encoders.values())


def _counted_pass(model: LanguageModel, length: int, *, half: bool, learns: bool) -> tuple[float, float]:
    """Operations of one line through a network (and back, where it learns), and bytes kept for the way back."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        twin: Any = type(model.module)(copy.deepcopy(model.module.config))
        ids = torch.zeros((1, length), dtype=torch.long)
    twin.train(learns).to(torch.bfloat16 if half else torch.float32)
    base = getattr(twin, "base_model", twin)
    try:
        with FlopCounterMode(display=False) as counter, kept_for_backward(list(twin.parameters())) as kept:
            with torch.set_grad_enabled(learns):
                states = base(input_ids=ids, output_hidden_states=True).hidden_states
            if learns:
                torch.stack([state.sum() for state in states]).sum().backward()
    except RuntimeError as error:
        raise ModelError(
            f"The operations of {type(model.module).__name__} cannot be counted without running it; leave flops out, "
            "and the first steps are measured here."
        ) from error
    return float(counter.get_total_flops()), float(sum(kept.values()))
