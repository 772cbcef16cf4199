"""Dalvi et al. (2020): what models repeat in general and for a task, and what can be left out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from residuum.activations.correlation import cluster_store
from residuum.activations.extraction import extract
from residuum.corpus.tasks import Task, TaskCorpora
from residuum.maths.probing import PaperRecipe, Probe, train_probes
from residuum.maths.rankings import lca_ranking
from residuum.maths.targets import class_target
from residuum.shrinking.transferring import transfer
from residuum.storage.results import Run, finished_run, write_run
from residuum.studies.claims import Claim, Evidence, Measurement, Rule, claim
from residuum.studies.documents import GLUE, Document, PrintedNumber, Results, StudyStep, Workload, case_name
from residuum.studies.exhibits import (
    AVERAGE,
    Drawing,
    Exhibit,
    chosen,
    data_table,
    gathered,
    layer_maps,
    rows_of,
    wide,
    with_average_row,
    with_facts,
)
from residuum.studies.similarity import layer_pairs, neighbours_are_alike
from residuum.studies.steps import StudyContext, compare_models, finetune_step, n_sentences, task_redundancy

KEEP_MINIMAL = 0.97  # of the oracle's score, for tables 1 and 2
SUFFICIENT = 0.99  # of the oracle's score
TIMED_SHARES, TIMED_WORDS = (0.25, 0.5, 0.75, 1.0), 2000  # of the text; words that a timed classifier learns from
NEURON_SHARES, TIMED_EPOCHS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0), 10  # of a timed classifier
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
        load = Workload(read=3 * len(context.data.text))
        steps.append(
            StudyStep(
                "timing", f"Time the steps of feature selection with {model}", time_feature_selection, load, model
            )
        )
    return tuple(steps)


def time_feature_selection(step: StudyStep, context: StudyContext) -> Run:
    """Figures 5 and 12 to 14: seconds to extract and cluster parts of the text, and to train on and rank neurons."""
    text, out = context.data.text, context.folder(step)
    config = {"model": step.model, "text": text.fingerprint, "shares": list(TIMED_SHARES), "words": TIMED_WORDS}
    config |= {"neurons": list(NEURON_SHARES)}
    if run := finished_run(out, "study timing", config, fresh=context.fresh):
        return run
    rows, features = [], np.empty((0, 0))
    with TemporaryDirectory() as folder:
        for share in TIMED_SHARES:
            part = text.limit(max(1, round(share * len(text))))
            start = time.perf_counter()
            model = context.load(context.models[step.model], name=step.model)
            store = extract(model, part, Path(folder, f"{share}"), progress=False, max_memory=context.max_memory)
            rows.append(("extract", len(part), time.perf_counter() - start))
            start = time.perf_counter()
            cluster_store(store)
            rows.append(("cluster", len(part), time.perf_counter() - start))
            features = store.array()[:TIMED_WORDS].reshape(min(store.n_rows, TIMED_WORDS), -1)  # of the whole text
    labels = [label or "" for sentence in text.word_labels("upos") for label in sentence]
    target = class_target(labels[: len(features)])
    for share in NEURON_SHARES:
        n_neurons = max(1, round(share * features.shape[1]))
        part = np.ascontiguousarray(features[:, :n_neurons])
        start = time.perf_counter()
        (probe,) = train_probes(part, {"upos": target}, [Probe("upos")], PaperRecipe(epochs=TIMED_EPOCHS))
        learnt = time.perf_counter()
        lca_ranking(probe.weight)
        rows += [("train", n_neurons, learnt - start), ("rank", n_neurons, time.perf_counter() - learnt)]
    run = Run("study timing", config, {}, {"times": pd.DataFrame(rows, columns=pd.Index(["work", "n", "seconds"]))})
    write_run(out, run)
    return run


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

    def removable(run: Run) -> float:
        thresholds = run.tables["thresholds"]
        sufficient = thresholds.loc[thresholds["score"] >= SUFFICIENT * _oracle(thresholds)]
        return 1 - min(sufficient["share"].tolist(), default=1.0)

    return _each(results, "redundancy", removable)


@claim("§5.2, figure 3", "Nearly all clusters (95 %) lie in one layer or two adjacent layers.", above=0.9)
def clusters_are_local(results: Results) -> Evidence | None:
    """The fraction of clusters at c_t = 0.3 that lie in one layer or in two adjacent ones."""

    def local_fraction(run: Run) -> float:
        windows = run.tables["windows"]
        local = windows.loc[(windows["threshold"] == FOCUS) & windows["window"].astype(str).isin(["1", "2"])]
        return float(local["share"].sum())

    return _each(results, "redundancy", local_fraction)


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


@claim("§5.1, figure 1", "Adjacent layers of the lower half are more similar than those of the upper half.", above=0)
def lower_neighbours_are_more_alike(results: Results) -> Evidence | None:
    """Mean CKA of adjacent layers, lower half minus upper half, per model."""
    cases = {}
    for model, rows in layer_pairs(results).items():
        neighbours = rows.loc[rows["layer_b"] - rows["layer_a"] == 1]
        lower = neighbours["layer_b"] <= rows["layer_b"].max() / 2
        cases[model] = Measurement.mean(neighbours.loc[lower]) - Measurement.mean(neighbours.loc[~lower])
    return Evidence.of(cases)


@claim("§6.1, figure 4", "XLNet has more redundant layers than BERT, on average over tasks.", above=0)
def xlnet_is_more_redundant(results: Results) -> Evidence | str | None:
    """Number of layers that keep 99 % of the oracle's score: XLNet minus BERT, mean over the same tasks."""
    counts: dict[str, dict[str, float]] = {}
    for step, run in results.of("redundancy"):
        counts.setdefault(results.families.get(step.model, ""), {})[step.task] = _redundant_layers(run)
    if not {"xlnet", "bert"} <= set(counts):
        return "the models are not a BERT and an XLNet"
    xlnet, bert = counts["xlnet"], counts["bert"]
    return Evidence.of({"all tasks": Measurement.sampled([xlnet[task] - bert[task] for task in xlnet if task in bert])})


@claim("§6.2, table 1", "CCG supertags and chunks need more neurons than parts of speech and semantic tags.", above=0)
def complex_tasks_need_more_neurons(results: Results) -> Evidence | str | None:
    """Size of minimal sets: every complex word task minus every simple one of the same model."""
    sizes = {(step.model, step.task): minimal_set_size(run) for step, run in results.of("redundancy")}
    cases = {
        f"{model}, {task} and {simple}": size - sizes[model, simple]
        for (model, task), size in sizes.items()
        for simple in ("upos", "xpos", "sem")
        if task in ("ccg", "chunk") and (model, simple) in sizes
    }
    return Evidence.exact(cases) or "there are not both chunks or CCG and parts of speech or semantic tags"


@claim("§7.2", "LayerSelector speeds up word tasks more than sentence tasks.", above=1)
def word_tasks_gain_more_speed(results: Results) -> Evidence | str | None:
    """How many times faster a sentence is read up to the chosen layer: every word task over every sentence task."""
    speed: dict[tuple[str, str], dict[str, float]] = {}
    for step, run in results.of("transfer"):
        costs = run.tables["costs"].set_index("layers")["ms"]
        gain = float(costs.iloc[-1] / costs.loc[run.summary["layers"]])
        speed.setdefault((step.model, step.unit), {})[step.task] = gain
    cases = {
        f"{model}, {task} and {other}": gain / slow
        for (model, unit), gains in speed.items()
        for task, gain in gains.items()
        for other, slow in speed.get((model, "sentence"), {}).items()
        if unit == "word"
    }
    return Evidence.exact(cases) or NOT_BOTH


@claim("§7.2, figure 5", "A classifier of 5 % of the neurons is trained faster than one of all neurons.", above=1)
def few_neurons_are_faster(results: Results) -> Evidence | None:
    """Seconds to train a classifier of all neurons over those with a twentieth of them, per model."""
    cases = {}
    for step, run in results.of("timing"):
        times = run.tables["times"]
        seconds = times.loc[times["work"] == "train", "seconds"].tolist()
        cases[step.model] = seconds[-1] / seconds[NEURON_SHARES.index(0.05)]
    return Evidence.exact(cases)


@claim("§6.1, figure 4", "Sentence tasks are learnt at higher layers: no lower layer is redundant for them.", below=0.5)
def lower_layers_do_not_solve_sentence_tasks(results: Results) -> Evidence | str | None:
    """How many of the lower half of the layers alone keep 99 % of the oracle's score, per model and sentence task."""
    cases = {}
    for step, run in results.of("redundancy", unit="sentence"):
        layers = run.tables["layers"]
        lower = layers.loc[layers["layer"] <= layers["layer"].max() / 2, "score"]
        cases[case_name(step)] = float((lower >= SUFFICIENT * _oracle(run.tables["thresholds"])).sum())
    return Evidence.exact(cases) or "there is no sentence task"


def minimal_set_size(run: Run) -> float:
    """The number of neurons in the minimal set."""
    return _minimal_set(run, "neurons")


def _minimal_set(run: Run, column: str) -> float:
    """A column of the smallest set of all neurons that keeps enough of the oracle's score; NaN where there is none."""
    table = run.tables["reduction"]
    return float(table.loc[table["set"] == "minimal set", column].astype(float).mean())


def _redundant_layers(run: Run) -> float:
    oracle = _oracle(run.tables["thresholds"])
    return float(sum(score >= SUFFICIENT * oracle for score in run.tables["layers"]["score"].tolist()))


def _oracle(thresholds: pd.DataFrame) -> float:
    """The test score of all neurons."""
    return float(thresholds.loc[thresholds["threshold"] == 0, "score"].astype(float).mean())


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


def threshold_averages(results: Results) -> pd.DataFrame:
    """Figure 2: neurons left (in percent of all) and score at each threshold, averaged over tasks; one row per line."""
    table = gathered(results, "redundancy", "thresholds")
    means = pd.DataFrame(table.groupby(["model", "threshold"], sort=False)[["share", "score"]].mean()).reset_index()
    names = {"share": "neurons (share of all)", "score": "score (average)"}
    return means.rename(columns=names).melt(["model", "threshold"], var_name="line", value_name="value")


def window_averages(results: Results) -> pd.DataFrame:
    """Figure 3: the share of clusters within one, two, three and more layers, averaged over tasks."""
    table = gathered(results, "redundancy", "windows")
    keys = ["model", "threshold", "window"]
    return pd.DataFrame(table.groupby(keys, sort=False)[["share"]].mean()).reset_index()


def redundant_layers(results: Results) -> pd.DataFrame:
    """Figure 4: for each task, the layers that alone keep 99 % of the oracle's score (1) and those that do not (0)."""

    def row(step: StudyStep, run: Run) -> list[dict[str, Any]]:
        layers, oracle = run.tables["layers"], _oracle(run.tables["thresholds"])
        redundant = (layers["score"] >= SUFFICIENT * oracle).astype(float)
        cells = zip(layers["layer"], redundant, strict=True)
        return [{"model": step.model, "task": step.task, "layer": layer, "redundant": own} for layer, own in cells]

    return rows_of(results, "redundancy", row)


def minimal_set_table(results: Results, unit: str, columns: tuple[str, ...] = ("neurons",)) -> pd.DataFrame:
    """Tables 1, 2 and 8: the fewest neurons that keep the score; one row per task, one column per model; averages."""

    def row(step: StudyStep, run: Run) -> dict[str, Any]:
        sets = run.tables["reduction"].set_index("set")
        found = sets.loc["minimal set"]
        values = {"oracle": sets["score"].iloc[0], "neurons": found["neurons"], "reduced": found["score"]}
        return {"unit": step.unit, "task": step.task, "model": step.model, **values}

    rows = chosen(rows_of(results, "redundancy", row), unit=unit)
    if rows.empty:
        return rows
    long = rows.melt(["task", "model"], list(columns), var_name="of", value_name="value")
    return with_average_row(wide(long, "task", ["model"] if len(columns) == 1 else ["model", "of"], "value"))


def both_minimal_set_tables(results: Results) -> pd.DataFrame:
    """Table 8: oracle, neurons and reduced accuracy of word tasks, sentence tasks, and their averages."""
    parts = [
        minimal_set_table(results, unit, ("oracle", "neurons", "reduced")).replace(AVERAGE, f"{unit.title()} average")
        for unit in ("word", "sentence")
    ]
    return pd.concat([part for part in parts if not part.empty], ignore_index=True) if parts else pd.DataFrame()


def transfer_table(results: Results, unit: str = "", average: bool = False) -> pd.DataFrame:
    """Tables 3, 9 and 10: oracle, LayerSelector and CCFS; one row per model and quantity, one column per task."""

    def row(step: StudyStep, run: Run) -> list[dict[str, Any]]:
        steps = run.tables["steps"].set_index("step")
        oracle, layers, last = (steps.loc[name] for name in ("oracle", "LayerSelector", "feature selection"))
        values = {
            "oracle score": oracle["test"], "oracle neurons": oracle["neurons"],
            "LS score": layers["test"], "LS layers": run.summary["layers"],
            "CCFS score": last["test"], "CCFS neurons": run.summary["neurons"],
            "reduction": 1 - run.summary["share of neurons"],
        }  # fmt: skip
        facts = {"unit": step.unit, "model": step.model, "task": step.task}
        return [{**facts, "quantity": name, "value": value} for name, value in values.items()]

    rows = rows_of(results, "transfer", row)
    if rows.empty or average:
        return wide(rows, "quantity", ["unit", "model"], "value")
    return wide(chosen(rows, unit=unit), ["model", "quantity"], "task", "value", average=AVERAGE)


def threshold_grid(results: Results) -> pd.DataFrame:
    """Table 6: neurons and accuracy at each threshold; one column per task, and the average."""
    table = gathered(results, "redundancy", "thresholds")
    long = table.melt(["model", "task", "threshold"], ["neurons", "score"], var_name="quantity", value_name="value")
    grid = wide(long, ["model", "threshold", "quantity"], "task", "value", average=AVERAGE)
    return grid.sort_values(["model", "threshold"], kind="stable", ignore_index=True)


def layer_grid(results: Results) -> pd.DataFrame:
    """Table 7: the score of the oracle, 99 % of it, and of every layer alone; one column per task."""

    def row(step: StudyStep, run: Run) -> list[dict[str, Any]]:
        oracle = _oracle(run.tables["thresholds"])
        rows = {"oracle": oracle, "1 % loss": SUFFICIENT * oracle}
        rows |= {f"layer {n}": own for n, own in run.tables["layers"][["layer", "score"]].itertuples(index=False)}
        return [{"model": step.model, "task": step.task, "probe": name, "score": own} for name, own in rows.items()]

    return wide(rows_of(results, "redundancy", row), ["model", "probe"], "task", "score")


def class_layers(results: Results, tasks: tuple[str, ...]) -> pd.DataFrame:
    """Figures 7 to 9: F1 of every class in every layer alone; of most frequent classes."""
    table = chosen(gathered(results, "redundancy", "classes"), task=tasks)
    if table.empty:
        return table
    table = table.loc[table["features"].str.fullmatch(r"layer \d+")] if "features" in table else table
    return table.assign(layer=table["features"].str.removeprefix("layer ").astype(int))


def cluster_pictures(results: Results) -> pd.DataFrame:
    """Figure 6: the activations of the neurons of the largest cluster, of the first model and task."""
    for step, run in results.of("redundancy"):
        if "pictures" in run.tables and not run.tables["pictures"].empty:
            return with_facts(run.tables["pictures"], step)
    return pd.DataFrame()


def _data(results: Results, unit: str) -> pd.DataFrame:
    """Tables 4 and 5: examples of each part, and labels."""
    return data_table(results, ["redundancy"], [step.task for step, _ in results.of("redundancy", unit=unit)] or ["?"])


def layer_times(family: str, results: Results) -> pd.DataFrame:
    """Figures 10 and 11: milliseconds of a sentence by number of layers, of XLNets or of all other models."""
    times = gathered(results, "transfer", "costs").sort_values(["model", "task", "layers"], kind="stable")
    models = [name for name, own in results.families.items() if (own == "xlnet") == bool(family)]
    return chosen(times, model=tuple(models))


def work_times(work: str, results: Results) -> pd.DataFrame:
    """Figures 5 and 12 to 14: the seconds of one kind of work."""
    return chosen(gathered(results, "timing", "times"), work=work)


# Word tasks have no printed numbers here: the paper uses the Penn Treebank, an early release of the Parallel Meaning
# Bank, and 150,000 words of CoNLL-2000.
MINIMAL_SETS = {
    "bert-base-cased": {"sst2": 30, "mrpc": 190, "mnli": 30, "qnli": 40, "qqp": 10, "rte": 320, "stsb": 290},
    "xlnet-base-cased": {"sst2": 70, "mrpc": 170, "mnli": 90, "qnli": 20, "qqp": 20, "rte": 400, "stsb": 300},
}
# Table 8: accuracy of all neurons and of the minimal set. MRPC, QQP and STS-B have other metrics here (F1, Spearman's).
REDUCED_SCORES = {
    "bert-base-cased": {"sst2": (0.906, 0.884), "mnli": (0.817, 0.818), "qnli": (0.903, 0.891), "rte": (0.697, 0.686)},
    "xlnet-base-cased": {"sst2": (0.929, 0.913), "mnli": (0.790, 0.779), "qnli": (0.883, 0.885), "rte": (0.704, 0.711)},
}


def _printed_numbers() -> Iterator[PrintedNumber]:
    """What the paper prints of the sentence tasks: sizes of minimal sets, and accuracies with all neurons and these."""
    for model, sizes in MINIMAL_SETS.items():
        for task, size in sizes.items():
            what = f"Neurons that keep 97 % of the oracle's score on {task}"
            yield PrintedNumber("§6.2, tables 1 and 2", what, float(size), model, GLUE[task],
                                {"kind": "redundancy", "task": task}, lambda run, _: minimal_set_size(run),
                                0.5 * size)  # fmt: skip
    for model, scores in REDUCED_SCORES.items():
        for task, values in scores.items():
            for neurons, value in zip(("oracle", "minimal set"), values, strict=True):
                what = f"Accuracy on {task} of the {neurons.replace('oracle', 'whole model')}"
                yield PrintedNumber("Appendix A.4, table 8", what, value, model, GLUE[task],
                                    {"kind": "redundancy", "task": task}, partial(_reduced_score, neurons=neurons),
                                    )  # fmt: skip


def _reduced_score(run: Run, _: str, neurons: str) -> float:
    table = run.tables["reduction"]
    return float(table.loc[table["set"] == neurons, "score"].iloc[0])


REDUNDANCY = Document(
    name="redundancy",
    title="What do pretrained models repeat, and what does a task not need?",
    source="Dalvi, Sajjad, Durrani and Belinkov (2020), Analyzing Redundancy in Pretrained Transformer Models, EMNLP",
    steps=redundancy_steps,
    exhibits=(
        Exhibit("Figure 1", "CKA between layers", ("compare",), *layer_maps("compare")),
        Exhibit(
            "Figure 2",
            "Neurons left and accuracy at each clustering threshold, averaged over tasks",
            ("redundancy",),
            threshold_averages,
            Drawing("lines", x="threshold", y="value", by="line", panel="model"),
        ),
        Exhibit(
            "Figure 3",
            "Clusters within one, two, three or more layers",
            ("redundancy",),
            window_averages,
            Drawing("bars", x="threshold", y="share", by="window", panel="model"),
        ),
        Exhibit(
            "Figure 4",
            "Redundant layers of each task",
            ("redundancy",),
            redundant_layers,
            Drawing("maps", x="layer", y="task", by="redundant", panel="model"),
        ),
        Exhibit("Table 1", "Fewest neurons, word tasks", ("redundancy",), partial(minimal_set_table, unit="word")),
        Exhibit(
            "Table 2", "Fewest neurons, sentence tasks", ("redundancy",), partial(minimal_set_table, unit="sentence")
        ),
        Exhibit("Table 3", "LayerSelector and CCFS, averages", ("transfer",), partial(transfer_table, average=True)),
        Exhibit(
            "Figure 5",
            f"Time to train a classifier ({TIMED_EPOCHS} epochs, {TIMED_WORDS:,} words) by number of neurons",
            ("timing",),
            partial(work_times, "train"),
            Drawing("lines", x="n", y="seconds", by="model"),
        ),
        Exhibit("Table 4", "Data of the word tasks", ("redundancy",), partial(_data, unit="word")),
        Exhibit("Figure 6", "Activations of a cluster's neurons", ("redundancy",), cluster_pictures, Drawing("words")),
        Exhibit("Table 5", "Data of the sentence tasks", ("redundancy",), partial(_data, unit="sentence")),
        Exhibit("Table 6", "Accuracy and neurons of each task at each threshold", ("redundancy",), threshold_grid),
        Exhibit("Table 7", "Accuracy of each layer alone", ("redundancy",), layer_grid),
        *(
            Exhibit(
                f"Figure {number}",
                f"Score of each class in each layer: {what}",
                ("redundancy",),
                partial(class_layers, tasks=tasks),
                Drawing("maps", x="layer", y="class", by="f1", panel="model"),
            )
            for number, what, tasks in (
                (7, "parts of speech", ("upos", "xpos")),
                (8, "semantic tags (or relations)", ("sem", "deprel_main")),
                (9, "chunks", ("chunk",)),
            )
        ),
        Exhibit("Table 8", "Minimal sets: oracle, neurons and accuracy", ("redundancy",), both_minimal_set_tables),
        Exhibit("Table 9", "LayerSelector and CCFS, word tasks", ("transfer",), partial(transfer_table, unit="word")),
        *(
            Exhibit(
                f"Figure {number}",
                f"Time of a sentence by number of layers: {family}",
                ("transfer",),
                partial(layer_times, families),
                Drawing("lines", x="layers", y="ms", by="task", panel="model"),
            )
            for number, family, families in ((10, "BERT and others", ""), (11, "XLNet", "xlnet"))
        ),
        Exhibit(
            "Table 10",
            "LayerSelector and CCFS, sentence tasks",
            ("transfer",),
            partial(transfer_table, unit="sentence"),
        ),
        *(
            Exhibit(
                f"Figure {number}",
                title,
                ("timing",),
                partial(work_times, work),
                Drawing("lines", x="n", y="seconds", by="model"),
            )
            for number, title, work in (
                (12, "Time to extract by number of sentences", "extract"),
                (13, "Time to cluster neurons by number of sentences", "cluster"),
                (14, "Time to rank neurons by number of neurons", "rank"),
            )
        ),
    ),
    claims=(
        Claim("§5.1, figure 1", "Adjacent layers are similar.", Rule(0.0), neighbours_are_alike.measure),
        last_layers_differ,
        lower_neighbours_are_more_alike,
        Claim(
            "§5.2, figure 2",
            "Clustering removes most neurons (85 % in BERT) at a loss of at most 1 %.",
            Rule(0.5),
            removable_fraction,
        ),
        clusters_are_local,
        sentence_tasks_have_fewer_redundant_layers,
        lower_layers_do_not_solve_sentence_tasks,
        xlnet_is_more_redundant,
        minimal_sets_are_small,
        word_tasks_need_more_neurons,
        complex_tasks_need_more_neurons,
        transfer_keeps_few_neurons,
        word_tasks_need_fewer_layers,
        word_tasks_gain_more_speed,
        few_neurons_are_faster,
    ),
    models={"bert-base-cased": 85e6, "xlnet-base-cased": 92e6},
    printed=tuple(_printed_numbers()),
    needs=("treebanks/UD_English-EWT", "token/conll2000", "glue/SST-2"),
    units=("word", "sentence"),
)
