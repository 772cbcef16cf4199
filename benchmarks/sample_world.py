"""What the sample teacher knows of every sample task, beside its random twin and what words alone give away.

    python benchmarks/sample_world.py [MODEL] [--languages en,de,tr,sw] [--kinds treebank,ner,…] [--size 3000]
    python benchmarks/sample_world.py --quick     only how long sentences take, and how large the package is

MODEL is the sample teacher by default. Probes see one layer or all of them, at the word, or at the sentence position
for sentences, pairs and candidates. No content word of the test part is in the training part, except in `copa`, whose
causes need all of them: with the same words the tags of a small lexicon are known by heart (`--same-lexemes` shows it).
A task is held when the 95 % interval of the probe (its layer chosen on the development part) lies above the best probe
on the random twin and above the baseline: each word's majority label, or a bag of words. Names are few, and accuracy
would mostly count words that are none: `ner` is the F1 of all labels that name something, with the interval of a share
of the named words. Only translations are not probed: each is looked for among all test sentences by cosine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import THREADS, line, seconds

from residuum.corpus import Corpus
from residuum.corpus.tasks import TaskCorpora
from residuum.evaluation.pairs import corpus_pairs
from residuum.evaluation.retrieval import evaluate_retrieval
from residuum.maths.probing import PaperRecipe
from residuum.models.loading import Model, load_model
from residuum.probing.probe import Probing, probe
from residuum.samples import LANGUAGES, sample, sample_text, teacher_folder

TASKS = {  # sample task → probed tasks
    "treebank": ("upos", "deprel"),
    "ner": ("ner",),
    "nli": ("sentence",),
    "copa": ("choice",),
    "polarity": ("sentence",),
    "tense": ("sentence",),
}
TRANSLATION = "translation"
SENTENCES = 10_000  # that are drawn against the clock
ROOT = Path(__file__).parent.parent
RECIPES = {  # of sentences there are few: more passes, a stronger penalty
    "word": (PaperRecipe(epochs=10, standardize=True), (1e-5, 1e-5)),
    "sentence": (PaperRecipe(epochs=60, batch_size=64, standardize=True), (1e-5, 1e-2)),
}


@dataclass(frozen=True)
class Finding:
    """One task in one language."""

    name: str
    score: float
    low: float
    twin: float
    baseline: float

    @property
    def holds(self) -> bool:
        return self.low > max(self.twin, self.baseline)

    def __str__(self) -> str:
        held = "ok  " if self.holds else "MISS"
        return (
            f"{held} {self.name}: teacher {self.score:.3f} (from {self.low:.3f}), random twin {self.twin:.3f}, "
            f"words alone {self.baseline:.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default=None)
    parser.add_argument("--languages", default="en,de,tr,sw")
    parser.add_argument("--kinds", default=",".join([*TASKS, TRANSLATION]))
    parser.add_argument("--size", type=int, default=3000, help="training sentences; a third of them test")
    parser.add_argument("--same-lexemes", action="store_true")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    model = Path(arguments.model or teacher_folder())
    held = [is_drawn_quickly(), is_small()]
    if arguments.quick:
        sys.exit(not all(held))
    for language in arguments.languages.split(","):
        for kind in arguments.kinds.split(","):
            for finding in findings(model, kind, language, arguments.size, apart=not arguments.same_lexemes):
                print(finding, flush=True)
                held.append(finding.holds)
    print(f"{sum(held)} of {len(held)} held")
    sys.exit(not all(held))


def is_drawn_quickly() -> bool:
    """Whether parallel treebanks, the largest of what is drawn, take as little time as claimed."""
    taken = seconds(lambda: [sample_text("treebank", language=code, size=SENTENCES) for code in LANGUAGES], repeats=1)
    return line(f"{SENTENCES:,} parallel sentences with their trees in {len(LANGUAGES)} languages", taken, 20, "s")


def is_small() -> bool:
    """Whether the wheel, built from this checkout, is as small as claimed."""
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--quiet", "--wheel-dir", folder]
        done = subprocess.run(build, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"The wheel cannot be built: {done.stderr}")
        (wheel,) = Path(folder).glob("*.whl")
        return line("the wheel", wheel.stat().st_size / 1e6, 22, "MB")


def findings(model: Path, kind: str, language: str, size: int, *, apart: bool) -> Iterator[Finding]:
    """What one sample task gives in one language."""
    if kind == TRANSLATION:
        if language != "en":
            yield retrieved(model, language, size // 3)
        return
    corpora = sampled(kind, language, size, apart and kind != "copa")
    for task in TASKS[kind]:
        find = named if task == "ner" else measured
        yield find(model, corpora, f"{language} {kind} {task}", task)


def sampled(kind: str, language: str, size: int, apart: bool) -> TaskCorpora:
    sizes = {"train": size, "dev": size // 3, "test": size // 3}
    return TaskCorpora(
        *(sample(kind, language=language, size=n, split=s, disjoint_lexemes=apart) for s, n in sizes.items())
    )


def measured(model: Path, corpora: TaskCorpora, name: str, task: str) -> Finding:
    result = probed(model, corpora, task, random_twin=True)
    best = result.frame.loc[result.frame["dev"].idxmax()]
    baselines = result.baselines.set_index("baseline")["score"]
    return Finding(name, best["score"], best["low"], result.frame["random_twin"].max(), baselines.iloc[1:].max())


def named(model: Path, corpora: TaskCorpora, name: str, task: str) -> Finding:
    """F1 of the labels of names in the layer that development data choose, of the twin in its best."""
    result = probed(model, corpora, task, random_twin=False)
    twin = probed(load_model(model, random_init=True), corpora, task)
    chosen = result.frame.loc[result.frame["dev"].idxmax(), "features"]
    score = name_scores(result)[chosen]
    n_words = result.classes.query("features == @chosen and `class` != 'O'")["support"].sum()
    low = score - 1.96 * np.sqrt(score * (1 - score) / n_words)
    return Finding(name, score, low, max(name_scores(twin).values()), by_heart(corpora))


def probed(source: Path | Model, corpora: TaskCorpora, task: str, **options: Any) -> Probing:
    recipe, penalty = RECIPES["sentence" if task in ("sentence", "choice") else "word"]
    options |= {"recipe": recipe, "penalty": penalty, "seeds": 1, "subsets": False}
    with tempfile.TemporaryDirectory() as folder:
        return probe(source, corpora, task, activations=Path(folder, "activations"), **options)


def name_scores(result: Probing) -> dict[str, float]:
    """2 · right / (given + true), over all labels but O, for every set of neurons."""
    table = result.classes[result.classes["class"] != "O"]
    right = table["recall"] * table["support"]
    given = (right / table["precision"]).where(right > 0, 0.0)
    sums = table.assign(right=right, given=given).groupby("features")[["right", "given", "support"]].sum()
    return (2 * sums["right"] / (sums["given"] + sums["support"])).to_dict()


def by_heart(corpora: TaskCorpora) -> float:
    """The same of giving every word its most frequent label of training, and others O."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for word, label in labelled_words(corpora.train):
        counts[word][label] += 1
    pairs = [(counts[w].most_common(1)[0][0] if w in counts else "O", y) for w, y in labelled_words(corpora.test)]
    right = sum(guess == truth != "O" for guess, truth in pairs)
    return 2 * right / sum((guess != "O") + (truth != "O") for guess, truth in pairs)


def labelled_words(corpus: Corpus) -> Iterator[tuple[str, str]]:
    for words, labels in zip(corpus.sentences, corpus.word_labels("ner"), strict=True):
        yield from zip(words, labels, strict=True)


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
