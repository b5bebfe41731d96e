"""Studies of MaxFL's statements: `toy`, `weights` and `rate`.

Mean estimation is computed draw by draw (`toy`, `minima`). Theorem 3.1 is compared with runs: with
`eta_l = 1/(sqrt(T) tau)` and `eta_g = sqrt(tau m)`, m of M clients asked each round and tau local
steps (eq. 5),

    min_{t < T} E |grad Ftilde(w_t)|^2 <= O(sigma^2 / sqrt(m tau T)) + O(sigma^2 / (T tau))
                                        + O(sqrt(tau) / sqrt(T m)) + O((kappa^2 + beta^2) / T)

that is, `O(1/sqrt(T))` in the number of rounds. The objective is (eq. 3), its gradient (eq. 4):

    Ftilde(w)      = 1/M sum_k sigmoid(F_k(w) - rho_k)
    grad Ftilde(w) = 1/M sum_k q_k(w) grad F_k(w),    q_k = s (1 - s), s = sigmoid(F_k(w) - rho_k)

The learning rates depend on T, so every T is a separate run.

Section 3 takes eps of the server's learning rate from the curvature of the objective, printed as
`L_s/M sum_k q_k + L_c/4` for L_c-continuous and L_s-smooth F_k. Differentiating eq. 4,

    hess Ftilde = 1/M sum_k q_k hess F_k + 1/M sum_k s''(F_k - rho_k) grad F_k grad F_k'

and max |s''| = 1/(6 sqrt 3), so that the second term is at most `L_c^2 / (6 sqrt 3)`. The printed
one is enough while L_c <= 3 sqrt(3)/2 = 2.598; beyond, F(w) = L_c w breaks it.
"""

from __future__ import annotations

import math

import numpy as np

from ...base.arrays import Float64
from ...base.checks import check_whole
from ...base.lazy import pl
from ...base.rng import generator
from ...local import Local
from ...methods import maxfl
from ...models.specs import Softmax
from ...parts.claim import appeal_weight
from ...report.intervals import mean_and_half
from ...run.solo import with_solo
from . import toy as estimation
from .bounds import FORMS, Form
from .convex import Problem, problem
from .minima import Minima, local_minima, pick, sigmoid
from .toy import GAMMA2
from .trajectory import BATCH, follow, log_spaced_rounds, small_synth

STEEPEST = 1 / (6 * math.sqrt(3))  # max |s''| of the sigmoid s
MOST_SLOPE = 3 * math.sqrt(3) / 2  # L_c up to which L_c/4 is as large as L_c^2 max |s''|


def theorem_3_1_rates(T: int, tau: int, m: int) -> tuple[float, float]:
    """The learning rates of Theorem 3.1: `eta_l = 1 / (sqrt(T) tau)`, `eta_g = sqrt(tau m)`.

    T rounds, tau local steps, m clients per round.

    >>> theorem_3_1_rates(T=100, tau=4, m=9)
    (0.025, 6.0)
    """
    for name, value in (("T", T), ("tau", tau), ("m", m)):
        check_whole(name, value)
    return 1 / (math.sqrt(T) * tau), math.sqrt(tau * m)


def smoothness(L_s: float, L_c: float, q: Float64, form: Form) -> float:
    """Bound the curvature of the objective for L_c-continuous and L_s-smooth F_k and weights q_k:
    `L_s/M sum_k q_k + L_c/4` as printed (section 3), with `L_c^2 / (6 sqrt 3)` in
    place of `L_c/4` repaired."""
    return L_s * float(q.mean()) + (L_c / 4 if form == "printed" else L_c**2 * STEEPEST)


def largest_curvature(L_c: float) -> float:
    """Return the objective's largest curvature for one client with F(w) = L_c w and rho = 0,
    `|d^2/dw^2 sigmoid(L_c w)|`, by differences on a fine grid."""
    w, h = np.linspace(-4.0, 4.0, 8001) / L_c, 1e-3 / L_c
    up, here, down = (sigmoid(L_c * (w + step)) for step in (h, 0.0, -h))
    return float(np.abs(up - 2 * here + down).max()) / h**2


def server_epsilon(problem: Problem, m: int) -> float:
    """Return the paper's `eps = M L_c / (4 L_s)` (section 3, adaptive server learning rate) for the
    m clients whose q_k it is added to: their losses are sqrt(2) X-continuous and L_s-smooth. Rows
    of norm 1 with a 1 added have L_c = 2, where the printed form is enough."""
    return m * math.sqrt(2) * problem.longest / (4 * problem.smoothness)


def surrogate(problem: Problem, requirement: Float64, w: Float64) -> tuple[float, float]:
    """Return `Ftilde(w)` and `|grad Ftilde(w)|^2`."""
    gap = np.array([c.value(w) for c in problem.clients]) - requirement
    slopes = np.array([c.gradient(w) for c in problem.clients])
    gradient = np.tensordot(appeal_weight(gap), slopes, axes=1) / len(gap)
    return float(sigmoid(gap).mean()), float(np.sum(gradient**2))


# ------------------------------------------------------------------------------ mean estimation

# The clients' true means in units of gamma_G: the paper's two; two equal and a different one; three
# that all differ, by unequal and by equal steps.
CLIENTS: dict[str, int | tuple[float, ...]] = {
    "2": 2,
    "3, two equal": 3,
    "3, all apart": (-1, 1, 4),
    "3, equally spaced": (-2, 0, 2),
}
# Their empirical means in the same units, fixed, for Fig. 2 b and c.
MEANS = {
    "2": (-1.0, 1.0),
    "3, two equal": (-1.2, -0.8, 1.0),
    "3, all apart": (-1.0, 1.0, 4.0),
    "3, equally spaced": (-2.1, 0.1, 2.0),
}
SMALL_GAP, LARGE_GAP = 0.5, 4.0  # empirical heterogeneity of Fig. 2 b and c
# Where SPEC's numbers lie, and points between them for the curve.
GRID = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 16.0, 25.0)
VARIANCES = (0.1, GAMMA2, 1.0, 4.0)  # gamma^2 at which Theorem 2.1 is judged
SLOPES = (1.0, 2.0, 2.5, 2.7, 3.0, 5.0, 10.0)  # L_c at which the objective's curvature is taken


def toy(quick: bool = False, seed: int = 0) -> pl.DataFrame:
    """MaxFL's mean estimation (section 2.2): Fig. 2 a-c, three clients, section 3's constant.

    panel "a"           x = gamma_G^2, y = appeal of FedAvg's model, of MaxFL's (its global minimum
                        and the least appealing one) and of the ReLU surrogate's; Lemma 2.1's and
                        Theorem 2.1's bounds; `half` is the half-width of the mean's 95 % interval
    panel "b", "c"      x = w, y = MaxFL's objective, at small and large heterogeneity, and its
                        minima
    panel "theorem"     as panel a, the least appealing minimum and Theorem 2.1 at other gamma^2
    panel "convex"      x = the number of clients, y = how far the minimum of a convex surrogate
                        (the `curve`) is from the average, at most over the draws (Lemma 2.2)
    panel "smoothness"  x = L_c, y = the largest curvature of MaxFL's objective for F(w) = L_c w,
                        and what section 3 bounds it by, as printed and repaired
    """
    draws = 500 if quick else 3000
    rows: list[dict[str, object]] = []

    def add(
        panel: str,
        clients: str,
        curve: str,
        x: float,
        y: float,
        half: float = 0.0,
        gamma2: float = GAMMA2,
    ) -> None:
        point = {"x": float(x), "y": float(y), "half": float(half)}
        names = {"study": "toy", "panel": panel, "clients": clients, "curve": curve}
        rows.append({**names, **point, "gamma2": gamma2, "draws": draws})

    for clients, places in CLIENTS.items():
        for gammaG2 in GRID:
            for curve, each in _appeal(gammaG2, places, draws, seed).items():
                mean, half = mean_and_half(each)
                add("a", clients, curve, gammaG2, float(mean), float(half))
    for gammaG2 in GRID:
        add("a", "2", "Lemma 2.1", gammaG2, float(estimation.lemma_2_1(GAMMA2, gammaG2)))
        add("a", "2", "Theorem 2.1", gammaG2, estimation.theorem_2_1(GAMMA2))
    for gamma2 in VARIANCES:
        for gammaG2 in GRID:
            means, errors = estimation.draw(gammaG2, gamma2, draws, seed)
            mean, half = mean_and_half(least_appeal(local_minima(means), errors))
            add("theorem", "2", LEAST, gammaG2, float(mean), float(half), gamma2)
            add("theorem", "2", "Theorem 2.1", gammaG2, estimation.theorem_2_1(gamma2), 0, gamma2)
    for panel, gap in (("b", SMALL_GAP), ("c", LARGE_GAP)):
        for clients, at in MEANS.items():
            that = np.sqrt(gap) * np.array(at)
            for w in np.linspace(that.min() - 1, that.max() + 1, 201):
                add(panel, clients, "objective", w, float(estimation.objective(w, that)))
            for w in local_minima(that).points():
                add(panel, clients, "minimum", w, float(estimation.objective(w, that)))
    for clients, places in CLIENTS.items():
        means, _ = estimation.draw(1.0, GAMMA2, draws, seed, places)
        for curve in estimation.CONVEX:
            off = estimation.convex_minimiser(means, curve) - means.mean(axis=-1)
            add("convex", clients, curve, means.shape[1], float(np.abs(off).max()))
    for slope in SLOPES:
        add("smoothness", "1", "measured", slope, largest_curvature(slope))
        for form in FORMS:  # F(w) = L_c w has L_s = 0: whatever q is, it does not count
            add("smoothness", "1", form, slope, smoothness(0.0, slope, np.zeros(1), form))
    return pl.DataFrame(rows)


LEAST = "MaxFL, least appealing minimum"


def _appeal(
    gammaG2: float, places: int | tuple[float, ...], draws: int, seed: int
) -> dict[str, Float64]:
    """Return the appeal of each model in every draw: the share of clients it appeals to."""
    means, errors = estimation.draw(gammaG2, GAMMA2, draws, seed, places)
    found = local_minima(means)
    best = pick(found, "global", generator(seed, "toy-pick"))
    relu = estimation.convex_minimiser(means, "relu")
    return {
        "FedAvg": estimation.appeals(means.mean(axis=-1), means, errors).mean(axis=-1),
        "MaxFL": best.appeals(errors).mean(axis=-1),
        LEAST: least_appeal(found, errors),
        "ReLU": estimation.appeals(relu, means, errors).mean(axis=-1),
    }


def least_appeal(found: Minima, errors: Float64) -> Float64:
    """Return the appeal of each draw's minimum that appeals to the fewest clients."""
    first = np.flatnonzero(np.diff(found.draw, prepend=-1))
    return np.asarray(np.minimum.reduceat(found.appeals(errors).mean(axis=-1), first), np.float64)


def weights(points: int = 241) -> pl.DataFrame:
    """Fig. 3: `q_k` for gaps `F_k(w) - rho_k` from -6 to 6."""
    gap = np.linspace(-6.0, 6.0, points)
    return pl.DataFrame({"study": ["weights"] * points, "gap": gap, "q": appeal_weight(gap)})


# ------------------------------------------------------------------------------------- the rate

TAU, ASKED = 5, 4  # local steps, and clients per round of the eight


def rate(seeds: int = 5, rounds: int = 1600, quick: bool = False) -> pl.DataFrame:
    """Theorem 3.1: runs of T = rounds/64, rounds/16, rounds/4 and rounds with its learning rates.

    One row per T, seed and round t (at most 40 of them, log-spaced, from t = 0): the objective
    Ftilde(w_t) and |grad Ftilde(w_t)|^2. The eight clients of the small SYNTH federation require
    what 20 solo steps gave them; 4 are asked each round for 5 local steps of batch 10, each drawn
    again (Assumption 3.2).
    """
    check_whole("seeds", seeds)
    check_whole("rounds", rounds, 128)
    most = min(rounds, 256) if quick else rounds
    fed = with_solo(
        small_synth(), Softmax(), 1, Local(steps=20, batch_size=BATCH, lr=1.0), dtype="float64"
    )
    assert fed.requirement is not None
    mine = problem(fed, 0.0)
    epsilon = server_epsilon(mine, ASKED)
    begins = surrogate(mine, fed.requirement, np.zeros((fed.classes, mine.clients[0].x.shape[1])))
    rows = []
    for T in (most // 64, most // 16, most // 4, most):
        eta_l, eta_g = theorem_3_1_rates(T, TAU, ASKED)
        method = maxfl(server_lr=eta_g, epsilon=epsilon, m=ASKED)
        local = Local(steps=TAU, batch_size=BATCH, lr=eta_l, batches="independent")
        # The models w_0 .. w_{T-1}: the one after the last round begins none.
        at = log_spaced_rounds(T - 1, 40)
        for seed in range(seeds):
            models = follow(fed, method, local, T, seed, at).models
            values = {0: begins, **{t: surrogate(mine, fed.requirement, models[t]) for t in at}}
            rows += [
                {
                    "study": "rate",
                    "T": T,
                    "seed": seed,
                    "round": t,
                    "surrogate": value,
                    "gradient2": size,
                    "eta_l": eta_l,
                    "eta_g": eta_g,
                    "tau": TAU,
                    "m": ASKED,
                    "epsilon": epsilon,
                }
                for t, (value, size) in values.items()
            ]
    return pl.DataFrame(rows)
