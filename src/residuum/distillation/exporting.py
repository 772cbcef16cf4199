"""Each student as a plain `from_pretrained` folder: weights, tokenizer, config, model card, ONNX on request."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from residuum.distillation.networks import LanguageModel
from residuum.distillation.preparation import Prepared
from residuum.distillation.settings import DistillSettings
from residuum.distillation.steps import Student
from residuum.distillation.students import parameter_counts
from residuum.models.cards import front_matter, plain
from residuum.models.onnx_graphs import write_graph
from residuum.models.surgery import save_whole
from residuum.storage.files import whole_file

COUNTERS = ("step", "tokens", "seconds")
CARD = """{matter}

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


def export_students(prepared: Prepared, out: Path, texts: Mapping[str, str], scores: Mapping[str, str]) -> list[Path]:
    """Write every student under `out/students`."""
    folders = []
    for student in prepared.students:
        folder = out / "students" / student.name
        vocabulary = prepared.vocabularies.get(student.name)
        tokenizer = prepared.tokenizer if vocabulary is None else vocabulary.tokenizer
        module: Any = student.model.module
        module.to("cpu").eval()
        student.model.base._compiled_call_impl = None
        if module.is_gradient_checkpointing:
            module.gradient_checkpointing_disable()
        module.set_attn_implementation("sdpa" if getattr(module, "_supports_sdpa", False) else "eager")
        save_whole(module, tokenizer, folder, source=prepared.settings.teacher)
        with whole_file(folder / "README.md") as path:
            path.write_text(card(prepared, student, texts, scores, folder), encoding="utf-8")
        if prepared.settings.onnx:
            write_graph(_Logits(module), module, tokenizer, folder, "logits")
        folders.append(folder)
    return folders


def card(
    prepared: Prepared, student: Student, texts: Mapping[str, str], scores: Mapping[str, str], folder: Path
) -> str:
    """A model card: recipe, data, scores, parameters, limits."""
    settings, module = prepared.settings, student.model.module
    parameters, of_teacher = module.num_parameters(), prepared.teacher.model.module.num_parameters()
    heads = {True: "AutoModelForCausalLM", False: "AutoModelForMaskedLM"}
    own = {}
    for score, value in scores.items():  # such as `perplexity en/en` or `retrieval tr-en`
        subject = score.partition(" ")[2]
        name, slash, _ = subject.partition("/")
        if name == student.name if slash else set(subject.split("-")) & set(student.languages):
            own[score] = value
    trimmed = ""
    if trimming := trimming_table(prepared).get(student.name):
        trimmed = (
            f" of the teacher's {trimming['pieces before']:,}, those of its texts, which saves "
            f"{trimming['parameters saved']:,} parameters; characters without a piece become "
            f"{trimming['characters without a piece become']}"
        )
    datasets = [str(settings.texts[language]).partition(":")[0] for language in student.languages]
    hub = [name for name in datasets if "/" in name and not Path(name).exists()]
    return CARD.format(
        matter=front_matter(folder, settings.teacher, languages=student.languages, datasets=hub, tags=["distillation"]),
        name=student.name,
        teacher=plain(teacher_names(settings, student.languages)),
        languages=", ".join(student.languages),
        loader="AutoModel" if student.model.head is None else heads[student.model.causal],
        parameters=parameters,
        share=parameters / of_teacher,
        layers=student.model.n_layers,
        width=student.model.hidden_size,
        pieces=module.config.vocab_size,
        trimmed=trimmed,
        recipe=settings.recipe,
        loss=settings.preset or "own weights",
        weights=", ".join(f"{term} {weight:.4g}" for term, weight in prepared.objective.weights.items()),
        layer_map=", ".join(f"{m} → {n}" for m, n in prepared.objective.layers.items()),
        start=settings.initialise,
        sharing=settings.sharing if isinstance(settings.sharing, str) else ", ".join(map(str, settings.sharing)),
        tied="tied to the embeddings" if settings.tie else "untied",
        steps=settings.optimiser.steps,
        batch_size=settings.text.batch_size,
        temperature=prepared.objective.temperature,
        data="\n".join(f"- {language}: {plain(texts[language])}" for language in student.languages),
        scores="\n".join(f"- {plain(name)}: {value}" for name, value in own.items()) or "None were measured.",
    )


def teacher_names(settings: DistillSettings, languages: Iterable[str]) -> str:
    """The teachers of some languages in words."""
    names = [name for language in languages for name in settings.teachers.get(language, (settings.teacher,))]
    return ", ".join(dict.fromkeys(Path(name).name for name in names))


class _Logits(nn.Module):
    """Batch × token × piece, or × neuron where the student has no head."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The first of what the network gives."""
        return self.network(input_ids=input_ids, attention_mask=attention_mask)[0]


def loss_table(history: pd.DataFrame, turns: int) -> pd.DataFrame:
    """step, student, language, term, value: one row for each term of each student at each logged step.

    `turns` are the moves of weights in a step, which are several where students are moved one after the other.
    """
    long = history.melt(id_vars=list(COUNTERS), var_name="name", value_name="value").dropna(subset="value")
    parts = long["name"].str.partition(" ")
    subject = parts[2].str.partition("/")
    table = pd.DataFrame(
        {
            "step": long["step"] // turns,
            "student": subject[0],
            "language": subject[2],
            "term": parts[0],
            "value": long["value"],
            "tokens": long["tokens"],
            "seconds": long["seconds"],
        }
    )
    return table.sort_values(["step", "student", "language", "term"], kind="stable").reset_index(drop=True)


def score_table(
    during: pd.DataFrame, start: Mapping[str, float], final: Mapping[str, float], steps: int, turns: int
) -> pd.DataFrame:
    """step, score, subject, value: before training (step 0), during it, and at the last step."""
    rows = during.to_dict("records") if not during.empty else []
    rows = [{"step": 0, **start}, *(row for row in rows if row["step"] != steps), {"step": steps, **final}]
    tidy = [
        (int(row["step"]) // turns, *str(name).split(" ", 1), float(value))
        for row in rows
        for name, value in row.items()
        if name not in ("step", "retrieval mean")
    ]
    return pd.DataFrame(tidy, columns=["step", "score", "subject", "value"])


def trimming_table(prepared: Prepared) -> dict[str, dict[str, Any]]:
    """Of each student with a trimmed vocabulary: its pieces, the parameters that were saved, what is left unwritten."""
    before = prepared.teacher.model.module.config.vocab_size
    return {
        student.name: {
            "pieces before": before,
            "pieces after": len(prepared.vocabularies[student.name].kept),
            "parameters saved": saved_parameters(student.model, before),
            "characters without a piece become": prepared.vocabularies[student.name].fallback,
        }
        for student in prepared.students
        if student.name in prepared.vocabularies
    }


def saved_parameters(student: LanguageModel, pieces: int) -> int:
    """How many parameters more the student would have with `pieces` pieces, by a twin without memory."""
    config = copy.deepcopy(student.module.config)
    config.vocab_size = pieces
    with torch.device("meta"):
        twin: Any = type(student.module)(config)
    own = dict(student.module.named_parameters())
    return sum(p.numel() - own[name].numel() for name, p in twin.named_parameters() if name in own)


def parameter_table(prepared: Prepared) -> pd.DataFrame:
    """part, parameters, layers, width, pieces: the teacher, each student, what they share, all students together."""
    counts = parameter_counts({student.name: student.model for student in prepared.students})
    models = {"teacher": prepared.teacher.model, **{student.name: student.model for student in prepared.students}}
    rows = []
    for part, n in {"teacher": models["teacher"].module.num_parameters(), **counts}.items():
        model = models.get(part)
        shape = (model.n_layers, model.hidden_size, model.module.config.vocab_size) if model else (None, None, None)
        rows.append((part, n, *shape))
    table = pd.DataFrame(rows, columns=["part", "parameters", "layers", "width", "pieces"])
    return table.astype({"layers": "Int64", "width": "Int64", "pieces": "Int64"})
