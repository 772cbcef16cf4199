"""The table of a study: the document's finding or number, ours, and whether it held."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from residuum.studies.declarations import Claim, Document, Printed, Results
from residuum.studies.kits import Kit
from residuum.studies.verdicts import CANNOT_BE_SAID, DID_NOT_HOLD, HELD, agreeing_cases, verdict

COLUMNS = ("where", "finding", "document", "ours", "lowest", "highest", "rule", "cases", "verdict", "note")


def finding_table(document: Document, results: Results, kit: Kit) -> pd.DataFrame:
    """A row for each finding; then, where the document's own models read all of the data, for each number it prints."""
    rows = [_claim_row(claim, results) for claim in document.claims]
    if kit.scale.name == "paper":
        rows += [_number_row(one, results) for one in document.printed if one.model in kit.models]
    return pd.DataFrame(rows, columns=pd.Index(COLUMNS))


def _claim_row(claim: Claim, results: Results) -> dict[str, Any]:
    found = claim.measure(results)
    measured = None if isinstance(found, str) else found
    note = found if isinstance(found, str) else "" if measured is None else measured.note
    values = () if measured is None else measured.values
    return {
        "where": claim.where,
        "finding": claim.finding,
        "document": math.nan,  # other models or other data: its number is not comparable
        "ours": math.nan if measured is None else measured.mean,
        "lowest": min(values, default=math.nan),
        "highest": max(values, default=math.nan),
        "rule": str(claim.rule),
        "cases": "" if measured is None else f"{agreeing_cases(measured, claim.rule)} of {len(values)}",
        "verdict": verdict(measured, claim.rule),
        "note": note or ("" if measured else "nothing was measured that could tell"),
    }


def _number_row(printed: Printed, results: Results) -> dict[str, Any]:
    ours = printed.measure(results)
    ours = math.nan if ours is None else ours
    known = not math.isnan(ours)
    agrees = known and abs(ours - printed.value) <= printed.tolerance
    return {
        "where": printed.where,
        "finding": printed.what,
        "document": printed.value,
        "ours": ours,
        "lowest": math.nan,
        "highest": math.nan,
        "rule": f"± {printed.tolerance:g}",
        "cases": f"{int(agrees)} of 1" if known else "",
        "verdict": (HELD if agrees else DID_NOT_HOLD) if known else CANNOT_BE_SAID,
        "note": f"{printed.model}, as the document",
    }
