"""The ledger: per-round and per-client tables of everything that happened in a run."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.lazy import pl
from ..base.untrusted_files import descriptor, read_frame, read_json
from ..protocol import LedgerEntry

Columns = dict[str, NDArray[Any]]

SCORE = "accuracy"  # the score's column in these tables; a run's has the name of its task's score

# The tables next to `rounds`, and the columns they have even when empty.
TABLES: dict[str, dict[str, type]] = {
    "clients": {
        "round": int,
        "client": int,
        "priority": bool,
        "joined": bool,
        "admitted": bool,
        "reason": str,
        "weight": float,
        "claim": float,
        "loss": float,
        SCORE: float,
        "steps": int,
        "bytes_up": int,
        "bytes_down": int,
    },
    "moves": {"round": int, "client": int, "move": str},
    "attackers": {
        "round": int,
        "client": int,
        "admitted": bool,
        "weight": float,
        "honest_weight": float,
    },
}


SPILL = 500_000  # rows of a table held in memory before they go to disk


class Ledger:
    """Rows in the order they happened. Appending is cheap; `frames` builds polars frames.

    A table that grows large goes to disk part by part (`spilled`), so that the ledger of a
    hundred thousand clients does not fill the memory.
    """

    def __init__(self, score: str = SCORE) -> None:
        # The columns of each table, with the name of the task's score.
        self.columns = {
            table: {score if name == SCORE else name: kind for name, kind in columns.items()}
            for table, columns in TABLES.items()
        }
        self.facts: dict[str, float] = {}  # measured before the first round
        self.rows: list[dict[str, Any]] = []
        self.tables: dict[str, list[Columns]] = {name: [] for name in TABLES}
        self.spilled: dict[str, list[Path]] = {name: [] for name in TABLES}
        self._held = dict.fromkeys(TABLES, 0)  # rows of each table in memory
        self._space: Path | None = None

    def add(self, entry: LedgerEntry, measures: dict[str, Any]) -> dict[str, Any]:
        """Add a round with its measures, and return the row."""
        row = {**entry.round, **measures}
        self.rows.append(row)
        for name in TABLES:
            columns: Columns = getattr(entry, name)
            if columns and len(columns["round"]):
                self.tables[name].append(columns)
                self._held[name] += len(columns["round"])
                if self._held[name] >= SPILL:
                    self._spill(name)
        return row

    def _spill(self, name: str) -> None:
        """Move the rows of a table from memory to disk."""
        part = self._place(name)
        _frame(self.tables[name], self.columns[name]).write_parquet(part)
        self.spilled[name].append(part)
        self.tables[name], self._held[name] = [], 0

    def _place(self, name: str) -> Path:
        if self._space is None:
            self._space = Path(tempfile.mkdtemp(prefix="muster-ledger-"))
            weakref.finalize(self, shutil.rmtree, self._space, ignore_errors=True)
        return self._space / f"{name}-{len(self.spilled[name]):06d}.parquet"

    def cut(self, rounds: int) -> None:
        """Remove everything after this many rounds."""
        del self.rows[rounds:]
        for name, parts in self.tables.items():
            self.tables[name] = [
                {n: v[columns["round"] <= rounds] for n, v in columns.items()} for columns in parts
            ]
            self._held[name] = sum(len(columns["round"]) for columns in self.tables[name])
            for part in self.spilled[name][-1:]:
                frame = read_frame(part)
                if int(frame["round"].max() or 0) > rounds:  # type: ignore[arg-type]
                    part.unlink()  # a checkpoint may hold the same file
                    frame.filter(pl.col("round") <= rounds).write_parquet(part)

    def frames(self) -> dict[str, pl.DataFrame]:
        """Return `rounds` and the tables as frames; what was not measured is null."""
        tables = {}
        for name, parts in self.tables.items():
            old = [read_frame(part) for part in self.spilled[name]]
            new = [_frame(parts, self.columns[name])] if parts or not old else []
            tables[name] = pl.concat([*old, *new])
        return {"rounds": self._rounds(), **tables}

    def _rounds(self) -> pl.DataFrame:
        rounds = pl.DataFrame(self.rows, infer_schema_length=None).fill_nan(None)
        # A column in which nothing was ever measured is still a column of numbers.
        return rounds.with_columns(pl.selectors.by_dtype(pl.Null).cast(pl.Float64))

    def write(self, folder: Path) -> None:
        """Write the ledger to a folder; parts that are on disk are linked, not written again, and a
        table without a row has no file."""
        (folder / "facts.json").write_text(json.dumps(self.facts))
        self._rounds().write_parquet(folder / "rounds.parquet")
        for name, parts in self.tables.items():
            for part in self.spilled[name]:
                link(part, folder / part.name)
            if parts:
                last = f"{name}-{len(self.spilled[name]):06d}.parquet"
                _frame(parts, self.columns[name]).write_parquet(folder / last)

    @classmethod
    def read(cls, folder: Path, score: str = SCORE) -> Ledger:
        """Read a ledger from a folder, to be added to."""
        ledger = cls(score)
        ledger.facts = read_json(folder / "facts.json")
        ledger.rows = read_frame(folder / "rounds.parquet").to_dicts()
        for name in TABLES:
            for part in sorted(folder.glob(f"{name}-*.parquet")):
                os.close(descriptor(part))
                place = ledger._place(name)
                link(part, place)
                ledger.spilled[name].append(place)
        return ledger


def link(file: Path, place: Path) -> None:
    """Link a file to another place, or copy it where links are not possible."""
    try:
        os.link(file, place, follow_symlinks=False)
    except OSError:
        shutil.copyfile(file, place, follow_symlinks=False)


def _frame(parts: list[Columns], columns: dict[str, type]) -> pl.DataFrame:
    schema = pl.Schema(columns)
    if not any(len(c["round"]) for c in parts):
        return pl.DataFrame(schema=schema)
    merged = {name: np.concatenate([c[name] for c in parts]) for name in parts[0]}
    frame = {n: v.tolist() if v.dtype.kind == "T" else v for n, v in merged.items()}
    return pl.DataFrame(frame, schema_overrides=schema).fill_nan(None)
