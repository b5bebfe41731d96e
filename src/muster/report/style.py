"""How methods and classes look in a figure: colours that a colour-blind reader can tell apart, and
never colour alone.

A method is a colour, a line style and a marker. Their numbers (11, 5 and 6) have no common divisor,
so that the pairs of colour and line style first repeat after 55 methods.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..base.arrays import Float64
from ..base.durable import atomic_file
from ..base.errors import printable

# Okabe and Ito, "Color Universal Design" (2008), without the yellow that white paper swallows.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
# For the methods after those: each the farthest from all before it, for all three kinds of eyes.
MORE = ("#802000", "#800060", "#0080FF", "#00BF60")
# The same hues where the page is dark: lighter, white for black, and moved apart until also those
# who see no red or no green tell them apart.
OKABE_ITO_ON_DARK = (
    "#4A9FE8", "#E97F38", "#22E096", "#CD8DB3", "#F4F4F4", "#F0CA2C", "#A3D8FF",
)  # fmt: skip
DASHES: tuple[Any, ...] = (
    "solid", (0, (5, 2)), (0, (1.2, 1.4)), (0, (6, 2, 1.2, 2)), (0, (3, 1.5, 1, 1.5, 1, 1.5)),
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True)
class Look:
    """How one method is drawn, in every panel."""

    colour: str
    dashes: Any
    marker: str

    @classmethod
    def of(cls, i: int) -> Look:
        """The look of the i-th method."""
        colours = OKABE_ITO + MORE
        return cls(colours[i % len(colours)], DASHES[i % len(DASHES)], MARKERS[i % len(MARKERS)])


def class_colours(n: int) -> list[tuple[float, float, float]]:
    """Colours for n classes: Okabe and Ito's, then each time the one farthest from all before it as
    an eye sees them (in CIE L*a*b*), among those that are neither too light nor too dark (L* from
    25 to 88) nor glaring (chroma up to 70)."""
    from matplotlib.colors import to_rgb

    chosen = [to_rgb(colour) for colour in OKABE_ITO[:n]]
    steps = np.linspace(0, 1, 13)
    grid = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    seen = as_lab(grid)
    fit = (seen[:, 0] > 25) & (seen[:, 0] < 88) & (np.hypot(seen[:, 1], seen[:, 2]) < 70)
    grid, seen = grid[fit], seen[fit]
    far = np.full(len(grid), np.inf)
    for colour in chosen:
        far = np.minimum(far, np.linalg.norm(seen - as_lab(np.array(colour)), axis=1))
    while len(chosen) < n:
        best = int(far.argmax())
        r, g, b = grid[best].tolist()
        chosen.append((r, g, b))
        far = np.minimum(far, np.linalg.norm(seen - seen[best], axis=1))
    return chosen


def as_lab(rgb: Float64) -> Float64:
    """sRGB in [0, 1] as CIE L*a*b*, in which distance is about what an eye makes of it.

    >>> as_lab(np.array([1.0, 0.0, 0.0])).round().tolist()
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


def as_written(text: str) -> str:
    """A text that matplotlib writes as it is: `$` begins no formula, and what cannot be seen is
    said to be there.

    >>> as_written("a $ a day")
    'a \\\\$ a day'
    """
    return printable(text).replace("$", r"\$")


def folded(text: str, width: int, lines: int = 3) -> str:
    """A name from a user in lines of at most this width, written as it is.

    >>> folded("fedalign with a very long name", 16)
    'fedalign with a\\nvery long name'
    """
    wrapped = textwrap.wrap(text, width, max_lines=lines, placeholder="…") or [text]
    return as_written("\n".join(wrapped))


def lines_of(value: str, width: int) -> list[str]:
    """A value in lines of about this width: it is broken where its parts meet, and a longer part is
    left whole.

    >>> lines_of("dirichlet(alpha=0.3,min_rows=5)", 14)
    ['dirichlet', '(alpha=0.3,', 'min_rows=5)']
    """
    lines = [""]
    for part in re.split(r"(?<=[\s,+/_])|(?=\()", value):
        if lines[-1] and len(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]


def short(name: str, most: int = 14) -> str:
    """A name that fits below a bar, written as it is."""
    return as_written(name if len(name) <= most else f"{name[: most - 1]}…")


def keep_figure(fig: Any, path: Path, **how: Any) -> None:
    """Write a figure to a file whose ending says the format, in place of what has its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as new:
        fig.savefig(new, **how)


def tidy(ax: Any) -> None:
    """Only the lines that say something."""
    ax.grid(alpha=0.25)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
