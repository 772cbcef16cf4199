"""Keep what every command writes, and compare it with what another version of the code writes, value by value.

    python tests/faults/references.py record before.json --world world
    python tests/faults/references.py record after.json --world world      # with the other version
    python tests/faults/references.py compare before.json after.json

The world (tiny models and texts) is written by the first recording and read by the next. Stores, moments,
similarities, clusters, splits, probe weights, trained and distilled weights are compared to the last bit. The
comparison prints one line per command: equal, or the places that differ (at most `--most` of each).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kill_commands import COMMANDS, write_world
from kill_snapshots import Snapshot, differences, snapshot

VOLATILE = re.compile(r"seconds|speed|duration|\bms\b|environment\.json|\.html$|\.svg$|README\.md$|\.xxh3$|\.files\.")
"""Clocks, pages and what only tells of other files."""


def main() -> int:
    """Record or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["record", "compare"])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--world", type=Path, default=Path("world"))
    parser.add_argument("--only", default="", help="names of commands, separated by commas")
    parser.add_argument("--most", type=int, default=6)
    options = parser.parse_args()
    if options.action == "record":
        return record(options.files[0], options.world.absolute(), set(filter(None, options.only.split(","))))
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in options.files)
    return compare(before, after, options.most)


def record(file: Path, world: Path, only: set[str]) -> int:
    """Run the commands and keep what each of them left; a command that fails leaves its last line."""
    if not world.exists():
        write_world(world)
    left: dict[str, Snapshot | str] = {}
    for command in COMMANDS:
        if command.minutes or (only and command.name not in only):
            continue
        with tempfile.TemporaryDirectory(prefix="residuum-reference-") as folder:
            out = Path(folder) / "out"
            words = [sys.executable, "-m", "residuum", *command.words(world, out)]
            done = subprocess.run(words, capture_output=True, text=True)
            failed = (done.stderr.strip().splitlines() or ["failed without a word"])[-1]
            left[command.name] = failed if done.returncode else snapshot(out)
        print(f"{command.name}: {'failed' if done.returncode else len(left[command.name])}", flush=True)
    file.write_text(json.dumps(left), encoding="utf-8")
    return 0


def compare(before: dict[str, Snapshot | str], after: dict[str, Snapshot | str], most: int) -> int:
    """Say for each command what differs; the exit status tells whether anything does."""
    differing = 0
    for name in before:
        a, b = before[name], after.get(name, "not recorded")
        if isinstance(a, str) or isinstance(b, str):
            print(f"{name}: {a if isinstance(a, str) else b}")
            differing += 1
            continue
        places = {place for place in differences(a, b) if not VOLATILE.search(place)}
        shared = sum(place in a and place in b for place in places)
        same = len({*a, *b}) - len(places)
        kinds = Counter(place.partition(":")[0] for place in places if place in a and place in b)
        print(f"{name}: {same} values equal, {shared} differ, {len(places) - shared} in one only")
        for place in [*sorted(kinds)[:most]]:
            print(f"    {place}")
        differing += bool(places)
    return min(differing, 1)


if __name__ == "__main__":
    sys.exit(main())
