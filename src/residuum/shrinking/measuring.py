"""What was written, measured as it is: the score on the test part, the time, and the same of a narrowed network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, labels_of
from residuum.errors import ModelError
from residuum.maths.neuron_ids import NeuronLayout
from residuum.maths.statistics import Interval
from residuum.models.loading import Model
from residuum.models.vocabularies import Vocabulary
from residuum.probing.batteries import Bench
from residuum.probing.examples import Splits
from residuum.shrinking.candidates import Candidate, train_candidates
from residuum.shrinking.classifiers import Classifier
from residuum.shrinking.costs import classifier_speed_up, in_turns, sampled, sentence_milliseconds, speed_up
from residuum.shrinking.narrowing import narrowed, used_dimensions
from residuum.shrinking.predicting import Predictor
from residuum.shrinking.scoring import prediction_interval
from residuum.shrinking.settings import Settings
from residuum.shrinking.truncation import saved_parameters, size_of


def measure_product(product: Predictor, full: Predictor, test: Corpus, task: Task, seed: int = 0) -> dict[str, Any]:
    """The score of what was written on the test texts, and how much faster it is than the whole model."""
    sample = sampled(test)
    times = in_turns(lambda: full.predict_corpus(sample), lambda: product.predict_corpus(sample))
    full_ms, product_ms = 1e3 * times.min(axis=0) / len(sample)
    alone = classifier_speed_up(full.classifier, product.classifier)
    truth, predicted = labels_of(test, task), product.predict_corpus(test)
    score = prediction_interval(predicted, truth, unit=task.unit, regression=task.regression, seed=seed)
    return {
        "score": float(score.value),
        "interval": [float(score.low), float(score.high)],
        "ms": float(product_ms),
        "ms of the whole model": float(full_ms),
        "speed-up": _interval(speed_up(times)),
        "classifier speed-up": _interval(alone),
        "timed sentences": len(sample),
    }


def measure_narrowed(
    model: Model,
    chosen: Candidate,
    product: Predictor,
    read: Callable[[Model], Splits],
    bench: Bench,
    settings: Settings,
    vocabulary: Vocabulary | None,
    sample: Corpus,
) -> dict[str, Any]:
    """The chosen neurons of a network without the hidden dimensions that none of them uses, with a probe of its own.

    `read` gives the examples as another network reads them. Where nothing can be measured, `narrowing` says why.
    """
    dimensions = used_dimensions(product.classifier.indices)
    if len(dimensions) == model.hidden_size:
        return {"narrowing": f"nothing to drop: each of the {model.hidden_size} hidden dimensions has a chosen neuron"}
    try:
        small = narrowed(model, chosen.layer, dimensions)
    except ModelError as error:
        return {"narrowing": str(error)}
    splits = read(small)
    own = Bench(splits, bench.recipe, bench.max_memory, bench.seed)
    columns = _columns(product.classifier, dimensions, splits.layout)
    candidate = train_candidates(own, "narrowed", {len(dimensions): columns}, settings)[0]
    predictor = Predictor(small, candidate.classifier(splits.layout, product.classifier.labels), product.unit)
    return {
        "narrowing": f"{len(dimensions)} of {model.hidden_size} hidden dimensions",
        "narrowed": {
            **{key: getattr(candidate, key) for key in ("layer", "dev", "test", "low", "high")},
            "neurons": candidate.n_neurons,
            **_size(small, predictor.classifier, vocabulary),
            "ms": sentence_milliseconds(predictor, sample),
        },
    }


def _size(small: Model, classifier: Classifier, vocabulary: Vocabulary | None) -> dict[str, int]:
    size, saved = size_of(small.module), saved_parameters(small.module, vocabulary)
    return {
        "parameters": size.parameters - saved + classifier.weight.size + len(classifier.bias),
        "bytes": size.n_bytes - 4 * saved + classifier.n_bytes,
    }


def _columns(classifier: Classifier, dimensions: np.ndarray, layout: NeuronLayout) -> np.ndarray:
    starts = np.array(layout.starts)[classifier.layers]
    return starts + np.searchsorted(dimensions, classifier.indices)


def _interval(found: Interval) -> list[float]:
    """Value, low, high."""
    return [float(found.value), float(found.low), float(found.high)]
