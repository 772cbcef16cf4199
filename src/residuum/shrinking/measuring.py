"""Measured cost and quality: bytes, milliseconds and speed-ups, scores of predictions and of sentence vectors."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from residuum.corpus import Corpus
from residuum.corpus.tasks import Task, labels_of, named_task
from residuum.errors import CorpusError, DataError
from residuum.evaluation.pairs import SentencePairs
from residuum.maths.metrics import SentenceSums, Truth, score_interval, share_interval
from residuum.maths.probe_scores import number_scores
from residuum.maths.statistics import Interval, bootstrap, bootstrap_mean
from residuum.models.loading import Model, from_transformers, only_first_layers
from residuum.models.sentences import SentenceLayout
from residuum.models.vocabularies import Vocabulary
from residuum.probing.probe_data import ProbeData
from residuum.shrinking.classifier import Classifier, Unit, classifier_bytes
from residuum.shrinking.networks import saved_parameters, size_of, truncated
from residuum.shrinking.planning import LONGEST, encoded, inputs_of, no_cache, sentence_vectors
from residuum.shrinking.predicting import Predictor

SAMPLE = 64  # sentences that are timed
CURVE_SAMPLE = 32  # the same for every layer by itself: one batch
CURVE_REPEATS = 2
REPEATS, FEWEST_REPEATS = 7, 3
ENOUGH = 15.0  # seconds after which a slow model is not timed again, if it was so often
BATCHES = (1, 32)  # texts per batch at which speed and memory of two networks are measured
TIMED_LINES = 32
AT_ONCE = 64  # texts per batch where nothing is timed

Labelled = tuple[Any, Any, int]
"""What was predicted, what is true, and the number of the text."""
Seconds = Float[np.ndarray, "repeat 2"]
Costs = dict[int, dict[str, float]]
"""Of each layer: `layers`, `neurons`, `parameters`, `bytes` and `ms` of a network up to it and a probe on all of it."""


def measure_product(product: Predictor, full: Predictor, test: Corpus, task: Task, data: ProbeData) -> dict[str, Any]:
    """The score of what was written on the test texts, what it keeps of the whole model's, and how much faster it is.

    The share that is kept is paired: both models are judged on the same sentences.
    """
    sample = sampled(test)
    times = in_turns(lambda: full.predict_corpus(sample), lambda: product.predict_corpus(sample))
    full_ms, product_ms = 1e3 * times.min(axis=0) / len(sample)
    alone = classifier_speed_up(full.classifier, product.classifier)
    labels, truth = product.classifier.labels, labels_of(test, task)
    sums, whole = (
        prediction_sums(own.predict_corpus(test), truth, task, data.metric, labels) for own in (product, full)
    )
    score, share = score_interval([sums], seed=data.seed), share_interval(sums, whole, seed=data.seed)
    return {
        "score": float(score.value),
        "interval": [float(score.low), float(score.high)],
        "interval of the share": [float(share.low), float(share.high)],
        "ms": float(product_ms),
        "ms of the whole model": float(full_ms),
        "speed-up": _value_and_bounds(speed_up(times)),
        "classifier speed-up": _value_and_bounds(alone),
        "timed sentences": len(sample),
    }


def _value_and_bounds(interval: Interval) -> list[float]:
    return [float(interval.value), float(interval.low), float(interval.high)]


def layer_costs(model: Model, n_rows: int, vocabulary: Vocabulary | None, sample: Corpus, unit: Unit) -> Costs:
    """What a network up to each layer costs; bytes are those of weights and classifier, ms those of one sentence.

    Layers take turns, so that what else the machine does meanwhile meets all of them; and fewer layers take no longer.
    """
    costs: Costs = {}
    few, layers = sampled(sample, CURVE_SAMPLE), range(model.n_layers + 1)
    rounds: list[list[float]] = []
    while len(rounds) < CURVE_REPEATS and 1e-3 * len(few) * np.sum(rounds) < ENOUGH:
        rounds.append([_milliseconds(model, layer, n_rows, few, unit) for layer in layers])
    milliseconds = np.minimum.accumulate(np.min(rounds, axis=0)[::-1])[::-1]
    for layer in layers:
        network = truncated(model, layer)
        size, saved = size_of(network), saved_parameters(network, vocabulary)
        neurons = sum(model.widths[: layer + 1])
        costs[layer] = {
            "layers": layer,
            "neurons": neurons,
            "parameters": size.parameters - saved,
            "bytes": size.n_bytes - 4 * saved + classifier_bytes(n_rows, neurons),
            "ms": float(milliseconds[layer]),
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
        return sentence_milliseconds(Predictor(model, every, unit), sample, repeats=1)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def prediction_score(predicted: Sequence[Any], truth: Sequence[Any], *, unit: str, regression: bool) -> float:
    """Accuracy over words or sentences, or Pearson's r; what has no true label does not count."""
    labelled = _labelled(predicted, truth, unit)
    if regression:
        return number_scores(*_numbers(labelled)).pearson
    return float(np.mean([found == str(true) for found, true, _ in labelled]))


def prediction_sums(
    predicted: Sequence[Any], truth: Sequence[Any], task: Task, metric: str, labels: Sequence[str]
) -> SentenceSums:
    """The sums over texts of which the task's own metric is a function, as probes have theirs."""
    labelled = _labelled(predicted, truth, task.unit)
    texts = np.array([text for _, _, text in labelled])
    if not labels:
        numbers, true = _numbers(labelled)
        return Truth(metric, true, texts).sums(numbers)
    places = {label: place for place, label in enumerate(labels)}
    outside = places.get("O", 0) if metric == "span_f1" else len(labels)  # a word without any token
    encoded = np.array([places.get(label, outside) for label, _, _ in labelled])
    names = tuple(str(label) for _, label, _ in labelled)
    values = np.array([places.get(name, -1) for name in names])
    positive = places.get(task.positive or "", 1)
    return Truth(metric, values, texts, tuple(labels), names, positive).sums(encoded)


def _labelled(predicted: Sequence[Any], truth: Sequence[Any], unit: str) -> list[Labelled]:
    """The words or texts that have a true label."""
    if len(predicted) != len(truth):
        raise CorpusError(f"{len(truth)} labels came with {len(predicted)} texts; expected one (or one list) for each.")
    pairs = list(zip(predicted, truth, strict=True))
    if unit == "word":
        for number, (found, true) in enumerate(pairs):
            if len(found) != len(true):
                raise CorpusError(f"Text {number} has {len(found)} words, but {len(true)} labels; expected one each.")
        every = [(a, b, text) for text, (x, y) in enumerate(pairs) for a, b in zip(x, y, strict=True)]
    else:
        every = [(a, b, text) for text, (a, b) in enumerate(pairs)]
    labelled = [row for row in every if row[1] is not None]
    if not labelled:
        raise DataError("There is no label to score against; expected at least one.")
    return labelled


def _numbers(labelled: Sequence[Labelled]) -> tuple[np.ndarray, np.ndarray]:
    found, true, _ = zip(*labelled, strict=True)
    return np.array(found, np.float64), np.array(true, np.float64)


@torch.inference_mode()
def text_vectors(network: Any, tokenizer: Any, texts: Sequence[str], layout: SentenceLayout | None) -> Tensor:
    """The sentence vectors of texts, in their order."""
    base: Any = getattr(network, "base_model", network)
    window, device = from_transformers(network, tokenizer).window or LONGEST, next(base.parameters()).device
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    rows = []
    for first in range(0, len(order), AT_ONCE):
        batch = encoded(tokenizer, [texts[i] for i in order[first : first + AT_ONCE]], layout, window)
        rows.append(sentence_vectors(base, inputs_of(batch, device), layout).cpu())
    found = torch.cat(rows)
    return torch.zeros_like(found).index_copy(0, torch.tensor(order), found)


def similarity_score(
    network: Any, tokenizer: Any, task: str, corpus: Corpus, layout: SentenceLayout | None, seed: int
) -> dict[str, float]:
    """Spearman's ρ between the cosines of pairs of sentences and their gold similarity, with its interval."""
    pairs = [(corpus.text(i), corpus.pair_text(i) or "") for i in range(len(corpus))]
    first, second = (
        text_vectors(network, tokenizer, [pair[side] for pair in pairs], layout).double() for side in (0, 1)
    )
    gold = np.array([float(label) for label in labels_of(corpus, named_task(task))])
    truth = Truth("spearman", gold, np.arange(len(gold)))
    interval = score_interval([truth.sums(torch.cosine_similarity(first, second).numpy())], seed=seed)
    bounds = (interval.value, interval.low, interval.high)
    return {name: float(value) for name, value in zip((task, f"{task}_low", f"{task}_high"), bounds, strict=True)}


def retrieval_score(
    network: Any, tokenizer: Any, pairs: Sequence[SentencePairs], layout: SentenceLayout | None
) -> dict[str, float]:
    """How often a sentence is nearest to its translation, over both directions of all language pairs."""
    hits = []
    for task in pairs:
        sides = [text_vectors(network, tokenizer, texts, layout) for texts in (task.source, task.target)]
        a, b = (nn.functional.normalize(vectors, dim=1) for vectors in sides)
        cosines, gold = a @ b.T, torch.arange(len(a))
        hits += [cosines.argmax(dim=1) == gold, cosines.argmax(dim=0) == gold]
    interval = bootstrap_mean(torch.cat(hits).double().numpy())
    return {
        "retrieval": float(interval.value),
        "retrieval_low": float(interval.low),
        "retrieval_high": float(interval.high),
    }


def measured_costs(before: Any, after: Any, tokenizers: Sequence[Any], lines: Sequence[str]) -> list[dict[str, float]]:
    """Milliseconds per text and megabytes of tensors of two models at batches of 1 and 32, and the speed-up.

    Tokenising counts; the models take turns, so that what else the machine does meets both.
    """
    lines = list(lines[:TIMED_LINES])
    rows: list[dict[str, float]] = [{}, {}]
    for size in BATCHES:
        works = [
            batch_reader(network, tokenizer, lines, size)
            for network, tokenizer in zip((before, after), tokenizers, strict=True)
        ]
        times = in_turns(*works)
        ratio = speed_up(times)
        for row, seconds, work in zip(rows, times.min(axis=0), works, strict=True):
            row[f"ms_{size}"] = 1e3 * float(seconds) / len(lines)
            with LiveBytes() as live:
                work(lines[:size])
            row[f"mb_{size}"] = live.peak / 1e6
        rows[1] |= {
            f"speedup_{size}": float(ratio.value),
            f"speedup_{size}_low": float(ratio.low),
            f"speedup_{size}_high": float(ratio.high),
        }
    for row, network in zip(rows, (before, after), strict=True):
        weights = sum(p.numel() * p.element_size() for p in network.parameters()) / 1e6
        row |= {f"mb_{size}": row[f"mb_{size}"] + weights for size in BATCHES}
    return rows


def batch_reader(network: Any, tokenizer: Any, lines: Sequence[str], size: int) -> Any:
    """What reads lines in batches of `size`, tokenising included."""
    base: Any = getattr(network, "base_model", network)
    window = from_transformers(network, tokenizer).window

    @torch.inference_mode()
    def read(texts: Sequence[str] = lines) -> None:
        for first in range(0, len(texts), size):
            batch = encoded(tokenizer, texts[first : first + size], None, window)
            base(**inputs_of(batch, next(base.parameters()).device), **no_cache(base))

    return read


class LiveBytes(TorchDispatchMode):
    """The most bytes that tensors made inside the context held at once."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._held = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count the memory of what it gave that is new."""
        before = {leaf.untyped_storage().data_ptr() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        output = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(output):
            if not isinstance(leaf, Tensor):
                continue
            storage = leaf.untyped_storage()
            place, size = storage.data_ptr(), storage.nbytes()
            if not size or place in self._known or place in before:
                continue
            self._known.add(place)
            self._held += size
            self.peak = max(self.peak, self._held)
            weakref.finalize(storage, self._freed, place, size)
        return output

    def _freed(self, place: int, size: int) -> None:
        self._known.discard(place)
        self._held -= size
