"""Multiple choice: every shape in which candidates and answers are kept gives the same corpus."""

import json

import pytest

from residuum.corpus import Corpus, candidate_pairs, read_corpus
from residuum.errors import CorpusError

CONTEXT, QUESTION = "The man turned on the tap.", "What happened?"
CANDIDATES = ["The toilet filled.", "Water flowed.", "He slept."]
LETTERS = dict(zip(("answerA", "answerB", "answerC"), CANDIDATES, strict=True))
NUMBERS = dict(zip(("choice1", "choice2", "choice3"), CANDIDATES, strict=True))
ENDINGS = dict(zip(("ending0", "ending1", "ending2"), CANDIDATES, strict=True))


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "record",
    [
        {"premise": CONTEXT, "question": QUESTION, **NUMBERS, "label": 1},
        {"context": CONTEXT, "question": QUESTION, **LETTERS, "label": "2"},
        {"context": CONTEXT, "question": QUESTION, **LETTERS, "correct": "B"},
        {"context": CONTEXT, "question": QUESTION, "options": CANDIDATES, "answer": "Water flowed."},
        {"context": CONTEXT, "question": QUESTION, "choices": CANDIDATES, "label": 1},
        {"sent1": CONTEXT, "sent2": QUESTION, **ENDINGS, "label": 1},
    ],
    ids=["copa", "siqa", "letters", "options", "list", "swag"],
)
def test_every_known_shape_gives_the_same_corpus(record, tmp_path):
    corpus = read_corpus(write(tmp_path / "train.jsonl", record))
    assert corpus.text(0) == CONTEXT
    assert corpus.pair_text(0) == QUESTION
    assert corpus.choices == [CANDIDATES]
    assert corpus.targets() == ["1"]


def test_a_question_alone_is_the_context(tmp_path):
    corpus = read_corpus(write(tmp_path / "x.jsonl", {"question": QUESTION, "options": CANDIDATES, "answer": 0}))
    assert (corpus.text(0), corpus.pairs, corpus.targets()) == (QUESTION, None, ["0"])


def test_labels_beside_the_records_are_joined_to_them(tmp_path):
    records = [{"context": CONTEXT, "question": QUESTION, **LETTERS}] * 3
    path = write(tmp_path / "train.jsonl", *records)
    assert read_corpus(path).sentence_labels == {}
    (tmp_path / "train-labels.lst").write_text("3\n1\n2\n")
    assert read_corpus(path).targets() == ["2", "0", "1"]
    assert read_corpus(path, limit=2).targets() == ["2", "0"]


@pytest.mark.parametrize(("labels", "short"), [("1\n", "train-labels.lst"), ("1\n2\n3\n", "train.jsonl")])
def test_labels_beside_must_be_as_many_as_the_records(labels, short, tmp_path):
    path = write(tmp_path / "train.jsonl", *[{"context": CONTEXT, "question": QUESTION, **LETTERS}] * 2)
    (tmp_path / "train-labels.lst").write_text(labels)
    with pytest.raises(CorpusError, match=f"{short} ends before .* does; expected one label for each record"):
        read_corpus(path)


def test_a_missing_answer_is_none(tmp_path):
    records = [{"premise": CONTEXT, "question": "cause", **NUMBERS, "label": label} for label in (-1, None, 0)]
    assert read_corpus(write(tmp_path / "x.jsonl", *records)).targets() == [None, None, "0"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 3}, r"line 2: found the answer 3; expected one of 3 candidates, counted from 0"),
        ({"label": "both"}, r"found the answer 'both'"),
        ({"choice2": " "}, r"found the candidates .*; expected at least two, none of them blank"),
    ],
)
def test_what_is_wrong_with_a_record_is_said(change, message, tmp_path):
    good = {"premise": CONTEXT, "question": "cause", **NUMBERS, "label": 0}
    path = write(tmp_path / "x.jsonl", good, good | change)
    with pytest.raises(CorpusError, match=message):
        read_corpus(path)
    skipped = read_corpus(path, on_error="skip")
    assert (len(skipped), skipped.skipped) == (1, {"malformed rows": 1})


def test_choosing_the_text_reads_a_table_of_choices_as_plain_sentences(tmp_path):
    path = write(tmp_path / "x.jsonl", {"premise": CONTEXT, "question": "cause", **NUMBERS, "label": 0})
    corpus = read_corpus(path, text="premise")
    assert corpus.choices is None
    assert corpus.pairs is None


def test_candidates_follow_their_sentences_and_count_in_the_fingerprint():
    corpus = Corpus(name="c", sentences=[["a"], ["b"]], choices=[["x", "y"], ["v", "w"]])
    assert corpus.select([1]).choices == [["v", "w"]]
    other = Corpus(name="c", sentences=[["a"], ["b"]], choices=[["x", "y"], ["v", "z"]])
    assert corpus.text_fingerprint != other.text_fingerprint
    assert corpus.text_fingerprint != Corpus(name="c", sentences=[["a"], ["b"]]).text_fingerprint
    with pytest.raises(CorpusError, match="2 sentences but 1 entries of 'choices'"):
        Corpus(name="c", sentences=[["a"], ["b"]], choices=[["x", "y"]])


def test_the_sample_grammar_and_real_files_are_read_as_choices(data, tmp_path):
    from residuum.samples import sample_text

    (tmp_path / "copa.jsonl").write_text(sample_text("copa", size=20), encoding="utf-8")
    for path, n_choices in (
        (tmp_path / "copa.jsonl", 2),
        (data / "crosslingual/xcopa/data/tr/val.tr.jsonl", 2),
        (data / "crosslingual/siqa/dev.jsonl", 3),
        (data / "crosslingual/siqa/common-bench_dev.jsonl", 3),
    ):
        corpus = read_corpus(path)
        assert {len(choices) for choices in corpus.choices or []} == {n_choices}
        assert set(corpus.targets()) == {str(place) for place in range(n_choices)}


def test_candidates_become_pairs_that_are_right_or_wrong():
    corpus = Corpus(
        name="c",
        sentences=[["It", "rained."], ["She", "slept."]],
        pairs=[["effect"], ["cause"]],
        sentence_labels={"label": ["1", None]},
        choices=[["Dry.", "All wet."], ["She was tired.", "She ran."]],
    )
    pairs = candidate_pairs(corpus)
    assert pairs.sentences == [["It", "rained.", "effect"]] * 2 + [["She", "slept.", "cause"]] * 2
    assert pairs.pairs == [["Dry."], ["All", "wet."], ["She", "was", "tired."], ["She", "ran."]]
    assert pairs.targets() == ["wrong", "right", None, None]
    assert pairs.ids == ["1.1", "1.2", "2.1", "2.2"]
    assert candidate_pairs(pairs) is pairs
