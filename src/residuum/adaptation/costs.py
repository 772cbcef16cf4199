"""What strategies will take: a few real steps of each on a sample of the source language, answers on a few examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from residuum.adaptation.adapting import Group, check_languages, group_of, seeds_from, target_students
from residuum.adaptation.corpora import TransferCorpora
from residuum.adaptation.few_shot import FewShot
from residuum.adaptation.files import read_part, read_transfer, transfer_task
from residuum.adaptation.folders import load_adapted
from residuum.adaptation.recipes import Plan, plan
from residuum.adaptation.settings import AdaptationSettings
from residuum.adaptation.strategies import Strategy, named_strategies
from residuum.adaptation.students import Student, logits_of
from residuum.adaptation.teaching import TASK_WEIGHT, taught_losses, teacher_answers
from residuum.adaptation.zero_shot import Work, source_lesson
from residuum.corpus import Corpus
from residuum.corpus.tasks import Task
from residuum.costs import Cost, Step, timed
from residuum.training.learning import Lesson
from residuum.training.learning_costs import Sizes, answering_seconds, learning_step, sampled_answers, sampled_training
from residuum.training.problems import problem_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def adapt_cost(
    source: str | Path,
    target: str | Path | Mapping[str, str | Path] | None = None,
    *,
    task: str | Task,
    data: TransferCorpora | str | Path,
    language: str | Sequence[str] | None = None,
    strategy: str | Sequence[str] = "full-target",
    teacher: str | Path | None = None,
    keep: str | None = None,
    few_shot: Sequence[int] = (),
    draws: int = 3,
    seeds: int = 1,
    seed: int = 0,
    settings: AdaptationSettings | None = None,
    device: str = "auto",
) -> Cost:
    """What `adapt` would take with the same settings."""
    paths = target_students(source, target, language)
    strategies = named_strategies(strategy, one_model=target is None)
    few, settings, task = FewShot(tuple(few_shot), draws), settings or AdaptationSettings(), transfer_task(task)
    corpora = data if isinstance(data, TransferCorpora) else read_transfer(task, data, list(paths), seed=seed)
    check_languages(paths, corpora, few)
    problem = problem_of(task, corpora.train)
    group = group_of(Student(str(source), problem, keep, settings.max_length, device), paths, teacher)
    work = Work(_sampled(corpora, settings), settings, {}, device=device)
    steps = []
    if group.teacher is not None:
        teaching, work = _taught(work, group.teacher, len(corpora.train))
        steps.append(teaching)
    rehearsals = [_Rehearsed(one, group, work, corpora, few, seed) for one in strategies]
    steps += [step.times(len(seeds_from(seeds, seed))) for rehearsed in rehearsals for step in rehearsed.steps()]
    languages = ", ".join(paths)
    return Cost(f"{Path(source).name}, {task.name}: {len(corpora.train):,} examples, then {languages}", tuple(steps))


def evaluate_adapted_cost(
    folder: str | Path,
    data: Corpus | str | Path,
    *,
    student: str | Path | None = None,
    limit: int | None = None,
    device: str = "auto",
) -> Cost:
    """What `evaluate_adapted` would take: the answers to a sample of the file."""
    adapted = load_adapted(folder, student, device=device)
    corpus = data if isinstance(data, Corpus) else read_part(adapted.problem.task, data, limit=limit)
    seconds = _answering(adapted.student, adapted.network, corpus) * len(corpus)
    step = Step("answers", seconds, memory=_weights(adapted.network))
    return Cost(f"{Path(folder).name}: {len(corpus):,} examples", (step,))


@dataclass(frozen=True, eq=False)
class _Rehearsed:
    """One strategy, of which the first training is rehearsed; the others are as long."""

    strategy: Strategy
    group: Group
    work: Work
    whole: TransferCorpora
    few_shot: FewShot
    seed: int

    def steps(self) -> list[Step]:
        """The training in the source language, the answers in the target languages, and few-shot training."""
        trainings = list(self.group.trainings(self.strategy))
        students = trainings[0][1]
        networks = [student.network(self.seed) for student in students]
        recipe = plan(self.strategy, networks, reduction=self.work.settings.reduction, seed=self.seed)
        learnt = self._zero_shot(recipe, students).times(len(trainings))
        answers = self._answers(students[-1], networks[-1])
        steps = [learnt, replace(answers, memory=_weights(networks[-1]))]
        return [*steps, self._few_shot(recipe, students[-1])] if self.few_shot.sizes else steps

    def _zero_shot(self, recipe: Plan, students: Sequence[Student]) -> Step:
        lesson, work = source_lesson(self.work, students), self.work
        readers = [logits_of(network) for network in recipe.readers]
        sizes = Sizes(
            round(len(lesson.train) * len(self.whole.train) / len(work.corpora.train)),
            round(len(lesson.dev) * len(self.whole.dev) / len(work.corpora.dev)),
        )
        return learning_step(
            self.strategy.name,
            recipe.modules,
            readers,
            lesson,
            work.settings.zero_shot(self.strategy, lesson.problem.task.name),
            sizes,
            scored=readers[-1],
            seed=self.seed,
            device=work.device,
            extra=None if work.answers is None else taught_losses,
            task_weight=1.0 if work.answers is None else TASK_WEIGHT,
        )

    def _answers(self, student: Student, network: PreTrainedModel) -> Step:
        """Development and test parts of every language, as they are and after each few-shot training."""
        times = 1 + len(self.few_shot.sizes) * self.few_shot.draws
        scored = [corpus for parts in self.whole.targets.values() for corpus in parts.scored.values()]
        seconds = _answering(student, network, scored[-1]) * sum(map(len, scored)) * times
        return Step(f"{self.strategy.name}: answers", seconds)

    def _few_shot(self, recipe: Plan, student: Student) -> Step:
        """All draws of all sizes in all languages, each step as long as one of the largest size."""
        settings, sizes = self.work.settings, self.few_shot.sizes
        pool = next(iter(self.whole.targets.values())).pool
        part = student.encoded(pool.select(list(range(min(max(sizes), len(pool))))))
        lesson = Lesson(student.problem, part, part, student.collator, student.collator)
        reader = logits_of(recipe.readers[-1])
        largest = learning_step(
            f"{self.strategy.name}: few-shot",
            recipe.modules,
            [reader],
            lesson,
            settings.few_shot(max(sizes)),
            Sizes(max(sizes), 0),
            seed=self.seed,
            device=self.work.device,
        )
        return largest.times(self.few_shot.draws * len(self.whole.targets) * sum(sizes) / max(sizes))


def _sampled(corpora: TransferCorpora, settings: AdaptationSettings) -> TransferCorpora:
    train = sampled_training(corpora.train, settings.batch_size)
    return replace(corpora, train=train, dev=sampled_answers(corpora.dev))


def _taught(work: Work, teacher: Student, examples: int) -> tuple[Step, Work]:
    """The teacher's answers to the sample, and what those to all examples take."""
    given = []
    seconds = timed(lambda: given.append(teacher_answers(teacher, work.corpora.train)))
    (answers,) = given
    return Step("teacher", seconds * examples / len(work.corpora.train)), replace(work, answers=answers)


def _answering(student: Student, network: PreTrainedModel, corpus: Corpus) -> float:
    """Seconds an example."""
    network.eval()
    few = sampled_answers(corpus)
    place = next(network.parameters()).device
    part = student.encoded(few)
    return answering_seconds(logits_of(network), part, student.collator, place) * len(part) / len(few)


def _weights(network: PreTrainedModel) -> int:
    return sum(p.numel() * p.element_size() for p in network.parameters())
