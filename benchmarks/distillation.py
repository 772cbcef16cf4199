"""Distillation beside a straightforward loop: teacher per student, all logits at every position.

    python benchmarks/distillation.py                            # a few minutes
    python benchmarks/distillation.py students monoshot 3000     # or monoalignment: up to 30 minutes

An XLM-R-shaped teacher (4 × 128, 250,002 pieces, random weights) and students of half its depth, 2 threads. The two
ways get the same batches and must give the same losses at every step, all terms of MonoShot included. The trimmed
students are those of `vocabulary: {trim: true}`: the pieces that two texts use are counted and cut out of the tokenizer
and the students, and of the teacher's decoder. The cache, the waiting for data and the students of the second command
are those of the sample teacher; the last two read real text from RESIDUUM_DATA.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import torch
import torch.nn.functional as F
from measure import THREADS, data, in_fresh_process, line, report
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaForMaskedLM

from residuum.distillation.distilling import distill
from residuum.distillation.networks import language_model
from residuum.distillation.objective import DistillationObjective, Projections
from residuum.distillation.preparation import prepare
from residuum.distillation.settings import DistillSettings, ShapeSettings
from residuum.distillation.steps import DistillationStep, Student
from residuum.distillation.students import Initialisation, build_student, share_parts
from residuum.distillation.teaching import Teacher
from residuum.distillation.texts import IGNORED
from residuum.maths.losses import soft_divergence
from residuum.models.vocabularies import Vocabulary, count_pieces, cut_vocabulary
from residuum.samples import sample_text, teacher_folder

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
    kept, again = (in_fresh_process(__file__, "activations", mode) for mode in ("kept", "again"))
    norms = abs(again["gradient"] / kept["gradient"] - 1)
    cache = in_fresh_process(__file__, "cache")
    run = in_fresh_process(__file__, "run", "monoshot", 60)
    holds += [
        line("activation memory with gradient checkpointing / without", again["grown_mb"] / kept["grown_mb"], 0.6),
        line("relative difference of the gradient's norm × 1e5", norms * 1e5, 1, ""),
        line("bytes of full logits / bytes of the cache", cache["logits"] / cache["kept"], 20, at_least=True),
        line("relative difference of the loss by the cache × 100", cache["difference"] * 100, 1, ""),
        line("share of a step in which the model waits for data × 100", run["waiting"] * 100, 3, "%"),
    ]
    sys.exit(not all(holds))


def compare_students(preset: str, steps: int) -> None:
    """Retrieval of the students as a share of the teacher's, and perplexity beside that of the layer subset."""
    found = in_fresh_process(__file__, "run", preset, steps)
    print(f"   {preset}, {steps:,} steps in {found['minutes']:.0f} minutes, {found['waiting']:.2%} waiting for data")
    holds = []
    for name, value in found.items():
        kind, _, subject = name.partition(" ")
        if kind == "retrieval" and subject.endswith("-en"):
            before = found[f"start {name}"]
            holds.append(line(f"{preset}: {name} / teacher's ({before:.3f} before)", value, 0.95, at_least=True))
        if kind == "perplexity":
            holds.append(line(f"{preset}: {name} / that of the layer subset", value, 1))
    sys.exit(not all(holds))


def measure_activations(mode: str) -> None:
    """What a step adds to the process's memory: 12 layers × 128, 32 lines of 128 tokens, MSE on the last layer."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    shape = config()
    shape.update({"num_hidden_layers": 12, "vocab_size": 1000, "max_position_embeddings": 130})
    model = language_model(XLMRobertaForMaskedLM(shape).train())
    if mode == "again":
        model.module.gradient_checkpointing_enable({"use_reentrant": False})
    ids = torch.randint(5, 1000, (32, 128), generator=torch.Generator().manual_seed(0))
    for _ in range(2):  # what the first steps take once: threads, libraries, gradients
        model.run(ids[:1], torch.ones_like(ids[:1])).hidden[-1].square().mean().backward()
    model.module.zero_grad(set_to_none=False)
    before = psutil.Process().memory_info().rss / 2**20
    model.run(ids, torch.ones_like(ids)).hidden[-1].square().mean().backward()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.module.parameters() if p.grad is not None])
    report(grown_mb=peak - before, gradient=float(norm))


def measure_cache() -> None:
    """Bytes of the teacher's kept outputs beside those of full logits, and the loss with and without them."""
    lines = sample_text("text", language="en", size=400)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "en.txt").write_text(lines, encoding="utf-8")
        losses = []
        for cache in (None, f"{folder}/cache", f"{folder}/cache"):
            settings = DistillSettings(
                teacher_folder(), {"en": f"{folder}/en.txt"}, preset="hinton", teacher_cache=cache, device="cpu"
            )
            prepared = prepare(settings)
            for student in prepared.students:
                student.model.module.eval()  # without dropout, which differs from run to run
            losses.append([float(prepared.step(prepared.batches(position)).total) for position in range(4)])
        positions = sum(int(prepared.batches(position)["en"]["soft"].sum()) for position in range(4))
        kept = sum(path.stat().st_size for path in Path(folder, "cache").rglob("*") if path.is_file())
    logits = positions * 4 * prepared.teacher.model.module.config.vocab_size
    difference = max(abs(a - b) / a for a, b in zip(losses[0], losses[2], strict=True))
    report(logits=logits, kept=kept, difference=difference)


def measure_run(preset: str, steps: int) -> None:
    """A distillation of the sample teacher into 3 layers per language on real text, and what it keeps."""
    torch.set_num_threads(THREADS)
    tatoeba = {"de": "deu", "tr": "tur", "sw": "swh"}
    pairs = {
        f"{language}-en": [str(data("crosslingual", "tatoeba", f"tatoeba.{code}-eng.{side}")) for side in (code, "eng")]
        for language, code in tatoeba.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        result = distill(
            teacher_folder(),
            {language: str(data("text", "common_voice", language)) for language in ("en", *tatoeba)},
            folder,
            preset=preset,
            text={"batch_size": 32, "max_length": 48, "held_out": 500, "shuffle_buffer": 100_000},
            optimiser={"steps": steps, "learning_rate": 5e-4},
            evaluation={"pairs": pairs, "lines": 1000},
            device="cpu",
        )
        summary = result.run.summary
    kept, start = {}, summary["start scores"]
    for name, value in summary.items():
        if name.startswith(("retrieval", "perplexity")):
            reference = summary["teacher scores"] if name.startswith("retrieval") else start
            kept[name] = value / reference[name]
            kept[f"start {name}"] = start[name] / reference[name]
    report(waiting=summary["waiting for data"], minutes=(time.perf_counter() - started) / 60, **kept)


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
    if sys.argv[1:2] == ["students"]:
        compare_students(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["run"]:
        measure_run(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["activations"]:
        measure_activations(sys.argv[2])
    elif sys.argv[1:2] == ["cache"]:
        measure_cache()
    elif len(sys.argv) > 1:
        measure_way(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
