"""`study`: run the whole chain of one document, and put its findings beside ours."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from residuum.costs import Cost
from residuum.errors import OtherRunError, SettingError
from residuum.storage.results import Result, Run, clear_content_errors, write_run
from residuum.studies.costs import (
    all_parameters,
    block_parameters,
    chain_cost,
    cost_lines,
    machine_speed,
    step_minutes,
)
from residuum.studies.declarations import Document, Results, Step
from residuum.studies.documents import named_document
from residuum.studies.findings import finding_tables
from residuum.studies.given_data import GivenData
from residuum.studies.kits import Kit, model_family
from residuum.studies.resuming import COMMAND, begin_study, known_by_content, study_config
from residuum.studies.sample_data import SampleData
from residuum.studies.scales import Scale, named_scale
from residuum.studies.tables import exhibit_table, step_table, trained_table

Say = Callable[[str], object]


@dataclass(frozen=True, eq=False)
class Study(Result):
    """What a study found. `frame` has a row for each finding of the document: ours beside it, and whether it holds."""

    run: Run
    folder: Path

    @property
    def frame(self) -> pd.DataFrame:
        """where, finding, verdict, ours, low, high, rule, cases, document, bound, note."""
        return self.run.tables["findings"]

    @property
    def cases(self) -> pd.DataFrame:
        """The number and interval of each case behind the findings."""
        return self.run.tables["cases"]

    @property
    def exhibits(self) -> pd.DataFrame:
        """The document's tables and figures in its order, and which table of which step holds ours."""
        return self.run.tables["exhibits"]

    @property
    def trained(self) -> pd.DataFrame:
        """What each fine-tuned model scores, with all layers, some left out or some frozen; may be empty."""
        return self.run.tables.get("trained", trained_table(Results((), {})))

    @property
    def page(self) -> Path:
        """The report of all steps."""
        return self.folder / "report.html"

    def text(self) -> str:
        """The findings as lines for a terminal."""
        return "\n".join(_line(row) for row in self.frame.to_dict("records"))


def study(
    name: str,
    out: str | Path,
    *,
    scale: str = "sample",
    models: Sequence[str | Path] | str | Path = (),
    data: str | Path | None = None,
    tasks: Sequence[str] = (),
    examples: int | None = None,
    yes: bool = False,
    device: str = "auto",
    seed: int = 0,
    max_memory: int | None = None,
    fresh: bool = False,
    say: Say = lambda line: None,
) -> Study:
    """Run the chain of a document (`similarity`, `redundancy`, `transfer-learning`, …) into `out`, and report.

    `scale` is `sample` (what ships, minutes), `small` (`models` and the folder `data`, sizes for two cores) or `paper`
    (the document's models, all of `data`), whose cost is said first and which starts only with `yes`. `tasks` (`sst2`,
    `upos`, …) take the place of those that the scale would take, and `examples` that of the number that each sentence
    task is learnt from. `max_memory` (bytes) bounds the steps that can do with less. Every step has its folder in
    `out` and is not done again when the study is run again; `fresh` starts over.
    """
    document, size = named_document(name), named_scale(scale, examples)
    kit = _kit(document, size, models, data, tasks, Path(out), device, seed, fresh)
    kit = known_by_content(replace(kit, max_memory=max_memory))
    config = study_config(document.name, kit)
    begin_study(kit.out, config, fresh=fresh)
    steps = document.steps(kit)
    _check_names(steps)
    parameters, speed = _blocks(document, kit), machine_speed()
    _agree(size, cost_lines(steps, parameters, size.sentences, speed), yes, say)
    expected = [step_minutes(step, parameters, speed) for step in steps]
    results, seconds = _run_steps(steps, kit, expected, say)
    kept = any(run.folder for run in results.runs.values())
    with clear_content_errors(f"{COMMAND} {name}", kit.out if kept else None):
        run = Run(COMMAND, config, *_outcome(document, kit, results, seconds))
    write_run(kit.out, run)
    _report(document, kit, results)
    return Study(run, kit.out)


def study_cost(
    name: str,
    *,
    scale: str = "sample",
    models: Sequence[str | Path] | str | Path = (),
    data: str | Path | None = None,
    tasks: Sequence[str] = (),
    examples: int | None = None,
    device: str = "auto",
    seed: int = 0,
) -> Cost:
    """What `study` would take with the same settings, by the rule of `studies.costs` at the speed of this machine."""
    document, size = named_document(name), named_scale(scale, examples)
    kit = _kit(document, size, models, data, tasks, Path(), device, seed, False)
    weights = {name: all_parameters(path, document.models) for name, path in kit.models.items()}
    what = f"{name}, scale {scale}: {', '.join(kit.models)}"
    return chain_cost(what, document.steps(kit), _blocks(document, kit), weights, machine_speed())


def _blocks(document: Document, kit: Kit) -> dict[str, float]:
    return {name: block_parameters(path, document.models) for name, path in kit.models.items()}


def _kit(
    document: Document,
    scale: Scale,
    models: Sequence[str | Path] | str | Path,
    data: str | Path | None,
    tasks: Sequence[str],
    out: Path,
    device: str,
    seed: int,
    fresh: bool,
) -> Kit:
    given = [models] if isinstance(models, str | Path) else list(models)
    if scale.name == "sample":
        for what, found in {"data is": data, "tasks are": ", ".join(tasks)}.items():
            if found:
                raise SettingError(f"{what} {found}, but the scale sample uses what ships; choose small to use it.")
        return Kit(scale, _named(given or [_teacher()]), SampleData(scale, seed), out, device, seed, fresh)
    if data is None:
        raise SettingError(
            f"The scale {scale.name} needs data (--data): a folder with {', '.join(document.needs)}; found none."
        )
    if not given and scale.name == "small":
        named = ", ".join(list(document.models)[:2])
        raise SettingError(f"The scale small needs models (--models), such as {named}; found none.")
    chosen = _named(given or list(document.models))
    return Kit(scale, chosen, GivenData(Path(data), scale, seed, tuple(tasks)), out, device, seed, fresh)


def _teacher() -> Path:
    from residuum.samples import teacher_folder

    return teacher_folder()


def _named(models: Sequence[str | Path]) -> dict[str, str]:
    """Models by their short names."""
    from residuum.models.loading import check_folder_or_name, short_name

    for model in models:
        check_folder_or_name(str(model))
    named = {short_name(model): str(model) for model in models}
    if len(named) < len(models):
        raise SettingError(f"Found {len(models)} models but {len(named)} names; give folders of different names.")
    return named


def _check_names(steps: Sequence[Step]) -> None:
    names = [step.name for step in steps]
    assert len(set(names)) == len(names), "every step has a folder of its own"


def _agree(scale: Scale, lines: Sequence[str], yes: bool, say: Say) -> None:
    """Say what the document's own size costs, and stop unless that was agreed to."""
    if scale.name != "paper":
        return
    for line in lines:
        say(line)
    if not yes:
        raise SettingError(f"The scale paper is not started unasked. {lines[-1]} Agree with yes (--yes).")


def _run_steps(steps: Sequence[Step], kit: Kit, minutes: Sequence[float], say: Say) -> tuple[Results, dict[str, float]]:
    """Do the steps in order; one whose folder is finished returns at once."""
    runs: dict[str, Run] = {}
    seconds: dict[str, float] = {}
    for number, (step, expected_minutes) in enumerate(zip(steps, minutes, strict=True), 1):
        kept = (kit.out / step.name / "result.json").exists() and not kit.fresh
        expected = "finished before" if kept else f"about {_minutes(expected_minutes)}"
        say(f"{number}/{len(steps)}  {step.title} ({expected}) …")
        start = time.perf_counter()
        run = _done(step, kit, say)
        seconds[step.name] = time.perf_counter() - start
        if run is not None:
            runs[step.name] = run
    families = {name: model_family(path) for name, path in kit.models.items()}
    return Results(tuple(steps), runs, families), seconds


def _done(step: Step, kit: Kit, say: Say) -> Run | None:
    """What a step gave; one whose folder holds what another model, text or setting gave is done again."""
    try:
        return step.work(kit)
    except OtherRunError:
        say(f"     {step.name} is done again: its models, data or settings have changed since")
        return step.work(replace(kit, fresh=True))


def _minutes(minutes: float) -> str:
    if minutes < 1:
        return f"{max(1, round(minutes * 60)):d} s"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:,.0f} h"


def _outcome(
    document: Document, kit: Kit, results: Results, seconds: Mapping[str, float]
) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
    """The summary and the tables."""
    tables = finding_tables(document, results, kit)
    counts = tables["findings"]["verdict"].value_counts()
    summary = {
        "title": document.title,
        "source": document.source,
        "steps": len(results.steps),
        **{str(verdict): int(n) for verdict, n in counts.items()},
        "seconds": round(sum(seconds.values()), 1),
    }
    trained = trained_table(results)
    shown = {"exhibits": exhibit_table(document, results), **({} if trained.empty else {"trained": trained})}
    return summary, {**tables, **shown, "steps": step_table(results, seconds)}


def _report(document: Document, kit: Kit, results: Results) -> None:
    """One page: the findings, then the steps in the order in which the document shows them."""
    from residuum.reporting.reporting import report

    shown = [step.name for one in document.exhibits for step, _ in results.of(one.kind)]
    folders = [kit.out, *(kit.out / name for name in dict.fromkeys([*shown, *results.runs]))]
    report(folders, kit.out / "report.html", title=document.title)


def _line(row: Mapping[Any, Any]) -> str:
    note = f"; {row['note']}" if row["note"] else ""
    return f"{row['verdict']:>13}  {row['where']}: {row['finding']}{_numbers(row)}{note}"


def _numbers(row: Mapping[Any, Any]) -> str:
    """Ours with its interval, what was expected, and in how many cases."""
    if not row["cases"]:
        return ""
    interval = "" if math.isnan(row["low"]) else f" [{row['low']:.3f}, {row['high']:.3f}]"
    return f" ({row['ours']:.3f}{interval}, expected {row['rule']}, so in {row['cases']})"
