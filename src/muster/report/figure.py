"""The figure of a comparison: curves over rounds with their intervals.

Drawn with matplotlib's own canvas for files: the user's backend and open figures stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..lazy import pl
from ..run.measures import MEASURES, Measure, named
from .intervals import Interval, Runs


def figure(runs: Runs, path: str | Path, measures: str | Iterable[str] = ()) -> Path:
    """Curves over rounds, the mean of the seeds with its 95 % band; one panel for each measure
    named, or for each of the table's that has something to show."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wanted = named(measures) if measures else [m for m in MEASURES.values() if m.panel]
    panels = [m for m in wanted if _has(runs, m.name, not measures)] or list(wanted[:1])
    fig = Figure(figsize=(4.6 * len(panels), 3.4))
    FigureCanvasAgg(fig)
    axes = fig.subplots(1, len(panels), squeeze=False)[0]
    for ax, measure in zip(axes, panels, strict=True):
        draw(ax, runs, measure)
    if axes[0].lines:
        axes[0].legend(frameon=False)
    fig.tight_layout()
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=130)
    return path


def draw(ax: Any, runs: Runs, measure: Measure) -> None:
    """One panel: a measure of every method over the rounds."""
    lowest = np.inf
    for label, mine in runs.items():
        # Interrupted runs may be shorter: draw the rounds all seeds have.
        taken = [r.rounds.filter(pl.col(measure.name).is_not_null()) for r in mine
                 if measure.name in r.rounds.columns]  # fmt: skip
        n = min((len(t) for t in taken), default=0)
        if n == 0:
            continue
        x = taken[0]["round"].to_numpy()[:n]
        values = np.stack([t[measure.name].to_numpy()[:n] for t in taken]).astype(np.float64)
        values *= measure.scale
        bands = [Interval.of(column) for column in values.T]
        mean = np.array([b.mean for b in bands])
        half = np.nan_to_num(np.array([b.half for b in bands]))
        (line,) = ax.plot(x, mean, label=as_written(label), linewidth=1.6)
        ax.fill_between(x, mean - half, mean + half, color=line.get_color(), alpha=0.15)
        lowest = min(lowest, values.min())
    # Bands of few seeds may reach where no loss or share can be.
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, 0.0) if lowest >= 0 else low, min(high, 1.0) if measure.share else high)
    ax.set_xlabel("round")
    ax.set_title(as_written(measure.title), fontsize=10)
    ax.grid(alpha=0.3)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def as_written(text: str) -> str:
    """A text that matplotlib writes as it is: `$` begins no formula.

    >>> as_written("a $ a day")
    'a \\\\$ a day'
    """
    return text.replace("$", r"\$")


def _has(runs: Runs, measure: str, unasked: bool) -> bool:
    """Whether there is anything to draw: some value or, of a panel nobody asked for, some value
    that is not 0."""
    columns = [
        run.rounds[measure].drop_nulls()
        for mine in runs.values()
        for run in mine
        if measure in run.rounds.columns
    ]
    return any((c != 0).any() if unasked else len(c) > 0 for c in columns)
