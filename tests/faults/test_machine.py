"""Faults of the machine: a scheduler that dies, a drive that is lost, no permissions, a process that is stopped."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import residuum.cli
from residuum.engine import opened_engine, run_tasks
from residuum.errors import ResiduumError, StoreError
from residuum.storage import files
from residuum.storage.files import clear_disk_errors, whole_file, write_json

RUN = [sys.executable, "-m", "residuum"]
LINES = "The quick fox reads .\nA small model reads a small text .\n" * 40


@pytest.fixture
def scheduler(tmp_path):
    """A Dask scheduler with one worker, both processes of their own, and its address."""
    pytest.importorskip("distributed")
    note = tmp_path / "scheduler.json"
    flags = ["--no-dashboard", "--scheduler-file", str(note)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [
        subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", *flags], **quiet)
    ]
    kind = ["--nthreads", "1", "--no-nanny"]
    started.append(subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_worker", *kind, *flags], **quiet))
    try:
        until(note.exists)
        yield started[0], files.read_json(note)["address"]
    finally:
        for process in started:
            process.kill()
            process.wait()


def until(happens, seconds=600.0):
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def test_a_scheduler_that_dies_is_one_line_and_no_more_is_printed(scheduler, capfd):
    process, address = scheduler
    said = r"^The Dask scheduler ended, .+; what was finished is kept\.$"
    with pytest.raises(ResiduumError, match=said), opened_engine("dask", scheduler=address) as engine:
        for number, _ in enumerate(run_tasks(time.sleep, [(0.05,)] * 400, engine)):
            if number == 2:
                process.send_signal(signal.SIGKILL)
    assert capfd.readouterr().err == ""


def test_a_scheduler_that_has_died_before_it_is_asked_for_its_workers_is_the_same_line(scheduler, monkeypatch):
    process, address = scheduler
    with (
        pytest.raises(ResiduumError, match=r"^The Dask scheduler ended"),
        opened_engine("dask", scheduler=address) as engine,
    ):
        assert engine.width == 1
        monkeypatch.setattr(engine.client, "_timeout", 2)  # how long it looks for a scheduler that is gone
        process.kill()
        process.wait()
        engine.width  # noqa: B018 - the question is the test


LOST = ["EIO", "ESTALE", "ENOTCONN", "ETIMEDOUT", "EHOSTDOWN"]


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_drive_that_is_lost_while_a_file_is_written_is_one_line_and_leaves_the_old_file(
    tmp_path, monkeypatch, name, call
):
    write_json(tmp_path / "a.json", {"old": 1})

    def lost(*_):
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))

    with monkeypatch.context() as patched:
        patched.setattr(*{"fsync": (os, "fsync"), "replace": (Path, "replace")}[call], lost)
        with pytest.raises(StoreError, match=r"could not be written: .+\. The disk or the network drive") as raised:
            write_json(tmp_path / "a.json", {"new": 2})
    assert "\n" not in str(raised.value)
    assert files.read_json(tmp_path / "a.json") == {"old": 1}
    write_json(tmp_path / "a.json", {"new": 2})  # the drive is back
    assert files.read_json(tmp_path / "a.json") == {"new": 2}


def test_an_error_that_no_disk_makes_stays_what_it_is(tmp_path):
    for number in (errno.EINVAL, errno.EPIPE):
        with pytest.raises(OSError, match="made up"), clear_disk_errors(tmp_path):
            raise OSError(number, "made up")


def test_ctrl_c_while_python_tidies_up_an_object_is_not_lost(monkeypatch, capfd):
    """What `__del__` raises is printed and forgotten; Ctrl-C that falls into one comes again."""

    class Tidied:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def work():
        tidied = Tidied()
        del tidied
        time.sleep(30)
        raise AssertionError("the command went on")

    monkeypatch.setattr(residuum.cli, "app", work)
    monkeypatch.setattr(sys, "argv", ["residuum"])
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as left:
            residuum.cli.main()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert left.value.code == 1
    said = "residuum: Interrupted. What was finished is kept; the same command goes on from there.\n"
    assert capfd.readouterr().err == said


@pytest.mark.parametrize("kind", [KeyboardInterrupt, residuum.cli.Interrupted])
def test_ctrl_c_is_one_line_by_whatever_name_a_library_raises_it(monkeypatch, capfd, kind):
    def work():
        raise kind

    monkeypatch.setattr(residuum.cli, "app", work)
    monkeypatch.setattr(sys, "argv", ["residuum"])
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit):
            residuum.cli.main()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert capfd.readouterr().err.startswith("residuum: Interrupted.")


@pytest.fixture
def extraction(tiny_folder, tmp_path):
    """The words of an extraction that takes seconds, and the text that it reads."""
    (tmp_path / "text.txt").write_text(LINES, encoding="utf-8")
    words = ["extract", str(tiny_folder("bert")), str(tmp_path / "text.txt"), "--device", "cpu", "--shard-words", "16"]
    return [*words, "--batch-tokens", "64", "--out"]


def test_a_process_that_is_stopped_and_continued_writes_the_same_bytes(extraction, tmp_path):
    from residuum import open_store

    process = subprocess.Popen([*RUN, *extraction, str(tmp_path / "stopped")], stderr=subprocess.DEVNULL)
    try:
        until(lambda: list(tmp_path.glob("stopped/shard-*")) or process.poll() is not None)
        for _ in range(3):
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.2)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.02)
        assert process.wait(600) == 0
    finally:
        process.kill()
    subprocess.run([*RUN, *extraction, str(tmp_path / "whole")], check=True, capture_output=True)
    assert open_store(tmp_path / "stopped").fingerprint == open_store(tmp_path / "whole").fingerprint


def test_a_user_who_may_write_nowhere_but_to_the_results_can_work(extraction, tmp_path):
    """Another user, without a home, who may read everything and has packages that only root can write to."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user")
    nobody, out = 65534, tmp_path / "results" / "acts"
    out.parent.mkdir()
    os.chown(out.parent, nobody, nobody)
    rights = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    become = ["setpriv", f"--reuid={nobody}", f"--regid={nobody}", "--clear-groups", *rights]
    environment = {**os.environ, "HOME": "/nonexistent", "HF_HOME": "/nonexistent/hf", "TMPDIR": str(out.parent)}
    if subprocess.run([*become, "true"], capture_output=True).returncode:
        pytest.skip("the system gives no rights away")

    def run(*words):
        return subprocess.run([*become, *RUN, *words], env=environment, capture_output=True, text=True, cwd="/")

    done = run(*extraction, str(out))
    assert done.returncode == 0, done.stderr
    assert (out / "manifest.json").stat().st_uid == nobody
    (tmp_path / "others").mkdir(mode=0o755)
    refused = run(*extraction, str(tmp_path / "others" / "acts"))
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1), refused.stderr
    assert "No permission to write" in refused.stderr


def test_a_file_system_without_locks_is_written_to(tmp_path, monkeypatch):
    if files.fcntl is None:
        pytest.skip("there are no locks here")

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", no_locks)
    files.hold_folder(tmp_path)
    with whole_file(tmp_path / "a") as path:
        path.write_text("a")
    files.release_folder(tmp_path)
