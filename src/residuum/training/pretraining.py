"""`pretrain`: read text, train a tokenizer and a language model, score it, write a plain model folder."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from residuum.costs import Cost, CostStep, spread, timed, within
from residuum.errors import ModelError, SettingError, StoreError
from residuum.models.cards import check_hub, front_matter, plain, push_to_hub
from residuum.models.loading import evaluating
from residuum.settings import command
from residuum.storage.files import files_for, read_json, remove_folder, whole_file, whole_folder, write_json
from residuum.storage.notebook import progress_bar
from residuum.storage.results import Result, Run, finished_run, read_run, write_run
from residuum.training.checkpoints import discard_checkpoints, load_checkpoint
from residuum.training.loop import TrainingResult, rehearse, train, training_step
from residuum.training.pretraining_objectives import (
    Ids,
    MixedBatches,
    SpecialTokens,
    TokenSource,
    build_network,
    evaluation,
    losses_of,
)
from residuum.training.pretraining_texts import PretrainingTexts, read_texts, shares, train_tokenizer
from residuum.training.processes import is_main_process, process_count, wait_for_others
from residuum.training.settings import PretrainSettings

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedTokenizerBase

IDENTITY = "residuum.json"  # beside the tokenizer: the settings and the text that it was trained with
LINES_AT_ONCE = 5000  # tokenized between two updates of the progress bar
REHEARSED_LINES = 2000  # lines per language, and pairs per source, that an estimate trains on
REHEARSED_SCORES = 64  # held-out lines and pairs that an estimate scores
SCORE_NAME = re.compile(r"(?P<score>perplexity|retrieval) (?P<subject>.+?)(?: layer (?P<layer>\d+))?")
PAIR_COUNTS = ("read", "kept", "blank", "too_long", "excluded", "held_out")


@dataclass(frozen=True, eq=False)
class Pretraining(Result):
    """A pretrained model on disk, its learning curve and its scores."""

    run: Run
    model: Path  # a plain `from_pretrained` folder

    @property
    def frame(self) -> pd.DataFrame:
        """The scores, as `scores` has them."""
        return self.run.tables["scores"]

    @property
    def history(self) -> pd.DataFrame:
        """The learning curve: one row every few steps."""
        return self.run.tables["history"]

    @property
    def scores(self) -> pd.DataFrame:
        """One row per evaluation, score, language or retrieval set, and layer (−1: no layer)."""
        return self.run.tables["scores"]

    def text(self) -> str:
        """The summary, the folder of the model, and the next command."""
        if not is_main_process():
            return ""
        lines = [f"{name}: {value:,}" for name, value in self.run.summary.items()]
        lines += [f"The model is in {self.model}."]
        return "\n".join([*lines, f"Next: residuum evaluate perplexity {self.model} TEXT --out OUT"])


@command(PretrainSettings, estimate=lambda settings: _estimate(settings))
def pretrain(settings: PretrainSettings) -> Pretraining:
    """Train a tokenizer and a language model from scratch, and write them to `out/model`.

    The same call resumes where a killed one stopped. `as_is` writes the model of the last checkpoint without further
    training; the run stays unfinished. Under `torchrun` the main process trains the tokenizer and writes the model;
    all processes train.
    """
    if settings.as_is and process_count() > 1:
        raise SettingError(f"as_is trains nothing, and {process_count()} processes were started; leave torchrun out.")
    check_hub(settings.push_to_hub)
    if settings.max_memory is not None:
        within(_estimate(settings), settings.max_memory)
    out = Path(settings.out)
    texts = read_texts(settings)
    config = {"settings": settings.identity(), "text": texts.fingerprint}
    if run := finished_run(out, "pretrain", config, fresh=settings.fresh):
        if is_main_process():
            discard_checkpoints(out)  # a kill may have come before
            push_to_hub(out / "model", settings.push_to_hub)
        return Pretraining(run, out / "model")
    tokenizer = _run_tokenizer(settings, texts, out)
    network = build_network(settings.network, tokenizer, settings.seed)
    if settings.as_is:
        reached = load_checkpoint(out, {"network": network})
        training = TrainingResult(reached.step, reached)
    else:
        training = _train(network, tokenizer, settings, texts, config)
    if is_main_process():
        run = _run(config, texts, network, training)
        _export(out / "model", network, tokenizer, settings)
        with whole_file(out / "model" / "README.md") as path:
            path.write_text(
                model_card(settings, texts, _parameter_count(network), training, out / "model"), encoding="utf-8"
            )
        if settings.as_is:
            return Pretraining(run, out / "model")
        write_run(out, run)
        discard_checkpoints(out)
        push_to_hub(out / "model", settings.push_to_hub)
    wait_for_others(settings.device)
    return Pretraining(read_run(out), out / "model")


def _run_tokenizer(settings: PretrainSettings, texts: PretrainingTexts, out: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of this run: an earlier one of the same settings and text, else a new one of the main process."""
    from transformers import AutoTokenizer

    folder = out / "tokenizer"
    identity = {
        **settings.tokenizer.identity(),
        "exponent": settings.exponent,
        "window": settings.network.window,
        "seed": settings.seed,
        "text": texts.fingerprint,
    }
    if is_main_process():
        if settings.fresh:
            remove_folder(folder)
        if not folder.exists():
            tokenizer = _new_tokenizer(settings, texts)
            with whole_folder(folder) as temporary:
                tokenizer.save_pretrained(temporary)
                write_json(temporary / IDENTITY, identity)
        elif not (folder / IDENTITY).exists() or read_json(folder / IDENTITY) != identity:
            raise StoreError(
                f"{folder} holds a tokenizer of other settings or another text; choose another folder or pass --fresh."
            )
    wait_for_others(settings.device)
    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # a damaged tokenizer raises undocumented errors of every kind
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ModelError(f"The tokenizer in {folder} cannot be read ({reason}); pass --fresh to start over.") from error


def _new_tokenizer(settings: PretrainSettings, texts: PretrainingTexts) -> PreTrainedTokenizerBase:
    return train_tokenizer(
        texts.sentences,
        pieces=settings.tokenizer.pieces,
        lines=settings.tokenizer.lines,
        exponent=settings.exponent,
        window=settings.network.window,
        seed=settings.seed,
        progress=settings.progress and is_main_process(),
    )


def _train(
    network: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    settings: PretrainSettings,
    texts: PretrainingTexts,
    config: dict[str, Any],
) -> TrainingResult:
    batches = _batches(tokenizer, settings, texts)
    network.train()
    return train(
        {"network": network},
        batches,
        lambda batch: losses_of(network, settings.objectives, batch),
        settings.training,
        settings.out,
        evaluate=_evaluation(network, tokenizer, settings, texts),
        config=config,
        device=settings.device,
        fresh=settings.fresh,
        progress=settings.progress,
    )


def _batches(tokenizer: PreTrainedTokenizerBase, settings: PretrainSettings, texts: PretrainingTexts) -> MixedBatches:
    """Batches of tokenized sentences and pairs, sampled by language and source."""
    chances = shares({name: len(rows) for name, rows in texts.sentences.items()}, settings.exponent)
    lines = sum(map(len, texts.sentences.values())) + 2 * sum(len(paired.sentences) for paired in texts.pairs)
    shown = settings.progress and is_main_process()
    with progress_bar(total=lines, desc="tokenize", unit=" lines", shown=shown, leave=False) as bar:
        sentences = [
            TokenSource([(ids,) for ids in encode_lines(tokenizer, rows, bar)], chances[name])
            for name, rows in texts.sentences.items()
        ]
        pairs = [
            TokenSource(
                encode_pairs(tokenizer, paired.sentences, bar),
                paired.weight * len(paired.sentences) ** settings.exponent,
            )
            for paired in texts.pairs
        ]
    return MixedBatches(settings.objectives, sentences, pairs, special_tokens(tokenizer), settings.seed)


def _evaluation(
    network: nn.Module, tokenizer: PreTrainedTokenizerBase, settings: PretrainSettings, texts: PretrainingTexts
) -> Callable[[int], dict[str, float]]:
    held_out = {
        name: [(ids,) for ids in encode_lines(tokenizer, rows)] for name, rows in texts.held_out.items() if rows
    }
    retrieval = {name: encode_pairs(tokenizer, rows) for name, rows in texts.retrieval.items()}
    return evaluation(network, held_out, retrieval, settings.objectives, special_tokens(tokenizer), settings.seed)


def encode_lines(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], bar: tqdm | None = None) -> list[Ids]:
    """The token ids of each line, without special tokens."""
    encoded: list[Ids] = []
    for start in range(0, len(texts), LINES_AT_ONCE):
        lines = list(texts[start : start + LINES_AT_ONCE])
        rows: Any = tokenizer(lines, add_special_tokens=False, return_attention_mask=False, verbose=False)
        encoded += [np.array(ids, np.int32) for ids in rows["input_ids"]]
        if bar is not None:
            bar.update(len(lines))
    return encoded


def encode_pairs(
    tokenizer: PreTrainedTokenizerBase, pairs: Sequence[tuple[str, str]], bar: tqdm | None = None
) -> list[tuple[Ids, Ids]]:
    """The token ids of both sides of each pair."""
    first, second = (encode_lines(tokenizer, [pair[side] for pair in pairs], bar) for side in (0, 1))
    return list(zip(first, second, strict=True))


def special_tokens(tokenizer: Any) -> SpecialTokens:
    """The ids of the special tokens, and the size of the vocabulary."""
    return SpecialTokens(
        begin=tokenizer.bos_token_id,
        end=tokenizer.eos_token_id,
        padding=tokenizer.pad_token_id,
        mask=tokenizer.mask_token_id,
        size=len(tokenizer),
    )


def _run(config: dict[str, Any], texts: PretrainingTexts, network: nn.Module, training: TrainingResult) -> Run:
    import pandas as pd

    scores = training.scores
    last = {} if scores.empty else {name: round(float(scores[name].iloc[-1]), 4) for name in scores if name != "step"}
    summary = {
        "parameters": _parameter_count(network),
        "steps": training.progress.step,
        "tokens": training.progress.tokens,
        "pairs excluded": sum(paired.excluded for paired in texts.pairs),
        "pairs in held-out text": sum(paired.held_out for paired in texts.pairs),
        **{name: value for name, value in last.items() if " layer " not in name},
    }
    pairs = pd.DataFrame(_pair_rows(texts), columns=["name", "languages", *PAIR_COUNTS])
    tables = {"history": training.history, "scores": _score_table(scores), "pairs": pairs}
    return Run(command="pretrain", config=config, summary=summary, tables=tables)


def _score_table(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per step, score, subject (a language or a retrieval set) and layer (−1: no layer)."""
    import pandas as pd

    named = [(name, match) for name in scores if (match := SCORE_NAME.fullmatch(str(name)))]
    rows = [
        (step, match["score"], match["subject"], int(match["layer"] or -1), float(scores[name].iloc[place]))
        for place, step in enumerate(scores["step"].tolist() if len(scores) else [])
        for name, match in named
    ]
    return pd.DataFrame(rows, columns=["step", "score", "subject", "layer", "value"])


def _pair_rows(texts: PretrainingTexts) -> list[tuple[Any, ...]]:
    """Name, languages and counts of each source of translations."""
    return [
        (p.name, "-".join(p.languages), p.read, len(p.sentences), p.blank, p.too_long, p.excluded, p.held_out)
        for p in texts.pairs
    ]


def _export(folder: Path, network: Any, tokenizer: PreTrainedTokenizerBase, settings: PretrainSettings) -> None:
    """Write a plain `from_pretrained` folder in the precision of the settings."""
    network.to(device="cpu", dtype=getattr(torch, settings.dtype)).eval()
    with files_for(folder) as temporary:
        network.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)


def _parameter_count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _estimate(settings: PretrainSettings) -> Cost:
    """Train the tokenizer, then time a few steps and scores of the real network on a sample of the text."""
    started = time.perf_counter()
    texts = read_texts(settings)
    reading = time.perf_counter() - started
    started = time.perf_counter()
    tokenizer = _new_tokenizer(settings, texts)
    learning = time.perf_counter() - started
    sample = _sampled(texts, max(REHEARSED_LINES, *(objective.batch for objective in settings.objectives)))
    network = build_network(settings.network, tokenizer, settings.seed).train()
    started = time.perf_counter()
    batches = _batches(tokenizer, replace(settings, progress=False), sample)
    splitting = time.perf_counter() - started
    rehearsal = rehearse(
        {"network": network},
        batches,
        lambda batch: losses_of(network, settings.objectives, batch),
        settings.training,
        device=settings.device,
    )
    scores = _evaluation(network, tokenizer, settings, sample)
    with evaluating([network]):
        seconds = timed(lambda: scores(0))
    lines, scored = _sizes(texts), _sizes(sample)
    scoring = seconds * lines["evaluation"] / max(1, scored["evaluation"])
    steps = (
        CostStep("reading", reading + splitting * lines["training"] / scored["training"]),
        CostStep("tokenizer", learning),
        training_step("training", rehearsal, settings.training, None, scoring),
    )
    what = f"{settings.name}: {lines['training']:,} lines, {_parameter_count(network):,} parameters"
    return Cost(what, steps)


def _sampled(texts: PretrainingTexts, most: int) -> PretrainingTexts:
    """Lines and pairs from all over the texts: at most `most` of each source, and fewer for scores."""

    def few(rows: list[Any], size: int) -> list[Any]:
        return [rows[i] for i in spread(len(rows), size)]

    return PretrainingTexts(
        sentences={name: few(rows, most) for name, rows in texts.sentences.items()},
        held_out={name: rows[:REHEARSED_SCORES] for name, rows in texts.held_out.items()},
        pairs=[replace(paired, sentences=few(paired.sentences, most)) for paired in texts.pairs],
        retrieval={name: rows[:REHEARSED_SCORES] for name, rows in texts.retrieval.items()},
    )


def _sizes(texts: PretrainingTexts) -> dict[str, int]:
    pairs = sum(len(paired.sentences) for paired in texts.pairs)
    return {
        "training": sum(map(len, texts.sentences.values())) + pairs,
        "evaluation": sum(map(len, (*texts.held_out.values(), *texts.retrieval.values()))),
    }


def model_card(
    settings: PretrainSettings, texts: PretrainingTexts, parameters: int, training: TrainingResult, folder: Path
) -> str:
    """The README.md of a pretrained model: data, licences, command, curve, scores."""
    size, reached = settings.network, training.progress
    kinds = ", ".join(
        f"{objective.kind}{'' if objective.layer is None else f' on layer {objective.layer}'} ({objective.share:g})"
        for objective in settings.objectives
    )
    summary = (
        f"{size.architecture}, {size.layers} layers × {size.hidden}, {parameters:,} parameters, pretrained from "
        f"scratch for {reached.step:,} steps ({reached.tokens:,} tokens). Objectives and their shares of the "
        f"batches: {kinds}."
    )
    rows = training.history.iloc[:: max(1, len(training.history) // 12)]  # about a dozen steps
    names = [str(name) for name in rows if name not in ("seconds", "gradient_norm")]
    curve = _table(names, [tuple(row[name] for name in names) for _, row in rows.iterrows()]) if names else ""
    last = [(str(name), values.iloc[-1]) for name, values in training.scores.items() if name != "step"]
    read = [(name, len(lines), len(texts.held_out[name])) for name, lines in texts.sentences.items()]
    tables = [_table(("language", "sentences", "held out"), read)]
    if texts.pairs:
        columns = ("translations", "languages", "read", "kept", "blank", "too long", "in a retrieval set")
        tables.append(_table((*columns, "in held-out text"), _pair_rows(texts)))
    sections = {
        "Data": "\n\n".join(tables),
        "Sources and licences": "\n".join(f"- {plain(source)}" for source in settings.sources),
        "Made with": f"    residuum pretrain --config CONFIG.yaml --out {plain(str(settings.out))}",
        "Curve": curve,
        "Scores": _table(("score", "value"), last) if last else "",
        "Limits": "A small model for trying out methods; it has read little and knows little.",
    }
    front = front_matter(folder, languages=list(settings.text), tags=["pretraining"])
    parts = [f"# {plain(settings.name)}", summary]
    parts += [f"## {title}\n\n{text}" for title, text in sections.items() if text]
    return front + "\n\n" + "\n\n".join(parts) + "\n"


def _table(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> str:
    """A Markdown table; NaN is an empty cell."""

    def cell(value: Any) -> str:
        if isinstance(value, str):
            return plain(value).replace("|", "\\|")
        if value != value:
            return ""
        return f"{int(value):,}" if value == int(value) and abs(value) >= 1 else f"{value:.4g}"

    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return "\n".join([*lines, *(f"| {' | '.join(map(cell, row))} |" for row in rows)])
