"""Every study is declared whole: folders of their own, the document's order, numbers for every finding."""

import re

import pytest

from residuum.errors import CorpusError, SettingError
from residuum.samples import teacher_folder
from residuum.studies.costs import block_parameters, operations, step_minutes
from residuum.studies.declarations import Load, Step, step_name
from residuum.studies.documents import DOCUMENTS
from residuum.studies.given_data import GivenData
from residuum.studies.kits import Kit
from residuum.studies.sample_data import SampleData
from residuum.studies.scales import SCALES, Scale

TINY = Scale("sample", 24, 24, 24, 2, 1.0, 8, 5e-4, 1, 1, 2, 2, 4)


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    folder = str(teacher_folder())
    return Kit(TINY, {"teacher": folder}, SampleData(TINY), tmp_path_factory.mktemp("out"))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_step_has_a_folder_and_every_exhibit_a_step(name, kit):
    document = DOCUMENTS[name]
    steps = document.steps(kit)
    names = [step.name for step in steps]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[\w.+-]+", one) for one in names)
    assert {one.kind for one in document.exhibits} <= {step.kind for step in steps}
    assert len(document.claims) >= 7
    assert document.needs
    assert document.models


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("similarity", ["compare", "random", "finetune", "tuned", "frozen"]),
        ("redundancy", ["compare", "finetune", "redundancy", "transfer"]),
        ("transfer-learning", ["finetune", "diff", "pruned"]),
        ("distilled", ["distill", "compare", "redundancy", "languages"]),
        ("monolingual", ["distill", "retrieval", "aligned", "unaligned", "single", "adapt", "correlate", "losses"]),
    ],
)
def test_steps_stand_in_an_order_in_which_each_finds_what_it_needs(name, kinds, kit):
    steps = DOCUMENTS[name].steps(kit)
    assert list(dict.fromkeys(step.kind for step in steps)) == kinds


def test_a_folder_name_holds_nothing_that_a_file_system_refuses():
    assert step_name("frozen", "org/model one", "sst2", "top:4") == "frozen-org-model-one-sst2-top-4"


def test_costs_follow_the_rule():
    assert operations(Load(read=10), 1e6) == 10 * 30 * 2e6
    assert operations(Load(trained=10), 1e6) == 3 * operations(Load(read=10), 1e6)
    assert operations(Load(probed=10), 1e6) == operations(Load(probed=10), 1e8)  # probes see neurons, not weights
    one = Step("a", "", lambda kit: None, Load(read=1e6), model="small")
    every = Step("b", "", lambda kit: None, Load(read=1e6))
    sizes = {"small": 1e6, "large": 3e6}
    assert step_minutes(every, sizes, 3e10) > 3 * step_minutes(one, sizes, 3e10)


def test_parameters_are_those_of_the_blocks():
    width, inner, layers = 192, 640, 6
    of_a_block = 4 * width * (width + 1) + 2 * width * inner + inner + width + 4 * width
    counted = block_parameters(str(teacher_folder()), {})
    assert layers * of_a_block <= counted < 1.01 * layers * of_a_block
    assert block_parameters("bert-base-cased", {"bert-base-cased": 85e6}) == 85e6
    assert block_parameters("not/at-hand", {}) == 85e6


def test_the_sample_data_is_the_same_each_time_and_its_parts_differ(kit):
    again = SampleData(TINY)
    assert again.text.fingerprint == kit.data.text.fingerprint
    _, corpora = again.word_tasks["upos"]
    assert {len(corpora.train), len(corpora.test)} == {24, 20}
    assert not set(map(tuple, corpora.train.sentences)) & set(map(tuple, corpora.test.sentences))
    assert SampleData(TINY, seed=1).text.fingerprint != again.text.fingerprint


def test_the_sample_transfer_asks_in_languages_that_it_does_not_teach(kit):
    _, corpora = kit.data.transfers["nli"]
    assert set(corpora.targets) == {"tr", "sw"}
    assert corpora.train.language == "en"


def test_given_data_is_read_by_its_layout(data):
    given = GivenData(data, SCALES["small"])
    assert set(given.word_tasks) == {"upos", "chunk"}
    assert set(given.sentence_tasks) == {"sst2", "mrpc"}
    assert len(given.text) == SCALES["small"].limit
    assert next(iter(given.treebanks)) == "en"
    assert [pairs.languages for pairs in given.pairs()] == [("tur", "eng"), ("swh", "eng")]


def test_tasks_that_are_asked_for_take_the_place_of_the_scales(data):
    given = GivenData(data, SCALES["small"], tasks=("rte", "qnli", "sem"))
    assert list(given.sentence_tasks) == ["rte", "qnli"]
    assert len(given.sentence_tasks["qnli"][1].test) > 1000, "dev.tsv, and not sample_dev.json"
    assert list(given.word_texts) == ["sem"]


def test_tasks_that_no_study_knows_or_that_are_not_given_are_named(tmp_path):
    with pytest.raises(SettingError, match="knows no task poss; choose of upos, chunk, sem, sst2"):
        GivenData(tmp_path, SCALES["small"], tasks=("poss",))
    (tmp_path / "glue" / "RTE").mkdir(parents=True)
    (tmp_path / "glue" / "RTE" / "train.tsv").write_text("a")
    with pytest.raises(CorpusError, match="lacks glue/SST-2 for sst2, or more than one file there is the training"):
        _ = GivenData(tmp_path, SCALES["small"], tasks=("rte", "sst2")).sentence_tasks


def test_given_data_names_what_is_missing(tmp_path):
    given = GivenData(tmp_path, SCALES["small"])
    for read, message in (
        (lambda: given.text, "has no folder treebanks/UD_English-EWT"),
        (lambda: given.sentence_tasks, "has no GLUE task with a training part"),
        (lambda: given.treebanks, "has no parallel treebanks with English"),
        (lambda: given.transfers, "has no cross-lingual task; expected folders such as crosslingual/panx"),
    ):
        with pytest.raises(CorpusError, match=message):
            read()
