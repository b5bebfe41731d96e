"""Studies of FedALIGN's Theorem 1, A.9 and Corollary 2: `bound` and `corollary2`.

Runs and bounds share their constants (`convex`), learning rates and batches (`trajectory`), and the
terms of the bound follow from the clients that the runs admitted (`bounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...base.arrays import Float64
from ...base.checks import check_whole
from ...base.lazy import pl
from ...federation import Federation
from ...methods import Method, fedalign, fedavg, fedavg_priority
from ...parts.invite import WithReplacement
from ...schedules import Inverse, Linear, Schedule, StepTo
from .bounds import FORMS, bound_by_round, offset
from .convex import Constants, Problem, constants, problem
from .trajectory import (
    BATCH,
    follow,
    log_spaced_rounds,
    mirror_pair,
    opposed_pair,
    small_synth,
    theorem_local,
)

LAM, EPS = 0.3, 0.2
STRONG, NARROW = 3.0, 0.02  # lam of the better-conditioned cases, and eps as their losses need it
AFAR = 10.0  # |w_0| of the case that starts far away
DRAWN = 1  # K of A.9: of the two priority clients, one is drawn per round

# ------------------------------------------------------------------------------------ the bound


def at_zero(w_star: Float64) -> Float64:
    """w_0 = 0."""
    return np.zeros_like(w_star)


def at_optimum(w_star: Float64) -> Float64:
    """w_0 = w*."""
    return w_star


def afar(w_star: Float64) -> Float64:
    """|w_0| = 10, on the other side of 0 than w*."""
    return np.asarray(-AFAR * w_star / np.linalg.norm(w_star), np.float64)


@dataclass(frozen=True)
class Arm:
    """A method, and K where it draws K priority clients (A.9)."""

    method: Method
    drawn: int | None = None


def arms(eps: float) -> dict[str, Arm]:
    """Return the methods that are run on a case, by label."""
    drawing = fedalign(eps, warmup=0, invite=WithReplacement(DRAWN))
    return {
        "None": Arm(fedavg_priority()),
        "All": Arm(fedavg()),
        "FedALIGN": Arm(fedalign(eps, warmup=0)),
        "FedALIGN, eps to 0": Arm(fedalign(StepTo(eps, 0.0, 0.5), warmup=0)),
        f"FedALIGN, K = {DRAWN}": Arm(drawing, DRAWN),
    }


@dataclass(frozen=True)
class BoundCase:
    """A problem, and where runs on it begin.

    Attributes:
        batch: rows of a batch; None: all of them
        each: with E local steps there are as many rounds as with one, and E times as large a T;
            else T is the same for every E
    """

    name: str
    fed: Federation
    lam: float
    arms: dict[str, Arm]
    start: Callable[[Float64], Float64] = at_zero
    batch: int | None = BATCH
    each: bool = False

    @cached_property
    def problem(self) -> Problem:
        """Its objectives."""
        return problem(self.fed, self.lam)

    @cached_property
    def begin(self) -> Float64:
        """w_0."""
        return self.start(self.problem.optimum[0])

    @cached_property
    def constants(self) -> Constants:
        """The constants of Theorem 1."""
        return constants(self.problem, self.batch, self.begin)


def cases() -> list[BoundCase]:
    """Return the cases run with several seeds: an ill-conditioned problem, a better one, and the
    better one from so far away that the bound is informative for every E."""
    fed, narrow = small_synth(), arms(NARROW)
    return [
        BoundCase(f"lam = {LAM:g}", fed, LAM, arms(EPS)),
        BoundCase(f"lam = {STRONG:g}", fed, STRONG, narrow),
        BoundCase(f"lam = {STRONG:g}, from afar", fed, STRONG, narrow, start=afar, each=True),
    ]


FROM_OPTIMUM = f"lam = {LAM:g}, from the optimum"
OPPOSED = f"opposed, lam = {STRONG:g}, from the optimum"
MANY = 2000  # draws of the one priority client: their term is small, the first step's bias is not


def broken_cases() -> list[BoundCase]:
    """Return the cases where the printed bounds fail: from the optimum with full batches sigma = 0
    and w_0 = w*, and the terms that the printed sums drop are seen."""
    alone = {"FedALIGN": arms(EPS)["FedALIGN"]}
    drawing = fedalign(10.0, warmup=0, invite=WithReplacement(MANY))
    many = {f"FedALIGN, K = {MANY}": Arm(drawing, MANY)}
    return [
        BoundCase(FROM_OPTIMUM, small_synth(), LAM, alone, at_optimum, None),
        BoundCase(OPPOSED, opposed_pair(), STRONG, many, at_optimum, None),
    ]


def bound(
    seeds: int = 20, rounds: int = 400, quick: bool = False, steps: Sequence[int] = (1, 5)
) -> pl.DataFrame:
    """Compute Theorem 1's bound (A.9's for methods that draw K) and measure the error.

    Args:
        seeds: runs whose mean estimates the expectation
        rounds: communication rounds with E = 1; with E local steps there are rounds/E of them, so
            that T, the local steps, is the same for every E; from afar there are as many for every
            E
        quick: 30 rounds with E = 1
        steps: the values of E

    One row per case, method, E, seed and round (log-spaced): `error` is F(w_T) - F*; theta and rho
    of either form are means over the seeds, and `bound_*` what they give; `K` is that of A.9, null
    for Theorem 1. `start` is the error before the first step. Last come the cases that start at the
    optimum, with E = 1, full batches and one seed.
    """
    check_whole("seeds", seeds)
    check_whole("rounds", rounds)
    some = min(rounds, 30) if quick else rounds
    frames = [
        measure_case(case, label, E, some if case.each else max(1, some // E), seeds)
        for case in cases()
        for E in steps
        for label in case.arms
    ]
    frames += [
        measure_case(case, label, 1, 10, 1) for case in broken_cases() for label in case.arms
    ]
    return pl.concat(frames)


def measure_case(case: BoundCase, label: str, E: int, rounds: int, seeds: int) -> pl.DataFrame:
    """Measure the error of one method on a case, and compute the bound from whom it admitted."""
    c, arm, whole_of = case.constants, case.arms[label], case.problem.whole
    at, local = log_spaced_rounds(rounds, 24), theorem_local(c, E, case.batch)
    runs = [
        follow(case.fed, arm.method, local, rounds, seed, at, case.begin) for seed in range(seeds)
    ]
    admitted = [run.admitted_sums(case.fed, c.Gamma_k) for run in runs]
    extra, bias = (np.array(part) for part in zip(*admitted, strict=True))
    errors = [
        {"round": t, "seed": seed, "error": whole_of.value(run.models[t]) - c.F_star}
        for seed, run in enumerate(runs)
        for t in at
    ]
    terms = pair_forms(bound_by_round(c, extra, bias, E, arm.drawn))
    names = ("mu", "L", "X", "G2", "sigma2", "Gamma", "start", "start2")
    return (
        pl.DataFrame(errors)
        .join(terms, on="round", maintain_order="left")
        .select(
            pl.lit("bound").alias("study"),
            pl.lit(case.name).alias("case"),
            pl.lit(label).alias("method"),
            pl.lit(E).alias("steps"),
            pl.lit(arm.drawn, pl.Int64).alias("K"),
            pl.all(),
            pl.lit(offset(c, E)).alias("gamma"),
            *(pl.lit(float(getattr(c, name))).alias(name) for name in names),
        )
    )


def pair_forms(terms: pl.DataFrame) -> pl.DataFrame:
    """Arrange the bound's terms in one row per round, printed and repaired side by side."""
    printed, repaired = (
        terms.filter(pl.col("form") == form)
        .drop("form")
        .rename({name: f"{name}_{form}" for name in ("C1", "theta", "rho", "bound")})
        for form in FORMS
    )
    return printed.join(repaired.drop("T", "C2"), on="round", maintain_order="left")


# ---------------------------------------------------------------------------------- Corollary 2

ENDS, NEVER = "0 from half the rounds on", "1/t, never 0"
DECAYS: dict[str, Schedule | float] = {
    "constant": EPS,
    ENDS: StepTo(EPS, 0.0, 0.5),
    "linear, 0 at the end": Linear(EPS, 0.0),
    NEVER: Inverse(EPS, 1.0),
}


def corollary2(seeds: int = 5, rounds: int = 400, quick: bool = False) -> pl.DataFrame:
    """Compare decays of eps_t by theta_T, rho_T and the error, on the small SYNTH federation and on
    the mirrored one, where the other client's loss is equal to F(w_t) in every round.

    One row per data, schedule, seed and round (log-spaced), E = 1: eps_t, how many others were
    admitted, S_t, theta_T and rho_T in both forms, the error F(w_T) - F*, and `limit`: the error at
    the minimum of all clients together, where FedALIGN ends if it admits everyone for ever. On the
    mirrored federation batches are full, and seeds do not matter: there is one."""
    check_whole("seeds", seeds)
    check_whole("rounds", rounds)
    some = min(rounds, 100) if quick else rounds
    at = log_spaced_rounds(some, 40)
    frames = []
    for name, fed, batch, many in (
        ("mirrored", mirror_pair(), None, 1),
        ("synth", small_synth(), BATCH, seeds),
    ):
        mine = problem(fed, LAM)
        c = constants(mine, batch)
        everyone = replace(fed, priority=np.ones(fed.n, np.bool_), importance=np.ones(fed.n))
        limit = mine.whole.value(problem(everyone, LAM).optimum[0]) - c.F_star
        local = theorem_local(c, 1, batch)
        for label, epsilon in DECAYS.items():
            method = fedalign(epsilon, warmup=0)
            for seed in range(many):
                run = follow(fed, method, local, some, seed, at)
                extra, bias = run.admitted_sums(fed, c.Gamma_k)
                terms = pair_forms(bound_by_round(c, extra, bias, 1))
                ledger = run.run.rounds.select("round", "eps", admitted="admitted_nonpriority")
                errors = [mine.whole.value(run.models[t]) - c.F_star for t in at]
                frames.append(
                    pl.DataFrame({"round": at, "error": errors})
                    .join(ledger.with_columns(extra=extra), on="round", maintain_order="left")
                    .join(terms, on="round", maintain_order="left")
                    .with_columns(
                        study=pl.lit("corollary2"),
                        data=pl.lit(name),
                        schedule=pl.lit(label),
                        seed=pl.lit(seed),
                        limit=pl.lit(limit),
                        gamma=pl.lit(offset(c, 1)),
                    )
                )
    first = ["study", "data", "schedule", "seed", "round", "T", "eps", "admitted", "extra", "error"]
    frame = pl.concat(frames)
    return frame.select(*first, pl.exclude(first))
