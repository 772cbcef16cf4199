"""Parallel corpora: several texts whose sentences correspond one to one."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat, zip_longest
from typing import Any

from residuum.corpus.corpus import Corpus
from residuum.corpus.reading import read_corpus
from residuum.errors import CorpusError, SettingError

# What readers leave out but number all the same, so that two files stay in step.
_NUMBERED_GAPS = ("blank lines", "blank texts", "malformed rows")

Path = str | os.PathLike[str]


def read_parallel(sources: Mapping[str, Path] | Sequence[Path], **options: Any) -> dict[str, Corpus]:
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


def _read_all(sources: Mapping[str, Path] | Sequence[Path], options: dict[str, Any]) -> dict[str, Corpus]:
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
        for number, (expected, found) in enumerate(zip_longest(reference.ids, corpus.ids, fillvalue="missing"), 1):
            if expected != found:
                raise CorpusError(
                    f"{first} and {name} are not in step: sentence {number} is {expected} in {first}, "
                    f"but {found} in {name}."
                )
    _check_equal({name: len(corpus) for name, corpus in corpora.items()})
    return corpora


def _check_equal(totals: dict[str, int]) -> None:
    if len(set(totals.values())) > 1:
        counts = ", ".join(f"{name} has {total}" for name, total in totals.items())
        raise CorpusError(f"The corpora are not in step: {counts} sentences; expected as many in each.")
