"""From a model and a corpus to an activation store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property, reduce
from itertools import cycle
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from residuum.activations.pooling import (
    POOLINGS,
    POSITIONS,
    Segments,
    membership,
    pool,
    sentence_position,
    sentence_segments,
    word_attention,
    word_segments,
)
from residuum.activations.store import (
    DTYPES,
    ActivationStore,
    Manifest,
    Shard,
    StoreWriter,
    plan_shards,
    words_fingerprint,
)
from residuum.alignment import Aligner, Alignment, Audit
from residuum.corpus import Corpus, read_corpus
from residuum.environment import environment
from residuum.errors import DataError, ModelError, SettingError
from residuum.models import Model, load_model, only_first_layers, parse_layers

BUFFER_BYTES = 48 << 20  # activations held before they are written; sentences are sorted by length inside it
GROUP_SHARDS = 8  # sorted and read together at most, so that a killed run loses little
UNITS = ("word", "sentence")


@dataclass(frozen=True)
class Settings:
    """What an extraction does; part of the store's identity."""

    pooling: str = "last"
    dtype: str = "float32"
    unit: str = "word"
    position: str = "auto"
    attention: bool = False
    batch_tokens: int = 1024
    shard_words: int = 4096

    def __post_init__(self) -> None:
        for key, allowed in {
            "pooling": POOLINGS,
            "dtype": DTYPES,
            "unit": UNITS,
            "position": POSITIONS,
        }.items():
            if getattr(self, key) not in allowed:
                raise SettingError(f"{key} {getattr(self, key)!r} is not known; choose one of {', '.join(allowed)}.")
        for key in ("batch_tokens", "shard_words"):
            if getattr(self, key) < 1:
                raise SettingError(f"{key} must be at least 1, not {getattr(self, key)}.")
        if self.attention and self.unit == "sentence":
            raise SettingError("Attention is read word by word; it needs unit 'word'.")


def extract(
    model: Model | str | Path,
    corpus: Corpus | str | Path,
    out: str | Path,
    *,
    layers: str | int | Sequence[int] = "all",
    attention: bool = False,
    pooling: str = "last",
    dtype: str = "float32",
    unit: str = "word",
    position: str = "auto",
    batch_tokens: int = 1024,
    shard_words: int = 4096,
    max_loss: float = 0.0,
    fresh: bool = False,
    progress: bool = True,
) -> ActivationStore:
    """Write the activations of every word (or sentence) of a corpus, in corpus order, to the folder `out`.

    Sentences are read in length-sorted batches of at most `batch_tokens` tokens. Run again, a stopped extraction goes
    on where it was and a finished one is opened. More than the share `max_loss` of words without a representation is
    an error.
    """
    settings = Settings(pooling, dtype, unit, position, attention, batch_tokens, shard_words)
    model = model if isinstance(model, Model) else load_model(model, attention=attention)
    corpus = corpus if isinstance(corpus, Corpus) else read_corpus(corpus)
    extraction = Extraction(model, corpus, parse_layers(layers, model.n_layers), settings)
    writer = StoreWriter(Path(out), extraction.manifest(), extraction.words, fresh=fresh)
    extraction.run(writer, max_loss=max_loss, progress=progress)
    return ActivationStore.open(writer.path)


@dataclass(frozen=True, eq=False)
class Extraction:
    """One model over one corpus: which sentences go to which shard, and the reading of them."""

    model: Model
    corpus: Corpus
    layers: list[int]
    settings: Settings

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
        """The manifest of a store of which nothing is written yet."""
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
            },
            settings=asdict(self.settings),
            layers=self.layers,
            widths=[self.model.widths[layer] for layer in self.layers],
            n_heads=self.model.n_heads if self.settings.attention else 0,
            shards=plan_shards(self.corpus.sentences, self.settings.shard_words),
            environment=environment(),
        )

    def run(self, writer: StoreWriter, *, max_loss: float, progress: bool) -> None:
        """Read and write every group of shards of which one is missing."""
        shards, missing = writer.manifest.shards, set(writer.missing)
        audit = reduce(Audit.__add__, (Audit(**s.audit) for s in shards if s.written), Audit())
        aligner = Aligner(self.model.tokenizer, self.model.window)
        bar = tqdm(
            total=self.corpus.n_words,
            initial=audit.words,
            unit=" words",
            disable=None if progress else True,
            leave=False,
        )
        with bar, ThreadPoolExecutor(1) as executor, only_first_layers(self.model, max(self.layers)):
            pending: Future[None] | None = None
            rooms = cycle((Room(), Room()))  # one is filled while the other is written
            for group in self._groups(shards):
                if missing.isdisjoint(group):
                    continue
                alignments = self.align(aligner, shards[group[0]].first, shards[group[-1]].stop)
                audits = self._audits(alignments, shards, group)
                audit = sum((audits[i] for i in group if i in missing), audit)
                audit.check(max_loss, self.corpus.n_words)
                buffers = Buffers.empty(self, alignments, next(rooms))
                self.fill(alignments, buffers, bar)
                if pending is not None:
                    pending.result()
                pending = executor.submit(self._write, writer, buffers, alignments, audits, missing)
            if pending is not None:
                pending.result()

    def _groups(self, shards: Sequence[Shard]) -> Iterator[list[int]]:
        """Neighbouring shards whose activations fit the buffer together: a function of the plan alone."""
        group, size = [], 0
        for index, shard in enumerate(shards):
            cost = sum(self._bytes(len(words)) for words in self.corpus.sentences[shard.first : shard.stop])
            if group and (size + cost > BUFFER_BYTES or len(group) == GROUP_SHARDS):
                yield group
                group, size = [], 0
            group.append(index)
            size += cost
        yield group

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

    def _audits(self, alignments: list[Alignment], shards: Sequence[Shard], group: list[int]) -> dict[int, Audit]:
        first = shards[group[0]].first
        audits = {}
        for index in group:
            shard = shards[index]
            audits[index] = reduce(
                Audit.__add__,
                (
                    Audit.of(alignments[i - first], self.corpus.sentences[i], self.corpus.ids[i])
                    for i in range(shard.first, shard.stop)
                ),
            )
        return audits

    def fill(self, alignments: list[Alignment], buffers: Buffers, bar: tqdm | None = None) -> None:
        """Run the model over all windows of some sentences, longest first, and fill the buffers."""
        position = self._position(alignments)
        items = [(s, v) for s, a in enumerate(alignments) for v in range(len(a.windows)) if a.windows[v].ids]
        sizes = [len(alignments[s].windows[v].ids) for s, v in items]
        for chosen in batches(sizes, self.settings.batch_tokens, self.model.pads):
            batch_items = [items[i] for i in chosen]
            segments = [self._segments(alignments[s], s, v, position, buffers) for s, v in batch_items]
            reading = self._forward([alignments[s].windows[v] for s, v in batch_items])
            buffers.put_hidden(reading.hidden, segments, _reduction(self.settings, position))
            if self.blocks:
                buffers.put_attention(reading.attention, alignments, batch_items)
            if bar is not None:
                bar.update(_words_done(alignments, batch_items))

    def _position(self, alignments: list[Alignment]) -> str:
        windows = [w for a in alignments for w in a.windows]
        position = sentence_position(self.settings.position, windows, self.cls_id, self.model.causal)
        if self.settings.unit == "sentence" and position == "cls" and not any(self.cls_id in w.ids for w in windows):
            raise ModelError(f"{self.model.name} has no [CLS] token; use position 'last' or 'mean'.")
        return position

    def _segments(self, alignment: Alignment, sentence: int, window: int, position: str, buffers: Buffers) -> Segments:
        if self.settings.unit == "word":
            return word_segments(alignment, window, self.settings.pooling, int(buffers.first_row[sentence]))
        return sentence_segments(alignment, window, position, self.cls_id, sentence)

    def _forward(self, windows: list[Any]) -> Any:
        device, length = self.model.device, max(len(w.ids) for w in windows)
        ids = torch.full((len(windows), length), _pad_id(self.model.tokenizer))
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

    def _write(
        self,
        writer: StoreWriter,
        buffers: Buffers,
        alignments: list[Alignment],
        audits: dict[int, Audit],
        missing: set[int],
    ) -> None:
        shards = writer.manifest.shards
        origin = shards[min(audits)].first
        for index, audit in audits.items():
            if index not in missing:
                continue
            first, stop = shards[index].first - origin, shards[index].stop - origin
            tensors = buffers.tensors(first, stop, getattr(torch, self.settings.dtype))
            self._check_finite(tensors, first, origin, buffers)
            writer.write(
                index,
                tensors,
                rows=len(tensors[f"layer-{self.layers[0]}"]),
                absent=[[origin + s, w] for s in range(first, stop) for w in alignments[s].lost]
                if self.settings.unit == "word"
                else [],
                audit=asdict(audit),
            )

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
    def empty(cls, extraction: Extraction, alignments: list[Alignment], room: Room) -> Buffers:
        """Buffers for these sentences."""
        by_word = extraction.settings.unit == "word"
        rows = np.array([len(a.kept) if by_word else 1 for a in alignments])
        pairs = np.square(rows) if extraction.blocks else np.zeros_like(rows)
        first_row, first_pair = (np.concatenate([[0], np.cumsum(n)]) for n in (rows, pairs))
        model = extraction.model
        return cls(
            layers=extraction.layers,
            hidden=[room.take(f"layer {n}", int(first_row[-1]), model.widths[n]) for n in extraction.layers],
            blocks=extraction.blocks,
            attention=[room.take(f"block {n}", int(first_pair[-1]), model.n_heads) for n in extraction.blocks],
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
        ranges = [alignments[s].ranges[v, alignments[s].kept] for s, v in items]
        table = torch.from_numpy(membership(ranges, attention[0].shape[-1])).to(attention[0].device)
        for buffer, weights in zip(self.attention, attention, strict=True):
            words = word_attention(weights, table).permute(0, 2, 3, 1).cpu()  # batch × from × to × head
            for b, (s, v) in enumerate(items):
                n = len(ranges[b])
                rows = np.flatnonzero(alignments[s].choice[alignments[s].kept] == v)
                target = buffer[self.first_pair[s] : self.first_pair[s + 1]].view(n, n, -1)
                target[rows] = words[b, rows, :n]

    def tensors(self, first: int, stop: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """The tensors of a shard: sentences first … stop − 1 of these."""
        rows = slice(self.first_row[first], self.first_row[stop])
        pairs = slice(self.first_pair[first], self.first_pair[stop])
        return {
            **{f"layer-{layer}": t[rows].to(dtype) for layer, t in zip(self.layers, self.hidden, strict=True)},
            **{f"attention-{layer}": t[pairs].to(dtype) for layer, t in zip(self.blocks, self.attention, strict=True)},
        }


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


def _words_done(alignments: list[Alignment], items: list[tuple[int, int]]) -> int:
    """The words of the sentences whose first window was just read."""
    return sum(alignments[s].n_words for s, window in items if window == 0)


def _reduction(settings: Settings, position: str) -> str:
    if settings.unit == "word":
        return settings.pooling
    return "mean" if position == "mean" else "last"


def _pad_id(tokenizer: Any) -> int:
    """What fills a batch up; the mask hides it, so any token serves a model that has none."""
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
