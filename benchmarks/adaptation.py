"""Which learning rates let every family of strategies learn a task, and reach another language.

    python benchmarks/adaptation.py        # about 5 minutes

Named entities of the sample grammar, learnt in English and scored in Turkish: 1,500 sentences, 4 epochs, batches of 32,
the sample teacher with every second of its layers left out (3 × 192), 2 threads. The thesis' rates are for models of
768 neurons and hundreds of thousands of examples: here they leave bias terms almost where they began.
"""

from __future__ import annotations

import sys
import tempfile

import torch
from measure import THREADS, line

from residuum.adaptation.adapting import adapt
from residuum.adaptation.corpora import TargetParts, TransferCorpora
from residuum.corpus import Corpus
from residuum.corpus.tasks import Task
from residuum.samples import sample, teacher_folder

RATES = {"full-target": 5e-4, "adapter-target": 3e-3, "lora-target": 3e-3, "bitfit-target": 3e-3}
LEAST = 0.5  # span F1 in Turkish, where a constant answer has 0
SLOW = ("bitfit-target", 1e-4)  # the thesis' rate


def main() -> None:
    torch.set_num_threads(THREADS)
    data = TransferCorpora(
        entities("en", 1500, "train"),
        entities("en", 200, "dev"),
        {"tr": TargetParts(entities("tr", 100, "dev"), entities("tr", 300, "test"), entities("tr", 100, "train"))},
    )
    holds = []
    for strategy, rate in RATES.items():
        english, turkish = scores(strategy, rate, data)
        print(f"   {strategy} at {rate:g}: span F1 {english:.3f} in English (dev)", flush=True)
        holds.append(line(f"{strategy} at {rate:g}: span F1 in Turkish", turkish, LEAST, at_least=True))
    english, turkish = scores(*SLOW, data)
    print(f"   {SLOW[0]} at {SLOW[1]:g}: span F1 {english:.3f} in English (dev), {turkish:.3f} in Turkish")
    sys.exit(not all(holds))


def entities(language: str, size: int, split: str) -> Corpus:
    return sample("ner", language=language, size=size, split=split)


def scores(strategy: str, rate: float, data: TransferCorpora) -> tuple[float, float]:
    """Span F1 on the English development part and on the Turkish test part."""
    with tempfile.TemporaryDirectory() as folder:
        result = adapt(
            teacher_folder(),
            data,
            Task("ner", "ner", metric="span_f1"),
            folder,
            language=("tr",),
            keep_layers="alternate",
            strategy=strategy,
            epochs=4,
            batch_size=32,
            learning_rate=rate,
            device="cpu",
            progress=False,
        )
        english = float(result.run.tables["trainings"]["source dev"].iloc[0])
    return english, result.run.summary["test span_f1"][strategy]


if __name__ == "__main__":
    main()
