"""What a score must beat: answers that need no activations, and the same architecture with random weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from residuum.activations.store import ActivationStore
from residuum.engine import Workers
from residuum.errors import SettingError
from residuum.maths.probe_scores import (
    bag_of_words_answers,
    bag_of_words_numbers,
    majority_answers,
    word_majority_answers,
)
from residuum.probing.examples import Splits, labelled_splits, opened
from residuum.probing.probe_data import TASK, ProbeData

if TYPE_CHECKING:
    from residuum.models.loading import Model

READING = ("dev", "test", "limit", "max_loss", "device", "max_memory", "fresh", "progress")
"""The settings with which a task's data is read."""


def baselines(data: ProbeData, part: str = "test") -> dict[str, float]:
    """The task's metric without any activation: the most frequent label; for words, each word's most frequent label;
    for sentences, a linear model of which words they contain.
    """
    train, held_out, truth = data.splits.train, data.examples(part), data.truth(part)
    if isinstance(train.labels, np.ndarray):
        if data.splits.task.unit == "word":
            return {}
        return {"bag of words": truth.sums(bag_of_words_numbers(train.bags, train.labels, held_out.bags)).value}
    answers = {"majority": majority_answers(train.labels, len(held_out))}
    if data.splits.task.unit == "word":
        answers["word majority"] = word_majority_answers(train.words, train.labels, held_out.words)
    else:
        answers["bag of words"] = bag_of_words_answers(train.bags, train.labels, held_out.bags)
    return {name: truth.sums(data.targets[TASK].encode(labels)).value for name, labels in answers.items()}


def read_task_data(settings: Any, folder: Path, engine: Workers) -> tuple[Splits, Splits | None]:
    """The examples of a command's settings (`TaskReading` and `Execution`), and the same as the random twin sees them.

    The twin's activations are kept beside those of the model, which are in `folder`. Where a twin was not asked for
    but would be shown, the examples have a note that says why there is none.
    """
    options = {name: getattr(settings, name) for name in READING}
    options |= {"workers": engine, "seed": settings.seed, "layers": settings.layers, "table": settings.table}
    model, data, task = settings.model, settings.data, settings.task or "labels"
    splits = labelled_splits(model, data, task, activations=folder, **options)
    if settings.twin_stores is not None:
        twin = labelled_splits(settings.twin_stores, data, task, **options)
    elif settings.random_twin is False:
        return splits, None
    elif settings.random_twin is None and (why := why_no_twin(model)):
        return replace(splits, notes=(*splits.notes, f"there is no random twin to compare with: {why}")), None
    else:
        twin_model = random_twin(model, seed=settings.seed, device=settings.device)
        twin = labelled_splits(twin_model, data, task, activations=twin_folder(folder), **options)
    if twin.layout != splits.layout:
        raise SettingError("The random twin has other layers than the model; extract the same of both.")
    return splits, twin


def twin_identity(twin: Splits | None) -> str | None:
    """What tells a twin's activations from others, for a run's settings."""
    return None if twin is None else f"{twin.train.store.name} {twin.train.store.fingerprint}"


def random_twin(
    source: Model | ActivationStore | Mapping[str, ActivationStore] | str | os.PathLike[str],
    *,
    seed: int = 0,
    device: str = "auto",
) -> Model:
    """The twin of a model, or of the model of that name: fresh weights, drawn from the seed."""
    if why := why_no_twin(source):
        raise SettingError(
            f"There is no random twin: {why}. Give a model's folder or name, or the twin's stores, or leave it out."
        )
    from residuum.models.loading import Model, load_model

    if isinstance(source, Model):
        assert source.origin is not None, "asked before"
        twin = replace(source.origin, random_init=True, seed=seed).load()
        return replace(twin, name=f"{source.name} (random)")
    return load_model(str(source), random_init=True, seed=seed, device=device)


def why_no_twin(
    source: Model | ActivationStore | Mapping[str, ActivationStore] | str | os.PathLike[str],
) -> str | None:
    """Why a source can have no random twin; None where it can."""
    opened_source = opened(source)
    if isinstance(opened_source, ActivationStore | Mapping):
        return "activations were given, and these have no model"
    if isinstance(opened_source, str):
        return None
    if opened_source.random_init:
        return f"the weights of {opened_source.name} are random themselves"
    if opened_source.origin is None or opened_source.surgery:
        return f"{opened_source.name} is not as it was loaded, so it cannot be built again"
    return None


def twin_folder(folder: Path) -> Path:
    """Where the twin's activations are kept: beside those of the model."""
    return folder.with_name(f"{folder.name}-random")
