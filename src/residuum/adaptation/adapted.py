"""Folders that `adapt` writes, one per strategy: saved, loaded, and scored on other data by `evaluate adapted`.

A folder holds a whole model where all of it learnt, otherwise only what changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from residuum.adaptation.changes import CHANGE_FILE, Applied, Change, read_change, save_change
from residuum.adaptation.corpora import read_part, transfer_task
from residuum.adaptation.settings import AdaptedSettings
from residuum.adaptation.strategies import Strategy
from residuum.adaptation.students import AdaptationModel
from residuum.corpus import Corpus
from residuum.errors import SettingError, StoreError
from residuum.models.loading import check_weights
from residuum.models.surgery import files_fingerprint, save_whole
from residuum.settings import command, plain_path
from residuum.storage.files import read_json, write_json
from residuum.storage.results import Result, Run, finished_run, write_run
from residuum.storage.schemas import conforming
from residuum.training.encoding import Problem
from residuum.training.networks import load_with_head

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

COMMAND = "evaluate adapted"
RECORD = "adaptation.json"
VERSION = 1


@dataclass(frozen=True, eq=False)
class AdaptedScores(Result):
    """Scores of a student that has learnt a task, on a file."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """One row per metric of the task: metric and value."""
        return self.run.tables["scores"]

    def text(self) -> str:
        """One line per metric."""
        lines = [f"{row['metric']}: {row['value']:.4f}" for row in self.frame.to_dict("records")]
        return "\n".join([*lines, f"examples: {self.run.summary['examples']:,}"])


@command(AdaptedSettings)
def evaluate_adapted(settings: AdaptedSettings) -> AdaptedScores:
    """Score a folder that `adapt` wrote on a file or corpus of its task.

    `student` is the one to put the change into, where the folder serves several.
    """
    import pandas as pd

    adapted = load_adapted(settings.folder, settings.student, device=settings.device, max_memory=settings.max_memory)
    corpus = settings.data
    if not isinstance(corpus, Corpus):
        corpus = read_part(adapted.problem.task, settings.data, limit=settings.limit)
    config = {
        "folder": str(settings.folder),
        "files": files_fingerprint(settings.folder),
        "student": adapted.student.identity,
        "data": f"{corpus.name} {corpus.fingerprint}",
    }
    if settings.out is not None and (run := finished_run(settings.out, COMMAND, config, fresh=settings.fresh)):
        return AdaptedScores(run)
    scores = adapted.student.scores(adapted.network, corpus)
    part = adapted.student.encoded(corpus)
    table = pd.DataFrame({"metric": list(scores), "value": list(scores.values())})
    summary = {"task": adapted.problem.task.name, **scores, "examples": len(part), "cut short": part.n_cut}
    run = Run(COMMAND, config, summary, {"scores": table})
    if settings.out is not None:
        write_run(settings.out, run)
    return AdaptedScores(run)


@dataclass(frozen=True, eq=False)
class Adapted:
    """A student that has learnt a task: the network with the change in it, ready to answer."""

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    problem: Problem
    student: AdaptationModel
    applied: Applied | None  # None where the whole network learnt

    def remove(self) -> PreTrainedModel:
        """The student as it was before it learnt, bit for bit, with an untrained head."""
        if self.applied is None:
            raise SettingError("All of this network learnt the task; load the student that it was made from instead.")
        self.applied.remove()
        return self.network


def load_adapted(
    folder: str | Path, student: str | Path | None = None, *, device: str = "auto", max_memory: int | None = None
) -> Adapted:
    """Load a folder that `adapt` wrote: its model, or the student with the change put in.

    `student` is needed only where the folder serves several languages, or where the student has moved.
    """
    folder = plain_path("folder", folder)
    record = read_record(folder)
    problem = Problem(transfer_task(record.task), record.kind, tuple(record.classes))
    whole = not (folder / CHANGE_FILE).exists()
    paths = {str(folder)} if whole else {str(student)} if student is not None else set(record.targets.values())
    if len(paths) != 1:
        named = ", ".join(f"{language}: {path}" for language, path in record.targets.items())
        raise SettingError(f"{folder} serves several students ({named}); name the one to put it into.")
    path = paths.pop()
    check_weights([path], max_memory)
    model = AdaptationModel(path, problem, None if whole else record.keep_layers, record.max_length, device)
    network = model.network(seed=0)
    applied = None if whole else Applied(network, read_change(folder))
    return Adapted(network.eval(), model.tokenizer, problem, model, applied)


def save_adapted(
    folder: Path,
    strategy: Strategy,
    student: AdaptationModel,
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


def write_record(folder: Path, strategy: str, student: AdaptationModel, targets: Mapping[str, str]) -> None:
    """Write the strategy and the task of a folder, which `load_adapted` needs."""
    problem = student.problem
    record = {
        "version": VERSION,
        "strategy": strategy,
        "task": problem.task.name,
        "kind": problem.kind,
        "classes": list(problem.classes),
        "targets": dict(targets),
        "keep_layers": student.keep_layers,
        "max_length": student.max_length,
    }
    write_json(folder / RECORD, record)


def is_saved(folder: Path) -> bool:
    """Whether a folder holds what a strategy learnt."""
    return (folder / RECORD).exists() and ((folder / CHANGE_FILE).exists() or (folder / "model.safetensors").exists())


def saved_change(folder: Path, problem: Problem) -> Change:
    """What a strategy learnt; of a whole model that is the value of every parameter."""
    if (folder / CHANGE_FILE).exists():
        return read_change(folder)
    network, _ = load_with_head(folder, problem)
    return Change(values={name: parameter.detach() for name, parameter in network.named_parameters()})


@dataclass(frozen=True)
class AdaptedRecord:
    """What `adaptation.json` holds."""

    version: int
    strategy: str
    task: str
    kind: Literal["classification", "regression", "tagging", "choice"]
    classes: list[str]
    targets: dict[str, str]
    keep_layers: str | None
    max_length: int | None


def read_record(folder: Path) -> AdaptedRecord:
    """The strategy and the task of a folder, checked."""
    if not (folder / RECORD).exists():
        raise StoreError(f"{folder} holds no {RECORD}; give the folder of a strategy that `residuum adapt` wrote.")
    record = read_json(folder / RECORD)
    if (version := record.get("version") if isinstance(record, dict) else None) != VERSION:
        problem = f"{folder / RECORD} has format version {str(version)[:20]}"
        raise StoreError(f"{problem}; this residuum reads version {VERSION}. Run `residuum adapt` again.")
    return conforming(record, AdaptedRecord, folder / RECORD, StoreError, "Run `residuum adapt` again.")
