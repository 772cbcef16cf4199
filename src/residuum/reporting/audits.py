"""The audit of a run: what became of the texts that its models read."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from residuum.errors import StoreError
from residuum.reporting.content import Finding, Section, Table
from residuum.reporting.wording import count

AUDIT = "audit"
COLUMNS = ("model", "text", "words", "sub-words", "dropped", "truncated", "unknown", "not read")
CAPTION = (
    "What became of the words of each text in each model: dropped have no sub-word, truncated lie beyond the model's "
    "window, unknown have a piece outside its vocabulary; not read is what the reader of the file left out. Only "
    "dropped and truncated words have no activations. Activations of another program tell no counts."
)


def with_audit(section: Section, audit: pd.DataFrame) -> Section:
    """A section that also says, and shows as its last table, what was lost of the texts."""
    if missing := [column for column in COLUMNS if column not in audit.columns]:
        raise StoreError(
            f"{section.source or 'This run'} is not whole: its table audit has no {', '.join(missing)}. "
            f"Run `{section.command}` again with --fresh."
        )
    table = Table(AUDIT, audit, CAPTION, folded=True)
    findings = (*section.findings, Finding("Audit", _sentence(audit)))
    return replace(section, findings=findings, tables=(*section.tables, table))


def _sentence(audit: pd.DataFrame) -> str:
    """What was lost of all texts in all models together, and of which the most."""
    known = audit.loc[audit["words"].notna()]
    if known.empty:
        return "The activations were written by another program, which tells nothing of what it lost."
    words, pieces, unknown = (int(known[column].sum()) for column in ("words", "sub-words", "unknown"))
    lost = (known["dropped"] + known["truncated"]).astype(int)
    read = f"{_readings(known)} took {count(words, 'word')} as {count(pieces, 'sub-word')}"
    if not lost.any():
        return f"{read}; none was lost, {unknown:,} had unknown pieces.{_not_read(known)}"
    worst = known.loc[lost.idxmax()]
    return (
        f"{read}; {count(int(lost.sum()), 'word')} ({lost.sum() / words:.2%}) were lost, most in {worst['text']} by "
        f"{worst['model']} ({worst['dropped']:,} without a sub-word, {worst['truncated']:,} beyond the window); "
        f"{unknown:,} had unknown pieces.{_not_read(known)}"
    )


def _readings(known: pd.DataFrame) -> str:
    if len(known) == 1:
        row = known.iloc[0]
        return f"{row['model']} reading {row['text']}"
    models, texts = set(known["model"]), set(known["text"])
    return f"{count(len(models), 'model')} reading {count(len(texts), 'text')}, counted together,"


def _not_read(known: pd.DataFrame) -> str:
    left_out = known.loc[known["not read"] != ""].drop_duplicates("text")
    parts = "; ".join(f"{row['not read']} of {row['text']}" for row in left_out.to_dict("records"))
    return f" Not read: {parts}." if parts else ""
