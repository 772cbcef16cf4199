"""Hugging Face datasets, as objects and by name."""

import subprocess
import sys

import pytest

from residuum.corpus import read_corpus
from residuum.errors import CorpusError, SettingError

datasets = pytest.importorskip("datasets")


@pytest.fixture
def tagged():
    features = datasets.Features(
        {
            "id": datasets.Value("string"),
            "tokens": datasets.List(datasets.Value("string")),
            "ner_tags": datasets.List(datasets.ClassLabel(names=["O", "B-PER"])),
            "lemmas": datasets.List(datasets.Value("string")),
            "spans": datasets.List(datasets.Value("string")),
        }
    )
    columns = {
        "id": ["a", "b"],
        "tokens": [["Ali", "geldi"], ["و"]],
        "ner_tags": [[1, 0], [-1]],
        "lemmas": [["Ali", "gel"], ["و"]],
        "spans": [["Ali"], []],
    }
    return datasets.Dataset.from_dict(columns, features=features)


@pytest.fixture
def classified():
    features = datasets.Features(
        {
            "premise": datasets.Value("string"),
            "hypothesis": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["entailment", "neutral"]),
        }
    )
    columns = {"premise": ["A b.", "C"], "hypothesis": ["D", "E f"], "label": [1, -1]}
    return datasets.Dataset.from_dict(columns, features=features)


def test_word_labels_go_by_the_names_of_their_classes(tagged):
    corpus = read_corpus(tagged, name="wikiann-tr", language="tr")
    assert corpus.sentences == [["Ali", "geldi"], ["و"]]
    assert corpus.labels == {"ner_tags": [["B-PER", "O"], [None]], "lemmas": [["Ali", "gel"], ["و"]]}
    assert corpus.skipped == {"columns whose lists do not fit the words": 1}
    assert (corpus.name, corpus.language) == ("wikiann-tr", "tr")


def test_one_kind_of_word_labels_can_be_asked_for(tagged):
    assert list(read_corpus(tagged, label="ner_tags").labels) == ["ner_tags"]
    with pytest.raises(CorpusError, match="row 1: found 1 labels 'spans'; expected 2, one per word"):
        read_corpus(tagged, label="spans")
    with pytest.raises(CorpusError, match="no column 'upos' for label; it has 'id', 'tokens'"):
        read_corpus(tagged, label="upos")


def test_sentence_labels_go_by_the_names_of_their_classes(classified):
    corpus = read_corpus(classified, limit=2)
    assert corpus.targets() == ["neutral", None]
    assert corpus.pair_text(1) == "E f"


def test_a_format_set_for_tensors_does_not_change_what_is_read(classified):
    with_format = classified.with_format("numpy")
    assert read_corpus(with_format).fingerprint == read_corpus(classified).fingerprint


def test_float_features_are_for_regression():
    dataset = datasets.Dataset.from_dict({"sentence1": ["a"], "sentence2": ["b"], "label": [3.8]})
    assert read_corpus(dataset).targets() == [3.8]


def test_a_split_is_chosen_from_a_dictionary(classified):
    several = datasets.DatasetDict({"train": classified, "validation": classified.select([0])})
    assert len(read_corpus(several, split="validation")) == 1
    assert len(read_corpus(datasets.DatasetDict({"test": classified}))) == 2
    with pytest.raises(CorpusError, match=r"has several splits; choose split= from train, validation\."):
        read_corpus(several)
    with pytest.raises(CorpusError, match="has no split 'dev'; choose split= from train, validation"):
        read_corpus(several, split="dev")
    with pytest.raises(CorpusError, match="single Dataset, so it has no split 'train'"):
        read_corpus(classified, split="train")


def test_what_means_nothing_for_a_dataset_is_refused(classified):
    with pytest.raises(SettingError, match="format is 'tsv', but a dataset has none"):
        read_corpus(classified, format="tsv")
    with pytest.raises(SettingError, match="columns is"):
        read_corpus(classified, columns=["text"])


def test_a_dataset_without_rows_holds_no_sentence():
    with pytest.raises(CorpusError, match=r"dataset holds no sentence \(left out: 1 blank texts\)"):
        read_corpus(datasets.Dataset.from_dict({"text": [" "]}))


def test_a_hub_name_is_loaded_with_its_config_and_split(monkeypatch, classified):
    asked = []

    def load_dataset(path, config):
        asked.append((path, config))
        return datasets.DatasetDict({"test": classified, "train": classified})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert read_corpus("facebook/xnli:de", split="test").name == "facebook/xnli:de-test"
    assert read_corpus("rte", split="test").name == "rte-test"
    assert asked == [("facebook/xnli", "de"), ("rte", None)]


def test_a_hub_that_cannot_be_reached_is_reported():
    program = (
        "from residuum.corpus import read_corpus; from residuum.errors import CorpusError\n"
        "try: read_corpus('no-such-owner/no-such-dataset:en')\n"
        "except CorpusError as error: print(error)"
    )
    environment = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
        check=True,
    )
    assert "no-such-owner/no-such-dataset:en is not a file or folder here, and no dataset" in done.stdout
