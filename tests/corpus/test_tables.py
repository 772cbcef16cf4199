"""TSV, CSV, JSON, JSON lines and parquet: single sentences, pairs, regression and lists of words."""

import gzip
import json

import pyarrow
import pytest
from pyarrow import parquet

from residuum.corpus import read_corpus
from residuum.errors import CorpusError, SettingError

STS = 'index\tsentence1\tsentence2\tscore\n0\tA plane .\tAn "air plane .\t5.000\n1\tA man .\tA dog .\t0\n'
XNLI = "Er ging nicht.\tEr blieb.\tentailment\nEr ging.\tNein.\tcontradiction\n"
RECORDS = [
    {
        "premise": "Salt kept the town fed.",
        "hypothesis": 'It was "salt".',
        "label": "entailment",
        "genre": "x",
    },
    {"premise": "塩が町を", "hypothesis": "نمک", "label": "neutral", "genre": "y"},
]


def file(tmp_path, content: str, name: str = "t.tsv"):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return path


def json_lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_a_single_sentence_task(tmp_path):
    corpus = read_corpus(file(tmp_path, "sentence\tlabel\nit 's a charming \t1\nbleak\t0\n"))
    assert corpus.sentences == [["it", "'s", "a", "charming"], ["bleak"]]
    assert corpus.sentence_labels == {"label": ["1", "0"]}
    assert corpus.pairs is None
    assert corpus.ids == ["1", "2"]


def test_windows_line_ends_do_not_reach_the_labels(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes(b"text\tlabel\r\na\tx\r\n")
    assert read_corpus(path).sentence_labels == {"label": ["x"]}


def test_a_pair_task_keeps_quotes_and_makes_scores_numbers(tmp_path):
    corpus = read_corpus(file(tmp_path, STS))
    assert corpus.pairs == [["An", '"air', "plane", "."], ["A", "dog", "."]]
    assert corpus.targets() == [5.0, 0.0]
    assert all(isinstance(value, float) for value in corpus.targets())


def test_regression_can_be_asked_for_and_refused(tmp_path):
    path = file(tmp_path, STS)
    assert read_corpus(path, regression=False).targets() == ["5.000", "0"]
    graded = file(tmp_path, "text\tlabel\na\t1\nb\t2.5\n", "g.tsv")
    assert read_corpus(graded).targets() == ["1", "2.5"]
    assert read_corpus(graded, regression=True).targets() == [1.0, 2.5]


@pytest.mark.parametrize("value", ["good", "nan", "inf"])
def test_a_score_that_is_no_number_is_an_error(tmp_path, value):
    path = file(tmp_path, STS.replace("5.000", value))
    with pytest.raises(CorpusError, match=f"line 2: found the label '{value}'; expected a (finite )?number"):
        read_corpus(path)


@pytest.mark.parametrize(
    ("header", "text", "pair", "label"),
    [
        ("index\tsentence1\tsentence2\tlabel", 1, 2, "label"),
        ("index\tquestion\tsentence\tlabel", 1, 2, "label"),
        ("id\tquestion1\tquestion2\tis_duplicate", 1, 2, "is_duplicate"),
        ("Quality\t#1 String\t#2 String\t#1 ID", 1, 2, "Quality"),
        ("gold_label\tpremise\thypothesis\tgenre", 1, 2, "gold_label"),
        ("guid\ttext_a\ttext_b\tlabel", 1, 2, "label"),
        ("index\tsentence\tother\tscore", 1, None, "score"),
        ("index\ttext\tother\tnone", 1, None, None),
    ],
)
def test_the_columns_of_known_headers_are_found(tmp_path, header, text, pair, label):
    corpus = read_corpus(file(tmp_path, "\ufeff" + header + "\n0\t1 a\t2 b\t3\n"))
    cells = ["0", "1 a", "2 b", "3"]
    assert corpus.text(0) == cells[text]
    assert corpus.pair_text(0) == (None if pair is None else cells[pair])
    assert list(corpus.sentence_labels) == ([] if label is None else [label])


def test_an_unlabelled_file_is_fine_until_a_label_is_asked_for(tmp_path):
    path = file(tmp_path, "index\tsentence\n0\tuneasy mishmash\n")
    assert read_corpus(path).sentence_labels == {}
    with pytest.raises(CorpusError, match=r"t\.tsv has no column 'label' for label; it has 'index', 'sentence'\."):
        read_corpus(path, label="label")


def test_named_columns_take_the_place_of_known_ones(tmp_path):
    content = "id\tcontext\tanswer\tlabel\tgenre\n1\tOne two\tThree\tx\tg\n"
    corpus = read_corpus(file(tmp_path, content), text="context", pair="answer", label="genre")
    assert (corpus.text(0), corpus.pair_text(0), corpus.sentence_labels) == (
        "One two",
        "Three",
        {"genre": ["g"]},
    )


def test_a_first_segment_alone_can_be_asked_for(tmp_path):
    assert read_corpus(file(tmp_path, STS), text="sentence1").pairs is None


def test_columns_of_a_file_without_header_go_by_number(tmp_path):
    corpus = read_corpus(file(tmp_path, XNLI), text=0, pair=1, label=2)
    assert corpus.sentences == [["Er", "ging", "nicht."], ["Er", "ging."]]
    assert corpus.sentence_labels == {"label": ["entailment", "contradiction"]}


def test_columns_of_a_file_without_header_can_be_named(tmp_path):
    corpus = read_corpus(file(tmp_path, XNLI), columns=["premise", "hypothesis", "label"])
    assert len(corpus) == 2
    assert corpus.pair_text(0) == "Er blieb."
    assert list(corpus.sentence_labels) == ["label"]


def test_a_file_without_header_asks_for_its_columns(tmp_path):
    path = file(tmp_path, XNLI)
    with pytest.raises(CorpusError, match="first line is not a header, so the columns are 0 to 2 unless columns="):
        read_corpus(path)
    with pytest.raises(CorpusError, match="no column 3 for label; its first line is not a header"):
        read_corpus(path, text=0, label=3)
    with pytest.raises(CorpusError, match="no column 'premise' for text"):
        read_corpus(path, text="premise")


def test_a_pair_needs_a_first_segment(tmp_path):
    with pytest.raises(SettingError, match="pair is 1 without text"):
        read_corpus(file(tmp_path, XNLI), pair=1)


def test_a_stray_field_is_an_error_or_is_counted(tmp_path):
    path = file(tmp_path, "sentence\tlabel\na\t1\nb\t0\textra\nc\t1\n")
    with pytest.raises(CorpusError, match=r"t\.tsv, line 3: found 3 fields; expected 2: sentence, label \(on_error"):
        read_corpus(path)
    corpus = read_corpus(path, on_error="skip")
    assert corpus.sentences == [["a"], ["c"]]
    assert corpus.ids == ["1", "3"]
    assert corpus.skipped == {"malformed rows": 1}


def test_blank_texts_are_left_out_and_counted(tmp_path):
    corpus = read_corpus(file(tmp_path, "premise\thypothesis\na\tb\n\n \tb\na\t\nc\td\n"))
    assert corpus.sentences == [["a"], ["c"]]
    assert corpus.skipped == {"blank texts": 3}
    assert corpus.ids == ["1", "5"]


def test_a_missing_label_is_none(tmp_path):
    assert read_corpus(file(tmp_path, "text\tlabel\na\t\nb\tx\n")).targets() == [None, "x"]


def test_a_header_with_the_same_name_twice_is_an_error(tmp_path):
    with pytest.raises(CorpusError, match="line 1: found the same name twice in"):
        read_corpus(file(tmp_path, "text\ttext\na\tb\n"))


def test_limit_does_not_parse_what_follows(tmp_path):
    path = file(tmp_path, "text\tlabel\na\tx\nb\ty\nbroken\n")
    assert len(read_corpus(path, limit=2)) == 2
    with pytest.raises(CorpusError, match="line 4"):
        read_corpus(path)


def test_text_as_written_keeps_the_spaces_of_both_segments(tmp_path):
    path = file(tmp_path, "premise\thypothesis\na  b \t c\u00a0d\n")
    corpus = read_corpus(path, spacing="text")
    assert (corpus.text(0), corpus.pair_text(0)) == ("a  b ", " c\u00a0d")
    assert corpus.spans(0) == [(0, 1), (3, 4)]
    assert read_corpus(path).pair_text(0) == "c d"


def test_csv_cells_may_hold_commas_quotes_and_lines(tmp_path):
    path = file(tmp_path, 'text,label\n"a, ""b""\nc",x\nd,y\n', "t.csv")
    corpus = read_corpus(path)
    assert corpus.sentences == [["a,", '"b"', "c"], ["d"]]
    assert corpus.targets() == ["x", "y"]


def test_bad_csv_names_the_line_where_the_row_starts(tmp_path):
    path = file(tmp_path, 'text,label\n"a\nb",x\n"c"d,y\n', "t.csv")
    with pytest.raises(CorpusError, match=r"t\.csv, line 4: found bad quoting .*; expected comma-separated values"):
        read_corpus(path)
    assert read_corpus(path, on_error="skip").sentences == [["a", "b"]]


@pytest.mark.parametrize("content", [RECORDS, {"0": RECORDS[0], "1": RECORDS[1]}])
def test_json_is_a_list_or_an_object_of_records(tmp_path, content):
    corpus = read_corpus(file(tmp_path, json.dumps(content), "t.json"))
    assert corpus.sentences == [["Salt", "kept", "the", "town", "fed."], ["塩が町を"]]
    assert corpus.pairs == [["It", "was", '"salt".'], ["نمک"]]
    assert corpus.targets() == ["entailment", "neutral"]


def test_an_unreadable_first_row_is_reported(tmp_path):
    with pytest.raises(CorpusError, match=r"t\.csv, line 1: found bad quoting .*; expected a line of cells"):
        read_corpus(file(tmp_path, '"a"b,c\n', "t.csv"))
    (tmp_path / "t.tsv").write_bytes(gzip.compress(b""))
    with pytest.raises(CorpusError, match=r"t\.tsv, line 1: found nothing; expected a line of cells"):
        read_corpus(tmp_path / "t.tsv")


def test_every_table_format_reads_the_same_records(tmp_path):
    parquet.write_table(pyarrow.Table.from_pylist(RECORDS), tmp_path / "t.parquet")
    rows = [list(RECORDS[0]), *(list(record.values()) for record in RECORDS)]
    quoted = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    paths = [
        tmp_path / "t.parquet",
        file(tmp_path, json.dumps(RECORDS), "t.json"),
        file(tmp_path, json_lines(*RECORDS), "t.jsonl"),
        file(tmp_path, "\n".join("\t".join(row) for row in rows), "t.tsv"),
        file(tmp_path, "\n".join(quoted), "t.csv"),
    ]
    assert len({read_corpus(path).fingerprint for path in paths}) == 1


def test_the_types_of_json_labels_are_told_apart(tmp_path):
    def targets(*labels):
        return read_corpus(
            file(tmp_path, json_lines(*[{"text": "a", "label": x} for x in labels]), "t.jsonl")
        ).targets()

    assert targets(1, 0, None) == ["1", "0", None]
    assert targets(1.5, 2, None) == [1.5, 2.0, None]
    assert targets(True, False) == ["True", "False"]


def test_lists_of_words_have_lists_of_labels(tmp_path):
    records = [
        {"id": 1, "tokens": ["New York", "日"], "ner_tags": [1, 0], "spans": ["x", "y"], "deep": [["a"], []]},
        {"id": 2, "tokens": ["b"], "ner_tags": [0], "spans": [], "deep": [[]]},
        {"id": 3, "tokens": [], "ner_tags": [], "spans": [], "deep": []},
    ]
    corpus = read_corpus(file(tmp_path, json_lines(*records), "t.jsonl"))
    assert corpus.sentences == [["New York", "日"], ["b"]]
    assert corpus.labels == {"ner_tags": [["1", "0"], ["0"]]}
    assert corpus.skipped == {"blank texts": 1, "columns whose lists do not fit the words": 1}


def test_lists_of_words_can_have_a_label_of_the_sentence(tmp_path):
    records = [{"words": ["show", "flights"], "tags": ["O", "O"], "label": "flight"}]
    corpus = read_corpus(file(tmp_path, json.dumps(records), "t.json"))
    assert (corpus.labels, corpus.targets()) == ({"tags": [["O", "O"]]}, ["flight"])


def test_labels_that_were_asked_for_must_fit_the_words(tmp_path):
    path = file(tmp_path, json_lines({"tokens": ["a"], "t": ["x"]}, {"tokens": ["a", "b"], "t": ["x"]}), "t.jsonl")
    with pytest.raises(CorpusError, match="line 2: found 1 labels 't'; expected 2, one per word"):
        read_corpus(path, label="t")
    assert read_corpus(path, label="t", on_error="skip").labels == {"t": [["x"]]}


def test_a_missing_list_is_blank_and_another_value_a_fault(tmp_path):
    path = file(tmp_path, json_lines({"tokens": ["a"]}, {"tokens": None}, {"tokens": "b"}), "t.jsonl")
    with pytest.raises(CorpusError, match="line 3: found 'b' for 'tokens'; expected a list as in the first record"):
        read_corpus(path)
    assert read_corpus(path, on_error="skip").skipped == {"blank texts": 1, "malformed rows": 1}


def test_whole_numbers_that_a_table_holds_as_floats_can_be_classes(tmp_path):
    table = pyarrow.table({"text": ["a", "b", "c"], "label": [1.0, 0.0, float("nan")]})
    parquet.write_table(table, tmp_path / "t.parquet")
    assert read_corpus(tmp_path / "t.parquet", regression=False).targets() == ["1", "0", None]


def test_lists_of_words_have_no_text_as_written(tmp_path):
    with pytest.raises(CorpusError, match="holds lists of words: it has neither pairs nor the text as written"):
        read_corpus(file(tmp_path, json_lines({"tokens": ["a"]}), "t.jsonl"), spacing="text")


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("{broken", "line 2: found '{broken', which is not JSON"),
        ("[1]", "line 2: found a list; expected an object with named values"),
        ("3", "line 2: found a number; expected an object"),
        ('{"other": 1}', "line 2: found no 'text'; expected it as in the first record"),
        ('{"text": "a"}', "line 2: found no 'label'"),
        ('{"text": 5, "label": "x"}', "line 2: found 5 for 'text'; expected text"),
        ('{"text": "\\ud800", "label": "x"}', "line 2: found half a surrogate pair in 'text'"),
    ],
)
def test_a_malformed_record_is_an_error_or_is_counted(tmp_path, second, message):
    path = file(tmp_path, '{"text": "fine", "label": "x"}\n' + second + "\n\n", "t.jsonl")
    with pytest.raises(CorpusError, match=message):
        read_corpus(path)
    assert read_corpus(path, on_error="skip").skipped == {"malformed rows": 1}


def test_json_that_is_no_table_is_reported(tmp_path):
    with pytest.raises(CorpusError, match=r"t\.json is not JSON: .*line 2 column 1"):
        read_corpus(file(tmp_path, '[{"text": "a"},\n', "t.json"))
    with pytest.raises(CorpusError, match=r"t\.json holds a number; expected a list of records"):
        read_corpus(file(tmp_path, "3", "t.json"))
    with pytest.raises(CorpusError, match=r"t\.json, record 1: found a text; expected an object"):
        read_corpus(file(tmp_path, '{"text": "a"}', "t.json"))
    with pytest.raises(CorpusError, match="holds no record"):
        read_corpus(file(tmp_path, "[]", "t.json"))
    with pytest.raises(CorpusError, match="none of the columns is known to hold text; it has 'a', 'b'"):
        read_corpus(file(tmp_path, '[{"a": 1, "b": 2}]', "t.json"))


def test_parquet_types_tell_lists_and_regression(tmp_path):
    table = pyarrow.table({"sentence": ["a b", None, "c"], "label": [0.5, 1.0, None], "image": [b"1", b"2", b"3"]})
    parquet.write_table(table, tmp_path / "s.parquet")
    corpus = read_corpus(tmp_path / "s.parquet")
    assert corpus.targets() == [0.5, None]
    assert corpus.skipped == {"blank texts": 1}
    parquet.write_table(pyarrow.table({"tokens": [["a", "b"]], "tags": [["X", "Y"]]}), tmp_path / "w.parquet")
    assert read_corpus(tmp_path / "w.parquet").labels == {"tags": [["X", "Y"]]}


def test_a_file_that_is_not_parquet_is_reported(tmp_path):
    with pytest.raises(CorpusError, match=r"t\.parquet is not a whole parquet file"):
        read_corpus(file(tmp_path, "PAR1 not really", "t.parquet"))
    parquet.write_table(pyarrow.table({"text": ["a"] * 99}), tmp_path / "cut.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "cut.parquet").read_bytes()[:-20])
    with pytest.raises(CorpusError, match=r"cut\.parquet is not a whole parquet file"):
        read_corpus(tmp_path / "cut.parquet")
    parquet.write_table(pyarrow.table({"text": [f"sentence {i}" for i in range(999)]}), tmp_path / "damaged.parquet")
    content = bytearray((tmp_path / "damaged.parquet").read_bytes())
    content[4:400] = bytes(396)
    (tmp_path / "damaged.parquet").write_bytes(content)
    with pytest.raises(CorpusError, match=r"damaged\.parquet is not a whole parquet file"):
        read_corpus(tmp_path / "damaged.parquet")


def test_columns_mean_nothing_where_records_have_names(tmp_path):
    with pytest.raises(SettingError, match=r"columns is \['text'\], but means nothing for the format 'json'"):
        read_corpus(file(tmp_path, json.dumps(RECORDS), "t.json"), columns=["text"])
