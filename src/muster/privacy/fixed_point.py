"""Contributions as whole numbers modulo 2^32, whose sum is the same in any order.

A contribution g with |g| <= C becomes x = trunc(X g / C), and a sum S becomes S C / X. The scale X
is chosen so that the sum of all clients and its noise stay within 31 bits: nothing wraps round.

Truncation goes towards zero, so |x| <= X holds in whole numbers too (rounding to the nearest could
add sqrt(d) / 2): the sensitivity that noise is accounted for is X, exactly.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from ..base.checks import check_above, check_at_least, check_whole, require

Vectors = npt.NDArray[np.uint32]
Values = npt.NDArray[np.float64]

DEVIATIONS = 8  # of the noise that find room: a coordinate leaves it once in 8e14
LEAST_SCALE = 2**10
MARGIN = 1 - 1e-9  # far above the error of a norm in float64, below one unit of any scale


def choose_scale(clients: int, noise: float, members: int = 1, colluders: int = 0) -> int:
    """Return the scale X of contributions that at most `clients` make in a round.

    X = floor((2^31 - 1) / (clients + 8 noise sqrt(members / (members - colluders)) + 1)).

    Args:
        clients: The most contributions of a sum.
        noise: Deviation of the noise in units of the clip, 0 for none.
        members: Parties that add a share of the noise.
        colluders: Members whose share is not counted on, so that the others add more.
    """
    check_whole("clients", clients)
    check_at_least("noise", noise)
    check_whole("members", members)
    check_whole("colluders", colluders, 0, members - 1)
    room = clients + DEVIATIONS * noise * math.sqrt(members / (members - colluders)) + 1
    scale = math.floor((2**31 - 1) / room)
    require(
        scale >= LEAST_SCALE,
        "clients and noise",
        f"{clients} and {noise:g}",
        f"sums within 31 bits at a scale of {LEAST_SCALE}; ask fewer clients or add less noise",
    )
    return scale


def encode(values: Values, clip: float, scale: int) -> Vectors:
    """Return contributions `[client, d]` as whole numbers modulo 2^32, each of norm <= scale.

    A contribution longer than the clip is shortened to it, whatever was done before.

    >>> encode(np.array([[0.6, -0.8]]), clip=1.0, scale=1000).view(np.int32)
    array([[ 599, -799]], dtype=int32)
    """
    check_above("clip", clip)
    require(bool(np.isfinite(values).all()), "a contribution", "not finite", "finite numbers")
    largest = np.abs(values).max(1, initial=clip, keepdims=True)
    share = values / largest  # squares of it do not overflow
    norm = np.sqrt((share * share).sum(1, keepdims=True))
    factor = scale * MARGIN / np.maximum(clip / largest, norm)
    whole: npt.NDArray[np.int64] = np.trunc(share * factor).astype(np.int64)
    return whole.astype(np.uint32)


def add(vectors: Vectors) -> Vectors:
    """Return the sum over the leading axis, modulo 2^32."""
    return np.asarray(vectors.sum(0, dtype=np.uint32))


def centre(total: Vectors) -> npt.NDArray[np.int64]:
    """Return the whole numbers from -2^31 to 2^31 - 1 that a sum modulo 2^32 means."""
    return total.view(np.int32).astype(np.int64)


def decode(total: Vectors, clip: float, scale: int) -> Values:
    """Return the sum of contributions that a sum of whole numbers means.

    >>> decode(np.array([499, 2**32 - 250], np.uint32), clip=2.0, scale=1000)
    array([ 0.998, -0.5  ])
    """
    return np.asarray(centre(total) * (clip / scale), np.float64)
