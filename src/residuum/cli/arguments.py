"""What is given on the command line, as the Python functions take it; and other libraries kept silent."""

from __future__ import annotations

from typing import Any

import typer


def quiet_libraries() -> None:
    """Keep other libraries' progress bars and notices off the screen."""
    import warnings

    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore")


def gigabytes(amount: float | None) -> int | None:
    """Gigabytes as bytes; None is no bound."""
    if amount is None:
        return None
    if not 0 <= amount < 1e9:
        raise typer.BadParameter(f"found {amount} gigabytes; expected from 0 to what a machine can have.")
    return int(amount * 1e9)


def column(name: str | None) -> Any:
    """A column's name, or its number in a file without a header."""
    return int(name) if name is not None and name.isdecimal() else name


def named_texts(texts: list[str]) -> Any:
    """Texts by name where all are given as NAME=FILE, else as they are."""
    named = [text.partition("=") for text in texts]
    return {name: path for name, _, path in named} if all(path for _, _, path in named) else texts


def names(text: str) -> list[str]:
    """`3:17,5:2` as a list."""
    return [part.strip() for part in text.split(",") if part.strip()]


def numbers(text: str) -> list[float]:
    """`0,0.1` as numbers."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"found {text!r}; expected numbers separated by commas.") from None


def two_numbers(text: str) -> tuple[float, float]:
    """`0.9,0.1` as a pair."""
    found = numbers(text)
    if len(found) != 2:
        raise typer.BadParameter(f"found {text!r}; expected two numbers separated by a comma.")
    return found[0], found[1]


def named_values(text: str) -> dict[str, str]:
    """`sw=Bantu,eu=Basque` as a mapping."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and value.strip() for name, _, value in pairs):
        raise typer.BadParameter(f"found {text!r}; expected NAME=VALUE, several separated by commas.")
    return {name.strip(): value.strip() for name, _, value in pairs}
