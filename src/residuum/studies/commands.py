"""Calls of the package's commands that several studies make, with the settings of a study's scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from residuum.activations.store import ActivationStore
from residuum.comparison import compare
from residuum.corpus.tasks import Task, TaskCorpora
from residuum.probing.redundancy import redundancy
from residuum.storage.files import lone_file
from residuum.storage.results import Run
from residuum.studies.declarations import Load, step_name
from residuum.studies.kits import Kit
from residuum.training.finetuning import finetune

HELD_OUT = 200  # lines of each language for perplexity
CURVE = 6  # points of the curves of perplexity and retrieval while distilling
PAIRS = 200  # translations that are looked for at each point


def compared(kit: Kit, stores: Sequence[ActivationStore], measures: Sequence[str], name: str) -> Run:
    """All layers of what was read, in a step's folder."""
    return compare(
        stores,
        measures=measures,
        groups=kit.scale.groups,
        out=kit.out / name,
        workers=kit.workers,
        progress=False,
        **kit.bounded,
    ).run


def tuned(
    kind: str, model: str, task: str, kit: Kit, *, variant: str = "", freeze: str | None = None, drop: str | None = None
) -> Run:
    """A model that learnt a sentence task from every seed of the scale, in the folder of its step."""
    named, corpora = kit.data.sentence_tasks[task]
    return finetune(
        kit.models[model],
        named,
        kit.out / step_name(kind, model, task, variant),
        data=corpora,
        freeze=freeze,
        drop=drop,
        seeds=kit.scale.seeds,
        settings=kit.learning,
        device=kit.device,
        progress=False,
        **kit.options,
    ).run


def tuned_folder(model: str, task: str, kit: Kit) -> Path:
    """Where the model is that learnt a task and is read on; of several seeds the first."""
    folder = kit.out / step_name("finetune", model, task)
    return folder if kit.scale.seeds == 1 else folder / f"seed-{kit.seed}"


def tuning_load(kit: Kit) -> Load:
    """What fine-tuning asks for: all examples in every epoch, from every seed."""
    return Load(trained=float(kit.scale.examples or kit.scale.sentences) * kit.scale.epochs * kit.scale.seeds)


def redundant(model: str, source: str, task: Task, corpora: TaskCorpora, kit: Kit, *, keep: float = 0.99) -> Run:
    """What a model repeats and what a task can do without, in the folder of its step."""
    own = model if task.unit == "word" else f"{model}-{task.name}"
    return redundancy(
        kit.load(source, name=model),
        corpora,
        task,
        keep=keep,
        seeds=kit.scale.seeds,
        recipe=kit.recipe(),
        out=kit.out / step_name("redundancy", model, task.name),
        activations=kit.activations(f"{own}-parts", corpora.train),
        progress=False,
        **kit.bounded,
    ).run


def distillation_config(kit: Kit) -> dict[str, Any]:
    """The first model as the teacher, plain text in English and the target languages, and a scale's steps."""
    scale = kit.scale
    return {
        "teacher": kit.models[kit.first],
        "texts": kit.data.lines(kit.out / "texts"),
        "text": {
            "batch_size": scale.distil_batch,
            "max_length": 512 if scale.name == "paper" else 128,
            "held_out": min(HELD_OUT, scale.sentences),
        },
        "optimiser": {"steps": scale.distil_steps},
        "evaluation": {
            "every": max(1, scale.distil_steps // CURVE),
            "pairs": _pair_files(kit, kit.out / "texts"),
            "lines": min(PAIRS, scale.sentences),
        },
        "seed": kit.seed,
    }


def _pair_files(kit: Kit, folder: Path) -> dict[str, tuple[str, str]]:
    """Translations of each target language and English, in two files of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for code, pairs in zip(kit.data.targets(), kit.data.pairs(), strict=True):
        paths = folder / f"pairs-{code}-en.{code}", folder / f"pairs-{code}-en.en"
        for path, lines in zip(paths, (pairs.source, pairs.target), strict=True):
            with lone_file(path) as temporary:
                temporary.write_text("".join(f"{line}\n" for line in lines[:PAIRS]), encoding="utf-8")
        files[f"{code}-en"] = str(paths[0]), str(paths[1])
    return files
