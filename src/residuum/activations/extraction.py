"""From a model and a corpus to an activation store."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property, reduce
from itertools import cycle
from typing import Any, cast

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor
from tqdm import tqdm

from residuum.activations.pooling import (
    Segments,
    membership,
    pool,
    sentence_position,
    sentence_segments,
    word_attention,
    word_segments,
)
from residuum.activations.settings import ExtractSettings, ReadingSettings
from residuum.activations.store import (
    DTYPES,
    ActivationStore,
    Manifest,
    Shard,
    StoreWriter,
    plan_shards,
    words_fingerprint,
    write_shard,
)
from residuum.corpus import Corpus, read_corpus
from residuum.costs import Cost, CostStep, within
from residuum.engine import Engine, as_engine, run_tasks
from residuum.errors import CorpusError, DataError, ModelError, SettingError
from residuum.models.alignment import Aligner, Alignment, Audit
from residuum.models.loading import Model, as_model, only_first_layers, parse_layers
from residuum.models.sentences import stated_position
from residuum.settings import command
from residuum.storage.notebook import progress_bar
from residuum.storage.remote import cache_folder, local_path, send
from residuum.storage.results import environment

BUFFER_BYTES = 48 << 20  # activations held before they are written; sentences are sorted by length inside it
TOKENS = 2  # of a word, special ones among them, where memory is reckoned
INSIDE = 8  # widths of a block's states that are there at once: queries, keys, values, and four times the width
GROUP_SHARDS = 8  # sorted and read together at most, so that a killed run loses little


@command(ExtractSettings, estimate=lambda settings: _estimate(settings))
def extract(settings: ExtractSettings) -> ActivationStore:
    """Write the activations of every word (or sentence) of a corpus, in corpus order, to the folder `out`.

    `out` may be an address such as s3://bucket/acts, where everything is sent when it is finished here. Sentences are
    read in length-sorted batches of at most `batch_tokens` tokens. Run again, a stopped extraction resumes and a
    finished one is opened. Workers load the model themselves and compute with one thread each; any number of them
    writes the same bytes. Without them this process reads, with all of its threads.
    """
    if settings.device == "meta":
        raise SettingError("device is 'meta', which loads no weights; it is for --estimate, and for plans in Python.")
    extraction = _extraction(settings)
    folder = local_path(settings.out)
    place = cache_folder("written here", str(settings.out)) if folder is None else folder
    with settings.opened_engine() as opened:
        engine = as_engine(opened)
        cost = extraction.cost(extraction.step(engine), engine)
        within(cost, settings.max_memory, "Allow more, or lower --batch-tokens, --shard-words or --workers")
        writer = StoreWriter(place, extraction.manifest(), extraction.words, fresh=settings.fresh)
        extraction.run(writer, engine, max_loss=settings.max_loss, progress=settings.progress)
    store = ActivationStore.open(place)
    if folder is None:
        send(place, writer.files, str(settings.out))
        return replace(store, address=str(settings.out))
    return store


def _extraction(settings: ExtractSettings) -> Extraction:
    model = as_model(
        settings.model,
        random_init=settings.random_init,
        seed=settings.seed,
        device=settings.device,
        attention=settings.attention,
        precision=settings.precision,
        max_memory=settings.max_memory,
    )
    corpus = settings.corpus
    if not isinstance(corpus, Corpus):
        corpus = read_corpus(corpus, split=settings.split, limit=settings.limit, **settings.table)
    reading = ReadingSettings(**settings.options(ReadingSettings))
    if reading.unit == "sentence":
        reading = replace(reading, position=stated_position(model, reading.position))
    return Extraction(model, corpus, parse_layers(settings.layers, model.n_layers), reading)


def _estimate(settings: ExtractSettings) -> Cost:
    from residuum.activations.estimates import extraction_cost

    with settings.opened_engine() as opened:
        extraction, engine = _extraction(settings), as_engine(opened)
        if settings.device == "meta":  # memory and disk alone: there are no weights to time
            cost = extraction.cost(extraction.step(engine), engine)
        else:
            cost = extraction_cost(extraction, engine)
        return within(cost, settings.max_memory)


@dataclass(frozen=True, eq=False)
class Extraction:
    """One model over one corpus: which sentences go to which shard, and the reading of them."""

    model: Model
    corpus: Corpus
    layers: list[int]
    settings: ReadingSettings

    @cached_property
    def words(self) -> list[dict[str, Any]]:
        """The sentences as a store keeps them."""
        pairs = self.corpus.pairs or [None] * len(self.corpus)
        records = zip(self.corpus.ids, self.corpus.sentences, pairs, strict=True)
        return [{"id": i, "words": w} | ({} if p is None else {"pair": p}) for i, w, p in records]

    @property
    def cls_id(self) -> int | None:
        """The token that stands for a sentence, where the model has one."""
        return cast("int | None", self.model.tokenizer.cls_token_id)

    @cached_property
    def blocks(self) -> list[int]:
        """The layers that have attention and whose attention is wanted."""
        return [layer for layer in self.layers if layer > 0] if self.settings.attention else []

    def manifest(self) -> Manifest:
        """The manifest of a store that holds nothing yet."""
        if not self.corpus.n_words:
            raise CorpusError(f"{self.corpus.name} holds no words; expected a sentence of one word or more.")
        if self.corpus.pairs is not None and self.settings.unit == "word":
            raise SettingError(f"{self.corpus.name} holds pairs of sentences; extract it with unit 'sentence'.")
        return Manifest(
            model={
                "name": self.model.name,
                "fingerprint": self.model.fingerprint,
                "n_layers": self.model.n_layers,
                "random_init": self.model.random_init,
            },
            corpus={
                "name": self.corpus.name,
                "language": self.corpus.language,
                "sentences": len(self.corpus),
                "words": self.corpus.n_words,
                "fingerprint": self.corpus.fingerprint,
                "words_fingerprint": words_fingerprint(self.words),
                "skipped": dict(self.corpus.skipped),
            },
            settings=self.settings.identity(),
            layers=self.layers,
            widths=[self.model.widths[layer] for layer in self.layers],
            n_heads=self.model.n_heads if self.settings.attention else 0,
            shards=plan_shards(self.corpus.sentences, self.settings.shard_words),
            environment=environment(),
        )

    def run(self, writer: StoreWriter, engine: Engine, *, max_loss: float, progress: bool) -> None:
        """Read and write every group of shards that is not complete."""
        shards, missing = writer.manifest.shards, set(writer.missing)
        groups = [group for group in self.groups(shards) if not missing.isdisjoint(group)]
        audit = reduce(Audit.__add__, (Audit(**s.audit) for s in shards if s.written), Audit())
        bar = progress_bar(
            total=self.corpus.n_words,
            initial=audit.words,
            unit=" words",
            shown=progress,
            leave=False,
        )
        with bar:
            read = self._read_here if engine.alone else self._read_by_workers
            for found in read(writer, engine, groups, bar):
                audit = sum((found[i] for i in found if i in missing), audit)
                audit.check(max_loss, self.corpus.n_words)
        audit.check(max_loss, self.corpus.n_words)  # of what was finished before, too
        if self.settings.unit == "word":
            audit.check_rest()

    def _read_here(
        self, writer: StoreWriter, engine: Engine, groups: Sequence[Sequence[int]], bar: tqdm
    ) -> Iterator[dict[int, Audit]]:
        """Read group after group in this process, one being read while the last one is written."""
        shards, missing = writer.manifest.shards, set(writer.missing)
        aligner = Aligner(self.model.tokenizer, self.model.window)
        with (
            threadpool_limits(engine.threads),
            ThreadPoolExecutor(1) as executor,
            only_first_layers(self.model, max(self.layers)),
        ):
            pending: Future[None] | None = None
            rooms = cycle((Room(), Room()))  # one is filled while the other is written
            for group in groups:
                reading = GroupReading.begin(self, aligner, {index: shards[index] for index in group}, next(rooms))
                yield reading.audits
                self.fill(reading.alignments, reading.buffers, bar)
                if pending is not None:
                    pending.result()
                pending = executor.submit(self._write, writer, reading, missing)
            if pending is not None:
                pending.result()

    def _read_by_workers(
        self, writer: StoreWriter, engine: Engine, groups: Sequence[Sequence[int]], bar: tqdm
    ) -> Iterator[dict[int, Audit]]:
        """Let workers read and write the groups, and note what they wrote."""
        if groups and self.model.origin is None:
            raise ModelError(
                f"{self.model.name} exists in this process only, and workers load it themselves; save it to a folder "
                "and load that, or extract without workers."
            )
        from residuum.activations.group_tasks import GroupTask, read_and_write

        tasks = ((GroupTask.of(self, writer, group),) for group in groups)
        for written in run_tasks(read_and_write, tasks, engine):
            writer.note(written)
            bar.update(sum(shard.audit["words"] for shard in written.values()))
            yield {index: Audit(**shard.audit) for index, shard in written.items()}

    def groups(self, shards: Sequence[Shard]) -> Iterator[list[int]]:
        """Neighbouring shards whose activations fit the buffer together: a function of the plan alone."""
        group, size = [], 0
        for index, shard in enumerate(shards):
            cost = self._shard_bytes(shard)
            if group and (size + cost > BUFFER_BYTES or len(group) == GROUP_SHARDS):
                yield group
                group, size = [], 0
            group.append(index)
            size += cost
        yield group

    def cost(self, step: CostStep, engine: Engine) -> Cost:
        """What a step of this extraction takes, under its name."""
        what = f"{self.model.name}: {self.corpus.n_words:,} words × {len(self.layers)} layers"
        return Cost(what, (step,), engine.width, engine.client is not None)

    def step(self, engine: Engine, seconds: float = 0.0) -> CostStep:
        """Reading and writing all words: tasks, disk, and what each process holds of weights, a batch, a group.

        This process alone has two groups: one is written while the other is read. Beside workers of this
        machine, which load the model themselves, it has weights of its own.
        """
        shards = plan_shards(self.corpus.sentences, self.settings.shard_words)
        groups = [sum(self._shard_bytes(shards[index]) for index in group) for group in self.groups(shards)]
        return CostStep(
            "extraction",
            seconds,
            len(groups),
            memory=self.model.n_bytes + self.reading_bytes + (2 if engine.alone else 1) * max(groups),
            disk=self.n_bytes * DTYPES[self.settings.dtype] // 4,
            beside=0 if engine.alone or engine.client else self.model.n_bytes,
        )

    @property
    def reading_bytes(self) -> int:
        """What a batch takes: the states of the layers that are held, those inside a block, and attention where read.

        A word is taken for `TOKENS` tokens; a batch has one sentence at least. Beside it stands the longest sentence
        while it is aligned.
        """
        words = [len(sentence) for sentence in self.corpus.sentences]
        longest = min(TOKENS * max(words, default=0), self.model.window or sys.maxsize)
        tokens = max(longest, min(self.settings.batch_tokens, TOKENS * sum(words)))
        held = self.layers if self.model.reads_chosen_layers else range(max(self.layers) + 1)
        states = sum(self.model.widths[layer] for layer in held) + INSIDE * max(self.model.widths)
        attention = longest * self.model.n_heads * max(self.layers) if self.settings.attention else 0
        batch = 4 * tokens * (states + attention)
        if not words or self.corpus.pairs is not None:
            return batch
        return batch + Aligner(self.model.tokenizer, None).encoded_bytes(self.corpus.text(int(np.argmax(words))))

    @cached_property
    def n_bytes(self) -> int:
        """The bytes of all activations, as float32."""
        return sum(self._bytes(len(words)) for words in self.corpus.sentences)

    def _shard_bytes(self, shard: Shard) -> int:
        return sum(self._bytes(len(words)) for words in self.corpus.sentences[shard.first : shard.stop])

    def _bytes(self, n_words: int) -> int:
        rows = n_words if self.settings.unit == "word" else 1
        width = sum(self.model.widths[layer] for layer in self.layers)
        return 4 * (rows * width + n_words**2 * self.model.n_heads * len(self.blocks))

    def align(self, aligner: Aligner, first: int, stop: int) -> list[Alignment]:
        """Sentences first … stop − 1 as the model reads them."""
        sentences = range(first, stop)
        texts = [self.corpus.text(i) for i in sentences]
        if self.corpus.pairs is not None:
            return aligner.align_pairs(texts, [self.corpus.pair_text(i) or "" for i in sentences])
        return aligner.align(texts, [self.corpus.spans(i) for i in sentences])

    def buffers(self, alignments: list[Alignment], room: Room) -> Buffers:
        """Where the activations of these sentences will stand."""
        rows = [len(a.kept) if self.settings.unit == "word" else 1 for a in alignments]
        widths = {layer: self.model.widths[layer] for layer in self.layers}
        return Buffers.empty(rows, widths, dict.fromkeys(self.blocks, self.model.n_heads), room)

    def fill(self, alignments: list[Alignment], buffers: Buffers, bar: tqdm | None = None) -> None:
        """Run the model over all windows of some sentences, longest first, and fill the buffers."""
        windows = [w for a in alignments for w in a.windows]
        position = sentence_position(self.settings.position, windows, self.cls_id, self.model.causal)
        by_word = self.settings.unit == "word"
        if not by_word and position == "cls" and not any(self.cls_id in w.ids for w in windows):
            raise ModelError(f"{self.model.name} has no [CLS] token; use position 'last' or 'mean'.")
        reduction = self.settings.pooling if by_word else "mean" if position in ("mean", "all") else "last"
        for batch_items in self.in_batches(alignments):
            segments = [self._segments(alignments[s], s, v, position, buffers) for s, v in batch_items]
            reading = self._forward([alignments[s].windows[v] for s, v in batch_items])
            buffers.put_hidden(reading.hidden, segments, reduction)
            if self.blocks:
                buffers.put_attention(reading.attention, alignments, batch_items)
            if bar is not None:
                bar.update(sum(alignments[s].n_words for s, window in batch_items if window == 0))

    def in_batches(self, alignments: list[Alignment]) -> Iterator[list[tuple[int, int]]]:
        """The windows that are read together: the number of the sentence, and of the window in it."""
        items = [(s, v) for s, a in enumerate(alignments) for v in range(len(a.windows)) if a.windows[v].ids]
        sizes = [len(alignments[s].windows[v].ids) for s, v in items]
        for chosen in batches(sizes, self.settings.batch_tokens, self.model.pads):
            yield [items[i] for i in chosen]

    def _segments(self, alignment: Alignment, sentence: int, window: int, position: str, buffers: Buffers) -> Segments:
        if self.settings.unit == "word":
            return word_segments(alignment, window, self.settings.pooling, int(buffers.first_row[sentence]))
        return sentence_segments(alignment, window, position, self.cls_id, sentence)

    def _forward(self, windows: list[Any]) -> Any:
        device, length = self.model.device, max(len(w.ids) for w in windows)
        padding: Any = self.model.tokenizer.pad_token_id  # the mask hides it: any token serves where there is none
        ids = torch.full((len(windows), length), 0 if padding is None else padding)
        mask, types = torch.zeros_like(ids), torch.zeros_like(ids)
        for row, window in enumerate(windows):
            size = len(window.ids)
            ids[row, :size] = torch.tensor(window.ids)
            types[row, :size] = torch.tensor(window.types)
            mask[row, :size] = 1
        batch = {"input_ids": ids, "attention_mask": mask}
        if "token_type_ids" in self.model.tokenizer.model_input_names:
            batch["token_type_ids"] = types
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        return self.model.read(batch, self.layers, attention=self.settings.attention)

    def _write(self, writer: StoreWriter, reading: GroupReading, missing: set[int]) -> None:
        for index, shard, tensors in self.finished(reading, missing):
            writer.note({index: write_shard(writer.path, index, shard, tensors)})

    def finished(
        self, reading: GroupReading, wanted: Collection[int]
    ) -> Iterator[tuple[int, Shard, Mapping[str, Tensor]]]:
        """The wanted shards of a group that was read: number, what the manifest says but for the size, and tensors."""
        origin, by_word = reading.first, self.settings.unit == "word"
        for index, shard in reading.shards.items():
            if index not in wanted:
                continue
            first, stop = shard.first - origin, shard.stop - origin
            tensors = reading.buffers.tensors(first, stop, getattr(torch, self.settings.dtype))
            self._check_finite(tensors, first, origin, reading.buffers)
            lost = [(origin + s, w) for s in range(first, stop) for w in reading.alignments[s].lost]
            known = {"rows": len(tensors[f"layer-{self.layers[0]}"]), "absent": lost if by_word else []}
            yield index, replace(shard, audit=asdict(reading.audits[index]), **known), tensors

    def _check_finite(self, tensors: dict[str, Tensor], first: int, origin: int, buffers: Buffers) -> None:
        for name, tensor in tensors.items():
            if not name.startswith("layer") or np.isfinite(tensor.float().numpy().sum(dtype=np.float64)):
                continue  # numpy keeps to this thread; torch would take the cores from the model
            row, neuron = (~torch.isfinite(tensor)).nonzero()[0].tolist()
            sentence = int(np.searchsorted(buffers.first_row, buffers.first_row[first] + row, side="right")) - 1
            remedy = (
                "use --dtype float32 or bfloat16" if self.settings.dtype == "float16" else "its weights are damaged"
            )
            raise DataError(
                f"{name.replace('-', ' ')} of {self.model.name} has {tensor[row, neuron].item()} at neuron {neuron}, "
                f"in sentence {self.corpus.ids[origin + sentence]} "
                f"({' '.join(self.corpus.sentences[origin + sentence])[:60]!r}); {remedy}."
            )


@dataclass(frozen=True, eq=False)
class GroupReading:
    """Neighbouring shards that are read together: their sentences as the model reads them, and where these stand."""

    shards: Mapping[int, Shard]  # by number
    alignments: list[Alignment]
    audits: dict[int, Audit]
    buffers: Buffers

    @property
    def first(self) -> int:
        """The first sentence."""
        return min(shard.first for shard in self.shards.values())

    @classmethod
    def begin(cls, extraction: Extraction, aligner: Aligner, shards: Mapping[int, Shard], room: Room) -> GroupReading:
        """Align the sentences of some shards, with room for their activations."""
        first, stop = shards[min(shards)].first, shards[max(shards)].stop
        alignments = extraction.align(aligner, first, stop)
        corpus = extraction.corpus
        each = [Audit.of(alignments[i - first], corpus.sentences[i], corpus.ids[i]) for i in range(first, stop)]
        audits = {i: sum(each[s.first - first : s.stop - first], Audit()) for i, s in shards.items()}
        return cls(shards, alignments, audits, extraction.buffers(alignments, room))


def batches(sizes: Sequence[int], budget: int, pads: bool = True) -> Iterator[list[int]]:
    """Group items by size, longest first, so that padded batches stay within a budget of tokens (one item always fits).

    Without padding only items of equal size share a batch.
    """
    batch: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        if batch and (sizes[batch[0]] * (len(batch) + 1) > budget or not (pads or sizes[batch[0]] == sizes[i])):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


class Room:
    """Memory that group after group is read into; it is asked of the system once, so it neither grows nor scatters."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, rows: int, width: int) -> Tensor:
        """Rows of zeros that last until the next taking of that name."""
        if name not in self._held or len(self._held[name]) < rows:
            self._held.pop(name, None)
            self._held[name] = torch.empty(rows, width)
        return self._held[name][:rows].zero_()


@dataclass(frozen=True, eq=False)
class Buffers:
    """The activations of a run of sentences, in corpus order, before they are written."""

    layers: list[int]
    hidden: list[Tensor]  # row × neuron, one per layer
    blocks: list[int]
    attention: list[Tensor]  # word pair × head, one per block
    first_row: np.ndarray  # of each sentence, and the end
    first_pair: np.ndarray

    @classmethod
    def empty(cls, rows: Sequence[int], widths: Mapping[int, int], heads: Mapping[int, int], room: Room) -> Buffers:
        """Buffers for sentences of so many rows each: the widths of the layers, the heads of the blocks."""
        pairs = np.square(rows) if heads else np.zeros(len(rows), dtype=np.int64)
        first_row, first_pair = (np.concatenate([[0], np.cumsum(n)]) for n in (rows, pairs))
        return cls(
            layers=list(widths),
            hidden=[room.take(f"layer {n}", int(first_row[-1]), width) for n, width in widths.items()],
            blocks=list(heads),
            attention=[room.take(f"block {n}", int(first_pair[-1]), n_heads) for n, n_heads in heads.items()],
            first_row=first_row,
            first_pair=first_pair,
        )

    def put_hidden(self, hidden: list[Tensor], segments: list[Segments], reduction: str) -> None:
        """Pool the tokens of a batch and put the rows where they belong."""
        length, device = hidden[0].shape[1], hidden[0].device
        tokens = torch.from_numpy(np.concatenate([s.tokens + b * length for b, s in enumerate(segments)]))
        lengths = torch.from_numpy(np.concatenate([s.lengths for s in segments]))
        rows = torch.from_numpy(np.concatenate([s.rows for s in segments]))
        weights = [s.weights for s in segments if s.weights is not None]
        for buffer, states in zip(self.hidden, hidden, strict=True):
            pooled = pool(states, tokens.to(device), lengths.to(device), reduction).cpu()
            if weights:
                scale = torch.from_numpy(np.concatenate(weights)).float()
                buffer.index_add_(0, rows, pooled * scale[:, None])
            else:
                buffer[rows] = pooled

    def put_attention(self, attention: list[Tensor], alignments: list[Alignment], items: list[tuple[int, int]]) -> None:
        """Turn a batch's attention into word-by-word attention and put it where it belongs."""
        places = [alignments[s].words_in(v) for s, v in items]
        table = torch.from_numpy(membership(places, attention[0].shape[-1])).to(attention[0].device)
        for buffer, weights in zip(self.attention, attention, strict=True):
            words = word_attention(weights, table).permute(0, 2, 3, 1).cpu()  # batch × from × to × head
            for b, (s, v) in enumerate(items):
                n, seen = len(alignments[s].kept), alignments[s].row[places[b].word]
                read = np.flatnonzero(alignments[s].choice[places[b].word] == v)
                target = buffer[self.first_pair[s] : self.first_pair[s + 1]].view(n, n, -1)
                target[seen[read][:, None], seen[None, :]] = words[b, read, : len(seen)]

    def tensors(self, first: int, stop: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """The tensors of a shard: sentences first … stop − 1 of these."""
        rows = slice(self.first_row[first], self.first_row[stop])
        pairs = slice(self.first_pair[first], self.first_pair[stop])
        return {
            **{f"layer-{layer}": t[rows].to(dtype) for layer, t in zip(self.layers, self.hidden, strict=True)},
            **{f"attention-{layer}": t[pairs].to(dtype) for layer, t in zip(self.blocks, self.attention, strict=True)},
        }
