"""One panel of a sweep's figure: where every method ends, against a swept key.

Numbers of one size stand where they lie, those of several sizes by powers of ten; words stand next
to each other, written so that none runs into the next.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ..base.arrays import Float64
from ..base.lazy import pl
from ..results.measures import Measure
from .curves import Curve
from .key_names import value_text
from .style import Look, as_written, lines_of, tidy

LOGARITHMIC = 30.0  # times the smallest value that the largest is: more is drawn by powers of ten
TICKS = 8  # values of a key that are all written below the axis
SHIFT, WIDE_SHIFT = 0.012, 0.04  # of the axis, between methods: of numbers, and of words
SIZE = 8  # points of what is written below the axis
LETTER, LINE = 0.07, 0.14  # inches that a letter, and a line of them, take at this size
SLANTED, UPRIGHT = 35, 90  # degrees, of words that are too long to lie below the axis
LINES, LONG = 3, 24  # most lines of a word that lies, and letters of a line that does not


def draw_against(
    ax: Any,
    rows: pl.DataFrame,
    along: str,
    looks: Mapping[str, Look],
    measure: Measure,
    label: str,
) -> None:
    """Every method's mean against a key, with its interval. Methods stand a little next to each
    other, so that those that come to the same can all be seen."""
    values = rows[along].unique(maintain_order=True)
    numbers = values.dtype.is_numeric()
    at = [float(v) for v in values] if numbers else [float(i) for i in range(len(values))]
    if numbers:
        set_scale(ax, at)
    # Places on the axis as it is seen, and how far apart methods stand there.
    scale = ax.xaxis.get_transform()
    seen = dict(zip(values, scale.transform(at).tolist(), strict=True))
    steps = dodges(sorted(seen.values()), len(looks), SHIFT if numbers else WIDE_SHIFT)
    if len(values) == 1:  # as wide as if there were more: methods stand next to its one place
        ax.set_xlim(at[0] - 0.5, at[0] + 0.5)
    if numbers:
        write_numbers(ax, seen)
    else:
        write_words(ax, [value_text(v) for v in values])
    for i, (name, look) in enumerate(looks.items()):
        mine = rows.filter(pl.col("method") == name, pl.col("mean").is_not_null())
        x = np.array([seen[value] for value in mine[along]]) + steps[i]
        order = np.argsort(x)
        mean = mine["mean"].to_numpy()[order] * measure.scale
        half = mine["half"].cast(pl.Float64).to_numpy()[order] * measure.scale
        ax.errorbar(
            scale.inverted().transform(x[order]), mean, yerr=reach(mean, half, measure),
            color=look.colour, marker=look.marker, linestyle=look.dashes if numbers else "none",
            markersize=5, capsize=2.5, linewidth=1.4, zorder=3 + i / 100,
        )  # fmt: skip
    ax.tick_params(labelsize=SIZE)
    ax.set_xlabel(as_written(label), fontsize=SIZE)
    tidy(ax)


def set_scale(ax: Any, places: Sequence[float]) -> None:
    """Numbers of several sizes by powers of ten. A 0 has no place there: up to the smallest of the
    others the axis is even, so that it stands about as far from that one as ten times it would."""
    positive = [x for x in places if x > 0]
    if min(places) < 0 or not positive or max(positive) < LOGARITHMIC * min(positive):
        return
    if len(positive) == len(places):
        ax.set_xscale("log")
    else:
        ax.set_xscale("symlog", linthresh=min(positive))
    ax.minorticks_off()


def write_numbers(ax: Any, seen: Mapping[float, float]) -> None:
    """Numbers below an axis, by where they are seen there: all that have room. Many of them are
    left to the axis, which writes round ones."""
    if len(seen) > TICKS:
        return
    ordered = sorted(seen)
    written = apart([seen[v] for v in ordered])
    texts = [value_text(v) if w else "" for v, w in zip(ordered, written, strict=True)]
    ax.set_xticks(ordered, texts)


def write_words(ax: Any, words: Sequence[str]) -> None:
    """Words below an axis, each in a few lines if they have room next to each other, else slanted,
    and upright where there are many. How wide the axis will be is known about, before all is drawn.
    """
    room = ax.get_window_extent().width / ax.figure.dpi / len(words)
    letters = int(room / LETTER) - 1
    lines = [lines_of(word, letters) for word in words]
    turn: dict[str, Any] = {}
    if max(map(len, lines)) > LINES or max(len(line) for each in lines for line in each) > letters:
        wrapped = [[textwrap.wrap(line, LONG) for line in lines_of(w, LONG)] for w in words]
        lines = [list(chain.from_iterable(each)) for each in wrapped]
        slanted = max(map(len, lines)) * LINE / math.sin(math.radians(SLANTED)) <= room
        turn = {
            "rotation": SLANTED if slanted else UPRIGHT,
            "rotation_mode": "anchor",
            "horizontalalignment": "right",
            "verticalalignment": "top" if slanted else "center",
        }
    ax.set_xticks(range(len(words)), [as_written("\n".join(each)) for each in lines], **turn)


def reach(mean: Float64, half: Float64, measure: Measure) -> Float64:
    """How far an interval is drawn below and above its mean: that of a share ends at 0 and 1, and
    that of a single seed is NaN, which is not drawn."""
    low, high = Curve(np.zeros_like(mean), mean, half).band(measure)
    return np.where(np.isnan(half), np.nan, np.stack([mean - low, high - mean]))


def dodges(places: Sequence[float], methods: int, share: float) -> list[float]:
    """How far from its place each of so many methods is drawn: apart from each other by this share
    of the axis, or less where places are closer.

    >>> dodges([0.0, 1.0], 2, 0.02)
    [-0.01, 0.01]
    """
    gaps = np.diff(places)
    width = (places[-1] - places[0]) or 1.0
    nearest = float(gaps.min()) if len(gaps) else width
    step = min(share * width, 0.5 * nearest / methods)
    return [step * (i - (methods - 1) / 2) for i in range(methods)]


def apart(places: Sequence[float]) -> list[bool]:
    """Which ticks are written, so that no two numbers run into each other: those that are a tenth
    of the axis from the last one written, and the first.

    >>> apart([10, 25, 50, 250])
    [True, False, True, True]
    """
    room, written = 0.1 * (places[-1] - places[0]), [True]
    last = places[0]
    for place in places[1:]:
        written.append(place - last >= room)
        last = place if written[-1] else last
    return written
