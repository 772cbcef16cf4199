"""`distill`: one teacher, many aligned students."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residuum.corpus.streams import text_fingerprint
from residuum.distillation.settings import DistillSettings, read_settings
from residuum.errors import SettingError
from residuum.storage.results import Result, Run, finished_run, write_run

if TYPE_CHECKING:
    import pandas as pd

    from residuum.distillation.planning import Plan
    from residuum.distillation.preparation import Prepared
    from residuum.training import Training, TrainingSettings


@dataclass(frozen=True, eq=False)
class Distillation(Result):
    """What `distill` gave: the students' folders by name, and the run with its curves."""

    run: Run
    folder: Path

    @property
    def students(self) -> dict[str, Path]:
        """The folder of each student; plain `from_pretrained` loads it."""
        return {name: self.folder / "students" / name for name in self.run.summary["students"]}

    @property
    def frame(self) -> pd.DataFrame:
        """The scores, as `scores` has them."""
        return self.run.tables["scores"]

    @property
    def losses(self) -> pd.DataFrame:
        """step, student, language, term, value; the learning rate and the sum of all losses stand beside the terms."""
        return self.run.tables["losses"]

    @property
    def scores(self) -> pd.DataFrame:
        """step, score, subject, value: perplexity by student/language and retrieval by pair, during training."""
        return self.run.tables["scores"]


def distill(
    config: str | Path | Mapping[str, Any] | DistillSettings,
    out: str | Path | None = None,
    *,
    device: str = "auto",
    fresh: bool = False,
    progress: bool = True,
) -> Distillation:
    """Distil a teacher into students as `config` (a YAML file or a mapping) says, and write all into `out`.

    `out` may also stand in `config`; the argument counts if both do. A killed run goes on where it stopped when it is
    called again, to the same weights; a finished one returns at once. Under `torchrun`, W processes give what one with
    W times the batch gives.
    """
    settings = read_settings(config)
    out = _folder(settings, out)
    _check_processes(settings)
    identity = run_identity(settings)
    if run := finished_run(out, "distill", identity, fresh=fresh):
        from residuum.training import discard_checkpoints

        discard_checkpoints(out)  # a kill may have come before
        return Distillation(run, out)
    from residuum.distillation.preparation import prepare

    prepared = prepare(settings, device)
    training = _train(prepared, out, identity, device=device, fresh=fresh, progress=progress)
    run = _write(prepared, training, out, identity) if os.environ.get("RANK", "0") == "0" else None
    return Distillation(run or Run("distill", identity, {"students": list(settings.learners)}), out)


def plan(config: str | Path | Mapping[str, Any] | DistillSettings, *, device: str = "auto") -> Plan:
    """What a distillation would cost: parameters, memory, time a step, layer map. Nothing is written."""
    from residuum.distillation.planning import make_plan
    from residuum.distillation.preparation import prepare

    settings = read_settings(config).model_copy(update={"teacher_cache": None})  # which would be written
    return make_plan(prepare(settings, device), device)


def run_identity(settings: DistillSettings) -> dict[str, Any]:
    """The settings, and fingerprints of the teacher and the texts."""
    values = settings.model_dump(mode="json")
    for key in ("out", "report_to", "teacher_cache"):  # no weight depends on them
        values.pop(key)
    return with_fingerprints(values)


def with_fingerprints(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name, and beside each place in them the fingerprint of what lies there."""
    from residuum.models.surgery import files_fingerprint

    told = {
        **settings,
        "teacher_files": files_fingerprint(settings["teacher"]),
        "fingerprints": {language: text_fingerprint(source) for language, source in settings["texts"].items()},
    }
    for part in ("contrast", "evaluation"):
        if pairs := settings.get(part, {}).get("pairs"):
            prints = {name: [text_fingerprint(file) for file in files] for name, files in pairs.items()}
            told[part] = {**settings[part], "pair_fingerprints": prints}
    return told


def _folder(settings: DistillSettings, out: str | Path | None) -> Path:
    chosen = out or settings.out
    if not chosen:
        raise SettingError(
            "No folder to write was given; pass out (--out), write `out:` into the configuration, or look at the plan "
            "(--dry-run) first."
        )
    return Path(chosen)


def _check_processes(settings: DistillSettings) -> None:
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1 and settings.recipe != "corrected":
        raise SettingError(
            f"recipe is {settings.recipe}, which moves one student after the other; it runs in one process, found "
            f"{processes}. Start it without torchrun, or set recipe to corrected."
        )


def training_settings(prepared: Prepared) -> TrainingSettings:
    """How the students are trained; where one is moved after the other, a step of the method is several of the loop."""
    from residuum.training import TrainingSettings

    settings = prepared.settings
    chosen = settings.optimiser.model_dump()
    turns = 1 if settings.recipe == "corrected" else len(prepared.pairs)
    for key in ("steps", "checkpoint_every", "log_every"):
        chosen[key] *= turns
    if chosen["warmup"] >= 1:  # a number of steps, not a share of them
        chosen["warmup"] *= turns
    chosen["clip"] = settings.clip
    every = settings.evaluation.every
    return TrainingSettings(
        **chosen,
        seed=settings.seed,
        evaluate_every=None if every is None else every * turns,
        report_to=tuple(settings.report_to),
    )


def _train(
    prepared: Prepared, out: Path, identity: dict[str, Any], *, device: str, fresh: bool, progress: bool
) -> Training:
    from residuum.training import train

    return train(
        prepared.modules,
        prepared.batches,
        prepared.step,
        training_settings(prepared),
        out,
        parameters=prepared.parameter_groups(),
        evaluate=None if prepared.settings.evaluation.every is None else prepared.monitor,
        config={"distill": identity, "teacher": prepared.teacher.fingerprint},
        device=device,
        fresh=fresh,
        progress=progress,
    )


def _write(prepared: Prepared, training: Training, out: Path, identity: dict[str, Any]) -> Run:
    """Export the students, write the run's folder, drop the checkpoints."""
    import torch

    from residuum.distillation.exporting import export_students
    from residuum.distillation.tables import loss_table, parameter_table, score_table
    from residuum.training import discard_checkpoints

    for module in prepared.modules.values():
        module.eval()
    with torch.no_grad():
        scores = prepared.monitor()
    texts = {
        name: f"{source} ({_known_print(identity['fingerprints'][name])})"
        for name, source in prepared.settings.texts.items()
    }
    export_students(prepared, out, texts, scores)
    turns = 1 if prepared.settings.recipe == "corrected" else len(prepared.pairs)
    tables = {
        "losses": loss_table(training.history, turns),
        "scores": score_table(training.scores, scores, training.steps, turns),
        "parameters": parameter_table(prepared),
    }
    run = Run("distill", identity, _summary(prepared, tables["parameters"], scores), tables)
    write_run(out, run)
    discard_checkpoints(out)
    return run


def _known_print(fingerprint: str | None) -> str:
    return "no fingerprint is known: a hub dataset may change" if fingerprint is None else f"fingerprint {fingerprint}"


def _summary(prepared: Prepared, parameters: pd.DataFrame, scores: Mapping[str, float]) -> dict[str, Any]:
    from residuum.distillation.tables import trimming_table

    return {
        "students": [student.name for student in prepared.students],
        "teacher": Path(prepared.settings.teacher).name,
        "steps": prepared.settings.optimiser.steps,
        "layer map": {str(m): n for m, n in prepared.objective.layers.items()},
        "weights": dict(prepared.objective.weights),
        "teacher parameters": prepared.teacher.model.module.num_parameters(),
        "parameters of all students": int(parameters.loc[parameters["part"] == "total", "parameters"].iloc[0]),
        **({"trimming": trimming_table(prepared)} if prepared.vocabularies else {}),
        **{name: round(value, 6) for name, value in scores.items()},
    }
