"""A study as data: its steps, the document's exhibits and printed numbers; and the tables that come of its results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from residuum.storage.files import folder_name
from residuum.storage.results import Run
from residuum.studies import StudyName
from residuum.studies.claims import DOES_NOT_HOLD, HOLDS, NOT_MEASURED, Claim, Evidence, Measurement

if TYPE_CHECKING:
    from residuum.studies.exhibits import Exhibit
    from residuum.studies.steps import StudyContext

FINDING_COLUMNS = (
    "where", "finding", "verdict", "quantity", "ours", "low", "high", "rule", "cases", "document", "bound", "note",
)  # fmt: skip
CASE_COLUMNS = ("where", "finding", "case", "value", "low", "high", "agrees")
EXHIBIT_COLUMNS = (
    "document", "shows", "table", "rows", "step", "command", "steps", "shape", "x", "y", "by", "panel",
)  # fmt: skip
TRAINED_COLUMNS = (
    "model", "task", "left_out", "frozen", "metric", "score", "low", "high", "majority", "seeds", "learnt",
)  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """The sentences that a step reads with a model, trains it on, and trains probes on; for estimates."""

    read: float = 0.0
    trained: float = 0.0
    probed: float = 0.0


@dataclass(frozen=True, eq=False)
class StudyStep:
    """One command with the document's settings, in its own folder.

    `work` calls the command, which returns at once where the folder already holds that run.
    """

    kind: str
    title: str
    work: Callable[[StudyStep, StudyContext], Run]
    load: Workload = Workload()
    model: str = ""
    task: str = ""
    unit: str = ""  # of the task: word or sentence
    variant: str = ""

    @property
    def name(self) -> str:
        """The step's folder."""
        return step_name(self.kind, self.model, self.task, self.variant)


def step_name(kind: str, model: str = "", task: str = "", variant: str = "") -> str:
    """The folder of a step, by which later steps find it."""
    return "-".join(folder_name(part) for part in (kind, model, task, variant) if part)


@dataclass(frozen=True)
class PrintedData:
    """A data set that the document learnt a task from, recognised by its number of examples."""

    name: str
    learnt: int  # training examples, including those held out for development
    tested: int

    def matches(self, run: Run) -> bool:
        """Whether a run learnt from and was tested on as many examples."""
        examples = {**run.config.get("examples", {}), **run.summary.get("examples", {})}
        train, dev, test = (examples.get(part, 0) for part in ("train", "dev", "test"))
        return (train + dev, test) == (self.learnt, self.tested)


@dataclass(frozen=True)
class PrintedTargets:
    """Data in other languages that the document tested on, recognised by its examples (or pairs) per language."""

    name: str
    tested: Mapping[str, int]

    def matches(self, run: Run) -> bool:
        """Whether a run was tested on as many examples of each language, or retrieved among as many pairs."""
        if "retrieval" in run.tables:
            table = run.tables["retrieval"]
            found = dict(zip(table["pair"], table["sentences"], strict=True))
        else:
            found = {code: sizes.get("dev") for code, sizes in run.summary.get("target examples", {}).items()}
        return all(found.get(language) == size for language, size in self.tested.items())


@dataclass(frozen=True)
class PrintedTreebanks:
    """Parallel treebanks that the document probed, recognised by the sentences that probes learn from and do not."""

    name: str
    learnt: int
    held_out: int

    def matches(self, run: Run) -> bool:
        """Whether probes learnt from as many sentences."""
        return run.config.get("sentences") == {"train": self.learnt, "held out": self.held_out}


GLUE = {
    "sst2": PrintedData("SST-2", 67_349, 872),
    "mrpc": PrintedData("MRPC", 3_668, 408),
    "rte": PrintedData("RTE", 2_490, 277),
    "stsb": PrintedData("STS-B", 5_749, 1_500),
    "mnli": PrintedData("MNLI", 392_702, 9_815),
    "qnli": PrintedData("QNLI", 104_743, 5_463),
    "qqp": PrintedData("QQP", 363_846, 40_430),
}
"""The documents test on GLUE's development parts, whose labels are public."""


@dataclass(frozen=True, eq=False)
class PrintedNumber:
    """A number that the document prints for one model and data set, which ours is compared with.

    `model` is a hub name; the study may call it otherwise. `step` gives kind, task and variant of the step that
    measures ours, `tolerance` how far ours may be from it.
    """

    where: str
    what: str
    value: float
    model: str
    data: PrintedData | PrintedTargets | PrintedTreebanks
    step: Mapping[str, str]
    number: Callable[[Run, str], float]  # of a run and the model's name in it
    tolerance: float = 0.02


@dataclass(frozen=True, eq=False)
class Document:
    """A study: what it runs, what it shows in the document's order, and which claims it tests."""

    name: StudyName
    title: str
    source: str
    steps: Callable[[StudyContext], tuple[StudyStep, ...]]
    exhibits: tuple[Exhibit, ...]
    claims: tuple[Claim, ...]
    models: Mapping[str, float]  # of the document, by hub name: parameters of their blocks
    teachers: Mapping[str, str] = field(default_factory=dict)  # of the distilled ones among these models
    printed: tuple[PrintedNumber, ...] = ()
    needs: tuple[str, ...] = ()  # folders of --data
    units: tuple[str, ...] = ()  # of the tasks that can be chosen: word, sentence
    multilingual: bool = False  # whether it reads other languages than English
    one_model: bool = False  # whether it is about one model and what is made from it
    stores: bool = False  # whether a model may be a store of its activations
    trains: bool = True  # whether sentence tasks are learnt, so that the number of examples matters


class MissingStepError(Exception):
    """A claim needs a step that `--steps` left out."""


@dataclass(frozen=True, eq=False)
class Results:
    """The steps of a study with the runs they gave, in order."""

    steps: tuple[StudyStep, ...]
    runs: Mapping[str, Run]
    families: Mapping[str, str] = field(default_factory=dict)  # architecture of each model
    teachers: Mapping[str, str] = field(default_factory=dict)  # of distilled models
    multilingual: Mapping[str, bool] = field(default_factory=dict)  # of models that say so
    sources: Mapping[str, str] = field(default_factory=dict)  # hub names (without their owner) → names in the study

    def of(self, kind: str, **facts: str) -> list[tuple[StudyStep, Run]]:
        """The steps of a kind with this model, task, unit or variant, and their runs."""
        return [
            (step, self.runs[step.name])
            for step in self.steps
            if step.kind == kind
            and step.name in self.runs
            and all(getattr(step, key) == value for key, value in facts.items())
        ]

    def only(self, kind: str) -> Run:
        """The run of the one step of a kind."""
        steps = self.of(kind)
        if not steps:
            raise MissingStepError(f"the step {kind} was left out")
        ((_, run),) = steps
        return run


def case_name(step: StudyStep) -> str:
    """A step's model and task, as a case of a claim."""
    return ", ".join(part for part in (step.model, step.task) if part)


def finding_tables(document: Document, results: Results, *, printed: bool) -> dict[str, pd.DataFrame]:
    """`findings`: one row per claim, then one per printed number that ours can be compared with. `cases`: one row per
    model or task behind a claim."""
    findings: list[dict[str, Any]] = []
    cases: list[dict[str, Any]] = []
    for claim in document.claims:
        try:
            evidence = claim.measure(results)
        except MissingStepError as error:
            evidence = str(error)
        findings.append(_finding_row(claim, evidence))
        numbers = evidence.cases if isinstance(evidence, Evidence) else {}
        for name, number in numbers.items():
            case = {"case": name, "value": number.value, "low": number.low, "high": number.high}
            agrees = claim.rule.supports(number.value)
            cases.append({"where": claim.where, "finding": claim.finding, **case, "agrees": agrees})
    for number in document.printed if printed else ():
        if model := results.sources.get(number.model):
            runs = [run for step, run in results.of(**number.step) if step.model in ("", model)]
            findings += [_number_row(number, run, model) for run in runs if number.data.matches(run)][:1]
    return {
        "findings": pd.DataFrame(findings, columns=pd.Index(FINDING_COLUMNS)),
        "cases": pd.DataFrame(cases, columns=pd.Index(CASE_COLUMNS)),
    }


def _finding_row(claim: Claim, evidence: Evidence | str | None) -> dict[str, Any]:
    row = {"where": claim.where, "finding": claim.finding, "quantity": claim.quantity}
    row |= {"rule": str(claim.rule), "bound": claim.rule.bound}
    row |= {"document": math.nan}  # other models or other data: the document's number is not comparable
    if not isinstance(evidence, Evidence):
        note = evidence or "nothing that was measured can tell"
        return {**row, "ours": math.nan, "low": math.nan, "high": math.nan, "cases": "", "verdict": NOT_MEASURED,
                "note": note}  # fmt: skip
    cases = f"{evidence.supporting(claim.rule)} of {len(evidence.cases)}"
    numbers = {"ours": evidence.mean, "low": evidence.low, "high": evidence.high}
    return {**row, **numbers, "cases": cases, "verdict": evidence.verdict(claim.rule), "note": ""}


def _number_row(printed: PrintedNumber, run: Run, model: str) -> dict[str, Any]:
    ours = printed.number(run, model)
    agrees = abs(ours - printed.value) <= printed.tolerance
    return {
        "where": printed.where,
        "finding": printed.what,
        "quantity": "The same number here",
        "document": printed.value,
        "ours": ours,
        "low": math.nan,
        "high": math.nan,
        "rule": f"within {printed.tolerance:g} of the document's",
        "bound": math.nan,
        "cases": f"{int(agrees)} of 1",
        "verdict": HOLDS if agrees else DOES_NOT_HOLD,
        "note": f"{printed.model} on {printed.data.name}, as in the document",
    }


def exhibit_tables(document: Document, results: Results) -> dict[str, pd.DataFrame]:
    """The document's tables and figures in its order, each under its own number, and `exhibits`, the list of them.

    One that cannot be made from these models, data or steps is listed without rows.
    """
    tables, rows = {}, []
    for exhibit in document.exhibits:
        steps = [pair for kind in exhibit.kinds for pair in results.of(kind)]
        table = exhibit.make(results) if steps else pd.DataFrame()
        if not table.empty:
            tables[exhibit.table] = table.reset_index(drop=True)
        step, run = steps[0] if steps else (None, None)
        rows.append(
            {
                "document": exhibit.label,
                "shows": exhibit.title,
                "table": exhibit.table if exhibit.table in tables else "",
                "rows": len(table),
                "step": step.name if step else "",
                "command": run.command if run else "",
                "steps": ", ".join(own.name for own, _ in steps),
                **asdict(exhibit.drawing),
            }
        )
    return {**tables, "exhibits": pd.DataFrame(rows, columns=pd.Index(EXHIBIT_COLUMNS))}


def trained_table(results: Results) -> pd.DataFrame:
    """One row per fine-tuned model: its test score, averaged over seeds."""
    rows = []
    for step in results.steps:
        run = results.runs.get(step.name)
        if run is None or run.command != "finetune":
            continue
        score = Measurement.test_score(run)
        rows.append(
            {
                "model": step.model,
                "task": step.task,
                "left_out": run.config["drop"] or "",
                "frozen": run.config["freeze"] or "",
                "metric": run.summary["metric"],
                "score": score.value,
                "low": score.low,
                "high": score.high,
                "majority": run.summary[f"test {run.summary['metric']} baseline"],
                "seeds": len(run.config["seeds"]),
                "learnt": run.summary["examples"]["train"],
            }
        )
    table = pd.DataFrame(rows, columns=pd.Index(TRAINED_COLUMNS))
    return table.sort_values(["task", "model"], kind="stable", ignore_index=True)


def step_table(results: Results, seconds: Mapping[str, float]) -> pd.DataFrame:
    """One row per step, in the order in which they ran."""
    rows = [
        {
            "step": step.name,
            "title": step.title,
            "command": results.runs[step.name].command,
            "seconds": round(seconds[step.name], 2),
        }
        for step in results.steps
    ]
    return pd.DataFrame(rows)
