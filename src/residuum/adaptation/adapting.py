"""`adapt`: carry a task from a source language to target languages, from student to student."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residuum.adaptation.corpora import TransferCorpora
from residuum.adaptation.few_shot import FewShot, Target, score_target
from residuum.adaptation.files import read_transfer, transfer_task
from residuum.adaptation.folders import saved_change
from residuum.adaptation.settings import AdaptationSettings
from residuum.adaptation.strategies import Strategy, named_strategies
from residuum.adaptation.students import Student
from residuum.adaptation.tables import below_each_other, mean_scores, strategy_averages, strategy_table
from residuum.adaptation.teaching import teacher_answers
from residuum.adaptation.zero_shot import Work, learn_zero_shot
from residuum.corpus.tasks import Task
from residuum.errors import SettingError
from residuum.storage.results import Result, Run, finished_run, write_run
from residuum.training.problems import Problem, problem_of

if TYPE_CHECKING:
    import pandas as pd

COMMAND = "adapt"


@dataclass(frozen=True, eq=False)
class Adaptation(Result):
    """What strategies made of the students: how they score in the target languages, and where they are."""

    out: Path
    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """The scores over seeds and draws, as `means` has them."""
        return self.run.tables["means"]

    @property
    def scores(self) -> pd.DataFrame:
        """strategy, language, seed, k, draw, part, metric, value."""
        return self.run.tables["scores"]

    @property
    def means(self) -> pd.DataFrame:
        """strategy, language, k, part, metric, value, low, high, n: over seeds and draws."""
        return self.run.tables["means"]

    def table(self, part: str = "test", k: int = 0) -> pd.DataFrame:
        """Scores after k examples (none: zero-shot), a row a language and a column a strategy."""
        return strategy_table(self.means, self.run.summary["metric"], part, k)


def adapt(
    source: str | Path,
    target: str | Path | Mapping[str, str | Path] | None = None,
    *,
    task: str | Task,
    out: str | Path,
    data: TransferCorpora | str | Path,
    language: str | Sequence[str] | None = None,
    strategy: str | Sequence[str] = "full-target",
    teacher: str | Path | None = None,
    keep: str | None = None,
    few_shot: Sequence[int] = (),
    draws: int = 3,
    save_few_shot: bool = False,
    seeds: int = 1,
    seed: int = 0,
    settings: AdaptationSettings | None = None,
    device: str = "auto",
    fresh: bool = False,
    progress: bool = True,
    say: Callable[[str], None] | None = None,
) -> Adaptation:
    """Teach students a task in the source language by one or more strategies, and score them in target languages.

    `target` is a student for each language ({"tr": folder}), one student for `language`, or nothing: then `source` is a
    multilingual model that serves as both, of which `keep` may leave some layers (`top:6`, `bottom:6`, `alternate`).
    `strategy` is a name, several, or `all`. `data` is a folder with files such as `train-en.tsv` and `dev-tr.tsv`, or
    what `read_transfer` gave. `teacher` is a model fine-tuned on the task, whose logits the students learn too.
    `few_shot` are numbers of target examples that what answers is tuned on afterwards, `draws` times each;
    `seeds` is how often all is done. Every strategy has its folder in `out`.
    """
    _check_one_process()
    paths = target_students(source, target, language)
    strategies = named_strategies(strategy, one_model=target is None)
    few, settings = FewShot(tuple(few_shot), draws, save_few_shot), settings or AdaptationSettings()
    task = transfer_task(task)
    corpora = data if isinstance(data, TransferCorpora) else read_transfer(task, data, list(paths), seed=seed)
    check_languages(paths, corpora, few)
    problem = problem_of(task, corpora.train)
    group = group_of(Student(str(source), problem, keep, settings.max_length, device), paths, teacher)
    common = {"task": task.name, "data": corpora.fingerprints(), **group.teaching, **settings.as_config()}
    plan = {"strategies": [one.name for one in strategies], "few_shot": list(few.sizes), "draws": few.draws}
    config = {**common, **group.identities, **plan, "seeds": seeds_from(seeds, seed)}
    out = Path(out)
    if run := finished_run(out, COMMAND, config, fresh=fresh):
        return Adaptation(out, run)
    answers = None if group.teacher is None else teacher_answers(group.teacher, corpora.train)
    work = Work(corpora, settings, common, answers, device, fresh, progress, say)
    tables = _tables(work, group, strategies, few, config["seeds"], out)
    run = Run(COMMAND, config, _summary(problem, corpora, tables), tables)
    write_run(out, run)
    return Adaptation(out, run)


@dataclass(frozen=True, eq=False)
class Group:
    """The source student, a target student for each language, and the teacher if there is one."""

    source: Student
    targets: Mapping[str, Student]
    teacher: Student | None

    @property
    def identities(self) -> dict[str, Any]:
        """What the students are, for a run's config."""
        targets = {name: student.identity for name, student in self.targets.items()}
        return {"source": self.source.identity, "targets": targets}

    @property
    def teaching(self) -> dict[str, Any]:
        """Who the teacher is, for a run's config."""
        return {"teacher": None if self.teacher is None else self.teacher.identity}

    def trainings(self, strategy: Strategy) -> Iterator[tuple[str, list[Student], list[str]]]:
        """Each training of a strategy: its folder, the students that read, and the languages that it serves."""
        if strategy.for_any_target:
            yield strategy.name, [self.source], list(self.targets)
            return
        for language, target in self.targets.items():
            readers = [self.source, target] if strategy.reads == "joint" else [target]
            yield f"{strategy.name}/{language}", readers, [language]

    def answering(self, strategy: Strategy, language: str) -> Student:
        """The student that answers in a language."""
        return self.source if strategy.evaluates_source else self.targets[language]


def group_of(source: Student, targets: Mapping[str, str | Path], teacher: str | Path | None) -> Group:
    """The students of a run; nothing is taken off the teacher."""
    return Group(
        source,
        {language: replace(source, path=str(path), _encoded={}) for language, path in targets.items()},
        None if teacher is None else replace(source, path=str(teacher), keep=None, _encoded={}),
    )


def _tables(
    work: Work, group: Group, strategies: Sequence[Strategy], few_shot: FewShot, seeds: Sequence[int], out: Path
) -> dict[str, pd.DataFrame]:
    """Train and score every strategy from every seed."""
    scores, curves, trainings = [], [], []
    for strategy in strategies:
        for name, readers, languages in group.trainings(strategy):
            for seed in seeds:
                folder = out / name / f"seed-{seed}"
                served = {language: group.answering(strategy, language) for language in languages}
                targets = {language: student.path for language, student in served.items()}
                run = learn_zero_shot(work, strategy, readers, targets, folder, seed)
                change = saved_change(folder, readers[0].problem)
                labels = {"strategy": strategy.name, "language": ",".join(languages), "seed": seed}
                trainings.append({**labels, **run.summary, "folder": str(folder.relative_to(out))})
                curves.append((labels, run.tables["curves"]))
                for language, student in served.items():
                    target = Target(language, strategy, student, work.corpora.targets[language], change, run.config)
                    found = score_target(work, target, few_shot, folder / "scores" / language, seed)
                    scores.append(({**labels, "language": language}, found))
    import pandas as pd

    every = below_each_other(scores)
    return {
        "scores": every,
        "means": mean_scores(every),
        "trainings": pd.DataFrame(trainings),
        "curves": below_each_other(curves),
    }


def _summary(problem: Problem, corpora: TransferCorpora, tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    metric, means = problem.metrics[0], tables["means"]
    sizes = {
        language: {"dev": len(parts.dev), "test": len(parts.test), "few-shot pool": len(parts.pool)}
        for language, parts in corpora.targets.items()
    }
    return {
        "task": problem.task.name,
        "kind": problem.kind,
        "metric": metric,
        **{f"{part} {metric}": strategy_averages(means, metric, part) for part in ("dev", "test")},
        "training examples": len(corpora.train),
        "target examples": sizes,
        "notes": list(corpora.notes),
        "seconds": round(sum(tables["trainings"]["seconds"].tolist()), 3),
    }


def target_students(
    source: str | Path, target: str | Path | Mapping[str, str | Path] | None, language: str | Sequence[str] | None
) -> dict[str, str | Path]:
    """A student for each target language."""
    if isinstance(target, Mapping):
        if language is not None or not target:
            raise SettingError("Target students are given by language; leave language out and name at least one.")
        return dict(target)
    languages = [language] if isinstance(language, str) else list(language or ())
    if not languages or (target is not None and len(languages) > 1):
        raise SettingError(
            f"The target languages are {', '.join(languages) or 'not given'}; expected one for a target student, or at "
            "least one for a model that is source and target."
        )
    return dict.fromkeys(languages, source if target is None else target)


def check_languages(paths: Mapping[str, Any], corpora: TransferCorpora, few_shot: FewShot) -> None:
    """Raise an error unless there is data for each language, and enough of it for few-shot training."""
    if missing := [language for language in paths if language not in corpora.targets]:
        there = ", ".join(corpora.targets)
        raise SettingError(f"There is no data for the target language {missing[0]}; the corpora have {there}.")
    for language in paths:
        few_shot.check_pool(corpora.targets[language].pool)


def seeds_from(count: int, first: int) -> list[int]:
    """So many seeds from the first on."""
    if count < 1 or first < 0:
        raise SettingError(f"{count} seeds from {first} on; expected at least one, from 0 on.")
    return list(range(first, first + count))


def _check_one_process() -> None:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SettingError("adapt runs in one process; start it without torchrun.")
