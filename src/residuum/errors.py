"""The errors that a user's input can cause.

ResiduumError
├── SettingError   an option or argument has a value that cannot be used
│   └── MemoryLimitError   it would hold more than --max-memory allows
├── CorpusError    a text, treebank or table cannot be read, or two do not match
│   └── MissingSplitError   a dataset has no part of that name
├── ModelError     a model or tokenizer cannot be loaded or used this way
├── StoreError     an activation store or a run folder is damaged, missing or of another kind
│   └── OtherRunError   a folder holds the same kind of run, of other settings, models or data
└── DataError      the numbers cannot be analysed: NaN, one class, too few words

Every message says what was found, what was expected and what to do.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class ResiduumError(Exception):
    """The base of every error that a user's input can cause; the command line shows it in one line."""


class SettingError(ResiduumError, ValueError):
    """An option or argument has a value that cannot be used."""


class MemoryLimitError(SettingError):
    """The work would hold more memory than was allowed."""


class CorpusError(ResiduumError, ValueError):
    """A text, treebank or table cannot be read, or two of them do not match."""


class MissingSplitError(CorpusError):
    """A dataset has no part of that name."""


class ModelError(ResiduumError):
    """A model or tokenizer cannot be loaded, or cannot be used this way."""


class StoreError(ResiduumError):
    """An activation store or a run folder is damaged, missing or of another kind."""


class OtherRunError(StoreError):
    """A folder holds a run or activations of other settings, models or data than are asked for."""


class DataError(ResiduumError, ValueError):
    """The numbers cannot be analysed: NaN, one class, too few words."""


@contextmanager
def clear_panics(bare: bool = False) -> Iterator[None]:
    """Turn a panic of a tokenizer's Rust core into a ModelError: it is a BaseException, which nothing else catches.

    `bare` where nothing but a tokenizer runs: its other errors are of no kind but Exception.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException" and not (bare and type(error) is Exception):
            raise
        raise ModelError(
            f"The tokenizer failed on this text ({' '.join(str(error).split())}); its tokenizer.json has a pattern "
            "that cannot be matched, or lacks its unknown token. Mend it, or give another tokenizer."
        ) from None
