"""A thesis on monolingual students: distil, align, transfer tasks, and take parts of the method away."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from residuum.adaptation.adapting import adapt
from residuum.adaptation.settings import AdaptationTraining
from residuum.distillation.distilling import distill, with_fingerprints
from residuum.distillation.settings import TABLE_4_7, read_settings
from residuum.errors import SettingError
from residuum.evaluation.retrieval import Retrieval, average_table, correlate_alignment, evaluate_retrieval
from residuum.models.loading import from_transformers
from residuum.models.surgery import keep_layers, kept_layers
from residuum.storage.results import Result, Run, clear_content_errors, finished_run, read_run, write_run
from residuum.storage.schemas import read_yaml
from residuum.studies.claims import Evidence, Measurement, claim
from residuum.studies.documents import Document, PrintedNumber, PrintedTargets, Results, StudyStep, Workload
from residuum.studies.exhibits import AVERAGE, Drawing, Exhibit, chosen, gathered, wide
from residuum.studies.steps import (
    NARROW_RATE,
    StudyContext,
    block_count,
    distillation_config,
    distillation_load,
    is_narrow,
)

TEACHER = "xlm-roberta-base"
ALIGNED, SHOT, BILINGUAL = "monoalignment", "monoshot", "bilingual-monoshot"
TAUGHT = "monoshot+td"  # MonoShot's students with task distillation: they also learn the logits of the adapted teacher
RETRIEVING = {"aligned": ALIGNED, "unaligned": SHOT}  # kinds of retrieval steps, and whose students retrieve
SUBSETS = ("uniform", "bottom", "top")
BILINGUALS = {  # students of all languages, table 4.9
    "sample": (BILINGUAL,),
    "small": (BILINGUAL, "bilingual-monoalignment"),
    "paper": (BILINGUAL, "bilingual-monoshot-cos", "bilingual-monoalignment"),
}
FEW_SHOT = {"sample": (10,), "small": (10, 100), "paper": (10, 100, 500)}
FEW_CHOICES = {"sample": (10,), "small": (10, 50), "paper": (10, 50, 100)}  # XCOPA has a hundred examples
FEW_SHOT_EPOCHS = {"sample": 2.0, "small": 10.0}  # the thesis: 50
ADAPTERS = ("adapter-source", "adapter-target", "adapter-joint")
STRATEGIES: dict[str, Any] = {
    "sample": ("bitfit-target", "full-source", "full-target"),
    "small": (*ADAPTERS, "bitfit-target", "sparse-delta", "freeze+2", "full-source", "full-target"),
    "paper": "all",
}
ALL_STRATEGIES = 12  # of table 4.6
TABLES = {"sample": ("4.8",), "small": ("4.8",), "paper": ("4.7", "4.8")}
TABLES_COMMAND = "study distillation"
DISTILLATIONS: dict[str, dict[str, dict[str, Any]]] = {
    "4.7": {preset: {"preset": preset} for preset in TABLE_4_7},
    "4.8": {
        "monoshot": {"preset": "monoshot"},
        "monoshot-without-sharing": {"preset": "monoshot", "share": "none"},
        "monoshot-without-teacher-start": {"preset": "monoshot", "initialise": "random"},
        "monoshot-without-tying": {"preset": "monoshot", "tie": False},
    },
}
"""The rows of tables 4.7 (ten losses) and 4.8 (the method without its parts), as changes to the settings."""


def monolingual_steps(context: StudyContext) -> tuple[StudyStep, ...]:
    """Distil three kinds of students; retrieve translations; adapt to tasks; correlate; ablate the method."""
    pairs = sum(len(translations.source) for translations in context.data.pairs())
    distilling = distillation_load(context)
    bilinguals = BILINGUALS[context.scale.name]
    steps = [
        StudyStep("distill", f"Distil students by {preset}", _distill, distilling, variant=preset)
        for preset in (ALIGNED, SHOT, *bilinguals)
    ]
    steps.append(
        StudyStep(
            "retrieval", "Retrieve translations with the teacher", retrieve_with_teacher, Workload(read=2 * pairs)
        )
    )
    for kind, preset in RETRIEVING.items():
        for language in context.data.targets():
            title = f"Retrieve translations from {language} to en with students by {preset}"
            steps.append(StudyStep(kind, title, _students, Workload(read=pairs), variant=language))
    for variant in (*SUBSETS, *bilinguals):
        title = f"Retrieve translations with {variant}"
        steps.append(StudyStep("single", title, retrieve_with_one_model, Workload(read=2 * pairs), variant=variant))
    for task, (_, corpora) in context.data.transfers.items():
        trained = len(corpora.targets) * context.scale.seeds * len(corpora.train) * context.scale.epochs
        strategies = STRATEGIES[context.scale.name]
        for variant in ("teacher", *SUBSETS, SHOT, TAUGHT, *bilinguals):
            n_strategies = 1 if variant != SHOT else ALL_STRATEGIES if strategies == "all" else len(strategies)
            load = Workload(trained=n_strategies * trained)
            title = f"Transfer {task} from English with {variant}"
            steps.append(StudyStep("adapt", title, adapt_to_task, load, task=task, variant=variant))
    tables = TABLES[context.scale.name]
    load = distillation_load(context, students=4)
    title = f"Distil with other losses and without parts (tables {' and '.join(tables)})"
    steps.append(StudyStep("losses", title, distil_rows, load))
    rows = list(dict.fromkeys(row for table in tables for row in DISTILLATIONS[table]))
    for row in rows:
        for language in context.data.targets():
            title = f"Retrieve translations from {language} to en with {row}"
            steps.append(StudyStep("row-retrieval", title, retrieve_with_row, Workload(read=pairs), task=language,
                                   variant=row))  # fmt: skip
        for task, (_, corpora) in context.data.transfers.items():
            trained = len(corpora.targets) * context.scale.seeds * len(corpora.train) * context.scale.epochs
            load = Workload(trained=trained)
            title = f"Transfer {task} from English with {row}"
            steps.append(StudyStep("row-adapt", title, adapt_row, load, task=task, variant=row))
    steps.append(StudyStep("correlate", "Correlate alignment with downstream scores (table 4.11)", correlate_scores))
    return tuple(steps)


def _subsets(context: StudyContext) -> dict[str, str]:
    """The layers of the students without distillation (section 4.3.1)."""
    half = max(1, block_count(context.models[context.first]) // 2)
    return dict(zip(SUBSETS, ("alternate", f"bottom:{half}", f"top:{half}"), strict=True))


def _distill(step: StudyStep, context: StudyContext) -> Run:
    config = {**distillation_config(context), "preset": step.variant}
    return distill(**config, out=context.folder(step), device=context.device, fresh=context.fresh, progress=False).run


def student_folder(context: StudyContext, preset: str, language: str = "") -> Path:
    """The student of a language, or by default the one student of all languages."""
    languages = language or "-".join(("en", *context.data.targets()))
    return context.folder("distill", variant=preset) / "students" / languages


def retrieve_with_teacher(step: StudyStep, context: StudyContext) -> Run:
    """All layers, each alone, every second one and the thirds of table 4.3."""
    blocks = block_count(context.models[context.first])
    third = max(1, blocks // 3)
    uniform = ",".join(map(str, range(1, blocks + 1, 2)))
    thirds = [f"{start}-{start + third - 1}" if third > 1 else str(start) for start in (1, third + 1, 2 * third + 1)]
    return evaluate_retrieval(
        context.load(context.models[context.first], name=context.first),
        context.data.pairs(),
        layers=["all", "each", uniform, *thirds],
        out=context.folder(step),
        **context.bounded,
    ).run


def _students(step: StudyStep, context: StudyContext) -> Run:
    language, preset = step.variant, RETRIEVING[step.kind]
    return evaluate_retrieval(
        context.load(student_folder(context, preset, language)),
        [context.data.pairs()[context.data.targets().index(language)]],
        target_model=context.load(student_folder(context, preset, "en")),
        layers=["all", "each"],
        out=context.folder(step),
        **context.bounded,
    ).run


def retrieve_with_one_model(step: StudyStep, context: StudyContext) -> Run:
    """One model reads all languages: layers of the teacher without distillation, or the bilingual student."""
    if step.variant not in SUBSETS:
        model = context.load(student_folder(context, step.variant))
    else:
        teacher = context.load(context.models[context.first])
        keep_layers(teacher.module, kept_layers(teacher.n_layers, keep=_subsets(context)[step.variant]))
        model = from_transformers(teacher.module, teacher.tokenizer)
    model = replace(model, name=step.variant)
    return evaluate_retrieval(model, context.data.pairs(), out=context.folder(step), **context.bounded).run


def correlate_scores(step: StudyStep, context: StudyContext) -> Run:
    """Over the teacher, its layers and all students that learnt the tasks; a score is the mean over tasks."""

    def joined(kind: str, variant: str = "") -> Retrieval:
        """The retrieval of students that have a run per language."""
        facts = [
            {"task": code, "variant": variant} if variant else {"variant": code} for code in context.data.targets()
        ]
        runs = [read_run(context.folder(kind, **own)) for own in facts]
        table = pd.concat([run.tables["retrieval"] for run in runs], ignore_index=True)
        return Retrieval(replace(runs[0], tables={"retrieval": table, "averages": average_table(table)}))

    def downstream(kind: str, variant: str) -> float:
        runs = [read_run(context.folder(kind, task=task, variant=variant)) for task in context.data.transfers]
        return fmean(run.summary[f"test {run.summary['metric']}"]["full-target"] for run in runs)

    singles = (*SUBSETS, *BILINGUALS[context.scale.name])
    rows = [row for table in TABLES[context.scale.name] for row in DISTILLATIONS[table] if row != SHOT]
    with clear_content_errors("study monolingual", context.out):
        retrievals = {"teacher": Retrieval(read_run(context.folder("retrieval"))), SHOT: joined("unaligned")}
        retrievals |= {name: Retrieval(read_run(context.folder("single", variant=name))) for name in singles}
        scores = {variant: downstream("adapt", variant) for variant in retrievals}
        retrievals |= {row: joined("row-retrieval", row) for row in rows}
        scores |= {row: downstream("row-adapt", row) for row in rows}
    return correlate_alignment(retrievals, scores, out=context.folder(step), fresh=context.fresh).run


def row_folder(context: StudyContext, row: str, language: str) -> Path:
    """The student of a language in a row of tables 4.7 and 4.8."""
    return context.folder("losses") / row / "students" / language


def retrieve_with_row(step: StudyStep, context: StudyContext) -> Run:
    """The students of a row of tables 4.7 and 4.8, in one language and English."""
    return evaluate_retrieval(
        context.load(row_folder(context, step.variant, step.task)),
        [context.data.pairs()[context.data.targets().index(step.task)]],
        target_model=context.load(row_folder(context, step.variant, "en")),
        layers=["all", "each"],
        out=context.folder(step),
        **context.bounded,
    ).run


def adapt_row(step: StudyStep, context: StudyContext) -> Run:
    """The students of a row, adapted to a task: tables 4.7 and 4.8 print downstream scores."""
    task, corpora = context.data.transfers[step.task]
    return adapt(
        str(row_folder(context, step.variant, "en")),
        corpora,
        task,
        context.folder(step),
        **adaptation_settings(context).options(AdaptationTraining),
        device=context.device,
        target={code: str(row_folder(context, step.variant, code)) for code in corpora.targets},
        strategy=("full-target",),
        seeds=context.scale.seeds,
        **context.options,
    ).run


def adapt_to_task(step: StudyStep, context: StudyContext) -> Run:
    """Learn a task in English and test it in the target languages: the teacher, its layers, or students."""
    task, corpora = context.data.transfers[step.task]
    targets, source, scale = tuple(corpora.targets), context.models[context.first], context.scale.name
    options: dict[str, Any] = {"language": targets, "strategy": "full-target"}
    if scale == "paper" or step.variant in ("teacher", SHOT):  # below it only the teacher and the students
        sizes = FEW_CHOICES if task.name == "xcopa" else FEW_SHOT
        options |= {"few_shot": sizes[scale], "draws": 3 if scale == "paper" else 1}
    if step.variant in SUBSETS:
        options["keep_layers"] = _subsets(context)[step.variant]
    elif step.variant in (SHOT, TAUGHT):
        source = str(student_folder(context, SHOT, "en"))
        del options["language"]
        options["target"] = {code: str(student_folder(context, SHOT, code)) for code in targets}
        if step.variant == SHOT:
            options["strategy"] = STRATEGIES[scale]
        else:
            adapted = context.folder("adapt", task=step.task, variant="teacher")
            trainings = read_run(adapted).tables["trainings"]
            options["teacher"] = str(adapted / trainings["folder"].iloc[0])  # full-target, of the first seed
    elif step.variant != "teacher":
        source = str(student_folder(context, step.variant))
    return adapt(
        source,
        corpora,
        task,
        context.folder(step),
        **adaptation_settings(context).options(AdaptationTraining),
        device=context.device,
        seeds=context.scale.seeds,
        **options,
        **context.options,
    ).run


def adaptation_settings(context: StudyContext) -> AdaptationTraining:
    """The thesis' settings, with fewer epochs below its scale and a larger learning rate for a narrow teacher."""
    scale = context.scale
    if scale.name == "paper":
        return AdaptationTraining()
    settings = AdaptationTraining(
        epochs=scale.epochs, batch_size=scale.batch_size, few_shot_epochs=FEW_SHOT_EPOCHS[scale.name]
    )
    narrow = is_narrow(context.models[context.first])
    return replace(settings, learning_rate=NARROW_RATE, few_shot_learning_rate=NARROW_RATE) if narrow else settings


def distil_rows(step: StudyStep, context: StudyContext) -> Run:
    """All rows of tables 4.7 and 4.8 that the scale distils."""
    config, tables = {**distillation_config(context), "preset": SHOT}, TABLES[context.scale.name]
    options = {"device": context.device, "fresh": context.fresh, "progress": False}
    return distillation_tables(config, context.folder(step), tables=tables, **options).run


@dataclass(frozen=True, eq=False)
class DistillationTables(Result):
    """The scores of the students of every row, side by side."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """row, score, subject, value and parameters."""
        return self.run.tables["scores"]


def distillation_tables(
    config: str | Path | Mapping[str, Any],
    out: str | Path,
    *,
    tables: Sequence[str] = ("4.7", "4.8"),
    device: str = "auto",
    fresh: bool = False,
    progress: bool = True,
) -> DistillationTables:
    """Distil once per row of the tables, all with the settings of `config`, and collect the scores.

    `config` is that of `distill`, with its losses replaced by those of each row. Finished rows are not run again.
    """
    unknown = [table for table in tables if table not in DISTILLATIONS]
    if unknown or not tables:
        raise SettingError(f"There is no table {(unknown or ['none'])[0]}; choose from {', '.join(DISTILLATIONS)}.")
    base, out = common_settings(config), Path(out)
    identity = {"config": with_fingerprints(base), "tables": list(tables)}
    if run := finished_run(out, TABLES_COMMAND, identity, fresh=fresh):
        return DistillationTables(run)
    scores, history = [], []
    rows = {name: changes for table in tables for name, changes in DISTILLATIONS[table].items()}
    for name, changes in rows.items():
        options = {"out": out / name, "device": device, "fresh": fresh, "progress": progress}
        result = distill(**{**base, **changes, **options})
        final = result.scores[result.scores["step"] == result.scores["step"].max()]
        parameters = result.run.summary["parameters of all students"]
        scores.append(final.assign(row=name, parameters=parameters)[["row", "score", "subject", "value", "parameters"]])
        history.append(result.scores.assign(row=name)[["row", "step", "score", "subject", "value"]])
    tables_of_rows = {"scores": pd.concat(scores, ignore_index=True), "history": pd.concat(history, ignore_index=True)}
    run = Run(TABLES_COMMAND, identity, {"rows": len(rows)}, tables_of_rows)
    write_run(out, run)
    return DistillationTables(run)


def common_settings(config: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """The settings that all rows share."""
    values = dict(config) if isinstance(config, Mapping) else read_yaml(Path(config), SettingError)
    read_settings({"preset": "monoshot", **values})  # checked before the first row
    return {key: value for key, value in values.items() if key not in ("losses", "preset", "layer_map", "out")}


@claim("§4.3.2, table 4.3", "The teacher's middle layers align languages best.", above=0)
def middle_layers_align_best(results: Results) -> Evidence | None:
    """Accuracy of the best layer of the middle third minus that of the best other layer, per score."""
    table = results.only("retrieval").tables["averages"]
    single = table.loc[table["layer"].notna() & (table["direction"] == "forward")]
    cases = {}
    for score, rows in single.groupby("score", sort=False):
        depth = rows["layer"].astype(float) / float(rows["layer"].max())
        middle = (depth > 1 / 3) & (depth <= 2 / 3)
        best, other = (
            Measurement.mean(part.loc[part["accuracy"] == part["accuracy"].max()].head(1), "accuracy")
            for part in (rows.loc[middle], rows.loc[~middle])
        )
        cases[str(score)] = best - other
    return Evidence.of(cases)


@claim("§4.3.2, table 4.3", "With the teacher, cosine retrieves more translations than BERTScore.", above=0)
def cosine_beats_bertscore(results: Results) -> Evidence | None:
    """Accuracy by cosine minus that by BERTScore, over all layers of the teacher, per language pair."""
    cosine, bertscore = (_retrieval_accuracy(results.only("retrieval"), score) for score in ("cosine", "bertscore"))
    return Evidence.of({pair: cosine[pair] - bertscore[pair] for pair in cosine})


@claim("§4.3.2, table 4.3", "By BERTScore, MonoAlignment's students retrieve more than the teacher.", above=0)
def monoalignment_beats_the_teacher(results: Results) -> Evidence | None:
    """Accuracy of the students by BERTScore minus the teacher's, per language pair."""
    before = _retrieval_accuracy(results.only("retrieval"), "bertscore")
    runs = [run for _, run in results.of("aligned")]
    after = {pair: value for run in runs for pair, value in _retrieval_accuracy(run, "bertscore").items()}
    return Evidence.of({pair: after[pair] - before[pair] for pair in after})


@claim("§4.3.3, table 4.4", "MonoShot's students beat layers of the teacher without distillation.", above=0)
def monoshot_beats_layer_subsets(results: Results) -> Evidence | None:
    """Zero-shot score of MonoShot minus that of the best subset of layers, per task."""
    return Evidence.of(
        {
            task: scores[SHOT] - _largest(scores[name] for name in SUBSETS)
            for task, scores in _zero_shot_scores(results).items()
        }
    )


@claim("§4.3.3, table 4.4", "The teacher beats MonoShot's students.", above=0)
def teacher_beats_monoshot(results: Results) -> Evidence | None:
    """Zero-shot score of the teacher minus that of MonoShot, per task."""
    return Evidence.of({task: scores["teacher"] - scores[SHOT] for task, scores in _zero_shot_scores(results).items()})


@claim("§4.3.3, table 4.4", "The bottom half is the best subset of the teacher's layers.", above=0)
def bottom_layers_are_the_best_subset(results: Results) -> Evidence | None:
    """Zero-shot score of the bottom layers minus that of the better of the other subsets, per task."""
    return Evidence.of(
        {
            task: scores["bottom"] - _largest((scores["uniform"], scores["top"]))
            for task, scores in _zero_shot_scores(results).items()
        }
    )


@claim("§4.3.3, table 4.4", "Learning the teacher's logits of the task does not help MonoShot's students.", below=0)
def task_distillation_does_not_help(results: Results) -> Evidence | str | None:
    """Zero-shot score of MonoShot with task distillation minus that without, per task."""
    scores = _zero_shot_scores(results)
    cases = {task: own[TAUGHT] - own[SHOT] for task, own in scores.items() if {TAUGHT, SHOT} <= set(own)}
    return Evidence.of(cases) or "no students learnt a task with task distillation"


@claim("§4.4.1, table 4.6", "Training all of the target student is the best strategy.", above=0)
def full_target_is_best(results: Results) -> Evidence | None:
    """Zero-shot score of `full-target` minus that of the best other strategy, per task."""
    cases = {}
    for step, run in results.of("adapt", variant=SHOT):
        scores = _strategy_scores(run)
        cases[step.task] = scores.pop("full-target") - _largest(scores.values())
    return Evidence.of(cases)


@claim("§4.4.1, table 4.6", "Adapters trained on the target student, alone or jointly, beat source adapters.", above=0)
def joint_and_target_adapters_beat_source(results: Results) -> Evidence | str | None:
    """Zero-shot score of the worse of `adapter-joint` and `adapter-target` minus `adapter-source`, per task."""
    cases = {}
    for step, run in results.of("adapt", variant=SHOT):
        scores = _strategy_scores(run)
        if not set(ADAPTERS) <= set(scores):
            return "this scale does not train all adapters; the scale small does"
        worse = min((scores["adapter-joint"], scores["adapter-target"]), key=lambda score: score.value)
        cases[step.task] = worse - scores["adapter-source"]
    return Evidence.of(cases)


@claim("§4.4.1, table 4.6", "Bias terms alone (BitFit) are worse than adapters, both trained on the target.", above=0)
def bitfit_is_weak(results: Results) -> Evidence | str | None:
    """Zero-shot score of `adapter-target` minus that of `bitfit-target`, per task."""
    return _strategy_beats(results, "adapter-target", "bitfit-target")


@claim("§4.4.1, table 4.6", "Sparse fine-tuning beats adapters where only the source student learns.", above=0)
def sparse_tuning_beats_source_adapters(results: Results) -> Evidence | str | None:
    """Zero-shot score of `sparse-delta` minus that of `adapter-source`, per task."""
    return _strategy_beats(results, "sparse-delta", "adapter-source")


@claim("§4.3.2, table 4.3", "MonoAlignment's students retrieve more by BERTScore than by cosine.", above=0)
def monoalignment_prefers_bertscore(results: Results) -> Evidence | None:
    """Accuracy of the students by BERTScore minus that by cosine, over all layers, per language pair."""
    cases = {}
    for _, run in results.of("aligned"):
        cosine, bertscore = (_retrieval_accuracy(run, score) for score in ("cosine", "bertscore"))
        cases |= {pair: bertscore[pair] - cosine[pair] for pair in cosine}
    return Evidence.of(cases)


@claim("§4.5.3, table 4.13", "A bilingual MonoAlignment student is aligned worse than monolingual ones.", above=0)
def bilingual_alignment_is_worse(results: Results) -> Evidence | str | None:
    """Accuracy by BERTScore of MonoAlignment's students minus that of the bilingual one, per language pair."""
    alone: dict[str, Measurement] = {}
    for _, run in results.of("aligned"):
        alone |= _retrieval_accuracy(run, "bertscore")
    for _, run in results.of("single", variant=f"bilingual-{ALIGNED}"):
        together = _retrieval_accuracy(run, "bertscore")
        return Evidence.of({pair: alone[pair] - together[pair] for pair in alone if pair in together})
    return "this scale distils no bilingual MonoAlignment student; the scale small does"


@claim("§4.5.1, table 4.11", "MonoAlignment's students are aligned best of all losses, by BERTScore.", above=0)
def monoalignment_is_aligned_best(results: Results) -> Evidence | str | None:
    """Accuracy by BERTScore of MonoAlignment minus that of the best other row of table 4.7, per language pair."""
    cases = {
        pair: rows[ALIGNED] - _largest(own for name, own in rows.items() if name != ALIGNED)
        for pair, rows in _row_accuracies(results, DISTILLATIONS["4.7"]).items()
        if set(rows) == set(DISTILLATIONS["4.7"])
    }
    return Evidence.of(cases) or "this scale does not distil these rows; the scale paper does"


@claim("§4.5.1, table 4.11", "Better alignment does not go with better downstream scores.", below=0)
def alignment_goes_with_scores(results: Results) -> Evidence | None:
    """Pearson's correlation over models of retrieval accuracy with the mean downstream score, per score."""
    table = results.only("correlate").tables["correlations"]
    rows = table.loc[(table["measure"] == "pearson") & (table["direction"] == "forward")]
    columns = zip(rows["score"], rows["value"], rows["low"], rows["high"], strict=True)
    return Evidence.of({str(score): Measurement(*map(float, numbers)) for score, *numbers in columns})


@claim("§4.4.3, table 4.8", "Students that start from the teacher's weights predict text better.", above=1)
def teacher_start_helps(results: Results) -> Evidence | None:
    """Perplexity of students with a random start as a multiple of that of the others, per student."""
    table = results.only("losses").tables["scores"]
    rows = table.loc[table["score"] == "perplexity"].pivot(index="subject", columns="row", values="value")
    ratios = rows["monoshot-without-teacher-start"] / rows["monoshot"]
    return Evidence.exact({str(subject): ratio for subject, ratio in ratios.items()})


@claim("§4.4.2, table 4.7", "Distilling from the logits alone gives the worst students.", above=0)
def logits_alone_are_worst(results: Results) -> Evidence | str | None:
    """Zero-shot score of the worst other row of table 4.7 minus that of `hinton`, per task."""
    return _row_beats(results, "hinton", [row for row in DISTILLATIONS["4.7"] if row != "hinton"], worst=True)


@claim("§4.4.2, table 4.7", "Teacher layers taken uniformly teach better than top, bottom or last layers.", above=0)
def uniform_layers_teach_best(results: Results) -> Evidence | str | None:
    """Zero-shot score of MonoShot minus that of the best of the other layer maps, per task."""
    return _row_beats(results, SHOT, ["monoshot-top", "monoshot-bottom", ALIGNED])


@claim("§4.4.3, table 4.8", "Every part of MonoShot helps: sharing, the teacher's start, and tying.", above=0)
def every_part_helps(results: Results) -> Evidence | str | None:
    """Zero-shot score of MonoShot minus that of the best row without one part, per task."""
    return _row_beats(results, SHOT, [row for row in DISTILLATIONS["4.8"] if row != SHOT])


@claim("§4.4.4, table 4.9", "One bilingual student scores at least as well as monolingual ones.", above=-0.01)
def bilingual_students_are_as_good(results: Results) -> Evidence | None:
    """Zero-shot score of the bilingual MonoShot student minus that of the monolingual ones, per task."""
    return Evidence.of({task: own[BILINGUAL] - own[SHOT] for task, own in _zero_shot_scores(results).items()})


@claim("§4.3.4, table 4.5", "A hundred target examples help every model (in named entities).", above=0)
def examples_help(results: Results) -> Evidence | None:
    """Test score with the most target examples minus the zero-shot score, mean over languages, per task and model."""
    cases = {}
    for step, run in results.of("adapt"):
        table = chosen(run.tables["means"], strategy="full-target", part="test", metric=run.summary["metric"])
        most = max(table["k"].tolist(), default=0)
        if most > 0:
            zero, few = (Measurement.mean(chosen(table, k=k)) for k in (0, most))
            cases[f"{step.task}, {step.variant}"] = few - zero
    return Evidence.of(cases)


@claim("§4.5.2, table 4.12", "MonoShot without its parts is aligned worse by BERTScore.", above=0)
def parts_align_by_bertscore(results: Results) -> Evidence | str | None:
    """Accuracy of MonoShot by BERTScore minus that of the best row without one part, per language pair."""
    cases = {
        pair: rows[SHOT] - _largest(own for name, own in rows.items() if name != SHOT)
        for pair, rows in _row_accuracies(results, DISTILLATIONS["4.8"]).items()
        if set(rows) == set(DISTILLATIONS["4.8"])
    }
    return Evidence.of(cases) or "the rows of table 4.8 were left out"


def _row_accuracies(results: Results, names: Iterable[str]) -> dict[str, dict[str, Measurement]]:
    """Accuracy by BERTScore of the rows of a table, by language pair."""
    rows: dict[str, dict[str, Measurement]] = {}
    for name in names:
        for _, run in results.of("row-retrieval", variant=name):
            for pair, accuracy in _retrieval_accuracy(run, "bertscore").items():
                rows.setdefault(pair, {})[name] = accuracy
    return rows


def _strategy_beats(results: Results, better: str, worse: str) -> Evidence | str | None:
    """The score of one strategy of MonoShot's students minus that of another, per task."""
    scores = {step.task: _strategy_scores(run) for step, run in results.of("adapt", variant=SHOT)}
    cases = {task: own[better] - own[worse] for task, own in scores.items() if {better, worse} <= set(own)}
    return Evidence.of(cases) or f"this scale does not train {better} and {worse}; the scale small does"


def _row_beats(results: Results, row: str, others: Sequence[str], *, worst: bool = False) -> Evidence | str | None:
    """The score of a row minus the best of others; with `worst`, that of the worst of the others minus the row's."""
    scores: dict[str, dict[str, Measurement]] = {}
    for step, run in results.of("row-adapt"):
        scores.setdefault(step.task, {})[step.variant] = _strategy_scores(run)["full-target"]
    cases = {}
    for task, own in scores.items():
        if row in own and set(others) <= set(own):
            compared = sorted((own[name] for name in others), key=lambda score: score.value)
            cases[task] = compared[0] - own[row] if worst else own[row] - compared[-1]
    return Evidence.of(cases) or "this scale does not distil these rows; the scale paper does"


def retrieval_grid(results: Results) -> pd.DataFrame:
    """Table 4.3: one row per model or choice of its layers, one column per score and language pair, and averages."""
    teacher = gathered(results, "retrieval", "retrieval")
    layers = [name for name in teacher["layers"].unique() if "," in name or "-" in name or name == "all"]
    third = ["bottom third", "middle third", "top third"]
    ranges = [name for name in layers if "-" in name]
    names = {"all": "teacher", **{name: "uniform layers" for name in layers if "," in name}}
    names |= dict(zip(ranges, third, strict=False))
    rows = [teacher.loc[teacher["layers"].isin(layers)].assign(strategy=lambda own: own["layers"].map(names))]
    for kind, preset in RETRIEVING.items():
        rows.append(gathered(results, kind, "retrieval").assign(strategy=f"{preset} students"))
    singles = gathered(results, "single", "retrieval")
    rows.append(singles.assign(strategy=singles.get("variant", "")))
    return _retrieval_columns(pd.concat([rows[0], *(chosen(own, layers="all") for own in rows[1:] if len(own))]))


def row_retrieval_grid(results: Results, table: str) -> pd.DataFrame:
    """Tables 4.11, 4.12 and 4.13: downstream average and retrieval of the rows of a table."""
    if table == "4.13":
        found = pd.concat([gathered(results, kind, "retrieval") for kind in ("unaligned", "single")])
        found = found.loc[~found["variant"].isin(SUBSETS)]
        names = found["variant"].where(found["variant"].str.startswith("bilingual"), SHOT)
        downstream = _downstream(results, "adapt")
    else:
        found = gathered(results, "row-retrieval", "retrieval")
        found = (
            found.loc[found["variant"].isin(DISTILLATIONS["4.8" if table == "4.12" else "4.7"])]
            if len(found)
            else found
        )
        names, downstream = found.get("variant"), _downstream(results, "row-adapt")
    if found.empty:
        return found
    grid = _retrieval_columns(chosen(found.assign(strategy=names), layers="all"))
    if table != "4.12":
        grid.insert(1, "downstream average", [downstream.get(name, math.nan) for name in grid["strategy"].tolist()])
    return grid


def _retrieval_columns(table: pd.DataFrame) -> pd.DataFrame:
    forward = table.loc[table["direction"] == "forward"]
    grid = wide(forward, "strategy", ["score", "pair"], "accuracy")
    for score in forward["score"].unique():
        grid[f"{score} {AVERAGE.lower()}"] = grid[[name for name in grid if name.startswith(f"{score} ")]].mean(axis=1)
    return grid


def _downstream(results: Results, kind: str) -> dict[str, float]:
    """The zero-shot test score averaged over tasks, by variant."""
    scores: dict[str, list[float]] = {}
    for step, run in results.of(kind):
        scores.setdefault(step.variant, []).append(_strategy_scores(run)["full-target"].value)
    return {variant: fmean(values) for variant, values in scores.items()}


def layer_retrieval(results: Results, kinds: tuple[str, ...]) -> pd.DataFrame:
    """Figures 4.1 and 4.3: accuracy of every layer alone, by both scores and language pair."""
    names = {"retrieval": "teacher", "aligned": f"{ALIGNED} students"}
    parts = [gathered(results, kind, "retrieval").assign(kind=names.get(kind, "")) for kind in kinds]
    table = pd.concat(parts, ignore_index=True)
    single = table.loc[table["layer"].notna() & (table["direction"] == "forward")]
    names_of = single["kind"].where(single["kind"] != "", single.get("variant", ""))
    return single.assign(model=names_of, layer=single["layer"].astype(int)).drop(columns="kind")


def zero_shot_grid(
    results: Results, kind: str = "adapt", rows: tuple[str, ...] = (), part: str = "dev"
) -> pd.DataFrame:
    """Tables 4.4 and 4.7 to 4.10: one row per model, one column per task and language, and the average."""
    table = gathered(results, kind, "means")
    if table.empty:
        return table
    table = chosen(table, strategy="full-target", part=part, k=0)
    table = chosen(table, variant=rows) if rows else table
    return wide(table, "variant", ["task", "language"], "value", average=AVERAGE)


def few_shot_grid(results: Results) -> pd.DataFrame:
    """Table 4.5: one row per language and model, one column per task and number of target examples."""
    table = chosen(gathered(results, "adapt", "means"), strategy="full-target", part="test")
    table = chosen(table, variant=("teacher", *SUBSETS, SHOT))
    grid = wide(table, ["language", "variant"], ["task", "k"], "value")
    return grid.sort_values("language", kind="stable", ignore_index=True)


def strategy_grid(results: Results) -> pd.DataFrame:
    """Table 4.6: one row per task and language, one column per strategy; the average of each."""
    table = chosen(gathered(results, "adapt", "means", variant=SHOT), part="dev", k=0)
    grid = wide(table, ["task", "language"], "strategy", "value")
    last = {"task": AVERAGE, "language": "", **grid.drop(columns=["task", "language"]).mean().to_dict()}
    return pd.concat([grid, pd.DataFrame([last])], ignore_index=True) if len(grid) else grid


def perplexity_curves(results: Results) -> pd.DataFrame:
    """Figure 4.4: perplexity during distillation, with the teacher's start and with a random one."""
    table = gathered(results, "losses", "history")
    return chosen(table, score="perplexity", row=(SHOT, "monoshot-without-teacher-start"))


def _largest(scores: Iterable[Measurement]) -> Measurement:
    return max(scores, key=lambda score: score.value)


def _retrieval_accuracy(run: Run, score: str, layers: str = "all") -> dict[str, Measurement]:
    """Accuracy over all layers, or some, per language pair; a bootstrap of 100 % would have no width."""
    rows = chosen(run.tables["retrieval"], layers=layers, direction="forward", score=score)
    numbers = zip(rows["pair"], rows["accuracy"], rows["sentences"], strict=True)
    return {str(pair): Measurement.accuracy(float(accuracy), int(n)) for pair, accuracy, n in numbers}


def _zero_shot_scores(results: Results) -> dict[str, dict[str, Measurement]]:
    """The test score of `full-target` averaged over languages, by task and variant."""
    scores: dict[str, dict[str, Measurement]] = {}
    for step, run in results.of("adapt"):
        scores.setdefault(step.task, {})[step.variant] = _strategy_scores(run)["full-target"]
    return scores


def _strategy_scores(run: Run) -> dict[str, Measurement]:
    """The zero-shot test score of each strategy over the examples of all languages, with the error of its seeds.

    Only accuracy has an interval over examples.
    """
    metric = run.summary["metric"]
    examples = sum(sizes["test"] for sizes in run.summary["target examples"].values())
    scores = {}
    for name, value in run.summary[f"test {metric}"].items():
        score = Measurement.accuracy(value, examples) if metric == "accuracy" else Measurement.exact(value)
        if "scores" in run.tables:
            table = chosen(run.tables["scores"], strategy=name, part="test", metric=metric, k=0)
            by_seed = [rows["value"].astype(float).mean() for _, rows in table.groupby("seed")]
            score = score.over_seeds(np.array(by_seed))
        scores[name] = score
    return scores


TABLE_4_3 = {  # retrieval with layers of XLM-R: by BERTScore in four languages, and by cosine
    "all": (0.310, 0.139, 0.143, 0.166, 0.545, 0.151, 0.332, 0.276),
    "1,3,5,7,9,11": (0.242, 0.131, 0.098, 0.138, 0.501, 0.146, 0.306, 0.256),
    "9-12": (0.509, 0.146, 0.280, 0.163, 0.601, 0.092, 0.342, 0.213),
    "5-8": (0.528, 0.164, 0.240, 0.227, 0.682, 0.146, 0.352, 0.302),
    "1-4": (0.135, 0.014, 0.029, 0.053, 0.369, 0.123, 0.152, 0.150),
}
TATOEBA_PAIRS = {"tur-eng": 1000, "swh-eng": 390, "urd-eng": 1000, "eus-eng": 1000}
TABLE_4_4 = {  # zero-shot scores on the development parts
    "teacher": (0.717, 0.644, 0.693, 0.632, 0.562, 0.544),
    "uniform": (0.647, 0.554, 0.559, 0.590, 0.538, 0.536),
    "bottom": (0.662, 0.598, 0.621, 0.588, 0.508, 0.548),
    "top": (0.394, 0.350, 0.343, 0.409, 0.510, 0.488),
    SHOT: (0.679, 0.625, 0.650, 0.627, 0.555, 0.556),
    TAUGHT: (0.681, 0.634, 0.640, 0.616, 0.552, 0.528),
}
TABLE_4_4_COLUMNS = tuple((task, code) for task in ("xnli", "wikiann", "xcopa") for code in ("tr", "sw"))
TARGET_DATA = {
    "xnli": PrintedTargets("XNLI", {"tr": 2490, "sw": 2490}),
    "wikiann": PrintedTargets("WikiANN", {"tr": 10_000, "sw": 1000}),
    "xcopa": PrintedTargets("XCOPA", {"tr": 100, "sw": 100}),
}


def _printed_numbers() -> Iterator[PrintedNumber]:
    """What the thesis prints of XLM-R and of the students that were made from it."""

    def retrieved(run: Run, _: str, layers: str, score: str, pair: str) -> float:
        return _retrieval_accuracy(run, score, layers)[pair].value

    def adapted(run: Run, _: str, language: str) -> float:
        means = chosen(run.tables["means"], strategy="full-target", part="dev", k=0, language=language)
        return float(means["value"].iloc[0])

    columns = [(score, pair) for score in ("bertscore", "cosine") for pair in TATOEBA_PAIRS]
    for layers, values in TABLE_4_3.items():
        for (score, pair), value in zip(columns, values, strict=True):
            what = f"Retrieval of {pair} by {score}, {'all layers' if layers == 'all' else f'layers {layers}'}"
            yield PrintedNumber("§4.3.2, table 4.3", what, value, TEACHER,
                                PrintedTargets("Tatoeba", {pair: TATOEBA_PAIRS[pair]}), {"kind": "retrieval"},
                                partial(retrieved, layers=layers, score=score, pair=pair))  # fmt: skip
    for variant, values in TABLE_4_4.items():
        for (task, language), value in zip(TABLE_4_4_COLUMNS, values, strict=True):
            what = f"Zero-shot score of {variant} on {task} in {language}"
            yield PrintedNumber("§4.3.3, table 4.4", what, value, TEACHER,
                                TARGET_DATA[task], {"kind": "adapt", "task": task, "variant": variant},
                                partial(adapted, language=language), 0.03)  # fmt: skip


MONOLINGUAL = Document(
    name="monolingual",
    title="Can a multilingual model become small aligned models of single languages?",
    source="A thesis on distilling multilingual models into monolingual students (MonoAlignment and MonoShot)",
    steps=monolingual_steps,
    exhibits=(
        Exhibit(
            "Table 4.3",
            "Retrieval of translations by BERTScore and cosine",
            ("retrieval", "aligned", "unaligned", "single"),
            retrieval_grid,
        ),
        Exhibit(
            "Figure 4.1",
            "Retrieval by each layer: the teacher and its students",
            ("retrieval", "aligned"),
            partial(layer_retrieval, kinds=("retrieval", "aligned")),
            Drawing("lines", x="layer", y="accuracy", by="model", panel="pair,score"),
        ),
        Exhibit(
            "Table 4.4",
            "Zero-shot scores (development part)",
            ("adapt",),
            partial(zero_shot_grid, rows=("teacher", *SUBSETS, SHOT, TAUGHT)),
        ),
        Exhibit("Table 4.5", "Few-shot scores (test part)", ("adapt",), few_shot_grid),
        Exhibit("Table 4.6", "Strategies of MonoShot's students (development part)", ("adapt",), strategy_grid),
        *(
            Exhibit(
                f"Table {table}",
                f"Zero-shot scores of {what} (development part)",
                ("row-adapt",),
                partial(zero_shot_grid, kind="row-adapt", rows=tuple(DISTILLATIONS[table])),
            )
            for table, what in (("4.7", "other losses"), ("4.8", "the method without its parts"))
        ),
        Exhibit(
            "Figure 4.4",
            "Perplexity during distillation, with the teacher's start and a random one",
            ("losses",),
            perplexity_curves,
            Drawing("lines", x="step", y="value", by="row", panel="subject"),
        ),
        Exhibit(
            "Table 4.9",
            "Bilingual students (development part)",
            ("adapt",),
            partial(zero_shot_grid, rows=(SHOT, *BILINGUALS["paper"])),
        ),
        Exhibit(
            "Table 4.10",
            "Bilingual students and the teacher (test part)",
            ("adapt",),
            partial(zero_shot_grid, rows=("teacher", *BILINGUALS["paper"]), part="test"),
        ),
        Exhibit(
            "Table 4.11",
            "Downstream average and retrieval of every loss",
            ("row-retrieval",),
            partial(row_retrieval_grid, table="4.11"),
        ),
        Exhibit(
            "Figure 4.3",
            "Retrieval by each layer, by loss",
            ("row-retrieval",),
            partial(layer_retrieval, kinds=("row-retrieval",)),
            Drawing("lines", x="layer", y="accuracy", by="model", panel="pair,score"),
        ),
        Exhibit(
            "Table 4.12",
            "Retrieval of the method without its parts",
            ("row-retrieval",),
            partial(row_retrieval_grid, table="4.12"),
        ),
        Exhibit(
            "Table 4.13",
            "Downstream average and retrieval of bilingual students",
            ("unaligned", "single"),
            partial(row_retrieval_grid, table="4.13"),
        ),
    ),
    claims=(
        middle_layers_align_best,
        cosine_beats_bertscore,
        monoalignment_beats_the_teacher,
        monoalignment_prefers_bertscore,
        monoshot_beats_layer_subsets,
        teacher_beats_monoshot,
        bottom_layers_are_the_best_subset,
        task_distillation_does_not_help,
        full_target_is_best,
        joint_and_target_adapters_beat_source,
        bitfit_is_weak,
        sparse_tuning_beats_source_adapters,
        examples_help,
        logits_alone_are_worst,
        uniform_layers_teach_best,
        every_part_helps,
        teacher_start_helps,
        bilingual_students_are_as_good,
        alignment_goes_with_scores,
        parts_align_by_bertscore,
        monoalignment_is_aligned_best,
        bilingual_alignment_is_worse,
    ),
    models={TEACHER: 85e6},
    printed=tuple(_printed_numbers()),
    multilingual=True,
    one_model=True,
    needs=("text/common_voice", "crosslingual/tatoeba", "crosslingual/xnli", "crosslingual/panx"),
)
