"""A tiny multilingual teacher and texts, built once, and settings for short runs."""

from __future__ import annotations

import pytest

from residuum.distillation.settings import read_settings
from teachers import save_teacher, write_texts

STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(scope="session")
def teacher_folder(tmp_path_factory):
    """The folder of a tiny teacher of a family without dropout, built once."""
    root = tmp_path_factory.mktemp("teachers")

    def folder(family: str = "xlm-roberta"):
        changes = {"dropout": 0.0, "attention_dropout": 0.0} if family == "distilbert" else STILL
        changes = {} if family in ("gpt2", "llama", "qwen3", "modernbert") else changes
        return root / family if (root / family).exists() else save_teacher(family, root / family, **changes)

    return folder


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts"), "en", "tr", "sw")


@pytest.fixture
def values(teacher_folder, texts):
    """Settings as a mapping; changes override them."""

    def make(family: str = "xlm-roberta", **changes):
        return {
            "teacher": str(teacher_folder(family)),
            "texts": {language: texts[language] for language in ("en", "tr")},
            **({} if "losses" in changes else {"preset": "monoshot"}),
            "text": {"batch_size": 3, "held_out": 2, "shuffle_buffer": 8},
            "optimiser": {"steps": 3, "log_every": 1, "warmup": 0, "schedule": "constant"},
            "device": "cpu",
            **changes,
        }

    return make


@pytest.fixture
def settings(values):
    return lambda *family, **changes: read_settings(values(*family, **changes))
