"""Local work: numbers of any kind, checked once."""

from __future__ import annotations

import numpy as np
import pytest

import muster
from muster.config.experiment import load
from muster.schedules import Linear

BAD = {
    "half a step": ({"steps": 1.5}, "local steps: 1.5; allowed: whole numbers from 1"),
    "yes": ({"epochs": True}, "local epochs: True; allowed: whole numbers from 1"),
    "text": ({"steps": 1, "lr": "fast"}, "local lr: 'fast'; give a number or a schedule"),
    "nan": ({"steps": 1, "lr": float("nan")}, "local lr: nan"),
    "a rule unheard of": (
        {"steps": 1, "batches": "random"},
        "local batches: 'random'; allowed: shuffled, independent",
    ),
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


def test_what_is_written_down_of_a_run_names_batches_only_where_they_are_not_the_usual():
    """Runs from before there was a choice are taken up again by what was written of them."""
    usual = repr(muster.Local(steps=5))
    assert usual == (
        "Local(steps=5, epochs=None, batch_size=32, lr=0.1, optimizer=GradientDescent(momentum=0.0,"
        " nesterov=False, weight_decay=0.0, dampening=0.0, clip=None, keep=False),"
        " lr_counts='rounds')"
    )
    drawn = muster.Local(steps=5, batches="independent")
    assert repr(drawn) == usual[:-1] + ", batches='independent')"
    assert drawn != muster.Local(steps=5)


def test_batches_from_a_file():
    table = {"data": "digits", "model": "softmax", "method": "fedavg"}
    made = load({**table, "local": {"steps": 2, "batches": "independent"}}).local
    assert made == muster.Local(steps=2, batches="independent")
    with pytest.raises(muster.MusterError, match="batches: 'often'; allowed: shuffled, indep"):
        load({**table, "local": {"steps": 2, "batches": "often"}})


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
