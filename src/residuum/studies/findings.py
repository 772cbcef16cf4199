"""The tables of a study: the document's findings or numbers beside ours, and every case behind them."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from residuum.storage.results import Run
from residuum.studies.declarations import Claim, Document, Printed, Results
from residuum.studies.kits import Kit
from residuum.studies.verdicts import DOES_NOT_HOLD, HOLDS, Measured, agreeing_cases, verdict

COLUMNS = ("where", "finding", "verdict", "ours", "low", "high", "rule", "cases", "document", "bound", "note")
CASE_COLUMNS = ("where", "finding", "case", "value", "low", "high", "agrees")


def finding_tables(document: Document, results: Results, kit: Kit) -> dict[str, pd.DataFrame]:
    """`findings`: a row for each finding; then, where the document's own models learnt from its own data, for each
    number that it prints. `cases`: a row for each model or task that speaks to a finding."""
    found = [(claim, *_measured(claim, results)) for claim in document.claims]
    rows = [_claim_row(*one) for one in found]
    if kit.scale.name == "paper":
        rows += [_number_row(one, run) for one in document.printed if (run := _same_thing(one, results)) is not None]
    cases = [row for claim, measured, _ in found if measured for row in _case_rows(claim, measured)]
    return {
        "findings": pd.DataFrame(rows, columns=pd.Index(COLUMNS)),
        "cases": pd.DataFrame(cases, columns=pd.Index(CASE_COLUMNS)),
    }


def _measured(claim: Claim, results: Results) -> tuple[Measured | None, str]:
    """What was measured for a finding, and what is to be said of it."""
    found = claim.measure(results)
    if isinstance(found, str):
        return None, found
    return found, "nothing was measured that could tell" if found is None else found.note


def _claim_row(claim: Claim, measured: Measured | None, note: str) -> dict[str, Any]:
    return {
        "where": claim.where,
        "finding": claim.finding,
        "document": math.nan,  # other models or other data: its number is not comparable
        "ours": math.nan if measured is None else measured.mean,
        "low": math.nan if measured is None else measured.low,
        "high": math.nan if measured is None else measured.high,
        "rule": str(claim.rule),
        "bound": claim.rule.bound,
        "cases": "" if measured is None else f"{agreeing_cases(measured, claim.rule)} of {len(measured.cases)}",
        "verdict": verdict(measured, claim.rule),
        "note": note,
    }


def _case_rows(claim: Claim, measured: Measured) -> list[dict[str, Any]]:
    return [
        {
            "where": claim.where,
            "finding": claim.finding,
            "case": name,
            "value": one.value,
            "low": one.low,
            "high": one.high,
            "agrees": claim.rule.agrees(one.value),
        }
        for name, one in measured.cases.items()
    ]


def _same_thing(printed: Printed, results: Results) -> Run | None:
    """Our run of the document's model on the document's data, if there is one."""
    found = results.of(**printed.step, model=printed.model)
    return next((run for _, run in found if printed.data.is_of(run)), None)


def _number_row(printed: Printed, run: Run) -> dict[str, Any]:
    ours = printed.number(run)
    agrees = abs(ours - printed.value) <= printed.tolerance
    return {
        "where": printed.where,
        "finding": printed.what,
        "document": printed.value,
        "ours": ours,
        "low": math.nan,
        "high": math.nan,
        "rule": f"± {printed.tolerance:g}",
        "bound": math.nan,
        "cases": f"{int(agrees)} of 1",
        "verdict": HOLDS if agrees else DOES_NOT_HOLD,
        "note": f"{printed.model} on {printed.data.name}, as the document",
    }
