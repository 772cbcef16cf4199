"""Column files: a word a line with its labels, a blank line between sentences."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from sys import intern

from residuum.corpus.corpus import Corpus
from residuum.corpus.files import Line, blocks, comment_values, first_lines, malformed
from residuum.corpus.layouts import Layout, detect_layout
from residuum.corpus.options import Options
from residuum.corpus.sentences import Sentence, corpus_of_sentences
from residuum.corpus.spans import Span, joined_spans, located_spans
from residuum.errors import CorpusError, SettingError


def read_columns(path: Path, options: Options) -> Corpus:
    """A column file of a known layout, or of the columns that `columns` names: `word` and others, or None.

    Known: CoNLL-2000 (`pos`, `chunk`), CoNLL-2003 (`pos`, `chunk`, `ner`), WikiANN (`ner`; words with and
    without `lang:`), and the Parallel Meaning Bank (`sym`, `sem`, `ccg`, `sns`, `rol`; its `~` is a space).
    """
    layout = _layout(path, options.columns)
    skipped: Counter[str] = Counter()
    holding = (block for block in blocks(path) if _holds_sentence(layout, block, skipped))
    sentences = [_sentence(path, layout, block, options, skipped) for block in islice(holding, options.limit)]
    return replace(corpus_of_sentences(path.name, sentences, skipped), language=layout.language)


def _layout(path: Path, columns: Sequence[str | None] | None) -> Layout:
    lines = first_lines(path)
    detected = detect_layout(lines)
    if columns is not None:
        if list(columns).count("word") != 1:
            raise SettingError(f"columns is {list(columns)}; expected exactly one of them to be 'word'.")
        plain = Layout((), tabs=any("\t" in line for line in lines))
        return replace(detected or plain, names=tuple(columns))
    if detected is None:
        first = next((line for line in lines if line.strip()), "")
        raise CorpusError(
            f"{path} has no known column layout: its first line is {first[:60]!r}. "
            "Name the columns, for instance columns=['word', 'pos']."
        )
    return detected


def _holds_sentence(layout: Layout, block: list[Line], skipped: Counter[str]) -> bool:
    """Whether a block has words; CoNLL-2003 marks the start of a document like a sentence."""
    lines = [line for _, line in block if not layout.is_comment(line)]
    is_mark = len(lines) == 1 and lines[0].startswith("-DOCSTART-")
    skipped["document marks"] += is_mark
    return bool(lines) and not is_mark


def _sentence(path: Path, layout: Layout, block: list[Line], options: Options, skipped: Counter[str]) -> Sentence:
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


def _row(path: Path, layout: Layout, number: int, line: str) -> list[str]:
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
