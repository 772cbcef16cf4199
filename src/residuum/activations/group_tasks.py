"""A group of shards as a task for a worker: it loads the model once, reads, and writes the shards itself."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from residuum.activations.extraction import Extraction, GroupReading, Room
from residuum.activations.settings import ReadingSettings
from residuum.activations.store import Shard, StoreWriter, write_shard
from residuum.corpus import Corpus
from residuum.errors import ModelError
from residuum.models.alignment import Aligner
from residuum.models.loading import Model, Origin, only_first_layers


@dataclass(frozen=True, eq=False)
class GroupTask:
    """All that a worker must know: text travels to it, activations do not travel back."""

    origin: Origin
    fingerprint: str
    corpus: Corpus  # the sentences of the group, without labels
    first: int  # the number of its first sentence in the whole corpus
    layers: list[int]
    settings: ReadingSettings
    folder: Path
    shards: dict[int, Shard]  # by number; their sentences are counted in the group
    wanted: list[int]

    @classmethod
    def of(cls, extraction: Extraction, writer: StoreWriter, group: Sequence[int]) -> GroupTask:
        """The task of some neighbouring shards of a store; those that it has already are not written again."""
        model, shards = extraction.model, writer.manifest.shards
        assert model.origin is not None, "checked before"
        first, stop = shards[group[0]].first, shards[group[-1]].stop
        return cls(
            origin=model.origin,
            fingerprint=model.fingerprint,
            corpus=replace(extraction.corpus.select(range(first, stop)), labels={}, sentence_labels={}),
            first=first,
            layers=extraction.layers,
            settings=extraction.settings,
            folder=writer.path.absolute(),
            shards={i: _moved(shards[i], -first) for i in group},
            wanted=[i for i in group if not shards[i].written],
        )


def read_and_write(task: GroupTask) -> dict[int, Shard]:
    """Read a group and write its wanted shards; gives their entries in the manifest."""
    model = _model_here(task.origin, task.fingerprint)
    extraction = Extraction(model, task.corpus, task.layers, task.settings)
    aligner = Aligner(model.tokenizer, model.window)
    reading = GroupReading.begin(extraction, aligner, task.shards, Room())
    with only_first_layers(model, max(task.layers)):
        extraction.fill(reading.alignments, reading.buffers)
    found = extraction.finished(reading, task.wanted)
    return {i: _moved(write_shard(task.folder, i, shard, tensors), task.first) for i, shard, tensors in found}


def _moved(shard: Shard, by: int) -> Shard:
    """The same shard where sentences are counted from elsewhere."""
    absent = [(sentence + by, word) for sentence, word in shard.absent]
    return replace(shard, first=shard.first + by, stop=shard.stop + by, absent=absent)


_here = threading.local()  # a model is cut while it reads, so that two threads must not share one


def _model_here(origin: Origin, fingerprint: str) -> Model:
    """The model, loaded when this worker first needs it."""
    if getattr(_here, "loaded", None) != (origin, fingerprint):
        disable_progress_bar()  # the bar of the whole extraction is that of the process that asked
        _here.model = _here.loaded = None  # two large models need not fit
        model = origin.load()
        if model.fingerprint != fingerprint:
            raise ModelError(
                f"{origin.name_or_path} has other weights on a worker than the model that was given; save a model that "
                "was changed in memory to a folder, and let all workers see the same folder."
            )
        _here.model, _here.loaded = model, (origin, fingerprint)
    return _here.model
