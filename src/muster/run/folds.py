"""Training on folds: a client's mean reply, and how far its folds' replies lie apart.

A client that trains on K disjoint folds of its rows instead of on all of them, in batches K times
smaller, visits as many rows. Its reply is the mean `m_k` of the folds' models `m_kf`, and

    v_k = sum_f |m_kf - m_k|^2 / (K (K - 1))

is an unbiased estimate of `E|m_k - mu_k|^2`, the variance of that mean around the reply of
unlimited rows, since folds share no row. It is one number for each layer of the model, and costs no
message: the sum is the client's claim, and the shares of the layers travel next to its model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..base import params, rng
from ..base.arrays import Bool, Float64, Int64
from ..base.lazy import torch
from ..base.params import Params, State
from ..engines.engine import Assignment, Engine
from ..federation.ragged_rows import RowLists
from ..local import Local
from ..parts.solvers import Solver, Work
from ..parts.tracks import SPREAD
from ..protocol import Offer, Roster

if TYPE_CHECKING:
    from torch import Tensor

LEAST = 2  # rows of a fold: BatchNorm cannot train on one


def train_with_spread(
    engine: Engine,
    rows: RowLists | None,
    local: Local,
    solver: Solver,
    offer: Offer,
    roster: Roster,
    state: State,
    steps: Int64,
    folds: int,
) -> tuple[Work, Int64, Float64]:
    """Train clients, those of the objective on folds of their rows; return work, steps and v_k of
    each layer, `[client, layer]`.

    A client of the objective with too few rows for folds trains on all of them, and claims the
    squared length of its update: it knows nothing better. Others claim 0.

    Args:
        rows: of each client of the roster; None: all its rows
        steps: of each client; on every fold it takes as many
    """
    clients, n = roster.clients, len(roster)
    member = roster.importance > 0
    sizes = engine.fed.train.sizes[clients] if rows is None else rows.sizes
    split = member & (sizes >= LEAST * folds)
    spread = no_spread(n, offer)
    parts: list[tuple[Bool, Work, Int64]] = []
    if not split.all():
        some = ~split
        own = None if rows is None else rows.pick(np.flatnonzero(some))
        assignment = Assignment(steps[some], rows=own, ids=roster.ids[some])
        work, taken = engine.train(solver, offer, clients[some], pick(state, some), assignment)
        few = member[some]
        if few.any():
            spread[some & member] = squared_lengths(offer, params.select(work.models, few))
        parts.append((some, work, taken))
    if split.any():
        key = rng.keys(offer.seed, "folds", offer.round, roster.ids[split])
        size = None if local.batch_size is None else max(LEAST, local.batch_size // folds)
        at = np.flatnonzero(split)
        lists = engine.fed.train.lists(clients[at]) if rows is None else rows.pick(at)
        assignment = Assignment(
            np.repeat(steps[split], folds),
            replace(local, batch_size=size),
            rows=lists.split_folds(folds, key),
            ids=(roster.ids[split][:, None] * folds + np.arange(folds)).ravel(),
            purpose="folds",
        )
        each = np.repeat(at, folds)
        work, taken = engine.train(solver, offer, clients[each], pick(state, each), assignment)
        spread[split] = spread_between(work.models, folds, offer.trainable)
        parts.append((split, mean_over(work, folds), taken.reshape(-1, folds).sum(1)))
    return (*join(parts, n), spread)


def pick(state: State, rows: Bool | Int64) -> State:
    """Return the state of some clients."""
    return {part: params.select(table, rows) for part, table in state.items()}


def squared_lengths(offer: Offer, models: Params) -> Float64:
    """Return `|m_k - w|^2` of each model and layer, over what moves by gradient."""

    def measure(name: str) -> Tensor:
        return params.as_rows(models[name] - offer.model[name]).double().pow(2).sum(1)

    return sum_by_layer(measure, offer.trainable)


def spread_between(models: Params, folds: int, names: tuple[str, ...]) -> Float64:
    """Return v_k of each client and layer from the models of its folds, over these parameters."""

    def measure(name: str) -> Tensor:
        t = params.as_rows(models[name]).double()
        t = t.view(-1, folds, t.shape[1])
        return (t - t.mean(1, keepdim=True)).pow(2).sum((1, 2))

    return sum_by_layer(measure, names) / (folds * (folds - 1))


def no_spread(clients: int, offer: Offer) -> Float64:
    """Return zeros for v_k of each client and layer, `[client, layer]`.

    >>> from types import SimpleNamespace
    >>> no_spread(2, SimpleNamespace(trainable=("0.weight", "0.bias", "2.weight"))).shape
    (2, 2)
    """
    return np.zeros((clients, len(params.group_by_layer(offer.trainable))))


def sum_by_layer(measure: Callable[[str], Tensor], names: tuple[str, ...]) -> Float64:
    """Return `[client, layer]`, the sum of a measure `[client]` over the parameters of a layer."""
    layers = params.group_by_layer(names).values()
    sums = [torch.stack([measure(name).cpu() for name in layer]).sum(0) for layer in layers]
    return np.asarray(torch.stack(sums, 1).numpy(), np.float64)


def report_spread(work: Work, spread: Float64) -> tuple[Work, Float64]:
    """Return work with the layers' shares of v_k next to its models, and v_k itself; of a model
    that has one layer there is nothing to share."""
    claim, layers = spread.sum(1), spread.shape[1]
    if layers == 1:
        return work, claim
    share = np.full(spread.shape, 1 / layers)
    np.divide(spread, claim[:, None], out=share, where=claim[:, None] > 0)
    like = next(iter(work.models.values()))
    table = {"share": torch.from_numpy(share).to(like)}
    return replace(work, extra={**work.extra, SPREAD: table}), claim


def mean_over(work: Work, folds: int) -> Work:
    """Return the mean over folds of the models, of the state and of what else is sent."""

    def mean(table: Params) -> Params:
        each = {name: t.view(-1, folds, *t.shape[1:]) for name, t in table.items()}
        return {n: t.mean(1) if t.is_floating_point() else t[:, 0] for n, t in each.items()}

    return Work(
        mean(work.models),
        {part: mean(table) for part, table in work.memory.items()},
        {part: mean(table) for part, table in work.extra.items()},
    )


def join(parts: list[tuple[Bool, Work, Int64]], n: int) -> tuple[Work, Int64]:
    """Return the work of several groups of clients in the clients' order."""
    if len(parts) == 1:
        return parts[0][1:]
    works = [work for _, work, _ in parts]
    at = [torch.from_numpy(np.flatnonzero(some)) for some, _, _ in parts]

    def together(tables: list[Params]) -> Params:
        whole = {name: t.new_empty(n, *t.shape[1:]) for name, t in tables[0].items()}
        for table, where in zip(tables, at, strict=True):
            for name, t in table.items():
                whole[name][where.to(t.device)] = t
        return whole

    taken = np.zeros(n, np.int64)
    for some, _, steps in parts:
        taken[some] = steps
    return (
        Work(
            together([work.models for work in works]),
            {part: together([work.memory[part] for work in works]) for part in works[0].memory},
            {part: together([work.extra[part] for work in works]) for part in works[0].extra},
        ),
        taken,
    )
