"""The weight of a client by how near the model is to what the client asks of it (MaxFL)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from .rng import Float64


def appeal_weight(gap: ArrayLike) -> Float64:
    """`q_k = s (1 - s)`, `s = sigmoid(gap)`, `gap = F_k(w) - rho_k` (MaxFL eq. 4, Fig. 3).

    Largest, 0.25, where the gap is 0; even in the gap; NaN where the gap is NaN.

    >>> appeal_weight([0.0, 1e6, -1e6]).tolist()
    [0.25, 0.0, 0.0]
    """
    x = torch.from_numpy(np.array(gap, np.float64))
    # 1 - s is the sigmoid of -gap; the subtraction itself would be 0 from a gap of 37 on.
    return np.asarray((torch.sigmoid(x) * torch.sigmoid(-x)).numpy(), np.float64)
