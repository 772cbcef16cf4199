"""What models with heads predict: how alike the outputs of two models are, word by word or sentence by sentence."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from torch import Tensor, nn

from residuum.activations.live import LiveActivations
from residuum.comparison.passes import SentenceGroup, read_pieces
from residuum.corpus import Corpus
from residuum.maths.kernels import output_similarity
from residuum.maths.statistics import jackknife
from residuum.models.loading import from_module, from_transformers, resolve_device, short_name
from residuum.models.surgery import load_whole

ROWS = 64
"""Words whose distributions over a vocabulary are compared at once."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """The logits of a model over a corpus; models whose `classes` are equal can be compared."""

    logits: LiveActivations
    classes: Hashable
    of_sentences: bool


class _WithLogits(nn.Module):
    """A network whose logits are the output of a submodule: one row per token, also for heads of whole sentences."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.logits = network, nn.Identity()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        logits = self.network(input_ids=input_ids, attention_mask=attention_mask).logits
        return self.logits(logits if logits.ndim == 3 else logits[:, None].expand(-1, input_ids.shape[1], -1))


def model_outputs(
    place: str | Path, corpus: Corpus, *, name: str | None, device: str, precision: str, max_loss: float
) -> Outputs | None:
    """The outputs of a model by its folder or name; None without a head over classes or a vocabulary."""
    module, tokenizer = load_whole(place, precision=precision)
    head, body = type(module).__name__.rpartition("For")[2], from_transformers(module, tokenizer)
    labels = module.config.id2label or {}
    if module.get_output_embeddings() is not None:
        head, classes = "next token" if body.causal else "hidden token", tuple(sorted(tokenizer.get_vocab().items()))
    elif head in ("SequenceClassification", "TokenClassification") and len(labels) > 1:
        classes = tuple(str(label) for _, label in sorted(labels.items()))
    else:
        return None
    module.to(resolve_device(device))  # pyright: ignore[reportArgumentType]
    called = {"name": name or short_name(place), "window": body.window, "causal": body.causal}
    model = from_module(_WithLogits(module), tokenizer, ["logits"], **called)
    return Outputs(LiveActivations.of(model, corpus, max_loss=max_loss), (head, classes), head.startswith("Sequence"))


def output_table(
    outputs: Sequence[Outputs], groups: Sequence[SentenceGroup], measures: Sequence[str], *, intervals: bool
) -> pd.DataFrame:
    """One row for each measure and ordered pair of models with equal classes: the mean over words or sentences."""
    pairs = [(i, j) for i, j in combinations(range(len(outputs)), 2) if outputs[i].classes == outputs[j].classes]
    sums, counts = np.zeros((len(groups), len(measures), len(pairs))), np.zeros((len(groups), 1, len(pairs)))
    for g, group in enumerate(groups):
        for layers, words in read_pieces([output.logits for output in outputs], group):
            for p, (i, j) in enumerate(pairs):
                chosen = np.flatnonzero((words[:, 1] == 0) | (not outputs[i].of_sentences))
                counts[g, :, p] += len(chosen)
                for start in range(0, len(chosen), ROWS):
                    rows = chosen[start : start + ROWS]
                    x, y = (layers[k][rows].astype(np.float64) for k in (i, j))
                    sums[g, :, p] += [len(rows) * output_similarity(x, y, measure) for measure in measures]
    total, n = sums.sum(axis=0), counts.sum(axis=0)
    left_out = (total - sums) / (n - counts) if intervals and len(groups) > 1 else sums[:0]
    means = jackknife(total / n, left_out, counts[:, 0, 0] if len(left_out) else None, bounds=(0.0, 1.0))
    rows = [
        (measure, outputs[a].logits.name, outputs[b].logits.name, means.value[m, p], means.low[m, p], means.high[m, p])
        for m, measure in enumerate(measures)
        for p, (i, j) in enumerate(pairs)
        for a, b in ((i, j), (j, i))
    ]
    return pd.DataFrame(rows, columns=pd.Index(["measure", "model_a", "model_b", "value", "low", "high"]))
