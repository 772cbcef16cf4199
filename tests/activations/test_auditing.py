"""The audit that is kept with a run: the same from a store and from a model, and honest where it knows nothing."""

import pandas as pd
import pytest

from made_stores import known_data
from residuum.activations.auditing import audit_table
from residuum.activations.extraction import extract
from residuum.activations.live import LiveActivations
from residuum.comparison.compare import compare
from residuum.corpus import Corpus
from residuum.models.loading import load_model
from residuum.probing.probe import probe

SENTENCES = [["the", "quick", "fox"], ["fox", "☃☃"], ["dog"] * 60]
CORPUS = Corpus(name="test", sentences=SENTENCES, skipped={"blank lines": 1200, "empty nodes": 0})


@pytest.fixture(scope="module")
def model(tiny_folder):
    return load_model(tiny_folder("bert"))


def test_every_word_is_counted_and_what_was_not_read_is_told(model, tmp_path):
    (row,) = audit_table([extract(model, CORPUS, tmp_path / "acts")]).to_dict("records")
    assert (row["model"], row["text"], row["not read"]) == (model.name, "test", "1,200 blank lines")
    assert (row["sentences"], row["words"], row["dropped"], row["unknown"], row["in windows"]) == (3, 65, 0, 1, 1)
    assert row["sub-words"] >= 65


def test_a_model_that_reads_by_itself_tells_what_its_store_tells(model, tmp_path):
    store = extract(model, CORPUS, tmp_path / "acts", shard_words=4)
    pd.testing.assert_frame_equal(audit_table([LiveActivations.of(model, CORPUS)]), audit_table([store]))


def test_the_same_activations_stand_there_once_under_the_name_that_they_are_given(model, tmp_path):
    store = extract(model, CORPUS, tmp_path / "acts")
    assert audit_table([store, store], ["base", "base"])["model"].tolist() == ["base"]
    assert audit_table([store, store], ["base", "tuned"])["model"].tolist() == ["base", "tuned"]


def test_activations_of_another_program_have_no_counts(tmp_path):
    table = audit_table([known_data(8).store(tmp_path / "made")])
    assert table["words"].isna().all()
    assert table["dropped"].isna().all()


def test_runs_keep_it(model, tmp_path):
    compared = compare([model], CORPUS, measures=["cka"], groups=2, workers=1, progress=False)
    assert compared.run.tables["audit"]["words"].tolist() == [65]
    labels = [["a" if word == "fox" else "b" for word in words] for words in SENTENCES * 8]
    store = extract(model, Corpus(name="long", sentences=SENTENCES * 8), tmp_path / "acts")
    probed = probe(store, labels, seeds=1, subsets=False, workers=1)
    assert probed.run.tables["audit"]["words"].tolist() == [65 * 8]
