"""What an extraction will take, by what a sample of its sentences takes."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from residuum.activations.extraction import Extraction, GroupReading, Room
from residuum.activations.store import Shard, write_shard
from residuum.costs import Cost, CostStep, spread
from residuum.engine import Engine
from residuum.models.alignment import Aligner
from residuum.models.loading import only_first_layers

FIRST_WORDS = 256
"""Read to wake the machine up, and to see how many words fit the time."""
SECONDS = 4.0
"""How long the sample may take to be read."""


def extraction_cost(extraction: Extraction, engine: Engine) -> Cost:
    """What an extraction would take: a few seconds of it are done, and nothing is kept."""
    return extraction.cost(extraction_step(extraction, engine), engine)


def extraction_step(extraction: Extraction, engine: Engine) -> CostStep:
    """Reading and writing all words, by the time of a sample of sentences from all over the corpus."""
    shards = extraction.manifest().shards
    groups = list(extraction.groups(shards))
    together = extraction.corpus.n_words // len(groups)
    with threadpool_limits(engine.threads):
        first = _read_and_write(_sample(extraction, FIRST_WORDS))
        sample = _sample(extraction, max(FIRST_WORDS, min(together, int(SECONDS / sum(first)))))
        # Sentences are sorted by length in their group: the fewer, the more padding.
        padding = _tokens_a_word(_sample(extraction, together)) / _tokens_a_word(sample)
        reading, writing = _read_and_write(sample)
        reading *= padding
    # One process alone writes a group while it reads the next one.
    beside = min(reading, writing) * (1 - 1 / len(groups)) if engine.alone else 0.0
    return extraction.step(engine, (reading + writing - beside) * extraction.corpus.n_words)


def _read_and_write(extraction: Extraction) -> tuple[float, float]:
    """Seconds a word of each."""
    start, text = time.perf_counter(), extraction.corpus
    reading = GroupReading.begin(extraction, _aligner(extraction), {0: Shard(0, len(text))}, Room())
    with only_first_layers(extraction.model, max(extraction.layers)), tempfile.TemporaryDirectory() as folder:
        extraction.fill(reading.alignments, reading.buffers)
        read = time.perf_counter()
        for index, shard, tensors in extraction.finished(reading, [0]):
            write_shard(Path(folder), index, shard, tensors)
    n_words = max(1, text.n_words)
    return (read - start) / n_words, (time.perf_counter() - read) / n_words


def _tokens_a_word(extraction: Extraction) -> float:
    """Tokens that the model reads, those of padding included, for each word of a group."""
    text = extraction.corpus
    alignments = extraction.align(_aligner(extraction), 0, len(text))
    lengths = ([len(alignments[s].windows[v].ids) for s, v in batch] for batch in extraction.in_batches(alignments))
    return max(1, sum(len(batch) * max(batch) for batch in lengths)) / max(1, text.n_words)


def _aligner(extraction: Extraction) -> Aligner:
    return Aligner(extraction.model.tokenizer, extraction.model.window)


def _sample(extraction: Extraction, n_words: int) -> Extraction:
    """The extraction of sentences from all over the corpus, of about so many words."""
    corpus = extraction.corpus
    wanted = max(1, round(len(corpus) * n_words / max(1, corpus.n_words)))
    return replace(extraction, corpus=corpus.select(spread(len(corpus), wanted)))
