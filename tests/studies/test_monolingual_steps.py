"""The retrieval and correlation steps of the study on monolingual students, with copies of a teacher as students."""

from dataclasses import replace
from pathlib import Path

import pytest

from residuum.samples import teacher_folder
from residuum.storage.results import Run, write_run
from residuum.studies import monolingual
from residuum.studies.commands import CURVE, distillation_config
from residuum.studies.declarations import step_name
from residuum.studies.kits import Kit
from residuum.studies.sample_data import SampleData
from residuum.studies.scales import SCALES, Scale

TINY = Scale("sample", 12, 16, 12, 2, 1.0, 16, 5e-4, 1, 2, 2, 12, 4)
SCORES = {"teacher": 0.7, "uniform": 0.5, "bottom": 0.6, "top": 0.4, "monoshot": 0.65, "bilingual-monoshot": 0.55}


@pytest.fixture
def kit(tmp_path):
    """The sample teacher stands where the students would, and the tasks are taken as learnt."""
    made = Kit(TINY, {"teacher": str(teacher_folder())}, SampleData(TINY), tmp_path, device="cpu")
    for preset, names in {
        monolingual.SHOT: ("en", "tr", "sw"), monolingual.ALIGNED: ("en", "tr", "sw"),
        monolingual.BILINGUAL: ("en-tr-sw",),
    }.items():  # fmt: skip
        for name in names:
            folder = monolingual._student(made, preset, name)
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.symlink_to(teacher_folder(), target_is_directory=True)
    for variant, score in SCORES.items():
        summary = {"metric": "accuracy", "test accuracy": {"full-target": score}}
        write_run(tmp_path / step_name("adapt", task="nli", variant=variant), Run("adapt", {}, summary))
    return made


@pytest.mark.slow
def test_retrieval_of_all_models_is_correlated_with_what_they_score(kit):
    kinds = ("retrieval", "aligned", "unaligned", "single", "correlate")
    found = {step.name: step.work(kit) for step in monolingual.MONOLINGUAL.steps(kit) if step.kind in kinds}
    assert found["correlate"].summary["models"] == len(SCORES)
    assert found["correlate"].config["downstream"] == SCORES
    assert set(found["correlate"].tables["correlations"]["layers"]) == {"all"}
    assert "1,3,5" in set(found["retrieval"].tables["retrieval"]["layers"])
    assert {"unaligned-tr", "unaligned-sw", "single-uniform", "single-top"} <= set(found)
    fingerprints = {found[f"single-{name}"].config["models"][0].split()[-1] for name in ("uniform", "top", "bottom")}
    assert len(fingerprints) == 3  # each is another model


def test_a_distillation_of_a_study_is_scored_along_the_way_on_translations_of_each_language(kit):
    evaluation = distillation_config(kit)["evaluation"]
    assert evaluation["every"] == TINY.distil_steps // CURVE
    assert set(evaluation["pairs"]) == {"tr-en", "sw-en"}
    first, second = evaluation["pairs"]["tr-en"]
    pairs = kit.data.pairs()[0]
    assert Path(first).read_text(encoding="utf-8").splitlines() == list(pairs.source)
    assert Path(second).read_text(encoding="utf-8").splitlines() == list(pairs.target)


def test_a_narrow_teacher_learns_by_a_larger_rate_and_another_by_that_of_the_thesis(kit):
    small = replace(kit, scale=SCALES["small"])
    assert monolingual._learning(small).learning_rate == monolingual._learning(small).few_shot_learning_rate == 5e-4
    wide = replace(small, models={"xlm-r": "xlm-roberta-base"})
    assert monolingual._learning(wide).learning_rate is None
    assert monolingual._learning(wide).few_shot_learning_rate == 2e-5
