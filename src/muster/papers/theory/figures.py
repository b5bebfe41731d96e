"""Figures of the studies: each drawn from its frame alone, to .png, .pdf or .svg.

Colour never stands alone: every curve has its own line style and marker (report/style.py),
and is named in the legend.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ...base.arrays import Float64
from ...base.lazy import pl
from ...report.figure import check_figure_path
from ...report.intervals import mean_and_half
from ...report.style import LineStyle, new_figure, save_figure, tidy
from .study import find_by_study
from .study_toy import LARGE_GAP, SMALL_GAP
from .toy import GAMMA2
from .verdicts_toy import slopes

WIDTH, HEIGHT = 4.4, 3.4  # inches of a panel


def draw(frame: pl.DataFrame, path: str | Path) -> Path:
    """Draw the frame of any study."""
    return find_by_study(FIGURES, frame, "draw")(frame, path)


def _panels(down: int, across: int, beside: float = 0.0, size: float = 1.0) -> tuple[Any, Any]:
    """A figure and its panels, [row, column], with room for a legend at the right; `size` is that
    of a panel."""
    fig = new_figure(size * WIDTH * across + beside, size * HEIGHT * down)
    axes = fig.subplots(down, across, squeeze=False)
    for ax in axes.flat:
        tidy(ax)
        ax.tick_params(labelsize=8)
    return fig, axes


def _write(fig: Any, path: str | Path, caption: str) -> Path:
    path = check_figure_path(path)
    fig.supxlabel(caption, fontsize=8, x=0.01, ha="left", color="0.3")
    save_figure(fig, path, dpi=130)
    return path


def _line(ax: Any, x: Float64, y: Float64, look: LineStyle, label: str, below: int = 0) -> None:
    """A curve; `below` is how many may lie on it: it is wide and pale enough to be seen."""
    ax.plot(
        x,
        y,
        color=look.colour,
        linestyle=look.dashes,
        marker=look.marker,
        markersize=3.5,
        markevery=max(1, len(x) // 7),
        linewidth=1.4 + 1.6 * below,
        label=label,
        alpha=0.5 if below else 1.0,
    )


def _legend(fig: Any, handles: list[Any], labels: list[str]) -> None:
    fig.legend(handles, labels, loc="outside right upper", frameon=False, fontsize=8)


def _by(frame: pl.DataFrame, x: str, y: str) -> tuple[Float64, Float64, Float64]:
    """x, the mean of y over the seeds, and the half-width of its 95 % interval (0 of one seed)."""
    table = frame.sort(x, "seed")
    places = table[x].unique(maintain_order=True).to_numpy()
    values = table[y].to_numpy().reshape(len(places), -1)
    mean, half = mean_and_half(values.T)
    return places, np.asarray(mean), np.nan_to_num(half)


def draw_bound(frame: pl.DataFrame, path: str | Path) -> Path:
    """Draw Theorem 1 and A.9: one panel per case and method, the measured error and both forms of
    the bound for every E, by powers of ten. The repaired form is wide and pale, so that the printed
    one shows on it where they are equal. Left of where the bound crosses the grey line, the error
    before the first step, it is vacuous."""
    places = frame.select("case", "method").unique(maintain_order=True).rows()
    across = min(5, len(places))
    fig, axes = _panels(-(-len(places) // across), across, 1.6, 0.8)
    several = frame["steps"].unique(maintain_order=True).to_list()
    labelled: dict[str, Any] = {}
    for ax, (case, method) in zip(axes.flat, places, strict=False):
        ax.set(xscale="log", yscale="log", xlabel="T, local steps")
        ax.set_title(f"{method}\n{case}", fontsize=9)
        mine = frame.filter((pl.col("case") == case) & (pl.col("method") == method))
        if mine["start"][0] > 0:
            ax.axhline(mine["start"][0], color="0.6", linewidth=1)
        for i, E in enumerate(several):
            some = mine.filter(pl.col("steps") == E)
            if not len(some):
                continue
            for j, form in enumerate(("repaired", "printed")):
                T, bound, _ = _by(some, "T", f"bound_{form}")
                _line(
                    ax,
                    T,
                    np.where(bound > 0, bound, np.nan),
                    LineStyle.of(3 * i + 1 + j),
                    f"{form} bound, E = {E}",
                    2 * (1 - j),
                )
            T, error, half = _by(some, "T", "error")
            _line(ax, T, error, LineStyle.of(3 * i), f"measured, E = {E}")
            low = np.maximum(error - half, error / 10)
            ax.fill_between(T, low, error + half, color=LineStyle.of(3 * i).colour, alpha=0.2, lw=0)
        labelled |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    for ax in list(axes.flat)[len(places) :]:
        ax.set_visible(False)
    for row in axes:
        row[0].set_ylabel("F(w_T) - F*")
    _legend(fig, list(labelled.values()), list(labelled))
    return _write(fig, path, bound_caption(frame))


def bound_caption(frame: pl.DataFrame) -> str:
    """Return the caption: the number of seeds, and what is not drawn."""
    seeds = frame.group_by("case", maintain_order=True).agg(pl.col("seed").n_unique())
    most = seeds["seed"].to_numpy().max()
    one = seeds.filter(pl.col("seed") < most)
    caption = f"Mean over {most} seeds with its 95 % interval"
    if len(one):
        caption += ", from the optimum a single run: nothing is left to chance there"
    caption += ". Grey: the error before the first step."
    zero = frame.filter(pl.col("bound_printed") <= 0)
    if len(zero):
        times = ", ".join(f"{T}" for T in zero["T"].unique().sort())
        caption += f" Not drawn: the printed bound of FedALIGN from the optimum, 0 at T = {times}."
    return caption


def draw_corollary2(frame: pl.DataFrame, path: str | Path) -> Path:
    """Draw theta_T, rho_T and the error for decays of eps_t, one row of panels per data set."""
    data = frame["data"].unique(maintain_order=True).to_list()
    fig, axes = _panels(len(data), 3, 2.0)
    schedules = frame["schedule"].unique(maintain_order=True).to_list()
    for row, name in zip(axes, data, strict=True):
        mine = frame.filter(pl.col("data") == name)
        for ax, (column, title) in zip(
            row,
            (("theta_repaired", "theta_T"), ("rho_repaired", "rho_T"), ("error", "F(w_T) - F*")),
            strict=True,
        ):
            ax.set(xscale="log", xlabel="T, local steps (E = 1)", ylabel=title)
            ax.set_title(f"{name}: {title}", fontsize=10)
            for i, schedule in enumerate(schedules):
                some = mine.filter(pl.col("schedule") == schedule)
                T, mean, _ = _by(some, "T", column)
                _line(ax, T, mean, LineStyle.of(i), f"eps_t: {schedule}", len(schedules) - 1 - i)
        row[2].set_yscale("log")
        row[2].axhline(mine["limit"][0], color="0.6", linewidth=1)
    _legend(fig, *axes[0, 0].get_legend_handles_labels())
    seeds = frame["seed"].n_unique()
    caption = (
        "Repaired sums. Grey: the error at the minimum of all clients together. Mirrored: the "
        f"other client's loss is F(w_t) in every round. Synth: means over {seeds} seeds."
    )
    return _write(fig, path, caption)


LOWEST_APPEAL = 3e-4  # appeal, about that of one draw of 3000


def draw_toy(frame: pl.DataFrame, path: str | Path) -> Path:
    """Draw Fig. 2 a-c of the MaxFL paper, a row of panels for two clients and for each kind of
    three."""
    kinds = frame.filter(pl.col("panel") == "b")["clients"].unique(maintain_order=True).to_list()
    fig, axes = _panels(len(kinds), 3, 1.9)
    curves = frame.filter(pl.col("panel") == "a")["curve"].unique(maintain_order=True).to_list()
    for row, kind in zip(axes, kinds, strict=True):
        mine = frame.filter(pl.col("clients") == kind)
        for i, curve in enumerate(curves):
            some = mine.filter((pl.col("panel") == "a") & (pl.col("curve") == curve)).sort("x")
            if not len(some):
                continue
            x, y, half = (some[name].to_numpy() for name in ("x", "y", "half"))
            seen = np.where(y > 0, y, np.nan)
            _line(row[0], x, seen, LineStyle.of(i), curve, 2 if curve == "FedAvg" else 0)
            if half.any():
                low = np.maximum(seen - half, LOWEST_APPEAL)
                row[0].fill_between(
                    x, low, seen + half, color=LineStyle.of(i).colour, alpha=0.2, lw=0
                )
        row[0].set_xscale("function", functions=(np.sqrt, np.square))
        row[0].set(
            xlabel="gamma_G^2",
            ylabel="appeal, share of clients",
            yscale="log",
            ylim=(LOWEST_APPEAL, 1.2),
            xlim=(0, None),
        )
        row[0].set_xticks([0, 1, 4, 9, 16, 25])
        row[0].set_title(f"(a) clients: {kind}", fontsize=10)
        for ax, panel, gap in ((row[1], "b", SMALL_GAP), (row[2], "c", LARGE_GAP)):
            some = mine.filter((pl.col("panel") == panel) & (pl.col("curve") == "objective"))
            ax.plot(some["x"].to_numpy(), some["y"].to_numpy(), color=LineStyle.of(1).colour)
            least = mine.filter((pl.col("panel") == panel) & (pl.col("curve") == "minimum"))
            ax.plot(least["x"].to_numpy(), least["y"].to_numpy(), "o", color="black", markersize=4)
            ax.set(xlabel="w", ylabel="MaxFL's objective")
            ax.set_title(f"({panel}) empirical heterogeneity {gap:g}", fontsize=10)
    _legend(fig, *axes[0, 0].get_legend_handles_labels())
    draws = frame["draws"][0]
    caption = (
        f"(a): gamma^2 = {GAMMA2:g}, {draws} draws; band: 95 % interval. A curve ends where no "
        "draw appeals. Points: local minima."
    )
    return _write(fig, path, caption)


def draw_weights(frame: pl.DataFrame, path: str | Path) -> Path:
    """Draw Fig. 3 of the MaxFL paper."""
    fig, axes = _panels(1, 1)
    ax = axes[0, 0]
    ax.plot(frame["gap"].to_numpy(), frame["q"].to_numpy(), color=LineStyle.of(0).colour)
    ax.axvline(0, color="0.6", linewidth=1)
    ax.set(xlabel="F_k(w) - rho_k", ylabel="q_k")
    return _write(fig, path, "Left of the grey line the model meets the requirement.")


def draw_rate(frame: pl.DataFrame, path: str | Path) -> Path:
    """Draw Theorem 3.1: the smallest gradient over T next to the theorem's slope, and the objective
    over the rounds."""
    fig, (row,) = _panels(1, 2, 1.0)
    found = slopes(frame)
    T, least = found.T, found.least
    _line(row[0], T, least, LineStyle.of(0), "measured")
    row[0].plot(
        T, least[-1] * np.sqrt(T[-1] / T), color="0.5", linestyle="dashed", label="slope -1/2"
    )
    row[0].set(xscale="log", yscale="log", xlabel="T, rounds", ylabel="|grad|^2")
    row[0].set_title("min over t of E |grad|^2", fontsize=10)
    row[0].legend(frameon=False, fontsize=8)
    for i, t in enumerate(T):
        some = frame.filter(pl.col("T") == int(t))
        x, mean, half = _by(some, "round", "surrogate")
        _line(row[1], x + 1, mean, LineStyle.of(i), f"T = {int(t)}")
        row[1].fill_between(
            x + 1, mean - half, mean + half, color=LineStyle.of(i).colour, alpha=0.2
        )
    row[1].set(xscale="log", xlabel="round t, from 1", ylabel="objective")
    row[1].set_title("MaxFL's objective", fontsize=10)
    row[1].legend(frameon=False, fontsize=8)
    caption = f"{len(found.each)} seeds; every T is a separate run with its own learning rates."
    return _write(fig, path, caption)


FIGURES: dict[str, Callable[[pl.DataFrame, str | Path], Path]] = {
    "bound": draw_bound,
    "corollary2": draw_corollary2,
    "toy": draw_toy,
    "weights": draw_weights,
    "rate": draw_rate,
}
