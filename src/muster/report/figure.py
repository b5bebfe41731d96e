"""The figure of a comparison: curves over rounds with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from ..run.result import Run
from .intervals import Interval

PANELS = {
    "loss": "priority training loss",
    "test_accuracy": "priority test accuracy",
    "gm_appeal": "share of clients the model appeals to",
    "admitted_nonpriority": "others admitted",
}

UNBOUNDED = ("loss", "admitted_nonpriority")  # the other panels are shares
MEASURES = (
    "loss",
    "train_accuracy",
    "test_accuracy",
    "mean_test_accuracy",
    "own_test_accuracy",
    "fairness",
    "gm_appeal",
    "gm_appeal_test",
    "gm_appeal_unseen",
    "preferred_accuracy",
)
COSTS = [
    pl.col("admitted_nonpriority", "silent"),
    pl.col("bytes_up", "bytes_down") / 1e3,
]
SHORT = {"test_accuracy": "test acc", "gm_appeal": "appeal", "gm_appeal_unseen": "unseen"}


def figure(runs: Mapping[str, Sequence[Run]], path: Path) -> Path:
    """Curves over rounds, the mean of the seeds with its 95 % band."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    panels = [name for name in PANELS if _has(runs, name)]
    fig, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.4), squeeze=False)
    for ax, measure in zip(axes[0], panels, strict=True):
        for label, mine in runs.items():
            # Interrupted runs may be shorter: draw the rounds all seeds have.
            taken = [r.rounds.filter(pl.col(measure).is_not_null()) for r in mine]
            n = min(len(t) for t in taken)
            if n == 0:
                continue
            x = taken[0]["round"].to_numpy()[:n]
            values = np.stack([t[measure].to_numpy()[:n] for t in taken]).astype(np.float64)
            bands = [Interval.of(column) for column in values.T]
            mean = np.array([b.mean for b in bands])
            half = np.nan_to_num(np.array([b.half for b in bands]))
            (line,) = ax.plot(x, mean, label=label, linewidth=1.6)
            ax.fill_between(x, mean - half, mean + half, color=line.get_color(), alpha=0.15)
        # Bands of few seeds may reach where no loss or share can be.
        low, high = ax.get_ylim()
        ax.set_ylim(max(low, 0.0), high if measure in UNBOUNDED else min(high, 1.0))
        ax.set_xlabel("round")
        ax.set_title(PANELS[measure], fontsize=10)
        ax.grid(alpha=0.3)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    axes[0][0].legend(frameon=False)
    fig.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, dpi=130)
    plt.close(fig)
    return path


def _has(runs: Mapping[str, Sequence[Run]], measure: str) -> bool:
    """Whether there is anything to draw: some value that is not 0."""
    return any(
        measure in r.rounds.columns and (r.rounds[measure].fill_null(0) != 0).any()
        for mine in runs.values()
        for r in mine
    )
