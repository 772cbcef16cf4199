"""The teacher at work: run once on each batch however many students learn from it, frozen, without gradients."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from residuum.distillation.networks import AttentionInputs, LanguageModel
from residuum.distillation.objective import Knowledge, Objective
from residuum.errors import StoreError
from residuum.maths.losses import mean_pool
from residuum.storage.tensors import read_tensors, write_tensors


@dataclass(frozen=True, eq=False)
class Lesson:
    """What the teacher says about a batch: what is compared, its features at chosen positions, its sentence vectors."""

    knowledge: Knowledge
    features: Tensor  # position × neuron, after the head's transform; empty where no logits are asked for
    vectors: Tensor  # sentence × neuron, mean of the last layer


@dataclass(eq=False)
class Memory:
    """The last lesson and the question it answered: students that are moved one after the other ask it again."""

    question: tuple[Tensor, ...] = ()
    lesson: Lesson | None = None

    def answer(self, question: tuple[Tensor, ...]) -> Lesson | None:
        """The last lesson, if this is what was asked."""
        same = len(question) == len(self.question) and all(map(torch.equal, question, self.question))
        return self.lesson if same else None


@dataclass(frozen=True, eq=False)
class Teacher:
    """A frozen model in eval mode, and where its answers are kept, if anywhere.

    `cache` keeps lessons line by line, by the line's pieces as they are masked, so that a line is found again in
    whatever batch it comes. Padding is not kept; where it is compared (recipe published) there can be no cache.
    """

    model: LanguageModel
    objective: Objective
    fingerprint: str = ""
    cache: Path | None = None
    memory: Memory | None = None

    def teach(self, batch: Mapping[str, Tensor], positions: Tensor) -> Lesson:
        """The lesson of a batch; `positions` are places in the flattened batch whose logits will be asked for."""
        if self.memory is None:
            return self._looked_up(batch, positions)
        question = (batch["input_ids"], batch["attention_mask"], positions)
        lesson = self.memory.answer(question) or self._looked_up(batch, positions)
        self.memory.question, self.memory.lesson = question, lesson
        return lesson

    def _looked_up(self, batch: Mapping[str, Tensor], positions: Tensor) -> Lesson:
        """The lesson from the cache, if every line of the batch is there.

        Else the whole batch is run: what a line's first batch gave is then the same after a kill, to the last bit.
        """
        if self.cache is None:
            return self._run(batch, positions)
        lines = _lines(batch, positions)
        paths = [self._path(self.cache, line) for line in lines]
        kept = [self._read(path, line) if path.exists() else None for path, line in zip(paths, lines, strict=True)]
        if None in kept:
            fresh = _by_line(self._run(batch, positions), lines)
            for path, old, new in zip(paths, kept, fresh, strict=True):
                if old is None:
                    write_tensors(path, new)
            kept = [new if old is None else old for old, new in zip(kept, fresh, strict=True)]
        return _joined([line for line in kept if line is not None], batch["input_ids"].shape[1], positions.device)

    def _run(self, batch: Mapping[str, Tensor], positions: Tensor) -> Lesson:
        objective, model = self.objective, self.model
        with torch.inference_mode():
            states = model.run(batch["input_ids"], batch["attention_mask"], attention=objective.needs_attention)
            last = states.hidden[-1]
            features = last.new_zeros(0, last.shape[-1])
            if model.head is not None and len(positions):
                features = model.head.transform(last.flatten(0, 1)[positions])
            vectors = mean_pool(last, batch["attention_mask"].bool())
        # What backward passes of students keep must not be inference tensors, hence the copies.
        hidden = {layer: states.hidden[layer].clone() for layer in objective.teacher_layers}
        attention = {}
        if objective.needs_attention:
            attention = {n: _copied(states.attention[n - 1]) for n in objective.layers.values()}
        return Lesson(Knowledge(hidden, attention), features.clone(), vectors.clone())

    def _read(self, path: Path, line: _Line) -> dict[str, Tensor]:
        """What is kept of a line, if names and shapes are those of a lesson of such a line."""
        again = "Remove the file; its lesson is then given again."
        kept = read_tensors(path, "pt", remedy=again)
        n, width, objective = len(line.ids), self.model.hidden_size, self.objective
        asked = len(line.places) if self.model.head is not None else 0
        expected = {"vectors": (width,), "features": (asked, None)}
        expected |= {f"hidden.{layer}": (n, width) for layer in objective.teacher_layers}
        for layer in objective.layers.values() if objective.needs_attention else ():
            expected |= {f"attention.{layer}.{part}": (None, n, None) for part in ("query", "key", "value")}
            expected[f"attention.{layer}.scaling"] = ()
            if f"attention.{layer}.bias" in kept:
                expected[f"attention.{layer}.bias"] = (None, n, n)
        if kept.keys() != expected.keys() or not all(_has_shape(kept[name], expected[name]) for name in kept):
            raise StoreError(f"{path} holds no lesson of its line. {again}")
        return kept

    def _path(self, cache: Path, line: _Line) -> Path:
        """Where the lesson of a line is kept: by all that it depends on, in 256 folders."""
        objective, device = self.objective, line.ids.device.type
        precision = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32
        asked = [self.fingerprint, precision, objective.teacher_layers, objective.needs_attention, objective.layers]
        digest = hashlib.blake2b(repr(asked).encode(), digest_size=16)
        for tensor in (line.ids, line.places):
            digest.update(len(tensor).to_bytes(8, "little"))
            digest.update(tensor.cpu().contiguous().numpy().data)
        key = digest.hexdigest()
        return cache / key[:2] / f"{key}.safetensors"


@dataclass(frozen=True, eq=False)
class _Line:
    """One line of a batch without its padding: its pieces, and where in it logits are asked for."""

    ids: Tensor
    places: Tensor


def _lines(batch: Mapping[str, Tensor], positions: Tensor) -> list[_Line]:
    ids, lengths = batch["input_ids"], batch["attention_mask"].sum(dim=1).tolist()
    rows, places = positions // ids.shape[1], positions % ids.shape[1]
    return [_Line(ids[row, :length], places[rows == row]) for row, length in enumerate(lengths)]


def _copied(inputs: AttentionInputs) -> AttentionInputs:
    bias = None if inputs.bias is None else inputs.bias.clone()
    return AttentionInputs(inputs.query.clone(), inputs.key.clone(), inputs.value.clone(), inputs.scaling, bias)


def _has_shape(tensor: Tensor, shape: tuple[int | None, ...]) -> bool:
    """Whether a tensor of fractions has this shape; None stands for any size."""
    fits = all(size in (None, found) for size, found in zip(shape, tensor.shape, strict=False))
    return tensor.is_floating_point() and tensor.ndim == len(shape) and fits


def _by_line(lesson: Lesson, lines: Sequence[_Line]) -> list[dict[str, Tensor]]:
    """The lesson of each line, without padding: token × neuron, head × token × dimension, head × token × token."""
    features = lesson.features.split([len(line.places) for line in lines]) if len(lesson.features) else None
    found = []
    for row, line in enumerate(lines):
        n = len(line.ids)
        kept = {"vectors": lesson.vectors[row]}
        kept["features"] = lesson.features[:0] if features is None else features[row]
        kept |= {f"hidden.{layer}": states[row, :n] for layer, states in lesson.knowledge.hidden.items()}
        for layer, inputs in lesson.knowledge.attention.items():
            parts = {"query": inputs.query, "key": inputs.key, "value": inputs.value}
            kept |= {f"attention.{layer}.{name}": part[row, :, :n] for name, part in parts.items()}
            kept[f"attention.{layer}.scaling"] = torch.tensor(inputs.scaling, dtype=torch.float64)
            if inputs.bias is not None:  # one for all lines, by how far tokens are from each other
                kept[f"attention.{layer}.bias"] = inputs.bias[min(row, len(inputs.bias) - 1), :, :n, :n]
        found.append(kept)
    return found


def _joined(lines: Sequence[Mapping[str, Tensor]], width: int, device: torch.device) -> Lesson:
    """The lesson of a batch of lines, with zeros where they are padded."""
    names = list(lines[0])

    def padded(name: str, *axes: int) -> Tensor:
        return torch.stack([_padded(line[name], width, axes) for line in lines]).to(device)

    hidden = {int(name.split(".")[1]): padded(name, 0) for name in names if name.startswith("hidden.")}
    attention = {}
    for layer in sorted({int(name.split(".")[1]) for name in names if name.startswith("attention.")}):
        query, key, value = (padded(f"attention.{layer}.{part}", 1) for part in ("query", "key", "value"))
        bias = padded(f"attention.{layer}.bias", 1, 2) if f"attention.{layer}.bias" in names else None
        attention[layer] = AttentionInputs(query, key, value, float(lines[0][f"attention.{layer}.scaling"]), bias)
    features, vectors = (torch.cat([line["features"] for line in lines]), torch.stack([x["vectors"] for x in lines]))
    return Lesson(Knowledge(hidden, attention), features.to(device), vectors.to(device))


def _padded(tensor: Tensor, width: int, axes: Sequence[int]) -> Tensor:
    shape = [width if axis in axes else size for axis, size in enumerate(tensor.shape)]
    whole = tensor.new_zeros(shape)
    whole[tuple(slice(size) for size in tensor.shape)] = tensor
    return whole
