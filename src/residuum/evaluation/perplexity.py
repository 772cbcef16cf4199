"""`evaluate perplexity`: how well a language model predicts text, per language."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from residuum.activations.extraction import batches
from residuum.corpus import Corpus
from residuum.corpus.streams import TextOptions, text_corpus
from residuum.errors import ModelError, SettingError
from residuum.evaluation.encoding import BATCH_TOKENS, padded_batch, token_windows
from residuum.evaluation.settings import PerplexitySettings
from residuum.maths.statistics import bootstrap
from residuum.models.alignment import Window
from residuum.models.loading import Model, check_weights, from_transformers, placement, resolve_device
from residuum.models.surgery import body_of, load_whole
from residuum.settings import command, named_values
from residuum.storage.notebook import progress_bar
from residuum.storage.results import Result, Run, finished_run, write_run

COMMAND = "evaluate perplexity"
LOGITS = 1 << 26  # numbers that the head gives at once: 256 MB
HIDDEN, CHANGED = 0.8, 0.1  # of the chosen tokens, as in pretraining; the rest is shown as it is


@dataclass(frozen=True, eq=False)
class Perplexity(Result):
    """How well a model predicted some texts."""

    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """One row per text: lines, predicted tokens, loss, perplexity and its interval."""
        return self.run.tables["perplexity"]

    def text(self) -> str:
        """One line per text."""
        return "\n".join(
            f"{row['text']}: perplexity {row['perplexity']:.2f} ({row['low']:.2f} to {row['high']:.2f}), "
            f"{row['tokens']:,} tokens"
            for row in self.frame.to_dict("records")
        )


@command(PerplexitySettings)
def evaluate_perplexity(settings: PerplexitySettings) -> Perplexity:
    """The perplexity of a model on each text: exp of the mean −log p of a token.

    A decoder predicts every token from those before it, the first from the token that begins texts; the sum is the
    rolling log-likelihood of lm-eval. A masked model predicts a `fraction` of each line's tokens,
    hidden as in pretraining (`masking="sampled"`), or every token, one at a time (`"each"`, the pseudo-perplexity of
    Salazar et al. 2020, with one pass per token). `texts` are corpora, files with one sentence per line, or
    tables and datasets of which one column is read; a mapping names them, for instance by language. Intervals are
    bootstrapped over lines.
    """
    corpora = _named_corpora(settings.texts, TextOptions(**settings.reading), settings.limit)
    model = settings.model
    if not isinstance(model, HeadedModel):
        if settings.device != "spread":
            check_weights([model], settings.max_memory, settings.precision)
        placed = {"device": settings.device, "precision": settings.precision, "max_memory": settings.max_memory}
        model = load_language_model(model, **placed)
    kind = "causal" if model.causal else f"masked, {settings.masking}"
    config = {
        **settings.identity(),
        "model": f"{model.body.name} {model.fingerprint}",
        "texts": [f"{name} {corpus.text_fingerprint}" for name, corpus in corpora.items()],
        "kind": kind,
    }
    if settings.out is not None and (run := finished_run(settings.out, COMMAND, config, fresh=settings.fresh)):
        return Perplexity(run)
    rows = [
        {"text": name, "lines": len(corpus), **_estimates(line_losses(model, corpus, name, settings), name, settings)}
        for name, corpus in corpora.items()
    ]
    perplexities = {row["text"]: row["perplexity"] for row in rows}
    summary = {"model": model.body.name, "kind": kind, **perplexities}
    run = Run(COMMAND, config, summary, {"perplexity": pd.DataFrame(rows)})
    if settings.out is not None:
        write_run(settings.out, run)
    return Perplexity(run)


def _named_corpora(texts: Any, options: TextOptions, limit: int | None) -> dict[str, Corpus]:
    """The texts by name, read where they are not in memory yet."""

    def read(text: Corpus | str | Path) -> Corpus:
        if isinstance(text, Corpus):
            return text if limit is None else text.limit(limit)
        return text_corpus(text, options, limit)

    if isinstance(texts, Corpus | str | os.PathLike):
        texts = [texts]
    texts = named_values(texts)
    if isinstance(texts, Mapping):
        return {name: read(text) for name, text in texts.items()}
    corpora = [read(text) for text in texts]
    names = [corpus.name for corpus in corpora]
    if not names or len(set(names)) < len(names):
        raise SettingError(
            f"The texts are called {', '.join(names) or 'nothing'}; expected one or more, each with its own name."
        )
    return dict(zip(names, corpora, strict=True))


def line_losses(model: HeadedModel, corpus: Corpus, name: str, settings: PerplexitySettings) -> np.ndarray:
    """Per line Σ −log p of its predicted tokens, and their number; `name` is the text's in messages."""
    texts = [corpus.text(i) for i in range(len(corpus))]
    lines = token_windows(model.body.tokenizer, None if model.causal else model.body.window, texts, name)
    predictions = list(causal_predictions(model, lines) if model.causal else masked_predictions(model, lines, settings))
    totals, device = np.zeros((len(lines), 2)), model.body.device
    sizes = [len(prediction.window.ids) for prediction in predictions]
    predicted = sum(len(prediction.places) for prediction in predictions)
    logits_per_token = model.vocabulary * predicted / max(sum(sizes), 1)
    most_logits = LOGITS
    if settings.max_memory is not None:  # logits and their log-probabilities
        most_logits = min(LOGITS, max(0, settings.max_memory - model.body.n_bytes) // 8)
    budget = int(min(BATCH_TOKENS, max(1, most_logits / max(logits_per_token, 1))))
    with progress_bar(total=len(predictions), unit=" lines", shown=settings.progress, leave=False) as bar:
        for chosen in batches(sizes, budget):
            batch = [predictions[i] for i in chosen]
            inputs = padded_batch(model.body.tokenizer, [prediction.window for prediction in batch], device)
            counts = [len(prediction.places) for prediction in batch]
            rows = torch.from_numpy(np.repeat(np.arange(len(batch)), counts)).to(device)
            places = torch.from_numpy(np.concatenate([prediction.places for prediction in batch])).to(device)
            gold = torch.from_numpy(np.concatenate([prediction.gold for prediction in batch])).to(device)
            token_losses = nn.functional.cross_entropy(model.logits(inputs, rows, places), gold, reduction="none")
            by_prediction = np.split(token_losses.cpu().numpy(), np.cumsum(counts)[:-1])
            for prediction, losses in zip(batch, by_prediction, strict=True):
                totals[prediction.line] += losses.sum(dtype=np.float64), len(losses)
            bar.update(len(chosen))
    return totals


def _estimates(losses: np.ndarray, name: str, settings: PerplexitySettings) -> dict[str, Any]:
    total, tokens = losses.sum(axis=0)
    if tokens == 0:
        raise SettingError(f"No token of {name} can be predicted: a decoder needs lines of two tokens or more.")
    predicted = losses[losses[:, 1] > 0]

    def perplexity(chosen: np.ndarray) -> float:
        loss, count = predicted[chosen].sum(axis=0)
        return float(np.exp(loss / count))

    interval = bootstrap(perplexity, len(predicted), resamples=settings.resamples, rng=settings.seed)
    return {
        "tokens": int(tokens),
        "loss": total / tokens,
        "perplexity": float(interval.value),
        "low": float(interval.low),
        "high": float(interval.high),
    }


@dataclass(frozen=True, eq=False)
class Prediction:
    """A window as the model sees it, the places whose states predict, and the gold tokens there."""

    line: int
    window: Window
    places: np.ndarray
    gold: np.ndarray


def causal_predictions(model: HeadedModel, lines: Sequence[Sequence[Window]]) -> Iterator[Prediction]:
    """Every token from those before it, once, as the rolling log-likelihood of EleutherAI's lm-eval does it.

    The first token of a line is predicted from the token that begins (or, where there is none, ends) a text; without
    either it is left out. A line longer than the model's window is predicted window by window; the last one reaches
    back as far as the model can see.
    """
    tokenizer = model.body.tokenizer
    prefix = [i for i in (tokenizer.bos_token_id, tokenizer.eos_token_id) if i is not None][:1]
    for line, whole in enumerate(lines):
        tokens = np.array(prefix + [window.ids[i] for window in whole for i in window.content])
        longest = model.body.window or len(tokens)
        for first in range(0, len(tokens) - 1, longest):
            stop = min(first + longest, len(tokens) - 1)
            start = max(0, stop - longest)
            shown = tokens[start:stop].tolist()
            window = Window(shown, [0] * len(shown), np.arange(len(shown)))
            yield Prediction(line, window, np.arange(first, stop) - start, tokens[first + 1 : stop + 1])


def masked_predictions(
    model: HeadedModel, lines: Sequence[Sequence[Window]], settings: PerplexitySettings
) -> Iterator[Prediction]:
    """A fraction of the tokens of each window, at least one; with `masking` each every token, one at a time.

    The choice depends on the seed and the line's number only.
    """
    tokenizer = model.body.tokenizer
    if tokenizer.mask_token_id is None:
        raise ModelError(f"The tokenizer of {model.body.name} has no mask token, so nothing can be hidden from it.")
    ordinary = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    for line, windows in enumerate(lines):
        rng = np.random.default_rng([settings.seed, line])
        for window in windows:
            original = np.array(window.ids)
            if settings.masking == "each":
                for place in window.content.tolist():
                    shown = original.copy()
                    shown[place] = tokenizer.mask_token_id
                    yield Prediction(line, replace(window, ids=shown.tolist()), np.array([place]), original[[place]])
                continue
            count = max(1, round(settings.fraction * len(window.content)))
            places = np.sort(rng.choice(window.content, size=count, replace=False))
            shown, fate = original.copy(), rng.random(count)
            shown[places[fate < HIDDEN]] = tokenizer.mask_token_id
            changed = places[(fate >= HIDDEN) & (fate < HIDDEN + CHANGED)]
            shown[changed] = rng.choice(ordinary, size=len(changed))
            yield Prediction(line, replace(window, ids=shown.tolist()), places, original[places])


@dataclass(frozen=True, eq=False)
class HeadedModel:
    """A network with its language-modelling head; `body` is the network without it."""

    module: nn.Module
    body: Model

    @property
    def causal(self) -> bool:
        """Whether a token is predicted from those before it; otherwise from those around it."""
        return self.body.causal

    @property
    def vocabulary(self) -> int:
        """The number of tokens it chooses among."""
        return self.module.get_output_embeddings().weight.shape[0]  # pyright: ignore[reportCallIssue]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all weights, including the head's."""
        return replace(self.body, module=self.module).fingerprint

    @torch.inference_mode()
    def logits(self, batch: Mapping[str, Tensor], rows: Tensor, places: Tensor) -> Tensor:
        """The logits (token × vocabulary) at `places` of the sentences `rows` of a batch.

        Only these tokens reach the head: with a large vocabulary it costs more than the rest of the network.
        """

        def keep_chosen(_module: nn.Module, _inputs: object, output: Any) -> Any:
            output["last_hidden_state"] = output["last_hidden_state"][rows, places][None]
            return output

        hook = body_of(self.module).register_forward_hook(keep_chosen)
        try:
            return self.module(**batch).logits[0].float()
        finally:
            hook.remove()


def load_language_model(
    name_or_path: str | Path, *, device: str = "auto", precision: str = "float32", max_memory: int | None = None
) -> HeadedModel:
    """Load a masked or causal language model with its head; a model without one is an error."""
    module, tokenizer = load_whole(name_or_path, precision=precision, **placement(device, max_memory))
    if module.get_output_embeddings() is None:
        raise ModelError(
            f"{name_or_path} is a {type(module).__name__}, which has no language-modelling head; perplexity needs one "
            "(such as …ForMaskedLM or …ForCausalLM in its config.json, and its weights)."
        )
    if module.config.is_encoder_decoder:
        raise ModelError(
            f"{name_or_path} has an encoder and a decoder; perplexity is that of a decoder or of a masked model alone."
        )
    if device != "spread":
        module.to(resolve_device(device))  # pyright: ignore[reportArgumentType]
    path = Path(name_or_path)
    body = from_transformers(module, tokenizer, name=path.resolve().name if path.exists() else str(name_or_path))
    return HeadedModel(module, body)
