"""The chain of Wu et al. (2020): how alike layers, neurons and heads of models are, and what fine-tuning changes."""

from __future__ import annotations

from functools import partial

from residuum.storage.results import Run
from residuum.studies.commands import compared, tuned, tuned_folder, tuning_load
from residuum.studies.declarations import GLUE, Claim, Document, Exhibit, Load, Printed, Step, step_name
from residuum.studies.estimates import tested_score
from residuum.studies.kits import Kit, block_count
from residuum.studies.similarity_findings import (
    family_is_alike,
    freezing_the_bottom_costs_less,
    layers_are_shared_more_than_neurons,
    lower_layers_are_shared,
    neighbours_are_alike,
    neurons_are_of_a_model,
    random_is_unlike,
    tuning_changes_the_top,
    tuning_spreads_the_top,
    upper_layers_are_localized,
)
from residuum.studies.verdicts import Rule

MEASURES = ("neuron", "mixed", "svcca", "pwcca", "cka")
ATTENTION = (
    "attention_norm",
    "attention_pearson",
    "attention_js",
    "attention_svcca",
    "attention_pwcca",
    "attention_cka",
)
TUNED_MEASURES = ("neuron", "svcca", "cka", "attention_js")
TUNED_MODELS = 2  # BERT and XLNet in the paper
FROZEN = {"sample": (2,), "small": (3, 2), "paper": (3, 2)}  # a third and a half of the layers: 4 and 6 of 12


def _steps(kit: Kit) -> tuple[Step, ...]:
    tasks = list(kit.data.sentence_tasks)
    n = kit.scale.sentences
    steps = [
        Step("compare", "All layers and heads of all models", _compare, Load(read=3 * n)),
        Step("random", "Models and their random twins", _random, Load(read=3 * n)),
    ]
    for model in list(kit.models)[:TUNED_MODELS]:
        steps += [
            Step(
                "finetune",
                f"{model} learns {task}",
                partial(tuned, "finetune", model, task),
                tuning_load(kit),
                model,
                task,
            )
            for task in tasks
        ]
        steps.append(Step("tuned", f"{model} before and after", partial(_tuned, model, tasks), Load(read=2 * n), model))
        steps += [
            Step(
                "frozen",
                f"{model} learns {task}, layers {frozen} frozen",
                partial(tuned, "frozen", model, task, variant=frozen, freeze=frozen),
                tuning_load(kit),
                model,
                task,
                variant=frozen,
            )
            for task in tasks
            for frozen in _frozen(kit, model)
        ]
    return tuple(steps)


def _frozen(kit: Kit, model: str) -> list[str]:
    """A third and a half of the layers (what ships: a half), from the top and from the bottom."""
    counts = sorted({max(1, block_count(kit.models[model]) // share) for share in FROZEN[kit.scale.name]})
    return [f"{end}:{count}" for count in counts for end in ("top", "bottom")]


def _compare(kit: Kit) -> Run:
    stores = [kit.read(name, path, attention=True) for name, path in kit.models.items()]
    measures = [*MEASURES, *(ATTENTION if all(store.n_heads for store in stores) else ())]
    return compared(kit, stores, measures, "compare")


def _random(kit: Kit) -> Run:
    twins = [kit.read(name, path, random=True) for name, path in kit.models.items()]
    own = [kit.read(name, path, attention=True) for name, path in kit.models.items()]
    return compared(kit, [*own, *twins], ["cka"], "random")


def _tuned(model: str, tasks: list[str], kit: Kit) -> Run:
    """The model and what every task made of it, over the same text."""
    stores = [kit.read(model, kit.models[model], attention=True)]
    stores += [
        kit.read(step_name("finetune", model, task), tuned_folder(model, task, kit), attention=True) for task in tasks
    ]
    measures = [name for name in TUNED_MEASURES if stores[0].n_heads or "attention" not in name]
    return compared(kit, stores, measures, step_name("tuned", model))


_TABLE_1 = {
    "bert-base-cased": {"": 0.9243, "top:4": 0.9186, "bottom:4": 0.9243, "top:6": 0.9197, "bottom:6": 0.9300},
    "xlnet-base-cased": {"": 0.9392, "top:4": 0.9289, "bottom:4": 0.9312, "top:6": 0.9312, "bottom:6": 0.9392},
}

SIMILARITY = Document(
    name="similarity",
    title="How alike are contextual word representation models?",
    source="Wu, Belinkov, Sajjad, Durrani, Dalvi and Glass (2020), Similarity Analysis of Contextual Word "
    "Representation Models, ACL",
    steps=_steps,
    exhibits=(
        Exhibit("Figure 1", "Heatmaps of all layers by neuron and CKA similarity", "compare", "similarity"),
        Exhibit("Figure 2", "CKA of models and their random twins", "random", "similarity"),
        Exhibit("Figure 3", "Localization of every layer", "compare", "curves"),
        Exhibit("Figure 4", "Heatmaps of all layers by their attention", "compare", "similarity"),
        Exhibit("Figure 5", "CKA before and after fine-tuning", "tuned", "similarity"),
        Exhibit("Figure 6", "Attention before and after fine-tuning (Jensen–Shannon)", "tuned", "similarity"),
        Exhibit("Figure 7", "Localization before and after fine-tuning", "tuned", "curves"),
        Exhibit("Table 1", "Freezing layers while fine-tuning", "finetune", "scores"),
        Exhibit("Table 1", "Freezing layers while fine-tuning", "frozen", "scores"),
        Exhibit("Figure 8", "Heatmaps by the other measures of representations", "compare", "similarity"),
        Exhibit("Figure 10", "Heatmaps by the other measures of attention", "compare", "similarity"),
    ),
    claims=(
        Claim(
            "§5.1, figure 1a",
            "Neurons are alike within a model and differ across models.",
            neurons_are_of_a_model,
            Rule(0.0),
        ),
        Claim(
            "§5.1, figure 1b",
            "Models of different architectures share representations more than single neurons.",
            layers_are_shared_more_than_neurons,
            Rule(0.0),
        ),
        Claim(
            "§5.1, figure 1b",
            "Models of one family are more alike than models of different ones.",
            family_is_alike,
            Rule(0.0),
        ),
        Claim(
            "§5.1, figure 2",
            "Trained models are less like their random twins than like themselves.",
            random_is_unlike,
            Rule(0.0),
        ),
        Claim(
            "§5.1, figure 1b",
            "Across architectures lower layers are more alike than higher ones.",
            lower_layers_are_shared,
            Rule(0.0),
        ),
        Claim("§5.1, figure 1b", "Adjacent layers are more alike than distant ones.", neighbours_are_alike, Rule(0.0)),
        Claim(
            "§5.1, figure 3", "Higher layers are more localized than lower ones.", upper_layers_are_localized, Rule(0.0)
        ),
        Claim(
            "§6.1, figure 5",
            "Fine-tuning changes the representations of top layers more.",
            partial(tuning_changes_the_top, measure="cka"),
            Rule(0.0),
        ),
        Claim(
            "§6.1, figure 6",
            "Fine-tuning changes the attention of top layers more.",
            partial(tuning_changes_the_top, measure="attention_js"),
            Rule(0.0),
        ),
        Claim("§6.1, figure 7", "Fine-tuning makes the top layer less localized.", tuning_spreads_the_top, Rule(0.0)),
        Claim(
            "Appendix D, table 1",
            "Freezing bottom layers costs less than freezing as many top layers.",
            freezing_the_bottom_costs_less,
            Rule(0.0),
        ),
    ),
    models={"bert-base-cased": 85e6, "xlnet-base-cased": 92e6, "gpt2": 85e6, "bert-large-cased": 302e6},
    printed=tuple(
        Printed(
            "Appendix D, table 1",
            f"Accuracy on SST-2 with {variant or 'no'} layers frozen",
            value,
            model,
            GLUE["sst2"],
            {"kind": "frozen" if variant else "finetune", "task": "sst2", "variant": variant},
            tested_score,
        )
        for model, values in _TABLE_1.items()
        for variant, value in values.items()
    ),
    needs=("treebanks/UD_English-EWT", "glue/SST-2"),
)
