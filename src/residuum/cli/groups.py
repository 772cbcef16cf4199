"""Options that always come together: a command takes them as one value, the command line as one option each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from residuum.cli.options import (
    BatchSize,
    Dev,
    Device,
    EngineName,
    Epochs,
    Format,
    LearningRate,
    Limit,
    MaxLoss,
    Norm,
    Processes,
    Scheduler,
    Standardize,
    Test,
)

if TYPE_CHECKING:
    from residuum.engine import Engine
    from residuum.maths.probing import Recipe


@dataclass(frozen=True)
class Learning:
    """How probes learn."""

    norm: Norm = "squared"
    epochs: Epochs = 10
    batch_size: BatchSize = 128
    learning_rate: LearningRate = 1e-3
    standardize: Standardize = False

    @property
    def recipe(self) -> Recipe:
        """As the package takes it."""
        from residuum.maths.probing import Recipe

        return Recipe(self.epochs, self.batch_size, self.learning_rate, self.norm, self.standardize)


@dataclass(frozen=True)
class Where:
    """Where work runs."""

    workers: Processes = None
    engine: EngineName = "local"
    scheduler: Scheduler = None

    def opened(self) -> AbstractContextManager[Engine | None]:
        """The engine, until the work is done."""
        from residuum.engine import opened_engine

        return opened_engine(self.engine, self.workers, self.scheduler)


@dataclass(frozen=True)
class Reading:
    """What is read of a task's corpus, and on which device."""

    dev: Dev = None
    test: Test = None
    format: Format = None
    limit: Limit = None
    max_loss: MaxLoss = 0.0
    device: Device = "auto"

    @property
    def options(self) -> dict[str, Any]:
        """As the package takes them; `max_loss` matters only to what really reads."""
        return {key: value for key, value in asdict(self).items() if key != "max_loss"}


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters that are groups have become one option for each of their fields."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if isinstance(group := parameter.annotation, type) and is_dataclass(group):
            groups[parameter.name] = group
            parameters += _options(group)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def flat(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    flat.__dict__["__signature__"] = inspect.Signature(parameters)  # typer reads this and the annotations
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _options(group: type[Any]) -> list[inspect.Parameter]:
    kinds = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=kinds[field.name]
        )
        for field in fields(group)
    ]
