"""The chain of the thesis on monolingual students: distil, align, carry tasks over, take parts of the method away."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from residuum.adaptation import AdaptationSettings, adapt
from residuum.distillation import distill
from residuum.evaluation import evaluate_retrieval
from residuum.results import Run
from residuum.studies.commands import distillation_config
from residuum.studies.declarations import Claim, Document, Exhibit, Load, Step, step_name
from residuum.studies.kits import Kit, block_count
from residuum.studies.monolingual_findings import (
    bottom_layers_are_the_best_subset,
    cosine_beats_bertscore,
    full_target_is_best,
    middle_layers_align_best,
    monoalignment_beats_the_teacher,
    monoshot_beats_layer_subsets,
    teacher_beats_monoshot,
    teacher_start_helps,
)
from residuum.studies.monolingual_students import study_distillation
from residuum.studies.verdicts import Rule

ALIGNED, SHOT, BILINGUAL = "monoalignment", "monoshot", "bilingual-monoshot"
FEW_SHOT = {"sample": (10,), "small": (10, 100), "paper": (10, 100, 500)}
ONE_OF_EACH = ("adapter-target", "bitfit-target", "sparse-delta", "freeze+2", "full-source", "full-target")
FEWEST = ("bitfit-target", "full-source", "full-target")
TABLES = {"sample": ("4.8",), "small": ("4.8",), "paper": ("4.7", "4.8")}


def _steps(kit: Kit) -> tuple[Step, ...]:
    n, lines = kit.scale.sentences, float(kit.scale.distil_steps * kit.scale.distil_batch)
    learnt = Load(trained=float(kit.scale.examples or n) * kit.scale.epochs)
    taught = Load(read=3 * lines, trained=1.5 * lines)
    steps = [
        Step("distill", f"Students by {preset}", partial(_distill, preset), taught, variant=preset)
        for preset in (ALIGNED, SHOT, BILINGUAL)
    ]
    steps.append(Step("retrieval", "The teacher looks for translations", _retrieval, Load(read=4 * n)))
    for number, language in enumerate(kit.data.targets()):
        title, work = f"Students of {language} and en look for translations", partial(_aligned, number, language)
        steps.append(Step("aligned", title, work, Load(read=n), variant=language))
    for task in kit.data.transfers:
        for variant in ("teacher", *_subsets(kit), SHOT, BILINGUAL):
            title, times = f"{variant} learns {task} in English", 2 * len(ONE_OF_EACH) if variant == SHOT else 1
            load = Load(trained=times * learnt.trained)
            steps.append(Step("adapt", title, partial(_adapt, task, variant), load, task=task, variant=variant))
    rows = Load(read=12 * lines, trained=6 * lines)
    steps.append(Step("losses", f"Distillation without its parts (tables {_tables(kit)})", _losses, rows))
    return tuple(steps)


def _tables(kit: Kit) -> str:
    return " and ".join(TABLES[kit.scale.name])


def _subsets(kit: Kit) -> dict[str, str]:
    """The layers of the students without distillation (section 4.3.1)."""
    half = max(1, block_count(kit.models[kit.first]) // 2)
    return {"uniform": "alternate", "bottom": f"bottom:{half}", "top": f"top:{half}"}


def _distill(preset: str, kit: Kit) -> Run:
    out = kit.out / step_name("distill", variant=preset)
    return distill(
        {**distillation_config(kit), "preset": preset}, out, device=kit.device, fresh=kit.fresh, progress=False
    ).run


def _student(kit: Kit, preset: str, language: str) -> Path:
    return kit.out / step_name("distill", variant=preset) / "students" / language


def _retrieval(kit: Kit) -> Run:
    """All layers, each alone, and the thirds of table 4.3."""
    third = max(1, block_count(kit.models[kit.first]) // 3)
    thirds = [f"{start}-{start + third - 1}" if third > 1 else str(start) for start in (1, third + 1, 2 * third + 1)]
    return evaluate_retrieval(
        kit.load(kit.models[kit.first]),
        kit.data.pairs(),
        layers=["all", "each", *thirds],
        out=kit.out / "retrieval",
        progress=False,
        **kit.options,
    ).run


def _aligned(number: int, language: str, kit: Kit) -> Run:
    return evaluate_retrieval(
        kit.load(_student(kit, ALIGNED, language)),
        [kit.data.pairs()[number]],
        target_model=kit.load(_student(kit, ALIGNED, "en")),
        layers=["all", "each"],
        out=kit.out / step_name("aligned", variant=language),
        progress=False,
        **kit.options,
    ).run


def _adapt(task: str, variant: str, kit: Kit) -> Run:
    named, corpora = kit.data.transfers[task]
    targets = kit.data.targets()
    few: dict[str, Any] = {"few_shot": FEW_SHOT[kit.scale.name], "draws": 1 if kit.scale.name == "sample" else 3}
    strategies = {"sample": FEWEST, "small": ONE_OF_EACH, "paper": "all"}[kit.scale.name]
    chosen: dict[str, Any] = {"language": targets, "strategy": "full-target", **few}
    source = kit.models[kit.first]
    if variant in _subsets(kit):
        chosen["keep"] = _subsets(kit)[variant]
    elif variant == BILINGUAL:
        source = str(_student(kit, BILINGUAL, "-".join(("en", *targets))))
    elif variant == SHOT:
        source = str(_student(kit, SHOT, "en"))
        chosen = {"target": {code: str(_student(kit, SHOT, code)) for code in targets}, "strategy": strategies, **few}
    return adapt(
        source,
        task=named,
        data=corpora,
        out=kit.out / step_name("adapt", task=task, variant=variant),
        settings=_learning(kit),
        device=kit.device,
        progress=False,
        **chosen,
        **kit.options,
    ).run


def _learning(kit: Kit) -> AdaptationSettings:
    """The thesis' settings, with fewer epochs below its size; the small teacher learns by a larger rate."""
    scale = kit.scale
    if scale.name == "paper":
        return AdaptationSettings()
    rate = scale.learning_rate if scale.name == "sample" else None
    return AdaptationSettings(
        epochs=scale.epochs, batch_size=scale.batch_size, learning_rate=rate, few_shot_epochs=scale.epochs
    )


def _losses(kit: Kit) -> Run:
    tables, out = TABLES[kit.scale.name], kit.out / "losses"
    config = {**distillation_config(kit), "preset": SHOT}
    return study_distillation(config, out, tables=tables, device=kit.device, fresh=kit.fresh, progress=False)


MONOLINGUAL = Document(
    name="monolingual",
    title="Can a multilingual model become small aligned models of single languages?",
    source="A thesis on distilling multilingual models into monolingual students (MonoAlignment and MonoShot)",
    steps=_steps,
    exhibits=(
        Exhibit("Table 4.3", "Retrieval of translations by the teacher's layers", "retrieval", "retrieval"),
        Exhibit("Table 4.3", "Retrieval of translations by MonoAlignment's students", "aligned", "retrieval"),
        Exhibit("Figure 4.1", "Retrieval by each layer", "retrieval", "averages"),
        Exhibit("Tables 4.4 to 4.6", "Zero-shot, few-shot and strategies", "adapt", "means"),
        Exhibit("Tables 4.7 and 4.8", "Losses, and the method without its parts", "losses", "scores"),
        Exhibit("Tables 4.9 and 4.10", "The bilingual student", "adapt", "means"),
        Exhibit("Figure 4.4", "Perplexity while distilling", "distill", "scores"),
    ),
    claims=(
        Claim(
            "§4.3.2, table 4.3",
            "The teacher's middle layers align languages best.",
            middle_layers_align_best,
            Rule(0.0),
        ),
        Claim(
            "§4.3.2, table 4.3",
            "With the teacher, cosine finds more translations than BERTScore.",
            cosine_beats_bertscore,
            Rule(0.0),
        ),
        Claim(
            "§4.3.2, table 4.3",
            "By BERTScore, MonoAlignment's students find more translations than the teacher.",
            monoalignment_beats_the_teacher,
            Rule(0.0),
        ),
        Claim(
            "§4.3.3, table 4.4",
            "MonoShot's students are better than layers of the teacher without distillation.",
            monoshot_beats_layer_subsets,
            Rule(0.0),
        ),
        Claim(
            "§4.3.3, table 4.4", "The teacher is better than MonoShot's students.", teacher_beats_monoshot, Rule(0.0)
        ),
        Claim(
            "§4.3.3, table 4.4",
            "Of the teacher's layers the bottom half serves best.",
            bottom_layers_are_the_best_subset,
            Rule(0.0),
        ),
        Claim(
            "§4.4.1, table 4.6",
            "Training all of the target student is the best strategy.",
            full_target_is_best,
            Rule(0.0),
        ),
        Claim(
            "§4.4.3, table 4.8",
            "Students that start from the teacher's weights predict text better.",
            teacher_start_helps,
            Rule(1.0),
        ),
    ),
    models={"xlm-roberta-base": 85e6},
    needs=("text/common_voice", "crosslingual/tatoeba", "crosslingual/xnli", "crosslingual/panx"),
)
