"""One model learns a task from one seed: load, freeze, cache, learn, take the best checkpoint, score, write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from residuum.corpus.tasks import Task, TaskCorpora, unseen_notes
from residuum.errors import SettingError
from residuum.maths.probe_scores import majority_baseline
from residuum.models.loading import from_transformers, resolve_device, tensors_fingerprint
from residuum.models.surgery import files_fingerprint, keep_layers, kept_layers, layer_count, save_whole
from residuum.storage.files import remove_folder
from residuum.storage.results import Run, read_run, write_run
from residuum.training import (
    Training,
    discard_checkpoints,
    is_main_process,
    load_checkpoint,
    process_count,
    wait_for_others,
)
from residuum.training.encoding import Batch, Collator, Encoder, Part, pad_id, padded_inputs
from residuum.training.finetuning_card import write_card
from residuum.training.freezing import SplitNetwork, apply_frozen, parse_frozen
from residuum.training.frozen_states import StateCache, fill_cache
from residuum.training.heads import after_attention, first_token_only, load_with_head, takes_types
from residuum.training.learning import LearningSettings, Lesson, learn, score_part
from residuum.training.problems import Problem, problem_of

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CACHE = "cache"  # the folder of states that do not fit memory
States = dict[str, StateCache]  # by the weights of the bottom and the part that it read


@dataclass(frozen=True)
class Recipe:
    """What a fine-tuning does, whatever its seed."""

    model: str
    task: Task
    freeze: str | None
    drop: str | None
    max_length: int | None
    settings: LearningSettings
    cache: bool
    cache_memory: int

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < 8:
            raise SettingError(f"max_length is {self.max_length}; expected at least 8 tokens.")

    def config(self) -> dict[str, Any]:
        """The settings that a result depends on; where states are kept is none of them."""
        return {
            "model": self.model,
            "files": files_fingerprint(self.model),
            "task": self.task.name,
            "label": self.task.label,
            "unit": self.task.unit,
            "metric": self.task.metric,
            "positive": self.task.positive,
            "regression": self.task.regression,
            "freeze": self.freeze,
            "drop": self.drop,
            "max_length": self.max_length,
            "cache": self.cache,
            **{key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self.settings).items()},
        }


@dataclass(frozen=True, eq=False)
class Pupil:
    """The network that learns, cut where its frozen bottom ends; `split` is None where nothing can be cached.

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
        """The answers to a batch: from the states of the frozen bottom where it has them, else from the tokens."""
        with first_token_only(self.narrow):
            if "states" not in batch:
                return self.network(**batch["inputs"]).logits
            assert self.split is not None, "only a split network has states"
            with self.split.resumed(batch["states"]) as upper:
                return upper(**batch["inputs"]).logits


def finetune_once(
    recipe: Recipe,
    corpora: TaskCorpora,
    out: Path,
    seed: int,
    config: dict[str, Any],
    device: str,
    *,
    states: States | None = None,
    fresh: bool = False,
    progress: bool = True,
    say: Callable[[str], None] | None = None,
) -> Run:
    """Fine-tune from one seed into a folder and give its run; of several processes the main one scores and writes.

    `states` holds what a frozen bottom gave to other seeds, and is given what it gives to this one.
    """
    if fresh and is_main_process():
        remove_folder(out / CACHE)
    wait_for_others(device)
    pupil, parts, lesson = prepare(recipe, corpora, out, seed, device, states=states, progress=progress)
    modules = {"model": pupil.network}
    training = learn(
        modules,
        [pupil.logits],
        lesson,
        recipe.settings,
        out,
        config=_identity(config, pupil),
        seed=seed,
        device=device,
        fresh=fresh,
        progress=progress,
        say=say,
    )
    if is_main_process():
        load_checkpoint(out, modules, best=True)
        run = _result(recipe, pupil, parts, lesson, training, corpora, seed, config)
        save_whole(pupil.network, pupil.tokenizer, out)
        write_card(out, run)
        write_run(out, run)
    wait_for_others(device)  # none needs its cache or the checkpoints any more
    discard_intermediates(out)
    return read_run(out)


def _identity(config: dict[str, Any], pupil: Pupil) -> dict[str, Any]:
    """What the weights of a checkpoint depend on; the settings that they do not depend on may change."""
    kept = {key: value for key, value in config.items() if key not in ("model", "checkpoint_every", "report_to")}
    return {**kept, "weights": pupil.fingerprint}


def discard_intermediates(out: Path) -> None:
    """Remove what a finished model needs no more; a kill may have come before it was removed."""
    if is_main_process() and (out / "model.safetensors").exists():
        remove_folder(out / CACHE)
        discard_checkpoints(out)


def prepare(
    recipe: Recipe,
    corpora: TaskCorpora,
    out: Path,
    seed: int,
    device: str,
    *,
    states: States | None = None,
    progress: bool = False,
) -> tuple[Pupil, dict[str, Part], Lesson]:
    """All that comes before the first step: the network and its head, the encoded parts, the states of its bottom."""
    pupil = load_pupil(recipe, problem_of(recipe.task, corpora.train), seed, device)
    parts = encoded_parts(recipe, corpora, pupil)
    return pupil, parts, make_lesson(recipe, pupil, parts, out, states=states, progress=progress)


def load_pupil(recipe: Recipe, problem: Problem, seed: int, device: str) -> Pupil:
    """The model with a head for the problem, some of its layers dropped and some frozen."""
    network, tokenizer = load_with_head(recipe.model, problem, seed=seed)
    if recipe.drop is not None:
        keep_layers(network, kept_layers(layer_count(network), drop=recipe.drop))
    frozen = parse_frozen(recipe.freeze, layer_count(network))
    network.to(resolve_device(device))  # pyright: ignore[reportArgumentType]
    reader = from_transformers(network, tokenizer)
    fingerprint = reader.fingerprint
    apply_frozen(network, frozen)  # after the reader, which puts the network into eval mode
    split = SplitNetwork(network, frozen.bottom) if recipe.cache and frozen.bottom else None
    return Pupil(
        network=network,
        tokenizer=tokenizer,
        problem=problem,
        split=split if split and split.fits() else None,
        narrow=after_attention(network, problem.kind),
        fingerprint=fingerprint,
        window=reader.window,
    )


def encoded_parts(recipe: Recipe, corpora: TaskCorpora, pupil: Pupil) -> dict[str, Part]:
    """The three parts as the pupil reads them."""
    encoder = Encoder(pupil.tokenizer, pupil.problem, pupil.window, recipe.max_length)
    return {part: encoder.encode(corpus) for part, corpus in corpora.items()}


def make_lesson(
    recipe: Recipe,
    pupil: Pupil,
    parts: dict[str, Part],
    out: Path,
    *,
    states: States | None = None,
    progress: bool = False,
) -> Lesson:
    """The parts that are read again and again, with the states of the frozen bottom if there is one."""
    states = {} if states is None else states
    problem = pupil.problem
    plain = Collator(problem.kind, pad_id(pupil.tokenizer), takes_types(pupil.network, pupil.tokenizer))
    if pupil.split is None:
        return Lesson(problem, parts["train"], parts["dev"], plain, plain)
    pad = partial(padded_inputs, pad=plain.pad, with_types=plain.with_types)
    memory, collators = recipe.cache_memory, []
    frozen = {name: p for name, p in pupil.network.named_parameters() if not p.requires_grad}
    identity = f"{tensors_fingerprint(frozen)} {pupil.split.bottom}"  # not by what the seed drew
    for part in (parts["dev"], parts["train"]):
        key = f"{identity} {part.fingerprint}"
        if key not in states:
            states[key] = fill_cache(
                pupil.split,
                part,
                pad,
                width=pupil.network.config.hidden_size,
                memory=memory,
                folder=out / CACHE,
                identity=identity,
                progress=progress,
            )
        cache = states[key]
        memory -= 0 if cache.on_disk else cache.states.numel() * 4
        collators.append(replace(plain, cache=cache))
    return Lesson(problem, parts["train"], parts["dev"], collators[1], collators[0])


def _result(
    recipe: Recipe,
    pupil: Pupil,
    parts: dict[str, Part],
    lesson: Lesson,
    training: Training,
    corpora: TaskCorpora,
    seed: int,
    config: dict[str, Any],
) -> Run:
    network = pupil.network.eval()
    place = next(network.parameters()).device
    plain = replace(lesson.collate_dev, cache=None)
    scores = {
        part: score_part(pupil.logits, pupil.problem, parts[part], collate, place)
        for part, collate in (("dev", lesson.collate_dev), ("test", plain))
    }
    main = pupil.problem.metrics[0]
    last = training.progress
    summary = {
        "task": recipe.task.name,
        "kind": pupil.problem.kind,
        "metric": main,
        **{f"{part} {main}": scores[part][main] for part in scores},
        **_baseline(pupil.problem, parts),
        "examples": {part: len(p) for part, p in parts.items()},
        "cut short": {part: p.n_cut for part, p in parts.items()},
        "unlabelled": {part: p.n_unlabelled for part, p in parts.items()},
        "notes": [*corpora.notes, *_unseen(pupil.problem, parts)],
        "layers": layer_count(network),
        "parameters": sum(p.numel() for p in network.parameters()),
        "parameters trained": sum(p.numel() for p in network.parameters() if p.requires_grad),
        "frozen bottom": "none" if pupil.split is None else f"{pupil.split.bottom} layers, computed once",
        "steps": training.steps,
        "best step": training.best_step,
        "seconds": round(last.seconds, 3),
        "tokens": last.tokens,
    }
    per_step = recipe.settings.batch_size * recipe.settings.accumulation * process_count()
    tables = _tables(training, scores, seed, len(parts["train"]) / per_step)
    return Run(command="finetune", config=config, summary=summary, tables=tables)


def _baseline(problem: Problem, parts: dict[str, Part]) -> dict[str, float]:
    """What always answering the most frequent label of training scores on the test part."""
    if problem.kind == "regression":
        return {}
    train, test = (_flat(problem, parts[part].truth) for part in ("train", "test"))
    return {"test majority accuracy": majority_baseline(train, test)}


def _unseen(problem: Problem, parts: dict[str, Part]) -> list[str]:
    """What the other parts ask that training never saw."""
    if problem.kind in ("regression", "choice"):
        return []
    train, dev, test = (_flat(problem, parts[part].truth) for part in ("train", "dev", "test"))
    return unseen_notes(train, dev=dev, test=test)


def _flat(problem: Problem, truth: list[Any]) -> list[str]:
    labels = [label for row in truth for label in row] if problem.kind == "tagging" else truth
    return [str(label) for label in labels if label is not None]


def _tables(
    training: Training, scores: dict[str, dict[str, float]], seed: int, per_epoch: float
) -> dict[str, pd.DataFrame]:
    import pandas as pd

    found = [
        {"seed": seed, "part": part, "metric": metric, "value": value}
        for part, values in scores.items()
        for metric, value in values.items()
    ]
    curves = training.scores.melt(id_vars="step", var_name="metric", value_name="value")
    curves.insert(0, "seed", seed)
    curves.insert(2, "epoch", curves["step"] / per_epoch)
    history = training.history
    history.insert(0, "seed", seed)
    history.insert(2, "epoch", history["step"] / per_epoch)
    return {"scores": pd.DataFrame(found), "curves": curves, "history": history}
