"""`prune`: the same model with fewer layers, chosen by position or by what they were measured to add."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from residuum.corpus import Corpus, read_corpus
from residuum.corpus.tasks import TaskCorpora, read_task
from residuum.costs import Cost, Step, spread, timed
from residuum.errors import SettingError
from residuum.maths.moments import MomentsAccumulator
from residuum.maths.profiles import AngularAccumulator, least_turning_run
from residuum.maths.similarity import similarity_matrix
from residuum.storage.results import Result, Run, finished_run, write_run

if TYPE_CHECKING:
    import pandas as pd

    from residuum.models.loading import Model

PIECE = 64  # sentences that are read at once
MEASUREMENTS = {
    "cka": "CKA of a layer's input and output: the most alike are dropped",
    "angular": "mean angle between the input and output of neighbouring layers: those that turn least are dropped",
    "probe": "what a layer adds to a probe's accuracy on the task: those that add least are dropped",
}


@dataclass(frozen=True, eq=False)
class Pruning(Result):
    """A smaller model: its folder, the layers that it kept (by their old numbers), and what decided."""

    folder: Path
    run: Run

    @property
    def kept(self) -> list[int]:
        """The old numbers of the layers that stayed."""
        return self.run.summary["kept"]

    @property
    def frame(self) -> pd.DataFrame:
        """layer, kept and, where it was measured, measure and value."""
        return self.run.tables["layers"]


def prune(
    model: str | Path,
    out: str | Path,
    *,
    drop: str | int | None = None,
    keep: str | int | None = None,
    by: str | None = None,
    corpus: Corpus | str | Path | None = None,
    task: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    max_loss: float = 0.0,
    seed: int = 0,
    device: str = "auto",
    fresh: bool = False,
) -> Pruning:
    """Write a model without some of its layers to `out`, as a folder that `from_pretrained` reads; heads are kept.

    By position: `drop` or `keep` is `top:6`, `bottom:6`, `alternate` or a list of layers such as `1,4-6` (the
    embeddings, layer 0, always stay). By measurement: `by` is cka, angular or probe, and `drop` or `keep` says how
    many; the model reads `corpus` (of a folder of splits the one named `split`), of which `probe` also takes the labels
    of `task`, in all three parts.
    """
    from residuum.models.surgery import check_elsewhere, check_written, kept_layers, layer_count, load_whole

    _check_choice(drop, keep, by, corpus, task, {"split": split, "limit": limit})
    check_elsewhere(model, out)
    network, tokenizer = load_whole(model)
    n_layers = layer_count(network)
    text = None if corpus is None else _text_of(corpus, task, split, limit, seed)
    config = {
        "model": str(model),
        "weights": _fingerprint(network, tokenizer),
        "drop": drop,
        "keep": keep,
        "by": by,
        "corpus": _fingerprints(text),
        "task": task,
        "limit": limit,
        "seed": seed,
    }
    if run := finished_run(out, "prune", config, fresh=fresh):
        check_written(Path(out))
        return Pruning(Path(out), run)
    if by is None:
        kept, values = kept_layers(n_layers, drop=_text(drop), keep=_text(keep)), None
    else:
        n_dropped = _number_dropped(drop, keep, n_layers)
        assert text is not None, "checked above"
        reader = _on_device(network, tokenizer, device)
        measure = partial(_probe_gain, task=task or "", seed=seed) if by == "probe" else _READINGS[by]
        kept, values = _measured(measure(reader, text, n_dropped, max_loss=max_loss), n_layers)
    return Pruning(Path(out), _write(network, tokenizer, kept, values, config, Path(out)))


def prune_cost(
    model: str | Path,
    *,
    drop: str | int | None = None,
    keep: str | int | None = None,
    by: str | None = None,
    corpus: Corpus | str | Path | None = None,
    task: str | None = None,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    device: str = "auto",
) -> Cost:
    """What `prune` would take: measuring on a few sentences, or a probe's work, and writing the model."""
    from residuum.models.surgery import kept_layers, layer_count, load_whole

    _check_choice(drop, keep, by, corpus, task, {"split": split, "limit": limit})
    network, tokenizer = load_whole(model)
    if by is None:
        kept_layers(layer_count(network), drop=_text(drop), keep=_text(keep))
    else:
        _number_dropped(drop, keep, layer_count(network))
    weights = 4 * network.num_parameters()
    steps = [Step("writing", 0.0, memory=weights, disk=weights)]
    if by is not None:
        assert corpus is not None, "checked above"
        text = _text_of(corpus, task, split, limit, seed)
        reader = _on_device(network, tokenizer, device)
        of_probe = isinstance(text, TaskCorpora)
        steps = (_probe_steps(reader, text, task or "") if of_probe else [_reading_step(reader, text, by)]) + steps
    return Cost(f"{Path(model).name}, by {by or 'position'}", tuple(steps))


def _reading_step(model: Model, corpus: Corpus, by: str) -> Step:
    few = corpus.select(spread(len(corpus), PIECE))
    seconds = timed(lambda: _READINGS[by](model, few, 1, max_loss=1.0))
    return Step("reading", seconds * len(corpus) / len(few), memory=model.n_bytes)


def _probe_steps(model: Model, corpora: TaskCorpora, task: str) -> list[Step]:
    from residuum.engine import HERE
    from residuum.maths.probing import Recipe
    from residuum.probing.examples import MEMORY
    from residuum.probing.task_costs import Training, labelled_data

    data = labelled_data(model, corpora, task)
    probes = Training(data, Recipe(), MEMORY, HERE).step("probes", data.layout.widths, 1)
    return [*data.reading, probes]


@dataclass(frozen=True, eq=False)
class Choice:
    """Layers to drop, and the value of each layer 1 … L that decided."""

    dropped: list[int]
    values: np.ndarray


def _check_choice(
    drop: Any, keep: Any, by: str | None, corpus: Any, task: str | None, reading: Mapping[str, Any]
) -> None:
    if (drop is None) == (keep is None):
        raise SettingError(f"drop is {drop!r} and keep is {keep!r}; give exactly one of them.")
    if by is None:
        given = [name for name, value in {"corpus": corpus, "task": task, **reading}.items() if value is not None]
        if given:
            raise SettingError(
                f"A {' and '.join(given)} is given, but layers are chosen by position; add by, or leave it out."
            )
        return
    if by not in MEASUREMENTS:
        raise SettingError(f"by is {by!r}; choose one of {', '.join(MEASUREMENTS)}.")
    if corpus is None:
        raise SettingError(f"by is {by!r}, which is measured on text; give a corpus.")
    if (task is None) == (by == "probe"):
        needed = "needs a task whose labels are in the corpus" if by == "probe" else "uses no task; leave it out"
        raise SettingError(f"task is {task!r}; by {by!r} {needed}.")


def _text_of(
    corpus: Corpus | str | Path, task: str | None, split: str | None, limit: int | None, seed: int
) -> Corpus | TaskCorpora:
    """The text that is measured on: of a probe's task in its three parts."""
    if task is not None:
        if split is not None:
            raise SettingError(f"split is {split}; a probe learns from one part and is scored on another: give all.")
        return read_task(task, corpus, limit=limit, seed=seed)
    if isinstance(corpus, Corpus):
        return corpus if limit is None else corpus.limit(limit)
    return read_corpus(corpus, split=split, limit=limit)


def _fingerprints(text: Corpus | TaskCorpora | None) -> str | dict[str, str] | None:
    if isinstance(text, TaskCorpora):
        return {part: corpus.fingerprint for part, corpus in text.items()}
    return None if text is None else text.fingerprint


def _number_dropped(drop: str | int | None, keep: str | int | None, n_layers: int) -> int:
    """How many layers go, where a measurement says which."""
    given = drop if drop is not None else keep
    if not str(given).isdecimal() or not 1 <= int(str(given)) < n_layers:
        raise SettingError(
            f"Found {given!r}; with a measurement expected how many of the {n_layers} layers: a number from 1 to "
            f"{n_layers - 1}."
        )
    return int(str(given)) if drop is not None else n_layers - int(str(given))


def _measured(choice: Choice, n_layers: int) -> tuple[list[int], np.ndarray]:
    return [layer for layer in range(1, n_layers + 1) if layer not in choice.dropped], choice.values


def _likeness(model: Model, corpus: Corpus, n_dropped: int, *, max_loss: float) -> Choice:
    """CKA of the states before and after each layer."""
    accumulator = MomentsAccumulator(model.widths, pairs=[(i, i + 1) for i in range(model.n_layers)])
    _read_all(model, corpus, accumulator.update, max_loss)
    similarity = similarity_matrix(accumulator.result(), "cka")
    values = np.array([similarity[layer - 1, layer] for layer in range(1, model.n_layers + 1)])
    return Choice(_largest(values, n_dropped), values)


def _turning(model: Model, corpus: Corpus, n_dropped: int, *, max_loss: float) -> Choice:
    """The angle by which each layer turns the states; the run of layers that turns them least goes as one."""
    accumulator = AngularAccumulator(model.n_layers + 1)
    _read_all(model, corpus, accumulator.update, max_loss)
    distances = accumulator.result()
    values = np.diagonal(distances, offset=1).copy()
    return Choice(least_turning_run(distances, n_dropped), values)


_READINGS: dict[str, Callable[..., Choice]] = {"cka": _likeness, "angular": _turning}


def _probe_gain(model: Model, corpora: Any, n_dropped: int, *, task: str, seed: int, max_loss: float) -> Choice:
    """By how much a probe on each layer's output is better than one on its input, on held-out examples."""
    from residuum.maths.probing import Probe
    from residuum.probing.batteries import TASK, Bench
    from residuum.probing.examples import labelled_splits

    with tempfile.TemporaryDirectory(prefix="residuum-") as folder:
        reading = {"max_loss": max_loss, "progress": False}
        splits = labelled_splits(model, corpora, task, activations=folder, seed=seed, **reading)
        bench = Bench(splits, seed=seed)
        probes = [Probe(TASK, splits.layout.layer_slice(layer), seed=seed) for layer in range(model.n_layers + 1)]
        scores = np.array([score.value for score in bench.score(bench.train(probes), "dev")])
    gains = np.diff(scores)
    return Choice(_largest(-gains, n_dropped), gains)


def _largest(values: np.ndarray, size: int) -> list[int]:
    """The layers with the largest values, of equals the highest; layers count from 1."""
    return sorted(sorted(range(1, len(values) + 1), key=lambda layer: (-values[layer - 1], -layer))[:size])


def _read_all(model: Model, corpus: Corpus, update: Callable[[Any], None], max_loss: float) -> None:
    from residuum.activations.live import LiveActivations

    activations = LiveActivations.of(model, corpus, max_loss=max_loss)
    for first in range(0, len(corpus), PIECE):
        update(activations.read(first, min(first + PIECE, len(corpus))).layers)


def _on_device(network: Any, tokenizer: Any, device: str) -> Model:
    from residuum.models.loading import from_transformers, resolve_device

    network.to(resolve_device(device))
    return from_transformers(network, tokenizer)


def _fingerprint(network: Any, tokenizer: Any) -> str:
    from residuum.models.loading import from_transformers

    return from_transformers(network, tokenizer).fingerprint


def _text(value: str | int | None) -> str | None:
    return None if value is None else str(value)


def _write(
    network: Any, tokenizer: Any, kept: list[int], values: np.ndarray | None, config: dict[str, Any], out: Path
) -> Run:
    import pandas as pd

    from residuum.models.surgery import keep_layers, layer_count, save_whole

    n_layers, before = layer_count(network), sum(p.numel() for p in network.parameters())
    keep_layers(network, kept)
    after = sum(p.numel() for p in network.parameters())
    save_whole(network, tokenizer, out)
    table = pd.DataFrame({"layer": range(1, n_layers + 1)})
    table["kept"] = table["layer"].isin(kept)
    if values is not None:
        table = table.assign(measure=config["by"], value=values)
    summary = {"layers": n_layers, "kept": kept, "parameters before": before, "parameters after": after}
    run = Run(command="prune", config=config, summary=summary, tables={"layers": table})
    write_run(out, run)
    return run
