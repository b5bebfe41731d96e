"""Verdicts on MaxFL's mean estimation: Lemmas 2.1 and 2.2, Theorem 2.1, Figs. 2 and 3."""

from __future__ import annotations

import math

import numpy as np

from ..arrays import Float64
from ..lazy import pl
from .minima import local_minima
from .statement import Verdict, stated
from .toy import GAMMA2, fedavg_appeal

PAIR = np.array([-1.0, 1.0])  # the empirical means of two clients, in units of their heterogeneity


def of_toy(frame: pl.DataFrame) -> list[Verdict]:
    """Lemma 2.1, Lemma 2.2, Theorem 2.1 and what Fig. 2 is to show."""
    a = frame.filter(pl.col("panel") == "a")
    # Where none of n draws appeals, the interval's end is that of Clopper and Pearson.
    none = 1 - 0.025 ** (1 / int(frame["draws"][0]))

    def curve(name: str, clients: str = "2") -> tuple[Float64, Float64, Float64]:
        mine = a.filter((pl.col("curve") == name) & (pl.col("clients") == clients)).sort("x")
        y = mine["y"].to_numpy()
        return mine["x"].to_numpy(), y, np.where(y == 0, none, mine["half"].to_numpy())

    x, fedavg, fed_half = curve("FedAvg")
    _, maxfl, max_half = curve("MaxFL")
    _, least, least_half = curve("MaxFL, least appealing minimum")
    _, relu, _ = curve("ReLU")
    _, lemma, _ = curve("Lemma 2.1")
    _, theorem, _ = curve("Theorem 2.1")
    exact = fedavg_appeal(GAMMA2, x)
    agree = np.abs(fedavg - exact) <= 2 * fed_half
    loose = least - least_half
    far = x >= 4
    convex = frame.filter(pl.col("panel") == "convex")
    two = float(convex.filter(pl.col("x") == 2)["y"].to_numpy().max())
    three = convex.filter((pl.col("x") == 3) & (pl.col("curve") != "relu"))
    off = float(three["y"].to_numpy().max())
    minima = [
        len(frame.filter((pl.col("panel") == p) & (pl.col("clients") == "2")
                         & (pl.col("curve") == "minimum")))
        for p in ("b", "c")
    ]  # fmt: skip
    _, alike, alike_half = curve("MaxFL", "3, two alike")
    _, alike_fed, alike_fed_half = curve("FedAvg", "3, two alike")
    _, apart, apart_half = curve("MaxFL", "3, all apart")
    _, apart_fed, apart_fed_half = curve("FedAvg", "3, all apart")
    below = x[
        (apart + apart_half < apart_fed - apart_fed_half)
        | (alike + alike_half < alike_fed - alike_fed_half)
    ]
    stays = min(alike[-1], apart[-1]) > 0.1 > 0.01 > max(alike_fed[-1], apart_fed[-1])
    shown = [int(np.argmin(np.abs(x - g))) for g in (0.25, 1, 4, 9, 25)]
    return [
        stated(
            "lemma-2.1",
            "FedAvg's expected appeal is at most 2 exp(-gamma_G^2 / (5 gamma^2)) (two clients)",
            "MaxFL Lemma 2.1",
            f"largest appeal / bound over {len(x)} values of gamma_G^2: "
            f"{float((exact / lemma).max()):.2g} (exact: normal probabilities; {sum(agree)} of "
            f"{len(x)} means over {frame['draws'][0]} draws agree, none of which appeals at "
            f"gamma_G^2 = {', '.join(f'{g:g}' for g in x[fedavg == 0]) or 'any'}); the bound "
            f"says nothing (above 1) at gamma_G^2 = {', '.join(f'{g:g}' for g in x[lemma > 1])}",
            bool((exact <= lemma).all() and agree.all()),
        ),
        stated(
            "lemma-2.2",
            "a convex surrogate's minimum is the average of the clients",
            "MaxFL Lemma 2.2",
            f"two clients: within {two:.0e} of the average for ReLU, log and exp; three: off by "
            f"up to {off:.2g}",
            "holds when there are two clients" if two < 1e-9 < off else two < 1e-9,
        ),
        stated(
            "theorem-2.1",
            "at a local minimum MaxFL's appeal is on average at least exp(-1/gamma^2)/16",
            "MaxFL Theorem 2.1",
            f"lower ends of the intervals: {float(loose.min()):.3f} at least, the bound is "
            f"{float(theorem[0]):.4f}",
            bool((loose >= theorem).all()),
        ),
        stated(
            "fig2a",
            "MaxFL's appeal stays where FedAvg's goes to 0 (two clients)",
            "MaxFL Fig. 2a",
            "gamma_G^2 = " + ", ".join(
                f"{x[i]:g}: FedAvg {fedavg[i]:.3f} ± {fed_half[i]:.3f}, MaxFL {maxfl[i]:.3f} ± "
                f"{max_half[i]:.3f}" for i in shown
            ),
            bool((fedavg + fed_half)[far].max() < (maxfl - max_half)[far].min()
                 and fedavg[-1] < 0.01 < maxfl[-1]),
        ),
        stated(
            "fig2a-relu",
            "with ReLU in place of the sigmoid MaxFL's model is FedAvg's",
            "MaxFL Fig. 2a",
            f"largest difference in appeal: {float(np.abs(relu - fedavg).max()):.1e} (two clients)",
            bool(np.abs(relu - fedavg).max() < 2e-3),
        ),
        stated(
            "fig2bc",
            "one minimum at small heterogeneity, separate ones at large (two clients)",
            "MaxFL Fig. 2b-c",
            f"{minima[0]} at an empirical heterogeneity of 0.5, {minima[1]} at 4",
            minima == [1, 2],
        ),
        _thresholds(),
        stated(
            "three-clients",
            "three clients: MaxFL's appeal stays where FedAvg's goes to 0, and is never below it",
            "MaxFL section 2.2 (its Appendix A is not available)",
            f"gamma_G^2 = {x[-1]:g}: two alike and a stranger MaxFL {alike[-1]:.2f}, FedAvg "
            f"{alike_fed[-1]:.3f}; three that all differ MaxFL {apart[-1]:.2f}, FedAvg "
            f"{apart_fed[-1]:.3f}; clearly below FedAvg at gamma_G^2 = "
            f"{', '.join(f'{g:g}' for g in below) or 'none tried'}",
            f"holds when gamma_G^2 > {below.max():g}" if stays and len(below) else stays,
        ),
    ]  # fmt: skip


def _thresholds() -> Verdict:
    """Where the minima lie for two clients: as a share of the way from the average to a client."""

    def ways(gap: float) -> list[float]:
        return [abs(w) / math.sqrt(gap) for w in local_minima(math.sqrt(gap) * PAIR).points()]

    below = {g: ways(g) for g in (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)}
    beyond = {g: ways(g) for g in (2.01, 2.5, 3.0, 4.0, 9.0, 25.0)}
    one = all(len(way) == 1 and way[0] < 1e-6 for way in below.values())
    two = all(len(way) == 2 and min(way) > 0.5 for way in beyond.values())
    return stated(
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


def of_weights(frame: pl.DataFrame) -> list[Verdict]:
    """Fig. 3."""
    gap, q = frame["gap"].to_numpy(), frame["q"].to_numpy()
    top, ends = float(gap[q.argmax()]), (float(q[0]), float(q[-1]))
    rises = bool((np.diff(q[gap <= 0]) > 0).all() and (np.diff(q[gap >= 0]) < 0).all())
    return [
        stated(
            "fig3",
            "q_k is largest where the model just meets the requirement, near 0 far from it",
            "MaxFL Fig. 3",
            f"largest, {q.max():.3f}, at a gap of {abs(top):g}; {ends[0]:.4f} at {gap[0]:g} and "
            f"{ends[1]:.4f} at {gap[-1]:g}",
            rises and abs(top) < 1e-9 and max(ends) < 0.02 * q.max(),
        )
    ]
