"""What others wrote, against what it must be: values against a type, YAML against what a settings file can need."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from residuum.errors import ResiduumError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import TypeAdapter

Kind = TypeVar("Kind", bound="DataclassInstance")

MOST_YAML_BYTES = 10_000_000
MOST_YAML_VALUES = 100_000
DEEPEST_YAML = 50
_VALUE_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, AttributeError)


def conforming(value: object, kind: type[Kind], where: object, error: type[ResiduumError], remedy: str = "") -> Kind:
    """The value as a `kind` (a dataclass with typed fields), or an error that names the first field that is not so."""
    from pydantic import ValidationError

    if not isinstance(value, dict):
        raise error(f"{where} holds {_shown(value)}; expected named values. {remedy}".strip())
    known = [field.name for field in fields(kind)]
    unknown = [name for name in value if name not in known]
    if unknown:
        raise error(f"{where}: {_shown(unknown[0])} is not known; expected {', '.join(known)}. {remedy}".strip())
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as fault:
        raise error(f"{where}: {_described(fault.errors(include_url=False)[0])} {remedy}".strip()) from None


def read_yaml(path: Path, error: type[ResiduumError], remedy: str = "") -> dict[str, Any]:
    """The named values of a YAML file, as plain data: tags that build objects are refused.

    So is a file that is small but grows beyond all bounds when its aliases are filled in, or that holds itself.
    """
    try:
        if (size := path.stat().st_size) > MOST_YAML_BYTES:
            raise ValueError(f"it has {size:,} bytes; at most {MOST_YAML_BYTES:,} are read")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise error(f"{path} does not exist. {remedy}".strip()) from None
    except OSError as fault:
        raise error(f"{path} cannot be read: {fault.strerror}. {remedy}".strip()) from None
    except ValueError as fault:
        raise error(f"{path} is not YAML that can be used: {fault}. {remedy}".strip()) from None
    return yaml_values(text, path, error, remedy)


def yaml_values(text: str, where: object, error: type[ResiduumError], remedy: str = "") -> dict[str, Any]:
    """The named values of a YAML text, as `read_yaml` reads them; `where` names it in errors."""
    try:
        values = _PlainLoader(text).whole()
    except (yaml.YAMLError, *_VALUE_ERRORS) as fault:
        # beside its own errors, the library lets those of the values through: a 99th month, an `!!int` of nothing
        reason = " ".join(str(fault).split()) or type(fault).__name__
        raise error(f"{where} is not YAML that can be used: {reason[:300]}. {remedy}".strip()) from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise error(f"{where} holds {_shown(values)}; expected settings by name. {remedy}".strip())
    return values


def _described(fault: Any) -> str:
    """One fault of a validation: the field, what was found and what was expected."""
    field, message = ".".join(map(str, fault["loc"])), fault["msg"]
    if fault["type"] == "value_error":  # our own words, which say all
        return f"{field}{': ' if field else ''}{message.removeprefix('Value error, ')}"
    found = "it is missing" if fault["type"] == "missing" else f"found {_shown(fault['input'])}"
    return f"{field}: {found}; {message[:1].lower()}{message[1:]}."


@lru_cache
def _adapter(kind: type[Kind]) -> TypeAdapter[Kind]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


class _PlainLoader(yaml.SafeLoader):
    """Plain data only, and not so deep or so large that reading it takes forever."""

    depth = 0

    def whole(self) -> Any:
        """The one document of the text."""
        try:
            root = self.get_single_node()
            _check_size(root)
            return None if root is None else self.construct_document(root)
        finally:
            self.dispose()

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.depth += 1
        if self.depth > DEEPEST_YAML:
            raise ValueError(f"its values lie more than {DEEPEST_YAML} deep in each other")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def _check_size(root: yaml.Node | None) -> None:
    """Count the values that a document has when every alias is filled in, looking at each node once."""
    counted: dict[int, int] = {}
    open_nodes: set[int] = set()

    def count(node: yaml.Node) -> int:
        if id(node) in counted:
            return counted[id(node)]
        if id(node) in open_nodes:
            raise ValueError("a value holds itself")
        open_nodes.add(id(node))
        parts = node.value if isinstance(node, yaml.SequenceNode | yaml.MappingNode) else ()
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        total = 1 + sum(map(count, parts))
        open_nodes.discard(id(node))
        if total > MOST_YAML_VALUES:
            raise ValueError(f"it has more than {MOST_YAML_VALUES:,} values once its aliases are filled in")
        counted[id(node)] = total
        return total

    if root is not None:
        count(root)


def _shown(value: object) -> str:
    """The beginning of a value; a large one is never written out whole."""
    if isinstance(value, dict | list | tuple | set):
        return f"{type(value).__name__} of {len(value)}"
    return "nothing" if value is None else repr(value)[:80]
