"""The parts of a cross-lingual task: what is learnt from in the source language, and asked in target languages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from residuum.corpus import Corpus
from residuum.errors import CorpusError


@dataclass(frozen=True, eq=False)
class TargetParts:
    """What is asked in a target language, and the pool of examples that few-shot training draws from."""

    dev: Corpus
    test: Corpus
    pool: Corpus
    pool_is_dev: bool = False

    @property
    def scored(self) -> dict[str, Corpus]:
        """The parts that are scored, by name."""
        return {"dev": self.dev, "test": self.test}


@dataclass(frozen=True, eq=False)
class TransferCorpora:
    """A task in a source language and in target languages, and in words what was cut or left out."""

    train: Corpus
    dev: Corpus
    targets: Mapping[str, TargetParts]
    notes: tuple[str, ...] = ()

    def without_leaks(self) -> TransferCorpora:
        """The same without training sentences and few-shot candidates that recur where answers are scored.

        A sentence may recur in another language: names in WikiANN do.
        """
        scored = [self.dev, *(corpus for parts in self.targets.values() for corpus in parts.scored.values())]
        train, removed = without_recurring(self.train, scored)
        notes = [f"{removed:,} of {len(self.train):,} training sentences recur in scored parts and were removed"]
        targets = {}
        for language, parts in self.targets.items():
            pool, removed = without_recurring(parts.pool, [parts.test] if parts.pool_is_dev else parts.scored.values())
            targets[language] = replace(parts, pool=pool)
            if removed:
                notes.append(f"{removed:,} few-shot candidates in {language} recur in scored parts and were removed")
        return TransferCorpora(train, self.dev, targets, (*self.notes, *notes))

    def fingerprints(self) -> dict[str, Any]:
        """What the data is, for a run's config."""
        targets = {
            language: {name: _identity(corpus) for name, corpus in {**parts.scored, "pool": parts.pool}.items()}
            for language, parts in self.targets.items()
        }
        return {"train": _identity(self.train), "dev": _identity(self.dev), "targets": targets}


def complete_target(
    dev: Corpus | None, test: Corpus | None, pool: Corpus | None, language: str, seed: int
) -> tuple[TargetParts, list[str]]:
    """The parts of a target language, with those that are absent cut from others, and in words what was cut."""
    notes = []
    whole = dev or test
    if whole is None:
        raise CorpusError(
            f"There is neither a development nor a test part in {language}; expected files such as dev-{language}.tsv "
            f"or test-{language}.tsv in the folder."
        )
    if dev is None or test is None:
        dev, test = whole.split((0.5, 0.5), seed)
        notes.append(f"{whole.name} was cut into halves for development and test by seed {seed}")
    if pool is None:
        notes.append(f"few-shot examples in {language} come from the development part")
    return TargetParts(dev, test, pool or dev, pool_is_dev=pool is None), notes


def without_recurring(corpus: Corpus, others: Iterable[Corpus]) -> tuple[Corpus, int]:
    """The examples of a corpus whose text is in none of the others, and how many were left out."""
    known = {_text(other, i) for other in others for i in range(len(other))}
    kept = [i for i in range(len(corpus)) if _text(corpus, i) not in known]
    if not kept:
        raise CorpusError(f"All {len(corpus):,} sentences of {corpus.name} recur in the scored parts; give other ones.")
    return corpus.select(kept), len(corpus) - len(kept)


def _text(corpus: Corpus, index: int) -> tuple[Any, ...]:
    second = () if corpus.pairs is None else tuple(corpus.pairs[index])
    return tuple(corpus.sentences[index]), second, () if corpus.choices is None else tuple(corpus.choices[index])


def _identity(corpus: Corpus) -> str:
    return f"{corpus.name} {corpus.fingerprint}"
