"""Verdicts: what a study's frame says of each statement of the papers.

Every verdict is computed from the frame: `holds`, `holds when ...` or `does not hold`. The numbers
that decided it stand next to it, with their 95 % interval where there are several seeds or draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypedDict

import numpy as np

from ..arrays import Float64
from ..errors import MusterError, unknown
from ..lazy import pl
from ..report.intervals import Interval

HOLDS, FAILS = "holds", "does not hold"


class Verdict(TypedDict):
    """One statement: in our words, where it stands, what was found, and what follows."""

    id: str
    says: str
    where: str
    numbers: str
    verdict: str


def verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """The verdicts on the statements that this study's frame can decide."""
    if "study" not in frame.columns or frame["study"].n_unique() != 1:
        raise MusterError("verdicts: give the frame of one study of muster.theory.study")
    name = frame["study"][0]
    if name not in JUDGES:
        raise unknown("study", name, JUDGES)
    return JUDGES[name](frame)


def _half(interval: Interval) -> float:
    """The half-width of an interval; of a single run nothing is known but itself."""
    return 0.0 if math.isnan(interval.half) else interval.half


def _said(id: str, says: str, where: str, numbers: str, verdict: str | bool) -> Verdict:
    if not isinstance(verdict, str):
        verdict = HOLDS if verdict else FAILS
    return {"id": id, "says": says, "where": where, "numbers": numbers, "verdict": verdict}


# ------------------------------------------------------------------------------------- FedALIGN


def of_bound(frame: pl.DataFrame) -> list[Verdict]:
    """Theorem 1 and A.9: the mean error against the bound in both forms."""
    cells = pl.DataFrame(
        [
            {"method": method, "T": T, "error": error.mean,
             "most": error.mean + _half(error),
             "printed": mine["bound_printed"][0], "repaired": mine["bound_repaired"][0]}
            for (method, _, T), mine in frame.group_by("method", "steps", "T", maintain_order=True)
            for error in [Interval.of(mine["error"].to_numpy())]
        ]
    )  # fmt: skip
    drawn = pl.col("method").str.contains("K =")
    found = []
    for id, says, where, form, those in (
        ("theorem1-printed", "the expected error stays below the bound as printed",
         "FedALIGN eq. 6-8", "printed", ~drawn),
        ("theorem1-repaired", "the expected error stays below the repaired bound",
         "FedALIGN Theorem 1", "repaired", ~drawn),
        ("a9-printed", "with K priority clients drawn, the error stays below the bound as printed",
         "FedALIGN A.9, eq. 59", "printed", drawn),
        ("a9-repaired", "with K priority clients drawn, the error stays below the repaired bound",
         "FedALIGN A.9", "repaired", drawn),
    ):  # fmt: skip
        mine = cells.filter(those)
        over = mine.filter(pl.col("most") > pl.col(form))
        close = mine.filter(pl.col(form) > 0)
        ratio = float((close["most"] / close[form]).to_numpy().max())
        numbers = (
            f"{len(over)} of {len(mine)} points above the bound; elsewhere the error is at most "
            f"{min(ratio, 1.0):.2g} of it ({frame['seed'].n_unique()} seeds)"
        )
        verdict: str | bool = len(over) == 0
        if len(over) and set(over["method"]) != set(mine["method"]):
            worst = over.row(0, named=True)
            numbers += (
                f"; {worst['method']}, T = {worst['T']}: error {worst['error']:.2g}, bound "
                f"{worst[form]:.2g}"
            )
            names = ", ".join(sorted(set(over["method"])))
            verdict = f"does not hold in general: it fails for {names}"
        found.append(_said(id, says, where, numbers, verdict))
    return [*found, _theta_at_zero(frame), _constant(frame), _useful(frame)]


def _theta_at_zero(frame: pl.DataFrame) -> Verdict:
    none = frame.filter(pl.col("method") == "None")
    T, gamma = none["T"].to_numpy(), none["gamma"].to_numpy()
    gap = np.abs(none["theta_printed"].to_numpy() - (T - 1) / (T + gamma - 2)).max()
    last = none.filter(pl.col("T") == pl.col("T").max()).row(0, named=True)
    return _said(
        "theta-at-eps-0",
        "at eps = 0 theta_T is 1",
        "FedALIGN section 3.2",
        f"theta_T = {last['theta_printed']:.3f} at T = {last['T']}, gamma = {last['gamma']:.1f}; "
        f"it is (T - 1)/(T + gamma - 2) to {gap:.0e}",
        bool(np.allclose(none["theta_printed"].to_numpy(), 1.0)),
    )


def _constant(frame: pl.DataFrame) -> Verdict:
    """The term of |w_0 - w*|^2 for the E that was run, and from which E on it is too small."""
    row = frame.row(0, named=True)
    needed, printed = row["L"] * row["gamma"] / 2, 4 * row["L"] ** 2 / row["mu"]
    border = 8 * row["L"] / row["mu"]
    return _said(
        "c1-distance",
        "in C1 the squared distance from w_0 to the optimum has the factor 4 L^2/mu",
        "FedALIGN eq. 6",
        f"4 L^2/mu = {printed:.4g}, L gamma/2 = {needed:.4g} at E = {row['steps']}; equal while "
        f"E <= 8 L/mu = {border:.1f}, beyond it L gamma/2 = L E/2 is larger",
        f"holds when E <= 8 L/mu = {border:.1f}" if math.isclose(needed, printed) else False,
    )


def _useful(frame: pl.DataFrame) -> Verdict:
    """From which T on the repaired bound says more than that the error is below where it began."""
    told = []
    for (E,), mine in frame.filter(pl.col("method") == "None").group_by(
        "steps", maintain_order=True
    ):
        row = mine.row(0, named=True)
        until = (row["C1_repaired"] + row["C2"] * row["Gamma"]) / row["start"] - row["gamma"]
        told.append((E, max(0.0, until), int(mine["T"].to_numpy().max())))
    seen = [E for E, until, last in told if until <= last]
    numbers = "; ".join(
        f"E = {E}: from T = {until:,.0f} (run to {last:,})" for E, until, last in told
    )
    verdict: str | bool = len(seen) == len(told)
    if seen and not verdict:
        verdict = f"holds when E = {', '.join(map(str, seen))}"
    return _said(
        "bound-not-vacuous",
        "at eps = 0 the bound falls below the error before the first step within the run",
        "FedALIGN Theorem 1",
        numbers,
        verdict,
    )


def of_corollary2(frame: pl.DataFrame) -> list[Verdict]:
    """Corollary 2, from the schedules' last rounds."""
    last = frame.filter(pl.col("round") == pl.col("round").max())

    def at(data: str, schedule: str) -> dict[str, float]:
        mine = last.filter((pl.col("data") == data) & (pl.col("schedule") == schedule))
        names = ("error", "limit", "eps", "rho_repaired", "admitted")
        return {name: float(mine[name].to_numpy().mean()) for name in names}

    def halfway(schedule: str) -> dict[str, float]:
        mine = frame.filter(
            (pl.col("data") == "mirrored") & (pl.col("schedule") == schedule)
            & (pl.col("round") <= last["round"][0] // 2)
        )  # fmt: skip
        return mine.row(-1, named=True)

    decays, steps = at("mirrored", "1/t"), at("mirrored", "step to 0 at half")
    stays = decays["error"] > 0.9 * decays["limit"] and decays["admitted"] > 0
    T = int(last["round"][0])
    synth = at("synth", "1/t")
    return [
        _said(
            "corollary2",
            "eps_t -> 0 alone brings the error to 0",
            "FedALIGN Corollary 2",
            f"eps_t = 0.2/t, T = {T}: a client of equal loss and another minimum is still in at "
            f"eps_t = {decays['eps']:.1e}; error {decays['error']:.4f}, that of everyone's minimum "
            f"{decays['limit']:.4f}; rho_T {decays['rho_repaired']:.2f}, and "
            f"{halfway('1/t')['rho_repaired']:.2f} at half the rounds. On SYNTH, where no loss is "
            f"equal: error {synth['error']:.4f}",
            not stays,
        ),
        _said(
            "eps-0-is-enough",
            "eps_t = 0 from some round on brings the error towards 0",
            "FedALIGN Corollary 2, repaired",
            f"T = {T}: error {halfway('step to 0 at half')['error']:.4f} when eps_t drops to 0, "
            f"{steps['error']:.4f} at the end; rho_T {steps['rho_repaired']:.2f}, and "
            f"{decays['rho_repaired']:.2f} with eps_t = 0.2/t",
            steps["error"] < 0.5 * halfway("step to 0 at half")["error"]
            and steps["rho_repaired"] < decays["rho_repaired"],
        ),
    ]


# ---------------------------------------------------------------------------------------- MaxFL


def of_toy(frame: pl.DataFrame) -> list[Verdict]:
    """Lemma 2.1, Lemma 2.2, Theorem 2.1 and what Fig. 2 is to show."""
    a = frame.filter(pl.col("panel") == "a")

    def curve(name: str, clients: str = "2") -> tuple[Float64, Float64, Float64]:
        mine = a.filter((pl.col("curve") == name) & (pl.col("clients") == clients)).sort("x")
        return mine["x"].to_numpy(), mine["y"].to_numpy(), mine["half"].to_numpy()

    x, fedavg, fed_half = curve("FedAvg")
    _, maxfl, max_half = curve("MaxFL")
    _, least, least_half = curve("MaxFL, least appealing minimum")
    _, relu, _ = curve("ReLU")
    _, lemma, _ = curve("Lemma 2.1")
    _, theorem, _ = curve("Theorem 2.1")
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
        _said(
            "lemma-2.1",
            "FedAvg's expected appeal is at most 2 exp(-gamma_G^2 / (5 gamma^2)) (two clients)",
            "MaxFL Lemma 2.1",
            f"largest appeal / bound over {len(x)} values of gamma_G^2: "
            f"{float(((fedavg + fed_half) / lemma).max()):.2g}; the bound is above 1, and says "
            f"nothing, at gamma_G^2 = {', '.join(f'{g:g}' for g in x[lemma > 1])}",
            bool((fedavg + fed_half <= lemma).all()),
        ),
        _said(
            "lemma-2.2",
            "a convex surrogate's minimum is the average of the clients",
            "MaxFL Lemma 2.2",
            f"two clients: within {two:.0e} of the average for ReLU, log and exp; three: off by "
            f"up to {off:.2g}",
            "holds when there are two clients" if two < 1e-9 < off else two < 1e-9,
        ),
        _said(
            "theorem-2.1",
            "at a local minimum MaxFL's appeal is on average at least exp(-1/gamma^2)/16",
            "MaxFL Theorem 2.1",
            f"lower ends of the intervals: {float(loose.min()):.3f} at least, the bound is "
            f"{float(theorem[0]):.4f}",
            bool((loose >= theorem).all()),
        ),
        _said(
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
        _said(
            "fig2a-relu",
            "with ReLU in place of the sigmoid MaxFL's model is FedAvg's",
            "MaxFL Fig. 2a",
            f"largest difference in appeal: {float(np.abs(relu - fedavg).max()):.1e} (two clients)",
            bool(np.abs(relu - fedavg).max() < 2e-3),
        ),
        _said(
            "fig2bc",
            "one minimum at small heterogeneity, separate ones at large (two clients)",
            "MaxFL Fig. 2b-c",
            f"{minima[0]} at an empirical heterogeneity of 0.5, {minima[1]} at 4",
            minima == [1, 2],
        ),
        _said(
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


def of_weights(frame: pl.DataFrame) -> list[Verdict]:
    """Fig. 3."""
    gap, q = frame["gap"].to_numpy(), frame["q"].to_numpy()
    top, ends = float(gap[q.argmax()]), (float(q[0]), float(q[-1]))
    rises = bool((np.diff(q[gap <= 0]) > 0).all() and (np.diff(q[gap >= 0]) < 0).all())
    return [
        _said(
            "fig3",
            "q_k is largest where the model just meets the requirement, near 0 far from it",
            "MaxFL Fig. 3",
            f"largest, {q.max():.3f}, at a gap of {abs(top):g}; {ends[0]:.4f} at {gap[0]:g} and "
            f"{ends[1]:.4f} at {gap[-1]:g}",
            rises and abs(top) < 1e-9 and max(ends) < 0.02 * q.max(),
        )
    ]


def slopes(frame: pl.DataFrame) -> tuple[Float64, Float64, Float64]:
    """Of a frame of `rate`: every T, `min_t` of the mean of |grad Ftilde|^2 over the seeds, and for
    each seed the slope of its logarithm over log T, at the rounds where those minima lie and over
    the three largest T: the theorem speaks of a T that is large enough."""
    mean = frame.group_by("T", "round").agg(pl.col("gradient2").mean())
    best = mean.sort("gradient2", "round").group_by("T").first().sort("T")
    there = frame.join(best.select("T", "round"), on=["T", "round"]).sort("seed", "T")
    each = there["gradient2"].to_numpy().reshape(-1, len(best))
    logs = np.log(best["T"].to_numpy())
    slope = np.polyfit(logs[-3:], np.log(each).T[-3:], 1)[0]
    return best["T"].to_numpy().astype(float), best["gradient2"].to_numpy(), np.asarray(slope)


def of_rate(frame: pl.DataFrame) -> list[Verdict]:
    """Theorem 3.1: the slope over T, and that the objective falls."""
    T, least, each = slopes(frame)
    slope = Interval.of(each)
    begin = float(frame.filter(pl.col("round") == 0)["surrogate"][0])
    longest = frame.filter(pl.col("T") == frame["T"].max())
    ends = Interval.of(
        longest.filter(pl.col("round") == longest["round"].max())["surrogate"].to_numpy()
    )
    return [
        _said(
            "theorem-3.1-rate",
            "the objective's smallest expected squared gradient falls at least like 1/sqrt(T)",
            "MaxFL Theorem 3.1",
            "; ".join(f"T = {t:.0f}: {g:.2e}" for t, g in zip(T, least, strict=True))
            + f"; slope over the last three {slope!r} (the theorem's is -0.5; {len(each)} seeds)",
            slope.mean - _half(slope) <= -0.5,
        ),
        _said(
            "theorem-3.1-objective",
            "with its learning rates MaxFL's objective falls",
            "MaxFL Theorem 3.1",
            f"objective {begin:.3f} at the start, {ends!r} after {int(T[-1])} rounds",
            ends.mean + _half(ends) < begin,
        ),
    ]


JUDGES: dict[str, Callable[[pl.DataFrame], list[Verdict]]] = {
    "bound": of_bound,
    "corollary2": of_corollary2,
    "toy": of_toy,
    "weights": of_weights,
    "rate": of_rate,
}
