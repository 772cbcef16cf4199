"""Durrani et al. (2021): what fine-tuning does to linguistic knowledge, and what pruning shows about it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from residuum.maths.probing import Probe
from residuum.maths.rankings import lca_ranking
from residuum.models.surgery import files_fingerprint
from residuum.probing.diff import diff
from residuum.probing.examples import labelled_splits
from residuum.probing.probe_data import TASK, ProbeData
from residuum.storage.results import Run, finished_run, write_run
from residuum.studies.claims import Evidence, Measurement, claim
from residuum.studies.documents import GLUE, Document, PrintedNumber, Results, StudyStep, Workload
from residuum.studies.exhibits import Drawing, Exhibit, chosen, gathered, rows_of, tuned_scores, wide
from residuum.studies.steps import StudyContext, block_count, finetune_step

SHARES = (0.05, 0.1)  # of neurons: 5 % for parts of speech and semantic tags, 10 % for chunks
SHARE = 0.05  # of neurons, in the top and bottom sets that are compared
BATCH_SIZE = 512  # of the probes
NO_ARCHITECTURES = "the models are not a BERT and a RoBERTa or XLNet"
ONLY_BERT = "all models are BERTs, whose salient neurons stay where they are in the paper"
MEASURES = ("neuron", "svcca", "cka")
PRESERVING, FORGETTING = ("stsb", "rte", "mrpc"), ("sst2", "qnli", "mnli")  # sentence tasks, by the paper
GRID_SHARE = 0.2  # of neurons, kept while penalties are chosen (appendix A.7)
LAMBDAS = ((1e-3, 1e-2), (1e-3, 1e-3), (1e-4, 1e-4), (1e-4, 1e-5), (1e-5, 1e-5))  # the pairs of table 8, and ours


def transfer_learning_steps(context: StudyContext) -> tuple[StudyStep, ...]:
    """Fine-tune; probe before and after over word tasks; fine-tune without the top or bottom half of the layers."""
    tasks = list(context.data.sentence_tasks)
    sentences = len(context.data.text) * len(context.data.word_texts) * (1 + len(tasks))
    load, steps = Workload(read=sentences, probed=sentences), []
    for model, source in context.models.items():
        steps += [finetune_step(context, model, task) for task in tasks]
        steps.append(StudyStep("diff", f"Probe {model} before and after fine-tuning", diff_tasks, load, model))
        half = max(1, block_count(source) // 2)
        steps += [
            finetune_step(context, model, task, kind="pruned", variant=end, drop=f"{end}:{half}")
            for task in tasks
            for end in ("top", "bottom")
        ]
        title = f"Choose the penalties of {model}'s probes"
        steps.append(StudyStep("penalties", title, choose_penalties, Workload(probed=sentences), model))
    return tuple(steps)


def choose_penalties(step: StudyStep, context: StudyContext) -> Run:
    """Tables 3 and 8: probes with every pair of penalties that keep a fifth of their neurons, on development data."""
    tasks, out = context.data.word_tasks, context.folder(step)
    config = {"model": files_fingerprint(context.models[step.model]), "share": GRID_SHARE, "lambdas": LAMBDAS}
    config |= {"data": {name: corpora.train.fingerprint for name, (_, corpora) in tasks.items()}}
    if run := finished_run(out, "study penalties", config, fresh=context.fresh):
        return run
    grid, data = [], []
    for name, (task, corpora) in tasks.items():
        model = context.load(context.models[step.model], name=step.model)
        folder = context.activations(f"{step.model}-parts", corpora.train)
        options = {"max_memory": context.max_memory, "progress": False, "activations": folder}
        probes = ProbeData(labelled_splits(model, corpora, task, **options), context.recipe(BATCH_SIZE))
        trained = probes.train([Probe(TASK, None, *penalty) for penalty in LAMBDAS])
        rankings = [lca_ranking(probe.weight) for probe in trained]
        kept = [
            probe.keeping(ranking.order[: round(GRID_SHARE * len(ranking.order))])
            for probe, ranking in zip(trained, rankings, strict=True)
        ]
        for (l1, l2), score in zip(LAMBDAS, probes.score(kept, "dev"), strict=True):
            grid.append({"task": name, "l1": l1, "l2": l2, "metric": probes.metric, "dev": score.value})
        sizes = {part: len(getattr(corpora, part)) for part in ("train", "dev", "test")}
        data.append({"task": name, **sizes, "tags": len(probes.targets[TASK].classes)})
    run = Run("study penalties", config, {}, {"grid": pd.DataFrame(grid), "data": pd.DataFrame(data)})
    write_run(out, run)
    return run


def diff_tasks(step: StudyStep, context: StudyContext) -> Run:
    """Probe a model before and after fine-tuning for every sentence task."""
    model, texts = step.model, context.data.word_texts
    after = {task: context.load(context.finetuned(model, task)) for task in context.data.sentence_tasks}
    return diff(
        {model: context.load(context.models[model]), **after},
        next(iter(texts.values())),
        texts,
        measures=MEASURES,
        groups=context.scale.groups,
        shares=SHARES,
        by="lca",
        **context.paper_probes(BATCH_SIZE),
        out=context.folder(step),
        limit=context.scale.sentences,
        workers=context.workers,
        **context.bounded,
    ).run


@claim("§4.1, figure 1", "Higher layers lose more linguistic knowledge by fine-tuning than lower layers.", above=0)
def upper_layers_lose_more(results: Results) -> Evidence | None:
    """Change of the probe score by fine-tuning: mean over the lower half of the layers minus that over the upper."""
    return Evidence.of(
        {
            case: _mean_change(layers, upper=False) - _mean_change(layers, upper=True)
            for case, layers in _layer_changes(results)
        }
    )


@claim("§4.1, figure 1", "Lower layers keep linguistic knowledge: they lose less than two points.", above=-0.02)
def lower_layers_keep_knowledge(results: Results) -> Evidence | None:
    """Mean change of the probe score by fine-tuning over the lower half of the layers."""
    return Evidence.of({case: _mean_change(layers, upper=False) for case, layers in _layer_changes(results)})


@claim("§4.2, table 1", "The least salient neurons lose more by fine-tuning than the most salient.", above=0)
def bottom_neurons_lose_more(results: Results) -> Evidence | None:
    """Loss of the bottom neurons by fine-tuning minus that of the top neurons, each with its own probe."""
    cases = {}
    for step, run in results.of("diff"):
        losses = _losses_of_ends(run, step.model)
        for task, model in _tuned_models(run, step.model):
            cases[f"{step.model}, {task} after {model}"] = losses[task, model, "bottom"] - losses[task, model, "top"]
    return Evidence.of(cases)


@claim("§4.2, tables 1, 4 and 5", "The least salient neurons lose less in BERT than in RoBERTa and XLNet.", above=0)
def bottom_neurons_of_bert_lose_least(results: Results) -> Evidence | str | None:
    """Loss of the bottom neurons by fine-tuning, RoBERTa or XLNet minus BERT, per word task and fine-tuning."""
    losses: dict[tuple[str, str, str], Measurement] = {}
    for step, run in results.of("diff"):
        for (task, model, end), loss in _losses_of_ends(run, step.model).items():
            learnt = model.removeprefix(f"finetune-{step.model}-")
            losses |= {(results.families.get(step.model, ""), task, learnt): loss} if end == "bottom" else {}
    cases = {
        f"{other} and BERT, {task} after {learnt}": loss - losses["bert", task, learnt]
        for (other, task, learnt), loss in losses.items()
        if other in ("roberta", "xlnet") and ("bert", task, learnt) in losses
    }
    return Evidence.of(cases) or NO_ARCHITECTURES


def _losses_of_ends(run: Run, base: str) -> dict[tuple[str, str, str], Measurement]:
    """What the top and the bottom neurons lose by fine-tuning, by word task, fine-tuned model and end."""
    table = run.tables["selection"]
    rows = table.loc[table["share"] == SHARE].groupby(["task", "model", "set"])
    scores = {(str(task), str(model), str(end)): Measurement.mean(own, "retrained") for (task, model, end), own in rows}
    return {
        (task, model, end): scores[task, base, end] - score
        for (task, model, end), score in scores.items()
        if model != base
    }


@claim("§4.2, figure 2", "Salient neurons move to lower layers (not in BERT).", above=0)
def salient_neurons_move_down(results: Results) -> Evidence | str | None:
    """Mean relative depth of the most salient neurons before fine-tuning minus that after, of all models but BERTs."""
    moves = [(family, case, move) for family, case, move in _downward_moves(results) if family != "bert"]
    cases = {f"{model}, {task} after {tuned}": move for _, (model, task, tuned), move in moves}
    return Evidence.exact(cases) or (ONLY_BERT if results.of("diff") else None)


@claim("§4.2, figure 2", "Salient neurons move down further in RoBERTa and XLNet than in BERT.", above=0)
def bert_keeps_its_salient_neurons(results: Results) -> Evidence | str | None:
    """How far the salient neurons of RoBERTa or XLNet move down minus how far BERT's do; mean over fine-tunings."""
    means: dict[tuple[str, str], list[float]] = {}
    for family, (_, task, _), move in _downward_moves(results):
        means.setdefault((family, task), []).append(move)
    cases = {
        f"{other} and BERT, {task}": float(np.mean(moves) - np.mean(means["bert", task]))
        for (other, task), moves in means.items()
        if other in ("roberta", "xlnet") and ("bert", task) in means
    }
    return Evidence.exact(cases) or NO_ARCHITECTURES


def _downward_moves(results: Results) -> Iterator[tuple[str, tuple[str, str, str], float]]:
    """Family; model, word task and fine-tuned model; and how much lower the most salient neurons lie than before."""
    for step, run in results.of("diff"):
        table = run.tables["spread"]
        top = table.loc[table["set"] == f"top {SHARE:.3g}"]
        depth = (top["share"] * top["depth"]).groupby([top["task"], top["model"]]).sum()
        for task, model in _tuned_models(run, step.model):
            move = float(depth[task, step.model] - depth[task, model])
            yield results.families.get(step.model, ""), (step.model, task, model), move


@claim("§5, table 2", "Pruning the bottom half costs more than pruning the top half.", above=0)
def pruning_the_bottom_costs_more(results: Results) -> Evidence | None:
    """Test score without the top half of the layers minus that without the bottom half."""
    scores = {(step.model, step.task, step.variant): Measurement.test_score(run) for step, run in results.of("pruned")}
    return Evidence.of(
        {
            f"{model}, {task}": score - scores[model, task, "bottom"]
            for (model, task, end), score in scores.items()
            if end == "top"
        }
    )


@claim("§4.2, table 7", "A tenth of the neurons or less is sufficient for the baseline's accuracy.", below=0.105)
def few_neurons_are_sufficient(results: Results) -> Evidence | None:
    """The fraction of neurons in the minimal set of the model before fine-tuning, per task."""
    cases = {}
    for step, run in results.of("diff"):
        table = run.tables["minimal"]
        rows = table.loc[(table["model"] == step.model) & (table["set"] == "minimal")]
        cases |= {f"{step.model}, {task}": share for task, share in zip(rows["task"], rows["share"], strict=True)}
    return Evidence.exact(cases)


@claim("Appendix A.6, table 7", "Probes on the minimal set are more selective than those on all neurons.", above=0)
def minimal_sets_are_selective(results: Results) -> Evidence | None:
    """Selectivity on the minimal set minus that on all neurons, before fine-tuning, per task."""
    cases = {}
    for step, run in results.of("diff"):
        table = run.tables["minimal"]
        sets = table.loc[table["model"] == step.model].pivot(index="task", columns="set", values="selectivity")
        cases |= {f"{step.model}, {task}": gain for task, gain in (sets["minimal"] - sets["all"]).items()}
    return Evidence.exact(cases)


@claim("§4.1, figure 1", "STS-B, RTE and MRPC keep more knowledge in upper layers than SST-2, QNLI and MNLI.", above=0)
def similar_tasks_keep_knowledge(results: Results) -> Evidence | str | None:
    """Mean change of the upper half of the layers after STS-B, RTE or MRPC minus that after SST-2, QNLI or MNLI."""
    changes: dict[str, dict[str, Measurement]] = {}
    for step, run in results.of("diff"):
        table = run.tables["change"]
        for (task, model), rows in table.loc[table["layer"].notna()].groupby(["task", "model"], sort=False):
            learnt = str(model).removeprefix(f"finetune-{step.model}-")
            changes.setdefault(f"{step.model}, {task}", {})[learnt] = _mean_change(rows, upper=True)
    cases = {
        f"{case}, {kept} and {lost}": own[kept] - own[lost]
        for case, own in changes.items()
        for kept in PRESERVING
        for lost in FORGETTING
        if kept in own and lost in own
    }
    return Evidence.of(cases) or "the tasks are not one of STS-B, RTE, MRPC and one of SST-2, QNLI, MNLI"


@claim("§4.1, figure 1", "BERT keeps knowledge deeper in the network than RoBERTa and XLNet.", above=0)
def bert_keeps_knowledge_deeper(results: Results) -> Evidence | str | None:
    """Mean change of the upper half of the layers of BERT minus that of RoBERTa or XLNet, per word task."""
    means: dict[tuple[str, str], list[Measurement]] = {}
    for step, run in results.of("diff"):
        family, table = results.families.get(step.model, ""), run.tables["change"]
        for task, rows in table.loc[table["layer"].notna()].groupby("task", sort=False):
            means.setdefault((family, str(task)), []).append(_mean_change(rows, upper=True))
    cases = {
        f"BERT and {other}, {task}": bert[0] - means[other, task][0]
        for (family, task), bert in means.items()
        for other in ("roberta", "xlnet")
        if family == "bert" and (other, task) in means
    }
    return Evidence.of(cases) or NO_ARCHITECTURES


@claim("§5, tables 2 and 6", "Pruning the bottom half hurts RoBERTa and XLNet more than BERT.", above=0)
def pruning_the_bottom_hurts_others_more(results: Results) -> Evidence | str | None:
    """What the bottom half is worth beyond the top half, RoBERTa or XLNet minus BERT, per task."""
    scores = {(step.model, step.task, step.variant): Measurement.test_score(run) for step, run in results.of("pruned")}
    worth = {
        (results.families.get(model, ""), task): score - scores[model, task, "bottom"]
        for (model, task, end), score in scores.items()
        if end == "top"
    }
    cases = {
        f"{other} and BERT, {task}": own - worth["bert", task]
        for (other, task), own in worth.items()
        if other in ("roberta", "xlnet") and ("bert", task) in worth
    }
    return Evidence.of(cases) or NO_ARCHITECTURES


def top_and_bottom(results: Results, tasks: tuple[str, ...], share: float) -> pd.DataFrame:
    """Tables 1, 4 and 5: the base and each fine-tuned model; top and bottom neurons of each model in columns."""
    table = gathered(results, "diff", "selection")
    if table.empty:
        return table
    rows = chosen(table.loc[(table["share"] - share).abs() < 1e-9], task=tasks)
    return wide(_named_after_task(rows), ["task", "tasks"], ["step model", "set"], "retrained")


def salient_layers(results: Results, tasks: tuple[str, ...]) -> pd.DataFrame:
    """Figures 2 and 3: how many of the top neurons lie in each layer, before and after fine-tuning."""
    table = gathered(results, "diff", "spread")
    if table.empty:
        return table
    share = SHARES[1] if "chunk" in tasks else SHARES[0]
    return _named_after_task(chosen(table, task=tasks, set=f"top {share:.3g}"))


def layer_probes(results: Results, tasks: tuple[str, ...]) -> pd.DataFrame:
    """Figures 1 and 4: the score of each layer, before and after fine-tuning."""
    table = chosen(gathered(results, "diff", "scores"), task=tasks)
    return _named_after_task(table.loc[table["layer"].notna()]) if not table.empty else table


def pruned_grid(results: Results, *, others: bool) -> pd.DataFrame:
    """Tables 2 and 6: baseline, without the top and without the bottom half; one column per task.

    Table 2 has BERT and RoBERTa (and other families), table 6 XLNet.
    """
    scores = tuned_scores(results, ("finetune", "pruned"))
    if scores.empty:
        return scores
    variant = scores["variant"].fillna("") if "variant" in scores else pd.Series("", index=scores.index)
    names = {"": "Baseline", "top": "Prune top half", "bottom": "Prune bottom half"}
    scores["layers"] = [names[own] for own in variant.tolist()]
    models = [name for name, own in results.families.items() if (own == "xlnet") == others]
    return wide(chosen(scores, model=tuple(models)), ["model", "layers"], "task", "value")


def minimal_grid(results: Results) -> pd.DataFrame:
    """Table 7: neurons, accuracies and selectivities of all neurons and of the minimal set; one column per model."""

    def row(step: StudyStep, run: Run) -> list[dict[str, Any]]:
        base = run.tables["minimal"]
        base = base.loc[base["model"] == step.model]
        names = {"neurons": "neurons", "score": "accuracy", "accuracy": "accuracy", "selectivity": "selectivity"}
        return [
            {"model": step.model, "task": row["task"], "quantity": f"{name}, {row['set']}", "value": row[column]}
            for column, name in names.items()
            if column in base
            for row in base.to_dict("records")
        ]

    return wide(rows_of(results, "diff", row), ["task", "quantity"], "model", "value")


def data_statistics(results: Results) -> pd.DataFrame:
    """Table 3: sentences of the training, development and test part of each word task, and its labels."""
    tables = [run.tables["data"] for _, run in results.of("penalties")]
    return tables[0] if tables else pd.DataFrame()


def best_penalties(results: Results) -> pd.DataFrame:
    """Table 8: the L1 and L2 penalties with the best score of a few neurons on the development part."""
    table = gathered(results, "penalties", "grid")
    if table.empty:
        return table
    best = table.loc[table.groupby(["model", "task"])["dev"].idxmax()]
    return best.sort_values(["task", "model"], kind="stable", ignore_index=True)


def _named_after_task(table: pd.DataFrame) -> pd.DataFrame:
    """`tasks`: the sentence task that a model was fine-tuned for, or Base."""
    names = [
        "Base" if model == base else str(model).removeprefix(f"finetune-{base}-")
        for base, model in zip(table["step model"], table["model"], strict=True)
    ]
    return table.assign(tasks=names)


def _layer_changes(results: Results) -> Iterator[tuple[str, pd.DataFrame]]:
    """The change of each layer, per word task and fine-tuned model."""
    for step, run in results.of("diff"):
        table = run.tables["change"]
        for (task, model), rows in table.loc[table["layer"].notna()].groupby(["task", "model"], sort=False):
            yield f"{step.model}, {task} after {model}", rows


def _mean_change(layers: pd.DataFrame, *, upper: bool) -> Measurement:
    chosen = layers["depth"] > 0.5 if upper else layers["depth"] <= 0.5
    return Measurement.mean(layers.loc[chosen], "change")


def _tuned_models(run: Run, base: str) -> list[tuple[str, str]]:
    """Each word task with each fine-tuned model."""
    table = run.tables["minimal"]
    pairs = zip(table["task"], table["model"], strict=True)
    return [(task, model) for task, model in dict.fromkeys(pairs) if model != base]


def _layer_exhibits(label: str, tasks: tuple[str, ...], what: str) -> tuple[Exhibit, ...]:
    drawing = Drawing("lines", x="layer", y="score", by="tasks", panel="step model,task")
    return (Exhibit(label, f"Probing every layer before and after: {what}", ("diff",),
                    partial(layer_probes, tasks=tasks), drawing),)  # fmt: skip


def _spread_exhibits(label: str, tasks: tuple[str, ...], what: str) -> tuple[Exhibit, ...]:
    drawing = Drawing("lines", x="layer", y="neurons", by="tasks", panel="step model,task")
    return (Exhibit(label, f"Layers of the salient neurons: {what}", ("diff",),
                    partial(salient_layers, tasks=tasks), drawing),)  # fmt: skip


TABLE_2 = {  # accuracy with all layers, without the top 6 and without the bottom 6
    "bert-base-cased": {"sst2": (0.924, 0.903, 0.881), "mnli": (0.840, 0.812, 0.784), "qnli": (0.911, 0.876, 0.837)},
    "roberta-base": {"sst2": (0.922, 0.920, 0.837), "mnli": (0.864, 0.844, 0.616), "qnli": (0.917, 0.900, 0.637)},
    "xlnet-base-cased": {"sst2": (0.939, 0.922, 0.875), "mnli": (0.860, 0.835, 0.681), "qnli": (0.904, 0.880, 0.830)},
}

TRANSFER_LEARNING = Document(
    name="transfer-learning",
    title="What does fine-tuning do to a model's linguistic knowledge?",
    source="Durrani, Sajjad and Dalvi (2021), How Transfer Learning Impacts Linguistic Knowledge in Deep NLP Models?, "
    "Findings of ACL",
    steps=transfer_learning_steps,
    exhibits=(
        *_layer_exhibits("Figure 1", ("upos", "xpos", "chunk"), "parts of speech and chunks"),
        Exhibit(
            "Table 1",
            "Top and bottom 5 % of the neurons: parts of speech",
            ("diff",),
            partial(top_and_bottom, tasks=("upos", "xpos"), share=SHARES[0]),
        ),
        *_spread_exhibits("Figure 2", ("chunk",), "chunks"),
        Exhibit(
            "Table 2",
            "Pruning layers: BERT, RoBERTa and others",
            ("finetune", "pruned"),
            partial(pruned_grid, others=False),
        ),
        Exhibit("Table 3", "Data of the word tasks", ("penalties",), data_statistics),
        *_layer_exhibits("Figure 4", ("sem", "deprel_main"), "semantic tags (or relations)"),
        Exhibit(
            "Table 4",
            "Top and bottom 10 % of the neurons: chunks",
            ("diff",),
            partial(top_and_bottom, tasks=("chunk",), share=SHARES[1]),
        ),
        Exhibit(
            "Table 5",
            "Top and bottom 5 % of the neurons: semantic tags (or relations)",
            ("diff",),
            partial(top_and_bottom, tasks=("sem", "deprel_main"), share=SHARES[0]),
        ),
        Exhibit("Table 6", "Pruning layers: XLNet", ("finetune", "pruned"), partial(pruned_grid, others=True)),
        *_spread_exhibits("Figure 3", ("upos", "xpos", "sem", "deprel_main"), "parts of speech and semantic tags"),
        Exhibit("Table 7", "Minimal sets of neurons and their selectivity", ("diff",), minimal_grid),
        Exhibit("Table 8", "Best penalties of each task", ("penalties",), best_penalties),
    ),
    claims=(
        upper_layers_lose_more,
        lower_layers_keep_knowledge,
        similar_tasks_keep_knowledge,
        bert_keeps_knowledge_deeper,
        bottom_neurons_lose_more,
        bottom_neurons_of_bert_lose_least,
        salient_neurons_move_down,
        bert_keeps_its_salient_neurons,
        pruning_the_bottom_costs_more,
        pruning_the_bottom_hurts_others_more,
        few_neurons_are_sufficient,
        minimal_sets_are_selective,
    ),
    models={"bert-base-cased": 85e6, "roberta-base": 85e6, "xlnet-base-cased": 92e6},
    printed=tuple(
        PrintedNumber(
            where="§5, table 2",
            what=f"Accuracy on {GLUE[task].name} with {f'the {end} 6 layers pruned' if end else 'all layers'}",
            value=value,
            model=model,
            data=GLUE[task],
            step={"kind": "pruned" if end else "finetune", "task": task, "variant": end},
            number=lambda run, _: Measurement.test_accuracy(run),
        )
        for model, tasks in TABLE_2.items()
        for task, values in tasks.items()
        for end, value in zip(("", "top", "bottom"), values, strict=True)
    ),
    needs=("treebanks/UD_English-EWT", "token/conll2000", "token/pmb-4.0.0/en", "glue/SST-2"),
    units=("word", "sentence"),
)
