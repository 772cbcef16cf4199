"""The teacher at work: run once on each batch however many students learn from it, frozen, without gradients."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from residuum.distillation.networks import AttentionInputs, LanguageModel
from residuum.distillation.objective import Knowledge, Objective
from residuum.maths.alignment_losses import mean_pool
from residuum.tensor_files import read_tensors, write_tensors


@dataclass(frozen=True, eq=False)
class Lesson:
    """What the teacher says about a batch: what is compared, its features at chosen positions, its sentence vectors."""

    knowledge: Knowledge
    features: Tensor  # position × neuron, after the head's transform; empty where no logits are asked for
    vectors: Tensor  # sentence × neuron, mean of the last layer


@dataclass(frozen=True, eq=False)
class Teacher:
    """A frozen model in eval mode, and where its answers are kept, if anywhere."""

    model: LanguageModel
    objective: Objective
    fingerprint: str = ""
    cache: Path | None = None

    def teach(self, batch: Mapping[str, Tensor], positions: Tensor) -> Lesson:
        """The lesson of a batch; `positions` are places in the flattened batch whose logits will be asked for."""
        if self.cache is None:
            return self._run(batch, positions)
        path = self.cache / f"{self._key(batch, positions)}.safetensors"
        if path.exists():
            kept = read_tensors(path, "pt", remedy="Remove the file; its lesson is then given again.")
            return _lesson({name: tensor.to(positions.device) for name, tensor in kept.items()})
        lesson = self._run(batch, positions)
        write_tensors(path, _tensors(lesson))
        return lesson

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

    def _key(self, batch: Mapping[str, Tensor], positions: Tensor) -> str:
        asked = (
            f"{self.fingerprint}{self.objective.teacher_layers}{self.objective.needs_attention}{self.objective.layers}"
        )
        digest = hashlib.blake2b(asked.encode(), digest_size=16)
        for tensor in (batch["input_ids"], batch["attention_mask"], positions):
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.cpu().contiguous().numpy().data)
        return digest.hexdigest()


def _copied(inputs: AttentionInputs) -> AttentionInputs:
    bias = None if inputs.bias is None else inputs.bias.clone()
    return AttentionInputs(inputs.query.clone(), inputs.key.clone(), inputs.value.clone(), inputs.scaling, bias)


def _tensors(lesson: Lesson) -> dict[str, Tensor]:
    found = {"features": lesson.features, "vectors": lesson.vectors}
    found |= {f"hidden.{layer}": states for layer, states in lesson.knowledge.hidden.items()}
    for layer, inputs in lesson.knowledge.attention.items():
        parts = {"query": inputs.query, "key": inputs.key, "value": inputs.value, "bias": inputs.bias}
        found |= {f"attention.{layer}.{name}": part for name, part in parts.items() if part is not None}
        found[f"attention.{layer}.scaling"] = torch.tensor(inputs.scaling, dtype=torch.float64)
    return found


def _lesson(tensors: Mapping[str, Tensor]) -> Lesson:
    hidden = {int(key.split(".")[1]): value for key, value in tensors.items() if key.startswith("hidden.")}
    layers = sorted({int(key.split(".")[1]) for key in tensors if key.startswith("attention.")})
    attention = {}
    for layer in layers:
        query, key, value = (tensors[f"attention.{layer}.{name}"] for name in ("query", "key", "value"))
        scaling = float(tensors[f"attention.{layer}.scaling"])
        attention[layer] = AttentionInputs(query, key, value, scaling, tensors.get(f"attention.{layer}.bias"))
    return Lesson(Knowledge(hidden, attention), tensors["features"], tensors["vectors"])
