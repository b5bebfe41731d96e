"""One version of muster against another, in one run.

    python benchmarks/against.py OLD/src NEW/src           W1, W2, W4 and W5
    python benchmarks/against.py OLD/src NEW/src W1 W5     some of them

Each measurement is a process of its own; the two versions take turns, and which of them is first
changes from turn to turn, so that a machine that slows down slows both. Shown are the best turn of
each, the ratio of the two, and the middle one of the ratios within a turn.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
TURNS = 5


def measure(source: str, name: str) -> float:
    """Mean seconds of a workload's rounds under the muster of a source folder."""
    code = f"import workloads; print(workloads.mean_round({name!r}))"
    paths = os.pathsep.join([str(Path(source).resolve()), str(HERE)])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{source}, {name}:\n{done.stderr}")
    return float(done.stdout)


def main(words: list[str]) -> int:
    if len(words) < 2 or not all(Path(w, "muster").is_dir() for w in words[:2]):
        print("usage: python benchmarks/against.py OLD/src NEW/src [W1 ...]", file=sys.stderr)
        return 2
    old, new, *names = words
    table = Table("workload", "old s", "new s", "new / old", "middle of new / old",
                  title=f"seconds a round, {TURNS} turns")  # fmt: skip
    console = Console()
    for name in names or ("W1", "W2", "W4", "W5"):
        pairs = []
        for turn in range(TURNS):
            order = (old, new) if turn % 2 == 0 else (new, old)
            found = {source: measure(source, name) for source in order}
            pairs.append((found[old], found[new]))
            console.print(
                f"{name}, turn {turn + 1}: {found[old]:.4f} {found[new]:.4f}", style="dim"
            )
        before, after = (min(p[i] for p in pairs) for i in (0, 1))
        middle = statistics.median(n / o for o, n in pairs)
        table.add_row(
            name, f"{before:.4f}", f"{after:.4f}", f"{after / before:.2f}", f"{middle:.2f}"
        )
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
