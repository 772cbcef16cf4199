"""The chain of Durrani et al. (2021): what fine-tuning does to linguistic knowledge, and what pruning shows of it."""

from __future__ import annotations

from functools import partial

from residuum.probing.diff import diff
from residuum.storage.results import Run
from residuum.studies.commands import tuned, tuned_folder, tuning_load
from residuum.studies.declarations import GLUE, Claim, Document, Exhibit, Load, Printed, Step, step_name
from residuum.studies.estimates import tested_score
from residuum.studies.kits import Kit, block_count
from residuum.studies.transfer_learning_findings import (
    bottom_neurons_lose_more,
    few_neurons_are_enough,
    lower_layers_keep_what_they_know,
    minimal_sets_are_selective,
    pruning_the_bottom_costs_more,
    salient_neurons_move_down,
    upper_layers_lose_more,
)
from residuum.studies.verdicts import Rule

SHARES = (0.05, 0.1)  # of neurons: 5 % for parts of speech and semantic tags, 10 % for chunks
BATCH_SIZE = 512  # of the probes
MEASURES = ("neuron", "svcca", "cka")


def _steps(kit: Kit) -> tuple[Step, ...]:
    tasks = list(kit.data.sentence_tasks)
    words = kit.scale.sentences * len(kit.data.word_texts) * (1 + len(tasks))
    steps = []
    for model, source in kit.models.items():
        learn = tuning_load(kit)
        steps += [
            Step("finetune", f"{model} learns {task}", partial(tuned, "finetune", model, task), learn, model, task)
            for task in tasks
        ]
        load = Load(read=words, probed=words)
        steps.append(Step("diff", f"{model} before and after", partial(_diff, model, tasks), load, model))
        half = max(1, block_count(source) // 2)
        steps += [
            Step(
                "pruned",
                f"{model} without its {end} {half} layers learns {task}",
                partial(tuned, "pruned", model, task, variant=end, drop=f"{end}:{half}"),
                learn,
                model,
                task,
                variant=end,
            )
            for task in tasks
            for end in ("top", "bottom")
        ]
    return tuple(steps)


def _diff(model: str, tasks: list[str], kit: Kit) -> Run:
    """What probes find in the model before and after it learnt each task."""
    after = {task: kit.load(tuned_folder(model, task, kit)) for task in tasks}
    texts = kit.data.word_texts
    return diff(
        {model: kit.load(kit.models[model]), **after},
        next(iter(texts.values())),
        texts,
        measures=MEASURES,
        groups=kit.scale.groups,
        shares=SHARES,
        seeds=kit.scale.seeds,
        recipe=kit.recipe(BATCH_SIZE),
        out=kit.out / step_name("diff", model),
        limit=kit.scale.limit,
        workers=kit.workers,
        progress=False,
        **kit.bounded,
    ).run


_TABLE_2 = {
    "bert-base-cased": {"": 0.924, "top": 0.903, "bottom": 0.881},
    "roberta-base": {"": 0.922, "top": 0.920, "bottom": 0.837},
    "xlnet-base-cased": {"": 0.939, "top": 0.922, "bottom": 0.875},
}

TRANSFER_LEARNING = Document(
    name="transfer-learning",
    title="What does fine-tuning do to what a model knows of language?",
    source="Durrani, Sajjad and Dalvi (2021), How Transfer Learning Impacts Linguistic Knowledge in Deep NLP Models?, "
    "Findings of ACL",
    steps=_steps,
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
        Claim(
            "§4.1, figure 1",
            "Fine-tuning takes linguistic knowledge from the higher layers more than from the lower ones.",
            upper_layers_lose_more,
            Rule(0.0),
        ),
        Claim(
            "§4.1, figure 1",
            "The lower layers keep what they know: they lose less than two points.",
            lower_layers_keep_what_they_know,
            Rule(-0.02),
        ),
        Claim(
            "§4.2, table 1",
            "The least salient neurons lose more by fine-tuning than the most salient ones.",
            bottom_neurons_lose_more,
            Rule(0.0),
        ),
        Claim(
            "§4.2, figure 2",
            "Salient neurons move to lower layers (in RoBERTa and XLNet, not in BERT).",
            salient_neurons_move_down,
            Rule(0.0),
        ),
        Claim(
            "§5, table 2",
            "Pruning the bottom half costs more than pruning the top half.",
            pruning_the_bottom_costs_more,
            Rule(0.0),
        ),
        Claim(
            "§4.2, table 7",
            "A tenth of the neurons or less is enough for the baseline's accuracy.",
            few_neurons_are_enough,
            Rule(0.105, above=False),
        ),
        Claim(
            "Appendix A.6, table 7",
            "Probes on the minimal set are more selective than those on all neurons.",
            minimal_sets_are_selective,
            Rule(0.0),
        ),
    ),
    models={"bert-base-cased": 85e6, "roberta-base": 85e6, "xlnet-base-cased": 92e6},
    printed=tuple(
        Printed(
            "§5, table 2",
            f"Accuracy on SST-2 with {f'the {end} 6 layers pruned' if end else 'all layers'}",
            value,
            model,
            GLUE["sst2"],
            {"kind": "pruned" if end else "finetune", "task": "sst2", "variant": end},
            tested_score,
        )
        for model, values in _TABLE_2.items()
        for end, value in values.items()
    ),
    needs=("treebanks/UD_English-EWT", "token/conll2000", "token/pmb-4.0.0/en", "glue/SST-2"),
)
