"""Checkpoints: folders of safetensors and JSON that are either complete or absent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from residuum.errors import OtherRunError, StoreError
from residuum.storage.files import (
    clear_disk_errors,
    read_json,
    remove_folder,
    remove_temporaries,
    whole_folder,
    write_json,
)
from residuum.storage.results import changed_settings, without_places
from residuum.storage.schemas import conforming
from residuum.storage.tensors import read_tensors, write_tensors
from residuum.training.optimisation import misplaced_state, optimiser_state, restore_optimiser

VERSION = 1
FOLDER = "checkpoints"
WEIGHTS, OPTIMISER, PROGRESS, IDENTITY = "weights.safetensors", "optimiser.safetensors", "progress.json", "run.json"
SCALER = "scaler.json"  # the loss scale of float16, without which small gradients vanish
_BEFORE = "Remove its folder to resume from the checkpoint before it."


@dataclass
class Progress:
    """How far a run is: everything in a checkpoint that is not a tensor."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    losses: list[dict[str, int | float]] = field(default_factory=list)  # rows of the history
    scores: list[dict[str, int | float]] = field(default_factory=list)  # rows of the evaluations
    pending: dict[str, list[float]] = field(default_factory=dict)  # averages that are not in a row yet
    best_step: int | None = None
    best_value: float | None = None
    waited: float = 0.0  # seconds of `seconds` in which the model waited for its next batch
    evaluations_since_best: int = 0

    def is_best(self, value: float, lower_is_better: bool) -> bool:
        """Whether a score beats all previous ones."""
        if self.best_value is None:
            return value == value
        return value < self.best_value if lower_is_better else value > self.best_value


def write_checkpoint(
    out: Path,
    modules: Mapping[str, nn.Module],
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    scaler: torch.amp.GradScaler | None = None,
    keep: int = 1,
) -> None:
    """Write the checkpoint of a step, then remove all but the last `keep` and the best."""
    target = out / FOLDER / _name(progress.step)
    with whole_folder(target) as temporary:
        write_tensors(temporary / WEIGHTS, shared_once(modules))
        write_tensors(temporary / OPTIMISER, optimiser_state(optimiser))
        if scaler is not None:
            write_json(temporary / SCALER, scaler.state_dict())
        write_json(temporary / PROGRESS, {"version": VERSION, **vars(progress)})
    folders = _checkpoints(out)
    kept = {folder.name for folder in folders[-keep:]}
    if progress.best_step is not None:
        kept.add(_name(progress.best_step))
    for folder in folders:
        if folder.name not in kept:
            remove_folder(folder)


def resume(
    out: Path,
    modules: Mapping[str, nn.Module],
    optimiser: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler | None = None,
) -> Progress:
    """Restore modules and optimiser from the last checkpoint; without one they stay as they are, at step 0."""
    folders = _checkpoints(out)
    if not folders:
        return Progress()
    progress = _read_progress(folders[-1])
    _load_weights(folders[-1], modules)
    state = read_tensors(folders[-1] / OPTIMISER, "pt", remedy=_BEFORE)
    if (misplaced := misplaced_state(optimiser, state)) is not None:
        raise StoreError(
            f"{folders[-1] / OPTIMISER} does not fit the parameters of this run: {misplaced[:80]!r} is missing, has "
            "another shape or belongs to none of them; pass --fresh to start over."
        )
    restore_optimiser(optimiser, state)
    if scaler is not None:
        state, expected = read_json(folders[-1] / SCALER), scaler.state_dict()
        kinds = {key: type(value) for key, value in expected.items()}
        if not isinstance(state, dict) or {key: type(value) for key, value in state.items()} != kinds:
            raise StoreError(f"{folders[-1] / SCALER} does not hold {', '.join(expected)}. {_BEFORE}")
        scaler.load_state_dict(state)
    return progress


def load_checkpoint(out: str | Path, modules: Mapping[str, nn.Module], *, best: bool = False) -> Progress:
    """Load the last (or best) checkpoint of a run into its modules, and return its progress."""
    folders = _checkpoints(Path(out))
    if not folders:
        raise StoreError(f"{out} holds no checkpoint; train first.")
    progress = _read_progress(folders[-1])
    folder = folders[-1]
    if best:
        if progress.best_step is None:
            raise StoreError(f"{out} has no best checkpoint: its training had no best_score.")
        folder = Path(out) / FOLDER / _name(progress.best_step)
    _load_weights(folder, modules)
    return _read_progress(folder)


def discard_checkpoints(out: str | Path) -> None:
    """Remove the checkpoints of a run once its result is saved; a folder of that name that is not ours stays."""
    if (Path(out) / FOLDER / IDENTITY).exists():
        remove_folder(Path(out) / FOLDER)


def open_run(out: Path, identity: dict[str, Any]) -> None:
    """Make the folder of a run, or check that its checkpoints belong to this run."""
    place = out / FOLDER
    with clear_disk_errors(place):
        place.mkdir(parents=True, exist_ok=True)
        remove_temporaries(out)
        remove_temporaries(place)
    if not (place / IDENTITY).exists():
        for unknown in _checkpoints(out):
            remove_folder(unknown)
        write_json(place / IDENTITY, identity)
        return
    earlier = read_json(place / IDENTITY)
    if not isinstance(earlier, dict):
        raise StoreError(f"{place / IDENTITY} holds no named values; pass --fresh to start over.")
    if changes := changed_settings(without_places(earlier), without_places(identity)):
        message = f"{out} holds checkpoints of another run ({changes})"
        raise OtherRunError(f"{message}; choose another folder or pass --fresh.")


def shared_once(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """All weights and buffers by `module.name`; a tensor with several names is listed under the first."""
    named = (
        (f"{name}.{key}", value)
        for name, module in modules.items()
        for key, value in module.state_dict(keep_vars=True).items()
    )
    first: dict[int, tuple[str, Tensor]] = {}
    for key, value in named:
        first.setdefault(id(value), (key, value))
    return dict(first.values())


def _read_progress(folder: Path) -> Progress:
    path = folder / PROGRESS
    raw = read_json(path)
    if isinstance(raw, dict) and raw.get("version") != VERSION:
        message = f"{path} has format version {str(raw.get('version'))[:20]}"
        raise StoreError(f"{message}; this residuum reads version {VERSION}. Pass --fresh to start over.")
    facts = {key: value for key, value in raw.items() if key != "version"} if isinstance(raw, dict) else raw
    progress = conforming(facts, Progress, path, StoreError, _BEFORE)
    if progress.step < 0 or progress.tokens < 0 or (progress.best_step or 0) < 0:
        raise StoreError(f"{path} counts below zero. {_BEFORE}")
    if any(len(sums) != 2 for sums in progress.pending.values()):
        raise StoreError(f"{path} holds pending averages that are not pairs of a sum and a weight. {_BEFORE}")
    if folder.name != _name(progress.step):
        raise StoreError(f"{path} is of step {progress.step}, but is in {folder.name}. {_BEFORE}")
    return progress


def _load_weights(folder: Path, modules: Mapping[str, nn.Module]) -> None:
    saved, places = read_tensors(folder / WEIGHTS, "pt", remedy=_BEFORE), shared_once(modules)
    differing = sorted(saved.keys() ^ places.keys())
    differing += [key for key in saved.keys() & places.keys() if saved[key].shape != places[key].shape]
    if differing:
        raise StoreError(f"{folder} does not fit these modules: {differing[0]} differs; pass --fresh to start over.")
    with torch.no_grad():
        for key, place in places.items():
            place.copy_(saved[key])


def _checkpoints(out: Path) -> list[Path]:
    return sorted((out / FOLDER).glob("step-*"))


def _name(step: int) -> str:
    return f"step-{step:09d}"
