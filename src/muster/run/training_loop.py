"""The training loop: play rounds, evaluate the model, fill the ledger, save checkpoints, resume."""

from __future__ import annotations

import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import params
from ..base.arrays import Bool, Float64, Int64
from ..base.client_states import ClientStates
from ..base.durable import lock_folder
from ..base.errors import MusterWarning
from ..base.lazy import nn, pl, torch
from ..base.params import Params, State
from ..engines.compute import one_thread
from ..methods import Method
from ..parts.tracks import ALONE, cut
from ..privacy.account import Account
from ..protocol import Appraisal, LedgerEntry, RunState
from ..results import measures
from ..results.environment import describe_environment
from ..results.ledger import TABLES, Ledger
from ..results.model import ClientModels, ModelRecipe
from ..results.run import Interrupted, NoQuorum, OnRound, Run
from ..results.run_warnings import Facts
from . import progress
from .audit import build_trust_state
from .checkpoint import Keep, load_checkpoint, save_checkpoint
from .evaluation_cache import EvaluationCache
from .phase_times import PhaseTimes
from .private_round import (
    build_private_state,
    describe_privacy,
    find_spent,
    is_spent,
    play_private_round,
    resume_account,
)
from .round import Setup, play_round
from .row_account import RowAccount

NO_PHASE = nullcontext()
LARGE = 2**30  # bytes above which clients' own models are not saved with the results


@dataclass(frozen=True)
class RunOrigin:
    """The data and model behind a run, for its results and its checkpoints.

    Attributes:
        identity: identifies the federation, so that a run does not resume another's checkpoint
        holdings: each client's rows of each class, where they are known here
        test_rows: each client's number of held-out rows, where it is known here
        row_account: each client's account, where its rows are protected and known here
    """

    identity: dict[str, str]
    recipe: ModelRecipe
    note: str = ""
    facts: Facts = field(default_factory=dict)
    holdings: pl.DataFrame | None = None
    test_rows: Int64 | None = None
    row_account: RowAccount | None = None


def build_initial_state(setup: Setup, start: Params, memory: State) -> RunState:
    """Return the state before the first round. `memory` is the initial state of a client, where it
    is stored here."""
    seen, method, n = setup.population.takes_part, setup.job.method, setup.population.n
    start = expand_tracks(method, start)
    server = initial_server_state(method, start, seen)
    if hasattr(method.weigh, "memory"):
        server = {**server, **method.weigh.memory(n)}
    if method.trust is not None and not setup.job.protects_clients:
        server = {**server, **build_trust_state(n)}
    if setup.job.protects_clients:
        server = {**server, **build_private_state(setup.job, n, start)}
    memories = ClientStates.create(memory, setup.population.n) if memory else None
    return RunState(0, start, server, memories, seen)


def expand_tracks(method: Method, start: Params) -> Params:
    """Return a copy of a model for each of those that are trained side by side."""
    return start if method.tracks is None else method.tracks.expand(start)


def initial_server_state(method: Method, start: Params, seen: Bool) -> State:
    """Return the state of the server's step; with a rule of deployment, of both its steps."""
    if method.tracks is None or method.deploy is None:
        return method.step.memory(start, seen)
    alone = method.step.memory(cut(start, method.tracks.unhelped), seen)
    return {
        **method.step.memory(cut(start, method.tracks.helped), seen),
        **{ALONE + part: table for part, table in alone.items()},
    }


def build_identity(setup: Setup, state: RunState, whose: dict[str, str]) -> dict[str, str]:
    """Return the settings that two runs must share for one to resume the other's checkpoint."""
    job = setup.job
    return {
        "method": repr(job.method),
        "local": repr(job.local),
        "rounds": str(job.rounds),
        "seed": str(job.seed),
        "engine": setup.clients.name,
        "model": str({name: tuple(t.shape) for name, t in state.model.items()}),
        "participation": repr(job.participation),
        "decide_on": job.decide_on,
        "tuned_steps": str(job.tuned_steps),
        "privacy": repr(job.privacy),
        **whose,
    }


def run_rounds(
    setup: Setup,
    module: nn.Module,
    state: RunState,
    keep: Keep,
    origin: RunOrigin,
    on_round: OnRound | None = None,
    times: PhaseTimes | None = None,
) -> Run:
    """Play all rounds from `state`, or from the last checkpoint. The folder of checkpoints is
    locked, so that two runs cannot write to it at the same time."""
    with nullcontext() if keep.checkpoint is None else lock_folder(keep.checkpoint):
        return _run_rounds(setup, module, state, keep, origin, on_round, times)


def _run_rounds(
    setup: Setup,
    module: nn.Module,
    state: RunState,
    keep: Keep,
    origin: RunOrigin,
    on_round: OnRound | None,
    times: PhaseTimes | None,
) -> Run:
    phase = (lambda name: NO_PHASE) if times is None else times.phase
    rounds, clients, n = setup.job.rounds, setup.clients, setup.population.n
    score = setup.job.scoring.first.name
    ledger = Ledger(score)
    identity = build_identity(setup, state, origin.identity)
    start = state.model
    if keep.resume and keep.checkpoint is not None:
        found = load_checkpoint(keep.checkpoint, identity, state, score)
        if found is not None:
            state, ledger = found

    account, row_account = None, origin.row_account
    if setup.job.privacy is not None:
        noise = setup.job.noise if row_account is None else row_account.least_noise
        account = Account.open(keep.checkpoint, keep.resume, noise)
        state = resume_account(setup.job, state, account)
    every = keep.evaluate_every or rounds
    # Evaluated after every round, a state needs no more appraisals at its offer.
    reuse = keep.evaluate_every == 1 and setup.job.method.serves == "global"
    reuse = reuse and not setup.job.protects_rows  # whose appraisals are noisy
    cache = EvaluationCache(
        clients.appraise, clients.evaluate, n, setup.job.split if reuse else None
    )
    if reuse:
        first = measures.compute_measures(setup.population, cache.evaluate(state))
        if state.round == 0 and np.isfinite(first["loss"]):
            ledger.facts["start_loss"] = first["loss"]
    complete = True
    log = progress.start_log(keep.checkpoint, setup.job, clients.name, ledger.rows)
    try:
        while state.round < rounds and (account is None or not is_spent(setup.job, account)):
            began = time.perf_counter()
            # The last bits of a sum depend on how torch's threads split it.
            with one_thread():
                with phase("aggregate"):
                    if account is not None and row_account is None:
                        following, entry = play_private_round(setup, cache, state, account)
                    else:
                        if account is not None:
                            account.charge(state.round)
                        following, entry = play_round(setup, cache, state)
                if entry.answered < setup.quorum:
                    raise NoQuorum(explain_no_quorum(setup, entry))
                due = following.round % every == 0 or following.round == rounds
                measured = {}
                if due:
                    with phase("measure"):
                        view = cache.evaluate(following)
                        measured = measures.compute_measures(setup.population, view)
            seconds = time.perf_counter() - began
            with phase("store"):
                if account is not None and row_account is not None:
                    measured = {**measured, "releases": len(account.charged)}
                row = ledger.add(entry, {**measured, "seconds": seconds})
                state = following
                # A private round that is played again is released again: each is saved.
                often = keep.checkpoint_every if account is None else 1
                if keep.checkpoint is not None and state.round % often == 0:
                    save_checkpoint(keep.checkpoint, state, ledger, identity)
                log(row)
            if on_round is not None:
                on_round(row)
    except NoQuorum:
        if keep.checkpoint is not None and state.round:
            save_checkpoint(keep.checkpoint, state, ledger, identity)
        raise
    except KeyboardInterrupt:
        complete = False
        # The ledger may be one round ahead of the state.
        ledger.cut(state.round)
        if keep.checkpoint is not None and state.round:
            save_checkpoint(keep.checkpoint, state, ledger, identity)
    frames: dict[str, Any] = {**ledger.frames(), "final": build_final_table(setup, cache, state)}
    if origin.test_rows is not None:
        after = frames["final"].columns.index("rows") + 1
        frames["final"].insert_column(after, pl.Series("test_rows", origin.test_rows))
    releases = 0 if account is None else len(account.charged)
    if row_account is not None:
        frames["final"] = row_account.add_columns(frames["final"], releases)
    if origin.holdings is not None:
        frames["holdings"] = origin.holdings
    for name in (*TABLES, "final"):
        frames[name] = add_names(frames[name], setup.population.names)
    own = collect_own_models(state)
    privacy: Facts = {} if row_account is None else row_account.describe(releases)
    spent: list[str] = []
    if account is not None:
        privacy = privacy or describe_privacy(setup.job, account)
        spent = find_spent(setup.job, account, state.round)
    run = Run(
        weights=params.to_state_dict(module, setup.job.method.product(state.model)),
        **frames,
        method=setup.job.method.name,
        seed=setup.job.seed,
        engine=clients.name,
        complete=complete,
        note=origin.note,
        facts={
            **origin.facts,
            **ledger.facts,
            "work": setup.job.local.describe_amount(rounds),
            "moved": differs(start, state.model) or own_models_differ(start, own),
            **compute_requirement_gap(frames["final"]),
            "made_with": describe_environment(),
            **privacy,
            "doubts": [*origin.facts.get("doubts", ()), *spent],
        },
        own=own,
        recipe=origin.recipe,
    )
    if not complete:
        raise Interrupted(run)
    return run


def add_names(frame: pl.DataFrame, names: NDArray[np.str_] | None) -> pl.DataFrame:
    """Add clients' names next to their numbers, where the data has names other than these numbers.
    Client -1, which is unknown, has none."""
    if names is None or np.array_equal(names, np.arange(len(names)).astype(np.str_)):
        return frame
    known, client = pl.Series("name", names.tolist(), pl.String), frame["client"]
    column = known.gather(client.set(client < 0, None))
    return frame.insert_column(frame.columns.index("client") + 1, column)


def collect_own_models(state: RunState) -> ClientModels | None:
    """Return the clients' own models, unless they are too large for memory."""
    memories = state.clients
    if memories is None or "own" not in memories.table.start:
        return None
    size = len(memories.written) * params.nbytes(memories.table.start["own"])
    if size > LARGE:
        warnings.warn(
            f"clients' own models take {size / 2**30:.1f} GiB: they are not saved with the "
            "results, and run.model(client=...) is not available",
            MusterWarning,
            stacklevel=4,
        )
        return None
    saved = memories.to_tensors()
    models = {n.removeprefix("own/"): t.numpy() for n, t in saved.items() if n.startswith("own/")}
    return ClientModels(saved["who"].numpy(), models)


def compute_requirement_gap(final: pl.DataFrame) -> Facts:
    """Return the median of `|F_k - rho_k|` at the end, where requirements are known."""
    gap = (final["train_loss"] - final["requirement"]).abs().drop_nulls()
    return {"requirement_gap": float(gap.median())} if len(gap) else {}  # type: ignore[arg-type]


def differs(start: Params, model: Params) -> bool:
    """Return True if training changed the model."""
    return any(not torch.equal(t, model[name].to(t.device)) for name, t in start.items())


def own_models_differ(start: Params, own: ClientModels | None) -> bool:
    """Return True if training changed any client's own model."""
    return own is not None and any(
        bool((stack != start[name].cpu().numpy()).any())
        for name, stack in own.models.items()
        if name in start
    )


def explain_no_quorum(setup: Setup, entry: LedgerEntry) -> str:
    """Return why a round does not count: the clients without an admitted reply, and reasons."""
    population, objective = setup.population, setup.population.objective
    columns = entry.clients
    failed = np.strings.startswith(columns["reason"], "failed")
    lost = (objective[columns["client"]] > 0) & (failed | columns["joined"] & ~columns["admitted"])
    why = "; ".join(
        f"{population.get_name(k)}: {reason}"
        for k, reason in zip(columns["client"][lost], columns["reason"][lost], strict=True)
    )
    return (
        f"round {entry.round['round']}: replies from {entry.answered:.2f} of the objective's "
        f"weight, and the quorum is {setup.quorum:g} ({why}); the rounds before it are saved: run "
        "it again to resume"
    )


def build_final_table(setup: Setup, cache: EvaluationCache, state: RunState) -> pl.DataFrame:
    """Return the table `final`, one row per client: its evaluation of the last model."""
    population, evaluation = setup.population, cache.evaluate(state)
    everyone, unknown = np.arange(population.n), np.full(population.n, np.nan)
    scores = setup.job.scoring.names
    solo = setup.clients.get_solo_scores(everyone)

    def get_columns(split: str, values: Appraisal | None) -> dict[str, Float64]:
        taken = {} if values is None else {"loss": values.loss, scores[0]: values.score}
        taken |= {} if values is None else values.more
        return {f"{split}_{name}": taken.get(name, unknown) for name in ("loss", *scores)}

    return pl.DataFrame(
        {
            "client": everyone,
            "priority": population.priority,
            "unseen": population.unseen,
            "attacker": np.isin(everyone, setup.clients.attackers),
            "rows": population.sizes,
            **get_columns("train", evaluation.train),
            **get_columns("test", evaluation.test),
            "requirement": setup.clients.get_requirements(everyone),
            **({} if solo is None else {f"solo_{scores[0]}": solo}),
            "useful": pl.Series(evaluation.useful, nan_to_null=True).cast(pl.Boolean),
        }
    ).fill_nan(None)
