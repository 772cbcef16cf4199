"""A result ↔ one folder: config.yaml, tables (parquet and csv), tensors (safetensors), environment.json, result.json.

`result.json` is written last: a folder that has it is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from residuum.errors import OtherRunError, ResiduumError, StoreError
from residuum.storage import notebook
from residuum.storage.compression import MOST_GROWTH, batch_bytes, open_parquet, stated_bytes, unpacked_limit
from residuum.storage.files import (
    checksum,
    clear_disk_errors,
    hold_folder,
    read_json,
    release_folder,
    remove_folder,
    remove_temporaries,
    whole_file,
    write_json,
)
from residuum.storage.schemas import conforming, read_yaml
from residuum.storage.tensors import read_tensors, write_tensors

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import plotly.graph_objects as go

VERSION = 1
CONFIG, ENVIRONMENT = "config.yaml", "environment.json"
PLACES = {
    "model": "files",
    "folder": "files",
    "teacher": "teacher_files",
    "texts": "fingerprints",
    "pairs": "pair_fingerprints",
}
"""Settings that say where something lies, each with the one beside it that says by a fingerprint what it holds."""
TABLE_ROWS = 1000
"""Of a table that are unpacked at once to know how much all take."""
_AGAIN = "Run its command again with --fresh."
_FORMULA = re.compile(r"[=+@\t\r-].")
"""How a cell begins that spreadsheets take for a formula; a sign alone, such as the word `-`, is none."""


PACKAGES = (
    "residuum",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "scipy",
    "scikit-learn",
    "safetensors",
)


def environment() -> dict[str, object]:
    """Versions, platform and core count, for the record that goes with every result."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        **{package: _version(package) for package in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True, eq=False)
class Run:
    """What one command measured, and all that is needed to measure it again."""

    command: str
    config: dict[str, Any]  # settings, and fingerprints of the data and the models
    summary: dict[str, Any] = field(default_factory=dict)  # the numbers in a few lines
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=environment)
    folder: Path | None = None  # where it was read; None where it was made here


class Result(ABC):
    """What a command returns: a run that shows itself in a notebook, as a table and as figures."""

    run: Run

    @property
    @abstractmethod
    def frame(self) -> pd.DataFrame:
        """The main table, tidy: a row for each thing that was measured."""

    def text(self) -> str:
        """The summary, one line per quantity."""
        return "\n".join(
            f"{key}: {value:,}" if isinstance(value, int) else f"{key}: {value}"
            for key, value in self.run.summary.items()
        )

    def clear_errors(self) -> AbstractContextManager[None]:
        """A context in which a damaged run folder gives one clear line about that folder."""
        return clear_content_errors(self.run.command, self.run.folder)

    def plot(self, title: str = "", view: str = "") -> go.Figure:
        """A figure of the report: the first, or the one whose title has `title` in it; `view` is what it can choose."""
        with self.clear_errors():
            return notebook.figure(self.run, title, view)

    def _repr_html_(self) -> str:
        with self.clear_errors():
            return notebook.html(self.run, self.frame)


def write_run(folder: str | Path, run: Run) -> Path:
    """Write a run's folder; every file is whole or absent, and the folder counts only once it is complete."""
    folder = Path(folder)
    with clear_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(folder)
        (folder / "result.json").unlink(missing_ok=True)
    write_config(folder, run.command, run.config)
    tables: dict[str, str] = {}
    for name, table in run.tables.items():  # once for people, once for programs
        with whole_file(folder / f"{name}.csv") as path:
            plain_cells(table).to_csv(path, index=False)
        with whole_file(folder / f"{name}.parquet") as path:
            table.to_parquet(path, index=False, engine="pyarrow")
            tables[name] = checksum(path)
    if run.tensors:
        write_tensors(folder / "tensors.safetensors", run.tensors)
    write_json(folder / ENVIRONMENT, run.environment)
    files = {name: checksum(folder / name) for name in (CONFIG, ENVIRONMENT)}
    record = {"version": VERSION, "command": run.command, "summary": run.summary, "tables": tables, "files": files}
    write_json(folder / "result.json", record)
    release_folder(folder)
    return folder


def plain_cells(table: pd.DataFrame) -> pd.DataFrame:
    """A table whose texts a spreadsheet shows: `=cmd()` would be run as a formula, `'=cmd()` is not."""

    from pandas.api.types import is_numeric_dtype

    def cell(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        text = value.replace("\r", " ")  # which begins a new row, and which pandas writes as it is
        return f"'{text}" if _FORMULA.match(value) else text

    copy = table.rename(columns=cell)
    for place in range(copy.shape[1]):
        if not is_numeric_dtype(copy.dtypes.iloc[place]):
            copy.isetitem(place, copy.iloc[:, place].map(cell))
    return copy


def write_config(folder: Path, command: str, config: Mapping[str, Any]) -> None:
    """Write what a folder is of; a run of many steps writes it before the first, so that it is known when it stops."""
    with whole_file(folder / CONFIG) as path:
        path.write_text(yaml.safe_dump({"command": command, **config}, sort_keys=False, allow_unicode=True))


def read_config(folder: Path) -> dict[str, Any]:
    """What a folder is of, its `command` among the settings; empty where nothing says so."""
    path = folder / CONFIG
    return read_yaml(path, StoreError, _AGAIN) if path.exists() else {}


@dataclass(frozen=True)
class _Record:
    """What `result.json` holds."""

    version: int
    command: str
    summary: dict[str, Any]
    tables: dict[str, str]  # the checksum of each parquet file
    files: dict[str, str] = field(default_factory=dict)  # the checksums of the others


def read_run(folder: str | Path) -> Run:
    """Read a run's folder back."""
    folder = Path(folder)
    if not folder.exists():
        raise StoreError(f"{folder} does not exist; expected a folder that a command wrote.")
    if not (folder / "result.json").exists():
        raise StoreError(f"{folder} is not a finished run: it has no result.json. Run its command (again) first.")
    record = _read_record(folder / "result.json")
    config = read_yaml(folder / CONFIG, StoreError, _AGAIN)
    if config.pop("command", None) != record.command:
        raise StoreError(f"{folder}/config.yaml is not of the command {record.command!r} of result.json. {_AGAIN}")
    facts = read_json(folder / ENVIRONMENT)
    for name in (CONFIG, ENVIRONMENT):
        if record.files.get(name) not in (None, checksum(folder / name)):
            raise StoreError(f"{folder / name} is damaged or was edited: its checksum is another one. {_AGAIN}")
    if not isinstance(facts, dict):
        raise StoreError(f"{folder}/environment.json holds no named values. {_AGAIN}")
    return Run(
        command=record.command,
        config=config,
        summary=record.summary,
        tables={name: _read_table(folder / f"{_plain(name)}.parquet", said) for name, said in record.tables.items()},
        tensors=_read_tensors(folder / "tensors.safetensors"),
        environment=facts,
        folder=folder,
    )


@contextmanager
def clear_content_errors(command: str, folder: str | Path | None) -> Iterator[None]:
    """What goes wrong with the content of a run that was read from a folder is one clear line about that folder.

    A run that was made here (no folder) was not damaged: what it leads to is a fault of ours, and raised as it is.
    """
    try:
        yield
    except (ResiduumError, OSError, MemoryError, Warning):
        raise
    except Exception as error:  # pandas and plotly alone raise a dozen kinds
        if not folder:
            raise
        reason, command = (" ".join(text.split()) for text in (f"{type(error).__name__}: {error}", command))
        raise StoreError(
            f"{folder} is not a complete run of `{command[:80]}`: it does not hold what that writes ({reason[:200]}). "
            f"Run `{command[:80]}` again with --fresh."
        ) from error


def finished_run(folder: str | Path, command: str, config: Mapping[str, Any], *, fresh: bool = False) -> Run | None:
    """The run that is already there, if it is this one; another one is an error, an unfinished one is not there.

    It is this one wherever its models and data lie, if they hold the same. Where there is none, one begins: until
    `write_run`, other processes that would write to the folder are refused.
    """
    folder = Path(folder)
    if fresh or not (folder / "result.json").exists():
        hold_folder(folder)
        with clear_disk_errors(folder):  # what it held is not a finished run any more
            (folder / "result.json").unlink(missing_ok=True)
        return None
    run = read_run(folder)
    if run.command != command:
        raise StoreError(f"{folder} holds a run of `{run.command}`; choose another folder or pass --fresh.")
    wanted = without_places(yaml.safe_load(yaml.safe_dump(dict(config))))
    if changes := changed_settings(without_places(run.config), wanted):
        raise OtherRunError(f"{folder} holds another run ({changes}); choose another folder or pass --fresh.")
    with suppress(OSError):  # a folder that can only be read is a finished run all the same
        remove_temporaries(folder)  # of a run that was killed after its last word
        for leftover in folder.glob(f"scratch-{'[0-9a-f]' * 12}"):
            shutil.rmtree(leftover, ignore_errors=True)
    return run


def without_places(config: Any) -> Any:
    """A config without the settings that only say where something lies, beside the fingerprint of what it holds."""
    if isinstance(config, Mapping):
        return {
            key: without_places(value) for key, value in config.items() if not _is_known(config.get(PLACES.get(key)))
        }
    return [without_places(value) for value in config] if isinstance(config, list | tuple) else config


def changed_settings(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The settings in which two configs differ, each with both values; empty where they do not."""
    changed = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
    return " ".join("; ".join(f"{key} {found.get(key)} → {wanted.get(key)}" for key in changed).split())[:300]


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
        remove_folder(folder)
    with clear_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    yield folder
    remove_folder(folder)


def finished_step(folder: Path, name: str, compute: Callable[[], Run]) -> Run:
    """A step of a run: read from the scratch folder if it was finished there, else computed and kept."""
    if (folder / name / "result.json").exists():
        return read_run(folder / name)
    run = compute()
    write_run(folder / name, run)
    return run


def _is_known(fingerprint: Any) -> bool:
    """Whether there is a fingerprint, of several every one; a name on a hub has none."""
    if isinstance(fingerprint, Mapping):
        return bool(fingerprint) and all(map(_is_known, fingerprint.values()))
    return all(map(_is_known, fingerprint)) if isinstance(fingerprint, list | tuple) else bool(fingerprint)


def _read_record(path: Path) -> _Record:
    """The record of a run; one of another format version is refused by its number."""
    raw = read_json(path)
    version = raw.get("version") if isinstance(raw, dict) else None
    if version != VERSION:
        raise StoreError(f"{path} has format version {str(version)[:20]}; this residuum reads {VERSION}. {_AGAIN}")
    return conforming(raw, _Record, path, StoreError, _AGAIN)


def _read_table(path: Path, said: str) -> pd.DataFrame:
    """Read a table whose bytes are those that were written: names and types lie outside parquet's own checksums."""
    import pandas as pd
    import pyarrow as arrow

    try:
        if checksum(path) != said:
            raise StoreError(f"{path} has been altered (its checksum differs). {_AGAIN}")
        _check_unpacked(path)
        return pd.read_parquet(path, engine="pyarrow")
    except (OSError, ValueError, KeyError, TypeError, arrow.ArrowException) as error:
        raise StoreError(f"{path} cannot be read ({' '.join(str(error).split())[:200]}). {_AGAIN}") from None


def _check_unpacked(path: Path) -> None:
    """Refuse a table that unpacks beyond all measure before it is unpacked: a checksum is none against forgery."""
    limit = unpacked_limit(path)
    with open_parquet(path) as file:
        # First what its footer says, then what its rows turn out to take, the more of them are unpacked.
        if stated_bytes(file) > limit or any(
            size > limit for size in accumulate(map(batch_bytes, file.iter_batches(batch_size=TABLE_ROWS)))
        ):
            raise StoreError(f"{path} unpacks to more than {MOST_GROWTH} times its size, which no result does.")


def _read_tensors(path: Path) -> dict[str, np.ndarray]:
    return read_tensors(path, remedy=_AGAIN) if path.exists() else {}


def _plain(name: str) -> str:
    """A table's name is a file name, never a path."""
    if Path(name).name != name:
        raise StoreError(f"{name!r} is not the name of a table.")
    return name
