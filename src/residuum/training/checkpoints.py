"""Checkpoints: folders that are whole or absent, of safetensors and JSON only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from residuum.errors import StoreError
from residuum.files import TEMPORARY, clear_disk_errors, read_json, whole_file, write_json
from residuum.training.optimisation import optimiser_state, restore_optimiser
from residuum.training.records import Progress

FOLDER = "checkpoints"
WEIGHTS, OPTIMISER, PROGRESS, IDENTITY = "weights.safetensors", "optimiser.safetensors", "progress.json", "run.json"


def write_checkpoint(
    out: Path, modules: Mapping[str, nn.Module], optimiser: torch.optim.Optimizer, progress: Progress
) -> None:
    """Write the checkpoint of a step, then remove those that are neither the last nor the best."""
    target = out / FOLDER / _name(progress.step)
    with _whole_folder(target) as temporary:
        _save(temporary / WEIGHTS, shared_once(modules))
        _save(temporary / OPTIMISER, optimiser_state(optimiser))
        write_json(temporary / PROGRESS, progress.as_json())
    kept = {_name(step) for step in (progress.step, progress.best_step) if step is not None}
    for folder in _checkpoints(out):
        if folder.name not in kept:
            shutil.rmtree(folder, ignore_errors=True)


def resume(out: Path, modules: Mapping[str, nn.Module], optimiser: torch.optim.Optimizer) -> Progress:
    """Put modules and optimiser back to the last checkpoint; without one they stay as they are, at step 0."""
    folders = _checkpoints(out)
    if not folders:
        return Progress()
    _load_weights(folders[-1], modules)
    restore_optimiser(optimiser, _load(folders[-1] / OPTIMISER))
    return Progress(**read_json(folders[-1] / PROGRESS))


def load_checkpoint(out: str | Path, modules: Mapping[str, nn.Module], *, best: bool = False) -> Progress:
    """Load the last checkpoint of a run into its modules, or the one with the best score; says where it stands."""
    folders = _checkpoints(Path(out))
    if not folders:
        raise StoreError(f"{out} holds no checkpoint; train first.")
    progress = Progress(**read_json(folders[-1] / PROGRESS))
    folder = folders[-1]
    if best:
        if progress.best_step is None:
            raise StoreError(f"{out} has no best checkpoint: its training had no best_score.")
        folder = Path(out) / FOLDER / _name(progress.best_step)
    _load_weights(folder, modules)
    return Progress(**read_json(folder / PROGRESS))


def discard_checkpoints(out: str | Path) -> None:
    """Remove the checkpoints of a run, once what it trained is saved elsewhere."""
    shutil.rmtree(Path(out) / FOLDER, ignore_errors=True)


def open_run(out: Path, identity: dict[str, Any]) -> None:
    """Make the folder of a run, or check that the checkpoints in it are of this run."""
    place = out / FOLDER
    with clear_disk_errors(place):
        place.mkdir(parents=True, exist_ok=True)
        for leftover in place.glob(f".*{TEMPORARY}"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    if not (place / IDENTITY).exists():
        write_json(place / IDENTITY, identity)
        return
    there = read_json(place / IDENTITY)
    changed = [key for key in {**there, **identity} if there.get(key) != identity.get(key)]
    if changed:
        found = "; ".join(f"{key} {there.get(key)} → {identity.get(key)}" for key in changed)
        raise StoreError(
            f"{out} holds checkpoints of another run ({found[:300]}); choose another folder or pass --fresh."
        )


def shared_once(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """All weights and buffers by `module.name`; what several names share stands under the first."""
    named = (
        (f"{name}.{key}", value)
        for name, module in modules.items()
        for key, value in module.state_dict(keep_vars=True).items()
    )
    first: dict[int, tuple[str, Tensor]] = {}
    for key, value in named:
        first.setdefault(id(value), (key, value))
    return dict(first.values())


def _load_weights(folder: Path, modules: Mapping[str, nn.Module]) -> None:
    saved, places = _load(folder / WEIGHTS), shared_once(modules)
    differing = sorted(saved.keys() ^ places.keys())
    differing += [key for key in saved.keys() & places.keys() if saved[key].shape != places[key].shape]
    if differing:
        raise StoreError(f"{folder} does not fit these modules: {differing[0]} differs; pass --fresh to start over.")
    with torch.no_grad():
        for key, place in places.items():
            place.copy_(saved[key])


def _save(path: Path, tensors: Mapping[str, Tensor]) -> None:
    with whole_file(path) as temporary:
        save_file({key: value.detach().cpu().contiguous() for key, value in tensors.items()}, temporary)


def _load(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise StoreError(f"{path} is damaged ({error}); remove its folder to go on from the one before.") from None


def _checkpoints(out: Path) -> list[Path]:
    return sorted((out / FOLDER).glob("step-*"))


def _name(step: int) -> str:
    return f"step-{step:09d}"


@contextmanager
def _whole_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder to fill; it becomes `path` at the end, or vanishes if anything failed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    with clear_disk_errors(path):
        try:
            temporary.mkdir(parents=True)
            yield temporary
            temporary.rename(path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
