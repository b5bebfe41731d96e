"""What it means for a real run and a simulated one to be the same."""

from __future__ import annotations

import numpy as np
from polars.testing import assert_frame_equal

LEDGER = ("round", "client", "priority", "joined", "admitted", "reason", "weight", "claim", "steps")


def assert_same(real, simulated):
    for name, w in simulated.weights.items():
        np.testing.assert_allclose(real.weights[name], w, rtol=0, atol=1e-9)
    assert_frame_equal(
        real.clients.select(LEDGER), simulated.clients.select(LEDGER), abs_tol=1e-9, rel_tol=0
    )
