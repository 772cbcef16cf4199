"""`FeatureTransfer` keeps the conventions of scikit-learn."""

import gc

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from tagged_words import RECIPE, tagged_corpus

from residuum.errors import CorpusError, SettingError
from residuum.feature_transfer import FeatureTransfer, transfer

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
