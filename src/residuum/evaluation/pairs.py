"""Translation pairs: a folder like Tatoeba's, one pair of its files, a table, or two text files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from residuum.corpus import Corpus, read_corpus, read_parallel
from residuum.errors import CorpusError, SettingError
from residuum.evaluation.settings import RetrievalSettings
from residuum.settings import plain_path

_SIDE = re.compile(r"(?P<stem>.*\b(?P<source>\w{2,3})-(?P<target>\w{2,3}))\.(?P<side>\w{2,3})")


@dataclass(frozen=True, eq=False)
class SentencePairs:
    """Sentence i of `source` and sentence i of `target` are translations of each other."""

    languages: tuple[str, str]
    source: list[str]
    target: list[str]
    left_out: int = 0  # pairs with a blank side

    @property
    def name(self) -> str:
        """Both languages, the source first."""
        return "-".join(self.languages)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all sentences."""
        text = json.dumps([self.source, self.target]).encode()
        return hashlib.blake2b(text, digest_size=16).hexdigest()

    def __len__(self) -> int:
        return len(self.source)


Sides = tuple[Path, Path, tuple[str, str]]


def chosen_pairs(settings: RetrievalSettings) -> list[SentencePairs]:
    """The language pairs of a retrieval, read where they are not in memory yet; each has at least two sentences."""
    pairs = settings.pairs
    if isinstance(pairs, SentencePairs):
        tasks = [pairs]
    elif isinstance(pairs, str | Path):
        options = {name: getattr(settings, name) for name in ("translations", "text", "pair", "limit")}
        tasks = read_pairs(pairs, only=settings.only or None, **options)
    else:
        tasks = list(pairs)
        if wrong := [task for task in tasks if not isinstance(task, SentencePairs)]:
            raise SettingError(f"pairs holds {wrong[0]!r:.80}; expected a path, or what read_pairs returned.")
    if not tasks:
        raise SettingError("No pairs of sentences were given; expected at least one list of them.")
    for task in tasks:
        if len(task) < 2:
            raise SettingError(f"{task.name} has {len(task)} pair of sentences; retrieval needs at least 2.")
    return tasks


def read_pairs(
    path: str | Path,
    translations: str | Path | None = None,
    *,
    only: Sequence[str] | None = None,
    text: str | int = 0,
    pair: str | int = 1,
    limit: int | None = None,
) -> list[SentencePairs]:
    """Read sentence pairs; each list of them is a retrieval task of its own.

    `path` is a folder with files such as `tatoeba.tur-eng.tur` and `tatoeba.tur-eng.eng`; the common stem of two such
    files; a table whose columns `text` and `pair` hold the two sides; or a text file with one sentence per line, with
    `translations` as the other one. `only` names language pairs of a folder, such as `tur-eng`.
    """
    path = plain_path("path", path)
    if translations is not None:
        translations = plain_path("translations", translations)
        for place in (path, translations):
            _check_exists(place)
        return [_two_files(path, translations, None, limit)]
    if path.is_dir():
        pairs = {"-".join(sides[2]): sides for sides in _files_by_stem(path).values()}
        if not pairs:
            raise CorpusError(
                f"{path} holds no pairs; expected files such as tatoeba.tur-eng.tur and tatoeba.tur-eng.eng."
            )
        missing = [name for name in only or () if name not in pairs]
        if missing:
            raise SettingError(f"{path} has no pair {missing[0]}; it has {', '.join(pairs)}.")
        return [_two_files(*pairs[name], limit) for name in only or pairs]
    if not path.exists() and (sides := _files_by_stem(path.parent).get(path.name)):
        return [_two_files(*sides, limit)]
    _check_exists(path)
    corpus = read_corpus(path, text=text, pair=pair, spacing="text", limit=limit)
    named = isinstance(text, str) and isinstance(pair, str)
    return [corpus_pairs(corpus, (str(text), str(pair)) if named else ("source", "target"))]


def corpus_pairs(corpus: Corpus, languages: tuple[str, str]) -> SentencePairs:
    """The pairs of a corpus whose second segments are translations."""
    if corpus.pairs is None:
        raise CorpusError(f"{corpus.name} has no second segments; expected the translation of every sentence.")
    return SentencePairs(
        languages=languages,
        source=[corpus.text(i) for i in range(len(corpus))],
        target=[corpus.pair_text(i) or "" for i in range(len(corpus))],
        left_out=sum(corpus.skipped.values()),
    )


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise CorpusError(f"{path} does not exist; expected a folder of pairs, a table, or a text file.")


def _files_by_stem(folder: Path) -> dict[str, Sides]:
    """The pairs of files of a folder, by the common stem of their names."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    matches = [match for name in names if (match := _SIDE.fullmatch(name)) and match["side"] == match["source"]]
    return {
        match["stem"]: (
            folder / match.string,
            folder / f"{match['stem']}.{match['target']}",
            (match["source"], match["target"]),
        )
        for match in matches
        if f"{match['stem']}.{match['target']}" in names
    }


def _two_files(source: Path, target: Path, languages: tuple[str, str] | None, limit: int | None) -> SentencePairs:
    """Two text files line by line; without language names they are named by what differs in their file names."""
    names = [(path.suffix[1:], path.name.partition(".")[0]) for path in (source, target)]
    differing = [(one, other) for one, other in zip(*names, strict=True) if one and other and one != other]
    first, second = read_parallel(
        {"source": source, "target": target}, format="lines", spacing="text", limit=limit
    ).values()
    return SentencePairs(
        languages=languages or next(iter(differing), ("source", "target")),
        source=[first.text(i) for i in range(len(first))],
        target=[second.text(i) for i in range(len(second))],
        left_out=sum(first.skipped.values()),
    )
