"""`FeatureTransfer`: the same as `transfer`, as an estimator of scikit-learn."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from residuum.corpus import Corpus, read_corpus
from residuum.corpus.tasks import Task, TaskCorpora, labels_of, named_task
from residuum.errors import SettingError
from residuum.maths.probing import Recipe
from residuum.models.loading import Model
from residuum.shrinking.predicting import Predictor
from residuum.shrinking.product import load_product
from residuum.shrinking.scoring import prediction_score
from residuum.shrinking.settings import STEPS, THRESHOLDS
from residuum.shrinking.texts import Text, labelled_corpus
from residuum.shrinking.transferring import Transfer, transfer
from residuum.storage.files import whole_folder
from residuum.storage.results import clear_content_errors, read_run


class FeatureTransfer(BaseEstimator):
    """The fewest layers and neurons of a model that do a task, with a classifier on them.

    Settings are those of `transfer`. `fit` takes a labelled corpus, or texts and their labels; `out` is where the
    result is written (for this process only where it is None, until `save`). As `fit` starts over, it takes the place
    of what an earlier one wrote there with other data or settings; one that was killed goes on.

    Attributes after `fit`: `result_` (the tables), `predictor_`, `classes_` and `n_neurons_`.
    """

    def __init__(
        self,
        model: Model | str | os.PathLike[str],
        task: str | Task = "upos",
        *,
        out: str | os.PathLike[str] | None = None,
        steps: Sequence[str] = STEPS,
        layer_loss: float = 0.01,
        neuron_loss: float = 0.01,
        thresholds: Sequence[float] = THRESHOLDS,
        representatives: str = "medoid",
        budget: str | None = None,
        trim: bool = False,
        penalty: str = "1e-5,1e-5",
        recipe: Recipe | None = None,
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
        self.layer_loss = layer_loss
        self.neuron_loss = neuron_loss
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
        corpus: Corpus | TaskCorpora | str | os.PathLike[str] | Iterable[Text],
        labels: Sequence[Any] | None = None,
        **reading: Any,
    ) -> FeatureTransfer:
        """Choose layers and neurons and train the classifier.

        `corpus` is what `transfer` takes; or texts (of a word task also lists of words, of pairs two segments each)
        with their `labels`, which are cut into training, development and test parts by the seed; what is labelled
        None is left out.
        """
        task = named_task(self.task)
        if labels is not None:
            corpus = labelled_corpus(corpus, labels, unit=task.unit, regression=task.regression)  # pyright: ignore[reportArgumentType]
            task = Task(task.name, "labels", task.unit, task.metric, task.regression)
        settings = {name: value for name, value in self.get_params(deep=False).items() if name not in ("task", "out")}
        folder = self._temporary_folder() if self.out is None else self.out
        options = {"fresh": "changed", "progress": False, **settings, **reading}
        self._adopt(transfer(corpus=corpus, task=task, out=folder, **options))  # pyright: ignore[reportArgumentType]
        return self

    def predict(self, texts: Iterable[Text]) -> list[list[str | None]] | np.ndarray:
        """The label of each text as an array, or of a word task a list of labels for each text."""
        found = self._fitted().predict(texts)
        return found if self.predictor_.unit.unit == "word" else np.array(found)

    def score(
        self, corpus: Corpus | str | os.PathLike[str] | Iterable[Text], labels: Sequence[Any] | None = None
    ) -> float:
        """Accuracy (of a regression Pearson's r) on a labelled corpus, or on texts and their labels."""
        task, predictor = named_task(self.task), self._fitted()
        if labels is not None:
            predicted, truth = predictor.predict(corpus), labels  # pyright: ignore[reportArgumentType]
        else:
            whole = corpus if isinstance(corpus, Corpus) else read_corpus(corpus, regression=task.regression or None)  # pyright: ignore[reportArgumentType]
            predicted, truth = predictor.predict_corpus(whole), labels_of(whole, task)
        return prediction_score(predicted, truth, unit=task.unit, regression=task.regression)

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
        """An estimator that was fitted, from its folder, with its settings.

        `model` is the name of the model that it came from: to fit again where that name cannot be loaded, set the
        model first. `out` is None, so that such a fit leaves the folder as it is.
        """
        place = Path(folder)
        run = read_run(place)
        predictor = load_product(place, device=device)
        with clear_content_errors(run.command, run.folder):
            found = cls(run.config["model"], _task_of(run.config, predictor), device=device, **_settings_of(run.config))
        found._adopt(Transfer(run, place), predictor)
        return found

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "predictor_")

    def _temporary_folder(self) -> str:
        """A folder that is there as long as this object is."""
        folder = tempfile.mkdtemp(prefix="residuum-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    def _adopt(self, result: Transfer, predictor: Predictor | None = None) -> None:
        self.result_ = result
        self.predictor_ = result.predictor if predictor is None else predictor
        self.classes_ = np.array(self.predictor_.classifier.labels)
        self.n_neurons_ = self.predictor_.classifier.n_neurons

    def _fitted(self) -> Predictor:
        if not hasattr(self, "predictor_"):
            raise NotFittedError("This FeatureTransfer is not fitted yet; call fit first, or load a folder.")
        return self.predictor_


def _task_of(config: Mapping[str, Any], predictor: Predictor) -> str | Task:
    """The task's name, or the task itself where the name alone would stand for another kind."""
    name, unit, regression = config["task"], predictor.unit.unit, not predictor.classifier.labels
    known = named_task(name)
    return name if (known.unit, known.regression) == (unit, regression) else Task(name, name, unit, "", regression)


def _settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a run was made with, as `FeatureTransfer` takes them."""
    known = FeatureTransfer.__init__.__kwdefaults__ or {}
    kept = {name: config[name] for name in known if name in config}
    penalties = (np.format_float_scientific(config[name], trim="-", exp_digits=1) for name in ("l1", "l2"))
    return kept | {
        "steps": tuple(config["steps"]),
        "thresholds": tuple(config["thresholds"]),
        "recipe": Recipe(**config["recipe"]),
        "penalty": ",".join(penalties),
    }
