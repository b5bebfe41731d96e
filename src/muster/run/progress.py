"""Progress: what a run under way has done so far, for whoever looks on.

Next to its checkpoints a run keeps `progress.jsonl`: a line that says what it is, and then one line
per round, as `on_round` gets it. Lines are only ever added, each in one piece, so that another
process can read the file at any time; a line that is not whole yet is left for the next look. The
file goes when the checkpoints go: then the results are there.
"""

from __future__ import annotations

import json
import math
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import durable
from ..errors import MusterError
from ..lazy import pl
from . import store
from .clients import Terms
from .ledger import TABLES, Ledger
from .result import OnRound, Run

FILE = "progress.jsonl"
CHECKPOINTS = "checkpoints"  # where a folder of results has them

Row = dict[str, Any]


def begun(folder: Path | None, terms: Terms, engine: str, rows: Iterable[Row]) -> OnRound:
    """A function that writes down a round; `rows` are those that were done before. Without a
    folder nothing is written."""
    if folder is None:
        return lambda row: None
    place = folder / FILE
    about = {"method": terms.method.name, "seed": terms.seed, "rounds": terms.rounds,
             "engine": engine, "began": time.time()}  # fmt: skip
    with store.writable(place):
        durable.write(place, "".join(map(as_line, (about, *rows))))

    def add(row: Row) -> None:
        with store.writable(place), place.open("a", encoding="utf-8") as file:
            file.write(as_line(row))

    return add


def as_line(row: Row) -> str:
    """A row as one line of JSON, which has no NaN."""
    plain = {name: _plain(value) for name, value in row.items()}
    return json.dumps(plain, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class Sight:
    """What is seen of a run from outside.

    place    its folder
    label    its method, as results call it
    about    method, seed, engine and the rounds it is to have
    rows     one per round that is done
    state    "done", "under way", "stopped" (it can go on) or "waiting" (nothing is written yet)
    """

    place: Path
    label: str
    seed: int
    rounds: int
    rows: list[Row]
    state: str
    about: Row

    @property
    def seconds(self) -> float:
        """How long a round takes, by the last ten."""
        took = [float(row.get("seconds") or 0.0) for row in self.rows[-10:]]
        return sum(took) / len(took) if took else 0.0

    @property
    def left(self) -> float:
        """About how many seconds it has to go."""
        return self.seconds * max(0, self.rounds - len(self.rows))

    def run(self) -> Run:
        """The run as far as it is known: all its rounds and, from its last checkpoint, who took
        part in them."""
        if self.state == "done":
            return store.load(self.place)
        found = store.checkpoints(self.place / CHECKPOINTS)
        frames = Ledger.read(found[-1]).frames() if found else Ledger().frames()
        frames["rounds"] = pl.DataFrame(self.rows, infer_schema_length=None)
        known = frames["clients"].unique("client").sort("client").select("client", "priority")
        n = int(frames["clients"]["client"].max() or -1) + 1  # type: ignore[arg-type]
        everyone = pl.DataFrame({"client": np.arange(n)}).join(known, on="client", how="left")
        nothing = pl.lit(None, pl.Float64)
        final = everyone.sort("client").with_columns(
            pl.col("priority").fill_null(False),
            unseen=False, attacker=False, rows=0, train_loss=nothing, train_accuracy=nothing,
            test_loss=nothing, test_accuracy=nothing, requirement=nothing,
            useful=pl.lit(None, pl.Boolean),
        )  # fmt: skip
        tables: Row = {name: frames[name] for name in ("rounds", *TABLES)}
        return Run(
            weights={},
            **tables,
            final=final,
            method=str(self.about.get("method", self.label)),
            seed=self.seed,
            engine=str(self.about.get("engine", "")),
            complete=False,
            config=config_of(self.place),
            facts={"ledger_until": store.checkpointed(self.place / CHECKPOINTS)},
        )


def config_of(folder: Path) -> Row:
    """The configuration in a folder of results, or in the one around it; {} without any."""
    for place in (folder, folder.parent):
        if (place / "config.toml").exists():
            with store.readable(place / "config.toml"):
                return tomllib.loads((place / "config.toml").read_text())
    return {}


def read(folder: Path) -> tuple[Row, list[Row]]:
    """What a run is, and the rounds it has done; ({}, []) where nothing is written down."""
    try:
        text = (folder / CHECKPOINTS / FILE).read_text("utf-8")
    except FileNotFoundError:
        return {}, []
    whole = text[: text.rfind("\n") + 1].splitlines()
    with store.readable(folder / CHECKPOINTS / FILE):
        lines = [json.loads(line) for line in whole]
    return (lines[0], lines[1:]) if lines else ({}, [])


def look(folder: Path) -> Sight:
    """What is seen of the run in a folder."""
    label, _, seed = folder.name.rpartition("-seed")
    if store.is_run(folder):
        run = store.load(folder)
        rows = run.rounds.to_dicts()
        label = label if seed.isdecimal() else run.label
        rounds = len(rows) if run.complete else int(run.config.get("rounds", len(rows)))
        state = "done" if run.complete else "stopped"
        return Sight(folder, label, run.seed, rounds, rows, state, {"method": run.method})
    about, rows = read(folder)
    under_way = durable.in_use(folder / CHECKPOINTS)
    state = "under way" if under_way else "stopped" if about else "waiting"
    name = label if seed.isdecimal() else str(about.get("method", folder.name))
    number = int(about.get("seed", seed if seed.isdecimal() else 0))
    rounds = int(about.get("rounds") or config_of(folder).get("rounds", 0))
    return Sight(folder, name, number, rounds, rows, state, about)


def sights(folder: Path) -> list[Sight]:
    """What is seen of every run in a folder: its own, those of a comparison in the order they are
    run, or those of every cell of a sweep."""
    if not folder.is_dir():
        raise MusterError(f"{folder}: no such folder; give one of results, such as runs/demo")
    inner = [place for place in folder.glob("*-seed*") if place.is_dir()]
    if not inner:
        cells = [place for place in folder.glob("*/*-seed*") if place.is_dir()]
        found = [replace(s, label=f"{s.place.parent.name} {s.label}") for s in map(look, cells)]
        return sorted(found, key=lambda s: (s.label, s.seed)) or [look(folder)]
    found = [look(place) for place in inner]
    return sorted(found, key=lambda s: (s.seed, s.state != "done", s.label))
