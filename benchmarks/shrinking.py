"""What `shrink` keeps of real models, against plain layer dropping, ShortGPT and SLEB with the same text.

    RESIDUUM_DATA=… RESIDUUM_MODELS=… python benchmarks/shrinking.py PART … [--steps N] [--work DIR] [--lines N]

Parts: gte (12 → 6 blocks), narrow (and half of the feed-forward neurons), plain (every second block, same healing),
mpnet (12 → 6), smollm (30 → 24 blocks, before healing), smollm-heal, teacher (trimmed to two languages, half the
depth), cost (of the plan), fit (of every second block of gte-small to the original, before healing).
Healing is on English sentences of Common Voice; sentence encoders are scored on the development part of STS-B, which
nothing else reads. Runs are kept in the work folder: a part that was stopped goes on, a finished one is only shown.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from measure import THREADS, data, line

PARTS = ("gte", "narrow", "plain", "mpnet", "smollm", "smollm-heal", "teacher", "cost", "fit")
CALIBRATION, JUDGED = 128, 500  # lines on which the peers choose, and on which all are judged


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--work", type=Path, default=Path("shrinking-work"))
    parser.add_argument("--lines", type=int, default=0, help="lines of text; 0 takes all")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(THREADS)
    arguments.work.mkdir(parents=True, exist_ok=True)
    text = common_voice(arguments.work / "english.txt", arguments.lines)
    holds = [PART[part](part, text, arguments) for part in arguments.parts]
    sys.exit(not all(holds))


def common_voice(path: Path, limit: int) -> Path:
    """All English sentences, in an order that does not depend on their files."""
    files = sorted(data("text", "common_voice", "en").glob("*.txt"))
    lines = sorted({own.strip() for file in files for own in file.read_text("utf-8").splitlines() if own.strip()})
    order = np.random.default_rng(0).permutation(len(lines))
    path.write_text("\n".join(lines[i] for i in islice(order.tolist(), limit or None)), encoding="utf-8")
    return path


def sentence_model(name: str, work: Path) -> Path:
    """A copy with the modules that its card names: mean over tokens, length 1."""
    source = Path(name) if Path(name).is_dir() else Path(os.environ["RESIDUUM_MODELS"], name)
    if (source / "modules.json").exists():
        return source
    folder = work / source.name
    shutil.copytree(source, folder, dirs_exist_ok=True)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    width = json.loads((folder / "config.json").read_text())["hidden_size"]
    pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    return folder


def encoder(part: str, text: Path, arguments: Any) -> bool:
    """A sentence encoder with half its blocks: Spearman on STS-B as a share of the original's, and the speed-up."""
    from residuum import shrink

    name = os.environ.get("RESIDUUM_MPNET", "all-mpnet-base-v2") if part == "mpnet" else "gte-small"
    model = sentence_model(name, arguments.work)
    start = time.perf_counter()
    result = shrink(
        model, text, arguments.work / f"{part}-{arguments.steps}", layers=6, ffn=0.5 if part == "narrow" else None,
        heal=arguments.steps, task="stsb", data=data("glue", "STS-B"),
    )  # fmt: skip
    print(f"   {time.perf_counter() - start:.0f} s; layers {result.run.summary['kept']}")
    holds = shown(part, result.frame, {"gte": 97.5, "narrow": 95, "mpnet": 97}[part], 2.5 if part == "narrow" else None)
    return healing_minutes(part, result.run) and holds


def healing_minutes(part: str, run: Any) -> bool:
    """Minutes of the training steps, checkpoints left out; the curve tells what more of them would bring."""
    curve = run.tables["healing"]
    shown = curve.iloc[:: max(1, len(curve) // 10)]
    print(shown[["step", "learning_rate", "loss", "seconds"]].to_string(index=False))
    return line(f"{part}: minutes of healing", curve["seconds"].iloc[-1] / 60, 30, unit="min")


def shown(part: str, stages: Any, share: float, speed: float | None) -> bool:
    columns = ["stage", "parameters", "fidelity", "stsb", "stsb_low", "stsb_high", "ms_1", "ms_32", "mb_32"]
    print(stages[columns].to_string(index=False))
    first, last = stages.iloc[0], stages.iloc[-1]
    holds = line(f"{part}: share of Spearman", 100 * last["stsb"] / first["stsb"], share, unit="%", at_least=True)
    if speed is not None:
        holds &= line(f"{part}: speed-up in batches of 32", last["speedup_32"], speed, at_least=True)
    return holds


def plain(part: str, text: Path, arguments: Any) -> bool:
    """The baseline: every second block, the same healing."""
    from residuum import prune
    from residuum.corpus.tasks import read_task
    from residuum.models.sentences import read_sentence_layout
    from residuum.models.surgery import load_whole
    from residuum.shrinking.measuring import similarity_score

    model = sentence_model("gte-small", arguments.work)
    out = arguments.work / f"plain-{arguments.steps}"
    prune(model, out, keep="alternate", corpus=text, format="lines", heal=arguments.steps)
    layout, task = read_sentence_layout(model), read_task("stsb", data("glue", "STS-B")).test
    scores = [similarity_score(*load_whole(folder), "stsb", task, layout, 0)["stsb"] for folder in (model, out)]
    return line(f"{part}: share of Spearman", 100 * scores[1] / scores[0], 0, unit="%", at_least=True)


def short_gpt(network: Any, batches: list[Any], n_dropped: int) -> list[int]:
    """ShortGPT (Men et al. 2024): BI_i = 1 − E[x_iᵀ x_{i+1} / (‖x_i‖ ‖x_{i+1}‖)] over tokens; the lowest go at once."""
    import torch

    totals, n_tokens = np.zeros(network.config.num_hidden_layers), 0
    for batch in batches:
        with torch.inference_mode():
            states = network(**batch, output_hidden_states=True, use_cache=False).hidden_states
        mask = batch["attention_mask"].bool()
        n_tokens += int(mask.sum())
        for i in range(len(totals)):
            totals[i] += float((1 - torch.cosine_similarity(states[i], states[i + 1], dim=-1))[mask].sum())
    return sorted((np.argsort(totals, kind="stable")[:n_dropped] + 1).tolist())


def sleb(network: Any, batches: list[Any], n_dropped: int) -> list[int]:
    """SLEB (Song et al. 2024): again and again drop the block without which the calibration perplexity is lowest."""
    from residuum.models.surgery import without_layers

    dropped: list[int] = []
    for _ in range(n_dropped):
        left = [i for i in range(1, network.config.num_hidden_layers + 1) if i not in dropped]
        losses = {}
        for gone in left:
            with without_layers(network, [i for i in left if i != gone]):
                losses[gone] = perplexity(network, batches)
        dropped.append(min(losses, key=losses.__getitem__))
    return sorted(dropped)


def perplexity(network: Any, batches: list[Any]) -> float:
    """exp of the mean loss of the next token."""
    import torch

    total, count = 0.0, 0
    for batch in batches:
        with torch.inference_mode():
            logits = network(**batch, use_cache=False).logits[:, :-1]
        seen = (batch["attention_mask"][:, 1:] * batch["attention_mask"][:, :-1]).bool()
        gold = batch["input_ids"][:, 1:][seen]
        total += float(torch.nn.functional.cross_entropy(logits[seen], gold, reduction="sum"))
        count += len(gold)
    return float(np.exp(total / count))


def decoder(part: str, text: Path, arguments: Any) -> bool:
    """SmolLM2 without six blocks: perplexity on lines that neither the peers nor the plan read."""
    from residuum import shrink
    from residuum.models.surgery import load_whole, without_layers
    from residuum.shrinking.planning import encoded

    model = os.environ.get("RESIDUUM_SMOLLM2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    healing = arguments.steps if part == "smollm-heal" else 0
    out = arguments.work / f"{part}-{healing}"
    result = shrink(model, text, out, layers=24, heal=healing)
    print(result.frame[["stage", "layers", "parameters", "perplexity", "perplexity_low", "perplexity_high"]])
    if healing:
        ratio = result.run.summary["perplexity"] / result.run.summary["perplexity before"]
        within = healing_minutes(part, result.run)
        return line(f"{part}: perplexity over the original's", ratio, 1.15) and within
    network, tokenizer = load_whole(model)
    lines = text.read_text("utf-8").splitlines()
    held_out, rest = lines[::5], [own for i, own in enumerate(lines) if i % 5]

    def batches(texts: list[str]) -> list[Any]:
        texts = sorted(texts, key=len)
        return [encoded(tokenizer, texts[i : i + 32], None, 128) for i in range(0, len(texts), 32)]

    calibration, judged = batches(rest[:CALIBRATION]), batches(held_out[:JUDGED])
    dropped = {"ShortGPT": short_gpt(network, calibration, 6), "SLEB": sleb(network, calibration, 6)}
    dropped["ours, without compensation"] = sorted(set(range(1, 31)) - set(result.run.summary["kept"]))
    found = {"ours": perplexity(load_whole(out)[0], judged)}
    print(f"   ours: perplexity {found['ours']:.2f}", flush=True)
    for name, gone in dropped.items():
        with without_layers(network, [i for i in range(1, 31) if i not in gone]):
            found[name] = perplexity(network, judged)
        print(f"   {name}: without {gone}: perplexity {found[name]:.2f}", flush=True)
    return line(f"{part}: perplexity, ours", found["ours"], round(min(found["ShortGPT"], found["SLEB"]), 2), unit="")


def teacher(part: str, text: Path, arguments: Any) -> bool:
    """The sample teacher with the vocabulary of two languages and half its blocks: retrieval of translations."""
    from residuum import shrink, teacher_folder
    from residuum.evaluation.pairs import read_pairs
    from residuum.models.surgery import layer_count, load_whole

    folder = teacher_folder()
    pairs = read_pairs(data("crosslingual", "tatoeba"), only=["tur-eng"])
    lines = [own for task in pairs for own in (*task.source, *task.target)]
    result = shrink(
        folder, lines, arguments.work / f"{part}-{arguments.steps}", layers=layer_count(load_whole(folder)[0]) // 2,
        trim=True, heal=arguments.steps, pairs=pairs,
    )  # fmt: skip
    print(result.frame[["stage", "parameters", "perplexity", "retrieval", "retrieval_low", "retrieval_high"]])
    first, last = result.frame.iloc[0], result.frame.iloc[-1]
    share = 100 * last["retrieval"] / first["retrieval"]
    return line(f"{part}: share of the teacher's retrieval", share, 95, unit="%", at_least=True)


def cost(part: str, text: Path, arguments: Any) -> bool:
    """Seconds of the plan of gte-small over seconds of one pass over the text, for depth and for width."""
    from residuum.models.surgery import load_whole
    from residuum.shrinking import pruning
    from residuum.shrinking.compensation import cut_inner
    from residuum.shrinking.planning import Sample
    from residuum.shrinking.shrink import sample_size

    model = sentence_model("gte-small", arguments.work)
    network, tokenizer = load_whole(model)
    lines = text.read_text("utf-8").splitlines()[: arguments.lines or 4000]
    whole = Sample.of(network, tokenizer, lines, model, size=len(lines))
    start = time.perf_counter()
    whole.vectors(network)
    one = time.perf_counter() - start
    sample = Sample.of(network, tokenizer, lines, model, size=sample_size(len(lines), 12, 6))
    settings = argparse.Namespace(iterative=True)
    measured = pruning.Measured(network, tokenizer, None, sample, sample.vectors(network), settings)  # type: ignore
    start = time.perf_counter()
    pruning.layer_choices(measured, "fidelity", 6)
    depth = time.perf_counter() - start
    start = time.perf_counter()
    cut_inner(network, sample, neurons=0.5)
    width = time.perf_counter() - start
    print(f"   one pass over {len(lines)} lines: {one:.1f} s; depth {depth:.1f} s, width {width:.1f} s")
    holds = line(f"{part}: depth over one pass", depth / one, 3)
    return line(f"{part}: width over one pass", width / one, 2) and holds


def fit(part: str, text: Path, arguments: Any) -> bool:
    """What least squares brings back of gte-small without every second block: fidelity on lines it did not read."""
    from residuum.models.surgery import keep_layers, load_whole
    from residuum.shrinking.compensation import FIT_LINES, fit_to_original
    from residuum.shrinking.planning import Sample, line_fidelity

    model = sentence_model("gte-small", arguments.work)
    network, tokenizer = load_whole(model)
    small, kept = load_whole(model)[0], [1, 3, 5, 7, 9, 11]
    keep_layers(small, kept)
    lines = text.read_text("utf-8").splitlines()
    judge = Sample.of(network, tokenizer, lines[::5], model)
    original = judge.vectors(network)
    before = line_fidelity(judge.vectors(small), original).mean()
    rest = [own for i, own in enumerate(lines) if i % 5]
    start = time.perf_counter()
    fitted = fit_to_original(small, network, kept, Sample.of(network, tokenizer, rest, model, size=FIT_LINES))
    print(f"   {time.perf_counter() - start:.0f} s; fidelity before {before:.3f}\n{fitted.to_string(index=False)}")
    return line(
        f"{part}: fidelity", line_fidelity(judge.vectors(small), original).mean(), before, unit="", at_least=True
    )


PART = {
    "gte": encoder, "narrow": encoder, "plain": plain, "mpnet": encoder, "smollm": decoder, "smollm-heal": decoder,
    "teacher": teacher, "cost": cost, "fit": fit,
}  # fmt: skip


if __name__ == "__main__":
    main()
