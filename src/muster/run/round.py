"""One round, written once: offer, invite, appraise, join, train, guard, admit, weigh, step.

The clients' half is `clients`; this is the server's half and the order of both. It knows nothing
of where the clients are: in this process, or across a network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .. import params
from ..arrays import Bool, Float64, Int64, Text
from ..federation import Federation
from ..local import Local
from ..methods import Method
from ..params import Memory, Params
from ..parts.attacks import Adversary
from ..parts.guard import guard, plausible
from ..parts.participation import Participation
from ..protocol import Answers, Appraisal, Entry, Offer, Replies, Roster, State, Traffic
from ..schedules import count
from .clients import Clients

SCALAR = 8  # bytes of a number on the wire


@dataclass(frozen=True)
class Game:
    """What stays the same through all rounds of a run."""

    fed: Federation
    method: Method
    clients: Clients
    local: Local
    rounds: int
    seed: int
    trainable: tuple[str, ...]
    participation: Participation | None = None
    adversary: Adversary = Adversary()


class Measure:
    """Clients' appraisals of the round's model, each client's taken at most once."""

    def __init__(self, clients: Clients, state: State, known: Appraisal | None, n: int) -> None:
        self.clients, self.round, self.model = clients, state.round, state.model
        self.done = np.full(n, known is not None)
        self.known = known or Appraisal.unknown(n)
        self.consulted = np.zeros(n, np.bool_)

    def of(self, clients: Int64) -> Appraisal:
        """These clients' appraisals. They need the model for it, asked or not: it is counted."""
        self.consulted[clients] = True
        new = clients[~self.done[clients]]
        if len(new):
            self.known.put(new, self.clients.appraise(self.round, self.model, new))
            self.done[new] = True
        return self.known.pick(clients)


def present_in(game: Game, t: int, measure: Measure) -> Bool:
    """Who takes part in the federation: never the unseen and, where clients are free to leave,
    only those whom the model still appeals to."""
    present = ~game.fed.unseen
    if game.participation is not None and t >= game.participation.starts(game.rounds):
        seen = np.flatnonzero(present)
        present[seen[~game.clients.stays(seen, measure)]] = False
    return present


def pool_of(game: Game, t: int, present: Bool) -> Int64:
    """Who may be asked: those present, and during warm-up only the objective's clients."""
    if t < count(game.method.warmup, game.rounds, "warmup"):
        present = present & (game.fed.importance > 0)
    return np.flatnonzero(present)


def reference_of(game: Game, offer: Offer, asked: Int64, measure: Measure) -> tuple[float, float]:
    """F(w) and its accuracy: the objective's clients' weighted word on w (eq. 5), as far as it is
    there and possible.

    NaN when none of them was asked and the method measures on the asked only, or none gave a
    possible answer: then nobody else can tell whether it is aligned, and stays silent.
    """
    weight = game.fed.objective
    members = np.flatnonzero(weight > 0)
    if game.method.reference == "asked":
        members = asked[weight[asked] > 0]
    if len(members) == 0:
        return float("nan"), float("nan")
    own = game.clients.report(offer, members, measure)
    sound = plausible(own).yes
    if not sound.any():
        return float("nan"), float("nan")
    w = weight[members[sound]] / weight[members[sound]].sum()
    return float(w @ own.loss[sound]), float(w @ own.accuracy[sound])


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
    measure = Measure(game.clients, state, known, fed.n)
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
        game.clients.arriving(state.model),
        lr=game.local.rate(t, game.rounds),
        population=int((~fed.unseen).sum()),
        trainable=game.trainable,
        server={part: state.server[part] for part in method.solver.needs},
    )
    if method.refers:
        loss, accuracy = reference_of(game, offer, asked, measure)
        eps = method.epsilon.at(t, game.rounds)
        offer = replace(offer, loss=loss, accuracy=accuracy, eps=eps)

    steps = method.effort(roster, game.clients.steps(asked), state.server) if len(asked) else None
    memory = {part: params.select(table, asked) for part, table in state.clients.items()}
    answers = game.clients.respond(offer, roster, steps, measure, memory)
    model, server, verdict = conclude(method, offer, answers.replies, state.server)

    clients = remember(state.clients, answers.replies.roster.clients, answers.memory)
    following = State(t + 1, model, server, clients, present)
    extra = int(measure.consulted.sum() - measure.consulted[asked].sum())
    entry = record(game, offer, roster, answers, verdict, extra)
    moves = moves_of(t, state.present, present, answers.events)
    gains = gains_of(game, offer, answers, verdict, state.server)
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


def moves_of(
    t: int, before: Bool, after: Bool, events: tuple[tuple[int, str], ...]
) -> dict[str, NDArray[Any]]:
    """Who left the pool this round, who came back, and what else happened to whom."""
    left, returned = np.flatnonzero(before & ~after), np.flatnonzero(~before & after)
    words = ["left"] * len(left) + ["returned"] * len(returned) + [what for _, what in events]
    move = np.array(words, np.dtypes.StringDType())
    clients = np.concatenate([left, returned, np.array([k for k, _ in events], np.int64)])
    return {"round": np.full(len(clients), t + 1), "client": clients, "move": move}


def gains_of(
    game: Game, offer: Offer, answers: Answers, verdict: Verdict, server: Memory
) -> dict[str, NDArray[Any]]:
    """What lying got each attacker this round: its share of the step, and the share it would have
    had by telling the truth (0 if it would have stayed silent)."""
    replies = answers.replies
    who = np.isin(replies.roster.clients, game.adversary.clients)
    if not who.any():
        return {}
    clients = replies.roster.clients
    truth = answers.measured.pick(answers.decision.yes)
    willing = game.method.join(offer, replies.roster, truth).yes
    rho = game.fed.requirement
    required = np.full(len(clients), np.nan) if rho is None else rho[clients]
    claim = game.method.claim(truth, required)
    honest = judge(game.method, offer, replace(replies, appraisal=truth, claim=claim), server)
    weight = np.where(willing, honest.weight, 0.0)
    weight = weight / weight.sum() if weight.sum() > 0 else weight
    n = int(who.sum())
    return {
        "round": np.full(n, offer.round + 1),
        "client": clients[who],
        "admitted": verdict.admitted[who],
        "weight": verdict.weight[who],
        "honest_weight": weight[who],
    }


def sizes_of(game: Game, offer: Offer, answers: Answers, consulted: int) -> Traffic:
    """Bytes a round needs at least: models and the numbers that go with them. `consulted`:
    clients that were sent the model and measured it, but were not asked to train."""
    method, n = game.method, len(answers.failed)
    alone = method.serves == "own"
    model = params.nbytes(offer.model)
    down = 0 if alone else model + sum(params.nbytes(p) for p in offer.server.values())
    down += 2 * SCALAR if method.refers else 0  # F(w) and eps_t
    extra = sum(params.nbytes(p) for p in answers.replies.extra.values())
    up = 0 if alone else model + (extra // max(1, len(answers.replies.roster)))
    up += SCALAR if method.reports else 0  # F_k(w)
    up += SCALAR if method.claim.needs_requirement else 0
    return Traffic(
        np.where(answers.decision.yes, up, 0),
        np.full(n, down),
        SCALAR * consulted,
        model * consulted,
    )


def record(
    game: Game, offer: Offer, roster: Roster, answers: Answers, verdict: Verdict, consulted: int
) -> Entry:
    """What the ledger keeps of a round."""
    n, joined, failed = len(roster), answers.decision.yes, answers.failed
    heard = np.isin(roster.clients, answers.replies.roster.clients)

    def spread(values: NDArray[Any], empty: object) -> NDArray[Any]:
        out = np.full(n, empty, dtype=values.dtype)
        out[heard] = values
        return out

    admitted = spread(verdict.admitted, False)
    reason = answers.decision.reason.astype(np.dtypes.StringDType())
    reason[heard & ~admitted] = verdict.reason[~verdict.admitted]
    others = admitted & (roster.importance < 1)
    helped = float(game.fed.share[roster.clients[others]].sum())
    traffic = answers.traffic or sizes_of(game, offer, answers, consulted)
    row = {
        "round": offer.round + 1,
        "eps": offer.eps,
        "reference_loss": offer.loss,
        "asked": n,
        "joined": int(joined.sum()),
        "silent": int((~joined & ~failed).sum()),
        "failed": int(failed.sum()),
        "admitted": int(admitted.sum()),
        "admitted_nonpriority": int((admitted & ~roster.priority).sum()),
        "refused": int((joined & ~admitted).sum()),
        "skipped": not float(verdict.weight.sum()) > 0,
        "theta": 1.0 / (1.0 + helped),
        "steps": int(answers.steps.sum()),
        "bytes_down": int(traffic.down.sum()) + traffic.others_down,
        "bytes_up": int(traffic.up.sum()) + traffic.others_up,
    }
    columns = {
        "round": np.full(n, offer.round + 1),
        "client": roster.clients,
        "priority": roster.priority,
        "joined": joined,
        "admitted": admitted,
        "reason": reason,
        "weight": spread(verdict.weight, 0.0),
        "claim": spread(answers.replies.claim, np.nan),
        "loss": answers.measured.loss,
        "accuracy": answers.measured.accuracy,
        "steps": spread(answers.steps, 0),
        "bytes_up": traffic.up,
        "bytes_down": traffic.down,
    }
    return Entry(row, columns)
