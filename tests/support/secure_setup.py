"""A small federation with secure sums, in this process: keys, memory and the committee."""

from __future__ import annotations

from dataclasses import replace

from flower_setup import DATA, Setup
from muster.flower.transport.keys import make_keys

PRIVACY = {"kind": "gaussian", "clip": 1.0, "noise": 1e-6, "delta": 1e-3, "secure": True}
METHOD = {"name": "fedalign", "epsilon": 0.5, "warmup": 0}


class SecureSetup(Setup):
    """Five clients, of which the first three are priority and the committee."""

    def __init__(self, folder, privacy=None, **settings):
        settings = {
            "method": METHOD,
            "data": {**DATA, "priority": 3},
            "network": {"enrolment_timeout": 0.2, "timeout": 0.3, "quorum": 0.0, "retries": 1},
            "rounds": 2,
            "privacy": {**PRIVACY, **(privacy or {})},
            **settings,
        }
        super().__init__(folder, **settings)
        self.names = [f"n{k}" for k in range(self.fed.n)]
        make_keys(folder / "keys", [], self.names)
        for name, node in zip(self.names, self.nodes, strict=True):
            node.config["sum-key"] = str(folder / "keys" / f"{name}.agg")
            node.config["memory-path"] = str(folder / "memory" / name)

    def experiment(self):
        chosen = super().experiment()
        members = tuple(
            replace(member, sum_key=str(self.folder / "keys" / f"{name}.agg.pub"))
            for name, member in zip(self.names, chosen.members, strict=True)
        )
        return replace(chosen, members=members)
