"""`probe_languages`: one language is learnt, the same neurons are kept in the others, and what is new is counted."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import residuum
from made_stores import TAGS, conllu, known_data
from residuum.activations.correlation import cluster_store
from residuum.activations.store import ActivationStore
from residuum.cli import app
from residuum.corpus import Corpus, split_indices
from residuum.corpus.multilingual import FAMILIES
from residuum.errors import CorpusError, SettingError
from residuum.maths.probing import PaperRecipe, Probe, train_probes
from residuum.maths.targets import class_target
from residuum.probing import languages
from residuum.probing.examples import examples
from residuum.probing.languages import probe_languages
from residuum.storage.results import read_run

RECIPE = PaperRecipe(epochs=3, batch_size=64, learning_rate=0.01)
PAPER = {"recipe": "paper", "epochs": 3, "batch_size": 64, "learning_rate": 0.01}
VOCABULARY = {
    "en": "the quick brown fox jumps over lazy dog a small model text".split(),
    "de": "Wir lesen einen kurzen Satz über größere Häuser word by reads text".split(),
    "sv": "a small the fox dog model quick text lazy over brown jumps".split(),
    "ja": "東京 は 日本 の 首都 です 。 naïve café résumé text 3.14".split(),
}
THRESHOLDS = (0.0, 0.3, 0.6)


def treebank(language: str, n: int = 50, seed: int = 0) -> Corpus:
    """The same tags in every language; its own words, which tell them."""
    data = known_data(n, seed=seed)
    words = VOCABULARY[language]
    places = [
        [TAGS.index(tag) * 4 + int(word[1:]) % 4 for word, tag in zip(*pair, strict=True)] for pair in _pairs(data)
    ]
    sentences = [[words[place] for place in row] for row in places]
    ids = [f"n{i}" for i in range(n)]
    return Corpus(f"made-{language}", sentences, {"upos": data.tags}, ids=ids, language=language, numbered=False)


def _pairs(data):
    return list(zip(data.sentences, data.tags, strict=True))


@pytest.fixture(scope="module")
def run(tiny_folder, tmp_path_factory):
    corpora = [treebank(language) for language in ("en", "de", "ja", "sv")]
    corpora[2].labels["upos"][5][0] = "PART"  # a label that only Japanese has
    out = tmp_path_factory.mktemp("languages") / "run"
    models = [tiny_folder("bert"), tiny_folder("gpt2")]
    options = {"thresholds": THRESHOLDS, "seeds": 2, "teachers": {"gpt2": "bert"}, **PAPER}
    return out, probe_languages(models, corpora, out=out, **options), corpora


def test_every_model_language_and_set_of_neurons_has_a_row(run):
    frame = run[1].frame
    assert len(frame) == 2 * 4 * (3 + 5)
    assert set(frame["language"]) == {"en", "de", "ja", "sv"}
    assert set(frame.loc[frame["kind"] == "threshold", "threshold"]) == set(THRESHOLDS)
    assert frame["score"].between(0, 1).all()
    assert (frame["low"] <= frame["score"]).all()


def test_a_score_is_that_of_a_probe_trained_at_home_on_the_same_neurons(run):
    out, result, corpora = run
    stores = {language: ActivationStore.open(out / "activations" / "bert" / language) for language in ("en", "de")}
    train, _ = split_indices(50, (0.9, 0.1), 0)
    home = examples(stores["en"], corpora[0].labels["upos"]).select(train)
    abroad = examples(stores["de"], corpora[1].labels["upos"])
    kept = cluster_store(stores["en"], home.rows).representatives(0.3, "random", np.random.default_rng(0))
    target = class_target(home.labels)
    found = []
    for seed in (0, 1):
        (probe,) = train_probes(home.features(), {"t": target}, [Probe("t", kept, seed=seed)], RECIPE)
        found.append(np.mean(probe.predict(abroad.features()) == target.encode(abroad.labels)))
    rows = result.frame.set_index(["model", "language", "features"])
    row = rows.loc[("bert", "de", "threshold 0.3")]
    assert row["neurons"] == len(kept) < 64
    assert row["words"] == len(abroad)
    assert row["score"] == pytest.approx(np.mean(found), abs=0.01)


def test_held_out_sentences_have_the_same_numbers_in_every_language(run):
    out, result, corpora = run
    train, held_out = split_indices(50, (0.9, 0.1), 0)
    home = result.frame[(result.frame["language"] == "en")]
    assert (home["words"] == sum(len(corpora[0].sentences[i]) for i in held_out)).all()
    np.testing.assert_allclose(home["score"], home["held_out"])
    store = ActivationStore.open(out / "activations" / "bert" / "de")
    abroad = examples(store, corpora[1].labels["upos"]).select(held_out)
    learnt = examples(ActivationStore.open(out / "activations" / "bert" / "en"), corpora[0].labels["upos"]).select(
        train
    )
    target = class_target(learnt.labels)
    probes = [Probe("t", None, seed=seed) for seed in (0, 1)]
    trained = train_probes(learnt.features(), {"t": target}, probes, RECIPE)
    expected = np.mean([probe.predict(abroad.features()) == target.encode(abroad.labels) for probe in trained])
    row = result.frame.set_index(["model", "language", "features"]).loc[("bert", "de", "threshold 0")]
    assert row["held_out"] == pytest.approx(expected, abs=0.01)
    assert result.run.config["sentences"] == {"train": 45, "held out": 5}


def test_lambda_is_not_chosen_on_sentences_that_are_scored_or_learnt_from(tiny_folder, monkeypatch):
    seen = []

    class Spy(languages.ProbeGrid):
        def train(self):
            seen.append(self.data.splits)
            return super().train()

    monkeypatch.setattr(languages, "ProbeGrid", Spy)
    options = {"thresholds": (0.0,), "subsets": False}
    for more in ({}, {"penalty": (0.0, 0.01)}):
        probe_languages(tiny_folder("bert"), [treebank("en"), treebank("de")], **options, **more)
    train, held_out = (set(numbers) for numbers in split_indices(50, (0.9, 0.1), 0))
    chosen, fixed = ({name: set(getattr(splits, name).sentences) for name in ("train", "dev")} for splits in seen)
    assert len(chosen["dev"]) == 5
    assert chosen["dev"] | chosen["train"] == train
    assert chosen["dev"].isdisjoint(chosen["train"] | held_out)
    assert fixed["train"] == train


def test_the_control_task_is_scored_at_home_only(run):
    frame = run[1].frame
    at_home = frame["language"] == "en"
    assert frame.loc[at_home, "selectivity"].notna().all()
    assert frame.loc[~at_home, "selectivity"].isna().all()


def test_labels_that_home_never_has_are_errors_and_counted(run):
    result = run[1]
    assert result.unseen.to_dict("records") == [{"language": "ja", "label": "PART", "examples": 1}]
    unseen = result.frame.groupby("language")["unseen"].unique()
    assert {language: list(found) for language, found in unseen.items()} == {"de": [0], "en": [0], "ja": [1], "sv": [0]}
    assert result.run.summary["words with unseen labels"] == 1


def test_families_are_means_without_the_home_language(run):
    result = run[1]
    families = result.families.set_index(["model", "family", "features"])
    rows = result.frame.set_index(["model", "language", "features"])["score"]
    germanic = families.loc[("gpt2", "Germanic", "threshold 0.6")]
    assert germanic["languages"] == 2
    mean = (rows["gpt2", "de", "threshold 0.6"] + rows["gpt2", "sv", "threshold 0.6"]) / 2
    assert germanic["score"] == pytest.approx(mean)
    assert set(result.families["family"]) == {"Germanic", "Japonic"}


def test_intervals_of_families_hold_their_means_and_are_narrower_than_those_of_their_languages(run):
    families = run[1].families
    assert (families["low"] <= families["score"]).all()
    assert (families["score"] <= families["high"]).all()
    assert (families["seeds"] == 2).all()
    rows = run[1].frame.query("language in ('de', 'sv') and features == 'threshold 0'")
    germanic = families.query("family == 'Germanic' and features == 'threshold 0'")
    assert germanic["high"].mean() - germanic["low"].mean() < 1.5 * (rows["high"] - rows["low"]).mean()


def test_a_student_is_compared_with_its_teacher_language_by_language(run):
    rows, scores = run[1].students, run[1].frame.set_index(["model", "language", "features"])["score"]
    assert set(rows["model"]) == {"gpt2"}
    assert set(rows["teacher"]) == {"bert"}
    assert set(rows["language"]) == {"en", "de", "ja", "sv"}
    for row in rows.to_dict("records"):
        expected = scores["gpt2", row["language"], row["features"]], scores["bert", row["language"], row["features"]]
        assert row["score"] == pytest.approx(expected[0])
        assert row["change"] == pytest.approx(expected[0] - expected[1])
        assert row["low"] <= row["change"] <= row["high"]
    assert "gpt2 falls below bert in" in run[1].text()


def test_a_model_is_no_better_or_worse_than_itself(tiny_folder):
    corpora = [treebank("en", 40), treebank("de", 40)]
    model = residuum.load_model(tiny_folder("bert"))
    twins = [replace(model, name=name) for name in ("teacher", "student")]
    options = {"thresholds": (0.0,), "subsets": False, "seeds": 1, **PAPER}
    equal = probe_languages(twins, corpora, teachers={"student": "teacher"}, **options).students
    assert (equal[["change", "low", "high"]] == 0).all(axis=None)
    assert probe_languages(twins, corpora, **options).students.empty  # nobody said that one is a student
    with pytest.raises(SettingError, match="There is no model x to compare; the models are teacher, student"):
        probe_languages(twins, corpora, teachers={"student": "x"}, **options)


def test_training_accuracy_is_that_of_the_source_in_every_language(run):
    trained = run[1].frame.groupby(["model", "features"])["train"]
    assert (trained.nunique() == 1).all()
    assert trained.first().between(0, 1).all()
    assert trained.first().mean() > run[1].frame["score"].mean()


def test_languages_with_the_same_words_need_the_same_neurons(tiny_folder):
    corpora = {"en": treebank("en", 40), "copy": treebank("en", 40), "ja": treebank("ja", 40)}
    options = {"thresholds": (0.0,), "subsets": False, "seeds": 1, **PAPER}
    table = probe_languages(tiny_folder("bert"), corpora, overlap=0.25, **options).run.tables["overlap"]
    overlap = table.set_index(["language_a", "language_b"])["overlap"]
    assert overlap["en", "copy"] == 1
    assert overlap["en", "ja"] == overlap["copy", "ja"] < 1
    assert (table["neurons"] == 16).all()
    assert (table["chance"] == 0.25).all()


def test_treebanks_need_not_be_parallel(tiny_folder):
    corpora = [treebank("en", 50), treebank("de", 30)]
    options = {"thresholds": (0.0,), "subsets": False, "seeds": 1, **PAPER}
    alone = probe_languages(tiny_folder("bert"), corpora, parallel=False, **options)
    rows = alone.frame.set_index("language")
    assert rows.loc["de", "words"] == corpora[1].n_words
    assert rows["held_out"].notna().tolist() == [True, False]  # no German sentence translates an English one
    assert alone.run.config["parallel"] is False
    assert "the treebanks hold different sentences" in alone.text()
    (warning,) = alone.run.summary["warnings"]
    assert "held_out is blank" in warning


def test_the_wide_table_has_the_shape_of_the_paper(run):
    result = run[1]
    assert result.wide["threshold"].tolist() == list(THRESHOLDS)
    assert list(result.wide)[1:3] == ["Germanic, de, bert", "Germanic, de, gpt2"]
    rows = result.frame.set_index(["model", "language", "features"])["score"]
    assert result.wide["Japonic, ja, gpt2"].tolist()[1] == rows["gpt2", "ja", "threshold 0.3"]
    whole = result.frame.set_index(["model", "language", "features"]).loc[("gpt2", "ja", "threshold 0")]
    baseline = result.baselines.set_index(["language", "baseline"])["score"]["ja"].max()
    shown = f"{whole['score']:.3f} [{whole['low']:.3f}, {whole['high']:.3f}], baseline {baseline:.3f}"
    assert f"Japonic, ja, gpt2: {shown}" in result.text()
    assert "upos learnt in en scores" in result.text()
    assert "(2 probe seeds, 95 % intervals)" in result.text()
    assert "How well does upos learnt in en transfer to other languages?" in result._repr_html_()


def test_thresholds_leave_fewer_and_fewer_neurons(run):
    clusters = run[1].run.tables["clusters"]
    for _, own in clusters.groupby("model"):
        assert own["neurons"].is_monotonic_decreasing
        assert own["neurons"].iloc[0] == 64
        assert own["share"].iloc[0] == 1


def test_words_of_home_help_only_where_they_are_shared(run):
    table = run[1].baselines.set_index(["language", "baseline"])["score"]
    assert table["en", "word majority"] > 0.95
    assert table["ja", "word majority"] < 0.6


def test_each_model_reads_each_treebank_once_and_the_run_returns_at_once(run, tiny_folder):
    out, first, corpora = run
    shards = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    assert len({path.parent for path in shards}) == 8
    models = [tiny_folder("bert"), tiny_folder("gpt2")]
    options = {"thresholds": THRESHOLDS, "seeds": 2, "teachers": {"gpt2": "bert"}, **PAPER}
    again = probe_languages(models, corpora, out=out, **options)
    assert shards == {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    pd.testing.assert_frame_equal(first.frame, again.frame, check_dtype=False)


def test_the_command_gives_the_numbers_of_python(tiny_folder, tmp_path):
    files = []
    for language in ("en", "de"):
        corpus = treebank(language, 40)
        files.append(tmp_path / f"{language}_made-ud-test.conllu")
        files[-1].write_text(conllu(corpus.sentences, corpus.labels["upos"]))
    options = ["--task", "upos", "--corpora", ",".join(map(str, files)), "--no-subsets"]
    options += ["--recipe", "paper", "--seeds", "1", "--epochs", "2"]
    options += ["--thresholds", "0,0.5", "--representatives", "medoid", "--out", str(tmp_path / "cli"), "--random-twin"]
    options += ["--families", "de=West Germanic", "--shares", "0.5,0.25"]
    done = CliRunner().invoke(app, ["probe-languages", str(tiny_folder("bert")), *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "West Germanic, de, bert" in done.output
    python = probe_languages(
        tiny_folder("bert"),
        dict(zip(("en", "de"), files, strict=True)),
        thresholds=(0.0, 0.5),
        representatives="medoid",
        subsets=False,
        families={"de": "West Germanic"},
        shares=(0.5, 0.25),
        random_twin=True,
        seeds=1,
        recipe="paper",
        epochs=2,
    )
    table = read_run(tmp_path / "cli").tables["languages"]
    pd.testing.assert_frame_equal(table, python.frame, check_dtype=False)
    assert read_run(tmp_path / "cli").config["sentences"] == {"train": 20, "held out": 10}
    twins = python.frame.groupby("language")["random_twin"].unique()
    assert all(len(found) == 1 and 0 <= found[0] <= 1 for found in twins)
    assert "mean accuracy of random twins abroad" in python.run.summary
    assert "The random twin (same model, random weights) reaches" in python._repr_html_()


def test_the_twin_of_a_language_is_scored_on_its_own_activations(tiny_folder, tmp_path):
    corpora = [treebank("en", 40), treebank("de", 40)]
    options = {"thresholds": (0.0,), "subsets": False, "seeds": 1, **PAPER, "out": tmp_path / "run"}
    result = probe_languages(tiny_folder("bert"), corpora, random_twin=True, **options)
    folder = tmp_path / "run" / "activations-random" / "bert"
    twins = {language: ActivationStore.open(folder / language) for language in ("en", "de")}
    train, _ = split_indices(40, (0.9, 0.1), 0)
    home = examples(twins["en"], corpora[0].labels["upos"]).select(train)
    abroad = examples(twins["de"], corpora[1].labels["upos"])
    target = class_target(home.labels)
    (probe,) = train_probes(home.features(), {"t": target}, [Probe("t")], RECIPE)
    own = np.mean(probe.predict(abroad.features()) == target.encode(abroad.labels))
    found = result.frame.set_index("language")["random_twin"]
    assert found["de"] == pytest.approx(own, abs=0.01)


@pytest.mark.parametrize(("option", "value"), [("--families", "de"), ("--shares", "0.9"), ("--shares", "most,few")])
def test_what_cannot_be_read_of_an_option_is_a_usage_error(option, value, tmp_path):
    arguments = ["m", "--corpora", "a.conllu,b.conllu", "--task", "upos", "--out", str(tmp_path), option, value]
    assert CliRunner().invoke(app, ["probe-languages", *arguments]).exit_code == 2


def test_treebanks_that_are_not_parallel_are_refused(tiny_folder):
    model = tiny_folder("bert")
    with pytest.raises(CorpusError, match="of de has 40 sentences, that of en 50"):
        probe_languages(model, [treebank("en"), treebank("de", 40)])
    turned = treebank("de").select(range(49, -1, -1))
    with pytest.raises(CorpusError, match="Sentence 1 is n49 in the treebank of de and n0 in that of en"):
        probe_languages(model, [treebank("en"), turned])
    with pytest.raises(SettingError, match="are both called en; give each language one treebank"):
        probe_languages(model, [treebank("en"), treebank("en")])
    with pytest.raises(SettingError, match="Found treebanks of en, to be learnt from in en; expected at least two"):
        probe_languages(model, [treebank("en")])
    with pytest.raises(SettingError, match="to be learnt from in tr"):
        probe_languages(model, [treebank("en"), treebank("de")], source="tr")


def test_models_must_differ_and_thresholds_be_there(tiny_folder):
    corpora = [treebank("en"), treebank("de")]
    with pytest.raises(SettingError, match="Two models are called bert"):
        probe_languages([tiny_folder("bert"), tiny_folder("bert")], corpora)
    with pytest.raises(SettingError, match="Found no model"):
        probe_languages([], corpora)
    with pytest.raises(SettingError, match="The thresholds are"):
        probe_languages(tiny_folder("bert"), corpora, thresholds=())
    with pytest.raises(SettingError, match="thresholds is .+expected numbers .+ at most 1"):
        probe_languages(tiny_folder("bert"), corpora, thresholds=(0.5, 1.5))


def test_families_are_known():
    assert [FAMILIES.get(code, "Other") for code in ("en", "pt", "ru", "fi", "tr", "ja", "xx")] == [
        *("Germanic", "Romance", "Slavic", "Uralic", "Turkic", "Japonic", "Other")
    ]
