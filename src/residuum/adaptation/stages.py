"""The two stages of an adaptation: a strategy learns from the source language, then few target examples tune it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from residuum.adaptation.adapted import is_saved, save_adapted
from residuum.adaptation.changes import Applied, Change, applied
from residuum.adaptation.corpora import TargetParts, TransferCorpora
from residuum.adaptation.settings import AdaptSettings
from residuum.adaptation.strategies import Strategy, StrategyPlan, learn_only, learn_over_frozen, strategy_plan
from residuum.adaptation.students import (
    TASK_WEIGHT,
    AdaptationModel,
    TaughtCollator,
    TeacherAnswers,
    logits_of,
    taught_losses,
)
from residuum.corpus import Corpus
from residuum.errors import ModelError
from residuum.models.surgery import layer_count
from residuum.storage.results import Run, finished_run, read_run, write_run
from residuum.training.checkpoints import discard_checkpoints, load_checkpoint
from residuum.training.learning import TrainingData, learn
from residuum.training.loop import TrainingResult
from residuum.training.processes import is_main_process, process_count, wait_for_others
from residuum.training.settings import LearningSettings

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel

TRAINING, TARGET = "adapt training", "adapt target"
EPOCHS = {"xnli": 10.0}  # of the thesis; 20 for NER and SIQA
OTHER_EPOCHS = 20.0
LARGE_RATE, SMALL_RATE = 1e-4, 2e-5
ONLY_AT_THE_END = 1 << 40  # a number of steps that no training has


@dataclass(frozen=True, eq=False)
class AdaptationContext:
    """What all trainings of a run have in common."""

    corpora: TransferCorpora
    settings: AdaptSettings
    config: dict[str, Any]  # the settings and data that decide the results of all of them
    answers: TeacherAnswers | None = None  # for task distillation


def learn_zero_shot(
    context: AdaptationContext,
    strategy: Strategy,
    students: Sequence[AdaptationModel],
    targets: Mapping[str, str],
    out: Path,
    seed: int,
) -> Run:
    """Train a strategy with the students that read for it, from one seed, and write what it learnt into a folder.

    `targets` are the students, by language, that it will be put into. Of several processes the main one writes.
    """
    settings, corpora, answering = context.settings, context.corpora, students[-1]
    config = {**context.config, "strategy": strategy.name, "students": [s.identity for s in students], "seed": seed}
    run = finished_run(out, TRAINING, config, fresh=settings.fresh)
    done = run is not None and is_saved(out)
    wait_for_others(settings.device)  # none writes before all have looked
    if run is not None and done:
        if is_main_process():
            discard_checkpoints(out)  # left by a kill
        return run
    data = _source_data(context, students)
    networks = [student.network(seed) for student in students]
    plan = strategy_plan(strategy, networks, reduction=settings.reduction, rank=settings.rank, seed=seed)
    readers = [logits_of(network) for network in plan.readers]
    training = learn(
        plan.modules,
        readers,
        data,
        zero_shot_learning(settings, strategy, data.problem.task.name),
        out,
        scored=readers[-1],
        extra=None if context.answers is None else taught_losses,
        task_weight=1.0 if context.answers is None else TASK_WEIGHT,
        config={"adaptation": config},
        seed=seed,
        device=settings.device,
        fresh=settings.fresh,
        progress=settings.progress,
    )
    if is_main_process():
        load_checkpoint(out, plan.modules, best=settings.checkpoint == "best")
        change = plan.change()
        save_adapted(out, strategy, answering, networks[-1], change, targets)
        summary = {
            **_training_summary(plan, networks[-1], change, training),
            "metric": answering.problem.metrics[0],
            "source dev": answering.scores(networks[-1], corpora.dev)[answering.problem.metrics[0]],
        }
        curves = training.scores.melt(id_vars="step", var_name="metric", value_name="value")
        write_run(out, Run(TRAINING, config, summary, {"curves": curves, "history": training.history}))
        discard_checkpoints(out)
    wait_for_others(settings.device)
    return read_run(out)


def _training_summary(
    plan: StrategyPlan, network: PreTrainedModel, change: Change, training: TrainingResult
) -> dict[str, Any]:
    return {
        "layers": layer_count(network),
        "parameters": sum(p.numel() for p in network.parameters()),
        "parameters trained": plan.n_trained,
        "parameters saved": change.n_parameters,
        "steps": training.steps,
        "best step": training.best_step,
        "seconds": round(training.progress.seconds, 3),
    }


def _source_data(context: AdaptationContext, students: Sequence[AdaptationModel]) -> TrainingData:
    """The source language's parts as the students read them; all must read the same tokens."""
    first, corpora = students[0], context.corpora
    train, dev = first.encoded(corpora.train), first.encoded(corpora.dev)
    for other in students[1:]:
        if other.encoded(corpora.train).examples != train.examples:
            raise ModelError(
                f"{first.path} and {other.path} split text into different tokens, so that no batch can go through "
                "both; choose a strategy of one student, or distil with one vocabulary for both."
            )
    collate = first.collator
    if context.answers is not None:
        collate = TaughtCollator.of(collate, first.problem, context.answers)
    return TrainingData(first.problem, train, dev, collate, first.collator)


def zero_shot_learning(settings: AdaptSettings, strategy: Strategy, task: str) -> LearningSettings:
    """How a strategy learns a task from the source language.

    The thesis takes a larger learning rate for the parameter-efficient strategies, including sparse-delta.
    """
    rate = SMALL_RATE if strategy.family == "full" else LARGE_RATE
    epochs = EPOCHS.get(task, OTHER_EPOCHS) if settings.epochs is None else settings.epochs
    rate = rate if settings.learning_rate is None else settings.learning_rate
    return _learning(settings, epochs=epochs, batch_size=settings.batch_size, learning_rate=rate)


def few_shot_learning(settings: AdaptSettings, k: int) -> LearningSettings:
    """How the target student learns from k examples, none of them twice in a step; the last weights are kept."""
    return _learning(
        settings,
        epochs=settings.few_shot_epochs,
        batch_size=min(settings.few_shot_batch_size, max(1, k // process_count())),
        learning_rate=settings.few_shot_learning_rate,
        evaluate_every=ONLY_AT_THE_END,
    )


def _learning(settings: AdaptSettings, **options: Any) -> LearningSettings:
    shared = ("warmup", "weight_decay", "clip", "accumulation", "by_length", "precision")
    return LearningSettings(**{name: getattr(settings, name) for name in shared}, **options)


@dataclass(frozen=True, eq=False)
class TransferTarget:
    """The student that answers in a language, the parts of that language, and what was learnt from the source language.

    It is the target student, except in `full-source`, where only the source student has learnt the task.
    """

    language: str
    strategy: Strategy
    student: AdaptationModel
    parts: TargetParts
    change: Change
    config: dict[str, Any]  # what decides the change


def score_target(context: AdaptationContext, target: TransferTarget, out: Path, seed: int) -> pd.DataFrame:
    """Score the student with the change in it (k = 0), and after tuning on k examples of each draw.

    The student starts anew for each k and draw. The columns are k, draw, part, metric and value.
    """
    import pandas as pd

    network = target.student.network(seed)
    tables = [_score_draw(context, target, network, out / "zero-shot", seed, 0, 0)]
    for k in context.settings.few_shot:
        for draw in range(context.settings.draws):
            tables.append(_score_draw(context, target, network, out / f"k-{k}" / f"draw-{draw}", seed, k, draw))
    return pd.concat(tables, ignore_index=True)


def drawn_examples(pool: Corpus, k: int, seed: int, draw: int) -> Corpus:
    """k examples of a pool; those of a smaller k are among those of a larger one."""
    order = np.random.default_rng((seed, draw)).permutation(len(pool))
    return pool.select(order[:k].tolist())


def _score_draw(
    context: AdaptationContext,
    target: TransferTarget,
    network: PreTrainedModel,
    out: Path,
    seed: int,
    k: int,
    draw: int,
) -> pd.DataFrame:
    """The scores after k examples, from the folder if it has them."""
    import pandas as pd

    student, save = target.student, bool(k) and context.settings.save_few_shot
    config = {**target.config, "answering": student.identity, "k": k, "draw": draw, "seed": seed}
    run = finished_run(out, TARGET, config, fresh=context.settings.fresh)
    done = run is not None and (not save or is_saved(out))
    wait_for_others(context.settings.device)  # none writes before all have looked
    if run is not None and done:
        if is_main_process():
            discard_checkpoints(out)  # left by a kill
        return run.tables["scores"]
    parts = target.parts.scored
    with applied(network, target.change) as change_in:
        if k:
            examples = drawn_examples(target.parts.pool, k, seed, draw)
            _tune(context, target, change_in, examples, out, config, seed + draw)
            parts = {"test": target.parts.test} if target.parts.pool_is_dev else parts
        if is_main_process():
            if save:
                served = {target.language: student.path}
                save_adapted(out, target.strategy, student, network, change_in.current(), served)
            rows = [
                {"k": k, "draw": draw, "part": part, "metric": metric, "value": value}
                for part, corpus in parts.items()
                for metric, value in student.scores(network, corpus).items()
            ]
            write_run(out, Run(TARGET, config, tables={"scores": pd.DataFrame(rows)}))
            discard_checkpoints(out)
    wait_for_others(context.settings.device)
    return read_run(out).tables["scores"]


def _tune(
    context: AdaptationContext,
    target: TransferTarget,
    change_in: Applied,
    examples: Corpus,
    out: Path,
    config: dict[str, Any],
    seed: int,
) -> None:
    """Train what the strategy changed, and only that, on a few examples."""
    if target.strategy.family == "freeze":
        learn_over_frozen(change_in.network, change_in.layers)
    else:
        learn_only(change_in.network, change_in.changed)
    student, settings = target.student, context.settings
    part = student.encoded(examples)
    learn(
        change_in.modules,
        [logits_of(change_in.network)],
        TrainingData(student.problem, part, part, student.collator, student.collator),
        few_shot_learning(settings, len(examples)),
        out,
        config={"adaptation": config, "examples": examples.fingerprint},
        seed=seed,
        device=settings.device,
        fresh=settings.fresh,
        progress=settings.progress,
    )
