"""The figure of a federation: every client's labels and, when rows are images, some of each class.

Up to 60 clients with up to 20 classes are stacked bars, one colour per class. More bars or colours
cannot be distinguished and become a heat map, one column per client and one row per class, ordered
so that clients of the same main class are together. 1,000 columns still show the kind of split.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import rng
from ..base.arrays import Int64
from ..base.errors import plural
from ..federation import Federation
from .style import class_colours, new_figure, save_figure, tidy
from .text_format import escape_mathtext, shorten

BARS = 60  # most clients drawn as bars
NAMED = 20  # most classes with a colour and a place in the legend
ROWS = 64  # most classes with a name next to a heat map
COLUMNS = 1000  # of a heat map; of more clients, neighbours are averaged
TALL = 16  # most classes above each other in the sample sheet
WIDTH = 11.0  # inches


def draw_federation(fed: Federation, counts: Int64, path: Path, seed: int) -> Path:
    """Draw a federation to a file."""
    sheet = sample_sheet(fed, seed)
    tall = 0.0 if sheet is None else WIDTH * sheet[0].shape[0] / sheet[0].shape[1] * 0.94
    few = fed.n <= BARS and fed.classes <= NAMED
    labels = 3.6 if few else 2.4 + 0.14 * min(fed.classes, ROWS)
    fig = new_figure(WIDTH, labels + tall + 0.3)
    heights = [labels] if sheet is None else [labels, tall]
    parts = fig.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    (draw_bars if few else draw_heat_map)(parts[0], fed, counts)
    if sheet is not None:
        draw_sheet(parts[1], *sheet)
    save_figure(fig, path, dpi=130)
    return path


def class_names(fed: Federation) -> list[str]:
    """Return the names of the classes, or their numbers."""
    return [str(c) for c in range(fed.classes)] if fed.labels is None else list(fed.labels)


def title(fed: Federation, what: str) -> str:
    """Return the title: the name of the data and what is drawn."""
    return escape_mathtext(f"{fed.name}: {what} of {plural(fed.n, 'client')}")


def draw_bars(fig: Any, fed: Federation, counts: Int64) -> None:
    """Draw a bar per client, its training rows stacked by class; priority clients are marked."""
    ax = fig.subplots()
    names, colours = class_names(fed), class_colours(fed.classes)
    at, floor = np.arange(fed.n), np.zeros(fed.n)
    for c in range(fed.classes):
        look = {"width": 0.86, "color": colours[c], "edgecolor": "white", "linewidth": 0.3}
        ax.bar(at, counts[:, c], bottom=floor, label=shorten(names[c]), **look)
        floor += counts[:, c]
    label_clients(ax, fed, at)
    if not fed.priority.all():
        for k in np.flatnonzero(fed.priority):
            ax.get_xticklabels()[k].set_fontweight("bold")
        above = floor[fed.priority] + 0.03 * floor.max()
        ax.plot(at[fed.priority], above, "k*", markersize=7, markeredgewidth=0)
    ax.set_ylim(0, 1.08 * floor.max())
    ax.set_xlim(-0.6, fed.n - 0.4)
    ax.set_ylabel("training rows")
    starred = "" if fed.priority.all() else " (★ priority)"
    ax.set_title(title(fed, "labels") + starred, fontsize=10, loc="left")
    tidy(ax)
    ax.grid(False)
    handles, texts = ax.get_legend_handles_labels()
    place = {"loc": "center left", "bbox_to_anchor": (1, 0.5), "frameon": False}
    look = {"fontsize": 8, "title": "class", "title_fontsize": 8}
    ax.legend(handles[::-1], texts[::-1], **place, **look)


def label_clients(ax: Any, fed: Federation, order: Int64) -> None:
    """Write the names of the clients, or their positions, below the columns."""
    names = [str(k) if fed.names is None else shorten(str(fed.names[k])) for k in order]
    long = max(map(len, names)) * fed.n > 110
    ax.set_xticks(range(fed.n), names, rotation=90 if long else 0, fontsize=8)


def sort_by_main_class(fed: Federation, counts: Int64) -> Int64:
    """Return the clients sorted by role, then main class, then its share of their rows."""
    share = counts / counts.sum(axis=1, keepdims=True)
    main = share.argmax(axis=1)
    return np.lexsort((-share.max(axis=1), main, fed.unseen, ~fed.priority))


def draw_heat_map(fig: Any, fed: Federation, counts: Int64) -> None:
    """Draw the share of each class in each client's training rows, and above it the row counts."""
    order = sort_by_main_class(fed, counts)
    share = (counts / counts.sum(axis=1, keepdims=True))[order].T
    taller = max(3.0, 0.12 * min(fed.classes, ROWS))
    above, below = fig.subplots(2, 1, sharex=True, height_ratios=[1, taller])
    sizes = fed.train.sizes[order]
    above.stairs(sizes, np.arange(fed.n + 1) - 0.5, fill=True, color="0.45")
    above.set_ylabel("rows", fontsize=9)
    above.tick_params(labelsize=8)
    above.set_ylim(0)
    if sizes.max() > 30 * np.median(sizes):
        above.set_yscale("log")
        above.set_ylim(0.8)
    tidy(above)
    above.grid(False)
    edges = np.linspace(0, fed.n, min(fed.n, COLUMNS) + 1).astype(np.int64)
    columns = np.add.reduceat(share, edges[:-1], axis=1) / np.diff(edges)
    most = heat_map_limit(columns)
    # Not smoothed: that would blend each class into the next.
    place = {"extent": (-0.5, fed.n - 0.5, -0.5, fed.classes - 0.5), "origin": "lower"}
    scale = {"cmap": "magma_r", "vmin": 0, "vmax": most, "interpolation": "nearest"}
    image = below.imshow(columns, aspect="auto", **place, **scale)
    names = class_names(fed)
    ticks = np.arange(0, fed.classes, math.ceil(fed.classes / ROWS))
    size = 8 if fed.classes <= NAMED else 6
    below.set_yticks(ticks, [shorten(names[c]) for c in ticks], fontsize=size)
    below.set_ylabel("class", fontsize=9)
    others = ~fed.priority & ~fed.unseen
    groups = {"priority": fed.priority, "others": others, "unseen": fed.unseen}
    present = [(name, int(mask.sum())) for name, mask in groups.items() if mask.any()]
    edge = 0
    for name, n in present if len(present) > 1 else ():
        place = {"xycoords": ("data", "axes fraction"), "ha": "left" if edge == 0 else "center"}
        above.annotate(f"{name} ({n})", (edge + n / 2, 1.0), va="bottom", fontsize=8, **place)
        edge += n
        if edge < fed.n:
            for ax in (above, below):
                ax.axvline(edge - 0.5, color="tab:cyan", linewidth=1.2)
    below.set_xlabel("clients, grouped by main class", fontsize=9)
    if fed.n <= BARS:
        label_clients(below, fed, order)
    beyond = "max" if columns.max() > most else "neither"
    bar = fig.colorbar(image, ax=[above, below], pad=0.01, aspect=40, extend=beyond)
    bar.set_label("share of the client's rows", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    fig.suptitle(title(fed, "labels"), fontsize=10, x=0.01, ha="left")


def heat_map_limit(shares: NDArray[np.float64]) -> float:
    """Return the upper limit of a heat map's scale.

    It is the largest share or, where a few clients are outliers, the 95 % quantile of the clients'
    largest shares.
    """
    largest = shares.max(axis=0)
    usual = float(np.quantile(largest, 0.95))
    return float(largest.max()) if largest.max() <= 1.5 * usual else usual


def image_shape(fed: Federation) -> tuple[int, int, int] | None:
    """Return (channels, height, width) of rows that are images, else None.

    Images have that shape, or are flat squares of pixels that are bytes or within [0, 1].
    """
    x = fed.train.x
    shape = tuple(x.shape[1:])
    if len(shape) == 3 and shape[0] in (1, 3):
        return (shape[0], shape[1], shape[2])
    if len(shape) == 2:
        return (1, shape[0], shape[1])
    side = math.isqrt(shape[0])
    if len(shape) == 1 and side >= 8 and side * side == shape[0]:
        part = x[:1000]
        pixels = not x.is_floating_point() or bool((part >= 0).all() and (part <= 1).all())
        return (1, side, side) if pixels else None
    return (3, 32, 32) if shape == (3072,) else None


def sample_sheet(
    fed: Federation, seed: int
) -> tuple[NDArray[np.float64], list[tuple[float, float, str]]] | None:
    """Return samples of every class in one image, and the place of each class's name.

    Classes are above each other, in as many columns as needed; None if rows are not images.
    """
    shape = image_shape(fed)
    if shape is None:
        return None
    channels, height, width = shape
    across = math.ceil(fed.classes / TALL)
    down = math.ceil(fed.classes / across)
    each = max(4, 14 // across)
    gap = max(1, height // 14)
    longest = max(len(shorten(name)) for name in class_names(fed))
    label = math.ceil(width * (0.5 + 0.15 * longest))  # room for names before the images
    tile_h, tile_w = height + gap, width + gap
    block = label + each * tile_w + gap
    sheet = np.ones((down * tile_h, across * block, 3))
    names = []
    for c, rows in enumerate(sample_rows(fed, each, seed)):
        top, left = c % down * tile_h, c // down * block
        names.append((left + label - gap - width * 0.15, top + height / 2, class_names(fed)[c]))
        pixels = fed.train.x[rows].numpy().reshape(len(rows), channels, height, width)
        for i, image in enumerate(to_rgb(pixels)):
            at = left + label + i * tile_w
            sheet[top : top + height, at : at + width] = image
    return sheet, names


def sample_rows(fed: Federation, each: int, seed: int) -> list[Int64]:
    """Return up to this many random training rows of every class."""
    positions = rng.generator(seed, "sample sheet").permutation(int(fed.train.offsets[-1]))
    rows = fed.train.base(positions)
    y = fed.train.y.numpy()[rows]
    by_class = rows[np.argsort(y, kind="stable")]
    ends = np.cumsum(np.bincount(y, minlength=fed.classes))
    return [part[:each] for part in np.split(by_class, ends[:-1])]


def to_rgb(pixels: NDArray[Any]) -> NDArray[np.float64]:
    """Convert images [n, channel, height, width] to RGB [n, height, width, 3]; grey is inverted."""
    values = pixels / 255 if pixels.dtype == np.uint8 else pixels.astype(np.float64)
    low, high = values.min(initial=0), values.max(initial=1)
    values = (values - low) / (high - low)
    if pixels.shape[1] == 1:
        return np.repeat(1 - values, 3, axis=1).transpose(0, 2, 3, 1)
    return np.asarray(values.transpose(0, 2, 3, 1), np.float64)


def draw_sheet(fig: Any, sheet: NDArray[np.float64], names: list[tuple[float, float, str]]) -> None:
    """Draw the sample sheet with the names of the classes."""
    ax = fig.subplots()
    ax.imshow(sheet, interpolation="nearest", aspect="equal")
    for x, y, name in names:
        ax.text(x, y, shorten(name), ha="right", va="center", fontsize=8)
    ax.axis("off")
