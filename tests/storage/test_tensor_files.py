"""Tensors that tell when a bit of them has changed."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from residuum.errors import StoreError
from residuum.storage.tensors import read_tensors, write_tensors

AGAIN = "Make it again."
ARRAYS = {
    "map": np.arange(6, dtype=np.float32).reshape(2, 3),
    "turned": np.arange(6, dtype=np.float64).reshape(2, 3).T,
    "none": np.zeros((0, 3), dtype=np.int64),
    "one": np.array(2.5),
}


def test_arrays_come_back_as_they_were(tmp_path):
    write_tensors(tmp_path / "x", ARRAYS)
    again = read_tensors(tmp_path / "x", remedy=AGAIN)
    assert again.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert again[name].dtype == array.dtype
        np.testing.assert_array_equal(again[name], array)


def test_torch_tensors_come_back_in_their_precision(tmp_path):
    tensors = {"half": torch.randn(3, 2).to(torch.bfloat16), "flags": torch.tensor([[True, False]]).T}
    write_tensors(tmp_path / "x", tensors)
    again = read_tensors(tmp_path / "x", "pt", remedy=AGAIN)
    assert all(torch.equal(again[name], tensors[name]) for name in tensors)
    try:  # numpy knows bfloat16 where another library has told it of it
        arrays = read_tensors(tmp_path / "x", remedy=AGAIN)
    except StoreError as error:
        said = str(error)
    else:
        said = AGAIN
        np.testing.assert_array_equal(arrays["half"].astype(np.float32), tensors["half"].float().numpy())
    assert AGAIN in said


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The bytes of a file."""
    path = tmp_path_factory.mktemp("written") / "x.safetensors"
    write_tensors(path, ARRAYS)
    return path.read_bytes()


@settings(max_examples=150)
@given(st.data())
def test_no_changed_bit_is_read_as_right(tmp_path_factory, written, data):
    path = tmp_path_factory.getbasetemp() / "flipped.safetensors"
    content = bytearray(written)
    place = data.draw(st.integers(0, 8 * len(content) - 1))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)
    try:
        again = read_tensors(path, remedy=AGAIN)
    except StoreError as error:
        said = str(error)
    else:  # white space in the header, or the checksum's own name
        said = f"{path} {AGAIN}"
        assert all(np.array_equal(again[name], array) for name, array in ARRAYS.items())
    assert said.startswith(str(path))
    assert AGAIN in said


def test_a_file_that_is_cut_or_missing_is_named(tmp_path):
    with pytest.raises(StoreError, match="none is damaged or missing"):
        read_tensors(tmp_path / "none", remedy=AGAIN)
    write_tensors(tmp_path / "x", ARRAYS)
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:-1])
    with pytest.raises(StoreError, match="x is damaged"):
        read_tensors(tmp_path / "x", remedy=AGAIN)


def test_what_another_program_wrote_has_no_checksum_and_is_read(tmp_path):
    save_file({"map": ARRAYS["map"]}, tmp_path / "x")
    np.testing.assert_array_equal(read_tensors(tmp_path / "x", remedy=AGAIN)["map"], ARRAYS["map"])
