"""A run of any size that nobody had to wait for: its tables filled at random."""

from __future__ import annotations

import numpy as np
import polars as pl

from muster.results.run import Run

# Names that a page, a script or a spreadsheet must not take for anything but text.
NASTY = [
    "<script>alert(1)</script>", "</script><b>", "a & b", '"quoted"', "=1+1", "]]>", "é", "<!--",
]  # fmt: skip
REASONS = np.array(
    ["priority", "aligned", "loss too high", "loss outside the band", "failed: late"]
)


def big_run(clients, rounds, seed=0, method="fedalign", names=None):
    """A run in which every client is asked every round; a tenth of them are priority clients."""
    draw = np.random.default_rng(seed)
    n = clients * rounds
    t = np.repeat(np.arange(1, rounds + 1), clients)
    k = np.tile(np.arange(clients), rounds)
    priority = np.arange(clients) % 10 == 0
    kind = np.where(priority[k], 0, draw.choice(5, n, p=[0, 0.3, 0.5, 0.15, 0.05]))
    base = 2.3 * np.exp(-np.arange(rounds) / (0.2 * rounds)) + 0.2
    loss = base[t - 1] + draw.gamma(2, 0.3, clients)[k] + draw.normal(0, 0.05, n)
    called = pl.Series([f"client {i}" for i in range(clients)] if names is None else names)
    table = pl.DataFrame({
        "round": t, "client": k, "name": called.gather(k), "priority": priority[k],
        "joined": np.isin(kind, [0, 1, 3]), "admitted": kind <= 1, "reason": REASONS[kind],
        "weight": np.where(kind <= 1, 1.0, 0.0), "claim": np.full(n, np.nan), "loss": loss,
        "accuracy": draw.uniform(size=n), "steps": np.where(kind <= 1, 5, 0),
        "bytes_up": np.where(kind <= 1, 2448, 0), "bytes_down": np.full(n, 2456),
    })  # fmt: skip
    ones = np.ones(rounds, np.int64)
    frame = pl.DataFrame({
        "round": np.arange(1, rounds + 1), "eps": 0.2 * np.ones(rounds), "reference_loss": base,
        "asked": clients * ones, "joined": ones, "silent": ones, "failed": ones, "admitted": ones,
        "admitted_nonpriority": ones, "refused": ones, "skipped": np.zeros(rounds, bool),
        "theta": np.ones(rounds), "steps": ones, "bytes_down": ones, "bytes_up": ones,
        "pool": clients * ones, "left": 0 * ones, "returned": 0 * ones,
        "loss": base + draw.normal(0, 0.02, rounds), "test_accuracy": 1 - base / 3,
        "fairness": 1 - base / 3, "seconds": np.full(rounds, 0.01),
    })  # fmt: skip
    final = pl.DataFrame({
        "client": np.arange(clients), "name": called, "priority": priority,
        "unseen": np.zeros(clients, bool), "attacker": np.zeros(clients, bool),
        "rows": draw.integers(10, 500, clients), "train_loss": draw.gamma(2, 0.3, clients),
        "train_accuracy": draw.uniform(size=clients), "test_loss": draw.gamma(2, 0.3, clients),
        "test_accuracy": draw.uniform(size=clients), "requirement": draw.gamma(2, 0.4, clients),
        "useful": draw.uniform(size=clients) < 0.6,
    })  # fmt: skip
    moves = pl.DataFrame({"round": [2, 4], "client": [1, 1], "move": ["left", "returned"]})
    held = pl.DataFrame({
        "client": np.repeat(np.arange(clients), 3), "label": draw.integers(0, 10, 3 * clients),
        "rows": draw.integers(1, 90, 3 * clients),
    }).unique(["client", "label"])  # fmt: skip
    liars = pl.DataFrame(schema={"round": int, "client": int, "admitted": bool, "weight": float,
                                 "honest_weight": float})  # fmt: skip
    return Run({}, frame, table, moves, liars, final, method, seed, "stacked", holdings=held)
