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
from .engines import Engine, choose
from .errors import MusterError, unknown
from .federation import Federation
from .ledger import Ledger
from .local import Local
from .methods import Method
from .models import Spec, as_module
from .params import DTYPES
from .participation import Participation
from .protocol import Appraisal, State
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
    game = Game(
        fed, method, work, local, rounds, seed, params.trainable(module), participation, adversary
    )
    place = None if checkpoint is None else Path(checkpoint)
    try:
        return _run(game, module, dtype, evaluate_every, place, checkpoint_every, resume, on_round)
    finally:
        work.close()


def _run(
    game: Game,
    module: nn.Module,
    dtype: str,
    evaluate_every: int,
    checkpoint: Path | None,
    checkpoint_every: int,
    resume: bool,
    on_round: OnRound | None,
) -> Run:
    fed, method, rounds = game.fed, game.method, game.rounds
    judge = Judge(fed, method, game.engine)
    start = params.of_module(module, DTYPES[dtype], game.engine.device)
    memory = method.solver.memory(start)
    state = State(
        0,
        start,
        method.step.memory(start, ~fed.unseen),
        {part: params.expand(m, fed.n) for part, m in memory.items()},
        ~fed.unseen,
    )
    ledger = Ledger()
    identity = {
        "method": repr(method),
        "local": repr(game.local),
        "rounds": str(rounds),
        "seed": str(game.seed),
        "dtype": dtype,
        "engine": game.engine.name,
        "federation": f"{fed.name} {fed!r}",
        "data": fed.fingerprint(),
        "model": str({name: tuple(t.shape) for name, t in start.items()}),
        "participation": repr(game.participation),
        "attack": repr(game.adversary.attack),
    }
    if resume and checkpoint is not None:
        found = store.load_checkpoint(checkpoint, identity, game.engine.device)
        if found is not None:
            state, ledger = found

    every = evaluate_every or rounds
    known = judge.train(state) if evaluate_every == 1 and method.serves == "global" else None
    complete = True
    try:
        while state.round < rounds:
            began = time.perf_counter()
            following, entry = play(game, state, known)
            due = following.round % every == 0 or following.round == rounds
            measures = judge(following) if due else None
            # What was measured after this step is what clients would measure at the next offer.
            known = (
                judge.last if due and evaluate_every == 1 and method.serves == "global" else None
            )
            seconds = time.perf_counter() - began
            row = ledger.add(entry, {**(measures or {}), "seconds": seconds})
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
    """Measures a state on every client: the global model, or each client's own."""

    def __init__(self, fed: Federation, method: Method, engine: Engine) -> None:
        self.fed, self.method, self.engine = fed, method, engine
        self.everyone = np.arange(fed.n)
        self.useful_below = metrics.bar(fed)
        self.round = -1
        self.last: Appraisal | None = None
        self.last_test: Appraisal | None = None

    def train(self, state: State) -> Appraisal:
        """Every client's appraisal on its training data."""
        if self.method.serves == "own":
            return self.engine.appraise_each(state.clients["own"], self.everyone)
        return self.engine.appraise(state.model, self.everyone)

    def test(self, state: State) -> Appraisal | None:
        """Every client's appraisal on its held-out data, where there is any."""
        if self.fed.test is None:
            return None
        if self.method.serves == "own":
            return self.engine.appraise_each(state.clients["own"], self.everyone, "test")
        return self.engine.appraise(state.model, self.everyone, "test")

    def __call__(self, state: State) -> dict[str, float]:
        """The measures of a round's row; keeps both appraisals."""
        self.round, self.last, self.last_test = state.round, self.train(state), self.test(state)
        row = metrics.evaluate(self.fed, self.useful_below, self.last, self.last_test)
        if "own" in state.clients and self.method.serves == "global":
            # Methods that keep personal models beside the global one (Ditto, pFedMe).
            own = self.engine.appraise_each(state.clients["own"], self.everyone)
            row["own_loss"] = float(self.fed.objective @ own.loss)
            if self.fed.test is not None:
                own = self.engine.appraise_each(state.clients["own"], self.everyone, "test")
                row["own_test_accuracy"] = float(self.fed.objective @ own.accuracy)
        return row


def finish(
    game: Game, module: nn.Module, judge: Judge, state: State, ledger: Ledger, complete: bool
) -> Run:
    """The run as its user sees it."""
    fed = game.fed
    if judge.round != state.round:
        judge(state)
    train, test = judge.last, judge.last_test
    assert train is not None
    unknown = np.full(fed.n, np.nan)
    final = pl.DataFrame(
        {
            "client": judge.everyone,
            "priority": fed.priority,
            "unseen": fed.unseen,
            "attacker": np.isin(judge.everyone, game.adversary.clients),
            "rows": fed.train.sizes,
            "train_loss": train.loss,
            "train_accuracy": train.accuracy,
            "test_loss": unknown if test is None else test.loss,
            "test_accuracy": unknown if test is None else test.accuracy,
            "requirement": unknown if fed.requirement is None else fed.requirement,
            "useful": train.loss < judge.useful_below,
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
        engine=game.engine.name,
        complete=complete,
        note=fed.note,
    )
