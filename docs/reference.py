"""Write the pages of docs/reference from the program itself.

    python docs/reference.py

cli.md: what a command takes is read from its settings record. python.md: the public names by the room they live in;
mkdocstrings fills in their docstrings.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import residuum
from residuum.cli.commands import COMMANDS
from residuum.cli.generated import CommandEntry, default_text, flags, loaded, metavar, usage
from residuum.settings import GROUPS, Argument, Command, SettingField, setting_fields

FOLDER = Path(__file__).parent / "reference"
CLI_HEAD = """# Command line

Every command is the Python function of the same name; its options are that function's keywords and the keys of a YAML
file (`--config FILE`). `residuum --help` lists the commands and `residuum VERB --help` shows what is below;
`python -m residuum` is the same program. `--json` prints a result as JSON. `residuum --version` shows the version.

Exit status: 0 done, 1 failed with one line on standard error (what was found, what was expected, what to do), 2 wrong
usage.
"""
PYTHON_HEAD = """# Python

Everything below is imported from `residuum` and loaded on first use, so `import residuum` is quick. The version is
`residuum.__version__`. Errors that a user's input can cause are a `ResiduumError`; its children are `SettingError`,
`CorpusError`, `ModelError`, `StoreError` and `DataError` of `residuum.errors`.
"""
FIRST_ROOMS = ("corpus", "models", "activations")  # in the order of use; the others follow by name


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "cli.md").write_text(cli_page(), encoding="utf-8")
    (FOLDER / "python.md").write_text(python_page(), encoding="utf-8")


def cli_page() -> str:
    """Every command with its arguments and options."""
    return "\n".join([CLI_HEAD, *(line for entry in COMMANDS for line in _command(entry))])


def python_page() -> str:
    """Every public name, by room, for mkdocstrings."""
    homes = {name: home.split(".")[1] for name, home in residuum._HOMES.items()}
    names = sorted(homes, key=lambda name: (_room_order(homes[name]), name.lower()))
    rooms = groupby(names, key=homes.__getitem__)
    return "\n".join([PYTHON_HEAD, *(line for room, own in rooms for line in _room(room, own))])


def _command(entry: CommandEntry) -> Iterator[str]:
    record = loaded(entry.record)
    fields = [setting for setting in setting_fields(record) if setting.option.cli]
    arguments = [setting for setting in fields if isinstance(setting.option, Argument)]
    yield from (f"## residuum {entry.name}", "", f"{entry.summary}. {_details(entry)}".strip(), "")
    yield from ("```text", f"residuum {entry.name} {usage(record)}", "```", "")
    if record.example:
        yield from ("For example:", "", "```text", record.example, "```", "")
    if arguments:
        rows = [f"| `{metavar(setting)}` | {_cell(setting.option.help)} |" for setting in arguments]
        yield from ("| argument | meaning |", "|---|---|", *rows, "")
    options = [setting for setting in fields if setting not in arguments]
    if options:
        rows = [_option_row(setting) for setting in sorted(options, key=lambda s: GROUPS.index(s.option.group))]
        yield from ("| | option | default | meaning |", "|---|---|---|---|", *rows, "")


def _details(entry: CommandEntry) -> str:
    """The function's docstring after its first sentence, as one paragraph."""
    text = inspect.getdoc(loaded(entry.verb)) or ""
    return " ".join(text.partition("\n\n")[2].split("\n\n")[0].split())


def _option_row(setting: SettingField) -> str:
    default = "required" if setting.required else default_text(setting)
    return f"| {setting.option.group} | `{_cell(flags(setting))}` | {_cell(default)} | {_cell(setting.option.help)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _room_order(room: str) -> tuple[int, str]:
    return (FIRST_ROOMS.index(room) if room in FIRST_ROOMS else len(FIRST_ROOMS), room)


def _room(room: str, names: Iterable[str]) -> Iterator[str]:
    yield from (f"## residuum.{room}", "", _first_line(f"residuum.{room}"), "")
    for name in names:
        yield from (f"::: {residuum._HOMES[name]}.{name}", "")
        if result := _result(name):
            yield from (f"::: {residuum._HOMES[name]}.{result}", "")


def _result(name: str) -> str | None:
    """The class that a command returns, where it stands in the command's own module."""
    verb = getattr(residuum, name)
    returned = str(inspect.signature(verb).return_annotation) if isinstance(verb, Command) else ""
    kind = getattr(import_module(residuum._HOMES[name]), returned, None)
    return returned if isinstance(kind, type) and kind.__module__ == residuum._HOMES[name] else None


def _first_line(module: str) -> str:
    """The first line of a module's docstring, without importing it."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    return (docstring or "").partition("\n")[0]


if __name__ == "__main__":
    main()
