"""The record of a transfer: its summary, its tables and the card (README.md) of the model that was written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from residuum.maths.layouts import NeuronLayout
from residuum.models.cards import CardScore, front_matter, pipeline_of, plain
from residuum.probing.baselines import baselines
from residuum.probing.examples import PARTS
from residuum.probing.probe_data import ProbeData
from residuum.probing.scores import ONE_SEED
from residuum.shrinking.classifier import classifier_bytes
from residuum.shrinking.measuring import Costs, network_bytes
from residuum.shrinking.selection import Candidate, Candidates
from residuum.storage.files import whole_file
from residuum.storage.results import Run

NAMES = {"layers": "LayerSelector", "clusters": "clustering", "neurons": "feature selection"}
COSTS = ("neurons", "parameters", "bytes", "ms")
SCORES = ("dev", "test", "low", "high")


@dataclass(frozen=True, eq=False)
class Chosen:
    """The candidates of each step, and which steps were asked for (the oracle is trained in any case)."""

    by_step: Mapping[str, Candidates]
    steps: tuple[str, ...]
    path: Candidates

    @property
    def oracle(self) -> Candidate:
        """All neurons of all layers."""
        return self.by_step["layers"].tried[-1]

    @property
    def last(self) -> Candidate:
        """What the last step chose: what is written."""
        return [*self.by_step.values()][-1].best

    @property
    def named(self) -> dict[str, Candidate]:
        """The oracle and what each step chose."""
        return {"oracle": self.oracle} | {NAMES[name]: self.by_step[name].best for name in NAMES if name in self.steps}


def transfer_run(
    config: dict[str, Any],
    data: ProbeData,
    chosen: Chosen,
    costs: Costs,
    measured: dict[str, Any],
    facts: dict[str, Any],
    seconds: Mapping[str, float],
    scores: Mapping[str, Sequence[float]],
) -> Run:
    """All that is kept of a transfer; `scores` are those of each step on test, one per seed.

    The score that speaks for all is that of the folder as it was written, with its own interval: a trimmed vocabulary
    reads unseen words in other pieces than the probes did.
    """
    layout, oracle, last = data.splits.layout, chosen.oracle, chosen.last
    # Costs were timed before, on other sentences; the whole model was timed again, beside the one that is written.
    pace = measured["ms of the whole model"] / costs[max(costs)]["ms"]
    costs = {layer: {**cost, "ms": pace * cost["ms"]} for layer, cost in costs.items()}
    steps = _steps_table(chosen, costs, measured, layout.n_neurons, scores, bool(config["trim"]))
    saved = steps.loc[steps["step"] == "as saved"].iloc[0]
    summary = {
        "task": config["task"],
        "metric": data.metric,
        "oracle": oracle.test,
        "score": measured["score"],
        "interval": measured["interval"],
        "share of oracle": share_of_oracle(measured["score"], oracle),
        "layers": last.layer,
        "neurons": last.n_neurons,
        "share of neurons": last.n_neurons / layout.n_neurons,
        "parameters": int(saved["parameters"]),
        "bytes": int(saved["bytes"]),
        **{key: value for key, value in measured.items() if key != "narrowed"},
        **facts,
        "sufficient": all(own.sufficient for own in chosen.by_step.values()),
        "baselines": baselines(data),
        "examples": {part: len(getattr(data.splits, part)) for part in PARTS},
    }
    summary["warnings"] = warnings_of(summary, chosen, config)
    tables = {
        "steps": steps,
        "curve": curve_table([*chosen.by_step.values(), chosen.path], costs),
        "neurons": neuron_table(last, layout),
        "costs": pd.DataFrame(list(costs.values())),
        "seconds": pd.DataFrame({"step": list(seconds), "seconds": list(seconds.values())}),
        "audit": data.splits.audit,
    }
    return Run("transfer", config, summary, tables)


def warnings_of(summary: Mapping[str, Any], chosen: Chosen, config: Mapping[str, Any]) -> list[str]:
    """What a user must know before the model is used, in plain sentences."""
    warnings, keep = [], config["keep"]
    rivals = {f"{name} baseline": value for name, value in summary["baselines"].items()}
    rivals |= {"random twin": summary["random twin"]} if "random twin" in summary else {}
    name, best = max(rivals.items(), key=lambda item: item[1], default=("", -np.inf))
    oracle = ("oracle (all neurons of all layers)", summary["oracle"], chosen.oracle.low)
    for what, score, low in (oracle, ("model", summary["score"], summary["interval"][0])):
        if low <= best:
            verdict = "does not beat" if score <= best else "is not clearly better than"
            warnings.append(
                f"Warning: the {what} scores {score:.3f} (95 % CI from {low:.3f}) and {verdict} the {name} "
                f"({best:.3f}).{' Do not use this model for the task.' if score <= best else ''}"
            )
    if not summary["sufficient"]:
        warnings.append(f"Warning: no smaller choice kept {keep:.1%} of the oracle's score on dev.")
    n_dev = summary["examples"]["dev"]
    if n_dev * (1 - keep) < 1:
        warnings.append(
            f"Warning: one of the {n_dev} dev examples is worth more than the allowed loss; choose more dev data."
        )
    if config["recipe"]["name"] == "PaperRecipe" and config["seeds"] == 1:
        warnings.append(ONE_SEED)
    return warnings + [step.note[0].upper() + step.note[1:] + "." for step in chosen.by_step.values() if step.note]


def kept_share(summary: Mapping[str, Any]) -> str:
    """The share of the oracle's score in words; nothing where the oracle scores 0, or may do so (a share below 0)."""
    share, (low, high) = summary["share of oracle"], summary["interval of the share"]
    if math.isnan(share) or low < 0:
        return ""
    return f", {share:.1%} of the oracle's {summary['oracle']:.4f} (95 % CI {low:.1%}–{high:.1%})"


def baseline_text(summary: Mapping[str, Any]) -> str:
    """The baselines and the random twin in words."""
    known = ", ".join(f"{name} {value:.4f}" for name, value in summary["baselines"].items())
    lines = [f"Baselines, which read no neuron: {known}."] if known else []
    if "random twin" in summary:
        twin = f"The random twin (same architecture, random weights) scores {summary['random twin']:.4f}"
        lines.append(f"{twin} with all of its neurons.")
    return " ".join(lines)


def _steps_table(
    chosen: Chosen,
    costs: Costs,
    measured: dict[str, Any],
    n_neurons: int,
    scores: Mapping[str, Sequence[float]],
    trimmed: bool,
) -> pd.DataFrame:
    """One row per step, one for what was written, and one for the narrowed network where it was measured."""
    oracle, unknown = chosen.oracle, float("nan")
    rows = []
    for name, own in chosen.named.items():
        sd = float(np.std(scores[name], ddof=1)) if len(scores[name]) > 1 else unknown
        mean = float(np.mean(scores[name]))
        rows.append({**step_row(name, own, oracle, costs, n_neurons), "mean": mean, "sd": sd})
    written = {
        "step": "as saved",
        "dev": unknown if trimmed else rows[-1]["dev"],
        "test": measured["score"],
        "low": measured["interval"][0],
        "high": measured["interval"][1],
        "share_of_oracle": share_of_oracle(measured["score"], oracle),
        "ms": measured["ms"],
        "mean": unknown,  # one classifier is written
        "sd": unknown,
    }
    rows.append({**rows[-1], **written})
    if "narrowed" in measured:
        own = measured["narrowed"]
        shares = {"share": own["neurons"] / n_neurons, "share_of_oracle": share_of_oracle(own["test"], oracle)}
        rows.append({"step": "narrowed", **own, **shares})
    return pd.DataFrame(rows)


def step_row(name: str, candidate: Candidate, oracle: Candidate, costs: Costs, n_neurons: int) -> dict[str, Any]:
    """One step as Dalvi et al. (2020), tables 9 and 10, have it; ms is that of so many layers and all their neurons."""
    cost = candidate_cost(candidate, costs)
    return {
        "step": name,
        "layer": candidate.layer,
        "neurons": candidate.n_neurons,
        "share": candidate.n_neurons / n_neurons,
        **{key: getattr(candidate, key) for key in SCORES},
        "share_of_oracle": share_of_oracle(candidate.test, oracle),
        "parameters": int(cost["parameters"]),
        "bytes": int(cost["bytes"]),
        "ms": cost["ms"],
    }


def share_of_oracle(score: float, oracle: Candidate) -> float:
    """What is kept of the score of all neurons; nothing can be said where that is 0."""
    return score / oracle.test if oracle.test else math.nan


def curve_table(steps: Sequence[Candidates], costs: Costs) -> pd.DataFrame:
    """Every candidate with its scores and costs; `front …` marks those that no other beats on dev at the same cost."""
    tables = []
    for step in steps:
        spent = [candidate_cost(candidate, costs) for candidate in step.tried]
        tables.append(step.table.assign(**{key: [c[key] for c in spent] for key in ("parameters", "bytes", "ms")}))
    table = pd.concat([own for own in tables if len(own)], ignore_index=True)
    table = table.loc[~table.duplicated(["layer", "neurons", "dev"])].reset_index(drop=True)
    for cost in COSTS:
        table[f"front {cost}"] = pareto_front(table[cost].to_numpy(), table["dev"].to_numpy())
    return table


def pareto_front(cost: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Which points no other point beats: none is as cheap and better, or cheaper and as good."""
    order = np.lexsort((-score, cost))
    front = np.zeros(len(cost), bool)
    best = -np.inf
    for place in order.tolist():
        if score[place] > best:
            front[place], best = True, score[place]
    return front


def candidate_cost(candidate: Candidate, costs: Costs) -> dict[str, float]:
    """The cost of a network up to the candidate's highest layer, and of its own classifier."""
    cost, n_rows = costs[candidate.layer], len(candidate.bias)
    return {
        "parameters": cost["parameters"] + n_rows * (candidate.n_neurons + 1),
        "bytes": network_bytes(cost, n_rows) + classifier_bytes(n_rows, candidate.n_neurons),
        "ms": cost["ms"],
    }


def neuron_table(chosen: Candidate, layout: NeuronLayout) -> pd.DataFrame:
    """The chosen neurons, the most important first."""
    ids = layout.format(chosen.order)
    layers, indices = zip(*(map(int, name.split(":")) for name in ids), strict=True)
    return pd.DataFrame({"rank": range(1, len(ids) + 1), "neuron": ids, "layer": layers, "index": indices})


def write_card(folder: Path, run: Run, source: str | None) -> None:
    """Write README.md beside the model, with the front matter that model hubs read; `source` is the whole model."""
    with whole_file(folder / "README.md") as path:
        path.write_text(card(folder, run, source), encoding="utf-8")


def card(folder: Path, run: Run, source: str | None) -> str:
    """The text of a card. Only a folder that `pipeline` reads claims one; others name their own loader."""
    config, summary = run.config, run.summary
    loads = config["save_as"] == "transformers"
    title = f"{plain(config['model'])}, reduced for {plain(summary['task'])}"
    data = plain(config["data"]["test"].rsplit(" ", 1)[0])
    measured = CardScore(str(summary["task"]), data, str(summary["metric"]), float(summary["score"]))
    tags, library = [f"task:{summary['task']}"], None if loads else "residuum"
    unseen = ", which splits words outside its vocabulary differently" if config["trim"] else ""
    seeds = f"Over seeds: mean and standard deviation on test of {config['seeds']} probes on the same neurons. "
    word = config["unit"] == "word"
    place = f"{config['pooling']} of its sub-words" if word else f"position {config['position']}"
    lines = [
        front_matter(folder, source, title=title, scores=[measured], tags=tags, library=library),
        "",
        f"# {title}",
        "",
        _what_it_is(run),
        "",
        "## Use",
        "",
        "```bash",
        f"residuum predict . < {'pairs.tsv' if config['pairs'] else 'texts.txt'}",
        "```",
        "",
        *_loading_lines(pipeline_of(folder) if loads else None),
        "",
        "## Scores",
        "",
        *_score_table(run),
        "",
        f"Chosen on the development part, reported on the test part: {summary['metric']}, with 95 % intervals over "
        f"sentences. The row *as saved* is this folder as it is{unseen}. {seeds if config['seeds'] > 1 else ''}"
        f"{baseline_text(summary)}",
        *(f"\n**{warning}**" for warning in summary["warnings"]),
        "",
        "## Cost",
        "",
        *_cost_lines(run),
        "",
        "## Data and settings",
        "",
        *(f"- {part}: {plain(config['data'][part].rsplit(' ', 1)[0])}, {count:,} {config['unit']}s"
          for part, count in summary["examples"].items()),
        *(f"- {plain(note)}" for note in config["notes"]),
        f"- steps: {', '.join(config['steps'])}; keep {config['keep']:g}; budget {config['budget'] or 'none'}",
        f"- random seed {config['seed']}",
        f"- a {config['unit']} is read at: {place}",
        "",
        "The licences are those of the model and the data that this was made from; look there before you share it.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _loading_lines(pipeline: str | None) -> list[str]:
    """How Python loads the folder."""
    if pipeline is not None:
        code = [f'classify = transformers.pipeline("{pipeline}", model=".")']
        note = "A word has the label of its first token." if "token" in pipeline else ""
        return ["```python", *code, "```", "", note]
    return [
        "```python",
        'predictor = residuum.FeatureTransfer.load(".")',
        "```",
        "",
        "`pipeline` does not read this folder. `AutoModel.from_pretrained` gives the network; `classifier.safetensors` "
        "holds `weight` and `bias`, and the `layers` and `indices` of the neurons of `hidden_states` that they read.",
    ]


def _what_it_is(run: Run) -> str:
    summary = run.summary
    return (
        f"The embeddings, {summary['layers']} of {summary['layers before']} layers above them, and a linear classifier "
        f"on {summary['neurons']:,} of their neurons, {summary['share of neurons']:.1%} of the whole model's "
        f"(LayerSelector and CCFS, Dalvi et al. 2020). It reaches {summary['metric']} {summary['score']:.4f} on test"
        f"{kept_share(summary)} (the oracle is a classifier on all neurons of all layers)."
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


def _cost_lines(run: Run) -> list[str]:
    summary = run.summary
    value, low, high = summary["speed-up"]
    own, own_low, own_high = summary["classifier speed-up"]
    lines = [
        f"- parameters: {summary['parameters']:,} (before: {summary['parameters before']:,})",
        f"- bytes of weights: {summary['bytes']:,}",
        f"- {summary['ms']:.2f} ms per text (whole model: {summary['ms of the whole model']:.2f}), text in and labels "
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
