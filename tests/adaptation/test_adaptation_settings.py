"""The settings of the thesis, and what is refused."""

import pytest

from residuum.adaptation.settings import AdaptSettings
from residuum.adaptation.stages import few_shot_learning, zero_shot_learning
from residuum.adaptation.strategies import STRATEGIES, named_strategies
from residuum.errors import SettingError


def settings_of(**changes):
    return AdaptSettings("student", "data", "xnli", "out", **changes)


def test_against_thesis_table_4_2():
    settings = settings_of()
    for strategy in named_strategies(STRATEGIES):
        learning = zero_shot_learning(settings, strategy, "xnli")
        whole = strategy.name in ("full-source", "full-target")  # table 4.2 has SFT among the efficient ones
        assert (learning.epochs, learning.batch_size, learning.weight_decay, learning.warmup) == (10, 64, 0.05, 0.1)
        assert learning.learning_rate == (2e-5 if whole else 1e-4)
        assert (
            zero_shot_learning(settings, strategy, "wikiann").epochs
            == zero_shot_learning(settings, strategy, "xcopa").epochs
            == 20
        )
    few = few_shot_learning(settings, 500)
    assert (few.epochs, few.batch_size, few.learning_rate, few.weight_decay) == (50, 32, 2e-5, 0.05)


def test_fewer_examples_than_a_batch_are_one_batch():
    assert few_shot_learning(settings_of(), 10).batch_size == 10


def test_what_is_given_holds_for_every_strategy():
    settings = settings_of(epochs=3, learning_rate=1e-3, by_length=False)
    learning = [zero_shot_learning(settings, strategy, "xnli") for strategy in named_strategies("all")]
    assert {(s.epochs, s.learning_rate, s.by_length) for s in learning} == {(3, 1e-3, False)}
    assert not few_shot_learning(settings, 10).by_length


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"checkpoint": "first"}, "best, last"),
        ({"max_length": 3}, "max_length is 3; expected a whole number at least 8"),
        ({"few_shot_batch_size": 0}, "few_shot_batch_size is 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_at_once(setting, said):
    with pytest.raises(SettingError, match=said):
        settings_of(**setting)
