"""Groups of options that commands share."""

from __future__ import annotations

import typer
from typer.testing import CliRunner

from residuum.cli.groups import Learning, Reading, grouped

app = typer.Typer()


@app.command()
@grouped
def _show(out: str, most: int = 3, *, learning: Learning, seed: int = 0, reading: Reading) -> None:
    """Show what arrived."""
    typer.echo(f"{out} {most} {seed} {learning} {reading.options}")


def test_a_group_is_one_option_for_each_of_its_fields():
    shown = CliRunner().invoke(app, ["here", "--epochs", "4", "--standardize", "--limit", "7", "--seed", "2"])
    assert shown.exit_code == 0, shown.output
    expected = {"dev": None, "test": None, "format": None, "limit": 7, "device": "auto"}
    assert shown.output.strip() == f"here 3 2 {Learning(epochs=4, standardize=True)} {expected}"


def test_the_help_lists_options_in_the_order_of_the_parameters():
    text = CliRunner().invoke(app, ["--help"]).output
    places = [text.index(option) for option in ("--most", "--norm", "--standardize", "--seed", "--dev", "--device")]
    assert places == sorted(places)
    assert "Show what arrived." in text


def test_values_out_of_an_options_range_are_refused_as_elsewhere():
    refused = CliRunner().invoke(app, ["here", "--epochs", "0"])
    assert refused.exit_code == 2
    assert "--epochs" in refused.output
