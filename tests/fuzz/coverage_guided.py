"""Look for inputs that lead where none has led yet: `python tests/fuzz/coverage_guided.py --seconds 300`.

Atheris keeps every input that runs a line of the package that no input ran before, and spoils those further: byte by
byte, or by the changes of `mutations.py`, which know JSON and safetensors. What counts as a fault is as in `fuzz.py`.
Every reader has its turn in a process of its own, because Atheris ends the process that it runs in. The seconds are
those of all readers together; imports, which are rewritten, come before them.
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import asdict
from pathlib import Path
from random import Random

import atheris

sys.path[:0] = [str(Path(__file__).parents[1] / part) for part in ("fuzz", ".", "reports")]


@contextmanager
def instrumented() -> Iterator[None]:
    """What is imported of the package tells which of its lines ran."""
    with redirect_stderr(io.StringIO()), atheris.instrument_imports(include=["residuum"]):  # it names every module
        yield


with instrumented():
    from mutations import LONGEST as LONGEST_INPUT
    from target_kinds import GivenUp, Target

    from fuzz import Tally, TooSlow, bounded, fast_disk, limit_memory, place, say
    from residuum.errors import ResiduumError

GRACE = 20.0  # seconds for a process to end: more than an input may take


def explore(target: Target, folder: Path, deadline: float, seed: int = 0) -> None:
    """Spoil a reader's input until the deadline, then write the tally to `folder/tally.json` and end the process."""
    faulthandler.enable()
    warnings.simplefilter("error")
    limit_memory()
    corpus = folder / "corpus"
    corpus.mkdir()
    (corpus / "seed").write_bytes(target.seed)
    read_one = _counted(target, folder, deadline)
    options = [f"-max_len={LONGEST_INPUT}", f"-seed={seed + 1}", "-rss_limit_mb=0", "-verbosity=0"]
    options += ["-timeout=3600", f"-artifact_prefix={folder}/"]  # Atheris takes 0 for no time at all
    atheris.Setup([sys.argv[0], *options, str(corpus)], read_one, custom_mutator=_mutator(target))
    atheris.Fuzz()


def guided(
    make_targets: Callable[[Path], list[Target]], seconds: float, *, only: str = "", seed: int = 0
) -> dict[str, Tally]:
    """Give every reader whose name holds `only` its share of the time that is left, one after the other."""
    tallies = {}
    with tempfile.TemporaryDirectory(prefix="residuum-guided-", dir=fast_disk()) as folder:
        files, kept = Path(folder) / "files", Path(folder) / "kept"
        targets = [target for target in make_targets(files) if only in target.name]
        files.rename(kept)
        deadline = time.monotonic() + seconds
        with suppress(KeyboardInterrupt):
            for number, target in enumerate(targets):
                shutil.copytree(kept, files)  # whatever a process that died left of them
                share = max(0.0, deadline - time.monotonic()) / (len(targets) - number)
                tallies[target.name] = _in_a_process(target, Path(folder) / str(number), share, seed)
                shutil.rmtree(files)
    return tallies


def main() -> int:
    """Explore all readers, and say what became of the inputs."""
    options = _options()
    with instrumented():
        from fuzz_targets import all_targets
    return say(guided(all_targets, options.seconds, only=options.only, seed=options.seed), Path(options.keep))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300, help="for all readers together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only the readers whose name holds this")
    parser.add_argument("--keep", default=Path(tempfile.gettempdir()) / "residuum-faults", help="for faulty inputs")
    return parser.parse_args()


def _in_a_process(target: Target, folder: Path, seconds: float, seed: int) -> Tally:
    """The tally of one reader; a process that dies or does not come back is a fault."""
    folder.mkdir()
    deadline = time.monotonic() + seconds
    child = os.fork()
    if child == 0:
        _explore_here(target, folder, deadline, seed)
    ended, status = 0, 0
    while not ended and time.monotonic() < deadline + GRACE:
        time.sleep(0.05)
        ended, status = os.waitpid(child, os.WNOHANG)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return read_tally(folder, "the process did not come back")
    said = (folder / "said").read_text(errors="replace")[-500:]
    return read_tally(folder, None if status == 0 else f"the process ended with {status}: {said}")


def _explore_here(target: Target, folder: Path, deadline: float, seed: int) -> None:
    """All that a process does which explores one reader; it never comes back."""
    try:
        said = os.open(folder / "said", os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1)
        os.dup2(said, 2)
        explore(target, folder, deadline, seed)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def read_tally(folder: Path, why: str | None = None) -> Tally:
    """What a process wrote down; where it died, the input that it died of is a fault."""
    tally = Tally()
    if (folder / "tally.json").exists():
        noted = json.loads((folder / "tally.json").read_text())
        tally = Tally(**{**noted, "faults": {where: bytes.fromhex(data) for where, data in noted["faults"].items()}})
    if why is not None:
        last = folder / "last"
        tally.faults[why] = last.read_bytes() if last.exists() else b""
    return tally


def _counted(target: Target, folder: Path, deadline: float) -> Callable[[bytes], None]:
    """A reader of one input that counts, and ends the process at the deadline, but not before the first input."""
    tally, last = Tally(), folder / "last"

    def read_one(data: bytes) -> None:
        if tally.inputs and time.monotonic() > deadline:
            _write(tally, folder)
            os._exit(0)
        last.write_bytes(data)  # should the process die of it
        tally.inputs += 1
        started = time.process_time()
        try:
            with bounded():
                target.read(data)
        except ResiduumError:
            tally.refused += 1
        except GivenUp:
            tally.given_up += 1
        except (Exception, TooSlow) as error:
            if tally.faults.setdefault(place(error), data) is data:
                _write(tally, folder)
        tally.seconds += time.process_time() - started

    return read_one


def _write(tally: Tally, folder: Path) -> None:
    faults = {where: data.hex() for where, data in tally.faults.items()}
    (folder / "tally.json").write_text(json.dumps({**asdict(tally), "faults": faults}))


def _mutator(target: Target) -> Callable[[bytes, int, int], bytes]:
    """Atheris' own changes or those that know the format, in turn; an input may be past the latter."""

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.5:
            return atheris.Mutate(data, longest)
        try:
            return random.choice(target.mutations)(random, data, target.words)[:longest]
        except (ValueError, LookupError, AttributeError, TypeError, RecursionError):  # no longer of that format
            return random.choice(target.mutations)(random, target.seed, target.words)[:longest]

    return mutate


if __name__ == "__main__":
    sys.exit(main())
