"""Runs as `study` writes them, with made-up findings, in folders as a study leaves them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from report_runs import comparison_run

from residuum.storage.results import Run, write_run

VERDICTS = ("holds", "does not hold", "inconclusive", "not measured")


def study_run(name: str = "similarity") -> Run:
    """A study with one finding of each verdict, the first three with two cases."""
    known = {"holds": 0.4, "does not hold": -0.4, "inconclusive": 0.1}
    cases = [
        {"where": "§1", "finding": sentence(verdict), "case": case, "value": v, "low": v - 0.2, "high": v + 0.2}
        for verdict, value in known.items()
        for case, v in (("teacher, upos", value), ("teacher, <deprel>", value + 0.05))
    ]
    findings = [_finding(verdict, known.get(verdict)) for verdict in VERDICTS]
    return Run(
        "study",
        {"study": name, "scale": "sample", "models": {"teacher": "folder"}, "seed": 0},
        {"title": f"What does {name} tell?", "source": "Nobody (2000)", "steps": 1, **dict.fromkeys(VERDICTS, 1)},
        {
            "findings": pd.DataFrame(findings),
            "cases": pd.DataFrame(cases).assign(agrees=[row["value"] > 0 for row in cases]),
            "exhibits": pd.DataFrame([_exhibit()]),
            "figure-1": pd.DataFrame({"layer": [0, 1, 2], "model": "teacher", "value": [0.1, 0.2, 0.4]}),
            "trained": pd.DataFrame([_trained(), _trained(left_out="top:2", score=0.7), _trained(task="stsb")]),
            "steps": pd.DataFrame([{"step": "compare", "title": "Layers", "command": "compare", "seconds": 1.5}]),
        },
        environment={"python": "3.11"},
    )


def write_study(folder: Path, name: str) -> list[Path]:
    """A study's folder with the folder of its step in it."""
    step = comparison_run({"teacher": 4, "teacher (random)": 4}, ("neuron", "cka"))
    return [write_run(folder, study_run(name)), write_run(folder / "compare", step)]


def sentence(verdict: str) -> str:
    """Long enough that a page has to make room for it."""
    return f"This finding of the document, which takes as many words as findings do, {verdict} for our models."


def _finding(verdict: str, value: float | None) -> dict[str, object]:
    number = float("nan") if value is None else value
    return {
        "where": "§1",
        "finding": sentence(verdict),
        "document": float("nan"),
        "ours": number + 0.025,
        "low": number - 0.2,
        "high": number + 0.25,
        "quantity": "Difference in CKA",
        "rule": "above 0",
        "bound": 0.0,
        "cases": "" if value is None else "2 of 2" if value > 0 else "0 of 2",
        "verdict": verdict,
        "note": "there is one model" if value is None else "",
    }


def _exhibit() -> dict[str, object]:
    row = {"document": "Figure 1", "shows": "Layers", "table": "figure-1", "rows": 3, "step": "compare"}
    drawing = {"shape": "lines", "x": "layer", "y": "value", "by": "model", "panel": ""}
    return {**row, "command": "compare", "steps": "compare", **drawing}


def _trained(task: str = "sst2", left_out: str = "", score: float = 0.9) -> dict[str, object]:
    accuracy = task == "sst2"
    return {
        "model": "teacher",
        "task": task,
        "left_out": left_out,
        "frozen": "",
        "metric": "accuracy" if accuracy else "pearson",
        "score": score,
        "low": score - 0.05 * accuracy,
        "high": score + 0.05 * accuracy,
        "majority": 0.5 if accuracy else float("nan"),
        "seeds": 1,
        "learnt": 900,
    }
