"""`compare`: every measure for all pairs of layers of all models, in one pass, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from residuum.activations.auditing import audit_table
from residuum.activations.store import ActivationStore, check_same_words
from residuum.comparison.costs import check_memory, comparison_cost
from residuum.comparison.estimates import (
    ComparisonPlan,
    LayerEstimate,
    LayerVariance,
    array_estimates,
    attention_estimates,
    moment_estimates,
    side_pass,
)
from residuum.comparison.passes import Activations, cut_into_groups, rows_of_sentences
from residuum.comparison.settings import PAPER, CompareSettings
from residuum.comparison.tables import curve_table, layer_table, similarity_table
from residuum.corpus import Corpus, read_corpus
from residuum.costs import Cost, CostStep, within
from residuum.engine import Engine, as_engine, worker_count
from residuum.errors import SettingError
from residuum.maths.similarity import MEASURES, check_options
from residuum.settings import command, named_source
from residuum.storage.notebook import progress_bar
from residuum.storage.remote import is_address
from residuum.storage.results import Result, Run, finished_run, scratch, write_run

if TYPE_CHECKING:  # torch is loaded only where models are read
    import pandas as pd


OUTLIER_SHARE = 0.5
"""Share of a layer's variance from which a neuron is an outlier that decides a similarity alone."""
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

    def text(self) -> str:
        """The size of the comparison, and how many values it has."""
        return f"{super().text()}\n{len(self.frame):,} values of {self.frame['measure'].nunique()} measures."

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


@command(CompareSettings, estimate=lambda settings: _estimate(settings))
def compare(settings: CompareSettings) -> Comparison:
    """Compare all layers of some models over the same words.

    `sources` are activation stores (or their folders), or models (or their names), which then read `corpus`
    themselves without storing anything. Intervals are 95 % jackknife intervals over `groups` groups of sentences;
    `null` adds the value under permuted words. `max_memory` (bytes) trades memory for passes over the words.
    `products="float32"` changes values by some 1e-8, but those of `mixed`, which needs the smallest directions, by
    1e-4.
    """
    activations, measures, left_out = _comparable(settings)
    config = {
        "sources": [f"{source.name} {source.fingerprint}" for source in activations],
        **settings.identity(),
        "measures": measures,
    }
    if settings.out is not None and (run := finished_run(settings.out, "compare", config, fresh=settings.fresh)):
        return Comparison(run)
    with scratch(settings.out, config, fresh=settings.fresh) as folder, settings.opened_engine() as engine:
        plan = _plan(settings, activations, measures, engine, folder.absolute())  # workers may be at home elsewhere
        check_memory(plan)
        run = _measure(plan, config, left_out, settings.progress)
    if settings.out is not None:
        write_run(settings.out, run)
    return Comparison(run)


def _estimate(settings: CompareSettings) -> Cost:
    activations, measures, _ = _comparable(replace(settings, max_loss=1.0))
    with settings.opened_engine() as engine:
        return comparison_cost(_plan(settings, activations, measures, engine, Path()))


def _comparable(settings: CompareSettings) -> tuple[list[Activations], list[str], str]:
    """The activations over the same words, the measures that they allow, and what is left out."""
    if not settings.sources:
        raise SettingError("Nothing to compare; give at least one activation store or model.")
    asked = chosen_measures(settings.measures)
    attention = bool(set(asked) & set(ATTENTION))
    activations = list(_activations(settings, attention))
    check_same_words(activations)
    measures, left_out = _possible_measures(asked, settings.measures, activations)
    check_options(measures, settings.measure_options)
    return activations, measures, left_out


def _activations(settings: CompareSettings, attention: bool) -> Iterator[Activations]:
    """Stores as they are; models, and their random twins, over the corpus."""
    corpus = settings.corpus
    if corpus is not None and not isinstance(corpus, Corpus):
        corpus = read_corpus(corpus, split=settings.split, limit=settings.limit, **settings.table)
    sources = [named_source(source) for source in settings.sources]
    if corpus is not None and settings.max_memory is not None:
        from residuum.models.loading import check_weights

        models = [source for _, source in sources if isinstance(source, str | Path) and not _is_store(source)]
        check_weights(models * (1 + settings.random_twins), settings.max_memory, settings.precision)
    for name, source in sources:
        if isinstance(source, ActivationStore) or _is_store(source):
            store = source if isinstance(source, ActivationStore) else ActivationStore.open(source)
            yield store.renamed(name) if name else store
        elif corpus is None:
            raise SettingError(f"{source} is a model, not an activation store; pass --corpus.")
        else:
            for twin in (False, True)[: 1 + settings.random_twins]:
                yield _live(settings, source, name, twin, corpus, attention)


def _is_store(source: Any) -> bool:
    return isinstance(source, str | Path) and (is_address(source) or (Path(source) / "manifest.json").exists())


def _live(
    settings: CompareSettings, source: Any, name: str | None, twin: bool, corpus: Corpus, attention: bool
) -> Activations:
    from residuum.activations.live import LiveActivations
    from residuum.models.loading import as_model

    loading = {"device": settings.device, "precision": settings.precision, "attention": attention}
    model = as_model(source, random_init=twin, seed=settings.seed, **loading)
    if name is not None:
        model = replace(model, name=f"{name} (random)" if twin else name)
    return LiveActivations.of(model, corpus, attention=attention and model.gives_attention, max_loss=settings.max_loss)


def _plan(
    settings: CompareSettings, activations: list[Activations], measures: list[str], engine: Engine | None, folder: Path
) -> ComparisonPlan:
    return ComparisonPlan(
        sources=activations,
        groups=cut_into_groups(rows_of_sentences(activations[0]), settings.groups),
        measures=measures,
        options=settings.measure_options,
        intervals=settings.intervals,
        null=settings.null,
        sample=settings.sample,
        seed=settings.seed,
        engine=as_engine(engine, Engine(worker_count(None))),
        max_memory=_memory_left(activations, settings.max_memory),
        scratch=folder,
        products=settings.products,
    )


def _measure(plan: ComparisonPlan, config: dict[str, Any], left_out: str, progress: bool) -> Run:
    words = sum(group.words for group in plan.groups)
    rounds = 1 + plan.has_attention + (len(plan.passes()) if plan.of("moments") else 0)
    with progress_bar(total=words * rounds, unit=" words", shown=progress, leave=False) as bar:
        context, sample, sizes = side_pass(plan, bar.update)
        estimates: dict[str, LayerEstimate] = {}
        variances: list[LayerVariance] | None = None
        uniform = 0
        if plan.of("moments"):
            found, variances = moment_estimates(plan, bar.update)
            estimates |= found
        if plan.of("arrays"):
            estimates |= array_estimates(plan, sample, sizes)
        if plan.has_attention:
            found, uniform = attention_estimates(plan, bar.update)
            estimates |= found
    similarity = similarity_table(plan, {measure: estimates[measure] for measure in plan.measures})
    layers = layer_table(plan, variances)
    summary = {
        f"{plan.sources[0].unit}s": words,
        "layers": len(plan.widths),
        "groups": len(plan.groups),
        **({"dead neurons": sum(v.constant for v in variances)} if variances is not None else {}),
        **_outlier_summary(layers),
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


def _outlier_summary(layers: pd.DataFrame) -> dict[str, str]:
    """A warning where one neuron has more than half of a layer's variance: SVCCA and CKA then compare little else."""
    rows = [row for row in layers.to_dict("records") if (row["top_share"] or 0.0) > OUTLIER_SHARE]
    if not rows:
        return {}
    worst = max(rows, key=lambda row: row["top_share"])
    place = f"neuron {worst['top_neuron']} of layer {worst['layer']} of {worst['model']} has {worst['top_share']:.0%}"
    return {"outlier neurons": f"in {len(rows)} layers one neuron has most of the variance ({place}); --standardize"}


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
    chosen: list[str], asked: Sequence[str], activations: list[Activations]
) -> tuple[list[str], str]:
    """`all` means all that the stores allow; an attention measure asked for by name is an error without attention."""
    without = [source.name for source in activations if not source.n_heads]
    if not without or not set(chosen) & set(ATTENTION):
        return chosen, ""
    if "all" not in asked:
        raise SettingError(
            f"{without[0]} gives no attention; extract it with --attention, or load it with attention=True."
        )
    return [m for m in chosen if m not in ATTENTION], f"attention measures ({', '.join(without)} without attention)"


def _memory_left(activations: Sequence[Activations], max_memory: int | None) -> int | None:
    """The bytes that models which read without a store leave to the rest."""
    if max_memory is None or all(isinstance(source, ActivationStore) for source in activations):
        return max_memory
    from residuum.activations.live import LiveActivations

    live = [source for source in activations if isinstance(source, LiveActivations)]
    held = sum(source.extraction.model.n_bytes for source in live)
    within(Cost(", ".join(source.name for source in live), (CostStep("loading", 0.0, memory=held),)), max_memory)
    return max_memory - held
