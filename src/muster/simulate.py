"""Simulate: a method on a federation, round after round, with everything written down."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import nn

from . import metrics, params, store
from .attacks import Adversary, Attack, attackers_of
from .clients import Stack
from .engines import choose
from .errors import MusterError, unknown
from .federation import Federation
from .ledger import Ledger
from .local import Local
from .methods import Method
from .models import Spec, as_module
from .params import DTYPES, Memory, Params
from .participation import Participation
from .protocol import State, View
from .round import Game, play

OnRound = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Run:
    """A finished (or interrupted) run.

    weights  the model, under the module's own state_dict names
    rounds   a row a round, measured on the model after that round's step
    clients  a row a round and asked client, its loss and accuracy at the broadcast model
    moves    a row for each time a client left the pool or returned to it
    attackers  a row a round and attacker: its share of the step, and what honesty would have got
    final    a row a client: the last model on its training and held-out data
    note     what these results must say of their data
    """

    weights: dict[str, NDArray[Any]]
    rounds: pl.DataFrame
    clients: pl.DataFrame
    moves: pl.DataFrame
    attackers: pl.DataFrame
    final: pl.DataFrame
    method: str
    seed: int
    engine: str = ""
    complete: bool = True
    config: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    def __repr__(self) -> str:
        state = "" if self.complete else ", interrupted"
        return f"Run({self.method}, seed {self.seed}, {len(self.rounds)} rounds{state})"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `run` holds everything up to the last finished round."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"interrupted after round {len(run.rounds)}")
        self.run = run


def simulate(
    fed: Federation,
    method: Method,
    model: nn.Module | Spec,
    rounds: int,
    local: Local = Local(steps=5, batch_size=32, lr=0.1),
    seed: int = 0,
    dtype: str = "float32",
    engine: str = "auto",
    device: str = "cpu",
    processes: int | None = None,
    participation: Participation | None = None,
    attack: Attack | None = None,
    evaluate_every: int = 1,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
    on_round: OnRound | None = None,
) -> Run:
    """Run a method on a federation and return everything that happened.

    model            any nn.Module (its parameters are the starting point) or one of muster.models
    participation    None: everyone stays; Flexible(): clients leave when the model no longer meets
                     their requirement, and return when it does
    attack           what a seeded share of the clients does instead of its part
    evaluate_every   measure the model on every client every n rounds and after the last one;
                     0: after the last only, so that a round costs what the asked clients cost
    checkpoint       a folder: the state is saved there every `checkpoint_every` rounds
    resume           go on from the last checkpoint in that folder, to the bit-identical end
    on_round         called with each round's row
    """
    for what, given, kind in (
        ("fed", fed, Federation),
        ("local", local, Local),
        ("participation", participation, Participation | None),
        ("attack", attack, Attack | None),
    ):
        if not isinstance(given, kind):
            names = str(getattr(kind, "__name__", kind)).replace("muster.", "")
            raise MusterError(f"{what}: {type(given).__name__}; give a {names}")
    if not isinstance(method, Method):
        raise MusterError(
            f"method: {type(method).__name__}; give one of muster.methods, such as "
            "muster.methods.fedalign()"
        )
    for name, value, least in (
        ("rounds", rounds, 1),
        ("seed", seed, 0),
        ("evaluate_every", evaluate_every, 0),
        ("checkpoint_every", checkpoint_every, 1),
    ):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise MusterError(f"{name}: {value!r}; allowed: whole numbers from {least}")
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    if resume and checkpoint is None:
        raise MusterError("resume: needs checkpoint=FOLDER, where the run left its state")
    if fed.requirement is None and (method.claim.needs_requirement or participation is not None):
        raise MusterError(
            f"requirement: {method.name if participation is None else 'participation'} needs each "
            "client's rho_k; use Federation.from_arrays(requirement=...) or muster.with_solo(fed, "
            "model)"
        )
    adversary = Adversary(attack, attackers_of(fed, attack, seed))
    if attack is not None:
        fed = attack.poison(fed, adversary.clients)
    module = as_module(model, fed, seed)
    work = choose(engine, module, fed, local, DTYPES[dtype], device, processes)
    stack = Stack(fed, method, work, local, participation, adversary)
    game = Game(
        fed, method, stack, local, rounds, seed, params.trainable(module), participation, adversary
    )
    start = params.of_module(module, DTYPES[dtype], work.device)
    memory = {part: params.expand(m, fed.n) for part, m in method.solver.memory(start).items()}
    place = None if checkpoint is None else Path(checkpoint)
    try:
        return conduct(
            game,
            module,
            beginning(game, start, memory),
            {"federation": f"{fed.name} {fed!r}", "data": fed.fingerprint()},
            dtype,
            evaluate_every,
            place,
            checkpoint_every,
            resume,
            on_round,
        )
    finally:
        work.close()


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
            measures = metrics.evaluate(fed, judge(following)) if due else {}
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
