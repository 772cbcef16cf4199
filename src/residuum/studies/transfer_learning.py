"""Durrani et al. (2021): what fine-tuning does to linguistic knowledge, and what pruning shows about it."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from residuum.probing.diff import diff
from residuum.storage.results import Run
from residuum.studies.claims import Evidence, Measurement, claim
from residuum.studies.context import StudyContext, block_count
from residuum.studies.documents import GLUE, Document, Exhibit, PrintedNumber, Results, StudyStep, Workload
from residuum.studies.steps import finetune_step

SHARES = (0.05, 0.1)  # of neurons: 5 % for parts of speech and semantic tags, 10 % for chunks
SHARE = 0.05  # of neurons, in the top and bottom sets that are compared
BATCH_SIZE = 512  # of the probes
MEASURES = ("neuron", "svcca", "cka")


def transfer_learning_steps(context: StudyContext) -> tuple[StudyStep, ...]:
    """Fine-tune; probe before and after over word tasks; fine-tune without the top or bottom half of the layers."""
    tasks = list(context.data.sentence_tasks)
    sentences = len(context.data.text) * len(context.data.word_texts) * (1 + len(tasks))
    load, steps = Workload(read=sentences, probed=sentences), []
    for model, source in context.models.items():
        steps += [finetune_step(context, model, task) for task in tasks]
        steps.append(StudyStep("diff", f"Probe {model} before and after fine-tuning", _diff, load, model))
        half = max(1, block_count(source) // 2)
        steps += [
            finetune_step(context, model, task, kind="pruned", variant=end, drop=f"{end}:{half}")
            for task in tasks
            for end in ("top", "bottom")
        ]
    return tuple(steps)


def _diff(step: StudyStep, context: StudyContext) -> Run:
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
        table = run.tables["selection"]
        rows = table.loc[table["share"] == SHARE].groupby(["task", "model", "set"])
        scores = {key: Measurement.mean(group, "retrained") for key, group in rows}
        for task, model in _tuned_models(run, step.model):
            top, bottom = (scores[task, step.model, end] - scores[task, model, end] for end in ("top", "bottom"))
            cases[f"{step.model}, {task} after {model}"] = bottom - top
    return Evidence.of(cases)


@claim("§4.2, figure 2", "Salient neurons move to lower layers (in RoBERTa and XLNet, not in BERT).", above=0)
def salient_neurons_move_down(results: Results) -> Evidence | None:
    """Mean relative depth of the most salient neurons before fine-tuning minus that after."""
    cases = {}
    for step, run in results.of("diff"):
        table = run.tables["spread"]
        top = table.loc[table["set"] == f"top {SHARE:.3g}"]
        depth = (top["share"] * top["depth"]).groupby([top["task"], top["model"]]).sum()
        for task, model in _tuned_models(run, step.model):
            cases[f"{step.model}, {task} after {model}"] = depth[task, step.model] - depth[task, model]
    return Evidence.exact(cases)


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


TABLE_2 = {  # accuracy on SST-2
    "bert-base-cased": {"": 0.924, "top": 0.903, "bottom": 0.881},
    "roberta-base": {"": 0.922, "top": 0.920, "bottom": 0.837},
    "xlnet-base-cased": {"": 0.939, "top": 0.922, "bottom": 0.875},
}

TRANSFER_LEARNING = Document(
    name="transfer-learning",
    title="What does fine-tuning do to a model's linguistic knowledge?",
    source="Durrani, Sajjad and Dalvi (2021), How Transfer Learning Impacts Linguistic Knowledge in Deep NLP Models?, "
    "Findings of ACL",
    steps=transfer_learning_steps,
    exhibits=(
        Exhibit("Figure 1", "Probing every layer before and after", "diff", "scores"),
        Exhibit("Table 1", "Accuracy of the top and bottom neurons", "diff", "selection"),
        Exhibit("Figure 2", "Layers of the salient neurons", "diff", "spread"),
        Exhibit("Table 2", "Pruning layers before fine-tuning", "finetune", "scores"),
        Exhibit("Table 2", "Pruning layers before fine-tuning", "pruned", "scores"),
        Exhibit("Tables 4 and 5", "Accuracy of the top and bottom neurons, other tasks", "diff", "selection"),
        Exhibit("Table 6", "Pruning layers before fine-tuning, other models", "pruned", "scores"),
        Exhibit("Figure 3", "Layers of the salient neurons, other tasks", "diff", "spread"),
        Exhibit("Figure 4", "Probing every layer, other tasks", "diff", "scores"),
        Exhibit("Table 7", "Minimal sets of neurons and their selectivity", "diff", "minimal"),
    ),
    claims=(
        upper_layers_lose_more,
        lower_layers_keep_knowledge,
        bottom_neurons_lose_more,
        salient_neurons_move_down,
        pruning_the_bottom_costs_more,
        few_neurons_are_sufficient,
        minimal_sets_are_selective,
    ),
    models={"bert-base-cased": 85e6, "roberta-base": 85e6, "xlnet-base-cased": 92e6},
    printed=tuple(
        PrintedNumber(
            where="§5, table 2",
            what=f"Accuracy on SST-2 with {f'the {end} 6 layers pruned' if end else 'all layers'}",
            value=value,
            model=model,
            data=GLUE["sst2"],
            step={"kind": "pruned" if end else "finetune", "task": "sst2", "variant": end},
            number=lambda run: Measurement.test_score(run).value,
        )
        for model, values in TABLE_2.items()
        for end, value in values.items()
    ),
    needs=("treebanks/UD_English-EWT", "token/conll2000", "token/pmb-4.0.0/en", "glue/SST-2"),
    units=("word", "sentence"),
)
