"""The three parts of a task's data: read, completed or cut, and every decision said."""

import pytest

from made_stores import conllu, known_data
from residuum.corpus import Corpus
from residuum.corpus.tasks import TASKS, Task, labels_of, named_task, read_task, read_whole
from residuum.errors import CorpusError, SettingError

DATA = known_data(50)


@pytest.fixture
def treebank(tmp_path):
    path = tmp_path / "whole.conllu"
    path.write_text(conllu(DATA.sentences, DATA.tags))
    return path


@pytest.fixture
def folder(tmp_path):
    """A treebank in three files of 30, 10 and 10 sentences."""
    root = tmp_path / "UD_Made"
    root.mkdir()
    for split, part in {"train": slice(30), "dev": slice(30, 40), "test": slice(40, 50)}.items():
        (root / f"xx_made-ud-{split}.conllu").write_text(conllu(DATA.sentences[part], DATA.tags[part]))
    return root


def test_tasks_are_known_by_name_in_any_case():
    assert named_task("UPOS") is TASKS["upos"]
    own = Task("mine", "upos")
    assert named_task(own) is own
    assert named_task("Number") == Task("Number", "Number")
    with pytest.raises(SettingError, match="no name; choose one of upos"):
        named_task("")


def test_a_corpus_in_one_piece_is_cut_into_disjoint_parts(treebank):
    corpora = read_task("upos", treebank, seed=3)
    ids = [set(corpus.ids) for _, corpus in corpora.items()]
    assert [len(part) for part in ids] == [40, 5, 5]
    assert len(set.union(*ids)) == 50
    assert corpora.notes == ("whole was cut into 80%, 10%, 10% by seed 3",)
    assert read_task("upos", treebank, seed=3).test.ids == corpora.test.ids
    assert read_task("upos", treebank, seed=4).test.ids != corpora.test.ids


def test_a_folder_of_splits_or_files_of_their_own_are_read_as_they_are(folder):
    files = {split: folder / f"xx_made-ud-{split}.conllu" for split in ("train", "dev", "test")}
    for corpora in (
        read_task("upos", folder),
        read_task("upos", files["train"], dev=files["dev"], test=files["test"]),
    ):
        assert [len(corpus) for _, corpus in corpora.items()] == [30, 10, 10]
        assert labels_of(corpora.dev, TASKS["upos"]) == DATA.tags[30:40]
        assert corpora.notes == ()


def test_a_missing_development_part_is_cut_from_train_and_said(folder):
    (folder / "xx_made-ud-dev.conllu").unlink()
    corpora = read_task("upos", folder)
    assert [len(corpus) for _, corpus in corpora.items()] == [27, 3, 10]
    assert set(corpora.train.ids).isdisjoint(corpora.dev.ids)
    assert "dev is a tenth of xx_made-ud-train" in corpora.notes[0]


def test_without_a_test_part_the_development_part_is_tested_on(folder):
    (folder / "xx_made-ud-test.conllu").unlink()
    corpora = read_task("upos", folder)
    assert corpora.test.sentences == DATA.sentences[30:40]
    assert [len(corpora.train), len(corpora.dev)] == [27, 3]
    assert "xx_made-ud-dev is the test" in corpora.notes[0]


def test_limit_holds_for_each_part(folder, treebank):
    assert [len(corpus) for _, corpus in read_task("upos", folder, limit=7).items()] == [7, 7, 7]
    assert len(read_whole("upos", treebank, limit=7)) == 7
    corpus = Corpus(name="c", sentences=DATA.sentences, labels={"upos": DATA.tags})
    assert len(read_whole("upos", corpus, limit=7)) == 7


def test_labels_that_are_not_there_are_an_error(treebank):
    with pytest.raises(CorpusError, match="has no word labels 'chunk'; it has"):
        read_task("chunk", treebank)
    blank = Corpus(name="c", sentences=[["a"]] * 20, labels={"upos": [[None]] * 20})
    with pytest.raises(CorpusError, match="c has no upos label on any word"):
        read_task("upos", blank)


@pytest.mark.parametrize(
    ("task", "place", "sizes", "label"),
    [
        ("upos", "treebanks/UD_English-EWT", (12_544, 2_001, 2_077), "PROPN"),
        ("xpos", "treebanks/UD_English-PUD", (800, 100, 100), "NNP"),
        ("deprel", "treebanks/UD_English-PUD", (800, 100, 100), "nsubj:pass"),
        ("Number", "treebanks/UD_English-EWT", (12_544, 2_001, 2_077), "Sing"),
        ("chunk", "token/conll2000", (8_042, 894, 2_012), "B-NP"),
        ("sem", "token/pmb-4.0.0/en", (7_745, 1_174, 1_053), "EXG"),
        ("ccg", "token/pmb-4.0.0/en", (7_745, 1_174, 1_053), "np/n"),
        ("ner", "crosslingual/panx/train-de.tsv", (16_000, 2_000, 2_000), "B-PER"),
        ("sst2", "glue/SST-2", None, "0"),
        ("mrpc", "glue/MRPC/msr_paraphrase_train.txt", (3_261, 407, 408), "1"),
        ("mnli", "glue/MNLI/sample_train.json", (7_199, 900, 900), "neutral"),
        ("qnli", "glue/QNLI/sample_train.json", (7_199, 900, 900), "not_entailment"),
        ("rte", "glue/RTE", (2_241, 249, 277), "not_entailment"),
        ("stsb", "glue/STS-B", None, 5.0),
    ],
)
def test_real_tasks_are_read_by_name(task, place, sizes, label, data):
    corpora = read_task(task, data / place)
    found = [len(corpus) for _, corpus in corpora.items()]
    assert sizes is None or found == list(sizes)
    labels = labels_of(corpora.train, named_task(task))
    flat = labels if named_task(task).unit == "sentence" else [one for row in labels for one in row]
    assert label in flat
