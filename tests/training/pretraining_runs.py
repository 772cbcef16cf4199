"""A tiny bilingual world to pretrain on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from residuum.samples import sample_text


def write_world(folder: Path, size: int = 200) -> dict[str, Any]:
    """Files of the sample grammar in English and Turkish, and a configuration that trains on them in seconds."""
    for language in ("en", "tr"):
        (folder / f"{language}.txt").write_text(sample_text("text", language=language, size=size), encoding="utf-8")
        retrieval = sample_text("text", language=language, size=20, split="test")
        (folder / f"retrieval.{language}").write_text(retrieval, encoding="utf-8")
    pairs = sample_text("translation", language="tr-en", size=size)
    (folder / "pairs.tsv").write_text(pairs, encoding="utf-8")
    return {
        "text": {"en": [str(folder / "en.txt")], "tr": [str(folder / "tr.txt")]},
        "pairs": [{"languages": ["tr", "en"], "table": str(folder / "pairs.tsv")}],
        "tokenizer": {"pieces": 300},
        "network": {"layers": 2, "hidden": 16, "heads": 2, "feed_forward": 32, "window": 48},
        "objectives": [
            {"kind": "mlm", "batch": 8, "length": 24},
            {"kind": "ranking", "batch": 16, "length": 24, "layer": 1},
        ],
        "training": {"steps": 8, "learning_rate": 0.005, "checkpoint_every": 3, "log_every": 2},
        "evaluation": {
            "every": 4,
            "held_out": 10,
            "retrieval": {"tr": {"files": [str(folder / "retrieval.tr"), str(folder / "retrieval.en")]}},
        },
    }
