"""Mean estimation: the toy example of MaxFL section 2.2, its lemmas and its numbers."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from muster.base.errors import MusterError
from muster.base.rng import generator
from muster.papers.theory import minima, toy
from muster.parts.claim import appeal_weight

GRID = [0.0, 0.25, 1.0, 4.0, 9.0, 25.0]
DRAWS = 3000


def error(p, draws=DRAWS):
    """The binomial standard error; a draw's appeal is a mean of indicators, so this is the most."""
    return np.sqrt(p * (1 - p) / draws)


def exact_fedavg(gammaG2, gamma2):
    """FedAvg's appeal for two clients: `x` and `x + 2 e` are jointly normal, of opposite signs."""
    a = np.sqrt(gammaG2)
    cov = gamma2 * np.array([[0.5, -0.5], [-0.5, 2.5]])
    both = multivariate_normal([0, 0], cov)
    negative = [multivariate_normal([0], [[v]]).cdf(-a) for v in np.diag(cov)]
    return sum(negative) - 2 * both.cdf([-a, -a])


def appeal_curve(gammaG2s, gamma2=0.25, draws=DRAWS, clients=2, which="global"):
    """The mean appeal of FedAvg's and of MaxFL's model over draws of the data (Fig. 2a).

    Two clients have mirror-image minima, so `which` does not matter. With two equal clients and a
    different one (`clients=3`) the global minimum is where the two are.
    """
    curve = []
    for gammaG2 in gammaG2s:
        means, errors = toy.draw(gammaG2, gamma2, draws, 0, clients)
        model = minima.pick(minima.local_minima(means), which, generator(0, "toy-pick"))
        fedavg = toy.appeals(means.mean(axis=-1), means, errors)
        curve.append((fedavg.mean(), model.appeals(errors).mean()))
    return np.array(curve).T


# ------------------------------------------------------------------------------------ the numbers


def test_published_appeal_of_both_models():
    fedavg, maxfl = appeal_curve(GRID[1:])
    for got, want in (
        (fedavg, [0.34, 0.10, 0.007, 0, 0]),
        (maxfl, [0.34, 0.19, 0.25, 0.25, 0.25]),
    ):
        p = np.array(want)
        rounding = np.where(p == 0.007, 0.0005, 0.005)
        assert (np.abs(got - p) < 4 * error(np.maximum(p, 1e-3)) + rounding).all()


@pytest.mark.parametrize("gamma2", [0.1, 0.25, 1.0])
def test_appeal_of_fedavg_against_its_closed_form(gamma2):
    fedavg, _ = appeal_curve(GRID, gamma2)
    exact = np.array([exact_fedavg(g, gamma2) for g in GRID])
    assert (np.abs(fedavg - exact) < 4 * error(np.clip(exact, 1e-3, 1))).all()


@pytest.mark.parametrize("gammaG2", [9.0, 100.0, 1e3, 1e4])
def test_appeal_does_not_drop_where_float64_cannot_see_the_displacement(gammaG2):
    got = appeal_curve([gammaG2])[1]
    assert abs(got[0] - 0.25) < 4 * error(0.25)


def test_forming_w_loses_the_appeal():
    means, errors = toy.draw(25.0, 0.25, 500, seed=0)
    model = minima.pick(minima.local_minima(means), "global", generator(0, "test"))
    assert model.appeals(errors).mean() > 0.2
    assert toy.appeals(model.points(), means, errors).mean() == 0


def test_three_clients_two_equal_and_one_apart():
    """MaxFL serves the two as if the stranger were not there; FedAvg serves nobody."""
    (near, fedavg), (near_maxfl, maxfl) = appeal_curve([0.0, 400.0], clients=3)
    alone = appeal_curve([0.0])[1][0]
    assert fedavg == 0
    assert abs(maxfl - alone * 2 / 3) < 4 * np.sqrt(2) * error(alone * 2 / 3)
    assert abs(near - near_maxfl) < 0.05


@pytest.mark.parametrize("which", minima.PICKS)
def test_three_strangers_one_is_served_half_the_time(which):
    (fedavg,), (maxfl,) = appeal_curve([400.0], clients=(-1, 1, 4), which=which)
    assert fedavg == 0
    assert abs(maxfl - 1 / 6) < 4 * error(1 / 6)


def test_lemma_2_1_fails_for_three_clients_equally_spaced():
    """The average is the middle client's truth: `x, x + 2 e` correlate by -1 / sqrt 3 there."""
    got = appeal_curve([400.0], clients=(-2, 0, 2))[0][0]
    want = (0.5 + np.arcsin(1 / np.sqrt(3)) / np.pi) / 3
    assert abs(got - want) < 4 * error(want)
    assert got > toy.lemma_2_1(0.25, 400.0)


def test_three_clients_two_equal_ones_share_a_minimum():
    (w,) = minima.pick(
        minima.local_minima([[-0.3, 0.3, 5.0]]), "global", generator(0, "t")
    ).points()
    assert w == pytest.approx(0, abs=1e-6)


# -------------------------------------------------------------------------------------- the claims


@pytest.mark.parametrize("gamma2", [0.05, 0.25, 1.0, 4.0])
def test_lemma_2_1_bounds_fedavg_from_above(gamma2):
    ratios = np.array([0.0, 1, 3, 5, 10, 20, 40])
    bound = toy.lemma_2_1(gamma2, ratios * gamma2)
    assert (np.array([exact_fedavg(r * gamma2, gamma2) for r in ratios]) <= bound).all()
    got, _ = appeal_curve(ratios * gamma2, gamma2, draws=1000)
    assert (got <= bound + 4 * error(np.clip(bound, 1e-3, 0.5), 1000)).all()


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=2), st.sampled_from(sorted(toy.CONVEX)))
def test_lemma_2_2_a_convex_surrogate_is_fedavg(means, surrogate):
    got = toy.convex_minimiser(means, surrogate)
    assert float(got) == pytest.approx(np.mean(means), abs=1e-7)


def test_lemma_2_2_stops_at_two_clients():
    means = [[0.0, 1.0, 5.0]]
    assert toy.convex_minimiser(means, "relu") == pytest.approx(2.0)
    assert toy.convex_minimiser(means, "log") > 2.05
    assert toy.convex_minimiser(means, "exp") == pytest.approx(2.5, abs=0.1)


def test_theorem_2_1_as_printed():
    assert toy.theorem_2_1(0.25) == pytest.approx(np.exp(-4) / 16)
    assert toy.theorem_2_1(1.0) == pytest.approx(0.022992, abs=1e-6)


@pytest.mark.parametrize("gamma2", [0.1, 0.25, 1.0, 4.0])
def test_theorem_2_1_bounds_maxfl_from_below(gamma2):
    """At any local minimum, even if each draw's is the one that appeals to the fewest clients."""
    for gammaG2 in [0.0, 0.5, 0.9, 1.0, 1.1, 1.5, 2.0, 4.0, 25.0, 400.0]:
        means, errors = toy.draw(gammaG2, gamma2, 1000, seed=1)
        found = minima.local_minima(means)
        first = np.searchsorted(found.draw, np.arange(1000))
        fewest = np.minimum.reduceat(found.appeals(errors).mean(axis=-1), first)
        assert fewest.mean() > toy.theorem_2_1(gamma2)


def test_split_point():
    split = minima.split_point()
    assert split == pytest.approx(1.0436, abs=5e-5)
    for y in (split - 1e-9, split + 1e-9):
        ends = [-mpmath.sqrt(y), mpmath.sqrt(y)]
        with mpmath.workdps(40):
            curvature = mpmath.diff(lambda w, m=ends: slope_mp(w, m), 0)
        assert (curvature > 0) == (y < split)


def test_three_minima_between_the_fold_and_the_split():
    fold, split = minima.fold_point(), minima.split_point()
    assert fold == pytest.approx(1.0278, abs=5e-5)
    for y, count in (
        (0.01, 1),
        (1.0, 1),
        (fold - 1e-3, 1),
        (fold + 1e-3, 3),
        (split - 1e-3, 3),
        (split + 1e-3, 2),
        (2.0, 2),
        (1e4, 2),
    ):
        assert len(minima.local_minima([[-np.sqrt(y), np.sqrt(y)]]).draw) == count


def test_weights_of_figure_3():
    gap = np.array([-1e6, -40.0, -1.0, 0.0, 1.0, 40.0, 1e6])
    q = appeal_weight(gap)
    assert q[3] == 0.25 == q.max()
    assert (q == q[::-1]).all()
    assert q[5] == pytest.approx(np.exp(-40), rel=1e-12)
    assert q[0] == q[-1] == 0
    assert np.isnan(appeal_weight(np.nan))


# -------------------------------------------------------------------------------------- the minima


def slope_mp(w, means):
    return mpmath.fsum((w - m) * mpmath.sech((w - m) ** 2 / 2) ** 2 for m in means)


@pytest.mark.parametrize(
    ("gammaG2", "clients", "digits"),
    [(0.5, 2, 40), (1.2, 2, 40), (4.0, 2, 60), (25.0, 2, 200), (64.0, 2, 400), (9.0, 3, 200)],
)
def test_minima_against_many_digits(gammaG2, clients, digits):
    """With enough digits, w can be formed, and the slope and the appeal taken at their word."""
    means, errors = toy.draw(gammaG2, 0.25, 4, seed=5, clients=clients)
    found = minima.local_minima(means)
    appeals = found.appeals(errors)
    assert set(found.draw) == set(range(4))
    with mpmath.workdps(digits):
        for i, (row, k) in enumerate(zip(found.draw, found.anchor, strict=True)):
            that = [mpmath.mpf(float(m)) for m in means[row]]
            truth = [m - mpmath.mpf(float(e)) for m, e in zip(that, errors[row], strict=True)]
            size = mpmath.exp(mpmath.mpf(float(found.log_size[i])))
            start = that[k] + int(found.sign[i]) * size
            w = mpmath.findroot(lambda w, t=that: slope_mp(w, t), start, tol=0, verify=False)
            assert abs((w - that[k]) / (start - that[k]) - 1) < 1e-9
            assert mpmath.diff(lambda w, t=that: slope_mp(w, t), w) > 0
            met = [(w - c) ** 2 < (m - c) ** 2 for m, c in zip(that, truth, strict=True)]
            assert met == appeals[i].tolist()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-4, 4), min_size=2, max_size=5, unique=True))
def test_every_minimum_is_found(means):
    """Against plain grids: no point of them is better, and each of their dips is next to one."""
    if np.diff(np.sort(means)).min() < 1e-3:
        return
    found = minima.local_minima([means])
    w = np.linspace(min(means), max(means), 4001)
    values = toy.objective(w, means)
    at = toy.objective(found.points(), means)
    best = minima.pick(found, "global", generator(0, "test")).points()
    assert at.min() <= values.min() + 1e-12
    assert toy.objective(best, means)[0] == pytest.approx(at.min(), abs=1e-12)
    coarse = np.arange(min(means), max(means), 0.04)
    values = toy.objective(coarse, means)
    inner = (values[1:-1] < values[:-2]) & (values[1:-1] < values[2:])
    for dip in coarse[1:-1][inner]:
        assert np.abs(found.points() - dip).min() < 0.04


def test_a_client_midway_is_not_displaced():
    found = minima.local_minima([[-3.0, 0.0, 3.0]])
    assert found.points().tolist() == pytest.approx([-3, 0, 3], abs=0.01)
    assert found.sign.tolist() == [1, 0, -1]
    assert not found.appeals(np.array([[1.0, 1.0, 1.0]]))[1].any()


def test_the_global_minimum_is_found_where_objectives_agree_to_float64():
    means = np.array([[-100.0, 60.0, 0.0, 61.9], [5.0, 300.0, -90.0, -40.0]])
    assert np.ptp(toy.objective([5.0, -40.0], means[1])) == 0
    for seed in range(5):
        model = minima.pick(minima.local_minima(means), "global", generator(seed, "test"))
        assert model.anchor[0] in (1, 3)
        assert model.anchor[1] in (0, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: toy.draw(-1, 0.25, 10, 0), "gammaG2: -1"),
        (lambda: toy.draw(1, 0, 10, 0), "gamma2: 0"),
        (lambda: toy.draw(1, 1, 10, 0, clients=1), "clients:"),
        (lambda: toy.draw(1, 1, 10, 0, clients=[0, np.inf]), "clients:"),
        (lambda: minima.local_minima([[1.0, 1.0]]), "must differ"),
        (lambda: minima.local_minima([[1.0, np.nan]]), "finite"),
        (lambda: toy.convex_minimiser([0.0, 1.0], "lag"), "did you mean 'log'"),
        (lambda: appeal_curve([1.0], which="globl"), "did you mean 'global'"),
        (lambda: toy.theorem_2_1(-1.0), "gamma2: -1"),
    ],
)
def test_mistakes_are_explained(call, message):
    with pytest.raises(MusterError, match=message):
        call()


def test_the_exact_appeal_of_the_average_is_that_of_many_draws():
    for gammaG2 in (0.0, 0.25, 1.0, 4.0):
        means, errors = toy.draw(gammaG2, 0.25, 200_000, 3)
        share = toy.appeals(means.mean(axis=-1), means, errors).mean()
        assert toy.fedavg_appeal(0.25, gammaG2) == pytest.approx(share, abs=0.003)
    x = np.linspace(0.0, 40.0, 200)
    assert (toy.fedavg_appeal(0.25, x) <= toy.lemma_2_1(0.25, x)).all()
