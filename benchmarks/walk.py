"""The path of one round through the code: changes of file, and files, simulated and networked.

    python benchmarks/walk.py

A change of file is a call or return by which the running function of ours is in another file than
the one before. Counted over the second round of FedALIGN on four clients; networked, the grid is in
this process, so that server and clients are both seen.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import muster

SOURCE = str(Path(muster.__file__).parent)
TABLE = {
    "rounds": 3,
    "data": {"name": "digits", "clients": 4, "priority": 2},
    "method": {"name": "fedalign", "epsilon": 0.6, "warmup": 0},
    "local": {"steps": 5, "batch_size": 8},
    "network": {"classes": 10, "enrolment_timeout": 1.0},
    "trust": False,
}


class Walk:
    """Counts changes of file while it is on."""

    def __init__(self) -> None:
        self.changes, self.files, self.last = 0, set[str](), ""

    def step(self, frame: Any, event: str, arg: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(SOURCE):
            self.changes += name != self.last
            self.files.add(name)
            self.last = name


def trace_round(run: Callable[[], Any]) -> Walk:
    """Trace the second round of a run."""
    from muster.run import training_loop

    walk, real, rounds = Walk(), training_loop.play_round, []

    def play(*args: Any) -> Any:
        rounds.append(1)
        sys.setprofile(walk.step if len(rounds) == 2 else None)
        try:
            return real(*args)
        finally:
            sys.setprofile(None)

    training_loop.play_round = play
    try:
        run()
    finally:
        training_loop.play_round = real
    return walk


def main() -> None:
    from muster.config import load
    from muster.config.network import members_of
    from muster.flower.server.app import federate
    from muster.flower.testing.in_process import InProcess, write_sites

    warnings.simplefilter("ignore")
    chosen = load(TABLE)
    fed = chosen.federation(0)

    def run_network() -> None:
        with tempfile.TemporaryDirectory() as folder:
            sites = write_sites(fed, Path(folder))
            members = members_of(fed, [site.key.decode() for site in sites])
            listed = replace(chosen, members=members)
            federate(InProcess(sites), listed, Path(folder) / "run", lambda line: None)

    def run_simulation() -> None:
        muster.simulate(
            fed, muster.methods.fedalign(0.6, warmup=0), muster.models.Softmax(), 3, chosen.local
        )

    for name, run in (("simulated", run_simulation), ("networked", run_network)):
        walk = trace_round(run)
        print(f"{name}: {walk.changes:,} changes of file, {len(walk.files)} files a round")


if __name__ == "__main__":
    main()
