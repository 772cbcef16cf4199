"""The teacher: run once per batch for all students, frozen, without gradients, optionally cached."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from residuum.distillation.networks import AttentionInputs, LanguageModel
from residuum.distillation.objective import DistillationObjective, TeacherOutput
from residuum.errors import StoreError
from residuum.maths.losses import mean_pool
from residuum.maths.vocabulary_losses import Projection
from residuum.storage.tensors import read_tensors, write_tensors


@dataclass(eq=False)
class LastOutput:
    """The last input and its output, which students that are moved one after the other need again."""

    inputs: tuple[Tensor, ...] = ()
    output: TeacherOutput | None = None

    def of(self, inputs: tuple[Tensor, ...]) -> TeacherOutput | None:
        """The last output, if these were its inputs."""
        same = len(inputs) == len(self.inputs) and all(map(torch.equal, inputs, self.inputs))
        return self.output if same else None


@dataclass(frozen=True, eq=False)
class Teacher:
    """A frozen model in eval mode, and the cache of its outputs, if any.

    `cache` keeps outputs per line, by the line's masked tokens, so that a line is found in any batch. Padding is not
    kept; where it is compared (recipe published) there can be no cache.
    """

    model: LanguageModel
    objective: DistillationObjective
    fingerprint: str = ""
    cache: Path | None = None
    last: LastOutput | None = None

    def teach(self, batch: Mapping[str, Tensor], positions: Tensor) -> TeacherOutput:
        """The output for a batch; `positions` are places in the flattened batch whose logits are needed."""
        if self.last is None:
            return self._cached(batch, positions)
        inputs = (batch["input_ids"], batch["attention_mask"], positions)
        output = self.last.of(inputs) or self._cached(batch, positions)
        self.last.inputs, self.last.output = inputs, output
        return output

    def _cached(self, batch: Mapping[str, Tensor], positions: Tensor) -> TeacherOutput:
        """The output from the cache, if it has every line of the batch.

        Otherwise the whole batch is run, so that what a line's first batch gave is the same after a kill, bit for bit.
        """
        if self.cache is None:
            return self._run(batch, positions)
        ids, lengths = batch["input_ids"], batch["attention_mask"].sum(dim=1).tolist()
        rows, places = positions // ids.shape[1], positions % ids.shape[1]
        lines = [_CachedLine(ids[row, :length], places[rows == row]) for row, length in enumerate(lengths)]
        paths = [self._path(self.cache, line) for line in lines]
        kept = [self._read(path, line) if path.exists() else None for path, line in zip(paths, lines, strict=True)]
        if None in kept:
            fresh = _by_line(self._run(batch, positions), lines)
            for path, old, new in zip(paths, kept, fresh, strict=True):
                if old is None:
                    write_tensors(path, new)
            kept = [new if old is None else old for old, new in zip(kept, fresh, strict=True)]
        return _joined([line for line in kept if line is not None], batch["input_ids"].shape[1], positions.device)

    def _run(self, batch: Mapping[str, Tensor], positions: Tensor) -> TeacherOutput:
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
            for n in objective.layers.values():
                inputs = states.attention[n - 1]
                bias = None if inputs.bias is None else inputs.bias.clone()
                copies = (inputs.query.clone(), inputs.key.clone(), inputs.value.clone())
                attention[n] = AttentionInputs(*copies, inputs.scaling, bias)
        return TeacherOutput(hidden, attention, features.clone(), vectors.clone())

    def _read(self, path: Path, line: _CachedLine) -> dict[str, Tensor]:
        """The stored output for a line, with its names and shapes checked."""
        again = "Remove the file; it is then computed again."
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

        def fits(tensor: Tensor, shape: tuple[int | None, ...]) -> bool:  # None stands for any size
            same = len(shape) == tensor.ndim and all(map(lambda a, b: a in (None, b), shape, tensor.shape))
            return tensor.is_floating_point() and same

        if kept.keys() != expected.keys() or not all(fits(kept[name], expected[name]) for name in kept):
            raise StoreError(f"{path} does not hold the teacher's output for its line. {again}")
        return kept

    def _path(self, cache: Path, line: _CachedLine) -> Path:
        """The file of a line: named by all that its output depends on, in 256 folders."""
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
class TeacherGroup:
    """The teachers of one language, of one architecture and vocabulary; what several say is averaged."""

    members: Sequence[Teacher]

    def teach(self, batch: Mapping[str, Tensor], positions: Tensor) -> TeacherOutput:
        """The output for a batch, as `Teacher.teach`; `projection` turns its features into mean logits."""
        outputs = [member.teach(batch, positions) for member in self.members]
        return outputs[0] if len(outputs) == 1 else averaged(outputs)

    def projection(self, kept: Tensor | None = None) -> Projection | None:
        """The decoders side by side, each divided by their number; of the kept pieces only, where some are given."""
        heads = [member.model.head for member in self.members]
        whole = [head.projection for head in heads if head is not None]
        if not whole:
            return None
        parts = whole if kept is None else [part.pieces(kept) for part in whole]
        biases = [part.bias for part in parts if part.bias is not None]
        bias = torch.stack(biases).mean(dim=0) if biases else None
        return Projection(torch.cat([part.weight for part in parts], dim=1) / len(parts), bias)


def averaged(outputs: Sequence[TeacherOutput]) -> TeacherOutput:
    """One output from which every loss reads the mean over teachers of its states, vectors, logits and scores.

    Put side by side, queries and keys of n teachers give Σ Q_i K_iᵀ, and features Σ W_i f_i; queries are scaled by 1/n.
    Values are scaled by n^(−1/4), so that V Vᵀ/√(n·d) is the mean of V_i V_iᵀ/√d.
    """
    n, first = len(outputs), outputs[0]

    def mean(tensors: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(tensors)).mean(dim=0)

    attention = {}
    for layer, inputs in first.attention.items():
        of_layer = [output.attention[layer] for output in outputs]
        biases = [one.bias for one in of_layer if one.bias is not None]
        attention[layer] = AttentionInputs(
            torch.cat([one.query * (one.scaling / n) for one in of_layer], dim=-1),
            torch.cat([one.key for one in of_layer], dim=-1),
            torch.cat([one.value * n**-0.25 for one in of_layer], dim=-1),
            1.0,
            mean(biases) if inputs.bias is not None else None,
        )
    return TeacherOutput(
        {layer: mean([output.hidden[layer] for output in outputs]) for layer in first.hidden},
        attention,
        torch.cat([output.features for output in outputs], dim=-1),
        mean([output.vectors for output in outputs]),
    )


@dataclass(frozen=True, eq=False)
class _CachedLine:
    """One line of a batch without its padding: its tokens, and the places whose logits are needed."""

    ids: Tensor
    places: Tensor


def _by_line(output: TeacherOutput, lines: Sequence[_CachedLine]) -> list[dict[str, Tensor]]:
    """The output per line, without padding: token × neuron, head × token × dimension, head × token × token."""
    features = output.features.split([len(line.places) for line in lines]) if len(output.features) else None
    found = []
    for row, line in enumerate(lines):
        n = len(line.ids)
        kept = {"vectors": output.vectors[row]}
        kept["features"] = output.features[:0] if features is None else features[row]
        kept |= {f"hidden.{layer}": states[row, :n] for layer, states in output.hidden.items()}
        for layer, inputs in output.attention.items():
            parts = {"query": inputs.query, "key": inputs.key, "value": inputs.value}
            kept |= {f"attention.{layer}.{name}": part[row, :, :n] for name, part in parts.items()}
            kept[f"attention.{layer}.scaling"] = torch.tensor(inputs.scaling, dtype=torch.float64)
            if inputs.bias is not None:  # one for all lines, by how far tokens are from each other
                kept[f"attention.{layer}.bias"] = inputs.bias[min(row, len(inputs.bias) - 1), :, :n, :n]
        found.append(kept)
    return found


def _joined(lines: Sequence[Mapping[str, Tensor]], width: int, device: torch.device) -> TeacherOutput:
    """The output for a batch of lines, with zeros as padding."""
    names = list(lines[0])

    def padded(name: str, *axes: int) -> Tensor:
        whole = []
        for tensor in (line[name] for line in lines):
            shape = [width if axis in axes else size for axis, size in enumerate(tensor.shape)]
            whole.append(tensor.new_zeros(shape))
            whole[-1][tuple(slice(size) for size in tensor.shape)] = tensor
        return torch.stack(whole).to(device)

    hidden = {int(name.split(".")[1]): padded(name, 0) for name in names if name.startswith("hidden.")}
    attention = {}
    for layer in sorted({int(name.split(".")[1]) for name in names if name.startswith("attention.")}):
        query, key, value = (padded(f"attention.{layer}.{part}", 1) for part in ("query", "key", "value"))
        bias = padded(f"attention.{layer}.bias", 1, 2) if f"attention.{layer}.bias" in names else None
        attention[layer] = AttentionInputs(query, key, value, float(lines[0][f"attention.{layer}.scaling"]), bias)
    features, vectors = (torch.cat([line["features"] for line in lines]), torch.stack([x["vectors"] for x in lines]))
    return TeacherOutput(hidden, attention, features.to(device), vectors.to(device))
