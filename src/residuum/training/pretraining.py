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

from residuum.errors import ModelError, SettingError, StoreError
from residuum.storage.files import files_for, read_json, remove_folder, whole_file, whole_folder, write_json
from residuum.storage.results import Result, Run, finished_run, read_run, write_run
from residuum.training import (
    Training,
    discard_checkpoints,
    is_main_process,
    load_checkpoint,
    process_count,
    train,
    wait_for_others,
)
from residuum.training.pretraining_card import card
from residuum.training.pretraining_networks import build_network
from residuum.training.pretraining_objectives import Ids, MixedBatches, Pieces, Source, losses_of
from residuum.training.pretraining_scores import evaluation
from residuum.training.pretraining_settings import PretrainConfig, checked_config, read_config
from residuum.training.pretraining_texts import Texts, read_texts, shares, train_tokenizer

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedTokenizerBase

IDENTITY = "residuum.json"  # beside the tokenizer: what it was made from


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
    stopped. `as_is` writes the model of the last checkpoint without training on; the run stays unfinished. Under
    `torchrun` the main process makes the tokenizer and writes the model; all of them train.
    """
    if as_is and process_count() > 1:
        raise SettingError(f"as_is trains nothing, and {process_count()} processes were started; leave torchrun out.")
    settings = settings_of(config)
    out = Path(out)
    command = f"residuum pretrain {config if isinstance(config, str | Path) else 'CONFIG.yaml'} --out {out}"
    texts = read_texts(settings)
    record = {"settings": settings.model_dump(mode="json"), "text": texts.fingerprint}
    if run := finished_run(out, "pretrain", record, fresh=fresh):
        if is_main_process():
            discard_checkpoints(out)  # a kill may have come before
        return Pretraining(run, out / "model")
    tokenizer = _tokenizer(settings, texts, out, device, fresh)
    network = build_network(settings.network, tokenizer, settings.seed)
    if as_is:
        reached = load_checkpoint(out, {"network": network})
        training = Training(reached.step, reached)
    else:
        training = _train(network, tokenizer, settings, texts, out, record, device, fresh, progress)
    if is_main_process():
        run = _run(record, texts, network, training)
        _export(out / "model", network, tokenizer, settings)
        text = card(settings, texts, _parameters(network), training, command)
        with whole_file(out / "model" / "README.md") as path:
            path.write_text(text, encoding="utf-8")
        if as_is:
            return Pretraining(run, out / "model")
        write_run(out, run)
        discard_checkpoints(out)
    wait_for_others(device)
    return Pretraining(read_run(out), out / "model")


def settings_of(config: PretrainConfig | Mapping[str, Any] | str | Path) -> PretrainConfig:
    """The settings, checked, from what `pretrain` takes."""
    if isinstance(config, PretrainConfig):
        return config
    return checked_config(dict(config)) if isinstance(config, Mapping) else read_config(config)


def _tokenizer(settings: PretrainConfig, texts: Texts, out: Path, device: str, fresh: bool) -> PreTrainedTokenizerBase:
    """The tokenizer of this run: the one that is there already, else a new one of the main process."""
    folder = out / "tokenizer"
    if is_main_process():
        if fresh:
            remove_folder(folder)
        if folder.exists():
            _check_tokenizer(settings, texts, folder)
        else:
            _write_tokenizer(settings, texts, folder)
    wait_for_others(device)
    return _read_tokenizer(folder)


def _read_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # what a damaged tokenizer leads to is of every kind, and undocumented
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ModelError(f"The tokenizer in {folder} cannot be read ({reason}); pass --fresh to start over.") from error


def _check_tokenizer(settings: PretrainConfig, texts: Texts, folder: Path) -> None:
    """Refuse a tokenizer that other settings or another text gave."""
    there = read_json(folder / IDENTITY) if (folder / IDENTITY).exists() else None
    if there != _tokenizer_identity(settings, texts):
        raise StoreError(
            f"{folder} holds a tokenizer of other settings or another text; choose another folder or pass --fresh."
        )


def _tokenizer_identity(settings: PretrainConfig, texts: Texts) -> dict[str, Any]:
    """What the tokenizer depends on, and the rest of the text that the run reads."""
    return {
        **settings.tokenizer.model_dump(mode="json"),
        "exponent": settings.exponent,
        "window": settings.network.window,
        "seed": settings.seed,
        "text": texts.fingerprint,
    }


def new_tokenizer(settings: PretrainConfig, texts: Texts) -> PreTrainedTokenizerBase:
    """A tokenizer trained on the texts."""
    return train_tokenizer(
        texts.sentences,
        pieces=settings.tokenizer.pieces,
        lines=settings.tokenizer.lines,
        exponent=settings.exponent,
        window=settings.network.window,
        seed=settings.seed,
    )


def _write_tokenizer(settings: PretrainConfig, texts: Texts, folder: Path) -> None:
    tokenizer = new_tokenizer(settings, texts)
    with whole_folder(folder) as temporary:
        tokenizer.save_pretrained(temporary)
        write_json(temporary / IDENTITY, _tokenizer_identity(settings, texts))


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
    pieces = special_pieces(tokenizer)
    batches = MixedBatches(settings.objectives, *token_sources(tokenizer, settings, texts), pieces, settings.seed)
    held_out = {
        name: [(ids,) for ids in encode_lines(tokenizer, rows)] for name, rows in texts.held_out.items() if rows
    }
    retrieval = {name: encode_pairs(tokenizer, rows) for name, rows in texts.retrieval.items()}
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


def token_sources(
    tokenizer: PreTrainedTokenizerBase, settings: PretrainConfig, texts: Texts
) -> tuple[list[Source], list[Source]]:
    """Tokenized sentences and pairs, with the chance of each language and text to be drawn."""
    chances = shares({name: len(rows) for name, rows in texts.sentences.items()}, settings.exponent)
    sentences = [
        Source([(ids,) for ids in encode_lines(tokenizer, rows)], chances[name])
        for name, rows in texts.sentences.items()
    ]
    pairs = [
        Source(encode_pairs(tokenizer, paired.sentences), paired.weight * len(paired.sentences) ** settings.exponent)
        for paired in texts.pairs
    ]
    return sentences, pairs


def encode_lines(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[Ids]:
    """The pieces of each line, without special tokens."""
    if not texts:
        return []
    encoded = tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False)
    return [np.array(ids, np.int32) for ids in encoded["input_ids"]]  # pyright: ignore[reportGeneralTypeIssues]


def encode_pairs(tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]]) -> list[tuple[Ids, Ids]]:
    """The pieces of both sides of each pair."""
    first, second = (encode_lines(tokenizer, [pair[side] for pair in pairs]) for side in (0, 1))
    return list(zip(first, second, strict=True))


def special_pieces(tokenizer: Any) -> Pieces:
    """The ids of the special tokens, and the size of the vocabulary."""
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
        "pairs in held-out text": sum(paired.held_out for paired in texts.pairs),
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

    columns = ["name", "languages", "read", "kept", "blank", "too_long", "excluded", "held_out"]
    rows = [
        (p.name, "-".join(p.languages), p.read, len(p.sentences), p.blank, p.too_long, p.excluded, p.held_out)
        for p in texts.pairs
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
