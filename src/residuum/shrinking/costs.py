"""What each number of layers costs: weights, bytes and time, end to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Float

from residuum.corpus import Corpus
from residuum.maths.statistics import Interval, bootstrap
from residuum.models.loading import Model, only_first_layers
from residuum.models.vocabularies import Vocabulary
from residuum.shrinking.classifiers import Classifier, classifier_bytes
from residuum.shrinking.predicting import Predictor, Unit
from residuum.shrinking.truncation import saved_parameters, size_of, truncated

SAMPLE = 64  # sentences that are timed
CURVE_SAMPLE = 32  # the same for every layer by itself: one batch
CURVE_REPEATS = 2
REPEATS, FEWEST_REPEATS = 7, 3
ENOUGH = 15.0  # seconds after which a slow model is not timed again, if it was so often

Seconds = Float[np.ndarray, "repeat 2"]
Costs = dict[int, dict[str, float]]
"""Of each layer: `layers`, `neurons`, `parameters`, `bytes` and `ms` of a network up to it and a probe on all of it."""


def layer_costs(model: Model, n_rows: int, vocabulary: Vocabulary | None, sample: Corpus, unit: Unit) -> Costs:
    """What a network up to each layer costs; bytes are those of weights and classifier, ms those of one sentence."""
    costs: Costs = {}
    few = sampled(sample, CURVE_SAMPLE)
    for layer in range(model.n_layers + 1):
        network = truncated(model, layer)
        size, saved = size_of(network), saved_parameters(network, vocabulary)
        neurons = sum(model.widths[: layer + 1])
        costs[layer] = {
            "layers": layer,
            "neurons": neurons,
            "parameters": size.parameters - saved,
            "bytes": size.n_bytes - 4 * saved + classifier_bytes(n_rows, neurons),
            "ms": _milliseconds(model, layer, n_rows, few, unit),
        }
    return costs


def network_bytes(cost: Mapping[str, float], n_rows: int) -> float:
    """The bytes of a network alone, whose cost has those of a classifier of `n_rows` classes on all its neurons too."""
    return cost["bytes"] - classifier_bytes(n_rows, int(cost["neurons"]))


def neurons_within(cost: Mapping[str, float], n_rows: int, n_bytes: float) -> int:
    """The most neurons that a classifier may look at if it and its network shall have at most so many bytes."""
    room = n_bytes - network_bytes(cost, n_rows) - classifier_bytes(n_rows, 0)
    each = classifier_bytes(n_rows, 1) - classifier_bytes(n_rows, 0)
    return max(0, min(int(cost["neurons"]), int(room // each)))


def in_turns(slow: Callable[[], object], fast: Callable[[], object], repeats: int = REPEATS) -> Seconds:
    """Seconds of both in every repeat; they take turns, so that what else the machine does meanwhile meets both.

    Long work is repeated less often.
    """
    for work in (slow, fast):  # the first calls fill caches
        work()
    times: list[list[float]] = []
    while len(times) < repeats and (len(times) < FEWEST_REPEATS or np.sum(times) < ENOUGH):
        times.append([_seconds(slow), _seconds(fast)])
    return np.array(times)


def speed_up(times: Seconds) -> Interval:
    """How many times faster the second is: the ratio of total times, with its bootstrap interval over repeats."""
    return bootstrap(lambda chosen: times[chosen, 0].sum() / times[chosen, 1].sum(), len(times))


def classifier_speed_up(slow: Classifier, fast: Classifier, n_rows: int = 10_000, repeats: int = REPEATS) -> Interval:
    """The same of the classifiers alone, on random activations of `n_rows` words."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((n_rows, c.n_neurons), np.float32) for c in (slow, fast))
    return speed_up(in_turns(lambda: slow.decide(x), lambda: fast.decide(y), repeats))


def sentence_milliseconds(predictor: Predictor, sample: Corpus, repeats: int = 3) -> float:
    """Milliseconds of a sentence, text in and label out, at the best of some repeats; one that is long is enough."""
    times = [_seconds(lambda: predictor.predict_corpus(sample))]
    while len(times) < repeats and sum(times) < ENOUGH / REPEATS:
        times.append(_seconds(lambda: predictor.predict_corpus(sample)))
    return 1e3 * min(times) / len(sample)


def sampled(corpus: Corpus, size: int = SAMPLE) -> Corpus:
    """Sentences to time, spread evenly over a corpus."""
    places = np.unique(np.linspace(0, len(corpus) - 1, min(size, len(corpus))).astype(int))
    return corpus.select(places.tolist())


def _milliseconds(model: Model, layer: int, n_rows: int, sample: Corpus, unit: Unit) -> float:
    widths = model.widths[: layer + 1]
    every = Classifier(
        weight=np.zeros((n_rows, sum(widths)), np.float32),
        bias=np.zeros(n_rows, np.float32),
        layers=np.repeat(np.arange(layer + 1), widths),
        indices=np.concatenate([np.arange(width) for width in widths]),
    )
    with only_first_layers(model, layer):
        return sentence_milliseconds(Predictor(model, every, unit), sample, repeats=CURVE_REPEATS)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
