"""Clients with tables of their own: categories, holes, and numbers of very different sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from flower_grid import Node
from flower_setup import Setup
from muster.config.experiment import load
from muster.config.network import members_of

ROWS = {"north": 40, "south": 30, "east": 50, "west": 20}
PAINS = {"north": ["sharp", "dull"], "south": ["dull", "none"], "east": ["none", "9", "10"]}
AGREED = {
    "label": "ill",
    "classes": ["no", "yes"],
    "scale": "pooled",
    "categories": ["pain"],
    "missing": "mean",
    "enrolment_timeout": 0.2,
    "timeout": 0.3,
}


def patients(name, n, seed):
    """A client's rows; others than the first have theirs around other values."""
    draw = np.random.default_rng(seed)
    age = draw.normal(50 + 5 * seed, 12, n)
    sugar = draw.normal(1e6 * (seed + 1), 2e5, n)
    ill = np.where(age / 10 + draw.normal(size=n) > 5 + seed / 2, "yes", "no")
    frame = pl.DataFrame({
        "age": age, "pain": draw.choice([*PAINS.get(name, ["dull"]), ""], n), "sugar": sugar,
        "tag": 7.25, "ill": ill,
    }).with_columns(pl.col("pain").replace("", None))  # fmt: skip
    if name != "north":
        holes = pl.Series(draw.uniform(size=n) < 0.2)
        frame = frame.with_columns(sugar=pl.when(holes).then(None).otherwise(pl.col("sugar")))
    return frame


class Tables(Setup):
    """The federation of these tables; its nodes read one each."""

    def __init__(self, folder, method="fedalign", network=None, rows=ROWS, **settings):
        self.folder = folder
        (folder / "clinics").mkdir()
        for seed, (name, n) in enumerate(rows.items()):
            patients(name, n, seed).write_csv(folder / "clinics" / f"{name}.csv")
        self.chosen = load({
            "name": "test",
            "rounds": 3,
            "dtype": "float64",
            "data": {"name": "folder", "path": str(folder / "clinics"), "label": "ill",
                     "priority": ["north", "south"], "classes": ["no", "yes"]},
            "method": {"name": method} if isinstance(method, str) else method,
            "local": {"steps": 5, "batch_size": 8, "lr": 0.2},
            "network": {**AGREED, **(network or {})},
            "checkpoint_every": 1,
            "trust": False,
            **settings,
        })  # fmt: skip
        self.fed = self.chosen.federation(0)
        self.nodes = [
            Node({"data-path": str(folder / "clinics" / f"{name}.csv")}) for name in self.fed.names
        ]
        self.network, self.declared = self.chosen.network, True

    def experiment(self):
        members = members_of(self.fed, [node.key.decode() for node in self.nodes])
        return replace(self.chosen, members=members, network=self.network)
