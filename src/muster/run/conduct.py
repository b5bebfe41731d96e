"""Round after round: play, measure, write down, and save, wherever the clients are."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from torch import nn

from .. import params
from ..params import Memory, Params
from ..protocol import State, View
from . import store
from .ledger import Ledger
from .measures import evaluate
from .result import Interrupted, OnRound, Run
from .round import Game, play


def beginning(game: Game, start: Params, memory: Memory) -> State:
    """The state before the first round; `memory` is what the clients remember, if kept here."""
    seen = ~game.fed.unseen
    return State(0, start, game.method.step.memory(start, seen), memory, seen)


def conduct(
    game: Game,
    module: nn.Module,
    state: State,
    whose: dict[str, str],
    dtype: str,
    evaluate_every: int,
    checkpoint: Path | None,
    checkpoint_every: int,
    resume: bool,
    on_round: OnRound | None,
) -> Run:
    """Round after round from `state`, or from the last checkpoint, wherever the clients are.

    `whose` tells one federation from another, so that a checkpoint is not taken for another's.
    """
    fed, method, rounds = game.fed, game.method, game.rounds
    judge = Judge(game)
    ledger = Ledger()
    identity = {
        "method": repr(method),
        "local": repr(game.local),
        "rounds": str(rounds),
        "seed": str(game.seed),
        "dtype": dtype,
        "engine": game.clients.name,
        **whose,
        "model": str({name: tuple(t.shape) for name, t in state.model.items()}),
        "participation": repr(game.participation),
        "attack": repr(game.adversary.attack),
    }
    if resume and checkpoint is not None:
        found = store.load_checkpoint(checkpoint, identity, game.clients.device)
        if found is not None:
            state, ledger = found

    every = evaluate_every or rounds
    # What is measured of a state is what clients would measure at its offer.
    reuse = evaluate_every == 1 and method.serves == "global"
    known = judge(state).train if reuse else None
    complete = True
    try:
        while state.round < rounds:
            began = time.perf_counter()
            following, entry = play(game, state, known)
            due = following.round % every == 0 or following.round == rounds
            measures = evaluate(fed, judge(following)) if due else {}
            known = judge(following).train if reuse else None
            seconds = time.perf_counter() - began
            row = ledger.add(entry, {**measures, "seconds": seconds})
            state = following
            if checkpoint is not None and state.round % checkpoint_every == 0:
                store.save_checkpoint(checkpoint, state, ledger, identity)
            if on_round is not None:
                on_round(row)
    except KeyboardInterrupt:
        complete = False
        # The ledger may be one round ahead of the state: keep what both agree on.
        ledger.cut(state.round)
        if checkpoint is not None and state.round:
            store.save_checkpoint(checkpoint, state, ledger, identity)
    run = finish(game, module, judge, state, ledger, complete)
    if not complete:
        raise Interrupted(run)
    return run


class Judge:
    """What every client makes of a state, asked once a state."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.round = -1
        self.last: View | None = None

    def __call__(self, state: State) -> View:
        """Everyone's view of a state."""
        if self.last is None or self.round != state.round:
            self.round, self.last = state.round, self.game.clients.view(state)
        return self.last


def finish(
    game: Game, module: nn.Module, judge: Judge, state: State, ledger: Ledger, complete: bool
) -> Run:
    """The run as its user sees it."""
    fed, view = game.fed, judge(state)
    train, test = view.train, view.test
    unknown = np.full(fed.n, np.nan)
    final = pl.DataFrame(
        {
            "client": np.arange(fed.n),
            "priority": fed.priority,
            "unseen": fed.unseen,
            "attacker": np.isin(np.arange(fed.n), game.adversary.clients),
            "rows": fed.train.sizes,
            "train_loss": train.loss,
            "train_accuracy": train.accuracy,
            "test_loss": unknown if test is None else test.loss,
            "test_accuracy": unknown if test is None else test.accuracy,
            "requirement": unknown if fed.requirement is None else fed.requirement,
            "useful": pl.Series(view.useful, nan_to_null=True).cast(pl.Boolean),
        }
    ).fill_nan(None)
    weights = params.into_module(module, state.model)
    frames: dict[str, Any] = {**ledger.frames()}
    return Run(
        weights=weights,
        **frames,
        final=final,
        method=game.method.name,
        seed=game.seed,
        engine=game.clients.name,
        complete=complete,
        note=fed.note,
    )
