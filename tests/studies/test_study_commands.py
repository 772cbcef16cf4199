"""The commands that several studies call, with the settings of a scale."""

from dataclasses import replace

import pytest

from residuum.models.loading import load_model
from residuum.studies.commands import tuned, tuned_folder, tuning_load
from residuum.studies.estimates import score_on_test
from residuum.studies.kits import Kit
from residuum.studies.sample_data import SampleData
from residuum.studies.scales import named_scale


def test_a_score_after_fine_tuning_is_the_mean_of_the_seeds_of_the_scale(tiny_folder, tmp_path):
    scale = replace(named_scale("sample"), seeds=2, limit=20, examples=40, epochs=1.0)
    kit = Kit(scale, {"tiny": str(tiny_folder("bert"))}, SampleData(scale), tmp_path, device="cpu")
    task = next(iter(kit.data.sentence_tasks))
    run = tuned("finetune", "tiny", task, kit)
    scores = run.tables["scores"].query("part == 'test' and metric == 'accuracy'")
    assert list(scores["seed"]) == [0, 1]
    assert score_on_test(run).value == pytest.approx(scores["value"].mean())
    assert tuned_folder("tiny", task, kit) == tmp_path / f"finetune-tiny-{task}" / "seed-0"
    assert load_model(tuned_folder("tiny", task, kit)).n_layers == 3


def test_more_seeds_cost_more_and_have_folders_of_their_own(tmp_path):
    one, three = (replace(named_scale("paper"), seeds=seeds) for seeds in (1, 3))
    kits = [Kit(scale, {}, SampleData(scale), tmp_path) for scale in (one, three)]
    assert tuning_load(kits[1]).trained == 3 * tuning_load(kits[0]).trained
    assert tuned_folder("m", "sst2", kits[0]) == tmp_path / "finetune-m-sst2"
