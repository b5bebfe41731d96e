"""The ledger: what happened in every round and with every asked client, as polars frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from .protocol import Entry


class Ledger:
    """Rows in the order they happened. Appending is cheap; frames are built when asked for."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.columns: list[dict[str, NDArray[Any]]] = []

    @classmethod
    def from_frames(cls, rounds: pl.DataFrame, clients: pl.DataFrame) -> Ledger:
        """A ledger that goes on from saved frames."""
        ledger = cls()
        ledger.rows = rounds.to_dicts()
        if len(clients):
            text = np.dtypes.StringDType()
            ledger.columns = [
                {
                    c.name: c.to_numpy().astype(text) if c.dtype == pl.String else c.to_numpy()
                    for c in clients.get_columns()
                }
            ]
        return ledger

    def add(self, entry: Entry, measures: dict[str, Any]) -> dict[str, Any]:
        """Write down a round with its measures; returns the row."""
        row = {**entry.round, **measures}
        self.rows.append(row)
        self.columns.append(entry.clients)
        return row

    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """`rounds` and `clients`. What was not measured is null."""
        rounds = pl.DataFrame(self.rows, infer_schema_length=None)
        merged = {
            name: np.concatenate([c[name] for c in self.columns])
            for name in (self.columns[0] if self.columns else {})
        }
        clients = pl.DataFrame(
            {n: v.tolist() if v.dtype.kind == "T" else v for n, v in merged.items()}
        )
        return rounds.fill_nan(None), clients.fill_nan(None)
