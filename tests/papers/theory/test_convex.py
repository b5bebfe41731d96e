"""Constants of regularised softmax regression, against other ways to the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import check_grad, minimize
from sklearn.linear_model import LogisticRegression

import muster
from muster.base.errors import MusterError
from muster.papers.theory import bounds, convex

LAM, BATCH = 0.1, 10


@pytest.fixture(scope="module")
def fed():
    return convex.scale_rows(muster.data.synth(priority=2, others=3, max_rows=50))


@pytest.fixture(scope="module")
def problem(fed):
    return convex.problem(fed, LAM)


@pytest.fixture(scope="module")
def constants(problem):
    return convex.constants(problem, BATCH)


def hessian(objective, w):
    """The whole matrix, column by column from differences of the gradient."""
    flat, h = w.ravel(), 1e-5
    columns = []
    for i in range(flat.size):
        e = np.zeros_like(flat)
        e[i] = h
        up = objective.gradient((flat + e).reshape(w.shape))
        down = objective.gradient((flat - e).reshape(w.shape))
        columns.append((up - down).ravel() / (2 * h))
    return np.array(columns)


def test_gradient_and_hessian_against_differences(problem):
    small = convex.SoftmaxObjective(problem.clients[2].x[:, -6:], problem.clients[2].y % 4,
                             problem.clients[2].weight, 4, LAM)  # fmt: skip
    draw = np.random.default_rng(0)
    w, v = draw.standard_normal((2, 4, 6))
    wrong = check_grad(
        lambda f: small.value(f.reshape(4, 6)),
        lambda f: small.gradient(f.reshape(4, 6)).ravel(),
        w.ravel(),
    )
    assert wrong < 1e-6
    whole = hessian(small, w)
    assert small.product(w, v).ravel() == pytest.approx(whole @ v.ravel(), abs=1e-8)
    # L and mu bound its eigenvalues wherever it is taken.
    values = np.linalg.eigvalsh((whole + whole.T) / 2)
    top = np.linalg.eigvalsh((small.x * small.weight[:, None]).T @ small.x)[-1] / 2 + LAM
    assert values[0] >= LAM - 1e-8
    assert values[-1] <= top
    assert np.linalg.eigvalsh(hessian(small, np.zeros((4, 6))))[-1] > 0.4 * top  # and not by much


def test_minima_against_scikit_learn():
    """`sum_i CE_i / n + lam/2 |W|^2` is scikit-learn's with C = 1/(n lam); its bias, which it does
    not penalise, is our column of ones."""
    whole = convex.problem(muster.data.digits(clients=10, priority="all"), LAM).whole
    told = LogisticRegression(C=1 / (len(whole.y) * LAM), fit_intercept=False, tol=1e-12,
                              max_iter=10_000)  # fmt: skip
    theirs = told.fit(whole.x, whole.y).coef_
    ours, least = whole.minimum()
    assert np.linalg.norm(whole.gradient(ours)) <= 1e-9
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert least == pytest.approx(whole.value(theirs), abs=1e-11)


def test_minima_against_torch_and_scipy(problem, constants):
    """The loss as torch computes and differentiates it, minimised by scipy."""
    told = [constants.F_star, *constants.F_k_star]
    for objective, ours in zip([problem.whole, *problem.clients], told, strict=True):
        x, y = torch.from_numpy(objective.x), torch.from_numpy(objective.y)
        weight = torch.from_numpy(objective.weight)

        def loss(flat, x=x, y=y, weight=weight):
            w = torch.tensor(flat.reshape(10, -1), requires_grad=True)
            each = torch.nn.functional.cross_entropy(x @ w.T, y, reduction="none")
            total = weight @ each + LAM / 2 * w.square().sum()
            (slope,) = torch.autograd.grad(total, w)
            return total.item(), slope.numpy().ravel()

        found = minimize(loss, np.zeros(610), jac=True, method="L-BFGS-B",
                         options={"gtol": 1e-9, "ftol": 0, "maxiter": 5000})  # fmt: skip
        assert ours == pytest.approx(found.fun, abs=1e-11)
        assert np.linalg.norm(objective.gradient(objective.minimum()[0])) <= 1e-9


def test_the_whole_is_the_priority_clients_mean(fed, problem):
    w = np.random.default_rng(1).standard_normal((10, 61))
    each = np.array([c.value(w) for c in problem.clients])
    assert problem.whole.value(w) == pytest.approx(each[:2] @ fed.share[:2])


def test_losses_are_those_muster_measures(fed, problem):
    run = muster.simulate(
        fed, muster.methods.fedavg(), muster.models.Softmax(), rounds=3, dtype="float64"
    )
    w = np.concatenate([run.weights["1.weight"], run.weights["1.bias"][:, None]], axis=1)
    plain = np.array([c.value(w) for c in problem.clients]) - LAM / 2 * np.sum(w**2)
    assert plain == pytest.approx(run.final["train_loss"].to_numpy(), abs=1e-12)


def test_constants(fed, problem, constants):
    c = constants
    assert pytest.approx(np.sqrt(2)) == c.X  # the longest row is of norm 1, and has a 1 added
    assert c.mu == LAM
    # L: the largest eigenvalue over all clients, from the singular values of their rows.
    tops = [np.linalg.svd(o.x)[1][0] ** 2 / len(o.y) for o in problem.clients]
    assert pytest.approx(max(tops) / 2 + LAM) == c.L
    assert c.sigma2 == pytest.approx(4 / BATCH)
    assert convex.constants(problem, 7).sigma2 == pytest.approx(4 / 7)  # no batch is smaller
    assert convex.constants(problem, None).sigma2 == convex.constants(problem, 40).sigma2 == 0
    assert pytest.approx(8 * c.X**2) == c.G2 == pytest.approx(16)
    assert pytest.approx(np.sum(c.w_star**2)) == c.start2
    assert c.Gamma > 0
    assert (c.Gamma_k > 0).all()
    at = np.array([o.value(c.w_star) for o in problem.clients])
    assert c.Gamma == pytest.approx(fed.share[:2] @ c.Gamma_k[:2])
    assert at - c.Gamma_k == pytest.approx(c.F_k_star)
    assert c.start == pytest.approx(np.log(10) - c.F_star)


def test_from_another_start(problem, constants):
    """Within the ball that a run from 0 stays in, G is the same; from outside, the start rules."""
    at = convex.constants(problem, BATCH, constants.w_star)
    assert (at.start2, at.start) == (0.0, 0.0)
    assert pytest.approx(constants.G2) == at.G2
    far = np.full_like(constants.w_star, 2.0)
    afar = convex.constants(problem, BATCH, far)
    assert pytest.approx((2 + LAM * np.linalg.norm(far)) ** 2) == afar.G2
    assert afar.G2 > 1.5 * constants.G2
    assert afar.start2 == pytest.approx(np.sum((far - constants.w_star) ** 2))
    assert afar.start == pytest.approx(problem.whole.value(far) - constants.F_star)


@pytest.mark.parametrize("begin", [0.0, 2.0])
def test_gradients_along_a_way_stay_below_G_and_sigma(problem, begin):
    """Single-row gradients on an adversary's way: always the row that pushes W farthest out."""
    o, w = problem.clients[0], np.full((10, 61), begin)
    c = convex.constants(problem, BATCH, w)
    radius, largest = max(np.linalg.norm(w), np.sqrt(2) * c.X / LAM), 0.0
    rows = [convex.SoftmaxObjective(o.x[i : i + 1], o.y[i : i + 1], np.ones(1), 10, LAM)
            for i in range(len(o.y))]  # fmt: skip
    for _ in range(60):
        each = np.array([r.gradient(w) for r in rows])
        sizes = np.sum(each**2, axis=(1, 2))
        largest = max(largest, sizes.max())
        spread = np.mean(np.sum((each - each.mean(axis=0)) ** 2, axis=(1, 2)))
        assert spread <= 2 * c.X**2
        w = w - 1 / (4 * c.L) * each[sizes.argmax()]
        assert np.linalg.norm(w) <= radius
    assert c.G2 / 10 < largest <= c.G2


def test_scaling_leaves_one_factor(fed):
    raw = muster.data.synth(priority=2, others=3, max_rows=50)
    ratio = raw.train.x.double() / fed.train.x
    assert ratio.std() < 1e-9 * ratio.mean()
    assert fed.train.x.norm(dim=1).max() == pytest.approx(1.0)
    assert (raw.test.x.double() / fed.test.x).mean() == pytest.approx(float(ratio.mean()))


def test_on_raw_rows_the_bound_says_nothing(fed):
    """L is more than forty times as large, and with its square grows the T from which the bound
    falls below the error at the start."""
    raw = muster.data.synth(priority=2, others=3, max_rows=50)
    every = [convex.constants(convex.problem(data, LAM), BATCH) for data in (fed, raw)]
    needed = [
        bounds.informative_from(
            bounds.first_constant(c, 1, "repaired"), bounds.second_constant(c), c.Gamma,
            bounds.offset(c, 1), c.start,
        )
        for c in every
    ]  # fmt: skip
    assert 40 < every[1].L / every[0].L < 50
    assert needed[0] < 2_000
    assert needed[1] > 200 * needed[0]


def test_how_large_L_is_on_raw_rows():
    """What docs/theory.md says of it."""
    for others, more, low, high in ((6, {"max_rows": 50}, 45, 55), (10, {}, 180, 210)):
        fed = muster.data.synth(priority=2 if others == 6 else 10, others=others, **more)
        assert low < convex.problem(fed, LAM).smoothness < high


def test_mistakes_are_explained(fed):
    with pytest.raises(MusterError, match="lam: 0; allowed: above 0"):
        convex.constants(convex.problem(fed, 0), None)
    with pytest.raises(MusterError, match="norm: -1"):
        convex.scale_rows(fed, -1)
