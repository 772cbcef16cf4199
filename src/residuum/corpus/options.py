"""What the reader of a format may be asked for, checked before a file is opened."""

from collections.abc import Sequence
from dataclasses import dataclass

from residuum.errors import SettingError

Column = str | int

_TABLE = frozenset({"text", "pair", "label", "regression", "on_error"})
_USED_BY = {
    "conllu": frozenset[str](),
    "columns": frozenset({"columns"}),
    "lines": frozenset[str](),
    "tsv": _TABLE | {"columns"},
    "csv": _TABLE | {"columns"},
    "json": _TABLE,
    "jsonl": _TABLE,
    "parquet": _TABLE,
    "dataset": _TABLE,
}


@dataclass(frozen=True)
class Options:
    """The settings of `read_corpus` that reach the reader of a format."""

    limit: int | None = None
    spacing: str = "words"
    text: Column | None = None
    pair: Column | None = None
    label: Column | None = None
    columns: Sequence[str | None] | None = None
    regression: bool | None = None
    on_error: str = "raise"

    def __post_init__(self) -> None:
        if self.limit is not None and (not isinstance(self.limit, int) or self.limit < 1):
            raise SettingError(f"limit is {self.limit!r}; expected a whole number of at least 1.")
        if self.spacing not in ("words", "text"):
            raise SettingError(f"spacing is {self.spacing!r}; expected 'words' or 'text'.")
        if self.on_error not in ("raise", "skip"):
            raise SettingError(f"on_error is {self.on_error!r}; expected 'raise' or 'skip'.")
        if self.pair is not None and self.text is None:
            raise SettingError(f"pair is {self.pair!r} without text; name the column of the first segment too.")

    @property
    def as_written(self) -> bool:
        """Whether the text is kept as its source writes it."""
        return self.spacing == "text"

    def check_for(self, format: str) -> None:
        """Refuse a setting that the format has no use for, rather than pass over it."""
        given = {name for name in _TABLE | {"columns"} if getattr(self, name) != getattr(Options, name)}
        if unused := given - _USED_BY[format]:
            name = min(unused)
            value = getattr(self, name)
            raise SettingError(f"{name} is {value!r}, but means nothing for the format {format!r}; leave it out.")
