"""`pretrain`: read, tokenize, train, measure, write a plain model folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from residuum.files import files_for, remove_folder, whole_file, whole_folder
from residuum.pretraining.card import card
from residuum.pretraining.config import PretrainConfig, checked_config, read_config
from residuum.pretraining.networks import build_network
from residuum.pretraining.objectives import Ids, MixedBatches, Pieces, Source, losses_of
from residuum.pretraining.scores import evaluation
from residuum.pretraining.texts import Texts, read_texts
from residuum.pretraining.vocabulary import shares, train_tokenizer
from residuum.results import Result, Run, finished_run, write_run
from residuum.training import Training, discard_checkpoints, load_checkpoint, train

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, eq=False)
class Pretraining(Result):
    """A pretrained model on disk and how it came about."""

    run: Run
    model: Path  # a plain `from_pretrained` folder

    @property
    def frame(self) -> pd.DataFrame:
        """The scores, as `scores` has them."""
        return self.run.tables["scores"]

    @property
    def history(self) -> pd.DataFrame:
        """The learning curve: a row every few steps."""
        return self.run.tables["history"]

    @property
    def scores(self) -> pd.DataFrame:
        """A row for each evaluation, score, language or retrieval set, and layer (−1: of no layer)."""
        return self.run.tables["scores"]


def pretrain(
    config: PretrainConfig | Mapping[str, Any] | str | Path,
    out: str | Path,
    *,
    device: str = "auto",
    as_is: bool = False,
    fresh: bool = False,
    progress: bool = True,
) -> Pretraining:
    """Train a tokenizer and a language model from scratch, and write them to `out/model`.

    `config` is a YAML file, a mapping or a checked `PretrainConfig`. The same call goes on where a killed one
    stopped. `as_is` writes the model of the last checkpoint without training on; the run stays unfinished.
    """
    settings = _config(config)
    out = Path(out)
    command = f"residuum pretrain {config if isinstance(config, str | Path) else 'CONFIG.yaml'} --out {out}"
    texts = read_texts(settings)
    record = {"settings": settings.model_dump(mode="json"), "text": texts.fingerprint}
    if run := finished_run(out, "pretrain", record, fresh=fresh):
        discard_checkpoints(out)  # a kill may have come before
        return Pretraining(run, out / "model")
    if fresh:
        remove_folder(out / "tokenizer")
    tokenizer = _tokenizer(settings, texts, out)
    network = build_network(settings.network, tokenizer, settings.seed)
    if as_is:
        progress_so_far = load_checkpoint(out, {"network": network})
        training = Training(progress_so_far.step, progress_so_far)
    else:
        training = _train(network, tokenizer, settings, texts, out, record, device, fresh, progress)
    run = _run(record, texts, network, training)
    _export(out / "model", network, tokenizer, settings)
    text = card(settings, texts, _parameters(network), training.history, training.scores, command)
    with whole_file(out / "model" / "README.md") as path:
        path.write_text(text, encoding="utf-8")
    if not as_is:
        write_run(out, run)
        discard_checkpoints(out)
    return Pretraining(run, out / "model")


def _config(config: PretrainConfig | Mapping[str, Any] | str | Path) -> PretrainConfig:
    if isinstance(config, PretrainConfig):
        return config
    return checked_config(dict(config)) if isinstance(config, Mapping) else read_config(config)


def _tokenizer(settings: PretrainConfig, texts: Texts, out: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of this run: the one that is there already, else a new one."""
    from transformers import AutoTokenizer

    folder = out / "tokenizer"
    if (folder / "tokenizer_config.json").exists():
        return AutoTokenizer.from_pretrained(folder)
    tokenizer = train_tokenizer(
        texts.sentences,
        pieces=settings.tokenizer.pieces,
        lines=settings.tokenizer.lines,
        exponent=settings.exponent,
        window=settings.network.window,
        seed=settings.seed,
    )
    with whole_folder(folder) as temporary:
        tokenizer.save_pretrained(temporary)
    return tokenizer


def _train(
    network: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    settings: PretrainConfig,
    texts: Texts,
    out: Path,
    record: dict[str, Any],
    device: str,
    fresh: bool,
    progress: bool,
) -> Training:
    pieces = _pieces(tokenizer)
    batches = MixedBatches(settings.objectives, *_sources(tokenizer, settings, texts), pieces, settings.seed)
    held_out = {name: [(ids,) for ids in _encode(tokenizer, rows)] for name, rows in texts.held_out.items() if rows}
    retrieval = {name: _encode_pairs(tokenizer, rows) for name, rows in texts.retrieval.items()}
    network.train()
    return train(
        {"network": network},
        batches,
        lambda batch: losses_of(network, settings.objectives, batch),
        settings.training_settings(),
        out,
        evaluate=evaluation(network, held_out, retrieval, settings.objectives, pieces, settings.seed),
        config=record,
        device=device,
        fresh=fresh,
        progress=progress,
    )


def _sources(
    tokenizer: PreTrainedTokenizerBase, settings: PretrainConfig, texts: Texts
) -> tuple[list[Source], list[Source]]:
    """Tokenized sentences and pairs, with the chance of each language and text to be drawn."""
    chances = shares({name: len(rows) for name, rows in texts.sentences.items()}, settings.exponent)
    sentences = [
        Source([(ids,) for ids in _encode(tokenizer, rows)], chances[name]) for name, rows in texts.sentences.items()
    ]
    pairs = [
        Source(_encode_pairs(tokenizer, paired.sentences), paired.weight * len(paired.sentences) ** settings.exponent)
        for paired in texts.pairs
    ]
    return sentences, pairs


def _encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[Ids]:
    if not texts:
        return []
    encoded = tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False)
    return [np.array(ids, np.int32) for ids in encoded["input_ids"]]  # pyright: ignore[reportGeneralTypeIssues]


def _encode_pairs(tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]]) -> list[tuple[Ids, Ids]]:
    first, second = (_encode(tokenizer, [pair[side] for pair in pairs]) for side in (0, 1))
    return list(zip(first, second, strict=True))


def _pieces(tokenizer: Any) -> Pieces:
    return Pieces(
        begin=tokenizer.bos_token_id,
        end=tokenizer.eos_token_id,
        padding=tokenizer.pad_token_id,
        mask=tokenizer.mask_token_id,
        size=len(tokenizer),
    )


def _run(record: dict[str, Any], texts: Texts, network: nn.Module, training: Training) -> Run:
    scores = training.scores
    last = {} if scores.empty else {name: round(float(scores[name].iloc[-1]), 4) for name in scores if name != "step"}
    summary = {
        "parameters": _parameters(network),
        "steps": training.progress.step,
        "tokens": training.progress.tokens,
        "pairs excluded": sum(paired.excluded for paired in texts.pairs),
        **{name: value for name, value in last.items() if " layer " not in name},
    }
    tables = {"history": training.history, "scores": _score_table(scores), "pairs": _pair_table(texts)}
    return Run(command="pretrain", config=record, summary=summary, tables=tables)


def _score_table(scores: pd.DataFrame) -> pd.DataFrame:
    """A row for each step, score, subject (a language or a retrieval set) and layer (−1: of no layer)."""
    import pandas as pd

    named = [(name, found) for name in scores if (found := _SCORE_NAME.fullmatch(str(name)))]
    rows = [
        (step, found["score"], found["subject"], int(found["layer"] or -1), value)
        for place, step in enumerate(scores["step"].tolist() if len(scores) else [])
        for name, found in named
        for value in [float(scores[name].iloc[place])]
    ]
    return pd.DataFrame(rows, columns=["step", "score", "subject", "layer", "value"])


_SCORE_NAME = re.compile(r"(?P<score>perplexity|retrieval) (?P<subject>.+?)(?: layer (?P<layer>\d+))?")


def _pair_table(texts: Texts) -> pd.DataFrame:
    import pandas as pd

    columns = ["name", "languages", "read", "kept", "blank", "too_long", "excluded"]
    rows = [
        (p.name, "-".join(p.languages), p.read, len(p.sentences), p.blank, p.too_long, p.excluded) for p in texts.pairs
    ]
    return pd.DataFrame(rows, columns=columns)


def _export(folder: Path, network: Any, tokenizer: PreTrainedTokenizerBase, settings: PretrainConfig) -> None:
    """A plain `from_pretrained` folder in the wanted precision."""
    network.to(device="cpu", dtype=getattr(torch, settings.dtype)).eval()
    with files_for(folder) as temporary:
        network.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)


def _parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
