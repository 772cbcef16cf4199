"""Reading text: treebanks, column files, tables, raw lines and parallel corpora, all as one `Corpus`."""

from residuum.corpus.candidates import candidate_pairs
from residuum.corpus.corpus import Corpus, WrittenText
from residuum.corpus.joining import join_corpora
from residuum.corpus.parallel import read_parallel
from residuum.corpus.reading import FORMATS, read_corpus
from residuum.corpus.splitting import split_indices

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
