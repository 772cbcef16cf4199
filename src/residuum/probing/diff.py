"""`diff`: a base model beside what was made of it, over several tasks, each model read once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from residuum.activations.store import ActivationStore
from residuum.comparison.comparing import ATTENTION, chosen_measures
from residuum.engine import Workers
from residuum.errors import SettingError
from residuum.maths.probing import Recipe
from residuum.probing.diff_models import NamedSource, ReadModel, named_sources, read_models
from residuum.probing.diff_settings import MEASURES, SHARES, Settings
from residuum.probing.diff_texts import CorpusSource, TaskChoice, Text, read_texts
from residuum.probing.diff_work import Say, Work
from residuum.probing.examples import activations_folder, held_memory
from residuum.probing.redundancy_settings import THRESHOLDS
from residuum.probing.redundancy_settings import Settings as ClusterSettings
from residuum.storage.results import Result, Run, finished_run, scratch, write_run

if TYPE_CHECKING:
    from residuum.models.loading import Model


@dataclass(frozen=True, eq=False)
class Difference(Result):
    """What `diff` measured. `frame` has a row for each task, model and layer: its score, the base's, the change."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """task, model, features, layer, base_layer, depth, score, base, change, low, high."""
        return self.run.tables["change"]

    @property
    def scores(self) -> pd.DataFrame:
        """The probing curves of all models: score, interval, control task and selectivity of every layer."""
        return self.run.tables["scores"]

    @property
    def selection(self) -> pd.DataFrame:
        """Accuracy with only the top or bottom neurons, before and after retraining."""
        return self.run.tables["selection"]

    @property
    def minimal(self) -> pd.DataFrame:
        """All neurons beside the minimal set, for every task and model."""
        return self.run.tables["minimal"]

    @property
    def spread(self) -> pd.DataFrame:
        """How many salient neurons lie in each layer."""
        return self.run.tables["spread"]

    @property
    def properties(self) -> pd.DataFrame:
        """The first neurons of each class of each task."""
        return self.run.tables["properties"]

    @property
    def similarity(self) -> pd.DataFrame:
        """Every pair of layers of all models, as `compare` measures it."""
        return self.run.tables["similarity"]

    @property
    def likeness(self) -> pd.DataFrame:
        """How alike each layer is to the base at the same relative depth, and the base's layer most like it."""
        return self.run.tables["likeness"]

    @property
    def curves(self) -> pd.DataFrame:
        """Localization, layer average and the other curves of `compare`."""
        return self.run.tables["curves"]

    @property
    def survivors(self) -> pd.DataFrame:
        """Neurons that are left in each layer of each model at each clustering threshold."""
        return self.run.tables["survivors"]

    def text(self) -> str:
        """For each task and model: all layers, the layer that changed most, and the minimal set."""
        sizes = {(row["task"], row["model"], row["set"]): row["neurons"] for row in self.minimal.to_dict("records")}
        rows = self.frame.to_dict("records")
        lines = []
        for whole in (row for row in rows if pd.isna(row["layer"])):
            key = (whole["task"], whole["model"])
            layers = [row for row in rows if (row["task"], row["model"]) == key and not pd.isna(row["layer"])]
            most = max(layers, key=lambda row: abs(row["change"]))
            lines.append(
                f"{key[0]}, {key[1]}: all layers {whole['score']:.3f} ({whole['change']:+.3f} "
                f"[{whole['low']:+.3f}, {whole['high']:+.3f}]), most at layer {most['layer']} ({most['change']:+.3f}), "
                f"minimal set {sizes[*key, 'minimal']:,} of {sizes[*key, 'all']:,} neurons"
            )
        return "\n".join(lines)


def diff(
    sources: Sequence[Model | ActivationStore | str | os.PathLike[str]] | Mapping[str, Any],
    corpus: CorpusSource,
    tasks: TaskChoice,
    *,
    measures: str | Sequence[str] = MEASURES,
    groups: int = 5,
    thresholds: Sequence[float] = THRESHOLDS,
    shares: Sequence[float] = SHARES,
    delta: float = 0.01,
    penalty: str = "1e-5",
    properties: int = 20,
    seeds: int = 3,
    seed: int = 0,
    recipe: Recipe | None = None,
    out: str | Path | None = None,
    activations: str | os.PathLike[str] | None = None,
    dev: str | os.PathLike[str] | None = None,
    test: str | os.PathLike[str] | None = None,
    format: str | None = None,
    limit: int | None = None,
    device: str = "auto",
    workers: Workers = None,
    max_memory: int | None = None,
    fresh: bool = False,
    progress: bool = True,
    say: Say = lambda line: None,
    **extraction: Any,
) -> Difference:
    """Compare a base model, the first of `sources`, with what was made of it: fine-tuned, pruned, distilled.

    `sources` are models, their folders or hub names (`NAME=MODEL` gives a name, as does a mapping), or stores over
    `corpus`. `tasks` are names of labels of the corpus; `chunk=PATH` takes a task from another one. Every model reads
    every text once, and that serves probes, minimal sets, clusters and similarities alike; attention is read where
    `measures` need it. Layers of models of different depths are compared at equal relative depth. `limit` applies to
    each part of a corpus, `extraction` are options of `extract` (`layers`, `pooling`, `max_loss`, …). Similarities and
    clusters are those of the text of the first task.
    """
    named = named_sources(sources)
    texts = read_texts(corpus, tasks, dev=dev, test=test, format=format, limit=limit, seed=seed)
    chosen, left_out = possible_measures(measures, named, texts[0])
    settings = Settings(
        measures=tuple(chosen),
        groups=groups,
        thresholds=tuple(thresholds),
        shares=tuple(shares),
        delta=delta,
        penalty=penalty,
        properties=properties,
        seeds=seeds,
        seed=seed,
        recipe=recipe or Recipe(),
    )
    clusters = ClusterSettings(settings.thresholds, pictures=0, seed=seed)
    options = {"device": device, "fresh": fresh, "progress": progress, "max_memory": max_memory, **extraction}
    with activations_folder(activations, out) as folder:
        attention = bool(set(chosen) & set(ATTENTION))
        models = read_models(named, texts, folder, attention=attention, workers=workers, say=say, **options)
        config = _config(models, texts, settings)
        if out is not None and (run := finished_run(out, "diff", config, fresh=fresh)):
            return Difference(run)
        with scratch(out, config, fresh=fresh) as steps:
            work = Work(models, texts, settings, clusters, steps, workers, held_memory(max_memory), progress, say)
            run = Run("diff", config, *work.measured(left_out))
        if out is not None:
            write_run(out, run)
    return Difference(run)


def possible_measures(
    measures: str | Sequence[str], sources: Sequence[NamedSource], text: Text
) -> tuple[list[str], str]:
    """The measures; those of attention are left out where they were not asked for and there is none to read."""
    chosen = chosen_measures(measures)
    reason = _without_attention(sources, text)
    if not reason or not set(chosen) & set(ATTENTION):
        return chosen, ""
    if chosen != list(MEASURES):
        raise SettingError(f"There is no attention to compare: {reason}. Choose measures without attention.")
    return [name for name in chosen if name not in ATTENTION], f"attention: {reason}"


def _without_attention(sources: Sequence[NamedSource], text: Text) -> str:
    if text.unit == "sentence":
        return f"{text.tasks[0].name} is about sentences, and attention is read word by word"
    without = [source.name for source in sources if not source.gives_attention]
    if not without:
        return ""
    return f"{without[0]} gives none (extract it with --attention, or load it with attention=True)"


def _config(models: Sequence[ReadModel], texts: Sequence[Text], settings: Settings) -> dict[str, Any]:
    return {
        "models": {model.name: [store.fingerprint for store in model.stores] for model in models},
        "layers": {model.name: model.stores[0].layers for model in models},
        "texts": {f"{i} {text.corpus.name}": text.corpus.fingerprint for i, text in enumerate(texts, 1)},
        "tasks": {task.name: text.corpus.name for text in texts for task in text.tasks},
        "sentences": [{part: len(own) for part, own in text.parts.items()} for text in texts],
        **settings.facts,
    }
