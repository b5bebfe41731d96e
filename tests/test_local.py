"""Local work: numbers of any kind, checked once."""

from __future__ import annotations

import numpy as np
import pytest

import muster
from muster.schedules import Linear

BAD = {
    "half a step": ({"steps": 1.5}, "local steps: 1.5; allowed: whole numbers from 1"),
    "yes": ({"epochs": True}, "local epochs: True; allowed: whole numbers from 1"),
    "text": ({"steps": 1, "lr": "fast"}, "local lr: 'fast'; give a number or a schedule"),
    "nan": ({"steps": 1, "lr": float("nan")}, "local lr: nan"),
    "below 0 at last": ({"steps": 1, "lr": Linear(1.0, -1.0)}, "local lr: -0.01.* in round 51"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_allowed_is_refused(case):
    given, message = BAD[case]
    with pytest.raises(muster.MusterError, match=message):
        muster.Local(**given)


def test_numbers_of_numpy_are_numbers():
    given = muster.Local(steps=np.int64(5), batch_size=np.int32(8), lr=np.float32(0.5))
    assert given == muster.Local(steps=5, batch_size=8, lr=0.5)
    assert repr(given) == repr(muster.Local(steps=5, batch_size=8, lr=0.5)), "as it is written down"
    assert muster.Local(steps=1, lr=np.int64(2)).rate(0, 10) == 2.0


def test_a_schedule_is_checked_once_and_asked_once_a_round():
    asked = []

    class Counts:
        def at(self, t, rounds):
            asked.append((t, rounds))
            return 0.1

    local = muster.Local(steps=1, lr=Counts())
    asked.clear()
    assert local.rate(3, 7) == 0.1
    assert asked == [(3, 7)]
