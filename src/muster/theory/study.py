"""The papers' statements held against what is computed: each study is one function, one long frame.

    bound        Theorem 1 and A.9: the bound, printed and repaired, and the measured error
    corollary2   theta_T, rho_T and the error for four ways in which eps_t may decay
    toy          MaxFL's Fig. 2 a-c, for two and for three clients; Lemmas 2.1, 2.2, Theorem 2.1
    weights      MaxFL's Fig. 3: q_k against the gap
    rate         Theorem 3.1: how fast the gradient of MaxFL's objective vanishes

The first column, `study`, says which one a frame is of: `verdicts` judges the paper's statements
from the frame alone, and `figures` draws it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ..arrays import Float64
from ..checks import whole
from ..data.sets.synth import synth
from ..federation import Federation
from ..lazy import pl
from ..local import Local
from ..methods import Method, fedalign, fedavg, fedavg_priority, maxfl
from ..models import Softmax
from ..parts.claim import appeal_weight
from ..parts.invite import WithReplacement
from ..report.intervals import mean_and_half
from ..rng import generator
from ..run.solo import with_solo
from ..schedules import Inverse, Linear, Schedule, StepTo
from . import toy as estimation
from .bounds import FORMS, bound_by_round, offset
from .convex import Constants, Problem, constants, problem, scaled
from .measured import follow, log_spaced, theorem_local
from .minima import local_minima, pick
from .rate import server_epsilon, surrogate, theorem_3_1_rates
from .toy import GAMMA2

LAM, BATCH, EPS = 0.3, 10, 0.2
DRAWN = 1  # K of A.9: of the two priority clients, one is drawn per round


def small(seed: int = 0) -> Federation:
    """SYNTH(1, 1) at low noise, rows of norm at most 1: 2 priority clients and 6 others, each with
    40 training rows, so that batches of 10 divide them."""
    return scaled(synth(priority=2, others=6, noise="low", seed=seed, max_rows=50))


def mirrored() -> Federation:
    """A priority client and another that is its mirror image: equal in loss at every model that
    does not use the second feature, where FedALIGN from w = 0 stays; with another minimum."""
    x, flip, y = np.array([[0.8, 0.6], [-0.8, -0.6]]), np.array([1.0, -1.0]), [1, 0]
    return Federation.from_arrays([(x, y), (x * flip, y)], priority=[0], name="mirrored")


# ------------------------------------------------------------------------- FedALIGN: the bound

METHODS: dict[str, tuple[Method, int | None]] = {
    "None": (fedavg_priority(), None),
    "All": (fedavg(), None),
    "FedALIGN": (fedalign(EPS, warmup=0), None),
    "FedALIGN, eps to 0": (fedalign(StepTo(EPS, 0.0, 0.5), warmup=0), None),
    f"FedALIGN, K = {DRAWN}": (fedalign(EPS, warmup=0, invite=WithReplacement(DRAWN)), DRAWN),
}


def bound(
    seeds: int = 20, rounds: int = 400, quick: bool = False, steps: Iterable[int] = (1, 5)
) -> pl.DataFrame:
    """Theorem 1's bound (A.9's for the method that draws K) and the measured error.

    seeds    runs whose mean stands for the expectation
    rounds   communication rounds with E = 1; with E local steps there are rounds/E of them, so that
             T, the local steps, is the same for every E
    quick    60 local steps
    steps    the values of E

    One row per method, E, seed and round (log-spaced): `error` is F(w_T) - F*; theta and rho of
    either form are means over the seeds, and `bound_*` what they give. `start` is the error before
    the first step. Last comes FedALIGN started at the optimum, with full batches and one seed:
    there the printed bound begins at 0.
    """
    whole("seeds", seeds)
    whole("rounds", rounds)
    fed = small()
    of = problem(fed, LAM)
    c = constants(of, BATCH)
    frames = []
    for E in steps:
        some = max(1, (min(rounds, 60) if quick else rounds) // E)
        for label, (method, drawn) in METHODS.items():
            frames.append(_against(label, fed, of, c, method, E, drawn, BATCH, some, seeds))
    # Nothing is left to chance with full batches, and nothing is far: sigma = 0 and w_0 = w*.
    there = replace(constants(of, None), start2=0.0, start=0.0)
    method = METHODS["FedALIGN"][0]
    frames.append(_against(FROM_OPTIMUM, fed, of, there, method, 1, None, None, 10, 1, c.w_star))
    return pl.concat(frames)


FROM_OPTIMUM = "FedALIGN from the optimum"


def _against(
    label: str,
    fed: Federation,
    of: Problem,
    c: Constants,
    method: Method,
    E: int,
    drawn: int | None,
    batch: int | None,
    rounds: int,
    seeds: int,
    start: Float64 | None = None,
) -> pl.DataFrame:
    """The measured error of one method, and the bound from what its runs admitted."""
    at, local = log_spaced(rounds, 24), theorem_local(c, E, batch)
    runs = [follow(fed, method, local, rounds, seed, at, start) for seed in range(seeds)]
    let_in = [run.admitted(fed, c.Gamma_k) for run in runs]
    extra, bias = (np.array(part) for part in zip(*let_in, strict=True))
    errors = [
        {"round": t, "seed": seed, "error": of.whole.value(run.models[t]) - c.F_star}
        for seed, run in enumerate(runs)
        for t in at
    ]
    names = ("mu", "L", "X", "G2", "sigma2", "Gamma", "start", "start2")
    return (
        pl.DataFrame(errors)
        .join(_by_form(bound_by_round(c, extra, bias, E, drawn)), on="round", maintain_order="left")
        .select(
            pl.lit("bound").alias("study"),
            pl.lit(label).alias("method"),
            pl.lit(E).alias("steps"),
            pl.all(),
            pl.lit(offset(c, E)).alias("gamma"),
            *(pl.lit(float(getattr(c, name))).alias(name) for name in names),
        )
    )


def _by_form(terms: pl.DataFrame) -> pl.DataFrame:
    """The bound's terms with one row per round, printed and repaired next to each other."""
    printed, repaired = (
        terms.filter(pl.col("form") == form)
        .drop("form")
        .rename({name: f"{name}_{form}" for name in ("C1", "theta", "rho", "bound")})
        for form in FORMS
    )
    return printed.join(repaired.drop("T", "C2"), on="round", maintain_order="left")


DECAYS: dict[str, Schedule | float] = {
    "constant": EPS,
    "step to 0 at half": StepTo(EPS, 0.0, 0.5),
    "linear to 0": Linear(EPS, 0.0),
    "1/t": Inverse(EPS, 1.0),
}


def corollary2(seeds: int = 5, rounds: int = 400, quick: bool = False) -> pl.DataFrame:
    """What decays of eps_t do to theta_T, rho_T and the error, on the small SYNTH federation and on
    the mirrored one, where the other client's loss is equal to F(w_t) in every round.

    One row per data, schedule, seed and round (log-spaced), E = 1: eps_t, how many others were let
    in, S_t, theta_T and rho_T in both forms, the error F(w_T) - F*, and `limit`: the error at the
    minimum of all clients together, where FedALIGN ends if it lets everyone in for ever. On the
    mirrored federation batches are full, and seeds do not matter: there is one.
    """
    whole("seeds", seeds)
    whole("rounds", rounds)
    some = min(rounds, 100) if quick else rounds
    at = log_spaced(some, 40)
    frames = []
    for name, fed, batch, many in (
        ("mirrored", mirrored(), None, 1),
        ("synth", small(), BATCH, seeds),
    ):
        of = problem(fed, LAM)
        c = constants(of, batch)
        everyone = replace(fed, priority=np.ones(fed.n, np.bool_), importance=np.ones(fed.n))
        limit = of.whole.value(problem(everyone, LAM).whole.minimum()[0]) - c.F_star
        local = theorem_local(c, 1, batch)
        for label, epsilon in DECAYS.items():
            method = fedalign(epsilon, warmup=0)
            for seed in range(many):
                run = follow(fed, method, local, some, seed, at)
                extra, bias = run.admitted(fed, c.Gamma_k)
                terms = _by_form(bound_by_round(c, extra, bias, 1))
                told = run.run.rounds.select("round", "eps", admitted="admitted_nonpriority")
                errors = [of.whole.value(run.models[t]) - c.F_star for t in at]
                frames.append(
                    pl.DataFrame({"round": at, "error": errors})
                    .join(told.with_columns(extra=extra), on="round", maintain_order="left")
                    .join(terms, on="round", maintain_order="left")
                    .with_columns(
                        study=pl.lit("corollary2"), data=pl.lit(name), schedule=pl.lit(label),
                        seed=pl.lit(seed), limit=pl.lit(limit), gamma=pl.lit(offset(c, 1)),
                    )
                )  # fmt: skip
    first = ["study", "data", "schedule", "seed", "round", "T", "eps", "admitted", "extra", "error"]
    frame = pl.concat(frames)
    return frame.select(*first, pl.exclude(first))


# --------------------------------------------------------------------------- MaxFL: mean estimation

# The clients' true means in units of gamma_G: the paper's two; two alike and a stranger; three that
# all differ.
CLIENTS: dict[str, int | tuple[float, ...]] = {
    "2": 2,
    "3, two alike": 3,
    "3, all apart": (-1, 1, 4),
}
# Their empirical means in the same units, drawn once and for all, for Fig. 2 b and c.
MEANS = {"2": (-1.0, 1.0), "3, two alike": (-1.2, -0.8, 1.0), "3, all apart": (-1.0, 1.0, 4.0)}
SMALL_GAP, LARGE_GAP = 0.5, 4.0  # empirical heterogeneity of Fig. 2 b and c
# Where SPEC's numbers lie, and points between them for the curve.
GRID = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 16.0, 25.0)


def toy(quick: bool = False, seed: int = 0) -> pl.DataFrame:
    """MaxFL's mean estimation (section 2.2): Fig. 2 a-c and three clients.

    panel "a"       x = gamma_G^2, y = appeal of FedAvg's model, of MaxFL's (its global minimum and
                    the least appealing one) and of the ReLU surrogate's; Lemma 2.1's and Theorem
                    2.1's bounds; `half` is the half-width of the mean's 95 % interval
    panel "b", "c"  x = w, y = MaxFL's objective, at small and large heterogeneity; and its minima
    panel "convex"  x = the number of clients, y = how far the minimum of a convex surrogate (the
                    `curve`) is from the average, at most over the draws (Lemma 2.2)
    """
    draws = 500 if quick else 3000
    rows: list[dict[str, object]] = []

    def add(panel: str, clients: str, curve: str, x: float, y: float, half: float = 0.0) -> None:
        rows.append(
            {"study": "toy", "panel": panel, "clients": clients, "curve": curve, "x": float(x),
             "y": float(y), "half": float(half), "draws": draws}
        )  # fmt: skip

    for clients, places in CLIENTS.items():
        for gammaG2 in GRID:
            for curve, each in _appeal(gammaG2, places, draws, seed).items():
                mean, half = mean_and_half(each)
                add("a", clients, curve, gammaG2, float(mean), float(half))
    for gammaG2 in GRID:
        add("a", "2", "Lemma 2.1", gammaG2, float(estimation.lemma_2_1(GAMMA2, gammaG2)))
        add("a", "2", "Theorem 2.1", gammaG2, estimation.theorem_2_1(GAMMA2))
    for panel, gap in (("b", SMALL_GAP), ("c", LARGE_GAP)):
        for clients, means in MEANS.items():
            that = np.sqrt(gap) * np.array(means)
            for w in np.linspace(that.min() - 1, that.max() + 1, 201):
                add(panel, clients, "objective", w, float(estimation.objective(w, that)))
            for w in local_minima(that).points():
                add(panel, clients, "minimum", w, float(estimation.objective(w, that)))
    for clients, places in CLIENTS.items():
        means_drawn, _ = estimation.draw(1.0, GAMMA2, draws, seed, places)
        for curve in estimation.CONVEX:
            off = estimation.convex_minimiser(means_drawn, curve) - means_drawn.mean(axis=-1)
            add("convex", clients, curve, means_drawn.shape[1], float(np.abs(off).max()))
    return pl.DataFrame(rows)


def _appeal(
    gammaG2: float, places: int | tuple[float, ...], draws: int, seed: int
) -> dict[str, Float64]:
    """The appeal of each model in every draw: the share of clients it appeals to."""
    means, errors = estimation.draw(gammaG2, GAMMA2, draws, seed, places)
    found = local_minima(means)
    shares = found.appeals(errors).mean(axis=-1)
    first = np.flatnonzero(np.diff(found.draw, prepend=-1))
    best = pick(found, "global", generator(seed, "toy-pick"))
    relu = estimation.convex_minimiser(means, "relu")
    return {
        "FedAvg": estimation.appeals(means.mean(axis=-1), means, errors).mean(axis=-1),
        "MaxFL": best.appeals(errors).mean(axis=-1),
        "MaxFL, least appealing minimum": np.minimum.reduceat(shares, first),
        "ReLU": estimation.appeals(relu, means, errors).mean(axis=-1),
    }


def weights(points: int = 241) -> pl.DataFrame:
    """Fig. 3: `q_k` for gaps `F_k(w) - rho_k` from -6 to 6."""
    gap = np.linspace(-6.0, 6.0, points)
    return pl.DataFrame({"study": ["weights"] * points, "gap": gap, "q": appeal_weight(gap)})


# --------------------------------------------------------------------------------- MaxFL: the rate

TAU, ASKED = 5, 4  # local steps, and clients per round of the eight


def rate(seeds: int = 5, rounds: int = 1600, quick: bool = False) -> pl.DataFrame:
    """Theorem 3.1: runs of T = rounds/64, rounds/16, rounds/4 and rounds with its learning rates.

    One row per T, seed and round t (at most 40 of them, log-spaced, from t = 0): the objective
    Ftilde(w_t) and |grad Ftilde(w_t)|^2. The eight clients of the small SYNTH federation require
    what 20 solo steps gave them; 4 are asked each round for 5 local steps of batch 10.
    """
    whole("seeds", seeds)
    whole("rounds", rounds, 128)
    most = min(rounds, 256) if quick else rounds
    fed = with_solo(small(), Softmax(), Local(steps=20, batch_size=BATCH, lr=1.0), dtype="float64")
    assert fed.requirement is not None
    of = problem(fed, 0.0)
    epsilon = server_epsilon(of, ASKED)
    begins = surrogate(of, fed.requirement, np.zeros((fed.classes, of.clients[0].x.shape[1])))
    rows = []
    for T in (most // 64, most // 16, most // 4, most):
        eta_l, eta_g = theorem_3_1_rates(T, TAU, ASKED)
        method = maxfl(server_lr=eta_g, epsilon=epsilon, m=ASKED)
        local = Local(steps=TAU, batch_size=BATCH, lr=eta_l)
        # The models w_0 .. w_{T-1}: the one after the last round begins none.
        at = log_spaced(T - 1, 40)
        for seed in range(seeds):
            models = follow(fed, method, local, T, seed, at).models
            values = {0: begins, **{t: surrogate(of, fed.requirement, models[t]) for t in at}}
            rows += [
                {"study": "rate", "T": T, "seed": seed, "round": t, "surrogate": value,
                 "gradient2": size, "eta_l": eta_l, "eta_g": eta_g, "tau": TAU, "m": ASKED,
                 "epsilon": epsilon}
                for t, (value, size) in values.items()
            ]  # fmt: skip
    return pl.DataFrame(rows)


STUDIES = {"bound": bound, "corollary2": corollary2, "toy": toy, "weights": weights, "rate": rate}
