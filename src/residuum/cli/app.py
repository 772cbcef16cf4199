"""The command line and its groups of commands, still empty."""

from __future__ import annotations

from typing import Annotated

import typer

from residuum import __version__

app = typer.Typer(
    name="residuum",
    help="Find what a transformer repeats, and keep only what it needs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

evaluate_app = typer.Typer(
    help="Measure how well models align languages, or predict text.", no_args_is_help=True, rich_markup_mode=None
)

study_app = typer.Typer(help="Run the whole chain of one paper.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(evaluate_app, name="evaluate")
app.add_typer(study_app, name="study")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"residuum {__version__}")
        raise typer.Exit
