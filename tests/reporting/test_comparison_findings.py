"""The front page says what the tables say."""

import re

import numpy as np
import pandas as pd
import pytest
from report_runs import comparison_run

from residuum.comparison.tables import beside_table
from residuum.reporting import similarity
from residuum.reporting.report import section


def texts(run):
    return {finding.topic: finding.text.replace("\u00a0", " ") for finding in section(run).findings}


def set_value(run, measure, a, b, value):
    frame = run.tables["similarity"]
    here = (frame["measure"] == measure) & (frame["model_a"] == a[0]) & (frame["layer_a"] == a[1])
    here &= (frame["model_b"] == b[0]) & (frame["layer_b"] == b[1])
    assert here.sum() == 1
    frame.loc[here, ["value", "low", "high", "null"]] = [value, value - 0.02, value + 0.01, 0.125]


def test_the_most_alike_layers_of_different_models_are_named_with_interval_and_null():
    run = comparison_run({"a": 4, "b": 3})
    set_value(run, "cka", ("a", 3), ("b", 1), 0.95)
    set_value(run, "svcca", ("a", 0), ("b", 2), 0.99)  # another measure does not decide
    set_value(run, "cka", ("a", 0), ("a", 3), 0.98)  # nor do layers of one model
    assert texts(run)["Most alike across models"] == (
        "Layer 3 of a and layer 1 of b have the highest CKA: 0.950 (95 % CI 0.930–0.960). "
        "With permuted words the value would be 0.125."
    )


def test_in_one_model_two_different_layers_are_the_most_alike():
    run = comparison_run({"a": 4}, ["rsa"], intervals=False, null=False)
    set_value(run, "rsa", ("a", 3), ("a", 0), 0.95)
    run.tables["similarity"]["null"] = np.nan
    run.tables["similarity"]["low"] = np.nan
    assert texts(run)["Most alike"] == "Layers 3 and 0 of a have the highest RSA: 0.950."


def test_the_model_that_repeats_itself_most_is_the_one_of_the_highest_mean():
    run = comparison_run({"a": 4, "b": 2}, intervals=False)
    table = run.tables["curves"]
    means = table[(table["curve"] == "layer_average") & (table["measure"] == "cka")].groupby("model")["value"].mean()
    said = texts(run)["Repetition"]
    assert said.startswith(f"b repeats itself most: its layers have a mean CKA of {means['b']:.3f}")
    assert f"(a {means['a']:.3f})" in said


def test_random_twins_are_what_trained_models_stand_beside():
    run = comparison_run({"a": 3, "a (random)": 3, "b": 4, "b (random)": 4}, ["cka"])
    curves, twin = run.tables["curves"], run.tables["curves"]["model"].str.endswith("(random)")
    curves.loc[twin & (curves["curve"] == "layer_average"), "value"] = 0.99  # a twin repeats itself most
    curves.loc[twin & (curves["curve"] == "to_next_layer"), "value"] = 0.01  # and changes most
    set_value(run, "cka", ("a (random)", 1), ("b (random)", 1), 0.99)  # and is most like another twin
    set_value(run, "cka", ("a", 2), ("b", 1), 0.95)
    said = texts(run)
    assert {"a", "b"} == set(re.findall(r"(\w) 0\.990", said["Repetition"].partition("With random weights: ")[2]))
    assert said["Repetition"].startswith(("a repeats itself most", "b repeats itself most"))
    assert "(random)" not in said["Largest change"]
    assert said["Most alike across models"].startswith("Layer 2 of a and layer 1 of b")


def test_a_model_beside_its_twin_is_what_was_asked_about():
    run = comparison_run({"a": 4, "a (random)": 4}, intervals=False)
    set_value(run, "cka", ("a", 3), ("a (random)", 3), 0.99)
    assert section(run).title == "Which layers of a are alike?"
    assert next(iter(texts(run))) == "Repetition", "the answer first"
    assert "Most alike across models" not in texts(run)
    assert "(random)" not in texts(run)["Most alike"]
    assert section(comparison_run({"a (random)": 4})).title == "Which layers of a (random) are alike?"


def test_a_model_is_subtracted_from_its_twin_before_others():
    models = {name + twin: 3 for name in "abcd" for twin in ("", " (random)")}
    run = comparison_run(models, ["cka"])
    pairs = run.tables["similarity"].groupby(["measure", "model_a", "model_b"], as_index=False)["value"].mean()
    run.tables["models"] = pairs.rename(columns={"value": "best_layers"})
    panels = {panel.title: panel for panel in section(run).panels}
    shown = [view.key for view in panels["How do the maps of two models differ?"].views]
    assert shown[:4] == [f"{name} − {name} (random)" for name in "abcd"]


def test_with_few_words_findings_quote_the_measure_that_they_do_not_raise():
    run = comparison_run({"a": 3, "b": 3}, ["cka", "cka_debiased"])
    run.summary["few words"] = "4 per neuron, so high by chance: cka"
    assert "highest debiased CKA" in texts(run)["Most alike across models"].replace("Debiased", "debiased")
    del run.summary["few words"]
    assert "highest CKA" in texts(run)["Most alike across models"]


def test_the_largest_step_goes_to_the_next_layer_there_is():
    run = comparison_run({"a": 3}, ["cka"])
    run.tables["layers"]["layer"] = [0, 4, 8]
    run.tables["curves"]["layer"] = run.tables["curves"]["layer"] * 4
    steps = run.tables["curves"]["curve"] == "to_next_layer"
    run.tables["curves"].loc[steps, "value"] = [0.9, 0.4]
    assert "from layer 4 to layer 8 of a: CKA 0.400" in texts(run)["Largest change"]


def test_constant_neurons_are_counted_and_located():
    assert texts(comparison_run({"a": 2}))["Constant neurons"] == "All 64 neurons vary over these words."
    found = {("a", 1): 3, ("b", 0): 1}
    said = texts(comparison_run({"a": 2, "b": 1}, constant=found))["Constant neurons"]
    assert said == "4 of 96 neurons are constant over these words: 3 in layer 1 of a and 1 in layer 0 of b."
    everywhere = comparison_run({"a": 9}, constant={("a", layer): 1 for layer in range(9)})
    assert texts(everywhere)["Constant neurons"].endswith("1 in layer 2 of a and more in 6 other layers.")


def test_a_neuron_that_decides_a_layer_is_said_before_any_similarity():
    assert "Outlier neurons" not in texts(comparison_run({"a": 2}))
    run = comparison_run({"a": 3})
    run.tables["layers"]["top_share"] = [0.1, 0.6, 0.98]
    said = texts(run)
    assert list(said).index("Outlier neurons") < list(said).index("Most alike")
    assert "In 2 layers one neuron has more than half of the variance" in said["Outlier neurons"]
    assert "neuron 3 of layer 2 of a: 98%" in said["Outlier neurons"].replace(" %", "%")
    assert "--standardize" in said["Outlier neurons"]
    assert "First words" not in said
    run.tables["layers"]["first_word_share"] = [0.1, 0.2, 0.96]
    assert "(layer 2 of a: 96%)" in texts(run)["First words"]


def test_few_words_are_said_with_the_measures_by_name():
    said = texts(comparison_run({"a": 2}, summary={"few words": "3 per neuron, so high by chance: mixed, cka"}))
    assert said["Few words"] == "There are 3 words per neuron, so these are high by chance: Neuron from layer and CKA."


def test_what_was_not_counted_is_not_claimed():
    run = comparison_run({"a": 2})
    run.tables["layers"]["constant"] = pd.NA
    assert "Constant neurons" not in texts(run)


def test_scope_certainty_and_what_was_left_out():
    run = comparison_run({"a": 3, "b": 1}, ["cka", "knn"], summary={"left out": "attention", "words sampled": 500})
    said = texts(run)
    assert said["Compared"] == (
        "4 layers of 2 models were compared over 1,234 words with 2 measures of similarity: "
        "a (layers 0–2) and b (layer 0)."
    )
    assert "jackknife intervals over 5 groups" in said["Certainty"]
    assert "500 sampled words: Nearest neighbours" in said["Certainty"]
    assert said["Left out"] == "Attention."
    assert "Also counted" not in said
    assert texts(comparison_run({"a": 2}, summary={"uniform rows": 1200}))["Also counted"] == "uniform rows: 1,200"
    assert "Left out" not in texts(comparison_run({"a": 2}))
    assert texts(comparison_run({"a": 2}, intervals=False))["Certainty"] == "No intervals were computed."


def test_two_texts_are_set_beside_each_other():
    run, other = comparison_run({"a": 3}, ["cka"]), comparison_run({"a": 3}, ["cka"])
    set_value(other, "cka", ("a", 0), ("a", 2), 0.5)
    run.tables["beside"] = beside_table(run.tables["similarity"], other.tables["similarity"])
    run.summary["beside"] = "pud"
    page = section(run)
    said = texts(run)["Another text"]
    own, rest = run.tables["similarity"]["value"], other.tables["similarity"]["value"]
    apart = own != 1
    assert f"correlates {np.corrcoef(own[apart], rest[apart])[0, 1]:.3f} with that of pud" in said
    assert f"mean absolute difference is {np.abs(own - rest)[apart].mean():.3f}" in said
    assert "between layer 0 of a and layer 2 of a: 0.260 (95 % CI 0.24" in said
    assert said.endswith("17% leave out 0.")
    panel = next(panel for panel in page.panels if panel.title.startswith("Does another text"))
    figure = panel.views[0].figure
    assert np.nanmax(figure.data[0].z) == pytest.approx(0.26)
    assert figure.layout.coloraxis.cmin == -figure.layout.coloraxis.cmax
    assert "minus that over pud" in figure.layout.title.text


@pytest.mark.parametrize("models", [{"a": 1}, {"a": 1, "b": 1}])
def test_models_of_one_layer_have_nothing_to_repeat(models):
    said = texts(comparison_run(models))
    assert "Repetition" not in said
    assert "Largest change" not in said
    assert ("Most alike across models" in said) == (len(models) == 2)


def test_a_map_of_models_has_room_for_their_names_and_a_map_of_layers_does_not_waste_it():
    models = pd.DataFrame(np.eye(2), *[["all-MiniLM-L6-v2", "all-MiniLM-L6-v2 (random)"]] * 2)
    named, numbered = (similarity._square_map(square, "Viridis", "CKA") for square in (models, pd.DataFrame(np.eye(7))))
    lines = [line for name in named.layout.yaxis.ticktext for line in name.split("<br>")]
    assert lines[-1] == "random"
    assert named.layout.margin.l >= 7 * max(map(len, lines))
    assert numbered.layout.margin.l < 60
    assert numbered.layout.xaxis.tickangle == 0
    assert named.layout.title.text == "CKA", "in the bar's own title plotly lets words fall into the bar"
    assert named.data[0].colorbar.title.text is None
