"""Batches: the rows of every step of every client, and the clients that are stacked together.

`plan_batches` turns `Local` into rows, drawn from the key (seed, "batches", round, client), so that
every engine trains on the same batches.

`cut_portions` divides a plan into portions, each trained by one thread. It depends on the plan and
the model alone, never on the number of threads: the clients stacked together affect the last bits
of their results, so a cut by threads would make results depend on their number. A portion is large
enough that its arithmetic outweighs the overhead of a step, and small enough that its models stay
in cache through all steps; within these bounds a round is cut into as many portions as a machine
can use. `blocks` may depend on the number of threads: clients trained one by one do not affect one
another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base import params, rng
from ..base.arrays import Int64, UInt64
from ..base.lazy import nn
from ..base.params import Params
from ..federation.ragged_rows import RaggedRows, RowLists
from ..local import Local
from ..privacy.noise import system_words

WORTH = 2**23  # parameters times rows that are worth a hand-over: about half a millisecond
CACHE = 2**22  # bytes of models worked on together
ENOUGH = 16  # portions that a round need not exceed for the sake of more threads
EVEN = 8  # blocks for each thread, so that the last one to finish is not much later than the first


@dataclass(frozen=True)
class BatchPlan:
    """Rows for every step of some clients, the busiest client first.

    Attributes:
        at: [K] where each client stands in the list that was asked for
        steps: [K] how many steps each takes, not increasing: step s concerns a prefix of clients
        rows: [K, S, B] row numbers; short batches are padded with a row that does not count
        count: [K, S] how many rows of each batch count
    """

    at: Int64
    clients: Int64
    steps: Int64
    rows: Int64
    count: Int64

    def cut(self, start: int, end: int) -> BatchPlan:
        """Return the plan of some of these clients."""
        return BatchPlan(*(getattr(self, f)[start:end] for f in self.__dataclass_fields__))

    def active(self) -> list[int]:
        """Return the number of clients (a prefix) that take each step."""
        steps = np.arange(self.steps.max(initial=0))
        counts: list[int] = np.searchsorted(-self.steps, -steps, side="left").tolist()
        return counts


def count_steps(sizes: Int64, local: Local, merge_single: bool = False) -> Int64:
    """Return the number of steps that `Local` asks of clients with this many rows."""
    if local.steps is not None:
        return np.full(len(sizes), local.steps)
    if local.batch_size is None:
        return np.full(len(sizes), local.epochs)
    return count_batches(sizes, local.batch_size, merge_single) * (local.epochs or 0)


def count_batches(sizes: Int64, size: int, merge_single: bool) -> Int64:
    """Return the number of batches in one pass over each client's rows."""
    batches = -(-sizes // size)
    if merge_single:
        batches -= (sizes % size == 1) & (batches > 1)
    return batches


def needs_two_rows(module: nn.Module) -> bool:
    """Return True if a module cannot train on a batch of one row, as BatchNorm cannot."""
    return any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules())


def plan_batches(
    data: RaggedRows | RowLists,
    clients: Int64,
    local: Local,
    seed: int,
    round: int,
    merge_single: bool = False,
    steps: Int64 | None = None,
    draws: int = 1,
    purpose: str = "batches",
    ids: Int64 | None = None,
    secret: bool = False,
) -> list[BatchPlan]:
    """Return plans for these clients, in groups whose batches are of similar width.

    Args:
        merge_single: a last batch of a single row joins the one before it (BatchNorm cannot train
            on one row)
        steps: for each client, in place of what `local` asks
        draws: batches a step uses: the plan holds `draws` times as many
        ids: the numbers by which the clients' randomness is keyed; None: their places
        secret: Poisson's draws come from the operating system, and nobody can make them again
    """
    wanted = count_steps(data.sizes[clients], local, merge_single) if steps is None else steps
    wanted = wanted * draws
    if local.batch_size is None:
        # One full batch a step. Widths differ a lot between clients: group by powers of two.
        sizes = data.sizes[clients]
        width = np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
        groups = [np.flatnonzero(width == w) for w in np.unique(width)]
        groups = [at[np.argsort(-wanted[at], kind="stable")] for at in groups]
        return [_full_batches(data, clients, at, wanted[at]) for at in groups]
    at = np.argsort(-wanted, kind="stable")
    key = rng.keys(seed, purpose, round, (clients if ids is None else ids)[at])
    if local.batches == "poisson":
        return [_poisson(data, clients, at, wanted[at], local.batch_size, None if secret else key)]
    if local.batches == "independent":
        return [_independent(data, clients, at, wanted[at], local.batch_size, key)]
    batches = count_batches(data.sizes[clients], local.batch_size, merge_single)
    return [_minibatches(data, clients, at, batches[at], wanted[at], local.batch_size, key)]


def _full_batches(
    data: RaggedRows | RowLists, clients: Int64, at: Int64, steps: Int64
) -> BatchPlan:
    """Return a plan of which every step takes all of a client's rows, in order."""
    sizes = data.sizes[clients[at]]
    slots = np.minimum(np.arange(sizes.max()), sizes[:, None] - 1)
    rows = data.base(data.offsets[clients[at], None] + slots)
    total = int(steps.max(initial=0))
    return BatchPlan(
        at,
        clients[at],
        steps,
        np.broadcast_to(rows[:, None, :], (len(at), total, rows.shape[1])),
        np.broadcast_to(sizes[:, None], (len(at), total)),
    )


def _minibatches(
    data: RaggedRows | RowLists,
    clients: Int64,
    at: Int64,
    batches: Int64,
    steps: Int64,
    b: int,
    key: UInt64,
) -> BatchPlan:
    """Return a plan cut from as many shuffles of each client's rows as its steps need: step s of a
    client with m batches takes batch s % m of its shuffle s // m."""
    sizes, starts = data.sizes[clients[at]], data.offsets[clients[at]]
    shuffles = -(-steps // batches)
    who = np.repeat(np.arange(len(at)), shuffles)
    drawn, offsets = rng.permutations(rng.fold(key[who], rng.ramp(shuffles)), sizes[who])
    step, most, each = np.arange(int(steps.max(initial=0))), batches[:, None], sizes[:, None]
    batch = step % most
    # The last batch has what is left, which is more than b where a single row was merged into it.
    count = np.where(batch == most - 1, each - batch * b, b) * (step < steps[:, None])
    slot = np.arange(max(1, int(count.max(initial=0))))
    first = offsets[np.cumsum(shuffles) - shuffles]  # where a client's first shuffle begins
    begin = first[:, None] + step // most * each
    index = (begin + batch * b)[:, :, None] + slot
    rows = np.where(slot < count[:, :, None], drawn.take(index, mode="clip"), 0)
    return BatchPlan(at, clients[at], steps, data.base(rows + starts[:, None, None]), count)


def _independent(
    data: RaggedRows | RowLists, clients: Int64, at: Int64, steps: Int64, b: int, key: UInt64
) -> BatchPlan:
    """Return a plan of which every step takes the first b rows of a fresh shuffle."""
    sizes, starts = data.sizes[clients[at]], data.offsets[clients[at]]
    most, width = int(steps.max(initial=0)), int(np.minimum(sizes, b).max(initial=0))
    rows = np.empty((len(at), most, width), np.int64)
    rows[:] = starts[:, None, None]
    slot = np.minimum(np.arange(width), sizes[:, None] - 1)  # beyond a client's rows: padding
    for step in range(most):
        n = int(np.count_nonzero(steps > step))  # the busiest come first
        drawn, begin = rng.permutations(rng.fold(key[:n], step), sizes[:n])
        rows[:n, step] = starts[:n, None] + drawn[begin[:-1, None] + slot[:n]]
    taken = np.arange(most) < steps[:, None]
    count = np.where(taken, np.minimum(sizes, b)[:, None], 0)
    return BatchPlan(at, clients[at], steps, data.base(rows), count)


def _poisson(
    data: RaggedRows | RowLists, clients: Int64, at: Int64, steps: Int64, b: int, key: UInt64 | None
) -> BatchPlan:
    """Return a plan of which every step takes each row by itself, with probability `b / rows`.
    Without a key the operating system draws."""
    sizes, starts = data.sizes[clients[at]], data.offsets[clients[at]]
    most = int(steps.max(initial=0))
    parts, count = [], np.zeros((len(at), most), np.int64)
    for step in range(most):
        n = int(np.count_nonzero(steps > step))  # the busiest come first
        who, row = np.repeat(np.arange(n), sizes[:n]), rng.ramp(sizes[:n])
        if key is None:
            u = (system_words(len(row)) >> np.uint64(11)) * 2.0**-53
        else:
            u = rng.uniform(rng.fold(rng.fold(key[:n], step)[who], row))
        taken = u * sizes[who] < b
        count[:n, step] = np.bincount(who[taken], minlength=n)
        parts.append((who[taken], row[taken]))
    rows = np.empty((len(at), most, int(count.max(initial=0))), np.int64)
    rows[:] = starts[:, None, None]
    for step, (who, row) in enumerate(parts):
        rows[who, step, rng.ramp(count[: who.max(initial=-1) + 1, step])] = starts[who] + row
    return BatchPlan(at, clients[at], steps, data.base(rows), count)


def cut_portions(group: BatchPlan, model: Params) -> list[BatchPlan]:
    """Cut a group into portions, nearly equal in clients: those with most steps come first."""
    clients = len(group.at)
    pieces = count_portions(clients, group.rows.shape[2], model)
    ends = np.arange(pieces + 1) * clients // pieces
    return [group.cut(int(a), int(b)) for a, b in zip(ends, ends[1:], strict=False)]


def count_portions(clients: int, width: int, model: Params) -> int:
    """Return the number of portions of clients with batches of this many rows."""
    step = clients * width * count_parameters(model)
    fits = -(-clients * params.nbytes(model) // CACHE)
    return min(clients, max(1, fits, min(ENOUGH, step // WORTH)))


def blocks(group: BatchPlan, model: Params, threads: int) -> list[slice]:
    """Cut a portion into consecutive clients for each hand-over to a thread: worth one, and no more
    of them than even out the threads' shares. For clients that never meet in one product, so that
    the number of threads may count here."""
    amount = estimate_work(group, model)
    done = np.cumsum(amount) // max(WORTH, int(amount.sum()) // (EVEN * threads))
    enough = np.diff(done, prepend=0) > 0
    enough[-1] = True
    ends = np.flatnonzero(enough) + 1
    starts = np.concatenate([[0], ends[:-1]])
    return [slice(int(a), int(b)) for a, b in zip(starts, ends, strict=True)]


def estimate_work(group: BatchPlan, model: Params) -> Int64:
    """Return parameters times rows over all steps of each client."""
    rows: Int64 = group.count.sum(1)
    return rows * count_parameters(model)


def count_parameters(model: Params) -> int:
    """Return the number of parameters of a model."""
    return sum(t.numel() for t in model.values())
