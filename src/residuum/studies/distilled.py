"""A thesis on redundancy in distilled and multilingual models: layers, neurons, other languages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd

from residuum.distillation.distilling import distill
from residuum.probing.languages import probe_languages
from residuum.probing.redundancy import redundancy
from residuum.storage.results import Run
from residuum.studies.claims import Claim, Evidence, Measurement, Rule, claim
from residuum.studies.documents import (
    Document,
    PrintedNumber,
    PrintedTreebanks,
    Results,
    StudyStep,
    Workload,
    case_name,
)
from residuum.studies.exhibits import Drawing, Exhibit, chosen, curves, gathered, layer_maps, wide
from residuum.studies.redundancy import removable_fraction
from residuum.studies.steps import (
    StudyContext,
    compare_stores,
    distillation_config,
    distillation_load,
    n_sentences,
    task_redundancy,
)

STUDENT = "student"
THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # of tables B.1 and B.2
FOCUS, HIGH = 0.3, 0.8  # clustering thresholds of the claims
TAGS, RELATIONS = ("upos", "xpos"), ("deprel", "deprel_main")  # tasks of the thesis
GAIN = 0.2  # the threshold at which probes of relations improve in the thesis
OVERLAP = 0.05  # of the neurons, whose overlap between languages is measured
NO_MULTILINGUAL = "the models are not an XLM-R and an mBERT"
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
    for model in _members(context):
        title = f"Cluster the neurons of {model} with random weights"
        steps.append(StudyStep("twin", title, _twin, Workload(read=text), model))
    parallel = sum(len(treebank) for treebank in context.data.treebanks.values())
    for task in context.data.treebank_tasks:
        title, load = f"Probe {task} across languages", Workload(read=parallel, probed=parallel)
        steps.append(StudyStep("languages", title, probe_across_languages, load, task=task))
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


def _twin(step: StudyStep, context: StudyContext) -> Run:
    """Where neurons survive clustering when nothing was learnt."""
    store = context.read(step.model, _members(context)[step.model], random=True)
    return redundancy(store, out=context.folder(step), **context.bounded).run


def probe_across_languages(step: StudyStep, context: StudyContext) -> Run:
    """Only multilingual models (all, where nothing is declared), and only students beside their own teachers."""
    wanted = context.multilingual
    members = {name: path for name, path in _members(context).items() if wanted.get(name, True)}
    # Teachers are declared, or that of the student that the first step made.
    teachers = {STUDENT: context.first} if len(context.models) == 1 else context.teachers
    teachers = {student: own for student, own in teachers.items() if {student, own} <= set(members)}
    return probe_languages(
        [context.load(path, name=name) for name, path in members.items()],
        context.data.treebanks,
        step.task,
        source="en",
        teachers=teachers,
        thresholds=THRESHOLDS,
        overlap=OVERLAP,
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
    cases = {}
    for student, teacher in students:
        original, other = models[teacher].reset_index(), models[student].reset_index()
        depths = [(rows["layer"] / rows["layer"].max()).to_numpy(float) for rows in (original, other)]
        expected = np.interp(depths[1], depths[0], original["value"].to_numpy(float))
        cases[student] = Measurement.correlation(expected, other["value"].to_numpy(float))
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


@claim(
    "§5.2, table 5.1", "At high thresholds, neurons of lower layers survive (more than with random weights).", above=0
)
def survivors_lie_low(results: Results) -> Evidence | None:
    """The fraction of representatives at the threshold 0.8 in the lower half of the layers, minus the random twin's.

    Representatives are medoids: the first neuron of each cluster would lie low by construction, whatever the weights.
    """
    twins = {step.model: _low_fraction(run) for step, run in results.of("twin")}
    runs = {step.model: run for step, run in results.of("redundancy")}
    return Evidence.exact({model: _low_fraction(run) - twins[model] for model, run in runs.items() if model in twins})


def _low_fraction(run: Run) -> float:
    table = run.tables["survivors"]
    high = table.loc[table["threshold"] == HIGH]
    low = high.loc[high["layer"] <= high["layer"].max() / 2, "medoid"]
    return float(low.sum() / high["medoid"].sum())


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
            if {student, teacher} <= set(means):  # only multilingual models are probed in other languages
                cases[f"{student}, {step.task}"] = means[student] - means[teacher]
    return Evidence.of(cases) or NO_STUDENT


@claim("§5.1, figure 5.2", "GPT-2 repeats one layer: its middle layers are the most similar of all models.", above=0)
def gpt2_is_flat(results: Results) -> Evidence | str | None:
    """Mean CKA of the middle layers (neither the first nor the last) of GPT-2 minus the highest of other models."""
    return _extreme(results, "gpt2", highest=True)


@claim("§5.1, figure 5.1", "XLNet's layers are the least similar of all models.", above=0)
def xlnet_is_least_alike(results: Results) -> Evidence | str | None:
    """The lowest mean CKA of the middle layers of other models minus that of XLNet."""
    return _extreme(results, "xlnet", highest=False)


@claim("§5.2, figure 5.3", "Fewer neurons (threshold 0.2) label relations better than all neurons.", above=0)
def fewer_neurons_label_relations_better(results: Results) -> Evidence | None:
    """The score for relations at the threshold 0.2 minus that of all neurons, per model."""
    runs = [(step, run) for step, run in results.of("redundancy") if step.task.startswith("deprel")]
    return Evidence.of({step.model: _score(run, GAIN) - _score(run, 0.0) for step, run in runs})


@claim("§5.3, figures 5.4 and 5.6", "XLM-R transfers better to other languages than mBERT.", above=0)
def xlmr_transfers_better(results: Results) -> Evidence | str | None:
    """Mean score in other languages with all neurons: XLM-R minus mBERT, per task."""
    cases = {}
    for step, run in results.of("languages"):
        means = {}
        for model, rows in _other_languages(run).groupby("model", sort=False):
            means.setdefault(results.families.get(str(model)), Measurement.mean(rows, "score"))
        if {"xlm-roberta", "bert"} <= set(means):
            cases[step.task] = means["xlm-roberta"] - means["bert"]
    return Evidence.of(cases) or NO_MULTILINGUAL


@claim("§5.3, figure 5.5", "Transfer falls from Germanic over Romance to non-Indo-European languages.", above=0)
def families_fall_in_order(results: Results) -> Evidence | str | None:
    """Mean score of each family minus that of the next (Germanic, Romance, Slavic, other), with all neurons."""
    cases = {}
    for step, run in results.of("languages"):
        for model, rows in _other_languages(run).groupby("model", sort=False):
            groups = rows["family"].where(rows["family"].isin(("Germanic", "Romance", "Slavic")), "other families")
            means = {name: Measurement.mean(own, "score") for name, own in rows.groupby(groups)}
            order = [name for name in ("Germanic", "Romance", "Slavic", "other families") if name in means]
            for near, far in pairwise(order):
                cases[f"{model}, {step.task}, {near} and {far}"] = means[near] - means[far]
    return Evidence.of(cases) or "there is only one family beside English"


@claim("§3.3", "Which layers the neurons come from hardly matters: no subset of layers loses five points.", above=-0.05)
def subsets_do_not_matter(results: Results) -> Evidence | str | None:
    """The score of the worst subset of layers minus that of all layers, mean over other languages, per model, task."""
    cases = {}
    for step, run in results.of("languages"):
        table = run.tables["languages"]
        for model, rows in table.loc[table["language"] != run.config["source"]].groupby("model", sort=False):
            subsets = rows.loc[rows["kind"] == "subset"].groupby("features", sort=False)
            means = [Measurement.mean(own, "score") for _, own in subsets]
            if means:
                whole = Measurement.mean(rows.loc[rows["threshold"] == 0], "score")
                cases[f"{model}, {step.task}"] = min(means, key=lambda mean: mean.value) - whole
    return Evidence.of(cases)


@claim("§6", "Distilled models need a larger share of their neurons than the originals (38 % and 20 %).", above=0)
def distilled_models_need_a_larger_share(results: Results) -> Evidence | str | None:
    """The smallest share of neurons that keeps 99 % of the score: student minus teacher, per student and task."""
    needed = {(step.model, step.task): _share(run) for step, run in results.of("redundancy")}
    students = _students(results)
    cases = {
        f"{model}, {task}": share - needed[students[model], task]
        for (model, task), share in needed.items()
        if (students.get(model, ""), task) in needed
    }
    return Evidence.exact(cases) or NO_STUDENT


@claim("RQ2, §7", "The architecture matters more than distillation or multilingualism.", above=0)
def architecture_matters_most(results: Results) -> Evidence | str | None:
    """The largest effect of architecture on the score minus the largest of distillation and multilingualism."""
    table = effect_table(results)
    if table.empty or not {"architecture"} < set(table["effect"]):
        return "there are not both models of different architectures and distilled or multilingual ones"
    cases = {}
    for task, rows in table.groupby("task", sort=False):
        sizes: dict[bool, list[Measurement]] = {True: [], False: []}
        for row in rows.to_dict("records"):
            low, value, high = sorted((row["low"], row["change of score"], row["high"]))
            size = Measurement(value, low, high) if value >= 0 else Measurement(-value, -high, -low)
            sizes[row["effect"] == "architecture"].append(size)
        if sizes[True] and sizes[False]:
            largest = {kind: max(own, key=lambda size: size.value) for kind, own in sizes.items()}
            cases[str(task)] = largest[True] - largest[False]
    return Evidence.of(cases)


@claim("RQ2, §6", "Multilingual models are as redundant as monolingual ones (within five points).", below=0.05)
def multilingual_models_are_as_redundant(results: Results) -> Evidence | str | None:
    """How much larger a share of the neurons keeps 99 % of the score: multilingual minus monolingual, per task."""
    table = effect_table(results)
    table = chosen(table, effect="multilingualism")
    cases = {f"{row['model']}, {row['task']}": row["change of neurons needed"] for row in table.to_dict("records")}
    return Evidence.exact(cases) or "no model is declared as multilingual beside a monolingual one of its architecture"


@claim("§5.2, figure 5.3", "Less than a hundred neurons hold most of what tells parts of speech.", above=0.5)
def hundred_neurons_hold_most(results: Results) -> Evidence | str | None:
    """The score of the largest set of fewer than 100 neurons as a fraction of that of all neurons, per model."""
    cases = {}
    for step, run in results.of("redundancy"):
        table = run.tables["thresholds"]
        few = table.loc[table["neurons"] < 100]
        if step.task in TAGS and not few.empty:
            best = few.loc[few["neurons"] == few["neurons"].max()].head(1)
            cases[step.model] = Measurement.mean(best, "score") / _score(run, 0.0)
    return Evidence.of(cases) or "no threshold leaves fewer than a hundred neurons"


@claim("§5.2, figure 5.3", "Relations are labelled worst by GPT-2 and its student.", above=0)
def gpt2_labels_relations_worst(results: Results) -> Evidence | str | None:
    """The lowest score for relations of other models minus the highest of GPT-2 and its student, with all neurons."""
    scores: dict[bool, list[Measurement]] = {True: [], False: []}
    for step, run in results.of("redundancy"):
        if step.task in RELATIONS:
            scores[results.families.get(step.model) == "gpt2"].append(_score(run, 0.0))
    if not scores[True] or not scores[False]:
        return "there is no GPT-2 beside models of other families"
    lowest = min(scores[False], key=lambda score: score.value)
    return Evidence.of({"relations": lowest - max(scores[True], key=lambda score: score.value)})


@claim("§5.3, figure 5.5", "Transfer from English is better to Swedish than to German.", above=0)
def swedish_is_nearer_than_german(results: Results) -> Evidence | str | None:
    """Score in Swedish minus that in German, with all neurons, per model and task."""
    cases = {}
    for step, run in results.of("languages"):
        for model, rows in _other_languages(run).groupby("model", sort=False):
            scores = {code: Measurement.mean(own, "score") for code, own in rows.groupby("language")}
            if {"sv", "de"} <= set(scores):
                cases[f"{model}, {step.task}"] = scores["sv"] - scores["de"]
    return Evidence.of(cases) or "Swedish and German are not among the languages (--languages sv,de)"


@claim("RQ3, §7", "Languages of one family share more of the neurons that they need than others do.", above=0)
def families_share_neurons(results: Results) -> Evidence | str | None:
    """Mean overlap of two languages of a family minus that of two of different families, per model and task."""
    cases = {}
    for step, run in results.of("languages"):
        table = run.tables["languages"]
        families = dict(zip(table["language"], table["family"], strict=True))
        for model, rows in run.tables.get("overlap", pd.DataFrame({"model": []})).groupby("model", sort=False):
            pairs = zip(rows["language_a"], rows["language_b"], strict=True)
            same = np.array([families[a] == families[b] for a, b in pairs])
            if same.any() and not same.all():
                near, far = (Measurement.sampled(rows["overlap"].to_numpy(float)[own]) for own in (same, ~same))
                cases[f"{model}, {step.task}"] = near - far
    return Evidence.of(cases) or "there are not both two languages of one family and languages of others"


@claim("RQ4, §5.3", "Distillation costs Finnish most.", above=0)
def distillation_costs_finnish_most(results: Results) -> Evidence | str | None:
    """Mean change from teacher to student in other languages minus that in Finnish, with all neurons."""
    cases = {}
    for step, run in results.of("languages"):
        table = run.tables["students"]
        table = table.loc[(table["features"] == "threshold 0") & (table["language"] != run.config["source"])]
        for model, rows in table.groupby("model", sort=False):
            finnish = rows["language"] == "fi"
            if finnish.any() and not finnish.all():
                others = Measurement.mean(rows.loc[~finnish], "change")
                cases[f"{model}, {step.task}"] = others - Measurement.mean(rows.loc[finnish], "change")
    return Evidence.of(cases) or "no student and its teacher are probed in Finnish beside other languages"


@claim("RQ3, §5.3", "Languages need the same neurons: the overlap of selected neurons is above chance.", above=0)
def languages_share_neurons(results: Results) -> Evidence | None:
    """The share of the first 5 % of neurons that two languages have in common, minus chance; mean over pairs."""
    cases = {}
    for step, run in results.of("languages"):
        if "overlap" in run.tables:
            for model, rows in run.tables["overlap"].groupby("model", sort=False):
                cases[f"{model}, {step.task}"] = Measurement.sampled((rows["overlap"] - rows["chance"]).to_numpy(float))
    return Evidence.of(cases)


@claim("RQ4, §5.3", "Distillation hurts transfer: students score below their teachers in other languages.", below=0)
def distillation_hurts_transfer(results: Results) -> Evidence | str | None:
    """Score of the student minus that of its teacher with all neurons, paired over sentences; mean over languages."""
    cases = {}
    for step, run in results.of("languages"):
        table = run.tables["students"]
        table = table.loc[(table["features"] == "threshold 0") & (table["language"] != run.config["source"])]
        for model, rows in table.groupby("model", sort=False):
            cases[f"{model}, {step.task}"] = Measurement.mean(rows, "change")
    return Evidence.of(cases) or NO_STUDENT


def _extreme(results: Results, family: str, *, highest: bool) -> Evidence | str | None:
    """How far the middle layers of a family are more (or less) alike than those of every other model."""
    pairs, means = results.only("compare").tables["similarity"], {}
    for model, rows in pairs.loc[pairs["model_a"] == pairs["model_b"]].groupby("model_a", sort=False):
        last = rows["layer_a"].max()
        middle = rows["layer_a"].between(1, last - 1) & rows["layer_b"].between(1, last - 1)
        means[str(model)] = Measurement.mean(rows.loc[middle & (rows["layer_a"] != rows["layer_b"])])
    own = [mean for model, mean in means.items() if results.families.get(model) == family]
    others = [mean for model, mean in means.items() if results.families.get(model) != family]
    if not own or not others:
        return f"there is no {family} beside models of other families"
    other = max(others, key=lambda mean: mean.value if highest else -mean.value)
    return Evidence.of({family: own[0] - other if highest else other - own[0]})


def layer_curves(results: Results) -> pd.DataFrame:
    """Figure 5.2: the mean similarity of each layer; (a) original models, then every distilled one with its teacher."""
    table, students = curves("compare", "layer_average", "cka")(results), _students(results)
    originals = table.loc[~table["model"].isin(students)].assign(panel="(a) original models")
    pairs = [
        chosen(table, model=(teacher, student)).assign(panel=f"({chr(98 + n)}) {teacher} and {student}")
        for n, (student, teacher) in enumerate(students.items())
    ]
    return pd.concat([originals, *pairs], ignore_index=True)


def threshold_curves(results: Results) -> pd.DataFrame:
    """Figure 5.3: the neurons that are left (share of all) and the score of each task at each threshold."""
    table = gathered(results, "redundancy", "thresholds")
    share = table.drop_duplicates(["model", "threshold"]).assign(line="neurons (share of all)")
    share = share.drop(columns=["score", "low", "high"], errors="ignore").rename(columns={"share": "value"})
    scores = table.drop(columns="share").rename(columns={"task": "line", "score": "value"})
    names = ["model", "threshold", "line", "neurons", "value", "low", "high"]
    return pd.concat([scores, share], ignore_index=True).reindex(columns=names)


def survivor_grid(results: Results, *, first: bool) -> pd.DataFrame:
    """Tables 5.1 and A.1 to A.8: neurons left in each layer (rows) at each threshold (columns), per model.

    Table 5.1 has the first model and those distilled from it, the others have the rest. One representative per cluster,
    the medoid; the layers do not depend on the task, whose first one is shown.
    """
    table = gathered(results, "redundancy", "survivors")
    if table.empty:
        return table
    leading, students = table["model"].iloc[0], _students(results)
    at_front = [model == leading or students.get(model) == leading for model in table["model"]]
    table = table.loc[[front == first for front in at_front]]
    table = table.drop_duplicates(["model", "threshold", "layer"])
    return wide(table, ["model", "layer"], "threshold", "medoid")


def language_curves(results: Results, task: tuple[str, ...]) -> pd.DataFrame:
    """Figures 5.4 and 5.6: the score of each language at each threshold."""
    table = chosen(gathered(results, "languages", "languages"), task=task)
    return chosen(table, kind="threshold")


def family_curves(results: Results, task: tuple[str, ...], *, only_first: bool = False) -> pd.DataFrame:
    """Figures 5.5 and B.1 to B.6: the languages of each family by themselves; of the first model, or of all."""
    table = chosen(gathered(results, "languages", "languages"), kind="threshold", task=task)
    return table.loc[table["model"] == table["model"].iloc[0]] if only_first and len(table) else table


def language_grid(results: Results, task: tuple[str, ...]) -> pd.DataFrame:
    """Tables B.1 and B.2: one row per threshold and quantity, one column per family, language and model."""
    table = chosen(gathered(results, "languages", "languages"), kind="threshold", task=task)
    if table.empty:
        return table
    long = table.melt(
        ["threshold", "family", "language", "model"], ["score", "low", "high"], var_name="of", value_name="value"
    ).sort_values(["family", "language"], kind="stable")
    grid = wide(long, ["threshold", "of"], ["family", "language", "model"], "value")
    return grid.sort_values("threshold", kind="stable", ignore_index=True)


def training_accuracy(results: Results) -> pd.DataFrame:
    """Table C.1: the accuracy on the English training part; one row per task and threshold, one column per model."""
    grid = wide(gathered(results, "redundancy", "thresholds"), ["task", "threshold"], "model", "train")
    return grid.sort_values(["task", "threshold"], ascending=[False, True], kind="stable", ignore_index=True)


def effect_table(results: Results) -> pd.DataFrame:
    """RQ2: what architecture, multilingualism and distillation change, each with all else as equal as it can be.

    Distillation: student minus teacher. Multilingualism: a multilingual model minus a monolingual one of its
    architecture. Architecture: every pair of undistilled models of different architectures with the same languages.
    Scores of all neurons, with the interval of the difference over sentences and seeds.
    """
    scores = {(step.model, step.task): _score(run, 0.0) for step, run in results.of("redundancy")}
    shares = {(step.model, step.task): _share(run) for step, run in results.of("redundancy")}
    students, rows = _students(results), []
    for model, task in scores:
        for other in (name for name, own in scores if own == task and name != model):
            if (effect := _effect(results, students, model, other)) is not None:
                change = scores[model, task] - scores[other, task]
                row = {"effect": effect, "task": task, "model": model, "compared with": other}
                row |= {"change of score": change.value, "low": change.low, "high": change.high}
                rows.append({**row, "change of neurons needed": shares[model, task] - shares[other, task]})
    return pd.DataFrame(rows)


def _effect(results: Results, students: Mapping[str, str], model: str, other: str) -> str | None:
    """Which effect a model shows beside another; None where the two differ in more than one way."""
    if students.get(model) == other:
        return "distillation"
    if model in students or other in students:
        return None
    languages = [results.multilingual.get(name) for name in (model, other)]
    families = [results.families.get(name, "").removeprefix("xlm-") for name in (model, other)]
    if families[0] == families[1]:
        return "multilingualism" if languages == [True, False] else None
    return "architecture" if languages[0] == languages[1] and model < other else None


def _share(run: Run) -> float:
    """The smallest share of neurons after clustering that keeps 99 % of the score."""
    table = run.tables["thresholds"]
    return float(table.loc[table["score"] >= 0.99 * table.loc[table["threshold"] == 0, "score"].mean(), "share"].min())


def overlap_grid(results: Results) -> pd.DataFrame:
    """RQ3: the share of the first 5 % of neurons that two languages have in common; chance in the last column."""
    table = gathered(results, "languages", "overlap")
    if table.empty:
        return table
    grid = wide(table, ["model", "task", "language_a"], "language_b", "overlap")
    return grid.assign(chance=float(table["chance"].iloc[0]))


def language_losses(results: Results) -> pd.DataFrame:
    """RQ4: score of each student and its teacher in every language with all neurons; paired difference, interval."""
    table = gathered(results, "languages", "students")
    return chosen(table, features="threshold 0") if not table.empty else table


def _students(results: Results) -> Mapping[str, str]:
    """The distilled models with their teachers: declared, or made by the first step."""
    if results.of("distill"):
        return {STUDENT: next(iter(results.families))}
    return results.teachers


def _score(run: Run, threshold: float) -> Measurement:
    table = run.tables["thresholds"]
    return Measurement.mean(table.loc[table["threshold"] == threshold], "score")


def _other_languages(run: Run) -> pd.DataFrame:
    """The scores of all neurons in languages other than the source."""
    table = run.tables["languages"]
    return table.loc[(table["threshold"] == 0) & (table["language"] != run.config["source"])]


# Scores of all neurons of distilmBERT, mBERT and XLM-R (tables B.1 and B.2). The columns of Polish and Russian are left
# out, which the thesis heads with other languages.
PRINTED_MODELS = ("distilbert-base-multilingual-cased", "bert-base-multilingual-cased", "xlm-roberta-base")
TABLE_B = {
    ("B.1", "upos"): {
        "de": (0.8387, 0.8710, 0.8570), "sv": (0.8732, 0.8854, 0.8942), "fr": (0.8508, 0.8494, 0.8800),
        "pt": (0.8552, 0.8779, 0.8836), "es": (0.8459, 0.8601, 0.8808), "ja": (0.4593, 0.4738, 0.4435),
        "fi": (0.7692, 0.8126, 0.8411),
    },
    ("B.2", "deprel"): {
        "de": (0.7156, 0.7226, 0.7711), "sv": (0.7114, 0.7479, 0.8101), "fr": (0.6733, 0.6749, 0.7248),
        "pt": (0.7044, 0.7412, 0.7552), "es": (0.6736, 0.6825, 0.7299), "ja": (0.3279, 0.3327, 0.3519),
        "fi": (0.5454, 0.5742, 0.6466),
    },
}  # fmt: skip


def _printed_numbers() -> Iterator[PrintedNumber]:
    """What the thesis prints of three multilingual models in seven languages."""

    def score(run: Run, model: str, language: str) -> float:
        rows = chosen(run.tables["languages"], model=model, language=language, features="threshold 0")
        return float(rows["score"].to_numpy(float).mean())

    data = PrintedTreebanks("PUD", learnt=900, held_out=100)
    for (table, task), languages in TABLE_B.items():
        for language, values in languages.items():
            for model, value in zip(PRINTED_MODELS, values, strict=True):
                what = f"Accuracy of {model} on {task} in {language}, all neurons"
                yield PrintedNumber(f"Appendix B, table {table}", what, value, model, data,
                                    {"kind": "languages", "task": task}, partial(score, language=language),
                                    0.03)  # fmt: skip


DISTILLED = Document(
    name="distilled",
    title="How redundant are distilled and multilingual models?",
    source="A thesis on redundancy in ten distilled and multilingual models",
    steps=distilled_steps,
    exhibits=(
        Exhibit("Figure 5.1", "CKA between the layers of each model", ("compare",), *layer_maps("compare")),
        Exhibit(
            "Figure 5.2",
            "Mean similarity of each layer: originals, and distilled models with their teachers",
            ("compare",),
            layer_curves,
            Drawing("lines", x="layer", y="value", by="model", panel="panel"),
        ),
        Exhibit(
            "Figure 5.3",
            "Neurons and accuracy at each threshold",
            ("redundancy",),
            threshold_curves,
            Drawing("lines", x="threshold", y="value", by="line", panel="model"),
        ),
        Exhibit(
            "Table 5.1",
            "Neurons left in each layer at each threshold",
            ("redundancy",),
            partial(survivor_grid, first=True),
        ),
        *(
            Exhibit(
                f"Figure {number}",
                f"Accuracy in other languages at each threshold: {what}",
                ("languages",),
                partial(language_curves, task=task),
                Drawing("lines", x="threshold", y="score", by="language", panel="model"),
            )
            for number, what, task in (("5.4", "parts of speech", TAGS), ("5.6", "relations", RELATIONS))
        ),
        *(
            Exhibit(
                label,
                f"Accuracy of the languages of each family: {what}",
                ("languages",),
                make,
                Drawing("lines", x="threshold", y="score", by="language", panel="model,family"),
            )
            for label, what, make in (
                ("Figure 5.5", "parts of speech, the first model", partial(family_curves, task=TAGS, only_first=True)),
                ("Figures B.1 to B.3", "parts of speech", partial(family_curves, task=TAGS)),
                ("Figures B.4 to B.6", "relations", partial(family_curves, task=RELATIONS)),
            )
        ),
        Exhibit(
            "Tables A.1 to A.8",
            "Neurons left in each layer at each threshold, other models",
            ("redundancy",),
            partial(survivor_grid, first=False),
        ),
        *(
            Exhibit(
                label,
                f"Accuracy of each language and threshold: {what}",
                ("languages",),
                partial(language_grid, task=task),
            )
            for label, what, task in (
                ("Table B.1", "parts of speech", TAGS),
                ("Table B.2", "relations", RELATIONS),
            )
        ),
        Exhibit("Table C.1", "Accuracy on the training part", ("redundancy",), training_accuracy),
        Exhibit("RQ2", "Effects of architecture, multilingualism and distillation", ("redundancy",), effect_table),
        Exhibit("RQ3", "Overlap of the neurons that languages need", ("languages",), overlap_grid),
        Exhibit(
            "RQ4",
            "Students and their teachers in every language",
            ("languages",),
            language_losses,
            Drawing("lines", x="language", y="change", by="model", panel="task"),
        ),
    ),
    claims=(
        distilled_layers_follow_the_original,
        gpt2_is_flat,
        xlnet_is_least_alike,
        clustering_keeps_the_score,
        Claim(
            "§5.2, figure 5.3",
            "About 80 % of the neurons can be removed at a loss of at most 1 %.",
            Rule(0.5),
            removable_fraction,
        ),
        hundred_neurons_hold_most,
        fewer_neurons_label_relations_better,
        gpt2_labels_relations_worst,
        architecture_matters_most,
        multilingual_models_are_as_redundant,
        distilled_models_reach_the_original,
        distilled_models_need_a_larger_share,
        survivors_lie_low,
        germanic_languages_are_nearest,
        swedish_is_nearer_than_german,
        families_fall_in_order,
        xlmr_transfers_better,
        subsets_do_not_matter,
        languages_share_neurons,
        families_share_neurons,
        distilled_models_transfer_nearly_as_well,
        distillation_hurts_transfer,
        distillation_costs_finnish_most,
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
    printed=tuple(_printed_numbers()),
    multilingual=True,
    units=("treebank",),
    needs=("treebanks/UD_English-EWT", "treebanks/UD_*-PUD"),
    trains=False,
)
