"""`FeatureTransfer` keeps the conventions of scikit-learn."""

import copy
import gc
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted
from tagged_words import RECIPE, numbered_corpus, tagged_corpus

from residuum.corpus.tasks import Task
from residuum.errors import CorpusError, SettingError, StoreError
from residuum.models.loading import load_model
from residuum.shrinking.estimator import FeatureTransfer
from residuum.shrinking.records import kept_share, share_of_oracle
from residuum.shrinking.selection import FeatureSelection
from residuum.shrinking.transferring import transfer
from residuum.storage.results import Run, read_run, write_run

TEXTS = ["the quick fox jumps over a dog", "a model reads"]


@pytest.fixture(scope="module")
def fitted(tiny_folder):
    return FeatureTransfer(tiny_folder(), "upos").fit(tagged_corpus())


def test_parameters_can_be_read_set_and_cloned(tiny_folder):
    estimator = FeatureTransfer(tiny_folder(), "upos", keep=0.95, budget="neurons=9")
    twin = clone(estimator)
    assert twin is not estimator
    assert twin.get_params() == estimator.get_params()
    assert estimator.set_params(keep=0.8).keep == 0.8


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
    result = transfer(tiny_folder(), tagged_corpus(), "upos", tmp_path, progress=False)
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
    assert again.keep == fitted.keep
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
    settings = {"penalty": (1e-4, 0.002), "recipe": RECIPE, "steps": ("layers",), "budget": "layers=1"}
    made = FeatureTransfer(tiny_folder(), "upos", keep=0.97, **settings).fit(tagged_corpus(40))
    found = FeatureTransfer.load(made.save(tmp_path / "saved")).get_params()
    expected = made.get_params() | {"model": load_model(tiny_folder()).name}
    assert found == expected
    assert found["out"] is None


def test_loaded_it_scores_a_task_that_has_no_name(tiny_folder, tmp_path):
    task = Task("share of nouns", "score", "sentence", "pearson", regression=True)
    made = FeatureTransfer(tiny_folder(), task, position="mean", steps=("layers",))
    made.fit(numbered_corpus(160))
    again = FeatureTransfer.load(made.save(tmp_path / "saved"))
    unseen = numbered_corpus(40, seed=9)
    assert again.score(unseen) == made.score(unseen)


def test_fit_takes_the_place_of_what_it_wrote_before(tiny_folder, tmp_path):
    out = tmp_path / "made"
    estimator = FeatureTransfer(tiny_folder(), "upos", steps=("layers",), out=out)
    first = estimator.fit(tagged_corpus(40)).result_.run.config
    second = estimator.fit(tagged_corpus(40, seed=1)).result_.run.config
    assert first["data"] != second["data"] == read_run(out).config["data"]
    assert clone(estimator).set_params(keep=0.7).fit(tagged_corpus(40)).result_.run.config["keep"] == 0.7


def test_fit_leaves_the_run_of_another_command_alone(tiny_folder, tmp_path):
    write_run(tmp_path, Run("probe", {}))
    estimator = FeatureTransfer(tiny_folder(), "upos", out=tmp_path)
    with pytest.raises(StoreError, match="holds a run of `probe`"):
        estimator.fit(tagged_corpus(40))


def test_a_killed_fit_on_the_same_data_goes_on(tiny_folder, tmp_path, monkeypatch):
    estimator = FeatureTransfer(tiny_folder(), "upos", out=tmp_path)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FeatureSelection, "neurons", killed)
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(tagged_corpus(40))
    monkeypatch.setattr(FeatureSelection, "layers", lambda *_: pytest.fail("this was finished"))
    assert estimator.fit(tagged_corpus(40)).predict(TEXTS)


def test_it_can_be_cross_validated(tiny_folder, tmp_path):
    corpus = tagged_corpus(60)
    settings = {"position": "mean", "steps": ("layers",)}
    estimator = FeatureTransfer(tiny_folder(), "sentence", out=tmp_path / "folds", **settings)
    texts, labels = [" ".join(words) for words in corpus.sentences], corpus.sentence_labels["label"]
    scores = cross_val_score(estimator, texts, labels, cv=3, error_score="raise")
    assert scores.shape == (3,)
    assert ((scores >= 0) & (scores <= 1)).all()
    assert not hasattr(estimator, "result_")


@pytest.mark.parametrize("unit", ["word", "sentence"])
def test_what_is_labelled_none_is_no_class(unit, tiny_folder):
    corpus = tagged_corpus(80)
    texts, task = [" ".join(words) for words in corpus.sentences], "upos" if unit == "word" else "sentence"
    tags, kinds = corpus.labels["upos"], corpus.sentence_labels["label"]
    labels = [[None, *row[1:]] for row in tags] if unit == "word" else [None, *kinds[1:]]
    settings = {"position": "mean", "steps": ("layers",)}
    estimator = FeatureTransfer(tiny_folder(), task, **settings).fit(texts, labels)
    assert "None" not in estimator.classes_
    n_labels = sum(estimator.result_.run.summary["examples"].values())
    assert n_labels == (sum(len(row) - 1 for row in tags) if unit == "word" else 79)
    assert 0 <= estimator.score(texts, labels) <= 1


def test_without_a_folder_the_files_go_with_the_estimator(tiny_folder):
    estimator = FeatureTransfer(tiny_folder(), "upos", steps=["layers"]).fit(tagged_corpus(40))
    folder = estimator.result_.folder
    assert folder.is_dir()
    del estimator
    gc.collect()
    assert not folder.exists()


def test_texts_and_labels_can_be_given_as_lists(tiny_folder):
    corpus = tagged_corpus()
    estimator = FeatureTransfer(tiny_folder(), "sentence", position="mean", steps=["layers"])
    texts, labels = [" ".join(words) for words in corpus.sentences], corpus.sentence_labels["label"]
    found = estimator.fit(texts, labels).predict(texts[:5])
    assert isinstance(found, np.ndarray)
    assert set(found) <= {"noun", "other"}
    with pytest.raises(CorpusError, match="80 texts came with 3 labels"):
        estimator.fit(texts, labels[:3])


def test_no_share_of_the_oracle_is_said_where_it_scores_nothing():
    assert math.isnan(share_of_oracle(0.5, SimpleNamespace(test=0.0)))
    assert share_of_oracle(0.3, SimpleNamespace(test=0.6)) == 0.5
    summary = {"share of oracle": 0.69, "oracle": 0.03, "interval of the share": [-5.2, 5.8]}
    assert kept_share(summary) == ""
    assert "69.0% of the oracle's 0.0300" in kept_share(summary | {"interval of the share": [0.5, 0.9]})


SENTENCES = tagged_corpus(60)
X = [" ".join(words) for words in SENTENCES.sentences]
Y = np.array([int(kind == "noun") for kind in SENTENCES.sentence_labels["label"]])


@pytest.fixture
def quick(tiny_folder):
    return FeatureTransfer(tiny_folder(), position="mean", steps=("layers",))


@pytest.fixture(scope="module")
def of_numbers(tiny_folder):
    return FeatureTransfer(tiny_folder(), position="mean", steps=("layers",)).fit(X, Y)


def test_one_label_per_text_is_a_sentence_task_and_integers_stay_integers(of_numbers):
    assert of_numbers.classes_.tolist() == [0, 1]
    assert of_numbers.classes_.dtype == Y.dtype
    found = of_numbers.predict(X)
    assert found.dtype.kind == "i"
    assert np.mean(found == Y) == of_numbers.score(X, Y) == accuracy_score(Y, found) > 0.5


@pytest.mark.parametrize(
    "labels",
    [[True, False] * 30, ["b", "a"] * 30, [2.0, 10.0] * 30, pd.Series([7, -3] * 30), np.array([1, 0] * 30, np.int8)],
)
def test_classes_have_the_type_of_the_labels(labels, quick):
    fitted = quick.fit(X, labels)
    assert fitted.classes_.tolist() == sorted({value.item() if hasattr(value, "item") else value for value in labels})
    assert set(fitted.predict(X[:5]).tolist()) <= set(fitted.classes_.tolist())


def test_one_list_of_labels_per_text_is_a_word_task(tiny_folder):
    fitted = FeatureTransfer(tiny_folder(), steps=("layers",)).fit(X, SENTENCES.labels["upos"])
    assert fitted.predict(["the fox"])[0][1] in fitted.classes_
    proba = fitted.predict_proba(["the fox", "dog"])
    assert [rows.shape for rows in proba] == [(2, 3), (1, 3)]


def test_probabilities_are_in_the_order_of_the_classes(of_numbers):
    proba = of_numbers.predict_proba(X)
    assert proba.shape == (60, 2)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(of_numbers.classes_[proba.argmax(axis=1)], of_numbers.predict(X))


def test_classes_are_sorted_by_value_and_not_as_text(quick):
    labels = np.where(Y == 1, 10, 9)
    fitted = quick.fit(X, labels)
    assert fitted.classes_.tolist() == [9, 10]
    np.testing.assert_array_equal(fitted.classes_[fitted.predict_proba(X).argmax(axis=1)], fitted.predict(X))


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, np.nan])
def test_missing_labels_are_left_out_and_counted(missing, quick):
    labels = [missing, missing, *Y.tolist()[2:]]
    fitted = quick.fit(X, labels)
    assert fitted.n_unlabelled_ == 2
    assert sum(fitted.result_.run.summary["examples"].values()) == 58
    assert fitted.classes_.tolist() == [0, 1]
    assert fitted.score(X, labels) == pytest.approx(np.mean(fitted.predict(X)[2:] == Y[2:]))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros((60, 2)), r"the shape \(60, 2\)"),
        (np.zeros((60, 1), int), r"the shape \(60, 1\)"),
        (pd.DataFrame({"a": Y}), r"the shape \(60, 1\)"),
        (np.random.default_rng(0).standard_normal(60), "continuous"),
        ([None] * 60, "None of the 60 labels is known"),
        ([float("inf"), 1.0] * 30, "Some labels are infinite"),
    ],
)
def test_labels_that_are_no_classes_are_refused(labels, message, quick):
    with pytest.raises(ValueError, match=message):
        quick.fit(X, labels)


def test_without_labels_and_task_nothing_can_be_fitted(quick):
    with pytest.raises(SettingError, match="pass y, or name the task"):
        quick.fit(SENTENCES)


def test_it_is_a_classifier_and_a_regressor_where_it_predicts_numbers(tiny_folder):
    assert is_classifier(FeatureTransfer(tiny_folder()))
    assert is_classifier(FeatureTransfer(tiny_folder(), "sst2"))
    assert is_regressor(FeatureTransfer(tiny_folder(), "stsb"))


def test_pickled_before_and_after_predict_it_predicts_the_same(quick):
    assert pickle.loads(pickle.dumps(quick)).get_params().keys() == quick.get_params().keys()
    quick.fit(X, Y)
    before = pickle.dumps(quick)
    expected = quick.predict(X)
    after = pickle.dumps(quick)
    folder = quick.result_.folder
    del quick
    gc.collect()
    for stored in (before, after):
        again = pickle.loads(stored)
        assert again.result_.folder != folder
        np.testing.assert_array_equal(again.predict(X), expected)
        assert again.classes_.tolist() == [0, 1]


def test_a_pickle_carries_folders_inside_the_result(tiny_folder, tmp_path):
    fitted = FeatureTransfer(tiny_folder(), position="mean", steps=("layers",), out=tmp_path).fit(X, Y)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("kept")
    again = pickle.loads(pickle.dumps(fitted))
    assert (again.result_.folder / "notes" / "mine.txt").read_text() == "kept"
    np.testing.assert_array_equal(again.predict(X[:5]), fitted.predict(X[:5]))


def test_a_copy_outlives_the_original(tiny_folder):
    model = load_model(tiny_folder())
    first = FeatureTransfer(model, position="mean", steps=("layers",)).fit(X, Y)
    expected = first.predict(X)
    second = copy.deepcopy(first)
    assert not hasattr(clone(first), "result_")
    del first
    gc.collect()
    np.testing.assert_array_equal(second.predict(X), expected)
    assert second.result_.folder.is_dir()


def test_loaded_from_its_folder_integers_are_integers(of_numbers, tmp_path):
    again = FeatureTransfer.load(of_numbers.save(tmp_path / "saved"))
    assert again.classes_.dtype.kind == "i"
    np.testing.assert_array_equal(again.predict(X), of_numbers.predict(X))


def test_folds_run_in_other_processes(quick):
    scores = cross_val_score(quick, X, Y, cv=2, n_jobs=2, error_score="raise")
    assert scores.shape == (2,)
    np.testing.assert_allclose(scores, cross_val_score(quick, X, Y, cv=2, error_score="raise"))


def test_settings_are_searched_by_scikit_learn(quick):
    search = GridSearchCV(quick, {"keep": [0.5, 0.99]}, cv=2, error_score="raise").fit(X, Y)
    assert search.best_params_["keep"] in (0.5, 0.99)
    assert search.predict(X[:3]).dtype.kind == "i"


APPLICABLE = (
    "check_no_attributes_set_in_init",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_get_params_invariance",
    "check_set_params",
    "check_mixin_order",
)
"""scikit-learn's checks that need no table of numbers as input."""


@pytest.mark.parametrize("name", APPLICABLE)
def test_scikit_learns_own_checks(name, quick):
    getattr(estimator_checks, name)("FeatureTransfer", quick)


class OfRows(FeatureTransfer):
    """Takes the rows of numbers that scikit-learn's checks give, each as a text."""

    __init__ = FeatureTransfer.__init__

    def fit(self, X, y=None):
        return super().fit(self._texts(X), y)

    def predict(self, X):
        return super().predict(self._texts(X))

    def predict_proba(self, X):
        return super().predict_proba(self._texts(X))

    def score(self, X, y=None):
        return super().score(self._texts(X), y)

    def _texts(self, rows):
        words = sorted({word for sentence in SENTENCES.sentences for word in sentence})
        return [" ".join(words[int(3 * abs(number)) % len(words)] for number in row) for row in np.atleast_2d(rows)]


OF_FITTED = (
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimators_unfitted",
    "check_estimators_overwrite_params",
    "check_estimators_fit_returns_self",
    "check_estimators_pickle",
    "check_fit_idempotent",
    "check_fit_check_is_fitted",
    "check_supervised_y_no_nan",
    "check_classifiers_regression_target",
)
"""Checks that fit and predict."""


@pytest.mark.parametrize("name", OF_FITTED)
def test_scikit_learns_checks_on_texts_made_of_numbers(name, tiny_folder):
    getattr(estimator_checks, name)("OfRows", OfRows(tiny_folder(), position="mean", steps=("layers",)))
