"""What `transfer` writes against a probe on all neurons of all layers, with default settings, from text to labels.

    RESIDUUM_DATA=… RESIDUUM_MODELS=… python benchmarks/transfer.py [MODEL …] [--data NAME,…] [--limit SENTENCES]

Six data sets: part of speech (EWT), chunks (CoNLL-2000), semantic tags (PMB), SST-2, a small Swahili treebank and
STS-B. MODEL is a folder of RESIDUUM_MODELS (gte-small by default) or a path. The claim is that the model keeps 99 % of
the oracle's score on test, within one standard error (a quarter of the paired 95 % interval of that share).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from measure import THREADS, data, in_fresh_process, line, report

SETS = {  # task, where the data is, and sentences of each part that are read by default (0: all)
    "pos": ("upos", ("treebanks", "UD_English-EWT"), 0),
    "chunk": ("chunk", ("token", "conll2000"), 0),
    "sem": ("sem", ("token", "pmb-4.0.0", "en"), 3000),
    "sst2": ("sst2", ("glue", "SST-2"), 8000),
    "swahili": ("upos", ("treebanks", "UD_Swahili-OPUSGV", "GlobalVoices.ken.sw.8_30.conllu"), 0),
    "stsb": ("stsb", ("glue", "STS-B"), 0),
}
KEEP = 0.99


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=["gte-small"])
    parser.add_argument("--data", default=",".join(SETS))
    parser.add_argument("--limit", type=int, default=0, help="sentences of each part; 0 takes the default")
    arguments = parser.parse_args()
    holds = []
    for model in arguments.models:
        for name in arguments.data.split(","):
            measured = in_fresh_process(__file__, "measure", folder_of(model), name, arguments.limit)
            holds.append(claim(f"{Path(model).name} {name}", measured))
    sys.exit(not all(holds))


def claim(name: str, measured: dict[str, float]) -> bool:
    print(
        f"   {name}: oracle {measured['oracle']:.4f}, {measured['neurons']:.0f} neurons "
        f"({measured['share_neurons']:.1%}) of layers up to {measured['layer']:.0f}: {measured['score']:.4f} "
        f"({measured['low']:.4f}–{measured['high']:.4f}), best baseline {measured['baseline']:.4f}; "
        f"{measured['speed']:.2f} times faster; {measured['seconds']:.0f} s, peak {measured['peak_mb']:.0f} MB"
    )
    error = (measured["share_high"] - measured["share_low"]) / 4
    return line(f"{name}: share of the oracle", 100 * (measured["share"] + error), 100 * KEEP, unit="%", at_least=True)


def folder_of(model: str) -> Path:
    if Path(model).is_dir():
        return Path(model)
    if "RESIDUUM_MODELS" not in os.environ:
        sys.exit("Set RESIDUUM_MODELS to a folder of models, or pass a model's path.")
    return Path(os.environ["RESIDUUM_MODELS"], model)


def measure(model: str, name: str, limit: str) -> None:
    import torch

    from residuum import transfer
    from residuum.corpus.tasks import named_task, read_task

    torch.set_num_threads(THREADS)
    task, place, default = SETS[name]
    corpora = read_task(task, data(*place), limit=int(limit) or default or None)
    position = "mean" if named_task(task).unit == "sentence" else "auto"
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = transfer(model, corpora, task, folder, position=position, progress=False)
    summary = result.run.summary
    report(
        seconds=time.perf_counter() - start,
        oracle=summary["oracle"],
        score=summary["score"],
        low=summary["interval"][0],
        high=summary["interval"][1],
        share=summary["share of oracle"],
        share_low=summary["interval of the share"][0],
        share_high=summary["interval of the share"][1],
        share_neurons=summary["share of neurons"],
        layer=summary["layers"],
        neurons=summary["neurons"],
        speed=summary["speed-up"][0],
        baseline=max(summary["baselines"].values(), default=float("nan")),
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(*sys.argv[2:])
    else:
        main()
