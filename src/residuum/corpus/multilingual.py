"""Corpora of several languages: parallel texts that are read in step, and a treebank per language."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat, zip_longest
from typing import Any

from residuum.corpus.corpus import Corpus, split_indices
from residuum.corpus.reading import read_corpus
from residuum.corpus.tasks import Task, read_whole
from residuum.errors import CorpusError, SettingError

TextPath = str | os.PathLike[str]
CorpusSource = Corpus | TextPath
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
# What readers leave out but number all the same, so that two files stay in step.
_NUMBERED_GAPS = ("blank lines", "blank texts", "malformed rows")


def read_parallel(sources: Mapping[str, TextPath] | Sequence[TextPath], **options: Any) -> dict[str, Corpus]:
    """Read several corpora in step, each with the options of `read_corpus`.

    Treebanks must have the same `sent_id`s in the same order; a corpus without them must have as many
    sentences. Lines and rows that are blank in one file are left out of all, and counted. `limit` is for what
    is left then: the files are read whole. Without a mapping, a corpus goes by its language, or by its name.
    """
    for setting in ("name", "language"):
        if setting in options:
            raise SettingError(
                f"{setting} is {options[setting]!r}, but there are several corpora; name them by a mapping."
            )
    limit = options.pop("limit", None)
    corpora = _read_all(sources, options)
    if len(corpora) < 2:
        raise SettingError(f"Found {len(corpora)} parallel corpus; expected at least 2.")
    in_step = _by_number(corpora) if all(corpus.numbered for corpus in corpora.values()) else _by_id(corpora)
    return in_step if limit is None else {name: corpus.limit(limit) for name, corpus in in_step.items()}


def _read_all(sources: Mapping[str, TextPath] | Sequence[TextPath], options: dict[str, Any]) -> dict[str, Corpus]:
    if isinstance(sources, str | bytes | os.PathLike) or not isinstance(sources, Iterable):
        raise SettingError(f"sources is {str(sources)!r}; expected several paths, or a mapping from names to paths.")
    if isinstance(sources, Mapping):
        return {name: read_corpus(path, **options) for name, path in sources.items()}
    corpora = [read_corpus(path, **options) for path in sources]
    languages = [corpus.language for corpus in corpora if corpus.language is not None]
    for names in (languages, [corpus.name for corpus in corpora]):
        if len(set(names)) == len(corpora):
            return dict(zip(names, corpora, strict=True))
    raise SettingError(f"Two of the corpora have the same name ({', '.join(names)}); name them by a mapping.")


def _by_number(corpora: dict[str, Corpus]) -> dict[str, Corpus]:
    """The sentences whose number every corpus has, of files with as many lines or rows."""
    totals = {
        name: len(corpus) + sum(map(corpus.skipped.get, _NUMBERED_GAPS, repeat(0))) for name, corpus in corpora.items()
    }
    _check_equal(totals)
    common = set.intersection(*(set(corpus.ids) for corpus in corpora.values()))
    if not common:
        raise CorpusError(f"No sentence is in all of {', '.join(corpora)}; each is blank in at least one of them.")
    restricted = {}
    for name, corpus in corpora.items():
        kept = [index for index, sentence_id in enumerate(corpus.ids) if sentence_id in common]
        skipped = corpus.skipped | {"sentences that another corpus lacks": len(corpus) - len(kept)}
        whole = len(kept) == len(corpus)
        restricted[name] = corpus if whole else replace(corpus.select(kept), skipped=skipped)
    return restricted


def _by_id(corpora: dict[str, Corpus]) -> dict[str, Corpus]:
    """The corpora as they are, if those that have ids have the same, and all the same number of sentences."""
    (first, reference), *others = [(name, corpus) for name, corpus in corpora.items() if not corpus.numbered]
    for name, corpus in others:
        for number, (first_id, other_id) in enumerate(zip_longest(reference.ids, corpus.ids, fillvalue="missing"), 1):
            if first_id != other_id:
                raise CorpusError(
                    f"{first} and {name} are not in step: sentence {number} is {first_id} in {first}, "
                    f"but {other_id} in {name}."
                )
    _check_equal({name: len(corpus) for name, corpus in corpora.items()})
    return corpora


def _check_equal(totals: dict[str, int]) -> None:
    if len(set(totals.values())) > 1:
        counts = ", ".join(f"{name} has {total}" for name, total in totals.items())
        raise CorpusError(f"The corpora are not in step: {counts} sentences; expected as many in each.")


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
