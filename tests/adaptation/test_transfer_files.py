"""Cross-lingual tasks on local files: which file is which part, what is cut, and what recurs."""

import json

import pytest

from residuum.adaptation.corpora import read_transfer, transfer_task
from residuum.errors import CorpusError, SettingError


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def pairs(n, prefix, labels=("entailment", "neutral", "contradiction")):
    return "".join(f"{prefix} premise {i}\t{prefix} says {i}\t{labels[i % len(labels)]}\n" for i in range(n))


def tagged(names):
    return "".join(f"{name}\tB-LOC\nis\tO\nhere\tO\n\n" for name in names)


def choice(n, prefix, **more):
    rows = [
        {"premise": f"{prefix} {i}", "choice1": "a", "choice2": "b", "question": "cause", "label": i % 2, **more}
        for i in range(n)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def xnli(tmp_path):
    write(tmp_path / "train-en.tsv", pairs(12, "en", ("entailment", "neutral", "contradictory")))
    write(tmp_path / "dev-en.tsv", pairs(6, "dev"))
    write(tmp_path / "dev-tr.tsv", pairs(6, "tr"))
    write(tmp_path / "test-tr.tsv", "".join(f"tr test {i}\ttr what {i}\n" for i in range(3)))
    write(tmp_path / "test_labels.txt", "neutral\nentailment\ncontradiction\n")
    return tmp_path


def test_xnli_has_no_header_and_its_test_labels_stand_beside(xnli):
    found = read_transfer("xnli", xnli, ["tr"])
    assert (len(found.train), len(found.dev)) == (12, 6)
    tr = found.targets["tr"]
    assert tr.test.targets() == ["neutral", "entailment", "contradiction"]
    assert tr.test.pair_text(1) == "tr what 1"
    assert set(found.train.targets()) == {"entailment", "neutral", "contradiction"}
    assert tr.pool is not tr.test
    assert tr.pool_is_dev
    assert "few-shot examples in tr come from the development part" in found.notes


def test_a_table_with_a_header_does_as_well(xnli):
    write(xnli / "train-en.tsv", "premise\thypo\tlabel\n".replace("hypo", "hypothesis") + pairs(9, "en"))
    assert len(read_transfer("xnli", xnli, ["tr"]).train) == 9


def test_wikiann_sentences_that_recur_in_any_scored_part_are_removed_and_counted(tmp_path):
    write(tmp_path / "train-en.tsv", tagged(["Rome", "Oslo", "Bonn", "Kyiv", "Lima"]))
    write(tmp_path / "dev-en.tsv", tagged(["Oslo", "Bern"]))
    write(tmp_path / "dev-tr.tsv", tagged(["Lima", "Ankara", "Izmir", "Bursa"]))
    write(tmp_path / "train-tr.tsv", tagged(["Konya", "Izmir"]))
    found = read_transfer("panx", tmp_path, ["tr"])
    assert [sentence[0] for sentence in found.train.sentences] == ["Rome", "Bonn", "Kyiv"]
    assert [sentence[0] for sentence in found.targets["tr"].pool.sentences] == ["Konya"]
    tr = found.targets["tr"]
    assert (len(tr.dev), len(tr.test)) == (2, 2)
    assert {s[0] for s in tr.dev.sentences} | {s[0] for s in tr.test.sentences} == {"Lima", "Ankara", "Izmir", "Bursa"}
    notes = " / ".join(found.notes)
    assert "2 of 5 training sentences recur" in notes
    assert "1 few-shot candidates in tr recur" in notes
    assert "dev-tr was cut into halves" in notes


def test_a_training_part_that_recurs_as_a_whole_is_an_error(tmp_path):
    write(tmp_path / "train-en.tsv", tagged(["Rome", "Oslo"]))
    write(tmp_path / "dev-en.tsv", tagged(["Rome", "Oslo"]))
    write(tmp_path / "dev-tr.tsv", tagged(["Izmir", "Bursa"]))
    with pytest.raises(CorpusError, match="All 2 sentences"):
        read_transfer("wikiann", tmp_path, ["tr"])


def test_xcopa_has_a_folder_a_language_and_siqa_teaches_it(tmp_path):
    for split in ("val", "test"):
        write(tmp_path / f"xcopa/data/tr/{split}.tr.jsonl", choice(4, f"{split} tr"))
        write(tmp_path / f"xcopa/data/sw/{split}.sw.jsonl", choice(4, f"{split} sw"))
    siqa = '{"context": "C %d", "question": "Why?", "answerA": "x", "answerB": "y", "answerC": "z"}\n'
    for split, n in (("train", 6), ("dev", 3)):
        write(tmp_path / f"siqa/{split}.jsonl", "".join(siqa % (i + 10 * (split == "dev")) for i in range(n)))
        write(tmp_path / f"siqa/{split}-labels.lst", "1\n2\n3\n" * (n // 3))
    write(tmp_path / "siqa/common-bench_dev.jsonl", siqa % 99)
    found = read_transfer("xcopa", tmp_path / "xcopa", ["tr", "sw"], train=tmp_path / "siqa")
    assert (len(found.train), len(found.dev)) == (6, 3)
    assert found.train.choices == [["x", "y", "z"]] * 6
    assert found.targets["sw"].test.choices == [["a", "b"]] * 4
    assert found.targets["tr"].dev.text(0) == "val tr 0"


def test_any_task_on_files_of_its_own(tmp_path):
    for name in ("a", "b", "c"):
        rows = "".join(f"{name} {i}\t{'yes' if i % 2 else 'no'}\n" for i in range(20))
        write(tmp_path / f"{name}.tsv", "sentence\tlabel\n" + rows)
    found = read_transfer(
        "sentence", None, ["xx"], train=tmp_path / "a.tsv", target_dev=tmp_path / "b.tsv",
        target_test=tmp_path / "c.tsv", limit=10,
    )  # fmt: skip
    assert (len(found.train), len(found.dev)) == (9, 1)
    assert [len(part) for part in found.targets["xx"].scored.values()] == [10, 10]
    assert any(note.startswith("dev is a tenth of a") for note in found.notes)


def test_what_is_missing_is_said(xnli):
    with pytest.raises(CorpusError, match="neither a development nor a test part in sw; .* dev-sw.tsv"):
        read_transfer("xnli", xnli, ["sw"])
    with pytest.raises(CorpusError, match="no training part in de; .* train-de.tsv"):
        read_transfer("xnli", xnli, ["tr"], source_language="de")
    with pytest.raises(CorpusError, match="is no folder"):
        read_transfer("xnli", xnli / "dev-tr.tsv", ["tr"])
    with pytest.raises(SettingError, match="expected one language"):
        read_transfer("xnli", xnli, ["tr", "sw"], target_dev=xnli / "dev-tr.tsv")
    write(xnli / "dev.tr.more.tsv", pairs(3, "x"))
    write(xnli / "dev_tr_other.tsv", pairs(3, "y"))
    (xnli / "dev-tr.tsv").unlink()
    with pytest.raises(CorpusError, match="several files of the tr dev part: .*; name one"):
        read_transfer("xnli", xnli, ["tr"])


def test_test_labels_of_another_number_are_an_error(xnli):
    write(xnli / "test_labels.txt", "neutral\n")
    with pytest.raises(CorpusError, match="3 sentences but 1 entries"):
        read_transfer("xnli", xnli, ["tr"])


def test_tasks_have_their_usual_names():
    assert transfer_task("PANX").name == transfer_task("wikiann").name == "wikiann"
    assert transfer_task("siqa").name == "xcopa"
    assert transfer_task("mnli").unit == "sentence"


def test_the_real_files_are_read_whole(data):
    root = data / "crosslingual"
    xnli = read_transfer("xnli", root / "xnli", ["sw"], train=data / "glue/MNLI/sample_train.json")
    assert (len(xnli.targets["sw"].dev), len(xnli.targets["sw"].test)) == (2490, 5010)
    assert set(xnli.train.targets()) == set(xnli.targets["sw"].test.targets())
    panx = read_transfer("wikiann", root / "panx", ["sw"])
    assert len(panx.train) < 20_000
    assert len(panx.targets["sw"].dev) == len(panx.targets["sw"].test) == 500
    xcopa = read_transfer("xcopa", root / "xcopa", ["tr", "sw"], train=root / "siqa")
    assert len(xcopa.dev) == 1954
    assert [len(part) for part in xcopa.targets["tr"].scored.values()] == [100, 500]
