"""Tasks by name: which labels they take, and how their parts are found or cut."""

import datasets
import pytest

from residuum.corpus import Corpus
from residuum.errors import CorpusError, SettingError
from residuum.tasks import TASKS, labels_of, named_task, read_task

GLUE = {
    "cola": "matthews",
    "sst2": "accuracy",
    "mrpc": "f1",
    "stsb": "pearson",
    "qqp": "f1",
    "mnli": "accuracy",
    "qnli": "accuracy",
    "rte": "accuracy",
}


def table(path, rows, header="sentence\tlabel"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def test_glue_s_tasks_have_their_scores():
    assert {name: TASKS[name].metric for name in GLUE} == GLUE
    assert all(TASKS[name].hub == f"nyu-mll/glue:{name}" for name in GLUE)
    assert [name for name in GLUE if TASKS[name].regression] == ["stsb"]


def test_any_other_name_is_that_of_word_labels():
    assert named_task("Number").label == "Number"
    assert named_task("SST2") is TASKS["sst2"]
    with pytest.raises(SettingError, match="The task has no name"):
        named_task("")


def test_a_test_part_without_labels_is_replaced_by_the_development_part(tmp_path):
    table(tmp_path / "train.tsv", [f"text {i}\t{i % 2}" for i in range(20)])
    table(tmp_path / "dev.tsv", [f"dev {i}\t{i % 2}" for i in range(5)])
    table(tmp_path / "test.tsv", [f"{i}\ttest {i}" for i in range(5)], header="index\tsentence")
    parts = read_task("sst2", tmp_path)
    assert [len(part) for _, part in parts.items()] == [18, 2, 5]
    assert parts.test.text(0) == "dev 0"
    assert len(parts.notes) == 2


def test_the_same_task_is_read_whatever_its_columns_are_called(tmp_path):
    first = table(tmp_path / "a.tsv", [f"q {i}\ts {i}\tyes" for i in range(10)], header="question\tsentence\tlabel")
    second = table(tmp_path / "b.tsv", [f"q {i}\ts {i}\tyes" for i in range(10)], header="text_a\ttext_b\tlabel")
    corpora = [read_task("qnli", path).train for path in (first, second)]
    assert corpora[0].fingerprint == corpora[1].fingerprint
    assert corpora[0].pair_text(0).startswith("s ")


def test_numbers_of_a_regression_are_numbers(tmp_path):
    path = table(tmp_path / "a.tsv", [f"a {i}\tb {i}\t{i}" for i in range(10)], header="sentence1\tsentence2\tlabel")
    parts = read_task("stsb", path)
    assert all(isinstance(label, float) for label in labels_of(parts.train, TASKS["stsb"]))


def test_the_hub_s_validation_part_is_used(monkeypatch):
    features = datasets.Features(
        {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["negative", "positive"])}
    )
    parts = {"train": (20, 0), "validation": (6, 1), "test": (4, -1)}
    loaded = datasets.DatasetDict(
        {
            name: datasets.Dataset.from_dict(
                {"sentence": [f"{name} {i}" for i in range(n)], "label": [label] * n}, features=features
            )
            for name, (n, label) in parts.items()
        }
    )
    monkeypatch.setattr(datasets, "load_dataset", lambda path, config: loaded)
    found = read_task("sst2", "nyu-mll/glue:sst2")
    assert found.test.text(0) == "validation 0"
    assert set(found.test.targets()) == {"positive"}
    assert len(found.train) + len(found.dev) == 20


def test_labels_that_are_not_there_are_missed(tmp_path):
    path = table(tmp_path / "a.tsv", ["one", "two"], header="sentence")
    with pytest.raises(CorpusError, match="does not have one kind of sentence labels"):
        read_task("sst2", path)
    with pytest.raises(CorpusError, match="no word labels 'upos'"):
        read_task("upos", Corpus(name="c", sentences=[["a"]] * 10))
