"""The chain of the thesis on redundancy in distilled and multilingual models: layers, neurons, other languages."""

from __future__ import annotations

from functools import partial

from residuum.distillation import distill
from residuum.probing.languages import probe_languages
from residuum.storage.results import Run
from residuum.studies.commands import compared, distillation_config, redundant
from residuum.studies.declarations import Claim, Document, Exhibit, Load, Step, step_name
from residuum.studies.distilled_findings import (
    clustering_keeps_the_score,
    distilled_layers_follow_the_original,
    distilled_models_reach_the_original,
    distilled_models_transfer_nearly_as_well,
    germanic_languages_are_nearest,
    survivors_lie_low,
)
from residuum.studies.kits import Kit
from residuum.studies.redundancy_findings import most_neurons_can_go
from residuum.studies.verdicts import Rule

STUDENT = "student"
THRESHOLDS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # of tables B.1 and B.2


def _steps(kit: Kit) -> tuple[Step, ...]:
    n, steps = kit.scale.sentences, []
    if len(kit.models) == 1:
        trained = Load(read=3 * _distilled_sentences(kit), trained=1.5 * _distilled_sentences(kit))
        steps.append(Step("distill", f"A student of half the depth of {kit.first}", _distill, trained))
    steps.append(Step("compare", "CKA of all layers of all models", _compare, Load(read=n)))
    for model in _members(kit):
        for task in kit.data.treebank_tasks:
            load, facts = Load(read=n, probed=n), {"model": model, "task": task, "unit": "word"}
            title = f"{model}: what {task} can do without"
            steps.append(Step("redundancy", title, partial(_redundancy, model, task), load, **facts))
    for task in kit.data.treebank_tasks:
        title, load = f"{task} learnt in English, asked in other languages", Load(read=10 * n, probed=10 * n)
        steps.append(Step("languages", title, partial(_languages, task), load, task=task))
    return tuple(steps)


def _members(kit: Kit) -> dict[str, str]:
    """The original first, then what was distilled from it: given, or made by the first step."""
    if len(kit.models) > 1:
        return dict(kit.models)
    languages = "-".join(("en", *kit.data.targets()))
    return {**kit.models, STUDENT: str(kit.out / "distill" / "students" / languages)}


def _distilled_sentences(kit: Kit) -> float:
    return kit.scale.distil_steps * kit.scale.distil_batch


def _distill(kit: Kit) -> Run:
    """DistilBERT's losses, one student for all languages."""
    config = {**distillation_config(kit), "preset": "distilbert", "share": "all"}
    return distill(config, kit.out / "distill", device=kit.device, fresh=kit.fresh, progress=False).run


def _compare(kit: Kit) -> Run:
    return compared(kit, [kit.read(name, path) for name, path in _members(kit).items()], ["cka"], "compare")


def _redundancy(model: str, task: str, kit: Kit) -> Run:
    named, corpora = kit.data.treebank_tasks[task]
    return redundant(model, _members(kit)[model], named, corpora, kit)


def _languages(task: str, kit: Kit) -> Run:
    return probe_languages(
        [kit.load(path, name=name) for name, path in _members(kit).items()],
        kit.data.treebanks,
        task,
        source="en",
        thresholds=THRESHOLDS,
        seeds=kit.scale.seeds,
        recipe=kit.recipe(),
        out=kit.out / step_name("languages", task=task),
        activations=kit.out / "activations" / "languages",
        **kit.bounded,
    ).run


DISTILLED = Document(
    name="distilled",
    title="How redundant are distilled and multilingual models?",
    source="A thesis on redundancy in ten distilled and multilingual models",
    steps=_steps,
    exhibits=(
        Exhibit("Figure 5.1", "CKA between the layers of each model", "compare", "similarity"),
        Exhibit("Figure 5.2", "Average likeness of each layer to the others", "compare", "curves"),
        Exhibit("Figure 5.3", "Neurons and accuracy at each threshold", "redundancy", "thresholds"),
        Exhibit("Table 5.1", "Neurons left in each layer at each threshold", "redundancy", "survivors"),
        Exhibit("Figures 5.4 to 5.6", "Accuracy in other languages at each threshold", "languages", "languages"),
        Exhibit("Tables A.1 to A.8", "Neurons left in each layer at each threshold", "redundancy", "survivors"),
        Exhibit("Tables B.1 and B.2", "Accuracy of each language and threshold", "languages", "wide"),
    ),
    claims=(
        Claim(
            "§5.1, figure 5.2",
            "Along their depth, layers of distilled models are as alike as those of the original.",
            distilled_layers_follow_the_original,
            Rule(0.0),
        ),
        Claim(
            "§5.2, figure 5.3",
            "Representatives at the threshold 0.3 keep the score of all neurons, within one percent.",
            clustering_keeps_the_score,
            Rule(0.99),
        ),
        Claim(
            "§5.2, figure 5.3",
            "About 80 % of the neurons can go without a loss beyond 1 %.",
            most_neurons_can_go,
            Rule(0.5),
        ),
        Claim(
            "§6, figure 5.3",
            "Probes on distilled models are as good as those on the original, within two points.",
            distilled_models_reach_the_original,
            Rule(-0.02),
        ),
        Claim(
            "§5.2, table 5.1",
            "At high thresholds most neurons that are left lie in the lower half of the layers.",
            survivors_lie_low,
            Rule(0.5),
        ),
        Claim(
            "§5.3, figure 5.5",
            "Transfer from English is best to Germanic languages.",
            germanic_languages_are_nearest,
            Rule(0.0),
        ),
        Claim(
            "§5.3, table B.1",
            "Distilled models lose less than three points of transfer to other languages.",
            distilled_models_transfer_nearly_as_well,
            Rule(-0.03),
        ),
    ),
    models={"bert-base-multilingual-cased": 85e6, "distilbert-base-multilingual-cased": 43e6, "xlm-roberta-base": 85e6},
    needs=("treebanks/UD_English-EWT", "treebanks/UD_*-PUD"),
)
