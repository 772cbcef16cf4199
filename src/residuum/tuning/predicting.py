"""What a network with a head answers, and how it scores on a part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from residuum.tuning.collation import Batch, Collator
from residuum.tuning.encoding import Example, Part, length_sorted
from residuum.tuning.problems import Problem

Logits = Callable[[Batch], Tensor]

BATCH = 32  # examples that are read at once


def score_part(
    logits: Logits, problem: Problem, part: Part, collate: Collator, device: torch.device
) -> dict[str, float]:
    """All scores of a network on a part; the caller sets eval mode."""
    if problem.kind == "tagging":
        return problem.scores(*_tags(logits, problem, part, collate, device))
    answers: dict[int, Any] = {}
    for examples, found in read_part(logits, part, collate, device):
        values = found[:, 0].tolist() if problem.kind == "regression" else found.argmax(-1).tolist()
        answers |= dict(zip((example.first for example in examples), values, strict=True))
    ordered = [answers[example.first] for example in part.examples]
    if problem.kind != "regression":
        ordered = [problem.classes[place] for place in ordered]
    return problem.scores(ordered, part.truth)


def _tags(
    logits: Logits, problem: Problem, part: Part, collate: Collator, device: torch.device
) -> tuple[list[list[str]], list[list[str]]]:
    """The predicted and the true tags of each sentence, of the words that have a true one.

    A word that no sub-word stands for is answered with `O`, or with no tag at all where there is none.
    """
    missing = "O" if "O" in problem.classes else ""
    answers: dict[tuple[int, int], str] = {}
    for examples, found in read_part(logits, part, collate, device):
        places = found.argmax(-1).tolist()
        answers |= {
            (sentence, word): problem.classes[places[row][token]]
            for row, example in enumerate(examples)
            for sentence, word, token in example.words
        }
    labelled = [[w for w, label in enumerate(row) if label is not None] for row in part.truth]
    predicted = [[answers.get((s, w), missing) for w in words] for s, words in enumerate(labelled)]
    return predicted, [[part.truth[s][w] for w in words] for s, words in enumerate(labelled)]


def read_part(
    logits: Logits, part: Part, collate: Collator, device: torch.device
) -> list[tuple[list[Example], Tensor]]:
    """The answers to all examples of a part, batch by batch."""
    from accelerate.utils import send_to_device

    with torch.inference_mode():
        return [
            (examples, logits(cast(Batch, send_to_device(collate(examples), device))).float().cpu())
            for examples in length_sorted(part.examples, BATCH)
        ]
