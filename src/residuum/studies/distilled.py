"""A thesis on redundancy in distilled and multilingual models: layers, neurons, other languages."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from residuum.distillation.distilling import distill
from residuum.probing.languages import probe_languages
from residuum.storage.results import Run
from residuum.studies.claims import Claim, Evidence, Measurement, Rule, claim
from residuum.studies.context import StudyContext
from residuum.studies.documents import Document, Exhibit, Results, StudyStep, Workload, case_name
from residuum.studies.redundancy import removable_fraction
from residuum.studies.steps import compare_stores, distillation_config, distillation_load, n_sentences, task_redundancy

STUDENT = "student"
THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # of tables B.1 and B.2
FOCUS, HIGH = 0.3, 0.8  # clustering thresholds of the claims
NO_STUDENT = "no model is declared as distilled from another (--teachers STUDENT=TEACHER)"


def distilled_steps(context: StudyContext) -> tuple[StudyStep, ...]:
    """Distil where one model is passed; CKA; redundancy for two tasks; probing across languages."""
    text, steps = len(context.data.text), []
    if len(context.models) == 1:
        title = f"Distil {context.first} into a student of half its depth"
        steps.append(StudyStep("distill", title, _distill, distillation_load(context)))
    steps.append(StudyStep("compare", "Compare all layers of all models by CKA", _compare, Workload(read=text)))
    for model in _members(context):
        for task, (_, corpora) in context.data.treebank_tasks.items():
            load = Workload(read=n_sentences(corpora), probed=n_sentences(corpora))
            facts = {"model": model, "task": task, "unit": "word"}
            steps.append(StudyStep("redundancy", f"Find what {model} repeats for {task}", _redundancy, load, **facts))
    parallel = sum(len(treebank) for treebank in context.data.treebanks.values())
    for task in context.data.treebank_tasks:
        title, load = f"Probe {task} across languages", Workload(read=parallel, probed=parallel)
        steps.append(StudyStep("languages", title, _languages, load, task=task))
    return tuple(steps)


def _members(context: StudyContext) -> dict[str, str]:
    """The models that were passed; a single one and the student that the first step makes of it."""
    if len(context.models) > 1:
        return dict(context.models)
    languages = "-".join(("en", *context.data.targets()))
    return {**context.models, STUDENT: str(context.folder("distill") / "students" / languages)}


def _distill(step: StudyStep, context: StudyContext) -> Run:
    """DistilBERT's losses, one student for all languages."""
    config = {**distillation_config(context), "preset": "distilbert", "share": "all"}
    folder = context.folder(step)
    return distill(**config, out=folder, device=context.device, fresh=context.fresh, progress=False).run


def _compare(step: StudyStep, context: StudyContext) -> Run:
    stores = [context.read(name, path) for name, path in _members(context).items()]
    return compare_stores(step, context, stores, ["cka"])


def _redundancy(step: StudyStep, context: StudyContext) -> Run:
    return task_redundancy(step, context, _members(context)[step.model], *context.data.treebank_tasks[step.task])


def _languages(step: StudyStep, context: StudyContext) -> Run:
    return probe_languages(
        [context.load(path, name=name) for name, path in _members(context).items()],
        context.data.treebanks,
        step.task,
        source="en",
        thresholds=THRESHOLDS,
        **context.paper_probes(),
        out=context.folder(step),
        activations=context.out / "activations" / "languages",
        seed=context.seed,
        fresh=context.fresh,
        max_memory=context.max_memory,
    ).run


@claim("§5.1, figure 5.2", "Layers of distilled models are as similar, along depth, as those of the original.", above=0)
def distilled_layers_follow_the_original(results: Results) -> Evidence | str | None:
    """Pearson's correlation of the layer averages of each distilled model and its teacher, at equal relative depth."""
    curves = results.only("compare").tables["curves"]
    averages = curves.loc[curves["curve"] == "layer_average"].sort_values("layer")
    models = {str(model): rows for model, rows in averages.groupby("model", sort=False)}
    students = _students(results).items()
    cases = {student: _depth_correlation(models[teacher], models[student]) for student, teacher in students}
    return Evidence.of(cases) or NO_STUDENT


@claim("§5.2, figure 5.3", "Representatives at the threshold 0.3 keep 99 % of the score of all neurons.", above=0.99)
def clustering_keeps_the_score(results: Results) -> Evidence | None:
    """The score at the threshold 0.3 as a fraction of that of all neurons, per model and task."""
    return Evidence.of(
        {case_name(step): _score(run, FOCUS) / _score(run, 0.0) for step, run in results.of("redundancy")}
    )


@claim("§6, figure 5.3", "Probes on distilled models score within two points of the original.", above=-0.02)
def distilled_models_reach_the_original(results: Results) -> Evidence | str | None:
    """The score of all neurons minus that of the teacher, per distilled model and task."""
    scores = {(step.model, step.task): _score(run, 0.0) for step, run in results.of("redundancy")}
    students = _students(results)
    cases = {
        f"{model}, {task}": score - scores[students[model], task]
        for (model, task), score in scores.items()
        if model in students
    }
    return Evidence.of(cases) or NO_STUDENT


@claim("§5.2, table 5.1", "At high thresholds, most surviving neurons lie in the lower half of the layers.", above=0.5)
def survivors_lie_low(results: Results) -> Evidence | None:
    """The fraction of representatives at the threshold 0.8 in the lower half of the layers.

    Representatives are medoids: the first neuron of each cluster would lie low by construction.
    """
    cases = {}
    for step, run in results.of("redundancy"):
        table = run.tables["survivors"]
        high = table.loc[table["threshold"] == HIGH]
        low = high.loc[high["layer"] <= high["layer"].max() / 2, "medoid"]
        cases[case_name(step)] = sum(low.tolist()) / sum(high["medoid"].tolist())
    return Evidence.exact(cases)


@claim("§5.3, figure 5.5", "Transfer from English is best to Germanic languages.", above=0)
def germanic_languages_are_nearest(results: Results) -> Evidence | str | None:
    """Mean score in Germanic languages minus that in others, with all neurons, per model and task."""
    cases = {}
    for step, run in results.of("languages"):
        for model, rows in _other_languages(run).groupby("model", sort=False):
            germanic = rows["family"] == "Germanic"
            near, far = (Measurement.mean(rows.loc[chosen], "score") for chosen in (germanic, ~germanic))
            cases[f"{model}, {step.task}"] = near - far
    return Evidence.of(cases) or "there are not both Germanic and other languages"


@claim("§5.3, table B.1", "Distilled models lose less than three points of transfer to other languages.", above=-0.03)
def distilled_models_transfer_nearly_as_well(results: Results) -> Evidence | str | None:
    """Mean score in other languages minus the teacher's, per distilled model and task."""
    cases = {}
    for step, run in results.of("languages"):
        models = _other_languages(run).groupby("model", sort=False)
        means = {str(model): Measurement.mean(rows, "score") for model, rows in models}
        for student, teacher in _students(results).items():
            cases[f"{student}, {step.task}"] = means[student] - means[teacher]
    return Evidence.of(cases) or NO_STUDENT


def _students(results: Results) -> Mapping[str, str]:
    """The distilled models with their teachers: declared, or made by the first step."""
    if results.of("distill"):
        return {STUDENT: next(iter(results.families))}
    return results.teachers


def _depth_correlation(original: pd.DataFrame, other: pd.DataFrame) -> Measurement:
    """The correlation of two curves over depth, the original interpolated at the depths of the other."""
    depths, original_depths = (
        (rows["layer"] / rows["layer"].max()).to_numpy(dtype=float) for rows in (other, original)
    )
    expected = np.interp(depths, original_depths, original["value"].to_numpy(dtype=float))
    return Measurement.correlation(expected, other["value"].to_numpy(dtype=float))


def _score(run: Run, threshold: float) -> Measurement:
    table = run.tables["thresholds"]
    return Measurement.mean(table.loc[table["threshold"] == threshold], "score")


def _other_languages(run: Run) -> pd.DataFrame:
    """The scores of all neurons in languages other than the source."""
    table = run.tables["languages"]
    return table.loc[(table["threshold"] == 0) & (table["language"] != run.config["source"])]


DISTILLED = Document(
    name="distilled",
    title="How redundant are distilled and multilingual models?",
    source="A thesis on redundancy in ten distilled and multilingual models",
    steps=distilled_steps,
    exhibits=(
        Exhibit("Figure 5.1", "CKA between the layers of each model", "compare", "similarity"),
        Exhibit("Figure 5.2", "Average similarity of each layer to the others", "compare", "curves"),
        Exhibit("Figure 5.3", "Neurons and accuracy at each threshold", "redundancy", "thresholds"),
        Exhibit("Table 5.1", "Neurons left in each layer at each threshold", "redundancy", "survivors"),
        Exhibit("Figures 5.4 to 5.6", "Accuracy in other languages at each threshold", "languages", "languages"),
        Exhibit("Tables A.1 to A.8", "Neurons left in each layer at each threshold", "redundancy", "survivors"),
        Exhibit("Tables B.1 and B.2", "Accuracy of each language and threshold", "languages", "wide"),
    ),
    claims=(
        distilled_layers_follow_the_original,
        clustering_keeps_the_score,
        Claim(
            "§5.2, figure 5.3",
            "About 80 % of the neurons can be removed at a loss of at most 1 %.",
            Rule(0.5),
            removable_fraction,
        ),
        distilled_models_reach_the_original,
        survivors_lie_low,
        germanic_languages_are_nearest,
        distilled_models_transfer_nearly_as_well,
    ),
    models={
        "bert-base-cased": 85e6,
        "roberta-base": 85e6,
        "gpt2": 85e6,
        "xlnet-base-cased": 92e6,
        "bert-base-multilingual-cased": 85e6,
        "xlm-roberta-base": 85e6,
        "distilbert-base-cased": 43e6,
        "distilroberta-base": 43e6,
        "distilgpt2": 43e6,
        "distilbert-base-multilingual-cased": 43e6,
    },
    teachers={
        "distilbert-base-cased": "bert-base-cased",
        "distilroberta-base": "roberta-base",
        "distilgpt2": "gpt2",
        "distilbert-base-multilingual-cased": "bert-base-multilingual-cased",
    },
    needs=("treebanks/UD_English-EWT", "treebanks/UD_*-PUD"),
    trains=False,
)
