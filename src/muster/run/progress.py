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
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..base import durable
from ..base.checks import is_number, is_whole
from ..base.errors import MusterError
from ..base.lazy import pl
from ..base.untrusted_files import LINES, parse_json, read_text, read_toml, safe_path
from ..results import store
from ..results.ledger import TABLES, Ledger
from ..results.run import OnRound, Run
from ..results.validation import MOST, check_columns, check_config, check_ledger, check_numbers
from .job import Job

FILE = "progress.jsonl"
SAID = ("method", "engine")  # what the first line says in words
CHECKPOINTS = "checkpoints"  # where a folder of results has them

Row = dict[str, Any]


def begun(folder: Path | None, job: Job, engine: str, rows: Iterable[Row]) -> OnRound:
    """A function that writes down a round; `rows` are those that were done before. Without a
    folder nothing is written."""
    if folder is None:
        return lambda row: None
    place = folder / FILE
    about = {"method": job.method.name, "seed": job.seed, "rounds": job.rounds,
             "engine": engine, "began": time.time()}  # fmt: skip
    with store.writable(place):
        durable.write(place, "".join(map(as_line, (about, *rows))))

    def add(row: Row) -> None:
        with store.writable(place):
            durable.append(place, as_line(row))

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

    Attributes:
        place: its folder
        label: its method, as results call it
        about: method, seed, engine and the rounds it is to have
        rows: one per round that is done
        state: "done", "under way", "stopped" (it can go on) or "waiting" (nothing is written yet)
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
        found = store.checkpoints(safe_path(self.place, CHECKPOINTS))
        with store.readable(self.place / CHECKPOINTS):
            frames = self._frames(Ledger.read(found[-1]) if found else Ledger())
        known = frames["clients"].unique("client").sort("client").select("client", "priority")
        n = 1 + max([-1, *known["client"]])
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

    def _frames(self, ledger: Ledger) -> dict[str, pl.DataFrame]:
        """The tables of a ledger, with all rounds that are seen."""
        check_ledger(ledger, MOST)
        rounds = pl.DataFrame(self.rows, infer_schema_length=None)
        check_columns("rounds", rounds)
        check_numbers(rounds["round"], 1)
        return {**ledger.frames(), "rounds": rounds}


def config_of(folder: Path) -> Row:
    """The configuration in a folder of results, or in the one around it; {} without any."""
    for place in (folder, folder.parent):
        if (place / "config.toml").exists():
            with store.readable(place / "config.toml"):
                config = read_toml(place / "config.toml")
                check_config(config)
                return config
    return {}


def read(folder: Path) -> tuple[Row, list[Row]]:
    """What a run is, and the rounds it has done; ({}, []) where nothing is written down."""
    place = safe_path(folder, CHECKPOINTS) / FILE
    with store.readable(place):
        try:
            text = read_text(place, LINES)
        except FileNotFoundError:
            return {}, []
        lines = [parse_json(line) for line in text.split("\n")[:-1]]
        check_lines(lines)
    return (lines[0], lines[1:]) if lines else ({}, [])


def check_lines(lines: list[Any]) -> None:
    """Refuse lines that are not of a run's progress: what it is, then numbers by name."""
    for i, line in enumerate(lines):
        if not isinstance(line, dict):
            raise ValueError(f"line {i + 1}: no table")
        for name, value in line.items():
            fits = value is None or is_number(value) or isinstance(value, bool)
            if not (isinstance(value, str) if i == 0 and name in SAID else fits):
                raise ValueError(f"line {i + 1}: {name}: {value!r:.60}")
    for line in lines[:1]:
        for name in ("seed", "rounds"):
            if not is_whole(line.get(name)) or not 0 <= line[name] < 2**63:
                raise ValueError(f"line 1: {name}: {line.get(name)!r:.60}")


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
    under_way = durable.is_locked(folder / CHECKPOINTS)
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
    inner = [safe_path(folder, p.name) for p in folder.glob("*-seed*") if p.is_dir()]
    if not inner:
        every = (p for p in folder.glob("*/*-seed*") if p.is_dir())
        cells = [safe_path(folder, p.parent.name, p.name) for p in every]
        found = [replace(s, label=f"{s.place.parent.name} {s.label}") for s in map(look, cells)]
        return sorted(found, key=lambda s: (s.label, s.seed)) or [look(folder)]
    found = [look(place) for place in inner]
    return sorted(found, key=lambda s: (s.seed, s.state != "done", s.label))
