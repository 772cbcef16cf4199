"""CoNLL-U treebanks (universaldependencies.org/format.html), read strictly.

The parser is our own: the `conllu` package takes several times as long on a large treebank, and lets
wrong ids and heads pass.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, takewhile
from pathlib import Path
from sys import intern

from residuum.corpus.corpus import Corpus, Options, Sentence, Span, corpus_of_sentences, divided_span, located_spans
from residuum.corpus.text_files import Line, blocks, comment_values, malformed

N_COLUMNS = 10
ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD, DEPREL, _DEPS, MISC = range(N_COLUMNS)

_RANGE = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_EMPTY_NODE = re.compile(r"([0-9]{1,9})\.[1-9][0-9]*")


def read_conllu(path: Path, options: Options) -> Corpus:
    """The syntactic words of a treebank with all their labels.

    Labels: `upos`, `xpos`, `lemma`, `head`, `deprel`, `deprel_main` (without subtype) and each feature by
    its key (`Number`); `_` is None, and a label that no word has is absent. Multiword ranges and empty
    nodes are left out and counted. The text as written is the `text` comment if the tokens spell it, else the
    tokens joined as `SpaceAfter` says.
    """
    skipped: Counter[str] = Counter()
    sentences = []
    holding = (block for block in blocks(path) if not block[-1][1].startswith("#"))  # more than comments
    for block in islice(holding, options.limit):
        lines = _parsed(path, block)
        skipped["multiword ranges"] += len(lines.ranges)
        skipped["empty nodes"] += lines.n_empty_nodes
        sentences.append(_sentence(path, lines, options.as_written, skipped))
    return corpus_of_sentences(path.name, sentences, skipped)


@dataclass(frozen=True)
class _Token:
    """A token of the written text: one word, or the words `first` to `last` of a multiword range."""

    form: str
    first: int
    last: int
    space_after: bool


@dataclass
class _Lines:
    """The lines of one sentence: of each word the ten columns and the line number, and what is not a word."""

    comments: dict[str, str]
    words: list[list[str]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    ranges: list[_Token] = field(default_factory=list)
    n_empty_nodes: int = 0


def _parsed(path: Path, block: list[Line]) -> _Lines:
    comments = list(takewhile(lambda line: line[1].startswith("#"), block))
    sentence = _Lines(comment_values(line for _, line in comments))
    for number, line in block[len(comments) :]:
        fields = line.split("\t")
        if len(fields) != N_COLUMNS:
            raise malformed(path, number, _described(line, len(fields)), f"{N_COLUMNS} columns (CoNLL-U)")
        if "" in fields:
            raise malformed(path, number, f"an empty column {fields.index('') + 1}", "a value, or _ for none")
        if fields[ID] == str(len(sentence.words) + 1):
            sentence.words.append(fields)
            sentence.numbers.append(number)
        else:
            _add_special(path, number, fields, sentence)
    n_words, last = len(sentence.words), block[-1][0]
    if not n_words:
        raise malformed(path, last, "a sentence without words", "at least the word 1")
    if sentence.ranges and sentence.ranges[-1].last > n_words:
        words = f"words {sentence.ranges[-1].first} to {sentence.ranges[-1].last} of a range"
        raise malformed(path, last, f"the end of the sentence at word {n_words}", words)
    allowed = _heads(n_words)
    for number, word in zip(sentence.numbers, sentence.words, strict=True):
        if word[HEAD] not in allowed:
            raise malformed(path, number, f"the head {word[HEAD]!r}", f"a number from 0 to {n_words}, or _ for none")
        if word[HEAD] == word[ID]:
            raise malformed(path, number, f"word {word[ID]} as its own head", "another word, or 0 for the root")
    return sentence


def _described(line: str, n_columns: int) -> str:
    if line.startswith("#"):
        return "a comment inside a sentence (is the blank line before it missing?)"
    return f"{n_columns} tab-separated column{'s' if n_columns != 1 else ''} in {line[:60]!r}"


def _add_special(path: Path, number: int, fields: list[str], sentence: _Lines) -> None:
    """A multiword range or an empty node; any other id is a fault."""
    next_word = len(sentence.words) + 1
    covered = sentence.ranges[-1].last if sentence.ranges else 0
    if match := _RANGE.fullmatch(fields[ID]):
        first, last = int(match[1]), int(match[2])
        if not covered < first == next_word <= last:
            expected = f"one that starts at word {max(next_word, covered + 1)}"
            raise malformed(path, number, f"the range {fields[ID]}", expected)
        sentence.ranges.append(_Token(fields[FORM], first, last, _space_after(fields)))
    elif (match := _EMPTY_NODE.fullmatch(fields[ID])) and int(match[1]) == next_word - 1:
        sentence.n_empty_nodes += 1
    else:
        raise malformed(path, number, f"the id {fields[ID]!r}", f"the id {next_word} of the next word")


def _space_after(fields: list[str]) -> bool:
    return "SpaceAfter=No" not in fields[MISC].split("|")


@lru_cache(maxsize=1000)
def _heads(n_words: int) -> frozenset[str]:
    return frozenset(map(str, range(n_words + 1))) | {"_"}


def _sentence(path: Path, lines: _Lines, as_written: bool, skipped: Counter[str]) -> Sentence:
    return Sentence(
        words=[intern(word[FORM]) for word in lines.words],
        labels=_column_labels(lines.words) | _feature_labels(path, lines),
        id=lines.comments.get("sent_id") or None,
        written=_written(lines, skipped) if as_written else None,
    )


def _column_labels(words: list[list[str]]) -> dict[str, list[str | None]]:
    deprels = _labels(words, DEPREL)
    labels = {
        "upos": _labels(words, UPOS),
        "xpos": _labels(words, XPOS),
        # an underscore has the lemma _, which otherwise stands for none
        "lemma": [None if word[LEMMA] == "_" != word[FORM] else intern(word[LEMMA]) for word in words],
        "head": _labels(words, HEAD),
        "deprel": deprels,
        "deprel_main": [deprel and intern(deprel.partition(":")[0]) for deprel in deprels],
    }
    return {name: values for name, values in labels.items() if any(values)}


def _labels(words: list[list[str]], column: int) -> list[str | None]:
    return [None if word[column] == "_" else intern(word[column]) for word in words]


def _feature_labels(path: Path, lines: _Lines) -> dict[str, list[str | None]]:
    labels: dict[str, list[str | None]] = {}
    for position, word in enumerate(lines.words):
        features = _features(word[FEATS])
        if features is None:
            expected = "Key=Value pairs joined by |, or _ for none"
            raise malformed(path, lines.numbers[position], f"the features {word[FEATS]!r}", expected)
        for key, value in features.items():
            if key not in labels:
                labels[key] = [None] * len(lines.words)
            labels[key][position] = value
    return labels


@lru_cache(maxsize=10_000)
def _features(feats: str) -> dict[str, str] | None:
    """The values by key, or None if malformed; several values of a key are joined by commas, as in UD."""
    values: dict[str, list[str]] = {}
    # treebanks in the wild have || between features, which loses nothing
    for pair in filter(None, feats.split("|")) if feats != "_" else ():
        key, _, value = pair.partition("=")
        if not key or not value:
            return None
        if value not in values.setdefault(key, []):
            values[key].append(value)
    return {key: ",".join(several) for key, several in values.items()}


def _written(lines: _Lines, skipped: Counter[str]) -> tuple[str, list[Span]]:
    """The text and the span of each word in it."""
    ranges = {token.first: token for token in lines.ranges}
    tokens: list[_Token] = []
    position = 1
    while position <= len(lines.words):
        fields = lines.words[position - 1]
        tokens.append(ranges.get(position) or _Token(fields[FORM], position, position, _space_after(fields)))
        position = tokens[-1].last + 1
    text = lines.comments.get("text")
    token_spans = located_spans([token.form for token in tokens], text) if text is not None else None
    if text is None or token_spans is None:
        skipped["texts that the tokens do not spell"] += text is not None
        text, token_spans = "", []
        for token in tokens:
            token_spans.append((len(text), len(text) + len(token.form)))
            text += token.form + (" " if token.space_after else "")
        text = text[: token_spans[-1][1]]
    words = [word[FORM] for word in lines.words]
    spans = [
        divided_span(span, token.form, words[token.first - 1 : token.last])
        for token, span in zip(tokens, token_spans, strict=True)
    ]
    return text, [span for several in spans for span in several]
