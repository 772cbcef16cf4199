"""The first stage: a strategy learns the task from the source language, and what it changed is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residuum.adaptation.corpora import TransferCorpora
from residuum.adaptation.folders import is_saved, save_adapted
from residuum.adaptation.recipes import Plan, plan
from residuum.adaptation.settings import AdaptationSettings
from residuum.adaptation.strategies import Strategy
from residuum.adaptation.students import Student, logits_of
from residuum.adaptation.teaching import TASK_WEIGHT, Answers, taught_collator, taught_losses
from residuum.errors import ModelError
from residuum.models.surgery import layer_count
from residuum.storage.results import Run, finished_run, write_run
from residuum.training import Training, discard_checkpoints, load_checkpoint
from residuum.training.learning import Lesson, learn

if TYPE_CHECKING:
    import pandas as pd

COMMAND = "adapt training"


@dataclass(frozen=True, eq=False)
class Work:
    """All that the trainings of one run have in common."""

    corpora: TransferCorpora
    settings: AdaptationSettings
    config: dict[str, Any]  # what the results of all of them depend on
    answers: Answers | None = None  # the teacher's, for task distillation
    device: str = "auto"
    fresh: bool = False
    progress: bool = True
    say: Callable[[str], None] | None = None


def learn_zero_shot(
    work: Work, strategy: Strategy, students: Sequence[Student], targets: Mapping[str, str], out: Path, seed: int
) -> Run:
    """Train a strategy with the students that read for it, from one seed, and write what it learnt into a folder.

    `targets` are the students, by language, that it will be put into.
    """
    config = {**work.config, "strategy": strategy.name, "students": [s.identity for s in students], "seed": seed}
    if (run := finished_run(out, COMMAND, config, fresh=work.fresh)) and is_saved(out):
        discard_checkpoints(out)  # a kill may have come before
        return run
    lesson = source_lesson(work, students)
    networks = [student.network(seed) for student in students]
    recipe = plan(strategy, networks, reduction=work.settings.reduction, seed=seed)
    training = _train(work, strategy, recipe, lesson, out, config, seed)
    load_checkpoint(out, recipe.modules, best=work.settings.checkpoint == "best")
    own = students[-1].scores(networks[-1], work.corpora.dev)
    change = recipe.change()
    save_adapted(out, strategy, students[-1], networks[-1], change, targets)
    metric = students[-1].problem.metrics[0]
    summary = {
        "layers": layer_count(networks[-1]),
        "parameters": sum(p.numel() for p in networks[-1].parameters()),
        "parameters trained": recipe.n_trained,
        "parameters saved": change.n_parameters,
        "metric": metric,
        "source dev": own[metric],
        "steps": training.steps,
        "best step": training.best_step,
        "seconds": round(training.progress.seconds, 3),
    }
    run = Run(COMMAND, config, summary, _tables(training))
    write_run(out, run)
    discard_checkpoints(out)
    return run


def source_lesson(work: Work, students: Sequence[Student]) -> Lesson:
    """The source language's parts as the students read them, which must all read the same tokens."""
    first, corpora = students[0], work.corpora
    train, dev = first.encoded(corpora.train), first.encoded(corpora.dev)
    for other in students[1:]:
        if other.encoded(corpora.train).examples != train.examples:
            raise ModelError(
                f"{first.path} and {other.path} split text into different tokens, so that no batch can go through "
                "both; choose a strategy of one student, or distil with one vocabulary for both."
            )
    collate = first.collator if work.answers is None else taught_collator(first.collator, first.problem, work.answers)
    return Lesson(first.problem, train, dev, collate, first.collator)


def _train(
    work: Work, strategy: Strategy, recipe: Plan, lesson: Lesson, out: Path, config: dict[str, Any], seed: int
) -> Training:
    readers = [logits_of(network) for network in recipe.readers]
    return learn(
        recipe.modules,
        readers,
        lesson,
        work.settings.zero_shot(strategy, lesson.problem.task.name),
        out,
        scored=readers[-1],
        extra=None if work.answers is None else taught_losses,
        task_weight=1.0 if work.answers is None else TASK_WEIGHT,
        config={"adaptation": config},
        seed=seed,
        device=work.device,
        fresh=work.fresh,
        progress=work.progress,
        say=work.say,
    )


def _tables(training: Training) -> dict[str, pd.DataFrame]:
    curves = training.scores.melt(id_vars="step", var_name="metric", value_name="value")
    return {"curves": curves, "history": training.history}
