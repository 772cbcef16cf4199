"""The sections of perplexity, trimmed vocabularies and distillations side by side."""

import pandas as pd
import pytest

from residuum.errors import StoreError
from residuum.reporting.report import section
from residuum.storage.results import Run


def test_perplexity_is_drawn_with_its_interval():
    table = {"text": ["en", "tr"], "lines": [5, 6], "tokens": [50, 70], "loss": [1.0, 2.0]}
    table |= {"perplexity": [2.7, 7.4], "low": [2.5, 7.0], "high": [3.0, 8.0]}
    found = section(Run("evaluate perplexity", {}, {"model": "m"}, {"perplexity": pd.DataFrame(table)}))
    assert found.facts == {"texts": "2", "tokens predicted": "120"}
    assert [one.text for one in found.findings] == [
        "Perplexity 2.7 (95\u00a0% CI 2.5–3).",
        "Perplexity 7.4 (95\u00a0% CI 7–8).",
    ]
    (trace,) = found.panels[0].views[0].figure.data
    assert list(trace.x) == [2.7, 7.4]


def test_a_trimmed_vocabulary_shows_what_its_frequent_pieces_cover():
    pieces = pd.DataFrame({"piece": list("abc"), "old_id": [0, 5, 9], "new_id": [0, 1, 2], "count": [1, 6, 3]})
    numbers = {"pieces after": 3, "pieces before": 10, "share saved": 0.4, "parameters after": 60}
    found = section(Run("trim", {}, {**numbers, "lines split in another way": 0}, {"pieces": pieces}))
    assert "3 of 10 vocabulary entries were kept, which saves 40% of the parameters" in found.findings[0].text
    (line,) = found.panels[0].views[0].figure.data
    assert list(line.y) == pytest.approx([0.6, 0.9, 1.0])


def test_distillations_stand_from_best_to_worst_by_each_score():
    rows = [
        {"row": row, "score": score, "subject": subject, "value": value, "parameters": 10}
        for row, score, values in (
            ("plain", "perplexity", (30.0, 10.0)),
            ("plain", "retrieval", (0.2, 0.4)),
            ("shared", "perplexity", (10.0, 20.0)),
            ("shared", "retrieval", (0.5, 0.7)),
        )
        for subject, value in zip(("en", "tr"), values, strict=True)
    ]
    found = section(Run("study distillation", {}, {"rows": 2}, {"scores": pd.DataFrame(rows)}))
    assert [one.text for one in found.findings] == [
        "From best to worst of 2 distillations: shared 15, plain 20.",
        "From best to worst of 2 distillations: shared 0.6, plain 0.3.",
    ]


@pytest.mark.parametrize("command", ["evaluate perplexity", "trim", "study distillation"])
def test_a_run_without_its_table_is_refused(command):
    with pytest.raises(StoreError, match="This run is not a complete run of"):
        section(Run(command, {}))
