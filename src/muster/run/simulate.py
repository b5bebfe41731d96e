"""Simulate: a method on a federation, round after round, with everything written down."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import nn

from .. import params
from ..engines import choose
from ..errors import MusterError, unknown
from ..federation import Federation
from ..local import Local
from ..methods import Method
from ..models import Spec, as_module
from ..params import DTYPES
from ..parts.attacks import Adversary, Attack, attackers_of
from ..parts.participation import Participation
from .clients import Stack
from .conduct import beginning, conduct
from .result import OnRound, Run
from .round import Game


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
