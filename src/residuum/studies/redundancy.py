"""The chain of Dalvi et al. (2020): what models repeat in general and for a task, and what can be left out."""

from __future__ import annotations

from functools import partial

from residuum.corpus.tasks import Task, TaskCorpora
from residuum.shrinking.transferring import transfer
from residuum.storage.results import Run
from residuum.studies.commands import compared, redundant, tuned, tuned_folder, tuning_load
from residuum.studies.declarations import GLUE, Claim, Document, Exhibit, Load, Printed, Step, step_name
from residuum.studies.kits import Kit
from residuum.studies.redundancy_findings import (
    clusters_are_local,
    last_layers_differ,
    minimal_set_size,
    minimal_sets_are_small,
    most_neurons_can_go,
    neighbours_are_alike,
    sentence_tasks_have_fewer_redundant_layers,
    transfer_keeps_few_neurons,
    word_tasks_need_fewer_layers,
    word_tasks_need_more_neurons,
)
from residuum.studies.verdicts import Rule

KEEP_MINIMAL = 0.97  # of the oracle, for tables 1 and 2


def _steps(kit: Kit) -> tuple[Step, ...]:
    n, examples = kit.scale.sentences, float(kit.scale.examples or kit.scale.sentences)
    steps = [Step("compare", "CKA of all layers of each model", _compare, Load(read=n))]
    for model in kit.models:
        for task in kit.data.sentence_tasks:
            work, load = partial(tuned, "finetune", model, task), tuning_load(kit)
            steps.append(Step("finetune", f"{model} learns {task}", work, load, model, task))
        for task, (named, _) in _tasks(kit).items():
            size = n if named.unit == "word" else examples
            facts = {"model": model, "task": task, "unit": named.unit}
            title, load = f"{model}: what {task} can do without", Load(read=size, probed=size)
            steps.append(Step("redundancy", title, partial(_redundancy, model, task), load, **facts))
            title, load = f"{model}: a smaller extractor for {task}", Load(read=size, probed=size)
            steps.append(Step("transfer", title, partial(_transfer, model, task), load, **facts))
    return tuple(steps)


def _tasks(kit: Kit) -> dict[str, tuple[Task, TaskCorpora]]:
    return kit.data.word_tasks | kit.data.sentence_tasks


def _compare(kit: Kit) -> Run:
    stores = [kit.read(name, path) for name, path in kit.models.items()]
    return compared(kit, stores, ["cka"], "compare")


def _source(model: str, task: str, kit: Kit) -> str:
    """Words are read with the pretrained model, sentences with the one that learnt the task, as in the paper."""
    return kit.models[model] if task in kit.data.word_tasks else str(tuned_folder(model, task, kit))


def _redundancy(model: str, task: str, kit: Kit) -> Run:
    named, corpora = _tasks(kit)[task]
    return redundant(model, _source(model, task, kit), named, corpora, kit, keep=KEEP_MINIMAL)


def _transfer(model: str, task: str, kit: Kit) -> Run:
    (named, corpora), source = _tasks(kit)[task], _source(model, task, kit)
    return transfer(
        kit.load(source, name=model),
        corpora,
        named,
        kit.out / step_name("transfer", model, task),
        recipe=kit.recipe(),
        progress=False,
        **kit.bounded,
    ).run


# Not of the tasks about words: the document has them of the Penn Treebank, of an early release of the Parallel Meaning
# Bank, and of 150,000 words of CoNLL-2000.
_MINIMAL = {
    "bert-base-cased": {"sst2": 30, "mrpc": 190, "rte": 320, "stsb": 290},
    "xlnet-base-cased": {"sst2": 70, "mrpc": 170, "rte": 400, "stsb": 300},
}

REDUNDANCY = Document(
    name="redundancy",
    title="What do pretrained models repeat, and what can a task do without?",
    source="Dalvi, Sajjad, Durrani and Belinkov (2020), Analyzing Redundancy in Pretrained Transformer Models, EMNLP",
    steps=_steps,
    exhibits=(
        Exhibit("Figure 1", "CKA between the layers", "compare", "similarity"),
        Exhibit("Figure 2", "Neurons left and accuracy at each clustering threshold", "redundancy", "thresholds"),
        Exhibit("Figure 3", "Clusters within one, two, three layers or further", "redundancy", "windows"),
        Exhibit("Figure 4", "Redundant layers of each task", "redundancy", "layers"),
        Exhibit("Tables 1 and 2", "The fewest neurons that keep 97 % of the oracle", "redundancy", "reduction"),
        Exhibit("Table 3", "LayerSelector and CCFS within 1 % each", "transfer", "steps"),
        Exhibit("Figure 5", "Cost of the classifier by its neurons", "transfer", "curve"),
        Exhibit("Figure 6", "Activations of the neurons of a cluster", "redundancy", "pictures"),
        Exhibit("Figures 7 to 9", "Redundant layers of each class", "redundancy", "class_layers"),
        Exhibit("Table 6", "Accuracy and neurons of each task at each threshold", "redundancy", "thresholds"),
        Exhibit("Table 7", "Accuracy of each layer alone", "redundancy", "layers"),
        Exhibit("Table 8", "Accuracy of the minimal sets", "redundancy", "reduction"),
        Exhibit("Tables 9 and 10", "LayerSelector and CCFS for each task", "transfer", "steps"),
        Exhibit("Figures 10 and 11", "Time by the layers that are left", "transfer", "curve"),
    ),
    claims=(
        Claim("§5.1, figure 1", "Adjacent layers are alike.", neighbours_are_alike, Rule(0.0)),
        Claim(
            "§5.1, figure 1",
            "The last two layers are less alike than other neighbours.",
            last_layers_differ,
            Rule(0.0),
        ),
        Claim(
            "§5.2, figure 2",
            "Most neurons (85 % in BERT) can be removed by clustering without a loss beyond 1 %.",
            most_neurons_can_go,
            Rule(0.5),
        ),
        Claim(
            "§5.2, figure 3",
            "Nearly all clusters (95 %) lie in one layer or two adjacent ones.",
            clusters_are_local,
            Rule(0.9),
        ),
        Claim(
            "§6.1, figure 4",
            "Word tasks have more redundant layers than sentence tasks.",
            sentence_tasks_have_fewer_redundant_layers,
            Rule(0.0),
        ),
        Claim(
            "§6.2, tables 1 and 2",
            "Less than 10 % of the neurons keep 97 % of the oracle's score.",
            minimal_sets_are_small,
            Rule(0.1, above=False),
        ),
        Claim(
            "§6.2, tables 1 and 2",
            "Word tasks need more neurons than sentence tasks.",
            word_tasks_need_more_neurons,
            Rule(0.0),
        ),
        Claim(
            "§7.1, table 3",
            "LayerSelector and CCFS leave out more than 90 % of the neurons.",
            transfer_keeps_few_neurons,
            Rule(0.9),
        ),
        Claim(
            "§7.1, table 3",
            "Word tasks need fewer layers than sentence tasks.",
            word_tasks_need_fewer_layers,
            Rule(0.0),
        ),
    ),
    models={"bert-base-cased": 85e6, "xlnet-base-cased": 92e6},
    printed=tuple(
        Printed(
            "§6.2, tables 1 and 2",
            f"Neurons that keep 97 % of the oracle of {task}",
            float(value),
            model,
            GLUE[task],
            {"kind": "redundancy", "task": task},
            minimal_set_size,
            tolerance=0.5 * value,
        )
        for model, values in _MINIMAL.items()
        for task, value in values.items()
    ),
    needs=("treebanks/UD_English-EWT", "token/conll2000", "glue/SST-2"),
)
