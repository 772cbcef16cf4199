"""The layouts of column files that are known."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

# By number of columns: WikiANN, CoNLL-2000 and CoNLL-2003.
_KNOWN_NAMES = {2: ("word", "ner"), 3: ("word", "pos", "chunk"), 4: ("word", "pos", "chunk", "ner")}
_PMB_NAMES = {"tok": "word", "cat": "ccg"}

_TAG = re.compile(r"[BIESLMU]-\S+|O")
_LANGUAGE_PREFIX = re.compile(r"([a-z][a-z-]{1,11}):")
_PMB_HEADER = re.compile(r"# tok(?::\w+)?\t")
_SPACES = re.compile(r"[ \t]+")


@dataclass(frozen=True)
class Layout:
    """How the lines of a column file are divided; a column named None is not kept."""

    names: tuple[str | None, ...]
    tabs: bool
    language: str | None = None
    is_pmb: bool = False

    @property
    def word_column(self) -> int:
        """The column of the word."""
        return self.names.index("word")

    def is_comment(self, line: str) -> bool:
        """Whether a line is a comment; never without tabs, as CoNLL-2000 has lines of the word `#`."""
        return self.tabs and line.startswith(("# ", "### ")) and (self.is_pmb or "\t" not in line)

    def cells(self, line: str) -> list[str]:
        """The columns of a line."""
        return line.split("\t") if self.tabs else _SPACES.split(line.strip(" \t"))

    def word(self, cell: str) -> str | None:
        """The word of a cell, without WikiANN's language (None if it differs), with spaces for PMB's `~`."""
        if self.language is not None:
            language, _, word = cell.partition(":")
            return word if language == self.language else None
        return cell.replace("~", " ") if self.is_pmb else cell


def detect_layout(lines: Iterable[str]) -> Layout | None:
    """The known layout that these first lines of a file have, or None."""
    lines = [line for line in lines if line.strip()]
    header = next((line for line in lines if _PMB_HEADER.match(line)), None)
    if header is not None:
        return _pmb_layout(header)
    plain = Layout((), tabs=any("\t" in line for line in lines))
    rows = [plain.cells(line) for line in lines if not plain.is_comment(line)]
    widths = {len(row) for row in rows}
    names = _KNOWN_NAMES.get(widths.pop()) if len(widths) == 1 else None
    if names is None or not all(_TAG.fullmatch(row[-1]) for row in rows):
        return None
    return Layout(names, plain.tabs, _common_language([row[0] for row in rows]))


def _pmb_layout(header: str) -> Layout:
    """The columns that PMB's header names, such as `tok:gold`; it gives the token twice, and the first counts."""
    layers = [cell.partition(":")[0] for cell in header.removeprefix("# ").split("\t")]
    return Layout(tuple(_PMB_NAMES.get(layer, layer) for layer in layers), tabs=True, is_pmb=True)


def _common_language(words: list[str]) -> str | None:
    """The language that every word begins with, as in WikiANN's `en:Paris`."""
    prefixes = {match[1] if (match := _LANGUAGE_PREFIX.match(word)) else None for word in words}
    return prefixes.pop() if len(prefixes) == 1 else None
