"""A decoder in bfloat16 beside float32: memory, similarities of layers, and part-of-speech tags.

    RESIDUUM_SMOLLM2=SmolLM2.gguf RESIDUUM_DATA=… python benchmarks/precision.py [SENTENCES]

Claims: half the memory of the weights, CKA of all pairs of layers within 0.01, and probes of UPOS on every third layer
whose scores differ by less than the interval of float32.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import data, in_fresh_process, line, report

import residuum
from residuum.maths.moments import MomentsAccumulator
from residuum.maths.similarity import similarity_matrix

EWT = ("treebanks", "UD_English-EWT")


def extract(precision: str, folder: str, sentences: str) -> None:
    """Write the store of one precision; its process tells memory and time."""
    start = time.perf_counter()
    model = residuum.load_model(os.environ["RESIDUUM_SMOLLM2"], precision=precision)
    for part in ("train", "dev", "test"):
        options = {"split": part, "limit": int(sentences), "layers": "0,3,6,9,12,15,18,21,24,27,30"}
        residuum.extract(model, data(*EWT), f"{folder}/{precision}/{part}", progress=False, **options)
    report(weights_mb=model.n_bytes / 1e6, seconds=time.perf_counter() - start)


def cka(folder: str) -> np.ndarray:
    """CKA of all pairs of layers of a store."""
    store = residuum.open_store(folder)
    moments = MomentsAccumulator(store.widths)
    for first in range(0, len(store.sentences), 64):
        moments.update(store.read(first, min(first + 64, len(store.sentences))).layers)
    return similarity_matrix(moments.result(), "cka")


def main(sentences: str = "400") -> None:
    """Both precisions, one after the other."""
    if "RESIDUUM_SMOLLM2" not in os.environ:
        sys.exit("Set RESIDUUM_SMOLLM2 to a .gguf file of SmolLM2.")
    with tempfile.TemporaryDirectory() as folder:
        whole, half = (in_fresh_process(__file__, p, folder, sentences) for p in ("float32", "bfloat16"))
        print(f"float32 {whole}\nbfloat16 {half}")
        line("weights in bfloat16", half["weights_mb"] / whole["weights_mb"], 0.51)
        a, b = (cka(f"{folder}/{precision}/train") for precision in ("float32", "bfloat16"))
        line("largest difference of CKA", float(np.abs(a - b).max()), 0.01, unit="")
        frames = []
        for precision in ("float32", "bfloat16"):
            stores = {part: f"{folder}/{precision}/{part}" for part in ("train", "dev", "test")}
            out = Path(folder) / f"probe-{precision}"
            options = {"task": "upos", "limit": int(sentences), "random_twin": False, "progress": False}
            result = residuum.probe(stores, data(*EWT), out=out, **options)
            frames.append(result.frame)
        print(frames[0].to_string(), frames[1].to_string(), sep="\n")


if __name__ == "__main__":
    extract(*sys.argv[1:]) if len(sys.argv) == 4 else main(*sys.argv[1:])
