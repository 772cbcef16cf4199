"""Parallel treebanks: the same sentences in several languages, cut at the same places."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from residuum.corpus import Corpus, split_indices
from residuum.corpus.tasks import Task, read_whole
from residuum.errors import CorpusError, SettingError

SHARES = (0.9, 0.1)
"""Training and held-out share of the sentences: 900 and 100 of the thousand of PUD."""


@dataclass(frozen=True, eq=False)
class ParallelTreebanks:
    """A treebank for each language, the one that is learnt from, and the sentences that are held out in all."""

    corpora: dict[str, Corpus]
    source: str
    train: list[int]
    held_out: list[int]

    @property
    def others(self) -> list[str]:
        """The languages that are only tested on."""
        return [language for language in self.corpora if language != self.source]


def parallel_treebanks(
    corpora: Mapping[str, Corpus | str | os.PathLike[str]] | Sequence[Corpus | str | os.PathLike[str]],
    task: Task,
    *,
    source: str | None = None,
    shares: tuple[float, float] = SHARES,
    seed: int = 0,
    limit: int | None = None,
) -> ParallelTreebanks:
    """Read the treebanks of some languages; `source` (by default the first) is learnt from.

    Languages are named by the keys of a mapping, or as the files say.
    """
    named = _named(corpora, task, limit)
    source = source or next(iter(named), None)
    if source not in named or len(named) < 2:
        raise SettingError(
            f"Found treebanks of {', '.join(named) or 'no language'}, to be learnt from in {source}; expected at least "
            "two languages, that one among them."
        )
    _check_parallel(named, source)
    train, held_out = split_indices(len(named[source]), shares, seed)
    return ParallelTreebanks(named, source, train, held_out)


def _named(
    corpora: Mapping[str, Corpus | str | os.PathLike[str]] | Sequence[Corpus | str | os.PathLike[str]],
    task: Task,
    limit: int | None,
) -> dict[str, Corpus]:
    if isinstance(corpora, Mapping):
        return {language: read_whole(task, corpus, limit=limit) for language, corpus in corpora.items()}
    named: dict[str, Corpus] = {}
    for given in corpora:
        corpus = read_whole(task, given, limit=limit)
        language = corpus.language or corpus.name
        if language in named:
            raise SettingError(
                f"{named[language].name} and {corpus.name} are both called {language}; give each language one treebank."
            )
        named[language] = corpus
    return named


def _check_parallel(corpora: Mapping[str, Corpus], source: str) -> None:
    first = corpora[source]
    for language, corpus in corpora.items():
        if len(corpus) != len(first):
            raise CorpusError(
                f"The treebank of {language} has {len(corpus)} sentences, that of {source} {len(first)}; "
                "expected the same sentences in the same order."
            )
        if not corpus.numbered and not first.numbered and set(corpus.ids) & set(first.ids):
            place = next((i for i, (a, b) in enumerate(zip(corpus.ids, first.ids, strict=True)) if a != b), None)
            if place is not None:
                raise CorpusError(
                    f"Sentence {place + 1} is {corpus.ids[place]} in the treebank of {language} and "
                    f"{first.ids[place]} in that of {source}; expected the same sentences in the same order."
                )
