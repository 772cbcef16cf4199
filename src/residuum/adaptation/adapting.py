"""`adapt`: transfer a task from a source language to target languages, from student to student."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from residuum.adaptation.adapted import saved_change
from residuum.adaptation.corpora import TransferCorpora, read_transfer, transfer_task
from residuum.adaptation.settings import AdaptSettings, TransferFiles
from residuum.adaptation.stages import AdaptationContext, TransferTarget, learn_zero_shot, score_target
from residuum.adaptation.strategies import Strategy, named_strategies
from residuum.adaptation.students import AdaptationModel, teacher_answers
from residuum.corpus.tasks import Task
from residuum.costs import exactly
from residuum.errors import MemoryLimitError, SettingError
from residuum.maths.statistics import jackknife
from residuum.models.loading import WEIGHT_BYTES, check_weights, stored_weights
from residuum.settings import command, named_values
from residuum.storage.files import folder_name
from residuum.storage.results import Result, Run, finished_run, read_run, write_run
from residuum.training.encoding import Problem, problem_of
from residuum.training.processes import is_main_process, wait_for_others

COMMAND = "adapt"
KEYS = ["strategy", "language", "k", "part", "metric"]
RANGES = dict.fromkeys(("pearson", "spearman", "matthews"), (-1.0, 1.0)) | {"mean_squared_error": (0.0, np.inf)}
SHARE = (0.0, 1.0)  # the range of all other metrics


@dataclass(frozen=True, eq=False)
class Adaptation(Result):
    """The scores of the adapted students in the target languages, and their folders."""

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
        """Scores after k examples (0: zero-shot), one row per language and one column per strategy."""
        return strategy_table(self.means, self.run.summary["metric"], part, k)

    def text(self) -> str:
        """One table per part without target examples, then one per number of them."""
        if not is_main_process():
            return ""
        metric = self.run.summary["metric"]
        runs = {row["k"]: row["n"] for row in self.means.to_dict("records") if row["k"] and row["part"] == "test"}
        tables = {f"{part} {metric}, zero-shot": self.table(part) for part in ("dev", "test")}
        for k, n in sorted(runs.items()):
            title = f"test {metric}, {k} examples of the target language" + (f", mean of {n} runs" if n > 1 else "")
            tables[title] = self.table("test", k)
        lines = [
            f"{title}\n{table.set_index('language').T.to_string(float_format='{:.3f}'.format)}"
            for title, table in tables.items()
        ]
        several = any(n > 1 for n in runs.values())
        lines.append(baseline_text(self.run.summary))
        return "\n".join([*lines, *(["Intervals over the runs are in the table `means`."] if several else [])])


@command(AdaptSettings)
def adapt(settings: AdaptSettings) -> Adaptation:
    """Train students on a task in the source language by one or more strategies, and score them in target languages.

    `target` is one student per language ({"tr": folder}), one student for `language`, or None: then `source` is a
    multilingual model that serves as both. `data` is a folder with files such as `train-en.tsv` and `dev-tr.tsv`, or
    what `read_transfer` returned. With a `teacher` fine-tuned on the task, students learn its logits too. `few_shot`
    are numbers of target examples to tune on afterwards, with `draws` random samples each. Every strategy has its
    folder in `out`. Under `torchrun`, W processes train together with W times the batch; the main one scores and
    writes.
    """
    paths = target_students(settings)
    one_model = settings.target is None
    strategies = named_strategies(settings.strategy, one_model=one_model)
    _check_memory(settings, paths, strategies)
    task = transfer_task(settings.task)
    corpora = _corpora(settings, task, list(paths))
    problem = problem_of(task, corpora.train)
    source = AdaptationModel(str(settings.source), problem, settings.keep_layers, settings.max_length, settings.device)
    group = StudentGroup.of(source, paths, settings.teacher)
    teacher = None if group.teacher is None else group.teacher.identity
    common = {"task": task.name, "data": corpora.fingerprints(), "teacher": teacher, **settings.training_identity()}
    config = {
        **settings.identity(),
        **common,
        "source": group.source.identity,
        "targets": {language: student.identity for language, student in group.targets.items()},
        "strategies": [strategy.name for strategy in strategies],
        "seeds": list(range(settings.seed, settings.seed + settings.seeds)),
    }
    assert settings.out is not None  # checked by the record
    out = Path(settings.out)
    run = finished_run(out, COMMAND, config, fresh=settings.fresh)
    wait_for_others(settings.device)  # none writes before all have looked
    if run:
        return Adaptation(out, run)
    answers = None if group.teacher is None else teacher_answers(group.teacher, corpora.train)
    context = AdaptationContext(corpora, settings, common, answers)
    tables = _tables(context, group, strategies, config["seeds"], out)
    if is_main_process():
        summary = {**_summary(problem, corpora, tables), **constant_scores(source, corpora)}
        write_run(out, Run(COMMAND, config, summary, tables))
    wait_for_others(settings.device)
    return Adaptation(out, read_run(out))


def target_students(settings: AdaptSettings) -> dict[str, Any]:
    """One student per target language."""
    target, languages = named_values(settings.target), settings.language
    if isinstance(target, Mapping):
        if languages or not target:
            raise SettingError("Target students are given by language; leave language out and name at least one.")
        return dict(target)
    if isinstance(target, list | tuple):
        raise SettingError(f"target is {' and '.join(map(str, target))}; write LANGUAGE=MODEL where there are several.")
    if not languages or (target is not None and len(languages) > 1):
        raise SettingError(
            f"The target languages are {', '.join(languages) or 'not given'}; expected one for a target student, or at "
            "least one for a model that is source and target."
        )
    return dict.fromkeys(languages, settings.source if target is None else target)


def _check_memory(settings: AdaptSettings, paths: Mapping[str, str | Path], strategies: Sequence[Strategy]) -> None:
    """Refuse what cannot fit: weights of the readers, gradients and two moments of all that learns, one model read."""
    if settings.max_memory is None:
        return
    students = [settings.source, *paths.values()]
    for student in students:
        check_weights([student], settings.max_memory)
    largest = WEIGHT_BYTES * max(stored_weights(student) or 0 for student in students)
    for strategy in strategies:
        readers = 2 if strategy.reads == "joint" else 1
        learning = 3 if strategy.family in ("full", "sparse-delta") else 0
        needed = largest * (readers + learning + 1)
        if needed > settings.max_memory:
            raise MemoryLimitError(
                f"Training by {strategy.name} needs {exactly(needed)} of memory, but --max-memory allows "
                f"{exactly(settings.max_memory)}. Allow more, or choose a strategy that trains less."
            )


def _corpora(settings: AdaptSettings, task: Task, languages: list[str]) -> TransferCorpora:
    """The data of the task, with enough of it for each language."""
    corpora = settings.data
    if not isinstance(corpora, TransferCorpora):
        corpora = read_transfer(task, settings.data, languages, seed=settings.seed, **settings.options(TransferFiles))
    for language in languages:
        if language not in corpora.targets:
            known = ", ".join(corpora.targets)
            raise SettingError(f"There is no data for the target language {language}; the corpora have {known}.")
        pool, most = corpora.targets[language].pool, max(settings.few_shot, default=0)
        if most > len(pool):
            raise SettingError(f"few_shot is {most}, but {pool.name} has only {len(pool):,} examples.")
    return corpora


@dataclass(frozen=True, eq=False)
class StudentGroup:
    """The source student, one target student per language, and the teacher if there is one."""

    source: AdaptationModel
    targets: Mapping[str, AdaptationModel]
    teacher: AdaptationModel | None

    @classmethod
    def of(cls, source: AdaptationModel, targets: Mapping[str, str | Path], teacher: str | Path | None) -> StudentGroup:
        """The models of a run; the teacher keeps all its layers."""
        return cls(
            source,
            {language: replace(source, path=str(path), _encoded={}) for language, path in targets.items()},
            None if teacher is None else replace(source, path=str(teacher), keep_layers=None, _encoded={}),
        )

    def trainings(self, strategy: Strategy) -> Iterator[tuple[str, list[AdaptationModel], list[str]]]:
        """Each training of a strategy: its folder, the students that read, and the languages that it serves."""
        if strategy.for_any_target:
            yield strategy.name, [self.source], list(self.targets)
            return
        for language, target in self.targets.items():
            readers = [self.source, target] if strategy.reads == "joint" else [target]
            yield f"{strategy.name}/{language}", readers, [language]


def _tables(
    context: AdaptationContext, group: StudentGroup, strategies: Sequence[Strategy], seeds: Sequence[int], out: Path
) -> dict[str, pd.DataFrame]:
    """Train and score every strategy from every seed."""
    scores, curves, trainings = [], [], []
    jobs = [(strategy, *training) for strategy in strategies for training in group.trainings(strategy)]
    for strategy, name, readers, languages in jobs:
        for seed in seeds:
            folder = out / name / f"seed-{seed}"
            served = {
                language: group.source if strategy.evaluates_source else group.targets[language]
                for language in languages
            }
            targets = {language: student.path for language, student in served.items()}
            run = learn_zero_shot(context, strategy, readers, targets, folder, seed)
            change = saved_change(folder, readers[0].problem)
            labels = {"strategy": strategy.name, "language": ",".join(languages), "seed": seed}
            trainings.append({**labels, **run.summary, "folder": str(folder.relative_to(out))})
            curves.append(_labelled(labels, run.tables["curves"]))
            for language, student in served.items():
                parts = context.corpora.targets[language]
                target = TransferTarget(language, strategy, student, parts, change, run.config)
                table = score_target(context, target, folder / "scores" / folder_name(language), seed)
                scores.append(_labelled({**labels, "language": language}, table))
    every = pd.concat(scores, ignore_index=True)
    return {
        "scores": every,
        "means": mean_scores(every),
        "trainings": pd.DataFrame(trainings),
        "curves": pd.concat(curves, ignore_index=True),
    }


def _labelled(labels: Mapping[str, Any], table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({**labels, **{str(name): table[name] for name in table.columns}})


def _summary(problem: Problem, corpora: TransferCorpora, tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    metric = problem.metrics[0]
    averages = {}
    for part in ("dev", "test"):  # the last row of each table is the average over languages
        table = strategy_table(tables["means"], metric, part).set_index("language")
        averages[f"{part} {metric}"] = {str(name): float(table[name].iloc[-1]) for name in table.columns}
    return {
        "task": problem.task.name,
        "kind": problem.kind,
        "metric": metric,
        **averages,
        "training examples": len(corpora.train),
        "target examples": {
            language: {"dev": len(parts.dev), "test": len(parts.test), "few-shot pool": len(parts.pool)}
            for language, parts in corpora.targets.items()
        },
        "notes": list(corpora.notes),
        "seconds": round(sum(tables["trainings"]["seconds"].tolist()), 3),
    }


def constant_scores(source: AdaptationModel, corpora: TransferCorpora) -> dict[str, Any]:
    """Scores of a constant answer: the most frequent label of the training part, or the mean, averaged over languages.

    `test METRIC baseline` and `dev METRIC baseline`.
    """
    problem, train = source.problem, source.encoded(corpora.train).truth
    scores = {}
    for part in ("dev", "test"):
        truths = [source.encoded(target.scored[part]).truth for target in corpora.targets.values()]
        values = [problem.baseline(train, truth)[problem.metrics[0]] for truth in truths]
        scores[f"{part} {problem.metrics[0]} baseline"] = float(np.mean(values))
    return scores


def baseline_text(summary: Mapping[str, Any]) -> str:
    """How the strategies stand to a constant answer, in one or two sentences.

    A score is clearly better beyond two standard errors of a share of as many test examples.
    """
    metric = summary["metric"]
    baseline, scores = summary[f"test {metric} baseline"], summary[f"test {metric}"]
    answer = "the mean" if summary["kind"] == "regression" else "the most frequent training label"
    said = f"Always answering {answer} has a test {metric} of {baseline:.3f}"
    if RANGES.get(metric, SHARE) != SHARE:
        return f"{said}."
    examples = sum(parts["test"] for parts in summary["target examples"].values())
    better = [
        name for name, score in scores.items() if score - baseline > 2 * np.sqrt(max(score * (1 - score), 0) / examples)
    ]
    if not better:
        return (
            f"{said}; no strategy is clearly better on {examples:,} examples, so these scores do not rank them. Train "
            "for more epochs, with a higher learning rate or on more examples."
        )
    worse = [name for name in scores if name not in better]
    return f"{said}; clearly better: {', '.join(better)}" + (f"; not: {', '.join(worse)}." if worse else ".")


def mean_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """strategy, language, k, part, metric, value, low, high, n: the mean over seeds and draws.

    The interval is Student's, 95 %, clipped to the metric's range. Draws of one seed share its first stage, so with one
    seed it shows the effect of the few examples, not that of the seed. A single value has no interval.
    """
    rows = []
    for _, group in scores.groupby(KEYS, sort=False):
        values, keys = group["value"].to_numpy(dtype=float), group.iloc[0][KEYS].to_dict()
        n, mean = len(values), float(values.mean())
        left_out = (values.sum() - values) / (n - 1) if n > 1 else values[:0]
        interval = jackknife(np.asarray(mean), left_out)
        low, high = np.clip([interval.low, interval.high], *RANGES.get(keys["metric"], SHARE))
        rows.append({**keys, "value": mean, "low": float(low), "high": float(high), "n": n})
    return pd.DataFrame(rows)


def strategy_table(means: pd.DataFrame, metric: str, part: str, k: int = 0) -> pd.DataFrame:
    """Scores after k examples, one row per language (and their average), one column per strategy."""
    chosen = means.loc[(means["metric"] == metric) & (means["part"] == part) & (means["k"] == k)]
    table = chosen.pivot(index="language", columns="strategy", values="value")
    table = table.loc[list(dict.fromkeys(chosen["language"])), list(dict.fromkeys(chosen["strategy"]))]
    if len(table) > 1:
        table.loc["average"] = table.mean(axis=0)
    return table.reset_index().rename_axis(columns=None)
