"""The chain of the thesis on monolingual students: distil, align, carry tasks over, take parts of the method away."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from residuum.adaptation import AdaptationSettings, adapt
from residuum.distillation import distill
from residuum.evaluation import Retrieval, correlate_alignment, evaluate_retrieval
from residuum.evaluation.retrieval_tables import average_table
from residuum.models.loading import Model, from_transformers
from residuum.models.surgery import keep_layers, kept_layers
from residuum.storage.results import Run, clear_content_errors, read_run
from residuum.studies.commands import distillation_config
from residuum.studies.declarations import Claim, Document, Exhibit, Load, Step, step_name
from residuum.studies.kits import Kit, block_count, is_narrow
from residuum.studies.monolingual_findings import (
    alignment_goes_with_scores,
    bottom_layers_are_the_best_subset,
    cosine_beats_bertscore,
    full_target_is_best,
    joint_and_target_adapters_beat_source,
    middle_layers_align_best,
    monoalignment_beats_the_teacher,
    monoshot_beats_layer_subsets,
    teacher_beats_monoshot,
    teacher_start_helps,
)
from residuum.studies.monolingual_students import study_distillation
from residuum.studies.scales import SCALES
from residuum.studies.verdicts import Rule

ALIGNED, SHOT, BILINGUAL = "monoalignment", "monoshot", "bilingual-monoshot"
STUDENTS = {"aligned": ALIGNED, "unaligned": SHOT}  # steps of retrieval, and whose students look
FEW_SHOT = {"sample": (10,), "small": (10, 100), "paper": (10, 100, 500)}
FEW_SHOT_EPOCHS = {"sample": 2.0, "small": 10.0}  # the thesis: 50
ONE_OF_EACH = ("bitfit-target", "sparse-delta", "freeze+2", "full-source", "full-target")
ADAPTERS = ("adapter-source", "adapter-target", "adapter-joint")
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
        for kind, preset in STUDENTS.items():
            title = f"Students of {language} and en by {preset} look for translations"
            work = partial(_aligned, kind, number, language)
            steps.append(Step(kind, title, work, Load(read=n), variant=language))
    for variant in _singles(kit):
        work = partial(_single, variant)
        steps.append(Step("single", f"{variant} looks for translations", work, Load(read=2 * n), variant=variant))
    for task in kit.data.transfers:
        for variant in ("teacher", *_subsets(kit), SHOT, BILINGUAL):
            title, times = (
                f"{variant} learns {task} in English",
                2 * len(ONE_OF_EACH + ADAPTERS) if variant == SHOT else 1,
            )
            load = Load(trained=times * learnt.trained)
            steps.append(Step("adapt", title, partial(_adapt, task, variant), load, task=task, variant=variant))
    steps.append(Step("correlate", "Does alignment go with downstream scores? (table 4.11)", _correlate))
    rows = Load(read=12 * lines, trained=6 * lines)
    steps.append(Step("losses", f"Distillation without its parts (tables {_tables(kit)})", _losses, rows))
    return tuple(steps)


def _tables(kit: Kit) -> str:
    return " and ".join(TABLES[kit.scale.name])


def _subsets(kit: Kit) -> dict[str, str]:
    """The layers of the students without distillation (section 4.3.1)."""
    half = max(1, block_count(kit.models[kit.first]) // 2)
    return {"uniform": "alternate", "bottom": f"bottom:{half}", "top": f"top:{half}"}


def _singles(kit: Kit) -> tuple[str, ...]:
    """The models besides the teacher that read all languages alone."""
    return (*_subsets(kit), BILINGUAL)


def _distill(preset: str, kit: Kit) -> Run:
    out = kit.out / step_name("distill", variant=preset)
    return distill(
        {**distillation_config(kit), "preset": preset}, out, device=kit.device, fresh=kit.fresh, progress=False
    ).run


def _student(kit: Kit, preset: str, language: str) -> Path:
    return kit.out / step_name("distill", variant=preset) / "students" / language


def _retrieval(kit: Kit) -> Run:
    """All layers, each alone, every second one and the thirds of table 4.3."""
    blocks = block_count(kit.models[kit.first])
    third = max(1, blocks // 3)
    uniform = ",".join(map(str, range(1, blocks + 1, 2)))
    thirds = [f"{start}-{start + third - 1}" if third > 1 else str(start) for start in (1, third + 1, 2 * third + 1)]
    return evaluate_retrieval(
        kit.load(kit.models[kit.first], name=kit.first),
        kit.data.pairs(),
        layers=["all", "each", uniform, *thirds],
        out=kit.out / "retrieval",
        progress=False,
        **kit.bounded,
    ).run


def _aligned(kind: str, number: int, language: str, kit: Kit) -> Run:
    return evaluate_retrieval(
        kit.load(_student(kit, STUDENTS[kind], language)),
        [kit.data.pairs()[number]],
        target_model=kit.load(_student(kit, STUDENTS[kind], "en")),
        layers=["all", "each"],
        out=kit.out / step_name(kind, variant=language),
        progress=False,
        **kit.bounded,
    ).run


def _single(variant: str, kit: Kit) -> Run:
    """One model reads all languages: layers of the teacher without distillation, or the bilingual student."""
    if variant == BILINGUAL:
        model = kit.load(_student(kit, BILINGUAL, "-".join(("en", *kit.data.targets()))))
    else:
        model = _with_layers(kit.load(kit.models[kit.first]), _subsets(kit)[variant])
    out = kit.out / step_name("single", variant=variant)
    return evaluate_retrieval(
        replace(model, name=variant), kit.data.pairs(), out=out, progress=False, **kit.bounded
    ).run


def _with_layers(model: Model, keep: str) -> Model:
    keep_layers(model.module, kept_layers(model.n_layers, keep=keep))
    return from_transformers(model.module, model.tokenizer)


def _correlate(kit: Kit) -> Run:
    """Over the teacher, its layers and the students that learnt the tasks; a score is the mean over tasks."""
    singles = {name: Retrieval(read_run(kit.out / step_name("single", variant=name))) for name in _singles(kit)}
    shot = [read_run(kit.out / step_name("unaligned", variant=code)) for code in kit.data.targets()]
    with clear_content_errors("study monolingual", kit.out):
        retrievals = {"teacher": Retrieval(read_run(kit.out / "retrieval")), SHOT: _joined(shot), **singles}
        scores = {variant: _mean_score(variant, kit) for variant in retrievals}
    return correlate_alignment(retrievals, scores, out=kit.out / "correlate", fresh=kit.fresh).run


def _joined(runs: list[Run]) -> Retrieval:
    """The students of several languages as one model: its accuracy is the mean over pairs of languages."""
    table = pd.concat([run.tables["retrieval"] for run in runs], ignore_index=True)
    return Retrieval(replace(runs[0], tables={"retrieval": table, "averages": average_table(table)}))


def _mean_score(variant: str, kit: Kit) -> float:
    """The zero-shot test score of `full-target`, the mean over tasks."""
    runs = [read_run(kit.out / step_name("adapt", task=task, variant=variant)) for task in kit.data.transfers]
    return fmean(run.summary[f"test {run.summary['metric']}"]["full-target"] for run in runs)


def _adapt(task: str, variant: str, kit: Kit) -> Run:
    named, corpora = kit.data.transfers[task]
    targets = kit.data.targets()
    few = _few_shot(kit, variant)
    strategies = {"sample": FEWEST, "small": (*ADAPTERS, *ONE_OF_EACH), "paper": "all"}[kit.scale.name]
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


def _few_shot(kit: Kit, variant: str) -> dict[str, Any]:
    """Few examples of the target language: below the thesis' size of the teacher and the students alone, drawn once."""
    if kit.scale.name == "paper":
        return {"few_shot": FEW_SHOT["paper"], "draws": 3}
    return {"few_shot": FEW_SHOT[kit.scale.name], "draws": 1} if variant in ("teacher", SHOT) else {}


def _learning(kit: Kit) -> AdaptationSettings:
    """The thesis' settings, with fewer epochs below its size; a narrow teacher learns by a larger rate."""
    scale = kit.scale
    if scale.name == "paper":
        return AdaptationSettings()
    settings = AdaptationSettings(
        epochs=scale.epochs, batch_size=scale.batch_size, few_shot_epochs=FEW_SHOT_EPOCHS[scale.name]
    )
    rate = SCALES["sample"].learning_rate
    narrow = is_narrow(kit.models[kit.first])
    return replace(settings, learning_rate=rate, few_shot_learning_rate=rate) if narrow else settings


def _losses(kit: Kit) -> Run:
    tables, out = TABLES[kit.scale.name], kit.out / "losses"
    config = {**distillation_config(kit), "preset": SHOT}
    return study_distillation(config, out, tables=tables, device=kit.device, fresh=kit.fresh, progress=False).run


MONOLINGUAL = Document(
    name="monolingual",
    title="Can a multilingual model become small aligned models of single languages?",
    source="A thesis on distilling multilingual models into monolingual students (MonoAlignment and MonoShot)",
    steps=_steps,
    exhibits=(
        Exhibit("Table 4.3", "Retrieval of translations by the teacher's layers", "retrieval", "retrieval"),
        Exhibit("Table 4.3", "Retrieval of translations by MonoAlignment's students", "aligned", "retrieval"),
        Exhibit("Table 4.3", "Retrieval of translations by MonoShot's students", "unaligned", "retrieval"),
        Exhibit("Table 4.3", "Retrieval by layers without distillation, and by one student", "single", "retrieval"),
        Exhibit("Figure 4.1", "Retrieval by each layer", "retrieval", "averages"),
        Exhibit("Tables 4.4 to 4.6", "Zero-shot, few-shot and strategies", "adapt", "means"),
        Exhibit("Tables 4.7 and 4.8", "Losses, and the method without its parts", "losses", "scores"),
        Exhibit("Tables 4.9 and 4.10", "The bilingual student", "adapt", "means"),
        Exhibit("Table 4.11", "Does alignment go with downstream scores?", "correlate", "correlations"),
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
            "§4.4.1, table 4.6",
            "Adapters trained with the target student, alone or jointly, are ahead of those of the source student.",
            joint_and_target_adapters_beat_source,
            Rule(0.0),
        ),
        Claim(
            "§4.5.1, table 4.11",
            "Better alignment does not go with better downstream scores.",
            alignment_goes_with_scores,
            Rule(0.0, above=False),
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
