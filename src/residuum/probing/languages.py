"""`probe_languages`: learn a task in one language, test it in others, from ever fewer neurons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from residuum.activations.auditing import audit_table
from residuum.activations.correlation import check_room, cluster_store
from residuum.activations.store import ActivationStore
from residuum.corpus.multilingual import FAMILIES, Treebanks, read_treebanks
from residuum.corpus.tasks import Task, labels_of, named_task
from residuum.engine import Workers
from residuum.errors import SettingError
from residuum.maths.metrics import SentenceSums, metric_value
from residuum.maths.probe_scores import ClassScores
from residuum.probing.baselines import baselines, twin_folder
from residuum.probing.baselines import random_twin as build_twin
from residuum.probing.examples import Splits, activations_folder, check_classes, examples, held_memory
from residuum.probing.orders import neuron_orders
from residuum.probing.probe_data import TASK, ProbeData
from residuum.probing.scores import (
    NeuronSet,
    PartScores,
    ProbeGrid,
    all_layers,
    score_columns,
    subsets_of_layers,
    unseen_table,
)
from residuum.probing.settings import ProbeLanguagesSettings
from residuum.settings import command, named_source
from residuum.storage.files import folder_name
from residuum.storage.results import Result, Run, finished_run, write_run

RESAMPLES, INTERVAL = 1000, (0.025, 0.975)
TENTH = 10
"""Every tenth sentence of the training share chooses λ2."""
NOT_PARALLEL = (
    "Warning: the treebanks hold different sentences, so differences between languages are also differences between "
    "texts; there are no held-out translations, and held_out is blank."
)


@dataclass(frozen=True, eq=False)
class LanguageProbing(Result):
    """The result of `probe_languages`. `frame` has one row per model, language and set of neurons."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """Scores with interval and seeds, and how many words have labels that the source language never has."""
        return self.run.tables["languages"]

    @property
    def families(self) -> pd.DataFrame:
        """Means over the languages of a family, without the source language."""
        return self.run.tables["families"]

    @property
    def wide(self) -> pd.DataFrame:
        """One row per threshold, one column per language and model (the shape of tables B.1 and B.2)."""
        return self.run.tables["wide"]

    @property
    def baselines(self) -> pd.DataFrame:
        """Baselines in each language, learnt in the source language."""
        return self.run.tables["baselines"]

    @property
    def unseen(self) -> pd.DataFrame:
        """Labels of each language that the source language never has, and how many words have them."""
        return self.run.tables["unseen"]

    @property
    def students(self) -> pd.DataFrame:
        """Per language: what each student scores beside its teacher, and the paired difference with its interval."""
        return self.run.tables["students"]

    def text(self) -> str:
        """Per model and language, with all neurons: score, interval and baseline; then the answer."""
        rows = self.frame.loc[self.frame["threshold"] == self.frame["threshold"].min()].to_dict("records")
        baselines: dict[str, float] = {}
        for row in self.baselines.to_dict("records"):
            baselines[row["language"]] = max(row["score"], baselines.get(row["language"], 0.0))
        lines = [
            f"{row['family']}, {row['language']}, {row['model']}: {row['score']:.3f} [{row['low']:.3f}, "
            f"{row['high']:.3f}], baseline {baselines[row['language']]:.3f}"
            for row in sorted(rows, key=lambda row: (row["family"], row["language"]))
        ]
        warnings = self.run.summary.get("warnings", [])
        return "\n".join([*lines, *warnings, self.run.summary["answer"], f"Next: {self.run.summary['next']}"])


@command(ProbeLanguagesSettings)
def probe_languages(settings: ProbeLanguagesSettings) -> LanguageProbing:
    """Probe models across the languages of several treebanks.

    Probes learn from the training share of `source` (by default the first treebank) and are tested on all sentences of
    every other language, and on the held-out ones. Neurons are clustered on the source's training sentences; the
    representatives of each threshold are kept in every language. Each model reads each treebank once. The treebanks
    hold the same sentences unless `parallel` is False; then `held_out` is blank outside the source language, and the
    run warns that differences between languages are also those of their texts. `families` names the families of
    languages that the package does not know. Only the students that `teachers` declares (student to teacher) are
    compared with their teachers. `random_twin` also tests all neurons of each model with random weights in every
    language, which doubles the readings.
    """
    task, out = named_task(settings.task), settings.out
    names = ("source", "shares", "seed", "limit", "parallel")
    options = {name: getattr(settings, name) for name in names}
    treebanks = read_treebanks(settings.corpora, task, **options, **settings.table)
    with activations_folder(settings.activations, out) as folder, settings.opened_engine() as engine:
        stores, twins = _read_models(settings, treebanks, task, folder, engine)
        teachers = dict(settings.teachers)
        if unknown := [name for pair in teachers.items() for name in pair if name not in stores]:
            raise SettingError(f"There is no model {unknown[0]} to compare; the models are {', '.join(stores)}.")
        config = {
            "task": task.name,
            "source": treebanks.source,
            "stores": _fingerprints(stores),
            "random_twins": _fingerprints(twins),
            "labels": {language: corpus.fingerprint for language, corpus in treebanks.corpora.items()},
            "sentences": {part: len(numbers) for part, numbers in treebanks.parts[treebanks.source].items()},
            "teachers": teachers,
            **settings.identity(),
        }
        if out is not None and (run := finished_run(out, "probe-languages", config, fresh=settings.fresh)):
            return LanguageProbing(run)
        families = {**FAMILIES, **settings.families}
        probing = _Probing(treebanks, task, settings, families, held_memory(settings.max_memory), engine)
        run = Run("probe-languages", config, *probing.measure(stores, twins, teachers))
    if out is not None:
        write_run(out, run)
    return LanguageProbing(run)


Stores = dict[str, dict[str, ActivationStore]]
"""One store per model and language."""


def _read_models(
    settings: ProbeLanguagesSettings, treebanks: Treebanks, task: Task, folder: Path, engine: Workers
) -> tuple[Stores, Stores]:
    """What every model reads, and (if wanted) what its random twin does; one model is loaded at a time."""
    from residuum.activations.extraction import extract
    from residuum.models.loading import Model, as_model, check_configs

    names = ("layers", "max_memory", "max_loss", "fresh", "progress")
    options: dict[str, Any] = {"unit": task.unit, "workers": engine}
    options |= {name: getattr(settings, name) for name in names}

    def read(model: Model, name: str, folder: Path) -> dict[str, ActivationStore]:
        of_model = folder / folder_name(name)
        return {
            language: extract(model, corpus, of_model / folder_name(language), **options)
            for language, corpus in treebanks.corpora.items()
        }

    models = settings.models
    sources = list(models.items()) if isinstance(models, Mapping) else [named_source(source) for source in models]
    check_configs(source for _, source in sources)
    stores: Stores = {}
    twins: Stores = {}
    for given_name, source in sources:
        model = as_model(source, device=settings.device, max_memory=settings.max_memory)
        name = given_name or model.name
        if name in stores:
            raise SettingError(f"Two models are called {name}; name them, such as teacher=FOLDER and student=FOLDER.")
        stores[name] = read(model, name, folder)
        if settings.random_twin:
            twins[name] = read(build_twin(model, seed=settings.seed), name, twin_folder(folder))
    if not stores:
        raise SettingError("Found no model to probe; give at least one.")
    return stores, twins


def _fingerprints(stores: Stores) -> dict[str, str]:
    return {
        f"{model} {language}": store.fingerprint
        for model, by_language in stores.items()
        for language, store in by_language.items()
    }


@dataclass(frozen=True, eq=False)
class _Probing:
    """What is the same for all models of a run."""

    treebanks: Treebanks
    task: Task
    settings: ProbeLanguagesSettings
    families: Mapping[str, str]
    max_memory: int
    workers: Workers

    def measure(
        self, stores: Stores, twins: Stores, teachers: Mapping[str, str]
    ) -> tuple[dict[str, Any], dict[str, pd.DataFrame]]:
        """The summary and the tables of a run; features are dropped as soon as a model is done."""
        scores, clusters, answers = [], [], AnswerTable(self.treebanks, self.families, self.settings.seed)
        for model, by_language in stores.items():
            self.settings.say(f"{model}: clusters and probes.")
            random = self._twin_scores(twins[model]) if model in twins else {}
            in_languages, kept = self._probe_model(model, by_language, random, answers)
            scores += in_languages
            clusters.append(kept)
        languages = pd.concat(scores, ignore_index=True)
        benches = self._benches(next(iter(stores.values())))
        known, unseen = [], []  # what the labels of the source alone tell of each language
        for language, bench in benches.items():
            place = {"language": language, "family": self.families.get(language, "Other")}
            known += [{**place, "baseline": name, "score": score} for name, score in baselines(bench).items()]
            unseen += [{"language": language, **row} for row in unseen_table(bench).to_dict("records")]
        tables = {
            "languages": languages,
            "families": answers.family_table(languages),
            "students": answers.student_table(teachers),
            "wide": wide_table(languages),
            "clusters": pd.concat(clusters, ignore_index=True),
            "baselines": pd.DataFrame(known),
            "unseen": pd.DataFrame(unseen, columns=["language", "label", "examples"]).astype({"examples": int}),
            "audit": audit_table(store for by_language in stores.values() for store in by_language.values()),
        }
        if self.settings.overlap:
            overlaps = [self._overlap_table(model, by_language) for model, by_language in stores.items()]
            tables["overlap"] = pd.concat(overlaps, ignore_index=True)
        return self._summary(tables, benches[self.treebanks.source]), tables

    def _probe_model(
        self, model: str, stores: dict[str, ActivationStore], random: Mapping[str, float], answers: AnswerTable
    ) -> tuple[list[pd.DataFrame], pd.DataFrame]:
        """The scores of one model in all languages, and what clustering left of its neurons."""
        benches = self._benches(stores)
        source = benches[self.treebanks.source]
        train = source.splits.train
        check_room(train.store, self.max_memory)
        clustering = cluster_store(train.store, train.rows, workers=self.workers)
        kept, layout, rule = [], train.layout, self.settings.representatives
        for threshold in self.settings.thresholds:  # at 0 all neurons are left
            neurons = None
            if threshold:
                neurons = clustering.representatives(threshold, rule, np.random.default_rng(self.settings.seed))
            size = layout.n_neurons if neurons is None else len(neurons)
            kept.append(NeuronSet(f"threshold {threshold:g}", "threshold", layout.layers, size, neurons))
        sets = [*kept, *(subsets_of_layers(train.layout) if self.settings.subsets else [])]
        battery = ProbeGrid(source, sets).train()
        trained = battery.on("train")
        scores = []
        for language in list(benches):
            measured = battery.on("test", benches.pop(language))
            table = self._language_table(model, language, measured, sets, random)
            scores.append(table.assign(train=[trained.mean(chosen.name) for chosen in sets]))
            answers.add(model, language, measured)
        clusters = pd.DataFrame(
            {
                "model": model,
                "threshold": self.settings.thresholds,
                "neurons": [chosen.n_neurons for chosen in kept],
                "share": [chosen.n_neurons / train.layout.n_neurons for chosen in kept],
                "constant": clustering.n_constant,
            }
        )
        return scores, clusters

    def _overlap_table(self, model: str, stores: dict[str, ActivationStore]) -> pd.DataFrame:
        """How many neurons that forward selection finds in one language it also finds in another.

        `overlap` is |A ∩ B| / k for the first k neurons of both languages, `chance` is k / all neurons.
        """
        selected: dict[str, set[int]] = {}
        for language, store in stores.items():
            words = examples(store, labels_of(self.treebanks.corpora[language], self.task))
            splits = Splits(self.task, words, words, words)
            data = ProbeData(splits, max_memory=self.max_memory, seed=self.settings.seed)
            order = neuron_orders(data, ["forward"])["forward"].order
            selected[language] = set(order[: max(round(self.settings.overlap * len(order)), 1)].tolist())
        size, total = len(next(iter(selected.values()))), sum(next(iter(stores.values())).widths)
        rows = [
            {"model": model, "language_a": a, "language_b": b, "neurons": size}
            | {"overlap": len(selected[a] & selected[b]) / size, "chance": size / total}
            for a, b in combinations(selected, 2)
        ]
        return pd.DataFrame(rows)

    def _twin_scores(self, stores: dict[str, ActivationStore]) -> dict[str, float]:
        """The accuracy of a random twin in each language, from all of its neurons."""
        benches = self._benches(stores)
        source = benches[self.treebanks.source]
        whole = all_layers(source.splits.layout)
        battery = ProbeGrid(source, [whole], [TASK]).train()
        return {language: battery.on("test", benches.pop(language)).mean(whole.name) for language in list(benches)}

    def _benches(self, stores: dict[str, ActivationStore]) -> dict[str, ProbeData]:
        """Per language: trained on the source's training share, tested on all sentences of the language.

        The source itself is tested on its held-out sentences only. Where λ2 is to be chosen, that is done on a tenth of
        the training share, which is then not learnt from. Features are read when they are needed.
        """
        whole = {
            language: examples(store, labels_of(self.treebanks.corpora[language], self.task))
            for language, store in stores.items()
        }
        source = whole[self.treebanks.source]
        if isinstance(source.labels, np.ndarray):
            raise SettingError(f"{self.task.name} predicts numbers; probing across languages needs classes.")
        parts = self.treebanks.parts[self.treebanks.source]
        train, held_out = source.select(parts["train"]), source.select(parts["held out"])
        check_classes(train, held_out, held_out)
        tested = {**whole, self.treebanks.source: held_out}
        settings, dev = self.settings, held_out
        if settings.recipe == "converged" and settings.penalty is None:
            sentences = np.unique(train.sentences)
            dev = train.select(sentences[::TENTH].tolist())
            train = train.select(np.setdiff1d(sentences, sentences[::TENTH]).tolist())
        training = (settings.seed, self.workers, settings.penalty, settings.seeds)
        options = (settings.probe_recipe(), self.max_memory, *training)
        return {language: ProbeData(Splits(self.task, train, dev, test), *options) for language, test in tested.items()}

    def _language_table(
        self, model: str, language: str, measured: PartScores, sets: Sequence[NeuronSet], random: Mapping[str, float]
    ) -> pd.DataFrame:
        """One row per set of neurons of one model in one language.

        `held_out` is the score on the sentences whose counterparts were not learnt from. The control task labels word
        types, so it is defined in the source language only. `random_twin` is the score of all of the twin's neurons.
        """
        test = measured.data.splits.test
        held_out = np.isin(test.sentences, self.treebanks.parts[language]["held out"])
        rows = []
        for neurons in sets:
            details = [s.details for s in measured.scores[neurons.name, TASK] if isinstance(s.details, ClassScores)]
            columns = score_columns(measured, neurons.name)
            if language != self.treebanks.source:
                columns |= {"control": np.nan, "control_sd": np.nan, "selectivity": np.nan}
            rows.append(
                {
                    "model": model,
                    "language": language,
                    "family": self.families.get(language, "Other"),
                    "kind": neurons.kind,
                    "features": neurons.name,
                    "threshold": float(neurons.name.split()[1]) if neurons.kind == "threshold" else np.nan,
                    "neurons": neurons.n_neurons,
                    **columns,
                    "random_twin": random.get(language, np.nan),
                    "held_out": float(np.mean([d.correct[held_out].mean() for d in details]))
                    if held_out.any() and (self.treebanks.parallel or language == self.treebanks.source)
                    else np.nan,
                    "words": len(test),
                    "unseen": details[0].n_unseen,
                }
            )
        return pd.DataFrame(rows)

    def _summary(self, tables: Mapping[str, pd.DataFrame], bench: ProbeData) -> dict[str, Any]:
        languages = tables["languages"]
        widest = languages["threshold"].min()
        whole = languages.loc[languages["threshold"] == widest]
        at_home = whole["language"] == self.treebanks.source
        home, abroad = whole.loc[at_home], whole.loc[~at_home]
        summary = {
            "learnt from": self.treebanks.source,
            "languages": len(self.treebanks.corpora),
            "models": int(whole["model"].nunique()),
            "training sentences": len(self.treebanks.parts[self.treebanks.source]["train"]),
            "classes": bench.targets[TASK].n_classes,
            "mean accuracy at home": float(home["score"].mean()),
            "mean accuracy abroad": float(abroad["score"].mean()),
            "words with unseen labels": int(abroad.groupby("language")["unseen"].first().sum()),
        }
        twin = float(abroad["random_twin"].mean())
        return {
            **summary,
            **({} if self.treebanks.parallel else {"warnings": [NOT_PARALLEL]}),
            **({} if np.isnan(twin) else {"mean accuracy of random twins abroad": twin}),
            "answer": self._answer(whole, tables["baselines"], tables["students"]),
            "next": "residuum distill CONFIG --out OUT (a student of the languages that you need)",
        }

    def _answer(self, whole: pd.DataFrame, baselines: pd.DataFrame, students: pd.DataFrame) -> str:
        """How far each model transfers, and in which languages a student falls below its teacher."""
        source, rows, sentences = self.treebanks.source, whole.to_dict("records"), []
        best = {name: max(baselines.loc[baselines["language"] == name, "score"]) for name in self.treebanks.corpora}
        for model in dict.fromkeys(row["model"] for row in rows):
            home = next(row["score"] for row in rows if row["model"] == model and row["language"] == source)
            abroad = [row for row in rows if row["model"] == model and row["language"] != source]
            above = sum(row["low"] > best[row["language"]] for row in abroad)
            sentences.append(
                f"{model}: {self.task.name} learnt in {source} scores {home:.3f} there and "
                f"{np.mean([row['score'] for row in abroad]):.3f} on average in other languages, above baseline in "
                f"{above} of {len(abroad)} ({self.settings.probes_in_words}, 95 % intervals)."
            )
        pairs = students.loc[students["features"] == whole["features"].iloc[0]].to_dict("records")
        for model, teacher in dict.fromkeys((row["model"], row["teacher"]) for row in pairs):
            lost = [f"{r['language']} ({r['change']:+.3f})" for r in pairs if r["model"] == model and r["high"] < 0]
            sentences.append(f"{model} falls below {teacher} in {', '.join(lost) or 'no language'}.")
        return " ".join(sentences)


@dataclass(frozen=True, eq=False)
class AnswerTable:
    """Sums per model, set of neurons and language, sentence by sentence: what intervals are made of.

    Parallel sentences are resampled together in all languages, other sentences in each language by itself; seeds are
    resampled too, so that intervals contain the variance of both.
    """

    treebanks: Treebanks
    families: Mapping[str, str]
    seed: int
    sums: dict[tuple[str, str, str], list[SentenceSums]] = field(default_factory=dict)  # one per run

    def add(self, model: str, language: str, measured: PartScores) -> None:
        """Keep the answers of a model in a language, a row for each sentence of the treebank."""
        labelled = np.unique(measured.data.examples("test").sentences)
        for neurons in measured.sets:
            runs = []
            for score in measured.runs(neurons.name):
                sums = np.zeros((len(self.treebanks.corpora[language]), score.sums.sums.shape[1]))
                sums[labelled] = score.sums.sums
                runs.append(SentenceSums(score.sums.metric, sums))
            self.sums[model, neurons.name, language] = runs

    def family_table(self, languages: pd.DataFrame) -> pd.DataFrame:
        """Means over the languages of a family with their intervals, without the source language."""
        abroad = languages.loc[languages["language"] != self.treebanks.source]
        rows = []
        for (model, family, kind, features), members in abroad.groupby(
            ["model", "family", "kind", "features"], sort=False
        ):
            draws = np.mean([self._draws(str(model), str(features), name) for name in members["language"]], axis=0)
            low, high = np.quantile(draws, INTERVAL)
            rows.append(
                {
                    "model": model,
                    "family": family,
                    "kind": kind,
                    "features": features,
                    "threshold": members["threshold"].iloc[0],
                    "neurons": members["neurons"].iloc[0],
                    "languages": members["language"].nunique(),
                    "score": members["score"].mean(),
                    "low": low,
                    "high": high,
                    "seeds": len(self.sums[str(model), str(features), members["language"].iloc[0]]),
                    "held_out": members["held_out"].mean(),
                }
            )
        return pd.DataFrame(rows)

    def student_table(self, teachers: Mapping[str, str]) -> pd.DataFrame:
        """Per language: what a student scores, its teacher, and the paired difference with its interval."""
        rows = []
        for (model, features, language), runs in self.sums.items():
            teacher = teachers.get(model, "")
            if (teacher, features, language) in self.sums:
                draws = self._draws(model, features, language) - self._draws(teacher, features, language)
                low, high = np.quantile(draws, INTERVAL)
                expected = self.sums[teacher, features, language]
                rows.append(
                    {
                        "model": model,
                        "teacher": teacher,
                        "language": language,
                        "family": self.families.get(language, "Other"),
                        "features": features,
                        "score": float(np.mean([run.value for run in runs])),
                        "teacher_score": float(np.mean([run.value for run in expected])),
                        "low": low,
                        "high": high,
                        "seeds": len(runs),
                    }
                )
        columns = ["model", "teacher", "language", "family", "features", "score", "teacher_score"]
        table = pd.DataFrame(rows, columns=[*columns, "low", "high", "seeds"])
        table.insert(len(columns), "change", table["score"] - table["teacher_score"])
        return table

    def _draws(self, model: str, features: str, language: str) -> Float[np.ndarray, " resample"]:
        """The score of a set of neurons over resampled sentences and seeds."""
        runs = self.sums[model, features, language]
        drawn = _drawn(len(runs[0].sums), self.seed, "" if self.treebanks.parallel else language)
        values = np.stack([metric_value(run.metric, drawn @ run.sums) for run in runs], axis=1)
        return np.mean(values * _drawn(len(runs), self.seed, f"{model} seeds"), axis=1)


@lru_cache(maxsize=32)
def _drawn(n: int, seed: int, key: str) -> Float[np.ndarray, "resample item"]:
    """How often each of n items is in each of the resamples drawn with replacement."""
    generator = np.random.default_rng([seed, *key.encode()])
    return generator.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float64)


def wide_table(languages: pd.DataFrame) -> pd.DataFrame:
    """One row per threshold, one column per family, language and model; the languages of a family are neighbours."""
    rows = languages.loc[languages["kind"] == "threshold"].sort_values(by=["family", "language"], kind="stable")
    columns: dict[str, dict[float, float]] = {}
    for row in rows.to_dict("records"):
        name = f"{row['family']}, {row['language']}, {row['model']}"
        columns.setdefault(name, {})[row["threshold"]] = row["score"]
    return pd.DataFrame(columns).sort_index().rename_axis("threshold").reset_index()
