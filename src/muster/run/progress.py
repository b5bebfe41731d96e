"""The progress of a run under way: a log that it writes, and that other processes read.

Next to its checkpoints a run writes `progress.jsonl`: a line that describes the run, then one line
per round, as `on_round` gets it. Lines are only appended, each in one write, so that another
process can read the file at any time; a line that is not complete is read the next time. The file
is deleted with the checkpoints, once the results are saved.
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
TEXTS = ("method", "engine")  # keys of the first line whose values are text
CHECKPOINTS = "checkpoints"  # their folder in a folder of results

Row = dict[str, Any]


def start_log(folder: Path | None, job: Job, engine: str, rows: Iterable[Row]) -> OnRound:
    """Write the log of a run with the rounds done so far, and return a function that appends a
    round. Without a folder nothing is written."""
    if folder is None:
        return lambda row: None
    place = folder / FILE
    about = {
        "method": job.method.name,
        "seed": job.seed,
        "rounds": job.rounds,
        "engine": engine,
        "began": time.time(),
    }
    with store.writing(place):
        durable.write(place, "".join(map(as_line, (about, *rows))))

    def add(row: Row) -> None:
        with store.writing(place):
            durable.append(place, as_line(row))

    return add


def as_line(row: Row) -> str:
    """Return a row as one line of JSON, with null for NaN."""
    plain = {name: _plain(value) for name, value in row.items()}
    return json.dumps(plain, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run, as its folder shows it.

    Attributes:
        place: its folder
        label: its method's label in results
        rounds: the number of rounds it will have
        rows: one per round that is done
        state: "done", "under way", "stopped" (it can go on) or "waiting" (nothing is written yet)
        about: method, seed, engine and rounds
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
        """Mean seconds of a round, over the last ten."""
        took = [float(row.get("seconds") or 0.0) for row in self.rows[-10:]]
        return sum(took) / len(took) if took else 0.0

    @property
    def left(self) -> float:
        """Estimated seconds until it is done."""
        return self.seconds * max(0, self.rounds - len(self.rows))

    def run(self) -> Run:
        """Return the run so far: all its rounds and, from its last checkpoint, the clients that
        took part."""
        if self.state == "done":
            return store.load(self.place)
        found = store.list_checkpoints(safe_path(self.place, CHECKPOINTS))
        with store.reading(self.place / CHECKPOINTS):
            frames = self._frames(Ledger.read(found[-1]) if found else Ledger())
        known = frames["clients"].unique("client").sort("client").select("client", "priority")
        n = 1 + max([-1, *known["client"]])
        everyone = pl.DataFrame({"client": np.arange(n)}).join(known, on="client", how="left")
        nothing = pl.lit(None, pl.Float64)
        final = everyone.sort("client").with_columns(
            pl.col("priority").fill_null(False),
            unseen=False,
            attacker=False,
            rows=0,
            train_loss=nothing,
            train_accuracy=nothing,
            test_loss=nothing,
            test_accuracy=nothing,
            requirement=nothing,
            useful=pl.lit(None, pl.Boolean),
        )
        tables: Row = {name: frames[name] for name in ("rounds", *TABLES)}
        return Run(
            weights={},
            **tables,
            final=final,
            method=str(self.about.get("method", self.label)),
            seed=self.seed,
            engine=str(self.about.get("engine", "")),
            complete=False,
            config=read_config(self.place),
            facts={"ledger_until": store.get_last_checkpoint_round(self.place / CHECKPOINTS)},
        )

    def _frames(self, ledger: Ledger) -> dict[str, pl.DataFrame]:
        """Return the tables of a ledger, with all rounds of the log."""
        check_ledger(ledger, MOST)
        rounds = pl.DataFrame(self.rows, infer_schema_length=None)
        check_columns("rounds", rounds)
        check_numbers(rounds["round"], 1)
        return {**ledger.frames(), "rounds": rounds}


def read_config(folder: Path) -> Row:
    """Read the configuration in a folder of results, or in its parent; {} without any."""
    for place in (folder, folder.parent):
        if (place / "config.toml").exists():
            with store.reading(place / "config.toml"):
                config = read_toml(place / "config.toml")
                check_config(config)
                return config
    return {}


def read_log(folder: Path) -> tuple[Row, list[Row]]:
    """Read the description of a run and the rounds it has done; ({}, []) without a log."""
    place = safe_path(folder, CHECKPOINTS) / FILE
    with store.reading(place):
        try:
            text = read_text(place, LINES)
        except FileNotFoundError:
            return {}, []
        lines = [parse_json(line) for line in text.split("\n")[:-1]]
        check_lines(lines)
    return (lines[0], lines[1:]) if lines else ({}, [])


def check_lines(lines: list[Any]) -> None:
    """Refuse lines that are not of a run's log: its description, then numbers by name."""
    for i, line in enumerate(lines):
        if not isinstance(line, dict):
            raise ValueError(f"line {i + 1}: not a table")
        for name, value in line.items():
            fits = value is None or is_number(value) or isinstance(value, bool)
            if not (isinstance(value, str) if i == 0 and name in TEXTS else fits):
                raise ValueError(f"line {i + 1}: {name}: {value!r:.60}")
    for line in lines[:1]:
        for name in ("seed", "rounds"):
            if not is_whole(line.get(name)) or not 0 <= line[name] < 2**63:
                raise ValueError(f"line 1: {name}: {line.get(name)!r:.60}")


def count_rounds(folder: Path) -> int:
    """Return the number of rounds in the log of a run under way; 0 without a log."""
    place = safe_path(folder, CHECKPOINTS) / FILE
    try:
        return max(0, read_text(place, LINES).count("\n") - 1)
    except FileNotFoundError:
        return 0


def read_progress(folder: Path) -> RunProgress:
    """Read the progress of the run in a folder."""
    label, _, seed = folder.name.rpartition("-seed")
    if store.is_run(folder):
        run = store.load(folder)
        rows = run.rounds.to_dicts()
        label = label if seed.isdecimal() else run.label
        rounds = len(rows) if run.complete else int(run.config.get("rounds", len(rows)))
        state = "done" if run.complete else "stopped"
        return RunProgress(folder, label, run.seed, rounds, rows, state, {"method": run.method})
    about, rows = read_log(folder)
    under_way = durable.in_use(folder / CHECKPOINTS)
    state = "under way" if under_way else "stopped" if about else "waiting"
    name = label if seed.isdecimal() else str(about.get("method", folder.name))
    number = int(about.get("seed", seed if seed.isdecimal() else 0))
    rounds = int(about.get("rounds") or read_config(folder).get("rounds", 0))
    return RunProgress(folder, name, number, rounds, rows, state, about)


def list_progress(folder: Path) -> list[RunProgress]:
    """Read the progress of every run in a folder: its own, those of a comparison in the order they
    are run, or those of every cell of a sweep."""
    if not folder.is_dir():
        raise MusterError(f"{folder}: no such folder; give one of results, such as runs/demo")
    inner = [safe_path(folder, p.name) for p in folder.glob("*-seed*") if p.is_dir()]
    if not inner:
        inner = [p for p in folder.glob("*/*-seed*") if p.is_dir()]
        cells = [safe_path(folder, p.parent.name, p.name) for p in inner]
        every = map(read_progress, cells)
        found = [replace(s, label=f"{s.place.parent.name} {s.label}") for s in every]
        return sorted(found, key=lambda s: (s.label, s.seed)) or [read_progress(folder)]
    found = [read_progress(place) for place in inner]
    return sorted(found, key=lambda s: (s.seed, s.state != "done", s.label))
