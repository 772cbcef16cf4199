"""Commands of the command line, generated from their settings records.

An option's name, type, default, bounds and help come from the record; nothing is stated here. Values reach the record
as text, so Python, YAML and the command line share one set of checks.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from residuum.errors import ResiduumError, SettingError
from residuum.settings import GROUPS, Argument, InvalidSettingError, SettingField, Settings, section, setting_fields


@dataclass(frozen=True)
class CommandEntry:
    """One row of the table of commands.

    `record` and `verb` are `module:name`; the record's module imports nothing heavy, the verb's is loaded when the
    command runs. `page` writes a report page beside the result.
    """

    name: str
    record: str
    verb: str
    summary: str
    question: str
    page: bool = False


def add_command(app: typer.Typer, entry: CommandEntry) -> None:
    """Add a command to an app (or to one of its groups)."""
    record = loaded(entry.record)
    parameters = [_parameter(setting) for setting in setting_fields(record) if setting.option.cli]
    parameters += [_extra("config", str | None, None, "YAML file of settings; options take precedence", "output")]
    parameters += [_extra("json", bool, False, "Print the result as JSON", "output")]
    if record.estimates:
        parameters += [_extra("estimate", bool, False, "Estimate time and memory, then exit", "where it runs")]

    def run(**values: Any) -> None:
        _run(entry, record, values)

    run.__dict__["__signature__"] = inspect.Signature(parameters)  # typer reads this and the annotations
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    name = entry.name.split()[-1]
    command = type("RecordCommand", (_GroupedCommand,), {"record": record, "path": entry.name})
    app.command(
        name,
        cls=command,
        help=entry.summary if entry.summary.endswith("?") else f"{entry.summary}.",
        rich_help_panel=entry.question,
    )(run)


def _run(entry: CommandEntry, record: type[Settings], values: dict[str, Any]) -> None:
    """Build the record, run the command and print its result."""
    as_json, estimate = values.pop("json"), values.pop("estimate", False)
    settings = _settings(record, values, optional=("out",) if estimate else ())
    quiet_libraries()
    verb = loaded(entry.verb)
    try:
        result = verb.estimate(settings) if estimate else verb(settings)
        if isinstance(result, Iterator):
            for line in result:
                print(json.dumps(line, ensure_ascii=False) if as_json else line, flush=True)
            return
    except ResiduumError as error:
        error.args = (in_options(str(error), record), *error.args[1:])
        raise
    if as_json:
        typer.echo(json.dumps(_for_machines(result), default=str, ensure_ascii=False))
    elif estimate:
        typer.echo(str(result))
    elif result is not None:
        _show(entry, settings, result)


def _for_machines(result: Any) -> dict[str, Any]:
    """What `--json` prints: the summary and rows of a run, the path of a file, the fields of a store or an estimate."""
    if hasattr(result, "run"):
        return {"summary": result.run.summary, "rows": json.loads(result.frame.to_json(orient="records"))}
    if hasattr(result, "audit"):
        return {"path": result.path, "layers": result.layers, "rows": result.n_rows, **asdict(result.audit)}
    if is_dataclass(result) and not isinstance(result, type):
        return asdict(result)
    return {"path" if isinstance(result, Path) else "text": result}


def _show(entry: CommandEntry, settings: Settings, result: Any) -> None:
    """Print a result: as a table in a terminal, as plain text elsewhere."""
    out, tables = getattr(settings, "out", None), ""
    if entry.page and out is not None:
        from residuum.reporting.report import report

        report([out], Path(out) / "report.html")
    if hasattr(result, "run") and out is not None:
        tables = f"Tables: {out}" + (f"; figures: {Path(out) / 'report.html'}" if entry.page else "")
    with result.clear_errors() if hasattr(result, "clear_errors") else nullcontext():
        if hasattr(result, "run") and sys.stdout.isatty():
            from rich.console import Console

            from residuum.cli.terminal import show

            show(result.run, Console(), tables=tables)
            return
        typer.echo(f"{result} is written." if isinstance(result, Path) else getattr(result, "text", lambda: result)())
    if tables:
        typer.echo(tables)


def _settings(record: type[Settings], values: Mapping[str, Any], optional: Sequence[str] = ()) -> Any:
    """The record from the options, with the values of a YAML file where an option is not given."""
    arguments = [setting.name for setting in setting_fields(record) if isinstance(setting.option, Argument)]
    given = {
        name: value if name in arguments else _value(value)
        for name, value in values.items()
        if value not in (None, [], ())
    }
    try:
        if (config := given.pop("config", None)) is not None:
            given = _with_yaml(record, given, Path(config))
        required = [s for s in setting_fields(record) if s.required and s.option.cli and s.name not in optional]
        if missing := [s for s in required if s.name not in given]:
            names = ", ".join(metavar(s) if isinstance(s.option, Argument) else s.flag for s in missing)
            raise SettingError(f"Missing {names}; see --help.")
        return record(**given)
    except InvalidSettingError as error:
        setting = next((s for s in setting_fields(record) if s.name == error.field), None)
        if setting is not None:
            usage_error(f"{metavar(setting) if isinstance(setting.option, Argument) else setting.flag} {error.problem}")
        usage_error(str(error))
    except SettingError as error:
        usage_error(in_options(str(error), record))


def _with_yaml(record: type[Settings], given: dict[str, Any], config: Path) -> dict[str, Any]:
    """The options over the keys of a YAML file; of a section, one by one."""
    from residuum.storage.schemas import read_yaml

    stored = read_yaml(config, SettingError, "Give a YAML file of settings.")
    names = {setting.name for setting in setting_fields(record)}
    if unknown := [key for key in stored if key not in names]:
        raise SettingError(f"{config} has the unknown setting {unknown[0]!r}; {record.__name__} lists the known ones.")
    sections = {s.name for s in setting_fields(record) if s.option.parse is section}
    for name in sections & given.keys() & stored.keys():
        given[name] = {**(stored[name] or {}), **section(given[name])}
    return {**stored, **given}


def in_options(message: str, record: type[Settings]) -> str:
    """A message whose hints name options: `text='sentence'` becomes `--text sentence`, `by is` becomes `--by is`.

    So do lists: `pass exactly one of layers and keep` names `--layers and --keep`.
    """
    options = {s.name: s.flag for s in setting_fields(record) if s.option.cli and not isinstance(s.option, Argument)}
    names = "|".join(sorted(options, key=len, reverse=True))

    def assigned(match: re.Match[str]) -> str:
        value = re.sub(r"['\[\] ]", "", match[2])
        if value in ("True", "False"):
            return options[match[1]] if value == "True" else options[match[1]].replace("--", "--no-")
        return f"{options[match[1]]} {value}".rstrip()

    chain = rf"((?:Found|pass|pass exactly one of) )((?:{names})(?:(?:, | and | or )(?:{names}))+)(?![\w-])"
    message = re.sub(chain, lambda m: m[1] + re.sub(rf"\b({names})\b", lambda n: options[n[1]], m[2]), message)
    message = re.sub(rf"(?<![\w./-])({names})=(\[[^\]]*\]|'[^']*'|[\w.]*\w|(?=[ ;,.)]))", assigned, message)
    return re.sub(rf"(^|[.;] |, | and |pass |give )({names})(?= (is|are) )", lambda m: m[1] + options[m[2]], message)


def usage_error(message: str) -> None:
    """End with one line on standard error and exit status 2."""
    typer.echo(f"residuum: {message}", err=True)
    raise typer.Exit(2)


def quiet_libraries() -> None:
    """Keep other libraries' progress bars and notices off the screen."""
    import warnings

    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore")


class QuestionGroup(TyperGroup):
    """Help that lists commands under the question that they answer, with whole summaries."""

    first_steps: tuple[tuple[str, str], ...] = (("COMMAND --help", "Options by group, with defaults and an example"),)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """One section per question."""
        rows: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                question = command.rich_help_panel if isinstance(command.rich_help_panel, str) else "Commands"
                rows.setdefault(question, []).append((name, (command.help or "").partition("\n")[0]))
        for question, commands in rows.items():
            formatter.write_paragraph()
            formatter.write(f"{question if len(rows) > 1 else 'Commands:'}\n")
            with formatter.indentation():
                formatter.write_dl(commands)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """What to type first."""
        with formatter.section("Start with"):
            formatter.write_dl([(f"{ctx.command_path} {words}", text) for words, text in self.first_steps])


class _GroupedCommand(TyperCommand):
    """Help with a usage line that can be typed, options by group with their defaults, and one example."""

    record: type[Settings]
    path: str

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        """The arguments and required options by name."""
        formatter.write_usage(ctx.command_path, usage(self.record))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """One section per group."""
        rows: dict[str, list[tuple[str, str]]] = {}
        for setting in setting_fields(self.record):
            if isinstance(setting.option, Argument):
                rows.setdefault("arguments", []).append((metavar(setting), _help(setting)))
            elif setting.option.cli:
                rows.setdefault(setting.option.group, []).append((flags(setting), _help(setting)))
        extras = [p for p in self.get_params(ctx) if p.name in ("config", "json", "estimate", "help")]
        for parameter in extras:
            record = parameter.get_help_record(ctx)
            if record is not None:
                rows.setdefault("output", []).append(
                    (record[0].replace("<str>", "FILE").replace("TEXT", "FILE"), record[1])
                )
        for group in sorted(rows, key=lambda name: (name != "arguments", [*GROUPS, name].index(name))):
            with formatter.section(group.capitalize()):
                formatter.write_dl(rows[group])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """One example."""
        if self.record.example:
            with formatter.section("Example"):
                formatter.write(f"{'':>{formatter.current_indent}}{self.record.example}\n")  # one line, to copy


def usage(record: type[Settings]) -> str:
    """What must be typed after the command's name."""
    pieces = []
    for setting in setting_fields(record):
        if isinstance(setting.option, Argument):
            name = metavar(setting) + (" …" if _is_sequence(setting.kind) else "")
            pieces.append(name if setting.required else f"[{name}]")
        elif setting.required and setting.option.cli:
            pieces.append(f"{setting.flag} {metavar(setting)}")
    return " ".join([*pieces, "[options]"])


def _parameter(setting: SettingField) -> inspect.Parameter:
    """A field as typer takes it: text, a list of texts or a flag, with None for what is not given."""
    if isinstance(setting.option, Argument):
        kind = list[str] if _is_sequence(setting.kind) else str
        annotation = Annotated[kind | None, typer.Argument(metavar=metavar(setting), help=setting.option.help)]
    elif _is_flag(setting.kind):
        declared = (
            [setting.flag]
            if setting.has_default and setting.default is False
            else [f"{setting.flag}/--no-{setting.flag[2:]}"]
        )
        annotation = Annotated[bool | None, typer.Option(*declared, help=setting.option.help)]
    else:
        declared = [setting.flag, *([setting.option.short] if setting.option.short else [])]
        kind = list[str] if _is_sequence(setting.kind) else str
        annotation = Annotated[kind | None, typer.Option(*declared, help=setting.option.help)]
    return inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _extra(name: str, kind: Any, default: Any, text: str, panel: str) -> inspect.Parameter:
    option = typer.Option(f"--{name}", help=text, rich_help_panel=panel, show_default=False)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _value(value: Any) -> Any:
    """An option given once is text, which commas may divide; given several times it is a list."""
    return value[0] if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1 else value


def _help(setting: SettingField) -> str:
    """The help of a field and its default, unless the help names it in brackets."""
    text = setting.option.help
    if setting.required:
        return text if isinstance(setting.option, Argument) else f"{text} (required)"
    default = default_text(setting)
    return text if text.endswith("]") or not default else f"{text} [default: {default}]"


def default_text(setting: SettingField) -> str:
    """A field's default as one would type it; empty where there is none."""
    default = setting.default if setting.has_default else None
    if default is None or isinstance(default, bool | Settings) or default in ((), {}):
        return "on" if default is True else ""
    parts = default if isinstance(default, Sequence) and not isinstance(default, str) else (default,)
    return ",".join(f"{part:g}" if isinstance(part, float) else str(part) for part in parts)


def flags(setting: SettingField) -> str:
    """An option as help and documentation show it."""
    if _is_flag(setting.kind):
        return setting.flag if setting.default is False else f"{setting.flag} / --no-{setting.flag[2:]}"
    short = f"{setting.option.short}, " if setting.option.short else ""
    return f"{short}{setting.flag} {metavar(setting)}"


def metavar(setting: SettingField) -> str:
    """What stands for a field's value."""
    if setting.option.metavar:
        return setting.option.metavar
    if isinstance(setting.option, Argument):
        return setting.name.upper().replace("_", " ")
    for kind in _members(setting.kind):
        if get_origin(kind) is Literal:
            return "|".join(map(str, get_args(kind)))
        if kind in (int, float):
            return "N" if kind is int else "X"
        if kind is Path:
            return "PATH"
        if _is_sequence(kind):
            return f"{metavar(SettingField(setting.name, get_args(kind)[0], setting.option, setting.field))},…"
    return setting.name.upper()


def _members(kind: Any) -> list[Any]:
    if get_origin(kind) in (Union, types.UnionType):
        return [member for member in get_args(kind) if member is not types.NoneType]
    return [kind]


def _is_flag(kind: Any) -> bool:
    return _members(kind) == [bool]


def _is_sequence(kind: Any) -> bool:
    return any(get_origin(member) in (tuple, Sequence) for member in _members(kind))


def loaded(place: str) -> Any:
    """What `module:name` says."""
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)
