"""Verdicts on the papers' statements, each computed from a study's frame.

A verdict is `holds`, `holds when ...`, `does not hold` or `undecided`; where it can be computed
exactly, it is. The numbers that decided it stand next to it, with their 95 % interval where there
are several seeds or draws. Here are those on FedALIGN's Theorem 1, A.9, Corollary 2 and section
3.2; those on MaxFL's statements are in `verdicts_toy`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...base.arrays import Float64
from ...base.lazy import pl
from ...report.intervals import Interval
from .bounds import Form, informative_from
from .study import (
    HOLDS,
    Statement,
    find_by_study,
    find_signs,
    half_width,
    judge_places,
    make_statement,
)
from .study_bound import ENDS, EPS, NEVER
from .verdicts_toy import judge_rate, judge_toy, judge_weights


def judge_bound(frame: pl.DataFrame) -> list[Statement]:
    """Judge Theorem 1 and A.9: the mean error against the bound in both forms; and section 3.2."""
    each = points(frame)
    theorem, drawn = each.filter(pl.col("K").is_null()), each.filter(pl.col("K").is_not_null())
    below = "the expected error stays below the bound"
    partial = "with K priority clients drawn, the error stays below the bound"
    return [
        judge_points(
            "theorem1-printed", f"{below} as printed", "FedALIGN eq. 6-8", "printed", theorem
        ),
        judge_points(
            "theorem1-repaired",
            f"{below}, repaired",
            "our own; repairs FedALIGN Theorem 1",
            "repaired",
            theorem,
        ),
        judge_points(
            "a9-printed", f"{partial} as printed", "FedALIGN A.9, eq. 59", "printed", drawn
        ),
        judge_points(
            "a9-repaired",
            f"{partial}, repaired",
            "our own; repairs FedALIGN A.9",
            "repaired",
            drawn,
        ),
        _theta_at_zero(frame),
        _balance(frame),
        _sooner(frame),
        _constant(frame),
        _useful(frame),
    ]


def points(frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row per case, method, E and T: the mean error over the seeds with the ends of its
    95 % interval, both bounds, and the error before the first step."""
    keys = ("case", "method", "steps", "K", "T")
    rows = []
    for place, mine in frame.group_by(keys, maintain_order=True):
        error = Interval.of(mine["error"].to_numpy())
        rows.append(
            dict(zip(keys, place, strict=True))
            | {
                "seeds": len(mine),
                "error": error.mean,
                "low": error.mean - half_width(error),
                "high": error.mean + half_width(error),
                "start": mine["start"][0],
                "printed": mine["bound_printed"][0],
                "repaired": mine["bound_repaired"][0],
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def judge_points(id: str, says: str, where: str, form: Form, each: pl.DataFrame) -> Statement:
    """Judge a bound by its points: it fails where the whole interval is above it, and is undecided
    where the interval crosses it."""
    bound = pl.col(form)
    above = each.filter(pl.col("low") > bound)
    crossed = each.filter((pl.col("low") <= bound) & (bound < pl.col("high")))
    below = each.filter((pl.col("high") <= bound) & (bound > 0))
    closest = float((below["high"] / below[form]).to_numpy().max()) if len(below) else math.nan
    says_more = len(each.filter(bound < pl.col("start")))
    numbers = (
        f"{len(above)} of {len(each)} points above the bound, {len(crossed)} undecided; elsewhere "
        f"the error is at most {closest:.2g} of it. At {says_more} points the bound is below the "
        f"error before the first step ({each['seeds'].to_numpy().max()} seeds)"
    )
    verdict = HOLDS
    if len(above):
        for row in above.unique(["case", "method"], keep="first", maintain_order=True).to_dicts():
            numbers += (
                f"; {row['method']} ({row['case']}), E = {row['steps']}, T = {row['T']}: error "
                f"{row['error']:.2g}, bound {row[form]:.2g}"
            )
        places = above.select("method", "case").unique(maintain_order=True).rows()
        names = "; ".join(f"{method} ({case})" for method, case in places)
        verdict = f"does not hold in general: it fails for {names}"
        if len(places) == len(each.select("method", "case").unique()):
            verdict = "does not hold"
    elif len(crossed):
        verdict = f"undecided: {len(crossed)} of {len(each)} intervals cross the bound"
    return make_statement(id, says, where, numbers, verdict)


def _theta_at_zero(frame: pl.DataFrame) -> Statement:
    none = frame.filter(pl.col("method") == "None")
    T, gamma = none["T"].to_numpy(), none["gamma"].to_numpy()
    forms = {"printed": (T - 1) / (T + gamma - 2), "repaired": T / (T + gamma - 2)}
    gap = max(np.abs(none[f"theta_{form}"].to_numpy() - x).max() for form, x in forms.items())
    last = none.filter(pl.col("T") == pl.col("T").max().over("case")).row(0, named=True)
    return make_statement(
        "theta-at-eps-0",
        "at eps = 0 theta_T is 1",
        "FedALIGN section 3.2",
        f"theta_T = {last['theta_printed']:.3f} printed, {last['theta_repaired']:.3f} repaired at "
        f"T = {last['T']}, gamma = {last['gamma']:.1f}: (T - 1)/(T + gamma - 2) and "
        f"T/(T + gamma - 2) to {gap:.0e}, which both tend to 1",
        HOLDS
        if np.allclose(none["theta_printed"].to_numpy(), 1.0)
        else "does not hold at any T; it tends to 1",
    )


def _balance(frame: pl.DataFrame) -> Statement:
    """theta_T and rho_T at the end, from the method that admits nobody else to the one that admits
    everyone; two that admit the same clients decide nothing."""
    order = ["None", "FedALIGN, eps to 0", "FedALIGN", "All"]
    mine = frame.filter(pl.col("method").is_in(order))
    mine = mine.filter(pl.col("method").n_unique().over("case") == len(order))
    last = mine.filter(pl.col("T") == pl.col("T").max().over("case", "steps", "method"))
    numbers, ordered = [], []
    for (case, E), some in last.group_by("case", "steps", maintain_order=True):
        ends = {row["method"]: row for row in some.to_dicts()}
        theta, rho = ([ends[m][f"{x}_printed"] for m in order] for x in ("theta", "rho"))
        falls, rises = -np.diff(theta), np.diff(rho)
        more = (falls != 0) | (rises != 0)
        ordered.append(bool(((falls > 0) & (rises > 0))[more].all() and more.any()))
        each = zip(order, theta, rho, strict=True)
        numbers.append(
            f"{case}, E = {E}: " + ", ".join(f"{m} {a:.2f}, {b:.3f}" for m, a, b in each)
        )
    return make_statement(
        "theta-rho",
        "the more clients are included, the smaller theta_T, and the larger rho_T",
        "FedALIGN section 3.2",
        "theta_T and rho_T at the end; " + "; ".join(numbers),
        all(ordered),
    )


EARLY = (1 / 40, 1 / 10)  # of the local steps of a run


def _sooner(frame: pl.DataFrame) -> Statement:
    """FedALIGN's error less None's early in the run. Where the claim holds in some places only,
    those that are named stand up to Bonferroni's correction over all of them."""
    gaps = early_gaps(frame)
    numbers = []
    for place, (none, gap) in gaps.items():
        alone = Interval.of(gap)
        less = f"{alone.mean:+.1e} ± {half_width(alone):.0e}" if gap.any() else "the same runs"
        numbers.append(f"{place}: {less} (None {none:.1e})")
    return make_statement(
        "sooner",
        "inclusion expedites convergence initially: FedALIGN's error is below None's early in a "
        "run",
        "FedALIGN section 3.2",
        f"FedALIGN's error less None's, paired, {len(gap)} seeds on one federation, no warm-up: "
        + "; ".join(numbers),
        judge_places(find_signs(gaps, 1), find_signs(gaps, len(gaps))),
    )


def early_gaps(frame: pl.DataFrame) -> dict[str, tuple[float, Float64]]:
    """Return, for each case, E and early T where both were run, None's mean error and FedALIGN's
    error less None's, seed by seed."""
    pair = frame.filter(pl.col("method").is_in(["None", "FedALIGN"]))
    pair = pair.filter(pl.col("method").n_unique().over("case") == 2)
    found = {}
    for (case, E), mine in pair.group_by("case", "steps", maintain_order=True):
        measured = mine["T"].unique().sort().to_numpy()
        for share in EARLY:
            T = measured[measured <= max(share * measured[-1], measured[0])].max()
            here = mine.filter(pl.col("T") == T).sort("seed")
            aligned, none = (
                here.filter(pl.col("method") == method)["error"].to_numpy()
                for method in ("FedALIGN", "None")
            )
            found[f"{case}, E = {E}, T = {T}"] = float(none.mean()), aligned - none
    return found


def _constant(frame: pl.DataFrame) -> Statement:
    """The term of |w_0 - w*|^2 for the E that was run, and from which E on it is too small."""
    row = frame.row(0, named=True)
    needed, printed = row["L"] * row["gamma"] / 2, 4 * row["L"] ** 2 / row["mu"]
    border = 8 * row["L"] / row["mu"]
    return make_statement(
        "c1-distance",
        "in C1 the squared distance from w_0 to the optimum has the factor 4 L^2/mu",
        "FedALIGN eq. 6",
        f"{row['case']}: 4 L^2/mu = {printed:.4g}, L gamma/2 = {needed:.4g} at E = {row['steps']}; "
        f"equal while E <= 8 L/mu = {border:.1f}, beyond it L gamma/2 = L E/2 is larger",
        f"holds when E <= 8 L/mu = {border:.1f}" if math.isclose(needed, printed) else False,
    )


def _useful(frame: pl.DataFrame) -> Statement:
    """Judge from which T on the repaired bound is below the error before the first step."""
    numbers, seen = [], []
    none = frame.filter(pl.col("method") == "None")
    for (case, E), mine in none.group_by("case", "steps", maintain_order=True):
        row, last = mine.row(0, named=True), int(mine["T"].to_numpy().max())
        names = ("C1_repaired", "C2", "Gamma", "gamma", "start")
        needed = informative_from(*(row[name] for name in names))
        first = max(1, math.ceil(needed / E)) * E  # T is that of a whole round
        numbers.append(f"{case}, E = {E}: from T = {first:,} (run to {last:,})")
        seen += [f"{case}, E = {E}"] if first <= last else []
    verdict: str | bool = len(seen) == len(numbers)
    if seen and not verdict:
        verdict = f"holds when {'; '.join(seen)}"
    return make_statement(
        "bound-not-vacuous",
        "at eps = 0 the repaired bound falls below the error before the first step within the run",
        "our own; of FedALIGN Theorem 1, repaired",
        "; ".join(numbers),
        verdict,
    )


def judge_corollary2(frame: pl.DataFrame) -> list[Statement]:
    """Judge Corollary 2 by the schedules' last rounds."""
    last = frame.filter(pl.col("round") == pl.col("round").max())

    def at(data: str, schedule: str) -> dict[str, float]:
        mine = last.filter((pl.col("data") == data) & (pl.col("schedule") == schedule))
        names = ("error", "limit", "eps", "rho_repaired", "admitted")
        return {name: float(mine[name].to_numpy().mean()) for name in names}

    def halfway(schedule: str) -> dict[str, float]:
        mine = frame.filter(
            (pl.col("data") == "mirrored")
            & (pl.col("schedule") == schedule)
            & (pl.col("round") <= last["round"][0] // 2)
        )
        return mine.row(-1, named=True)

    decays, steps = at("mirrored", NEVER), at("mirrored", ENDS)
    stays = decays["error"] > 0.9 * decays["limit"] and decays["admitted"] > 0
    T = int(last["round"][0])
    synth = at("synth", NEVER)
    return [
        make_statement(
            "corollary2",
            "eps_t -> 0 alone brings the error to 0",
            "FedALIGN Corollary 2",
            f"eps_t = {EPS:g}/t, T = {T}: a client of equal loss and another minimum is still in "
            f"at eps_t = {decays['eps']:.1e}; error {decays['error']:.4f}, that of everyone's "
            f"minimum {decays['limit']:.4f}; rho_T {decays['rho_repaired']:.2f}, and "
            f"{halfway(NEVER)['rho_repaired']:.2f} at half the rounds. On SYNTH, where no loss is "
            f"equal: error {synth['error']:.4f}",
            not stays,
        ),
        make_statement(
            "eps-0-is-enough",
            "eps_t = 0 from some round on brings the error towards 0",
            "our own; repairs FedALIGN Corollary 2",
            f"T = {T}: error {halfway(ENDS)['error']:.4f} when eps_t drops to 0, "
            f"{steps['error']:.4f} at the end; rho_T {steps['rho_repaired']:.2f}, and "
            f"{decays['rho_repaired']:.2f} with eps_t = {EPS:g}/t",
            steps["error"] < 0.5 * halfway(ENDS)["error"]
            and steps["rho_repaired"] < decays["rho_repaired"],
        ),
    ]


def verdicts(frame: pl.DataFrame) -> list[Statement]:
    """Judge the statements that this study's frame can decide."""
    return find_by_study(JUDGES, frame, "verdicts")(frame)


JUDGES: dict[str, Callable[[pl.DataFrame], list[Statement]]] = {
    "bound": judge_bound,
    "corollary2": judge_corollary2,
    "toy": judge_toy,
    "weights": judge_weights,
    "rate": judge_rate,
}
