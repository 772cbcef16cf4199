"""`compare`: every measure for all pairs of layers of all models, in one pass, with intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

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
from residuum.comparison.passes import Activations, cut_into_groups, rows_of_sentences, without_outliers
from residuum.comparison.settings import PAPER, CompareSettings
from residuum.comparison.tables import beside_table, curve_table, layer_table, model_table, similarity_table
from residuum.corpus import Corpus, read_corpus
from residuum.costs import Cost, CostStep, within
from residuum.engine import Engine, as_engine, worker_count
from residuum.errors import SettingError
from residuum.maths.layouts import split_id
from residuum.maths.similarity import MEASURES, check_options
from residuum.maths.statistics import Interval, jackknife
from residuum.settings import command, named_source
from residuum.storage.notebook import progress_bar
from residuum.storage.remote import is_address
from residuum.storage.results import Result, Run, finished_run, read_run, scratch, write_run

if TYPE_CHECKING:  # torch is loaded only where models are read
    import pandas as pd

    from residuum.comparison.outputs import Outputs

OUTLIER_SHARE = 0.5
"""Share of a layer's variance from which a neuron is an outlier that decides a similarity alone."""
FEW_WORDS = 10
"""Words per neuron below which most measures are high by chance."""
ATTENTION = tuple(name for name, measure in MEASURES.items() if "attention" in measure.source)
STANDARD = (*PAPER, "cka_debiased", "procrustes", "ridge", "cka_rbf", "rsa", "knn", *ATTENTION)
OUTPUTS = tuple(name for name, measure in MEASURES.items() if measure.source == "outputs")
SETS = {"paper": PAPER, "attention": ATTENTION, "standard": STANDARD, "outputs": OUTPUTS}


@dataclass(frozen=True, eq=False)
class Comparison(Result):
    """What `compare` measured. `frame` is tidy: one row for each measure and ordered pair of layers."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """measure, model_a, layer_a, model_b, layer_b, value, low, high, null, null_sd, p."""
        return self.run.tables["similarity"]

    @property
    def curves(self) -> pd.DataFrame:
        """One value per layer: localization, layer average, likeness to the next layer, context-specificity."""
        return self.run.tables["curves"]

    @property
    def layers(self) -> pd.DataFrame:
        """Each layer's neurons, how many are constant, and how its variance is spread over neurons and words."""
        return self.run.tables["layers"]

    @property
    def models(self) -> pd.DataFrame:
        """Model × model: the mean over layers of the best similarity to a layer of the other, and of all."""
        return self.run.tables["models"]

    @property
    def beside(self) -> pd.DataFrame:
        """This text minus the other for each measure and pair of layers: value, beside, difference, low, high."""
        if "beside" not in self.run.tables:
            raise SettingError("This comparison was not set beside another; pass `beside`, one over another text.")
        return self.run.tables["beside"]

    @property
    def outputs(self) -> pd.DataFrame:
        """How alike models with heads over the same classes predict: measure, model_a, model_b, value, low, high."""
        if "outputs" not in self.run.tables:
            raise SettingError("This comparison has no measures of outputs; pass measures such as cka,outputs.")
        return self.run.tables["outputs"]

    def difference(self, measure: str, first: Sequence[Any], second: Sequence[Any]) -> Interval:
        """One cell minus another with its 95 % interval; a cell is (model_a, layer_a, model_b, layer_b).

        Both were measured on the same sentences, so the interval is narrower than those of the cells suggest.
        """
        rows = self.frame[self.frame["measure"] == measure].reset_index(drop=True)
        left_out = self.run.tensors.get(f"left_out.{measure}")
        if rows.empty or left_out is None:
            raise SettingError(f"This comparison has no intervals of {measure}, so none of differences either.")
        if MEASURES[measure].source == "attention" and list(first) == [*second[2:], *second[:2]]:
            raise SettingError(
                f"The two directions of a pair of layers have no interval of their difference by {measure}: where the "
                "best heads are mutual it is exactly 0."
            )
        value, low = np.asarray(rows["value"]), np.asarray(rows["low"])
        places = []
        for cell in (first, second):
            (matches,) = np.nonzero(
                (rows[["model_a", "layer_a", "model_b", "layer_b"]] == list(cell)).to_numpy().all(axis=1)
            )
            if not len(matches) or np.isnan(low[matches[0]]):
                raise SettingError(f"There is no interval of {measure} for {tuple(cell)}.")
            places.append(int(matches[0]))
        flat = left_out.reshape(len(left_out), -1)
        a, b = places
        bias = self.run.tensors.get(f"bias.{measure}")
        shift = None if bias is None else np.asarray(bias.ravel()[a] - bias.ravel()[b])
        sizes = self.run.tensors["group_words"]
        return jackknife(np.asarray(value[a] - value[b]), flat[:, a] - flat[:, b], sizes, bias=shift)

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
    themselves without storing anything; a folder of checkpoints is one model each. Intervals are 95 % jackknife
    intervals over `groups` groups of sentences, for the measures where they cover; `null` adds the distribution under
    permuted words. `max_memory` (bytes) trades memory for passes over the words. `beside`, a comparison of the same
    layers over another text, adds the table `beside` of what differs between the texts.
    """
    activations, measures, left_out = _comparable(settings)
    other, outputs = _other_text(settings.beside), _outputs(settings)
    config = {
        "sources": [f"{source.name} {source.fingerprint}" for source in activations],
        **settings.identity(),
        "measures": measures,
        **({"beside": other.config["sources"]} if other else {}),
        **({"outputs": [f"{one.logits.name} {one.logits.fingerprint}" for one in outputs]} if outputs else {}),
    }
    if settings.out is not None and (run := finished_run(settings.out, "compare", config, fresh=settings.fresh)):
        return Comparison(run)
    with scratch(settings.out, config, fresh=settings.fresh) as folder, settings.opened_engine() as engine:
        plan = _plan(settings, activations, measures, engine, folder.absolute())  # workers may be at home elsewhere
        check_memory(plan)
        run = _measure(plan, config, left_out, settings.progress)
        if outputs:
            from residuum.comparison.outputs import output_table

            asked = [measure for measure in chosen_measures(settings.measures) if measure in OUTPUTS]
            run.tables["outputs"] = output_table(outputs, plan.groups, asked, intervals=settings.intervals)
            lost = [source.name for source in activations if source.name not in {one.logits.name for one in outputs}]
            if lost:
                said = f"outputs of {', '.join(lost)} (no head over the classes of another)"
                run.summary["left out"] = "; ".join(filter(None, (run.summary.get("left out"), said)))
    if other:
        run.tables["beside"] = beside_table(run.tables["similarity"], other.tables["similarity"])
        run.summary["beside"] = ", ".join(dict.fromkeys(other.tables["audit"]["text"]))
    if settings.out is not None:
        write_run(settings.out, run)
    return Comparison(run)


def _other_text(beside: Any) -> Run | None:
    """The comparison that this one is set beside."""
    if beside is None or isinstance(beside, Comparison):
        return beside and beside.run
    run = read_run(beside)
    if run.command != "compare":
        raise SettingError(f"{beside} is a run of `{run.command}`; expected one of `compare`.")
    return run


def _estimate(settings: CompareSettings) -> Cost:
    activations, measures, _ = _comparable(replace(settings, max_loss=1.0))
    with settings.opened_engine() as engine:
        return comparison_cost(_plan(settings, activations, measures, engine, Path()))


def _comparable(settings: CompareSettings) -> tuple[list[Activations], list[str], str]:
    """The activations over the same words, the measures that they allow, and what is left out."""
    if not settings.sources:
        raise SettingError("Nothing to compare; give at least one activation store or model.")
    asked = [measure for measure in chosen_measures(settings.measures) if measure not in OUTPUTS]
    if not asked:
        raise SettingError("Measures of outputs stand beside those of layers; pass measures such as cka,outputs.")
    attention = bool(set(asked) & set(ATTENTION))
    activations = list(_activations(settings, attention))
    check_same_words(activations)
    dropped = [_dropped(settings.drop_neurons, source.name, [s.name for s in activations]) for source in activations]
    remedies = (settings.skip_first, settings.clip, settings.standardize)
    activations = [without_outliers(a, neurons, *remedies) for a, neurons in zip(activations, dropped, strict=True)]
    without = [source.name for source in activations if not source.n_heads]
    measures, left_out = asked, ""
    if attention and len(without) == len(activations):  # `all` means all that the models allow
        if "all" not in settings.measures:
            raise SettingError(
                f"{without[0]} gives no attention; extract it with --attention, or load it with attention=True."
            )
        measures = [measure for measure in asked if measure not in ATTENTION]
    if attention and without:
        left_out = f"attention measures ({', '.join(without)} without attention)"
    check_options(measures, settings.measure_options)
    return activations, measures, left_out


def _dropped(ids: Sequence[str], name: str, names: Sequence[str]) -> dict[int, list[int]]:
    """The neurons of a model among `layer:neuron` (of every model) and `MODEL/layer:neuron`."""
    dropped: dict[int, list[int]] = {}
    for neuron_id in ids.split(",") if isinstance(ids, str) else ids:
        model, _, neuron = neuron_id.strip().rpartition("/")
        if model and model not in names:
            raise SettingError(f"{neuron_id} names no model of this comparison; they are {', '.join(names)}.")
        layer, index = split_id(neuron)
        if model in ("", name):
            dropped.setdefault(layer, []).append(index)
    return dropped


def _activations(settings: CompareSettings, attention: bool) -> Iterator[Activations]:
    """Stores as they are; models, and their random twins, over the corpus."""
    corpus, sources = _corpus(settings), _named_sources(settings)
    if corpus is not None and settings.max_memory is not None:
        from residuum.models.loading import check_weights

        models = [source for _, source in sources if isinstance(source, str | Path) and not _is_store(source)]
        times = 1 + settings.random_twins + bool(set(chosen_measures(settings.measures)) & set(OUTPUTS))
        check_weights(models * times, settings.max_memory, settings.precision)
    for name, source in sources:
        if isinstance(source, ActivationStore) or _is_store(source):
            store = source if isinstance(source, ActivationStore) else ActivationStore.open(source)
            yield store.renamed(name) if name else store
        elif corpus is None:
            if isinstance(source, str | Path) and not Path(source).exists():
                raise SettingError(f"{source} does not exist here; expected a store, or a hub name with --corpus.")
            raise SettingError(f"{source} is a model, not an activation store; pass --corpus.")
        else:
            from residuum.activations.live import LiveActivations
            from residuum.models.loading import as_model

            loading = {"device": settings.device, "precision": settings.precision, "attention": attention}
            for twin in (False, True)[: 1 + settings.random_twins]:
                model = as_model(source, random_init=twin, seed=settings.seed, **loading)
                if name is not None:
                    model = replace(model, name=f"{name} (random)" if twin else name)
                reads_attention = attention and model.gives_attention
                yield LiveActivations.of(model, corpus, attention=reads_attention, max_loss=settings.max_loss)


def _corpus(settings: CompareSettings) -> Corpus | None:
    corpus = settings.corpus
    if corpus is None or isinstance(corpus, Corpus):
        return corpus
    return read_corpus(corpus, split=settings.split, limit=settings.limit, **settings.table)


def _named_sources(settings: CompareSettings) -> list[tuple[str | None, Any]]:
    """The sources by name; a folder of `checkpoint-100`, `checkpoint-200`, … gives a model each, in their order."""
    named: list[tuple[str | None, Any]] = []
    for name, source in map(named_source, settings.sources):
        steps = []
        if isinstance(source, str | Path) and not is_address(source) and not (Path(source) / "config.json").exists():
            steps = [folder for folder in Path(source).glob("*-*") if (folder / "config.json").exists()]
            steps = [folder for folder in steps if folder.name.rpartition("-")[2].isdecimal()]
            steps.sort(key=lambda folder: int(folder.name.rpartition("-")[2]))
        named += [(f"{name or Path(source).name} {folder.name}", folder) for folder in steps] or [(name, source)]
    return named


def _outputs(settings: CompareSettings) -> list[Outputs]:
    """The outputs of the models that have heads over classes that another model has, too."""
    if not set(chosen_measures(settings.measures)) & set(OUTPUTS):
        return []
    from residuum.comparison.outputs import model_outputs

    corpus, loaded = _corpus(settings), []
    for name, place in _named_sources(settings):
        if corpus is not None and isinstance(place, str | Path) and not _is_store(place):
            loading = {"device": settings.device, "precision": settings.precision, "max_loss": settings.max_loss}
            loaded.append(model_outputs(place, corpus, name=name, **loading))
    headed = [output for output in loaded if output is not None]
    classes = Counter(output.classes for output in headed)
    alike = [output for output in headed if classes[output.classes] > 1]
    if not alike:
        raise SettingError(
            f"Measures of outputs compare folders or names of models with heads over the same classes; of "
            f"{len(settings.sources)} sources {len(headed)} have a head, and no two the same classes or vocabulary."
        )
    return alike


def _is_store(source: Any) -> bool:
    return isinstance(source, str | Path) and (is_address(source) or (Path(source) / "manifest.json").exists())


def _plan(
    settings: CompareSettings, activations: list[Activations], measures: list[str], engine: Engine | None, folder: Path
) -> ComparisonPlan:
    memory_left = settings.max_memory
    if memory_left is not None and not all(isinstance(source, ActivationStore) for source in activations):
        from residuum.activations.live import LiveActivations

        live = [source for source in activations if isinstance(source, LiveActivations)]
        held = sum(source.extraction.model.n_bytes for source in live)
        within(Cost(", ".join(source.name for source in live), (CostStep("loading", 0.0, memory=held),)), memory_left)
        memory_left -= held
    return ComparisonPlan(
        sources=activations,
        groups=cut_into_groups(
            rows_of_sentences(activations[0]), settings.groups if settings.intervals or "ridge" in measures else 1
        ),
        measures=measures,
        options=settings.measure_options,
        intervals=settings.intervals,
        permutations=settings.permutations if settings.null else 0,
        sample=settings.sample,
        seed=settings.seed,
        engine=as_engine(engine, Engine()),
        max_memory=memory_left,
        scratch=folder,
        products=settings.products,
        threads=worker_count(settings.workers if isinstance(settings.workers, int) else None),
    )


def _measure(plan: ComparisonPlan, config: dict[str, Any], left_out: str, progress: bool) -> Run:
    words = sum(group.words for group in plan.groups)
    rounds = 1 + plan.has_attention + (len(plan.passes()) if plan.of("moments") or plan.of("folds") else 0)
    with progress_bar(total=words * rounds, unit=" words", shown=progress, leave=False) as bar:
        side = side_pass(plan, bar.update)
        estimates: dict[str, LayerEstimate] = {}
        variances: list[LayerVariance] | None = None
        uniform = 0
        if plan.of("moments") or plan.of("folds"):
            measured, variances = moment_estimates(plan, bar.update)
            estimates |= measured
        if plan.of("arrays"):
            estimates |= array_estimates(plan, side.sample, side.sizes)
        if plan.has_attention:
            measured, uniform = attention_estimates(plan, bar.update)
            estimates |= measured
    estimates = {measure: estimates[measure] for measure in plan.measures}
    layers = layer_table(plan, variances, side.first_share)
    outliers = [row for row in layers.to_dict("records") if (row["top_share"] or 0.0) > OUTLIER_SHARE]
    worst = max(outliers, key=lambda row: row["top_share"], default={})
    remedy = "--skip-first 1" if worst.get("first_word_share", 0.0) > OUTLIER_SHARE else "--standardize"
    per_neuron = words / max(plan.widths)
    biased = [m for m in plan.measures if MEASURES[m].source == "moments" and m != "cka_debiased"]
    few = biased if per_neuron < FEW_WORDS else []
    summary = {
        f"{plan.sources[0].unit}s": words,
        "layers": len(plan.widths),
        "groups": len(plan.groups),
        **({"dead neurons": sum(v.constant for v in variances)} if variances is not None else {}),
        **(
            {
                "outlier neurons": f"in {len(outliers)} layer{'s' * (len(outliers) > 1)} one neuron has most of the "
                f"variance (neuron "
                f"{worst['top_neuron']} of layer {worst['layer']} of {worst['model']} has {worst['top_share']:.0%}); "
                f"repeat with {remedy}"
            }
            if outliers
            else {}
        ),
        **({"few words": f"{per_neuron:.0f} per neuron, so high by chance: {', '.join(few)}"} if few else {}),
        **({"words sampled": len(side.sample[0])} if plan.of("arrays") else {}),
        **({"uniform attention rows": uniform} if plan.has_attention else {}),
        **({"left out": left_out} if left_out else {}),
    }
    tables = {
        "similarity": similarity_table(plan, estimates),
        "curves": curve_table(plan, estimates, side.context),
        "layers": layers,
        "models": model_table(plan, estimates),
        "audit": audit_table(plan.sources),
    }
    tensors = {f"left_out.{name}": one.left_out for name, one in estimates.items() if len(one.left_out)}
    tensors |= {f"bias.{name}": one.bias for name, one in estimates.items() if one.bias is not None}
    tensors["group_words"] = np.array([group.words for group in plan.groups])
    return Run(command="compare", config=config, summary=summary, tables=tables, tensors=tensors)


def chosen_measures(measures: str | Sequence[str]) -> list[str]:
    """The names of the measures that are asked for, sets such as `paper` spelled out."""
    names = measures.split(",") if isinstance(measures, str) else list(measures)
    layers = [name for name in MEASURES if name not in OUTPUTS]
    chosen = [name.strip() for part in names for name in {**SETS, "all": layers}.get(part.strip(), (part,))]
    unknown = [name for name in chosen if name not in MEASURES]
    if unknown or not chosen:
        raise SettingError(
            f"Measure {', '.join(unknown) or 'none'} is not known; choose from {', '.join((*SETS, 'all', *MEASURES))}."
        )
    return list(dict.fromkeys(chosen))
