"""Extraction against the bare forward pass, one sentence at a time, NeuroX, and a corpus ten times as large.

    RESIDUUM_DATA=… [RESIDUUM_PEERS=…] [RESIDUUM_MPNET=…] python benchmarks/extraction.py

UD English PUD (1,000 sentences), all-MiniLM-L6-v2, 2 threads. RESIDUUM_PEERS is a folder with a checkout of
github.com/fdalvi/NeuroX, whose whole command (all layers to HDF5) is run beside `residuum extract`; without it the line
is left out. RESIDUUM_MPNET names a folder of all-mpnet-base-v2.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import torch
from measure import THREADS, data, has_peer, in_fresh_process, line, minilm, report, seconds, watched

from residuum.activations.extraction import Extraction, batches, extract
from residuum.activations.settings import ReadingSettings
from residuum.corpus import Corpus, read_corpus
from residuum.models.alignment import Aligner
from residuum.models.loading import Model, load_model


def main() -> None:
    times = in_fresh_process(__file__, "times")
    print("   " + ", ".join(f"{key} {times[key]:.2f} s" for key in ("bare", "single", "extract")), flush=True)
    ratio, single = times["extract"] / times["bare"], times["extract"] / times["single"]
    small, large = (in_fresh_process(__file__, "memory", minilm(), copies)["peak_mb"] for copies in (1, 10))
    print(f"   peak {small:.0f} MB for 21,000 words, {large:.0f} MB for 210,000 words")
    holds = [
        line("extraction / bare length-sorted forward pass", ratio, 1.15),
        line("extraction / one sentence at a time", single, 0.5),
        line("peak memory of 10 × the corpus / peak of 1 ×", large / small, 1.10),
    ]
    if has_peer("NeuroX"):
        ours, theirs = whole_commands()
        print(f"   whole command: residuum extract {ours:.1f} s, NeuroX {theirs:.1f} s")
        holds.append(line("time of the whole command: residuum extract / NeuroX", ours / theirs, 0.6))
    if "RESIDUUM_MPNET" in os.environ:
        peak = in_fresh_process(__file__, "memory", os.environ["RESIDUUM_MPNET"], 1)["peak_mb"]
        holds.append(line("peak memory, MPNet 12 × 768 on 1,000 sentences", peak / 1024, 2.5, "GB"))
    else:
        print("     MPNet was left out: RESIDUUM_MPNET is not set")
    sys.exit(not all(holds))


def whole_commands() -> tuple[float, float]:
    """The best seconds of two runs of `residuum extract` and of NeuroX's script, in turn, with all that they import."""
    ours, theirs, source = [], [], data("treebanks", "UD_English-PUD")
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "sentences.txt"
        text.write_text("".join(" ".join(words) + "\n" for words in treebank().sentences), encoding="utf-8")
        for k in range(2):
            ours.append(
                watched("residuum", "extract", minilm(), source, "--out", Path(folder) / f"acts-{k}")["seconds"]
            )
            arguments = [minilm(), text, Path(folder) / f"acts-{k}.hdf5", "--output_type", "hdf5"]
            peer, path = "neurox.data.extraction.transformers_extractor", f"{os.environ['RESIDUUM_PEERS']}/NeuroX"
            theirs.append(watched(peer, *arguments, path=path)["seconds"])
    return min(ours), min(theirs)


def measure_times() -> None:
    """The same batches three ways: nothing kept, everything kept, and no batches at all."""
    torch.set_num_threads(THREADS)
    corpus, model = treebank(), load_model(minilm())
    extraction = Extraction(model, corpus, list(range(model.n_layers + 1)), ReadingSettings())
    prepared = prepare(extraction)
    sentences = [[window] for batch in prepared for window in batch]
    with tempfile.TemporaryDirectory() as folder:
        works = {
            "bare": lambda: [extraction._forward(batch) for batch in prepared],
            "extract": lambda: extract(model, corpus, Path(folder) / "acts", fresh=True, progress=False),
        }
        rounds = [{name: seconds(work, repeats=1) for name, work in works.items()} for _ in range(5)]
    best = {name: min(times[name] for times in rounds) for name in works}
    report(**best, single=seconds(lambda: [extraction._forward(batch) for batch in sentences], repeats=1))


def prepare(extraction: Extraction) -> list[list]:
    """The batches that `extract` runs, already tokenised."""
    corpus, settings = extraction.corpus, extraction.settings
    aligner = Aligner(extraction.model.tokenizer, extraction.model.window)
    shards = extraction.manifest().shards
    prepared = []
    for group in extraction.groups(shards):
        sentences = range(shards[group[0]].first, shards[group[-1]].stop)
        aligned = aligner.align([corpus.text(i) for i in sentences], [corpus.spans(i) for i in sentences])
        windows = [window for alignment in aligned for window in alignment.windows]
        sizes = [len(window.ids) for window in windows]
        prepared += [[windows[i] for i in batch] for batch in batches(sizes, settings.batch_tokens)]
    return prepared


def measure_memory(folder: str, copies: int) -> None:
    torch.set_num_threads(THREADS)
    model: Model = load_model(folder)
    corpus = treebank()
    many = Corpus(name="many", sentences=corpus.sentences * copies)
    with tempfile.TemporaryDirectory() as out:
        store = extract(model, many, Path(out) / "acts", progress=False)
        assert store.n_rows == corpus.n_words * copies
    report()


def treebank() -> Corpus:
    return read_corpus(data("treebanks", "UD_English-PUD"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["times"]:
        measure_times()
    elif sys.argv[1:2] == ["memory"]:
        measure_memory(sys.argv[2], int(sys.argv[3]))
    else:
        main()
