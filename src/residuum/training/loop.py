"""`train`: the loop behind every training of this package; `rehearse` times its first steps for an estimate."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from residuum.errors import DataError, SettingError
from residuum.models.loading import evaluating
from residuum.storage.notebook import progress_bar
from residuum.training.batches import Batches
from residuum.training.checkpoints import Progress, discard_checkpoints, open_run, resume, write_checkpoint
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
    StopRequest,
    process_count,
    seed_torch,
    start_accelerator,
    summed,
)
from residuum.training.settings import TrainingSettings

if TYPE_CHECKING:
    import pandas as pd
    from accelerate import Accelerator

    from residuum.costs import CostStep

NOT_SHOWN = ("learning_rate", "gradient_norm")  # in the history, but not beside the progress bar
REHEARSAL_SECONDS = 3.0  # after which no further step is timed
REHEARSED_STEPS = (3, 40)  # fewest and most steps that are timed; one more before them fills caches
MOMENTS = 2  # numbers that AdamW keeps per trained number

Losses = Callable[[Any], "StepLosses"]
Evaluate = Callable[[int], Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class StepLosses:
    """The losses of one batch.

    `total` is differentiated (a mean over the batch); `terms` are shown and recorded, and need no gradient. `weight`
    is the weight of the batch among those of the same step: 1 for plain averages, the number of averaged items
    (tokens, pairs) if larger batches count more.
    """

    total: Tensor
    terms: Mapping[str, Tensor | float] = field(default_factory=dict)
    tokens: int = 0
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """The curves of a training and its best step. The weights are in the modules and checkpoints.

    If several processes train, only the main one has the curves and the best step.
    """

    steps: int
    progress: Progress

    @property
    def history(self) -> pd.DataFrame:
        """One row per `log_every` steps: step, learning_rate, loss, each term, gradient_norm, tokens, seconds."""
        return _frame(self.progress.losses)

    @property
    def scores(self) -> pd.DataFrame:
        """One row per evaluation: step and the scores that the callback returned."""
        return _frame(self.progress.scores)

    @property
    def best_step(self) -> int | None:
        """The step with the best score, if `best_score` was set."""
        return self.progress.best_step


def _frame(rows: list[dict[str, float]]) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame(rows)
    return frame.astype({name: "int64" for name in ("step", "tokens") if name in frame})


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
) -> TrainingResult:
    """Train modules and leave them with their last weights; resume where a killed run of the same folder stopped.

    A checkpoint holds `modules` (shared weights once); they are moved to the device and keep their train or eval mode.
    `parameters` are updated: by default all parameters of the modules that take gradients. `losses(batch)` runs the
    modules on `batches(position)`, whose tensors are on the device. Torch's generator is seeded by (seed, position)
    before each batch, so dropout needs no saved state.

    `evaluate(step)` runs in eval mode without gradients on the main process; `after_step(step)` runs after each update
    on all processes. `config` is what else the run depends on (JSON values): another config in the folder is an error
    unless `fresh`. Under `torchrun`, W processes give the weights of one process with W times the batch.
    """
    if settings.evaluate_every is not None and evaluate is None:
        raise SettingError("evaluate_every is set, but there is no evaluation to run.")
    loop = _Loop(modules, batches, losses, settings, Path(out), parameters, device, evaluate, after_step)
    if loop.accelerator.is_main_process:
        if fresh:
            discard_checkpoints(out)
        open_run(loop.out, loop.identity(config or {}))
    loop.accelerator.wait_for_everyone()
    return TrainingResult(loop.total, loop.run(show=progress))


@dataclass
class Averages:
    """Weighted means of named values since the last row of the history."""

    sums: dict[str, list[float]] = field(default_factory=dict)  # name → [Σ weight·value, Σ weight]

    def add(self, name: str, value: Tensor | float, weight: float = 1.0) -> None:
        """Add a value."""
        value = float(value.detach()) if isinstance(value, Tensor) else value
        entry = self.sums.setdefault(name, [0.0, 0.0])
        entry[0] += weight * value
        entry[1] += weight

    def means(self) -> dict[str, float]:
        """The mean of each name."""
        return {name: total / weight for name, (total, weight) in self.sums.items() if weight}

    def merged(self, accelerator: Accelerator) -> Averages:
        """The averages over all processes."""
        if accelerator.num_processes == 1:
            return self
        from accelerate.utils import gather_object

        merged = Averages()
        for sums in gather_object([self.sums]):
            for name, (total, weight) in sums.items():
                entry = merged.sums.setdefault(name, [0.0, 0.0])
                entry[0] += total
                entry[1] += weight
        return merged


class AheadBatches:
    """Batches that a thread prepares while the model computes: each call asks for the next one in advance.

    Tokenizers work outside of Python's lock, so the model rarely waits. `settle` waits until nothing is under way:
    a tokenizer must not be used by two threads at once.
    """

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self.coming: tuple[int, Future[Any]] | None = None

    def __call__(self, position: int, following: int | None) -> Any:
        """The batch at a position; the one at `following` is begun."""
        batch = self.coming[1] if self.coming is not None and self.coming[0] == position else None
        found = self.thread.submit(self.batches, position).result() if batch is None else batch.result()
        self.coming = None if following is None else (following, self.thread.submit(self.batches, following))
        return found

    def settle(self) -> None:
        """Wait for the batch under way, which is kept."""
        if self.coming is not None:
            wait([self.coming[1]])

    def close(self) -> None:
        """End the thread."""
        self.thread.shutdown(wait=True, cancel_futures=True)


class _Loop:
    """The state of a running training."""

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        batches: Batches,
        losses: Losses,
        settings: TrainingSettings,
        out: Path,
        parameters: Sequence[ParameterGroup] | None,
        device: str,
        evaluate: Evaluate | None = None,
        after_step: Callable[[int], None] | None = None,
    ) -> None:
        self.modules, self.losses, self.settings, self.out = modules, losses, settings, out
        self.batches = AheadBatches(batches)
        self.evaluate, self.after_step = evaluate, after_step
        self.accelerator = start_accelerator(settings, device, out)
        for module in modules.values():
            module.to(self.accelerator.device)
        self.groups = checked_groups(trainable_groups(*modules.values()) if parameters is None else parameters)
        self.parameters = [p for group in self.groups for p in group.parameters]
        self.total = settings.total_steps(batches.per_epoch, self.accelerator.num_processes)
        self.optimiser = build_optimiser(self.groups, settings)
        self.stepper: Any = self.accelerator.prepare_optimizer(self.optimiser)
        self.progress = Progress()
        self.averages = Averages()

    def identity(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Everything that the weights depend on, as JSON returns it."""
        values = {
            **self.settings.identity(),
            "total_steps": self.total,
            "trained": [sum(p.numel() for p in group.parameters) for group in self.groups],
            "processes": self.accelerator.num_processes,
            **config,
        }
        return json.loads(json.dumps(values))

    def run(self, *, show: bool) -> Progress:
        """Train from the last checkpoint to the last step."""
        self.progress = resume(self.out, self.modules, self.optimiser, self.accelerator.scaler)
        if self.accelerator.is_main_process:
            self.averages = Averages(self.progress.pending)
        shown = show and self.accelerator.is_main_process
        first = self.progress.step
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng())
            stack.callback(self.batches.close)
            stop = stack.enter_context(StopRequest(self.accelerator.num_processes == 1))
            bar = progress_bar(total=self.total, initial=first, unit=" steps", shown=shown, dynamic_ncols=True)
            stack.enter_context(bar)
            while self.progress.step < self.total and not self._has_stopped_improving():
                self.step()
                bar.update()
                self._write_down(bar)
                if stop.requested:
                    if self.progress.step < self.total:
                        self._checkpoint()
                    stop.obey()
        for tracker in self.accelerator.trackers:  # `end_training` would separate processes that may train again
            tracker.finish()
        return self.progress

    def step(self) -> None:
        """Update the weights once."""
        started, step = time.perf_counter(), self.progress.step
        rate = set_learning_rate(self.optimiser, self.settings, step, self.total)
        results = [self._backward(step, turn) for turn in range(self.settings.accumulation)]
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

    def _backward(self, step: int, turn: int) -> tuple[float, float, float]:
        """Add the weighted gradient of one batch; returns weight × loss, weight, tokens.

        In each turn of a step the processes take neighbouring batches.
        """
        from accelerate.utils import send_to_device

        turns = step * self.settings.accumulation + turn
        position = turns * self.accelerator.num_processes + self.accelerator.process_index
        is_last = turns + 1 == self.total * self.settings.accumulation
        started = time.perf_counter()
        batch = self.batches(position, None if is_last else position + self.accelerator.num_processes)
        self.progress.waited += time.perf_counter() - started
        batch = send_to_device(batch, self.accelerator.device)
        seed_torch(self.settings.seed, position)
        with self.accelerator.autocast():
            losses = self.losses(batch)
            total = losses.total if losses.weight == 1 else losses.total * losses.weight
            self.accelerator.backward(total)
        for name, value in losses.terms.items():
            self.averages.add(name, value, losses.weight)
        return float(total.detach()), losses.weight, losses.tokens

    def _check_finite(self, step: int, value: float, what: str = "loss") -> None:
        if not math.isfinite(value):
            written = any((self.out / "checkpoints").glob("step-*"))
            kept = "the last checkpoint is kept" if written else "no checkpoint was written"
            raise DataError(
                f"The {what} is {value} at step {step + 1} of {self.total}; {kept} in {self.out}. Lower the learning "
                "rate, lengthen the warm-up, clip gradients, or look for broken examples."
            )

    def _write_down(self, bar: tqdm) -> None:
        """Write a row of the history, an evaluation and a checkpoint, each when it is due."""
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

    def _log(self, bar: tqdm | None) -> None:
        means = self.averages.merged(self.accelerator).means()
        self.averages = Averages()
        if not self.accelerator.is_main_process:
            return
        progress = self.progress
        row = {"step": progress.step, **means, "tokens": progress.tokens, "seconds": progress.seconds}
        progress.losses.append(row)
        self.accelerator.log(row, step=progress.step)
        rows = progress.losses[-10:]  # the speed over the last rows, so that a change of speed shows
        first = rows[0] if len(rows) > 1 else {"tokens": 0, "seconds": 0.0}
        speed = (rows[-1]["tokens"] - first["tokens"]) / max(rows[-1]["seconds"] - first["seconds"], 1e-9)
        shown = {name: f"{value:.3g}" for name, value in means.items() if name not in NOT_SHOWN}
        waiting = f"{progress.waited / max(progress.seconds, 1e-9):.1%}"
        if bar is not None:
            bar.set_postfix({**shown, "tokens/s": f"{speed:,.0f}", "waiting for data": waiting}, refresh=False)

    def _evaluate(self) -> bool:
        """Score the modules; returns whether the score is the best so far, which the main process decides."""
        is_best = False
        if self.accelerator.is_main_process:
            assert self.evaluate is not None
            step = self.progress.step
            self.batches.settle()
            seed_torch(self.settings.seed, step)
            with evaluating(self.modules.values()):
                scores = {name: float(value) for name, value in self.evaluate(step).items()}
            self.progress.scores.append({"step": step, **scores})
            self.accelerator.log(scores, step=step)
            name = self.settings.best_score
            if name is not None and name not in scores:
                raise SettingError(f"best_score is {name!r}; the evaluation gives {', '.join(scores)}.")
            self.progress.evaluations_since_best += 1
            if name is not None and self.progress.is_best(scores[name], self.settings.lower_is_better):
                self.progress.best_step, self.progress.best_value = step, scores[name]
                self.progress.evaluations_since_best = 0
                is_best = True
        (flag,) = summed(self.accelerator, [float(is_best)])
        return bool(flag)

    def _has_stopped_improving(self) -> bool:
        """Whether as many evaluations as `patience` have passed without a better score; then the run ends here."""
        patience = self.settings.patience
        if patience is None:
            return False
        (stop,) = summed(self.accelerator, [float(self.progress.evaluations_since_best >= patience)])
        if stop and self.averages.sums:
            self._log(None)
            self._checkpoint()
        return bool(stop)

    def _checkpoint(self) -> None:
        pending = self.averages.merged(self.accelerator)
        if self.accelerator.is_main_process:
            self.progress.pending, keep = pending.sums, self.settings.keep_checkpoints
            write_checkpoint(self.out, self.modules, self.optimiser, self.progress, self.accelerator.scaler, keep)
            self.averages = pending
        else:
            self.averages = Averages()
        self.accelerator.wait_for_everyone()


@dataclass(frozen=True)
class Rehearsal:
    """The cost of a training, measured on its first steps: seconds per step, bytes held, bytes per checkpoint."""

    seconds: float
    memory: int
    checkpoint: int


def rehearse(
    modules: Mapping[str, nn.Module],
    batches: Batches,
    losses: Losses,
    settings: TrainingSettings,
    *,
    parameters: Sequence[ParameterGroup] | None = None,
    device: str = "auto",
    beside: int = 0,
) -> Rehearsal:
    """Take the first steps of `train` and measure them; the weights change, and nothing is written.

    Memory counts weights, gradients, optimiser state and the tensors that backward needs, and `beside`: bytes of
    models that are not trained, such as a teacher.
    """
    weights = list({id(p): p for module in modules.values() for p in module.parameters()}.values())
    fewest, most = REHEARSED_STEPS
    with tempfile.TemporaryDirectory(prefix="residuum-") as folder, torch.random.fork_rng():
        loop = _Loop(modules, batches, losses, replace(settings, report_to=()), Path(folder), parameters, device)
        with kept_for_backward(weights) as kept:
            loop.step()
        times = [loop.progress.seconds]
        while loop.progress.step < min(loop.total, most + 1):
            before = loop.progress.seconds
            loop.step()
            times.append(loop.progress.seconds - before)
            if len(times) > fewest and math.fsum(times[1:]) >= REHEARSAL_SECONDS:
                break
        loop.batches.close()
    times = times[1:] or times
    all_weights = sum(p.numel() * p.element_size() for p in weights)
    trained = sum(p.numel() * p.element_size() for p in weights if p.requires_grad)
    return Rehearsal(
        seconds=math.fsum(times) / len(times),
        memory=all_weights + (1 + MOMENTS) * trained + sum(kept.values()) + beside,
        checkpoint=all_weights + MOMENTS * trained,
    )


def training_step(
    name: str, rehearsal: Rehearsal, settings: TrainingSettings, batches_per_epoch: float | None, evaluation: float = 0
) -> CostStep:
    """The cost of all steps, of evaluations of `evaluation` seconds each, and of the last and best checkpoints."""
    from residuum.costs import CostStep

    total = settings.total_steps(batches_per_epoch, process_count())
    evaluations = 0 if settings.evaluate_every is None else math.ceil(total / settings.evaluate_every)
    checkpoints = 1 if settings.best_score is None else 2
    seconds = total * rehearsal.seconds + evaluations * evaluation
    return CostStep(name, seconds, memory=rehearsal.memory, disk=checkpoints * rehearsal.checkpoint)


@contextmanager
def kept_for_backward(weights: Sequence[nn.Parameter]) -> Iterator[dict[int, int]]:
    """The bytes that autograd keeps of a forward pass, by storage; weights are left out."""
    known = {p.untyped_storage()._cdata for p in weights}  # tensors without memory have no other address
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept
