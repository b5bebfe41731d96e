"""Colours, line styles and markers of figures, distinguishable by colour-blind readers.

A method has a colour, a line style and a marker, never colour alone. Their numbers (11, 5 and 6)
have no common divisor, so the pairs of colour and line style first repeat after 55 methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..base.arrays import Float64
from ..base.durable import atomic_file
from ..base.lazy import load_module
from .text_format import wrap_label

# Okabe and Ito, "Color Universal Design" (2008), without the yellow that is invisible on white.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
# For more methods: each the farthest from all before it, for all three kinds of colour vision.
MORE = ("#802000", "#800060", "#0080FF", "#00BF60")
# The same hues for a dark page: lighter, white for black, and moved apart until readers who see no
# red or no green can distinguish them too.
OKABE_ITO_ON_DARK = ("#4A9FE8", "#E97F38", "#22E096", "#CD8DB3", "#F4F4F4", "#F0CA2C", "#A3D8FF")
DASHES: tuple[Any, ...] = (
    "solid",
    (0, (5, 2)),
    (0, (1.2, 1.4)),
    (0, (6, 2, 1.2, 2)),
    (0, (3, 1.5, 1, 1.5, 1, 1.5)),
)
MARKERS = ("o", "s", "^", "D", "v", "P")
LEGEND_WIDTH = 26  # characters of a method's name in one line of the legend


@dataclass(frozen=True)
class LineStyle:
    """The colour, dashes and marker of one method, the same in every panel."""

    colour: str
    dashes: Any
    marker: str

    @classmethod
    def of(cls, i: int) -> LineStyle:
        """Return the style of the i-th method."""
        colours = OKABE_ITO + MORE
        return cls(colours[i % len(colours)], DASHES[i % len(DASHES)], MARKERS[i % len(MARKERS)])

    @property
    def error_bar(self) -> dict[str, Any]:
        """The options of a point with error bars."""
        size = {"markersize": 5, "capsize": 2.5, "linewidth": 1.4}
        return {"color": self.colour, "marker": self.marker, **size}


def class_colours(n: int) -> list[tuple[float, float, float]]:
    """Return colours for n classes: Okabe and Ito's, then greedily the farthest from all before.

    Distance is measured in CIE L*a*b*. Candidates are neither too light nor too dark (L* from 25 to
    88) nor glaring (chroma up to 70).
    """
    from matplotlib.colors import to_rgb

    chosen = [to_rgb(colour) for colour in OKABE_ITO[:n]]
    steps = np.linspace(0, 1, 13)
    grid = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    lab = to_lab(grid)
    fit = (lab[:, 0] > 25) & (lab[:, 0] < 88) & (np.hypot(lab[:, 1], lab[:, 2]) < 70)
    grid, lab = grid[fit], lab[fit]
    far = np.full(len(grid), np.inf)
    for colour in chosen:
        far = np.minimum(far, np.linalg.norm(lab - to_lab(np.array(colour)), axis=1))
    while len(chosen) < n:
        best = int(far.argmax())
        r, g, b = grid[best].tolist()
        chosen.append((r, g, b))
        far = np.minimum(far, np.linalg.norm(lab - lab[best], axis=1))
    return chosen


def to_lab(rgb: Float64) -> Float64:
    """Convert sRGB in [0, 1] to CIE L*a*b*, in which distance is about perceived difference.

    >>> to_lab(np.array([1.0, 0.0, 0.0])).round().tolist()
    [53.0, 80.0, 67.0]
    """
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = linear @ to_xyz.T / to_xyz.sum(axis=1)
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = f[..., 0], f[..., 1], f[..., 2]
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=-1)


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure for files: the user's backend and open figures are not touched."""
    fig = load_module("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    load_module("matplotlib.backends.backend_agg").FigureCanvasAgg(fig)
    return fig


def save_figure(fig: Any, path: Path, **options: Any) -> None:
    """Write a figure to a file in the format of its ending, replacing an existing one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as new:
        fig.savefig(new, **options)


def drop_date(path: Path) -> dict[str, None] | None:
    """Return the metadata of a figure without its date: the same runs give the same file."""
    dates: dict[str, dict[str, None]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    return dates.get(path.suffix.lower())


def add_legend(
    fig: Any,
    styles: Mapping[str, LineStyle],
    place: str = "right upper",
    width: int = LEGEND_WIDTH,
    lines: int = 3,
    markersize: float = 5,
    **options: Any,
) -> None:
    """Add a legend of the methods outside the panels, their names wrapped to a width."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=s.colour, linestyle=s.dashes, marker=s.marker, markersize=markersize)
        for s in styles.values()
    ]
    options = options or {"fontsize": 9, "handlelength": 3.4}
    blank = [" "] * len(handles)  # matplotlib would leave out a name that begins with _
    legend = fig.legend(handles, blank, loc=f"outside {place}", frameon=False, **options)
    for text, label in zip(legend.get_texts(), styles, strict=True):
        text.set_text(wrap_label(label, width, lines))


def tidy(ax: Any) -> None:
    """Add a light grid and remove the frame's top and right lines."""
    ax.grid(alpha=0.25)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
