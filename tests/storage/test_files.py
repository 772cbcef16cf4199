"""Files are whole or absent, and the disk's complaints are clear."""

import os
import platform
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from residuum.errors import StoreError
from residuum.storage.files import (
    checksum,
    files_for,
    lone_file,
    read_json,
    remove_temporaries,
    whole_file,
    whole_folder,
    write_json,
)
from residuum.storage.tensors import write_tensors


def test_a_file_appears_only_when_it_is_whole(tmp_path):
    path = tmp_path / "a" / "b.txt"
    with whole_file(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    assert [p.name for p in path.parent.iterdir()] == ["b.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "b.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["b.txt"]


@pytest.mark.parametrize("write", [whole_folder, files_for])
def test_every_file_of_a_folder_is_on_disk_before_it_gets_its_name(write, tmp_path, monkeypatch):
    """Else a power cut may leave empty files under their names, which would be taken for whole ones."""
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    rename, replace = Path.rename, Path.replace
    monkeypatch.setattr(Path, "rename", lambda path, to: (_check_synced(path, synced), rename(path, to))[1])
    monkeypatch.setattr(Path, "replace", lambda path, to: (_check_synced(path, synced), replace(path, to))[1])
    with write(tmp_path / "out") as temporary:
        (temporary / "first").write_text("text")
        if write is whole_folder:
            (temporary / "in").mkdir()
            (temporary / "in" / "second").write_text("text")
    assert (tmp_path / "out" / "first").read_text() == "text"
    assert synced


def _check_synced(path: Path, synced: list[int]) -> None:
    assert {part.stat().st_ino for part in (path, *path.rglob("*"))} <= set(synced)


@pytest.mark.skipif(os.name != "posix", reason="file modes are those of POSIX")
def test_tensor_files_have_the_mode_of_any_other_new_file(tmp_path):
    (tmp_path / "plain").write_text("")
    tensors = {"a": np.zeros(3)}
    write_tensors(tmp_path / "one.safetensors", tensors)
    with files_for(tmp_path) as folder:
        save_file(tensors, folder / "two.safetensors")
    with whole_folder(tmp_path / "model") as folder:
        save_file(tensors, folder / "three.safetensors")
    found = {path.name: path.stat().st_mode for path in tmp_path.rglob("*") if path.is_file()}
    assert found.keys() == {"plain", "one.safetensors", "two.safetensors", "three.safetensors"}
    assert len(set(found.values())) == 1


def test_what_a_killed_process_left_is_cleared(tmp_path):
    (tmp_path / ".shard.123.part").write_text("half")
    (tmp_path / ".tmpMUooze").write_text("half a tensor file, by the name that safetensors gives it")
    (tmp_path / "kept.part").write_text("a user's own")
    remove_temporaries(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["kept.part"]


def killed_while(write) -> None:
    """Let a child be killed while it writes."""
    child = os.fork()
    if child == 0:
        with write() as temporary:
            fill(temporary)
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def fill(temporary: Path) -> None:
    (temporary / "file" if temporary.is_dir() else temporary).write_text("text")


@pytest.mark.parametrize("write", [lone_file, whole_folder, files_for])
def test_what_a_process_left_that_was_killed_while_writing_goes_with_the_next_writing(write, tmp_path):
    path = tmp_path / "out"
    killed_while(lambda: write(path))
    assert [p.name for p in tmp_path.rglob(".*.part")]
    with write(path) as temporary:
        fill(temporary)
    assert {p.name for p in tmp_path.rglob("*")} <= {"out", "file"}


def test_beside_a_lone_file_only_what_is_surely_abandoned_is_cleared(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    node = platform.node()
    kept = {
        f".page.html.{node}.{os.getppid()}.part",  # a process that is still there
        f".page.html.elsewhere.{dead.pid}.part",  # another machine's
        f".other.html.{node}.{dead.pid}.part",  # another file's
        ".tmpMUooze",
    }
    for name in (*kept, f".page.html.{node}.{dead.pid}.part"):
        (tmp_path / name).write_text("half")
    with lone_file(tmp_path / "page.html") as temporary:
        temporary.write_text("whole")
    assert {p.name for p in Path(tmp_path).iterdir()} == {*kept, "page.html"}


def test_a_full_disk_is_said_and_nothing_half_written_stays(small_disk):
    write_json(small_disk / "small.json", {"a": [1]})
    with pytest.raises(StoreError, match="The disk is full: .*big.json could not be written"):
        write_json(small_disk / "big.json", {"a": "x" * 400_000})
    assert [p.name for p in small_disk.iterdir()] == ["small.json"]


def test_a_read_only_disk_is_said(small_disk):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreError, match="No permission to write"):
        write_json(small_disk / "file.json", {"a": 1})


def test_a_full_disk_loses_no_finished_shard(small_disk, tiny_folder):
    from residuum.activations.extraction import extract
    from residuum.activations.store import read_manifest
    from residuum.corpus import Corpus
    from residuum.models.loading import load_model

    corpus = Corpus(name="test", sentences=[["the", "fox", "reads"]] * 400)
    model = load_model(tiny_folder("bert"))
    with pytest.raises(StoreError, match="The disk is full"):
        extract(model, corpus, small_disk / "acts", shard_words=200)
    written = [shard.written for shard in read_manifest(small_disk / "acts").shards]
    assert any(written)
    assert not all(written)
    subprocess.run(["mount", "-o", "remount,size=2m", str(small_disk)], check=True)
    assert extract(model, corpus, small_disk / "acts", shard_words=200).verify() == []


def test_a_file_in_the_way_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="in the way"):
        write_json(tmp_path / "file" / "x.json", {"a": 1})


def test_json_that_is_missing_or_damaged_is_named(tmp_path):
    with pytest.raises(StoreError, match="does not exist"):
        read_json(tmp_path / "none.json")
    (tmp_path / "odd.json").write_bytes(b"\xff\x00")
    with pytest.raises(StoreError, match=r"odd.json cannot be read as JSON"):
        read_json(tmp_path / "odd.json")


def test_json_with_half_a_surrogate_pair_is_damaged(tmp_path):
    (tmp_path / "x.json").write_text('["\\ud83d\\ude00"]')
    assert read_json(tmp_path / "x.json") == ["😀"]
    (tmp_path / "x.json").write_text('["\\uD83D"]')
    with pytest.raises(StoreError, match="surrogates not allowed"):
        read_json(tmp_path / "x.json")


def test_checksums_tell_a_single_bit(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"\x00" * 10_000_000)
    first = checksum(path)
    path.write_bytes(b"\x00" * 9_999_999 + b"\x01")
    assert checksum(path) != first
