"""Small training data for the tests: problems of every kind from the sample grammar, encoded for a tiny model."""

from __future__ import annotations

from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, named_task
from residuum.samples import sample
from residuum.training.encoding import Collator, ExampleEncoder, pad_id, problem_of
from residuum.training.learning import TrainingData
from residuum.training.networks import load_with_head, takes_types

WINDOW = 48


def numbers(size: int = 16) -> Corpus:
    sentences = sample("polarity", size=size).sentences
    return Corpus(name="numbers", sentences=sentences, sentence_labels={"score": [len(s) / 10 for s in sentences]})


CORPORA = {
    "classification": (Task("sentence", unit="sentence"), lambda size: sample("polarity", size=size)),
    "pair": (Task("sentence", unit="sentence"), lambda size: sample("nli", size=size)),
    "regression": (named_task("regression"), numbers),
    "tagging": (named_task("ner"), lambda size: sample("ner", size=size)),
    "choice": (named_task("choice"), lambda size: sample("copa", size=size)),
}


def task_data_of(kind: str, folder, *, size: int = 16, seed: int = 0):
    """A model with a head, its tokenizer, and training data whose development split is its training split."""
    task, make = CORPORA[kind]
    corpus = make(size)
    problem = problem_of(task, corpus)
    network, tokenizer = load_with_head(folder, problem, seed=seed)
    part = ExampleEncoder(tokenizer, problem, WINDOW, None).encode(corpus)
    collate = Collator(problem.kind, pad_id(tokenizer), takes_types(network, tokenizer))
    return network, tokenizer, TrainingData(problem, part, part, collate, collate)
