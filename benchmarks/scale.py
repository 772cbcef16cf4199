"""Two workers against one, and a Dask cluster against processes, for extraction and moments; costs as predicted.

    RESIDUUM_DATA=… python benchmarks/scale.py [SENTENCES]
    python benchmarks/scale.py forecast

4,000 SENTENCES (UD English PUD four times) through all-MiniLM-L6-v2, on 2 cores. Every engine has loaded the
model before it is timed, and the rounds of the engines alternate, so that what disturbs one disturbs all. `forecast`
says what XLM-R-large over a billion words would take on a core of this machine.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import torch
from measure import data, line, minilm, seconds
from threadpoolctl import threadpool_limits

from residuum.activations.correlation import neuron_moments
from residuum.activations.costs import extract_cost
from residuum.activations.extraction import extract
from residuum.corpus import Corpus, read_corpus
from residuum.costs import Cost, Step, clustering_step, evaluation_step, moments_step
from residuum.engine import MOST_TASKS, Engine, opened_engine
from residuum.models import Model, load_model

ROUNDS = 3
BLOCKS, WIDTH = 24, 1024  # XLM-R-large


def main(sentences: int = 4000) -> None:
    model, corpus = load_model(minilm()), treebank(sentences)
    print(f"   {corpus.n_words:,} words, {model.n_layers + 1} layers of {model.hidden_size}", flush=True)
    with tempfile.TemporaryDirectory() as folder, opened_engine("dask", workers=2) as cluster:
        assert cluster is not None
        engines = {"one worker": Engine(1), "two workers": Engine(2), "two workers of Dask": cluster}
        times = measure(engines, model, corpus, Path(folder))
        ratios = predict(model, sentences, Path(folder))
    print("   " + ", ".join(f"{name} {taken:.1f} s" for name, taken in times.items()), flush=True)
    holds = [
        line("one worker / two workers", times["one worker"] / times["two workers"], 1.6, at_least=True),
        line("Dask / processes, two workers", times["two workers of Dask"] / times["two workers"], 1.15),
        *(line(f"{name}, predicted and measured", max(ratio, 1 / ratio), 1.2) for name, ratio in ratios.items()),
    ]
    sys.exit(not all(holds))


def measure(engines: dict[str, Engine], model: Model, corpus: Corpus, folder: Path) -> dict[str, float]:
    """The best time of each engine; all must have written the same."""
    stores = {}

    def work(name: str, text: Corpus) -> None:
        stores[name] = extract(model, text, folder / name, workers=engines[name], fresh=True, progress=False)
        neuron_moments(stores[name], workers=engines[name])

    for name in engines:
        work(name, corpus.limit(400))
    rounds = [{name: seconds(lambda: work(name, corpus), 1) for name in engines} for _ in range(ROUNDS)]  # noqa: B023
    assert len({store.fingerprint for store in stores.values()}) == 1, "the engines wrote different activations"
    return {name: min(times[name] for times in rounds) for name in engines}


def predict(model: Model, sentences: int, folder: Path) -> dict[str, float]:
    """Predicted / measured time of extraction and moments by one worker, over texts of several sizes."""
    ratios, engine = {}, Engine(1)
    for size in (sentences // 4, sentences // 2, sentences):
        text = treebank(size)
        predicted = extract_cost(model, text, workers=engine).seconds
        stores = []
        work = partial(extract, model, text, folder / "predicted", workers=engine, fresh=True, progress=False)
        measured = seconds(lambda: stores.append(work()), 2)  # noqa: B023
        ratios[f"extraction of {text.n_words:,} words"] = predicted / measured
        store = stores[-1]
        step = moments_step("", store.widths, store.n_rows, 1, engine, "float32")
        measured = seconds(lambda: neuron_moments(store, workers=engine), 2)  # noqa: B023
        ratios[f"moments of {text.n_words:,} words"] = step.seconds / measured
    return ratios


def forecast(words: int = 1_000_000_000, tokens_per_word: float = 1.4) -> None:
    """XLM-R-large, all 25 layers, cell by cell; seconds are those of one core."""
    widths, engine = [WIDTH] * (BLOCKS + 1), Engine(1)
    tasks = 10 * MOST_TASKS
    reading = words * tokens_per_word * BLOCKS * block_seconds()
    steps = (
        Step("extraction", reading, words // 4096, memory=4 * 560_000_000, disk=4 * words * sum(widths)),
        moments_step("moments (float64)", widths, words, tasks, engine),
        moments_step("correlation (float32)", widths, words, MOST_TASKS, engine, "float32"),
        evaluation_step(widths, ["cka", "svcca", "pwcca", "mixed", "neuron"], 11, engine),
        clustering_step(sum(widths), 16 * sum(widths) ** 2),
    )
    for workers in (1, 16, 256):
        print(Cost(f"XLM-R-large, {words:,} words", steps, workers))


def block_seconds(n_tokens: int = 1024) -> float:
    """Of one token in one block of XLM-R-large, by two blocks with random weights."""
    from transformers import XLMRobertaConfig, XLMRobertaModel

    sizes = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_attention_heads": 16}
    module = XLMRobertaModel(XLMRobertaConfig(vocab_size=1000, num_hidden_layers=2, **sizes)).eval()
    ids = torch.randint(5, 1000, (n_tokens // 32, 32))
    with threadpool_limits(1), torch.inference_mode():
        return seconds(lambda: module(input_ids=ids)) / (2 * n_tokens)


def treebank(sentences: int) -> Corpus:
    corpus = read_corpus(data("treebanks", "UD_English-PUD"))
    return Corpus(name=corpus.name, sentences=list(islice(cycle(corpus.sentences), sentences)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["forecast"]:
        forecast()
    else:
        main(*map(int, sys.argv[1:2]))
