"""The folder of a strategy: a whole model where all of it learnt, else only what changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from residuum.adaptation.changes import FILE, Applied, Change, read_change, save_change
from residuum.adaptation.files import transfer_task
from residuum.adaptation.strategies import Strategy
from residuum.adaptation.students import Student
from residuum.errors import SettingError, StoreError
from residuum.models.surgery import save_whole
from residuum.storage.files import read_json, write_json
from residuum.storage.schemas import conforming
from residuum.training.heads import load_with_head
from residuum.training.problems import Problem

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

RECORD = "adaptation.json"
VERSION = 1


@dataclass(frozen=True, eq=False)
class Adapted:
    """A student that has learnt a task: the network with what was learnt in it, ready to answer."""

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    problem: Problem
    student: Student
    applied: Applied | None  # None where the whole network learnt

    def remove(self) -> PreTrainedModel:
        """The student as it was before it learnt, to the last bit; its head is one that was never trained."""
        if self.applied is None:
            raise SettingError("All of this network learnt the task; load the student that it was made from instead.")
        self.applied.remove()
        return self.network


def save_adapted(
    folder: Path,
    strategy: Strategy,
    student: Student,
    network: PreTrainedModel,
    change: Change,
    targets: Mapping[str, str],
) -> None:
    """Write what a strategy learnt; `targets` are the students, by language, that it is meant for."""
    if strategy.family == "full":
        save_whole(network, student.tokenizer, folder)
    else:
        save_change(folder, change)
    write_record(folder, strategy.name, student, targets)


def write_record(folder: Path, strategy: str, student: Student, targets: Mapping[str, str]) -> None:
    """Say beside what was learnt which strategy and task it is of, so that `load_adapted` can read it."""
    problem = student.problem
    record = {
        "version": VERSION,
        "strategy": strategy,
        "task": problem.task.name,
        "kind": problem.kind,
        "classes": list(problem.classes),
        "targets": dict(targets),
        "keep": student.keep,
        "max_length": student.max_length,
    }
    write_json(folder / RECORD, record)


def is_saved(folder: Path) -> bool:
    """Whether a folder holds what a strategy learnt."""
    return (folder / RECORD).exists() and ((folder / FILE).exists() or (folder / "model.safetensors").exists())


def saved_change(folder: Path, problem: Problem) -> Change:
    """What a strategy learnt; of a whole model that is the value of every parameter."""
    if (folder / FILE).exists():
        return read_change(folder)
    network, _ = load_with_head(folder, problem)
    return Change(values={name: parameter.detach() for name, parameter in network.named_parameters()})


def load_adapted(folder: str | Path, student: str | Path | None = None, *, device: str = "auto") -> Adapted:
    """Load a folder that `adapt` wrote: its model, or the student with what was learnt put in.

    `student` is needed only where the folder serves several languages, or where the student has moved.
    """
    folder = Path(folder)
    record = read_record(folder)
    problem = Problem(transfer_task(record.task), record.kind, tuple(record.classes))
    whole = not (folder / FILE).exists()
    path = str(folder) if whole else str(student or _only_target(folder, record.targets))
    own = Student(path, problem, None if whole else record.keep, record.max_length, device)
    network = own.network(seed=0)
    applied = None if whole else Applied(network, read_change(folder))
    return Adapted(network.eval(), own.tokenizer, problem, own, applied)


@dataclass(frozen=True)
class Record:
    """What `adaptation.json` holds."""

    version: int
    strategy: str
    task: str
    kind: Literal["classification", "regression", "tagging", "choice"]
    classes: list[str]
    targets: dict[str, str]
    keep: str | None
    max_length: int | None


def read_record(folder: Path) -> Record:
    """What a folder says of the strategy and the task that it is of, checked."""
    if not (folder / RECORD).exists():
        raise StoreError(f"{folder} holds no {RECORD}; give the folder of a strategy that `residuum adapt` wrote.")
    record = read_json(folder / RECORD)
    if (version := record.get("version") if isinstance(record, dict) else None) != VERSION:
        found = f"{folder / RECORD} has format version {str(version)[:20]}"
        raise StoreError(f"{found}; this residuum reads version {VERSION}. Run `residuum adapt` again.")
    return conforming(record, Record, folder / RECORD, StoreError, "Run `residuum adapt` again.")


def _only_target(folder: Path, targets: Mapping[str, str]) -> str:
    paths = set(targets.values())
    if len(paths) != 1:
        named = ", ".join(f"{language}: {path}" for language, path in targets.items())
        raise SettingError(f"{folder} serves several students ({named}); name the one to put it into.")
    return paths.pop()
