"""The second stage: the student that answers, with what was learnt, is asked, then tuned on a few examples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from residuum.adaptation.changes import Applied, Change, applied
from residuum.adaptation.corpora import TargetParts
from residuum.adaptation.folders import is_saved, save_adapted
from residuum.adaptation.parts import learn_only, learn_over_frozen
from residuum.adaptation.strategies import Strategy
from residuum.adaptation.students import Student, logits_of
from residuum.adaptation.zero_shot import Work
from residuum.corpus import Corpus
from residuum.errors import SettingError
from residuum.storage.results import Run, finished_run, write_run
from residuum.training import discard_checkpoints
from residuum.training.learning import Lesson, learn

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel

COMMAND = "adapt target"


@dataclass(frozen=True)
class FewShot:
    """How many examples of the target language are given (each number in turn), and how often they are drawn."""

    sizes: tuple[int, ...] = ()
    draws: int = 3
    save: bool = False  # whether what the student became is written too

    def __post_init__(self) -> None:
        if self.draws < 1 or min(self.sizes, default=1) < 1 or len(set(self.sizes)) < len(self.sizes):
            raise SettingError(
                f"few_shot is {', '.join(map(str, self.sizes))} with {self.draws} draws; expected different numbers "
                "from 1 on, and at least 1 draw."
            )

    def check_pool(self, pool: Corpus) -> None:
        """Raise an error unless a pool has enough examples."""
        if max(self.sizes, default=0) > len(pool):
            raise SettingError(f"few_shot is {max(self.sizes)}, but {pool.name} has only {len(pool):,} examples.")


@dataclass(frozen=True, eq=False)
class Target:
    """The student that answers in a language, the parts of that language, and what was learnt from the source language.

    It is the target student, but of `full-source` the source student: no other has learnt the task.
    """

    language: str
    strategy: Strategy
    student: Student
    parts: TargetParts
    change: Change
    config: dict[str, Any]  # what says which change it is


def score_target(work: Work, target: Target, few_shot: FewShot, out: Path, seed: int) -> pd.DataFrame:
    """Score the student with the change in it as it is (k = 0), and after k examples of each draw.

    For each k and draw the student begins anew. The columns are k, draw, part, metric and value.
    """
    import pandas as pd

    network = target.student.network(seed)
    tables = [_scored(work, target, network, out / "zero-shot", seed)]
    for k in few_shot.sizes:
        for draw in range(few_shot.draws):
            folder = out / f"k-{k}" / f"draw-{draw}"
            tables.append(_scored(work, target, network, folder, seed, k, draw, save=few_shot.save))
    return pd.concat(tables, ignore_index=True)


def drawn(pool: Corpus, k: int, seed: int, draw: int) -> Corpus:
    """k examples of a pool; those of a smaller k are among those of a larger one."""
    order = np.random.default_rng((seed, draw)).permutation(len(pool))
    return pool.select(order[:k].tolist())


def _scored(
    work: Work,
    target: Target,
    network: PreTrainedModel,
    out: Path,
    seed: int,
    k: int = 0,
    draw: int = 0,
    *,
    save: bool = False,
) -> pd.DataFrame:
    """The scores after k examples, from the folder if they are there."""
    config = {**target.config, "answering": target.student.identity, "k": k, "draw": draw, "seed": seed}
    if (run := finished_run(out, COMMAND, config, fresh=work.fresh)) and (not save or is_saved(out)):
        discard_checkpoints(out)  # a kill may have come before
        return run.tables["scores"]
    parts = target.parts.scored
    with applied(network, target.change) as there:
        if k:
            _tune(work, target, there, drawn(target.parts.pool, k, seed, draw), out, config, seed + draw)
            parts = {"test": target.parts.test} if target.parts.pool_is_dev else parts
        if save:
            student, served = target.student, {target.language: target.student.path}
            save_adapted(out, target.strategy, student, network, there.current(), served)
        scores = _frame(target.student, network, parts, k, draw)
    write_run(out, Run(COMMAND, config, tables={"scores": scores}))
    discard_checkpoints(out)
    return scores


def _tune(
    work: Work, target: Target, there: Applied, examples: Corpus, out: Path, config: dict[str, Any], seed: int
) -> None:
    """Train what the strategy changed, and only that, on a few examples; the last weights are taken."""
    if target.strategy.family == "freeze":
        learn_over_frozen(there.network, there.layers)
    else:
        learn_only(there.network, there.changed)
    student = target.student
    part = student.encoded(examples)
    reader = logits_of(there.network)
    learn(
        there.modules,
        [reader],
        Lesson(student.problem, part, part, student.collator, student.collator),
        work.settings.few_shot(len(examples)),
        out,
        config={"adaptation": config, "examples": examples.fingerprint},
        seed=seed,
        device=work.device,
        fresh=work.fresh,
        progress=work.progress,
    )


def _frame(student: Student, network: PreTrainedModel, parts: dict[str, Corpus], k: int, draw: int) -> pd.DataFrame:
    import pandas as pd

    rows = [
        {"k": k, "draw": draw, "part": part, "metric": metric, "value": value}
        for part, corpus in parts.items()
        for metric, value in student.scores(network, corpus).items()
    ]
    return pd.DataFrame(rows)
