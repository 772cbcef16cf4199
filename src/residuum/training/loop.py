"""`train`: the loop that every training of this package runs through."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from tqdm import tqdm

from residuum.errors import DataError, SettingError
from residuum.training.batches import Batches
from residuum.training.checkpoints import discard_checkpoints, open_run, resume, write_checkpoint
from residuum.training.dropout import quick_dropout
from residuum.training.optimisation import (
    ParameterGroup,
    average_gradients,
    build_optimiser,
    checked_groups,
    clip_gradients,
    set_learning_rate,
    trainable_groups,
)
from residuum.training.processes import (
    Averages,
    Progress,
    StepLosses,
    StopRequest,
    TrainingSettings,
    evaluating,
    seed_torch,
    start_accelerator,
    summed,
)

if TYPE_CHECKING:
    import pandas as pd

Losses = Callable[[Any], StepLosses]
Evaluate = Callable[[int], Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class Training:
    """What a training gave: its curves, and which step scored best. The weights are in the modules and checkpoints.

    Of several processes only the main one has the curves and the best step.
    """

    steps: int
    progress: Progress

    @property
    def history(self) -> pd.DataFrame:
        """A row every `log_every` steps: step, learning_rate, loss, each term, gradient_norm, tokens, seconds."""
        return _frame(self.progress.losses)

    @property
    def scores(self) -> pd.DataFrame:
        """A row for each evaluation: step and what the callback gave."""
        return _frame(self.progress.scores)

    @property
    def best_step(self) -> int | None:
        """The step with the best score, if one was asked for."""
        return self.progress.best_step


def train(
    modules: Mapping[str, nn.Module],
    batches: Batches,
    losses: Losses,
    settings: TrainingSettings,
    out: str | Path,
    *,
    parameters: Sequence[ParameterGroup] | None = None,
    evaluate: Evaluate | None = None,
    after_step: Callable[[int], None] | None = None,
    config: Mapping[str, Any] | None = None,
    device: str = "auto",
    fresh: bool = False,
    progress: bool = True,
) -> Training:
    """Train modules and leave them with their last weights; go on where a killed run of the same folder stopped.

    `modules` are what a checkpoint holds (weights that they share are held once); they are moved to the device and
    keep the train or eval mode that the caller gave them. `parameters` are what is stepped: by default all of the
    modules that take gradients. `losses(batch)` runs the modules on `batches(position)`, whose tensors are on the
    device. Torch's generator is seeded by (seed, position) before each batch, so dropout needs no saved state.

    `evaluate(step)` runs in eval mode without gradients, on the main process; `after_step(step)` runs after each move
    of the weights, on all. `config` is what else the run depends on (JSON values): another config in the folder is an
    error unless `fresh`. Started under `torchrun`, W processes give the weights of one with W times the batch.
    """
    out = Path(out)
    accelerator = start_accelerator(settings, device, out)
    if settings.evaluate_every is not None and evaluate is None:
        raise SettingError("evaluate_every is given, but there is no evaluation to run.")
    for module in modules.values():
        module.to(accelerator.device)
    groups = checked_groups(trainable_groups(*modules.values()) if parameters is None else parameters)
    total = settings.total_steps(batches.per_epoch, accelerator.num_processes)
    if accelerator.is_main_process:
        if fresh:
            discard_checkpoints(out)
        open_run(out, _identity(settings, total, groups, accelerator.num_processes, config))
    accelerator.wait_for_everyone()
    run = _Run(modules, batches, losses, settings, out, groups, total, accelerator, evaluate, after_step)
    return Training(total, run.to_the_end(show=progress))


def first_steps(
    modules: Mapping[str, nn.Module],
    batches: Batches,
    losses: Losses,
    settings: TrainingSettings,
    *,
    parameters: Sequence[ParameterGroup] | None = None,
    device: str = "auto",
) -> Generator[float, None, None]:
    """Take the steps of `train` one by one and give the seconds of each: weights move, and nothing is written."""
    quiet = replace(settings, report_to=())
    with tempfile.TemporaryDirectory(prefix="residuum-") as folder, torch.random.fork_rng():
        accelerator = start_accelerator(quiet, device, Path(folder))
        for module in modules.values():
            module.to(accelerator.device)
        groups = checked_groups(trainable_groups(*modules.values()) if parameters is None else parameters)
        total = settings.total_steps(batches.per_epoch, accelerator.num_processes)
        run = _Run(modules, batches, losses, quiet, Path(folder), groups, total, accelerator, None, None)
        with quick_dropout(modules.values()):
            while run.progress.step < total:
                before = run.progress.seconds
                run._step()
                yield run.progress.seconds - before


class _Run:
    """The state of a running training; `to_the_end` is the loop."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        batches: Batches,
        losses: Losses,
        settings: TrainingSettings,
        out: Path,
        groups: Sequence[ParameterGroup],
        total: int,
        accelerator: Any,
        evaluate: Evaluate | None,
        after_step: Callable[[int], None] | None,
    ) -> None:
        self.modules, self.batches, self.losses, self.settings = modules, batches, losses, settings
        self.out, self.total, self.accelerator = out, total, accelerator
        self.evaluate, self.after_step = evaluate, after_step
        self.parameters = [p for group in groups for p in group.parameters]
        self.optimiser = build_optimiser(groups, settings)
        self.stepper = accelerator.prepare_optimizer(self.optimiser)
        self.progress = resume(out, modules, self.optimiser, accelerator.scaler)
        self.averages = Averages(self.progress.pending if accelerator.is_main_process else {})

    def to_the_end(self, *, show: bool) -> Progress:
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng())
            stack.enter_context(quick_dropout(self.modules.values()))
            stop = stack.enter_context(StopRequest(self.accelerator.num_processes == 1))
            bar = stack.enter_context(self._bar(show))
            while self.progress.step < self.total:
                self._step()
                bar.update()
                self._write_down(bar)
                if stop.requested and self.progress.step < self.total:
                    self._checkpoint()
                    stop.obey()
        for tracker in self.accelerator.trackers:  # `end_training` would also part the processes, which may train on
            tracker.finish()
        return self.progress

    def _step(self) -> None:
        started, step = time.perf_counter(), self.progress.step
        rate = set_learning_rate(self.optimiser, self.settings, step, self.total)
        results = [self._backward(self._position(step, turn)) for turn in range(self.settings.accumulation)]
        loss, weight, tokens = summed(self.accelerator, [sum(column) for column in zip(*results, strict=True)])
        self._check_finite(step, loss / weight)
        self.accelerator.unscale_gradients(self.stepper)
        average_gradients(self.accelerator, self.parameters, weight)
        norm = clip_gradients(self.parameters, self.settings.clip)
        if self.settings.precision != "float16":  # there the scaler skips steps whose gradients overflow
            self._check_finite(step, norm, "gradient")
        self.stepper.step()
        self.stepper.zero_grad(set_to_none=True)
        self.progress.step += 1
        self.progress.tokens += int(tokens)
        if self.after_step is not None:
            self.after_step(self.progress.step)
        self.progress.seconds += time.perf_counter() - started
        if self.accelerator.is_main_process:
            self.averages.add("learning_rate", rate)
            self.averages.add("loss", loss / weight)
            self.averages.add("gradient_norm", norm)

    def _position(self, step: int, turn: int) -> int:
        """The batch of this process in a turn of a step: all processes of a turn take neighbouring batches."""
        turns = step * self.settings.accumulation + turn
        return turns * self.accelerator.num_processes + self.accelerator.process_index

    def _backward(self, position: int) -> tuple[float, float, float]:
        """Add a batch's gradient times its weight; gives weight × loss, weight, tokens."""
        from accelerate.utils import send_to_device

        batch = send_to_device(self.batches(position), self.accelerator.device)
        seed_torch(self.settings.seed, position)
        with self.accelerator.autocast():
            step = self.losses(batch)
            total = step.total if step.weight == 1 else step.total * step.weight
            self.accelerator.backward(total)
        for name, value in step.terms.items():
            self.averages.add(name, value, step.weight)
        return float(total.detach()), step.weight, step.tokens

    def _check_finite(self, step: int, value: float, what: str = "loss") -> None:
        if not math.isfinite(value):
            written = any((self.out / "checkpoints").glob("step-*"))
            kept = "the last checkpoint is kept" if written else "no checkpoint was written"
            raise DataError(
                f"The {what} is {value} at step {step + 1} of {self.total}; {kept} in {self.out}. Lower the learning "
                "rate, lengthen the warm-up or clip gradients, or look for broken examples."
            )

    def _write_down(self, bar: tqdm) -> None:
        """Rows, evaluation and checkpoint, each where its turn has come."""
        step, settings = self.progress.step, self.settings
        last = step == self.total
        if last and not all(bool(torch.isfinite(parameter).all()) for parameter in self.parameters):
            self._check_finite(step - 1, math.nan, "weights' sum")
        if last or step % settings.log_every == 0:
            self._log(bar)
        is_best = False
        if settings.evaluate_every is not None and (last or step % settings.evaluate_every == 0):
            is_best = self._evaluate()
        if last or is_best or step % settings.checkpoint_every == 0:
            self._checkpoint()

    def _log(self, bar: tqdm) -> None:
        means = self.averages.merged(self.accelerator).means()
        self.averages = Averages()
        progress = self.progress
        row = {"step": progress.step, **means, "tokens": progress.tokens, "seconds": progress.seconds}
        if not self.accelerator.is_main_process:
            return
        progress.losses.append(row)
        self.accelerator.log(row, step=progress.step)
        shown = {name: f"{value:.3g}" for name, value in means.items() if name not in _NOT_SHOWN}
        bar.set_postfix({**shown, "tokens/s": f"{self._speed():,.0f}"}, refresh=False)

    def _speed(self) -> float:
        """Tokens a second over the last rows, so that a change of speed shows."""
        rows = self.progress.losses[-10:]
        first = rows[0] if len(rows) > 1 else {"tokens": 0, "seconds": 0.0}
        return (rows[-1]["tokens"] - first["tokens"]) / max(rows[-1]["seconds"] - first["seconds"], 1e-9)

    def _evaluate(self) -> bool:
        """Score the modules; whether the score is the best so far (only the main process knows)."""
        is_best = False
        if self.accelerator.is_main_process:
            assert self.evaluate is not None
            step = self.progress.step
            seed_torch(self.settings.seed, step)
            with evaluating(self.modules.values()):
                scores = {name: float(value) for name, value in self.evaluate(step).items()}
            self.progress.scores.append({"step": step, **scores})
            self.accelerator.log(scores, step=step)
            is_best = self._keeps_best(scores)
        (flag,) = summed(self.accelerator, [float(is_best)])
        return bool(flag)

    def _keeps_best(self, scores: Mapping[str, float]) -> bool:
        name = self.settings.best_score
        if name is None:
            return False
        if name not in scores:
            raise SettingError(f"best_score is {name!r}; the evaluation gives {', '.join(scores)}.")
        if not self.progress.is_best(scores[name], self.settings.lower_is_better):
            return False
        self.progress.best_step, self.progress.best_value = self.progress.step, scores[name]
        return True

    def _checkpoint(self) -> None:
        pending = self.averages.merged(self.accelerator)
        if self.accelerator.is_main_process:
            self.progress.pending = pending.sums
            write_checkpoint(self.out, self.modules, self.optimiser, self.progress, self.accelerator.scaler)
            self.averages = pending
        else:
            self.averages = Averages()
        self.accelerator.wait_for_everyone()

    def _bar(self, show: bool) -> tqdm:
        hidden = None if show and self.accelerator.is_main_process else True
        return tqdm(total=self.total, initial=self.progress.step, unit=" steps", disable=hidden, dynamic_ncols=True)


_NOT_SHOWN = ("learning_rate", "gradient_norm")


def _identity(
    settings: TrainingSettings,
    total: int,
    groups: Sequence[ParameterGroup],
    processes: int,
    config: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What a run's weights depend on, as JSON gives it back."""
    import json

    trained = [sum(p.numel() for p in group.parameters) for group in groups]
    values = {**settings.identity(), "total_steps": total, "trained": trained, "processes": processes, **(config or {})}
    return json.loads(json.dumps(values))


def _frame(rows: list[dict[str, float]]) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame(rows)
    return frame.astype({name: "int64" for name in ("step", "tokens") if name in frame})
