"""One settings record per command.

A command is a frozen dataclass of settings and a function that takes it. The Python keywords, the options of the
command line, the keys of a YAML file, the tables of the documentation and the identity of a run all come from the
record, so nothing is stated twice:

    @dataclass(frozen=True)
    class TrimSettings(Execution):
        model: Annotated[str, Argument("Model folder or hub name")]
        out: Out = None
        _: KW_ONLY
        minimum: Annotated[int, Option("Keep tokens that occur at least this often", at_least=1)] = 1

    @command(TrimSettings)
    def trim(settings: TrimSettings) -> Trimming: ...

    trim("xlm-roberta-base", "small", minimum=2)

Records live in modules that import nothing heavy, so that `--help` answers at once.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import operator
import os
import re
import shlex
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

from residuum.errors import SettingError, clear_panics

if TYPE_CHECKING:
    from residuum.costs import Cost
    from residuum.engine import Engine

    OptionalPath = Any  # a checker lets callers give text
else:
    OptionalPath = Path | None

GROUPS = ("data", "model", "method", "where it runs", "output")
"""The groups of options in the order in which help and documentation show them."""


@dataclass(frozen=True)
class Option:
    """What a field of a record means: its help, its bounds, and how the command line shows it.

    `identity` is False for fields that do not change the numbers. `required` fields must be given on the command line
    even where Python has a default. `parse` turns text into a value where the type alone does not say how, and
    `expects` says in an error what that is; `form` brings every other value into the form that the command takes.
    Fields with `cli=False` exist only in Python.
    """

    help: str
    group: str = "method"
    short: str | None = None
    metavar: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    identity: bool = True
    required: bool = False
    cli: bool = True
    parse: Callable[[str], Any] | None = None
    expects: str | None = None
    form: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Argument(Option):
    """A field that stands without a name on the command line; it enters a run's identity by its fingerprint."""

    group: str = "data"
    identity: bool = False


class InvalidSettingError(SettingError):
    """One field of a record has a value that cannot be used; the command line shows it under the option's name."""

    def __init__(self, field: str, problem: str):
        super().__init__(f"{field} {problem}")
        self.field, self.problem = field, problem

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.problem)


@dataclass(frozen=True)
class SettingField:
    """One field of a record, resolved: name, type without its annotation, default and option."""

    name: str
    kind: Any
    option: Option
    field: Field[Any]

    @property
    def required(self) -> bool:
        """Whether the command line needs it."""
        return self.option.required or not self.has_default

    @property
    def has_default(self) -> bool:
        """Whether Python has a value for it."""
        return self.field.default is not MISSING or self.field.default_factory is not MISSING

    @property
    def default(self) -> Any:
        """Its default; an error where there is none."""
        if self.field.default_factory is not MISSING:
            return self.field.default_factory()
        return self.field.default

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class Settings:
    """The base of all records: coerces and checks every field in one place.

    Numpy numbers become plain ones, arrays, lists, sets and generators become tuples, text becomes what the type says
    ("0.1,0.2" a tuple of numbers, "a=1,b=2" a mapping). What cannot be used raises a SettingError that names the field,
    the value found and what is expected.
    """

    example: ClassVar[str] = ""
    """One command line that works, for `--help`."""
    estimates: ClassVar[bool] = False
    """Whether the command has `--estimate`."""

    def __post_init__(self) -> None:
        for setting in setting_fields(type(self)):
            value = _checked(setting, getattr(self, setting.name))
            object.__setattr__(self, setting.name, value)
        self.check()

    def check(self) -> None:
        """Raise a SettingError for fields that do not go together."""

    def identity(self) -> dict[str, Any]:
        """The settings that decide the numbers, as plain values for a run's config."""
        return {s.name: _plain(getattr(self, s.name)) for s in setting_fields(type(self)) if s.option.identity}

    def options(self, *mixins: type[Settings]) -> dict[str, Any]:
        """The values of the fields that some mixins declare, to pass on to another command."""
        return {field.name: getattr(self, field.name) for mixin in mixins for field in setting_fields(mixin)}


@cache
def setting_fields(record: type[Settings]) -> tuple[SettingField, ...]:
    """The annotated fields of a record, those without a default first, each with its option."""
    hints = get_type_hints(record, include_extras=True)
    resolved = []
    for field in fields(record):
        kind, *extras = (
            get_args(hints[field.name]) if get_origin(hints[field.name]) is Annotated else [hints[field.name]]
        )
        option = next((extra for extra in extras if isinstance(extra, Option)), None)
        assert option is not None, f"{record.__name__}.{field.name} has no Option"
        resolved.append(SettingField(field.name, kind, option, field))
    # As in the signature: what can be given by position stands before what cannot.
    return tuple(sorted(resolved, key=lambda setting: bool(setting.field.kw_only)))


def from_mapping(record: type[RecordT], values: Mapping[str, Any], where: str = "") -> RecordT:
    """A record from the keys of a YAML file; an unknown key is an error that names the nearest one."""
    names = [setting.name for setting in setting_fields(record)]
    for key in values:
        if key not in names:
            raise SettingError(f"{where or record.__name__} has no setting {key!r}{_nearest(str(key), names)}.")
    missing = [s.name for s in setting_fields(record) if not s.has_default and s.name not in values]
    if missing:
        raise SettingError(f"{where or record.__name__} lacks {', '.join(missing)}.")
    return record(**values)


def read_record(record: type[RecordT], path: str | Path, **values: Any) -> RecordT:
    """A record from a YAML file; `values` take precedence over its keys."""
    from residuum.storage.schemas import read_yaml

    stored = read_yaml(Path(path), SettingError)
    try:
        return from_mapping(record, {**stored, **values}, "The file")
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from None


Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
RecordT = TypeVar("RecordT", bound=Settings)


class Command(Generic[Parameters, Returned]):
    """A function that takes a record, called with the record's fields as arguments."""

    def __init__(
        self,
        record: Callable[Parameters, Settings],
        run: Callable[[Any], Returned],
        estimate: Callable[[Any], Cost] | None,
    ):
        functools.update_wrapper(self, run)
        self.record: Any = record
        self._run, self._estimate = run, estimate
        kinds = {setting.name: setting.kind for setting in setting_fields(self.record)}
        parameters = [p.replace(annotation=kinds[p.name]) for p in inspect.signature(record).parameters.values()]
        self.__signature__ = inspect.Signature(parameters, return_annotation=inspect.signature(run).return_annotation)

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        """Run the command with the record's fields, by position or by name, or with a record."""
        from residuum.storage.files import released_on_failure

        with clear_panics(), released_on_failure():
            return self._run(self._record(args, kwargs))

    def estimate(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Cost:
        """Time and memory of the same call, from a few seconds of measuring; nothing is written."""
        assert self._estimate is not None, "only commands that can take hours have an estimate"
        return self._estimate(self._record(args, kwargs))

    def _record(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], self.record):
            return args[0]
        names, called = [setting.name for setting in setting_fields(self.record)], getattr(self, "__name__", "")
        if unknown := [name for name in kwargs if name not in names]:
            raise TypeError(f"{called}() has no setting {unknown[0]!r}{_nearest(unknown[0], names)}")
        try:
            self.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{called}(): {error}") from None  # without the record's name
        return self.record(*args, **kwargs)


def command(
    record: Callable[Parameters, RecordT], estimate: Callable[[RecordT], Cost] | None = None
) -> Callable[[Callable[[RecordT], Returned]], Command[Parameters, Returned]]:
    """Turn a function of a record into a command that takes the record's fields, or the record itself."""
    return lambda run: Command(record, run, estimate)


_MISFITS = (TypeError, ValueError, ArithmeticError, RuntimeError)
"""What a value raises that cannot be read as a number, text or path: numpy, torch, Decimal and `~nobody` differ."""


def _checked(setting: SettingField, value: Any) -> Any:
    """A field's value as its type says, within its bounds."""
    option = setting.option
    try:
        if option.parse is not None and isinstance(value, str):
            value = option.parse(value)
        elif option.form is not None and value is not None:
            value = option.form(value)
        value = coerced(value, setting.kind)
        if option.form is None and option.group in ("data", "model", "output"):
            value = _located(value, setting)
    except SettingError as error:
        if isinstance(value, str):
            raise
        raise SettingError(f"{setting.name}: {error}") from None  # of a record in a record
    except _MISFITS:
        raise InvalidSettingError(setting.name, f"is {_shown(value)}; expected {expected(setting)}.") from None
    for number in value if isinstance(value, tuple) else (value,):
        if not isinstance(number, int | float) or isinstance(number, bool):
            continue
        bounds = (
            (option.at_least, operator.ge),
            (option.above, operator.gt),
            (option.at_most, operator.le),
            (option.below, operator.lt),
        )
        if not all(bound is None or fits(number, bound) for bound, fits in bounds):
            raise InvalidSettingError(setting.name, f"is {_shown(value)}; expected {expected(setting)}.")
    return value


def coerced(value: Any, kind: Any) -> Any:
    """A value as a type says; a ValueError or TypeError where it cannot be."""
    origin = get_origin(kind)
    if kind is Any and type(value).__module__ == "numpy":  # plain numbers, which YAML files and checksums take
        return value.tolist() if getattr(value, "ndim", 2) < 2 else value
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _coerced_union(value, get_args(kind))
    if origin is Literal:
        choice = str(value) if isinstance(value, str) else coerced(value, Any)
        if not any(type(choice) is type(known) and choice == known for known in get_args(kind)):
            raise ValueError(value)
        return choice
    if origin in (tuple, Sequence):
        kinds = get_args(kind) if origin is tuple else (*get_args(kind), Ellipsis)
        return _coerced_tuple(value, kinds)
    if origin in (dict, Mapping):
        if isinstance(value, str):
            value = _pairs(value)
        if not isinstance(value, Mapping):
            raise TypeError(value)
        return {str(key): coerced(content, get_args(kind)[1]) for key, content in value.items()}
    if is_dataclass(kind) and isinstance(value, Mapping):
        assert isinstance(kind, type)
        return from_mapping(kind, value) if issubclass(kind, Settings) else kind(**value)
    return _coerced_plain(value, kind)


def _located(value: Any, setting: SettingField) -> Any:
    """What names data, models or results, with `~` as the home folder; None, numbers and bytes name nothing.

    Of several, each is checked. Lists that are one value, such as the sentences of a corpus, are left to their reader.
    """
    kind, nameless = setting.kind, (types.NoneType, bytes, bytearray, int, float, complex)
    if not _has_any(kind) or (value is None and setting.has_default and setting.default is None):
        return value

    def place(part: Any) -> Any:
        if isinstance(part, nameless if setting.option.group == "data" else types.NoneType):
            raise TypeError(part)
        if isinstance(part, str | Path) and "\0" in os.fspath(part):
            raise ValueError(part)
        return at_home(part) if isinstance(part, str | Path) else part

    if kind is not Any and isinstance(value, list | tuple):
        if setting.option.group == "data" and any(isinstance(part, Mapping) for part in value):
            raise TypeError(value)
        return tuple(map(place, value))
    if kind is Any or (Any in get_args(kind) and get_origin(kind) in (Union, types.UnionType)):
        return place(value)
    return {name: place(part) for name, part in value.items()} if isinstance(value, Mapping) else value


def _has_any(kind: Any) -> bool:
    return kind is Any or any(map(_has_any, get_args(kind)))


def at_home(place: Any) -> Any:
    """A text or path, with the home folder that `~` or `~name` stands for; one that nobody has is an error."""
    try:
        return type(place)(Path(place).expanduser()) if os.fspath(place).startswith("~") else place
    except RuntimeError:
        raise SettingError(f"{place} is in the home folder of nobody here; give the whole path.") from None


def expected(setting: SettingField) -> str:
    """What a field takes, in words."""
    option = setting.option
    words = option.expects or kind_in_words(setting.kind)
    bounds = [
        f"{name} {bound:g}"
        for name, bound in (
            ("at least", option.at_least),
            ("above", option.above),
            ("at most", option.at_most),
            ("below", option.below),
        )
        if bound is not None
    ]
    return f"{words} {' and '.join(bounds)}" if bounds else words


def kind_in_words(kind: Any) -> str:
    """A type in words: `a whole number`, `one of a, b`, `numbers separated by commas`."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(kind_in_words(part) for part in parts if part is not types.NoneType))
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if origin in (tuple, Sequence):
        many = {"a number": "numbers", "a whole number": "whole numbers", "text": "names"}
        word = kind_in_words(parts[0])
        count = "" if origin is Sequence or parts[-1] is Ellipsis else f"{len(parts)} "
        return f"{count}{many.get(word, word)} separated by commas"
    if origin in (dict, Mapping):
        return "NAME=VALUE pairs separated by commas"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}
    names[Any] = "a path, a name or an object of residuum"
    return names.get(kind, getattr(kind, "__name__", "a value"))


def _coerced_union(value: Any, kinds: tuple[Any, ...]) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    rest = [kind for kind in kinds if kind is not types.NoneType]
    for kind in rest:  # as it is, where it is one of them already
        if isinstance(kind, type) and type(value) is kind:
            return value
    for kind in rest:
        try:
            return coerced(value, kind)
        except _MISFITS:
            continue
    raise ValueError(value)


def _coerced_tuple(value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    elif isinstance(value, bytes | Mapping) or not isinstance(value, Iterable):
        if kinds[-1] is not Ellipsis:
            raise TypeError(value)
        value = [value]  # one alone stands for a list of one
    elif isinstance(value, Set):
        value = sorted(value, key=str)  # the same order in every run
    values = list(getattr(value, "tolist", lambda: value)())
    if kinds[-1] is Ellipsis:
        return tuple(coerced(part, kinds[0]) for part in values)
    if len(values) != len(kinds):
        raise ValueError(value)
    return tuple(coerced(part, kind) for part, kind in zip(values, kinds, strict=True))


def _coerced_plain(value: Any, kind: Any) -> Any:
    if kind is bool:
        if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
            return bool(value)
        raise TypeError(value)
    if kind is int:
        if isinstance(value, bool):
            raise TypeError(value)
        whole = int(value) if isinstance(value, str) else operator.index(value)
        if not -(2**63) <= whole < 2**63:  # beyond which no library counts
            raise OverflowError(value)
        return whole
    if kind is float:
        if isinstance(value, bool | bytes | bytearray) or getattr(value, "shape", ()) or "bool" in type(value).__name__:
            raise TypeError(value)
        number = float(value)
        if not math.isfinite(number):
            raise ValueError(value)
        return number
    if kind is str:
        if not isinstance(value, str):
            raise TypeError(value)
        value.encode()  # half a surrogate pair cannot be written anywhere
        return str(value)
    if kind is Path:
        if not isinstance(value, str | os.PathLike) or "\0" in os.fspath(value):
            raise TypeError(value)
        os.fsencode(value)
        return Path(value).expanduser()
    if isinstance(kind, type) and not isinstance(value, kind):
        raise TypeError(value)
    return value


def _plain(value: Any) -> Any:
    """A value as YAML has it."""
    if isinstance(value, Settings):
        return value.identity()
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}…"


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def named_source(source: Any) -> tuple[str | None, Any]:
    """`NAME=MODEL` as its two parts; without a name, or where there is such a folder, None and the source itself."""
    if not isinstance(source, str) or "=" not in source or Path(source).exists():
        return None, source
    name, _, place = source.partition("=")
    if not name.strip() or not place.strip():
        raise SettingError(f"{source!r} is not NAME=MODEL.")
    return name.strip(), at_home(place.strip())


def as_bytes(text: str) -> int:
    """`4` (gigabytes), `500MB` or `0.5 GB` as bytes."""
    match = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?)\s*(|[kmgt]b?)", text.strip().lower())
    if match is None:
        raise ValueError(text)
    n_bytes = float(match[1]) * {"": 1e9, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}[match[2][:1]]
    if n_bytes >= 1e18:  # more than any machine has
        raise ValueError(text)
    return int(n_bytes)


def local_folder(text: str) -> Path:
    """A folder of this machine; an address, of which `Path` would make one slash of two, is refused."""
    if re.match(r"\w{2,}:/", text):
        raise SettingError(f"{text} is an address; results go to a local folder (activation stores need not).")
    return Path(text)


def section(text: str) -> dict[str, Any]:
    """`steps=100,warmup=0` as the keys of a section of settings."""
    truth = {"true": True, "false": False}
    return {name: truth.get(value.lower(), value) for name, value in _pairs(text).items()}


def _pairs(text: str) -> dict[str, str]:
    """`a=1,b=2` by name."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and value.strip() for name, _, value in pairs):
        raise ValueError(text)
    return {name.strip(): value.strip() for name, _, value in pairs}


def named_values(values: Any) -> Any:
    """`["tr=a", "sw=b"]` (or `"tr=a"`) as a mapping, where all are written so; anything else as it is."""
    texts = [values] if isinstance(values, str) else values
    if isinstance(texts, Mapping) or not isinstance(texts, Sequence) or not texts:
        return values
    parts = [text.partition("=") if isinstance(text, str) else ("", "", "") for text in texts]
    if not all(name and value for name, _, value in parts):
        return values
    return {name: at_home(value) for name, _, value in parts}


def layer_numbers(layers: Any) -> Any:
    """Layers as a tuple of plain numbers, from one number, a list, a range or an array; text stays what it is."""
    return layers if isinstance(layers, str) else coerced(layers, tuple[int, ...])


def layers_text(layers: Any) -> str:
    """Layers as the command line writes them: `1,4`."""
    return layers if isinstance(layers, str) else ",".join(map(str, layer_numbers(layers)))


def whole_number(name: str, value: Any, at_least: int = 0) -> int:
    """A plain int, from numpy's too, for functions that have no record of settings."""
    try:
        number = coerced(value, int)
    except _MISFITS:
        number = None
    if number is None or number < at_least:
        raise SettingError(f"{name} is {_shown(value)}; expected a whole number of at least {at_least}.")
    return number


def plain_path(name: str, value: Any) -> Path:
    """A path, with `~` as the home folder, for functions that have no record of settings."""
    try:
        return coerced(value, Path)
    except _MISFITS:
        raise SettingError(f"{name} is {_shown(value)}; expected a path.") from None


LAYERS = "all, last or numbers such as 0,4-6"
Out = Annotated[
    OptionalPath,
    Option("Folder to write", group="output", short="-o", identity=False, required=True, parse=local_folder),
]
Seed = Annotated[int, Option("Random seed", at_least=0, at_most=2**63 - 1)]
Seeds = Annotated[int, Option("Number of random seeds", at_least=1)]
Device = Annotated[
    str, Option("auto, cpu, cuda, mps, or spread (over GPUs, CPU and disk)", group="where it runs", identity=False)
]
Precision = Annotated[
    Literal["float32", "auto", "bfloat16", "float16"],
    Option("Precision of the weights; auto: as stored", group="where it runs", identity=False),
]
Layers = Annotated[
    Any,
    Option(f"{LAYERS}; 0 is the embeddings", group="model", identity=False, expects=LAYERS, form=layer_numbers),
]
Limit = Annotated[int | None, Option("Read only the first N sentences", group="data", at_least=1, identity=False)]
MaxLoss = Annotated[
    float,
    Option("Maximum fraction of words without a representation", group="data", at_least=0, at_most=1, identity=False),
]
Split = Annotated[str | None, Option("Part of the corpus: train, dev or test", group="data", identity=False)]
Format = Annotated[
    Literal["conllu", "columns", "tsv", "csv", "json", "jsonl", "parquet", "lines"] | None,
    Option("Corpus format, where the file name does not tell", group="data", identity=False),
]
Activations = Annotated[
    OptionalPath,
    Option(
        "Folder for a model's activations, which several runs can share [OUT/activations]",
        group="output",
        identity=False,
    ),
]


@runtime_checkable
class EngineLike(Protocol):
    """An `Engine`, which is not imported here."""

    client: Any


@dataclass(frozen=True, kw_only=True)
class Resumable(Settings):
    """What a command may hold in memory, and what it does with earlier output."""

    max_memory: Annotated[
        int | None,
        Option(
            "Memory limit in GB",
            group="where it runs",
            metavar="GB",
            at_least=0,
            identity=False,
            parse=as_bytes,
            expects="gigabytes such as 4 or 0.5",
        ),
    ] = None
    fresh: Annotated[bool, Option("Discard earlier output and start over", group="output", identity=False)] = False
    progress: Annotated[bool, Option("Show progress", group="output", identity=False)] = True

    def say(self, line: str) -> None:
        """Tell the user what comes next, on standard error; in a notebook, which would show that on red, on output."""
        from residuum.storage.notebook import in_notebook

        if self.progress:
            print(line, file=sys.stdout if in_notebook() else sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True)
class Execution(Resumable):
    """Where a command runs, what it may hold, and what it does with earlier output."""

    workers: Annotated[
        int | EngineLike | None,
        Option(
            "Number of processes, one thread each [this process, all threads]",
            group="where it runs",
            metavar="N",
            at_least=1,
            identity=False,
            expects="a whole number",
        ),
    ] = None
    engine: Annotated[
        Literal["local", "dask"], Option("This machine or a Dask cluster", group="where it runs", identity=False)
    ] = "local"
    scheduler: Annotated[
        str | None,
        Option("Dask scheduler, such as tcp://host:8786", group="where it runs", identity=False),
    ] = None

    @contextmanager
    def opened_engine(self) -> Iterator[Engine | None]:
        """The engine that the settings ask for, while it is needed; None where they ask for nothing."""
        from residuum.engine import Engine, opened_engine

        if isinstance(self.workers, Engine):
            yield self.workers
            return
        assert isinstance(self.workers, int | None)
        with opened_engine(self.engine, self.workers, self.scheduler) as engine:
            yield engine


def table_column(text: str) -> str | int:
    """A column's name, or its number from 0."""
    return int(text) if text.isdecimal() else text


def column_names(text: str) -> tuple[str | None, ...]:
    """`word,_,pos` as the names of columns; `_` is one that is not read."""
    return tuple(None if name.strip() == "_" else name.strip() for name in text.split(","))


def delimiter_character(text: str) -> str:
    """`tab`, `space`, `comma`, `semicolon` or the character itself, as `\\t` too."""
    named = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";"}
    character = named.get(text.lower(), text)
    if len(character) != 1:
        raise ValueError(text)
    return character


@dataclass(frozen=True, kw_only=True)
class TableReading(Settings):
    """Where a table or column file has its text and labels, for commands that read a labelled corpus."""

    text: Annotated[
        str | int | None,
        Option("Column of the text, by name or number from 0", "data", identity=False, parse=table_column),
    ] = None
    pair: Annotated[
        str | int | None,
        Option("Column of a second text, by name or number", "data", identity=False, parse=table_column),
    ] = None
    label: Annotated[
        str | int | None,
        Option("Column of the label, by name or number [by task]", "data", identity=False, parse=table_column),
    ] = None
    columns: Annotated[
        tuple[str | None, ...] | None,
        Option(
            "Names of all columns, such as word,pos or part,label,sentence; _ is not read",
            group="data",
            metavar="NAME,…",
            identity=False,
            parse=column_names,
        ),
    ] = None
    format: Format = None
    delimiter: Annotated[
        str | None,
        Option(
            "Between columns: tab, comma, space, semicolon or a character [by format]",
            group="data",
            identity=False,
            parse=delimiter_character,
            expects="tab, comma, space, semicolon or one character",
        ),
    ] = None
    header: Annotated[
        bool | None, Option("Whether the first line names the columns [as it looks]", group="data", identity=False)
    ] = None

    @property
    def table(self) -> dict[str, Any]:
        """These settings as options of `read_corpus` and `read_task`."""
        return self.options(TableReading)


@dataclass(frozen=True, kw_only=True)
class Publishing(Settings):
    """Where on the hub a model goes that a command wrote."""

    push_to_hub: Annotated[
        str | None,
        Option("Send the model to the hub, to a private repository", "output", metavar="OWNER/NAME", identity=False),
    ] = None


@dataclass(frozen=True, kw_only=True)
class TextReading(Settings):
    """Where raw text stands in tables and datasets, for commands that read text without labels."""

    text: Annotated[
        str | int | None,
        Option(
            "Column of the text in JSON lines, parquet and datasets [text, sentence or content]",
            "data",
            parse=table_column,
        ),
    ] = None
    format: Annotated[str | None, Option("lines, jsonl, parquet, json, tsv or csv [by file name]", "data")] = None
    split: Annotated[str | None, Option("Split of a hub dataset or folder [train; all files]", "data")] = None
    revision: Annotated[str | None, Option("Branch, tag or commit of a hub dataset", "data")] = None

    @property
    def reading(self) -> dict[str, Any]:
        """These settings as `TextOptions` of the corpus."""
        return self.options(TextReading)


@dataclass(frozen=True, kw_only=True)
class TaskReading(TableReading):
    """What a command reads of a labelled corpus, and on which device."""

    dev: Annotated[
        Any, Option("Development part, where the corpus is the training part alone", group="data", identity=False)
    ] = None
    test: Annotated[
        Any, Option("Test part, where the corpus is the training part alone", group="data", identity=False)
    ] = None
    limit: Limit = None
    max_loss: MaxLoss = 0.0
    device: Device = "auto"

    @property
    def as_options(self) -> str:
        """What was asked for of the data, as options that let another command read the same; each after a space."""
        asked = self.table | {name: getattr(self, name) for name in ("dev", "test", "limit")}
        header = {None: "", True: " --header", False: " --no-header"}[asked.pop("header")]
        if asked["columns"] is not None:
            asked["columns"] = ",".join(name or "_" for name in asked["columns"])
        asked["delimiter"] = {"\t": "tab", " ": "space"}.get(asked["delimiter"], asked["delimiter"])
        known = {name: value for name, value in asked.items() if isinstance(value, str | int | os.PathLike)}
        return "".join(f" --{name} {shlex.quote(str(value))}" for name, value in known.items()) + header
