"""Verdicts on MaxFL's mean estimation (Lemmas 2.1 and 2.2, Theorem 2.1, Figs. 2 and 3), the
curvature of its objective (section 3) and its convergence (Theorem 3.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...base.arrays import Float64
from ...base.lazy import pl
from ...report.intervals import Interval
from .minima import local_minima
from .study import Statement, half_width, make_statement
from .study_toy import LEAST, MOST_SLOPE
from .toy import GAMMA2, fedavg_appeal

PAIR = np.array([-1.0, 1.0])  # the empirical means of two clients, in units of their heterogeneity


def judge_toy(frame: pl.DataFrame) -> list[Statement]:
    """Judge Lemmas 2.1 and 2.2, Theorem 2.1, Fig. 2 and section 3's constant."""
    return [
        _lemma_2_1(frame),
        _lemma_2_2(frame),
        _theorem_2_1(frame),
        _fig2a(frame),
        _relu(frame),
        _fig2bc(frame),
        _thresholds(),
        _three(frame),
        _smoothness(frame),
    ]


Points = tuple[Float64, Float64, Float64]


def select_curve(frame: pl.DataFrame, name: str, clients: str = "2", panel: str = "a") -> Points:
    """Return x, y and the half-width of y's interval; where none of the draws appeals, the
    interval's end is that of Clopper and Pearson."""
    mine = frame.filter(
        (pl.col("panel") == panel) & (pl.col("curve") == name) & (pl.col("clients") == clients)
    ).sort("x")
    none = 1 - 0.025 ** (1 / int(frame["draws"][0]))
    x, y, half = (mine[column].to_numpy() for column in ("x", "y", "half"))
    return x, y, np.where(y == 0, none, half)


def _lemma_2_1(frame: pl.DataFrame) -> Statement:
    x, fedavg, half = select_curve(frame, "FedAvg")
    _, lemma, _ = select_curve(frame, "Lemma 2.1")
    exact = fedavg_appeal(GAMMA2, x)
    agree = np.abs(fedavg - exact) <= 2 * half
    return make_statement(
        "lemma-2.1",
        "FedAvg's expected appeal is at most 2 exp(-gamma_G^2 / (5 gamma^2)) (two clients)",
        "MaxFL Lemma 2.1",
        f"largest appeal / bound over {len(x)} values of gamma_G^2: "
        f"{float((exact / lemma).max()):.2g} (exact: normal probabilities; {sum(agree)} of "
        f"{len(x)} means over {frame['draws'][0]} draws agree, none of which appeals at "
        f"gamma_G^2 = {', '.join(f'{g:g}' for g in x[fedavg == 0]) or 'any'}); the bound "
        f"says nothing (above 1) at gamma_G^2 = {', '.join(f'{g:g}' for g in x[lemma > 1])}",
        bool((exact <= lemma).all() and agree.all()),
    )


def _lemma_2_2(frame: pl.DataFrame) -> Statement:
    convex = frame.filter(pl.col("panel") == "convex")
    two = float(convex.filter(pl.col("x") == 2)["y"].to_numpy().max())
    three = convex.filter((pl.col("x") == 3) & (pl.col("curve") != "relu"))
    off = float(three["y"].to_numpy().max())
    return make_statement(
        "lemma-2.2",
        "a convex surrogate's minimum is the average of the clients",
        "MaxFL Lemma 2.2",
        f"two clients: within {two:.0e} of the average for ReLU, log and exp; three: off by "
        f"up to {off:.2g}",
        "holds when there are two clients" if two < 1e-9 < off else two < 1e-9,
    )


def _theorem_2_1(frame: pl.DataFrame) -> Statement:
    """Broken where the whole interval is below the bound, undecided where it crosses it."""
    numbers, low, high = [], [], []
    every = frame.filter(pl.col("panel") == "theorem")
    for (gamma2,), mine in every.group_by("gamma2", maintain_order=True):
        x, least, half = select_curve(mine, LEAST, panel="theorem")
        _, bound, _ = select_curve(mine, "Theorem 2.1", panel="theorem")
        low += list(least - half - bound)
        high += list(least + half - bound)
        at = int(np.argmin(least))
        numbers.append(
            f"gamma^2 = {gamma2:g}: {least[at]:.3f} ± {half[at]:.3f} at least (gamma_G^2 = "
            f"{x[at]:g}), the bound is {bound[0]:.2g}"
        )
    verdict: str | bool = min(low) >= 0
    if not verdict and min(high) >= 0:
        verdict = f"undecided: {sum(d < 0 for d in low)} of {len(low)} intervals cross the bound"
    return make_statement(
        "theorem-2.1",
        "at a local minimum MaxFL's appeal is on average at least exp(-1/gamma^2)/16",
        "MaxFL Theorem 2.1",
        f"of each draw the minimum that appeals least, {len(set(every['x']))} values of "
        "gamma_G^2; " + "; ".join(numbers),
        verdict,
    )


def _fig2a(frame: pl.DataFrame) -> Statement:
    x, fedavg, fed_half = select_curve(frame, "FedAvg")
    _, maxfl, max_half = select_curve(frame, "MaxFL")
    far = x >= 4
    shown = [int(np.argmin(np.abs(x - g))) for g in (0.25, 1, 4, 9, 25)]
    return make_statement(
        "fig2a",
        "MaxFL's appeal stays where FedAvg's goes to 0 (two clients)",
        "MaxFL Fig. 2a",
        "gamma_G^2 = "
        + ", ".join(
            f"{x[i]:g}: FedAvg {fedavg[i]:.3f} ± {fed_half[i]:.3f}, MaxFL {maxfl[i]:.3f} ± "
            f"{max_half[i]:.3f}"
            for i in shown
        ),
        bool(
            (fedavg + fed_half)[far].max() < (maxfl - max_half)[far].min()
            and fedavg[-1] < 0.01 < maxfl[-1]
        ),
    )


def _relu(frame: pl.DataFrame) -> Statement:
    gap = float(np.abs(select_curve(frame, "ReLU")[1] - select_curve(frame, "FedAvg")[1]).max())
    return make_statement(
        "fig2a-relu",
        "with ReLU in place of the sigmoid MaxFL's model is FedAvg's",
        "MaxFL Fig. 2a",
        f"largest difference in appeal: {gap:.1e} (two clients)",
        gap < 2e-3,
    )


def _fig2bc(frame: pl.DataFrame) -> Statement:
    minima = [len(select_curve(frame, "minimum", panel=panel)[0]) for panel in ("b", "c")]
    return make_statement(
        "fig2bc",
        "one minimum at small heterogeneity, separate ones at large (two clients)",
        "MaxFL Fig. 2b-c",
        f"{minima[0]} at an empirical heterogeneity of 0.5, {minima[1]} at 4",
        minima == [1, 2],
    )


def _thresholds() -> Statement:
    """Where the minima lie for two clients: as a share of the way from the average to a client."""

    def ways(gap: float) -> list[float]:
        return [abs(w) / math.sqrt(gap) for w in local_minima(math.sqrt(gap) * PAIR).points()]

    below = {g: ways(g) for g in (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)}
    beyond = {g: ways(g) for g in (2.01, 2.5, 3.0, 4.0, 9.0, 25.0)}
    one = all(len(way) == 1 and way[0] < 1e-6 for way in below.values())
    two = all(len(way) == 2 and min(way) > 0.5 for way in beyond.values())
    return make_statement(
        "thresholds",
        "an empirical heterogeneity below 1 gives the average, one above 2 a model close to either "
        "client's own (two clients)",
        "MaxFL section 2.2",
        "minima as a share of the way from the average to a client: "
        + ", ".join(
            f"{g:g}: {' and '.join(f'{w:.2f}' for w in way)}" for g, way in (below | beyond).items()
        ),
        one and two,
    )


def _three(frame: pl.DataFrame) -> Statement:
    """Three clients, arrangement by arrangement."""
    numbers, yes, no = [], [], []
    for kind in frame["clients"].unique(maintain_order=True):
        name = kind.removeprefix("3, ")
        if name == kind:
            continue
        x, maxfl, max_half = select_curve(frame, "MaxFL", kind)
        _, fedavg, fed_half = select_curve(frame, "FedAvg", kind)
        under = x[maxfl + max_half < fedavg - fed_half]
        numbers.append(
            f"{name}: MaxFL {maxfl[-1]:.3f} ± {max_half[-1]:.3f}, FedAvg {fedavg[-1]:.3f} ± "
            f"{fed_half[-1]:.3f} at gamma_G^2 = {x[-1]:g}, and MaxFL clearly below at "
            f"{', '.join(f'{g:g}' for g in under) or 'none tried'}"
        )
        if maxfl[-1] - max_half[-1] > 0.1 > 0.01 > fedavg[-1]:
            yes.append(f"{name} and gamma_G^2 > {under.max():g}" if len(under) else name)
        else:
            no.append(name)
    verdict: str | bool = not no
    if yes and (no or any("gamma_G" in name for name in yes)):
        fails = f", not when {'; '.join(no)}" if no else ""
        verdict = f"holds when {'; '.join(yes)}{fails}"
    return make_statement(
        "three-clients",
        "three clients: MaxFL's appeal stays where FedAvg's goes to 0, and is never below it",
        "our own; MaxFL section 2.2 points to three clients in an appendix that is not available",
        "; ".join(numbers),
        verdict,
    )


def _smoothness(frame: pl.DataFrame) -> Statement:
    """Section 3's bound on the curvature of the objective, where F(w) = L_c w has the most."""
    slope, most, _ = select_curve(frame, "measured", "1", "smoothness")
    ratio = most / select_curve(frame, "printed", "1", "smoothness")[1]
    repaired = most / select_curve(frame, "repaired", "1", "smoothness")[1]
    as_expected = bool(((ratio <= 1) == (slope <= MOST_SLOPE)).all())
    return make_statement(
        "objective-smoothness",
        "MaxFL's objective has a curvature of at most L_s mean(q_k) + L_c/4",
        "MaxFL section 3, adaptive server learning rate",
        "F(w) = L_c w, L_s = 0: largest curvature as a share of the bound "
        + ", ".join(f"{r:.2f} at L_c = {s:g}" for s, r in zip(slope, ratio, strict=True))
        + f"; of L_s mean(q_k) + L_c^2/(6 sqrt 3) {repaired.max():.4f} everywhere",
        f"holds when L_c <= 3 sqrt(3)/2 = {MOST_SLOPE:.3f}" if as_expected else not ratio.max() > 1,
    )


def judge_weights(frame: pl.DataFrame) -> list[Statement]:
    """Judge Fig. 3."""
    gap, q = frame["gap"].to_numpy(), frame["q"].to_numpy()
    top, ends = float(gap[q.argmax()]), (float(q[0]), float(q[-1]))
    rises = bool((np.diff(q[gap <= 0]) > 0).all() and (np.diff(q[gap >= 0]) < 0).all())
    return [
        make_statement(
            "fig3",
            "q_k is largest where the model just meets the requirement, near 0 far from it",
            "MaxFL Fig. 3",
            f"largest, {q.max():.3f}, at a gap of {abs(top):g}; {ends[0]:.4f} at {gap[0]:g} and "
            f"{ends[1]:.4f} at {gap[-1]:g}",
            rises and abs(top) < 1e-9 and max(ends) < 0.02 * q.max(),
        )
    ]


@dataclass(frozen=True)
class Slopes:
    """The fall of the smallest gradient with T, from a frame of `rate`.

    Attributes:
        least: `min_t` of the mean of |grad Ftilde|^2 over the seeds
        last: True if each of these lies in the last round that was measured
        each: for each seed the slope of its logarithm over log T, at the rounds where those minima
            lie and over the three largest T: the theorem speaks of a T that is large enough
    """

    T: Float64
    least: Float64
    last: bool
    each: Float64


def slopes(frame: pl.DataFrame) -> Slopes:
    """Fit how the smallest gradient falls with T."""
    mean = frame.group_by("T", "round").agg(pl.col("gradient2").mean())
    best = mean.sort("gradient2", "round").group_by("T").first().sort("T")
    ends = frame.group_by("T").agg(pl.col("round").max()).sort("T")
    there = frame.join(best.select("T", "round"), on=["T", "round"]).sort("seed", "T")
    each = there["gradient2"].to_numpy().reshape(-1, len(best))
    logs = np.log(best["T"].to_numpy())
    slope = np.polyfit(logs[-3:], np.log(each).T[-3:], 1)[0]
    return Slopes(
        best["T"].to_numpy().astype(float),
        best["gradient2"].to_numpy(),
        best["round"].to_list() == ends["round"].to_list(),
        np.asarray(slope),
    )


def judge_rate(frame: pl.DataFrame) -> list[Statement]:
    """Judge Theorem 3.1: the slope over T, and that the objective falls."""
    found = slopes(frame)
    slope = Interval.of(found.each)
    begin = float(frame.filter(pl.col("round") == 0)["surrogate"][0])
    longest = frame.filter(pl.col("T") == frame["T"].max())
    ends = Interval.of(
        longest.filter(pl.col("round") == longest["round"].max())["surrogate"].to_numpy()
    )
    steep = slope.mean + half_width(slope) <= -0.5
    numbers = "; ".join(f"T = {t:.0f}: {g:.2e}" for t, g in zip(found.T, found.least, strict=True))
    numbers += f"; slope over the last three {slope!r} ({len(found.each)} seeds)"
    if steep:
        numbers += ", consistent with the theorem's -0.5, which bounds it for large T"
    if found.last:
        numbers += "; every smallest one is in the last round measured: runs had not levelled off"
    return [
        make_statement(
            "theorem-3.1-rate",
            "the objective's smallest expected squared gradient falls at least like 1/sqrt(T)",
            "MaxFL Theorem 3.1",
            numbers,
            steep,
        ),
        make_statement(
            "theorem-3.1-objective",
            "with its learning rates MaxFL's objective falls",
            "our own; the learning rates are those of MaxFL Theorem 3.1",
            f"objective {begin:.3f} at the start, {ends!r} after {int(found.T[-1])} rounds",
            ends.mean + half_width(ends) < begin,
        ),
    ]
