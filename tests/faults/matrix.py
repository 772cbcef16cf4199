"""What every command does when something goes wrong: the table in docs/guides/faults.md.

    python tests/faults/matrix.py [NAME …]      # run the cells and print the rows
    python tests/faults/matrix.py --write       # … and put the table into the guide

Each cell is a command, run in this process by the command line's own `main`, with one fault. A command must end well,
or with one line on standard error and no folder that looks finished; what is interrupted must end well when it is
given again. Kills are the work of `kill.py`.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))
for _variable, _value in {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}.items():
    os.environ.setdefault(_variable, _value)

from kill_commands import COMMANDS, Command, write_world  # noqa: E402 - one thread is asked for before torch is there

import residuum.cli  # noqa: E402
from residuum.storage import files  # noqa: E402
from residuum.storage.results import Run, write_run  # noqa: E402

GUIDE = Path(__file__).parents[2] / "docs/guides/faults.md"
BEGIN, END = "<!-- the table of tests/faults/matrix.py -->\n", "<!-- end of the table -->\n"
MINUTES = ("study similarity", "study distilled", "study monolingual")
ROWS = tuple(command for command in COMMANDS if command.name not in MINUTES)
REFUSED, GOES_ON, DONE, NOTHING = "refused", "goes on", "not affected", "reads nothing"


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    status: int
    error: str

    @property
    def clear(self) -> bool:
        """Whether it ended well, or said in one line what is wrong."""
        return not self.error if self.status == 0 else bool(re.fullmatch(r"residuum: [^\n]+\n", self.error))


def run(words: list[str]) -> Outcome:
    """Run a command line in this process."""
    out, error, handler = io.StringIO(), io.StringIO(), signal.getsignal(signal.SIGINT)
    status = 0
    with (
        mock.patch.object(sys, "argv", ["residuum", *words]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
        warnings.catch_warnings(),
    ):
        try:
            residuum.cli.main()
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
        except BaseException as fault:
            status, _ = 70, error.write(f"{type(fault).__name__}: {fault}\nnot caught\n")
        finally:
            signal.signal(signal.SIGINT, handler)
    # Progress and notices are no errors; what a failure says is the last line.
    lines = [line for line in error.getvalue().splitlines() if line.startswith("residuum: ") or status == 70]
    return Outcome(status, "".join(f"{line}\n" for line in lines) if status else "")


def with_first_input(words: list[str], world: Path, change: Callable[[Path], Path]) -> list[str] | None:
    """The words with the first thing that the command reads replaced; None where it reads nothing."""
    for place, word in enumerate(words):
        if found := re.search(rf"{re.escape(str(world))}/[^,=]+", word):
            changed = str(change(Path(found[0])))
            return [*words[:place], word.replace(found[0], changed), *words[place + 1 :]]
    return None


def missing(source: Path, _folder: Path) -> Path:
    """A path where nothing is."""
    return source.with_name(f"no-{source.name}")


def empty(source: Path, folder: Path) -> Path:
    """A folder or file of that name with nothing in it."""
    target = folder / source.name
    target.mkdir() if source.is_dir() else target.touch()
    return target


def damaged(source: Path, folder: Path) -> Path:
    """A copy whose files of numbers are cut in half, or a file of bytes that are no text."""
    target = folder / source.name
    if source.is_dir():
        shutil.copytree(source, target)
        numbers = [path for path in target.rglob("*") if path.suffix in (".safetensors", ".tsv", ".parquet")]
        for path in numbers:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 1] + b"\xff\xfe")
    else:
        target.write_bytes(b"\xff\xfe\x00" * 40)
    return target


def read_with(change: Callable[[Path, Path], Path]) -> Callable[[Command, Path, Path], str]:
    """A cell where the first input is changed."""

    def cell(command: Command, world: Path, folder: Path) -> str:
        out = folder / "out"
        words = with_first_input(command.words(world, out), world, lambda source: change(source, folder))
        return NOTHING if words is None else _said(run(words), out)

    return cell


def elsewhere(command: Command, world: Path, folder: Path) -> str:
    """The folder to write lies in a file."""
    (folder / "file").write_text("a file")
    outcome = run(command.words(world, folder / "file" / "out"))
    assert (folder / "file").read_text() == "a file"
    return _said(outcome, folder / "none")


def other_run(command: Command, world: Path, folder: Path) -> str:
    """The folder holds a finished run of another command."""
    out = write_run(folder / "out", Run("another command", {}))
    before = (out / "result.json").read_bytes()
    outcome = run(command.words(world, out))
    assert (out / "result.json").read_bytes() == before, "another run is not touched"
    return _said(outcome, folder / "none")


def held(command: Command, world: Path, folder: Path) -> str:
    """Something else is writing to the folder."""
    release, holds = threading.Event(), threading.Event()

    def hold() -> None:
        files.hold_folder(folder / "out")
        holds.set()
        release.wait(600)
        files.release_folder(folder / "out")

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait(60)
    try:
        return _said(run(command.words(world, folder / "out")), folder / "out")
    finally:
        release.set()
        thread.join()


def little_memory(command: Command, world: Path, folder: Path) -> str:
    """`--max-memory` allows a thousand bytes."""
    outcome = run([*command.words(world, folder / "out"), "--max-memory", "1kB"])
    if "No such option" in outcome.error or outcome.status == 2:
        return "has no limit"
    return _said(outcome, folder / "out")


def interrupted_by(fault: BaseException, again: bool) -> Callable[[Command, Path, Path], str]:
    """A cell where the first file that is brought to the disk meets a fault; then the command is given again."""

    def cell(command: Command, world: Path, folder: Path) -> str:
        out = folder / "out"
        with _fault_at_first_write(fault) as met:
            outcome = run(command.words(world, out))
        if not met:
            return DONE if outcome.status == 0 else f"no fault met: {outcome.error!r}"
        said = _said(outcome, out)
        if said != REFUSED:
            return said
        if again:
            second = run(command.words(world, out))
            assert second.status == 0, f"{command.name} does not go on: {second.error}"
        return GOES_ON

    return cell


@contextlib.contextmanager
def _fault_at_first_write(fault: BaseException) -> Iterator[list[Any]]:
    met: list[Any] = []
    sync = files._sync

    def first(path: Path) -> None:
        if met:
            sync(path)
        else:
            met.append(path)
            raise fault

    with mock.patch.object(files, "_sync", first):
        yield met


def _said(outcome: Outcome, out: Path) -> str:
    """The cell of an outcome; anything but a good end or one line is shown as it is, which no table may have."""
    if not outcome.clear:
        return f"status {outcome.status}: {outcome.error[-300:]!r}"
    if outcome.status == 0:
        return DONE
    assert not (out / "result.json").exists(), "what failed looks finished"
    return REFUSED


FAULTS: dict[str, Callable[[Command, Path, Path], str]] = {
    "input missing": read_with(missing),
    "input empty": read_with(empty),
    "input damaged": read_with(damaged),
    "a file in the way": elsewhere,
    "another run there": other_run,
    "folder held": held,
    "1 kB of memory": little_memory,
    "disk full": interrupted_by(OSError(errno.ENOSPC, "No space left on device"), again=False),
    "drive lost": interrupted_by(OSError(errno.EIO, "Input/output error"), again=False),
    "Ctrl-C": interrupted_by(residuum.cli.Interrupted(), again=True),
}


def row(command: Command, world: Path, faults: tuple[str, ...] = tuple(FAULTS)) -> dict[str, str]:
    """The cells of a command."""
    cells = {}
    for name in faults:
        with tempfile.TemporaryDirectory(prefix="residuum-fault-") as folder:
            cells[name] = FAULTS[name](command, world, Path(folder))
    return cells


def written_table() -> dict[str, dict[str, str]]:
    """The cells that the guide shows, by command and fault."""
    lines = GUIDE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    parts = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    return {name: dict(zip(parts[0][1:], cells, strict=True)) for name, *cells in parts[2:]}


def main() -> int:
    """Run rows, print them, and write them on request."""
    names = [word for word in sys.argv[1:] if not word.startswith("--")]
    table = written_table() if BEGIN in GUIDE.read_text(encoding="utf-8") else {}
    with tempfile.TemporaryDirectory(prefix="residuum-matrix-") as folder:
        world = Path(folder) / "world"
        write_world(world)
        for command in ROWS:
            if not names or command.name in names:
                table[command.name] = row(command, world)
                print(command.name, table[command.name], flush=True)
    if "--write" in sys.argv:
        shown = [["command", *FAULTS], ["---"] * (1 + len(FAULTS))]
        shown += [[f"`{c.name}`", *table[c.name].values()] for c in ROWS if c.name in table]
        lines = "".join(f"| {' | '.join(cells)} |\n" for cells in shown)
        text = GUIDE.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        GUIDE.write_text(before + BEGIN + "\n" + lines + "\n" + END + rest.partition(END)[2], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
