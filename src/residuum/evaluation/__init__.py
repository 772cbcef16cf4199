"""How well do models align languages, and how well do they predict text?"""

from residuum.evaluation.correlation import AlignmentCorrelation, correlate_alignment
from residuum.evaluation.pairs import SentencePairs, corpus_pairs, read_pairs
from residuum.evaluation.perplexity import Perplexity, evaluate_perplexity
from residuum.evaluation.retrieval import Retrieval, evaluate_retrieval

__all__ = [
    "AlignmentCorrelation",
    "Perplexity",
    "Retrieval",
    "SentencePairs",
    "corpus_pairs",
    "correlate_alignment",
    "evaluate_perplexity",
    "evaluate_retrieval",
    "read_pairs",
]
