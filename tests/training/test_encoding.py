"""What a model reads of an example, against its tokenizer; and where labels stand."""

import pytest
import transformers as hf
from task_data import CORPORA

from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, named_task
from residuum.errors import CorpusError, DataError
from residuum.samples import sample
from residuum.training.encoding import IGNORED, QUESTIONS, ExampleEncoder, length_sorted, problem_of

SENTENCE = Task("sentence", unit="sentence")


def encoded(kind, tokenizer, *, window=48, corpus=None):
    task, make = CORPORA[kind]
    corpus = corpus or make(12)
    return corpus, ExampleEncoder(tokenizer, problem_of(task, corpus), window, None).encode(corpus)


@pytest.fixture(params=["bert", "roberta", "xlm-roberta", "gpt2"])
def tokenizer(request, tiny_folder):
    return hf.AutoTokenizer.from_pretrained(tiny_folder(request.param))


@pytest.mark.parametrize("kind", ["classification", "pair"])
def test_against_the_tokenizer_cut_to_the_window(kind, tokenizer):
    corpus, part = encoded(kind, tokenizer, window=24)
    texts = [[corpus.text(i)] if kind == "classification" else [corpus.text(i), corpus.pair_text(i)] for i in range(12)]
    expected = [tokenizer(*text, truncation="longest_first", max_length=24) for text in texts]
    assert [example.sequences[0].ids for example in part.examples] == [e["input_ids"] for e in expected]
    whole = [len(tokenizer(*text)["input_ids"]) for text in texts]
    assert part.n_cut == sum(length > 24 for length in whole) > 0


def test_three_segments_are_set_apart_as_pairs_are(tokenizer):
    corpus, part = encoded("choice", tokenizer, window=None)
    for i, example in enumerate(part.examples):
        assert len(example.sequences) == 2
        for tokens, choice in zip(example.sequences, corpus.choices[i], strict=True):
            question = QUESTIONS[corpus.pair_text(i)]
            first = tokenizer(corpus.text(i), question)["input_ids"]
            middle = tokenizer(question, add_special_tokens=False)["input_ids"]
            second = tokenizer(question, choice)["input_ids"]
            tail = len(second) - len(middle) - (tokenizer.cls_token_id is not None)
            closing = int(tokenizer.sep_token_id is not None)
            assert tokens.ids == first[: len(first) - closing] + second[len(second) - tail :]
            assert len(tokens.types) == len(tokens.ids)


def test_bert_reads_context_question_and_candidate(tiny_folder):
    tokenizer = hf.AutoTokenizer.from_pretrained(tiny_folder("bert"))
    corpus = Corpus(
        name="c",
        sentences=[["the", "fox"], ["the", "dog"]],
        pairs=[["a", "text"], ["cause"]],
        choices=[["quick", "lazy"], ["dog", "fox"]],
        sentence_labels={"label": ["0", "1"]},
    )
    _, part = encoded("choice", tokenizer, corpus=corpus)
    tokens = part.examples[0].sequences[1]
    text = tokenizer.convert_ids_to_tokens(tokens.ids)
    assert " ".join(text).replace(" ##", "") == "[CLS] the fox [SEP] a text [SEP] lazy [SEP]"
    first_separator = text.index("[SEP]")
    assert tokens.types == [0] * (first_separator + 1) + [1] * (len(text) - first_separator - 1)
    assert "cause" not in tokenizer.decode(part.examples[1].sequences[0].ids).replace("the cause", "")


def test_the_context_is_cut_before_the_question_and_never_the_candidate(tiny_folder):
    tokenizer = hf.AutoTokenizer.from_pretrained(tiny_folder("bert"))
    corpus = Corpus(
        name="c",
        sentences=[["the"] * 30] * 2,
        pairs=[["a"] * 5] * 2,
        choices=[["dog", "fox"]] * 2,
        sentence_labels={"label": ["0", "1"]},
    )
    _, part = encoded("choice", tokenizer, corpus=corpus, window=20)
    ids = part.examples[0].sequences[0].ids
    the, a = (tokenizer.convert_tokens_to_ids(word) for word in ("the", "a"))
    assert len(ids) == 20
    assert ids.count(a) == 5
    assert 0 < ids.count(the) < 30
    assert part.n_cut == 2
    with pytest.raises(CorpusError, match="Question 1 of c has a candidate of more than 4 tokens"):
        encoded("choice", tokenizer, corpus=corpus, window=4)


def test_every_question_must_have_as_many_candidates(tiny_folder):
    tokenizer = hf.AutoTokenizer.from_pretrained(tiny_folder("bert"))
    corpus = sample("copa", size=4)
    corpus.choices[2].append("a third")
    with pytest.raises(CorpusError, match=f"Question {corpus.ids[0]} of {corpus.name} has 2 candidates; expected 3"):
        encoded("choice", tokenizer, corpus=corpus)


def test_each_word_has_its_label_on_its_first_sub_word(tokenizer):
    corpus, part = encoded("tagging", tokenizer, window=None)
    problem = problem_of(named_task("ner"), corpus)
    assert len(part) == len(corpus)
    for sentence, example in enumerate(part.examples):
        places = [token for _, _, token in example.words]
        assert [word for _, word, _ in example.words] == list(range(len(corpus.sentences[sentence])))
        labels = [problem.classes[example.label[place]] for place in places]
        assert labels == corpus.labels["ner"][sentence]
        assert sum(label != IGNORED for label in example.label) == len(places)
        before = example.sequences[0].ids[: places[1]]
        if tokenizer.unk_token_id not in before:
            spelt = tokenizer.decode(before, skip_special_tokens=True).replace(" ", "")
            assert spelt.lower() == corpus.sentences[sentence][0].lower()


def test_long_sentences_are_read_in_windows_and_every_word_once(tiny_folder):
    tokenizer = hf.AutoTokenizer.from_pretrained(tiny_folder("bert"))
    corpus, part = encoded("tagging", tokenizer, window=12)
    assert len(part) > len(corpus)
    words = sorted((sentence, word) for example in part.examples for sentence, word, _ in example.words)
    assert words == [(s, w) for s, sentence in enumerate(corpus.sentences) for w in range(len(sentence))]
    assert part.n_cut == 0
    assert all(len(example.sequences[0].ids) <= 12 for example in part.examples)


def test_what_has_no_label_is_left_out_and_counted(tiny_folder):
    tokenizer = hf.AutoTokenizer.from_pretrained(tiny_folder("bert"))
    sentences = [["a"], ["b"], ["c"]]
    corpus = Corpus(name="c", sentences=sentences, sentence_labels={"label": ["x", None, "y"]})
    _, part = encoded("classification", tokenizer, corpus=corpus)
    assert (len(part), part.n_unlabelled, part.truth) == (2, 1, ["x", "y"])
    tagged = Corpus(name="c", sentences=[["a", "b"], ["c", "d"]], labels={"ner": [["O", None], ["B-X", "O"]]})
    _, part = encoded("tagging", tokenizer, corpus=tagged)
    assert part.n_unlabelled == 1
    assert [len(example.words) for example in part.examples] == [1, 2]


def test_sequences_are_numbered_through(tiny_folder):
    tokenizer = hf.AutoTokenizer.from_pretrained(tiny_folder("bert"))
    _, part = encoded("choice", tokenizer)
    assert [example.first for example in part.examples] == list(range(0, 24, 2))
    assert sum(len(example.sequences) for example in part.examples) == 24


def test_sorted_by_length_nothing_is_lost(tiny_folder):
    tokenizer = hf.AutoTokenizer.from_pretrained(tiny_folder("bert"))
    _, part = encoded("classification", tokenizer)
    batches = list(length_sorted(part.examples, 5))
    assert [len(batch) for batch in batches] == [5, 5, 2]
    lengths = [example.length for batch in batches for example in batch]
    assert lengths == sorted(lengths, reverse=True)
    assert sorted(example.first for batch in batches for example in batch) == list(range(12))


def test_problems_follow_from_task_and_corpus():
    assert problem_of(SENTENCE, sample("nli", size=9)).kind == "classification"
    assert problem_of(SENTENCE, sample("nli", size=9)).classes == ("contradiction", "entailment", "neutral")
    assert problem_of(named_task("ner"), sample("ner", size=30)).metrics[0] == "span_f1"
    assert problem_of(named_task("upos"), sample("treebank", size=5)).metrics == ("accuracy",)
    assert problem_of(named_task("mrpc"), sample("polarity", size=6)).metrics[0] in ("f1", "accuracy")
    floats = Corpus(name="c", sentences=[["a"]], sentence_labels={"score": [0.5]})
    assert problem_of(SENTENCE, floats).kind == "regression"
    assert problem_of(named_task("choice"), sample("copa", size=2)).classes == ("0", "1")


def test_one_class_is_nothing_to_learn():
    corpus = Corpus(name="c", sentences=[["a"], ["b"]], sentence_labels={"label": ["x", "x"]})
    with pytest.raises(DataError, match="c has the label x only; expected at least two"):
        problem_of(SENTENCE, corpus)
