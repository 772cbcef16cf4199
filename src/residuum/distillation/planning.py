"""What a distillation will cost, before it is started: parameters, memory, time per step, and the layer map drawn."""

from __future__ import annotations

from dataclasses import dataclass

from residuum.costs import Cost, Step, timed
from residuum.distillation.distilling import training_settings
from residuum.distillation.preparation import Prepared
from residuum.distillation.students import parameter_counts
from residuum.maths.losses import drawn
from residuum.training.costs import rehearse, training_step
from residuum.training.processes import evaluating


@dataclass(frozen=True)
class Plan:
    """The cost of a run, measured on its first steps."""

    parameters: dict[str, int]  # per student, shared, total
    teacher_parameters: int
    gigabytes: float
    seconds_per_step: float
    steps: int
    layer_map: str
    initialisation: str
    cost: Cost

    def __str__(self) -> str:
        students = {name: n for name, n in self.parameters.items() if name not in ("shared", "total")}
        days = self.cost.seconds / 86400
        lines = [
            f"teacher: {self.teacher_parameters:,} parameters",
            *(f"student {name}: {n:,} parameters ({n / self.teacher_parameters:.0%})" for name, n in students.items()),
            f"shared by students: {self.parameters['shared']:,}; all students together: {self.parameters['total']:,}",
            f"memory: about {self.gigabytes:.2f} GB with the teacher, gradients and optimiser",
            f"time: {self.seconds_per_step:.3g} s a step, {days:.2g} days for {self.steps:,} steps and all scores",
            self.initialisation,
            self.layer_map,
        ]
        return "\n".join(lines)


def make_plan(prepared: Prepared, device: str = "auto") -> Plan:
    """Take the first steps, with losses, gradients and optimiser; the students are no longer what they were."""
    counts = parameter_counts({student.name: student.model for student in prepared.students})
    settings, teacher = prepared.settings, prepared.teacher.model
    training = training_settings(prepared)
    rehearsal = rehearse(
        prepared.modules,
        prepared.batches,
        prepared.step,
        training,
        parameters=prepared.parameter_groups(),
        device=device,
        beside=sum(p.numel() * p.element_size() for p in teacher.module.parameters()),
    )
    scoring = _scoring_seconds(prepared)
    names = ", ".join(student.name for student in prepared.students)
    steps = (
        training_step("training", rehearsal, training, None, scoring),
        Step("scores", scoring, disk=4 * counts["total"]),
    )
    turns = 1 if settings.recipe == "corrected" else len(prepared.pairs)
    return Plan(
        parameters=counts,
        teacher_parameters=teacher.module.num_parameters(),
        gigabytes=rehearsal.memory / 1e9,
        seconds_per_step=rehearsal.seconds * turns,
        steps=settings.optimiser.steps,
        layer_map=drawn(prepared.objective.layers, prepared.students[0].model.n_layers, teacher.n_layers),
        initialisation=f"initialised from: {settings.initialise} ({settings.initialise_map})",
        cost=Cost(f"students {names}: {settings.optimiser.steps:,} steps", steps),
    )


def _scoring_seconds(prepared: Prepared) -> float:
    """Of perplexity and retrieval once, as they are measured along the way and at the end."""
    with evaluating(prepared.modules.values()):
        return timed(prepared.monitor)
