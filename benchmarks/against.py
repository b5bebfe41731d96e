"""One version of muster against another, in one run.

    python benchmarks/against.py OLD/src NEW/src           W1 to W5 (half an hour on two cores)
    python benchmarks/against.py OLD/src NEW/src W1 W5     some of them
    python benchmarks/against.py OLD/src NEW/src --write   and put the rows into docs/speed.md

With `--write`, rows of other workloads stay, if they are of this machine.

Each version has its own process, which makes its data and warms up once; then they take turns,
one at work while the other waits, and which of them is first changes from turn to turn, so that a
machine that slows down slows both. Shown are the best turn of each, the ratio of the two, and the
middle one of the ratios within a turn, which a noisy machine disturbs least.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from machine import name_machine
from page import check_machine, write_rows
from run import PAGE, show
from workloads import WORKLOADS

HERE = Path(__file__).parent
TURNS = {"W3": 4}  # a turn of it takes a minute
MANY = 15  # of any other

SERVE = """
import sys
import workloads
load = workloads.WORKLOADS[sys.argv[1]]()
workloads.rounds(load, 1)
for _ in sys.stdin:
    seconds = workloads.rounds(load, load.rounds)
    print(sum(seconds) / len(seconds), flush=True)
"""


class Version:
    """The muster of a source folder, ready to run a workload again and again."""

    def __init__(self, source: str, name: str) -> None:
        # Workloads of that version, where its benchmarks are beside it: names may differ.
        own = Path(source).resolve().parent / "benchmarks"
        here = own if (own / "workloads.py").is_file() else HERE
        paths = os.pathsep.join([str(Path(source).resolve()), str(here)])
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVE, name],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._what = f"{source}, {name}"

    def measure(self) -> float:
        """Mean seconds of the workload's rounds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self._what}: it ended without an answer")
        return float(line)

    def close(self) -> None:
        self._process.communicate()


def find_revision(source: str) -> str:
    """Return the commit of a source folder; the folder itself where it is in no checkout."""
    command = ["git", "-C", source, "describe", "--always", "--abbrev=7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or source


def format_row(name: str, pairs: list[tuple[float, float]], old: str) -> list[str]:
    """Return a workload's row of the table from the seconds of its turns, old and new."""
    before, after = (min(p[i] for p in pairs) for i in (0, 1))
    middle = statistics.median(n / o for o, n in pairs)
    seconds = (f"{before:.4f}", f"{after:.4f}")
    return [name, old, str(len(pairs)), *seconds, f"{after / before:.2f}", f"{middle:.2f}"]


def main(words: list[str]) -> int:
    to_docs, words = "--write" in words, [w for w in words if w != "--write"]
    if len(words) < 2 or not all(Path(w, "muster").is_dir() for w in words[:2]):
        print("usage: python benchmarks/against.py OLD/src NEW/src [W1 ...] [--write]",
              file=sys.stderr)  # fmt: skip
        return 2
    old, new, *names = words
    names, machine = names or list(WORKLOADS), name_machine()
    if wrong := [name for name in names if name not in WORKLOADS]:
        print(f"unknown workload '{wrong[0]}'; known: {', '.join(WORKLOADS)}", file=sys.stderr)
        return 2
    if to_docs:
        check_machine(PAGE, "against", names, machine)
    rows = [["workload", "old", "turns", "old s", "new s", "new / old", "middle of new / old"]]
    console = Console()
    for name in names:
        versions = [Version(source, name) for source in (old, new)]
        for version in versions:
            version.measure()  # neither is still starting when the first turn begins
        pairs = []
        for turn in range(TURNS.get(name, MANY)):
            order = (0, 1) if turn % 2 == 0 else (1, 0)
            found = {i: versions[i].measure() for i in order}
            pairs.append((found[0], found[1]))
            console.print(f"{name}, turn {turn + 1}: {found[0]:.4f} {found[1]:.4f}", style="dim")
        for version in versions:
            version.close()
        rows.append(format_row(name, pairs, find_revision(old)))
        if to_docs:  # at once: what was measured is not lost with what comes after it
            write_rows(PAGE, "against", [rows[0], rows[-1]], machine)
    show(console, "seconds a round", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
