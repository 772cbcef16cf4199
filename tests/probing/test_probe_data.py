"""A task's data for probes: the same numbers as the mathematics below, and all that stands beside a score."""

from dataclasses import replace

import numpy as np
import pytest

from made_stores import HIDDEN, TAGS, broken_store, known_data
from residuum.corpus.tasks import Task
from residuum.errors import DataError, MemoryLimitError
from residuum.maths.features import ShardedFeatures
from residuum.maths.metrics import SentenceSums, Truth, score_interval
from residuum.maths.probing import ConvergedRecipe, PaperRecipe, Probe, train_probes
from residuum.probing import probe_data
from residuum.probing.baselines import baselines
from residuum.probing.examples import FeatureCache, labelled_splits
from residuum.probing.probe_data import CONTROL, TASK, ProbeData, same_examples, train_together

DATA = known_data(150)
RECIPE = PaperRecipe(epochs=15, batch_size=32, learning_rate=0.01)
KNOWN = slice(HIDDEN, 2 * HIDDEN)  # the layer that knows the tag
WORD = slice(0, HIDDEN)  # the layer that knows the word


class Unlimited(FeatureCache):
    """Reads whole parts, whatever the memory limit is."""

    def features(self, examples, room):
        return super().features(examples, 1 << 40)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return DATA.store(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture(scope="module")
def bench(store):
    return ProbeData(labelled_splits(store, DATA.tags), RECIPE)


def test_a_score_is_that_of_the_mathematics(bench):
    (probe,) = bench.train([Probe(TASK, KNOWN, seed=1)])
    (alone,) = train_probes(bench.features("train"), bench.targets, [Probe(TASK, KNOWN, seed=1)], RECIPE)
    np.testing.assert_array_equal(probe.weight, alone.weight)
    (score,) = bench.score([probe], "test")
    predicted = [TAGS[i] for i in alone.predict(bench.features("test"))]
    assert score.value == np.mean(np.array(predicted) == np.array(bench.splits.test.labels))
    assert score.value > 0.95


def test_tasks_of_the_same_examples_train_together_as_they_do_alone(store, bench):
    coarse = labelled_splits(store, [["noun" if tag == "NOUN" else "other" for tag in row] for row in DATA.tags])
    beside = replace(bench, splits=coarse)
    assert beside.features("train") is bench.features("train")
    probes = [Probe(TASK, KNOWN, seed=1), Probe(CONTROL, WORD)]
    together = train_together([(bench, probes), (beside, probes)])
    for own, trained in zip((bench, ProbeData(coarse, RECIPE)), together, strict=True):
        for alone, found in zip(own.train(probes), trained, strict=True):
            np.testing.assert_array_equal(found.weight, alone.weight)
            assert found.probe.target == alone.probe.target


def test_workers_are_fewer_where_memory_is_short_and_not_each_poorer(bench):
    whole = 4 * len(bench.splits.train) * bench.splits.layout.n_neurons
    counts = [replace(bench, max_memory=n, workers=4).trainers(0).workers for n in (whole // 2, 3 * whole, 9 * whole)]
    large = replace(bench, max_memory=9 * whole, workers=4).trainers(3 * whole // 24).workers
    assert counts == [1, 2, 4]
    assert large == 2
    windows = [replace(bench, max_memory=whole // 2, workers=n).features("train").window for n in (1, 4)]
    assert windows[0] == windows[1], "what is learnt depends on the number of workers"


def test_probes_that_take_more_than_their_share_of_the_memory_learn_one_after_the_other(bench):
    probes = [
        Probe(target, neurons, seed=seed) for neurons in (None, WORD) for target in (TASK, CONTROL) for seed in (0, 1)
    ]
    most = len(TAGS) * (3 * HIDDEN + 1)  # weights of the widest
    tight = replace(bench, max_memory=8 * 24 * 2 * most, cache=Unlimited())
    assert [len(group) for group in tight.groups(probes, bench.targets)] == [2, 2, 4]
    for one, other in zip(tight.train(probes), bench.train(probes), strict=True):
        assert one.probe is other.probe
        np.testing.assert_allclose(one.weight, other.weight, atol=1e-5)
    with pytest.raises(MemoryLimitError, match=f"A probe of {most} weights .+ fewer neurons at once"):
        replace(bench, max_memory=8 * 24 * most - 8).train(probes)


def test_tasks_that_label_other_words_are_not_of_the_same_examples(store, bench):
    some = [[tag if tag != TAGS[0] else None for tag in row] for row in DATA.tags]
    assert same_examples(bench.splits, bench.splits)
    assert not same_examples(bench.splits, labelled_splits(store, some))


def test_the_control_task_gives_a_word_type_one_label_in_all_parts(bench):
    labels: dict[str, set[int]] = {}
    for part, examples in (("train", bench.splits.train), ("dev", bench.splits.dev), ("test", bench.splits.test)):
        for word, label in zip(examples.words, bench.truth(part, CONTROL).values.tolist(), strict=True):
            labels.setdefault(word, set()).add(label)
    assert len(labels) == 12
    assert {len(found) for found in labels.values()} == {1}
    assert len(set.union(*labels.values())) > 1
    np.testing.assert_array_equal(bench.targets[CONTROL].values, bench.truth("train", CONTROL).values)


def test_words_solve_the_control_task_and_tags_do_not(bench):
    trained = bench.train([Probe(CONTROL, WORD), Probe(CONTROL, KNOWN), Probe(TASK, WORD)])
    remembered, guessed, blind = (score.value for score in bench.score(trained, "test"))
    assert remembered > 0.95
    assert guessed < 0.75
    assert blind < 0.55


def test_features_read_in_windows_score_the_same(bench):
    small = replace(bench, max_memory=40_000)
    assert isinstance(small.features("test"), ShardedFeatures)
    trained = bench.train([Probe(TASK), Probe(TASK, KNOWN)])
    for a, b in zip(bench.score(trained, "test"), small.score(trained, "test"), strict=True):
        np.testing.assert_array_equal(a.predicted, b.predicted)
    assert small.score(small.train([Probe(TASK, KNOWN)]), "dev")[0].value > 0.95


def test_the_interval_of_several_seeds_is_that_of_their_mean(bench):
    scores = bench.score(bench.train([Probe(TASK, WORD, seed=seed) for seed in range(3)]), "test")
    together = bench.interval(scores)
    assert float(together.value) == pytest.approx(np.mean([score.value for score in scores]))
    assert together.low < together.value < together.high
    assert float(bench.interval(scores[0]).value) == scores[0].value


def test_an_interval_draws_whole_sentences():
    correct = np.repeat(np.arange(20) % 2, 50)  # words of a sentence are all right or all wrong
    words = np.stack([correct, np.ones(1000)], axis=1)
    by_word = score_interval([SentenceSums("accuracy", words)])
    by_sentence = score_interval([SentenceSums("accuracy", words.reshape(20, 50, 2).sum(axis=1))])
    assert by_sentence.high - by_sentence.low > 4 * (by_word.high - by_word.low)


def test_baselines_are_counted_by_hand(bench):
    train, test = bench.splits.train, bench.splits.test
    most = max(TAGS, key=train.labels.count)
    assert baselines(bench) == {
        "majority": np.mean([label == most for label in test.labels]),
        "word majority": pytest.approx(_by_word(train, test)),
    }


def _by_word(train, test):
    counts = {word: dict.fromkeys(TAGS, 0) for word in train.words}
    for word, label in zip(train.words, train.labels, strict=True):
        counts[word][label] += 1
    answers = {word: max(sorted(own), key=own.__getitem__) for word, own in counts.items()}
    return np.mean([answers[word] == label for word, label in zip(test.words, test.labels, strict=True)])


def test_labels_that_training_never_saw_are_errors(store):
    rare = labelled_splits(store, DATA.tags)
    test = replace(rare.test, labels=("X", *rare.test.labels[1:]))
    bench = ProbeData(replace(rare, test=test), RECIPE)
    assert bench.truth("test").values[0] == -1
    (score,) = bench.score(bench.train([Probe(TASK, KNOWN)]), "test")
    assert score.details.n_unseen == 1
    assert not score.details.correct[0]


def test_sets_of_neurons_are_scored_on_dev(bench):
    probes = [bench.probe(TASK, np.arange(HIDDEN, 2 * HIDDEN)), bench.probe(TASK, np.arange(HIDDEN))]
    scores = [score.value for score in bench.score(bench.train(probes), "dev")]
    assert scores[0] > 0.95
    assert scores[1] < 0.6


def test_numbers_are_predicted_with_pearson_and_no_control(store):
    targets = known_targets()
    bench = ProbeData(labelled_splits(store, targets), PaperRecipe(epochs=60, batch_size=32, learning_rate=0.01))
    assert list(bench.targets) == [TASK]
    assert baselines(bench) == {}
    good, bad = bench.score(bench.train([Probe(TASK, KNOWN), Probe(TASK, WORD)]), "test")
    assert good.value > 0.95 > 0.4 > bad.value
    assert good.value == pytest.approx(np.corrcoef(good.predicted, bench.truth("test").values)[0, 1], abs=1e-6)
    interval = bench.interval([good])
    assert interval.low < good.value < interval.high


def known_targets():
    return [[float(TAGS.index(tag)) for tag in row] for row in DATA.tags]


def test_a_control_probe_has_the_penalty_of_the_task_probe_on_the_same_neurons(bench):
    converged = replace(bench, recipe=ConvergedRecipe())
    probes = [Probe(target, neurons) for target in (CONTROL, TASK) for neurons in (None, WORD)]
    trained = converged.train(probes)
    assert [own.probe for own in trained] == probes
    assert [own.penalty for own in trained[:2]] == [own.penalty for own in trained[2:]]
    (alone,) = converged.train([Probe(CONTROL, WORD)])
    assert alone.penalty[1] > 0


@pytest.mark.parametrize("workers", [None, 1])
def test_lambda_is_chosen_by_the_metric_of_the_task(workers, store, monkeypatch):
    judges = []
    monkeypatch.setattr(probe_data, "train_probes", lambda *given: judges.append(given[4]) or train_probes(*given))
    labels = [["a" if tag == "NOUN" else "b" for tag in row] for row in DATA.tags]
    for metric in ("accuracy", "f1", "matthews"):
        data = ProbeData(labelled_splits(store, labels, Task("made", metric=metric)), workers=workers)
        (score,) = data.score(data.train([Probe(TASK, WORD)]), "dev")
        assert {name: own(score.predicted) for name, own in judges.pop().scores.items()} == (
            {} if metric == "accuracy" else {TASK: score.value}
        )


def test_random_labels_that_are_all_one_are_drawn_again(store):
    splits = labelled_splits(store, DATA.tags)
    few = len(splits.train) // 20
    labels = ("B",) * few + ("A",) * (len(splits.train) - few)
    rare = replace(splits, train=replace(splits.train, labels=labels))
    drawn = [ProbeData(rare, seed=seed) for seed in range(8)]
    assert any(bench.control.draw > 0 for bench in drawn)  # of 12 word types all get A nearly every second time
    assert all(len(set(bench.targets[CONTROL].values.tolist())) == 2 for bench in drawn)
    common = ProbeData(splits)
    assert common.control.draw == 0
    assert common.facts == splits.facts


def pearson_interval(predicted, truth, sentences):
    return score_interval([Truth("pearson", truth, sentences).sums(predicted)])


def test_the_interval_of_a_correlation_draws_whole_sentences():
    rng = np.random.default_rng(0)
    kind = np.repeat(rng.standard_normal(20), 50)  # words of a sentence are all alike
    truth = kind + 0.01 * rng.standard_normal(1000)
    predicted = np.repeat(rng.standard_normal(20), 50) + kind
    by_sentence = pearson_interval(predicted, truth, np.repeat(np.arange(20), 50))
    by_word = pearson_interval(predicted, truth, np.arange(1000))
    for interval in (by_sentence, by_word):
        assert float(interval.value) == pytest.approx(np.corrcoef(predicted, truth)[0, 1])
    assert by_sentence.high - by_sentence.low > 3 * (by_word.high - by_word.low)
    shuffled = rng.permutation(1000)
    again = pearson_interval(predicted[shuffled], truth[shuffled], np.repeat(np.arange(20), 50)[shuffled])
    np.testing.assert_allclose([again.low, again.high], [by_sentence.low, by_sentence.high])


def test_numbers_of_words_have_intervals_over_sentences(store):
    bench = ProbeData(labelled_splits(store, known_targets()), RECIPE)
    (score,) = bench.score(bench.train([Probe(TASK, KNOWN)]), "test")
    own = pearson_interval(score.predicted, bench.truth("test").values, bench.splits.test.sentences)
    assert (bench.interval(score).low, bench.interval(score).high) == (own.low, own.high)


def test_what_cannot_be_learnt_is_said(store, tmp_path):
    with pytest.raises(DataError, match="labels are 'A'; a probe needs at least two classes"):
        ProbeData(labelled_splits(store, [["A"] * len(row) for row in DATA.tags])).train([Probe(TASK)])
    tiny = known_data(12)
    own = [[f"{i}-{j}" for j in range(len(row))] for i, row in enumerate(tiny.tags)]
    with pytest.raises(DataError, match="expected classes that recur, and at least one example for each"):
        labelled_splits(tiny.store(tmp_path / "few"), own)
    broken = tiny.activations.copy()
    broken[3, 1, 2] = np.nan
    bad = labelled_splits(broken_store(tmp_path / "nan", tiny.sentences, broken), tiny.tags)
    with pytest.raises(DataError, match="has a NaN or infinite activation"):
        trained = ProbeData(bad, RECIPE).train([Probe(TASK)])
        for part in ("dev", "test"):
            ProbeData(bad, RECIPE).score(trained, part)
