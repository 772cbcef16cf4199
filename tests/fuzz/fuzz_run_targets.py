"""Readers of what a run holds: runs whose values, tables and settings are not what their command writes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
from every_run import adaptation_run, evaluation_run, every_run
from mutations import VALUES, changed_json, damaged
from target_kinds import Target, alone

from residuum.distillation.preparation import chosen_map
from residuum.distillation.settings import MeasuredMap
from residuum.errors import StoreError
from residuum.evaluation.retrieval import Retrieval, correlate_alignment
from residuum.reporting.page import render
from residuum.reporting.report import SECTIONS, section, write_figures
from residuum.samples import teacher_folder
from residuum.storage.files import release_folder
from residuum.storage.results import Result, Run, write_run
from residuum.studies import StudySettings
from residuum.studies.data import SampleData
from residuum.studies.running import begin_study, named_by_content, study_config
from residuum.studies.steps import SCALES, StudyContext


def run_targets(folder: Path) -> list[Target]:
    """Every such reader, with what it needs in `folder`."""
    folder.mkdir(parents=True)
    runs = [adaptation_run("word", 1) if run.command == "adapt" else run for run in every_run("word")]
    assert {run.command for run in runs} == set(SECTIONS)
    comparison = next(run for run in runs if run.command == "compare")
    return [
        *(_of_run(f"shown {run.command}", run, lambda run: _show(run, folder / "figures")) for run in runs),
        *_correlated(folder),
        _of_run("measured layer map", comparison, lambda run: _map_layers(run, folder / "compare")),
        _resumed(folder / "study"),
    ]


@dataclass(frozen=True, eq=False)
class Shown(Result):
    """Any result."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        return next(iter(self.run.tables.values()))


def _show(run: Run, folder: Path) -> None:
    """One of the ways to show a run: a page, what a notebook shows, or a figure there and for papers."""
    way = len(str(run.tables) + str(run.summary)) % 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers that are none may be warned of
        if way == 0:
            render([section(run)] * 2, "page")
        elif way == 1:
            Shown(run)._repr_html_()
        elif panels := (found := section(run)).panels:
            Shown(run).plot()
            write_figures([replace(found, panels=panels[-1:])], folder, "svg")


def _of_run(name: str, run: Run, read: Callable[[Run], object]) -> Target:
    """A run as JSON, column by column, which is as good as read from a folder."""
    tables = {name: table.to_dict("list") for name, table in run.tables.items()}
    seed = json.dumps({"config": run.config, "summary": run.summary, "tables": tables}, default=_plain).encode()

    def read_bytes(data: bytes) -> None:
        try:
            value = json.loads(data)
            json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise StoreError("No files can hold it: it is no JSON, or has half a surrogate pair.") from None
        read(_run(value if isinstance(value, dict) else {}, run))

    return Target(name, seed, read_bytes, (), (changed_json, damaged_table))


def _plain(value: Any) -> Any:
    """What JSON has no word for: missing values, and numbers and lists of numpy."""
    return None if value is pd.NA else value.tolist()


def _run(parts: dict[str, Any], run: Run) -> Run:
    """A run that holds the parts; where they are missing or of another kind it holds nothing."""
    named = {part: value for part, value in parts.items() if isinstance(value, dict)}
    tables = {name: _frame(table) for name, table in named.get("tables", {}).items() if isinstance(table, dict)}
    config, summary = named.get("config", {}), named.get("summary", {})
    return replace(run, config=config, summary=summary, tables=tables, folder=Path("damaged"))


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    """Columns that are shorter than others end in missing values; one value stands for a whole column."""
    rows = max((len(values) for values in columns.values() if isinstance(values, list)), default=1)
    filled = {name: values if isinstance(values, list) else [values] * rows for name, values in columns.items()}
    return pd.DataFrame({name: pd.Series(values) for name, values in filled.items()})


def damaged_table(random: Random, seed: bytes, words: Sequence[bytes]) -> bytes:
    """A run of which one table is missing or has no rows, or one column is missing or holds one value throughout."""
    run = json.loads(seed)
    name = random.choice(list(run["tables"]))
    table = run["tables"][name]
    column = random.choice(list(table))
    rows = len(table[column])
    change = random.randrange(5)
    if change == 0:
        del run["tables"][name]
    elif change == 1:
        run["tables"][name] = {column: [] for column in table}
    elif change == 2:
        del table[column]
    else:
        table[column] = [random.choice(VALUES)] * rows
    return json.dumps(run).encode()


def _correlated(folder: Path) -> list[Target]:
    """The two kinds of runs that a correlation is made of: of retrieval, and of downstream scores."""
    retrieval = evaluation_run("retrieval", "tr")
    retrieval.tables["averages"] = retrieval.tables["retrieval"].assign(direction="en → tr")
    whole = Retrieval(retrieval)
    adapted, adapt = evaluation_run("adapted", "accuracy"), Run("adapt", {}, {"metric": "f1", "test f1": {"full": 0.5}})
    adapt.tables["means"] = pd.DataFrame({"value": [0.5]})

    def score(run: Run) -> None:
        correlate_alignment({"a": whole, "b": whole}, {"a": 0.5, "b": _written(folder / "downstream", run)})

    def align(run: Run) -> None:
        correlate_alignment({"a": whole, "b": Retrieval(run)}, {"a": 0.5, "b": 0.75})

    return [
        _of_run("correlated retrieval", retrieval, align),
        _of_run("correlated adapted", adapted, score),
        _of_run("correlated adapt", adapt, score),
    ]


def _map_layers(run: Run, folder: Path) -> None:
    measured = MeasuredMap(run=str(_written(folder, run)), student="word", teacher="other")
    chosen_map(measured, 2, 3, published=False)


def _written(folder: Path, run: Run) -> Path:
    """A folder with the run, if its tables can be written at all: a column of parquet has one type."""
    try:
        return write_run(folder, run)
    except Exception as error:
        raise StoreError(f"No folder can hold it: {error}") from None


def _resumed(folder: Path) -> Target:
    """A study that goes on in a folder whose settings someone wrote."""
    scale = SCALES["sample"]
    context = StudyContext(scale, {"teacher": str(teacher_folder())}, SampleData(scale, 0), folder)
    settings = StudySettings("similarity", folder)
    config = study_config(settings, context)
    folder.mkdir()

    def resume(path: Path) -> None:
        try:
            begin_study(folder, study_config(settings, named_by_content(context)), fresh=False)
        finally:
            release_folder(folder)

    seed = json.dumps({"command": "study", **config}).encode()  # JSON is YAML too
    return replace(alone(folder / "config.yaml", seed, resume, "resumed study"), mutations=(damaged, changed_json))
