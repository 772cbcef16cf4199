"""Adverbs and times, which the tables give word by word."""

from residuum.samples import lexicon
from residuum.samples.trees import Phrase, Word, fixed_phrase


def adverb(key: str, language: str, head: Word) -> Phrase | None:
    """An adverb of manner or frequency under a head; None if none is said."""
    return _under(getattr(lexicon.adverbs()[key], language), head) if key else None


def time(key: str, language: str, head: Word) -> Phrase | None:
    """A time under a head; None if none is said."""
    return _under(getattr(lexicon.times()[key], language), head) if key else None


def _under(notation: str, head: Word) -> Phrase:
    phrase = fixed_phrase(notation)
    return phrase.under(head, phrase.head.deprel)
