"""Write the pages of docs/reference from the program itself.

    python docs/reference.py

cli.md: what a command takes is read from the signature of its function, so the page does not depend on the version of
typer. python.md: the public names by the room they live in; mkdocstrings fills in their docstrings.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo, CommandInfo, OptionInfo

import residuum
from residuum.cli import app

FOLDER = Path(__file__).parent / "reference"
CLI_HEAD = """# Command line

Written by `docs/reference.py` from the program itself.

Every command is the Python function of the same name. `residuum --help` lists the commands and
`residuum VERB --help` shows what is below; `python -m residuum` is the same program. `residuum --version` shows the
version.

Exit status: 0 done, 1 failed with one line on standard error that says what was found, what was expected and what to
do, 2 wrong usage.
"""
PYTHON_HEAD = """# Python

Written by `docs/reference.py` from the program itself.

Everything below is imported from `residuum` and loaded on first use, so `import residuum` is quick. The version is
`residuum.__version__`. What a user's input can cause is a `ResiduumError`; its children are `SettingError`,
`CorpusError`, `ModelError`, `StoreError` and `DataError` of `residuum.errors`.
"""
FIRST_ROOMS = ("corpus", "models", "activations")  # in the order of use; the others follow by name


@dataclass(frozen=True)
class Parameter:
    """One argument or option of a command."""

    name: str
    kind: Any  # the Python type, without `None` and without typer's annotation
    default: Any  # Parameter.empty where there is none
    info: ArgumentInfo | OptionInfo

    @property
    def is_option(self) -> bool:
        """Whether it is given by name."""
        return isinstance(self.info, OptionInfo)

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is inspect.Parameter.empty

    @property
    def flags(self) -> list[str]:
        """The names of an option, the long one first."""
        # inside Annotated, typer takes the first name for a default
        names = (self.info.default, *(self.info.param_decls or ()))
        declared = [name for name in names if isinstance(name, str) and name.startswith("-")]
        plain = f"--{self.name.replace('_', '-')}"
        if not declared:
            declared = [f"{plain}/--no-{plain[2:]}"] if self.kind is bool else [plain]
        return sorted(declared, key=lambda flag: not flag.startswith("--"))

    @property
    def several(self) -> bool:
        """Whether it may be given more than once."""
        return get_origin(self.kind) in (list, tuple, set)

    @property
    def metavar(self) -> str:
        """How the value of an argument is called."""
        name = self.info.metavar or self.name.upper()
        return f"{name} …" if self.several and not name.endswith("…") else name


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "cli.md").write_text(cli_page(), encoding="utf-8")
    (FOLDER / "python.md").write_text(python_page(), encoding="utf-8")


def cli_page() -> str:
    """Every command with its arguments and options."""
    commands = [("", command) for command in app.registered_commands]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        commands += [(f"{group.name} ", command) for command in group.typer_instance.registered_commands]
    shown = (_command(command, prefix) for prefix, command in commands if not command.hidden)
    return "\n".join([CLI_HEAD, *(line for lines in shown for line in lines)])


def python_page() -> str:
    """Every public name, by room, for mkdocstrings."""
    homes = {name: home.split(".")[1] for name, home in residuum._HOMES.items()}
    names = sorted(homes, key=lambda name: (_room_order(homes[name]), name.lower()))
    rooms = groupby(names, key=homes.__getitem__)
    return "\n".join([PYTHON_HEAD, *(line for room, own in rooms for line in _room(room, own))])


def _command(command: CommandInfo, prefix: str) -> Iterator[str]:
    """A command's section; `prefix` is the group that it belongs to."""
    assert command.callback is not None
    name = prefix + (command.name or command.callback.__name__.replace("_", "-"))
    parameters = list(_parameters(command.callback))
    arguments = [p for p in parameters if not p.is_option]
    options = [p for p in parameters if p.is_option]
    yield from (f"## residuum {name}", "", command.help or inspect.getdoc(command.callback) or "", "")
    yield from ("```text", _usage(name, arguments, options), "```", "")
    if arguments:
        yield from ("| argument | meaning |", "|---|---|", *map(_argument_row, arguments), "")
    if options:
        yield from ("| option | value | default | meaning |", "|---|---|---|---|", *map(_option_row, options), "")


def _parameters(function: Any) -> Iterator[Parameter]:
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints[name]
        assert get_origin(hint) is Annotated, f"{name} of {function.__name__} has no typer annotation"
        kind, info = get_args(hint)[:2]
        yield Parameter(name, _without_none(kind), parameter.default, info)


def _without_none(kind: Any) -> Any:
    if get_origin(kind) not in (Union, UnionType):
        return kind
    (only,) = (one for one in get_args(kind) if one is not NoneType)
    return only


def _usage(name: str, arguments: list[Parameter], options: list[Parameter]) -> str:
    needed = [f"{p.flags[0]} {_value(p)}" for p in options if p.required]
    values = [p.metavar if p.required else f"[{p.metavar}]" for p in arguments]
    rest = ["[OPTIONS]"] if any(not p.required for p in options) else []
    return " ".join(["residuum", name, *values, *needed, *rest])


def _argument_row(parameter: Parameter) -> str:
    return f"| `{parameter.metavar}` | {_cell(parameter.info.help)} |"


def _option_row(parameter: Parameter) -> str:
    flags = ", ".join(f"`{flag}`" for flag in parameter.flags)
    return f"| {flags} | {_cell(_value(parameter))} | {_default(parameter)} | {_cell(parameter.info.help)} |"


def _value(parameter: Parameter) -> str:
    """What an option takes: its choices, or the kind of value, with its bounds."""
    kind = get_args(parameter.kind)[0] if parameter.several else parameter.kind
    if parameter.info.metavar:
        return parameter.info.metavar
    if kind is bool:
        return ""
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    bounds = [f"{sign} {bound}" for sign, bound in (("≥", parameter.info.min), ("≤", parameter.info.max)) if bound]
    name = {Path: "PATH", int: "INTEGER", float: "NUMBER"}.get(kind, "TEXT")
    return " ".join([name, *bounds])


def _default(parameter: Parameter) -> str:
    if parameter.required:
        return "required"
    if parameter.kind is bool:
        return "on" if parameter.default else ""
    if parameter.default is None:
        return ""
    return f"`{parameter.default}`"


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _room_order(room: str) -> tuple[int, str]:
    return (FIRST_ROOMS.index(room) if room in FIRST_ROOMS else len(FIRST_ROOMS), room)


def _room(room: str, names: Iterable[str]) -> Iterator[str]:
    yield from (f"## residuum.{room}", "", _first_line(f"residuum.{room}"), "")
    for name in names:
        yield from (f"::: {residuum._HOMES[name]}.{name}", "")


def _first_line(module: str) -> str:
    """The first line of a module's docstring, without importing it."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    return (docstring or "").partition("\n")[0]


if __name__ == "__main__":
    main()
