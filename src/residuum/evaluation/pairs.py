"""Pairs of translations: a folder in the manner of Tatoeba, one pair of files in it, a table, or two text files."""

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

_SIDE = re.compile(r"(?P<stem>.*\b(?P<source>\w{2,3})-(?P<target>\w{2,3}))\.(?P<side>\w{2,3})")


@dataclass(frozen=True, eq=False)
class SentencePairs:
    """Sentence i of `source` and sentence i of `target` say the same."""

    languages: tuple[str, str]
    source: list[str]
    target: list[str]
    left_out: int = 0  # pairs of which a side was blank

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


def read_pairs(
    path: str | Path,
    translations: str | Path | None = None,
    *,
    only: Sequence[str] | None = None,
    text: str | int = 0,
    pair: str | int = 1,
    limit: int | None = None,
) -> list[SentencePairs]:
    """Read pairs of sentences; each list of them is a retrieval task of its own.

    `path` is a folder with files such as `tatoeba.tur-eng.tur` and `tatoeba.tur-eng.eng`; the name of two such files
    without their ending; a table whose columns `text` and `pair` hold the two sides; or a text file, a sentence a line,
    with `translations` another one. `only` names the pairs of a folder that are wanted, such as `tur-eng`.
    """
    path = Path(path)
    if translations is not None:
        return [_two_files(_existing(path), _existing(Path(translations)), None, limit)]
    if path.is_dir():
        return [_two_files(*sides, limit) for sides in _wanted(path, only)]
    if not path.exists() and (sides := _sides(path.parent).get(path.name)):
        return [_two_files(*sides, limit)]
    return [_table(_existing(path), text, pair, limit)]


Sides = tuple[Path, Path, tuple[str, str]]


def corpus_pairs(corpus: Corpus, languages: tuple[str, str]) -> SentencePairs:
    """The pairs of a corpus whose second segments are translations."""
    if corpus.pairs is None:
        raise CorpusError(f"{corpus.name} has no second segments; expected the translation of every sentence.")
    return SentencePairs(
        languages=languages,
        source=[corpus.text(i) for i in range(len(corpus))],
        target=[corpus.pair_text(i) or "" for i in range(len(corpus))],
        left_out=_left_out(corpus.skipped),
    )


def _existing(path: Path) -> Path:
    if not path.exists():
        raise CorpusError(f"{path} does not exist; expected a folder of pairs, a table, or a text file.")
    return path


def _wanted(folder: Path, only: Sequence[str] | None) -> list[Sides]:
    found = {"-".join(sides[2]): sides for sides in _sides(folder).values()}
    if not found:
        raise CorpusError(
            f"{folder} holds no pairs; expected files such as tatoeba.tur-eng.tur and tatoeba.tur-eng.eng."
        )
    missing = [name for name in only or () if name not in found]
    if missing:
        raise SettingError(f"{folder} has no pair {missing[0]}; it has {', '.join(found)}.")
    return [found[name] for name in only or found]


def _sides(folder: Path) -> dict[str, Sides]:
    """The pairs of files of a folder by what their names have in common."""
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
    languages = languages or _file_languages(source, target)
    corpora = read_parallel(
        dict(zip(("source", "target"), (source, target), strict=True)), format="lines", spacing="text", limit=limit
    )
    first, second = corpora.values()
    return SentencePairs(
        languages=languages,
        source=[first.text(i) for i in range(len(first))],
        target=[second.text(i) for i in range(len(second))],
        left_out=_left_out(first.skipped),
    )


def _file_languages(source: Path, target: Path) -> tuple[str, str]:
    """What the files are called by: their endings where these differ, else their names, else their roles."""
    for one, other in (
        (source.suffix[1:], target.suffix[1:]),
        (source.name.partition(".")[0], target.name.partition(".")[0]),
    ):
        if one and other and one != other:
            return one, other
    return "source", "target"


def _table(path: Path, text: str | int, pair: str | int, limit: int | None) -> SentencePairs:
    corpus = read_corpus(path, text=text, pair=pair, spacing="text", limit=limit)
    named = isinstance(text, str) and isinstance(pair, str)
    return corpus_pairs(corpus, (str(text), str(pair)) if named else ("source", "target"))


def _left_out(skipped: dict[str, int]) -> int:
    return sum(skipped.values())
