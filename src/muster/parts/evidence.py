"""Evidence for helpers: how much of each helper's reply brings the step closer to its target.

All clients train from the same model w. `m_P` is the mean reply of the objective's clients,
`d_j = m_j - m_P` the way from it to helper j's reply, and `mu` the reply that unlimited rows of the
objective's clients would give. The candidate `m_P + sum_j a_j d_j` with `a >= 0`, `sum a <= 1` has
the expected squared distance to mu

    R(a) = const - 2 c'a + a'Ga,    G_ij = <d_i, d_j>,    c_j = E<d_j, mu - m_P>.

G is known; only c needs evidence. Helpers' rows are independent of the objective's, so
`c_j = E|m_P - mu|^2 = v` for every helper, and R is Stein's unbiased estimate of the risk. v is
measured: a client of the objective trains on disjoint folds of its rows, and how far the folds'
replies lie apart says how far their mean is from its own target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..base.arrays import Bool, Float64
from ..base.lazy import linalg, optimize, torch
from ..base.params import Params, State, as_rows
from ..base.registry import part
from ..protocol import Replies
from .weigh import Weigh

RIDGE = 1e-8  # of the mean squared distance: the problem stays definite where replies coincide


def minimise(gram: Float64, gain: Float64) -> Float64:
    """Return the weights a >= 0, sum a <= 1, that minimise `a'Ga - 2 c'a`.

    With `1 - sum a` as the weight of one more helper, whose reply is m_P itself (d = 0, c = 0), the
    weights lie on the simplex. There `G = LL'` and `Lb = c` make the objective `|Ba|^2` with
    `B = L' - b1'`, up to a constant; and what minimises `|Bu|^2 + (1'u - 1)^2` over u >= 0 is a
    multiple of the a that minimises `|Ba|^2` on the simplex: one problem of non-negative least
    squares.

    Args:
        gram: G, one row and column per helper; symmetric, no negative eigenvalue
        gain: c, one number per helper

    >>> minimise(np.array([[4.0]]), np.array([1.0])).round(6).tolist()  # min(1, v / |d|^2)
    [0.25]
    """
    n = len(gain)
    scale = float(np.trace(gram)) / max(n, 1)
    if not (gain > 0).any():
        return np.zeros(n)
    if not scale > 0:  # everyone's reply is m_P: any weights give the same step
        return np.where(gain > 0, 1.0, 0.0) / np.count_nonzero(gain > 0)
    # In units in which distances are around 1: nothing overflows, however far a reply is away.
    factor = np.linalg.cholesky(gram / scale + RIDGE * np.eye(n))
    target = linalg.solve_triangular(factor, gain / scale, lower=True)
    size = max(1.0, float(np.linalg.norm(target)))
    rows = np.zeros((n + 1, n + 1))
    rows[:n, :n] = factor.T
    rows[:n] -= target[:, None]
    rows[n] = size  # the row of 1'u = 1, as large as the others
    u = optimize.nnls(rows, np.append(np.zeros(n), size))[0]
    weights: Float64 = u[:n] / u.sum()
    return weights


def distances(models: Params, base: Float64, helpers: Bool, names: tuple[str, ...]) -> Float64:
    """Return G: the products of the ways from m_P to each helper's reply, in float64.

    Args:
        base: each reply's weight in m_P; they sum to 1
        helpers: which replies are helpers'
        names: the parameters that move by gradient
    """
    gram = np.zeros((int(helpers.sum()),) * 2)
    for name in names:
        rows = as_rows(models[name]).double()
        mean = torch.from_numpy(base).to(rows) @ rows
        away = rows[torch.from_numpy(helpers).to(rows.device)] - mean
        gram += np.asarray((away @ away.T).cpu().numpy(), np.float64)
    return gram


@part(Weigh, "stein")
@dataclass(frozen=True)
class Stein:
    """Weights that minimise Stein's unbiased estimate of the step's risk; nothing to set.

    `m_P + sum_j a_j d_j` with a from `minimise(G, c)`, where `c_j = v - b_j v_j`: `v = sum_k b_k^2
    v_k` is the variance of m_P, from the spread v_k that each client of the objective claims, and
    b_k its weight in m_P (0 for a helper outside the objective, so that `c_j = v`). At the optimum
    `a'Ga <= v`: whatever helpers send, the step moves by at most one standard error of the
    objective's own update.

    Without a reply of the objective nothing can be compared, and nobody counts.
    """

    at_once: ClassVar[bool] = True  # a weight depends on all replies: they cannot be streamed
    needs_spread: ClassVar[bool] = True
    refuses: ClassVar[str] = "no evidence that it helps"  # the reason where a weight is 0

    def __call__(self, replies: Replies, extent: Float64, server: State) -> Float64:
        roster = replies.roster
        base = np.minimum(extent, roster.importance) * roster.share
        if not base.sum() > 0:
            return np.zeros(len(roster))
        base = base / base.sum()
        helpers = roster.importance < 1
        weight: Float64 = base.copy()
        if helpers.any():
            names = replies.trainable or tuple(replies.models)
            gram = distances(replies.models, base, helpers, names)
            spread = np.where(base > 0, replies.claim, 0.0)
            gain = (base**2 * spread).sum() - (base * spread)[helpers]
            a = minimise(gram, gain) * (extent[helpers] > 0)
            weight *= 1 - a.sum()
            weight[helpers] += a
        return weight
