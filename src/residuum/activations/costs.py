"""What an extraction will take, by what a sample of its sentences takes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from residuum.activations.buffers import Room
from residuum.activations.extraction import BUFFER_BYTES, Extraction, GroupReading, Settings
from residuum.activations.manifests import Shard
from residuum.activations.store import write_shard
from residuum.alignment import Aligner
from residuum.corpus import Corpus
from residuum.costs import Cost, Step
from residuum.engine import Engine, Workers, as_engine
from residuum.models import Model, only_first_layers

FIRST_WORDS = 256
"""Read to wake the machine up, and to see how many words fit the time."""
SECONDS = 4.0
"""How long the sample may take to be read."""
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def extract_cost(
    model: Model | str | Path,
    corpus: Corpus | str | Path,
    *,
    layers: str | int | Sequence[int] = "all",
    workers: Workers = None,
    **settings: Any,
) -> Cost:
    """What `extract` would take with the same settings: a few seconds of it are done, and nothing is kept."""
    extraction, engine = Extraction.of(model, corpus, layers, Settings(**settings)), as_engine(workers)
    name, text = extraction.model.name, extraction.corpus
    what = f"{name}: {text.n_words:,} words × {len(extraction.layers)} layers"
    return Cost(what, (extraction_step(extraction, engine),), engine.width, engine.client is not None)


def extraction_step(extraction: Extraction, engine: Engine) -> Step:
    """Reading and writing all words, by the time of a sample of sentences from all over the corpus."""
    shards = extraction.manifest().shards
    groups = list(extraction.groups(shards))
    with threadpool_limits(engine.threads):
        first = _read_and_write(extraction, FIRST_WORDS)
        together = extraction.corpus.n_words // len(groups)  # sorted by length as many as in a group, and padded so
        per_word = _read_and_write(extraction, max(FIRST_WORDS, min(together, int(SECONDS / first))))
    copies = 2 if engine.alone else 1  # one group is read while another is written
    weights = 4 * extraction.model.n_parameters
    return Step(
        "extraction",
        per_word * extraction.corpus.n_words,
        len(groups),
        memory=weights + copies * max(BUFFER_BYTES, extraction.n_bytes // max(1, len(groups))),
        disk=extraction.n_bytes * BYTES[extraction.settings.dtype] // 4,
    )


def _read_and_write(extraction: Extraction, n_words: int) -> float:
    """Seconds a word."""
    sample = _spread(extraction.corpus, n_words)
    small = Extraction(extraction.model, sample, extraction.layers, extraction.settings)
    start = time.perf_counter()
    aligner = Aligner(small.model.tokenizer, small.model.window)
    reading = GroupReading.begin(small, aligner, {0: Shard(0, len(sample))}, Room())
    with only_first_layers(small.model, max(small.layers)), tempfile.TemporaryDirectory() as folder:
        small.fill(reading.alignments, reading.buffers)
        for index, shard, tensors in small.finished(reading, [0]):
            write_shard(Path(folder), index, shard, tensors)
    return (time.perf_counter() - start) / max(1, sample.n_words)


def _spread(corpus: Corpus, n_words: int) -> Corpus:
    """Sentences from all over a corpus, of about so many words."""
    wanted = max(1, round(len(corpus) * n_words / max(1, corpus.n_words)))
    return corpus.select(np.unique(np.linspace(0, len(corpus) - 1, min(wanted, len(corpus))).round().astype(int)))
