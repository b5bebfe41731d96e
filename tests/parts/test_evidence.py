"""Evidence: the quadratic programme against its optimality conditions and another solver, and
Stein's estimate against the true risk of Gaussian clients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from muster.base.params import group_by_layer
from muster.parts.evidence import (
    EVIDENCE,
    LEAST_NOISE,
    MOST_CLIENTS,
    CrossFit,
    FedDA,
    Stein,
    minimise,
    products,
    scale_layers,
)
from muster.parts.tracks import SPREAD, VALIDATION
from softmax_clients import replies


def problem(seed, n, p, size, kind):
    """(G, c) of n helpers in p dimensions; the last helper may be a copy of the first."""
    draw = np.random.default_rng(seed)
    d = draw.normal(size=(n, p)) * size + draw.normal(size=p) * size * draw.random()
    if kind == "copies" and n > 1:
        d[-1] = d[0]
    gram = d @ d.T
    v = float(np.trace(gram)) / n * 10 ** draw.uniform(-3, 2)
    return gram, np.full(n, v) if kind == "stein" else v * draw.normal(size=n)


@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.integers(1, 20),
    st.sampled_from([1e-6, 1.0, 1e6]),
    st.sampled_from(["stein", "any", "copies"]),
)
@settings(max_examples=200, deadline=None)
def test_weights_meet_the_conditions_of_an_optimum(seed, n, p, size, kind):
    """a >= 0, sum a <= 1; the derivative of a'Ga - 2c'a is some -lambda where a > 0 and no less
    elsewhere, with lambda = 0 unless the sum is 1 (Karush, Kuhn and Tucker)."""
    gram, c = problem(seed, n, p, size, kind)
    a = minimise(gram, c)
    slope = 2 * (gram @ a - c)
    unit = max(float(np.trace(gram)) / n, float(np.abs(c).max()))
    assert a.min() >= 0
    assert a.sum() <= 1 + 1e-9
    multiplier = max(0.0, float(-slope.min()))
    assert multiplier <= 1e-5 * unit or a.sum() > 1 - 1e-5
    assert (slope >= -multiplier - 1e-5 * unit).all()
    assert (np.abs(slope + multiplier)[a > 1e-5] <= 1e-4 * unit).all()


@pytest.mark.parametrize("seed", range(20))
def test_another_solver_finds_nothing_better(seed):
    gram, c = problem(seed, 6, 9, 1.0, "stein" if seed % 2 else "any")
    a = minimise(gram, c)

    def value(x):
        return x @ gram @ x - 2 * c @ x

    found = minimize(
        value,
        np.full(6, 1 / 12),
        jac=lambda x: 2 * (gram @ x - c),
        bounds=[(0, 1)] * 6,
        constraints=[{"type": "ineq", "fun": lambda x: 1 - x.sum()}],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert value(a) <= value(found.x) + 1e-5 * max(1.0, abs(found.fun))


@pytest.mark.parametrize(("v", "weight"), [(0.0, 0.0), (1.0, 0.25), (4.0, 1.0), (99.0, 1.0)])
def test_one_helper_gets_v_over_its_squared_distance(v, weight):
    assert minimise(np.array([[4.0]]), np.array([v])) == pytest.approx([weight], abs=1e-7)


def test_nothing_is_added_where_nothing_is_gained():
    gram = np.array([[2.0, 0.5], [0.5, 1.0]])
    assert minimise(gram, np.array([-1.0, 0.0])).tolist() == [0.0, 0.0]
    assert minimise(gram, np.array([0.0, 0.0])).tolist() == [0.0, 0.0]
    assert minimise(np.zeros((0, 0)), np.zeros(0)).tolist() == []
    assert minimise(np.zeros((2, 2)), np.array([1.0, 1.0])).tolist() == [0.5, 0.5]


def weights(models, priority, claim, **more):
    return Stein()(replies(models, priority, claim, **more), np.ones(len(claim)), {})


def test_weights_are_those_of_the_mixture():
    """One priority client at 0 with variance 1, a helper at distance 2: a quarter of the way."""
    assert weights([[0.0, 0.0], [2.0, 0.0]], [True, False], [1.0, 0.0]) == pytest.approx(
        [0.75, 0.25], abs=1e-7
    )


def test_helpers_that_agree_with_each_other_on_average_count_together():
    """Two helpers on opposite sides make up one good one: their mean is the priority's reply."""
    got = weights([[0.0, 0.0], [5.0, 0.0], [-5.0, 0.0]], [True, False, False], [1.0, 0.0, 0.0])
    assert got == pytest.approx([0.0, 0.5, 0.5], abs=1e-4)


def test_without_the_objective_nobody_counts():
    assert weights([[1.0], [2.0]], [False, False], [0.0, 0.0]).tolist() == [0.0, 0.0]


def test_weights_sum_to_one_and_priority_clients_keep_their_proportions():
    got = weights(
        [[0.0], [1.0], [9.0]], [True, True, False], [0.3, 0.2, 0.0], share=[3.0, 1.0, 2.0]
    )
    assert got.sum() == pytest.approx(1)
    assert got[0] == pytest.approx(3 * got[1])


@given(st.integers(0, 10**6), st.integers(1, 8), st.sampled_from([1e-3, 1.0, 1e6]))
@settings(max_examples=100, deadline=None)
def test_whatever_helpers_send_the_step_moves_at_most_one_standard_error(seed, n, far):
    """Adversaries anywhere, in any number: |step - m_P|^2 <= v."""
    draw = np.random.default_rng(seed)
    v = draw.random() * 2
    models = np.concatenate([draw.normal(size=(1, 5)), draw.normal(size=(n, 5)) * far])
    w = weights(models, [True] + [False] * n, [v, *[0.0] * n])
    moved = ((w @ models - models[0]) ** 2).sum()
    assert moved <= v * (1 + 1e-4) + 1e-9


def two_layers(seed, n, far, noise, members=1):
    """Replies of models of two layers, and each member's v_k in both."""
    draw = np.random.default_rng(seed)
    sizes = {"0.weight": (4, 3), "0.bias": (4,), "2.weight": (2, 4)}
    every = members + n
    scale = np.where(np.arange(every) < members, 1.0, far)
    models = {k: draw.normal(size=(every, *s)) * scale.reshape(-1, *[1] * len(s))
              for k, s in sizes.items()}  # fmt: skip
    v = np.array(noise) * (0.5 + draw.random((members, 2)))
    claim = np.append(v.sum(1), np.zeros(n))
    share = np.concatenate([v / v.sum(1)[:, None], np.zeros((n, 2))])
    given = replies(np.zeros((every, 1)), [True] * members + [False] * n, claim)
    tensors = {k: torch.from_numpy(t) for k, t in models.items()}
    extra = {SPREAD: {"share": torch.from_numpy(share)}}
    given = replace(given, models=tensors, extra=extra, trainable=tuple(tensors))
    layers = group_by_layer(tensors).values()
    flat = [np.concatenate([models[k].reshape(every, -1) for k in names], 1) for names in layers]
    return given, flat, v


@pytest.mark.parametrize("members", [1, 2])
def test_layers_are_measured_in_units_of_their_noise(members):
    """The same weights as from vectors that are divided by each layer's own standard error."""
    given, flat, v = two_layers(3, 3, 0.5, (5.0, 0.1), members)
    b = np.full(members, 1 / members)
    v_l = b**2 @ v
    units = [part / np.sqrt(v_l[i] / v_l.mean()) for i, part in enumerate(flat)]
    whole = np.concatenate(units, 1)
    own = whole[:members].mean(0)
    a = minimise((whole[members:] - own) @ (whole[members:] - own).T, np.full(3, v_l.sum()))
    found = Stein()(given, np.ones(members + 3), {})
    assert found[members:] == pytest.approx(a, abs=1e-9)
    assert 0 < a.sum() < 1
    plain = Stein()(replace(given, extra={}), np.ones(members + 3), {})
    assert np.abs(found - plain).max() > 0.05
    by_itself = FedDA()(given, np.ones(members + 3), {})
    assert (by_itself == FedDA()(replace(given, extra={}), np.ones(members + 3), {})).all()


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from([1e-3, 1.0, 1e6]))
@settings(max_examples=100, deadline=None)
def test_whatever_helpers_send_no_layer_moves_far(seed, n, far):
    """The mean over layers of |step_l|^2 / v_l is at most 1."""
    given, flat, v = two_layers(seed, n, far, (3.0, 0.2))
    weight = Stein()(given, np.ones(1 + n), {})
    moved = [((weight @ part - part[0]) ** 2).sum() / v[0, i] for i, part in enumerate(flat)]
    assert np.mean(moved) <= 1 + 1e-6


def test_a_small_difference_where_nothing_is_uncertain_is_a_large_one():
    given, _, _ = two_layers(0, 1, 1.0, (1.0, 1.0))
    for name, t in given.models.items():
        t[1] = t[0] + (0.1 if name.startswith("2.") else 0.0)

    def weigh(share):
        extra = {SPREAD: {"share": torch.tensor([share, [0.0, 0.0]])}}
        return Stein()(replace(given, extra=extra), np.ones(2), {})[1]

    assert weigh([0.5, 0.5]) > 0.99
    assert weigh([0.999999, 0.000001]) < 0.01
    assert np.isfinite(weigh([1.0, 0.0]))
    assert np.isfinite(weigh([0.0, 0.0]))


def test_the_scales_of_layers():
    assert scale_layers(np.array([7.0])).tolist() == [1.0]
    assert scale_layers(np.zeros(3)).tolist() == [1.0, 1.0, 1.0]
    noise = np.array([0.0, 1e-3, 5.0])
    scales = scale_layers(noise)
    assert (scales * noise)[1:] == pytest.approx([noise.mean()] * 2)
    assert scales[0] == pytest.approx(1 / LEAST_NOISE)


@pytest.mark.parametrize("seed", range(5))
def test_products_are_those_of_numpy(seed):
    draw = np.random.default_rng(seed)
    n = int(draw.integers(2, 7))
    models = {k: torch.from_numpy(draw.normal(size=(n, *s))) for k, s in
              {"a": (3, 2), "b": (5,), "left_out": (4,)}.items()}  # fmt: skip
    target = {k: torch.from_numpy(draw.normal(size=t.shape)) for k, t in models.items()}
    base = draw.random(n) * (np.arange(n) < 2)
    base, helpers = base / base.sum(), np.arange(n) > 0
    gram, gain, length = products(models, base, helpers, ("a", "b"), target)
    x, z = (
        np.concatenate([t[k].reshape(n, -1).numpy() for k in ("a", "b")], 1)
        for t in (models, target)
    )
    away, t = (x - base @ x)[helpers], base @ z - base @ x
    np.testing.assert_allclose(gram, away @ away.T, rtol=1e-12)
    np.testing.assert_allclose(gain, away @ t, rtol=1e-12, atol=1e-12)
    assert length == pytest.approx(t @ t, rel=1e-12)
    assert (gram == gram.T).all()


def weights_over_rounds(rounds, priority):
    """The weights of the last of some rounds, each of models and claims, from the sums of all."""
    rule, ones = Stein(pooled=True), np.ones(len(priority))
    server = rule.memory(len(priority))
    for models, claim in rounds:
        got = replies(models, priority, claim)
        server = server | rule.learn(got, ones, server)
        weight = rule(got, ones, server)
    return weight


def test_evidence_adds_up_over_rounds_and_the_first_round_is_by_itself():
    """Distances 2 then 4, variances 1 then 3: (1 + 3) / (4 + 16), and no more than sqrt(3) far."""
    rounds = [([[0.0], [2.0]], [1.0, 0.0]), ([[1.0], [5.0]], [3.0, 0.0])]
    first = weights_over_rounds(rounds[:1], [True, False])
    assert first == pytest.approx(weights(rounds[0][0], [True, False], rounds[0][1]))
    assert weights_over_rounds(rounds, [True, False]) == pytest.approx([0.8, 0.2], abs=1e-6)
    quiet = [*rounds, ([[0.0], [4.0]], [0.01, 0.0])]  # hardly any noise: 0.1 of the way of 4
    assert weights_over_rounds(quiet, [True, False]) == pytest.approx([0.975, 0.025], abs=1e-6)


@given(st.integers(0, 10**6), st.integers(1, 8), st.sampled_from([1e-3, 1.0, 1e6]))
@settings(max_examples=50, deadline=None)
def test_nobody_saves_up_trust_to_spend_it_in_one_round(seed, n, far):
    """Whatever helpers sent in the rounds before: |step - m_P|^2 <= v of this round."""
    draw = np.random.default_rng(seed)
    v = draw.random() * 2
    priority, last = [True] + [False] * n, draw.normal(size=(n + 1, 5)) * ([[1]] + [[far]] * n)
    before = [(draw.normal(size=(n + 1, 5)) / 9, [5.0, *[0.0] * n]) for _ in range(4)]
    w = weights_over_rounds([*before, (last, [v, *[0.0] * n])], priority)
    assert ((w @ last - last[0]) ** 2).sum() <= v * (1 + 1e-4) + 1e-9


def test_one_absurd_reply_ends_the_help_of_no_other():
    """Helper 2 sends once what is a million times too long: helper 1 counts as if it had not."""
    honest = ([[0.0], [2.0], [2.0]], [1.0, 0.0, 0.0])
    absurd = ([[0.0], [2.0], [-2e6]], [1.0, 0.0, 0.0])
    got = weights_over_rounds([honest, absurd, honest], [True, False, False])
    assert got == pytest.approx([0.75, 0.25, 0.0], abs=1e-6)


def test_a_mixture_by_many_rounds_follows_the_noise_of_one_less():
    """Helpers of the same truth, noise drawn in every round: the true risk of the weights in a new
    round is lower by sums than by the last round alone."""
    draw = np.random.default_rng(5)
    n, p, sigma = 12, 6, 1.0
    priority, risks = [True] + [False] * n, []
    for _ in range(40):
        size = np.append(sigma, draw.uniform(0.5, 3.0, n))[:, None]
        rounds = [
            (size * draw.normal(size=(n + 1, p)), [p * sigma**2, *[0.0] * n]) for _ in range(10)
        ]
        both = [weights_over_rounds(some, priority) for some in (rounds, rounds[-1:])]
        risks.append([(w**2 @ size[:, 0] ** 2) * p for w in both])
    sums, one = np.transpose(risks)
    assert sums.mean() < 0.8 * one.mean()


def test_sums_are_kept_where_asked_for_and_not_of_too_many_clients():
    rule = Stein(pooled=True)
    assert not Stein().memory(2)
    assert not rule.memory(MOST_CLIENTS + 1)
    got, ones = replies([[0.0], [2.0]], [True, False], [1.0, 0.0]), np.ones(2)
    assert not rule.learn(got, ones, {})
    kept = rule.memory(2)
    nobody = replies([[0.0], [2.0]], [False, False], [1.0, 0.0])
    assert not rule.learn(nobody, ones, kept), "a round without the objective is no evidence"
    assert set(kept[EVIDENCE]) == {"gram", "gain", "round_gram", "round_gain"}


def risk_of(a, helpers, own, mu):
    """Squared distance of the mixture to the truth, over draws."""
    return ((own + np.einsum("j,tjp->tp", a, helpers - own[:, None]) - mu) ** 2).sum(1)


@pytest.mark.parametrize("importance", [0.0, 0.5])
def test_the_estimate_of_risk_is_unbiased(importance):
    """Gaussian clients, weights fixed before the draw: the mean of `a'Ga - 2c'a` over 40,000
    draws, plus v, is the mean squared distance to the truth. A helper that is itself in the
    objective (importance 0.5) shares noise with m_P: its c is smaller."""
    draw = np.random.default_rng(1)
    p, n, trials = 6, 3, 40_000
    mu = draw.normal(size=p)
    centres = mu + draw.normal(size=(n, p)) * 0.7
    sigma, sigmas = 0.8, np.array([0.3, 0.5, 0.4])
    a = np.array([0.2, 0.3, 0.1])
    own = mu + draw.normal(size=(trials, p)) * sigma / np.sqrt(p)
    helpers = centres + draw.normal(size=(trials, n, p)) * sigmas[:, None] / np.sqrt(p)
    base = np.array([1.0, importance, 0.0, 0.0])
    base = base / base.sum()
    mean = base[0] * own + np.einsum("j,tjp->tp", base[1:], helpers)
    target = base[0] * mu + base[1:] @ centres
    spread = np.array([sigma**2, *sigmas**2])
    v = (base**2 * spread).sum()
    c = v - base[1:] * spread[1:]
    d = helpers - mean[:, None]
    estimate = np.einsum("i,tip,j,tjp->t", a, d, a, d) - 2 * c @ a + v
    true = ((mean + np.einsum("j,tjp->tp", a, d) - target) ** 2).sum(1)
    gap = estimate - true
    assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(trials)
    wrong = estimate + 2 * (c - v * np.ones(n)) @ a - true  # with c_j = v for everybody
    if importance:
        assert abs(wrong.mean()) > 8 * wrong.std() / np.sqrt(trials)


def test_the_spread_of_halves_is_the_variance_of_their_mean():
    """v_k = |m_1 - m_2|^2 / 4 is unbiased for E|m - mu|^2, m = (m_1 + m_2) / 2."""
    draw = np.random.default_rng(2)
    halves = draw.normal(size=(100_000, 2, 3))
    v = ((halves[:, 0] - halves[:, 1]) ** 2).sum(1) / 4
    true = (halves.mean(1) ** 2).sum(1)
    assert v.mean() == pytest.approx(true.mean(), rel=0.02)


def test_cross_fitted_layers_are_measured_in_units_of_their_own_gap():
    """The sums of a round are those of vectors divided by each layer's |D_V - D_P|."""
    draw, folds, n = np.random.default_rng(4), 3, 4
    sizes = {"0.weight": (2, 3), "0.bias": (2,), "2.weight": (5,)}
    models = {k: draw.normal(size=(n, folds + 1, *s)) * (1 + 9 * ("2" in k)) for k, s in
              sizes.items()}  # fmt: skip
    held_out = {k: draw.normal(size=(n, folds, *s)) for k, s in sizes.items()}
    given = replies(np.zeros((n, 1)), [True, True, False, False], np.zeros(n))
    given = replace(
        given,
        models={k: torch.from_numpy(t) for k, t in models.items()},
        extra={VALIDATION: {k: torch.from_numpy(t) for k, t in held_out.items()}},
        trainable=tuple(sizes),
    )
    rule = CrossFit(folds=folds)
    sums = rule.learn(given, np.ones(n), rule.memory(n))[EVIDENCE]
    parts = []
    for names in group_by_layer(sizes).values():
        x, z = (np.concatenate([t[k].reshape(n, t[k].shape[1], -1) for k in names], 2)
                for t in (models, held_out))  # fmt: skip
        own = x[:2, 1:].mean(0)
        parts.append((x[2:, 1:] - own, z[:2].mean(0) - own))
    lengths = np.array([(gap**2).sum() for _, gap in parts])
    units = np.sqrt(lengths.mean() / lengths)
    away = np.concatenate([u * d for u, (d, _) in zip(units, parts, strict=True)], 2)
    gap = np.concatenate([u * t for u, (_, t) in zip(units, parts, strict=True)], 1)
    gram = np.einsum("ifp,jfp->fij", away, away)
    np.testing.assert_allclose(sums["gram"][:, 2:, 2:], gram, rtol=1e-12)
    np.testing.assert_allclose(sums["gain"][:, 2:], np.einsum("ifp,fp->fi", away, gap), rtol=1e-9)
    assert float(sums["round_target"]) == pytest.approx(lengths.sum())
