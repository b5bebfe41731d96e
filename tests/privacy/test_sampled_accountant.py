"""The account of sampled releases, against integrals, simulation and other accountants."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import norm

from muster import MusterError
from muster.privacy.sampled_accountant import SampledRelease, find_noise, measure_epsilon

KINDS = [(0.01, 1.0, 1000), (0.1, 2.0, 300), (0.3, 4.0, 1000), (0.5, 0.7, 10)]  # rate, noise, count


def gaussian_delta(mu, eps):
    return norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * norm.cdf(-mu / 2 - eps / mu)


def densities(rate, noise):
    """Points, and the logarithms of the densities with a row and without it."""
    y = np.linspace(-30 * noise, 1 + 30 * noise, 400_001)
    without = norm.logpdf(y, 0, noise)
    row = norm.logpdf(y, 1, noise)
    return y, np.logaddexp(math.log1p(-rate) + without, math.log(rate) + row), without


@pytest.mark.parametrize(("noise", "count"), [(6.3755, 60), (1.0, 1), (0.5, 3), (50.0, 10_000)])
def test_without_sampling_it_is_the_gaussians_closed_form(noise, count):
    eps = measure_epsilon([SampledRelease(1.0, noise, count)], 1e-5)
    exact = gaussian_delta(math.sqrt(count) / noise, eps)
    assert exact <= 1e-5, "never below the truth"
    assert gaussian_delta(math.sqrt(count) / noise, eps * 0.998) > 1e-5


def test_releases_of_different_noise_add_up():
    mixed = [SampledRelease(1.0, 3.0, 9), SampledRelease(1.0, 2.0, 4)]
    eps = measure_epsilon(mixed, 1e-4)
    assert gaussian_delta(math.sqrt(2), eps) == pytest.approx(1e-4, rel=0.01)


@pytest.mark.parametrize(("rate", "noise", "_"), KINDS)
def test_one_release_agrees_with_the_integral_of_its_densities(rate, noise, _):
    delta = 1e-3 * rate
    eps = measure_epsilon([SampledRelease(rate, noise)], delta)
    y, p, q = densities(rate, noise)

    def integral(a, b, eps):
        return np.trapezoid(np.maximum(0.0, np.exp(a) - np.exp(eps + b)), y)

    assert max(integral(p, q, eps), integral(q, p, eps)) <= delta * 1.001
    assert max(integral(p, q, eps * 0.99), integral(q, p, eps * 0.99)) > delta


def test_many_releases_agree_with_their_simulation():
    """delta = E[(1 - e^(eps - loss))+] over the sum of 20 losses, drawn a million times."""
    rate, noise, count, draws = 0.2, 1.5, 20, 1_000_000
    eps = measure_epsilon([SampledRelease(rate, noise, count)], 0.02)
    draw, total = np.random.default_rng(7), np.zeros(draws)
    for _ in range(count):
        y = draw.normal(0, noise, draws) + (draw.random(draws) < rate)
        total += np.log1p(rate * np.expm1((2 * y - 1) / (2 * noise**2)))
    gap = np.maximum(0.0, 1 - np.exp(eps - total))
    error = gap.std() / math.sqrt(draws)
    assert abs(gap.mean() - 0.02) < 4 * error
    assert error < 2e-4, "a difference of a hundredth would show"


@pytest.mark.parametrize(("rate", "noise", "count"), KINDS)
def test_it_is_below_the_bound_by_renyi_divergences(rate, noise, count):
    """Their integrals composed and converted by Mironov (2017): true, and looser."""
    y, p, q = densities(rate, noise)

    def renyi(order):
        return math.log(np.trapezoid(np.exp(order * p + (1 - order) * q), y)) / (order - 1)

    bound = min(count * renyi(a) + math.log(1e5) / (a - 1) for a in (1.5, 2, 3, 4, 6, 8, 12, 16))
    eps = measure_epsilon([SampledRelease(rate, noise, count)], 1e-5)
    assert 0.5 * bound < eps < bound


def test_the_noise_found_keeps_what_was_asked():
    def releases(z):
        return [SampledRelease(0.1, z, 300), SampledRelease(1.0, 4 * z, 60)]

    z = find_noise(releases, 2.0, 1e-5)
    assert measure_epsilon(releases(z), 1e-5) <= 2.0 < measure_epsilon(releases(z * 0.995), 1e-5)


def test_noise_that_protects_nothing_has_no_epsilon():
    assert measure_epsilon([SampledRelease(1.0, 0.05, 10)], 1e-5) == math.inf


def test_nothing_released_costs_nothing():
    assert measure_epsilon([], 1e-5) == 0.0
    assert measure_epsilon([SampledRelease(0.1, 1.0, 0)], 1e-5) == 0.0


def test_what_cannot_be_accounted_is_refused():
    with pytest.raises(MusterError, match="rate: 0"):
        SampledRelease(0.0, 1.0)
    with pytest.raises(MusterError, match="delta"):
        measure_epsilon([SampledRelease(0.1, 1.0)], 1e-12)
    with pytest.raises(MusterError, match="noise"):
        SampledRelease(1.0, 0.001)
    with pytest.raises(MusterError, match="is so little that the account does not fit"):
        measure_epsilon([SampledRelease(1.0, 0.05, 10**7)], 1e-5)


PEERS = ["dp-accounting==0.6.0", "opacus==1.6.0", "absl-py", "attrs<24", "dm-tree", "mpmath"]
SCRIPT = """
import json, sys
from dp_accounting.pld import privacy_loss_distribution as pld
from opacus.accountants import RDPAccountant
found = []
for rate, noise, count in json.loads(sys.argv[1]):
    one = pld.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=1e-4)
    renyi = RDPAccountant()
    renyi.history = [(noise, rate, count)]
    tight = one.self_compose(count).get_epsilon_for_delta(1e-5)
    found.append([tight, renyi.get_epsilon(1e-5)])
print(json.dumps(found))
"""


@pytest.mark.slow
def test_other_accountants_agree(tmp_path):
    """Google's privacy loss distributions to a part in a thousand; Opacus' Renyi bound is above."""
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path)]
    got = subprocess.run([*install, *PEERS, "opt-einsum"], capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"pip install {' '.join(PEERS)}: {got.stderr.strip().splitlines()[-1]}")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(KINDS)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    for (rate, noise, count), (tight, loose) in zip(KINDS, json.loads(done.stdout), strict=True):
        eps = measure_epsilon([SampledRelease(rate, noise, count)], 1e-5)
        assert tight * 0.9999 < eps < tight * 1.001
        assert eps < loose
