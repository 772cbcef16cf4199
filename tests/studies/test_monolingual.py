"""The retrieval and correlation steps of the study on monolingual students, with copies of a teacher as students."""

from dataclasses import replace
from pathlib import Path

import pytest

from residuum.samples import teacher_folder
from residuum.storage.results import Run, write_run
from residuum.studies import monolingual
from residuum.studies.data import SampleData
from residuum.studies.steps import CURVE, SCALES, distillation_config

ROWS = tuple(monolingual.DISTILLATIONS["4.8"])
SCORES = {"teacher": 0.7, "uniform": 0.5, "bottom": 0.6, "top": 0.4, "monoshot": 0.65, "bilingual-monoshot": 0.55}


@pytest.fixture
def context(sample_context, tiny):
    """The sample teacher stands where the students would, and the tasks are taken as learnt."""
    scale = replace(tiny, sentences=12, examples=16, distillation_steps=12)
    context = replace(sample_context, scale=scale, data=SampleData(scale))
    for preset, names in {
        monolingual.SHOT: ("en", "tr", "sw"), monolingual.ALIGNED: ("en", "tr", "sw"),
        monolingual.BILINGUAL: ("",),
    }.items():  # fmt: skip
        for name in names:
            folder = monolingual.student_folder(context, preset, name)
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.symlink_to(teacher_folder(), target_is_directory=True)
    for variant, score in SCORES.items():
        summary = {"metric": "accuracy", "test accuracy": {"full-target": score}}
        write_run(context.folder("adapt", task="polarity", variant=variant), Run("adapt", {}, summary))
    for row in ROWS:
        summary = {"metric": "accuracy", "test accuracy": {"full-target": 0.5}}
        write_run(context.folder("row-adapt", task="polarity", variant=row), Run("adapt", {}, summary))
        for name in ("en", "tr", "sw"):
            folder = monolingual.row_folder(context, row, name)
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.symlink_to(teacher_folder(), target_is_directory=True)
    return context


@pytest.mark.slow
def test_retrieval_of_all_models_is_correlated_with_what_they_score(context):
    kinds = ("retrieval", "aligned", "unaligned", "single", "row-retrieval", "correlate")
    found = {
        step.name: step.work(step, context) for step in monolingual.MONOLINGUAL.steps(context) if step.kind in kinds
    }
    scores = {**SCORES, **{row: 0.5 for row in ROWS if row != "monoshot"}}
    assert found["correlate"].summary["models"] == len(scores)
    assert found["correlate"].config["downstream"] == scores
    assert set(found["correlate"].tables["correlations"]["layers"]) == {"all"}
    assert "1,3,5" in set(found["retrieval"].tables["retrieval"]["layers"])
    assert {"unaligned-tr", "unaligned-sw", "single-uniform", "single-top"} <= set(found)
    fingerprints = {found[f"single-{name}"].config["models"][0].split()[-1] for name in ("uniform", "top", "bottom")}
    assert len(fingerprints) == 3  # each is another model


def test_a_distillation_of_a_study_is_scored_along_the_way_on_translations_of_each_language(context):
    evaluation = distillation_config(context)["evaluation"]
    assert evaluation["every"] == context.scale.distillation_steps // CURVE
    assert set(evaluation["pairs"]) == {"tr-en", "sw-en"}
    first, second = evaluation["pairs"]["tr-en"]
    pairs = context.data.pairs()[0]
    assert Path(first).read_text(encoding="utf-8").splitlines() == list(pairs.source)
    assert Path(second).read_text(encoding="utf-8").splitlines() == list(pairs.target)


def test_a_narrow_teacher_learns_by_a_larger_rate_and_another_by_that_of_the_thesis(context):
    small = replace(context, scale=SCALES["small"])
    assert (
        monolingual.adaptation_settings(small).learning_rate
        == monolingual.adaptation_settings(small).few_shot_learning_rate
        == 5e-4
    )
    wide = replace(small, models={"xlm-r": "xlm-roberta-base"})
    assert monolingual.adaptation_settings(wide).learning_rate is None
    assert monolingual.adaptation_settings(wide).few_shot_learning_rate == 2e-5
