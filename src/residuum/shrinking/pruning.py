"""`prune`: the same model with fewer layers, chosen by position or by what they were measured to add."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from residuum.corpus import Corpus, read_corpus
from residuum.corpus.tasks import TaskCorpora, read_task
from residuum.errors import SettingError
from residuum.maths.moments import MomentsAccumulator
from residuum.maths.profiles import AngularAccumulator, least_turning_run
from residuum.maths.similarity import similarity_matrix
from residuum.settings import command
from residuum.shrinking.settings import PruneSettings
from residuum.storage.results import Result, Run, finished_run, write_run

if TYPE_CHECKING:
    import pandas as pd

    from residuum.models.loading import Model

PIECE = 64  # sentences that are read at once
Dropped = tuple[list[int], np.ndarray]
"""Layers to drop, and the value of each layer 1 … L that decided."""


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

    def text(self) -> str:
        """What was kept and saved."""
        summary = self.run.summary
        return (
            f"Layers {', '.join(map(str, self.kept))} of {summary['layers']} are kept; "
            f"{summary['parameters before']:,} parameters became {summary['parameters after']:,}. "
            f"The model is in {self.folder}."
        )


@command(PruneSettings)
def prune(settings: PruneSettings) -> Pruning:
    """Write a model without some of its layers to `out`, as a folder that `from_pretrained` reads; heads are kept.

    By position, `drop` or `keep` names the layers. By measurement, `by` is cka, angular or probe, and `drop` or `keep`
    says how many; the model reads `corpus`, and `probe` also takes the labels of `task`, in all three parts.
    """
    from residuum.models.cards import check_hub, push_to_hub
    from residuum.models.loading import check_weights, from_transformers, resolve_device
    from residuum.models.surgery import check_elsewhere, check_written, kept_layers, layer_count, load_whole

    out, by = Path(settings.out), settings.by
    check_elsewhere(settings.model, out)
    check_hub(settings.push_to_hub)
    check_weights([settings.model], settings.max_memory)
    network, tokenizer = load_whole(settings.model)
    n_layers, text = layer_count(network), _measured_text(settings)
    fingerprints = (
        {part: corpus.fingerprint for part, corpus in text.items()}
        if isinstance(text, TaskCorpora)
        else None
        if text is None
        else text.fingerprint
    )
    weights = from_transformers(network, tokenizer).fingerprint
    config = {"model": str(settings.model), "weights": weights, **settings.identity(), "corpus": fingerprints}
    if run := finished_run(out, "prune", config, fresh=settings.fresh):
        check_written(out)
        if settings.push_to_hub is not None:
            push_to_hub(out, settings.push_to_hub)
        return Pruning(out, run)
    if by is None:
        drop, keep = (None if value is None else str(value) for value in (settings.drop, settings.keep))
        kept, values = kept_layers(n_layers, drop=drop, keep=keep), None
    else:
        n_dropped = _number_dropped(settings.drop, settings.keep, n_layers)
        reader = from_transformers(network, tokenizer)
        reader.module.to(resolve_device(settings.device))
        dropped, values = _MEASURES[by](reader, text, n_dropped, settings)
        kept = [layer for layer in range(1, n_layers + 1) if layer not in dropped]
    pruning = Pruning(out, _write(network, tokenizer, kept, values, config, out))
    if settings.push_to_hub is not None:
        push_to_hub(out, settings.push_to_hub)
    return pruning


def _measured_text(settings: PruneSettings) -> Corpus | TaskCorpora | None:
    """The text to measure on, if any: for a probe's task in its three parts."""
    corpus, limit = settings.corpus, settings.limit
    if corpus is None:
        return None
    if settings.task is not None:
        return read_task(settings.task, corpus, limit=limit, seed=settings.seed, **settings.table)
    if isinstance(corpus, Corpus):
        return corpus if limit is None else corpus.limit(limit)
    return read_corpus(corpus, split=settings.split, limit=limit, **settings.table)


def _number_dropped(drop: Any, keep: Any, n_layers: int) -> int:
    """How many layers go, where a measurement says which."""
    given = str(drop if drop is not None else keep)
    if not given.isdecimal() or not 1 <= int(given) < n_layers:
        raise SettingError(
            f"Found {given!r}; with a measurement expected how many of the {n_layers} layers: a number from 1 to "
            f"{n_layers - 1}."
        )
    return int(given) if drop is not None else n_layers - int(given)


def _similarity_of_neighbours(model: Model, corpus: Any, n_dropped: int, settings: PruneSettings) -> Dropped:
    """CKA of the states before and after each layer: the most alike are dropped."""
    accumulator = MomentsAccumulator(model.widths, pairs=[(i, i + 1) for i in range(model.n_layers)])
    _read_all(model, corpus, accumulator.update, settings.max_loss)
    similarity = similarity_matrix(accumulator.result(), "cka")
    values = np.diagonal(similarity, offset=1).copy()
    return _largest(values, n_dropped), values


def _rotation(model: Model, corpus: Any, n_dropped: int, settings: PruneSettings) -> Dropped:
    """The angle by which each layer turns the states: the run of layers that turns them least is dropped."""
    accumulator = AngularAccumulator(model.n_layers + 1)
    _read_all(model, corpus, accumulator.update, settings.max_loss)
    distances = accumulator.result()
    return least_turning_run(distances, n_dropped), np.diagonal(distances, offset=1).copy()


def _probe_gain(model: Model, corpora: Any, n_dropped: int, settings: PruneSettings) -> Dropped:
    """How much better a probe on each layer's output is than one on its input: those that add least are dropped."""
    from residuum.maths.probing import Probe
    from residuum.probing.examples import labelled_splits
    from residuum.probing.probe_data import TASK, ProbeData

    seed = settings.seed
    with tempfile.TemporaryDirectory(prefix="residuum-") as folder:
        reading = {"max_loss": settings.max_loss, "progress": False}
        splits = labelled_splits(model, corpora, settings.task or "", activations=folder, seed=seed, **reading)
        data = ProbeData(splits, seed=seed)
        probes = [Probe(TASK, splits.layout.layer_slice(layer), seed=seed) for layer in range(model.n_layers + 1)]
        scores = np.array([score.value for score in data.score(data.train(probes), "dev")])
    gains = np.diff(scores)
    return _largest(-gains, n_dropped), gains


_MEASURES: dict[str, Callable[..., Dropped]] = {
    "cka": _similarity_of_neighbours,
    "angular": _rotation,
    "probe": _probe_gain,
}


def _largest(values: np.ndarray, size: int) -> list[int]:
    """The layers with the largest values, of equals the highest; layers count from 1."""
    return sorted(sorted(range(1, len(values) + 1), key=lambda layer: (-values[layer - 1], -layer))[:size])


def _read_all(model: Model, corpus: Corpus, update: Callable[[Any], None], max_loss: float) -> None:
    from residuum.activations.live import LiveActivations

    activations = LiveActivations.of(model, corpus, max_loss=max_loss)
    for first in range(0, len(corpus), PIECE):
        update(activations.read(first, min(first + PIECE, len(corpus))).layers)


def _write(
    network: Any, tokenizer: Any, kept: list[int], values: np.ndarray | None, config: dict[str, Any], out: Path
) -> Run:
    import pandas as pd

    from residuum.models.cards import write_card
    from residuum.models.surgery import keep_layers, layer_count, save_whole

    n_layers, before = layer_count(network), sum(p.numel() for p in network.parameters())
    keep_layers(network, kept)
    after = sum(p.numel() for p in network.parameters())
    save_whole(network, tokenizer, out, source=config["model"])
    table = pd.DataFrame({"layer": range(1, n_layers + 1)})
    table["kept"] = table["layer"].isin(kept)
    if values is not None:
        table = table.assign(measure=config["by"], value=values)
    summary = {"layers": n_layers, "kept": kept, "parameters before": before, "parameters after": after}
    run = Run(command="prune", config=config, summary=summary, tables={"layers": table})
    chosen = f"The layers were chosen by {config['by']}." if config["by"] else "The layers were chosen by position."
    sections = {
        "": Pruning(out, run).text().partition(" The model is in")[0],
        "How": f"{chosen} Nothing was trained after they were dropped; fine-tune the model before you rely on it.",
    }
    write_card(out, f"{Path(config['model']).name}, pruned", sections, source=config["model"], tags=["pruning"])
    write_run(out, run)
    return run
