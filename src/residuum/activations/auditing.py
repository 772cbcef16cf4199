"""What became of the texts that a run read, as a table that is kept with its results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from residuum.models.alignment import Audit

if TYPE_CHECKING:
    import pandas as pd

COUNTS = {
    "sentences": "sentences",
    "words": "words",
    "subwords": "sub-words",
    "dropped": "dropped",
    "truncated": "truncated",
    "unknown": "unknown",
    "windowed": "in windows",
}


@runtime_checkable
class Audited(Protocol):
    """Activations that can tell what was read for them: a store, or a model over a corpus."""

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash of the model and the words."""
        ...

    @property
    def text_name(self) -> str:
        """The name of the text that was read."""
        ...

    @property
    def left_out(self) -> Mapping[str, int]:
        """What of the text's file was not read, and how often."""
        ...

    @property
    def audit(self) -> Audit:
        """What became of the text's words."""
        ...


def audit_table(sources: Iterable[Audited], names: Iterable[str] | None = None) -> pd.DataFrame:
    """A row for each text that a model read; `names` are those of the models where they are not their own.

    The same activations given twice (as parts of a split are) stand there once. Counts that a store of another
    program does not know are missing.
    """
    import pandas as pd

    sources = list(sources)
    called = [source.name for source in sources] if names is None else list(names)
    rows = {(name, source.fingerprint): _row(name, source) for name, source in zip(called, sources, strict=True)}
    table = pd.DataFrame(rows.values(), columns=["model", "text", *COUNTS.values(), "not read", "examples"])
    return table.astype(dict.fromkeys(COUNTS.values(), "Int64"))


def _row(name: str, source: Audited) -> dict[str, Any]:
    audit = source.audit
    # Activations that another program wrote come without an audit, which is told from a text without losses.
    counts = {title: getattr(audit, count) if audit.sentences else None for count, title in COUNTS.items()}
    left_out = ", ".join(f"{count:,} {what}" for what, count in source.left_out.items() if count)
    examples = "; ".join(audit.examples)
    return {"model": name, "text": source.text_name, **counts, "not read": left_out, "examples": examples}
