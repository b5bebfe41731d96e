"""The picture of a federation: every client's labels and, when rows are images, some of each class.

Up to 60 clients with up to 20 classes are stacked bars, a colour a class. Nobody can tell more bars
or colours apart: more are a heat map, a column a client and a row a class, ordered so that clients
of the same main class lie together. 1,000 columns still show what kind of split it is.
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
from .style import as_written, class_colours, keep_figure, short, tidy

BARS = 60  # clients that can be told apart as bars
NAMED = 20  # classes a legend has room and colours for
ROWS = 64  # classes whose names have room next to a heat map
COLUMNS = 1000  # of a heat map; more clients than that are averaged, neighbours together
TALL = 16  # classes above each other in the sample sheet
WIDTH = 11.0  # inches


def draw(fed: Federation, counts: Int64, path: Path, seed: int) -> Path:
    """Draw a federation to a file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    sheet = sample_sheet(fed, seed)
    tall = 0.0 if sheet is None else WIDTH * sheet[0].shape[0] / sheet[0].shape[1] * 0.94
    few = fed.n <= BARS and fed.classes <= NAMED
    labels = 3.6 if few else 2.4 + 0.14 * min(fed.classes, ROWS)
    fig = Figure(figsize=(WIDTH, labels + tall + 0.3), layout="constrained")
    FigureCanvasAgg(fig)  # one for files: the user's backend and open figures stay as they are
    heights = [labels] if sheet is None else [labels, tall]
    parts = fig.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    (bars if few else heat_map)(parts[0], fed, counts)
    if sheet is not None:
        show_sheet(parts[1], *sheet)
    keep_figure(fig, path, dpi=130)
    return path


def class_names(fed: Federation) -> list[str]:
    """What classes are called: their names, or their numbers."""
    return [str(c) for c in range(fed.classes)] if fed.labels is None else list(fed.labels)


def title(fed: Federation, what: str) -> str:
    """The name of the data and what is seen."""
    return as_written(f"{fed.name}: {what} of {plural(fed.n, 'client')}")


def bars(fig: Any, fed: Federation, counts: Int64) -> None:
    """Training rows of each class, stacked, a bar a client; priority clients have a mark."""
    ax = fig.subplots()
    names, colours = class_names(fed), class_colours(fed.classes)
    at, floor = np.arange(fed.n), np.zeros(fed.n)
    for c in range(fed.classes):
        ax.bar(
            at, counts[:, c], bottom=floor, width=0.86, color=colours[c], label=short(names[c]),
            edgecolor="white", linewidth=0.3,
        )  # fmt: skip
        floor += counts[:, c]
    name_clients(ax, fed, at)
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
    ax.legend(
        handles[::-1], texts[::-1], loc="center left", bbox_to_anchor=(1, 0.5), frameon=False,
        fontsize=8, title="class", title_fontsize=8,
    )  # fmt: skip


def name_clients(ax: Any, fed: Federation, order: Int64) -> None:
    """Names, or positions, below the columns."""
    called = [str(k) if fed.names is None else short(str(fed.names[k])) for k in order]
    long = max(map(len, called)) * fed.n > 110
    ax.set_xticks(range(fed.n), called, rotation=90 if long else 0, fontsize=8)


def by_main_class(fed: Federation, counts: Int64) -> Int64:
    """Clients ordered by role, then main class, then how much of it they hold."""
    share = counts / counts.sum(axis=1, keepdims=True)
    main = share.argmax(axis=1)
    return np.lexsort((-share.max(axis=1), main, fed.unseen, ~fed.priority))


def heat_map(fig: Any, fed: Federation, counts: Int64) -> None:
    """Each class's share of each client's training rows, below how many rows that client has."""
    order = by_main_class(fed, counts)
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
    most = top_of(columns)
    # Not smoothed: that would let each class run into the next.
    image = below.imshow(
        columns, aspect="auto", cmap="magma_r", vmin=0, vmax=most, origin="lower",
        interpolation="nearest", extent=(-0.5, fed.n - 0.5, -0.5, fed.classes - 0.5),
    )  # fmt: skip
    names = class_names(fed)
    every = math.ceil(fed.classes / ROWS)
    ticks = np.arange(0, fed.classes, every)
    size = 8 if fed.classes <= NAMED else 6
    below.set_yticks(ticks, [short(names[c]) for c in ticks], fontsize=size)
    below.set_ylabel("class", fontsize=9)
    groups = [("priority", fed.priority), ("others", ~fed.priority & ~fed.unseen),
              ("unseen", fed.unseen)]  # fmt: skip
    present = [(name, int(mask.sum())) for name, mask in groups if mask.any()]
    edge = 0
    for name, n in present if len(present) > 1 else ():
        above.annotate(f"{name} ({n})", (edge + n / 2, 1.0), xycoords=("data", "axes fraction"),
                       ha="left" if edge == 0 else "center", va="bottom", fontsize=8)  # fmt: skip
        edge += n
        if edge < fed.n:
            for ax in (above, below):
                ax.axvline(edge - 0.5, color="tab:cyan", linewidth=1.2)
    below.set_xlabel("clients, those of one main class together", fontsize=9)
    if fed.n <= BARS:
        name_clients(below, fed, order)
    beyond = "max" if columns.max() > most else "neither"
    bar = fig.colorbar(image, ax=[above, below], pad=0.01, aspect=40, extend=beyond)
    bar.set_label("share of the client's rows", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    fig.suptitle(title(fed, "labels"), fontsize=10, x=0.01, ha="left")


def top_of(shares: NDArray[np.float64]) -> float:
    """Where the scale of a heat map ends: at the largest share or, where a few clients stick out,
    at what 19 of 20 clients' largest shares stay below."""
    largest = shares.max(axis=0)
    usual = float(np.quantile(largest, 0.95))
    return float(largest.max()) if largest.max() <= 1.5 * usual else usual


def image_shape(fed: Federation) -> tuple[int, int, int] | None:
    """(channels, height, width) of rows that are images: shaped as such, or flat squares of
    pixels, which are bytes or lie within [0, 1]."""
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
    """Images of every class side by side as one image, and where to write each class's name.

    Classes stand above each other, in as many columns as it takes.
    """
    shape = image_shape(fed)
    if shape is None:
        return None
    channels, height, width = shape
    across = math.ceil(fed.classes / TALL)
    down = math.ceil(fed.classes / across)
    each = max(4, 14 // across)
    gap = max(1, height // 14)
    longest = max(len(short(name)) for name in class_names(fed))
    label = math.ceil(width * (0.5 + 0.15 * longest))  # room for names before the images
    tile_h, tile_w = height + gap, width + gap
    block = label + each * tile_w + gap
    sheet = np.ones((down * tile_h, across * block, 3))
    names = []
    for c, rows in enumerate(rows_of_classes(fed, each, seed)):
        top, left = c % down * tile_h, c // down * block
        names.append((left + label - gap - width * 0.15, top + height / 2, class_names(fed)[c]))
        pixels = fed.train.x[rows].numpy().reshape(len(rows), channels, height, width)
        for i, image in enumerate(as_colours(pixels)):
            at = left + label + i * tile_w
            sheet[top : top + height, at : at + width] = image
    return sheet, names


def rows_of_classes(fed: Federation, each: int, seed: int) -> list[Int64]:
    """For every class up to this many of its training rows, drawn from the seed."""
    positions = rng.generator(seed, "sample sheet").permutation(int(fed.train.offsets[-1]))
    rows = fed.train.base(positions)
    y = fed.train.y.numpy()[rows]
    by_class = rows[np.argsort(y, kind="stable")]
    ends = np.cumsum(np.bincount(y, minlength=fed.classes))
    return [part[:each] for part in np.split(by_class, ends[:-1])]


def as_colours(pixels: NDArray[Any]) -> NDArray[np.float64]:
    """Images [n, channel, height, width] as [n, height, width, 3] in [0, 1]; grey as dark ink."""
    values = pixels / 255 if pixels.dtype == np.uint8 else pixels.astype(np.float64)
    low, high = values.min(initial=0), values.max(initial=1)
    values = (values - low) / (high - low)
    if pixels.shape[1] == 1:
        return np.repeat(1 - values, 3, axis=1).transpose(0, 2, 3, 1)
    return np.asarray(values.transpose(0, 2, 3, 1), np.float64)


def show_sheet(fig: Any, sheet: NDArray[np.float64], names: list[tuple[float, float, str]]) -> None:
    """The sample sheet with the classes' names."""
    ax = fig.subplots()
    ax.imshow(sheet, interpolation="nearest", aspect="equal")
    for x, y, name in names:
        ax.text(x, y, short(name), ha="right", va="center", fontsize=8)
    ax.axis("off")
