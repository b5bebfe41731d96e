import math
from itertools import product

import mpmath
import numpy as np
import pytest
from scipy import stats

import muster
from muster.privacy.accountant import delta_of, epsilon, noise_for


@pytest.mark.parametrize(("eps", "z"), [(8, 3.72), (4, 6.38), (2, 11.19)])
def test_the_noise_of_sixty_rounds_is_that_of_the_worked_example(eps, z):
    assert round(noise_for(eps, 60, 1e-3), 2) == z


@pytest.mark.parametrize(("eps", "z"), [(8, 2.15), (4, 3.68), (2, 6.46)])
def test_twenty_contributions_need_a_root_of_three_less(eps, z):
    assert round(noise_for(eps, 20, 1e-3), 2) == z
    assert noise_for(eps, 20, 1e-3) == pytest.approx(noise_for(eps, 60, 1e-3) / math.sqrt(3))


def test_public_names_are_in_the_package():
    assert muster.privacy.epsilon is epsilon
    assert muster.privacy.noise_for is noise_for
    assert muster.privacy.epsilon(6.3755, 60, 1e-3) == pytest.approx(4.0, abs=5e-5)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 6.0, 40.0])
@pytest.mark.parametrize("eps", [0.0, 1e-3, 1.0, 12.0, 300.0])
def test_delta_is_the_closed_form_in_a_hundred_digits(mu, eps):
    with mpmath.workdps(100):
        m, e = mpmath.mpf(mu), mpmath.mpf(eps)
        exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
    assert delta_of(eps, mu) == pytest.approx(float(exact), rel=1e-9, abs=1e-300)


def test_delta_is_the_area_between_two_normal_densities():
    """The definition itself: the integral of the positive part of p - e^eps q."""
    mu, x = 1.3, np.linspace(-15, 17, 2_000_001)
    for eps in (0.2, 1.0, 3.0):
        gap = stats.norm.pdf(x, mu) - math.exp(eps) * stats.norm.pdf(x)
        assert delta_of(eps, mu) == pytest.approx(np.trapezoid(np.maximum(gap, 0), x), abs=1e-9)


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2])
@pytest.mark.parametrize("releases", [1, 60, 10_000])
def test_noise_and_epsilon_are_inverse_and_on_the_safe_side(delta, releases):
    z = noise_for(1.5, releases, delta)
    assert epsilon(z, releases, delta) == pytest.approx(1.5, rel=1e-9)
    mu = math.sqrt(releases) / z
    assert delta_of(1.5, mu) <= delta
    assert delta_of(epsilon(0.7, releases, delta), math.sqrt(releases) / 0.7) <= delta


def test_nothing_released_costs_nothing_and_much_noise_next_to_nothing():
    assert epsilon(1.0, 0, 1e-6) == 0.0
    assert epsilon(1e9, 10, 1e-3) == 0.0


@pytest.mark.parametrize("releases", [1e-300, 1, 10**6, 1e300])
def test_extreme_arguments_are_finite_and_on_the_safe_side(releases):
    for eps, delta in product(
        (1e-9, 1e-3, 1e3, 1e12, 1e300), (5e-324, 1e-300, 1e-5, 0.5, 1 - 1e-12)
    ):
        z = noise_for(eps, releases, delta)
        assert 0 < z < math.inf
        assert delta_of(eps, math.sqrt(releases) / z) <= delta
        assert epsilon(z, releases, delta) <= eps * (1 + 1e-9)
        if delta < 0.1 and eps < 1e12:  # and not more than what is needed
            assert delta_of(eps, math.sqrt(releases) / (0.999 * z)) > delta
    assert epsilon(1e-320, releases, 1e-5) == math.inf  # beyond any float


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: epsilon(0, 1, 0.1), "noise: 0; allowed: above 0"),
        (lambda: epsilon(1, -1, 0.1), "releases: -1; allowed: 0 and above"),
        (lambda: epsilon(1, 1, 0), "delta: 0; allowed: above 0, below 1"),
        (lambda: noise_for(0, 1, 0.1), "epsilon: 0; allowed: above 0"),
        (lambda: noise_for(1, 0, 0.1), "releases: 0; allowed: above 0"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(call, message):
    with pytest.raises(muster.MusterError, match=message):
        call()


def test_a_client_that_chooses_when_to_join_spends_what_its_budget_says():
    """A Monte Carlo of the filter: the client joins by what it has seen released, at most R times.

    The privacy loss of the releases at eps is compared with the closed form of R contributions;
    the client here joins when the loss so far is low, which is when it would do the most harm.
    """
    rounds, joins, z, plays = 40, 10, 2.0, 400_000
    draw = np.random.default_rng(3)
    loss, left = np.zeros(plays), np.full(plays, joins)
    for t in range(rounds):
        must = left >= rounds - t  # so that every play ends with its budget spent
        join = (left > 0) & ((loss < 0.5) | must)
        y = draw.normal(size=plays) * z + join  # the client adds 1 where it joins
        loss += np.where(join, (2 * y - 1) / (2 * z**2), 0.0)
        left -= join
    assert not left.any()
    for eps in (0.5, 1.0, 2.0):
        seen = np.maximum(0, 1 - np.exp(eps - loss))
        exact = delta_of(eps, math.sqrt(joins) / z)
        assert abs(seen.mean() - exact) < 4 * seen.std() / math.sqrt(plays)


@pytest.mark.slow
def test_the_closed_form_is_the_privacy_loss_distribution_of_another_library():
    pld = pytest.importorskip(
        "dp_accounting.pld",
        reason="pip install 'attrs<24' dp-accounting (in an environment of its own)",
        exc_type=ImportError,
    )
    base = pytest.importorskip("dp_accounting")
    for z, releases, delta in ((6.3755, 60, 1e-3), (1.1, 7, 1e-6), (2.15, 20, 1e-3)):
        accountant = pld.PLDAccountant(base.NeighboringRelation.ADD_OR_REMOVE_ONE)
        accountant.compose(base.GaussianDpEvent(z), releases)
        assert epsilon(z, releases, delta) == pytest.approx(accountant.get_epsilon(delta), rel=2e-4)
