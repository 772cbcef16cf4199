"""What a fine-tuning will take, by a few steps of the real network on a sample of the real examples."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residuum.corpus.tasks import Task, TaskCorpora, named_task
from residuum.costs import Cost, Step, timed
from residuum.training.encoding import Part
from residuum.training.finetuning import chosen_seeds, task_corpora
from residuum.training.finetuning_seeds import Pupil, Recipe, encoded_parts, load_pupil, make_lesson
from residuum.training.frozen_states import cache_bytes
from residuum.training.learning import LearningSettings, Lesson
from residuum.training.learning_costs import Sizes, answering_seconds, learning_step, sampled_answers, sampled_training
from residuum.training.problems import problem_of
from residuum.training.processes import evaluating

if TYPE_CHECKING:
    from residuum.corpus import Corpus

FROZEN = "frozen layers"  # read once for all seeds


def finetune_cost(
    model: str | Path,
    task: str | Task,
    *,
    data: Corpus | TaskCorpora | str | Path | None = None,
    freeze: str | None = None,
    drop: str | None = None,
    seeds: int | Sequence[int] = 1,
    seed: int = 0,
    max_length: int | None = 128,
    settings: LearningSettings | None = None,
    cache: bool = True,
    cache_memory: int = 1 << 30,
    device: str = "auto",
    **reading: Any,
) -> Cost:
    """What `finetune` would take with the same settings; `reading` are `dev`, `test`, `format` and `limit`."""
    task, chosen = named_task(task), chosen_seeds(seeds, seed)
    corpora = task_corpora(task, data, seed=seed, **reading)
    recipe = Recipe(str(model), task, freeze, drop, max_length, settings or LearningSettings(), cache, cache_memory)
    few = _sampled(corpora, recipe.settings.batch_size)
    pupil = load_pupil(recipe, problem_of(task, corpora.train), chosen[0], device)
    parts = encoded_parts(recipe, few, pupil)
    read = {name: len(corpus) for name, corpus in few.items()}
    whole = {name: round(len(parts[name]) * len(corpus) / read[name]) for name, corpus in corpora.items()}
    with tempfile.TemporaryDirectory(prefix="residuum-") as folder:
        steps = _steps(recipe, pupil, parts, whole, Path(folder), chosen[0], device)
    what = f"{Path(model).name}, {task.name}: {whole['train']:,} examples × {recipe.settings.epochs:g} epochs"
    return Cost(what, tuple(step if step.name == FROZEN else step.times(len(chosen)) for step in steps))


def _sampled(corpora: TaskCorpora, batch_size: int) -> TaskCorpora:
    train = sampled_training(corpora.train, batch_size)
    return replace(corpora, train=train, dev=sampled_answers(corpora.dev), test=sampled_answers(corpora.test))


def _steps(
    recipe: Recipe, pupil: Pupil, parts: dict[str, Part], whole: dict[str, int], folder: Path, seed: int, device: str
) -> list[Step]:
    """The states of the frozen bottom, where there is one; the steps with their evaluations; the scores at the end."""
    lessons: list[Lesson] = []
    reading = timed(lambda: lessons.append(make_lesson(recipe, pupil, parts, folder)))
    (lesson,) = lessons
    states = _states(recipe, pupil, parts, whole, reading)
    training = learning_step(
        "training",
        {"model": pupil.network},
        [pupil.logits],
        lesson,
        recipe.settings,
        Sizes(whole["train"], whole["dev"]),
        seed=seed,
        device=device,
    )
    place = next(pupil.network.parameters()).device
    with evaluating([pupil.network]):
        plain = replace(lesson.collate_dev, cache=None)
        answer = answering_seconds(pupil.logits, parts["test"], plain, place)
    weights = sum(p.numel() * p.element_size() for p in pupil.network.parameters())
    scores = Step("scores", answer * (whole["dev"] + whole["test"]), memory=weights, disk=weights)
    held = sum(step.memory for step in states)
    return [*states, replace(training, memory=training.memory + held), scores]


def _states(recipe: Recipe, pupil: Pupil, parts: dict[str, Part], whole: dict[str, int], seconds: float) -> list[Step]:
    """The outputs of the frozen bottom for what is read again and again: in memory if they may be, else on disk."""
    if pupil.split is None:
        return []
    width, read = pupil.network.config.hidden_size, ("train", "dev")
    size = round(sum(cache_bytes(parts[name], width) * whole[name] / len(parts[name]) for name in read))
    share = sum(whole[name] for name in read) / sum(len(parts[name]) for name in read)
    fits = size <= recipe.cache_memory
    return [Step(FROZEN, seconds * share, memory=size if fits else 0, disk=0 if fits else size)]
