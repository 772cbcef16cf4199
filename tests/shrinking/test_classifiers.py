"""The folded classifier does what the probe did, from the chosen neurons alone."""

import numpy as np
import pytest

from residuum.maths.layouts import NeuronLayout
from residuum.maths.probing import PaperRecipe, Probe, train_probes
from residuum.maths.targets import class_target, number_target
from residuum.shrinking.classifier import classifier_bytes, classifier_of, folded

LAYOUT = NeuronLayout((5, 5, 5))


def folded_classifier(probe, layout, labels):
    return classifier_of(*folded(probe), probe.neurons, layout, labels)


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(3, [1] * 10 + [20] * 5, (80, 15)).astype(np.float32)


@pytest.mark.parametrize("standardize", [False, True])
def test_folding_gives_the_scores_of_the_probe(x, standardize):
    labels = ["a" if row[12] > 3 else "b" if row[0] > 3 else "c" for row in x]
    chosen = np.array([12, 0, 7, 4])
    recipe = PaperRecipe(epochs=3, standardize=standardize)
    (probe,) = train_probes(x, {"task": class_target(labels)}, [Probe("task", chosen)], recipe)
    classifier = folded_classifier(probe, LAYOUT, "abc")
    own = x[:, np.array(LAYOUT.starts)[classifier.layers] + classifier.indices]
    np.testing.assert_allclose(classifier.scores(own), probe.logits(x), rtol=1e-4, atol=1e-4)
    assert classifier.decide(own).tolist() == [("a", "b", "c")[i] for i in probe.predict(x)]


def test_neurons_stand_in_the_order_of_layers(x):
    (probe,) = train_probes(
        x, {"task": class_target(["a", "b"] * 40)}, [Probe("task", np.array([12, 0, 7, 4]))], PaperRecipe(epochs=1)
    )
    classifier = folded_classifier(probe, LAYOUT, "ab")
    assert classifier.layers.tolist() == [0, 0, 1, 2]
    assert classifier.indices.tolist() == [0, 4, 2, 2]
    assert {layer: own.tolist() for layer, own in classifier.by_layer().items()} == {0: [0, 4], 1: [2], 2: [2]}
    assert classifier.top_layer == 2


def test_numbers_are_given_as_they_are(x):
    (probe,) = train_probes(x, {"task": number_target(x[:, 1])}, [Probe("task", slice(0, 5))], PaperRecipe(epochs=2))
    classifier = folded_classifier(probe, LAYOUT, ())
    np.testing.assert_allclose(classifier.decide(x[:, :5]), probe.predict(x), rtol=1e-5)


def test_the_bytes_are_those_of_the_tensors_that_are_written(x):
    (probe,) = train_probes(
        x, {"task": class_target(["a", "b"] * 40)}, [Probe("task", slice(0, 5))], PaperRecipe(epochs=1)
    )
    classifier = folded_classifier(probe, LAYOUT, "ab")
    parts = (classifier.weight, classifier.bias, classifier.layers, classifier.indices)
    assert classifier.n_bytes == sum(part.nbytes for part in parts) == classifier_bytes(2, 5)
