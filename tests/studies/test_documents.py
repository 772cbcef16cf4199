"""Every study is declared whole: folders of their own, the document's order, numbers for every finding."""

import re
from dataclasses import replace

import pytest

from residuum.samples import teacher_folder
from residuum.studies.documents import StudyStep, Workload, step_name
from residuum.studies.running import DOCUMENTS, block_parameters, expected_seconds, operations, study


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_claim_names_the_quantity_that_it_measures(name):
    quantities = [claim.quantity for claim in DOCUMENTS[name].claims]
    assert all(quantity[:1].isupper() and len(quantity) > 20 for quantity in quantities)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_step_has_a_folder_and_every_exhibit_a_step(name, sample_context):
    document = DOCUMENTS[name]
    steps = document.steps(sample_context)
    names = [step.name for step in steps]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[\w.+-]+", name) for name in names)
    kinds = {kind for exhibit in document.exhibits for kind in exhibit.kinds}
    assert kinds <= {step.kind for step in steps}
    tables = [exhibit.table for exhibit in document.exhibits]
    assert len(set(tables)) == len(tables)
    assert len(document.claims) >= 7
    assert document.needs
    assert document.models


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("similarity", ["compare", "attention", "random", "corpus", "finetune", "tuned", "frozen"]),
        ("redundancy", ["compare", "finetune", "redundancy", "transfer", "timing"]),
        ("transfer-learning", ["finetune", "diff", "pruned", "penalties"]),
        ("distilled", ["distill", "compare", "redundancy", "twin", "languages"]),
        (
            "monolingual",
            [
                "distill",
                "retrieval",
                "aligned",
                "unaligned",
                "single",
                "adapt",
                "losses",
                "row-retrieval",
                "row-adapt",
                "correlate",
            ],
        ),
    ],
)
def test_steps_stand_in_an_order_in_which_each_finds_what_it_needs(name, kinds, sample_context):
    steps = DOCUMENTS[name].steps(sample_context)
    assert list(dict.fromkeys(step.kind for step in steps)) == kinds


def test_a_folder_name_holds_nothing_that_a_file_system_refuses():
    assert step_name("frozen", "org/model one", "sst2", "top:4") == "frozen-org-model-one-sst2-top-4"


def test_operations_follow_the_rule(sample_context):
    assert operations(Workload(read=10), 1e6) == 10 * 30 * 2e6
    assert operations(Workload(trained=10), 1e6) == 3 * operations(Workload(read=10), 1e6)
    assert operations(Workload(probed=10), 1e6) == operations(Workload(probed=10), 1e8)  # probes see no weights


def test_a_step_without_a_model_works_with_all_of_them(sample_context):
    context = replace(sample_context, models={"small": "small", "large": "large"})
    document = replace(DOCUMENTS["similarity"], models={"small": 1e9, "large": 3e9})
    load = Workload(read=1e6)
    steps = [StudyStep("a", "", lambda step, context: None, load, model="small"),
             StudyStep("b", "", lambda step, context: None, load)]  # fmt: skip
    one, every = expected_seconds(steps, document, context)
    assert every > 3 * one


@pytest.mark.usefixtures("tiny_sample")
def test_an_estimate_follows_from_the_data(tmp_path):
    small = study.estimate("redundancy", tmp_path)
    assert {step.name for step in small.steps} > {"compare", "redundancy-teacher-upos"}
    assert small.memory > 4 * 4 * 4.5e6  # weights, gradients and both moments of the sample teacher
    larger = study.estimate("redundancy", tmp_path, examples=20_000)
    training = [next(s for s in cost.steps if s.name == "finetune-teacher-nli") for cost in (small, larger)]
    assert training[1].seconds > 5 * training[0].seconds


def test_parameters_are_those_of_the_blocks():
    width, inner, layers = 192, 640, 6
    of_a_block = 4 * width * (width + 1) + 2 * width * inner + inner + width + 4 * width
    counted = block_parameters(str(teacher_folder()), {})
    assert layers * of_a_block <= counted < 1.01 * layers * of_a_block
    assert block_parameters("bert-base-cased", {"bert-base-cased": 85e6}) == 85e6
    assert block_parameters("not/at-hand", {}) == 85e6


@pytest.mark.filterwarnings("ignore")
def test_feature_selection_is_timed_at_four_sizes(sample_context):
    (step,) = [step for step in DOCUMENTS["redundancy"].steps(sample_context) if step.kind == "timing"]
    times = step.work(step, sample_context).tables["times"]
    assert times.groupby("work")["n"].apply(list).to_dict() == {
        "extract": [10, 20, 30, 40],
        "cluster": [10, 20, 30, 40],
        "train": [13, 67, 134, 336, 672, 1008, 1344],
        "rank": [13, 67, 134, 336, 672, 1008, 1344],
    }
    assert (times["seconds"] > 0).all()
    again = step.work(step, sample_context).tables["times"]
    assert again.equals(times)  # read back, not measured again
