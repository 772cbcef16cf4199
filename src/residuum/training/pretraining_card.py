"""The card of a pretrained model: data, licences, command, curve, scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from residuum.training.pretraining_settings import PretrainConfig
from residuum.training.pretraining_texts import Texts

if TYPE_CHECKING:
    import pandas as pd

    from residuum.training import Training
    from residuum.training.processes import Progress


def card(config: PretrainConfig, texts: Texts, parameters: int, training: Training, command: str) -> str:
    """The README.md that goes with a model."""
    front = ["---", "library_name: transformers", "language:", *(f"- {name}" for name in config.text), "---"]
    sections = {
        "Data": _data(texts),
        "Sources and licences": "\n".join(f"- {source}" for source in config.sources),
        "Made with": f"    {command}",
        "Curve": _curve(training.history),
        "Scores": _scores(training.scores),
        "Limits": "A small model for trying methods out; it has read little and knows little.",
    }
    parts = [f"# {config.name}", _summary(config, parameters, training.progress)]
    parts += [f"## {title}\n\n{text}" for title, text in sections.items() if text]
    return "\n".join(front) + "\n\n" + "\n\n".join(parts) + "\n"


def _summary(config: PretrainConfig, parameters: int, reached: Progress) -> str:
    size = config.network
    kinds = ", ".join(
        f"{objective.kind}{'' if objective.layer is None else f' on layer {objective.layer}'} ({objective.share:g})"
        for objective in config.objectives
    )
    return (
        f"{size.architecture}, {size.layers} layers × {size.hidden}, {parameters:,} parameters, pretrained from "
        f"scratch for {reached.step:,} steps ({reached.tokens:,} tokens). Objectives and their shares of the "
        f"batches: {kinds}."
    )


def _data(texts: Texts) -> str:
    lines = ["| language | sentences | held out |", "|---|---|---|"]
    lines += [f"| {name} | {len(rows):,} | {len(texts.held_out[name]):,} |" for name, rows in texts.sentences.items()]
    if texts.pairs:
        lines += [
            "",
            "| translations | languages | read | kept | blank | too long | in a retrieval set | in held-out text |",
            "|" + "---|" * 8,
        ]
    lines += [
        f"| {pairs.name} | {'–'.join(pairs.languages)} | {pairs.read:,} | {len(pairs.sentences):,} | {pairs.blank:,} "
        f"| {pairs.too_long:,} | {pairs.excluded:,} | {pairs.held_out:,} |"
        for pairs in texts.pairs
    ]
    return "\n".join(lines)


def _curve(history: pd.DataFrame) -> str:
    """The losses at about a dozen steps."""
    if history.empty:
        return ""
    rows = history.iloc[:: max(1, len(history) // 12)]
    names = [name for name in rows if name not in ("seconds", "gradient_norm")]
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_number(row[name]) for name in names) + " |" for _, row in rows.iterrows()]
    return "\n".join(lines)


def _scores(scores: pd.DataFrame) -> str:
    if scores.empty:
        return ""
    last = scores.iloc[-1]
    names = [name for name in scores if name != "step"]
    return "\n".join(["| score | value |", "|---|---|", *(f"| {name} | {_number(last[name])} |" for name in names)])


def _number(value: float) -> str:
    if value != value:
        return ""
    return f"{int(value):,}" if value == int(value) and abs(value) >= 1 else f"{value:.4g}"
