"""Rows for tuning: what a choice of settings may look at, and what it may not.

A setting that is chosen by the test rows is fitted to them, and its result on them is too good.
Where test rows are the same in every seed, the training rows of each client are divided again for
tuning, one part to fit and one to be judged by, and its test rows are not there at all. Where every
seed divides rows anew, a training row of one seed is a test row of another. Then the rows to be
judged by are chosen by what is in them, the same in every seed, and all other runs leave them out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ...base.arrays import Bool
from ...base.checks import require
from ...base.errors import MusterError
from ...base.lazy import torch
from ...federation import Federation, VariationKind
from ...federation.ragged_rows import RaggedRows, SharedRows
from ...federation.row_hashes import get_hashes, get_held_hashes, select_by_hash
from .partition import hold_out
from .portions import Portions


def for_tuning(
    fed: Federation, share: float = 0.25, seed: int = 0, apart: bool = False
) -> Federation:
    """The federation to tune on: each client fits on a part of its training rows and is judged on
    the rest, about `share` of them and of each of its classes. Its test rows are not in it.

    Args:
        apart: judge by the rows that `leave_out` leaves out, and fit on all others a client has;
            for data whose test rows are others in every seed

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
    if apart:
        fit, judged = by_content(fed, share)
        varies: VariationKind = "deal"
        note = f"tuning: judged by {share:.0%} of all rows, the same in every seed"
    else:
        fit, judged = by_seed(fed, share, seed)
        again: dict[VariationKind, VariationKind] = {"deal": "deal and split", "training": "split"}
        varies = again.get(fed.varies, fed.varies)
        note = "tuning: a part of the training rows stands in for the test rows"
    return replace(with_rows(fed, fit, judged, note), varies=varies)


def with_rows(fed: Federation, train: RaggedRows, test: RaggedRows | None, note: str) -> Federation:
    """The federation with other rows, and without what was measured on those it had."""
    note = f"{fed.note}; {note}" if fed.note else note
    return replace(fed, train=train, test=test, note=note, requirement_test=None, solo_score=None)


def leave_out(fed: Federation, share: float) -> Federation:
    """The federation without about `share` of its rows, in training and in test: those that
    settings were tuned by. Which they are is decided by what is in a row, so that they are the same
    in every seed, with whichever client they lie, and copies of a row go together.

    >>> import muster
    >>> fed = muster.data.leave_out(muster.data.digits(clients=4), 0.25)
    >>> fed.train.sizes.tolist(), fed.test.sizes.tolist()
    ([210, 204, 218, 224], [55, 50, 51, 59])
    """
    require(0 < share < 1, "left_out", share, "between 0 and 1, exclusive")
    train = kept(fed.train, ~select_by_hash(get_hashes(fed.train), share))
    refuse_empty(fed, train, share)
    test = fed.test
    if test is not None:
        test = kept(test, ~select_by_hash(get_hashes(test), share))
        if not test.sizes.any():
            raise MusterError(f"left_out: {share}, and no test row is left; give a smaller share")
    note = f"{share:.0%} of all rows are left out: settings were tuned by them"
    return with_rows(fed, train, test, note)


def divided_anew(tuned: Federation, reported: Iterable[Federation]) -> bool:
    """Whether a training row of one federation is a test row of another, and no training row there:
    then rows are divided by the seed. Copies that a federation has on both sides by itself, as
    official test sets may, are no sign of it."""
    mine = get_held_hashes(tuned.train)
    return any(
        len(
            np.setdiff1d(
                np.intersect1d(mine, get_held_hashes(other.test)), get_held_hashes(other.train)
            )
        )
        for other in reported
        if other.test is not None
    )


def by_seed(fed: Federation, share: float, seed: int) -> tuple[RaggedRows, RaggedRows]:
    """Each client's training rows in two parts, drawn by the seed."""
    train = fed.train
    alone = np.flatnonzero(train.sizes < 2)
    if len(alone):
        raise MusterError(
            f"tune: client {fed.population.get_name(int(alone[0]))} has one training row, and "
            "tuning holds out a part of them; give clients of two rows and more"
        )
    rows = train.base(np.arange(train.offsets[-1]))
    labels = train.y.cpu().numpy() if fed.classes else np.zeros(len(train.y), np.int64)
    both = hold_out(Portions(rows, train.offsets), labels, share, seed)
    fit, judged = (
        RaggedRows(train.x, train.y, part.offsets, part.rows, content=train.content)
        for part in both
    )
    return fit, judged


def by_content(fed: Federation, share: float) -> tuple[RaggedRows, RaggedRows]:
    """Each client's rows in two parts, by what is in them; it may have none to be judged by."""
    every = fed.train
    if isinstance(fed.test, RaggedRows) and not isinstance(fed.test, SharedRows):
        every = both_of(fed.train, fed.test)
    judges = select_by_hash(get_hashes(every), share)
    fit, judged = kept(every, ~judges), kept(every, judges)
    refuse_empty(fed, fit, share)
    if not judged.sizes.any():
        raise MusterError(f"tune.share: {share}, and no row is chosen; give a larger share")
    return fit, judged


def both_of(train: RaggedRows, test: RaggedRows) -> RaggedRows:
    """Every client's training and test rows together."""
    clients = len(train.sizes)
    rows = [data.base(np.arange(data.offsets[-1])) for data in (train, test)]
    x, y, marks = train.x, train.y, train.content
    if test.x.data_ptr() != x.data_ptr() or test.y.data_ptr() != y.data_ptr():
        marks = np.concatenate([get_hashes(train), get_hashes(test)])
        rows[1] = rows[1] + len(y)
        x, y = torch.cat([x, test.x]), torch.cat([y, test.y])
    owner = np.concatenate([np.repeat(np.arange(clients), d.sizes) for d in (train, test)])
    flat = Portions.cut(
        np.concatenate(rows)[np.argsort(owner, kind="stable")], train.sizes + test.sizes
    )
    return RaggedRows(x, y, flat.offsets, flat.rows, content=marks)


def kept(data: RaggedRows, keep: Bool) -> RaggedRows:
    """The same without some of its rows; `keep` has one value for each row of `x`. The weights of a
    client's rows sum to 1 again."""
    if isinstance(data, SharedRows):
        there = np.bincount(data.codes[keep], minlength=data.mix.shape[1]) > 0
        mix = data.mix * there
        mix = mix / np.maximum(mix.sum(1, keepdims=True), np.finfo(np.float64).tiny)
        at = torch.from_numpy(np.flatnonzero(keep))
        return SharedRows.of(data.x[at], data.y[at], mix, data.codes[keep])
    rows = data.base(np.arange(data.offsets[-1]))
    stays = keep[rows]
    owner = np.repeat(np.arange(len(data.sizes)), data.sizes)[stays]
    sizes = np.bincount(owner, minlength=len(data.sizes))
    weight = data.weight
    if weight is not None:
        weight = weight[stays]
        weight = weight / np.bincount(owner, weight, len(sizes))[owner]
    flat = Portions.cut(rows[stays], sizes)
    return RaggedRows(data.x, data.y, flat.offsets, flat.rows, weight, data.content)


def refuse_empty(fed: Federation, train: RaggedRows, share: float) -> None:
    """Every client needs a row to fit on."""
    empty = np.flatnonzero(train.sizes == 0)
    if len(empty):
        raise MusterError(
            f"left_out: {share} of all rows are left out, and client "
            f"{fed.population.get_name(int(empty[0]))} has no other to train on; give clients of "
            "more rows, or a smaller share"
        )
