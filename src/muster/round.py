"""One round, written once: offer, invite, appraise, join, train, guard, admit, weigh, step.

`respond` is the clients' half and `conclude` the server's. Both work over a leading client axis
and know nothing of how an engine runs the clients: the simulator calls them with everyone asked,
a deployed client calls `respond` with a stack of one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from . import params
from .engines.base import Engine
from .federation import Federation
from .guard import guard
from .methods import Method
from .params import Params
from .protocol import Appraisal, Decision, Entry, Offer, Replies, Roster, State
from .rng import Float64, Int64
from .schedules import count
from .solvers import Memory

SCALAR = 8  # bytes of a number on the wire


def pool_of(fed: Federation, method: Method, t: int, rounds: int) -> Int64:
    """Who may be asked in round t: the objective's clients during warm-up, then everyone."""
    if t < count(method.warmup, rounds, "warmup"):
        return np.flatnonzero(fed.importance > 0)
    return np.arange(fed.n)


def reference_of(
    fed: Federation,
    method: Method,
    engine: Engine,
    model: Params,
    asked: Int64,
    known: Appraisal | None,
) -> tuple[float, float]:
    """F(w) and its accuracy: the objective's clients' weighted measure at w (eq. 5).

    NaN when none of them was asked and the method measures on the asked only: then nobody else
    can tell whether it is aligned, and stays silent.
    """
    weight = fed.objective
    members = np.flatnonzero(weight > 0)
    if method.reference == "asked":
        members = asked[weight[asked] > 0]
    if len(members) == 0:
        return float("nan"), float("nan")
    own = engine.appraise(model, members) if known is None else known.pick(members)
    w = weight[members] / weight[members].sum()
    return float(w @ own.loss), float(w @ own.accuracy)


def respond(
    engine: Engine,
    method: Method,
    offer: Offer,
    roster: Roster,
    appraisal: Appraisal,
    memory: Memory,
) -> tuple[Decision, Replies, Memory, Int64]:
    """The clients' half: each decides whether to join; those who do, train.

    Returns the decisions, the replies of those who joined, their new memory and the steps they
    took. A silent client trains nothing and sends nothing.
    """
    decision = method.join(offer, roster, appraisal)
    joined = roster.pick(decision.yes)
    if len(joined) == 0:
        empty = {name: t.new_empty(0, *t.shape) for name, t in offer.model.items()}
        return decision, Replies(joined, empty, Appraisal.unknown(0)), {}, np.empty(0, np.int64)
    own = {part: params.select(table, decision.yes) for part, table in memory.items()}
    models, own, steps = engine.train(method.solver, offer, joined.clients, own)
    return decision, Replies(joined, models, appraisal.pick(decision.yes)), own, steps


def conclude(
    method: Method, offer: Offer, replies: Replies, server: Params
) -> tuple[Params, Params, Float64, Decision]:
    """The server's half: guard, admit, weigh, step.

    Returns the next model, the server's next state, each reply's share of the step (0 when it was
    refused) and why those refused were. With nobody admitted the model stays as it is.
    """
    sound = guard(offer, replies, method.appraises)
    extent = np.where(sound.yes, method.admit(offer, replies.roster, replies.appraisal), 0.0)
    weight = np.where(extent > 0, method.weigh(replies, extent), 0.0)
    reason = np.where(sound.yes, method.admit.reason, sound.reason)
    if not weight.sum() > 0:
        return offer.model, server, np.zeros(len(extent)), Decision(weight > 0, reason)
    stack = replies.models if weight.all() else params.select(replies.models, weight > 0)
    model, server = method.step(offer.model, stack, weight[weight > 0], server)
    return model, server, weight / weight.sum(), Decision(weight > 0, reason)


def play(
    fed: Federation,
    method: Method,
    engine: Engine,
    state: State,
    rounds: int,
    seed: int,
    known: Appraisal | None,
) -> tuple[State, Entry]:
    """One whole round from `state`. `known`: every client's appraisal of the model, if at hand."""
    t = state.round
    roster = method.invite(fed, pool_of(fed, method, t, rounds), seed, t)
    offer = Offer(seed, t, rounds, state.model, server=state.server)
    if known is not None:
        appraisal = known.pick(roster.clients)
    elif method.appraises:
        appraisal = engine.appraise(state.model, roster.clients)
    else:
        appraisal = Appraisal.unknown(len(roster))
    if method.appraises:
        loss, accuracy = reference_of(fed, method, engine, state.model, roster.clients, known)
        eps = method.epsilon.at(t, rounds)
        offer = replace(offer, loss=loss, accuracy=accuracy, eps=eps)

    memory = {part: params.select(table, roster.clients) for part, table in state.clients.items()}
    decision, replies, own, steps = respond(engine, method, offer, roster, appraisal, memory)
    model, server, weight, verdict = conclude(method, offer, replies, state.server)
    following = State(t + 1, model, server, remember(state.clients, replies.roster.clients, own))
    return following, record(
        fed, method, offer, roster, appraisal, decision, weight, verdict, steps
    )


def remember(clients: Memory, who: Int64, own: Memory) -> Memory:
    """The clients' memory with the rows of those who trained replaced (a new table: the state
    before this round stays intact if it is interrupted)."""
    if not own:
        return clients
    at = torch.from_numpy(who)
    return {
        part: {name: t.index_copy(0, at.to(t.device), own[part][name]) for name, t in table.items()}
        for part, table in clients.items()
    }


def record(
    fed: Federation,
    method: Method,
    offer: Offer,
    roster: Roster,
    appraisal: Appraisal,
    decision: Decision,
    weight: Float64,
    verdict: Decision,
    steps: Int64,
) -> Entry:
    """What the ledger keeps of a round."""
    n, joined = len(roster), decision.yes

    def spread(values: np.ndarray[tuple[int], np.dtype[np.generic]], empty: object) -> np.ndarray:
        out = np.full(n, empty, dtype=values.dtype)
        out[joined] = values
        return out

    admitted = spread(verdict.yes, False)
    reason = decision.reason.astype(np.dtypes.StringDType())
    reason[joined & ~admitted] = verdict.reason[~verdict.yes]
    alone = method.serves == "own"
    down = 0 if alone else params.nbytes(offer.model) + params.nbytes(offer.server)
    up = 0 if alone else params.nbytes(offer.model)
    down += 2 * SCALAR if method.appraises else 0  # F(w) and eps_t
    up += SCALAR if method.appraises else 0  # F_k(w)
    others = admitted & (roster.importance < 1)
    extra = float(fed.share[roster.clients[others]].sum())
    row = {
        "round": offer.round + 1,
        "eps": offer.eps,
        "reference_loss": offer.loss,
        "asked": n,
        "joined": int(joined.sum()),
        "silent": int((~joined).sum()),
        "admitted": int(admitted.sum()),
        "admitted_nonpriority": int((admitted & ~roster.priority).sum()),
        "refused": int((joined & ~admitted).sum()),
        "skipped": not bool(admitted.any()),
        "theta": 1.0 / (1.0 + extra),
        "steps": int(steps.sum()),
        "bytes_down": down * n,
        "bytes_up": up * int(joined.sum()),
    }
    columns = {
        "round": np.full(n, offer.round + 1),
        "client": roster.clients,
        "priority": roster.priority,
        "joined": joined,
        "admitted": admitted,
        "reason": reason,
        "weight": spread(weight, 0.0),
        "loss": appraisal.loss,
        "accuracy": appraisal.accuracy,
        "steps": spread(steps, 0),
        "bytes_up": np.where(joined, up, 0),
        "bytes_down": np.full(n, down),
    }
    return Entry(row, columns)
