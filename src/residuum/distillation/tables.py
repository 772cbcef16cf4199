"""The curves and counts of a run as tidy tables."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch

from residuum.distillation.students import parameter_counts

if TYPE_CHECKING:
    from residuum.distillation.networks import LanguageModel
    from residuum.distillation.preparation import Prepared

COUNTERS = ("step", "tokens", "seconds")


def loss_table(history: pd.DataFrame, turns: int) -> pd.DataFrame:
    """step, student, language, term, value: one row for each term of each student at each logged step.

    `turns` are the moves of weights in a step, which are several where students are moved one after the other.
    """
    long = history.melt(id_vars=list(COUNTERS), var_name="name", value_name="value").dropna(subset="value")
    parts = long["name"].str.partition(" ")
    subject = parts[2].str.partition("/")
    table = pd.DataFrame(
        {
            "step": long["step"] // turns,
            "student": subject[0],
            "language": subject[2],
            "term": parts[0],
            "value": long["value"],
            "tokens": long["tokens"],
            "seconds": long["seconds"],
        }
    )
    return table.sort_values(["step", "student", "language", "term"], kind="stable").reset_index(drop=True)


def score_table(during: pd.DataFrame, final: Mapping[str, float], steps: int, turns: int) -> pd.DataFrame:
    """step, score, subject, value; the last step's scores are always there."""
    rows = during.to_dict("records") if not during.empty else []
    rows = [row for row in rows if row["step"] != steps] + [{"step": steps, **final}]
    tidy = [
        (int(row["step"]) // turns, *str(name).split(" ", 1), float(value))
        for row in rows
        for name, value in row.items()
        if name != "step"
    ]
    return pd.DataFrame(tidy, columns=["step", "score", "subject", "value"])


def trimming_table(prepared: Prepared) -> dict[str, dict[str, Any]]:
    """Of each student with a trimmed vocabulary: its pieces, the parameters that were saved, what is left unwritten."""
    before = prepared.teacher.model.module.config.vocab_size
    return {
        student.name: {
            "pieces before": before,
            "pieces after": len(prepared.vocabularies[student.name].kept),
            "parameters saved": saved_parameters(student.model, before),
            "characters without a piece become": prepared.vocabularies[student.name].fallback,
        }
        for student in prepared.students
        if student.name in prepared.vocabularies
    }


def saved_parameters(student: LanguageModel, pieces: int) -> int:
    """How many parameters more the student would have with `pieces` pieces, by a twin without memory."""
    config = copy.deepcopy(student.module.config)
    config.vocab_size = pieces
    with torch.device("meta"):
        twin: Any = type(student.module)(config)
    own = dict(student.module.named_parameters())
    return sum(p.numel() - own[name].numel() for name, p in twin.named_parameters() if name in own)


def parameter_table(prepared: Prepared) -> pd.DataFrame:
    """part, parameters, layers, width, pieces: the teacher, each student, what they share, all students together."""
    counts = parameter_counts({student.name: student.model for student in prepared.students})
    models = {"teacher": prepared.teacher.model, **{student.name: student.model for student in prepared.students}}
    rows = []
    for part, n in {"teacher": models["teacher"].module.num_parameters(), **counts}.items():
        model = models.get(part)
        shape = (model.n_layers, model.hidden_size, model.module.config.vocab_size) if model else (None, None, None)
        rows.append((part, n, *shape))
    table = pd.DataFrame(rows, columns=["part", "parameters", "layers", "width", "pieces"])
    return table.astype({"layers": "Int64", "width": "Int64", "pieces": "Int64"})
