"""The card of a fine-tuned model: a README.md with what it learnt, how, and how well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from residuum.storage.files import whole_file
from residuum.storage.results import Run

_PIPELINES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "tagging": "token-classification",
}
_SETTINGS = (
    "epochs",
    "batch_size",
    "accumulation",
    "by_length",
    "learning_rate",
    "schedule",
    "warmup",
    "weight_decay",
    "clip",
    "precision",
    "max_length",
)


def write_card(folder: Path, run: Run) -> None:
    """Write README.md beside the model, with the front matter that model hubs read."""
    with whole_file(folder / "README.md") as path:
        path.write_text(card(run), encoding="utf-8")


def card(run: Run) -> str:
    """The text of a card."""
    config, summary = run.config, run.summary
    model = Path(config["model"]).name
    lines = [
        "---",
        yaml.safe_dump(_front_matter(run), sort_keys=False, allow_unicode=True).strip(),
        "---",
        "",
        f"# {model}, fine-tuned on {summary['task']}",
        "",
        f"{_what_was_done(config, summary)} Best development score at step {summary['best step']} of "
        f"{summary['steps']}; seed {config['seeds'][0]}.",
        "",
        "| part | examples | " + " | ".join(_metrics(run)) + " |",
        "|---" * (2 + len(_metrics(run))) + "|",
        *(_score_row(run, part) for part in ("dev", "test")),
        "",
        *_baseline_line(summary),
        "## Data",
        "",
        *(f"- {part}: {config['data'][part].rsplit(' ', 1)[0]}" for part in ("train", "dev", "test")),
        *(f"- {note}" for note in summary["notes"]),
        f"- sentences that could not be read whole: {sum(summary['cut short'].values()):,}",
        "",
        "The data's licence is that of its source; look there before you share this model.",
        "",
        "## Training",
        "",
        *(f"- {key.replace('_', ' ')}: {config[key]}" for key in _SETTINGS),
        f"- parameters: {summary['parameters']:,}, of which {summary['parameters trained']:,} were trained",
        "",
        "The learning curves are in `history.csv` and `curves.csv`.",
        "",
    ]
    return "\n".join(lines)


def _front_matter(run: Run) -> dict[str, Any]:
    matter: dict[str, Any] = {"library_name": "transformers", "tags": ["residuum", f"task:{run.summary['task']}"]}
    if not Path(run.config["model"]).exists():  # a name on a hub, where a folder of one's own is nothing to others
        matter["base_model"] = run.config["model"]
    if pipeline := _PIPELINES.get(run.summary["kind"]):
        matter["pipeline_tag"] = pipeline
    return matter


def _what_was_done(config: dict[str, Any], summary: dict[str, Any]) -> str:
    dropped = f" Layers dropped first: {config['drop']}." if config["drop"] else ""
    frozen = f" Frozen: {config['freeze']}." if config["freeze"] else ""
    return f"A model of {summary['layers']} layers for {summary['kind']}.{dropped}{frozen}"


def _metrics(run: Run) -> list[str]:
    return list(run.tables["scores"]["metric"].unique())


def _score_row(run: Run, part: str) -> str:
    scores = run.tables["scores"]
    own = scores.loc[scores["part"] == part].set_index("metric")["value"]
    values = " | ".join(f"{own[metric]:.4f}" for metric in _metrics(run))
    return f"| {part} | {run.summary['examples'][part]:,} | {values} |"


def _baseline_line(summary: dict[str, Any]) -> list[str]:
    found = summary.get("test majority accuracy")
    return [] if found is None else [f"Always answering the most frequent label: accuracy {found:.4f} on test.", ""]
