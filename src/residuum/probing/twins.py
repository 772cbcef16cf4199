"""The random twin of what is probed: the same architecture with random weights, and what it knows all the same."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residuum.activations.store import ActivationStore
from residuum.errors import SettingError
from residuum.probing.examples import Splits, labelled_splits, opened

if TYPE_CHECKING:
    from residuum.models.loading import Model

Twin = bool | ActivationStore | Mapping[str, ActivationStore] | None
"""Whether there shall be one (None: where the source is a model that can have one), or its stores."""


def twin_splits(
    splits: Splits, source: Any, data: Any, task: Any, wanted: Twin, folder: Path, reading: Mapping[str, Any]
) -> tuple[Splits, Splits | None]:
    """The examples of `source`, and the same as its twin sees them.

    The first are as they were given, with a note where the twin was left out for want of a model. The twin's
    activations are kept beside those of the model, which are in `folder`.
    """
    if wanted is False:
        return splits, None
    if wanted is None and (why := why_no_twin(source)):
        return replace(splits, notes=(*splits.notes, f"there is no random twin to compare with: {why}")), None
    if wanted is None or wanted is True:
        model = random_twin(source, seed=reading.get("seed", 0), device=reading.get("device", "auto"))
        twin = labelled_splits(model, data, task, activations=twin_folder(folder), **reading)
    else:
        twin = labelled_splits(wanted, data, task, **reading)
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
    found = opened(source)
    if isinstance(found, ActivationStore | Mapping):
        return "activations were given, and these have no model"
    if isinstance(found, str):
        return None
    if found.random_init:
        return f"the weights of {found.name} are random themselves"
    if found.origin is None or found.surgery:
        return f"{found.name} is not as it was loaded, so it cannot be built again"
    return None


def twin_folder(folder: Path) -> Path:
    """Where the twin's activations are kept: beside those of the model."""
    return folder.with_name(f"{folder.name}-random")
