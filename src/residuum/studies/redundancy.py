"""Dalvi et al. (2020): what models repeat in general and for a task, and what can be left out."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from residuum.corpus.tasks import Task, TaskCorpora
from residuum.shrinking.transferring import transfer
from residuum.storage.results import Run
from residuum.studies.claims import Claim, Evidence, Measurement, Rule, claim
from residuum.studies.context import StudyContext
from residuum.studies.documents import GLUE, Document, Exhibit, PrintedNumber, Results, StudyStep, Workload, case_name
from residuum.studies.similarity import layer_pairs, neighbours_are_alike
from residuum.studies.steps import compare_models, finetune_step, n_sentences, task_redundancy

KEEP_MINIMAL = 0.97  # of the oracle's score, for tables 1 and 2
SUFFICIENT = 0.99  # of the oracle's score
FOCUS = 0.3  # the clustering threshold at which the paper examines clusters
NOT_BOTH = "there are not both word tasks and sentence tasks"


def redundancy_steps(context: StudyContext) -> tuple[StudyStep, ...]:
    """CKA of layers; fine-tuning for sentence tasks; redundancy and transfer of every model and task."""
    load = Workload(read=len(context.data.text))
    steps = [StudyStep("compare", "Compare all layers of each model by CKA", compare_models, load)]
    for model in context.models:
        steps += [finetune_step(context, model, task) for task in context.data.sentence_tasks]
        for name, (task, corpora) in _tasks(context).items():
            facts = {"model": model, "task": name, "unit": task.unit}
            load = Workload(read=n_sentences(corpora), probed=n_sentences(corpora))
            steps.append(StudyStep("redundancy", f"Find what {model} repeats for {name}", _redundancy, load, **facts))
            steps.append(StudyStep("transfer", f"Reduce {model} for {name}", _transfer, load, **facts))
    return tuple(steps)


def _tasks(context: StudyContext) -> dict[str, tuple[Task, TaskCorpora]]:
    return context.data.word_tasks | context.data.sentence_tasks


def _source(step: StudyStep, context: StudyContext) -> str:
    """Words are read with the pretrained model, sentences with the fine-tuned one, as in the paper."""
    if step.task in context.data.word_tasks:
        return context.models[step.model]
    return str(context.finetuned(step.model, step.task))


def _redundancy(step: StudyStep, context: StudyContext) -> Run:
    task, corpora = _tasks(context)[step.task]
    return task_redundancy(step, context, _source(step, context), task, corpora, keep=KEEP_MINIMAL)


def _transfer(step: StudyStep, context: StudyContext) -> Run:
    task, corpora = _tasks(context)[step.task]
    return transfer(
        context.load(_source(step, context), name=step.model),
        corpora,
        task,
        context.folder(step),
        recipe=context.recipe(),
        **context.bounded,
    ).run


@claim("§5.1, figure 1", "The last two layers are less similar than other neighbours.", above=0)
def last_layers_differ(results: Results) -> Evidence | None:
    """Mean CKA of the other neighbouring layers minus that of the last two, per model."""
    cases = {}
    for model, rows in layer_pairs(results).items():
        neighbours = rows.loc[rows["layer_b"] - rows["layer_a"] == 1].sort_values("layer_a")
        cases[model] = Measurement.mean(neighbours.iloc[:-1]) - Measurement.mean(neighbours.iloc[-1:])
    return Evidence.of(cases)


def removable_fraction(results: Results) -> Evidence | None:
    """The largest fraction of neurons that clustering removes while 99 % of the oracle's test score is left."""
    return _each(results, "redundancy", _removable)


@claim("§5.2, figure 3", "Nearly all clusters (95 %) lie in one layer or two adjacent layers.", above=0.9)
def clusters_are_local(results: Results) -> Evidence | None:
    """The fraction of clusters at c_t = 0.3 that lie in one layer or in two adjacent ones."""
    return _each(results, "redundancy", _local_fraction)


@claim("§6.1, figure 4", "Word tasks have more redundant layers than sentence tasks.", above=0)
def sentence_tasks_have_fewer_redundant_layers(results: Results) -> Evidence | str | None:
    """Layers that keep 99 % of the oracle's score: word task minus sentence task."""
    return _words_minus_sentences(results, "redundancy", _redundant_layers)


@claim("§6.2, tables 1 and 2", "Less than 10 % of the neurons keep 97 % of the oracle's score.", below=0.1)
def minimal_sets_are_small(results: Results) -> Evidence | None:
    """The fraction of neurons in the minimal set."""
    return _each(results, "redundancy", lambda run: _minimal_set(run, "share"))


@claim("§6.2, tables 1 and 2", "Word tasks need more neurons than sentence tasks.", above=0)
def word_tasks_need_more_neurons(results: Results) -> Evidence | str | None:
    """Size of minimal sets: word task minus sentence task."""
    return _words_minus_sentences(results, "redundancy", minimal_set_size)


@claim("§7.1, table 3", "LayerSelector and CCFS leave out more than 90 % of the neurons.", above=0.9)
def transfer_keeps_few_neurons(results: Results) -> Evidence | None:
    """The fraction of neurons that LayerSelector and CCFS leave out."""
    return _each(results, "transfer", lambda run: 1 - float(run.summary["share of neurons"]))


@claim("§7.1, table 3", "Word tasks need fewer layers than sentence tasks.", above=0)
def word_tasks_need_fewer_layers(results: Results) -> Evidence | str | None:
    """Layers that LayerSelector keeps: sentence task minus word task."""
    return _words_minus_sentences(results, "transfer", lambda run: -float(run.summary["layers"]))


def minimal_set_size(run: Run) -> float:
    """The number of neurons in the minimal set."""
    return _minimal_set(run, "neurons")


def _minimal_set(run: Run, column: str) -> float:
    """A column of the smallest set of all neurons that keeps enough of the oracle's score; NaN where there is none."""
    table = run.tables["reduction"]
    return float(table.loc[table["set"] == "minimal set", column].astype(float).mean())


def _removable(run: Run) -> float:
    thresholds = run.tables["thresholds"]
    sufficient = thresholds.loc[thresholds["score"] >= SUFFICIENT * _oracle(thresholds)]
    return 1 - min(sufficient["share"].tolist(), default=1.0)


def _redundant_layers(run: Run) -> float:
    oracle = _oracle(run.tables["thresholds"])
    return float(sum(score >= SUFFICIENT * oracle for score in run.tables["layers"]["score"].tolist()))


def _oracle(thresholds: pd.DataFrame) -> float:
    """The test score of all neurons."""
    return float(thresholds.loc[thresholds["threshold"] == 0, "score"].astype(float).mean())


def _local_fraction(run: Run) -> float:
    windows = run.tables["windows"]
    local = windows.loc[(windows["threshold"] == FOCUS) & windows["window"].astype(str).isin(["1", "2"])]
    return float(local["share"].sum())


def _each(results: Results, kind: str, number: Callable[[Run], float]) -> Evidence | None:
    """One number per model and task."""
    return Evidence.exact({case_name(step): number(run) for step, run in results.of(kind)})


def _words_minus_sentences(results: Results, kind: str, number: Callable[[Run], float]) -> Evidence | str | None:
    """Every word task against every sentence task of the same model."""
    words, sentences = (results.of(kind, unit=unit) for unit in ("word", "sentence"))
    if not words or not sentences:
        return NOT_BOTH
    return Evidence.exact(
        {
            f"{word.model}, {word.task} and {sentence.task}": number(word_run) - number(sentence_run)
            for word, word_run in words
            for sentence, sentence_run in sentences
            if word.model == sentence.model
        }
    )


# Word tasks have no printed numbers here: the paper uses the Penn Treebank, an early release of the Parallel Meaning
# Bank, and 150,000 words of CoNLL-2000.
MINIMAL_SETS = {
    "bert-base-cased": {"sst2": 30, "mrpc": 190, "rte": 320, "stsb": 290},
    "xlnet-base-cased": {"sst2": 70, "mrpc": 170, "rte": 400, "stsb": 300},
}

REDUNDANCY = Document(
    name="redundancy",
    title="What do pretrained models repeat, and what does a task not need?",
    source="Dalvi, Sajjad, Durrani and Belinkov (2020), Analyzing Redundancy in Pretrained Transformer Models, EMNLP",
    steps=redundancy_steps,
    exhibits=(
        Exhibit("Figure 1", "CKA between layers", "compare", "similarity"),
        Exhibit("Figure 2", "Neurons left and accuracy at each clustering threshold", "redundancy", "thresholds"),
        Exhibit("Figure 3", "Clusters within one, two, three or more layers", "redundancy", "windows"),
        Exhibit("Figure 4", "Redundant layers of each task", "redundancy", "layers"),
        Exhibit("Tables 1 and 2", "The fewest neurons that keep 97 % of the oracle's score", "redundancy", "reduction"),
        Exhibit("Table 3", "LayerSelector and CCFS within 1 % each", "transfer", "steps"),
        Exhibit("Figure 5", "Cost of the classifier by number of neurons", "transfer", "curve"),
        Exhibit("Figure 6", "Activations of the neurons of a cluster", "redundancy", "pictures"),
        Exhibit("Figures 7 to 9", "Redundant layers of each class", "redundancy", "class_layers"),
        Exhibit("Table 6", "Accuracy and neurons of each task at each threshold", "redundancy", "thresholds"),
        Exhibit("Table 7", "Accuracy of each layer alone", "redundancy", "layers"),
        Exhibit("Table 8", "Accuracy of the minimal sets", "redundancy", "reduction"),
        Exhibit("Tables 9 and 10", "LayerSelector and CCFS for each task", "transfer", "steps"),
        Exhibit("Figures 10 and 11", "Time by number of layers", "transfer", "curve"),
    ),
    claims=(
        Claim("§5.1, figure 1", "Adjacent layers are similar.", Rule(0.0), neighbours_are_alike.measure),
        last_layers_differ,
        Claim(
            "§5.2, figure 2",
            "Clustering removes most neurons (85 % in BERT) at a loss of at most 1 %.",
            Rule(0.5),
            removable_fraction,
        ),
        clusters_are_local,
        sentence_tasks_have_fewer_redundant_layers,
        minimal_sets_are_small,
        word_tasks_need_more_neurons,
        transfer_keeps_few_neurons,
        word_tasks_need_fewer_layers,
    ),
    models={"bert-base-cased": 85e6, "xlnet-base-cased": 92e6},
    printed=tuple(
        PrintedNumber(
            where="§6.2, tables 1 and 2",
            what=f"Neurons that keep 97 % of the oracle's score on {task}",
            value=float(value),
            model=model,
            data=GLUE[task],
            step={"kind": "redundancy", "task": task},
            number=minimal_set_size,
            tolerance=0.5 * value,
        )
        for model, values in MINIMAL_SETS.items()
        for task, value in values.items()
    ),
    needs=("treebanks/UD_English-EWT", "token/conll2000", "glue/SST-2"),
    units=("word", "sentence"),
)
