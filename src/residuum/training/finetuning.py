"""`finetune`: a pretrained model learns a task, whole or in part, once or with several seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from residuum.corpus.tasks import Task, TaskCorpora, named_task, read_task
from residuum.errors import SettingError
from residuum.models.surgery import check_elsewhere, check_written
from residuum.storage.files import remove_folder
from residuum.storage.results import Result, Run, finished_run, write_run
from residuum.training import is_main_process
from residuum.training.finetuning_seeds import Recipe, discard_intermediates, finetune_once
from residuum.training.learning import LearningSettings

if TYPE_CHECKING:
    import pandas as pd

    from residuum.corpus import Corpus


@dataclass(frozen=True, eq=False)
class Finetuning(Result):
    """Models that learnt a task: their folders, one a seed, and how they score."""

    folders: list[Path]
    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """The scores, as `scores` has them."""
        return self.run.tables["scores"]

    @property
    def scores(self) -> pd.DataFrame:
        """seed, part, metric, value: the best checkpoint of each seed on the development and test parts."""
        return self.run.tables["scores"]

    @property
    def curves(self) -> pd.DataFrame:
        """seed, step, epoch, metric, value: the development scores along the way."""
        return self.run.tables["curves"]

    @property
    def history(self) -> pd.DataFrame:
        """seed, step, loss, learning_rate, …: what the training loop wrote down."""
        return self.run.tables["history"]


def finetune(
    model: str | Path,
    task: str | Task,
    out: str | Path,
    *,
    data: Corpus | TaskCorpora | str | Path | None = None,
    dev: str | Path | None = None,
    test: str | Path | None = None,
    format: str | None = None,
    limit: int | None = None,
    freeze: str | None = None,
    drop: str | None = None,
    seeds: int | Sequence[int] = 1,
    seed: int = 0,
    max_length: int | None = 128,
    settings: LearningSettings | None = None,
    cache: bool = True,
    cache_memory: int = 1 << 30,
    device: str = "auto",
    fresh: bool = False,
    progress: bool = True,
    say: Callable[[str], None] | None = None,
) -> Finetuning:
    """Fine-tune a model on a task and write it as a folder that `from_pretrained` reads.

    `data` is a corpus, a folder of splits, a file or a hub name, as `read_task` takes it; GLUE's tasks are read from
    the hub without it. `drop` takes layers off first (`top:6`, `bottom:6`, `alternate`, `1,4-6`); `freeze` keeps some
    from learning (the same, `embeddings`, or several joined by `+`; `bottom:6` freezes the embeddings too). What is
    below all that learns is never run backwards, and with `cache` its outputs are computed once for all `seeds`: in
    memory, beyond `cache_memory` bytes on disk. Several seeds have a folder `seed-N` each in `out`. The checkpoint with
    the best development score is kept.
    """
    task, chosen = named_task(task), chosen_seeds(seeds, seed)
    corpora = task_corpora(task, data, dev=dev, test=test, format=format, limit=limit, seed=seed)
    recipe = Recipe(str(model), task, freeze, drop, max_length, settings or LearningSettings(), cache, cache_memory)
    config = {**recipe.config(), "data": _fingerprints(corpora), "seeds": chosen}
    out = Path(out)
    check_elsewhere(model, out)
    folders = [out] if len(chosen) == 1 else [out / f"seed-{one}" for one in chosen]
    if run := finished_run(out, "finetune", config, fresh=fresh):
        discard_intermediates(out)
        check_written(*folders)
        return Finetuning(folders, run)
    if fresh and is_main_process():  # all at once: what a kill leaves must not be half of one run and half of another
        for folder in folders:
            (folder / "result.json").unlink(missing_ok=True)
        _discard_other_seeds(out, folders)
    runs, states = [], {}
    for one, folder in zip(chosen, folders, strict=True):
        own = {**config, "seeds": [one]}
        found = finished_run(folder, "finetune", own, fresh=fresh)
        if found:
            discard_intermediates(folder)
            check_written(folder)
        options = {"states": states, "fresh": fresh, "progress": progress, "say": say}
        runs.append(found or finetune_once(recipe, corpora, folder, one, own, device, **options))
    if len(runs) == 1:
        return Finetuning(folders, runs[0])
    run = _joined(runs, config)
    if is_main_process():
        write_run(out, run)
    return Finetuning(folders, run)


def _discard_other_seeds(out: Path, folders: list[Path]) -> None:
    """Remove the models that runs of other seeds left, so that none is taken for one of this run."""
    for place in set(out.glob("seed-*")) - set(folders):
        if (place / "model.safetensors").exists():
            remove_folder(place)
    if folders != [out]:
        for file in (*out.glob("*.safetensors"), out / "README.md"):
            file.unlink(missing_ok=True)


def chosen_seeds(seeds: int | Sequence[int], first: int) -> list[int]:
    """So many seeds from the first on, or those that are listed."""
    chosen = list(range(first, first + seeds)) if isinstance(seeds, int) else list(seeds)
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0:
        raise SettingError(f"seeds is {seeds!r}; expected a number from 1, or different whole numbers from 0.")
    return chosen


def task_corpora(task: Task, data: Any, **options: Any) -> TaskCorpora:
    """The three parts of a task's data, from where they were said to be, or from the hub."""
    if isinstance(data, TaskCorpora):
        return data
    source = data if data is not None else task.hub
    if source is None:
        raise SettingError(
            f"The task {task.name!r} has no data of its own; give a corpus, a folder, a file or a hub name."
        )
    return read_task(task, source, **options)


def _fingerprints(corpora: TaskCorpora) -> dict[str, Any]:
    parts = {part: f"{corpus.name} {corpus.fingerprint}" for part, corpus in corpora.items()}
    return {**parts, "notes": list(corpora.notes)}


def _joined(runs: list[Run], config: dict[str, Any]) -> Run:
    """All seeds in one: their tables below each other, their scores as mean and standard deviation."""
    import pandas as pd

    tables = {name: pd.concat([run.tables[name] for run in runs], ignore_index=True) for name in runs[0].tables}
    scores = tables["scores"]
    summary = {key: value for key, value in runs[0].summary.items() if key not in scores["metric"].unique()}
    main = runs[0].summary["metric"]
    for part in ("dev", "test"):
        values = scores.loc[(scores["part"] == part) & (scores["metric"] == main), "value"].to_numpy(dtype=float)
        summary[f"{part} {main}"] = float(values.mean())
        summary[f"{part} {main} deviation"] = float(np.std(values, ddof=1))
    summary["seconds"] = sum(run.summary["seconds"] for run in runs)
    summary["best step"] = [run.summary["best step"] for run in runs]
    return Run(command="finetune", config=config, summary=summary, tables=tables)
