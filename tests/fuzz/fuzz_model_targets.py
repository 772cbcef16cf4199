"""Readers of what models are made of and leave behind: folders of models, checkpoints, sums, what was learnt."""

from __future__ import annotations

import json
from logging import CRITICAL
from pathlib import Path

import numpy as np
import torch
from mutations import changed_header, changed_json, changed_unmarked, damaged
from target_kinds import Target, among_others
from transformers.utils import logging

from residuum.adaptation.adapted import RECORD, read_record
from residuum.adaptation.changes import CHANGE_FILE as CHANGE
from residuum.adaptation.changes import Change, read_change, save_change
from residuum.comparison.estimates import _load_contexts, _save_contexts, load_moments, save_moments
from residuum.corpus.corpus import joined_spans
from residuum.distillation.preparation import prepare
from residuum.distillation.settings import read_settings
from residuum.maths.moments import MomentsAccumulator, subtract
from residuum.maths.profiles import ContextAccumulator
from residuum.maths.selection import SetScore
from residuum.models.alignment import Aligner
from residuum.models.loading import load_model, load_tokenizer
from residuum.probing.orders import remembered_scores
from residuum.shrinking.classifier import DESCRIPTION, TENSORS, read_classifier
from residuum.studies.running import block_parameters
from residuum.studies.steps import block_count, model_family
from residuum.training.checkpoints import Progress, load_checkpoint, open_run, resume, write_checkpoint
from residuum.training.optimisation import TrainingSettings, build_optimiser, trainable_groups
from teachers import save_teacher, write_texts
from tiny import WINDOW, save_model

IN_JSON = (damaged, changed_json, changed_json)
IN_HEADER = (damaged, changed_header, changed_header)
IN_TENSORS = (damaged, changed_header, changed_unmarked, changed_unmarked)


def model_targets(folder: Path) -> list[Target]:
    """Every such reader, with what it needs in `folder`."""
    folder.mkdir(parents=True)
    return [
        *_model_folders(folder / "models"),
        *_products(folder / "products"),
        *_checkpoints(folder / "training"),
        *_sums(folder / "sums"),
        *_lessons(folder / "lessons"),
    ]


def _model_folders(folder: Path) -> list[Target]:
    """A model, its tokenizer, and what a study wants to know of it before it loads it."""
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()
    save_model("bert", folder)
    name = str(folder)

    def study(path: Path) -> None:
        model_family(folder)
        block_count(folder)

    def tokenizer(path: Path) -> None:
        load_tokenizer(name, False)

    def aligned(path: Path) -> None:
        words = ["The", "fox,", "naïve", "東京"]
        Aligner(load_tokenizer(name, False), WINDOW).align([" ".join(words)], [joined_spans(words)])

    config, weights = folder / "config.json", folder / "model.safetensors"
    return [
        among_others(config, lambda _: load_model(name, device="cpu"), "config of a model", mutations=IN_JSON),
        among_others(
            weights, lambda _: load_model(name, device="cpu"), "weights of a model", mutations=(changed_header,)
        ),
        among_others(folder / "tokenizer.json", tokenizer, "tokenizer", mutations=IN_JSON),
        among_others(folder / "tokenizer.json", aligned, "tokenizer at work", mutations=IN_JSON),
        among_others(folder / "tokenizer_config.json", tokenizer, "config of a tokenizer", mutations=IN_JSON),
        among_others(config, study, "config in a study", mutations=IN_JSON),
        among_others(weights, lambda _: block_parameters(name, {}), "weights in a study", mutations=IN_HEADER),
    ]


def _products(folder: Path) -> list[Target]:
    from safetensors.numpy import save_file

    folder.mkdir()
    layers, indices = np.array([0, 0, 1]), np.array([0, 2, 1])
    save_file(
        {"weight": np.ones((2, 3), np.float32), "bias": np.ones(2, np.float32), "layers": layers, "indices": indices},
        folder / TENSORS,
    )
    description = {"version": 1, "task": "upos", "labels": ["a", "b"], "unit": "word", "pooling": "last"}
    description |= {"position": "auto", "pairs": False, "layer": 1, "neurons": 3}
    (folder / DESCRIPTION).write_text(json.dumps(description))
    record = {"version": 1, "strategy": "full", "task": "sentence", "kind": "classification", "classes": ["a", "b"]}
    record |= {"targets": {"en": "x"}, "keep_layers": None, "max_length": 32}
    (folder / RECORD).write_text(json.dumps(record))
    save_change(folder, Change(values={"w": torch.ones(2, 2)}))
    read = lambda path: read_classifier(path.parent)  # noqa: E731 - the same for two files
    return [
        among_others(folder / DESCRIPTION, read, "classifier", mutations=IN_JSON),
        among_others(folder / TENSORS, read, "classifier's tensors", mutations=IN_HEADER),
        among_others(folder / RECORD, lambda p: read_record(p.parent), "adaptation", mutations=IN_JSON),
        among_others(folder / CHANGE, lambda p: read_change(p.parent), "change", mutations=IN_TENSORS),
    ]


def _checkpoints(folder: Path) -> list[Target]:
    module = torch.nn.Linear(2, 2)
    optimiser = build_optimiser(trainable_groups(module), TrainingSettings(steps=1))
    module(torch.ones(1, 2)).sum().backward()
    optimiser.step()
    open_run(folder, {"seed": 0})
    row = {"step": 1.0, "loss": 0.5}
    write_checkpoint(folder, {"m": module}, optimiser, Progress(1, 10, 0.5, [row], [row], {"loss": [1.0, 1.0]}, 1, 0.5))
    place = folder / "checkpoints"
    last = place / "step-000000001"

    def go_on(path: Path) -> None:
        """Going on reads all of a checkpoint, and what was read must serve for a step."""
        resume(folder, {"m": module}, optimiser)
        optimiser.step()

    load = lambda path: load_checkpoint(folder, {"m": module})  # noqa: E731 - the same for two files
    begin = lambda path: open_run(folder, {"seed": 0})  # noqa: E731
    return [
        among_others(last / "progress.json", load, "progress", mutations=IN_JSON),
        among_others(last / "weights.safetensors", load, "weights", mutations=IN_TENSORS),
        among_others(last / "optimiser.safetensors", go_on, "optimiser", mutations=IN_TENSORS),
        among_others(place / "run.json", begin, "identity of a run", mutations=IN_JSON),
    ]


def _sums(folder: Path) -> list[Target]:
    """What a comparison or a search that was stopped left behind."""
    folder.mkdir()
    words = np.random.default_rng(0).normal(size=(6, 5))
    moments, contexts = MomentsAccumulator((3, 2)), ContextAccumulator(4, (3, 2))
    moments.update(words)
    contexts.update(np.array([0, 0, 1, 1, 2, 3]), [words[:, :3], words[:, 3:]])
    save_moments(moments.result(), folder / "moments.safetensors")
    _save_contexts(contexts.result(), folder / "contexts.safetensors")
    moments.update(words + 1)
    all_moments, all_contexts = moments.result(), contexts.result()
    (folder / "lca.json").write_text('{"3": [0.5, 0.1, 0.01], "10": [0.75, 0.0, 0.01]}')

    def search(path: Path) -> None:
        remembered_scores(lambda sizes: [SetScore(0.0, 0.0, 0.0)] * len(sizes), path)([3])

    return [
        among_others(
            folder / "moments.safetensors",
            lambda path: subtract(all_moments, load_moments(path)),
            "moments",
            mutations=IN_TENSORS,
        ),
        among_others(
            folder / "contexts.safetensors",
            lambda path: _load_contexts(all_contexts, path),
            "contexts",
            mutations=IN_TENSORS,
        ),
        among_others(folder / "lca.json", search, "scores of a search", mutations=IN_JSON),
    ]


def _lessons(folder: Path) -> list[Target]:
    """What a teacher said of a line, kept for the next time that it is asked."""
    losses = {"mlm": 0.4, "soft": 0.2, "hidden_mse": 0.2, "attention_mse": 0.2}
    settings = {
        "teacher": str(save_teacher("xlm-roberta", folder / "teacher")),
        "texts": write_texts(folder, "en", "tr"),
        "students": {"one": ["en", "tr"]},
        "shape": {"layers": 1},
        "losses": losses,
        "text": {"batch_size": 3, "held_out": 2, "shuffle_buffer": 8},
        "teacher_cache": str(folder / "cache"),
    }
    teacher = prepare(read_settings(settings)).teacher
    ids = torch.tensor([[5, 6, 7, 8]])
    batch, positions = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, torch.tensor([1, 2])
    teacher.teach(batch, positions)
    (path,) = (folder / "cache").rglob("*.safetensors")
    return [among_others(path, lambda _: teacher.teach(batch, positions), "lesson", mutations=IN_TENSORS)]
