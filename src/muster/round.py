"""One round, written once: offer, invite, appraise, join, train, guard, admit, weigh, step.

`respond` is the clients' half and `conclude` the server's. Both work over a leading client axis
and know nothing of how an engine runs the clients: the simulator calls them with everyone asked,
a deployed client calls `respond` with a stack of one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from . import params
from .attacks import Adversary
from .engines.base import Engine, Task
from .federation import Bool, Federation
from .guard import guard
from .local import Local
from .methods import Method
from .params import Memory, Params
from .participation import Participation
from .protocol import Appraisal, Decision, Entry, Offer, Replies, Roster, State, Text
from .rng import Float64, Int64
from .schedules import count
from .solvers import SGD

SCALAR = 8  # bytes of a number on the wire


@dataclass(frozen=True)
class Game:
    """What stays the same through all rounds of a run."""

    fed: Federation
    method: Method
    engine: Engine
    local: Local
    rounds: int
    seed: int
    trainable: tuple[str, ...]
    participation: Participation | None = None
    adversary: Adversary = Adversary()

    def requirement(self, clients: Int64) -> Float64:
        """What each of these clients requires; NaN where it requires nothing."""
        rho = self.fed.requirement
        return np.full(len(clients), np.nan) if rho is None else rho[clients]


class Measure:
    """Clients' appraisals of the round's model, each client measured at most once."""

    def __init__(self, engine: Engine, model: Params, known: Appraisal | None, n: int) -> None:
        self.engine, self.model = engine, model
        self.done = np.full(n, known is not None)
        self.all = known or Appraisal.unknown(n)
        self.consulted = np.zeros(n, np.bool_)

    def of(self, clients: Int64) -> Appraisal:
        """These clients' appraisals. They need the model for it, asked or not: it is counted."""
        self.consulted[clients] = True
        new = clients[~self.done[clients]]
        if len(new):
            fresh = self.engine.appraise(self.model, new)
            self.all.loss[new], self.all.accuracy[new] = fresh.loss, fresh.accuracy
            self.done[new] = True
        return self.all.pick(clients)


def present_in(game: Game, t: int, measure: Measure) -> Bool:
    """Who takes part in the federation: never the unseen and, where clients are free to leave,
    only those whom the model still appeals to."""
    present = ~game.fed.unseen
    if game.participation is not None and t >= game.participation.starts(game.rounds):
        seen = np.flatnonzero(present)
        stays = game.participation(measure.of(seen).loss, game.requirement(seen))
        present[seen[~stays]] = False
    return present


def pool_of(game: Game, t: int, present: Bool) -> Int64:
    """Who may be asked: those present, and during warm-up only the objective's clients."""
    if t < count(game.method.warmup, game.rounds, "warmup"):
        present = present & (game.fed.importance > 0)
    return np.flatnonzero(present)


def reference_of(game: Game, offer: Offer, asked: Int64, measure: Measure) -> tuple[float, float]:
    """F(w) and its accuracy: the objective's clients' weighted word on w (eq. 5).

    NaN when none of them was asked and the method measures on the asked only: then nobody else
    can tell whether it is aligned, and stays silent.
    """
    weight = game.fed.objective
    members = np.flatnonzero(weight > 0)
    if game.method.reference == "asked":
        members = asked[weight[asked] > 0]
    if len(members) == 0:
        return float("nan"), float("nan")
    own = game.adversary.say(offer, members, measure.of(members), game.requirement(members))
    w = weight[members] / weight[members].sum()
    return float(w @ own.loss), float(w @ own.accuracy)


def tuned(game: Game, offer: Offer, clients: Int64, appraisal: Appraisal) -> Appraisal:
    """How clients judge the model for their claim: after a few local steps, where the method says
    so (MaxFL, step 7), otherwise as it is."""
    if game.method.tune_steps == 0 or len(clients) == 0:
        return appraisal
    local = replace(game.local, steps=game.method.tune_steps, epochs=None)
    work, _ = game.engine.train(SGD(), offer, clients, {}, Task(None, local, "tune"))
    judged = game.engine.appraise_each(work.models, clients)
    return game.adversary.say(offer, clients, judged, game.requirement(clients))


def respond(
    game: Game,
    offer: Offer,
    roster: Roster,
    appraisal: Appraisal,
    memory: Memory,
    steps: Int64 | None = None,
) -> tuple[Decision, Replies, Memory, Int64]:
    """The clients' half: each decides whether to join; those who do, train and reply.

    Returns the decisions, the replies of those who joined, their new memory and the steps they
    took. A silent client trains nothing and sends nothing.
    """
    method = game.method
    decision = method.join(offer, roster, appraisal)
    joined = roster.pick(decision.yes)
    word = appraisal.pick(decision.yes)
    if len(joined) == 0:
        empty = {name: t.new_empty(0, *t.shape) for name, t in offer.model.items()}
        return decision, Replies(joined, empty, word, np.empty(0)), {}, np.empty(0, np.int64)
    own = {part: params.select(table, decision.yes) for part, table in memory.items()}
    task = Task(None if steps is None else steps[decision.yes])
    work, taken = game.engine.train(method.solver, offer, joined.clients, own, task)
    judged = tuned(game, offer, joined.clients, word)
    claim = method.claim(judged, game.requirement(joined.clients))
    replies = Replies(joined, work.models, word, claim, work.extra)
    return decision, replies, work.memory, taken


@dataclass(frozen=True)
class Verdict:
    """What the server made of the replies: who was admitted, at what share of the step, or why
    not."""

    admitted: Bool
    weight: Float64
    reason: Text


def judge(method: Method, offer: Offer, replies: Replies, server: Memory) -> Verdict:
    """Guard, admit and weigh: how much each reply counts. Weights are as the rule gives them."""
    sound = guard(offer, replies, method.reports, method.claim.most)
    extent = np.where(sound.yes, method.admit(offer, replies.roster, replies.appraisal), 0.0)
    let_in = extent > 0
    weight = np.zeros(len(extent))
    weight[let_in] = method.weigh(replies.pick(let_in), extent[let_in], server)
    reason = np.where(sound.yes, method.admit.reason, sound.reason)
    return Verdict(let_in, weight, reason)


def conclude(
    method: Method, offer: Offer, replies: Replies, server: Memory
) -> tuple[Params, Memory, Verdict]:
    """The server's half: guard, admit, weigh, step. With nothing to weigh the model stays."""
    verdict = judge(method, offer, replies, server)
    total = float(verdict.weight.sum())
    if not total > 0:
        return offer.model, server, verdict
    let_in = verdict.admitted
    model, server = method.step(offer, replies.pick(let_in), verdict.weight[let_in], server)
    return model, server, replace(verdict, weight=verdict.weight / total)


def play(game: Game, state: State, known: Appraisal | None) -> tuple[State, Entry]:
    """One whole round from `state`. `known`: every client's appraisal of the model, if at hand."""
    fed, method, t = game.fed, game.method, state.round
    measure = Measure(game.engine, state.model, known, fed.n)
    present = present_in(game, t, measure)
    pool = pool_of(game, t, present)
    if len(pool):
        roster = method.invite(fed, pool, game.seed, t, lambda who: measure.of(who).loss)
    else:
        roster = Roster.of(fed, pool)
    asked = roster.clients
    offer = Offer(
        game.seed,
        t,
        game.rounds,
        state.model,
        lr=game.local.rate(t, game.rounds),
        population=int((~fed.unseen).sum()),
        trainable=game.trainable,
        server={part: state.server[part] for part in method.solver.needs},
    )
    if method.refers:
        loss, accuracy = reference_of(game, offer, asked, measure)
        eps = method.epsilon.at(t, game.rounds)
        offer = replace(offer, loss=loss, accuracy=accuracy, eps=eps)
    measured = measure.of(asked) if method.appraises else measure.all.pick(asked)
    said = game.adversary.say(offer, asked, measured, game.requirement(asked))

    steps = method.effort(roster, game.engine.steps(asked), state.server) if len(asked) else None
    memory = {part: params.select(table, asked) for part, table in state.clients.items()}
    decision, replies, own, taken = respond(game, offer, roster, said, memory, steps)
    sent = game.adversary.send(offer, replies.roster.clients, replies.models)
    replies = replace(replies, models=sent)
    model, server, verdict = conclude(method, offer, replies, state.server)

    clients = remember(state.clients, replies.roster.clients, own)
    following = State(t + 1, model, server, clients, present)
    extra = int(measure.consulted.sum() - measure.consulted[asked].sum())
    entry = record(game, offer, roster, measured, decision, replies, verdict, taken, extra)
    moves = moves_of(t, state.present, present)
    gains = gains_of(game, offer, replies, measured, decision, verdict, state.server)
    left, back = (int((moves["move"] == m).sum()) for m in ("left", "returned"))
    row = {**entry.round, "pool": len(pool), "left": left, "returned": back}
    return following, replace(entry, round=row, moves=moves, attackers=gains)


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


def moves_of(t: int, before: Bool, after: Bool) -> dict[str, NDArray[Any]]:
    """Who left the pool this round and who came back."""
    left, returned = np.flatnonzero(before & ~after), np.flatnonzero(~before & after)
    move = np.array(["left"] * len(left) + ["returned"] * len(returned), np.dtypes.StringDType())
    clients = np.concatenate([left, returned])
    return {"round": np.full(len(clients), t + 1), "client": clients, "move": move}


def gains_of(
    game: Game,
    offer: Offer,
    replies: Replies,
    measured: Appraisal,
    decision: Decision,
    verdict: Verdict,
    server: Memory,
) -> dict[str, NDArray[Any]]:
    """What lying got each attacker this round: its share of the step, and the share it would have
    had by telling the truth (0 if it would have stayed silent)."""
    who = np.isin(replies.roster.clients, game.adversary.clients)
    if not who.any():
        return {}
    truth = measured.pick(decision.yes)
    willing = game.method.join(offer, replies.roster, truth).yes
    claim = game.method.claim(truth, game.requirement(replies.roster.clients))
    honest = judge(game.method, offer, replace(replies, appraisal=truth, claim=claim), server)
    weight = np.where(willing, honest.weight, 0.0)
    weight = weight / weight.sum() if weight.sum() > 0 else weight
    n = int(who.sum())
    return {
        "round": np.full(n, offer.round + 1),
        "client": replies.roster.clients[who],
        "admitted": verdict.admitted[who],
        "weight": verdict.weight[who],
        "honest_weight": weight[who],
    }


def record(
    game: Game,
    offer: Offer,
    roster: Roster,
    measured: Appraisal,
    decision: Decision,
    replies: Replies,
    verdict: Verdict,
    steps: Int64,
    consulted: int,
) -> Entry:
    """What the ledger keeps of a round. `consulted`: clients that were sent the model and measured
    it, but were not asked to train."""
    fed, method = game.fed, game.method
    n, joined = len(roster), decision.yes

    def spread(values: NDArray[Any], empty: object) -> NDArray[Any]:
        out = np.full(n, empty, dtype=values.dtype)
        out[joined] = values
        return out

    admitted = spread(verdict.admitted, False)
    reason = decision.reason.astype(np.dtypes.StringDType())
    reason[joined & ~admitted] = verdict.reason[~verdict.admitted]
    alone = method.serves == "own"
    model = params.nbytes(offer.model)
    down = 0 if alone else model + sum(params.nbytes(p) for p in offer.server.values())
    down += 2 * SCALAR if method.refers else 0  # F(w) and eps_t
    extra = sum(params.nbytes(p) for p in replies.extra.values())
    up = 0 if alone else model + (extra // max(1, len(replies.roster)))
    up += SCALAR if method.reports else 0  # F_k(w)
    up += SCALAR if method.claim.needs_requirement else 0
    others = admitted & (roster.importance < 1)
    helped = float(fed.share[roster.clients[others]].sum())
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
        "skipped": not float(verdict.weight.sum()) > 0,
        "theta": 1.0 / (1.0 + helped),
        "steps": int(steps.sum()),
        "bytes_down": down * n + model * consulted,
        "bytes_up": up * int(joined.sum()) + SCALAR * consulted,
    }
    columns = {
        "round": np.full(n, offer.round + 1),
        "client": roster.clients,
        "priority": roster.priority,
        "joined": joined,
        "admitted": admitted,
        "reason": reason,
        "weight": spread(verdict.weight, 0.0),
        "claim": spread(replies.claim, np.nan),
        "loss": measured.loss,
        "accuracy": measured.accuracy,
        "steps": spread(steps, 0),
        "bytes_up": np.where(joined, up, 0),
        "bytes_down": np.full(n, down),
    }
    return Entry(row, columns)
