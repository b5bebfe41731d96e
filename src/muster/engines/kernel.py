"""Softmax regression of many clients in one compiled loop.

For a model this small the arithmetic is cheap and moving data is not: batched products first copy
every batch, then read it twice from far away. Here each client is walked through all of its steps
with its model in the innermost cache. The loop runs on the thread that calls it and holds no lock
of Python's, so the engine's crew runs several of them at once.

    z = W x + b;  g = (softmax(z) - onehot(y)) / |batch|;  W <- keep W + drift - lr g x^T
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

# Sums may be reordered (that is what makes them fast); NaN and inf keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}
BLOCK = 5  # classes whose scores are summed together, so that a row is read once for all of them


@numba.njit(fastmath=FAST, error_model="numpy", inline="always")
def _scores(w: Any, bias: Any, x: Any, z: Any) -> None:
    """`z = W x + b` for one row."""
    classes, width = w.shape
    c = 0
    while c + BLOCK <= classes:
        w0, w1, w2, w3, w4 = w[c], w[c + 1], w[c + 2], w[c + 3], w[c + 4]
        a0 = a1 = a2 = a3 = a4 = x.dtype.type(0)
        for f in range(width):
            v = x[f]
            a0 += w0[f] * v
            a1 += w1[f] * v
            a2 += w2[f] * v
            a3 += w3[f] * v
            a4 += w4[f] * v
        z[c], z[c + 1], z[c + 2] = a0 + bias[c], a1 + bias[c + 1], a2 + bias[c + 2]
        z[c + 3], z[c + 4] = a3 + bias[c + 3], a4 + bias[c + 4]
        c += BLOCK
    while c < classes:
        a0 = x.dtype.type(0)
        w0 = w[c]
        for f in range(width):
            a0 += w0[f] * x[f]
        z[c] = a0 + bias[c]
        c += 1


@numba.njit(fastmath=FAST, error_model="numpy", inline="always")
def _move(z: Any, label: int, factor: Any) -> None:
    """Scores to the row's part of the update: `-lr/|batch| (softmax(z) - onehot(label))`."""
    top = z.max()
    total = z.dtype.type(0)
    for c in range(len(z)):
        z[c] = np.exp(z[c] - top)
        total += z[c]
    for c in range(len(z)):
        z[c] /= total
    z[label] -= 1
    for c in range(len(z)):
        z[c] *= factor


@numba.njit(fastmath=FAST, error_model="numpy", inline="always")
def _add(w: Any, bias: Any, x: Any, z: Any, n: int) -> None:
    """`W += sum_i z_i x_i^T`, four rows of the batch at a time."""
    classes, width = w.shape
    i = 0
    while i + 4 <= n:
        x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
        for c in range(classes):
            g0, g1, g2, g3 = z[i, c], z[i + 1, c], z[i + 2, c], z[i + 3, c]
            row = w[c]
            for f in range(width):
                row[f] += g0 * x0[f] + g1 * x1[f] + g2 * x2[f] + g3 * x3[f]
            bias[c] += g0 + g1 + g2 + g3
        i += 4
    while i < n:
        for c in range(classes):
            g0 = z[i, c]
            row = w[c]
            for f in range(width):
                row[f] += g0 * x[i, f]
            bias[c] += g0
        i += 1


@numba.njit(nogil=True, fastmath=FAST, error_model="numpy", cache=True)
def _run(
    w: Any,
    bias: Any,
    x: Any,
    y: Any,
    rows: Any,
    count: Any,
    steps: Any,
    lr: Any,
    keep: Any,
    w_drift: Any,
    bias_drift: Any,
    divisor: Any,
) -> None:
    classes, width, batch = w.shape[1], w.shape[2], rows.shape[2]
    xs = np.empty((batch, width), w.dtype)
    z = np.empty((batch, classes), w.dtype)
    for k in range(len(w)):
        own, own_bias = w[k], bias[k]
        for s in range(steps[k]):
            n = count[k, s]
            for i in range(n):
                source, target = x[rows[k, s, i]], xs[i]
                for f in range(width):
                    target[f] = source[f] / divisor
                _scores(own, own_bias, target, z[i])
                _move(z[i], y[rows[k, s, i]], -lr / n)
            if len(w_drift):
                move, move_bias = w_drift[0], bias_drift[0]
                if len(w_drift) > 1:
                    move, move_bias = w_drift[k], bias_drift[k]
                for c in range(classes):
                    for f in range(width):
                        own[c, f] = keep * own[c, f] + move[c, f]
                    own_bias[c] = keep * own_bias[c] + move_bias[c]
            _add(own, own_bias, xs, z, n)


def softmax_regression(
    w: NDArray[Any],
    bias: NDArray[Any],
    x: NDArray[Any],
    y: NDArray[Any],
    rows: NDArray[np.int64],
    count: NDArray[np.int64],
    steps: NDArray[np.int64],
    lr: float,
    keep: float,
    drift: tuple[NDArray[Any], NDArray[Any]] | None,
) -> None:
    """All local steps of these clients, in place on `w` [K, C, F] and `bias` [K, C].

    Args:
        x: [rows, F] as stored; bytes are pixels and are divided by 255
        drift: for W and b, a stack with one entry a client or a single one; None adds nothing
    """
    kind = w.dtype.type
    none = np.empty((0, 1, 1), w.dtype), np.empty((0, 1), w.dtype)
    w_drift, bias_drift = none if drift is None else drift
    _run(
        w,
        bias,
        x,
        y,
        np.ascontiguousarray(rows),
        np.ascontiguousarray(count),
        steps,
        kind(lr),
        kind(keep),
        w_drift,
        bias_drift,
        kind(255 if x.dtype == np.uint8 else 1),
    )
