"""Small work for several processes, and join rules: one that kills the process it runs in, in the
middle of a run, as the system does without memory, and one that waits for other processes."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tomli_w

import muster
from muster import Decision
from muster.papers.reproduce.paper_experiment import read_experiment
from muster.parts import Join


@dataclass(frozen=True)
class Fragile(Join):
    """Everyone trains; in each of the first `times` processes, the third round is the last.

    Attributes:
        record: file with a line for each process that was killed
    """

    record: str = ""
    times: int = 1

    appraises = False

    def __call__(self, offer, roster, appraisal):
        record = Path(self.record)
        if offer.round == 3 and record.read_text().count("\n") < self.times:
            with record.open("a") as file:
                file.write(f"{os.getpid()}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return Decision(np.ones(len(roster.ids), bool), np.full(len(roster.ids), "joins"))


@dataclass(frozen=True)
class Gathering(Join):
    """Everyone trains, once so many processes are at work.

    Attributes:
        record: folder with a file for each process
    """

    record: str = ""
    processes: int = 2

    appraises = False

    def __call__(self, offer, roster, appraisal):
        folder, ends = Path(self.record), time.monotonic() + 120
        (folder / str(os.getpid())).touch()
        while len(list(folder.iterdir())) < self.processes and time.monotonic() < ends:
            time.sleep(0.01)
        return Decision(np.ones(len(roster.ids), bool), np.full(len(roster.ids), "joins"))


BASE = {
    "data": {"name": "digits", "clients": 4, "priority": 2},
    "rounds": 5,
    "seeds": 2,
    "checkpoint_every": 1,
    "local": {"steps": 1, "batch_size": 8},
}


def configure(record, times=1):
    """A configuration whose first processes are killed in their third round."""
    record.write_text("")
    join = {"kind": "fragile:Fragile", "record": str(record), "times": times}
    return {**BASE, "methods": [{"name": "fedavg", "join": join}]}


def write_experiment(folder):
    """An experiment of two panels, to be reproduced."""
    table = {
        "id": "small",
        "title": "A small one",
        "paper": "fedalign",
        "where": "nowhere",
        "common": {**BASE, "rounds": 2, "methods": ["fedavg", "fedalign"]},
        "panels": {"one": {}, "two": {"sweep": {"local.lr": [0.1, 0.2]}}},
        "figures": [{"measures": ["loss"]}],
        "quick": {"rounds": 1},
    }
    path = folder / "small.toml"
    path.write_text(tomli_w.dumps(table))
    return read_experiment(path)


def digits(seed, clients=4):
    return muster.data.digits(clients=clients, priority=2, seed=seed)


def compare(**more):
    """A comparison of two seeds from Python."""
    given = {"data": digits, "methods": [muster.methods.fedavg()], "seeds": [1, 4]} | more
    return muster.compare(model=muster.models.Softmax(), rounds=2, **given)
