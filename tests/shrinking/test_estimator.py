"""`FeatureTransfer` keeps the conventions of scikit-learn."""

import gc
import math
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.utils.validation import check_is_fitted
from tagged_words import RECIPE, numbered_corpus, tagged_corpus

from residuum.corpus.tasks import Task
from residuum.errors import CorpusError, SettingError, StoreError
from residuum.models.loading import load_model
from residuum.shrinking.estimator import FeatureTransfer
from residuum.shrinking.tables import share_of_oracle
from residuum.shrinking.transferring import transfer
from residuum.storage.results import Run, read_run, write_run

TEXTS = ["the quick fox jumps over a dog", "a model reads"]


@pytest.fixture(scope="module")
def fitted(tiny_folder):
    return FeatureTransfer(tiny_folder(), "upos", recipe=RECIPE).fit(tagged_corpus())


def test_parameters_can_be_read_set_and_cloned(tiny_folder):
    estimator = FeatureTransfer(tiny_folder(), "upos", layer_loss=0.05, budget="neurons=9")
    twin = clone(estimator)
    assert twin is not estimator
    assert twin.get_params() == estimator.get_params()
    assert estimator.set_params(neuron_loss=0.2).neuron_loss == 0.2


def test_before_fit_nothing_can_be_predicted(tiny_folder):
    estimator = FeatureTransfer(tiny_folder())
    with pytest.raises(NotFittedError, match="call fit first"):
        estimator.predict(TEXTS)
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)


def test_fit_gives_itself_and_what_it_learnt(fitted):
    check_is_fitted(fitted)
    assert fitted.classes_.tolist() == ["NOUN", "OTHER", "VERB"]
    assert fitted.n_neurons_ == len(fitted.result_.neurons)


def test_it_is_what_the_function_gives(fitted, tiny_folder, tmp_path):
    result = transfer(tiny_folder(), tagged_corpus(), "upos", tmp_path, recipe=RECIPE, progress=False)
    assert result.neurons.equals(fitted.result_.neurons)
    assert result.predict(TEXTS) == fitted.predict(TEXTS)


def test_the_score_is_the_share_of_right_tags(fitted):
    unseen = tagged_corpus(40, seed=9)
    texts, tags = [" ".join(words) for words in unseen.sentences], unseen.labels["upos"]
    right = [a == b for x, y in zip(fitted.predict(texts), tags, strict=True) for a, b in zip(x, y, strict=True)]
    assert fitted.score(texts, tags) == fitted.score(unseen) == pytest.approx(np.mean(right))


def test_saved_and_loaded_it_predicts_the_same(fitted, tmp_path):
    again = FeatureTransfer.load(fitted.save(tmp_path / "saved"))
    assert again.predict(TEXTS) == fitted.predict(TEXTS)
    assert again.layer_loss == fitted.layer_loss
    assert again.score(tagged_corpus(20, seed=9)) == fitted.score(tagged_corpus(20, seed=9))
    with pytest.raises(SettingError, match="is not empty"):
        fitted.save(tmp_path / "saved")


def test_a_copy_that_broke_off_is_not_there_and_can_be_made_again(fitted, tmp_path, monkeypatch):
    def broken(source, target, **options):
        (target / "result.json").write_text("{}")
        raise OSError("no more")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no more"):
        patch.setattr("shutil.copytree", broken)
        fitted.save(tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []
    assert FeatureTransfer.load(fitted.save(tmp_path / "saved")).predict(TEXTS) == fitted.predict(TEXTS)


def test_loaded_it_has_the_settings_that_it_was_made_with(tiny_folder, tmp_path):
    settings = {"penalty": "1e-4,0.002", "recipe": RECIPE, "steps": ("layers",), "budget": "layers=1"}
    made = FeatureTransfer(tiny_folder(), "upos", layer_loss=0.03, **settings).fit(tagged_corpus(40))
    found = FeatureTransfer.load(made.save(tmp_path / "saved")).get_params()
    expected = made.get_params() | {"model": load_model(tiny_folder()).name, "penalty": "1e-4,2e-3"}
    assert found == expected
    assert found["out"] is None


def test_loaded_it_scores_a_task_that_has_no_name(tiny_folder, tmp_path):
    task = Task("share of nouns", "score", "sentence", "pearson", regression=True)
    made = FeatureTransfer(tiny_folder(), task, recipe=RECIPE, position="mean", steps=("layers",))
    made.fit(numbered_corpus(160))
    again = FeatureTransfer.load(made.save(tmp_path / "saved"))
    unseen = numbered_corpus(40, seed=9)
    assert again.score(unseen) == made.score(unseen)


def test_fit_takes_the_place_of_what_it_wrote_before(tiny_folder, tmp_path):
    out = tmp_path / "made"
    estimator = FeatureTransfer(tiny_folder(), "upos", recipe=RECIPE, steps=("layers",), out=out)
    first = estimator.fit(tagged_corpus(40)).result_.run.config
    second = estimator.fit(tagged_corpus(40, seed=1)).result_.run.config
    assert first["data"] != second["data"] == read_run(out).config["data"]
    assert clone(estimator).set_params(layer_loss=0.3).fit(tagged_corpus(40)).result_.run.config["layer_loss"] == 0.3


def test_fit_leaves_the_run_of_another_command_alone(tiny_folder, tmp_path):
    write_run(tmp_path, Run("probe", {}))
    estimator = FeatureTransfer(tiny_folder(), "upos", recipe=RECIPE, out=tmp_path)
    with pytest.raises(StoreError, match="holds a run of `probe`"):
        estimator.fit(tagged_corpus(40))


def test_a_killed_fit_on_the_same_data_goes_on(tiny_folder, tmp_path, monkeypatch):
    from residuum.shrinking import work

    estimator = FeatureTransfer(tiny_folder(), "upos", recipe=RECIPE, out=tmp_path)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(work, "select_neurons", killed)
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(tagged_corpus(40))
    monkeypatch.setattr(work, "select_layers", lambda *_: pytest.fail("this was finished"))
    assert estimator.fit(tagged_corpus(40)).predict(TEXTS)


def test_it_can_be_cross_validated(tiny_folder, tmp_path):
    corpus = tagged_corpus(60)
    settings = {"recipe": RECIPE, "position": "mean", "steps": ("layers",)}
    estimator = FeatureTransfer(tiny_folder(), "sentence", out=tmp_path / "folds", **settings)
    texts, labels = [" ".join(words) for words in corpus.sentences], corpus.sentence_labels["label"]
    scores = cross_val_score(estimator, texts, labels, cv=3, error_score="raise")
    assert scores.shape == (3,)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert not hasattr(estimator, "predictor_")


@pytest.mark.parametrize("unit", ["word", "sentence"])
def test_what_is_labelled_none_is_no_class(unit, tiny_folder):
    corpus = tagged_corpus(80)
    texts, task = [" ".join(words) for words in corpus.sentences], "upos" if unit == "word" else "sentence"
    tags, kinds = corpus.labels["upos"], corpus.sentence_labels["label"]
    labels = [[None, *row[1:]] for row in tags] if unit == "word" else [None, *kinds[1:]]
    settings = {"recipe": RECIPE, "position": "mean", "steps": ("layers",)}
    estimator = FeatureTransfer(tiny_folder(), task, **settings).fit(texts, labels)
    assert "None" not in estimator.classes_
    n_labels = sum(estimator.result_.run.summary["examples"].values())
    assert n_labels == (sum(len(row) - 1 for row in tags) if unit == "word" else 79)
    assert 0 <= estimator.score(texts, labels) <= 1


def test_without_a_folder_the_files_go_with_the_estimator(tiny_folder):
    estimator = FeatureTransfer(tiny_folder(), "upos", recipe=RECIPE, steps=["layers"]).fit(tagged_corpus(40))
    folder = estimator.result_.folder
    assert folder.is_dir()
    del estimator
    gc.collect()
    assert not folder.exists()


def test_texts_and_labels_can_be_given_as_lists(tiny_folder):
    corpus = tagged_corpus()
    estimator = FeatureTransfer(tiny_folder(), "sentence", recipe=RECIPE, position="mean", steps=["layers"])
    texts, labels = [" ".join(words) for words in corpus.sentences], corpus.sentence_labels["label"]
    found = estimator.fit(texts, labels).predict(texts[:5])
    assert isinstance(found, np.ndarray)
    assert set(found) <= {"noun", "other"}
    with pytest.raises(CorpusError, match="80 texts came with 3 labels"):
        estimator.fit(texts, labels[:3])


def test_no_share_of_the_oracle_is_said_where_it_scores_nothing():
    assert math.isnan(share_of_oracle(0.5, SimpleNamespace(test=0.0)))
    assert share_of_oracle(0.3, SimpleNamespace(test=0.6)) == 0.5
