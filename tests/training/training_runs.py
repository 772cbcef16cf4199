"""A small regression to train on, also as a program of its own that can be killed."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from residuum.training.batches import ShuffledBatches
from residuum.training.loop import StepLosses, TrainingResult, train
from residuum.training.settings import TrainingSettings

ROWS = 64


@dataclass
class Regression:
    net: nn.Sequential
    batches: ShuffledBatches

    @staticmethod
    def squared_error(net: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return ((net(batch[0]) - batch[1]) ** 2).mean()

    def losses(self, batch: tuple[Tensor, Tensor]) -> StepLosses:
        error = self.squared_error(self.net, batch)
        return StepLosses(error, {"error": error.detach()}, tokens=len(batch[0]))

    def train(
        self,
        out: Path,
        *,
        losses: Any = None,
        parameters: Any = None,
        evaluate: Any = None,
        after_step: Any = None,
        config: Any = None,
        device: str = "auto",
        fresh: bool = False,
        **settings: Any,
    ) -> TrainingResult:
        return train(
            {"net": self.net},
            self.batches,
            losses or self.losses,
            TrainingSettings(**settings),
            out,
            parameters=parameters,
            evaluate=evaluate,
            after_step=after_step,
            config=config,
            device=device,
            fresh=fresh,
            progress=False,
        )


def regression(size: int = 8, dropout: float = 0.0) -> Regression:
    """64 rows of noisy products and a net of two layers, always the same."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 8, generator=generator)
    y = x[:, :1] * x[:, 1:2] + 0.1 * torch.randn(ROWS, 1, generator=generator)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(dropout), nn.ReLU(), nn.Linear(16, 1))
    net.train()
    return Regression(net, ShuffledBatches(range(ROWS), size, collate=lambda rows: (x[rows], y[rows])))


def main(out: str, *options: str) -> None:
    """Train with dropout and evaluation, as a program; options are settings, `size`, `dropout` (%), and `kill_at`.

    At step `kill_at` the process kills itself; with `kill_in` that happens at that call of a checkpoint's writer.
    """
    settings: dict[str, Any] = {"steps": 30, "learning_rate": 0.01, "checkpoint_every": 8, "log_every": 3}
    settings |= {name: int(value) for name, value in (option.split("=") for option in options)}
    task = regression(size=settings.pop("size", 8), dropout=settings.pop("dropout", 30) / 100)
    kill_at, number = settings.pop("kill_at", 0), settings.pop("signal", signal.SIGKILL)
    _kill_in_writing(settings.pop("kill_in", 0))

    def after_step(step: int) -> None:
        if step == kill_at:
            os.kill(os.getpid(), number)

    task.train(
        Path(out),
        evaluate=lambda step: {"step": step},
        after_step=after_step,
        device="cpu",
        evaluate_every=7,
        **settings,
    )


def _kill_in_writing(call: int) -> None:
    from residuum.training import checkpoints

    calls = itertools.count(1)
    write = checkpoints.write_tensors

    def write_or_die(*arguments: Any) -> None:
        write(*arguments)
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)

    checkpoints.write_tensors = write_or_die


if __name__ == "__main__":
    main(*sys.argv[1:])
