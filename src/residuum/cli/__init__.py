"""The command line: one command per settings record, each a call of the Python function of the same name.

Nothing heavy is imported before a command runs, so that `residuum --help` answers at once.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from typing import Annotated

import typer

from residuum import __version__
from residuum.cli.commands import COMMANDS, LANGUAGES, QUESTIONS
from residuum.cli.generated import QuestionGroup, add_command
from residuum.errors import ResiduumError

__all__ = ["app", "main"]


class RootGroup(QuestionGroup):
    """The command `residuum` itself."""

    first_steps = (("demo", "See it work on a real model, in a few minutes"), *QuestionGroup.first_steps)


app = typer.Typer(
    name="residuum",
    cls=RootGroup,
    help="Find what a transformer repeats, and keep only what it needs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
evaluate_app = typer.Typer(
    cls=QuestionGroup,
    help="Measure how well models align languages, or predict text.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(evaluate_app, name="evaluate", rich_help_panel=LANGUAGES)
for _entry in sorted(COMMANDS, key=lambda entry: QUESTIONS.index(entry.question)):
    add_command(evaluate_app if _entry.name.startswith("evaluate ") else app, _entry)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"residuum {__version__}")
        raise typer.Exit


_OUT_OF_MEMORY = "Out of memory. Allow less at once (--max-memory, --layers, --batch-size), or give it less (--limit)."


class Interrupted(BaseException):
    """Ctrl-C, under a name that no library on the way catches."""


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and exit status 1."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    os.environ["RUST_BACKTRACE"] = "0"  # of a panic in a tokenizer one line is enough
    signal.signal(signal.SIGINT, _interrupt)
    hook, sys.unraisablehook = sys.unraisablehook, _unraisable
    try:
        _answer()
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C while Python exits would print a traceback


def _answer() -> None:
    """Run the command that was asked for; every expected end is an exit status and at most one line."""
    try:
        for word in sys.argv[1:]:  # half of the libraries that would read or write such names cannot
            if re.search("[\ud800-\udfff]", word):
                _fail(f"{ascii(word)[1:-1]} is not UTF-8, as names of files must be here; rename it.")
        app()
    except ResiduumError as error:
        _fail(str(error))
    except (Interrupted, KeyboardInterrupt):  # the second is what libraries raise
        _fail("Interrupted. What was finished is kept; the same command goes on from there.")
    except MemoryError:
        _fail(_OUT_OF_MEMORY)
    except OSError as error:  # names that are too long, folders that lead to themselves, output that nobody can hold
        _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}.")
    except RuntimeError as error:
        if "Symlink loop" in str(error):  # as Python before 3.13 says it
            _fail(f"{error}.")
        if not re.search(r"can't allocate memory|out of memory", str(error)):  # as torch says it
            raise
        _fail(_OUT_OF_MEMORY)


def _interrupt(*_: object) -> None:
    signal.signal(signal.SIGINT, _leave)
    raise Interrupted


def _leave(*_: object) -> None:
    """End at once at a second Ctrl-C; every file is whole or absent at any time."""
    os._exit(1)


def _unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Ctrl-C while Python tidies up an object is lost there with a traceback; it is sent again instead."""
    if not isinstance(unraisable.exc_value, Interrupted | KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    signal.signal(signal.SIGINT, _interrupt)
    threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()


def _fail(message: str) -> None:
    print(f"residuum: {message}", file=sys.stderr)
    raise SystemExit(1)
