"""Cross-lingual tasks among given data: all that are there, and which corpus stands in for a training part."""

import pytest

from residuum.errors import CorpusError
from residuum.samples import sample_text
from residuum.studies.given_data import GivenData
from residuum.studies.scales import named_scale


def write_xnli(root, *, own_training):
    folder = root / "crosslingual/xnli"
    folder.mkdir(parents=True)
    parts = [("dev", code, 12) for code in ("en", "tr", "sw")] + [("test", code, 12) for code in ("tr", "sw")]
    for split, language, n in [*parts, *([("train", "en", 20)] if own_training else [])]:
        text = sample_text("nli", language=language, size=n, split=split)
        (folder / f"{split}-{language}.tsv").write_text(text, encoding="utf-8")


def given(root):
    return GivenData(root, named_scale("small"))


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
    with pytest.raises(CorpusError, match="has no train-en, and .*sample_train.json is not there either"):
        _ = given(tmp_path).transfers


def test_the_real_data_has_all_three_tasks_of_the_thesis(data):
    transfers = given(data).transfers
    assert list(transfers) == ["xnli", "wikiann", "xcopa"]
    assert any("crosslingual/siqa" in note for note in transfers["xcopa"][1].notes)
    assert all(set(corpora.targets) == {"tr", "sw"} for _, corpora in transfers.values())
