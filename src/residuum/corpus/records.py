"""One record of a table, and what can be wrong with it."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import intern

from residuum.corpus.corpus import Column, Corpus, Options, SentenceLabels, WrittenText
from residuum.corpus.text_files import shortened, spaced_spans
from residuum.errors import CorpusError


@dataclass(frozen=True)
class Row:
    """One record: where it stands, its values, and what is wrong with it if it could not be read."""

    place: str
    values: Mapping[str, object]
    fault: str | None = None


class Fault(Exception):
    """What is wrong with one record."""


ANSWER_COLUMNS = ("label", "labels", "answer", "correct")
_LETTERS = "ABCDEFGH"
_CONTEXTS = (("context", "question"), ("premise", "question"), ("sent1", "sent2"), ("question", None))


@dataclass(frozen=True)
class ChoiceColumns:
    """The columns of a table of choices: one for each candidate, or one that holds them all.

    `first` is the number that an answer gives the first candidate.
    """

    context: str
    question: str | None
    candidates: tuple[str, ...]
    answer: str | None
    first: int = 0

    @property
    def all(self) -> list[str]:
        """Every column that is read."""
        return [c for c in (self.context, self.question, *self.candidates, self.answer) if c is not None]


# COPA and XCOPA, SIQA, SWAG: candidates in columns of their own, and the number of the first one.
_NUMBERED = (
    (("choice1", "choice2", "choice3", "choice4"), 0),
    (("answera", "answerb", "answerc", "answerd"), 1),
    (("ending0", "ending1", "ending2", "ending3"), 0),
)
_LISTED = ("options", "choices")


def known_choice_columns(columns: Sequence[str], lists: Iterable[str]) -> ChoiceColumns | None:
    """The columns of a multiple-choice table by their names, or None."""
    by_name = {column.strip().lower(): column for column in columns}
    candidates, start, lists = (), 0, frozenset(lists)
    for names, first in _NUMBERED:
        present = tuple(by_name[name] for name in names if name in by_name)
        if not candidates and len(present) >= 2:
            candidates, start = present, first
    listed = [by_name[name] for name in _LISTED if by_name.get(name) in lists]
    candidates = candidates or tuple(listed[:1])
    context = next(
        ((by_name[c], q and by_name[q]) for c, q in _CONTEXTS if c in by_name and (q is None or q in by_name)), None
    )
    if not candidates or context is None:
        return None
    answer = next((by_name[name] for name in ANSWER_COLUMNS if name in by_name), None)
    return ChoiceColumns(*context, candidates=candidates, answer=answer, first=start)


def answer_place(value: object, candidates: Sequence[str], first: int) -> str | None:
    """Which candidate an answer means, counted from 0, as text: by its number, its letter or its very words."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and value in candidates:
        return str(candidates.index(value))
    text = str(value).strip()
    if text.startswith("-") and text[1:].isdecimal():
        return None  # Hugging Face marks a missing label by a negative number
    numbered = text.isdecimal() and len(text) < 10
    place = int(text) - first if numbered else _LETTERS.find(text.upper()) if len(text) == 1 else -1
    if not 0 <= place < len(candidates):
        raise Fault(f"found the answer {value!r}; expected one of {len(candidates)} candidates, counted from {first}")
    return str(place)


# The columns that hold text in GLUE, XNLI and the like, in lower case: first and second segment.
TEXT_COLUMNS: tuple[tuple[str, str | None], ...] = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text_a", "text_b"),
    ("#1 string", "#2 string"),
    ("tokens", None),
    ("words", None),
    ("sentence", None),
    ("text", None),
)
LABEL_COLUMNS = ("label", "labels", "gold_label", "score", "quality", "is_duplicate")
REGRESSION_COLUMNS = ("score",)


@dataclass(frozen=True)
class Table:
    """Records that are still to be read, and what is known of their columns before.

    `rows` yields records with at least the columns it is given; `named` is false if these are only numbered.
    `lists` hold lists of plain values, `floats` fractions, and `class_names` say what numbers stand for.
    """

    source: str
    columns: list[str]
    rows: Callable[[list[str]], Iterator[Row]]
    named: bool = True
    lists: frozenset[str] = frozenset()
    floats: frozenset[str] = frozenset()
    class_names: Mapping[str, list[str]] = field(default_factory=dict)


PART_NAMES = (
    {"tr", "train", "training"},
    {"va", "dev", "development", "valid", "validation", "val"},
    {"te", "test"},
)
"""What a column `part` calls the parts of a corpus; SentEval has tr, va and te."""


def has_parts(table: Table) -> bool:
    """Whether a column says which part each row belongs to; the table's first row is read."""
    if not table.named or "part" not in table.columns:
        return False
    first = next(table.rows(["part"]), None)
    return first is not None and str(first.values.get("part")) in set().union(*PART_NAMES)


def _rows_of_part(table: Table, part: str) -> Table:
    """The rows that belong to one part: train, dev or test, whatever the column calls it."""
    names = next((names for names in PART_NAMES if part in names), {part})

    def rows(columns: list[str]) -> Iterator[Row]:
        for row in table.rows([*columns, "part"]):
            if row.fault is not None or str(row.values.get("part")) in names:
                yield row

    return replace(table, rows=rows)


def corpus_of_table(table: Table, options: Options) -> Corpus:
    """The corpus of a table: sentences with labels, pairs of them, choices, or lists of words with their labels."""
    if options.part is not None:
        table = _rows_of_part(table, options.part)
    choices = known_choice_columns(table.columns, table.lists) if table.named and options.text is None else None
    if choices is not None:
        return _choice_level(table, choices, options)
    known = known_text_columns(table.columns) if table.named else None
    if options.text is not None:
        text = _column(table, options.text, "text")
        pair = None if options.pair is None else _column(table, options.pair, "pair")
    elif known is not None:
        text, pair = known
    else:
        raise CorpusError(
            f"{table.source}: none of the columns is known to hold text; {_there_are(table)}. "
            "Name it, for instance text='sentence', or text=0 for the first column."
        )
    by_name = {column.strip().lower(): column for column in table.columns} if table.named else {}
    label = next((by_name[name] for name in LABEL_COLUMNS if name in by_name), None)
    if options.label is not None:
        label = _column(table, options.label, "label")
    if text in table.lists:
        return _word_level(table, text, label, options)
    return _sentence_level(table, text, pair, label, options)


def known_text_columns(columns: list[str]) -> tuple[str, str | None] | None:
    """The columns that hold the text by their names, or None."""
    by_name = {column.strip().lower(): column for column in columns}
    for first, second in TEXT_COLUMNS:
        if first in by_name and (second is None or second in by_name):
            return by_name[first], second and by_name[second]
    return None


def _column(table: Table, column: Column, what: str) -> str:
    if isinstance(column, int) and 0 <= column < len(table.columns):
        return table.columns[column]
    if isinstance(column, str) and column in table.columns:
        return column
    raise CorpusError(f"{table.source} has no column {column!r} for {what}; {_there_are(table)}.")


def _there_are(table: Table) -> str:
    if table.named:
        return "it has " + ", ".join(map(repr, table.columns))
    last = len(table.columns) - 1
    return f"its first line is not a header, so the columns are 0 to {last} unless columns= names them"


@dataclass(frozen=True)
class _Record:
    """What one row gives: its number, segments as written, words, sentence label, word labels and candidates."""

    number: int
    segments: list[str]
    words: list[str]
    target: str | float | None
    labels: dict[str, list[str | None]]
    choices: list[str] = field(default_factory=list)


def _sentence_level(table: Table, text: str, pair: str | None, label: str | None, options: Options) -> Corpus:
    columns = [text] if pair is None else [text, pair]
    regression = _is_regression(table, label, options)

    def parse(number: int, row: Row) -> _Record | None:
        segments = [row_text(row, column) for column in columns]
        target = None if label is None else _target(table, row, label, regression)
        filled = all(segment.strip() for segment in segments)
        return _Record(number, segments, segments[0].split(), target, {}) if filled else None

    records, skipped = _records(table, columns if label is None else [*columns, label], parse, options)
    return _corpus_of_segments(table, records, skipped, _targets(table, label, records), options)


def _choice_level(table: Table, columns: ChoiceColumns, options: Options) -> Corpus:
    """Contexts with their questions as pairs, and the candidates; the label is the right one's place from 0."""
    if options.label is not None:
        columns = replace(columns, answer=_column(table, options.label, "label"))
    segments = [columns.context] if columns.question is None else [columns.context, columns.question]

    def parse(number: int, row: Row) -> _Record | None:
        texts = [row_text(row, column) for column in segments]
        choices = _candidates(table, row, columns)
        target = None if columns.answer is None else answer_place(_value(row, columns.answer), choices, columns.first)
        filled = all(text.strip() for text in texts)
        return _Record(number, texts, texts[0].split(), target, {}, choices) if filled else None

    records, skipped = _records(table, columns.all, parse, options)
    labels: dict[str, SentenceLabels] = {} if columns.answer is None else {"label": [r.target for r in records]}
    corpus = _corpus_of_segments(table, records, skipped, labels, options)
    return replace(corpus, choices=[record.choices for record in records])


def _candidates(table: Table, row: Row, columns: ChoiceColumns) -> list[str]:
    if columns.candidates[0] in table.lists:
        found = _words(row, columns.candidates[0])
    else:
        found = [row_text(row, column) for column in columns.candidates]
    if len(found) < 2 or not all(candidate.strip() for candidate in found):
        raise Fault(f"found the candidates {found!r}; expected at least two, none of them blank")
    return found


def _corpus_of_segments(
    table: Table,
    records: list[_Record],
    skipped: dict[str, int],
    labels: dict[str, SentenceLabels],
    options: Options,
) -> Corpus:
    sentences = [record.words for record in records]
    texts = [record.segments[0] for record in records]
    pair_texts = [r.segments[1] for r in records] if records and len(records[0].segments) > 1 else None
    spans = spaced_spans(sentences, texts) if options.as_written else []
    return Corpus(
        name=table.source,
        sentences=sentences,
        sentence_labels=labels,
        pairs=None if pair_texts is None else [segment.split() for segment in pair_texts],
        ids=[str(record.number) for record in records],
        skipped=skipped,
        written=WrittenText(texts, spans, pair_texts) if options.as_written else None,
    )


def _word_level(table: Table, text: str, label: str | None, options: Options) -> Corpus:
    """Lists of words, with the labels asked for, or with all lists that are always as long as the words."""
    if options.as_written or options.pair is not None:
        raise CorpusError(f"{table.source} holds lists of words: it has neither pairs nor the text as written.")
    asked = label if options.label is not None and label in table.lists else None
    names = sorted(table.lists - {text}) if asked is None else [asked]
    sentence_label = None if label in table.lists else label
    regression = _is_regression(table, sentence_label, options)

    def parse(number: int, row: Row) -> _Record | None:
        words = _words(row, text)
        labels = {name: _word_labels(table, row, name) for name in names}
        if asked is not None and len(labels[asked]) != len(words):
            raise Fault(f"found {len(labels[asked])} labels {asked!r}; expected {len(words)}, one per word")
        target = None if sentence_label is None else _target(table, row, sentence_label, regression)
        return _Record(number, [], words, target, labels) if words else None

    needed = [text, *names] if sentence_label is None else [text, *names, sentence_label]
    records, skipped = _records(table, needed, parse, options)
    fitting = [name for name in names if all(len(record.labels[name]) == len(record.words) for record in records)]
    if len(fitting) < len(names):
        skipped["columns whose lists do not fit the words"] = len(names) - len(fitting)
    return Corpus(
        name=table.source,
        sentences=[record.words for record in records],
        labels={name: [record.labels[name] for record in records] for name in fitting},
        sentence_labels=_targets(table, sentence_label, records),
        ids=[str(record.number) for record in records],
        skipped=skipped,
    )


def _records(
    table: Table, columns: list[str], parse: Callable[[int, Row], _Record | None], options: Options
) -> tuple[list[_Record], dict[str, int]]:
    """The records that can be used, up to the limit, and the counts of the others, unless one is an error."""
    records: list[_Record] = []
    skipped: Counter[str] = Counter()
    for number, row in enumerate(table.rows(columns), 1):
        try:
            record = parse(number, row)
        except Fault as fault:
            if options.on_error == "raise":
                remedy = "on_error='skip' leaves it out"
                raise CorpusError(f"{table.source}, {row.place}: {shortened(str(fault))} ({remedy}).") from None
            skipped["malformed rows"] += 1
            continue
        if record is None:
            skipped["blank texts"] += 1
        else:
            records.append(record)
        if len(records) == options.limit:
            break
    return records, dict(skipped)


def _targets(table: Table, label: str | None, records: list[_Record]) -> dict[str, SentenceLabels]:
    if label is None:
        return {}
    return {label if table.named else "label": [record.target for record in records]}


def _is_regression(table: Table, label: str | None, options: Options) -> bool:
    if options.regression is not None or label is None:
        return bool(options.regression)
    return label in table.floats or (table.named and label.strip().lower() in REGRESSION_COLUMNS)


def _value(row: Row, column: str) -> object:
    if row.fault is not None:
        raise Fault(row.fault)
    if column not in row.values:
        raise Fault(f"found no {column!r}; expected it as in the first record")
    return row.values[column]


def row_text(row: Row, column: str) -> str:
    """The text in a column of a row; nothing there is an empty text, anything but text is a Fault."""
    value = _value(row, column)
    return "" if value is None else _unicode(value, f"{column!r}")


def _words(row: Row, column: str) -> list[str]:
    return [_unicode(word, "a word") for word in _list(row, column)]


def _unicode(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise Fault(f"found {value!r} for {what}; expected text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Fault(f"found half a surrogate pair in {what}; expected Unicode text") from None
    return value


def _list(row: Row, column: str) -> list:
    value = _value(row, column)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Fault(f"found {value!r} for {column!r}; expected a list as in the first record")
    return value


def _word_labels(table: Table, row: Row, column: str) -> list[str | None]:
    names = table.class_names.get(column)
    return [_label(value, names) for value in _list(row, column)]


def _target(table: Table, row: Row, column: str, regression: bool) -> str | float | None:
    value = _value(row, column)
    return _number(value) if regression else _label(value, table.class_names.get(column))


def _number(value: object) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise Fault(f"found the label {value!r}; expected a number (or regression=False)") from None
    if not math.isfinite(number):
        raise Fault(f"found the label {value!r}; expected a finite number")
    return number


def _label(value: object, class_names: list[str] | None) -> str | None:
    """A class as text; Hugging Face numbers the classes and marks a missing one by a negative number."""
    if value is None or value == "":
        return None
    if class_names is not None and isinstance(value, int):
        return class_names[value] if value >= 0 else None
    if isinstance(value, float):
        return None if math.isnan(value) else f"{value:g}"
    if isinstance(value, str):
        return intern(_unicode(value, "a label"))
    return str(value)


RIGHT, WRONG = "right", "wrong"


def candidate_pairs(corpus: Corpus) -> Corpus:
    """A sentence for each candidate: the context and its question, then the candidate, labelled right or wrong.

    A corpus without candidates is returned as it is.
    """
    if corpus.choices is None:
        return corpus
    places = [(i, place) for i, candidates in enumerate(corpus.choices) for place in range(len(candidates))]
    labels: dict[str, SentenceLabels] = {
        name: [None if answers[i] is None else RIGHT if str(place) == answers[i] else WRONG for i, place in places]
        for name, answers in corpus.sentence_labels.items()
    }
    contexts = [[*corpus.text(i).split(), *(corpus.pair_text(i) or "").split()] for i in range(len(corpus))]
    return Corpus(
        name=corpus.name,
        sentences=[contexts[i] for i, _ in places],
        sentence_labels=labels,
        pairs=[corpus.choices[i][place].split() for i, place in places],
        ids=[f"{corpus.ids[i]}.{place + 1}" for i, place in places],
        language=corpus.language,
        skipped=corpus.skipped,
        numbered=False,
    )
