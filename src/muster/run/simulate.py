"""Simulate: a method on a federation, round after round, with everything written down."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from .. import params
from ..checks import one_of, whole
from ..engines import Compute, How, choose, compute_of
from ..errors import MusterError
from ..federation import Federation
from ..federation.doubts import doubts
from ..lazy import nn
from ..local import Local
from ..methods import Method
from ..models import Spec, as_module
from ..parts.attacks import Adversary, Attack, attackers_of
from ..parts.participation import Participation
from ..parts.suited import suited
from ..parts.task import Multiclass, OfRows, Task
from ..rng import MOST
from . import opinion
from .clients import DECIDE_ON, DecideOn, Stack, Terms, needs_requirement
from .conduct import Keep, beginning, conduct
from .forecast import check_memory
from .result import OnRound, Run
from .round import Setup
from .trained import Recipe


def simulate(
    fed: Federation,
    method: Method,
    model: nn.Module | Spec,
    rounds: int,
    local: Local = Local(steps=5, batch_size=32, lr=0.1),
    seed: int = 0,
    participation: Participation | None = None,
    attack: Attack | None = None,
    evaluate_every: int = 1,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
    on_round: OnRound | None = None,
    task: Task | OfRows = Multiclass(),
    decide_on: DecideOn = "train",
    tuned_steps: int = 0,
    compute: Compute | None = None,
    **how: Unpack[How],
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
    task             what the model is to be good at: one of muster.tasks, or a function of outputs
                     and targets that gives the loss of each row
    decide_on        the rows by which clients judge the model for all that is decided in a round
                     (who joins, is admitted, stays; claims; F(w)): "train", or "held_out"
    tuned_steps      measure the model once more after this many local steps of each client's own
                     (gm_appeal_tuned, tuned_test_accuracy); training does not notice. 0: do not
    compute          how the work is run, Compute(engine, device, dtype, processes); each of these
                     may be given by itself instead
    """
    module = check(
        fed, method, model, rounds, local, seed, participation, attack, evaluate_every,
        checkpoint_every, task, decide_on, tuned_steps,
    )  # fmt: skip
    fed, task = suited(fed, task)
    chosen = compute_of(compute, how)
    if resume and checkpoint is None:
        raise MusterError("resume: needs checkpoint=FOLDER, where the run left its state")
    adversary = Adversary(attack, attackers_of(fed, attack, seed))
    if attack is not None:
        fed = attack.poison(fed, adversary.clients)
    work = choose(chosen, module, fed, local, task)
    terms = Terms(
        method, local, int(rounds), int(seed), params.trainable(module), participation, decide_on,
        int(tuned_steps), task,
    )  # fmt: skip
    setup = Setup(fed.population, terms, Stack(fed, terms, work, adversary))
    start = params.of_module(module, chosen.number, work.device)
    whose = {
        "dtype": chosen.dtype,
        "task": repr(task),
        "federation": f"{fed.name} {fed!r}",
        "data": fed.fingerprint(),
        "attack": repr(attack),
        "module": params.signature(module, fed.example()),
    }
    place = None if checkpoint is None else Path(checkpoint)
    check_memory(setup, start)
    try:
        return conduct(
            setup,
            module,
            beginning(setup, start, terms.memory(start)),
            whose,
            Keep(evaluate_every, place, checkpoint_every, resume),
            on_round,
            fed.note,
            {
                "data": fed.name,
                "engine_why": work.why,
                **opinion.guesses(fed, task),
                "doubts": [*doubts(fed), *opinion.without_loss(fed, task)],
            },
            recipe=Recipe.of(model, module, fed.inputs, task, method.serves),
            holdings=opinion.holdings(fed),
        )
    finally:
        work.close()


def check(
    fed: Federation,
    method: Method,
    model: nn.Module | Spec,
    rounds: int,
    local: Local,
    seed: int = 0,
    participation: Participation | None = None,
    attack: Attack | None = None,
    evaluate_every: int = 1,
    checkpoint_every: int = 10,
    task: Task | OfRows = Multiclass(),
    decide_on: DecideOn = "train",
    tuned_steps: int = 0,
) -> nn.Module:
    """The module to train, or the error of the first setting that cannot be, before anything is
    computed or written. The arguments are those of `simulate`."""
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
    whole("rounds", rounds)
    whole("seed", seed, 0, MOST)
    whole("evaluate_every", evaluate_every, 0)
    whole("checkpoint_every", checkpoint_every)
    whole("tuned_steps", tuned_steps, 0)
    one_of("decide_on", decide_on, DECIDE_ON)
    if decide_on == "held_out" and fed.test is None:
        raise MusterError(
            "decide_on: 'held_out', and this data has no held-out rows; give every client some, or "
            "decide on 'train'"
        )
    if decide_on == "held_out" and fed.test is not None and not fed.test.sizes.all():
        who = fed.population.called(int(fed.test.sizes.argmin()))
        raise MusterError(
            f"decide_on: 'held_out', and client {who} has no held-out rows; give it some, or "
            "decide on 'train'"
        )
    if fed.requirement is None and needs_requirement(method, participation):
        raise MusterError(
            f"requirement: {method.name if participation is None else 'participation'} needs each "
            "client's rho_k; give requirement.steps (each trains that long alone) or a requirement "
            "for every client of your data, in Python muster.with_solo(fed, model)"
        )
    fed, task = suited(fed, task)
    return as_module(model, fed, seed, task)
