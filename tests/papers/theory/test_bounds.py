"""Theorem 1 and A.9: the bound's terms, each error of the printed form, and the repaired one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.papers.theory import bounds
from muster.papers.theory.convex import Constants


def constants(**given):
    made = Constants(
        mu=0.5, L=1.0, X=1.0, G2=8.0, sigma2=0.2, w_star=np.zeros((2, 2)), F_star=0.1,
        F_k_star=np.zeros(3), Gamma=0.3, Gamma_k=np.array([0.1, 0.5, 0.9]), start2=2.0, start=0.6,
    )  # fmt: skip
    return replace(made, **given)


def test_terms_of_the_bound():
    extra, bias = np.array([0.0, 1.0, 3.0]), np.array([0.0, 0.5, 0.9])
    steps, gamma, L, mu = 2, 8.0, 3.0, 0.5
    T = 6
    per = [extra[i // 2] for i in range(T)]
    theta = sum(1 / (1 + s) for s in per[1:]) / (T + gamma - 2)
    drift = sum(bias[i // 2] / (1 + extra[i // 2]) for i in range(1, T))
    rho = 2 * L / (mu * (T + gamma - 2)) * drift
    assert bounds.bound_terms(extra, bias, steps, gamma, L, mu) == pytest.approx((theta, rho))
    # After each round they are those of the rounds so far.
    thetas, rhos = bounds.terms_by_round(extra, bias, steps, gamma, L, mu, first=0)
    for t in (1, 2, 3):
        some = bounds.bound_terms(extra[:t], bias[:t], steps, gamma, L, mu, first=0)
        assert (thetas[t - 1], rhos[t - 1]) == pytest.approx(some)
    assert np.isnan(bounds.bound_terms(extra, None, steps, gamma, L, mu)[1])


def test_the_bound_from_its_parts():
    c, extra, bias = constants(), np.array([0.0, 1.0]), np.array([0.0, 0.5])
    frame = bounds.bound_by_round(c, extra, bias, steps=3)
    assert frame["T"].to_list() == [3, 6, 3, 6]
    gamma = 16.0  # 8 L / mu
    (row,) = frame.filter((frame["form"] == "repaired") & (frame["T"] == 6)).to_dicts()
    C1 = 2 * 1 / 0.25 * (0.2 + 8 * 4 * 8) + 1 * gamma / 2 * 2
    theta = (3 * 1 + 3 / 2) / (6 + gamma - 2)
    rho = 2 * 1 / 0.5 / (6 + gamma - 2) * 3 * 0.5 / 2
    assert row["C1"] == pytest.approx(C1)
    assert row["theta"] == pytest.approx(theta)
    assert row["rho"] == pytest.approx(rho)
    assert row["bound"] == pytest.approx((C1 + 12 / 0.25 * theta * 0.3) / (6 + gamma) + rho)
    # Seeds are averaged term by term, not their admissions.
    two = bounds.bound_by_round(c, np.array([extra, 3 * extra]), np.array([bias, 0 * bias]), 3)
    (row,) = two.filter((two["form"] == "repaired") & (two["T"] == 6)).to_dicts()
    assert row["theta"] == pytest.approx((theta + (3 + 3 / 4) / (6 + gamma - 2)) / 2)
    assert row["rho"] == pytest.approx(rho / 2)


# --------------------------------------------------------------------- what is printed and is wrong


def test_error_1_the_distance_holds_only_at_gamma_8_L_over_mu():
    c = constants(sigma2=0.0, G2=0.0)
    for steps in (1, 8, 16, 17, 100):
        gamma = bounds.offset(c, steps)
        printed, repaired = (bounds.first_constant(c, steps, form) for form in bounds.FORMS)
        # At T = 0 the induction asks for L/2 |w_0 - w*|^2.
        needed = c.L / 2 * c.start2
        assert repaired / gamma == pytest.approx(needed)
        assert (printed / gamma < needed * (1 - 1e-9)) == (steps > 16)


def recursion(c, steps, S, D, drawn=None):
    """`Delta_t` of Lemma A.6 with equality, the worst that it allows, for every t. With `drawn` = K
    a step that communicates adds Lemma A.8's `4 eta_t^2 E^2 G^2 / K`, less by 1/(1 + S)^2."""
    delta = [c.start2]
    for t in range(len(S)):
        eta = bounds.rate_at(c, steps, t)
        B = 8 * (steps - 1) ** 2 * c.G2 + c.sigma2 + 6 * c.L * c.Gamma / (1 + S[t])
        if drawn is not None and (t + 1) % steps == 0:
            B += 4 * steps**2 * c.G2 / (drawn * (1 + S[t]) ** 2)
        delta.append((1 - eta * c.mu) * delta[-1] + eta**2 * B + eta * 2 * D[t] / (1 + S[t]))
    return np.array(delta[1:])


def repaired_bound(c, extra, bias, steps, drawn=None):
    told = bounds.bound_by_round(c, extra, bias, steps, drawn)
    return told.filter(told["form"] == "repaired")["bound"].to_numpy()


def printed_bound(c, extra, bias, steps, drawn=None):
    told = bounds.bound_by_round(c, extra, bias, steps, drawn)
    return told.filter(told["form"] == "printed")["bound"].to_numpy()


def test_error_2_the_sums_lose_the_first_step():
    c = constants(start2=0.0, sigma2=0.0, Gamma=0.0)
    S, D = np.array([1.0, 1.0]), np.array([0.9, 0.9])
    worst = c.L / 2 * recursion(c, 1, S, D)
    assert printed_bound(c, S, D, 1)[0] == 0 < worst[0] <= repaired_bound(c, S, D, 1)[0]
    # A.9's term hides it, until K is large.
    for K, broken in ((1, False), (2000, True)):
        worst = c.L / 2 * recursion(c, 1, S, D, K)
        assert (printed_bound(c, S, D, 1, K)[0] < worst[0]) == broken
        assert worst[0] <= repaired_bound(c, S, D, 1, K)[0]
    # With more local steps, or batches that leave something to chance, it is not 0.
    assert printed_bound(c, S, D, 2)[0] > 0
    assert printed_bound(constants(start2=0.0, Gamma=0.0), S, D, 1)[0] > 0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 5), st.floats(0, 2)), min_size=1, max_size=30),
    st.integers(1, 40), st.floats(1, 20), st.floats(0, 3), st.floats(0, 2), st.floats(0, 2),
    st.one_of(st.none(), st.integers(1, 50)),
)  # fmt: skip
def test_the_repaired_bound_follows_from_lemma_a_6(rounds, steps, L, start2, sigma2, Gamma, drawn):
    """Whatever is admitted, at every T, at the worst that one step may do; also with K drawn."""
    c = constants(L=L, start2=start2, sigma2=sigma2, Gamma=Gamma)
    extra, bias = np.array(rounds).T
    every = np.repeat(extra, steps), np.repeat(bias, steps)
    worst = c.L / 2 * recursion(c, steps, *every, drawn)[steps - 1 :: steps]
    assert (worst <= repaired_bound(c, extra, bias, steps, drawn) * (1 + 1e-9)).all()
    if drawn is not None:  # half of the draw's term is enough: eq. 58 doubles Lemma A.8's
        assert (worst <= repaired_bound(c, extra, bias, steps, 2 * drawn) * (1 + 1e-9)).all()


def test_a_9_needs_its_term():
    c, none = constants(start2=0.0, Gamma=0.0), np.zeros(500)
    worst = c.L / 2 * recursion(c, 1, none, none, drawn=1)
    assert (worst > 2 * repaired_bound(c, none, none, 1)).all()
    assert worst[-1] > 0.9 * repaired_bound(c, none, none, 1, drawn=2)[-1]  # and half is needed


def test_error_3_theta_at_eps_0_and_eq_35():
    c, rounds = constants(), 1000
    told = bounds.bound_by_round(c, np.zeros(rounds), np.zeros(rounds), steps=2)
    T, gamma = 2 * rounds, bounds.offset(c, 2)
    by_form = {row["form"]: row for row in told.filter(told["T"] == T).to_dicts()}
    assert by_form["printed"]["theta"] == pytest.approx((T - 1) / (T + gamma - 2))
    assert by_form["printed"]["theta"] < 0.995
    assert by_form["repaired"]["theta"] == pytest.approx(T / (T + gamma - 2))
    # Without its 1/(T + gamma), eq. 35 does not even fall with T.
    for row in by_form.values():
        eq_35 = row["C1"] + row["C2"] * row["theta"] * c.Gamma + row["rho"]
        assert eq_35 > 100 > c.start
    early = told.filter(told["T"] == 2)["bound"].to_list()
    assert all(by_form[form]["bound"] < early[i] / 50 for i, form in enumerate(bounds.FORMS))


def test_error_4_a_9_needs_gamma_of_at_least_E():
    """Lemma A.4 rests on `eta_tau(t) <= 2 eta_t` through a round's E steps."""
    c, steps = constants(), 40
    printed = bounds.offset(c, steps, "printed", drawn=4)
    assert printed == 8 * c.L / c.mu == 16
    assert (steps - 1 + printed) / printed > 2
    assert bounds.rate_at(c, steps, 0) <= 2 * bounds.rate_at(c, steps, steps - 1)
    # Theorem 1 prints the larger one, and A.9's is the same while E is small.
    assert bounds.offset(c, steps, "printed") == bounds.offset(c, steps) == 40
    assert bounds.offset(c, 5, "printed", 4) == bounds.offset(c, 5, "repaired", 4) == 16
    # The printed bound is made with it.
    none = np.zeros(3)
    C1 = bounds.first_constant(c, steps, "printed", 4)
    theta = (120 - 1) / (120 + 16 - 2)
    told = (C1 + bounds.second_constant(c) * theta * c.Gamma) / (120 + 16)
    assert printed_bound(c, none, none, steps, 4)[-1] == pytest.approx(told)


def test_a_9_adds_the_draw_of_K():
    c = constants()
    for form in bounds.FORMS:
        more = bounds.first_constant(c, 5, form, drawn=4) - bounds.first_constant(c, 5, form)
        assert more == pytest.approx(2 * c.L / c.mu**2 * 8 * 25 * c.G2 / 4)


@pytest.mark.parametrize("start", [0.05, 0.6, 5.0, 1e4])
@pytest.mark.parametrize("steps", [1, 5])
def test_from_which_T_on_the_bound_says_something(start, steps):
    c = constants(start=start)
    parts = bounds.first_constant(c, steps, "repaired"), bounds.second_constant(c), c.Gamma
    gamma = bounds.offset(c, steps)
    T = bounds.informative_from(*parts, gamma, start)
    rounds = np.zeros(max(math.ceil(T / steps), 1) + 2)
    told = repaired_bound(c, rounds, rounds, steps)
    for t, value in enumerate(told, 1):
        assert (value < start) == (t * steps > T)
    assert bounds.informative_from(*parts, gamma, 0.0) == math.inf
