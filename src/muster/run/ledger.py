"""The ledger: what happened in every round and with every asked client, as polars frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ..protocol import Entry

Columns = dict[str, NDArray[Any]]

# The tables beside `rounds`, and their columns, which they have even while they are empty.
TABLES: dict[str, dict[str, type[pl.DataType]]] = {
    "clients": {
        "round": pl.Int64,
        "client": pl.Int64,
        "priority": pl.Boolean,
        "joined": pl.Boolean,
        "admitted": pl.Boolean,
        "reason": pl.String,
        "weight": pl.Float64,
        "claim": pl.Float64,
        "loss": pl.Float64,
        "accuracy": pl.Float64,
        "steps": pl.Int64,
        "bytes_up": pl.Int64,
        "bytes_down": pl.Int64,
    },
    "moves": {"round": pl.Int64, "client": pl.Int64, "move": pl.String},
    "attackers": {
        "round": pl.Int64,
        "client": pl.Int64,
        "admitted": pl.Boolean,
        "weight": pl.Float64,
        "honest_weight": pl.Float64,
    },
}


class Ledger:
    """Rows in the order they happened. Appending is cheap; frames are built when asked for."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.tables: dict[str, list[Columns]] = {name: [] for name in TABLES}

    @classmethod
    def from_frames(cls, frames: dict[str, pl.DataFrame]) -> Ledger:
        """A ledger that goes on from saved frames."""
        ledger = cls()
        ledger.rows = frames["rounds"].to_dicts()
        text = np.dtypes.StringDType()
        for name in TABLES:
            if len(frames[name]):
                columns = {
                    c.name: c.to_numpy().astype(text) if c.dtype == pl.String else c.to_numpy()
                    for c in frames[name].get_columns()
                }
                ledger.tables[name] = [columns]
        return ledger

    def add(self, entry: Entry, measures: dict[str, Any]) -> dict[str, Any]:
        """Write down a round with its measures; returns the row."""
        row = {**entry.round, **measures}
        self.rows.append(row)
        for name in TABLES:
            columns: Columns = getattr(entry, name)
            if columns and len(columns["round"]):
                self.tables[name].append(columns)
        return row

    def cut(self, rounds: int) -> None:
        """Forget everything after so many rounds."""
        del self.rows[rounds:]
        for name, parts in self.tables.items():
            self.tables[name] = [
                {n: v[columns["round"] <= rounds] for n, v in columns.items()} for columns in parts
            ]

    def frames(self) -> dict[str, pl.DataFrame]:
        """`rounds` and the tables. What was not measured is null."""
        rounds = pl.DataFrame(self.rows, infer_schema_length=None).fill_nan(None)
        # A column in which nothing was ever measured is a column of numbers all the same.
        rounds = rounds.with_columns(pl.selectors.by_dtype(pl.Null).cast(pl.Float64))
        return {
            "rounds": rounds,
            **{n: _frame(parts, TABLES[n]) for n, parts in self.tables.items()},
        }


def _frame(parts: list[Columns], columns: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    if not parts:
        return pl.DataFrame(schema=columns)
    merged = {name: np.concatenate([c[name] for c in parts]) for name in parts[0]}
    frame = {n: v.tolist() if v.dtype.kind == "T" else v for n, v in merged.items()}
    return pl.DataFrame(frame).fill_nan(None)
