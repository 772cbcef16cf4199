"""Shared fixtures: tiny models on disk, real data and models where they are at hand."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
hypothesis.settings.register_profile("untimed", deadline=None)  # a busy machine is no fault of the code
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """The folder of a tiny model of a family, built once."""
    from tiny import save_model

    root = tmp_path_factory.mktemp("models")
    built: dict[str, Path] = {}

    def folder(family: str = "bert") -> Path:
        if family not in built:
            built[family] = save_model(family, root / family)
        return built[family]

    return folder


@pytest.fixture
def run(monkeypatch, capfd):
    """Run a command in this process, on text or bytes from `stdin`; give its exit status and what it printed."""

    from residuum.cli import main

    def command(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["residuum", *map(str, arguments)])
        text = stdin if isinstance(stdin, bytes) else stdin.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        handler = signal.getsignal(signal.SIGINT)
        capfd.readouterr()
        try:
            main()
            status = 0
        except SystemExit as exit:
            status = exit.code or 0
        finally:
            signal.signal(signal.SIGINT, handler)
        out, err = capfd.readouterr()
        return status, out, err

    return command


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 300 kB, which needs the right to mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("file systems can be mounted by root only")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real treebanks and texts."""
    return _folder("RESIDUUM_DATA")


@pytest.fixture(scope="session")
def real_models() -> Path:
    """The folder of real weights."""
    return _folder("RESIDUUM_MODELS")


def _folder(variable: str) -> Path:
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set")
    return Path(os.environ[variable])


@pytest.fixture
def broken_off():
    """A context in which every training runs out of memory after some step, between two checkpoints."""
    from contextlib import contextmanager

    from residuum.training.loop import _Loop

    @contextmanager
    def after(step: int = 11):
        whole_step = _Loop.step

        def step_or_break(loop):
            whole_step(loop)
            if loop.progress.step == step:
                raise MemoryError

        with pytest.MonkeyPatch.context() as patched, pytest.raises(MemoryError):
            patched.setattr(_Loop, "step", step_or_break)
            yield

    return after
