"""Reading text: treebanks, column files, tables, raw lines and parallel corpora, all as one `Corpus`."""

from residuum.corpus.corpus import Corpus, WrittenText, join_corpora, split_indices
from residuum.corpus.multilingual import read_parallel
from residuum.corpus.reading import FORMATS, read_corpus
from residuum.corpus.records import candidate_pairs

__all__ = [
    "FORMATS",
    "Corpus",
    "WrittenText",
    "candidate_pairs",
    "join_corpora",
    "read_corpus",
    "read_parallel",
    "split_indices",
]
