"""`finetune`: a pretrained model learns a task, whole or in part, from one random seed or several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from residuum.corpus.tasks import Task, TaskCorpora, named_task, read_task, unseen_notes
from residuum.errors import MemoryLimitError, SettingError
from residuum.models.cards import CardScore, check_hub, front_matter, plain, push_each
from residuum.models.loading import check_weights, from_transformers, resolve_device, tensors_fingerprint
from residuum.models.surgery import (
    check_elsewhere,
    check_written,
    files_fingerprint,
    keep_layers,
    kept_layers,
    layer_count,
    save_whole,
)
from residuum.settings import command
from residuum.storage.files import remove_folder, whole_file
from residuum.storage.results import Result, Run, finished_run, read_run, write_run
from residuum.training.checkpoints import discard_checkpoints, load_checkpoint
from residuum.training.encoding import (
    Batch,
    Collator,
    EncodedSplit,
    ExampleEncoder,
    Problem,
    pad_id,
    padded_inputs,
    problem_of,
)
from residuum.training.learning import TrainingData, learn, score_split
from residuum.training.loop import MOMENTS, TrainingResult
from residuum.training.networks import (
    SplitNetwork,
    StateCache,
    after_attention,
    apply_frozen,
    fill_cache,
    first_token_only,
    load_with_head,
    parse_frozen,
    takes_types,
)
from residuum.training.processes import is_main_process, process_count, wait_for_others
from residuum.training.settings import FinetuneSettings

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CACHE = "cache"  # the folder of states that do not fit into memory
CARD_SETTINGS = ("epochs", "batch_size", "accumulation", "by_length", "learning_rate", "schedule", "warmup")
CARD_SETTINGS += ("weight_decay", "clip", "precision", "max_length")

States = dict[str, StateCache]  # by the weights of the frozen bottom and the split


@dataclass(frozen=True, eq=False)
class Finetuning(Result):
    """Models that learnt a task: their folders, one per seed, and their scores."""

    folders: list[Path]
    run: Run

    @property
    def frame(self) -> pd.DataFrame:
        """The scores, as `scores` has them."""
        return self.run.tables["scores"]

    @property
    def scores(self) -> pd.DataFrame:
        """seed, part, metric, value, baseline: the best checkpoint of each seed on the development and test parts."""
        return self.run.tables["scores"]

    @property
    def curves(self) -> pd.DataFrame:
        """seed, step, epoch, metric, value: the development scores during training."""
        return self.run.tables["curves"]

    @property
    def history(self) -> pd.DataFrame:
        """seed, step, loss, learning_rate, …: the history of the training loop."""
        return self.run.tables["history"]

    def text(self) -> str:
        """The scores beside the baseline, the answer in one sentence, and the next command."""
        if not is_main_process():
            return ""
        summary, metric = self.run.summary, self.run.summary["metric"]
        seeds = self.run.config["seeds"]
        lines = []
        for row in self.scores.loc[self.scores["metric"] == metric].to_dict("records"):
            lines.append(
                f"seed {row['seed']}, {row['part']}: {metric} {row['value']:.4f}, baseline {row['baseline']:.4f}"
            )
        score, baseline = summary[f"test {metric}"], summary[f"test {metric} baseline"]
        spread = summary.get(f"test {metric} deviation")
        over = "1 seed" if spread is None else f"mean of {len(seeds)} seeds, standard deviation {spread:.4f}"
        constant = "the mean" if summary["kind"] == "regression" else "the most frequent label"
        better = score < baseline if metric == "mean_squared_error" else score > baseline
        source = self.run.config["model"]
        answer = (
            f"Fine-tuned on {summary['task']}, {Path(source).name} has a test {metric} of {score:.4f} ({over}), "
            f"{abs(score - baseline):.4f} {'better' if better else 'worse'} than always answering {constant} "
            f"({baseline:.4f})."
        )
        folders = ", ".join(map(str, self.folders))
        follow_up = f"residuum diff before={source} after={self.folders[0]} --corpus CORPUS --out OUT"
        return "\n".join([*lines, answer, f"The model is in {folders}.", f"Next: {follow_up}"])


@command(FinetuneSettings)
def finetune(settings: FinetuneSettings) -> Finetuning:
    """Fine-tune a model on a task and write it as a folder that `from_pretrained` reads.

    `data` is a corpus, a folder of splits, a file or a hub name; GLUE tasks are read from the hub without it. `drop`
    removes layers before training; `freeze` keeps layers from learning (`bottom:6` freezes the embeddings too). Layers
    below everything that learns never run backwards, and with `cache` their outputs are computed once for all seeds.
    Several seeds have one folder `seed-N` each. The checkpoint with the best development score is kept.
    """
    check_hub(settings.push_to_hub)
    check_weights([settings.model], settings.max_memory)
    task, seeds, out = named_task(settings.task), settings.chosen_seeds(), Path(settings.out)
    source = settings.data if settings.data is not None else task.hub
    if source is None:
        raise SettingError(
            f"The task {task.name!r} has no data of its own; pass a corpus, a folder, a file or a hub name."
        )
    options: dict[str, Any] = {name: getattr(settings, name) for name in ("dev", "test", "limit", "seed")}
    corpora = source
    if not isinstance(corpora, TaskCorpora):
        corpora = read_task(task, corpora, **options, **settings.table)
    fingerprints = {part: f"{corpus.name} {corpus.fingerprint}" for part, corpus in corpora.items()}
    config = {  # everything that the result depends on
        "model": str(settings.model),
        "files": files_fingerprint(settings.model),
        "task": task.name,
        **{name: getattr(task, name) for name in ("label", "unit", "metric", "positive", "regression")},
        **settings.identity(),
        "data": {**fingerprints, "notes": list(corpora.notes)},
        "seeds": seeds,
    }
    check_elsewhere(settings.model, out)
    folders = [out] if len(seeds) == 1 else [out / f"seed-{seed}" for seed in seeds]
    if run := finished_run(out, "finetune", config, fresh=settings.fresh):
        _discard_intermediates(out)
        check_written(*folders)
    else:
        run = _finetuned(settings, task, corpora, out, folders, config)
    if is_main_process():
        push_each(folders, settings.push_to_hub)
    return Finetuning(folders, run)


def _finetuned(
    settings: FinetuneSettings, task: Task, corpora: TaskCorpora, out: Path, folders: list[Path], config: dict[str, Any]
) -> Run:
    """Fine-tune from every seed; the run of one seed, or all of them joined."""
    if settings.fresh and is_main_process():
        # Discard all earlier models at once, so that a kill leaves no mixture of two runs or of other seeds.
        for folder in folders:
            (folder / "result.json").unlink(missing_ok=True)
        for place in set(out.glob("seed-*")) - set(folders):
            if (place / "model.safetensors").exists():
                remove_folder(place)
        if folders != [out]:
            for file in (*out.glob("*.safetensors"), out / "README.md"):
                file.unlink(missing_ok=True)
    runs: list[Run] = []
    states: States = {}
    for seed, folder in zip(settings.chosen_seeds(), folders, strict=True):
        seed_config = {**config, "seeds": [seed]}
        if run := finished_run(folder, "finetune", seed_config, fresh=settings.fresh):
            _discard_intermediates(folder)
            check_written(folder)
        runs.append(run or finetune_seed(settings, task, corpora, folder, seed, seed_config, states))
    if len(runs) == 1:
        return runs[0]
    run = _joined(runs, config)
    if is_main_process():
        write_run(out, run)
    return run


def _discard_intermediates(out: Path) -> None:
    """Remove the cache and the checkpoints of a finished model; a kill may have come before."""
    if is_main_process() and (out / "model.safetensors").exists():
        remove_folder(out / CACHE)
        discard_checkpoints(out)


def _joined(runs: list[Run], config: dict[str, Any]) -> Run:
    """All seeds in one run: concatenated tables, and mean and standard deviation of the scores."""
    import pandas as pd

    tables = {name: pd.concat([run.tables[name] for run in runs], ignore_index=True) for name in runs[0].tables}
    scores = tables["scores"]
    summary = {key: value for key, value in runs[0].summary.items() if key not in scores["metric"].unique()}
    main = runs[0].summary["metric"]
    for part in ("dev", "test"):
        values = scores.loc[(scores["part"] == part) & (scores["metric"] == main), "value"].to_numpy(dtype=float)
        summary[f"{part} {main}"] = float(values.mean())
        summary[f"{part} {main} deviation"] = float(np.std(values, ddof=1))
    summary["seconds"] = sum(run.summary["seconds"] for run in runs)
    summary["best step"] = [run.summary["best step"] for run in runs]
    return Run(command="finetune", config=config, summary=summary, tables=tables)


@dataclass(frozen=True, eq=False)
class FinetuningModel:
    """The network that learns, cut above its frozen bottom; `split` is None if nothing can be cached.

    `narrow` is the part of its last block that needs the first token only.
    """

    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    problem: Problem
    split: SplitNetwork | None
    narrow: nn.Module | None
    fingerprint: str
    window: int | None

    def logits(self, batch: Batch) -> Tensor:
        """The logits of a batch: from the states of the frozen bottom if it has them, else from the tokens."""
        with first_token_only(self.narrow):
            if "states" not in batch:
                return self.network(**batch["inputs"]).logits
            assert self.split is not None, "only a split network has states"
            with self.split.resumed(batch["states"]) as upper:
                return upper(**batch["inputs"]).logits


def finetune_seed(
    settings: FinetuneSettings,
    task: Task,
    corpora: TaskCorpora,
    out: Path,
    seed: int,
    config: dict[str, Any],
    states: States | None = None,
) -> Run:
    """Fine-tune from one seed into a folder; of several processes the main one scores and writes.

    `states` holds the states of the frozen bottom that earlier seeds computed, and receives those of this one.
    """
    if settings.fresh and is_main_process():
        remove_folder(out / CACHE)
    wait_for_others(settings.device)
    model, splits, data = prepare(settings, task, corpora, out, seed, states)
    modules = {"model": model.network}
    training = learn(
        modules,
        [model.logits],
        data,
        settings,
        out,
        config={**{key: value for key, value in config.items() if key != "model"}, "weights": model.fingerprint},
        seed=seed,
        device=settings.device,
        fresh=settings.fresh,
        progress=settings.progress,
    )
    if is_main_process():
        load_checkpoint(out, modules, best=True)
        run = _result(settings, model, splits, data, training, corpora, seed, config)
        save_whole(model.network, model.tokenizer, out, source=settings.model)
        with whole_file(out / "README.md") as path:
            path.write_text(model_card(run, out), encoding="utf-8")
        write_run(out, run)
    wait_for_others(settings.device)  # no process needs its cache or the checkpoints any more
    _discard_intermediates(out)
    return read_run(out)


def prepare(
    settings: FinetuneSettings, task: Task, corpora: TaskCorpora, out: Path, seed: int, states: States | None = None
) -> tuple[FinetuningModel, dict[str, EncodedSplit], TrainingData]:
    """Everything before the first step: the network with its head, the encoded splits, the states of its bottom."""
    model = load_task_model(settings, problem_of(task, corpora.train), seed)
    encoder = ExampleEncoder(model.tokenizer, model.problem, model.window, settings.max_length)
    splits = {part: encoder.encode(corpus) for part, corpus in corpora.items()}
    return model, splits, training_data(settings, model, splits, out, {} if states is None else states)


def load_task_model(settings: FinetuneSettings, problem: Problem, seed: int) -> FinetuningModel:
    """The model with a head for the problem, some of its layers dropped and some frozen."""
    network, tokenizer = load_with_head(settings.model, problem, seed=seed)
    if settings.drop is not None:
        keep_layers(network, kept_layers(layer_count(network), drop=settings.drop))
    frozen = parse_frozen(settings.freeze, layer_count(network))
    network.to(resolve_device(settings.device))  # pyright: ignore[reportArgumentType]
    reader = from_transformers(network, tokenizer)
    fingerprint = reader.fingerprint
    apply_frozen(network, frozen)  # after the reader, which puts the network into eval mode
    weights = sum(p.numel() * p.element_size() for p in network.parameters())
    trained = sum(p.numel() * p.element_size() for p in network.parameters() if p.requires_grad)
    needed, limit = weights + (1 + MOMENTS) * trained, settings.max_memory
    if limit is not None and needed > limit:
        raise MemoryLimitError(
            f"Training {Path(settings.model).name} needs {needed / 1e9:.3f} GB for weights, gradients and optimiser, "
            f"but --max-memory allows {limit / 1e9:.3f} GB. Allow more, freeze layers (--freeze) or drop some (--drop)."
        )
    split = SplitNetwork(network, frozen.bottom) if settings.cache and frozen.bottom else None
    return FinetuningModel(
        network=network,
        tokenizer=tokenizer,
        problem=problem,
        split=split if split and split.fits() else None,
        narrow=after_attention(network, problem.kind),
        fingerprint=fingerprint,
        window=reader.window,
    )


def training_data(
    settings: FinetuneSettings, model: FinetuningModel, splits: Mapping[str, EncodedSplit], out: Path, states: States
) -> TrainingData:
    """The training and development splits, with the states of the frozen bottom if there is one."""
    problem, train, dev = model.problem, splits["train"], splits["dev"]
    plain = Collator(problem.kind, pad_id(model.tokenizer), takes_types(model.network, model.tokenizer))
    if model.split is None:
        return TrainingData(problem, train, dev, plain, plain)
    pad = partial(padded_inputs, pad=plain.pad, with_types=plain.with_types)
    memory = (
        settings.cache_memory if settings.max_memory is None else min(settings.cache_memory, settings.max_memory // 4)
    )
    frozen = {name: p for name, p in model.network.named_parameters() if not p.requires_grad}
    identity = f"{tensors_fingerprint(frozen)} {model.split.bottom}"  # without the head that the seed initialised
    collators = []
    for split in (dev, train):
        key = f"{identity} {split.fingerprint}"
        if key not in states:
            states[key] = fill_cache(
                model.split,
                split,
                pad,
                width=model.network.config.hidden_size,
                memory=memory,
                folder=out / CACHE,
                identity=identity,
                progress=settings.progress,
            )
        memory -= 0 if states[key].on_disk else states[key].states.numel() * 4
        collators.append(replace(plain, cache=states[key]))
    return TrainingData(problem, train, dev, collators[1], collators[0])


def _result(
    settings: FinetuneSettings,
    model: FinetuningModel,
    splits: dict[str, EncodedSplit],
    data: TrainingData,
    training: TrainingResult,
    corpora: TaskCorpora,
    seed: int,
    config: dict[str, Any],
) -> Run:
    network, problem = model.network.eval(), model.problem
    place = next(network.parameters()).device
    collators = {"dev": data.collate_dev, "test": replace(data.collate_dev, cache=None)}
    scores = {part: score_split(model.logits, problem, splits[part], c, place) for part, c in collators.items()}
    baselines = {part: problem.baseline(splits["train"].truth, splits[part].truth) for part in collators}
    main = problem.metrics[0]
    summary = {
        "task": config["task"],
        "kind": problem.kind,
        "metric": main,
        **{f"{part} {main}": scores[part][main] for part in scores},
        f"test {main} baseline": baselines["test"][main],
        "examples": {part: len(split) for part, split in splits.items()},
        "cut short": {part: split.n_cut for part, split in splits.items()},
        "unlabelled": {part: split.n_unlabelled for part, split in splits.items()},
        "notes": [*corpora.notes, *_unseen(problem, splits)],
        "layers": layer_count(network),
        "parameters": sum(p.numel() for p in network.parameters()),
        "parameters trained": sum(p.numel() for p in network.parameters() if p.requires_grad),
        "frozen bottom": "none" if model.split is None else f"{model.split.bottom} layers, computed once",
        "steps": training.steps,
        "best step": training.best_step,
        "seconds": round(training.progress.seconds, 3),
        "tokens": training.progress.tokens,
    }
    per_epoch = len(splits["train"]) / (settings.batch_size * settings.accumulation * process_count())
    tables = _tables(training, scores, baselines, seed, per_epoch)
    return Run(command="finetune", config=config, summary=summary, tables=tables)


def _unseen(problem: Problem, splits: dict[str, EncodedSplit]) -> list[str]:
    """Notes on labels of the other splits that training never saw."""
    if problem.kind in ("regression", "choice"):
        return []
    labels = {}
    for part, split in splits.items():
        flat = [label for row in split.truth for label in row] if problem.kind == "tagging" else split.truth
        labels[part] = [str(label) for label in flat if label is not None]
    return unseen_notes(labels["train"], dev=labels["dev"], test=labels["test"])


def _tables(
    training: TrainingResult,
    scores: Mapping[str, Mapping[str, float]],
    baselines: Mapping[str, Mapping[str, float]],
    seed: int,
    per_epoch: float,
) -> dict[str, pd.DataFrame]:
    import pandas as pd

    rows = [
        {"seed": seed, "part": part, "metric": metric, "value": value, "baseline": baselines[part][metric]}
        for part, values in scores.items()
        for metric, value in values.items()
    ]
    curves = training.scores.melt(id_vars="step", var_name="metric", value_name="value")
    tables = {"scores": pd.DataFrame(rows), "curves": curves, "history": training.history}
    for name in ("curves", "history"):
        tables[name].insert(0, "seed", seed)
        tables[name].insert(2, "epoch", tables[name]["step"] / per_epoch)
    return tables


def model_card(run: Run, folder: Path) -> str:
    """The README.md of a fine-tuned model, with the front matter that model hubs read."""
    config, summary, scores = run.config, run.summary, run.tables["scores"]
    data = {part: plain(config["data"][part].rsplit(" ", 1)[0]) for part in ("train", "dev", "test")}
    title = f"{Path(config['model']).name}, fine-tuned on {summary['task']}"
    measured = [
        CardScore(str(summary["task"]), data[row["part"]], row["metric"], float(row["value"]))
        for row in scores.to_dict("records")
        if row["part"] in data
    ]
    tags = [f"task:{summary['task']}"]
    metrics = list(scores["metric"].unique())
    rows = []
    for part in ("dev", "test"):
        values = scores.loc[scores["part"] == part].set_index("metric")["value"]
        shown = " | ".join(f"{values[metric]:.4f}" for metric in metrics)
        rows.append(f"| {part} | {summary['examples'][part]:,} | {shown} |")
    dropped = f" Layers dropped before training: {config['drop']}." if config["drop"] else ""
    frozen = f" Frozen: {config['freeze']}." if config["freeze"] else ""
    baseline = summary[f"test {summary['metric']} baseline"]
    lines = [
        front_matter(folder, config["model"], title=plain(title), scores=measured, tags=tags),
        "",
        f"# {plain(title)}",
        "",
        f"A model of {summary['layers']} layers for {summary['kind']}.{dropped}{frozen} Best development score at step "
        f"{summary['best step']} of {summary['steps']}; seed {config['seeds'][0]}.",
        "",
        f"| part | examples | {' | '.join(metrics)} |",
        "|---" * (2 + len(metrics)) + "|",
        *rows,
        "",
        f"A constant answer (the most frequent label, or the mean) has {summary['metric']} {baseline:.4f} on test.",
        "",
        "## Data",
        "",
        *(f"- {part}: {name}" for part, name in data.items()),
        *(f"- {plain(note)}" for note in summary["notes"]),
        f"- sentences that were cut: {sum(summary['cut short'].values()):,}",
        "",
        "The licence of the data is that of its source; check it before you share this model.",
        "",
        "## Training",
        "",
        *(f"- {key.replace('_', ' ')}: {config[key]}" for key in CARD_SETTINGS),
        f"- parameters: {summary['parameters']:,}, of which {summary['parameters trained']:,} were trained",
        "",
        "The learning curves are in `history.csv` and `curves.csv`.",
        "",
    ]
    return "\n".join(lines)
