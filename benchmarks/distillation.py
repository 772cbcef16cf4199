"""Distillation beside a straightforward loop: teacher per student, all logits at every position.

    python benchmarks/distillation.py

An XLM-R-shaped teacher (4 × 128, 250,002 pieces, random weights) and students of half its depth, 2 threads. The two
ways get the same batches and must give the same losses.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.nn.functional as F
from measure import THREADS, in_fresh_process, line, report
from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM

from residuum.distillation.networks import language_model
from residuum.distillation.objective import Objective, Projections
from residuum.distillation.settings import ShapeSettings
from residuum.distillation.steps import Step, Student
from residuum.distillation.students import Initialisation, build_student, share_parts
from residuum.distillation.teaching import Teacher
from residuum.distillation.texts import IGNORED
from residuum.maths.losses import soft_divergence
from residuum.maths.vocabulary_losses import Projection

PIECES, TRIMMED, LAYERS, WIDTH = 250_002, 40_000, 4, 128
LINES, TOKENS, STEPS = 8, 64, 5
WEIGHTS = {"mlm": 0.3, "soft": 0.3, "hidden_mse": 0.4}


def main() -> None:
    plain, ours, trimmed = (in_fresh_process(__file__, way, 2, 2) for way in ("plain", "ours", "trimmed"))
    one, two = (in_fresh_process(__file__, "ours", students, 1) for students in (1, 2))
    for name, found in {"plain": plain, "ours": ours, "trimmed": trimmed, "1 student": one, "2 students": two}.items():
        print(f"   {name}: {found['seconds']:.2f} s a step, peak {found['peak_mb']:.0f} MB", flush=True)
    difference = abs(plain["loss"] - ours["loss"]) / abs(plain["loss"])
    holds = [
        line("steps/s of distill / straightforward loop", plain["seconds"] / ours["seconds"], 3, at_least=True),
        line("relative difference of the losses × 1e5", difference * 1e5, 1, ""),
        line("peak memory of distill / straightforward loop", ours["peak_mb"] / plain["peak_mb"], 0.5),
        line("steps/s with a trimmed vocabulary / whole", ours["seconds"] / trimmed["seconds"], 2, at_least=True),
        line("cost of a second student / of the first", two["seconds"] / one["seconds"] - 1, 0.6),
    ]
    sys.exit(not all(holds))


def measure_way(way: str, students: int, languages: int) -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    pieces = TRIMMED if way == "trimmed" else PIECES
    teacher = language_model(XLMRobertaForMaskedLM(config(pieces)).eval().requires_grad_(False))
    objective = Objective(WEIGHTS, {1: 2, 2: 4}, 4.0, "corrected", causal=False)
    learners = build_students(teacher, objective, students, languages)
    batches = {name: batch(number, pieces) for number, name in enumerate(["en", "tr"][:languages])}
    parameters = {id(p): p for one in learners for p in one.model.module.parameters()}
    optimiser = torch.optim.AdamW(parameters.values(), lr=1e-4)
    step = Step(Teacher(teacher, objective), learners, objective)
    losses = (
        (lambda: plain_losses(teacher, learners, objective, batches))
        if way == "plain"
        else (lambda: step(batches).total)
    )
    first, times = None, []
    for _ in range(STEPS):
        started = time.perf_counter()
        total = losses()
        total.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - started)
        first = float(total.detach()) if first is None else first
    report(seconds=min(times[1:]), loss=first)


def config(pieces: int) -> XLMRobertaConfig:
    return XLMRobertaConfig(
        vocab_size=pieces,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=TOKENS + 2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def build_students(teacher, objective: Objective, count: int, languages: int) -> list[Student]:
    start = Initialisation("teacher", {1: 2, 2: 4})
    models = [
        build_student(teacher, ShapeSettings(layers=2), start, tie=True, vocabulary=None, attention=False)
        for _ in range(count)
    ]
    share_parts(models, "embeddings")
    names = ["en", "tr"][:languages]
    own = [(names[i],) if languages == count else tuple(names) for i in range(count)]
    decoder = Projection(teacher.head.decoder.weight, teacher.head.decoder.bias)
    return [
        Student(str(i), model, own[i], Projections(objective, WIDTH, WIDTH), None, decoder)
        for i, model in enumerate(models)
    ]


def batch(seed: int, pieces: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, pieces, (LINES, TOKENS), generator=generator)
    chosen = torch.rand(LINES, TOKENS, generator=generator) < 0.15
    labels = torch.where(chosen, ids, IGNORED)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels, "soft": chosen}


def plain_losses(teacher, learners: list[Student], objective: Objective, batches) -> torch.Tensor:
    total = torch.zeros(())
    for student in learners:
        for language in student.languages:
            own = batches[language]
            inputs = {"input_ids": own["input_ids"], "attention_mask": own["attention_mask"]}
            with torch.no_grad():
                theirs = teacher.module(**inputs, output_hidden_states=True)
            mine = student.model.module(**inputs, output_hidden_states=True)
            mlm = F.cross_entropy(mine.logits.flatten(0, 1), own["labels"].flatten(), ignore_index=IGNORED)
            rows = soft_divergence(mine.logits.flatten(0, 1), theirs.logits.flatten(0, 1), objective.temperature)
            soft = rows[own["soft"].flatten()].mean()
            hidden = sum(
                (mine.hidden_states[m] - theirs.hidden_states[n]).square().mean() for m, n in objective.layers.items()
            )
            total = total + WEIGHTS["mlm"] * mlm + WEIGHTS["soft"] * soft + WEIGHTS["hidden_mse"] * hidden
    return total


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure_way(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
