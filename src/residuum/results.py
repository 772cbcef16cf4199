"""A result ↔ one folder: config.yaml, tables (parquet and csv), tensors (safetensors), environment.json, result.json.

`result.json` is written last: a folder that has it is whole.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from residuum.environment import environment
from residuum.errors import StoreError
from residuum.files import clear_disk_errors, read_json, remove_temporaries, whole_file, write_json

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

VERSION = 1


@dataclass(frozen=True, eq=False)
class Run:
    """What one command measured, and all that is needed to measure it again."""

    command: str
    config: dict[str, Any]  # settings, and fingerprints of the data and the models
    summary: dict[str, Any] = field(default_factory=dict)  # the numbers in a few lines
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=environment)


def write_run(folder: str | Path, run: Run) -> Path:
    """Write a run's folder; every file is whole or absent, and the folder counts only once it is complete."""
    folder = Path(folder)
    with clear_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(folder)
        (folder / "result.json").unlink(missing_ok=True)
    with whole_file(folder / "config.yaml") as path:
        path.write_text(yaml.safe_dump({"command": run.command, **run.config}, sort_keys=False, allow_unicode=True))
    for name, table in run.tables.items():
        with whole_file(folder / f"{name}.parquet") as path:
            table.to_parquet(path, index=False)
        with whole_file(folder / f"{name}.csv") as path:
            table.to_csv(path, index=False)
    if run.tensors:
        from safetensors.numpy import save_file

        with whole_file(folder / "tensors.safetensors") as path:
            save_file(dict(run.tensors), path)
    write_json(folder / "environment.json", run.environment)
    record = {"version": VERSION, "command": run.command, "summary": run.summary, "tables": list(run.tables)}
    write_json(folder / "result.json", record)
    return folder


def read_run(folder: str | Path) -> Run:
    """Read a run's folder back."""
    import pandas as pd

    folder = Path(folder)
    if not (folder / "result.json").exists():
        raise StoreError(f"{folder} is not a finished run: it has no result.json. Run its command (again) first.")
    record = read_json(folder / "result.json")
    if not isinstance(record, dict) or record.get("version") != VERSION:
        raise StoreError(
            f"{folder}/result.json is not of format version {VERSION}; run its command again with --fresh."
        )
    config = _read_config(folder)
    try:
        tables = {name: pd.read_parquet(folder / f"{_plain(name)}.parquet") for name in record["tables"]}
    except (OSError, ValueError, KeyError) as error:
        raise StoreError(f"A table of {folder} cannot be read ({error}); run its command again with --fresh.") from None
    return Run(
        command=record["command"],
        config=config,
        summary=record["summary"],
        tables=tables,
        tensors=_read_tensors(folder / "tensors.safetensors"),
        environment=read_json(folder / "environment.json"),
    )


def finished_run(folder: str | Path, command: str, config: Mapping[str, Any], *, fresh: bool = False) -> Run | None:
    """The run that is already there, if it is this one; another one is an error, an unfinished one is not there."""
    folder = Path(folder)
    if fresh or not (folder / "result.json").exists():
        return None
    run = read_run(folder)
    wanted = yaml.safe_load(yaml.safe_dump(dict(config)))
    if run.command != command:
        raise StoreError(f"{folder} holds a run of `{run.command}`; choose another folder or pass --fresh.")
    changed = [key for key in {**run.config, **wanted} if run.config.get(key) != wanted.get(key)]
    if changed:
        found = "; ".join(f"{key} {run.config.get(key)} → {wanted.get(key)}" for key in changed)
        raise StoreError(f"{folder} holds another run ({found[:300]}); choose another folder or pass --fresh.")
    return run


@contextmanager
def scratch(out: str | Path | None, config: Mapping[str, Any], *, fresh: bool = False) -> Iterator[Path]:
    """A folder for what is finished before the run is: in `out`, so that a killed run goes on, else for this run only.

    It belongs to the settings `config`, and is removed when the run is whole.
    """
    if out is None:
        with tempfile.TemporaryDirectory(prefix="residuum-") as folder:
            yield Path(folder)
        return
    key = hashlib.blake2b(json.dumps(config, sort_keys=True, default=str).encode(), digest_size=6).hexdigest()
    folder = Path(out) / f"scratch-{key}"
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
    with clear_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    yield folder
    shutil.rmtree(folder)


def finished_step(folder: Path, name: str, compute: Callable[[], Run]) -> Run:
    """A step of a run: read from the scratch folder if it was finished there, else computed and kept."""
    if (folder / name / "result.json").exists():
        return read_run(folder / name)
    run = compute()
    write_run(folder / name, run)
    return run


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        config.pop("command")
        return config
    except (OSError, yaml.YAMLError, AttributeError, KeyError) as error:
        raise StoreError(
            f"{folder}/config.yaml cannot be read ({error}); run its command again with --fresh."
        ) from None


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        return {}
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise StoreError(f"{path} is damaged ({error}); run its command again with --fresh.") from None


def _plain(name: str) -> str:
    """A table's name is a file name, never a path."""
    if not isinstance(name, str) or Path(name).name != name:
        raise StoreError(f"{name!r} is not the name of a table.")
    return name
