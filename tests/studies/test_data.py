"""The data of a study: the sample grammar, and a folder whose layout says what is what."""

from dataclasses import replace

import pytest

from residuum.errors import CorpusError, SettingError
from residuum.samples import sample_text
from residuum.studies.data import GivenData, SampleData
from residuum.studies.steps import SCALES


def write_xnli(root, *, own_training):
    folder = root / "crosslingual/xnli"
    folder.mkdir(parents=True)
    parts = [("dev", code, 12) for code in ("en", "tr", "sw")] + [("test", code, 12) for code in ("tr", "sw")]
    for split, language, n in [*parts, *([("train", "en", 20)] if own_training else [])]:
        text = sample_text("nli", language=language, size=n, split=split)
        (folder / f"{split}-{language}.tsv").write_text(text, encoding="utf-8")


def given(root):
    return GivenData(root, SCALES["small"])


def test_a_training_part_of_its_own_is_taken(tmp_path):
    write_xnli(tmp_path, own_training=True)
    _, corpora = given(tmp_path).transfers["xnli"]
    assert not any("training part of xnli" in note for note in corpora.notes)
    assert set(corpora.targets) == {"tr", "sw"}


def test_mnli_stands_in_for_the_english_training_part_of_xnli_and_the_notes_say_so(tmp_path):
    write_xnli(tmp_path, own_training=False)
    mnli = tmp_path / "glue/MNLI/sample_train.json"
    mnli.parent.mkdir(parents=True)
    rows = [
        f'"{i}": {{"text_a": "a man {i}", "text_b": "a dog {i}", "label": "{label}"}}'
        for i, label in enumerate(["entailment", "neutral", "contradiction"] * 3)
    ]
    mnli.write_text("{" + ", ".join(rows) + "}")
    _, corpora = given(tmp_path).transfers["xnli"]
    assert len(corpora.train) == 9
    assert corpora.notes[0] == "the English training part of xnli is glue/MNLI/sample_train.json"


def test_a_task_that_nothing_can_be_trained_on_is_an_error_and_not_left_out(tmp_path):
    write_xnli(tmp_path, own_training=False)
    with pytest.raises(CorpusError, match="has no train-en, and .*sample_train.json does not exist either"):
        _ = given(tmp_path).transfers


def test_the_real_data_has_all_three_tasks_of_the_thesis(data):
    transfers = given(data).transfers
    assert list(transfers) == ["xnli", "wikiann", "xcopa"]
    assert any("crosslingual/siqa" in note for note in transfers["xcopa"][1].notes)
    assert all(set(corpora.targets) == {"tr", "sw"} for _, corpora in transfers.values())


def test_labels_of_a_treebank_can_be_tested_on_another_one(tmp_path):
    for folder, part in (("GSD", "train"), ("GSD", "dev"), ("GSD", "test"), ("PUD", "test")):
        path = tmp_path / f"treebanks/UD_English-{folder}/en-{folder}-ud-{part}.conllu"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sample_text("treebank", size=9 if folder == "PUD" else 12, split=part, seed=len(part)))
    settings = {"tasks": ("upos", "deprel"), "treebank": "UD_English-GSD"}
    _, apart = replace(given(tmp_path), **settings, test_treebank="UD_English-PUD").treebank_tasks["deprel"]
    assert [len(corpus) for _, corpus in apart.items()] == [12, 12, 9]
    _, together = replace(given(tmp_path), **settings).treebank_tasks["deprel"]
    assert [len(corpus) for _, corpus in together.items()] == [12, 12, 12]
    with pytest.raises(CorpusError, match="has no folder treebanks/UD_English-None"):
        _ = replace(given(tmp_path), **settings, test_treebank="UD_English-None").treebank_tasks


def test_the_sample_data_is_the_same_each_time_and_its_parts_differ(tiny):
    again = SampleData(tiny)
    assert again.text.fingerprint == SampleData(tiny).text.fingerprint
    _, corpora = again.word_tasks["upos"]
    assert (len(corpora.train), len(corpora.dev), len(corpora.test)) == (40, 20, 40)
    assert not set(map(tuple, corpora.train.sentences)) & set(map(tuple, corpora.test.sentences))
    assert SampleData(tiny, seed=1).text.fingerprint != again.text.fingerprint


TIMES = {"today", "yesterday", "tomorrow", "morning", "evening", "night", "day", "week", "month", "year"}


def test_no_content_word_of_a_sample_test_part_occurs_in_training(tiny):
    _, corpora = SampleData(replace(tiny, sentences=200)).word_tasks["upos"]
    nouns = []
    for part in (corpora.train, corpora.test):
        words = zip(part.labels["lemma"], part.labels["upos"], strict=True)
        nouns.append(
            {lemma for lemmas, tags in words for lemma, tag in zip(lemmas, tags, strict=True) if tag == "NOUN"}
        )
    assert min(map(len, nouns)) > 20
    assert nouns[0] & nouns[1] <= TIMES


def test_languages_choose_targets_and_treebanks(data):
    given = GivenData(data, SCALES["small"], languages=("ur", "tr"))
    assert [pairs.languages for pairs in given.pairs()] == [("urd", "eng"), ("tur", "eng")]
    xnli, xcopa = given.transfers["xnli"][1], given.transfers["xcopa"][1]
    assert set(xnli.targets) == {"ur", "tr"}
    assert set(xcopa.targets) == {"tr"}
    assert "xcopa has no ur, which is left out" in xcopa.notes
    assert list(GivenData(data, SCALES["small"], languages=("de",)).treebanks) == ["en", "de"]
    with pytest.raises(CorpusError, match="has no parallel treebank of xx"):
        _ = GivenData(data, SCALES["small"], languages=("xx",)).treebanks


def test_another_treebank_part_and_labels_can_be_chosen(data):
    given = GivenData(data, SCALES["small"], tasks=("xpos", "deprel"), treebank="UD_English-PUD", part="test")
    assert list(given.treebank_tasks) == ["xpos", "deprel"]
    assert "PUD" in given.text.name.upper() or "pud" in given.text.name


def test_the_sample_transfer_asks_in_languages_that_it_does_not_teach(tiny):
    _, corpora = SampleData(tiny).transfers["polarity"]
    assert set(corpora.targets) == {"tr", "sw"}
    assert corpora.train.language == "en"


def test_given_data_is_read_by_its_layout(data):
    given = GivenData(data, SCALES["small"])
    assert set(given.word_tasks) == {"upos", "chunk"}
    assert set(given.sentence_tasks) == {"sst2", "mrpc"}
    assert len(given.text) == SCALES["small"].sentences
    assert next(iter(given.treebanks)) == "en"
    assert [pairs.languages for pairs in given.pairs()] == [("tur", "eng"), ("swh", "eng")]


def test_tasks_that_are_asked_for_take_the_place_of_the_scales(data):
    given = GivenData(data, SCALES["small"], tasks=("rte", "qnli", "sem"))
    assert list(given.sentence_tasks) == ["rte", "qnli"]
    assert len(given.sentence_tasks["qnli"][1].test) > 1000, "dev.tsv, and not sample_dev.json"
    assert list(given.word_texts) == ["sem"]


def test_tasks_that_no_study_knows_or_that_are_not_given_are_named(tmp_path):
    with pytest.raises(SettingError, match="knows no task poss; choose from upos, chunk, sem, ccg, xpos, sst2"):
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
