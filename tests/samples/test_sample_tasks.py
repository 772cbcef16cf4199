"""The tasks: labels, balance, formats, errors."""

import csv
import io
import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from samples_reading import LANGUAGES
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from residuum.corpus import read_corpus
from residuum.errors import SettingError
from residuum.samples import TASKS, inference, sample, sample_text

PAIR_TASKS = {"translation": "de-sw"}


def language_of(task: str) -> str:
    return PAIR_TASKS.get(task, "tr")


def bag_of_words_accuracy(train: list[str], train_labels: list[str], test: list[str], test_labels: list[str]) -> float:
    bag = CountVectorizer(token_pattern=r"\S+", ngram_range=(1, 1))
    model = LogisticRegression(max_iter=200).fit(bag.fit_transform(train), train_labels)
    return float(np.mean(model.predict(bag.transform(test)) == np.array(test_labels)))


def test_a_treebank_equals_what_the_reader_reads_from_its_file(tmp_path):
    for language in LANGUAGES:
        path = tmp_path / f"{language}.conllu"
        path.write_text(sample_text("treebank", language=language, size=200), encoding="utf-8")
        corpus = sample("treebank", language=language, size=200)
        read = read_corpus(path, spacing="text")
        assert read.fingerprint == corpus.fingerprint
        assert read.ids == corpus.ids
        assert read.skipped == corpus.skipped
        assert set(read.labels) == set(corpus.labels)


@pytest.mark.parametrize("task", TASKS)
def test_every_file_reads_back_as_the_corpus_of_its_task(task, tmp_path):
    suffix = {"treebank": "conllu", "ner": "bio", "copa": "jsonl", "text": "txt"}.get(task, "tsv")
    options = {"text": 0, "pair": 1} if task == "translation" else {}
    path = tmp_path / f"set.{suffix}"
    path.write_text(sample_text(task, language=language_of(task), size=60), encoding="utf-8")
    corpus, read = sample(task, language=language_of(task), size=60), read_corpus(path, **options)
    assert read.sentences == corpus.sentences
    assert read.pairs == corpus.pairs
    assert read.choices == corpus.choices
    if task not in ("translation", "text", "treebank", "ner"):
        assert read.targets("label") == corpus.targets("label")
    if task == "ner":
        assert read.labels["ner"] == corpus.labels["ner"]


@pytest.mark.parametrize("task", TASKS)
def test_spans_locate_the_words_in_the_text(task):
    corpus = sample(task, language=language_of(task), size=100)
    for index, words in enumerate(corpus.sentences):
        text = corpus.text(index)
        for word, (start, end) in zip(words, corpus.spans(index), strict=True):
            assert text[start:end] == word or task == "treebank"


def test_words_of_a_german_contraction_share_its_span():
    corpus = sample("treebank", language="de", size=300)
    shared = [
        corpus.text(index)[slice(*span)].lower()
        for index in range(len(corpus))
        for span, following in zip(corpus.spans(index), corpus.spans(index)[1:], strict=False)
        if span == following
    ]
    assert set(shared) == {"im", "ins", "am", "zum", "zur"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_entity_tags_are_well_formed_and_of_known_types(language):
    rows = sample("ner", language=language, size=1500).labels["ner"]
    tags = {tag for row in rows for tag in row}
    assert tags == {"O", "B-PER", "I-PER", "B-LOC", "B-ORG", "I-ORG"}
    for row in rows:
        for previous, tag in zip(["O", *row], row, strict=False):
            if tag.startswith("I-"):
                assert previous in (f"B-{tag[2:]}", tag)


def test_turkish_names_keep_their_tag_with_a_case_suffix():
    corpus = sample("ner", language="tr", size=1500)
    tagged = [
        (word, tag)
        for words, tags in zip(corpus.sentences, corpus.labels["ner"], strict=True)
        for word, tag in zip(words, tags, strict=True)
    ]
    assert {tag for word, tag in tagged if "'" in word} == {"B-PER", "I-PER", "B-LOC", "B-ORG", "I-ORG"}


@pytest.mark.parametrize(
    ("task", "classes"),
    [
        ("nli", {"entailment", "neutral", "contradiction"}),
        ("copa", {"0", "1"}),
        ("polarity", {"affirmative", "negative"}),
        ("tense", {"past", "present", "future"}),
    ],
)
@pytest.mark.parametrize("split", ["train", "test"])
def test_classes_are_balanced(task, classes, split):
    counts = Counter(sample(task, size=600, split=split).targets("label"))
    assert set(counts) == classes
    assert max(counts.values()) - min(counts.values()) <= 1


def test_the_hypothesis_alone_tells_next_to_nothing():
    train, test = (sample("nli", size=size, split=split) for size, split in ((2400, "train"), (900, "test")))
    found = bag_of_words_accuracy(train.written.pair_texts, train.targets(), test.written.pair_texts, test.targets())
    assert found < 0.39
    denied = Counter()
    for text, label in zip(train.written.pair_texts, train.targets(), strict=True):
        denied[label] += " not " in text
    assert min(denied.values()) > 200
    assert max(denied.values()) < 1.25 * min(denied.values())


def test_polarity_and_tense_cannot_be_read_off_a_bag_of_words():
    """They are not trivial, and yet the words are not without use."""
    for task, chance in (("polarity", 1 / 2), ("tense", 1 / 3)):
        train, test = (sample(task, size=size, split=split) for size, split in ((900, "train"), (450, "test")))
        found = bag_of_words_accuracy(train.written.texts, train.targets(), test.written.texts, test.targets())
        assert chance + 0.05 < found < 0.78


def test_the_right_choice_cannot_be_told_without_the_premise():
    corpus, held_out = sample("copa", size=2000), sample("copa", size=800, split="test")

    def sides(corpus):
        rows = zip(corpus.choices, corpus.targets(), strict=True)
        return [
            (choice, str(int(label == str(side)))) for choices, label in rows for side, choice in enumerate(choices)
        ]

    train, test = sides(corpus), sides(held_out)
    found = bag_of_words_accuracy(*map(list, zip(*train, strict=True)), *map(list, zip(*test, strict=True)))
    assert found < 0.55


def test_participants_of_choices_are_in_one_split_only():
    premises = [set(sample("copa", size=1500, split=split).written.texts) for split in ("train", "dev", "test")]
    assert not premises[0] & premises[2]
    assert not premises[0] & premises[1]


def test_choices_are_json_records_as_xcopa_keeps_them():
    records = [json.loads(line) for line in sample_text("copa", language="sw", size=20).splitlines()]
    assert all(list(record) == ["premise", "choice1", "choice2", "question", "label"] for record in records)
    assert {record["label"] for record in records} == {0, 1}
    assert {record["question"] for record in records} == {"cause", "effect"}


def test_tables_have_a_header():
    rows = list(csv.reader(io.StringIO(sample_text("nli", size=3)), delimiter="\t"))
    assert rows[0] == ["premise", "hypothesis", "label"]
    assert sample_text("tense", size=3).splitlines()[0] == "sentence\tlabel"
    assert len(sample_text("translation", language="tr-en", size=3).splitlines()) == 3


@pytest.mark.parametrize("task", TASKS)
def test_the_same_seed_gives_the_same_bytes_in_any_process(task):
    language = language_of(task)
    told = f"sample_text({task!r}, language={language!r}, size=40, seed=7).encode()"
    code = f"from residuum.samples import sample_text; import sys; sys.stdout.buffer.write({told})"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {sample_text(task, language=language, size=40, seed=7).encode()}


def test_importing_the_samples_loads_nothing_heavy():
    heavy = ("torch", "numpy", "pandas", "residuum.corpus")
    code = f"import sys, residuum.samples; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"task": "pos"},
            "task is 'pos'; expected one of treebank, ner, nli, copa, translation, polarity, tense, text.",
        ),
        ({"language": "fi"}, "language is 'fi'; expected one of en, de, tr, sw."),
        ({"split": "eval"}, "split is 'eval'; expected one of train, dev, test."),
        ({"size": 0}, "size is 0; expected a whole number at least 1."),
        ({"size": 1.5}, "size is 1.5; expected a whole number at least 1."),
        ({"seed": "a"}, "seed is 'a'; expected a whole number at least 0"),
        ({"task": "translation"}, "language is 'en'; expected two of en, de, tr, sw for translation, such as 'tr-en'."),
        ({"task": "translation", "language": "en-en"}, "language is 'en-en'; expected two of"),
        ({"task": "copa", "disjoint_lexemes": True}, "copa has one table of events for all splits; leave it out."),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_what_is_expected(settings, message):
    task = settings.pop("task", "text")
    for function in (sample, sample_text):
        with pytest.raises(SettingError) as error:
            function(task, **settings)
        assert message in str(error.value)


def test_more_than_can_be_said_is_refused(monkeypatch):
    two = (inference.links()[0], next(link for link in inference.links() if link.theme == "things"))
    monkeypatch.setattr(inference, "links", lambda: two)
    with pytest.raises(SettingError, match=r"size is 9000, but the test split of copa has only about \d+ different"):
        sample("copa", split="test", size=9000)
