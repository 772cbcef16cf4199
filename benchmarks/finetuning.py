"""Freezing must save the time that it promises: steps of fine-tuning with the bottom half frozen, and computed once.

    RESIDUUM_DATA=… RESIDUUM_MODELS=… python benchmarks/finetuning.py

gte-small (12 layers × 384) on SST-2, batches of 8 as Wu et al. (2020) take them, 2 threads. The trainings take
turns, some steps each, so that a disturbance affects all; a ratio is the median over the rounds. The peer is full
fine-tuning with the Trainer of transformers, with its own shuffled batches and on the very batches of like length that
we train on. Our own full fine-tuning shares all but the freezing and is faster than the peer; against it, cached
training has six blocks of twelve to do, so that arithmetic gives little more than 2 ×, and 2 is what is claimed.
`accuracy` compares a cached training with a plain loop whose lower half autograd leaves alone on the whole development
part of SST-2.

`diff` must share its work: all-MiniLM-L6-v2 (6 layers × 384) and two prunings of it over four tasks of EWT, against one
extraction and one probing pass of each model (every layer and all of them, task and control task, three seeds).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from measure import THREADS, data, in_fresh_process, line, minilm, report, seconds
from transformers import Trainer, TrainerCallback, TrainingArguments

from residuum import diff, extract, probe, prune, read_corpus
from residuum.corpus.tasks import TaskCorpora, named_task, read_task
from residuum.models.surgery import layer_count
from residuum.training.encoding import Collator
from residuum.training.finetuning import prepare
from residuum.training.learning import learn, score_split, task_loss, training_batches
from residuum.training.networks import apply_frozen, load_with_head, parse_frozen
from residuum.training.settings import FinetuneSettings, LearningSettings

BATCH, STEPS, ROUNDS = 8, 16, 7
MODES = {  # what is frozen, whether its outputs are cached, whether batches are of like length
    "shuffled": (None, False, False),
    "full": (None, False, True),
    "frozen": ("bottom:6", False, True),
    "cached": ("bottom:6", True, True),
}
PEERS = {"Trainer": False, "Trainer on like lengths": True}
EXAMPLES, EPOCHS = 1000, 1.0  # of the comparison of accuracies
SENTENCES, TASKS, DROPS = 1000, ("upos", "xpos", "deprel", "Number"), ("top:2", "bottom:2")  # of the difference


def main() -> None:
    measured = in_fresh_process(__file__, "times")
    times = {mode: np.asarray(measured[mode]) for mode in (*PEERS, *MODES)}
    print("   ms a step: " + ", ".join(f"{mode} {np.median(t) * 1e3:.0f}" for mode, t in times.items()), flush=True)
    print(f"   filling the cache takes {measured['fill'] * 1e3:.0f} ms for the examples of a step, once")
    scores = {side: in_fresh_process(__file__, "accuracy", side)["accuracy"] for side in ("cached", "reference")}
    print("   accuracy " + ", ".join(f"{side} {score:.4f}" for side, score in scores.items()))
    whole = np.median(3 * times["full"] / (measured["fill"] + 3 * times["cached"]))
    with tempfile.TemporaryDirectory() as folder:
        shared = in_fresh_process(__file__, "difference", "together", folder)
        apart = in_fresh_process(__file__, "difference", "apart", folder)
    print(f"   diff {shared['seconds']:.0f} s; extractions {apart['extract']:.0f} s, probing {apart['probe']:.0f} s")
    ratio = shared["seconds"] / (apart["extract"] + apart["probe"])
    holds = [
        line("diff of three models over four tasks / an extraction and a probing pass of each", ratio, 1.2),
        faster(times, "full", "shuffled", 1.3),
        faster(times, "frozen", "Trainer", 1.7),
        faster(times, "cached", "Trainer", 2.5),
        faster(times, "frozen", "Trainer on like lengths", 1.7),
        faster(times, "cached", "Trainer on like lengths", 2.5),
        faster(times, "frozen", "full", 1.7),
        faster(times, "cached", "full", 2.0),
        line("the same over three epochs, filling the cache included", whole, 2.0, at_least=True),
        line("accuracy below the reference", 100 * (scores["reference"] - scores["cached"]), 1.0, unit="points"),
    ]
    sys.exit(not all(holds))


def faster(times: dict[str, np.ndarray], mode: str, than: str, least: float) -> bool:
    return line(f"throughput, {mode} / {than}", float(np.median(times[than] / times[mode])), least, at_least=True)


def measure_times() -> None:
    torch.set_num_threads(THREADS)
    corpora = sst2(limit=600)
    with tempfile.TemporaryDirectory() as folder:
        prepared, preparing = {}, {}
        for mode, (freeze, cache, _) in MODES.items():
            started = time.perf_counter()
            prepared[mode] = prepare(settings_of(freeze, cache), named_task("sst2"), corpora, Path(folder), 0)
            preparing[mode] = time.perf_counter() - started
        rounds: list[dict[str, float]] = [{} for _ in range(ROUNDS)]
        for times in rounds:
            for mode, (_, _, by_length) in MODES.items():
                times[mode] = seconds_a_step(*prepared[mode], Path(folder) / mode, by_length)
            for peer, by_length in PEERS.items():
                times[peer] = seconds_of_the_trainer(prepared["full"][2], folder, by_length)
    by_mode = {mode: [times[mode] for times in rounds] for mode in (*MODES, *PEERS)}
    n_filled = len(prepared["cached"][1]["train"]) + len(prepared["cached"][1]["dev"])
    fill = max(preparing["cached"] - preparing["frozen"], 0.0)
    report(**by_mode, fill=fill / n_filled * BATCH)


def seconds_a_step(model, parts, task_data, out: Path, by_length: bool) -> float:
    """Some steps through the training loop: reading the batch, both passes, clipping and the optimiser."""
    settings = LearningSettings(epochs=STEPS * BATCH / len(parts["train"]), batch_size=BATCH, by_length=by_length)
    modules = {"model": model.network}
    training = learn(modules, [model.logits], task_data, settings, out, fresh=True, progress=False, device="cpu")
    return training.progress.seconds / training.steps


def seconds_of_the_trainer(task_data, folder: str, by_length: bool) -> float:
    """The same steps by the Trainer of transformers: our batches, its passes, clipping and optimiser."""
    network, _ = load_with_head(gte_small(), task_data.problem, seed=0)
    batches = training_batches(task_data, LearningSettings(batch_size=BATCH, by_length=by_length), seed=0)

    def collate(places):
        batch = batches(places[0]["step"])
        return {**batch["inputs"], "labels": batch["labels"]}

    arguments = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=1, num_train_epochs=1, train_sampling_strategy="sequential",
        use_cpu=True, report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True,
        remove_unused_columns=False, dataloader_pin_memory=False,
    )  # fmt: skip
    clock = Clock()
    steps = [{"step": step} for step in range(STEPS)]
    Trainer(network, arguments, train_dataset=steps, data_collator=collate, callbacks=[clock]).train()
    return clock.seconds / STEPS


class Clock(TrainerCallback):
    """The time between the beginning and the end of a training."""

    def on_train_begin(self, *_, **__) -> None:
        self.started = time.perf_counter()

    def on_train_end(self, *_, **__) -> None:
        self.seconds = time.perf_counter() - self.started


def measure_accuracy(side: str) -> None:
    torch.set_num_threads(THREADS)
    corpora = sst2(limit=EXAMPLES)
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_of("bottom:6", side == "cached")
        model, parts, task_data = prepare(settings, named_task("sst2"), corpora, Path(folder), 0)
        if side == "cached":
            settings = LearningSettings(epochs=EPOCHS, batch_size=BATCH)
            learn({"model": model.network}, [model.logits], task_data, settings, folder, progress=False, device="cpu")
        else:
            model = replace(model, network=plain_training(task_data))
        model.network.eval()
        plain = Collator(task_data.problem.kind, task_data.collate_train.pad, task_data.collate_train.with_types)
        found = score_split(model.logits, task_data.problem, parts["test"], plain, torch.device("cpu"))
    report(accuracy=found["accuracy"])


def plain_training(task_data):
    """The same steps written out; the lower half has no gradients and all else is transformers' own."""
    network, _ = load_with_head(gte_small(), task_data.problem, seed=0)
    apply_frozen(network, parse_frozen("bottom:6", layer_count(network)))
    batches = training_batches(task_data, LearningSettings(batch_size=BATCH), seed=0)
    learning = [p for p in network.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(learning, lr=5e-5, weight_decay=0.0)
    steps = int(EPOCHS * batches.per_epoch)
    torch.manual_seed(0)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 5e-5 * (1 - step / steps)
        batch = batches(step)
        task_loss("classification", network(**batch["inputs"]).logits, batch["labels"]).backward()
        torch.nn.utils.clip_grad_norm_(learning, 1.0)
        optimiser.step()
        optimiser.zero_grad()
    return network


def measure_difference(side: str, folder: Path) -> None:
    """The same models, texts, tasks and seeds, in one command or one by one; the models are pruned beforehand."""
    torch.set_num_threads(THREADS)
    models = [minilm(), *(prune(minilm(), folder / drop.replace(":", "-"), drop=drop).folder for drop in DROPS)]
    corpus = read_corpus(data("treebanks", "UD_English-EWT"), split="train", limit=SENTENCES)
    if side == "together":
        report(seconds=seconds(lambda: diff(models, corpus, TASKS, out=folder / "run", progress=False), 1))
        return
    spent = {"extract": 0.0, "probe": 0.0}
    for number, model in enumerate(models):
        store = folder / f"store-{number}"
        spent["extract"] += seconds(partial(extract, model, corpus, store, attention=True, progress=False), 1)
        for task in TASKS:
            spent["probe"] += seconds(partial(probe, store, corpus, task, subsets=False), 1)
    report(**spent)


def settings_of(freeze: str | None, cache: bool) -> FinetuneSettings:
    return FinetuneSettings(
        gte_small(), None, "sst2", "unused", freeze=freeze, cache=cache, device="cpu", progress=False
    )


def gte_small() -> str:
    if "RESIDUUM_MODELS" not in os.environ:
        sys.exit("Set RESIDUUM_MODELS to the folder of gte-small to run this benchmark.")
    return str(Path(os.environ["RESIDUUM_MODELS"]) / "gte-small")


def sst2(limit: int) -> TaskCorpora:
    return read_task("sst2", data("glue", "SST-2"), limit=limit)


if __name__ == "__main__":
    if sys.argv[1:2] == ["times"]:
        measure_times()
    elif sys.argv[1:2] == ["accuracy"]:
        measure_accuracy(sys.argv[2])
    elif sys.argv[1:2] == ["difference"]:
        measure_difference(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
