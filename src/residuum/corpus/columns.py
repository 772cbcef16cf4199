"""The layouts of column files that are known."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from sys import intern

from residuum.corpus.corpus import Corpus, Options, Sentence, Span, corpus_of_sentences, joined_spans, located_spans
from residuum.corpus.text_files import Line, blocks, comment_values, first_lines, malformed
from residuum.errors import CorpusError, SettingError

# By number of columns: WikiANN, CoNLL-2000 and CoNLL-2003.
_KNOWN_NAMES = {2: ("word", "ner"), 3: ("word", "pos", "chunk"), 4: ("word", "pos", "chunk", "ner")}
_PMB_NAMES = {"tok": "word", "cat": "ccg"}

_UPOS = frozenset("ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X CONJ . PRT _".split())
_TAG = re.compile(r"[BIESLMU]-\S+|O")
_LANGUAGE_PREFIX = re.compile(r"([a-z][a-z-]{1,11}):")
_PMB_HEADER = re.compile(r"# tok(?::\w+)?\t")
_SPACES = re.compile(r"[ \t]+")


@dataclass(frozen=True)
class ColumnLayout:
    """How the lines of a column file are divided; a column named None is not kept."""

    names: tuple[str | None, ...]
    tabs: bool
    language: str | None = None
    is_pmb: bool = False
    delimiter: str | None = None

    @property
    def word_column(self) -> int:
        """The column of the word."""
        return self.names.index("word")

    def is_comment(self, line: str) -> bool:
        """Whether a line is a comment; never without tabs, as CoNLL-2000 has lines of the word `#`."""
        return self.tabs and line.startswith(("# ", "### ")) and (self.is_pmb or "\t" not in line)

    def cells(self, line: str) -> list[str]:
        """The columns of a line."""
        if self.delimiter is not None and self.delimiter.strip():
            return line.split(self.delimiter)
        return line.split("\t") if self.tabs else _SPACES.split(line.strip(" \t"))

    def word(self, cell: str) -> str | None:
        """The word of a cell, without WikiANN's language (None if it differs), with spaces for PMB's `~`."""
        if self.language is not None:
            language, _, word = cell.partition(":")
            return word if language == self.language else None
        return cell.replace("~", " ") if self.is_pmb else cell


def detect_layout(lines: Iterable[str]) -> ColumnLayout | None:
    """The known layout that these first lines of a file have, or None."""
    lines = [line for line in lines if line.strip()]
    header = next((line for line in lines if _PMB_HEADER.match(line)), None)
    if header is not None:
        # Such as `tok:gold`; PMB gives the token twice, and the first counts.
        layers = [cell.partition(":")[0] for cell in header.removeprefix("# ").split("\t")]
        return ColumnLayout(tuple(_PMB_NAMES.get(layer, layer) for layer in layers), tabs=True, is_pmb=True)
    plain = ColumnLayout((), tabs=any("\t" in line for line in lines))
    rows = [plain.cells(line) for line in lines if not plain.is_comment(line)]
    widths = {len(row) for row in rows}
    if widths == {2} and all(row[1] in _UPOS for row in rows):  # masakhaPOS
        return ColumnLayout(("word", "upos"), plain.tabs)
    names = _KNOWN_NAMES.get(widths.pop()) if len(widths) == 1 else None
    if names is None or not all(_TAG.fullmatch(row[-1]) for row in rows):
        return None
    # In WikiANN every word begins with its language, as in `en:Paris`.
    prefixes = {match[1] if (match := _LANGUAGE_PREFIX.match(row[0])) else None for row in rows}
    return ColumnLayout(names, plain.tabs, prefixes.pop() if len(prefixes) == 1 else None)


def read_columns(path: Path, options: Options) -> Corpus:
    """A column file of a known layout, or of the columns that `columns` names: `word` and others, or None.

    Known: CoNLL-2000 (`pos`, `chunk`), CoNLL-2003 (`pos`, `chunk`, `ner`), WikiANN (`ner`; words with and
    without `lang:`), two columns of words and universal part-of-speech tags (`upos`, as in masakhaPOS), and
    the Parallel Meaning Bank (`sym`, `sem`, `ccg`, `sns`, `rol`; its `~` is a space).
    """
    layout = _layout(path, options)
    skipped: Counter[str] = Counter()
    every = blocks(path)
    if options.header:
        every = chain([next(every, [])[1:]], every)
    sentences: list[Sentence] = []
    for block in every:
        lines = [line for _, line in block if not layout.is_comment(line)]
        if len(lines) == 1 and lines[0].startswith("-DOCSTART-"):  # CoNLL-2003 marks where a document starts
            skipped["document marks"] += 1
        elif lines:
            sentences.append(_sentence(path, layout, block, options, skipped))
        if len(sentences) == options.limit:
            break
    return replace(corpus_of_sentences(path.name, sentences, skipped), language=layout.language)


def _layout(path: Path, options: Options) -> ColumnLayout:
    lines = first_lines(path)[1 if options.header else 0 :]
    detected, columns, delimiter = detect_layout(lines), options.columns, options.delimiter
    if columns is not None:
        if list(columns).count("word") != 1:
            raise SettingError(f"columns is {list(columns)}; expected exactly one of them to be 'word'.")
        tabs = any("\t" in line for line in lines) if delimiter is None else delimiter == "\t"
        return replace(detected or ColumnLayout((), tabs), names=tuple(columns), tabs=tabs, delimiter=delimiter)
    if detected is None:
        first = next((line for line in lines if line.strip()), "")
        raise CorpusError(
            f"{path} has no known column layout: its first line is {first[:60]!r}. "
            "Name the columns, for instance columns=['word', 'pos']."
        )
    return detected


def _sentence(path: Path, layout: ColumnLayout, block: list[Line], options: Options, skipped: Counter[str]) -> Sentence:
    comments = comment_values(line for _, line in block if layout.is_comment(line))
    rows = [_row(path, layout, number, line) for number, line in block if not layout.is_comment(line)]
    words = [intern(row[layout.word_column]) for row in rows]
    labels: dict[str, list[str | None]] = {
        name: [intern(row[column]) or None for row in rows]
        for column, name in enumerate(layout.names)
        if name is not None and name != "word"
    }
    written = _written(path, block[0][0], words, comments, skipped) if options.as_written else None
    return Sentence(words, labels, comments.get("sent_id") or None, written)


def _row(path: Path, layout: ColumnLayout, number: int, line: str) -> list[str]:
    cells = layout.cells(line)
    if len(cells) != len(layout.names):
        names = ", ".join(name or "(none)" for name in layout.names)
        found = f"{len(cells)} {'tab' if layout.tabs else 'space'}-separated columns in {line[:60]!r}"
        raise malformed(path, number, found, f"{len(layout.names)}: {names}")
    cell = cells[layout.word_column]
    word = layout.word(cell)
    if not word:
        raise malformed(
            path, number, f"{cell!r}", f"a word after '{layout.language}:'" if layout.language else "a word"
        )
    cells[layout.word_column] = word
    return cells


def _written(
    path: Path, number: int, words: list[str], comments: dict[str, str], skipped: Counter[str]
) -> tuple[str, list[Span]]:
    text = comments.get("raw sent", comments.get("text"))
    if text is None:
        raise malformed(path, number, "a sentence without its text", "a text comment (or spacing='words')")
    spans = located_spans(words, text)
    if spans is not None:
        return text, spans
    skipped["texts that the words do not spell"] += 1
    return " ".join(words), joined_spans(words)
