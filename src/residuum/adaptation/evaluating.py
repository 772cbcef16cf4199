"""How well does what `adapt` wrote answer another part, or another language?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from residuum.adaptation.files import read_part
from residuum.adaptation.folders import load_adapted
from residuum.corpus import Corpus
from residuum.models.surgery import files_fingerprint
from residuum.storage.results import Result, Run, finished_run, write_run

if TYPE_CHECKING:
    import pandas as pd

COMMAND = "evaluate adapted"


@dataclass(frozen=True, eq=False)
class AdaptedScores(Result):
    """How a student that has learnt a task answered a file."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """One row a score of the task: metric and value."""
        return self.run.tables["scores"]


def evaluate_adapted(
    folder: str | Path,
    data: Corpus | str | Path,
    *,
    student: str | Path | None = None,
    limit: int | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    fresh: bool = False,
) -> AdaptedScores:
    """Score a folder that `adapt` wrote on a file or corpus of its task.

    `student` is the one to put what was learnt into, where the folder serves several.
    """
    import pandas as pd

    adapted = load_adapted(folder, student, device=device)
    corpus = data if isinstance(data, Corpus) else read_part(adapted.problem.task, data, limit=limit)
    config = {
        "folder": str(folder),
        "files": files_fingerprint(folder),
        "student": adapted.student.identity,
        "data": f"{corpus.name} {corpus.fingerprint}",
    }
    if out is not None and (run := finished_run(out, COMMAND, config, fresh=fresh)):
        return AdaptedScores(run)
    scores = adapted.student.scores(adapted.network, corpus)
    part = adapted.student.encoded(corpus)
    table = pd.DataFrame({"metric": list(scores), "value": list(scores.values())})
    summary = {"task": adapted.problem.task.name, **scores, "examples": len(part), "cut short": part.n_cut}
    run = Run(COMMAND, config, summary, {"scores": table})
    if out is not None:
        write_run(out, run)
    return AdaptedScores(run)
