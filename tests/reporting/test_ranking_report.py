"""The sections of `rank` and `ablate` runs, and cards with coloured words."""

import re

import numpy as np
import pandas as pd
import pytest

from residuum.errors import StoreError
from residuum.reporting.report import report, section
from residuum.storage.results import Run

NASTY = '<img src=x onerror="alert(1)">'
ENVIRONMENT = {"python": "3.11"}


def ranking_run(cards: bool = True, methods: tuple[str, ...] = ("lca", "iou", "random")) -> Run:
    """Two layers of two neurons, as `rank` writes them."""
    neurons = ["0:0", "0:1", "1:0", "1:1"]
    ranking = [
        {
            "method": method,
            "rank": rank,
            "neuron": neuron,
            "layer": int(neuron[0]),
            "index": int(neuron[2]),
            "score": 0.5,
        }
        for method in methods
        for rank, neuron in enumerate(neurons, 1)
    ]
    selection = [
        {
            "method": method,
            "share": share,
            "set": name,
            "neurons": 1,
            "kept": kept,
            "kept_sd": 0.01,
            "kept_low": kept - 0.1,
            "kept_high": kept + 0.1,
            "retrained": 0.8,
            "sd": 0.01,
            "low": 0.7,
            "high": 0.9,
        }
        for method in methods
        for share in (0.05, 0.2)
        for name, kept in (("top", 0.6), ("bottom", 0.3))
    ]
    pairs = [(a, b) for i, a in enumerate(methods) for b in methods[i + 1 :]]
    tables = {
        "ranking": pd.DataFrame(ranking),
        "agreement": pd.DataFrame(
            [(a, b, 1, 0.5, 0.5, 0.25, 0.2) for a, b in pairs],
            columns=["first", "second", "k", "overlap", "average_overlap", "spearman", "kendall"],
        ),
        "selection": pd.DataFrame(selection),
        "minimal": pd.DataFrame(
            {
                "set": ["all", "minimal"],
                "neurons": [4, 1],
                "share": [1.0, 0.25],
                "dev": [0.9, 0.89],
                "metric": "accuracy",
                "score": [0.91, 0.902],
                "sd": [0.0, 0.0],
                "low": [0.9, 0.89],
                "high": [0.92, 0.91],
                "control": [0.6, 0.4],
                "selectivity": [0.31, 0.502],
            }
        ),
        "growth": pd.DataFrame({"neurons": [1, 4], "dev": [0.89, 0.9], "required": [0.89, 0.89]}),
        "spread": pd.DataFrame(
            {"method": "lca", "set": "minimal", "layer": [0, 1], "neurons": [1, 0], "share": [1.0, 0.0]}
        ),
        **(card_tables() if cards else {}),
    }
    config = {"model": "tiny", "task": "upos", "by": "lca", "keep": 0.99, "notes": ["cut by seed 0"]}
    summary = {"oracle accuracy": 0.91, "majority": 0.2, "word majority": 0.7, "sufficient": True}
    return Run("rank", config, summary, tables, environment=ENVIRONMENT)


def card_tables() -> dict[str, pd.DataFrame]:
    words = pd.DataFrame(
        {
            "neuron": "0:1",
            "end": ["high", "low"],
            "rank": 1,
            "word": [NASTY, "dog"],
            "mean": [2.0, -1.0],
            "z": [3.0, -1.5],
        }
    ).assign(count=5)
    contexts = pd.DataFrame(
        {
            "neuron": "0:1",
            "context": 1,
            "sentence": 4,
            "position": range(4),
            "word": ["a", NASTY, "dog", "کتاب"],
            "label": "NOUN",
            "activation": 0.0,
            "z": [0.1, 3.04, -1.5, 0.7],
            "peak": [False, True, False, False],
        }
    )
    quantiles = {name: [0.0, 1.0] for name in ("mean", "sd", "q05", "q25", "median", "q75", "q95")}
    classes = pd.DataFrame({"neuron": "0:1", "label": ["NOUN", "VERB"], "count": 5, **quantiles})
    return {"card_words": words, "card_contexts": contexts, "card_classes": classes}


def ablation_run(retrained: bool = True) -> Run:
    rows = [
        {
            "set": name,
            "share": 0.05,
            "neurons": 2,
            "probe": "all layers" if layer is None else f"layer {layer}",
            "layer": layer,
            "intact": 0.9,
            "masked": 0.85,
            "running": 0.8,
            "low": 0.78,
            "high": 0.82,
            "drop": 0.1,
            "drop_low": 0.08,
            "drop_high": 0.12,
            "change": 0.3,
            "retrained": 0.88 if retrained else np.nan,
        }
        for name in ("top", "bottom", "random 1")
        for layer in (None, 0, 1)
    ]
    frame = pd.DataFrame(rows).astype({"layer": "Int64"})
    neurons = pd.DataFrame({"set": ["top"], "share": [0.05], "neuron": ["0:1"], "layer": [0]})
    config = {"model": "tiny", "task": "upos", "how": "mean", "notes": []}
    return Run("ablate", config, {}, {"ablation": frame, "neurons": neurons}, environment=ENVIRONMENT)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "r.html"
    return report([ranking_run(), ablation_run()], out).read_text(encoding="utf-8")


def test_the_findings_of_a_ranking_say_its_numbers():
    found = {finding.topic: finding.text for finding in section(ranking_run()).findings}
    assert "all 4 neurons reaches accuracy 0.910" in found["All neurons"]
    assert "word majority 0.700" in found["All neurons"]
    assert "1 neuron (25.0%) are sufficient to keep 99% of the score" in found["Minimal set"]
    assert "the top of LCA scores 0.600 and the bottom 0.300" in found["Top and bottom"]
    assert "layer 0 (1)" in found["Layers"]
    assert "LCA and IoU agree most: they share 50%" in found["Rankings"]
    assert found["Data"] == "cut by seed 0."


def test_every_figure_of_a_ranking_draws_a_table_that_is_there():
    for run in (ranking_run(), ablation_run()):
        shown = section(run)
        tables = {table.name for table in shown.tables}
        assert shown.panels
        assert all(view.table in tables for panel in shown.panels for view in panel.views)
        assert all(view.figure.data for panel in shown.panels for view in panel.views)


def test_a_ranking_without_cards_or_agreement_has_a_section_too():
    shown = section(ranking_run(cards=False, methods=("lca",)))
    assert shown.cards == ()
    assert "Agreement of rankings" not in [panel.title for panel in shown.panels]


def test_the_findings_tell_how_steady_the_ranking_is():
    found = {finding.topic: finding.text for finding in section(ranking_run(methods=("lca", "lca (seed 1)"))).findings}
    assert found["Rankings"] == "LCA shares 50% of its first neurons with LCA of another seed."
    found = {finding.topic: finding.text for finding in section(ranking_run(methods=("lca", "random"))).findings}
    assert found["Rankings"] == "The overlap with neurons chosen at random is 50%."


def test_words_are_coloured_by_their_distance_from_the_mean():
    (card,) = section(ranking_run()).cards
    assert card.title == "Neuron 0:1"
    assert card.note == "Rank 2 of 4 by LCA."
    assert [word.level for word in card.texts[0]] == [0, 4, -2, 1]
    assert card.texts[0][1].value == "+3.0"
    assert card.lists == {"Highest on": (f"{NASTY} +3.0",), "Lowest on": ("dog −1.5",)}


def test_markup_in_a_label_is_inert_and_a_number_is_no_place_on_an_axis():
    run = ranking_run()
    run.tables["card_classes"]["label"] = [NASTY, "2020"]
    panel = next(panel for panel in section(run).panels if panel.title == "Activations per class")
    figure = panel.views[0].figure
    assert figure.layout.xaxis.type == "category"
    drawn = figure.to_json()
    assert "<img" not in drawn
    assert "&lt;img" in drawn or "\\u0026lt;img" in drawn


def test_the_random_twin_is_told_where_it_was_scored():
    run = ranking_run()
    run.tables["minimal"]["random_twin"] = [0.5, 0.25]
    found = {finding.topic: finding.text for finding in section(run).findings}
    assert "random weights) reaches 0.500" in found["All neurons"]
    assert "As many neurons of the random twin score 0.250." in found["Minimal set"]


def described_run() -> Run:
    tables = {name: table for name, table in card_tables().items() if name != "card_classes"}
    config = {"model": "tiny", "unit": "word", "neurons": ["0:1"]}
    return Run("describe", config, {"words": 9, "neurons": 1}, tables, environment=ENVIRONMENT)


def test_words_of_a_description_are_inert_in_its_figure_and_on_the_page(tmp_path):
    shown = section(described_run())
    assert shown.title == "What do neurons of tiny react to?"
    assert f"highest on {NASTY} (+3.0) and lowest on dog (−1.5)" in shown.findings[0].text
    assert "<img" not in shown.panels[0].views[0].figure.to_json()
    assert NASTY not in report([described_run()], tmp_path / "r.html").read_text(encoding="utf-8")
    run = described_run()
    run.tables["card_words"] = run.tables["card_words"].drop(columns="z")
    with pytest.raises(StoreError, match="table card_words has no z"):
        section(run)


def test_cards_are_escaped_labelled_and_read_in_the_direction_of_their_script(page):
    assert NASTY not in page
    assert "&lt;img src=x" in page
    assert '<li dir="auto">' in page
    (title,) = re.findall(r'<article class="card neuron-card" aria-labelledby="([^"]+)"', page)
    assert f'<h4 id="{title}">Neuron 0:1</h4>' in page
    assert re.search(r'<span class="word" data-level="4" title="\+3.0">&lt;img[^<]*</span><sup>\+3.0</sup>', page)
    assert re.search(r'<span class="word" title="\+0.1">a</span>', page)


@pytest.mark.parametrize("theme", [0, 1])
def test_ink_on_coloured_words_is_readable_in_both_themes(theme, page):
    def colour(name):
        return re.search(rf"{name}: light-dark\((#\w+), (#\w+)\)", page)[theme + 1]

    ink = colour("--ink")
    grounds = re.findall(r'\.word\[data-level="-?\d"\] \{ background: light-dark\((#\w+), (#\w+)\)', page)
    assert len(grounds) == 8
    for ground in grounds:
        assert _contrast(ink, ground[theme]) >= 4.5


def test_the_findings_of_an_ablation_tell_masked_from_running():
    shown = section(ablation_run())
    assert [finding.topic for finding in shown.findings] == ["Top, 5.0%", "Bottom, 5.0%", "Random 1, 5.0%"]
    assert "2 neurons set to their means" in shown.findings[0].text
    assert "from 0.900 to 0.850 where they are hidden from the probe only, and to 0.800" in shown.findings[0].text
    lines = [trace.name for trace in shown.panels[0].views[0].figure.data if trace.name]
    assert lines == ["intact", "masked", "running", "retrained"]
    lines = [trace.name for trace in section(ablation_run(False)).panels[0].views[0].figure.data if trace.name]
    assert lines == ["intact", "masked", "running"]


def test_a_run_that_lacks_a_column_is_refused():
    run = ranking_run()
    run.tables["selection"] = run.tables["selection"].drop(columns="kept")
    with pytest.raises(StoreError, match="table selection has no kept"):
        section(run)
    run = ablation_run()
    run.tables["ablation"] = run.tables["ablation"].drop(columns="masked")
    with pytest.raises(StoreError, match="table ablation has no masked"):
        section(run)


def _contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours (WCAG 2)."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
