"""Steps that several studies take, with the settings of a study's scale."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from residuum.activations.store import ActivationStore
from residuum.comparison.compare import compare
from residuum.corpus.tasks import Task, TaskCorpora
from residuum.probing.redundancy import redundancy
from residuum.storage.files import lone_file
from residuum.storage.results import Run
from residuum.studies.context import StudyContext
from residuum.studies.documents import StudyStep, Workload
from residuum.training.finetuning import finetune

HELD_OUT = 200  # lines of each language for perplexity
CURVE = 6  # points of the curves of perplexity and retrieval during distillation
PAIRS = 200  # translations to retrieve at each point


def finetune_step(
    context: StudyContext,
    model: str,
    task: str,
    *,
    kind: str = "finetune",
    variant: str = "",
    freeze: str | None = None,
    drop: str | None = None,
) -> StudyStep:
    """Fine-tune a model for a sentence task with every seed of the scale, with layers frozen or dropped."""
    changes = f", layers {freeze} frozen" if freeze else f", layers {drop} dropped" if drop else ""
    _, corpora = context.data.sentence_tasks[task]
    load = Workload(trained=len(corpora.train) * context.scale.epochs * context.scale.seeds)
    work = partial(finetune_seeds, freeze=freeze, drop=drop)
    return StudyStep(kind, f"Fine-tune {model} for {task}{changes}", work, load, model, task, variant=variant)


def finetune_seeds(step: StudyStep, context: StudyContext, *, freeze: str | None, drop: str | None) -> Run:
    """Fine-tune with every seed of the scale."""
    task, corpora = context.data.sentence_tasks[step.task]
    return finetune(
        context.models[step.model],
        corpora,
        task,
        context.folder(step),
        freeze=freeze,
        drop=drop,
        seeds=context.scale.seeds,
        device=context.device,
        **context.learning,
        **context.options,
    ).run


def compare_stores(
    step: StudyStep, context: StudyContext, stores: Sequence[ActivationStore], measures: Sequence[str]
) -> Run:
    """Compare all layers of the stores."""
    return compare(
        stores,
        measures=measures,
        groups=context.scale.groups,
        out=context.folder(step),
        workers=context.workers,
        **context.bounded,
    ).run


def compare_models(step: StudyStep, context: StudyContext) -> Run:
    """CKA of all layers of all models."""
    return compare_stores(step, context, [context.read(name, path) for name, path in context.models.items()], ["cka"])


def task_redundancy(
    step: StudyStep, context: StudyContext, source: str, task: Task, corpora: TaskCorpora, *, keep: float = 0.99
) -> Run:
    """What a model repeats, and the neurons and layers that a task needs."""
    store = step.model if task.unit == "word" else f"{step.model}-{task.name}"
    return redundancy(
        context.load(source, name=step.model),
        corpora,
        task,
        keep=keep,
        seeds=context.scale.seeds,
        recipe="paper",
        epochs=context.scale.probe_epochs,
        by="lca",
        out=context.folder(step),
        activations=context.activations(f"{store}-parts", corpora.train),
        **context.bounded,
    ).run


def n_sentences(corpora: TaskCorpora) -> int:
    """The number of sentences in all parts of a task."""
    return len(corpora.train) + len(corpora.dev) + len(corpora.test)


def distillation_load(context: StudyContext, students: float = 1.0) -> Workload:
    """The work of a distillation: teacher and students read every line, and half-depth students learn from it."""
    lines = students * context.scale.distillation_steps * context.scale.distillation_batch
    return Workload(read=3 * lines, trained=1.5 * lines)


def distillation_config(context: StudyContext) -> dict[str, Any]:
    """The first model as the teacher, plain text in English and the target languages, and the scale's steps."""
    scale, folder = context.scale, context.out / "texts"
    texts = context.data.lines(folder)
    folder.mkdir(parents=True, exist_ok=True)
    pairs = {}
    for code, translations in zip(context.data.targets(), context.data.pairs(), strict=True):
        files = (
            _write_lines(folder / f"pairs-{code}-en.{code}", translations.source),
            _write_lines(folder / f"pairs-{code}-en.en", translations.target),
        )
        pairs[f"{code}-en"] = files
    return {
        "teacher": context.models[context.first],
        "texts": texts,
        "text": {
            "batch_size": scale.distillation_batch,
            "max_length": 512 if scale.name == "paper" else 128,
            "held_out": min(HELD_OUT, scale.sentences or HELD_OUT),
        },
        "optimiser": {"steps": scale.distillation_steps},
        "evaluation": {
            "every": max(1, scale.distillation_steps // CURVE),
            "pairs": pairs,
            "lines": min(PAIRS, scale.sentences or PAIRS),
        },
        "seed": context.seed,
    }


def _write_lines(path: Path, lines: Sequence[str]) -> str:
    with lone_file(path) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines[:PAIRS]), encoding="utf-8")
    return str(path)
