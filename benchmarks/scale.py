"""Two workers against one, and a Dask cluster against processes, for extraction and moments; costs as predicted.

    RESIDUUM_DATA=… [RESIDUUM_MODELS=… RESIDUUM_MPNET=…] python benchmarks/scale.py [SENTENCES]
    RESIDUUM_DATA=… python benchmarks/scale.py predict [SENTENCES]
    python benchmarks/scale.py forecast

4,000 SENTENCES (UD English PUD four times) through all-MiniLM-L6-v2, on 2 cores. Every engine has loaded the
model before it is timed, and the rounds of the engines alternate, so that what disturbs one disturbs all. `predict`
only compares costs with what was predicted: over words, layers and width (gte-small and MPNet, where they are given),
workers and distillation. `forecast` says what XLM-R-large over a billion words would
take on a core of this machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from measure import data, line, minilm, seconds
from threadpoolctl import threadpool_limits

from residuum.activations.correlation import neuron_moments
from residuum.activations.extraction import extract
from residuum.comparison.costs import evaluation_step, moments_step
from residuum.corpus import Corpus, read_corpus
from residuum.costs import Cost, CostStep
from residuum.distillation.distilling import distill
from residuum.distillation.settings import read_settings
from residuum.engine import MOST_TASKS, Engine, opened_engine
from residuum.models.loading import Model, load_model
from residuum.samples import sample_text, teacher_folder

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
        *predicted_lines(ratios),
    ]
    sys.exit(not all(holds))


def predicted_lines(ratios: dict[str, float]) -> list[bool]:
    directions = {True: "predicted / measured", False: "measured / predicted"}
    return [line(f"{name}: {directions[r > 1]}", max(r, 1 / r), 1.2) for name, r in ratios.items()]


def only_predict(sentences: int = 4000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        holds = predicted_lines(predict(load_model(minilm()), sentences, Path(folder)))
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
    """Predicted / measured time along all that the cost model knows: words, layers, width, workers, kinds of work."""
    text = treebank(sentences)
    ratios = {
        **predict_reading(model, treebank(sentences // 4), folder, Engine(1)),
        **predict_reading(model, text, folder, Engine(1)),
        **predict_reading(model, text, folder, Engine(2)),
    }
    for variable, name, fewer in (("RESIDUUM_MODELS", "gte-small", 4), ("RESIDUUM_MPNET", "", 8)):
        if variable in os.environ:  # twice the layers; twice the layers and the width
            other = load_model(Path(os.environ[variable], name))
            ratios |= predict_reading(other, treebank(sentences // fewer), folder, Engine(1))
    return ratios | predict_training(folder)


def predict_reading(model: Model, text: Corpus, folder: Path, engine: Engine) -> dict[str, float]:
    """Extraction and, by one worker, moments."""
    what = f"{model.name}, {text.n_words:,} words"
    predicted = extract.estimate(model, text, "none", workers=engine).seconds
    stores = []
    work = partial(extract, model, text, folder / "predicted", workers=engine, fresh=True, progress=False)
    work_seconds = seconds(lambda: stores.append(work()), 2)
    ratios = {f"extraction, {what}, {engine.workers} workers": predicted / work_seconds}
    if engine.workers == 1:
        store = stores[-1]
        step = moments_step("", store.widths, store.n_rows, 1, engine, "float32")
        ratios[f"moments, {what}"] = step.seconds / seconds(lambda: neuron_moments(store, workers=engine), 2)
    return ratios


def predict_training(folder: Path) -> dict[str, float]:
    """A distillation of some dozens of steps."""
    config = distillation(folder)
    distilling = distill.estimate(read_settings(config, device="cpu")).seconds
    distilled = seconds(
        lambda: distill(read_settings(config, out=folder / "distilled", device="cpu", progress=False)), 1
    )
    return {"distillation, sample teacher": distilling / distilled}


def distillation(folder: Path) -> dict[str, Any]:
    """Two students of the sample teacher on sample text."""
    texts = {language: folder / f"{language}.txt" for language in ("en", "tr")}
    for language, path in texts.items():
        path.write_text(sample_text("text", language=language, size=4000), encoding="utf-8")
    return {
        "teacher": str(teacher_folder()),
        "texts": {language: str(path) for language, path in texts.items()},
        "preset": "monoshot",
        "text": {"batch_size": 16},
        "optimiser": {"steps": 150},
    }


def forecast(words: int = 1_000_000_000, tokens_per_word: float = 1.4) -> None:
    """XLM-R-large, all 25 layers, cell by cell; seconds are those of one core."""
    widths, engine = [WIDTH] * (BLOCKS + 1), Engine(1)
    tasks = 10 * MOST_TASKS
    reading = words * tokens_per_word * BLOCKS * block_seconds()
    steps = (
        CostStep("extraction", reading, words // 4096, memory=4 * 560_000_000, disk=4 * words * sum(widths)),
        moments_step("moments (float64)", widths, words, tasks, engine),
        moments_step("correlation (float32)", widths, words, MOST_TASKS, engine, "float32"),
        evaluation_step(widths, ["cka", "svcca", "pwcca", "mixed", "neuron"], 11, engine),
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
    elif sys.argv[1:2] == ["predict"]:
        only_predict(*map(int, sys.argv[2:3]))
    else:
        main(*map(int, sys.argv[1:2]))
