"""Each student as a plain `from_pretrained` folder: weights, tokenizer, config, model card, ONNX on request."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from residuum.distillation.preparation import Prepared
from residuum.distillation.steps import Student
from residuum.distillation.tables import trimming_table
from residuum.models.onnx_graphs import write_graph
from residuum.models.surgery import save_whole
from residuum.storage.files import whole_file

CARD = """---
library_name: transformers
tags: [distillation, residuum]
language: [{languages}]
base_model: {teacher}
---

# {name}

A student of **{teacher}** for {languages}, distilled with Residuum.

```python
from transformers import {loader}, AutoTokenizer

model, tokenizer = {loader}.from_pretrained("{name}"), AutoTokenizer.from_pretrained("{name}")
```

| | |
|---|---|
| parameters | {parameters:,} ({share:.0%} of the teacher's) |
| layers × width | {layers} × {width} |
| vocabulary | {pieces:,} pieces{trimmed} |
| recipe, loss | {recipe}, {loss} |
| weights of the terms | {weights} |
| student layer → teacher layer | {layer_map} |
| start | {start}; shared with its siblings: {sharing}; decoder {tied} |
| steps, batch per language | {steps:,}, {batch_size} |
| temperature | {temperature} |

## Data

{data}

## Scores

{scores}

## Limits

The student knows the languages above only, and what its teacher knew of them; it repeats the teacher's biases and
those of the texts. Students of one run share a space: vectors of different runs cannot be compared.
"""


def export_students(prepared: Prepared, out: Path, texts: Mapping[str, str], scores: Mapping[str, float]) -> list[Path]:
    """Write every student under `out/students`."""
    folders = []
    for student in prepared.students:
        folder = out / "students" / student.name
        vocabulary = prepared.vocabularies.get(student.name)
        tokenizer = prepared.tokenizer if vocabulary is None else vocabulary.tokenizer
        module: Any = student.model.module
        module.to("cpu").eval()
        module.set_attn_implementation("sdpa" if getattr(module, "_supports_sdpa", False) else "eager")
        save_whole(module, tokenizer, folder)
        with whole_file(folder / "README.md") as path:
            path.write_text(card(prepared, student, texts, scores), encoding="utf-8")
        if prepared.settings.onnx:
            write_graph(_Logits(module), module, tokenizer, folder, "logits")
        folders.append(folder)
    return folders


def card(prepared: Prepared, student: Student, texts: Mapping[str, str], scores: Mapping[str, float]) -> str:
    """A model card: recipe, data, scores, parameters, limits."""
    settings, module = prepared.settings, student.model.module
    parameters, of_teacher = module.num_parameters(), prepared.teacher.model.module.num_parameters()
    heads = {True: "AutoModelForCausalLM", False: "AutoModelForMaskedLM"}
    own = {name: value for name, value in scores.items() if _concerns(name, student)}
    return CARD.format(
        name=student.name,
        teacher=Path(settings.teacher).name,
        languages=", ".join(student.languages),
        loader="AutoModel" if student.model.head is None else heads[student.model.causal],
        parameters=parameters,
        share=parameters / of_teacher,
        layers=student.model.n_layers,
        width=student.model.hidden_size,
        pieces=module.config.vocab_size,
        trimmed=_trimmed(prepared, student),
        recipe=settings.recipe,
        loss=settings.preset or "own weights",
        weights=", ".join(f"{term} {weight:.4g}" for term, weight in prepared.objective.weights.items()),
        layer_map=", ".join(f"{m} → {n}" for m, n in prepared.objective.layers.items()),
        start=settings.initialise,
        sharing=settings.sharing,
        tied="tied to the embeddings" if settings.tie else "untied",
        steps=settings.optimiser.steps,
        batch_size=settings.text.batch_size,
        temperature=prepared.objective.temperature,
        data="\n".join(f"- {language}: {texts[language]}" for language in student.languages),
        scores="\n".join(f"- {name}: {value:.4g}" for name, value in own.items()) or "None were measured.",
    )


def _trimmed(prepared: Prepared, student: Student) -> str:
    """What trimming left of the vocabulary and what it saved; nothing where it was not trimmed."""
    found = trimming_table(prepared).get(student.name)
    if found is None:
        return ""
    return (
        f" of the teacher's {found['pieces before']:,}, those of its texts, which saves "
        f"{found['parameters saved']:,} parameters; characters without a piece become "
        f"{found['characters without a piece become']}"
    )


class _Logits(nn.Module):
    """Batch × token × piece, or × neuron where the student has no head."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The first of what the network gives."""
        return self.network(input_ids=input_ids, attention_mask=attention_mask)[0]


def _concerns(score: str, student: Student) -> bool:
    """Whether a score such as `perplexity en/en` or `retrieval tr-en` is this student's."""
    _, _, subject = score.partition(" ")
    name, slash, _ = subject.partition("/")
    return name == student.name if slash else bool(set(subject.split("-")) & set(student.languages))
