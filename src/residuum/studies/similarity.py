"""Wu et al. (2020): how similar layers, neurons and heads of models are, and what fine-tuning changes."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from residuum.storage.results import Run
from residuum.studies.claims import Claim, Evidence, Measurement, Rule, claim
from residuum.studies.documents import GLUE, Document, PrintedNumber, Results, StudyStep, Workload, step_name
from residuum.studies.exhibits import Drawing, Exhibit, curves, heatmaps, tuned_scores, wide
from residuum.studies.steps import StudyContext, block_count, compare_stores, finetune_step, has_heads

MEASURES = ("neuron", "mixed", "svcca", "pwcca", "cka")
ATTENTION = (
    "attention_norm", "attention_pearson", "attention_js", "attention_svcca", "attention_pwcca", "attention_cka",
)  # fmt: skip
TUNED_MEASURES = ("neuron", "svcca", "cka")
TUNED_MODELS = 2  # BERT and XLNet in the paper
FROZEN = {"sample": (2,), "small": (3, 2), "paper": (3, 2)}  # a third and a half of the layers: 4 and 6 of 12
ONE_FAMILY = "all models are of one family"
RANDOM = " (random)"  # after the name of a random twin


def similarity_steps(context: StudyContext) -> tuple[StudyStep, ...]:
    """Compare models, their random twins, and models before and after fine-tuning; fine-tune with frozen layers.

    A model that is a store of activations (such as those of a recurrent model) is compared only.
    """
    load = Workload(read=3 * len(context.data.text))
    steps = [StudyStep("compare", "Compare all layers of all models", _compare, load)]
    if any(map(has_heads, context.models.values())):
        steps.append(StudyStep("attention", "Compare the heads of all models that have some", _attention, load))
    if context.loadable:
        steps.append(StudyStep("random", "Compare models with their random twins", _random, load))
    if context.loadable and context.data.second_text is not None:
        steps.append(StudyStep("corpus", "Compare all layers over a second corpus", compare_second_corpus, load))
    if not context.wants("finetune", "tuned", "frozen"):
        return tuple(steps)
    tasks = list(context.data.sentence_tasks)
    for model in list(context.loadable)[:TUNED_MODELS]:
        steps += [finetune_step(context, model, task) for task in tasks]
        steps.append(StudyStep("tuned", f"Compare {model} before and after fine-tuning", compare_tuned, load, model))
        counts = sorted({max(1, block_count(context.models[model]) // part) for part in FROZEN[context.scale.name]})
        frozen = [f"{end}:{count}" for count in counts for end in ("top", "bottom")]
        steps += [
            finetune_step(context, model, task, kind="frozen", variant=layers, freeze=layers)
            for task in tasks
            for layers in frozen
        ]
    return tuple(steps)


def _compare(step: StudyStep, context: StudyContext) -> Run:
    stores = [context.read(name, path, attention=has_heads(path)) for name, path in context.models.items()]
    return compare_stores(step, context, stores, MEASURES)


def _attention(step: StudyStep, context: StudyContext) -> Run:
    """Attention is compared among the models that have heads; models without them do not stop it."""
    models = {name: path for name, path in context.models.items() if has_heads(path)}
    return compare_stores(step, context, [context.read(*own, attention=True) for own in models.items()], ATTENTION)


def compare_second_corpus(step: StudyStep, context: StudyContext) -> Run:
    """All representation measures over other sentences."""
    text = context.data.second_text
    stores = [context.read(name, path, text=text) for name, path in context.loadable.items()]
    return compare_stores(step, context, stores, MEASURES)


def _random(step: StudyStep, context: StudyContext) -> Run:
    twins = [context.read(name, path, random=True) for name, path in context.loadable.items()]
    trained = [context.read(name, path, attention=has_heads(path)) for name, path in context.loadable.items()]
    return compare_stores(step, context, [*trained, *twins], ["cka"])


def compare_tuned(step: StudyStep, context: StudyContext) -> Run:
    """A model before and after fine-tuning for each task, over the same text."""
    model = step.model
    attention = has_heads(context.models[model])
    stores = [context.read(model, context.models[model], attention=attention)]
    for task in context.data.sentence_tasks:
        name = step_name("finetune", model, task)
        stores.append(context.read(name, context.finetuned(model, task), attention=attention))
    return compare_stores(step, context, stores, [*TUNED_MEASURES, *(ATTENTION if attention else ())])


@claim("§5.1, figure 1a", "Neurons are alike within a model and differ across models.", above=0)
def neurons_differ_across_models(results: Results) -> Evidence | str | None:
    """Neuron similarity within models minus that across families."""
    means = _within_and_across(results, "neuron")
    return ONE_FAMILY if means is None else Evidence.of({"all models": means[0] - means[1]})


@claim("§5.1, figure 1", "Layers are more similar within a model than across any two models.", above=0)
def layers_are_alike_within_models(results: Results) -> Evidence | str | None:
    """Mean similarity of different layers of two models, minus that between the models; by neurons and by CKA."""
    cases = {}
    for measure in ("neuron", "cka"):
        pairs = _pairs(results.only("compare"), measure)
        inside = pairs.loc[(pairs["model_a"] == pairs["model_b"]) & (pairs["layer_a"] != pairs["layer_b"])]
        across = pairs.loc[pairs["model_a"] < pairs["model_b"]]
        for (a, b), rows in across.groupby(["model_a", "model_b"], sort=False):
            within = Measurement.mean(inside.loc[inside["model_a"].isin([a, b])])
            cases[f"{a} and {b}, {measure}"] = within - Measurement.mean(rows)
    return Evidence.of(cases) or "there is only one model"


@claim("§5.1, figure 1b", "Models of different architectures share representations more than neurons.", above=0)
def layers_are_shared_more_than_neurons(results: Results) -> Evidence | str | None:
    """Similarity across families as a fraction of that within models: that of CKA minus that of neurons."""
    neurons, layers = _within_and_across(results, "neuron"), _within_and_across(results, "cka")
    if neurons is None or layers is None:
        return ONE_FAMILY
    return Evidence.of({"all models": layers[1] / layers[0] - neurons[1] / neurons[0]})


@claim("§5.1, figure 8d", "Across models, mixed similarity is the highest of all measures.", above=0)
def mixed_is_highest_across(results: Results) -> Evidence | str | None:
    """Mean mixed similarity of layers of different families minus that by the highest other measure."""
    means = {}
    for measure in MEASURES:
        pairs, foreign = _pairs_and_foreign(results, measure)
        if not foreign.any():
            return ONE_FAMILY
        means[measure] = Measurement.mean(pairs.loc[foreign])
    mixed = means.pop("mixed")
    return Evidence.of({"all models": mixed - max(means.values(), key=lambda mean: mean.value)})


@claim("§5.1, figure 1b", "Models of the same family are more similar than models of different families.", above=0)
def families_are_alike(results: Results) -> Evidence | str | None:
    """Mean CKA of layers of different models of one family minus that of models of different families."""
    pairs, foreign = _pairs_and_foreign(results, "cka")
    related = pairs.loc[~foreign & (pairs["model_a"] != pairs["model_b"])]
    if related.empty or not foreign.any():
        return ONE_FAMILY if foreign.any() or len(related) else "there is only one model"
    return Evidence.of({"all models": Measurement.mean(related) - Measurement.mean(pairs.loc[foreign])})


@claim("§5.1, figure 2", "Trained models differ more from their random twins than layers from each other.", above=0)
def random_twins_differ(results: Results) -> Evidence | None:
    """Mean CKA among the layers of a trained model, minus that of its layers with those of its random twin."""
    pairs = _pairs(results.only("random"), "cka")
    cases = {}
    for model in [name for name in pairs["model_a"].unique() if not str(name).endswith(RANDOM)]:
        inside = pairs.loc[(pairs["model_a"] == model) & (pairs["model_b"] == model)]
        twin = pairs.loc[(pairs["model_a"] == model) & (pairs["model_b"] == f"{model}{RANDOM}")]
        other_layers = inside.loc[inside["layer_a"] != inside["layer_b"]]
        cases[model] = Measurement.mean(other_layers) - Measurement.mean(twin)
    return Evidence.of(cases)


@claim("§5.1, figure 2", "Random models of one family are more similar than random models of others.", above=0)
def random_families_are_alike(results: Results) -> Evidence | str | None:
    """Mean CKA of random twins of different models of one family minus that of twins of different families."""
    pairs = _pairs(results.only("random"), "cka")
    random = pairs["model_a"].str.endswith(RANDOM) & pairs["model_b"].str.endswith(RANDOM)
    pairs = pairs.loc[random & (pairs["model_a"] != pairs["model_b"])]
    families = [pairs[name].str.removesuffix(RANDOM).map(results.families) for name in ("model_a", "model_b")]
    related = families[0] == families[1]
    if not related.any() or related.all():
        return "there are not both two models of one family and a model of another"
    return Evidence.of({"all models": Measurement.mean(pairs.loc[related]) - Measurement.mean(pairs.loc[~related])})


@claim("§5.1, figure 2", "Of trained models, bottom layers are most similar to random models.", above=0)
def bottom_layers_resemble_random(results: Results) -> Evidence | None:
    """Mean CKA with the random twin of the lower half of the layers minus that of the upper half, per model."""
    pairs = _pairs(results.only("random"), "cka")
    twins = pairs.loc[pairs["model_b"] == pairs["model_a"] + RANDOM]
    return Evidence.of({str(model): _lower_minus_upper(rows) for model, rows in twins.groupby("model_a", sort=False)})


@claim("§5.1, figure 1b", "Across architectures, lower layers are more similar than higher layers.", above=0)
def lower_layers_are_shared(results: Results) -> Evidence | str | None:
    """Mean CKA of the lower half of a model's layers with layers of other families, minus that of the upper half."""
    pairs, foreign = _pairs_and_foreign(results, "cka")
    if not foreign.any():
        return ONE_FAMILY
    models = pairs.loc[foreign].groupby("model_a")
    return Evidence.of({str(model): _lower_minus_upper(rows) for model, rows in models})


@claim("§5.1, figure 1b", "Adjacent layers are more similar than distant layers.", above=0)
def neighbours_are_alike(results: Results) -> Evidence | None:
    """Mean CKA of adjacent layers minus that of layers further apart, per model."""
    cases = {}
    for model, rows in layer_pairs(results).items():
        distance = (rows["layer_a"] - rows["layer_b"]).abs()
        cases[model] = Measurement.mean(rows.loc[distance == 1]) - Measurement.mean(rows.loc[distance > 1])
    return Evidence.of(cases)


@claim("§5.1, figure 3", "Higher layers are more localized than lower layers.", above=0)
def upper_layers_are_localized(results: Results) -> Evidence | None:
    """Spearman's correlation of layer and localization."""
    cases = {}
    for model, rows in _localization(results.only("compare")).groupby("model"):
        ranks = rows.sort_values("layer")["value"].rank().to_numpy(dtype=float)
        if len(ranks) >= 3:
            cases[str(model)] = Measurement.correlation(ranks, np.arange(len(ranks), dtype=float))
    return Evidence.of(cases)


@claim("§5.1, figure 1b", "Across models, layers at the same relative depth are most similar.", above=0)
def same_depth_is_alike(results: Results) -> Evidence | str | None:
    """Mean CKA of layers of different models at most a tenth of the depth apart minus that of layers further apart."""
    pairs = _pairs(results.only("compare"), "cka")
    return _same_depth(pairs.loc[pairs["model_a"] != pairs["model_b"]])


@claim("§5.1, figure 3", "Localized layers are more context-specific.", above=0)
def localization_follows_context(results: Results) -> Evidence | None:
    """Pearson's correlation over layers of localization and context-specificity (1 − self-similarity), per model."""
    tables = results.only("compare").tables["curves"]
    context = tables.loc[tables["curve"] == "context_specificity"].set_index(["model", "layer"])["value"]
    cases = {}
    for model, rows in _localization(results.only("compare")).groupby("model", sort=False):
        other = context.reindex(list(zip(rows["model"], rows["layer"], strict=True))).to_numpy(dtype=float)
        known = ~np.isnan(other)
        if known.sum() >= 3:
            cases[str(model)] = Measurement.correlation(rows["value"].to_numpy(dtype=float)[known], other[known])
    return Evidence.of(cases)


@claim("§5.1, figure 1b", "Lower layers of XLNet are more like higher layers of BERT than like lower ones.", above=0)
def lower_xlnet_resembles_upper_bert(results: Results) -> Evidence | str | None:
    """Mean CKA of the lower half of an XLNet with the upper half of a BERT minus that with its lower half."""
    cases, pairs = {}, _pairs(results.only("compare"), "cka")
    across = pairs.loc[pairs["model_a"] != pairs["model_b"]]
    for (a, b), rows in across.groupby(["model_a", "model_b"], sort=False):
        if (results.families.get(str(a)), results.families.get(str(b))) == ("xlnet", "bert"):
            lower = rows.loc[rows["layer_a"] <= rows["layer_a"].max() / 2]
            upper = lower["layer_b"] > rows["layer_b"].max() / 2
            cases[f"{a} and {b}"] = Measurement.mean(lower.loc[upper]) - Measurement.mean(lower.loc[~upper])
    return Evidence.of(cases) or "the models are not a BERT and an XLNet"


@claim("§5.2, figure 4", "Attention of GPT-2 layers, but the bottom ones, is most alike of all models.", above=0)
def gpt2_attention_is_alike(results: Results) -> Evidence | str | None:
    """Mean similarity of different layers above the lowest quarter within GPT-2 minus the highest of other families."""
    cases = {}
    for measure in ("attention_js", "attention_cka"):
        means: dict[bool, list[Measurement]] = {True: [], False: []}
        pairs = _pairs(results.only("attention"), measure)
        inside = pairs.loc[(pairs["model_a"] == pairs["model_b"]) & ~_same_layer(pairs)]
        for model, rows in inside.groupby("model_a", sort=False):
            above = rows[["layer_a", "layer_b"]].min(axis=1) > rows["layer_a"].max() / 4
            means[results.families.get(str(model)) == "gpt2"].append(Measurement.mean(rows.loc[above]))
        if not means[True] or not means[False]:
            return "there is no GPT-2 beside models of other families"
        least, most = min(means[True], key=_value), max(means[False], key=_value)
        cases[measure] = least - most
    return Evidence.of(cases)


@claim("§5.2, figure 4", "Attention of models of one family is more similar than that of others.", above=0)
def attention_follows_the_family(results: Results) -> Evidence | str | None:
    """Mean similarity within families minus that across families, by Jensen–Shannon divergence and by CKA."""
    cases = {}
    for measure in ("attention_js", "attention_cka"):
        pairs, foreign = _pairs_and_foreign(results, measure, "attention")
        if not foreign.any():
            return ONE_FAMILY
        inside = pairs.loc[~foreign & ~_same_layer(pairs)]
        cases[measure] = Measurement.mean(inside) - Measurement.mean(pairs.loc[foreign])
    return Evidence.of(cases)


@claim("§5.2, figure 4", "Single heads of different layers are more alike than whole layers of heads.", above=0)
def heads_are_more_alike_than_layers(results: Results) -> Evidence | None:
    """Mean attention similarity of different layers by Jensen–Shannon divergence minus that by CKA."""
    js, cka = (_pairs(results.only("attention"), name) for name in ("attention_js", "attention_cka"))
    return Evidence.of({"all models": Measurement.mean(js.loc[~_same_layer(js)]) - Measurement.mean(
        cka.loc[~_same_layer(cka)])})  # fmt: skip


@claim("§5.2, figure 10d", "Attention is alike at the same relative depth of models of one family (SVCCA).", above=0)
def attention_is_alike_at_the_same_depth(results: Results) -> Evidence | str | None:
    """Mean attention similarity by SVCCA at the same relative depth minus that at other depths, within families."""
    pairs, foreign = _pairs_and_foreign(results, "attention_svcca", "attention")
    return _same_depth(pairs.loc[~foreign & (pairs["model_a"] != pairs["model_b"])])


@claim("Appendix B, figure 9", "Another corpus gives nearly the same similarities.", above=0.9)
def corpora_agree(results: Results) -> Evidence | None:
    """Pearson's correlation over pairs of different layers of the similarities over both corpora, per measure."""
    first, second = results.only("compare"), results.only("corpus")
    keys, cases = ["model_a", "layer_a", "model_b", "layer_b"], {}
    for measure in MEASURES:
        both = _pairs(first, measure).merge(_pairs(second, measure), on=keys)
        both = both.loc[~_same_layer(both)]
        cases[measure] = Measurement.correlation(both["value_x"].to_numpy(float), both["value_y"].to_numpy(float))
    return Evidence.of(cases)


@claim("§6.1, figure 5", "Of all tasks, SST-2 changes the top layers of BERT most.", above=0)
def sst2_changes_most(results: Results) -> Evidence | str | None:
    """CKA of the upper half before and after fine-tuning, mean over other tasks minus SST-2, per model."""
    cases = {}
    for step, run in results.of("tuned"):
        pairs = _pairs(run, "cka")
        base = pairs.loc[(pairs["model_a"] == step.model) & (pairs["layer_a"] == pairs["layer_b"])]
        top = base.loc[base["layer_a"] > base["layer_a"].max() / 2]
        sst2 = top["model_b"] == step_name("finetune", step.model, "sst2")
        other = (top["model_b"] != step.model) & ~sst2
        if sst2.any() and other.any():
            cases[step.model] = Measurement.mean(top.loc[other]) - Measurement.mean(top.loc[sst2])
    return Evidence.of(cases) or "the tasks are not SST-2 and another one (--tasks sst2,qnli)"


def tuning_changes_the_top(results: Results, measure: str) -> Evidence | None:
    """Similarity of the same layer before and after fine-tuning: lower half minus upper half, per model and task."""
    cases = {}
    for step, run in results.of("tuned"):
        pairs = _pairs(run, measure)
        base = pairs.loc[(pairs["model_a"] == step.model) & (pairs["model_b"] != step.model)]
        same_layer = base.loc[base["layer_a"] == base["layer_b"]]
        for other, rows in same_layer.groupby("model_b"):
            cases[f"{step.model}, {other}"] = _lower_minus_upper(rows)
    return Evidence.of(cases)


def tunings_part_at_the_top(results: Results, measure: str) -> Evidence | str | None:
    """Similarity of the same layer of models fine-tuned for different tasks: lower minus upper half, per pair."""
    cases = {}
    for step, run in results.of("tuned"):
        pairs = _pairs(run, measure)
        same_layer = pairs.loc[(pairs["layer_a"] == pairs["layer_b"]) & (pairs["model_a"] != step.model)]
        for (a, b), rows in same_layer.groupby(["model_a", "model_b"], sort=False):
            if b not in (a, step.model) and f"{b} and {a}" not in cases:
                cases[f"{a} and {b}"] = _lower_minus_upper(rows)
    return Evidence.of(cases) or "only one task was learnt"


@claim("§6.1, figure 7", "Fine-tuning makes the top layer less localized.", above=0)
def tuning_spreads_the_top(results: Results) -> Evidence | None:
    """Localization of the last layer before fine-tuning, minus that after."""
    cases = {}
    for step, run in results.of("tuned"):
        localization = _localization(run)
        top = localization.loc[localization["layer"] == localization["layer"].max()]
        last = {str(model): Measurement.mean(rows) for model, rows in top.groupby("model", sort=False)}
        before = last.pop(step.model)
        cases |= {f"{step.model}, {name}": before - after for name, after in last.items()}
    return Evidence.of(cases)


@claim("Appendix D, table 1", "Freezing bottom layers costs less than freezing top layers (not on QQP).", above=0)
def freezing_the_bottom_costs_less(results: Results) -> Evidence | str | None:
    """Test score with the lowest layers frozen minus that with as many of the highest, per model, task and number."""
    scores = {(step.model, step.task, step.variant): Measurement.test_score(run) for step, run in results.of("frozen")}
    cases = {
        f"{model}, {task}, {variant.removeprefix('bottom:')} layers": score
        - scores[model, task, variant.replace("bottom", "top")]
        for (model, task, variant), score in scores.items()
        if variant.startswith("bottom") and task != "qqp"
    }
    return Evidence.of(cases) or ("the only task is QQP, the paper's exception" if scores else None)


def layer_pairs(results: Results) -> dict[str, pd.DataFrame]:
    """CKA of the pairs of layers of each model."""
    pairs = _pairs(results.only("compare"), "cka")
    inside = pairs.loc[pairs["model_a"] == pairs["model_b"]]
    return {str(model): rows for model, rows in inside.groupby("model_a", sort=False)}


def _pairs(run: Run, measure: str) -> pd.DataFrame:
    table = run.tables["similarity"]
    return table.loc[table["measure"] == measure]


def _localization(run: Run) -> pd.DataFrame:
    curves = run.tables["curves"]
    return curves.loc[curves["curve"] == "localization"]


def _same_layer(pairs: pd.DataFrame) -> pd.Series:
    """Which pairs are a layer and itself."""
    same = pairs["model_a"].eq(pairs["model_b"]) & pairs["layer_a"].eq(pairs["layer_b"])
    return pd.Series(same, dtype=bool)


def _same_depth(pairs: pd.DataFrame) -> Evidence | str | None:
    """Mean similarity of layers at most a tenth of the depth apart minus that of all others, per pair of models."""
    if pairs.empty:
        return "there is only one model, or one of each family"
    cases = {}
    for _, rows in pairs.groupby(["model_a", "model_b"], sort=False):
        depths = [rows[name] / rows[name].max() for name in ("layer_a", "layer_b")]
        near = (depths[0] - depths[1]).abs() <= 0.1
        cases[f"{rows['model_a'].iloc[0]} and {rows['model_b'].iloc[0]}"] = Measurement.mean(
            rows.loc[near]
        ) - Measurement.mean(rows.loc[~near])
    return Evidence.of(cases)


def _pairs_and_foreign(results: Results, measure: str, kind: str = "compare") -> tuple[pd.DataFrame, np.ndarray]:
    """All pairs of layers, and which of them belong to models of different families."""
    pairs, families = _pairs(results.only(kind), measure), results.families
    models = zip(pairs["model_a"], pairs["model_b"], strict=True)
    return pairs, np.array([families.get(a) != families.get(b) for a, b in models], dtype=bool)


def _within_and_across(results: Results, measure: str) -> tuple[Measurement, Measurement] | None:
    """Mean similarity of different layers of one model, and of layers of models of different families."""
    pairs, foreign = _pairs_and_foreign(results, measure)
    same = (pairs["model_a"] == pairs["model_b"]) & (pairs["layer_a"] != pairs["layer_b"])
    within, across = pairs.loc[same], pairs.loc[foreign]
    return None if across.empty or within.empty else (Measurement.mean(within), Measurement.mean(across))


def _value(number: Measurement) -> float:
    return number.value


def _lower_minus_upper(rows: pd.DataFrame) -> Measurement:
    half = rows["layer_a"].max() / 2
    lower, upper = rows.loc[rows["layer_a"] <= half], rows.loc[rows["layer_a"] > half]
    return Measurement.mean(lower) - Measurement.mean(upper)


def frozen_grid(results: Results) -> pd.DataFrame:
    """Table 1: one row per model and choice of frozen layers, one column per task; accuracies."""
    scores = tuned_scores(results, ("finetune", "frozen"))
    if scores.empty:
        return scores
    scores["frozen"] = scores["variant"].fillna("").replace("", "none") if "variant" in scores else "none"
    return wide(scores, ["model", "frozen"], "task", "value").sort_values("model", kind="stable", ignore_index=True)


TABLE_1 = {  # accuracy with no, the top 4, bottom 4, top 6 and bottom 6 layers frozen
    "bert-base-cased": {
        "sst2": (0.9243, 0.9186, 0.9243, 0.9197, 0.9300),
        "mnli": (0.8405, 0.8286, 0.8416, 0.8253, 0.8400),
        "qnli": (0.9140, 0.9109, 0.9185, 0.9013, 0.9180),
        "qqp": (0.9100, 0.9097, 0.9086, 0.9061, 0.9071),
    },
    "xlnet-base-cased": {
        "sst2": (0.9392, 0.9289, 0.9312, 0.9312, 0.9392),
        "mnli": (0.8597, 0.8555, 0.8604, 0.8484, 0.8564),
        "qnli": (0.9035, 0.8796, 0.9065, 0.8788, 0.9099),
        "qqp": (0.9055, 0.9092, 0.8936, 0.9075, 0.8902),
    },
}
TABLE_1_ROWS = ("", "top:4", "bottom:4", "top:6", "bottom:6")
LAYER_LINES = Drawing("lines", x="layer", y="value", by="model")

SIMILARITY = Document(
    name="similarity",
    title="How similar are contextual word representation models?",
    source="Wu, Belinkov, Sajjad, Durrani, Dalvi and Glass (2020), Similarity Analysis of Contextual Word "
    "Representation Models, ACL",
    steps=similarity_steps,
    exhibits=(
        Exhibit("Figure 1", "Layers by neuron similarity and CKA", ("compare",), *heatmaps("compare", "neuron", "cka")),
        Exhibit("Figure 2", "CKA of models and their random twins", ("random",), *heatmaps("random", "cka")),
        Exhibit(
            "Figure 3", "Localization of every layer", ("compare",), curves("compare", "localization"), LAYER_LINES
        ),
        Exhibit(
            "Figure 4",
            "Attention by Jensen–Shannon divergence and by CKA",
            ("attention",),
            *heatmaps("attention", "attention_js", "attention_cka"),
        ),
        *(
            Exhibit(
                f"Figure {number}",
                f"{what} before and after fine-tuning",
                ("tuned",),
                heatmaps("tuned", *measures)[0],
                Drawing("heatmaps", panel="model,measure"),
            )
            for number, what, measures in (
                ("5", "CKA", ("cka",)),
                ("6", "Attention (Jensen–Shannon)", ("attention_js",)),
                (
                    "6 (other measures)",
                    "Attention by the other measures",
                    tuple(n for n in ATTENTION if n[-2:] != "js"),
                ),
            )
        ),
        Exhibit(
            "Figure 7",
            "Localization before and after fine-tuning",
            ("tuned",),
            curves("tuned", "localization"),
            Drawing("lines", x="layer", y="value", by="model", panel="step model"),
        ),
        Exhibit("Table 1", "Accuracy after fine-tuning with frozen layers", ("finetune", "frozen"), frozen_grid),
        Exhibit(
            "Figure 8",
            "Layers by the other representation measures",
            ("compare",),
            *heatmaps("compare", "mixed", "svcca", "pwcca"),
        ),
        Exhibit(
            "Figure 9", "Layers by every measure, over a second corpus", ("corpus",), *heatmaps("corpus", *MEASURES)
        ),
        Exhibit(
            "Figure 10",
            "Attention by the other measures",
            ("attention",),
            *heatmaps("attention", *(name for name in ATTENTION if name not in ("attention_js", "attention_cka"))),
        ),
    ),
    claims=(
        neurons_differ_across_models,
        layers_are_alike_within_models,
        layers_are_shared_more_than_neurons,
        mixed_is_highest_across,
        families_are_alike,
        random_twins_differ,
        random_families_are_alike,
        bottom_layers_resemble_random,
        lower_layers_are_shared,
        neighbours_are_alike,
        same_depth_is_alike,
        upper_layers_are_localized,
        localization_follows_context,
        lower_xlnet_resembles_upper_bert,
        gpt2_attention_is_alike,
        attention_follows_the_family,
        heads_are_more_alike_than_layers,
        attention_is_alike_at_the_same_depth,
        *(
            Claim(
                f"§6.1, figure {figure}",
                f"Fine-tuning changes the {what} of top layers more than that of lower layers.",
                Rule(0.0),
                partial(tuning_changes_the_top, measure=measure),
            )
            for figure, what, measure in ((5, "representation", "cka"), (6, "attention", "attention_js"))
        ),
        *(
            Claim(
                f"§6.1, figure {figure}",
                f"Fine-tuned for different tasks, the {what} of top layers differs more than that of lower layers.",
                Rule(0.0),
                partial(tunings_part_at_the_top, measure=measure),
            )
            for figure, what, measure in ((5, "representation", "cka"), (6, "attention", "attention_js"))
        ),
        sst2_changes_most,
        tuning_spreads_the_top,
        freezing_the_bottom_costs_less,
        corpora_agree,
    ),
    models={
        "bert-base-cased": 85e6,
        "xlnet-base-cased": 92e6,
        "gpt2": 85e6,
        "bert-large-cased": 302e6,
        "gpt2-medium": 302e6,
        "xlnet-large-cased": 310e6,
    },
    printed=tuple(
        PrintedNumber(
            where="Appendix D, table 1",
            what=f"Accuracy on {GLUE[task].name} with {variant or 'no'} layers frozen",
            value=value,
            model=model,
            data=GLUE[task],
            step={"kind": "frozen" if variant else "finetune", "task": task, "variant": variant},
            number=lambda run, _: Measurement.test_accuracy(run),
        )
        for model, tasks in TABLE_1.items()
        for task, values in tasks.items()
        for variant, value in zip(TABLE_1_ROWS, values, strict=True)
    ),
    needs=("treebanks/UD_English-EWT", "glue/SST-2"),
    units=("sentence",),
    stores=True,
)
