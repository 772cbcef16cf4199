"""`distill`: one teacher, many aligned students."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from residuum.corpus.streams import TextOptions, text_fingerprint
from residuum.costs import within
from residuum.distillation.estimating import DistillationPlan, estimate_distillation
from residuum.distillation.exporting import (
    export_students,
    loss_table,
    parameter_table,
    score_table,
    teacher_names,
    trimming_table,
)
from residuum.distillation.preparation import Prepared, prepare
from residuum.distillation.settings import DistillSettings
from residuum.errors import SettingError
from residuum.models.cards import check_hub, push_each
from residuum.models.loading import check_weights
from residuum.models.surgery import files_fingerprint
from residuum.settings import command
from residuum.storage.results import Result, Run, finished_run, write_run
from residuum.training.checkpoints import discard_checkpoints, load_checkpoint
from residuum.training.loop import TrainingResult, train
from residuum.training.processes import is_main_process
from residuum.training.settings import TrainingSettings

COMMAND = "distill"
MEAN_RETRIEVAL = "retrieval mean"  # the score by which a run with `patience` stops
WAITING = 0.03  # share of the training time from which waiting for data is mentioned


@dataclass(frozen=True, eq=False)
class Distillation(Result):
    """The students' folders by name, and the run with its curves."""

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
        """step, student, language, term, value; the learning rate and the sum of all losses are terms too."""
        return self.run.tables["losses"]

    @property
    def scores(self) -> pd.DataFrame:
        """step, score, subject, value: perplexity per student/language and retrieval per pair, during training."""
        return self.run.tables["scores"]

    def text(self) -> str:
        """Where the students are, what trimming saved, and the final scores."""
        lines = [f"student {name}: {folder}" for name, folder in self.students.items()]
        for name, trimmed in self.run.summary.get("trimming", {}).items():
            lines.append(
                f"Trimming saved {trimmed['parameters saved']:,} parameters of student {name}; characters without a "
                f"token become {trimmed['characters without a piece become']}."
            )
        summary, config = self.run.summary, self.run.config
        if "teacher scores" not in summary:  # of several processes the main one has the scores
            return ""
        scores = {k: v for k, v in summary.items() if k.startswith(("perplexity", "retrieval"))}
        compared = compared_scores(scores, summary["teacher scores"], summary["start scores"])
        lines += [f"{name}: {text}" for name, text in compared.items()]
        if str(config["preset"]).startswith("monoalignment") and len(summary["students"]) == 1:
            lines.append(
                "MonoAlignment aligns students of several languages with each other; with one student this run matched "
                "the teacher's last layer and embeddings, and nothing more."
            )
        waited = summary["waiting for data"]
        lines += [verdict(scores, summary["teacher scores"], summary["start scores"])]
        lines += [f"The model waited for data in {waited:.1%} of the training time."] * (waited > WAITING)
        return "\n".join([*lines, *self._next_commands()])

    def _next_commands(self) -> list[str]:
        """How to measure the students and adapt them to a task, with the pairs that the run measured if it had any."""
        (source, *others), pairs = list(self.students), self.run.config["evaluation"]["pairs"]
        retrieval, readers = f"{self.students[source]} PAIRS", [source, *others[:1]]
        if pairs:
            pair, files = next(iter(pairs.items()))
            languages = self.run.config["students"] or {name: (name,) for name in self.students}
            readers = [
                next((name for name in self.students if language in languages.get(name, ())), source)
                for language in pair.split("-")
            ]
            retrieval = f"{self.students[readers[0]]} {files[0]} --translations {files[1]}"
        if readers[-1] != readers[0]:
            retrieval += f" --target-model {self.students[readers[-1]]}"
        adapted = f"{self.students[source]} DATA --task TASK"
        adapted += "".join(f" --target {name}={self.students[name]}" for name in others[:1]) or " --language LANGUAGE"
        return [
            f"Next: residuum evaluate retrieval {retrieval} --out OUT",
            f"or: residuum adapt {adapted} --out OUT",
        ]


def estimate(settings: DistillSettings) -> DistillationPlan:
    """Time, memory, parameters and layer map of a distillation; nothing is written."""
    return estimate_distillation(settings, training_settings(settings))


@command(DistillSettings, estimate=estimate)
def distill(settings: DistillSettings) -> Distillation:
    """Distil a teacher into students, and write them, their scores and their curves into `out`.

    A killed run resumes to the same weights when it is called again; a finished one returns at once. Under `torchrun`,
    W processes give what one process with W times the batch gives.
    """
    if settings.out is None:
        raise SettingError("out is missing; pass the folder to write, or look at the estimate (--estimate) first.")
    out = Path(settings.out)
    check_hub(settings.push_to_hub)
    if settings.max_memory is not None:
        others = (name for names in settings.teachers.values() for name in names)
        check_weights(list(dict.fromkeys([settings.teacher, *others])), settings.max_memory)
        within(estimate(settings), settings.max_memory)
    identity = with_fingerprints(settings.identity())
    if run := finished_run(out, COMMAND, identity, fresh=settings.fresh):
        discard_checkpoints(out)  # left by a kill
    else:
        prepared = prepare(settings)
        start = prepared.scores()
        training = train(
            prepared.modules,
            prepared.batches,
            prepared.step,
            training_settings(settings),
            out,
            parameters=prepared.parameter_groups(),
            evaluate=None if settings.evaluation.every is None else prepared.monitor,
            config={COMMAND: identity, "teacher": prepared.teacher.fingerprint},
            device=settings.device,
            fresh=settings.fresh,
            progress=settings.progress,
        )
        run = _write(prepared, training, start, out, identity) if is_main_process() else None
    if is_main_process():
        push_each([out / "students" / name for name in settings.learners], settings.push_to_hub)
    return Distillation(run or Run(COMMAND, identity, {"students": list(settings.learners)}), out)


def with_fingerprints(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as plain values, with the fingerprints of the teacher and the texts beside their places."""
    given = settings.get("text", {})
    options = TextOptions(split=given.get("split"), revision=given.get("revision"))
    config = {
        **settings,
        "teacher_files": files_fingerprint(settings["teacher"]),
        "fingerprints": {language: text_fingerprint(source, options) for language, source in settings["texts"].items()},
    }
    if teachers := sorted({str(name) for names in settings.get("teachers", {}).values() for name in names}):
        config["teachers_files"] = {name: files_fingerprint(name) for name in teachers}
    pairs = {**settings.get("translations", {}), **settings.get("evaluation", {}).get("pairs", {})}
    if pairs:
        config["pair_fingerprints"] = {
            place: text_fingerprint(place)
            for place in sorted({str(file) for files in pairs.values() for file in files})
        }
    return config


def training_settings(settings: DistillSettings) -> TrainingSettings:
    """How the students are trained; where one is moved after the other, a step is several of the loop's."""
    optimiser, turns, every = settings.optimiser, settings.turns, settings.evaluation.every
    return TrainingSettings(
        steps=optimiser.steps * turns,
        learning_rate=optimiser.learning_rate,
        schedule=optimiser.schedule,
        warmup=optimiser.warmup * (turns if optimiser.warmup >= 1 else 1),  # a number of steps, or a fraction
        weight_decay=optimiser.weight_decay,
        epsilon=settings.epsilon,
        clip=settings.clip,
        accumulation=optimiser.accumulation,
        precision=optimiser.precision,
        checkpoint_every=optimiser.checkpoint_every * turns,
        log_every=optimiser.log_every * turns,
        evaluate_every=None if every is None else every * turns,
        best_score=None if settings.evaluation.patience is None else MEAN_RETRIEVAL,
        patience=settings.evaluation.patience,
        keep_checkpoints=optimiser.keep_checkpoints,
        report_to=settings.report_to,
        seed=settings.seed,
    )


def _write(
    prepared: Prepared, training: TrainingResult, start: Mapping[str, float], out: Path, identity: dict[str, Any]
) -> Run:
    """Export the students, write the run's folder, drop the checkpoints. `start` are the scores before training."""
    settings, prints = prepared.settings, identity["fingerprints"]
    if settings.evaluation.patience is not None:
        load_checkpoint(out, prepared.modules, best=True)
    scores, teacher_scores = prepared.scores(), prepared.scores(prepared.teacher.model)
    texts = {name: f"{source} ({described_fingerprint(prints[name])})" for name, source in settings.texts.items()}
    export_students(prepared, out, texts, compared_scores(scores, teacher_scores, start))
    parameters = parameter_table(prepared)
    tables = {
        "losses": loss_table(training.history, settings.turns),
        "scores": score_table(training.scores, start, scores, training.progress.step, settings.turns),
        "parameters": parameters,
    }
    summary = {
        "students": [student.name for student in prepared.students],
        "teacher": teacher_names(settings, settings.texts),
        "steps": training.progress.step // settings.turns,
        **({"best step": training.best_step // settings.turns} if training.best_step else {}),
        "waiting for data": round(training.progress.waited / max(training.progress.seconds, 1e-9), 4),
        "layer map": {str(m): n for m, n in prepared.objective.layers.items()},
        "weights": dict(prepared.objective.weights),
        "teacher parameters": prepared.teacher.model.module.num_parameters(),
        "parameters of all students": int(parameters.loc[parameters["part"] == "total", "parameters"].iloc[0]),
        **({"trimming": trimming_table(prepared)} if prepared.vocabularies else {}),
        **{name: round(value, 6) for name, value in scores.items()},
        "teacher scores": {name: round(value, 6) for name, value in teacher_scores.items()},
        "start scores": {name: round(value, 6) for name, value in start.items()},
    }
    run = Run(COMMAND, identity, summary, tables)
    write_run(out, run)
    discard_checkpoints(out)
    return run


def compared_scores(
    scores: Mapping[str, float], teacher: Mapping[str, float], start: Mapping[str, float]
) -> dict[str, str]:
    """The students' scores in words, each beside the teacher's on the same data and its own before training."""
    texts = {}
    for name, value in scores.items():
        others = {"teacher": teacher, "before training": start}
        beside = [f"{who}: {values[name]:.4g}" for who, values in others.items() if name in values]
        texts[name] = f"{value:.4g}" + (f" ({', '.join(beside)})" if beside else "")
    return texts


def verdict(scores: Mapping[str, float], teacher: Mapping[str, float], start: Mapping[str, float]) -> str:
    """One sentence: what share of the teacher's retrieval is kept, and whether perplexity fell during training."""
    retrieval = [name for name in scores if name.startswith("retrieval")]
    kept = [scores[name] / teacher[name] for name in retrieval if teacher.get(name)]
    perplexities = [name for name in scores if name.startswith("perplexity")]
    lower = sum(scores[name] < start[name] for name in perplexities if name in start)
    parts = []
    if kept:
        parts.append(
            f"they keep {min(kept):.0%} to {max(kept):.0%} of the teacher's retrieval accuracy"
            if len(kept) > 1
            else f"they keep {kept[0]:.0%} of the teacher's retrieval accuracy"
        )
    if perplexities:
        parts.append(f"perplexity is lower than before training in {lower} of {len(perplexities)} cases")
    if not parts:
        return "Verdict: nothing was measured; set evaluation.pairs (retrieval) or text.held_out (perplexity)."
    return f"Verdict on the students: {', and '.join(parts)}."


def described_fingerprint(fingerprint: str | None) -> str:
    """A fingerprint in words; a hub dataset has none."""
    return "no fingerprint is known: a hub dataset may change" if fingerprint is None else f"fingerprint {fingerprint}"
