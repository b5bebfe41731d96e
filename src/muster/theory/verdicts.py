"""Verdicts: what a study's frame says of each statement of the papers.

Every verdict is computed from the frame, or exactly where that can be done: `holds`, `holds when
...` or `does not hold`. The numbers that decided it stand next to it, with their 95 % interval
where there are several seeds or draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..arrays import Float64
from ..errors import MusterError, unknown
from ..lazy import pl
from ..report.intervals import Interval
from .statement import Verdict, half, stated
from .verdicts_toy import of_toy, of_weights


def verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """The verdicts on the statements that this study's frame can decide."""
    if "study" not in frame.columns or frame["study"].n_unique() != 1:
        raise MusterError("verdicts: give the frame of one study of muster.theory.study")
    name = frame["study"][0]
    if name not in JUDGES:
        raise unknown("study", name, JUDGES)
    return JUDGES[name](frame)


# ------------------------------------------------------------------------------------- FedALIGN


def of_bound(frame: pl.DataFrame) -> list[Verdict]:
    """Theorem 1 and A.9: the mean error against the bound in both forms."""
    cells = pl.DataFrame(
        [
            {"method": method, "T": T, "error": error.mean,
             "most": error.mean + half(error),
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
        found.append(stated(id, says, where, numbers, verdict))
    return [*found, _theta_at_zero(frame), _balance(frame), _constant(frame), _useful(frame)]


def _theta_at_zero(frame: pl.DataFrame) -> Verdict:
    none = frame.filter(pl.col("method") == "None")
    T, gamma = none["T"].to_numpy(), none["gamma"].to_numpy()
    gap = np.abs(none["theta_printed"].to_numpy() - (T - 1) / (T + gamma - 2)).max()
    last = none.filter(pl.col("T") == pl.col("T").max()).row(0, named=True)
    return stated(
        "theta-at-eps-0",
        "at eps = 0 theta_T is 1",
        "FedALIGN section 3.2",
        f"theta_T = {last['theta_printed']:.3f} at T = {last['T']}, gamma = {last['gamma']:.1f}; "
        f"it is (T - 1)/(T + gamma - 2) to {gap:.0e}",
        bool(np.allclose(none["theta_printed"].to_numpy(), 1.0)),
    )


def _balance(frame: pl.DataFrame) -> Verdict:
    """theta_T and rho_T at the end, from the method that admits nobody else to the one that admits
    everyone."""
    order = ["None", "FedALIGN, eps to 0", "FedALIGN", "All"]
    last = frame.filter(pl.col("T") == pl.col("T").max().over("steps", "method"))
    ends = {
        (E, method): (mine["theta_printed"].to_numpy()[0], mine["rho_printed"].to_numpy()[0])
        for (E, method), mine in last.group_by("steps", "method", maintain_order=True)
        if method in order
    }
    steps = dict.fromkeys(E for E, _ in ends)
    ways = [np.diff([ends[E, method] for method in order], axis=0) for E in steps]
    return stated(
        "theta-rho",
        "the more clients are included, the smaller theta_T, and the larger rho_T",
        "FedALIGN section 3.2",
        "; ".join(
            f"E = {E}: "
            + ", ".join(f"{m} theta {ends[E, m][0]:.2f}, rho {ends[E, m][1]:.2f}" for m in order)
            for E in steps
        ),
        all(bool((way[:, 0] < 0).all() and (way[:, 1] > 0).all()) for way in ways),
    )


def _constant(frame: pl.DataFrame) -> Verdict:
    """The term of |w_0 - w*|^2 for the E that was run, and from which E on it is too small."""
    row = frame.row(0, named=True)
    needed, printed = row["L"] * row["gamma"] / 2, 4 * row["L"] ** 2 / row["mu"]
    border = 8 * row["L"] / row["mu"]
    return stated(
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
    return stated(
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
        stated(
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
        stated(
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
        stated(
            "theorem-3.1-rate",
            "the objective's smallest expected squared gradient falls at least like 1/sqrt(T)",
            "MaxFL Theorem 3.1",
            "; ".join(f"T = {t:.0f}: {g:.2e}" for t, g in zip(T, least, strict=True))
            + f"; slope over the last three {slope!r} (the theorem's is -0.5; {len(each)} seeds)",
            slope.mean + half(slope) <= -0.5,
        ),
        stated(
            "theorem-3.1-objective",
            "with its learning rates MaxFL's objective falls",
            "MaxFL Theorem 3.1",
            f"objective {begin:.3f} at the start, {ends!r} after {int(T[-1])} rounds",
            ends.mean + half(ends) < begin,
        ),
    ]


JUDGES: dict[str, Callable[[pl.DataFrame], list[Verdict]]] = {
    "bound": of_bound,
    "corollary2": of_corollary2,
    "toy": of_toy,
    "weights": of_weights,
    "rate": of_rate,
}
