"""Feed every reader hostile inputs for a while: `python tests/fuzz/fuzz.py --seconds 60`.

Whatever is wrong with an input, a reader gives a value or raises a ResiduumError; all else is a fault, and so is an
input that takes longer than LONGEST seconds or more than MEMORY bytes. Faulty inputs are kept in the folder that is
named at the end.
"""

from __future__ import annotations

import argparse
import faulthandler
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))

from target_kinds import GivenUp, Target

from residuum.errors import ResiduumError

LONGEST = 10.0
MEMORY = 8 << 30  # what a tiny input may never ask for
TURN = 0.1  # seconds of one reader before the next has its turn


@dataclass
class Tally:
    """What became of the inputs of one reader."""

    inputs: int = 0
    refused: int = 0
    given_up: int = 0  # a library that is not ours hung or died, as the page on security says it may
    seconds: float = 0.0
    faults: dict[str, bytes] = field(default_factory=dict)  # the place of the fault → the input that first led there


class TooSlow(BaseException):
    """An input took longer than any tiny input may; nothing that catches errors may take it for one."""


def fuzz(target: Target, random: Random, seconds: float, tally: Tally) -> None:
    """Read spoilt inputs for so many seconds of the processor, and count what became of them."""
    started = time.process_time()
    while time.process_time() < started + seconds:
        data = random.choice(target.mutations)(random, target.seed, target.words)
        tally.inputs += 1
        try:
            with bounded():
                target.read(data)
        except ResiduumError:
            tally.refused += 1
        except GivenUp:
            tally.given_up += 1
        except (Exception, TooSlow) as error:  # whatever else comes out is what is looked for
            tally.faults.setdefault(place(error), data)
    tally.seconds += time.process_time() - started


def main() -> int:
    """Give all readers turns until the time is over or all have had their inputs."""
    from fuzz_targets import all_targets  # half of the package, which few readers alone do not need

    options = _options()
    faulthandler.enable()
    warnings.simplefilter("error")
    limit_memory()
    with tempfile.TemporaryDirectory(prefix="residuum-fuzz-", dir=fast_disk()) as folder:
        targets = [t for t in all_targets(Path(folder)) if not options.only or options.only in t.name]
        for target in targets:
            target.read(target.seed)
        tallies = {target.name: Tally() for target in targets}
        random, deadline = Random(options.seed), time.monotonic() + options.seconds
        with suppress(KeyboardInterrupt):
            while time.monotonic() < deadline and sum(t.inputs for t in tallies.values()) < options.inputs:
                for target in targets:
                    if time.monotonic() < deadline:
                        fuzz(target, random, TURN, tallies[target.name])
    return say(tallies, Path(options.keep))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--inputs", type=int, default=10**9, help="stop after so many inputs of all readers together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only the readers whose name holds this")
    parser.add_argument("--keep", default=Path(tempfile.gettempdir()) / "residuum-faults", help="for faulty inputs")
    return parser.parse_args()


def limit_memory() -> None:
    """From now on this process may not have more memory than any tiny input can need."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))


def fast_disk() -> str | None:
    """Memory, where the system has a file system in it; else wherever temporary files go."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextmanager
def bounded() -> Iterator[None]:
    """Give up what takes longer than LONGEST seconds of the processor."""

    def stop(number: int, frame: object) -> None:
        raise TooSlow(f"took more than {LONGEST} s")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def place(error: BaseException) -> str:
    """Where an error came from: its kind and the last line of the package that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "residuum" in frame.filename and "/tests/" not in frame.filename]
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "the harness"
    return f"{type(error).__name__} at {where}: {str(error)[:150]!r}"


def say(tallies: dict[str, Tally], keep: Path) -> int:
    """Print the tallies, keep the faulty inputs, and give the status to end with."""
    for name, tally in tallies.items():
        each = 1e6 * tally.seconds / max(tally.inputs, 1)
        print(f"{name:28} {tally.inputs:>9,} inputs {tally.refused:>9,} refused {each:>7.0f} µs each", end="")
        print(f"  {tally.given_up:,} given up by the library" if tally.given_up else "", end="")
        print(f"  {len(tally.faults)} FAULTS" if tally.faults else "")
    faults = [(name, *fault) for name, tally in tallies.items() for fault in tally.faults.items()]
    for number, (name, place, data) in enumerate(faults):
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{number}-{name.replace(' ', '-')}").write_bytes(data)
        print(f"{number}: {name}: {place}\n    {data[:100]!r}")
    total = sum(tally.inputs for tally in tallies.values())
    print(
        f"{total:,} inputs of {len(tallies)} readers, {len(faults)} faults"
        + (f"; the inputs are in {keep}" if faults else "")
    )
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
