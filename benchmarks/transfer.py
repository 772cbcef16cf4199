"""What `transfer` writes against the full model with a probe on all neurons, from text to tags.

    RESIDUUM_DATA=… RESIDUUM_MODELS=… python benchmarks/transfer.py [MODEL … [--limit SENTENCES]]

EWT UPOS and CoNLL-2000 chunking, whole, and SST-2, 2 threads, batches of 32. MODEL is a folder of RESIDUUM_MODELS
(gte-small by default) or a path. For SST-2, whose sentences are read at [CLS], the model is first fine-tuned by
`finetune` on 4,000 of its training sentences, once, in batches of 16, which takes gte-small some 300 seconds of one
core; the same sentences train the probes, and the 872 of the development part are the test. The cost of a fit is
compared with that of extraction plus one probe on the concatenation up to each layer, all taken from the same run. Of
SST-2 speed-up and fit are shown without a claim: what fine-tuning wrote stands in the upper layers, and timing
a product takes as long whether the sentences are few or many.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from measure import THREADS, data, in_fresh_process, line, report

if TYPE_CHECKING:
    from residuum.corpus.tasks import TaskCorpora

TASKS = {  # where the data is, the speed-up that is claimed, and what layers and neurons may lose on dev: within 3 %
    "upos": (("treebanks", "UD_English-EWT"), 3.0, (0.015, 0.015)),
    "chunk": (("token", "conll2000"), 2.0, (0.015, 0.015)),
    "sst2": (("glue", "SST-2"), None, (0.005, 0.005)),  # 400 sentences of dev tell no more than a point or two
}
TUNED = {"sst2": 4000}  # tasks whose model is fine-tuned first, and the sentences that it learns from


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=["gte-small"])
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--limit", type=int, default=0, help="sentences of each part; 0 takes all")
    arguments = parser.parse_args()
    holds = []
    for model in arguments.models:
        for task in arguments.tasks.split(","):
            found = in_fresh_process(__file__, "measure", folder_of(model), task, arguments.limit)
            holds += claims(Path(model).name, task, found)
    sys.exit(not all(holds))


def claims(model: str, task: str, found: dict[str, float]) -> list[bool]:
    name = f"{model} {task}"
    print(
        f"   {name}: oracle {found['oracle']:.4f}, layers up to {found['layer']:.0f} {found['layers_score']:.4f}, "
        f"{found['neurons']:.0f} neurons "
        f"{found['score']:.4f} ({found['low']:.4f}–{found['high']:.4f}), {found['ms']:.2f} ms a sentence, "
        f"full {found['full_ms']:.2f} ms; speed-up interval {found['speed_low']:.2f}–{found['speed_high']:.2f}"
    )
    print(
        f"   {name}: narrowed {found['narrow']:.4f} in {found['narrow_ms']:.2f} ms; peak {found['peak_mb']:.0f} MB; "
        f"extraction {found['extraction']:.0f} s, layer probes {found['probes']:.0f} s, all {found['all']:.0f} s, "
        f"of which {found['timing']:.0f} s to time layers and product"
    )
    if task in TUNED:
        print(f"   {name}: fine-tuned in {found['tuning']:.0f} s, its own head reaches {found['tuned']:.4f}")
    holds = [
        line(f"{name}: share of oracle accuracy", 100 * found["share"], 97, unit="%", at_least=True),
        line(f"{name}: share of neurons", 100 * found["share_neurons"], 10, unit="%"),
        line(f"{name}: classifier, all neurons / chosen", found["classifier"], 4, at_least=True),
    ]
    fit, claimed = found["all"] / found["baseline"], TASKS[task][1]
    if claimed is None:
        print(f"   {name}: text to labels, full / small: {found['speed']:.2f} ×; fit {fit:.2f} ×")
        return holds
    return [
        *holds,
        line(f"{name}: text to tags, full / small", found["speed"], claimed, at_least=True),
        line(f"{name}: fit / (extraction + a probe per layer)", fit, 1.5),
    ]


def folder_of(model: str) -> Path:
    if Path(model).is_dir():
        return Path(model)
    if "RESIDUUM_MODELS" not in os.environ:
        sys.exit("Set RESIDUUM_MODELS to a folder of models, or give a model's path.")
    return Path(os.environ["RESIDUUM_MODELS"], model)


def measure(model: str, task: str, limit: str) -> None:
    import torch

    from residuum import transfer
    from residuum.corpus.tasks import read_task

    torch.set_num_threads(THREADS)
    corpora = read_task(task, data(*TASKS[task][0]), limit=int(limit) or TUNED.get(task))
    with tempfile.TemporaryDirectory() as folder:
        tuned = tune(model, task, corpora, Path(folder, "tuned")) if task in TUNED else {}
        source = Path(folder, "tuned") if task in TUNED else model
        result = transfer(
            source,
            corpora,
            task,
            Path(folder, "small"),
            layer_loss=TASKS[task][2][0],
            neuron_loss=TASKS[task][2][1],
            narrow=True,
            progress=False,
        )
    summary, steps = result.run.summary, result.frame.set_index("step")
    seconds = result.run.tables["seconds"].set_index("step")["seconds"]
    narrow = steps.loc["narrowed"] if "narrowed" in steps.index else {"test": float("nan"), "ms": float("nan")}
    report(
        oracle=summary["oracle"],
        score=summary["score"],
        low=summary["interval"][0],
        high=summary["interval"][1],
        share=summary["share of oracle"],
        share_neurons=summary["share of neurons"],
        layer=summary["layers"],
        layers_score=float(steps.loc["LayerSelector", "test"]),
        neurons=summary["neurons"],
        speed=summary["speed-up"][0],
        speed_low=summary["speed-up"][1],
        speed_high=summary["speed-up"][2],
        classifier=summary["classifier speed-up"][0],
        ms=summary["ms"],
        full_ms=summary["ms of the whole model"],
        narrow=float(narrow["test"]),
        narrow_ms=float(narrow["ms"]),
        extraction=seconds["extraction"],
        probes=seconds["layers"],
        timing=seconds["costs"] + seconds["measuring"],
        baseline=seconds["extraction"] + seconds["layers"],
        all=seconds.drop("narrowing").sum(),
        **tuned,
    )


def tune(model: str, task: str, corpora: TaskCorpora, folder: Path) -> dict[str, float]:
    """Fine-tune a model into a folder; how long it took, and the test score of its own head."""
    from residuum import LearningSettings, finetune

    start = time.perf_counter()
    settings = LearningSettings(epochs=1, batch_size=16)
    summary = finetune(model, task, folder, data=corpora, settings=settings, progress=False).run.summary
    return {"tuning": time.perf_counter() - start, "tuned": summary["test accuracy"]}


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(*sys.argv[2:])
    else:
        main()
