"""`compare`: every measure for all pairs of layers of all models, in one pass, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from residuum.activations.auditing import audit_table
from residuum.activations.store import ActivationStore, check_same_words
from residuum.comparison.costs import comparison_cost
from residuum.comparison.estimates import (
    Estimate,
    Plan,
    array_estimates,
    attention_estimates,
    moment_estimates,
    side_pass,
)
from residuum.comparison.memory import check_memory
from residuum.comparison.passes import Activations, cut_into_groups, rows_of_sentences
from residuum.comparison.tables import curve_table, layer_table, similarity_table
from residuum.corpus import Corpus, read_corpus
from residuum.costs import Cost, Step, within
from residuum.engine import Engine, Workers, as_engine, worker_count
from residuum.errors import SettingError
from residuum.maths.similarity import MEASURES, check_options
from residuum.storage.remote import is_address
from residuum.storage.results import Result, Run, finished_run, scratch, write_run

if TYPE_CHECKING:  # torch is loaded only where models are read
    import pandas as pd

    from residuum.models.loading import Model

PAPER = ("neuron", "mixed", "svcca", "pwcca", "cka")
ATTENTION = tuple(name for name, measure in MEASURES.items() if "attention" in measure.source)
SETS = {"paper": PAPER, "attention": ATTENTION, "all": tuple(MEASURES)}


@dataclass(frozen=True, eq=False)
class Comparison(Result):
    """What `compare` measured. `frame` is tidy: one row for each measure and ordered pair of layers."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """measure, model_a, layer_a, model_b, layer_b, value, low, high, null."""
        return self.run.tables["similarity"]

    @property
    def curves(self) -> pd.DataFrame:
        """One value per layer: localization, layer average, likeness to the next layer, context-specificity."""
        return self.run.tables["curves"]

    @property
    def layers(self) -> pd.DataFrame:
        """Each layer's neurons, and how many of them are constant."""
        return self.run.tables["layers"]

    def matrix(self, measure: str = "cka") -> pd.DataFrame:
        """One measure as a square: rows are layers x, columns layers y, both labelled (model, layer)."""
        rows = self.frame[self.frame["measure"] == measure]
        if rows.empty:
            there = ", ".join(self.frame["measure"].unique())
            raise SettingError(f"{measure} was not measured; there are {there}.")
        square = rows.pivot_table(
            index=["model_a", "layer_a"], columns=["model_b", "layer_b"], values="value", sort=False
        )
        return square.rename_axis(index=["model", "layer"], columns=["model", "layer"])


def compare(
    sources: Sequence[ActivationStore | Model | str | Path],
    corpus: Corpus | str | Path | None = None,
    *,
    measures: str | Sequence[str] = PAPER,
    out: str | Path | None = None,
    groups: int = 10,
    intervals: bool = True,
    null: bool = False,
    sample: int = 1000,
    seed: int = 0,
    products: str = "float64",
    workers: Workers = None,
    max_memory: int | None = None,
    max_loss: float = 0.0,
    fresh: bool = False,
    progress: bool = True,
    **options: Any,
) -> Comparison:
    """Compare all layers of some models over the same words.

    `sources` are activation stores (or their folders), or models (or their names), which then read `corpus`
    themselves without storing anything (`max_loss` is the share of its words that they may leave out). Intervals are
    95 % jackknife intervals over `groups` groups of sentences; `null` adds each value's counterpart under permuted
    words. `workers` are processes of this machine (all cores by default), or an `Engine`. `max_memory` (bytes) trades
    memory for passes over the words. Words are multiplied in float64; `products="float32"` (sums stay float64) takes
    about half the time and changes values by some 1e-8, but those of `mixed`, which needs the smallest directions, by
    1e-4. `options` are those of the measures (`top_k`, …).
    """
    activations, chosen, left_out = _checked(sources, corpus, measures, options, max_memory, max_loss)
    config = {
        "sources": [f"{source.name} {source.fingerprint}" for source in activations],
        "measures": chosen,
        "groups": groups,
        "intervals": intervals,
        "null": null,
        "sample": sample,
        "seed": seed,
        "products": products,
        "options": options,
    }
    if out is not None and (run := finished_run(out, "compare", config, fresh=fresh)):
        return Comparison(run)
    with scratch(out, config, fresh=fresh) as folder:
        plan = Plan(
            sources=list(activations),
            groups=cut_into_groups(rows_of_sentences(activations[0]), groups),
            measures=chosen,
            options=options,
            intervals=intervals,
            null=null,
            sample=sample,
            seed=seed,
            engine=as_engine(workers, Engine(worker_count(None))),
            max_memory=_room(activations, max_memory),
            scratch=folder.absolute(),  # workers may be at home elsewhere
            products=products,
        )
        check_memory(plan)
        run = _measure(plan, config, left_out, progress)
    if out is not None:
        write_run(out, run)
    return Comparison(run)


def compare_cost(
    sources: Sequence[ActivationStore | Model | str | Path],
    corpus: Corpus | str | Path | None = None,
    *,
    measures: str | Sequence[str] = PAPER,
    groups: int = 10,
    intervals: bool = True,
    null: bool = False,
    sample: int = 1000,
    products: str = "float64",
    workers: Workers = None,
    max_memory: int | None = None,
    times: float = 1.0,
    **options: Any,
) -> Cost:
    """What `compare` would take with the same settings; nothing is written, and little is read.

    `times` is how much longer the text will be than the one that is given, where that is a sample.
    """
    activations, chosen, _ = _checked(sources, corpus, measures, options, max_memory, max_loss=1.0)
    plan = Plan(
        sources=list(activations),
        groups=cut_into_groups(rows_of_sentences(activations[0]), groups),
        measures=chosen,
        options=options,
        intervals=intervals,
        null=null,
        sample=sample,
        seed=0,
        engine=as_engine(workers, Engine(worker_count(None))),
        max_memory=_room(activations, max_memory),
        scratch=Path(),
        products=products,
    )
    return comparison_cost(plan, times)


def _checked(
    sources: Sequence[ActivationStore | Model | str | Path],
    corpus: Corpus | str | Path | None,
    measures: str | Sequence[str],
    options: dict[str, Any],
    max_memory: int | None,
    max_loss: float,
) -> tuple[list[Activations], list[str], str]:
    """The activations over the same words, the measures that they allow, and what is left out."""
    chosen = chosen_measures(measures)
    activations = _comparable([_as_activations(s, corpus, chosen, max_memory, max_loss) for s in sources])
    chosen, left_out = _possible_measures(chosen, measures, activations)
    check_options(chosen, options)
    return activations, chosen, left_out


def _measure(plan: Plan, config: dict[str, Any], left_out: str, progress: bool) -> Run:
    words = sum(group.words for group in plan.groups)
    rounds = 1 + plan.has_attention + (len(plan.passes()) if plan.of("moments") else 0)
    with tqdm(total=words * rounds, unit=" words", disable=None if progress else True, leave=False) as bar:
        context, sample, sizes = side_pass(plan, bar.update)
        estimates: dict[str, Estimate] = {}
        dead: list[int] | None = None
        uniform = 0
        if plan.of("moments"):
            found, dead = moment_estimates(plan, bar.update)
            estimates |= found
        if plan.of("arrays"):
            estimates |= array_estimates(plan, sample, sizes)
        if plan.has_attention:
            found, uniform = attention_estimates(plan, bar.update)
            estimates |= found
    similarity = similarity_table(plan, {measure: estimates[measure] for measure in plan.measures})
    layers = layer_table(plan, dead)
    summary = {
        f"{plan.sources[0].unit}s": words,
        "layers": len(plan.widths),
        "groups": len(plan.groups),
        **({"dead neurons": sum(dead)} if dead is not None else {}),
        **({"words sampled": len(sample[0])} if plan.of("arrays") else {}),
        **({"uniform attention rows": uniform} if plan.has_attention else {}),
        **({"left out": left_out} if left_out else {}),
    }
    tables = {
        "similarity": similarity,
        "curves": curve_table(plan, estimates, context),
        "layers": layers,
        "audit": audit_table(plan.sources),
    }
    return Run(command="compare", config=config, summary=summary, tables=tables)


def chosen_measures(measures: str | Sequence[str]) -> list[str]:
    """The names of the measures that are asked for, sets such as `paper` spelled out."""
    names = measures.split(",") if isinstance(measures, str) else list(measures)
    chosen = [name.strip() for one in names for name in SETS.get(one.strip(), (one,))]
    unknown = [name for name in chosen if name not in MEASURES]
    if unknown or not chosen:
        raise SettingError(
            f"Measure {', '.join(unknown) or 'none'} is not known; choose from {', '.join((*SETS, *MEASURES))}."
        )
    return list(dict.fromkeys(chosen))


def _possible_measures(
    chosen: list[str], asked: str | Sequence[str], activations: list[Activations]
) -> tuple[list[str], str]:
    """`all` means all that the stores allow; an attention measure asked for by name is an error without attention."""
    without = [source.name for source in activations if not source.n_heads]
    if not without or not set(chosen) & set(ATTENTION):
        return chosen, ""
    if asked != "all":
        raise SettingError(
            f"{without[0]} gives no attention; extract it with --attention, or load it with attention=True."
        )
    return [m for m in chosen if m not in ATTENTION], f"attention measures ({', '.join(without)} without attention)"


def _as_activations(
    source: ActivationStore | Model | str | Path,
    corpus: Corpus | str | Path | None,
    measures: list[str],
    max_memory: int | None,
    max_loss: float,
) -> Activations:
    if isinstance(source, ActivationStore):
        return source
    if isinstance(source, str | Path) and (is_address(source) or (Path(source) / "manifest.json").exists()):
        return ActivationStore.open(source)
    if corpus is None:
        raise SettingError(f"{source} is a model, not an activation store; give the corpus that it shall read.")
    from residuum.activations.live import LiveActivations
    from residuum.models.loading import as_model

    wanted = bool(set(measures) & set(ATTENTION))
    model = as_model(source, attention=wanted, max_memory=max_memory)
    text = corpus if isinstance(corpus, Corpus) else read_corpus(corpus)
    return LiveActivations.of(model, text, attention=wanted and model.gives_attention, max_loss=max_loss)


def _room(activations: Sequence[Activations], max_memory: int | None) -> int | None:
    """The bytes that models which read without a store leave to the rest."""
    if max_memory is None or all(isinstance(source, ActivationStore) for source in activations):
        return max_memory
    from residuum.activations.live import LiveActivations

    live = [source for source in activations if isinstance(source, LiveActivations)]
    held = sum(source.extraction.model.n_bytes for source in live)
    within(Cost(", ".join(source.name for source in live), (Step("loading", 0.0, memory=held),)), max_memory)
    return max_memory - held


def _comparable(activations: list[Activations]) -> list[Activations]:
    if not activations:
        raise SettingError("Nothing to compare; give at least one activation store or model.")
    check_same_words(activations)
    return activations
