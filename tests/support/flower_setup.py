"""What the tests of the federation share: a small experiment, and nodes that hold its data."""

from __future__ import annotations

from dataclasses import replace

import muster
from flower_grid import LocalGrid, Node
from muster.config.experiment import load
from muster.config.network import members_of
from muster.flower.local.loopback import write_client
from muster.flower.server.app import federate

DATA = {
    "name": "digits",
    "clients": 5,
    "priority": 2,
    "partition": {"kind": "dirichlet", "alpha": 0.3},
}


class Setup:
    """An experiment and the nodes of its clients; `run` federates it, `simulate` simulates it."""

    def __init__(self, folder, method="fedalign", **settings):
        table = {
            "name": "test",
            "rounds": 3,
            "dtype": "float64",
            "data": DATA,
            "method": {"name": method} if isinstance(method, str) else method,
            "local": {"steps": 20, "batch_size": 8, "lr": 0.2},
            "network": {"enrolment_timeout": 0.2, "timeout": 0.3},
            "checkpoint_every": 1,
            "trust": False,  # what is tested is the papers' methods, unless a test says so
            **settings,
        }
        self.chosen = load(table)
        self.fed = self.chosen.federation(0)
        self.folder = folder
        self.nodes = []
        for k in range(self.fed.n):
            write_client(self.fed, k, folder / f"{k}.npz")
            self.nodes.append(Node({"data-path": str(folder / f"{k}.npz")}))
        self.network = replace(self.chosen.network, classes=10)
        self.declared = True  # whether the server's configuration says how many rows each has

    def grid(self, order=None, grid=LocalGrid):
        return grid([self.nodes[k] for k in (order or range(len(self.nodes)))])

    def experiment(self):
        members = members_of(self.fed, [node.key.decode() for node in self.nodes])
        if not self.declared:
            members = tuple(replace(m, rows=0) for m in members)
        return replace(self.chosen, members=members, network=self.network)

    def run(self, grid=None, name="run"):
        self.said = []
        place = self.folder / name
        return federate(grid or self.grid(), self.experiment(), place, self.said.append)

    def simulate(self, fed=None):
        chosen = self.chosen
        return muster.run_job(
            fed or self.fed, chosen.job, compute=chosen.settings.compute, keep=chosen.keep
        )
