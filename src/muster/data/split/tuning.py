"""Rows for tuning: what a choice of settings may look at, and the test rows it may not.

A setting that is chosen by the test rows is fitted to them, and its result on them is too good. So
for tuning the training rows of each client are divided again, one part to fit and one to be judged
by, and its test rows are not there at all.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...checks import require
from ...errors import MusterError
from ...federation import Federation
from ...federation.ragged import Ragged
from .partition import hold_out
from .portions import Portions


def for_tuning(fed: Federation, share: float = 0.25, seed: int = 0) -> Federation:
    """The federation to tune on: each client fits on a part of its training rows and is judged on
    the rest, about `share` of them and of each of its classes. Its test rows are not in it.

    >>> import muster
    >>> fed = muster.data.digits(clients=4)
    >>> small = muster.data.for_tuning(fed, 0.25)
    >>> fed.train.sizes.tolist(), small.train.sizes.tolist(), small.test.sizes.tolist()
    ([285, 285, 285, 285], [214, 214, 214, 214], [71, 71, 71, 71])
    """
    require(0 < share < 1, "tune.share", share, "between 0 and 1, exclusive")
    train = fed.train
    if train.weight is not None:
        raise MusterError("tune: training rows with weights of their own cannot be divided")
    alone = np.flatnonzero(train.sizes < 2)
    if len(alone):
        raise MusterError(
            f"tune: client {fed.population.called(int(alone[0]))} has one training row, and tuning "
            "holds out a part of them; give clients of two rows and more"
        )
    rows = train.base(np.arange(train.offsets[-1]))
    labels = train.y.cpu().numpy() if fed.classes else np.zeros(len(train.y), np.int64)
    fit, judged = hold_out(Portions(rows, train.offsets), labels, share, seed)
    note = "tuning: a part of the training rows stands in for the test rows"
    return replace(
        fed,
        train=Ragged(train.x, train.y, fit.offsets, fit.rows),
        test=Ragged(train.x, train.y, judged.offsets, judged.rows),
        note=f"{fed.note}; {note}" if fed.note else note,
        # They told of test rows.
        requirement_test=None,
        solo_score=None,
    )
