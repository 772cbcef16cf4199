"""`prune`: the same model with fewer layers, feed-forward neurons or heads, and what that costs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from residuum.activations.live import LiveActivations
from residuum.corpus import Corpus, read_corpus
from residuum.corpus.tasks import TaskCorpora, read_task
from residuum.errors import SettingError
from residuum.maths.moments import MomentsAccumulator
from residuum.maths.probing import Probe
from residuum.maths.profiles import AngularAccumulator, least_turning_run
from residuum.maths.similarity import similarity_matrix
from residuum.models.cards import check_hub, push_to_hub, write_card
from residuum.models.loading import Model, check_weights, from_transformers, resolve_device
from residuum.models.surgery import (
    check_elsewhere,
    check_one_stack,
    check_written,
    keep_layers,
    kept_layers,
    layer_count,
    load_whole,
    merge_layers,
    save_whole,
    to_stored_precision,
    without_layers,
)
from residuum.probing.examples import labelled_splits
from residuum.probing.probe_data import TASK, ProbeData
from residuum.settings import command
from residuum.shrinking.compensation import FIT_LINES, cut_inner, fit_to_original
from residuum.shrinking.healing import heal
from residuum.shrinking.networks import size_of
from residuum.shrinking.planning import Sample, Vectors, block_influence, candidate_harms, harm, quality
from residuum.shrinking.settings import PruneSettings
from residuum.storage.results import Result, Run, finished_run, scratch, write_run

PIECE = 64  # sentences that are read at once
FEW_LINES = 10  # with fewer, all lines are measured on
EVERY = 5  # of which one is held out
Depths = Mapping[int, list[int]]
"""For each number of dropped layers, which ones stay."""


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
        lines = [
            f"Layers {', '.join(map(str, self.kept))} of {summary['layers']} are kept; "
            f"{summary['parameters before']:,} parameters became {summary['parameters after']:,}. "
            f"The model is in {self.folder}."
        ]
        if "fidelity" in (table := self.run.tables["stages"]):
            lines += [stage_line(row) for row in table.to_dict("records")]
        return "\n".join(lines)


def stage_line(row: Mapping[str, Any]) -> str:
    """One model before or after, in a line."""
    text = f"{row['stage']}: {row['layers']} layers, {row['parameters']:,} parameters, fidelity {row['fidelity']:.3f}"
    return text + (f", perplexity {row['perplexity']:.2f}" if "perplexity" in row else "")


@dataclass(frozen=True, eq=False)
class Measured:
    """What layers are scored on: text with its words and labels, and a sample of its lines with the intact vectors.

    `max_loss` is the largest share of words that may be without a representation.
    """

    network: Any
    tokenizer: Any
    text: Corpus | TaskCorpora
    sample: Sample
    original: Vectors
    settings: Any
    max_loss: float = 1.0


@command(PruneSettings)
def prune(settings: PruneSettings) -> Pruning:
    """Write a model without some of its layers or inner neurons to `out`; heads for tasks are kept.

    By position, `drop` or `keep` names the layers. By measurement they say how many, and `by` says how they are
    chosen on `corpus`; `probe` also takes the labels of `task`, in all three parts. With `heal` steps, what is left
    learns from the original on the lines of the corpus.
    """
    out = Path(settings.out)
    check_elsewhere(settings.model, out)
    check_hub(settings.push_to_hub)
    check_weights([settings.model], settings.max_memory, settings.precision)
    network, tokenizer = load_whole(settings.model, precision=settings.precision)
    check_one_stack(network)
    n_layers, text = layer_count(network), measured_text(settings)
    weights = from_transformers(network, tokenizer).fingerprint
    read: Any = text.fingerprint if isinstance(text, Corpus) else None
    if isinstance(text, TaskCorpora):
        read = {part: corpus.fingerprint for part, corpus in text.items()}
    config = {"model": str(settings.model), "weights": weights, **settings.identity(), "corpus": read}
    if run := finished_run(out, "prune", config, fresh=settings.fresh):
        check_written(out)
        push_to_hub(out, settings.push_to_hub)
        return Pruning(out, run)
    network.to(resolve_device(settings.device))  # pyright: ignore[reportArgumentType]
    tables: dict[str, pd.DataFrame] = {"layers": pd.DataFrame({"layer": range(1, n_layers + 1)})}
    with scratch(out, config, fresh=settings.fresh) as space:
        lines = Lines.of(text)
        sample, judge = (lines.sample(network, tokenizer, settings.model, part) for part in ("plan", "held_out"))
        original = judge.vectors(network) if judge else None
        stages = [stage_row("original", network, judge, original)]
        kept = list(range(1, n_layers + 1))
        if settings.by is not None:
            assert text is not None
            assert sample is not None
            vectors = sample.vectors(network)
            measured = Measured(network, tokenizer, text, sample, vectors, settings, settings.max_loss)
            depths, values = layer_choices(measured, settings.by, _number_dropped(settings, n_layers))
            kept = depths[max(depths)]
            tables["curve"] = depth_curve(network, depths, judge, original)
            tables["layers"] = tables["layers"].assign(measure=settings.by, value=values)
        elif settings.drop is not None or settings.keep is not None:
            kept = _named(settings, n_layers)
        tables["layers"].insert(1, "kept", tables["layers"]["layer"].isin(kept))
        cut(network, kept, sample, merge=settings.merge, ffn=settings.ffn, heads=settings.heads)
        if settings.compensate:
            whole: Any = load_whole(settings.model, precision=settings.precision)[0]
            whole.to(network.device)
            many = Sample.of(whole, tokenizer, lines.plan, settings.model, size=FIT_LINES)
            tables["compensation"] = fit_to_original(network, whole, kept, many)
        stages.append(stage_row("pruned", network, judge, original))
        if settings.heal:
            whole = load_whole(settings.model)[0]
            tables["healing"] = heal(network, tokenizer, whole, lines.plan, settings, space, kept=kept)
            stages.append(stage_row("healed", network, judge, original))
        to_stored_precision(network, settings.model)
        save_whole(network, tokenizer, out, source=settings.model)
    tables["stages"] = pd.DataFrame(stages)
    before, after = stages[0]["parameters"], stages[-1]["parameters"]
    summary = {"layers": n_layers, "kept": kept, "parameters before": before, "parameters after": after}
    pruning = Pruning(out, Run(command="prune", config=config, summary=summary, tables=tables))
    _write_card(pruning)
    write_run(out, pruning.run)
    push_to_hub(out, settings.push_to_hub)
    return pruning


def _write_card(pruning: Pruning) -> None:
    """The card of a pruned model: what is left, how it was chosen, and whether anything was trained after that."""
    config = pruning.run.config
    chosen = f"The layers were chosen by {config['by'] or 'position'}."
    healed = (
        f"What is left was trained for {config['heal']} steps to give what the original gives."
        if config["heal"]
        else "Nothing was trained after they were dropped; fine-tune the model before you rely on it."
    )
    first, *stages = pruning.text().splitlines()
    sections = {"": "\n".join([first.partition(" The model is in")[0], *(f"- {line}" for line in stages)])}
    sections |= {"How": f"{chosen} {healed}"}
    title = f"{Path(config['model']).name}, pruned"
    write_card(pruning.folder, title, sections, source=config["model"], tags=["pruning"])


def measured_text(settings: Any) -> Corpus | TaskCorpora | None:
    """The text to measure on, if any: for a probe's task in its three parts."""
    corpus, limit = settings.corpus, settings.limit
    if corpus is None:
        return None
    if settings.task is not None:
        return read_task(settings.task, corpus, limit=limit, seed=settings.seed, **settings.table)
    if isinstance(corpus, Corpus):
        return corpus if limit is None else corpus.limit(limit)
    return read_corpus(corpus, split=settings.split, limit=limit, **settings.table)


@dataclass(frozen=True, eq=False)
class Lines:
    """Text in two parts: what plans and heals, and what nothing but the final measurement reads."""

    plan: list[str]
    held_out: list[str]

    @staticmethod
    def of(text: Corpus | TaskCorpora | list[str] | None) -> Lines:
        """Every fifth line is held out, and where else it stands; of very few lines all are in both parts."""
        corpora = [] if text is None or isinstance(text, list) else [text] if isinstance(text, Corpus) else [
            corpus for _, corpus in text.items()
        ]  # fmt: skip
        lines = text if isinstance(text, list) else [c.text(i) for c in corpora for i in range(len(c))]
        lines = [line for line in lines if line.strip()]
        held_out = lines[::EVERY]
        judged = set(held_out)
        plan = [line for line in lines if line not in judged]
        return Lines(lines, lines) if len(lines) < FEW_LINES or not plan else Lines(plan, held_out)

    def sample(self, network: Any, tokenizer: Any, source: Any, part: str) -> Sample | None:
        """A sample of one part; None without text."""
        lines = self.plan if part == "plan" else self.held_out
        return Sample.of(network, tokenizer, lines, source) if lines else None


def cut(
    network: Any,
    kept: list[int],
    sample: Sample | None,
    *,
    merge: bool = False,
    ffn: float | None = None,
    heads: float | None = None,
) -> dict[str, np.ndarray]:
    """Keep these blocks, and these shares of what is inside them; returns what the narrower parts miss."""
    if merge:
        merge_layers(network, kept)
    keep_layers(network, kept)
    if ffn is None and heads is None:
        return {}
    assert sample is not None
    return cut_inner(network, sample, neurons=ffn, heads=heads)


def stage_row(stage: str, network: Any, judge: Sample | None, original: Vectors | None) -> dict[str, Any]:
    """Size and quality of a model before or after."""
    size = size_of(network)
    row = {"stage": stage, "layers": size.blocks, "parameters": size.parameters, "bytes": size.n_bytes}
    return row | (quality(network, judge, original) if judge is not None and original is not None else {})


def depth_curve(network: Any, depths: Depths, judge: Sample | None, original: Vectors | None) -> pd.DataFrame:
    """Size and quality at every number of layers."""
    rows = []
    for n_dropped, kept in sorted({0: list(range(1, len(depths[min(depths)]) + min(depths) + 1)), **depths}.items()):
        with without_layers(network, kept):
            row = stage_row(f"{len(kept)} layers", network, judge, original)
        rows.append(row | {"dropped": n_dropped, "kept": ",".join(map(str, kept))})
    return pd.DataFrame(rows).drop(columns="stage")


def _named(settings: PruneSettings, n_layers: int) -> list[int]:
    drop, keep = (None if value is None else str(value) for value in (settings.drop, settings.keep))
    return kept_layers(n_layers, drop=drop, keep=keep)


def _number_dropped(settings: PruneSettings, n_layers: int) -> int:
    """How many layers go, where a measurement says which."""
    name, number = ("drop", settings.drop) if settings.drop is not None else ("keep", settings.keep)
    if not str(number).isdecimal() or not 1 <= int(number) < n_layers:
        raise SettingError(
            f"{name} is {str(number)!r}; with a measurement expected the number of layers, from 1 to {n_layers - 1} "
            f"of {n_layers}."
        )
    return int(number) if name == "drop" else n_layers - int(number)


def layer_choices(measured: Measured, by: str, n_dropped: int, *, iterative: bool | None = None) -> tuple[Depths, Any]:
    """Which layers stay when 1 … `n_dropped` go, and the measured value of each layer of the intact model.

    `iterative` measures again after each layer that went.
    """
    network, n_layers = measured.network, layer_count(measured.network)
    values = _MEASURES[by](measured)
    if not (measured.settings.iterative if iterative is None else iterative):
        dropped = {n: _least(measured, by, values, n) for n in range(1, n_dropped + 1)}
        layers = range(1, n_layers + 1)
        return {n: [layer for layer in layers if layer not in gone] for n, gone in dropped.items()}, _shown(values)
    kept, depths, current = list(range(1, n_layers + 1)), {}, values
    for n in range(1, n_dropped + 1):
        gone = _least(measured, by, current, 1)[0]
        kept = [layer for place, layer in enumerate(kept, 1) if place != gone]
        depths[n] = kept
        if n < n_dropped:
            with without_layers(network, kept):
                current = _MEASURES[by](measured)
    return depths, _shown(values)


def _shown(values: np.ndarray) -> np.ndarray:
    """One value per layer; of angles, between all pairs of layers, those of neighbours."""
    return values if values.ndim == 1 else np.diagonal(values, offset=1).copy()


def _least(measured: Measured, by: str, values: np.ndarray, size: int) -> list[int]:
    """The layers to drop: a run of those that turn the states least, else the least valued, of equals the highest."""
    if by == "angular":
        return least_turning_run(values, size)
    signed = -values if by == "cka" else values
    return sorted(sorted(range(1, len(values) + 1), key=lambda layer: (signed[layer - 1], -layer))[:size])


def _similarity_of_neighbours(measured: Measured) -> np.ndarray:
    """CKA of the states before and after each layer: the most alike are dropped."""
    model = _model(measured)
    accumulator = MomentsAccumulator(model.widths, pairs=[(i, i + 1) for i in range(model.n_layers)])
    _read_all(model, measured, accumulator.update)
    return np.diagonal(similarity_matrix(accumulator.result(), "cka"), offset=1).copy()


def _rotation(measured: Measured) -> np.ndarray:
    """The angles between the states of all pairs of layers."""
    model = _model(measured)
    accumulator = AngularAccumulator(model.n_layers + 1)
    _read_all(model, measured, accumulator.update)
    return accumulator.result()


def _probe_gain(measured: Measured) -> np.ndarray:
    """How much better a probe on each layer's output is than one on its input: those that add least are dropped."""
    model, settings = _model(measured), measured.settings
    with tempfile.TemporaryDirectory(prefix="residuum-") as folder:
        reading = {"max_loss": measured.max_loss, "progress": False, "seed": settings.seed}
        splits = labelled_splits(model, measured.text, settings.task or "", activations=folder, **reading)
        data = ProbeData(splits, seed=settings.seed)
        layers = range(model.n_layers + 1)
        probes = [Probe(TASK, splits.layout.layer_slice(layer), seed=settings.seed) for layer in layers]
        scores = np.array([score.value for score in data.score(data.train(probes), "dev")])
    return np.diff(scores)


def _harms(measured: Measured, by: str) -> np.ndarray:
    return candidate_harms(measured.network, lambda network: harm(network, measured.sample, measured.original, by))


_MEASURES: dict[str, Callable[[Measured], np.ndarray]] = {
    "cka": _similarity_of_neighbours,
    "angular": _rotation,
    "influence": lambda measured: block_influence(measured.network, measured.sample),
    "fidelity": lambda measured: _harms(measured, "fidelity"),
    "perplexity": lambda measured: _harms(measured, "perplexity"),
    "probe": _probe_gain,
}


def _model(measured: Measured) -> Model:
    return from_transformers(measured.network, measured.tokenizer)


def _read_all(model: Model, measured: Measured, update: Callable[[Any], None]) -> None:
    corpus: Any = measured.text
    activations = LiveActivations.of(model, corpus, max_loss=measured.max_loss)
    for first in range(0, len(corpus), PIECE):
        update(activations.read(first, min(first + PIECE, len(corpus))).layers)
