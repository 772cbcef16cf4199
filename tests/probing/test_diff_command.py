"""`residuum diff`, what it refuses, and what it finds where the change was made by hand."""

import numpy as np
import pandas as pd
import pytest
from labelled_text import labelled_text
from typer.testing import CliRunner

from made_stores import BOTH, TAG, KnownData, conllu, known_data
from residuum.cli import app
from residuum.corpus import Corpus
from residuum.errors import CorpusError, SettingError, StoreError
from residuum.maths.probing import PaperRecipe
from residuum.probing.diff import diff
from residuum.probing.diff_reading import read_texts
from residuum.probing.examples import labelled_splits
from residuum.probing.orders import find_minimal_set, neuron_orders
from residuum.probing.probe_data import TASK, ProbeData
from residuum.probing.rank import rank
from residuum.probing.scores import ProbeGrid, neuron_set
from residuum.storage.results import read_run

DATA = known_data(150)
CORPUS = Corpus("known", DATA.sentences, {"upos": DATA.tags})
PAPER = {"recipe": "paper", "seeds": 2, "epochs": 10, "batch_size": 32, "learning_rate": 0.01}
QUICK = {
    **PAPER,
    "by": "lca",
    "groups": 3,
    "thresholds": (0.3,),
    "workers": 1,
    "progress": False,
}


def forgetful() -> KnownData:
    """The same words, whose last layer no longer knows the tag."""
    changed = DATA.activations.copy()
    changed[:, BOTH] = np.random.default_rng(5).permutation(changed[:, BOTH])
    return KnownData(DATA.sentences, DATA.tags, changed)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    return {"base": DATA.store(folder / "base"), "tuned": forgetful().store(folder / "tuned")}


@pytest.fixture(scope="module")
def result(stores):
    return diff(stores, CORPUS, "upos", **QUICK)


@pytest.fixture(scope="module")
def converged(stores):
    """The same with the default probes and the default order of neurons."""
    return diff(stores, CORPUS, "upos", groups=3, thresholds=(0.3,), workers=1, progress=False)


def test_what_a_layer_forgot_is_found_there_and_nowhere_else(converged):
    rows = converged.frame.set_index("features")
    assert rows.loc["layer 2", "change"] < -0.4
    assert rows.loc["layer 2", "high"] < -0.3
    unchanged = rows.loc[["layer 0", "layer 1"], ["change", "low", "high"]]
    assert (unchanged == 0).all(axis=None)
    likeness = converged.likeness.set_index(["measure", "layer"])["value"]
    assert likeness["cka", BOTH] < 0.2
    assert likeness["cka", TAG] == pytest.approx(1)


def test_the_answer_names_what_changed_beyond_chance_beside_baselines_and_seeds(stores, result):
    whole = result.frame.loc[result.frame["layer"].isna()].iloc[0]
    assert f"baseline {result.run.tables['baselines']['score'].max():.3f}" in result.text()
    assert "(1 comparisons, 2 probe seeds, 95 % intervals)" in result.answer
    changed = whole["low"] > 0 or whole["high"] < 0
    assert (f"upos in tuned ({whole['change']:+.3f})" in result.answer) == changed
    same = diff({"base": stores["base"], "same": stores["base"]}, CORPUS, "upos", measures="cka", **QUICK)
    assert same.answer.startswith("No change of all layers together is larger than chance")


def test_a_converged_probe_has_one_run_and_few_neurons_suffice(converged):
    assert (converged.frame["seeds"] == 1).all()
    assert "converged probes" in converged.answer
    sizes = converged.minimal.set_index(["model", "set"])["neurons"]
    assert sizes["base", "minimal"] < sizes["base", "all"]
    assert converged.minimal["sufficient"].all()


def test_salient_neurons_leave_the_layer_that_forgot(result):
    spread = result.spread.loc[result.spread["set"] == "top 0.1"].set_index(["model", "layer"])["share"]
    assert spread["base", BOTH] > 0 or spread["base", TAG] > 0
    assert spread["tuned", BOTH] == 0


def test_the_interval_of_a_change_is_that_of_paired_answers(result):
    """Both models answer the same words, so the band of the difference is narrower than the two bands together."""
    change = result.frame.set_index("features").loc["all layers"]
    own = result.scores.loc[result.scores["features"] == "all layers"]
    assert change["low"] <= change["change"] <= change["high"]
    assert change["high"] - change["low"] <= (own["high"] - own["low"]).sum()


def test_models_without_attention_are_compared_without_it_unless_it_was_asked_for(stores, result):
    assert result.run.summary["left out"].startswith("attention: base gives none (extract it with --attention")
    assert not result.similarity["measure"].str.startswith("attention").any()
    with pytest.raises(SettingError, match="There is no attention to compare: base gives none"):
        diff(stores, CORPUS, "upos", measures="attention_cka", **QUICK)


def test_one_model_alone_or_two_of_one_name_are_refused(tiny_folder, tmp_path):
    folder = tiny_folder("bert")
    with pytest.raises(SettingError, match="Found 1 model to compare; give the base and at least one other"):
        diff([folder], CORPUS, "upos")
    with pytest.raises(SettingError, match="Two models are called bert; name them, such as base=FOLDER"):
        diff([folder, folder], CORPUS, "upos")
    with pytest.raises(SettingError, match="Two models are called x"):
        diff([f"x={folder}", f"x={folder}"], CORPUS, "upos")


def test_stores_over_other_words_are_refused(stores):
    other = labelled_text(150)
    with pytest.raises(StoreError, match=r"base and text are over different words \(sentence 1 differs\)"):
        diff(stores, other, "upos", **QUICK)
    with pytest.raises(StoreError, match=r"different words \(150 and 120 sentences\)"):
        diff(stores, CORPUS, "upos", limit=120, **QUICK)
    with pytest.raises(SettingError, match="one text, but the tasks need 2; give the model itself"):
        diff(stores, CORPUS, {"upos": None, "length": other}, **QUICK)


def test_unknown_and_repeated_tasks_and_tasks_of_numbers_are_refused(stores):
    with pytest.raises(CorpusError, match="known has no word labels 'chunk'; it has upos"):
        diff(stores, CORPUS, "upos,chunk", **QUICK)
    with pytest.raises(SettingError, match="The tasks are upos, upos; give at least one, and each once"):
        diff(stores, CORPUS, "upos,upos", **QUICK)
    with pytest.raises(SettingError, match="The tasks are none"):
        diff(stores, CORPUS, "", **QUICK)
    with pytest.raises(SettingError, match="stsb predicts numbers"):
        diff(stores, CORPUS, "stsb", **QUICK)


def test_settings_that_make_no_sense_are_refused(stores):
    for setting, said in {
        "penalty": ("search", "penalty is 'search'; expected 2 numbers"),
        "keep": (1.5, "keep is 1.5; expected a number"),
        "shares": ((0.7,), "shares is .+at most 0.5"),
        "thresholds": ((0.7, 0.3), "in ascending order"),
    }.items():
        with pytest.raises(SettingError, match=said[1]):
            diff(stores, CORPUS, "upos", **{**QUICK, setting: said[0]})


def test_parts_of_their_own_are_kept(tmp_path):
    sizes = {"train": 20, "dev": 6, "test": 8}
    for part, size in sizes.items():
        (tmp_path / f"{part}.conllu").write_text(conllu(DATA.sentences[:size], DATA.tags[:size]))
    (text,) = read_texts(tmp_path, "upos,deprel")
    assert {part: len(own) for part, own in text.parts.items()} == sizes
    assert [text.corpus.sentences[i] for i in text.parts["test"]] == DATA.sentences[:8]
    assert [task.name for task in text.tasks] == ["upos", "deprel"]
    alone, other = read_texts(CORPUS, f"upos,deprel={tmp_path}")
    assert alone.corpus is CORPUS
    assert other.tasks[0].name == "deprel"


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "treebank.conllu"
    text = labelled_text(30)
    path.write_text(conllu(text.sentences, text.labels["upos"]))
    return path


def run_command(*arguments):
    return CliRunner().invoke(app, ["diff", *map(str, arguments)])


def test_the_command_writes_what_python_measures_and_a_page(tiny_folder, treebank, tmp_path):
    sources = [f"base={tiny_folder('bert')}", f"other={tiny_folder('distilbert')}"]
    options = "--tasks upos,deprel --measures cka --groups 2 --thresholds 0.5 --shares 0.1"
    options += " --recipe paper --seeds 1 --epochs 1"
    out = tmp_path / "run"
    done = run_command(*sources, "--corpus", treebank, "--out", out, "--workers", 1, *options.split())
    assert done.exit_code == 0, done.output
    assert "upos, other: all layers" in done.output
    page = (out / "report.html").read_text()
    assert "What changed from base to other?" in page
    again = diff(
        sources, treebank, ["upos", "deprel"], measures="cka", groups=2, seeds=1, recipe="paper", epochs=1,
        thresholds=(0.5,), shares=(0.1,), workers=1, progress=False,
    )  # fmt: skip
    written = read_run(out)
    for name, table in again.run.tables.items():
        pd.testing.assert_frame_equal(written.tables[name], table)


def test_a_mistake_is_one_line(tiny_folder, treebank, tmp_path):
    failed = run_command(tiny_folder("bert"), "--corpus", treebank, "--tasks", "upos", "--out", tmp_path / "x")
    assert isinstance(failed.exception, SettingError)
    assert "\n" not in str(failed.exception)


def test_top_and_bottom_neurons_are_those_that_rank_finds(stores, result):
    ranked = rank(stores["base"], CORPUS, "upos", methods=["lca"], shares=(0.05, 0.1), cards=0, **PAPER)
    columns = ["share", "set", "neurons", "kept", "retrained"]
    ranked = ranked.selection.query("method == 'lca'").reset_index(drop=True)
    own = result.selection.loc[result.selection["model"] == "base", columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(own, ranked[columns], atol=0.01)


@pytest.mark.parametrize("keep", [1.0, 0.99, 0.7])
def test_the_minimal_set_is_the_smallest_that_keeps_the_score_within_one_standard_error(stores, keep):
    found = diff(stores, CORPUS, "upos", measures="cka", keep=keep, **QUICK)
    whole, minimal = (
        found.minimal.query(f"model == 'base' and set == '{name}'").iloc[0] for name in ("all", "minimal")
    )
    recipe = PaperRecipe(epochs=10, batch_size=32, learning_rate=0.01)
    data = ProbeData(labelled_splits(stores["base"], CORPUS, "upos"), recipe, seeds=2)
    order = neuron_orders(data, ["lca"])["lca"].order
    expected = find_minimal_set(data, lambda fold: neuron_orders(fold, ["lca"])["lca"].order, order, keep)
    assert minimal["neurons"] == len(expected.neurons) <= whole["neurons"]
    assert minimal["sufficient"] == expected.sufficient
    head = neuron_set("head", "order", data.splits.layout, expected.neurons, ordered=True)
    alone = ProbeGrid(data, [head], [TASK]).train()
    assert alone.on("test").mean("head") == pytest.approx(minimal["score"])
    assert alone.on("dev").mean("head") == pytest.approx(minimal["dev"])


def test_labels_that_training_never_saw_are_said(stores):
    tags = [list(row) for row in DATA.tags]
    (text,) = read_texts(CORPUS, "upos")
    tags[text.parts["dev"][0]][0] = "NEW"
    found = diff(stores, Corpus("known", DATA.sentences, {"upos": tags}), "upos", measures="cka", **QUICK)
    assert "dev examples have labels that training never saw (NEW)" in found.run.summary["notes"][-1]
    assert found.run.summary["notes"][-1].startswith("upos: 1 of ")
