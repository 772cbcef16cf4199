"""Kill every command that writes at random points, start it again until it is done, and compare what it left.

`python tests/faults/kill.py --kills 1000 --seconds 600`. All attempts are forked from this process, which has imported
everything and computed nothing. A run is killed (SIGKILL) either after a random time or at a random operation on a
file, where the order of writing matters. What differs between two runs that nobody disturbed (seconds, speeds) may
differ here too; every other value must be the same to the last bit, and no other file may be there. Turns go to the
command with the fewest kills, and one without any fails the run as a wrong result does. Commands that take minutes are
killed with `--all` only.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).parents[1]))
for _variable, _value in {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}.items():
    os.environ.setdefault(_variable, _value)

from kill_commands import COMMANDS, Command, write_world  # noqa: E402 - one thread is asked for before torch is there
from kill_snapshots import Snapshot, differences, snapshot  # noqa: E402

TIMED = re.compile(r"seconds|speed|duration|\bms\b")  # two clocks may agree by chance, and then differ the third time
WRITING = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree")
MOST_KILLS = 12  # of one run; then it is left alone, or a command that cannot go on would never end
MINUTES_WEIGHT = 10  # how many kills of the others one of a command that takes minutes stands for


@dataclass
class Tally:
    """What became of a command's runs."""

    kills: int = 0
    runs: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Reference:
    """A run that nobody disturbed: what it left, where two of them differ, and how long it takes."""

    left: Snapshot
    volatile: frozenset[str]
    seconds: float
    operations: int


def main() -> int:
    """Give each command its turn until there were enough kills or the time is over."""
    options = _options()
    commands = chosen(options.only, options.all)
    kills = max(options.kills, len(commands))
    _import_everything()
    with tempfile.TemporaryDirectory(prefix="residuum-kill-") as folder:
        root = Path(folder)
        if _in_child(lambda: write_world(root / "world"), root / "world.log"):
            print((root / "world.log").read_text(errors="replace"))
            return 1
        tallies = kill_all(commands, root, Random(options.seed), kills, options.seconds)
    return say(tallies, kills)


def chosen(only: str = "", minutes: bool = False) -> list[Command]:
    """The commands of these names; without names all, but those that take minutes only if they are asked for."""
    named = set(only.split(",")) if only else {c.name for c in COMMANDS if minutes or not c.minutes}
    unknown = named - {c.name for c in COMMANDS}
    if unknown:
        raise SystemExit(f"There is no command {', '.join(sorted(unknown))}; see kill_commands.py.")
    return [c for c in COMMANDS if c.name in named]


def kill_all(commands: list[Command], root: Path, random: Random, kills: int, seconds: float) -> dict[str, Tally]:
    """Kill runs of the command with the fewest kills so far; one that fails undisturbed is wrong at once, and left.

    No turn takes more than a command's share of the kills, so that the first turns leave the last commands theirs.
    """
    deadline = time.monotonic() + seconds
    tallies = {command.name: Tally() for command in commands}
    references: dict[str, Reference] = {}
    going, share = list(commands), min(MOST_KILLS, max(1, kills // len(commands)))
    while going and (left := kills - sum(t.kills for t in tallies.values())) > 0 and time.monotonic() < deadline:
        command = min(going, key=lambda c: _weight(c) * max(tallies[c.name].kills, tallies[c.name].runs))
        tally, started = tallies[command.name], time.perf_counter()
        try:
            if command.name not in references:
                references[command.name] = reference(command, root)
            most = min(left, max(1, share // _weight(command)))
            kill_one(command, references[command.name], root, random, tally, most)
        except RuntimeError as error:
            tally.wrong.append(str(error))
            going.remove(command)
        tally.seconds += time.perf_counter() - started
    return tallies


def _weight(command: Command) -> int:
    return MINUTES_WEIGHT if command.minutes else 1


def reference(command: Command, root: Path) -> Reference:
    """Run a command twice undisturbed."""
    left, seconds, counted = [], float("inf"), root / "operations"
    for number in range(2):
        out, started = root / f"{command.name}-{number}", time.perf_counter()
        _check(_attempt(command, root, out, count=counted), root, command)
        seconds = min(seconds, time.perf_counter() - started)  # the first one may have read more from the disk
        left.append(snapshot(out))
        shutil.rmtree(out)
    volatile = frozenset(differences(*left))
    return Reference(left[0], volatile, seconds, int(counted.read_text()))


def kill_one(command: Command, wanted: Reference, root: Path, random: Random, tally: Tally, most: int) -> None:
    """Kill one run again and again, but not more often than `most`, until it is done; look at what it left."""
    out = root / f"{command.name}-killed"
    tally.runs += 1
    for number in range(most + 1):
        limits: dict[str, float] = {}
        if number < most:
            at_file = tally.kills == 0 or random.random() < 0.5  # that operation will come, that second may not
            limits = {"operation": random.randint(1, wanted.operations)} if at_file else {}
            limits |= {} if at_file else {"after": random.uniform(0, wanted.seconds)}
        status = _attempt(command, root, out, **limits)
        if status != -signal.SIGKILL:
            break
        tally.kills += 1
    try:
        _check(status, root, command)
        left = snapshot(out)
        differing = differences(left, wanted.left) - wanted.volatile
        wrong = sorted(place for place in differing if not TIMED.search(place))
        if wrong:
            shown = ", ".join(f"{p} ({left.get(p, 'absent')} ≠ {wanted.left.get(p, 'absent')})" for p in wrong[:4])
            tally.wrong.append(f"{len(wrong)} values differ: {shown}")
    except (RuntimeError, ValueError, OSError) as error:
        tally.wrong.append(str(error))
    shutil.rmtree(out, ignore_errors=True)


def _attempt(
    command: Command,
    root: Path,
    out: Path,
    *,
    after: float | None = None,
    operation: float = 0,
    count: Path | None = None,
) -> int:
    """Run a command in a child; kill it after some seconds, or at its n-th operation on a file."""

    def run() -> None:
        from residuum.cli import main as residuum

        done = watch_files(int(operation))
        sys.argv = ["residuum", *command.words(root / "world", out)]
        try:
            residuum()
        finally:
            if count is not None:
                count.write_text(str(done()))

    return _in_child(run, root / "log", after)


def watch_files(operation: int) -> Callable[[], int]:
    """Count operations that change files, and die at the one that is asked for; gives what tells the count."""
    done = 0

    def counted(leave: Callable[[], object] = lambda: None) -> None:
        nonlocal done
        done += 1
        if done == operation:
            leave()
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in WRITING and (event != "open" or _writes(arguments)):
            counted()

    _watch_tensors(counted)
    sys.addaudithook(hook)
    return lambda: done


def _watch_tensors(counted: Callable[[Callable[[], object]], None]) -> None:
    """Python does not see what safetensors opens: a kill there leaves the half of a file that it would leave."""
    import safetensors.numpy
    import safetensors.torch

    for module in (safetensors.numpy, safetensors.torch):
        module.serialize_file = partial(_serialize, module.serialize_file, counted)


def _serialize(
    write: Callable[..., None],
    counted: Callable[[Callable[[], object]], None],
    tensors: object,
    path: str | Path,
    *others: object,
    **options: object,
) -> None:
    counted(lambda: Path(path).with_name(".tmpAbC123").write_bytes(b"half"))
    write(tensors, path, *others, **options)


def _writes(arguments: tuple[object, ...]) -> bool:
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


def _in_child(work: Callable[[], object], log: Path, after: float | None = None) -> int:
    """Do some work in a forked child; gives its exit status, or the negative number of the signal that ended it."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _become_child(work, log)
    deadline = None if after is None else time.monotonic() + after
    while True:
        pid, status = os.waitpid(child, 0 if deadline is None else os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if deadline is not None and time.monotonic() >= deadline:
            os.kill(child, signal.SIGKILL)
            deadline = None
        time.sleep(0.001)


def _become_child(work: Callable[[], object], log: Path) -> NoReturn:
    """The child never returns to the parent's code."""
    status = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        work()
        status = 0
    except SystemExit as exit:
        status = int(exit.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:  # what the parent would do at its end, such as removing its folder, is not the child's to do
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _check(status: int, root: Path, command: Command) -> None:
    if status:
        said = (root / "log").read_text(errors="replace").strip().splitlines()
        raise RuntimeError(f"{command.name} ended with {status}: {' | '.join(said[-3:])[:600]}")


def _import_everything() -> None:
    """What the commands would import, once; nothing is computed here, because threads do not survive a fork."""
    import importlib
    import pkgutil

    import torch

    import residuum

    torch.set_num_threads(1)
    for module in pkgutil.walk_packages(residuum.__path__, "residuum."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in (
        "transformers.models.auto",
        "transformers.models.bert.modeling_bert",
        "pyarrow.parquet",
        "sklearn.cluster",
    ):
        importlib.import_module(name)
    importlib.import_module("transformers.models.xlm_roberta.modeling_xlm_roberta")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="in all; at least one of every command")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="names of commands, separated by commas")
    parser.add_argument("--all", action="store_true", help="the commands that take minutes too")
    return parser.parse_args()


def say(tallies: dict[str, Tally], asked: int) -> int:
    """Print what became of every command; the status to end with is 0 if all were killed and none was wrong."""
    for name, tally in tallies.items():
        print(
            f"{name:20} {tally.kills:>5} kills {tally.runs:>4} runs {tally.seconds:>7.1f} s  {len(tally.wrong)} wrong"
        )
    for name, tally in tallies.items():
        for fault in tally.wrong[:5]:
            print(f"{name}: {fault}")
    kills, wrong = (sum(x) for x in zip(*((t.kills, len(t.wrong)) for t in tallies.values()), strict=True))
    never = [name for name, tally in tallies.items() if not tally.kills]
    print(f"{kills:,} of {asked:,} kills{' in the time' * (kills < asked)}, {wrong} wrong results")
    if never:
        print(f"Never killed: {', '.join(never)}")
    return int(bool(wrong or never))


if __name__ == "__main__":
    sys.exit(main())
