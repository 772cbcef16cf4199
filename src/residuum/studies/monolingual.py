"""A thesis on monolingual students: distil, align, transfer tasks, and take parts of the method away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from residuum.adaptation.adapting import adapt
from residuum.adaptation.settings import AdaptationTraining
from residuum.distillation.distilling import distill, with_fingerprints
from residuum.distillation.settings import TABLE_4_7, read_settings
from residuum.errors import SettingError
from residuum.evaluation.correlation import correlate_alignment
from residuum.evaluation.retrieval import Retrieval, average_table, evaluate_retrieval
from residuum.models.loading import from_transformers
from residuum.models.surgery import keep_layers, kept_layers
from residuum.storage.results import Result, Run, clear_content_errors, finished_run, read_run, write_run
from residuum.storage.schemas import read_yaml
from residuum.studies.claims import Evidence, Measurement, claim
from residuum.studies.context import NARROW_RATE, StudyContext, block_count, is_narrow
from residuum.studies.documents import Document, Exhibit, Results, StudyStep, Workload
from residuum.studies.steps import distillation_config, distillation_load

ALIGNED, SHOT, BILINGUAL = "monoalignment", "monoshot", "bilingual-monoshot"
RETRIEVING = {"aligned": ALIGNED, "unaligned": SHOT}  # kinds of retrieval steps, and whose students retrieve
SUBSETS = ("uniform", "bottom", "top")
FEW_SHOT = {"sample": (10,), "small": (10, 100), "paper": (10, 100, 500)}
FEW_SHOT_EPOCHS = {"sample": 2.0, "small": 10.0}  # the thesis: 50
ADAPTERS = ("adapter-source", "adapter-target", "adapter-joint")
STRATEGIES: dict[str, Any] = {
    "sample": ("bitfit-target", "full-source", "full-target"),
    "small": (*ADAPTERS, "bitfit-target", "sparse-delta", "freeze+2", "full-source", "full-target"),
    "paper": "all",
}
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
    steps = [
        StudyStep("distill", f"Distil students by {preset}", _distill, distilling, variant=preset)
        for preset in (ALIGNED, SHOT, BILINGUAL)
    ]
    steps.append(StudyStep("retrieval", "Retrieve translations with the teacher", _teacher, Workload(read=2 * pairs)))
    for kind, preset in RETRIEVING.items():
        for language in context.data.targets():
            title = f"Retrieve translations from {language} to en with students by {preset}"
            steps.append(StudyStep(kind, title, _students, Workload(read=pairs), variant=language))
    for variant in (*SUBSETS, BILINGUAL):
        title = f"Retrieve translations with {variant}"
        steps.append(StudyStep("single", title, _single, Workload(read=2 * pairs), variant=variant))
    for task, (_, corpora) in context.data.transfers.items():
        for variant in ("teacher", *SUBSETS, SHOT, BILINGUAL):
            strategies = 2 * len(STRATEGIES["small"]) if variant == SHOT else 1
            load = Workload(trained=strategies * len(corpora.train) * context.scale.epochs)
            title = f"Transfer {task} from English with {variant}"
            steps.append(StudyStep("adapt", title, _adapt, load, task=task, variant=variant))
    steps.append(StudyStep("correlate", "Correlate alignment with downstream scores (table 4.11)", _correlate))
    tables = " and ".join(TABLES[context.scale.name])
    load = distillation_load(context, students=4)
    steps.append(StudyStep("losses", f"Distil with other losses and without parts (tables {tables})", _losses, load))
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


def _teacher(step: StudyStep, context: StudyContext) -> Run:
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


def _single(step: StudyStep, context: StudyContext) -> Run:
    """One model reads all languages: layers of the teacher without distillation, or the bilingual student."""
    if step.variant == BILINGUAL:
        model = context.load(student_folder(context, BILINGUAL))
    else:
        teacher = context.load(context.models[context.first])
        keep_layers(teacher.module, kept_layers(teacher.n_layers, keep=_subsets(context)[step.variant]))
        model = from_transformers(teacher.module, teacher.tokenizer)
    model = replace(model, name=step.variant)
    return evaluate_retrieval(model, context.data.pairs(), out=context.folder(step), **context.bounded).run


def _correlate(step: StudyStep, context: StudyContext) -> Run:
    """Over the teacher, its layers and the students that learnt the tasks; a score is the mean over tasks."""
    singles = {name: Retrieval(read_run(context.folder("single", variant=name))) for name in (*SUBSETS, BILINGUAL)}
    students = [read_run(context.folder("unaligned", variant=code)) for code in context.data.targets()]
    with clear_content_errors("study monolingual", context.out):
        teacher = Retrieval(read_run(context.folder("retrieval")))
        table = pd.concat([run.tables["retrieval"] for run in students], ignore_index=True)
        joined = replace(students[0], tables={"retrieval": table, "averages": average_table(table)})
        retrievals = {"teacher": teacher, SHOT: Retrieval(joined), **singles}
        scores = {variant: _mean_score(context, variant) for variant in retrievals}
    return correlate_alignment(retrievals, scores, out=context.folder(step), fresh=context.fresh).run


def _mean_score(context: StudyContext, variant: str) -> float:
    """The zero-shot test score of `full-target`, averaged over tasks."""
    runs = [read_run(context.folder("adapt", task=task, variant=variant)) for task in context.data.transfers]
    return fmean(run.summary[f"test {run.summary['metric']}"]["full-target"] for run in runs)


def _adapt(step: StudyStep, context: StudyContext) -> Run:
    task, corpora = context.data.transfers[step.task]
    targets, source = context.data.targets(), context.models[context.first]
    chosen: dict[str, Any] = {"language": targets, "strategy": "full-target", **_few_shot(step, context)}
    if step.variant in SUBSETS:
        chosen["keep_layers"] = _subsets(context)[step.variant]
    elif step.variant == BILINGUAL:
        source = str(student_folder(context, BILINGUAL))
    elif step.variant == SHOT:
        source = str(student_folder(context, SHOT, "en"))
        del chosen["language"]
        chosen["target"] = {code: str(student_folder(context, SHOT, code)) for code in targets}
        chosen["strategy"] = STRATEGIES[context.scale.name]
    return adapt(
        source,
        corpora,
        task,
        context.folder(step),
        **adaptation_settings(context).options(AdaptationTraining),
        device=context.device,
        **chosen,
        **context.options,
    ).run


def _few_shot(step: StudyStep, context: StudyContext) -> dict[str, Any]:
    """Few examples of the target language; below the scale of the thesis only for the teacher and the students."""
    if context.scale.name == "paper":
        return {"few_shot": FEW_SHOT["paper"], "draws": 3}
    return {"few_shot": FEW_SHOT[context.scale.name], "draws": 1} if step.variant in ("teacher", SHOT) else {}


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


def _losses(step: StudyStep, context: StudyContext) -> Run:
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
    scores = []
    rows = {name: changes for table in tables for name, changes in DISTILLATIONS[table].items()}
    for name, changes in rows.items():
        options = {"out": out / name, "device": device, "fresh": fresh, "progress": progress}
        result = distill(**{**base, **changes, **options})
        final = result.scores[result.scores["step"] == result.scores["step"].max()]
        parameters = result.run.summary["parameters of all students"]
        scores.append(final.assign(row=name, parameters=parameters)[["row", "score", "subject", "value", "parameters"]])
    run = Run(TABLES_COMMAND, identity, {"rows": len(rows)}, {"scores": pd.concat(scores, ignore_index=True)})
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


def _largest(scores: Iterable[Measurement]) -> Measurement:
    return max(scores, key=lambda score: score.value)


def _retrieval_accuracy(run: Run, score: str) -> dict[str, Measurement]:
    """Accuracy over all layers, per language pair; a bootstrap of 100 % would have no width."""
    table = run.tables["retrieval"]
    rows = table.loc[(table["layers"] == "all") & (table["direction"] == "forward") & (table["score"] == score)]
    numbers = zip(rows["pair"], rows["accuracy"], rows["sentences"], strict=True)
    return {str(pair): Measurement.accuracy(float(accuracy), int(n)) for pair, accuracy, n in numbers}


def _zero_shot_scores(results: Results) -> dict[str, dict[str, Measurement]]:
    """The test score of `full-target` averaged over languages, by task and variant."""
    scores: dict[str, dict[str, Measurement]] = {}
    for step, run in results.of("adapt"):
        scores.setdefault(step.task, {})[step.variant] = _strategy_scores(run)["full-target"]
    return scores


def _strategy_scores(run: Run) -> dict[str, Measurement]:
    """The test score of each strategy over the examples of all languages; only accuracy has an interval."""
    metric = run.summary["metric"]
    scores = run.summary[f"test {metric}"]
    if metric != "accuracy":
        return {name: Measurement.exact(value) for name, value in scores.items()}
    examples = sum(sizes["test"] for sizes in run.summary["target examples"].values())
    return {name: Measurement.accuracy(value, examples) for name, value in scores.items()}


MONOLINGUAL = Document(
    name="monolingual",
    title="Can a multilingual model become small aligned models of single languages?",
    source="A thesis on distilling multilingual models into monolingual students (MonoAlignment and MonoShot)",
    steps=monolingual_steps,
    exhibits=(
        Exhibit("Table 4.3", "Retrieval of translations by the teacher's layers", "retrieval", "retrieval"),
        Exhibit("Table 4.3", "Retrieval of translations by MonoAlignment's students", "aligned", "retrieval"),
        Exhibit("Table 4.3", "Retrieval of translations by MonoShot's students", "unaligned", "retrieval"),
        Exhibit("Table 4.3", "Retrieval by layers without distillation, and by one student", "single", "retrieval"),
        Exhibit("Figure 4.1", "Retrieval by each layer", "retrieval", "averages"),
        Exhibit("Tables 4.4 to 4.6", "Zero-shot, few-shot and strategies", "adapt", "means"),
        Exhibit("Tables 4.7 and 4.8", "Losses, and the method without its parts", "losses", "scores"),
        Exhibit("Tables 4.9 and 4.10", "The bilingual student", "adapt", "means"),
        Exhibit("Table 4.11", "Correlation of alignment with downstream scores", "correlate", "correlations"),
        Exhibit("Figure 4.4", "Perplexity during distillation", "distill", "scores"),
    ),
    claims=(
        middle_layers_align_best,
        cosine_beats_bertscore,
        monoalignment_beats_the_teacher,
        monoshot_beats_layer_subsets,
        teacher_beats_monoshot,
        bottom_layers_are_the_best_subset,
        full_target_is_best,
        joint_and_target_adapters_beat_source,
        alignment_goes_with_scores,
        teacher_start_helps,
    ),
    models={"xlm-roberta-base": 85e6},
    needs=("text/common_voice", "crosslingual/tatoeba", "crosslingual/xnli", "crosslingual/panx"),
)
