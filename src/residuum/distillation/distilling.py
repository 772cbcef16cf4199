"""`distill`: one teacher, many aligned students; and what it costs, measured on its first steps or counted."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from residuum.corpus.streams import TextOptions, text_fingerprint
from residuum.costs import Cost, CostStep, timed, within
from residuum.distillation.exporting import (
    export_students,
    loss_table,
    parameter_table,
    score_table,
    teacher_names,
    trimming_table,
)
from residuum.distillation.networks import LanguageModel
from residuum.distillation.preparation import Prepared, prepare
from residuum.distillation.settings import ATTENTION_TERMS, DistillSettings
from residuum.distillation.students import parameter_counts
from residuum.distillation.texts import batch_sizes
from residuum.errors import ModelError, SettingError
from residuum.maths.losses import drawn
from residuum.maths.vocabulary_losses import CHUNK_BYTES
from residuum.models.cards import check_hub, push_each
from residuum.models.loading import check_weights, evaluating
from residuum.models.surgery import files_fingerprint
from residuum.settings import command
from residuum.storage.results import Result, Run, finished_run, write_run
from residuum.training.checkpoints import discard_checkpoints, load_checkpoint
from residuum.training.loop import TrainingResult, kept_for_backward, rehearse, train, training_step
from residuum.training.processes import is_main_process
from residuum.training.settings import TrainingSettings

COMMAND = "distill"
MEAN_RETRIEVAL = "retrieval mean"  # the score by which a run with `patience` stops
WAITING = 0.03  # share of the training time from which waiting for data is mentioned
NUMBER = 4  # bytes of a float32
PER_WEIGHT = 4  # numbers per trained weight: itself, its gradient and AdamW's two moments
SCORE_TABLES = 4  # tables of attention scores that a term keeps: student's, teacher's, their difference and its square
LOGIT_CHUNKS = 4  # chunks of logits that are held at once


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


@dataclass(frozen=True, kw_only=True)
class DistillationPlan(Cost):
    """The cost of a distillation, and what its students are."""

    parameters: dict[str, int]  # per student, shared, total
    teacher_parameters: int
    seconds_per_step: float
    layer_map: str
    initialisation: str

    def __str__(self) -> str:
        students = {name: n for name, n in self.parameters.items() if name not in ("shared", "total")}
        lines = [
            super().__str__(),
            f"time per step: {self.seconds_per_step:.3g} s",
            f"teacher: {self.teacher_parameters:,} parameters",
            *(f"student {name}: {n:,} parameters ({n / self.teacher_parameters:.0%})" for name, n in students.items()),
            f"shared by students: {self.parameters['shared']:,}; all students together: {self.parameters['total']:,}",
            self.initialisation,
            self.layer_map,
        ]
        return "\n".join(lines)


def estimate_distillation(settings: DistillSettings, training: TrainingSettings) -> DistillationPlan:
    """Time, memory, parameters and layer map; nothing is written.

    The first steps are taken here or, with `flops`, a step's operations and memory are counted without running it.
    """
    prepared = prepare(replace(settings, teacher_cache=None))  # the cache would be written
    teacher = prepared.teacher.model
    counts = parameter_counts({student.name: student.model for student in prepared.students})
    checkpoint = NUMBER * (PER_WEIGHT - 1) * counts["total"]
    students = f"students {', '.join(settings.learners)}: {settings.optimiser.steps:,} steps"
    if settings.flops is None:
        rehearsal = rehearse(
            prepared.modules,
            prepared.batches,
            prepared.step,
            training,
            parameters=prepared.parameter_groups(),
            device=settings.device,
            beside=sum(p.numel() * p.element_size() for m in prepared.teachers for p in m.module.parameters()),
        )
        with evaluating(prepared.modules.values()):
            scoring = timed(prepared.monitor)
        per_step = rehearsal.seconds * settings.turns
        steps = (
            training_step("training", rehearsal, training, None, scoring),
            CostStep("scores", scoring, disk=NUMBER * counts["total"]),
        )
    else:
        operations, memory = count_step(prepared)
        per_step = operations / settings.flops
        students += f" at {settings.flops:.3g} FLOP/s, every line {line_length(prepared)} tokens long"
        steps = (CostStep("training", per_step * settings.optimiser.steps, memory=memory, disk=checkpoint),)
    return DistillationPlan(
        students,
        steps,
        parameters=counts,
        teacher_parameters=teacher.module.num_parameters(),
        seconds_per_step=per_step,
        layer_map=drawn(prepared.objective.layers, prepared.students[0].model.n_layers, teacher.n_layers),
        initialisation=f"initialised from: {settings.initialise} ({settings.initialise_map})",
    )


def count_step(prepared: Prepared) -> tuple[float, int]:
    """Floating-point operations of one step over all languages and students, and the bytes that a process holds.

    Networks are run with shapes only, every line at its longest. In the recipe `corrected` the passes of all pairs of
    a language and a student are held at once, in the others those of one.
    """
    settings, objective, teacher = prepared.settings, prepared.objective, prepared.teacher.model
    length, half = line_length(prepared), settings.optimiser.precision != "float32"
    sizes = batch_sizes(settings.texts, settings.text)
    runs = settings.optimiser.accumulation
    heads = 0 if not objective.uses("mlm", "soft", "softmax_regression") else 1
    positions = length if settings.soft_positions == "all" or teacher.causal else length * settings.text.masked
    taught, _ = _counted_pass(teacher, length, half=False, learns=False)
    student = prepared.students[0].model
    learnt, activations = _counted_pass(student, length, half=half, learns=True)
    state = length * student.hidden_size * NUMBER
    if settings.optimiser.gradient_checkpointing:  # one block's activations, and the input of every block
        forward, _ = _counted_pass(student, length, half=half, learns=False)
        learnt, activations = learnt + forward, activations / student.n_layers + student.n_layers * state
    teachers = {language: len(group.members) for language, group in prepared.step.groups.items()}
    operations = float(sum(size * teachers.get(language, 1) for language, size in sizes.items())) * taught
    pass_bytes = []
    tables = sum(objective.uses(term) for term in ATTENTION_TERMS) * SCORE_TABLES * student.n_heads * length**2
    kept = (
        activations + len(objective.layers) * (NUMBER * tables + 2 * state) + len(objective.teacher_layers) * state
    )  # the last: the teacher's copies
    pieces = {s.name: s.model.module.config.vocab_size for s in prepared.students}
    for language, name in settings.language_student_pairs:
        product = 2.0 * positions * pieces[name] * student.hidden_size  # of features and the vocabulary
        operations += sizes[language] * (learnt + heads * product * (3 + objective.uses("soft", "softmax_regression")))
        pass_bytes.append(sizes[language] * kept)
    weights = parameter_counts({s.name: s.model for s in prepared.students})["total"]
    of_teacher = sum(model.module.num_parameters() for model in prepared.teachers)
    held = sum(pass_bytes) if settings.recipe == "corrected" else max(pass_bytes)
    memory = NUMBER * (PER_WEIGHT * weights + of_teacher) + half * 2 * (weights + of_teacher)
    return operations * runs, int(memory + held + heads * LOGIT_CHUNKS * CHUNK_BYTES)


def line_length(prepared: Prepared) -> int:
    """The most tokens of a line."""
    return max(encoder.max_length for encoder in prepared.monitor.encoders.values())


def _counted_pass(model: LanguageModel, length: int, *, half: bool, learns: bool) -> tuple[float, float]:
    """Operations of one line through a network (and back, where it learns), and bytes kept for the way back."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        twin: Any = type(model.module)(copy.deepcopy(model.module.config))
        ids = torch.zeros((1, length), dtype=torch.long)
    twin.train(learns).to(torch.bfloat16 if half else torch.float32)
    base = getattr(twin, "base_model", twin)
    try:
        with FlopCounterMode(display=False) as counter, kept_for_backward(list(twin.parameters())) as kept:
            with torch.set_grad_enabled(learns):
                states = base(input_ids=ids, output_hidden_states=True).hidden_states
            if learns:
                torch.stack([state.sum() for state in states]).sum().backward()
    except RuntimeError as error:
        raise ModelError(
            f"The operations of {type(model.module).__name__} cannot be counted without running it; leave flops out, "
            "and the first steps are measured here."
        ) from error
    return float(counter.get_total_flops()), float(sum(kept.values()))
