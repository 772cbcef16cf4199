"""What a distillation will cost, before it is started: parameters, memory, time per step, and the layer map drawn."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass

from residuum.distillation.preparation import Prepared
from residuum.distillation.students import parameter_counts
from residuum.maths.layer_maps import drawn

BYTES_A_WEIGHT, BYTES_A_TRAINED_WEIGHT = 4, 16  # a trained one has its gradient and two moments of AdamW


@dataclass(frozen=True)
class Plan:
    """The cost of a run, measured on its first step."""

    parameters: dict[str, int]  # per student, shared, total
    teacher_parameters: int
    gigabytes: float
    seconds_per_step: float
    steps: int
    layer_map: str
    initialisation: str

    def __str__(self) -> str:
        students = {name: n for name, n in self.parameters.items() if name not in ("shared", "total")}
        days = self.seconds_per_step * self.steps / 86400
        lines = [
            f"teacher: {self.teacher_parameters:,} parameters",
            *(f"student {name}: {n:,} parameters ({n / self.teacher_parameters:.0%})" for name, n in students.items()),
            f"shared by students: {self.parameters['shared']:,}; all students together: {self.parameters['total']:,}",
            f"memory: about {self.gigabytes:.2f} GB with the teacher, gradients and optimiser",
            f"time: {self.seconds_per_step:.3g} s a step, {days:.2g} days for {self.steps:,} steps",
            self.initialisation,
            self.layer_map,
        ]
        return "\n".join(lines)


def make_plan(prepared: Prepared, repeats: int = 2) -> Plan:
    """Take the first step's losses and gradients a few times, without moving any weight."""
    counts = parameter_counts({student.name: student.model for student in prepared.students})
    before = _peak_gigabytes()
    seconds = min(_one_step(prepared) for _ in range(repeats))
    held = prepared.teacher.model.module.num_parameters() * BYTES_A_WEIGHT + counts["total"] * BYTES_A_TRAINED_WEIGHT
    settings, model = prepared.settings, prepared.students[0].model
    return Plan(
        parameters=counts,
        teacher_parameters=prepared.teacher.model.module.num_parameters(),
        gigabytes=held / 1e9 + max(0.0, _peak_gigabytes() - before),
        seconds_per_step=seconds * (1 if settings.recipe == "corrected" else len(prepared.pairs)),
        steps=settings.optimiser.steps,
        layer_map=drawn(prepared.objective.layers, model.n_layers, prepared.teacher.model.n_layers),
        initialisation=f"initialised from: {settings.initialise} ({settings.initialise_map})",
    )


def _one_step(prepared: Prepared) -> float:
    device = prepared.monitor.device
    for module in prepared.modules.values():
        module.to(device)
    started = time.perf_counter()
    batch = prepared.batches(0)
    moved = {key: {name: t.to(device) for name, t in tensors.items()} for key, tensors in batch.items()}
    prepared.step(moved).total.backward()
    elapsed = time.perf_counter() - started
    for module in prepared.modules.values():
        module.zero_grad(set_to_none=True)
    return elapsed


def _peak_gigabytes() -> float:
    """The most memory that this process has held."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
