"""Wu et al. (2020): how similar layers, neurons and heads of models are, and what fine-tuning changes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from residuum.storage.results import Run
from residuum.studies.claims import Claim, Evidence, Measurement, Rule, claim
from residuum.studies.context import StudyContext, block_count
from residuum.studies.documents import GLUE, Document, Exhibit, PrintedNumber, Results, StudyStep, Workload, step_name
from residuum.studies.steps import compare_stores, finetune_step

MEASURES = ("neuron", "mixed", "svcca", "pwcca", "cka")
ATTENTION = (
    "attention_norm", "attention_pearson", "attention_js", "attention_svcca", "attention_pwcca", "attention_cka",
)  # fmt: skip
TUNED_MEASURES = ("neuron", "svcca", "cka", "attention_js")
TUNED_MODELS = 2  # BERT and XLNet in the paper
FROZEN = {"sample": (2,), "small": (3, 2), "paper": (3, 2)}  # a third and a half of the layers: 4 and 6 of 12
ONE_FAMILY = "all models are of one family"


def similarity_steps(context: StudyContext) -> tuple[StudyStep, ...]:
    """Compare models, their random twins, and models before and after fine-tuning; fine-tune with frozen layers."""
    tasks, load = list(context.data.sentence_tasks), Workload(read=3 * len(context.data.text))
    steps = [
        StudyStep("compare", "Compare all layers and heads of all models", _compare, load),
        StudyStep("random", "Compare models with their random twins", _random, load),
    ]
    for model in list(context.models)[:TUNED_MODELS]:
        steps += [finetune_step(context, model, task) for task in tasks]
        steps.append(StudyStep("tuned", f"Compare {model} before and after fine-tuning", _tuned, load, model))
        counts = sorted({max(1, block_count(context.models[model]) // part) for part in FROZEN[context.scale.name]})
        frozen = [f"{end}:{count}" for count in counts for end in ("top", "bottom")]
        steps += [
            finetune_step(context, model, task, kind="frozen", variant=layers, freeze=layers)
            for task in tasks
            for layers in frozen
        ]
    return tuple(steps)


def _compare(step: StudyStep, context: StudyContext) -> Run:
    stores = [context.read(name, path, attention=True) for name, path in context.models.items()]
    measures = [*MEASURES, *(ATTENTION if all(store.n_heads for store in stores) else ())]
    return compare_stores(step, context, stores, measures)


def _random(step: StudyStep, context: StudyContext) -> Run:
    twins = [context.read(name, path, random=True) for name, path in context.models.items()]
    trained = [context.read(name, path, attention=True) for name, path in context.models.items()]
    return compare_stores(step, context, [*trained, *twins], ["cka"])


def _tuned(step: StudyStep, context: StudyContext) -> Run:
    """A model before and after fine-tuning for each task, over the same text."""
    model = step.model
    stores = [context.read(model, context.models[model], attention=True)]
    for task in context.data.sentence_tasks:
        name = step_name("finetune", model, task)
        stores.append(context.read(name, context.finetuned(model, task), attention=True))
    measures = [name for name in TUNED_MEASURES if stores[0].n_heads or "attention" not in name]
    return compare_stores(step, context, stores, measures)


@claim("§5.1, figure 1a", "Neurons are alike within a model and differ across models.", above=0)
def neurons_differ_across_models(results: Results) -> Evidence | str | None:
    """Neuron similarity within models minus that across families."""
    means = _within_and_across(results, "neuron")
    return ONE_FAMILY if means is None else Evidence.of({"all models": means[0] - means[1]})


@claim("§5.1, figure 1b", "Models of different architectures share representations more than neurons.", above=0)
def layers_are_shared_more_than_neurons(results: Results) -> Evidence | str | None:
    """Similarity across families as a fraction of that within models: that of CKA minus that of neurons."""
    neurons, layers = _within_and_across(results, "neuron"), _within_and_across(results, "cka")
    if neurons is None or layers is None:
        return ONE_FAMILY
    return Evidence.of({"all models": layers[1] / layers[0] - neurons[1] / neurons[0]})


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
    for model in [name for name in pairs["model_a"].unique() if not str(name).endswith("(random)")]:
        inside = pairs.loc[(pairs["model_a"] == model) & (pairs["model_b"] == model)]
        twin = pairs.loc[(pairs["model_a"] == model) & (pairs["model_b"] == f"{model} (random)")]
        other_layers = inside.loc[inside["layer_a"] != inside["layer_b"]]
        cases[model] = Measurement.mean(other_layers) - Measurement.mean(twin)
    return Evidence.of(cases)


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


@claim("Appendix D, table 1", "Freezing bottom layers costs less than freezing as many top layers.", above=0)
def freezing_the_bottom_costs_less(results: Results) -> Evidence | None:
    """Test score with the lowest layers frozen minus that with as many of the highest, per model, task and number."""
    scores = {(step.model, step.task, step.variant): Measurement.test_score(run) for step, run in results.of("frozen")}
    return Evidence.of(
        {
            f"{model}, {task}, {variant.removeprefix('bottom:')} layers": score
            - scores[model, task, variant.replace("bottom", "top")]
            for (model, task, variant), score in scores.items()
            if variant.startswith("bottom")
        }
    )


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


def _pairs_and_foreign(results: Results, measure: str) -> tuple[pd.DataFrame, np.ndarray]:
    """All pairs of layers, and which of them belong to models of different families."""
    pairs, families = _pairs(results.only("compare"), measure), results.families
    models = zip(pairs["model_a"], pairs["model_b"], strict=True)
    return pairs, np.array([families.get(a) != families.get(b) for a, b in models], dtype=bool)


def _within_and_across(results: Results, measure: str) -> tuple[Measurement, Measurement] | None:
    """Mean similarity of different layers of one model, and of layers of models of different families."""
    pairs, foreign = _pairs_and_foreign(results, measure)
    same = (pairs["model_a"] == pairs["model_b"]) & (pairs["layer_a"] != pairs["layer_b"])
    within, across = pairs.loc[same], pairs.loc[foreign]
    return None if across.empty or within.empty else (Measurement.mean(within), Measurement.mean(across))


def _lower_minus_upper(rows: pd.DataFrame) -> Measurement:
    half = rows["layer_a"].max() / 2
    lower, upper = rows.loc[rows["layer_a"] <= half], rows.loc[rows["layer_a"] > half]
    return Measurement.mean(lower) - Measurement.mean(upper)


TABLE_1 = {  # accuracy on SST-2
    "bert-base-cased": {"": 0.9243, "top:4": 0.9186, "bottom:4": 0.9243, "top:6": 0.9197, "bottom:6": 0.9300},
    "xlnet-base-cased": {"": 0.9392, "top:4": 0.9289, "bottom:4": 0.9312, "top:6": 0.9312, "bottom:6": 0.9392},
}

SIMILARITY = Document(
    name="similarity",
    title="How similar are contextual word representation models?",
    source="Wu, Belinkov, Sajjad, Durrani, Dalvi and Glass (2020), Similarity Analysis of Contextual Word "
    "Representation Models, ACL",
    steps=similarity_steps,
    exhibits=(
        Exhibit("Figure 1", "Heatmaps of all layers by neuron similarity and CKA", "compare", "similarity"),
        Exhibit("Figure 2", "CKA of models and their random twins", "random", "similarity"),
        Exhibit("Figure 3", "Localization of every layer", "compare", "curves"),
        Exhibit("Figure 4", "Heatmaps of all layers by attention", "compare", "similarity"),
        Exhibit("Figure 5", "CKA before and after fine-tuning", "tuned", "similarity"),
        Exhibit("Figure 6", "Attention before and after fine-tuning (Jensen–Shannon)", "tuned", "similarity"),
        Exhibit("Figure 7", "Localization before and after fine-tuning", "tuned", "curves"),
        Exhibit("Table 1", "Fine-tuning with frozen layers", "finetune", "scores"),
        Exhibit("Table 1", "Fine-tuning with frozen layers", "frozen", "scores"),
        Exhibit("Figure 8", "Heatmaps by the other representation measures", "compare", "similarity"),
        Exhibit("Figure 10", "Heatmaps by the other attention measures", "compare", "similarity"),
    ),
    claims=(
        neurons_differ_across_models,
        layers_are_shared_more_than_neurons,
        families_are_alike,
        random_twins_differ,
        lower_layers_are_shared,
        neighbours_are_alike,
        upper_layers_are_localized,
        *(
            Claim(
                f"§6.1, figure {figure}",
                f"Fine-tuning changes the {what} of top layers more than that of lower layers.",
                Rule(0.0),
                lambda results, measure=measure: tuning_changes_the_top(results, measure),
            )
            for figure, what, measure in ((5, "representation", "cka"), (6, "attention", "attention_js"))
        ),
        tuning_spreads_the_top,
        freezing_the_bottom_costs_less,
    ),
    models={"bert-base-cased": 85e6, "xlnet-base-cased": 92e6, "gpt2": 85e6, "bert-large-cased": 302e6},
    printed=tuple(
        PrintedNumber(
            where="Appendix D, table 1",
            what=f"Accuracy on SST-2 with {variant or 'no'} layers frozen",
            value=value,
            model=model,
            data=GLUE["sst2"],
            step={"kind": "frozen" if variant else "finetune", "task": "sst2", "variant": variant},
            number=lambda run: Measurement.test_score(run).value,
        )
        for model, values in TABLE_1.items()
        for variant, value in values.items()
    ),
    needs=("treebanks/UD_English-EWT", "glue/SST-2"),
    units=("sentence",),
)
