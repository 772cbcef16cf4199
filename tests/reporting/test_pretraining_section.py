"""The section of a pretraining."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from residuum.errors import StoreError
from residuum.reporting.report import section
from residuum.storage.results import Run


def pretraining_run() -> Run:
    history = pd.DataFrame(
        {
            "step": [10, 20],
            "learning_rate": [0.1, 0.05],
            "loss": [3.0, 2.0],
            "mlm": [4.0, 3.5],
            "ranking 1": [None, 0.5],
            "tokens": [100, 200],
        }
    )
    rows = [(step, "retrieval", "tr", layer, step / 100 + layer / 10) for step in (10, 20) for layer in (0, 1, 2)]
    rows += [(step, "perplexity", "en", -1, 300.0 - step) for step in (10, 20)]
    pairs = pd.DataFrame([("a.tsv", "tr-en", 9, 7, 2)], columns=["name", "languages", "read", "kept", "excluded"])
    return Run(
        command="pretrain",
        config={"settings": {"name": "tiny"}, "text": "00ff"},
        summary={"parameters": 1234, "steps": 20, "tokens": 200, "pairs excluded": 2},
        tables={
            "history": history,
            "scores": pd.DataFrame(rows, columns=["step", "score", "subject", "layer", "value"]),
            "pairs": pairs,
        },
    )


def test_the_section_says_what_was_reached_and_what_was_kept_apart():
    content = section(pretraining_run())
    said = {finding.topic: finding.text for finding in content.findings}
    assert said["Perplexity"] == "On held-out sentences after training: en 280.0."
    assert "tr 0.400 (layer 2)" in said["Retrieval"]
    assert said["Held out"].startswith("2 training pairs occurred in a retrieval set")


def test_every_loss_and_score_has_its_curve():
    losses, scores = section(pretraining_run()).panels
    assert [view.label for view in losses.views] == ["loss", "mlm", "ranking 1"]
    assert [view.label for view in scores.views] == ["retrieval tr", "perplexity en"]
    assert len(scores.views[0].figure.data) == 3, "a line for each layer"
    assert list(losses.views[2].figure.data[0].x) == [20], "rows without a batch of an objective are left out"


def test_a_run_without_evaluation_shows_its_losses_only():
    run = pretraining_run()
    nothing = replace(run, tables=run.tables | {"scores": run.tables["scores"].iloc[:0]})
    assert len(section(nothing).panels) == 1


def test_a_run_that_is_not_whole_is_refused():
    run = pretraining_run()
    with pytest.raises(StoreError, match="not a complete run of `pretrain`: its table pairs has no name.*--fresh"):
        section(replace(run, tables={k: v for k, v in run.tables.items() if k != "pairs"}))
