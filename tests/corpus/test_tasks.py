"""Tasks by name: which labels they take, and how their parts are found or cut."""

import datasets
import pytest

from residuum.corpus import Corpus
from residuum.corpus.tasks import TASKS, Task, labels_of, named_task, read_task
from residuum.errors import CorpusError, DataError, SettingError
from residuum.training.encoding import problem_of

GLUE = {
    "cola": "matthews",
    "sst2": "accuracy",
    "mrpc": "f1",
    "stsb": "spearman",
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


def test_numbers_are_no_classes_of_a_task_that_has_classes(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(f'{{"sentence": "a {i}", "label": {i % 2}.0}}' for i in range(40)), encoding="utf-8")
    corpora = read_task("sentence", path)
    assert problem_of(TASKS["sentence"], corpora.train).kind == "regression"
    with pytest.raises(DataError, match="sst2 is about classes, but the labels of .+ such as 0.0; write them as whole"):
        problem_of(TASKS["sst2"], corpora.train)


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


def hub(monkeypatch, parts, names, columns=("sentence1", "sentence2")):
    """Let the hub give splits of so many rows, all of a class (−1: unlabelled)."""
    features = datasets.Features(
        {**{column: datasets.Value("string") for column in columns}, "label": datasets.ClassLabel(names=names)}
    )
    loaded = datasets.DatasetDict(
        {
            name: datasets.Dataset.from_dict(
                {**{column: [f"{name} {i}" for i in range(n)] for column in columns}, "label": [label] * n},
                features=features,
            )
            for name, (n, label) in parts.items()
        }
    )
    monkeypatch.setattr(datasets, "load_dataset", lambda path, config: loaded)


def test_mnli_is_tested_on_the_matched_development_part(monkeypatch, tmp_path):
    parts = {
        "train": (20, 0),
        "validation_mismatched": (5, 1),
        "validation_matched": (6, 2),
        "test_matched": (4, -1),
        "test_mismatched": (3, -1),
    }
    hub(monkeypatch, parts, ["entailment", "neutral", "contradiction"], ("premise", "hypothesis"))
    found = read_task("mnli", "nyu-mll/glue:mnli")
    assert [len(part) for _, part in found.items()] == [18, 2, 6]
    assert set(found.test.targets()) == {"contradiction"}
    for name, n in {"train": 20, "dev_mismatched": 5, "dev_matched": 6, "test_matched": 4}.items():
        rows = [f"{name} {i}\tb {i}\tneutral" for i in range(n)]
        table(tmp_path / f"{name}.tsv", rows, header="sentence1\tsentence2\tgold_label")
    local = read_task("mnli", tmp_path)
    assert [len(part) for _, part in local.items()] == [20, 6, 4]
    assert local.dev.text(0) == "dev_matched 0"


def test_a_dataset_of_three_ways_without_matched_parts_is_read_as_it_is(monkeypatch):
    parts = {"train": (20, 0), "validation": (6, 1), "test": (4, 2)}
    hub(monkeypatch, parts, ["entailment", "neutral", "contradiction"], ("premise", "hypothesis"))
    assert [len(part) for _, part in read_task("mnli", "facebook/xnli:en").items()] == [20, 6, 4]


def test_a_part_of_the_hub_that_cannot_be_read_is_an_error_and_not_an_absent_one(monkeypatch):
    hub(monkeypatch, {"train": (20, 0), "validation": (6, 1)}, ["no", "yes"])
    from residuum.corpus import tasks

    read = tasks.read_corpus

    def broken(source, **options):
        if options["split"] == "validation":
            raise CorpusError("row 3: found half a surrogate pair")
        return read(source, **options)

    monkeypatch.setattr(tasks, "read_corpus", broken)
    with pytest.raises(CorpusError, match="row 3: found half a surrogate pair"):
        read_task("rte", "nyu-mll/glue:rte")


@pytest.mark.parametrize(
    ("task", "names"),
    [("mrpc", ["not_equivalent", "equivalent"]), ("qqp", ["not_duplicate", "duplicate"]), ("mrpc", ["0", "1"])],
)
def test_f1_is_that_of_glue_s_class_1_however_it_is_called(task, names, monkeypatch):
    hub(monkeypatch, {"train": (20, 0), "validation": (6, 1)}, names)
    parts = read_task(task, f"nyu-mll/glue:{task}")
    both = parts.train.select([0, 0, 0, 1])
    both.targets()[3] = parts.test.targets()[0]  # of the training part there is one class only
    problem = problem_of(TASKS[task], both)
    no, yes = names
    scores = problem.scores([yes, yes, yes, no, no], [yes, no, no, no, yes])
    assert scores["f1"] == pytest.approx(2 * 1 / (3 + 2))
    assert next(iter(scores)) == "f1"


def test_tags_of_the_hub_are_found_by_the_name_of_their_task(monkeypatch):
    features = datasets.Features(
        {
            "tokens": datasets.List(datasets.Value("string")),
            "pos_tags": datasets.List(datasets.ClassLabel(names=["NN", "VB"])),
            "ner_tags": datasets.List(datasets.ClassLabel(names=["O", "B-PER", "I-PER"])),
        }
    )
    rows = {"tokens": [["Ali", "reads"]] * 20, "pos_tags": [[0, 1]] * 20, "ner_tags": [[1, 0]] * 20}
    loaded = datasets.DatasetDict(
        {name: datasets.Dataset.from_dict(rows, features=features) for name in ("train", "validation", "test")}
    )
    monkeypatch.setattr(datasets, "load_dataset", lambda path, config: loaded)
    found = read_task("ner", "eriktks/conll2003")
    assert labels_of(found.train, TASKS["ner"])[0] == ["B-PER", "O"]
    assert labels_of(read_task("pos", "eriktks/conll2003").dev, TASKS["pos"])[0] == ["NN", "VB"]
    with pytest.raises(CorpusError, match="no word labels 'chunk'; it has ner_tags, pos_tags"):
        read_task("chunk", "eriktks/conll2003")


def test_tags_that_mark_spans_are_scored_by_spans_unless_another_score_was_asked_for():
    tags = [["B-PER", "I-PER", "O"], ["O", "O", "O"]]
    labels = {"entities": tags, "other": [["X", "Y", "Z"]] * 2}
    corpus = Corpus(name="c", sentences=[["a", "b", "c"]] * 2, labels=labels)
    assert problem_of(named_task("entities"), corpus).metrics[0] == "span_f1"
    assert problem_of(named_task("other"), corpus).metrics[0] == "accuracy"
    assert problem_of(Task("entities", "entities", metric="accuracy"), corpus).metrics[0] == "accuracy"


def test_labels_that_are_not_there_are_missed(tmp_path):
    path = table(tmp_path / "a.tsv", ["one", "two"], header="sentence")
    with pytest.raises(CorpusError, match="does not have one kind of sentence labels"):
        read_task("sst2", path)
    with pytest.raises(CorpusError, match="no word labels 'upos'"):
        read_task("upos", Corpus(name="c", sentences=[["a"]] * 10))
