"""Distillation beside a straightforward loop: teacher per student, all logits at every position.

    python benchmarks/distillation.py

An XLM-R-shaped teacher (4 × 128, 250,002 pieces, random weights) and students of half its depth, 2 threads. The two
ways get the same batches and must give the same losses at every step, all terms of MonoShot included. The trimmed
students are those of `vocabulary: {trim: true}`: the pieces that two texts use are counted and cut out of the tokenizer
and the students, and of the teacher's decoder.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from measure import THREADS, in_fresh_process, line, report
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaForMaskedLM

from residuum.distillation.networks import language_model
from residuum.distillation.objective import DistillationObjective, Projections
from residuum.distillation.settings import ShapeSettings
from residuum.distillation.steps import DistillationStep, Student
from residuum.distillation.students import Initialisation, build_student, share_parts
from residuum.distillation.teaching import Teacher
from residuum.distillation.texts import IGNORED
from residuum.maths.losses import soft_divergence
from residuum.models.vocabularies import Vocabulary, count_pieces, cut_vocabulary

PIECES, LAYERS, WIDTH = 250_002, 4, 128
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
USED = 20_000  # pieces of each of the two texts
LINES, TOKENS, STEPS = 8, 64, 5
MAP = {1: 2, 2: 4}
WEIGHTS = {"mlm": 0.2, "soft": 0.2, "hidden_mse": 0.2, "attention_mse": 0.2, "embedding_mse": 0.2}


def main() -> None:
    plain, ours, trimmed = (in_fresh_process(__file__, way, 2, 2) for way in ("plain", "ours", "trimmed"))
    one, two = (in_fresh_process(__file__, "ours", students, 1) for students in (1, 2))
    for name, found in {"plain": plain, "ours": ours, "trimmed": trimmed, "1 student": one, "2 students": two}.items():
        print(f"   {name}: {found['seconds']:.2f} s a step, peak {found['peak_mb']:.0f} MB", flush=True)
    losses = [f"loss {step}" for step in range(1, STEPS + 1)]
    difference = max(abs(plain[loss] - ours[loss]) / abs(plain[loss]) for loss in losses)
    holds = [
        line("steps/s of distill / straightforward loop", plain["seconds"] / ours["seconds"], 3, at_least=True),
        line(f"largest relative difference of the losses of {STEPS} steps × 1e5", difference * 1e5, 1, ""),
        line("peak memory of distill / straightforward loop", ours["peak_mb"] / plain["peak_mb"], 0.5),
        line("steps/s with a trimmed vocabulary / whole", ours["seconds"] / trimmed["seconds"], 2, at_least=True),
        line("cost of a second student / of the first", two["seconds"] / one["seconds"] - 1, 0.6),
    ]
    sys.exit(not all(holds))


def measure_way(way: str, students: int, languages: int) -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    teacher = language_model(XLMRobertaForMaskedLM(config()).eval().requires_grad_(False), attention=True)
    objective = DistillationObjective(WEIGHTS, MAP, 4.0, "corrected", causal=False)
    vocabulary = used_vocabulary() if way == "trimmed" else None
    learners = build_students(teacher, objective, students, languages, vocabulary)
    batches = {name: batch(number) for number, name in enumerate(["en", "tr"][:languages])}
    parameters = {id(p): p for one in learners for p in one.model.module.parameters()}
    optimiser = torch.optim.AdamW(parameters.values(), lr=1e-4)
    step = DistillationStep(Teacher(teacher, objective), learners, objective)
    losses = (
        (lambda: plain_losses(teacher, learners, objective, batches))
        if way == "plain"
        else (lambda: step(batches).total)
    )
    found, times = {}, []
    for number in range(1, STEPS + 1):
        started = time.perf_counter()
        total = losses()
        total.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - started)
        found[f"loss {number}"] = float(total.detach())
    report(seconds=min(times[1:]), **found)


def config() -> XLMRobertaConfig:
    return XLMRobertaConfig(
        vocab_size=PIECES,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=TOKENS + 2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def tokenizer() -> PreTrainedTokenizerFast:
    """A unigram tokenizer of as many pieces as the teacher has embeddings, each a word."""
    *first, mask = SPECIAL
    words = [word(number) for number in range(PIECES - len(SPECIAL))]
    pieces = [*((piece, 0.0) for piece in first), *((piece, -10.0) for piece in words), (mask, 0.0)]
    backend = Tokenizer(models.Unigram(pieces, unk_id=first.index("<unk>")))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def word(number: int) -> str:
    return f"w{number}"


def used_words(seed: int) -> np.ndarray:
    """The numbers of the words that a text uses; those of two texts are partly the same."""
    return np.random.default_rng(seed).choice(PIECES - len(SPECIAL), USED, replace=False)


def used_vocabulary() -> Vocabulary:
    """What is left of the vocabulary when it is trimmed to two texts."""
    whole = tokenizer()
    lines = (" ".join(map(word, part)) for seed in (0, 1) for part in np.array_split(used_words(seed), USED // TOKENS))
    return cut_vocabulary(whole, count_pieces(whole, lines))


def build_students(
    teacher, objective: DistillationObjective, count: int, languages: int, vocabulary: Vocabulary | None
) -> list[Student]:
    start = Initialisation("teacher", MAP)
    built = [
        build_student(teacher, ShapeSettings(layers=2), start, tie=True, vocabulary=vocabulary, attention=True)
        for _ in range(count)
    ]
    share_parts(built, "embeddings")
    names = ["en", "tr"][:languages]
    own = [(names[i],) if languages == count else tuple(names) for i in range(count)]
    new_ids, decoder = None, teacher.head.projection
    if vocabulary is not None:
        new_ids, decoder = (
            torch.from_numpy(vocabulary.new_ids(PIECES)),
            decoder.pieces(torch.from_numpy(vocabulary.kept)),
        )
    return [
        Student(str(i), model, own[i], Projections(objective, WIDTH, WIDTH), new_ids, decoder)
        for i, model in enumerate(built)
    ]


def batch(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    used = torch.from_numpy(used_words(seed)) + len(SPECIAL) - 1  # before the mask, the last piece
    ids = used[torch.randint(USED, (LINES, TOKENS), generator=generator)]
    chosen = torch.rand(LINES, TOKENS, generator=generator) < 0.15
    labels = torch.where(chosen, ids, IGNORED)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels, "soft": chosen}


def plain_losses(teacher, learners: list[Student], objective: DistillationObjective, batches) -> torch.Tensor:
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
            attention = sum(
                (scores(student.model.module, m, mine) - scores(teacher.module, n, theirs)).square().mean()
                for m, n in objective.layers.items()
            )
            embedding = (mine.hidden_states[0] - theirs.hidden_states[0]).square().mean()
            terms = {
                "mlm": mlm,
                "soft": soft,
                "hidden_mse": hidden,
                "attention_mse": attention,
                "embedding_mse": embedding,
            }
            total = total + sum(WEIGHTS[name] * value for name, value in terms.items())
    return total


def scores(module, layer: int, output) -> torch.Tensor:
    """QKᵀ/√d of a block, from the states that it read."""
    attention, states = module.base_model.encoder.layer[layer - 1].attention.self, output.hidden_states[layer - 1]
    query, key = (
        part(states).unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)
        for part in (attention.query, attention.key)
    )
    return query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure_way(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
