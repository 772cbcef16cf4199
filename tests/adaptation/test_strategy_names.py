"""The names of strategies."""

import pytest

from residuum.adaptation.strategies import STRATEGIES, STRATEGIES_OF_ONE, named_strategies
from residuum.errors import SettingError


def test_all_are_the_twelve_of_the_thesis():
    assert [strategy.name for strategy in named_strategies("all")] == list(STRATEGIES)
    assert len(STRATEGIES) == 12


def test_of_one_model_all_leaves_out_what_would_be_the_same_again():
    assert [strategy.name for strategy in named_strategies("all", one_model=True)] == list(STRATEGIES_OF_ONE)


def test_of_one_model_sparse_delta_is_another_training_than_full_target():
    assert "sparse-delta" in [strategy.name for strategy in named_strategies("all", one_model=True)]


def test_any_number_of_new_layers_has_a_name():
    (found,) = named_strategies("freeze+7")
    assert (found.family, found.reads, found.new_layers) == ("freeze", "source", 7)


def test_one_training_serves_all_targets_where_only_the_source_student_reads():
    serving = {strategy.name for strategy in named_strategies("all") if strategy.for_any_target}
    assert serving == {
        "adapter-source", "bitfit-source", "sparse-delta", "freeze+0", "freeze+2", "freeze+4", "full-source"
    }  # fmt: skip


def test_only_full_source_is_evaluated_by_the_source_student():
    assert [s.name for s in named_strategies("all") if s.evaluates_source] == ["full-source"]


@pytest.mark.parametrize("name", ["", "full", "full-joint", "freeze", "freeze+", "freeze-2", "sparse-delta-source"])
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(SettingError, match="full-target"):
        named_strategies(name)


def test_a_strategy_is_not_run_twice():
    with pytest.raises(SettingError, match="different ones"):
        named_strategies("full-target,full-target")
