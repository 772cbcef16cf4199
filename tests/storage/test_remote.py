"""Stores behind an address: written there when all is finished, read shard by shard as they are needed."""

from itertools import cycle, islice

import fsspec
import numpy as np
import pytest
from typer.testing import CliRunner

from residuum import compare, extract, load_model, open_store
from residuum.activations.correlation import neuron_moments
from residuum.cli import app
from residuum.corpus import Corpus
from residuum.errors import SettingError, StoreError
from residuum.storage.remote import is_address, local_path
from tiny import TEXT

CORPUS = Corpus("text", [sentence.split() for sentence in islice(cycle(TEXT), 24)])


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RESIDUUM_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    fsspec.filesystem("memory").store.clear()


@pytest.fixture(scope="module")
def model(tiny_folder):
    return load_model(tiny_folder("bert"))


@pytest.fixture
def stores(model, tmp_path):
    """The same activations here and there."""
    here = extract(model, CORPUS, tmp_path / "here", shard_words=40, progress=False)
    extract(model, CORPUS, "memory://bucket/acts", shard_words=40, progress=False)
    return here, open_store("memory://bucket/acts")


def test_a_store_written_to_an_address_is_the_one_written_to_a_folder(stores):
    here, there = stores
    assert there.fingerprint == here.fingerprint
    assert there.sentences == here.sentences
    assert (there.array() == here.array()).all()
    assert there.verify() == []


def test_only_the_shards_that_are_read_are_fetched(stores):
    _, there = stores
    assert len(there.manifest.shards) > 3
    there.shard(1)
    assert [file.name for file in there.path.glob("shard-*")] == ["shard-00001.safetensors"]


def test_what_was_fetched_is_not_fetched_again_unless_the_store_there_is_another(stores, model):
    _, there = stores
    there.shard(0)
    assert open_store("memory://bucket/acts").path == there.path
    extract(model, CORPUS.limit(9), "memory://bucket/acts", shard_words=40, fresh=True, progress=False)
    other = open_store("memory://bucket/acts")
    assert other.path != there.path
    assert other.n_rows < there.n_rows


def test_a_shard_that_was_altered_there_is_not_read_as_right(stores):
    _, there = stores
    files = fsspec.filesystem("memory")
    files.pipe_file("/bucket/acts/shard-00000.safetensors", b"x")
    with pytest.raises(StoreError, match="has 1 bytes instead of"):
        there.shard(0)


def test_commands_take_an_address(stores):
    here, _ = stores
    settings = {"measures": "cka", "groups": 2, "workers": 1, "progress": False}
    assert compare(["memory://bucket/acts"], **settings).frame.equals(compare([here], **settings).frame)


def test_a_result_is_not_written_to_a_folder_that_is_called_like_an_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, ["probe", "model", "text.conllu", "--task", "upos", "--out", "s3://bucket/run"])
    assert refused.exit_code == 2
    assert "s3://bucket/run is an address; results go to a local folder" in refused.output.replace("\n", " ")
    assert not list(tmp_path.iterdir())


def test_a_worker_is_told_the_address_and_not_the_copy(stores):
    _, there = stores
    assert there.__reduce__()[1][0] == "memory://bucket/acts"
    assert neuron_moments(there).n == there.n_rows


def test_what_is_not_there_is_said():
    with pytest.raises(StoreError, match="memory://bucket/none has no such file"):
        open_store("memory://bucket/none")
    with pytest.raises(SettingError, match="nonsense://a cannot be opened .*install what reads nonsense://"):
        open_store("nonsense://a")


class NoCredentialsError(Exception):
    """As clients of object stores have them: of no kind that Python knows."""


def test_whatever_the_client_of_a_store_raises_is_said_in_one_line(monkeypatch):
    def refuse(*_, **__):
        raise NoCredentialsError("Unable to locate\ncredentials")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "get_file", refuse)
    with pytest.raises(StoreError, match=r"cannot be reached \(NoCredentialsError: Unable to locate credentials\)\.$"):
        open_store("memory://bucket/acts")


def test_a_disk_that_refuses_the_copy_is_not_taken_for_a_store_that_cannot_be_reached(stores, cache, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "get_file", refuse)
    with pytest.raises(StoreError, match="No permission to write"):
        open_store("memory://bucket/acts")


def test_a_store_behind_an_address_is_exported(stores, tmp_path):
    result = CliRunner().invoke(app, ["export", "memory://bucket/acts", str(tmp_path / "acts.npz")])
    assert result.exit_code == 0, result.output
    assert len(np.load(tmp_path / "acts.npz")["word"]) == stores[1].n_rows


def test_a_file_address_is_a_path(tmp_path):
    assert local_path(f"file://{tmp_path}") == tmp_path
    assert local_path(tmp_path) == tmp_path
    assert local_path("s3://bucket/acts") is None
    assert is_address("s3://bucket")
    assert not is_address(tmp_path)
