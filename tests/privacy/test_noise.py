import math

import numpy as np
import pytest
from scipy import stats

from muster import MusterError
from muster.privacy.accountant import delta_of
from muster.privacy.noise import draw_noise, seeded_words, system_words


def test_noise_has_the_distribution_that_the_definition_gives():
    """Against the normalised sum itself, number by number; deviations with and without a
    remainder of 2^64."""
    for deviation in (1, 2, 3, 7):
        drawn = draw_noise(200_000, deviation, seeded_words(0, deviation))
        x = np.arange(-6 * deviation, 6 * deviation + 1)
        p = np.exp(-(x**2) / (2.0 * deviation**2))
        p /= p.sum()
        count = np.array([(drawn == k).sum() for k in x])
        often = p * len(drawn) > 10
        assert stats.chisquare(
            np.append(count[often], len(drawn) - count[often].sum()),
            np.append(p[often], 1 - p[often].sum()) * len(drawn),
        ).pvalue > 1e-4  # fmt: skip


def test_large_noise_has_the_variance_and_tails_of_a_normal():
    deviation, n = 61_234_567, 400_000
    drawn = draw_noise(n, deviation, seeded_words(1, 0)) / deviation
    assert abs(drawn.mean()) < 5 / math.sqrt(n)
    assert abs(drawn.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs(np.mean(drawn**4) - 3) < 5 * math.sqrt(96 / n)
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert np.mean(np.abs(drawn) > 3.5) == pytest.approx(2 * stats.norm.sf(3.5), rel=0.35)


def test_noise_of_the_system_differs_and_seeded_noise_repeats():
    first, second = (draw_noise(50, 10**6) for _ in range(2))
    assert not np.array_equal(first, second)
    again = [draw_noise(50, 10**6, seeded_words(3, 4)) for _ in range(2)]
    np.testing.assert_array_equal(*again)
    assert not np.array_equal(again[0], draw_noise(50, 10**6, seeded_words(3, 5)))
    assert len(set(system_words(1000).tolist())) == 1000


def test_whole_numbers_never_cost_more_than_the_closed_form():
    """The discrete Gaussian's own delta, summed number by number, at the coarsest scale."""
    scale = 2**10
    for z in (0.5, 1.0, 3.0):
        s = math.ceil(z * scale)
        x = np.arange(-14 * s, 14 * s + 1, dtype=np.float64)
        p = np.exp(-(x**2) / (2.0 * s**2))
        loss = (2 * x * scale + scale**2) / (2.0 * s**2)
        for eps in (0.3, 1.0, 3.0):
            delta = (p / p.sum()) @ np.maximum(0.0, 1.0 - np.exp(eps - loss))
            assert 0 <= delta_of(eps, scale / s) - delta < 1e-6


def test_a_deviation_that_is_no_whole_number_is_refused():
    for wrong in (0, 1.5, 2**41):
        with pytest.raises(MusterError, match="deviation"):
            draw_noise(1, wrong)
    assert len(draw_noise(0, 5)) == 0
