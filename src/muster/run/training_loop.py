"""Round after round: play, measure, write down, and save, wherever the clients are."""

from __future__ import annotations

import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import params
from ..base.arrays import Float64
from ..base.checks import check_whole
from ..base.client_states import ClientStates
from ..base.durable import lock_folder
from ..base.errors import MusterError, MusterWarning
from ..base.lazy import nn, pl, torch
from ..base.params import Params, State
from ..engines.threads import one_thread
from ..protocol import Appraisal, LedgerEntry, RunState
from ..results import measures
from ..results.environment import describe_environment
from ..results.ledger import TABLES, Ledger
from ..results.model import ClientModels, ModelRecipe
from ..results.run import Interrupted, NoQuorum, OnRound, Run
from ..results.run_warnings import Facts
from . import progress
from .audit import remembered
from .checkpoint import load_checkpoint, save_checkpoint
from .evaluation_cache import EvaluationCache
from .round import Setup, play_round

LARGE = 2**30  # bytes of clients' own models that are not kept with the results any more


@dataclass(frozen=True)
class Keep:
    """How often a run is measured and saved, and where.

    Attributes:
        evaluate_every: measure the model on every client every n rounds and after the last one; 0:
            after the last only
        checkpoint: the folder where the state is saved every `checkpoint_every` rounds; None:
            nowhere
        resume: go on from the last state saved there
    """

    evaluate_every: int = 1
    checkpoint: Path | None = None
    checkpoint_every: int = 10
    resume: bool = False

    def __post_init__(self) -> None:
        check_whole("evaluate_every", self.evaluate_every, 0)
        check_whole("checkpoint_every", self.checkpoint_every)
        if self.resume and self.checkpoint is None:
            raise MusterError("resume: needs checkpoint=FOLDER, where the run left its state")


@dataclass(frozen=True)
class Provenance:
    """The data and model behind a run, for its results and its checkpoints.

    Attributes:
        identity: tells one federation from another, so that a checkpoint is not taken for another's
        holdings: who has which rows, where that is known here
    """

    identity: dict[str, str]
    recipe: ModelRecipe
    note: str = ""
    facts: Facts = field(default_factory=dict)
    holdings: pl.DataFrame | None = None


def build_initial_state(setup: Setup, start: Params, memory: State) -> RunState:
    """The state before the first round; `memory` is what each client begins with, if it is kept
    here."""
    seen = ~setup.population.unseen
    server = setup.job.method.step.memory(start, seen)
    if setup.job.method.trust is not None:
        server = {**server, **remembered(setup.population.n)}
    memories = ClientStates.create(memory, setup.population.n) if memory else None
    return RunState(0, start, server, memories, seen)


def identity_of(setup: Setup, state: RunState, whose: dict[str, str]) -> dict[str, str]:
    """What two runs must share for one to go on with the other's checkpoint."""
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
        **whose,
    }


def run_rounds(
    setup: Setup,
    module: nn.Module,
    state: RunState,
    keep: Keep,
    origin: Provenance,
    on_round: OnRound | None = None,
) -> Run:
    """Round after round from `state`, or from the last checkpoint, wherever the clients are. The
    folder of checkpoints is held: two runs cannot write to it at the same time."""
    with nullcontext() if keep.checkpoint is None else lock_folder(keep.checkpoint):
        return _run_rounds(setup, module, state, keep, origin, on_round)


def _run_rounds(
    setup: Setup,
    module: nn.Module,
    state: RunState,
    keep: Keep,
    origin: Provenance,
    on_round: OnRound | None,
) -> Run:
    rounds, clients, n = setup.job.rounds, setup.clients, setup.population.n
    score = setup.job.scoring.first.name
    ledger = Ledger(score)
    identity = identity_of(setup, state, origin.identity)
    start = state.model
    if keep.resume and keep.checkpoint is not None:
        found = load_checkpoint(keep.checkpoint, identity, state, clients.device, score)
        if found is not None:
            state, ledger = found

    every = keep.evaluate_every or rounds
    # Measured after every round, a state's view is what clients would measure at its offer.
    reuse = keep.evaluate_every == 1 and setup.job.method.serves == "global"
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
        while state.round < rounds:
            began = time.perf_counter()
            # How torch's threads would split a sum shows in its last bits.
            with one_thread():
                following, entry = play_round(setup, cache, state)
                if entry.answered < setup.quorum:
                    raise NoQuorum(unheard(setup, entry))
                due = following.round % every == 0 or following.round == rounds
                measured = (
                    measures.compute_measures(setup.population, cache.evaluate(following))
                    if due
                    else {}
                )
            seconds = time.perf_counter() - began
            row = ledger.add(entry, {**measured, "seconds": seconds})
            state = following
            if keep.checkpoint is not None and state.round % keep.checkpoint_every == 0:
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
        # The ledger may be one round ahead of the state: keep what both agree on.
        ledger.cut(state.round)
        if keep.checkpoint is not None and state.round:
            save_checkpoint(keep.checkpoint, state, ledger, identity)
    frames: dict[str, Any] = {**ledger.frames(), "final": final_of(setup, cache, state)}
    if origin.holdings is not None:
        frames["holdings"] = origin.holdings
    for name in (*TABLES, "final"):
        frames[name] = with_names(frames[name], setup.population.names)
    own = own_models(state)
    run = Run(
        weights=params.to_state_dict(module, state.model),
        **frames,
        method=setup.job.method.name,
        seed=setup.job.seed,
        engine=clients.name,
        complete=complete,
        note=origin.note,
        facts={
            **origin.facts,
            **ledger.facts,
            "moved": moved(start, state.model) or own_moved(start, own),
            **requirement_gap(frames["final"]),
            "made_with": describe_environment(),
        },
        own=own,
        recipe=origin.recipe,
    )
    if not complete:
        raise Interrupted(run)
    return run


def with_names(frame: pl.DataFrame, names: NDArray[np.str_] | None) -> pl.DataFrame:
    """A table of clients with their names next to their numbers, where the data has names that are
    more than these numbers. What concerns nobody who is known (client -1) has none."""
    if names is None or np.array_equal(names, np.arange(len(names)).astype(np.str_)):
        return frame
    called, known = pl.Series("name", names.tolist(), pl.String), frame["client"]
    name = called.gather(known.set(known < 0, None))
    return frame.insert_column(frame.columns.index("client") + 1, name)


def own_models(state: RunState) -> ClientModels | None:
    """The models that clients keep for themselves, unless they are too large to hold at once."""
    memories = state.clients
    if memories is None or "own" not in memories.table.start:
        return None
    size = len(memories.written) * params.nbytes(memories.table.start["own"])
    if size > LARGE:
        warnings.warn(
            f"clients' own models take {size / 2**30:.1f} GiB: they are not kept with the results, "
            "and run.model(client=...) is not there",
            MusterWarning,
            stacklevel=4,
        )
        return None
    saved = memories.to_tensors()
    models = {n.removeprefix("own/"): t.numpy() for n, t in saved.items() if n.startswith("own/")}
    return ClientModels(saved["who"].numpy(), models)


def requirement_gap(final: pl.DataFrame) -> Facts:
    """The middle of `|F_k - rho_k|` at the end, where it is known what clients require."""
    gap = (final["train_loss"] - final["requirement"]).abs().drop_nulls()
    return {"requirement_gap": float(gap.median())} if len(gap) else {}  # type: ignore[arg-type]


def moved(start: Params, model: Params) -> bool:
    """Whether training changed anything at all."""
    return any(not torch.equal(t, model[name].to(t.device)) for name, t in start.items())


def own_moved(start: Params, own: ClientModels | None) -> bool:
    """Whether training changed any client's own model, where the common one may stay."""
    return own is not None and any(
        bool((stack != start[name].cpu().numpy()).any())
        for name, stack in own.models.items()
        if name in start
    )


def unheard(setup: Setup, entry: LedgerEntry) -> str:
    """Why a round does not count: whose answers are missing, and for what reasons."""
    population, objective = setup.population, setup.population.objective
    columns = entry.clients
    failed = np.strings.startswith(columns["reason"], "failed")
    lost = (objective[columns["client"]] > 0) & (failed | columns["joined"] & ~columns["admitted"])
    why = "; ".join(
        f"{population.get_name(k)}: {reason}"
        for k, reason in zip(columns["client"][lost], columns["reason"][lost], strict=True)
    )
    return (
        f"round {entry.round['round']}: heard {entry.answered:.2f} of the objective's weight, and "
        f"the quorum is {setup.quorum:g} ({why}); the rounds before it are "
        "kept: run it again to go on"
    )


def final_of(setup: Setup, cache: EvaluationCache, state: RunState) -> pl.DataFrame:
    """One row per client: what it makes of the last model."""
    population, view = setup.population, cache.evaluate(state)
    train, test = view.train, view.test
    everyone, unknown = np.arange(population.n), np.full(population.n, np.nan)
    scores = setup.job.scoring.names
    alone = setup.clients.get_solo_scores(everyone)

    def measured(split: str, values: Appraisal | None) -> dict[str, Float64]:
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
            **measured("train", train),
            **measured("test", test),
            "requirement": setup.clients.get_requirements(everyone),
            **({} if alone is None else {f"solo_{scores[0]}": alone}),
            "useful": pl.Series(view.useful, nan_to_null=True).cast(pl.Boolean),
        }
    ).fill_nan(None)
