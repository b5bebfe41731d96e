"""Other splits of the same rows: rows for tuning, and each client's rows divided again for advice.

Rows for tuning are never test rows: a setting that is chosen by the test rows is fitted to them,
and its result on them is too good. Where test rows are the same in every seed, the training rows of
each client are divided again for tuning, one part to train on and one to validate on. Where every
seed divides rows differently, a training row of one seed is a test row of another. Then the
validation rows are chosen by their content, the same in every seed, and other runs leave them out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ...base.arrays import Bool, Float64, Int64
from ...base.checks import require
from ...base.errors import MusterError
from ...base.lazy import torch
from ...federation import Federation, VariationKind
from ...federation.ragged_rows import RaggedRows, SharedRows
from ...federation.row_hashes import get_hashes, get_held_hashes, select_by_hash
from .portions import Portions
from .train_test import hold_out

FRACTION = 0.25  # share of rows that are held out where a federation has no test rows


def for_tuning(
    fed: Federation, share: float = 0.25, seed: int = 0, apart: bool = False
) -> Federation:
    """Return the federation to tune on: each client trains on a part of its training rows and is
    validated on the rest, about `share` of them and of each of its classes, without its test rows.

    Args:
        apart: validate on the rows that `leave_out` leaves out, and train on the training rows that
            it keeps; for data whose test rows differ between seeds

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
        fit, judge = split_by_content(fed, share)
        varies: VariationKind = "deal"
        note = f"tuning: judge by {share:.0%} of all rows, the same in every seed"
    else:
        fit, judge = split_by_seed(fed, share, seed)
        again: dict[VariationKind, VariationKind] = {"deal": "deal and split", "training": "split"}
        varies = again.get(fed.varies, fed.varies)
        note = "tuning: a part of the training rows stands in for the test rows"
    return replace(with_rows(fed, fit, judge, note), varies=varies)


def with_rows(fed: Federation, train: RaggedRows, test: RaggedRows | None, note: str) -> Federation:
    """Return the federation with other rows, without results on the rows it had."""
    note = f"{fed.note}; {note}" if fed.note else note
    known = replace(fed, requirement_test=None, solo_score=None, solo_work="")
    return replace(known, train=train, test=test, note=note)


def leave_out(fed: Federation, share: float) -> Federation:
    """Return the federation without about `share` of its rows, in training and in test: those that
    settings were tuned by. Rows are chosen by their content, so that they are the same in every
    seed and for every client, and copies of a row stay together.

    >>> import muster
    >>> fed = muster.data.leave_out(muster.data.digits(clients=4), 0.25)
    >>> fed.train.sizes.tolist(), fed.test.sizes.tolist()
    ([210, 204, 218, 224], [55, 50, 51, 59])
    """
    require(0 < share < 1, "left_out", share, "between 0 and 1, exclusive")
    train = keep_rows(fed.train, ~select_by_hash(get_hashes(fed.train), share))
    refuse_empty(fed, train, share)
    test = fed.test
    if test is not None:
        test = keep_rows(test, ~select_by_hash(get_hashes(test), share))
        if not test.sizes.any():
            raise MusterError(f"left_out: {share}, and no test row is left; give a smaller share")
    note = f"{share:.0%} of all rows are left out: settings were tuned by them"
    return with_rows(fed, train, test, note)


def splits_differ(tuned: Federation, reported: Iterable[Federation]) -> bool:
    """Return True if a training row of one federation is a test row of another, and no training row
    there: then seeds divide rows differently. Copies that a federation has on both sides by itself,
    as official test sets may, are no sign of it."""
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


def split_by_seed(fed: Federation, share: float, seed: int) -> tuple[RaggedRows, RaggedRows]:
    """Divide each client's training rows in two, drawn by the seed."""
    alone = np.flatnonzero(fed.train.sizes < 2)
    if len(alone):
        raise MusterError(
            f"tune: client {fed.population.get_name(int(alone[0]))} has one training row, and "
            "tuning holds out a part of them; give clients of two rows and more"
        )
    return divide(fed, fed.train, share, seed)


def split_by_content(fed: Federation, share: float) -> tuple[RaggedRows, RaggedRows]:
    """Return each client's training rows without those of some content, and all rows that it has of
    that content, which may be none. A client tunes on as many rows as it trains on in a run."""
    every = fed.train
    if isinstance(fed.test, RaggedRows) and not isinstance(fed.test, SharedRows):
        every = merge_rows(fed.train, fed.test)
    judge = keep_rows(every, select_by_hash(get_hashes(every), share))
    fit = keep_rows(fed.train, ~select_by_hash(get_hashes(fed.train), share))
    refuse_empty(fed, fit, share)
    if not judge.sizes.any():
        raise MusterError(f"tune.share: {share}, and no row is chosen; give a larger share")
    return fit, judge


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
    if any(rows is not None and rows.weight is not None for rows in (fed.train, own)):
        raise MusterError("data: rows with weights cannot be divided again; give them without")
    every = fed.train if own is None else merge_rows(fed.train, own)
    share = np.zeros(fed.n) if own is None else own.sizes / every.sizes
    fraction = np.where(share > 0, share, FRACTION)
    train, test = divide(fed, every, fraction, seed, fed.population.ids)
    known = replace(fed, requirement_test=None, solo_score=None)
    return replace(known, train=train, test=test, varies="split")


def divide(
    fed: Federation,
    data: RaggedRows,
    fraction: float | Float64,
    seed: int,
    ids: Int64 | None = None,
) -> tuple[RaggedRows, RaggedRows]:
    """Divide each client's rows in two, drawn by the seed: a fraction of them, and of each of its
    classes, is the second part."""
    parts = Portions(data.base(np.arange(data.offsets[-1])), data.offsets)
    known = fed.classes and data.y.dim() == 1
    labels = data.y.cpu().numpy() if known else np.zeros(len(data.y), np.int64)
    first, second = (
        RaggedRows(data.x, data.y, part.offsets, part.rows, content=data.content)
        for part in hold_out(parts, labels, fraction, seed, ids)
    )
    return first, second


def merge_rows(train: RaggedRows, test: RaggedRows) -> RaggedRows:
    """Return every client's training and test rows together."""
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


def keep_rows(data: RaggedRows, keep: Bool) -> RaggedRows:
    """Return the rows where `keep` is true, which has one value for each row of `x`. The weights of
    a client's rows sum to 1 again."""
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
    """Raise an error if a client has no row to train on."""
    empty = np.flatnonzero(train.sizes == 0)
    if len(empty):
        raise MusterError(
            f"left_out: {share} of all rows are left out, and client "
            f"{fed.population.get_name(int(empty[0]))} has no other to train on; give clients of "
            "more rows, or a smaller share"
        )
