"""What the fuzzers feed: a reader of one file that stands alone, lies among others, or is read in another process."""

from __future__ import annotations

import json
import os
import select
import signal
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mutations import Mutation, damaged, generated

from residuum.errors import ResiduumError
from residuum.storage.files import SEAL, read_json

PATIENCE = 2.0  # seconds for one tiny input in a process of its own


class GivenUp(Exception):
    """A library hung or died in a process of its own, as the page on security says that it may."""


@dataclass(frozen=True)
class Target:
    """A reader: a valid input, the words that its format is made of, and the ways to spoil the input."""

    name: str
    seed: bytes
    read: Callable[[bytes], object]
    words: tuple[bytes, ...] = ()
    mutations: tuple[Mutation, ...] = (damaged, damaged, generated)


def alone(path: Path, seed: bytes, read: Callable[[Path], object], name: str, words: tuple[bytes, ...] = ()) -> Target:
    """A reader of one file that stands alone."""

    def read_bytes(data: bytes) -> None:
        path.write_bytes(data)
        read(path)

    return Target(name, seed, read_bytes, words)


def among_others(
    path: Path,
    read: Callable[[Path], object],
    name: str,
    *,
    mutations: tuple[Mutation, ...] = (damaged, damaged, generated),
) -> Target:
    """A reader of one file among others, which are valid; the file is valid again after every input."""
    seed = _unsealed(path)

    def read_bytes(data: bytes) -> None:
        path.write_bytes(data)
        try:
            read(path)
        finally:
            path.write_bytes(seed)

    return Target(name, seed, read_bytes, (), mutations)


def _unsealed(path: Path) -> bytes:
    """A file as it is, or without its checksum where it is JSON of ours, so that what is changed in it is looked at."""
    content = path.read_bytes()
    return json.dumps(read_json(path)).encode() if f'"{SEAL}"'.encode() in content else content


def in_a_child(read: Callable[[Path], object]) -> Callable[[Path], None]:
    """The same reader in a process of its own, for a library that may hang or die: its errors are raised here."""

    def read_there(path: Path) -> None:
        here, there = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forks beside threads, which the child does not use
            child = os.fork()
        if child == 0:
            os.close(here)
            _read_and_end(read, path, there)
        os.close(there)
        said, status = _heard(here, child)
        if status is None or os.WIFSIGNALED(status):
            raise GivenUp(f"{path.suffix}: {'hung' if status is None else f'died of signal {os.WTERMSIG(status)}'}")
        if os.WEXITSTATUS(status) == 1:
            raise ResiduumError(said)
        if os.WEXITSTATUS(status):
            raise RuntimeError(said)

    return read_there


def _read_and_end(read: Callable[[Path], object], path: Path, pipe: int) -> None:
    status, said = 0, ""
    try:
        read(path)
    except ResiduumError as error:
        status, said = 1, str(error)
    except BaseException:
        status, said = 2, traceback.format_exc()[-1000:]
    finally:
        os.write(pipe, said.encode(errors="replace")[:60_000])
        os._exit(status)


def _heard(pipe: int, child: int) -> tuple[str, int | None]:
    """What a child said and how it ended; None if it did not within PATIENCE."""
    ready, _, _ = select.select([pipe], [], [], PATIENCE)
    if not ready:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(pipe, "rb") as file:
        said = file.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return said, status if ready else None
