"""Raw text: a sentence a line."""

from pathlib import Path

from residuum.corpus.corpus import Corpus, WrittenText
from residuum.corpus.files import numbered_lines
from residuum.corpus.options import Options
from residuum.corpus.spans import Span, located_spans


def read_lines(path: Path, options: Options) -> Corpus:
    """A sentence a line, words by white space; blank lines are left out, and ids are line numbers."""
    sentences: list[list[str]] = []
    ids: list[str] = []
    texts: list[str] = []
    blank = 0
    for number, line in numbered_lines(path):
        if words := line.split():
            sentences.append(words)
            ids.append(str(number))
            if options.as_written:
                texts.append(line)
        else:
            blank += 1
        if len(sentences) == options.limit:
            break
    return Corpus(
        name=path.name,
        sentences=sentences,
        ids=ids,
        skipped={"blank lines": blank} if blank else {},
        written=WrittenText(texts, spaced_spans(sentences, texts)) if options.as_written else None,
    )


def spaced_spans(sentences: list[list[str]], texts: list[str]) -> list[list[Span]]:
    """The spans of words that were split off their text by white space."""
    located = [located_spans(words, text) for words, text in zip(sentences, texts, strict=True)]
    assert None not in located
    return [spans for spans in located if spans is not None]
