"""Treebanks of several languages: the same sentences in each, or sentences of their own; and language families."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from residuum.corpus import Corpus, split_indices
from residuum.corpus.tasks import Task, read_whole
from residuum.errors import CorpusError, SettingError

CorpusSource = Corpus | str | os.PathLike[str]
SHARES = (0.9, 0.1)
"""Training and held-out share of the sentences: 900 and 100 of the thousand of PUD."""
_FAMILY_CODES = {
    "Germanic": "af da de en fo fy got is nb nl nn no sv yi",
    "Romance": "ca es fr gl it la pt ro",
    "Slavic": "be bg cs hr hsb pl ru sk sl sr uk",
    "Baltic": "lt lv",
    "Celtic": "br cy ga gd gv",
    "Hellenic": "el grc",
    "Iranian": "fa kmr ku",
    "Indo-Aryan": "bn gu hi mr ne pa ur",
    "Uralic": "et fi hu kpv krl mdf myv olo sme",
    "Turkic": "az kk ky tr tt ug uz",
    "Semitic": "am ar he mt",
    "Sinitic": "lzh yue zh",
    "Japonic": "ja",
    "Koreanic": "ko",
    "Dravidian": "kn ml ta te",
    "Austronesian": "id jv ms tl",
    "Austroasiatic": "km vi",
    "Kra-Dai": "lo th",
    "Bantu": "sw xh zu",
}
FAMILIES: Mapping[str, str] = {code: family for family, codes in _FAMILY_CODES.items() for code in codes.split()}
"""The family of a language by its code in Universal Dependencies (Indo-European by branches)."""


@dataclass(frozen=True, eq=False)
class Treebanks:
    """One treebank per language, the language that probes learn from, and the sentences of each part."""

    corpora: dict[str, Corpus]
    source: str
    parts: dict[str, dict[str, list[int]]]  # language → train, held out → sentences
    parallel: bool


def read_treebanks(
    corpora: Mapping[str, CorpusSource] | Sequence[CorpusSource],
    task: Task,
    *,
    source: str | None = None,
    shares: tuple[float, float] = SHARES,
    seed: int = 0,
    limit: int | None = None,
    parallel: bool = True,
    **table: Any,
) -> Treebanks:
    """Read one treebank per language; `source` is the language that probes learn from, by default the first.

    Languages are named by the keys of a mapping, or as the files say. Parallel treebanks hold the same sentences in the
    same order, and are split at the same places. `table` says where tables have their columns (see `read_task`).
    """
    pairs = corpora.items() if isinstance(corpora, Mapping) else [("", corpus) for corpus in corpora]
    named: dict[str, Corpus] = {}
    for key, corpus in ((key, read_whole(task, corpus, limit=limit, **table)) for key, corpus in pairs):
        language = key or corpus.language or corpus.name
        if language in named:
            raise SettingError(
                f"{named[language].name} and {corpus.name} are both called {language}; give each language one treebank."
            )
        named[language] = corpus
    source = source or next(iter(named), None)
    if source not in named or len(named) < 2:
        raise SettingError(
            f"Found treebanks of {', '.join(named) or 'no language'}, to be learnt from in {source}; expected at least "
            "two languages, that one among them."
        )
    parts = {}
    for language, corpus in named.items():
        if parallel:
            _check_parallel(language, corpus, source, named[source])
        train, held_out = split_indices(len(corpus), shares, seed)
        parts[language] = {"train": train, "held out": held_out}
    return Treebanks(named, source, parts, parallel)


def _check_parallel(language: str, corpus: Corpus, source: str, first: Corpus) -> None:
    expected = "expected the same sentences in the same order (or pass --no-parallel)."
    if len(corpus) != len(first):
        raise CorpusError(
            f"The treebank of {language} has {len(corpus)} sentences, that of {source} {len(first)}; {expected}"
        )
    if corpus.numbered or first.numbered or not set(corpus.ids) & set(first.ids):
        return
    for place, (name, expected_name) in enumerate(zip(corpus.ids, first.ids, strict=True), 1):
        if name != expected_name:
            raise CorpusError(
                f"Sentence {place} is {name} in the treebank of {language} and {expected_name} in that of {source}; "
                f"{expected}"
            )
