"""`evaluate perplexity`: how well a language model predicts text, for each language."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from residuum.activations.extraction import batches
from residuum.corpus import Corpus, read_corpus
from residuum.errors import ModelError, SettingError
from residuum.evaluation.language_models import LanguageModel, load_language_model
from residuum.evaluation.masking import MASKINGS, Prediction, causal_predictions, masked_predictions
from residuum.evaluation.token_batches import padded_batch, token_windows
from residuum.maths.statistics import bootstrap
from residuum.models.alignment import Window
from residuum.storage.results import Result, Run, finished_run, write_run

COMMAND = "evaluate perplexity"
BATCH_TOKENS = 1024
LOGITS = 1 << 26  # numbers that the head gives at once: 256 MB

Text = Corpus | str | Path
Masking = Literal["sampled", "each"]


@dataclass(frozen=True, eq=False)
class Perplexity(Result):
    """How well a model predicted some texts."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """One row a text: lines, tokens predicted, loss, perplexity and its interval."""
        return self.run.tables["perplexity"]


def evaluate_perplexity(
    model: LanguageModel | str | Path,
    texts: Text | Sequence[Text] | Mapping[str, Text],
    *,
    masking: Masking = "sampled",
    share: float = 0.15,
    limit: int | None = None,
    resamples: int = 1000,
    device: str = "auto",
    seed: int = 0,
    out: str | Path | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> Perplexity:
    """The perplexity of a model on each text: exp of the mean −log p of a token.

    A decoder predicts every token from those before it. A masked model predicts a `share` of each line's tokens, hidden
    as in pretraining and drawn from `seed` (`masking="sampled"`), or every token, each hidden alone (`"each"`, the
    pseudo-perplexity of Salazar et al. 2020, which takes a pass for each token). `texts` are corpora or files, a
    sentence a line; a mapping names them, for instance by language. Intervals are bootstrapped over lines.
    """
    corpora = named_corpora(texts, limit)
    check_masking(masking, share)
    network = model if isinstance(model, LanguageModel) else load_language_model(model, device=device)
    kind = "causal" if network.causal else f"masked, {masking}"
    config = {
        "model": f"{network.body.name} {network.fingerprint}",
        "texts": [f"{name} {corpus.text_fingerprint}" for name, corpus in corpora.items()],
        "kind": kind,
        **({} if network.causal else {"share": share}),
        "resamples": resamples,
        "seed": seed,
    }
    if out is not None and (found := finished_run(out, COMMAND, config, fresh=fresh)):
        return Perplexity(found)
    rows = []
    for name, corpus in corpora.items():
        losses = line_losses(network, corpus, name, masking, share, seed, progress)
        rows.append({"text": name, "lines": len(corpus), **_estimates(losses, name, resamples, seed)})
    table = pd.DataFrame(rows)
    perplexities = {row["text"]: row["perplexity"] for row in rows}
    run = Run(COMMAND, config, {"model": network.body.name, "kind": kind, **perplexities}, {"perplexity": table})
    if out is not None:
        write_run(out, run)
    return Perplexity(run)


def line_losses(
    network: LanguageModel, corpus: Corpus, name: str, masking: str, share: float, seed: int, progress: bool
) -> np.ndarray:
    """For each line Σ −log p of its predicted tokens, and their number; `name` is the text's in messages."""
    texts = [corpus.text(i) for i in range(len(corpus))]
    lines = token_windows(network.body.tokenizer, network.body.window, texts, name)
    predictions = list(_predictions(network, lines, masking, share, seed))
    totals = np.zeros((len(lines), 2))
    sizes = [len(prediction.window.ids) for prediction in predictions]
    budget = _token_budget(network, predictions, sizes)
    with tqdm(total=len(predictions), unit=" lines", disable=None if progress else True, leave=False) as bar:
        for chosen in batches(sizes, budget):
            batch = [predictions[i] for i in chosen]
            for prediction, losses in zip(batch, _losses(network, batch), strict=True):
                totals[prediction.line] += losses.sum(dtype=np.float64), len(losses)
            bar.update(len(chosen))
    return totals


def _predictions(
    network: LanguageModel, lines: list[list[Window]], masking: str, share: float, seed: int
) -> Iterator[Prediction]:
    if network.causal:
        return causal_predictions(lines)
    tokenizer = network.body.tokenizer
    if tokenizer.mask_token_id is None:
        raise ModelError(f"The tokenizer of {network.body.name} has no mask token, so nothing can be hidden from it.")
    ordinary = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    mask = cast("int", tokenizer.mask_token_id)
    return masked_predictions(lines, mask, ordinary, share=None if masking == "each" else share, seed=seed)


def _token_budget(network: LanguageModel, predictions: list[Prediction], sizes: list[int]) -> int:
    """Tokens in a batch: few enough that the logits of those to be predicted fit."""
    predicted = sum(len(prediction.places) for prediction in predictions)
    per_token = network.vocabulary * predicted / max(sum(sizes), 1)
    return int(min(BATCH_TOKENS, max(1, LOGITS / max(per_token, 1))))


def _losses(network: LanguageModel, batch: list[Prediction]) -> list[np.ndarray]:
    """−log p of each predicted token, for each prediction of a batch."""
    device = network.body.device
    inputs = padded_batch(network.body.tokenizer, [prediction.window for prediction in batch], device)
    counts = [len(prediction.places) for prediction in batch]
    rows = torch.from_numpy(np.repeat(np.arange(len(batch)), counts)).to(device)
    places = torch.from_numpy(np.concatenate([prediction.places for prediction in batch])).to(device)
    truth = torch.from_numpy(np.concatenate([prediction.truth for prediction in batch])).to(device)
    losses = torch.nn.functional.cross_entropy(network.logits(inputs, rows, places), truth, reduction="none")
    return np.split(losses.cpu().numpy(), np.cumsum(counts)[:-1])


def _estimates(losses: np.ndarray, name: str, resamples: int, seed: int) -> dict[str, Any]:
    total, tokens = losses.sum(axis=0)
    if tokens == 0:
        raise SettingError(f"No token of {name} can be predicted: a decoder needs lines of two tokens or more.")
    some = losses[losses[:, 1] > 0]

    def perplexity(chosen: np.ndarray) -> float:
        loss, count = some[chosen].sum(axis=0)
        return float(np.exp(loss / count))

    found = bootstrap(perplexity, len(some), resamples=resamples, rng=seed)
    return {
        "tokens": int(tokens),
        "loss": total / tokens,
        "perplexity": float(found.value),
        "low": float(found.low),
        "high": float(found.high),
    }


def named_corpora(texts: Text | Sequence[Text] | Mapping[str, Text], limit: int | None) -> dict[str, Corpus]:
    """The texts by name, read where they are not yet."""
    if isinstance(texts, Corpus | str | os.PathLike):
        texts = [texts]
    if isinstance(texts, Mapping):
        return {name: _corpus(text, limit) for name, text in texts.items()}
    corpora = [_corpus(text, limit) for text in texts]
    names = [corpus.name for corpus in corpora]
    if not names or len(set(names)) < len(names):
        raise SettingError(f"The texts are called {', '.join(names) or 'nothing'}; expected one or more, each its own.")
    return dict(zip(names, corpora, strict=True))


def _corpus(text: Text, limit: int | None) -> Corpus:
    if isinstance(text, Corpus):
        return text if limit is None else text.limit(limit)
    return read_corpus(text, spacing="text", limit=limit)


def check_masking(masking: str, share: float) -> None:
    """Raise an error unless tokens can be hidden this way."""
    if masking not in MASKINGS:
        raise SettingError(f"masking is {masking!r}; choose one of {', '.join(MASKINGS)}.")
    if not 0 < share <= 1:
        raise SettingError(f"share is {share}; expected a part of the tokens above 0 and up to 1, such as 0.15.")
