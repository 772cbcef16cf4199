"""The card of a transferred model: a README.md with what it does, how well, how fast, and how to use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from residuum.storage.files import whole_file
from residuum.storage.results import Run

_PIPELINES = {"word": "token-classification", "sentence": "text-classification"}


def write_card(folder: Path, run: Run) -> None:
    """Write README.md beside the model, with the front matter that model hubs read."""
    with whole_file(folder / "README.md") as path:
        path.write_text(card(run), encoding="utf-8")


def card(run: Run) -> str:
    """The text of a card."""
    config, summary = run.config, run.summary
    lines = [
        "---",
        yaml.safe_dump(_front_matter(run), sort_keys=False, allow_unicode=True).strip(),
        "---",
        "",
        f"# {config['model']}, cut down to {summary['task']}",
        "",
        _what_it_is(run),
        "",
        "## Use",
        "",
        "```bash",
        f"residuum predict . < {'pairs.tsv' if config['pairs'] else 'texts.txt'}",
        "```",
        "",
        "The model is plain: `AutoModel.from_pretrained` reads it. `classifier.safetensors` holds `weight` and `bias`, "
        "and the `layers` and `indices` of the neurons of `hidden_states` that they multiply, in that order.",
        "",
        "## Scores",
        "",
        *_score_table(run),
        "",
        f"Chosen on the development part, reported on the test part: {summary['metric']}, with 95 % intervals over "
        f"sentences. The row *as saved* is this folder as it is{_unseen(config)}. {_seeds(config)}"
        f"{_baselines(summary)}",
        "",
        "## Cost",
        "",
        *_cost_lines(run),
        "",
        "## Data and settings",
        "",
        *(f"- {part}: {config['data'][part].rsplit(' ', 1)[0]}, {count:,} {config['unit']}s"
          for part, count in summary["examples"].items()),
        *(f"- {note}" for note in config["notes"]),
        f"- steps: {', '.join(config['steps'])}; {_limits(config)}; seed {config['seed']}",
        f"- a {config['unit']} is read at: {_place(config)}",
        "",
        "The licences are those of the model and the data that this was made from; look there before you share it.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _front_matter(run: Run) -> dict[str, Any]:
    return {
        "library_name": "transformers",
        "pipeline_tag": _PIPELINES[run.config["unit"]],
        "tags": ["residuum", f"task:{run.summary['task']}"],
    }


def _what_it_is(run: Run) -> str:
    summary = run.summary
    return (
        f"The embeddings, {summary['layers']} of {summary['layers before']} layers above them, and a linear classifier "
        f"on {summary['neurons']:,} of their neurons, {summary['share of neurons']:.1%} of the whole model's "
        f"(LayerSelector and CCFS, Dalvi et al. 2020). It keeps {summary['share of oracle']:.1%} of the "
        f"{summary['metric']} of a classifier on all neurons of all layers."
    )


def _score_table(run: Run) -> list[str]:
    rows = run.tables["steps"].to_dict("records")
    lines = ["| | layers | neurons | dev | test | interval | over seeds | parameters | bytes |", "|---" * 9 + "|"]
    for row in rows:
        dev = "" if row["dev"] != row["dev"] else f"{row['dev']:.4f}"
        seeds = "" if row["sd"] != row["sd"] else f"{row['mean']:.4f} ± {row['sd']:.4f}"
        lines.append(
            f"| {row['step']} | {row['layer']} | {row['neurons']:,} | {dev} | {row['test']:.4f} | "
            f"{row['low']:.4f}–{row['high']:.4f} | {seeds} | {row['parameters']:,} | {row['bytes']:,} |"
        )
    return lines


def _unseen(config: dict[str, Any]) -> str:
    return ", which splits words outside its vocabulary in another way" if config["trim"] else ""


def _seeds(config: dict[str, Any]) -> str:
    if config["seeds"] == 1:
        return ""
    return f"Over seeds: mean and standard deviation on test of {config['seeds']} probes on the same neurons. "


def _baselines(summary: dict[str, Any]) -> str:
    known = [f"{name} {value:.4f}" for name, value in summary["baselines"].items()]
    return f"Without looking at any neuron: {', '.join(known)}." if known else ""


def _cost_lines(run: Run) -> list[str]:
    summary = run.summary
    value, low, high = summary["speed-up"]
    own, own_low, own_high = summary["classifier speed-up"]
    lines = [
        f"- parameters: {summary['parameters']:,} (before: {summary['parameters before']:,})",
        f"- bytes of weights: {summary['bytes']:,}",
        f"- {summary['ms']:.2f} ms a text (whole model: {summary['ms of the whole model']:.2f}), text in and labels "
        f"out, in batches of 32, over {summary['timed sentences']} texts",
        f"- {value:.1f} times faster than the whole model with a classifier on all neurons ({low:.1f}–{high:.1f}); the "
        f"classifier alone {own:.1f} times ({own_low:.1f}–{own_high:.1f})",
    ]
    if "pieces" in summary:
        lines.append(
            f"- vocabulary: {summary['pieces']:,} of {summary['pieces before']:,} pieces, those of the training and "
            f"development texts; other words are split into smaller kept pieces, and characters without one become "
            f"{summary['characters without a piece become']}"
        )
    if "narrowing" in summary:
        lines.append(f"- narrowed for comparison, not saved: {summary['narrowing']}")
    if "largest difference of ONNX" in summary:
        lines.append(f"- `model.onnx` differs from the network by {summary['largest difference of ONNX']:.0e} at most")
    return lines


def _limits(config: dict[str, Any]) -> str:
    losses = f"loss of layers {config['layer_loss']:g}, of neurons {config['neuron_loss']:g}"
    return losses if config["budget"] is None else f"{losses}, budget {config['budget']}"


def _place(config: dict[str, Any]) -> str:
    return f"{config['pooling']} of its sub-words" if config["unit"] == "word" else f"position {config['position']}"
