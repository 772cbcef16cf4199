"""What the sample teacher knows of every sample task, beside its random twin and what words alone give away.

    python benchmarks/sample_world.py [MODEL] [--languages en,de,tr,sw] [--size 3000]

MODEL is the sample teacher by default. Probes see one layer or all of them, at the word, or at the sentence position
for sentences, pairs and candidates. No content word of the test part is in the training part, except in `copa`, whose
causes need all of them: with the same words the tags of a small lexicon are known by heart (`--same-lexemes` shows it).
A task is held when the 95 % interval of the probe (its layer chosen on the development part) lies above the best probe
on the random twin and above the baseline: each word's majority label, or a bag of words. Only translations are not
probed: each is looked for among all test sentences by cosine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import THREADS

from residuum.corpus import Corpus
from residuum.evaluation import corpus_pairs, evaluate_retrieval
from residuum.maths.probing import Recipe
from residuum.models import load_model
from residuum.probes import probe
from residuum.samples import sample, teacher_folder
from residuum.tasks import TaskCorpora

TASKS = {  # sample task → probed tasks
    "treebank": ("upos", "deprel"),
    "ner": ("ner",),
    "nli": ("sentence",),
    "copa": ("choice",),
    "polarity": ("sentence",),
    "tense": ("sentence",),
}
RECIPES = {  # of sentences there are few: more passes, a stronger penalty
    "word": (Recipe(epochs=10, standardize=True), (1e-5, 1e-5)),
    "sentence": (Recipe(epochs=60, batch_size=64, standardize=True), (1e-5, 1e-2)),
}


@dataclass(frozen=True)
class Finding:
    """One task in one language."""

    name: str
    score: float
    low: float
    twin: float
    baseline: float

    def __str__(self) -> str:
        holds = "ok  " if self.low > max(self.twin, self.baseline) else "MISS"
        return (
            f"{holds} {self.name}: teacher {self.score:.3f} (from {self.low:.3f}), random twin {self.twin:.3f}, "
            f"words alone {self.baseline:.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default=None)
    parser.add_argument("--languages", default="en,de,tr,sw")
    parser.add_argument("--size", type=int, default=3000, help="training sentences; a third of them test")
    parser.add_argument("--same-lexemes", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    model = Path(arguments.model or teacher_folder())
    found = []
    for language in arguments.languages.split(","):
        for kind, tasks in TASKS.items():
            apart = kind != "copa" and not arguments.same_lexemes
            corpora = sampled(kind, language, arguments.size, apart)
            found += [measured(model, corpora, f"{language} {kind} {task}", task) for task in tasks]
            print(found[-1] if len(tasks) == 1 else "\n".join(map(str, found[-len(tasks) :])), flush=True)
        if language != "en":
            found.append(retrieved(model, language, arguments.size // 3))
            print(found[-1], flush=True)
    sys.exit(any(str(one).startswith("MISS") for one in found))


def sampled(kind: str, language: str, size: int, apart: bool) -> TaskCorpora:
    sizes = {"train": size, "dev": size // 3, "test": size // 3}
    return TaskCorpora(
        *(sample(kind, language=language, size=n, split=s, disjoint_lexemes=apart) for s, n in sizes.items())
    )


def measured(model: Path, corpora: TaskCorpora, name: str, task: str) -> Finding:
    recipe, penalty = RECIPES["sentence" if task in ("sentence", "choice") else "word"]
    options: dict[str, Any] = {"recipe": recipe, "penalty": penalty, "seeds": 1, "subsets": False}
    with tempfile.TemporaryDirectory() as folder:
        result = probe(model, corpora, task, activations=Path(folder, "activations"), random_twin=True, **options)
    best = result.frame.loc[result.frame["dev"].idxmax()]
    baselines = result.baselines.set_index("baseline")["score"]
    return Finding(name, best["score"], best["low"], result.frame["random_twin"].max(), baselines.iloc[1:].max())


def retrieved(model: Path, language: str, size: int) -> Finding:
    """Finding the English sentence of the same meaning, in the best layer; words alone: those that both share."""
    corpus = sample("translation", language=f"{language}-en", size=size, split="test")
    pairs = corpus_pairs(corpus, (language, "en"))
    best = []
    for random_init in (False, True):
        reader = load_model(model, random_init=random_init)
        found = evaluate_retrieval(reader, pairs, score="cosine", layers="each", progress=False).frame
        there = found[found["direction"] == "forward"]
        best.append(there.loc[there["accuracy"].idxmax()])
    teacher, twin = best
    return Finding(f"{language} translation", teacher["accuracy"], teacher["low"], twin["accuracy"], shared(corpus))


def shared(corpus: Corpus) -> float:
    """Accuracy of choosing the sentence with the highest Jaccard index of words; ties count as their share."""
    bags = [[set(words) for words in side] for side in (corpus.sentences, corpus.pairs or [])]
    scores = np.array([[len(a & b) / len(a | b) for b in bags[1]] for a in bags[0]])
    best = scores == scores.max(axis=1, keepdims=True)
    return float((np.diag(best) / best.sum(axis=1)).mean())


if __name__ == "__main__":
    main()
