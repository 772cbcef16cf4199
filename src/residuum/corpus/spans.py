"""Where words stand in a text."""

from collections.abc import Sequence

Span = tuple[int, int]


def joined_spans(words: Sequence[str]) -> list[Span]:
    """The spans of words that are joined by single spaces."""
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return spans


def located_spans(tokens: Sequence[str], text: str) -> list[Span] | None:
    """The spans of tokens that make up the text apart from white space, or None if they do not."""
    spans, start = [], 0
    for token in tokens:
        start = _skip_space(text, start)
        if not text.startswith(token, start):
            return None
        spans.append((start, start + len(token)))
        start += len(token)
    return spans if _skip_space(text, start) == len(text) else None


def divided_span(span: Span, token: str, words: Sequence[str]) -> list[Span]:
    """The spans of the words of one token: its pieces if the words spell it, else all of it for each."""
    if "".join(words) != token:
        return [span] * len(words)
    spans, start = [], span[0]
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word)
    return spans


def _skip_space(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start
