"""Work for one peer: read it, time its rounds, and leave what was trained. Needs numpy alone.

work = read()          the federation, the starting point, the clients asked in each round
clock.mark()           before the first round, and after each
write(work, clock, final, version)
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Work:
    """FedAvg to be done: each asked client takes `epochs` passes over its rows in batches, by SGD,
    and models are averaged by rows. The first round is not timed."""

    x: np.ndarray
    y: np.ndarray
    offsets: np.ndarray
    start: dict[str, np.ndarray]
    asked: np.ndarray  # [round, clients]
    layers: list[list]
    epochs: int
    batch: int
    lr: float
    classes: int
    out: Path
    mode: str

    @property
    def n(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.offsets)

    def client(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        rows = slice(int(self.offsets[k]), int(self.offsets[k + 1]))
        return self.x[rows], self.y[rows]


class Clock:
    """Times at which rounds ended; the first is when they begin."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def mark(self) -> None:
        self.marks.append(time.time())

    def seconds(self) -> list[float]:
        """Seconds of each round but the first."""
        return np.diff(self.marks)[1:].tolist()


def read(folder: str | None = None, out: str | None = None, mode: str | None = None) -> Work:
    """Read the work that the command line names."""
    folder, out, mode = folder or sys.argv[1], out or sys.argv[2], mode or sys.argv[3]
    place = Path(folder)
    table = json.loads((place / "work.json").read_text())
    arrays = {name: np.load(place / f"{name}.npy", mmap_mode="r") for name in ("x", "y")}
    small = {name: np.load(place / f"{name}.npy") for name in ("offsets", "asked")}
    with np.load(place / "start.npz") as found:
        start = dict(found)
    return Work(**arrays, **small, **table, start=start, out=Path(out), mode=mode)


def write(
    work: Work, clock: Clock, final: dict[str, np.ndarray], version: str, last: int | None = None
) -> None:
    """Leave the seconds of rounds, of the start, and the final model.

    Args:
        last: -1 if the last round is not timed, as it does more than others
    """
    np.savez(work.out / "final.npz", **final)
    started = clock.marks[1] - float(os.environ["PEER_LAUNCH"])
    table = {"rounds": clock.seconds()[:last], "start": started, "version": version}
    (work.out / "result.json").write_text(json.dumps(table))
