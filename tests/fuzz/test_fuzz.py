"""A short turn of the fuzzer in every test run; `make fuzz` takes longer ones."""

from __future__ import annotations

import json
import os
import signal
import time
from random import Random

import pytest
from fuzz_targets import all_targets
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import changed_header, changed_json, damaged
from target_kinds import GivenUp, Target, in_a_child

from fuzz import Tally, fuzz
from residuum.corpus import FORMATS, read_corpus
from residuum.errors import CorpusError, ResiduumError, StoreError
from residuum.storage.results import finished_run

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=5), values, max_size=3),
    max_leaves=8,
)
CELLS = st.text(alphabet=st.sampled_from("\t\n ,\"'#_|=0123456789-.abé\r\x00\u2028"), max_size=80)


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    return all_targets(tmp_path_factory.mktemp("fuzz") / "targets")


def test_every_reader_reads_its_valid_input(targets):
    assert len(targets) > 45
    for target in targets:
        target.read(target.seed)


def test_no_reader_raises_anything_but_a_clear_error(targets):
    random = Random(0)
    for target in targets:
        tally = Tally()
        fuzz(target, random, 0.05, tally)
        assert tally.faults == {}, target.name
        assert tally.refused or tally.inputs < 50, f"{target.name} refused nothing: is the input spoilt at all?"


def test_the_fuzzer_sees_a_fault_and_keeps_its_input():
    def read(data: bytes) -> None:
        if b"9" in data:
            raise KeyError("nine")

    tally = Tally()
    fuzz(Target("faulty", b"0123456789", read), Random(0), 0.05, tally)
    (place,) = tally.faults
    assert place.startswith("KeyError")
    assert b"9" in tally.faults[place]


def test_a_reader_in_a_process_of_its_own_raises_here_what_it_raised_there(tmp_path):
    def fail(path):
        raise KeyError(path.name)

    def refuse(path):
        raise StoreError("no such thing")

    with pytest.raises(RuntimeError, match="KeyError: 'x.h5'"):
        in_a_child(fail)(tmp_path / "x.h5")
    with pytest.raises(ResiduumError, match="no such thing"):
        in_a_child(refuse)(tmp_path / "x.h5")


@pytest.mark.parametrize(
    "end", [lambda _: os.kill(os.getpid(), signal.SIGKILL), lambda _: time.sleep(60)], ids=["dies", "hangs"]
)
def test_a_library_that_dies_or_hangs_takes_only_its_own_process_with_it(tmp_path, monkeypatch, end):
    monkeypatch.setattr("target_kinds.PATIENCE", 0.2)
    with pytest.raises(GivenUp):
        in_a_child(end)(tmp_path / "x.h5")


@pytest.mark.parametrize("mutation", [damaged, changed_json, changed_header])
def test_mutations_spoil_and_the_same_seed_spoils_the_same(mutation):
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    seed = len(header).to_bytes(8, "little") + header + bytes(4) if mutation is changed_header else b'{"a": [1, 2]}'
    spoilt = [mutation(Random(number), seed, ()) for number in range(50)]
    assert spoilt == [mutation(Random(number), seed, ()) for number in range(50)]
    assert len(set(spoilt) - {seed}) > 30


@pytest.mark.parametrize("format", [format for format in FORMATS if format != "parquet"])
@settings(max_examples=40)
@given(text=CELLS | JSON.map(json.dumps))
def test_any_text_is_a_corpus_or_a_clear_error(tmp_path_factory, format, text):
    path = tmp_path_factory.getbasetemp() / f"any-{format}.txt"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        corpus = read_corpus(path, format=format)
    except CorpusError as error:
        said = str(error)
    else:
        said = path.name
        assert all(words and all(words) for words in corpus.sentences)
    assert path.name in said


@settings(max_examples=60)
@given(value=JSON)
def test_any_json_for_a_result_is_a_clear_error(tmp_path_factory, value):
    folder = tmp_path_factory.getbasetemp() / "any-run"
    folder.mkdir(exist_ok=True)
    (folder / "result.json").write_text(json.dumps(value))
    with pytest.raises(StoreError, match="any-run"):
        finished_run(folder, "compare", {})
