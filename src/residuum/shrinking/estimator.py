"""`FeatureTransfer`: the same as `transfer`, as a classifier of scikit-learn."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.multiclass import check_classification_targets

from residuum.corpus import Corpus, read_corpus
from residuum.corpus.tasks import Task, TaskCorpora, labels_of, named_task
from residuum.errors import CorpusError, OtherRunError, SettingError
from residuum.maths.probing import ConvergedRecipe, PaperRecipe
from residuum.models.loading import Model
from residuum.shrinking.measuring import prediction_score
from residuum.shrinking.predicting import Predictor, Text, corpus_of, load_predictor, probabilities
from residuum.shrinking.settings import STEPS, Budget
from residuum.shrinking.transferring import Transfer, transfer
from residuum.storage.files import read_json, whole_folder, write_json
from residuum.storage.results import clear_content_errors, read_run

LABELS = "labels.json"
"""Beside a model that was fitted on labels: the type of `y`, since the folder's own labels are text."""
_RECIPES = {"ConvergedRecipe": ConvergedRecipe, "PaperRecipe": PaperRecipe}
_SEQUENCES = ("steps", "thresholds", "penalty")
_TYPES = {"int": int, "float": float, "bool": lambda text: text == "True", "str": str}


class FeatureTransfer(ClassifierMixin, BaseEstimator):
    """The fewest layers and neurons of a model that do a task, with a classifier on them.

    Settings are those of `transfer`. `fit` takes texts and labels: one label per text makes a sentence task, one list
    of labels per text a word task. It also takes a labelled corpus, of which `task` names the labels. `out` is where
    the result is written (None: a temporary folder that lives as long as the estimator). Another `fit` into the same
    folder replaces an earlier one with other data or settings; one that was killed continues.

    Attributes after `fit`: `classes_` (of the type of `y`), `n_neurons_`, `n_unlabelled_` (texts or words without a
    label, which are left out), `result_` (the tables) and `predictor_`.
    """

    def __init__(
        self,
        model: Model | str | os.PathLike[str],
        task: str | Task | None = None,
        *,
        out: str | os.PathLike[str] | None = None,
        steps: Sequence[str] = STEPS,
        keep: float = 0.99,
        speedup: float | None = None,
        thresholds: Sequence[float] = (0.3, 0.5, 0.7),
        representatives: str = "medoid",
        budget: str | Budget | None = None,
        trim: bool = False,
        penalty: tuple[float, float] | None = None,
        recipe: str | ConvergedRecipe | PaperRecipe = "converged",
        pooling: str = "last",
        position: str = "auto",
        seed: int = 0,
        seeds: int = 1,
        device: str = "auto",
    ) -> None:
        self.model = model
        self.task = task
        self.out = out
        self.steps = steps
        self.keep = keep
        self.speedup = speedup
        self.thresholds = thresholds
        self.representatives = representatives
        self.budget = budget
        self.trim = trim
        self.penalty = penalty
        self.recipe = recipe
        self.pooling = pooling
        self.position = position
        self.seed = seed
        self.seeds = seeds
        self.device = device

    def fit(
        self,
        X: Corpus | TaskCorpora | str | os.PathLike[str] | Iterable[Text],
        y: Sequence[Any] | None = None,
        **reading: Any,
    ) -> FeatureTransfer:
        """Choose layers and neurons and train the classifier.

        Texts and labels are split into training, development and test parts by the seed. Labels that are None or NaN
        are left out and counted. `reading` are options of `transfer` that say how a corpus is read.
        """
        corpus, task, label_type = X, self.task, None
        if y is not None:
            corpus, task, label_type, self.n_unlabelled_ = _labelled_corpus(X, y, self.task)
        elif task is None:
            raise SettingError("No labels were given; pass y, or name the task whose labels are in the corpus.")
        self._folder = _ResultFolder.at(self.out)
        settings = {name: value for name, value in self.get_params(deep=False).items() if name not in ("task", "out")}
        options = {"progress": False, **settings, **reading, "corpus": corpus, "task": task, "out": self._folder.path}
        try:
            result = transfer(**options)
        except OtherRunError:
            result = transfer(**options, fresh=True)
        if label_type is not None:
            write_json(self._folder.path / LABELS, {"type": label_type})
        self._adopt(result)
        return self

    def predict(self, X: Iterable[Text]) -> Any:
        """The label of each text as an array, or for a word task one list of labels per text."""
        predicted = self._fitted().predict(X)
        if not self._names:
            return np.array(predicted)
        if self.predictor_.unit.unit == "word":
            return [[self._names.get(label) for label in labels] for labels in predicted]
        return np.array([self._names[label] for label in predicted], dtype=self.classes_.dtype)

    def predict_proba(self, X: Iterable[Text]) -> Any:
        """Probabilities in the order of `classes_`: text × class, or for a word task one array word × class per text.

        A word without any token has NaN.
        """
        predictor = self._fitted()
        if not self._names:
            raise AttributeError("This task predicts numbers; probabilities exist for classes only.")
        place = {label: column for column, label in enumerate(predictor.classifier.labels)}
        order = [place[str(label)] for label in self.classes_.tolist()]
        if predictor.unit.unit == "sentence":
            scores = np.array(predictor.scores(X), np.float64).reshape(-1, len(order))
            return probabilities(scores)[:, order]
        lost = np.full(len(order), np.nan)
        rows = [[lost if word is None else word for word in words] for words in predictor.scores(X)]
        return [probabilities(np.array(words, np.float64).reshape(-1, len(order)))[:, order] for words in rows]

    def score(
        self,
        X: Corpus | str | os.PathLike[str] | Iterable[Text],
        y: Sequence[Any] | None = None,
        sample_weight: None = None,
    ) -> float:
        """Accuracy (Pearson's r of a regression) on texts and their labels, or on a labelled corpus."""
        predictor = self._fitted()
        task, unit = named_task(self.task or "labels"), predictor.unit.unit
        regression = not self._names
        if y is not None:
            predicted, truth = predictor.predict(X), _plain_labels(y, unit)  # pyright: ignore[reportArgumentType]
        else:
            whole = X if isinstance(X, Corpus) else read_corpus(X, regression=task.regression or None)  # pyright: ignore[reportArgumentType]
            predicted, truth = predictor.predict_corpus(whole), labels_of(whole, task)
        return prediction_score(predicted, truth, unit=unit, regression=regression)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Copy the folder that `fit` wrote; `load`, `residuum predict` and plain transformers read it."""
        self._fitted()
        target = Path(folder)
        if target.exists() and any(target.iterdir()):
            raise SettingError(f"{target} is not empty; choose another folder.")
        with whole_folder(target) as temporary:
            shutil.copytree(self.result_.folder, temporary, dirs_exist_ok=True)
        return target

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, device: str = "auto") -> FeatureTransfer:
        """A fitted estimator from its folder, with its settings.

        `model` is the name of the model that it came from: to fit again where that name cannot be loaded, set the
        model first. `out` is None, so that such a fit leaves the folder as it is.
        """
        place = Path(folder)
        run = read_run(place)
        predictor = load_predictor(place, device=device)
        with clear_content_errors(run.command, run.folder):
            known = [name for name in (cls.__init__.__kwdefaults__ or {}) if name in run.config]
            settings: dict[str, Any] = {name: run.config[name] for name in known}
            settings |= {name: None if (v := settings[name]) is None else tuple(v) for name in _SEQUENCES}
            recipe = dict(settings["recipe"])
            recipe |= {"path": tuple(recipe["path"])} if "path" in recipe else {}
            settings["recipe"] = _RECIPES[recipe.pop("name")](**recipe)
            name, unit, regression = run.config["task"], predictor.unit.unit, not predictor.classifier.labels
            task = named_task(name)
            if (task.unit, task.regression) != (unit, regression):  # its name alone would mean another kind
                name = Task(name, name, unit, "", regression)
            loaded = cls(run.config["model"], name, device=device, **settings)
        loaded._folder = _ResultFolder(place, temporary=False)
        loaded._adopt(Transfer(run, place), predictor)
        return loaded

    @property
    def predictor_(self) -> Predictor:
        """The model and its classifier, loaded from the folder when they are first needed."""
        if "_predictor" not in vars(self):
            if not hasattr(self, "result_"):
                raise AttributeError("predictor_ exists after fit.")
            self._predictor = load_predictor(self.result_.folder, device=self.device)
        return self._predictor

    def _adopt(self, result: Transfer, predictor: Predictor | None = None) -> None:
        vars(self).pop("_predictor", None)
        self.result_ = result
        if predictor is not None:
            self._predictor = predictor
        labels, path = self.predictor_.classifier.labels, result.folder / LABELS
        kind = _TYPES[read_json(path)["type"]] if path.exists() else str
        self._names = {label: kind(label) for label in labels}
        self.classes_ = np.unique(np.array([self._names[label] for label in labels]))
        self.n_neurons_ = self.predictor_.classifier.n_neurons

    def _fitted(self) -> Predictor:
        if not hasattr(self, "result_"):
            raise NotFittedError("This FeatureTransfer is not fitted yet; call fit first, or load a folder.")
        return self.predictor_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "result_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = False, True
        if self.task is not None and named_task(self.task).regression:
            tags.estimator_type, tags.classifier_tags = "regressor", None
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_predictor"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "result_" in state:  # the folder has been written anew, perhaps on another machine
            self.result_ = replace(self.result_, folder=self._folder.path)


class _ResultFolder:
    """The folder that `fit` wrote. A temporary one goes with the last estimator that uses it.

    A pickle carries the files, so that a fitted estimator can be sent to another process or machine; a copy in the
    same process shares the folder.
    """

    def __init__(self, path: Path, *, temporary: bool) -> None:
        self.path = path
        if temporary:
            weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)

    @classmethod
    def at(cls, out: str | os.PathLike[str] | None) -> _ResultFolder:
        """The folder that was asked for, or a temporary one."""
        return cls(Path(tempfile.mkdtemp(prefix="residuum-") if out is None else out), temporary=out is None)

    @classmethod
    def of_files(cls, files: Mapping[str, bytes]) -> _ResultFolder:
        """A temporary folder with these files."""
        folder = cls.at(None)
        for name, content in files.items():
            path = folder.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder

    def __deepcopy__(self, memo: object) -> _ResultFolder:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        files = [file for file in self.path.rglob("*") if file.is_file()]
        return _ResultFolder.of_files, ({str(file.relative_to(self.path)): file.read_bytes() for file in files},)


def _labelled_corpus(texts: Any, labels: Any, task: str | Task | None) -> tuple[Corpus, Task, str, int]:
    """Texts and labels as a corpus, the task on it, the type of its labels and how many have none."""
    if isinstance(texts, Corpus | TaskCorpora | os.PathLike) or np.ndim(texts) == 0:
        raise SettingError(
            f"Labels came with {type(texts).__name__}; expected texts: one per label, or list of labels."
        )
    listed = (isinstance(text, Iterable) and not isinstance(text, str | bytes) for text in texts)
    texts_given = [list(text) if is_list else text for text, is_list in zip(texts, listed, strict=True)]
    if len(texts_given) != len(labels):
        raise CorpusError(
            f"{len(texts_given)} texts came with {len(labels)} labels; expected one (or one list) for each."
        )
    named = None if task is None else named_task(task)
    unit = named.unit if named else "word" if _is_nested(labels) else "sentence"
    rows = _plain_labels(labels, unit)
    known = [label for row in (rows if unit == "word" else [rows]) for label in row if label is not None]
    total = sum(len(row) for row in rows) if unit == "word" else len(rows)
    if not known:
        raise CorpusError(f"None of the {total} labels is known; expected at least two classes.")
    if any(isinstance(label, float) and math.isinf(label) for label in known):
        raise CorpusError("Some labels are infinite; expected classes, or finite numbers of a regression.")
    regression = bool(named and named.regression)
    if not regression:
        check_classification_targets(np.array(known))
    kind = float if regression else str
    texted = [None if label is None else kind(label) for label in rows] if unit == "sentence" else None
    name = named.name if named else "labels"
    pairs = unit == "sentence" and bool(texts_given) and isinstance(texts_given[0], list)
    corpus = corpus_of(texts_given, unit=unit, pairs=pairs)
    if texted is None:
        tags = [[None if label is None else str(label) for label in row] for row in rows]
        corpus = replace(corpus, labels={"labels": tags})
    else:
        corpus = replace(corpus, sentence_labels={"labels": texted})
    types = {type(label).__name__ for label in known}
    label_type = types.pop() if len(types) == 1 and types <= set(_TYPES) else "str"
    metric = named.metric if named else None
    return corpus, Task(name, "labels", unit, metric, regression), label_type, total - len(known)


def _is_nested(labels: Any) -> bool:
    """Whether each text has a list of labels; a table of labels is refused."""
    if len(getattr(labels, "shape", ())) > 1:
        raise SettingError(f"The labels have the shape {labels.shape}; expected one label, or one list, per text.")
    return any(isinstance(row, Sequence | np.ndarray) and not isinstance(row, str | bytes) for row in labels)


def _plain_labels(labels: Any, unit: str) -> list[Any]:
    """Labels as plain Python values, None where one is missing (None, NaN or NA)."""
    if unit == "word":
        return [_plain_labels(row, "sentence") for row in labels]
    if _is_nested(labels):
        raise SettingError("Some texts have a list of labels; expected one label per text for a sentence task.")
    values = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    missing = pd.isna(np.array([*values, None], dtype=object))[:-1]
    return [
        None if absent else value.item() if isinstance(value, np.generic) else value
        for value, absent in zip(values, missing, strict=True)
    ]
