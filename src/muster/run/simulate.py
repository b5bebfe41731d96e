"""Simulation of a method on a federation, in this process."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Unpack

from ..base import params
from ..base.lazy import nn
from ..engines import Compute, ComputeOptions, choose, resolve_compute
from ..federation import Federation
from ..federation.data_warnings import find_data_warnings
from ..local import Local
from ..methods import Method
from ..models.specs import Spec
from ..parts.participation import Participation
from ..parts.threats.adversary import Adversary, Attack, draw_attackers
from ..privacy.gaussian import Gaussian
from ..results.model import ModelRecipe
from ..results.run import OnRound, Run
from ..tasks.classification import Multiclass
from ..tasks.compatibility import match_task
from ..tasks.task import RowFunction, Task, as_task
from . import evaluate
from .auto_epsilon import choose_epsilon
from .checkpoint import Keep, share_checkpoint
from .contributors import LocalContributors
from .job import DecideOn, Job
from .local_clients import LocalClients
from .memory_check import check_memory
from .phase_times import PhaseTimes, time_clients
from .round import Setup
from .row_account import RowAccount
from .training_loop import RunOrigin, build_initial_state, expand_tracks, run_rounds


def simulate(
    fed: Federation,
    method: Method,
    model: nn.Module | Spec,
    rounds: int,
    local: Local = Job.local,
    seed: int = 0,
    participation: Participation | None = None,
    attack: Attack | None = None,
    evaluate_every: int = 1,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
    on_round: OnRound | None = None,
    task: Task | RowFunction = Multiclass(),
    decide_on: DecideOn = "train",
    tuned_steps: int = 0,
    privacy: Gaussian | None = None,
    compute: Compute | None = None,
    **how: Unpack[ComputeOptions],
) -> Run:
    """Run a method on a federation and return everything that happened.

    Args:
        model: any nn.Module (its parameters are the starting point) or one of muster.models
        participation: None: everyone stays; Flexible(): clients leave when the model no longer
            meets their requirement, and return when it does
        attack: what a seeded share of the clients does instead of its part
        evaluate_every: evaluate the model on every client every n rounds and after the last one; 0:
            after the last only, so that a round costs only the asked clients' work
        checkpoint: a folder: the state is saved there every `checkpoint_every` rounds
        resume: resume from the last checkpoint in that folder, with bit-identical results
        on_round: called with each round's row
        task: what the model is to be good at: one of muster.tasks, or a function of outputs and
            targets that gives the loss of each row
        decide_on: split used for join, admit and leave decisions, claims and F(w): "train" or
            "held_out"
        tuned_steps: evaluate the model once more after this many local steps of each client
            (gm_appeal_tuned, tuned_test_accuracy); training is not affected. 0: do not
        privacy: differential privacy of what the run releases: muster.privacy.Gaussian(...)
        compute: engine, device, dtype and processes, as Compute(...); each of these may also be
            given alone

    `muster.run_job(fed, muster.Job(...))` is the same with the settings as one value.
    """
    job = Job(
        method,
        model,
        local,
        rounds,
        seed,
        participation,
        attack,
        as_task(task),
        decide_on,
        tuned_steps,
        privacy,
    )
    folder = None if checkpoint is None else Path(checkpoint)
    keep = Keep(evaluate_every, folder, checkpoint_every, resume)
    return run_job(fed, job, compute=resolve_compute(compute, how), keep=keep, on_round=on_round)


def run_job(
    fed: Federation,
    job: Job,
    *,
    compute: Compute = Compute(),
    keep: Keep = Keep(),
    on_round: OnRound | None = None,
    module: nn.Module | None = None,
    times: PhaseTimes | None = None,
) -> Run:
    """Simulate a job on a federation and return everything that happened.

    Args:
        compute: engine, device, dtype and processes
        keep: how often it is evaluated and saved, and where
        on_round: called with each round's row
        module: the result of `job.check(fed)`, where that was called before
        times: filled with the seconds of each phase
    """
    if job.privacy is not None:
        compute.refuse_spread("with privacy each of its processes would draw another noise")
        fed = replace(fed, measured={})  # statistics of rows, without noise
    module = job.check(fed) if module is None else module
    once = partial(run_job, compute=compute, keep=Keep(evaluate_every=0))
    job, chosen = choose_epsilon(fed, job, once)
    fed, task = match_task(fed, job.task)
    adversary = Adversary(job.attack, draw_attackers(fed, job.attack, job.seed))
    if job.attack is not None:
        fed = job.attack.poison(fed, adversary.clients)
    account = RowAccount.open(job, fed.train.sizes)
    noise = None if account is None else account.noise
    work = choose(compute, module, fed, job.local, task, noise)
    clients = LocalClients(fed, job, work, adversary)
    contributors = time_clients(LocalContributors(clients), times) if job.protects_clients else None
    setup = Setup(fed.population, job, time_clients(clients, times), contributors=contributors)
    start = params.get_params(module, compute.number, work.device)
    origin = RunOrigin(
        identity={
            "dtype": compute.dtype,
            "task": repr(task),
            "federation": f"{fed.name} {fed!r}",
            "data": fed.fingerprint(),
            "attack": repr(job.attack),
            "module": params.signature(module, fed.example()),
        },
        recipe=ModelRecipe.of(job.model, module, fed.inputs, task, job.method.serves),
        note=fed.note,
        facts={
            "data": fed.name,
            "varies": fed.variation.table,
            "engine_why": work.why,
            **({"solo_work": fed.solo_work} if fed.solo_work else {}),
            **evaluate.compute_baselines(fed, task),
            **chosen,
            "doubts": [
                *job.find_warnings(fed.population),
                *([] if account is None else account.find_warnings()),
                *find_data_warnings(fed, values=job.privacy is None),
                *evaluate.find_clients_without_loss(fed, task),
            ],
        },
        holdings=evaluate.count_holdings(fed),
        test_rows=None if fed.test is None else fed.test.sizes,
        row_account=account,
    )
    try:
        check_memory(setup, expand_tracks(job.method, start))
        state = build_initial_state(setup, start, job.memory(start, work.trainable))
        with share_checkpoint(work.ranks, keep) as own:
            return run_rounds(setup, module, state, own, origin, on_round, times)
    finally:
        work.close()
