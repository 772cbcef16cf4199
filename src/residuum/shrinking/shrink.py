"""`shrink`: a smaller model within a limit, in five steps: plan, cut, heal, verify, ship.

Each step is kept on disk, so that a killed run goes on where it stopped.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from xxhash import xxh3_64_hexdigest

from residuum.corpus import Corpus
from residuum.corpus.streams import text_fingerprint, text_lines
from residuum.corpus.tasks import named_task, read_task
from residuum.errors import CorpusError, ModelError, SettingError
from residuum.evaluation.pairs import SentencePairs, read_pairs
from residuum.models.cards import check_hub, push_to_hub, write_card
from residuum.models.loading import check_weights, resolve_device, weights_fingerprint
from residuum.models.sentences import lines_as_read, read_sentence_layout
from residuum.models.surgery import (
    attention_heads,
    check_elsewhere,
    check_written,
    feed_forward,
    layer_count,
    load_whole,
    model_blocks,
    save_whole,
    without_layers,
)
from residuum.models.vocabularies import count_pieces, cut_model, cut_vocabulary
from residuum.settings import command
from residuum.shrinking.compensation import FIT_LINES, fit_to_original
from residuum.shrinking.healing import heal
from residuum.shrinking.measuring import batch_reader, in_turns, measured_costs, retrieval_score, similarity_score
from residuum.shrinking.planning import Sample, Vectors, harm, has_language_head, spread_places
from residuum.shrinking.pruning import (
    EVERY,
    Depths,
    Lines,
    Measured,
    cut,
    depth_curve,
    layer_choices,
    stage_line,
    stage_row,
)
from residuum.shrinking.settings import ShrinkSettings
from residuum.storage.results import Result, Run, finished_run, finished_step, scratch, write_run

SHARES = (1.0, 0.75, 0.5, 0.25)
"""Shares of the feed-forward neurons that are planned with."""
PASSES = 3  # over the text, at most, that scoring blocks may cost
BAR = 20  # characters of a quality of 1
FEWEST_LINES, MOST_LINES = 16, 256
"""Lines on which candidates are scored."""


@dataclass(frozen=True, eq=False)
class Shrinking(Result):
    """A smaller model: its folder, the plan, and what it kept of the original."""

    folder: Path
    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """The original, the pruned and the healed model: quality, size, speed and memory."""
        return self.run.tables["stages"]

    @property
    def plan(self) -> pd.DataFrame:
        """Every candidate with its predicted quality, parameters and speed-up; the chosen one is marked."""
        return self.run.tables["plan"]

    def text(self) -> str:
        """A line per model, and where the smaller one is."""
        summary = self.run.summary
        lines = [stage_line(row) for row in self.frame.to_dict("records")]
        return "\n".join([
            *lines,
            f"Speed-up in batches of 32: {summary['speed-up'][0]:.2f} ({summary['speed-up'][1]:.2f} to "
            f"{summary['speed-up'][2]:.2f}). The model is in {self.folder}.",
        ])  # fmt: skip


@dataclass(frozen=True)
class Reduction:
    """One way to cut: the blocks that stay, the share of feed-forward neurons, and what is predicted of it."""

    layers: int
    kept: str
    ffn: float
    quality: float
    parameters: int
    speedup: float

    @property
    def kept_layers(self) -> list[int]:
        """The numbers of the blocks that stay."""
        return [int(layer) for layer in self.kept.split(",")]


@dataclass(frozen=True, eq=False)
class Original:
    """What is shrunk: the model as it was loaded, the same with its trimmed vocabulary, and the text in two parts."""

    settings: ShrinkSettings
    network: Any
    tokenizer: Any
    start: Any  # the network that is cut
    start_tokenizer: Any
    kept_ids: np.ndarray | None
    lines: Lines
    pairs: list[SentencePairs]
    task: Corpus | None  # pairs of sentences with their similarity, on which models are judged

    def sample(self, part: str, *, trimmed: bool = True, size: int = MOST_LINES) -> Sample:
        """A sample of one part of the text, as the original or the trimmed model reads it."""
        network, tokenizer = (self.start, self.start_tokenizer) if trimmed else (self.network, self.tokenizer)
        lines = self.lines.plan if part == "plan" else self.lines.held_out
        return Sample.of(network, tokenizer, lines, self.settings.model, size=size)


@command(ShrinkSettings)
def shrink(settings: ShrinkSettings) -> Shrinking:
    """Write a smaller model of the same architecture to `out`, healed by the original and measured against it.

    The plan chooses blocks and feed-forward neurons on a sample of `text`; what is left learns from the original on
    the text. Every fifth line is only used to judge. The folder loads as the original does.
    """
    if settings.task is not None and not named_task(settings.task).regression:
        raise SettingError(
            f"The task is {settings.task!r}; shrink judges pairs of sentences with a similarity, such as stsb. Use "
            "`probe` on the model that shrink wrote for other tasks."
        )
    out = Path(settings.out)
    check_elsewhere(settings.model, out)
    check_hub(settings.push_to_hub)
    check_weights([settings.model], settings.max_memory)
    network, tokenizer = load_whole(settings.model)
    given = settings.pairs
    pairs: list[SentencePairs] = read_pairs(given) if isinstance(given, str | Path) else list(given or ())
    task = None if settings.task is None else read_task(settings.task, settings.data).test
    if task is not None and task.pairs is None:
        raise CorpusError(
            f"{settings.data} has no second sentences for {settings.task}; expected columns sentence1, sentence2 and "
            "label (or score)."
        )
    config = _identity(settings, network, pairs, task)
    if run := finished_run(out, "shrink", config, fresh=settings.fresh):
        check_written(out)
        push_to_hub(out, settings.push_to_hub)
        return Shrinking(out, run)
    original = _prepared(settings, network, tokenizer, pairs, task)
    with scratch(out, config, fresh=settings.fresh) as space:
        settings.say("1 of 5: planning")
        plan = finished_step(space, "plan", lambda: make_plan(original))
        chosen = Reduction(**plan.summary["chosen"])
        settings.say(plan_text(plan) + "\n2 of 5: cutting")
        fitted = finished_step(space, "cut", lambda: _cut(original, chosen, space / "pruned"))
        small = load_whole(space / "pruned")[0].to(original.network.device)
        settings.say(f"3 of 5: healing, {settings.heal} steps")
        tables = plan.tables | fitted.tables
        if settings.heal:
            tables["healing"] = _heal(original, small, chosen, space)
        settings.say("4 of 5: verifying")
        verified = finished_step(space, "verified", lambda: verify(original, small, space / "pruned"))
        settings.say("5 of 5: writing")
        run = Run("shrink", config, _summary(original, chosen, verified), tables | verified.tables)
        _ship(original, small, run, out)
    write_run(out, run)
    push_to_hub(out, settings.push_to_hub)
    return Shrinking(out, run)


def _identity(
    settings: ShrinkSettings, network: Any, pairs: list[SentencePairs], task: Corpus | None
) -> dict[str, Any]:
    """What the numbers depend on: settings, and fingerprints of the model and of all that is read."""
    text, named = settings.text, isinstance(settings.text, str | Path)
    return {
        **settings.identity(),
        "model": str(settings.model),
        "files": weights_fingerprint(network),
        "texts": str(text) if named else "given",
        "fingerprints": text_fingerprint(text) if named else xxh3_64_hexdigest("\n".join(map(str, text)).encode()),
        "pairs": str(settings.pairs) if isinstance(settings.pairs, str | Path) else "given" if pairs else None,
        "pair_fingerprints": [own.fingerprint for own in pairs],
        "data": None if task is None else task.fingerprint,
    }


def _prepared(
    settings: ShrinkSettings, network: Any, tokenizer: Any, pairs: list[SentencePairs], task: Corpus | None
) -> Original:
    """Read the text, check the limits, and trim the vocabulary if that is wanted."""
    model_blocks(network)
    if settings.ffn is not None:
        feed_forward(network)
    if settings.heads is not None:
        attention_heads(network)
    if settings.layers is not None and settings.layers >= layer_count(network):
        raise SettingError(
            f"layers is {settings.layers}; the model has {layer_count(network)}, so the nearest limit is "
            f"--layers {layer_count(network) - 1}."
        )
    source = settings.text
    found = (line for _, line in text_lines(source)) if isinstance(source, str | Path) else map(str, source)
    lines = list(islice((line for line in found if line.strip()), settings.limit))
    if not lines:
        raise CorpusError(f"{source if isinstance(source, str | Path) else 'The text'} has no line; give some text.")
    start, start_tokenizer, kept_ids = network, tokenizer, None
    if settings.trim:
        texts = lines + [text for task in pairs for text in (*task.source, *task.target)]
        layout = read_sentence_layout(settings.model)
        prompts = [] if layout is None else layout.prompt_texts
        counts = count_pieces(tokenizer, lines_as_read(texts, layout))
        vocabulary = cut_vocabulary(tokenizer, counts, always=prompts)
        start, start_tokenizer = cut_model(network, vocabulary), vocabulary.tokenizer
        kept_ids = vocabulary.kept
    device: Any = resolve_device(settings.device)
    return Original(
        settings, network.to(device), tokenizer, copy.deepcopy(start).to(device), start_tokenizer, kept_ids,
        Lines.of(lines), pairs, task,
    )  # fmt: skip


def make_plan(original: Original) -> Run:
    """Score every depth and width, predict quality, size and speed of their combinations, and choose one."""
    settings, network = original.settings, original.start
    n_layers = layer_count(network)
    most = n_layers - settings.layers if settings.layers is not None else n_layers - 1
    size = sample_size(len(original.lines.plan), n_layers, most)
    sample = original.sample("plan", size=size)
    # The judge reads lines that the first sample does not hold, where there are enough.
    lines, seen = original.lines.plan, set(spread_places(len(original.lines.plan), sample.n_lines))
    others = [line for i, line in enumerate(lines) if i not in seen] or lines
    judge = Sample.of(network, original.start_tokenizer, others, settings.model, size=sample.n_lines)
    vectors = judge.vectors(network)
    depths, by = _depths(original, sample, judge, vectors, most)
    curve = depth_curve(network, depths, judge, vectors)
    whole = curve.to_dict("records")[0]
    curve["quality"] = _qualities(curve, judge, whole)
    widths = _widths(original, sample, judge, vectors, whole)
    candidates = _candidates(network, original, curve, widths)
    chosen = choose(candidates, settings, int(curve["parameters"].iloc[0]))
    table = pd.DataFrame([asdict(own) | {"chosen": own == chosen} for own in candidates])
    summary = {"chosen": asdict(chosen), "by": by, "lines": sample.n_lines}
    return Run("shrink plan", {}, summary, {"plan": table, "curve": curve, "widths": widths})


def plan_text(plan: Run) -> str:
    """The plan as a table: per depth and width, predicted quality (with its curve), parameters and speed-up."""
    table = plan.tables["plan"].sort_values(["parameters", "quality"], ascending=False)
    bars = ["█" * round(BAR * float(np.clip(own, 0, 1))) for own in table["quality"]]
    shown = table.assign(ffn=table["ffn"].map("{:.0%}".format))
    shown.insert(4, "curve", [bar.ljust(BAR, "·") for bar in bars])
    shown["chosen"] = ["←" if own else "" for own in table["chosen"]]
    shown["parameters"] = table["parameters"].map("{:,}".format)
    shown = shown.drop(columns="kept").rename(columns={"speedup": "speed-up", "ffn": "feed-forward"})
    kept = plan.summary["chosen"]["kept"]
    return f"{shown.to_string(index=False, float_format='{:.3f}'.format)}\nLayers that stay: {kept}."


def sample_size(n_lines: int, n_layers: int, n_dropped: int) -> int:
    """Lines on which all candidates can be scored within PASSES passes over the text."""
    passes = sum((n_layers - n) * (n_layers - n - 1) / n_layers for n in range(n_dropped)) + 2 * n_dropped + 2
    return int(np.clip(PASSES * n_lines / passes, FEWEST_LINES, MOST_LINES))


def _depths(original: Original, sample: Sample, other: Sample, vectors: Vectors, most: int) -> tuple[Depths, str]:
    """Which blocks stay at each depth: greedy, or by block influence where that keeps more on other lines."""
    settings, network = original.settings, original.start
    measure = "perplexity" if has_language_head(network) and sample.layout is None else "fidelity"
    lines = original.lines.plan
    words = [lines[place].split() for place in spread_places(len(lines), sample.n_lines)]
    measured = Measured(
        network, original.start_tokenizer, Corpus("lines", words), sample, sample.vectors(network), settings
    )
    if settings.by != "auto":
        again = settings.by in ("fidelity", "perplexity")
        return layer_choices(measured, settings.by, most, iterative=again)[0], settings.by
    greedy = layer_choices(measured, measure, most, iterative=True)[0]
    influence = layer_choices(measured, "influence", most, iterative=False)[0]

    def harm_without(kept: list[int]) -> float:
        with without_layers(network, kept):
            return harm(network, other, vectors, measure)

    best = {n: min(greedy[n], influence[n], key=harm_without) for n in range(1, most + 1)}
    return best, f"{measure} step by step, or influence"


def _qualities(frame: pd.DataFrame, judge: Sample, whole: Mapping[str, Any]) -> Any:
    """The perplexity of the whole model divided by that of a smaller one; of sentence encoders the fidelity."""
    if "perplexity" in frame and judge.layout is None:
        return whole["perplexity"] / frame["perplexity"]
    return frame["fidelity"]


def _widths(original: Original, sample: Sample, judge: Sample, vectors: Vectors, whole: dict[str, Any]) -> pd.DataFrame:
    """Quality and parameters at each share of the feed-forward neurons (and that of the heads), at full depth."""
    settings = original.settings
    shares = SHARES if settings.layers is None else (1.0,)
    shares = shares if settings.ffn is None else (1.0, settings.ffn)
    every, rows = list(range(1, int(whole["layers"]) + 1)), []
    for share in shares:
        if share == 1 and settings.heads is None:
            rows.append({**whole, "ffn": 1.0})
            continue
        narrow = copy.deepcopy(original.start)
        try:
            cut(narrow, every, sample, ffn=None if share == 1 else share, heads=settings.heads)
        except ModelError:  # an architecture whose neurons cannot be cut keeps them all
            break
        rows.append({**stage_row("", narrow, judge, vectors), "ffn": share})
    frame = pd.DataFrame(rows).drop(columns=["stage", "dropped", "kept", "quality"], errors="ignore")
    return frame.assign(quality=_qualities(frame, judge, whole))


def _candidates(network: Any, original: Original, curve: pd.DataFrame, widths: pd.DataFrame) -> list[Reduction]:
    """All depths with all widths: qualities multiply, parameters are counted, times are interpolated."""
    n_layers, whole = int(curve["layers"].iloc[0]), int(curve["parameters"].iloc[0])
    times = _times(original, curve)
    rows = []
    for depth in curve.to_dict("records"):
        for width in widths.to_dict("records"):
            layers, saved = int(depth["layers"]), whole - int(width["parameters"])
            seconds = times[0] + layers * (times[1] - (1 - width["ffn"]) * times[2])
            rows.append(
                Reduction(
                    layers, str(depth["kept"]), float(width["ffn"]), float(depth["quality"] * width["quality"]),
                    int(depth["parameters"]) - saved * layers // n_layers,
                    float((times[0] + n_layers * times[1]) / seconds),
                )
            )  # fmt: skip
    wanted = original.settings.ffn
    rows = [row for row in rows if wanted is None or row.ffn == wanted]
    return [row for row in rows if row.parameters < whole]


def _times(original: Original, curve: pd.DataFrame) -> tuple[float, float, float]:
    """Seconds of what surrounds the blocks, of a block, and of all its feed-forward neurons (by their share)."""
    network, lines = original.start, original.lines.plan[:32]
    read = batch_reader(network, original.start_tokenizer, lines, len(lines))

    def shallow() -> None:
        with without_layers(network, [1]):
            read()

    n_layers = int(curve["layers"].iloc[0])
    whole, one = in_turns(read, shallow, repeats=3).min(axis=0)
    block = max((whole - one) / max(n_layers - 1, 1), 1e-9)
    matrices = [p for p in model_blocks(network)[0].parameters() if p.dim() == 2]
    hidden = network.config.hidden_size
    inner = sum(p.numel() for p in matrices if max(p.shape) > 1.5 * hidden and min(p.shape) == hidden)
    return max(one - block, 0.0), block, block * inner / max(sum(p.numel() for p in matrices), 1)


def choose(candidates: list[Reduction], settings: ShrinkSettings, whole: int) -> Reduction:
    """The best candidate within the limit; a SettingError that names the nearest where there is none."""
    if settings.layers is not None:
        return next(own for own in candidates if own.layers == settings.layers)
    if settings.parameters is not None:
        if settings.parameters >= whole:
            raise SettingError(f"The model has {whole:,} parameters already; give a limit below that.")
        fitting = [own for own in candidates if own.parameters <= settings.parameters]
        nearest = min(candidates, key=lambda own: own.parameters)
        found = f"{settings.parameters:,} parameters", f"--parameters {nearest.parameters}"
    elif settings.speedup is not None:
        fitting = [own for own in candidates if own.speedup >= settings.speedup]
        nearest = max(candidates, key=lambda own: own.speedup)
        found = f"A speed-up of {settings.speedup:g}", f"--speedup {np.floor(nearest.speedup * 100) / 100:g}"
    else:
        assert settings.keep is not None
        fitting = [own for own in candidates if own.quality >= settings.keep]
        nearest = max(candidates, key=lambda own: own.quality)
        found = f"{settings.keep:g} of the quality", f"--keep {np.floor(nearest.quality * 1000) / 1000:g}"
        if fitting:
            return min(fitting, key=lambda own: (own.parameters, -own.quality))
    if not fitting:
        raise SettingError(
            f"{found[0]} cannot be reached; the nearest is {found[1]} ({nearest.layers} layers, {nearest.ffn:.0%} of "
            f"the feed-forward neurons, {nearest.parameters:,} parameters)."
        )
    return max(fitting, key=lambda own: own.quality)


def _cut(original: Original, chosen: Reduction, folder: Path) -> Run:
    """Write the smaller network before healing to `folder`; returns what its maps miss of the original's states."""
    settings, network = original.settings, copy.deepcopy(original.start)
    kept, ffn = chosen.kept_layers, None if chosen.ffn == 1 else chosen.ffn
    cut(network, kept, original.sample("plan"), merge=settings.merge, ffn=ffn, heads=settings.heads)
    fitted = pd.DataFrame()
    if settings.compensate:
        fitted = fit_to_original(network, original.start, kept, original.sample("plan", size=FIT_LINES))
    save_whole(network.cpu(), original.start_tokenizer, folder, source=settings.model)
    return Run("shrink cut", {}, {}, {"compensation": fitted} if len(fitted) else {})


def _heal(original: Original, small: Any, chosen: Reduction, space: Path) -> pd.DataFrame:
    """Teach the smaller network what the original gives; four of five pairs are used, as of the lines."""
    kept_ids = None if original.kept_ids is None else torch.from_numpy(original.kept_ids).to(small.device)
    pairs = [pair for task in _pairs(original, judged=False) for pair in zip(task.source, task.target, strict=True)]
    return heal(
        small, original.start_tokenizer, original.network, original.lines.plan, original.settings, space,
        kept=chosen.kept_layers, pairs=pairs, kept_ids=kept_ids, teacher_tokenizer=original.tokenizer,
    )  # fmt: skip


def _pairs(original: Original, *, judged: bool) -> list[SentencePairs]:
    """Every fifth translation is held out."""

    def part(texts: list[str]) -> list[str]:
        return [text for i, text in enumerate(texts) if (i % EVERY == 0) == judged]

    return [replace(task, source=part(task.source), target=part(task.target)) for task in original.pairs]


def verify(original: Original, small: Any, pruned: Path) -> Run:
    """Measure the original, the pruned and the healed model on what none of them was planned or healed with."""
    settings, tokenizer = original.settings, original.start_tokenizer
    layout = read_sentence_layout(settings.model)
    first = original.sample("held_out", trimmed=False)
    judge = original.sample("held_out")
    vectors = first.vectors(original.network)
    before = load_whole(pruned)[0].to(original.network.device)
    models = [("original", original.network, original.tokenizer, first), ("pruned", before, tokenizer, judge)]
    models += [("healed", small, tokenizer, judge)] if settings.heal else []
    rows = []
    for stage, network, own, sample in models:
        row = stage_row(stage, network, sample, vectors)
        if original.task is not None:
            row |= similarity_score(network, own, str(settings.task), original.task, layout, settings.seed)
        if original.pairs:
            row |= retrieval_score(network, own, _pairs(original, judged=True), layout)
        rows.append(row)
    costs = measured_costs(original.network, small, (original.tokenizer, tokenizer), original.lines.held_out)
    for row in rows:
        row |= costs[row["stage"] != "original"]
    return Run("shrink verification", {}, {}, {"stages": pd.DataFrame(rows)})


def _summary(original: Original, chosen: Reduction, verified: Run) -> dict[str, Any]:
    stages = verified.tables["stages"]
    first, last = stages.iloc[0], stages.iloc[-1]
    summary: dict[str, Any] = {
        "layers": layer_count(original.network),
        "kept": chosen.kept_layers,
        "feed-forward": chosen.ffn,
        "parameters before": int(first["parameters"]),
        "parameters after": int(last["parameters"]),
        "fidelity": float(last["fidelity"]),
        "speed-up": [float(last[name]) for name in ("speedup_32", "speedup_32_low", "speedup_32_high")],
        "held out": original.lines.plan is not original.lines.held_out,
    }
    if original.kept_ids is not None:
        summary |= {"pieces before": len(original.tokenizer), "pieces after": len(original.kept_ids)}
    for name in ("perplexity", "retrieval", original.settings.task):
        if name is not None and name in stages:
            summary[name] = float(last[name])
            summary[f"{name} before"] = float(first[name])
    return summary


def _ship(original: Original, small: Any, run: Run, out: Path) -> None:
    """Write the model, its card, and the ONNX graph if it is wanted."""
    save_whole(small.cpu(), original.start_tokenizer, out, source=original.settings.model)
    if original.settings.onnx:
        from residuum.models.onnx_graphs import write_states_graph

        run.summary["largest difference of ONNX"] = write_states_graph(small, original.start_tokenizer, out)
    title = f"{Path(run.config['model']).name}, shrunk"
    write_card(out, title, card_sections(run), source=original.settings.model, tags=["pruning", "distillation"])


def card_sections(run: Run) -> dict[str, str]:
    """What the card says: what was cut, what it kept, and how it was made."""
    summary, stages = run.summary, run.tables["stages"]
    names = ["layers", "parameters", "fidelity", "perplexity", "retrieval", run.config["task"], "ms_1", "ms_32"]
    names = [name for name in names if name in stages]
    rows = [f"| | {' | '.join(map(str, names))} |", "|---" * (len(names) + 1) + "|"]
    for row in stages.to_dict("records"):
        cells = []
        for name in names:
            value = f"{row[name]:,}" if name in ("layers", "parameters") else f"{row[name]:.4g}"
            low, high = (row.get(f"{name}_{end}", np.nan) for end in ("low", "high"))
            cells.append(value if not np.isfinite(low) else f"{value} ({low:.4g}–{high:.4g})")
        rows.append(f"| {row['stage']} | {' | '.join(cells)} |")
    value, low, high = summary["speed-up"]
    kept = ", ".join(map(str, summary["kept"]))
    what = (
        f"Layers {kept} of {summary['layers']} and {summary['feed-forward']:.0%} of the feed-forward neurons: "
        f"{summary['parameters after']:,} of {summary['parameters before']:,} parameters, {value:.2f} times as fast in "
        f"batches of 32 ({low:.2f}–{high:.2f})."
    )
    measures = (
        "Fidelity is the mean cosine between the sentence vectors of both models, less the original's mean vector; ms "
        "are milliseconds per text in batches of 1 and 32. Intervals are 95 %, over lines that "
        + ("neither planning nor healing read." if summary["held out"] else "planning and healing read, too: too few.")
    )
    healed = f"Healed for {run.config['heal']} steps by the original on plain text; random seed {run.config['seed']}."
    return {"": what, "What it kept": "\n".join([*rows, "", measures]), "How": healed}
