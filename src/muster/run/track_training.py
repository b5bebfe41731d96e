"""Training of several models side by side: each client's part of a round with tracks.

Track f of the helped ones leaves out fold f of the objective's rows. A client of the objective
trains it on its other rows; where the method validates, it also takes the same steps on fold f
alone, from the same model: the direction that rows unseen by w_f would take. Helpers train every
helped track on all their rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..base import rng
from ..base.arrays import Bool, Float64, Int64
from ..base.lazy import torch
from ..base.params import Params, State, expand
from ..engines.engine import Assignment, Engine
from ..federation.ragged_rows import RowLists
from ..methods import Method
from ..parts.solvers import Work
from ..parts.tracks import GAIN, VALIDATION, cut, cut_offer, mix, pool_folds
from ..protocol import Offer, Roster
from .folds import join, no_spread, pick, report_spread, train_with_spread
from .job import Job

if TYPE_CHECKING:
    from torch import Tensor


class FoldRows:
    """The rows of some clients: all, without fold f, and fold f; folds of the objective's only.

    A run has the same folds in every round. A client with too few rows for folds has no fold: its
    tracks train on all its rows, and it validates nothing.
    """

    def __init__(self, rows: RowLists, roster: Roster, seed: int, folds: int) -> None:
        self.rows, self.n = rows, folds
        self.split = np.flatnonzero((roster.importance > 0) & (rows.sizes > folds))
        key = rng.keys(seed, "cross-fit", 0, roster.ids[self.split])
        self.folds = rows.pick(self.split).split_folds(folds, key)

    def fold(self, f: int) -> RowLists:
        """Return fold f (from 1) of the clients in `split`."""
        return self.folds.pick(np.arange(len(self.split)) * self.n + f - 1)

    def without(self, f: int) -> RowLists:
        """Return everyone's rows without fold f; f = 0: all rows."""
        if f == 0 or not len(self.split):
            return self.rows
        others = np.delete(np.arange(self.n), f - 1)
        rest = self.folds.merge(np.arange(len(self.split))[:, None] * self.n + others)
        sizes = self.rows.sizes.copy()
        sizes[self.split] = rest.sizes
        both = RowLists(
            np.concatenate([self.rows.offsets, self.rows.offsets[-1] + rest.offsets[1:]]),
            np.concatenate([self.rows.rows, rest.rows]),
        )
        which = np.arange(len(sizes))
        which[self.split] = len(sizes) + np.arange(len(self.split))
        return both.pick(which)


def train_tracks(
    engine: Engine,
    rows: RowLists,
    job: Job,
    offer: Offer,
    roster: Roster,
    state: State,
    steps: Int64,
) -> tuple[Work, Int64, Float64]:
    """Train clients in every track that concerns them; return work with a track axis after the
    client axis, the steps of each over all tracks, and the sum of its claims.

    Args:
        rows: of each client of the roster
        state: of each, with a track axis after the client axis
        steps: of each, in one training
    """
    tracks = job.method.tracks
    assert tracks is not None, "the method trains several models"
    member = roster.importance > 0
    folds = FoldRows(rows, roster, offer.seed, tracks.folds)
    works: list[Work] = []
    taken = np.zeros(len(roster), np.int64)
    spread = no_spread(len(roster), offer)
    for track in range(tracks.count):
        helped = tracks.helped.start <= track < tracks.helped.stop
        group = tracks.helped if helped else tracks.unhelped
        who = np.ones(len(roster), np.bool_) if helped else member & (track >= group.start)
        own = {part: cut(table, track, 1) for part, table in state.items()}
        lists = folds.without(track - group.start if who.any() else 0)
        halves = job.method.folds if helped else 0
        work, more, spreads = train_some(
            engine, lists, job, cut_offer(offer, track), roster, own, steps, who, halves
        )
        works.append(work)
        taken, spread = taken + more, spread + spreads
    work = stack_tracks(works)
    extra = dict(work.extra)
    if job.method.validates:
        extra[VALIDATION], more = validate(engine, folds, job, offer, roster, state, steps, work)
        taken = taken + more
    if job.method.deploy is not None:
        extra[GAIN] = {"loss": measure_gain(engine, folds, job.method, offer, roster)}
    work, claim = report_spread(replace(work, extra=extra), spread)
    return work, taken, claim


def train_some(
    engine: Engine,
    rows: RowLists,
    job: Job,
    offer: Offer,
    roster: Roster,
    state: State,
    steps: Int64,
    who: Bool,
    folds: int,
) -> tuple[Work, Int64, Float64]:
    """Train some clients on these rows, the objective's on folds of them where the method claims a
    spread; the others stay at the offer's model."""
    some, at, n = roster.pick(who), np.flatnonzero(who), len(roster)
    parts: list[tuple[Bool, Work, Int64]] = []
    spread = no_spread(n, offer)
    if not who.all():
        rest = int((~who).sum())
        extra = {part: expand(offer.model, rest) for part in job.method.solver.sends}
        idle = Work(expand(offer.model, rest), pick(state, ~who), extra)
        parts.append((~who, idle, np.zeros(rest, np.int64)))
    if len(at) and folds:
        work, taken, spread[at] = train_with_spread(
            engine,
            rows.pick(at),
            job.local,
            job.method.solver,
            offer,
            some,
            pick(state, who),
            steps[at],
            folds,
        )
        parts.append((who, work, taken))
    elif len(at):
        assignment = Assignment(steps[at], rows=rows.pick(at), ids=some.ids)
        own = pick(state, who)
        parts.append((who, *engine.train(job.method.solver, offer, some.clients, own, assignment)))
    return (*join(parts, n), spread)


def validate(
    engine: Engine,
    folds: FoldRows,
    job: Job,
    offer: Offer,
    roster: Roster,
    state: State,
    steps: Int64,
    work: Work,
) -> tuple[Params, Int64]:
    """Take the same steps on each fold alone, from the model that leaves it out; return the models,
    `[client, fold, ...]`, and the steps. Who has no fold repeats its reply: it tells nothing."""
    tracks = job.method.tracks
    assert tracks is not None, "a method that validates has tracks"
    models = {name: t[:, tracks.helped][:, 1:].clone() for name, t in work.models.items()}
    taken = np.zeros(len(roster), np.int64)
    some = roster.pick(folds.split)
    for f in range(1, tracks.folds + 1 if len(some) else 0):
        track = tracks.helped.start + f
        own = {part: cut(table, track, 1) for part, table in pick(state, folds.split).items()}
        assignment = Assignment(steps[folds.split], rows=folds.fold(f), ids=some.ids)
        done, more = engine.train(
            job.method.solver, cut_offer(offer, track), some.clients, own, assignment
        )
        for name, t in models.items():
            t[torch.from_numpy(folds.split).to(t.device), f - 1] = done.models[name]
        taken[folds.split] += more
    return models, taken


def measure_gain(
    engine: Engine, folds: FoldRows, method: Method, offer: Offer, roster: Roster
) -> Tensor:
    """Return how much lower the loss is on unseen rows at each point from the model trained alone
    to the helped one, for each client: the mean over folds, and its squared standard error."""
    tracks, deploy = method.tracks, method.deploy
    assert tracks is not None, "the method trains several models"
    assert deploy is not None, "the method measures what help gains"
    gain = np.full((len(roster), tracks.folds, len(deploy.points)), np.nan)
    who = roster.clients[folds.split]
    for f in range(1, tracks.folds + 1 if len(who) else 0):
        helped, alone = (
            cut(offer.model, group.start + f) for group in (tracks.helped, tracks.unhelped)
        )
        models = [alone, *(mix(alone, helped, b) for b in deploy.points)]
        loss = [engine.appraise(model, who, rows=folds.fold(f)).loss for model in models]
        gain[folds.split, f - 1] = loss[0][:, None] - np.stack(loss[1:], 1)
    like = next(iter(offer.model.values()))
    return torch.from_numpy(pool_folds(gain)).to(like)


def stack_tracks(works: list[Work]) -> Work:
    """Return the work in all tracks, with a track axis after the client axis."""

    def together(tables: list[Params]) -> Params:
        return {name: torch.stack([table[name] for table in tables], 1) for name in tables[0]}

    first = works[0]
    return Work(
        together([work.models for work in works]),
        {part: together([work.memory[part] for work in works]) for part in first.memory},
        {part: together([work.extra[part] for work in works]) for part in first.extra},
    )
