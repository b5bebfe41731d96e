"""Another split of the same rows: each client's training and test rows are divided again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...base.errors import MusterError
from ...base.lazy import torch
from ...federation import Federation
from ...federation.ragged_rows import RaggedRows, SharedRows
from .portions import Portions
from .train_test import hold_out

FRACTION = 0.25  # share of rows that are held out where a federation has no test rows


def split_again(fed: Federation, seed: int) -> Federation:
    """Return the federation with every client's rows divided into training and test rows by the
    seed, as many of each as it has. An official test set, which clients share, is left out.

    >>> import muster
    >>> fed = muster.data.digits(clients=4)
    >>> again = split_again(fed, 1)
    >>> again.train.sizes.tolist() == fed.train.sizes.tolist(), again.varies
    (True, 'split')
    """
    own = None if isinstance(fed.test, SharedRows) else fed.test
    halves = [fed.train] if own is None else [fed.train, own]
    if any(rows.weight is not None for rows in halves):
        raise MusterError("data: rows with weights cannot be divided again; give them without")
    picks = [torch.from_numpy(rows.base(np.arange(rows.offsets[-1]))) for rows in halves]
    x = torch.cat([rows.x[at] for rows, at in zip(halves, picks, strict=True)])
    y = torch.cat([rows.y[at] for rows, at in zip(halves, picks, strict=True)])
    who = np.concatenate([np.repeat(np.arange(fed.n), rows.sizes) for rows in halves])
    parts = Portions.cut(np.argsort(who, kind="stable"), np.bincount(who, minlength=fed.n))
    share = np.zeros(fed.n) if own is None else own.sizes / parts.sizes
    fraction = np.where(share > 0, share, FRACTION)
    labels = y.numpy() if fed.classes and y.dim() == 1 else np.zeros(len(y), np.int64)
    train, test = hold_out(parts, labels, fraction, seed, fed.population.ids)
    return replace(
        fed,
        train=RaggedRows(x, y, train.offsets, train.rows),
        test=RaggedRows(x, y, test.offsets, test.rows),
        requirement_test=None,
        solo_score=None,
        varies="split",
    )
