"""What a study is made of: steps, the document's tables and figures, and its findings. Nothing runs here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from residuum.storage.results import Run
from residuum.studies.verdicts import Measured, Rule

if TYPE_CHECKING:
    from residuum.studies.kits import Kit

Work = Callable[["Kit"], Run | None]


@dataclass(frozen=True)
class Load:
    """What a step asks of a model of so many parameters, in sentences: read, trained on, and read for probes."""

    read: float = 0.0
    trained: float = 0.0
    probed: float = 0.0


@dataclass(frozen=True, eq=False)
class Step:
    """One command with the document's settings, in a folder of its own.

    `work` calls the command, which returns at once where the folder holds that very run; None where it wrote a store.
    """

    kind: str
    title: str
    work: Work
    load: Load = Load()
    model: str = ""
    task: str = ""
    unit: str = ""  # of the task: word or sentence
    variant: str = ""

    @property
    def name(self) -> str:
        """The step's folder."""
        return step_name(self.kind, self.model, self.task, self.variant)


def step_name(kind: str, model: str = "", task: str = "", variant: str = "") -> str:
    """The folder of a step, by which later steps find it."""
    return "-".join(re.sub(r"[^\w.+-]+", "-", part) for part in (kind, model, task, variant) if part)


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of the document, and which steps' table holds ours."""

    label: str
    title: str
    kind: str  # of the steps
    table: str


@dataclass(frozen=True, eq=False)
class Results:
    """The steps of a study with what they gave, in order."""

    steps: tuple[Step, ...]
    runs: Mapping[str, Run]
    families: Mapping[str, str] = field(default_factory=dict)  # of the models: their architectures

    def of(self, kind: str, **facts: str) -> list[tuple[Step, Run]]:
        """The steps of a kind whose model, task, unit or variant is the given one."""
        return [
            (step, self.runs[step.name])
            for step in self.steps
            if step.kind == kind
            and step.name in self.runs
            and all(getattr(step, key) == value for key, value in facts.items())
        ]


@dataclass(frozen=True, eq=False)
class Claim:
    """A finding of the document, the number of ours that speaks to it, and when that number agrees.

    `measure` gives None, or a sentence that says why, where the models or the data cannot tell.
    """

    where: str
    finding: str
    measure: Callable[[Results], Measured | str | None]
    rule: Rule


@dataclass(frozen=True)
class Data:
    """What the document learnt a task from, told from other data of that name by how many examples it has."""

    name: str
    learnt: int  # in training, what is set aside of it for development among them
    tested: int

    def is_of(self, run: Run) -> bool:
        """Whether a run learnt from and was tested on as many."""
        examples = {**run.config.get("examples", {}), **run.summary.get("examples", {})}
        found = {part: examples.get(part, 0) for part in ("train", "dev", "test")}
        return (found["train"] + found["dev"], found["test"]) == (self.learnt, self.tested)


GLUE = {
    "sst2": Data("SST-2", 67_349, 872),
    "mrpc": Data("MRPC", 3_668, 408),
    "rte": Data("RTE", 2_490, 277),
    "stsb": Data("STS-B", 5_749, 1_500),
}
"""The documents test on GLUE's development parts, whose labels are known."""


@dataclass(frozen=True, eq=False)
class Printed:
    """A number that the document prints; ours, of the step whose facts are `step`, is of the same thing only for that
    model on that data.

    `tolerance` is how far they may lie apart.
    """

    where: str
    what: str
    value: float
    model: str
    data: Data
    step: Mapping[str, str]  # kind, task, variant
    number: Callable[[Run], float]
    tolerance: float = 0.02


@dataclass(frozen=True, eq=False)
class Document:
    """A study: what it runs, what it shows in the document's order, and what it looks for."""

    name: str
    title: str
    source: str
    steps: Callable[[Kit], tuple[Step, ...]]
    exhibits: tuple[Exhibit, ...]
    claims: tuple[Claim, ...]
    models: Mapping[str, float]  # of the document, by hub name: parameters of their blocks
    printed: tuple[Printed, ...] = ()
    needs: tuple[str, ...] = field(default=())  # folders of --data
