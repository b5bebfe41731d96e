"""MaxFL's studies: mean estimation against known numbers; Theorem 3.1's learning rates, objective
and gradient; the rate's runs against its learning rates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from muster.base.errors import MusterError
from muster.local import Local
from muster.methods import maxfl
from muster.models.specs import Softmax
from muster.papers.theory import convex, study_toy
from muster.papers.theory import toy as estimation
from muster.papers.theory.convex import problem
from muster.papers.theory.minima import local_minima
from muster.papers.theory.study_toy import surrogate
from muster.papers.theory.trajectory import follow, small_synth
from muster.run.solo import with_solo


def row_of(frame, **where):
    (row,) = frame.filter(*(pl.col(k) == v for k, v in where.items())).to_dicts()
    return row


def test_mean_estimation_gives_the_known_numbers(toy):
    for curve, known in (
        ("FedAvg", {0.25: 0.34, 1.0: 0.10, 4.0: 0.007, 9.0: 0.0, 25.0: 0.0}),
        ("MaxFL", {0.25: 0.34, 1.0: 0.19, 4.0: 0.25, 9.0: 0.25, 25.0: 0.25}),
    ):
        for x, value in known.items():
            row = row_of(toy, panel="a", clients="2", curve=curve, x=x)
            assert row["y"] == pytest.approx(value, abs=2 * row["half"] + 0.01)


def test_three_clients_by_their_arrangement(toy):
    for clients, fedavg, maxfl_ in (
        ("3, two equal", 0.0, 0.43),
        ("3, all apart", 0.003, 0.17),
        ("3, equally spaced", 0.233, 0.078),
    ):
        for curve, value in (("FedAvg", fedavg), ("MaxFL", maxfl_)):
            row = row_of(toy, panel="a", clients=clients, curve=curve, x=25.0)
            assert row["y"] == pytest.approx(value, abs=2 * row["half"] + 0.002)


@pytest.mark.parametrize("gamma2", [0.25, 1.0])
def test_the_least_appealing_minimum_is_the_least(toy, gamma2):
    """Minimum by minimum, in each of the draws."""
    means, errors = estimation.draw(4.0, gamma2, 500, 0)
    found = local_minima(means)
    shares = found.appeals(errors).mean(axis=1)
    fewest, most = ([f(shares[found.draw == d]) for d in range(500)] for f in (min, max))
    row = row_of(toy, panel="theorem", curve=study_toy.LEAST, gamma2=gamma2, x=4.0)
    assert row["y"] == pytest.approx(np.mean(fewest))
    assert np.mean(fewest) < 0.6 * np.mean(most)
    if gamma2 == estimation.GAMMA2:
        assert row_of(toy, panel="a", clients="2", curve=study_toy.LEAST, x=4.0)["y"] == row["y"]


def test_theorem_2_1_at_every_variance(toy):
    mine = toy.filter((pl.col("panel") == "theorem") & (pl.col("curve") == "Theorem 2.1"))
    assert set(mine["gamma2"]) == {0.1, 0.25, 1.0, 4.0}
    for gamma2, y in mine.select("gamma2", "y").unique().rows():
        assert y == pytest.approx(np.exp(-1 / gamma2) / 16)


def test_the_curvature_of_the_objective_is_measured_below_and_above_the_border(toy):
    mine = toy.filter(pl.col("panel") == "smoothness")
    assert mine["x"].min() < 2.598 < mine["x"].max()
    for x in mine["x"].unique():
        most, printed = (row_of(mine, curve=c, x=x)["y"] for c in ("measured", "printed"))
        assert printed == x / 4
        assert most == pytest.approx(x**2 / (6 * np.sqrt(3)), rel=1e-5)


# ---------------------------------------------------------------------------------------- the rate


def test_the_rates_runs(rate):
    assert rate["T"].unique().sort().to_list() == [2, 8, 32, 128]
    begin = rate.filter(pl.col("round") == 0)
    assert begin["surrogate"].n_unique() == 1
    last = rate.filter((pl.col("T") == 128) & (pl.col("round") == 127))
    assert (last["surrogate"] < begin["surrogate"][0]).all()
    assert (last["gradient2"] < 0.5 * begin["gradient2"][0]).all()


def test_the_rates_runs_take_the_theorems_learning_rates(rate):
    """`eta_l = 1/(sqrt(T) tau)`, `eta_g = sqrt(tau m)`, `eps = m L_c / (4 L_s)`: in the frame, and
    in what the runs came to, which is that of these numbers and of no others."""
    fed = with_solo(
        small_synth(), Softmax(), 1, Local(steps=20, batch_size=10, lr=1.0), dtype="float64"
    )
    L_s = max(np.linalg.norm(c.x, 2) ** 2 / len(c.x) for c in problem(fed, 0.0).clients) / 2
    epsilon = 4 * 2.0 / (4 * L_s)  # rows of norm 1 with a 1 added: L_c = sqrt(2) sqrt(2)
    for T in (2, 32):
        eta_l, eta_g = 1 / (np.sqrt(T) * 5), np.sqrt(5 * 4)
        mine = rate.filter(pl.col("T") == T)
        for name, value in (("eta_l", eta_l), ("eta_g", eta_g), ("epsilon", epsilon)):
            assert mine[name].to_numpy() == pytest.approx(value)
        assert set(mine["tau"]) == {5}
        assert set(mine["m"]) == {4}

        def ends(eta_l=eta_l, eta_g=eta_g, epsilon=epsilon, T=T):
            method = maxfl(server_lr=eta_g, epsilon=epsilon, m=4)
            local = Local(steps=5, batch_size=10, lr=eta_l, batches="independent")
            model = follow(fed, method, local, T, 1, [T - 1]).models[T - 1]
            return surrogate(problem(fed, 0.0), fed.requirement, model)[1]

        told = row_of(rate, T=T, seed=1, round=T - 1)["gradient2"]
        assert told == pytest.approx(ends(), rel=1e-9)
        for other in ({"eta_l": 3 * eta_l}, {"eta_g": 1.1 * eta_g}, {"epsilon": 0.1}):
            assert abs(ends(**other) / told - 1) > 1e-4


@pytest.fixture(scope="module")
def small_problem():
    return convex.problem(small_synth(), 0.0)


def test_learning_rates():
    assert study_toy.theorem_3_1_rates(T=400, tau=25, m=4) == (1 / 500, 10.0)
    with pytest.raises(MusterError, match="T: 0"):
        study_toy.theorem_3_1_rates(0, 1, 1)


def test_the_objective_and_its_gradient_against_differences(small_problem):
    few = [replace(c, x=c.x[:, -4:], y=c.y % 3, classes=3) for c in small_problem.clients]
    small_problem = replace(small_problem, clients=tuple(few))
    draw = np.random.default_rng(0)
    w = draw.standard_normal((3, 4))
    losses = np.array([c.value(w) for c in small_problem.clients])
    rho = losses + draw.standard_normal(8)  # some met, some not
    value, size = study_toy.surrogate(small_problem, rho, w)
    assert value == pytest.approx(np.mean(1 / (1 + np.exp(rho - losses))))
    h, total = 1e-6, 0.0
    for place in np.ndindex(w.shape):
        step = np.zeros_like(w)
        step[place] = h
        up, _ = study_toy.surrogate(small_problem, rho, w + step)
        down, _ = study_toy.surrogate(small_problem, rho, w - step)
        total += ((up - down) / (2 * h)) ** 2
    assert size == pytest.approx(total, rel=1e-5)


def test_the_servers_epsilon(small_problem):
    """`m L_c / (4 L_s)`, with the losses' largest slope and curvature over many models."""
    draw = np.random.default_rng(1)
    models = [scale * draw.standard_normal((10, 61)) for scale in (0.0, 1.0, 10.0)]
    steepest = max(np.linalg.norm(c.gradient(w)) for c in small_problem.clients for w in models)
    L_c = np.sqrt(2) * small_problem.longest
    assert L_c / 3 < steepest <= L_c
    assert study_toy.server_epsilon(small_problem, 4) == pytest.approx(
        L_c / small_problem.smoothness
    )


def test_the_curvature_of_the_objective():
    """`L_c^2 / (6 sqrt 3)` is reached by F(w) = L_c w, and L_c/4 is less from L_c = 2.598 on."""
    y = np.linspace(-5, 5, 100_001)
    s = 1 / (1 + np.exp(-y))
    assert np.abs(s * (1 - s) * (1 - 2 * s)).max() == pytest.approx(study_toy.STEEPEST, rel=1e-8)
    assert pytest.approx(2.598, abs=5e-4) == study_toy.MOST_SLOPE
    q = np.array([0.1, 0.2])
    assert study_toy.smoothness(2.0, 4.0, q, "printed") == pytest.approx(2 * 0.15 + 1)
    assert study_toy.smoothness(2.0, 4.0, q, "repaired") == pytest.approx(
        0.3 + 16 / (6 * np.sqrt(3))
    )
    for slope in (0.5, 2.59, 2.61, 20.0):
        most = study_toy.largest_curvature(slope)
        assert most == pytest.approx(
            study_toy.smoothness(0.0, slope, np.zeros(1), "repaired"), rel=1e-5
        )
        assert (most > study_toy.smoothness(0.0, slope, np.zeros(1), "printed")) == (slope > 2.598)


def test_the_repaired_curvature_bounds_any_objective(small_problem):
    """Against differences of the gradient of softmax regression's objective, in many directions."""
    draw = np.random.default_rng(2)
    L_c, L_s = np.sqrt(2) * small_problem.longest, small_problem.smoothness
    for scale in (0.0, 1.0, 5.0):
        w = scale * draw.standard_normal((10, 61))
        gap = np.array([c.value(w) for c in small_problem.clients])
        rho = gap + draw.choice([-1.3, 1.3], 8)  # where the sigmoid curves most
        most = study_toy.smoothness(L_s, L_c, study_toy.appeal_weight(gap - rho), "repaired")
        for _ in range(5):
            v = draw.standard_normal(w.shape)
            v *= 1e-3 / np.linalg.norm(v)
            ends = [study_toy.surrogate(small_problem, rho, w + step)[0] for step in (v, 0 * v, -v)]
            assert abs(ends[0] - 2 * ends[1] + ends[2]) / 1e-6 <= most
