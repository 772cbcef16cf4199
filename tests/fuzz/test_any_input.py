"""Any value in any place of a manifest, of settings and of the header of a tensor file: read, or a clear error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fuzz_targets import DISTILL, PRETRAIN, read_pretraining
from hypothesis import given, settings
from hypothesis import strategies as st

from made_stores import known_data
from residuum.activations.store import ActivationStore
from residuum.distillation.settings import read_settings
from residuum.errors import ResiduumError, SettingError, StoreError
from residuum.storage.files import read_json
from residuum.storage.schemas import read_yaml
from residuum.storage.tensors import read_tensors, write_tensors

NAMES = st.text(max_size=8) | st.sampled_from(["../x", "/etc/passwd", "layer-0", "a\0b", "__metadata__"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
READERS = {"pretrain": (PRETRAIN, read_pretraining), "distill": (DISTILL, read_settings)}
SIZES = st.integers(-2, 9) | st.sampled_from([2**31, 2**63, 2**64, 10**30])
FACTS = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "F64", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "X", ""]),
        "shape": st.lists(SIZES, max_size=3),
        "data_offsets": st.lists(SIZES, min_size=1, max_size=3),
    }
)


@contextmanager
def read_or_named(path: Path, kind: type[ResiduumError] | tuple[type[ResiduumError], ...]) -> Iterator[None]:
    """What is read here is read, or refused in a line that names the file; no other error is caught."""
    said = str(path)
    try:
        yield
    except kind as error:
        said = str(error)
    assert str(path) in said
    assert len(said) < 1000


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """The way to every value in a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, part in inner for deeper in places(part, (*path, key)))]


def changed(value: Any, path: tuple, new: Any) -> Any:
    """The value with another one at that place."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return known_data(n_sentences=3).store(tmp_path_factory.mktemp("any") / "acts", shard_words=8)


@settings(max_examples=150)
@given(data=st.data(), new=VALUES)
def test_any_value_in_a_manifest_is_read_or_named(store, data, new):
    path = store.path / "manifest.json"
    good = path.read_bytes()
    manifest = read_json(path)
    try:
        path.write_text(json.dumps(changed(manifest, data.draw(st.sampled_from(places(manifest))), new)))
        with read_or_named(store.path, (StoreError, SettingError)):  # layers of several widths are no fault of a store
            opened = ActivationStore.open(store.path)
            rows, sentences = sum(len(block) for block in opened.batches()), opened.sentences
            assert (rows, sentences) == (store.n_rows, store.sentences)
    finally:
        path.write_bytes(good)


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=100)
@given(data=st.data(), new=VALUES)
def test_any_value_in_settings_is_read_or_named(tmp_path_factory, kind, data, new):
    text, read = READERS[kind]
    values = yaml.safe_load(text)
    path = tmp_path_factory.getbasetemp() / f"any-{kind}.yaml"
    path.write_text(json.dumps(changed(values, data.draw(st.sampled_from(places(values))), new)))
    with read_or_named(path, SettingError):
        read(path)


YAML_WORDS = [
    *"&*!|>-?:,[]{}#%@`'\" \n\t~a1",
    "<<: ",
    "!!int ",
    "!!python/object:os.system ",
    "&a ",
    "*a",
    "- ",
    "---\n",
]


@settings(max_examples=200)
@given(text=st.lists(st.sampled_from(YAML_WORDS) | st.text(max_size=3), max_size=25).map("".join))
def test_any_text_is_plain_yaml_or_a_clear_error(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(text, encoding="utf-8", errors="replace", newline="")
    with read_or_named(path, SettingError):
        assert all(isinstance(name, str) for name in read_yaml(path, SettingError))


@settings(max_examples=200)
@given(header=st.dictionaries(NAMES, FACTS | VALUES, max_size=3) | VALUES, body=st.binary(max_size=40), extra=SIZES)
def test_any_header_of_tensors_is_read_or_refused(tmp_path_factory, header, body, extra):
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    text = json.dumps(header).encode()
    claimed = len(text) + extra if 0 <= len(text) + extra < 2**64 else len(text)
    for size in (len(text), claimed):
        path.write_bytes(size.to_bytes(8, "little") + text + body)
        for framework in ("numpy", "pt"):
            with read_or_named(path, StoreError):
                tensors = read_tensors(path, framework, remedy="Copy it again.")
                assert sum(tensor.nbytes for tensor in tensors.values()) <= len(body)


@settings(max_examples=100)
@given(place=st.integers(0), bit=st.integers(0, 7))
def test_any_bit_of_a_tensor_file_that_turns_is_noticed_or_changes_nothing(tmp_path_factory, place, bit):
    path = tmp_path_factory.getbasetemp() / "turned.safetensors"
    good = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "layers": np.array([0, 1])}
    write_tensors(path, good)
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1 << bit
    path.write_bytes(data)
    with read_or_named(path, StoreError):
        found = read_tensors(path, remedy="Copy it again.")
        assert found.keys() == good.keys()
        assert all(np.array_equal(found[name], good[name]) for name in good)
