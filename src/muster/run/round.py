"""One round, written once: offer, invite, appraise, join, train, guard, admit, weigh, step.

The clients' half is `clients`; this is the server's half and the order of both. It knows nothing
of where the clients are: in this process, or across a network.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import params
from ..base.arrays import Bool, Float64, Int64, Text
from ..base.errors import MusterWarning
from ..base.params import Params, State
from ..federation import Population
from ..methods import Method
from ..parts.guard import MOST_LOSS, check_plausible, find_priority_outliers, guard
from ..protocol import (
    Answers,
    Appraisal,
    LedgerEntry,
    Offer,
    Replies,
    Roster,
    RunState,
    Traffic,
    Trial,
)
from .audit import TRUST, audit
from .clients import Clients
from .evaluation_cache import EvaluationCache
from .job import Job

SCALAR = 8  # bytes of a number on the wire


@dataclass(frozen=True)
class Setup:
    """The parts of a run that stay the same through all rounds: who, what runs, where they are.

    Attributes:
        quorum: the share of the objective's weight that must be heard; a round in which less is
            does not count, and ends the run
    """

    population: Population
    job: Job
    clients: Clients
    quorum: float = 0.0


def present_in(setup: Setup, t: int, cache: EvaluationCache) -> Bool:
    """Who takes part in the federation: never the unseen and, where clients are free to leave,
    only those the model still appeals to."""
    present = ~setup.population.unseen
    if setup.job.may_leave(t):
        seen = np.flatnonzero(present)
        present[seen[~setup.clients.decide_to_stay(seen, cache)]] = False
    return present


def pool_of(setup: Setup, t: int, present: Bool) -> Int64:
    """Who may be asked: those present, and during warm-up only the objective's clients."""
    if t < setup.job.warmup:
        present = present & (setup.population.importance > 0)
    return np.flatnonzero(present)


def reference_of(
    setup: Setup, offer: Offer, asked: Int64, cache: EvaluationCache
) -> tuple[float, float, Int64]:
    """F(w) and its score: the objective's clients' weighted word on w (eq. 5), as far as it is
    there and possible; and the priority clients whose word is far from all others'. Clients whose
    rows leave them without a score (the AUC of one class) are left out of the score.

    NaN when none of them was asked and the method measures on the asked only, or none gave a
    possible answer: then nobody else can tell whether it is aligned, and stays silent.
    """
    weight = setup.population.objective
    members = np.flatnonzero(weight > 0)
    if setup.job.method.reference == "asked":
        members = asked[weight[asked] > 0]
    own = setup.clients.report(offer, members, cache) if len(members) else Appraisal.unknown(0)
    priority = setup.population.priority[members]
    can = setup.job.possible
    sound = check_plausible(own, priority, can).yes
    if not sound.any():
        return float("nan"), float("nan"), members[:0]
    w = weight[members[sound]] / weight[members[sound]].sum()
    odd = members[find_priority_outliers(own, priority, can)]
    score = own.score[sound]
    scored = ~np.isnan(score)
    mean = float(w @ score) if scored.all() else float("nan")
    if scored.any() and not scored.all():
        mean = float(w[scored] @ score[scored] / w[scored].sum())
    return float(w @ own.loss[sound]), mean, odd


@dataclass(frozen=True)
class Verdict:
    """What the server made of the replies.

    Attributes:
        extent: how far each was admitted, 0 (refused) to 1 (in full)
        weight: its share of the step
        reason: why it was refused
    """

    extent: Float64
    weight: Float64
    reason: Text

    @property
    def admitted(self) -> Bool:
        """Who was let in at all."""
        return self.extent > 0

    def shares(self) -> Verdict:
        """The same with weights that sum to 1, where there are any."""
        total = float(self.weight.sum())
        return replace(self, weight=self.weight / total) if total > 0 else self

    @classmethod
    def joined(cls, parts: Sequence[Verdict]) -> Verdict:
        """The verdicts on one portion of replies after another."""
        return cls(*(np.concatenate([getattr(p, f) for p in parts]) for f in VERDICT))


VERDICT = ("extent", "weight", "reason")


def judge(job: Job, offer: Offer, replies: Replies, server: State) -> Verdict:
    """Guard, admit and weigh: how much each reply counts. Weights are as the rule gives them."""
    method = job.method
    sound = guard(offer, replies, method.reports, method.claim.most, method.losses, job.possible)
    extent = np.where(sound.yes, method.admit(offer, replies.roster, replies.appraisal), 0.0)
    if offer.round < job.warmup:
        # Warm-up is for the objective: whoever is in it by a_k counts by a_k, aligned or not.
        extent = np.minimum(extent, replies.roster.importance)
    let_in = extent > 0
    weight = np.zeros(len(extent))
    weight[let_in] = method.weigh(replies.pick(let_in), extent[let_in], server)
    reason = np.where(sound.yes, method.admit.reason, sound.reason)
    return Verdict(extent, weight, reason)


@dataclass(frozen=True)
class Outcome:
    """What came of a round's replies: the answers, what the server made of them, and what it would
    have made of the truth where some of them are lies."""

    answers: Answers
    model: Params
    server: State
    verdict: Verdict
    honest: Verdict | None
    trial: Trial | None = None


def honest_verdict(job: Job, offer: Offer, answers: Answers, server: State) -> Verdict | None:
    """The verdict on what the clients would have said honestly."""
    truth, replies = answers.truth, answers.replies
    if truth is None:
        return None
    told = replace(replies, appraisal=truth.appraisal, claim=truth.claim)
    honest = judge(job, offer, told, server)
    return replace(honest, weight=np.where(truth.joins, honest.weight, 0.0))


def conclude(
    setup: Setup,
    offer: Offer,
    roster: Roster,
    steps: Int64 | None,
    cache: EvaluationCache,
    state: RunState,
) -> Outcome:
    """Ask for training, then the server's half: guard, admit, weigh, step. With nothing to weigh
    the model stays.

    Where not all replies fit in memory at once, and the step asks for nothing but their mean, they
    are taken in portions of which only the mean is kept.
    """
    method, server = setup.job.method, state.server
    most = max(1, setup.clients.max_replies(offer.model))
    streams = method.step.only_mean and state.clients is None and method.trust is None
    n = len(roster)
    cuts = range(0, n, most) if streams and n > most else range(1)
    parts: list[tuple[Answers, Verdict, Verdict | None]] = []
    mean = Mean()
    for start in cuts:
        rows = np.arange(n) if len(cuts) == 1 else np.arange(start, min(start + most, n))
        some = roster.pick(rows)
        answers = setup.clients.respond(
            offer,
            some,
            None if steps is None else steps[rows],
            cache,
            remembered(state, some),
        )
        verdict = judge(setup.job, offer, answers.replies, server)
        parts.append((answers, verdict, honest_verdict(setup.job, offer, answers, server)))
        if len(cuts) > 1:
            let_in = verdict.weight > 0
            mean.add(answers.replies.pick(let_in), verdict.weight[let_in])
            parts[-1] = (answers.without_models(), *parts[-1][1:])
    answers = Answers.concat([a for a, _, _ in parts])
    verdict = Verdict.joined([v for _, v, _ in parts])
    honest = None
    if answers.truth is not None:
        truths = [h or v for _, v, h in parts]  # without a liar, the truth is what was said
        honest = Verdict.joined(truths).shares()
    model, trial, audited = offer.model, None, {k: m for k, m in server.items() if k == TRUST}
    if method.trust is not None and verdict.admitted.any():
        ruling = audit(
            setup.population, setup.clients, method, method.trust, offer, answers.replies,
            verdict.extent, server, cache,
        )  # fmt: skip
        reason = np.where(ruling.refused, ruling.reason, verdict.reason)
        verdict = Verdict(ruling.extent, ruling.weight, reason)
        answers, trial = replace(answers, replies=ruling.replies), ruling.trial
        audited = ruling.server
    if verdict.weight.sum() > 0:
        if len(cuts) > 1:
            model, server = method.step(offer, mean.reply, mean.weight, server)
        else:
            let_in = verdict.admitted
            model, server = method.step(
                offer, answers.replies.pick(let_in), verdict.weight[let_in], server
            )
    server = {**server, **audited}  # what a step returns is its own memory alone
    return Outcome(answers, model, server, verdict.shares(), honest, trial)


def remembered(state: RunState, roster: Roster) -> State:
    """What these clients remember, as stacks."""
    return {} if state.clients is None else state.clients.get(roster.clients)


class Mean:
    """The mean of replies that come in portions, as one reply of their whole weight."""

    def __init__(self) -> None:
        self.weight = np.zeros(1)

    def add(self, replies: Replies, weight: Float64) -> None:
        """Take in some more."""
        if not len(replies.roster):
            return
        new = params.mean(replies.models, weight)
        self.weight = self.weight + weight.sum()
        share = float(weight.sum() / self.weight[0])
        first = np.arange(len(replies.roster)) == 0
        if share == 1.0:
            one = replies.pick(first)
            self.reply = replace(one, models={n: t[None] for n, t in new.items()})
            return
        for n, t in self.reply.models.items():
            t.add_(new[n] - t, alpha=share)


def play_round(
    setup: Setup, cache: EvaluationCache, state: RunState
) -> tuple[RunState, LedgerEntry]:
    """One whole round from `state`. `cache` holds what is already known of its model."""
    population, clients, method, t = (
        setup.population, setup.clients, setup.job.method, state.round
    )  # fmt: skip
    cache.use(state).begin_round()
    present = present_in(setup, t, cache)
    pool = pool_of(setup, t, present)
    roster = Roster.of(population, pool)
    if len(pool):
        roster = method.invite(
            population, pool, setup.job.seed, t, lambda who: cache.poll(who).loss
        )
    asked = roster.clients
    offer = offer_of(setup, state)
    odd = asked[:0]
    if method.refers:
        loss, score, odd = reference_of(setup, offer, asked, cache)
        offer = replace(offer, loss=loss, score=score, eps=setup.job.eps(t))

    steps = method.effort(roster, clients.steps(asked), state.server) if len(asked) else None
    outcome = conclude(setup, offer, roster, steps, cache, state)
    answers, verdict = outcome.answers, outcome.verdict
    memories = state.clients
    if memories is not None:
        memories = memories.after(*counting(method, answers, verdict))
    following = RunState(t + 1, outcome.model, outcome.server, memories, present)
    entry = record(setup, offer, roster, outcome, cache)
    events = (*answers.events, *warned(setup, answers, odd))
    if outcome.trial is not None:
        events += outcome.trial.events
    moves = moves_of(t, state.present, present, events)
    gains = gains_of(setup, offer, outcome)
    left, back = (int((moves["move"] == m).sum()) for m in ("left", "returned"))
    row = {**entry.round, "pool": len(pool), "left": left, "returned": back}
    return following, replace(entry, round=row, moves=moves, attackers=gains)


def offer_of(setup: Setup, state: RunState) -> Offer:
    """What is broadcast of a state, before F(w) is known."""
    job, t = setup.job, state.round
    return Offer(
        job.seed,
        t,
        job.rounds,
        setup.clients.deliver(state.model),
        lr=job.local.rate(t, job.rounds),
        population=int((~setup.population.unseen).sum()),
        trainable=setup.clients.trainable,
        server={part: state.server[part] for part in job.method.solver.needs},
        score_name=job.scoring.first.name,
        higher=job.scoring.first.higher,
    )


def warned(setup: Setup, answers: Answers, odd: Int64) -> list[tuple[int, str]]:
    """Priority clients whose report is far from all others': it counts, and is pointed out. `odd`
    are those found so when F(w) was measured."""
    replies, method = answers.replies, setup.job.method
    if method.reports and not method.losses:
        odd = np.union1d(
            odd,
            replies.roster.clients[
                find_priority_outliers(
                    replies.appraisal, replies.roster.priority, setup.job.possible
                )
            ],
        )
    names = setup.population.names
    for k in odd.tolist():
        called = "" if names is None else f" ({names[k]})"
        warnings.warn(
            f"client {k}{called}, a priority client, reports a loss over "
            f"{MOST_LOSS:g} times the middle one; it counts, because the model is for it: check "
            "its data",
            MusterWarning,
            stacklevel=2,
        )
    return [(k, "loss far above the others', counted: a priority client's") for k in odd.tolist()]


def counting(method: Method, answers: Answers, verdict: Verdict) -> tuple[Int64, State]:
    """Whose new memory counts, and what it is. What a client remembers together with the server
    (SCAFFOLD's c_k) counts only if its reply did."""
    who, own = answers.replies.roster.clients, answers.state
    if not method.solver.joint or verdict.admitted.all():
        return who, own
    kept = verdict.admitted
    return who[kept], {part: params.select(table, kept) for part, table in own.items()}


def moves_of(
    t: int, before: Bool, after: Bool, events: tuple[tuple[int, str], ...]
) -> dict[str, NDArray[Any]]:
    """Who left the pool this round, who came back, and what else happened to a client."""
    left, returned = np.flatnonzero(before & ~after), np.flatnonzero(~before & after)
    words = ["left"] * len(left) + ["returned"] * len(returned) + [what for _, what in events]
    move = np.array(words, np.dtypes.StringDType())
    clients = np.concatenate([left, returned, np.array([k for k, _ in events], np.int64)])
    return {"round": np.full(len(clients), t + 1), "client": clients, "move": move}


def gains_of(setup: Setup, offer: Offer, outcome: Outcome) -> dict[str, NDArray[Any]]:
    """What lying got each attacker this round: its share of the step, and the share it would have
    had by telling the truth (0 if it would have stayed silent)."""
    verdict, honest = outcome.verdict, outcome.honest
    if honest is None:
        return {}
    clients = outcome.answers.replies.roster.clients
    who = np.isin(clients, setup.clients.attackers)
    return {
        "round": np.full(int(who.sum()), offer.round + 1),
        "client": clients[who],
        "admitted": verdict.admitted[who],
        "weight": verdict.weight[who],
        "honest_weight": honest.weight[who],
    }


def sizes_of(
    method: Method, offer: Offer, roster: Roster, answers: Answers, cache: EvaluationCache
) -> Traffic:
    """Bytes a round needs at least: models and the numbers that go with them."""
    asked = roster.clients
    consulted = int(cache.consulted.sum() - cache.consulted[asked].sum())  # and not asked to train
    alone = method.serves == "own"
    model = params.nbytes(offer.model)
    down = 0 if alone else model + sum(params.nbytes(p) for p in offer.server.values())
    down += 2 * SCALAR if method.refers else 0  # F(w) and eps_t
    # What a solver sends next to the model is of the model's shapes, part by part.
    up = 0 if alone else model * (1 + len(method.solver.sends))
    up += SCALAR if method.reports else 0  # F_k(w)
    up += SCALAR if method.claim.needs_requirement else 0
    told = SCALAR * cache.polled[asked]  # F_k(w), before it was known who would be asked
    return Traffic(
        np.where(answers.decision.yes, up, 0) + told,
        np.full(len(asked), down),
        SCALAR * consulted,
        model * consulted,
    )


def tried(traffic: Traffic, roster: Roster, trial: Trial | None, model: int) -> Traffic:
    """The same with the bytes of a trial: its models down, a number for each of them up."""
    if trial is None:
        return traffic
    models = len(trial.values) - 1  # those who are asked hold the round's
    up = np.full(len(trial.clients), SCALAR * (models + 1))
    down = np.full(len(trial.clients), models * model)
    if trial.traffic is not None:
        up, down = trial.traffic
    at = np.searchsorted(roster.clients, trial.clients, sorter=np.argsort(roster.clients))
    at = np.argsort(roster.clients)[at]
    both = traffic.up.copy(), traffic.down.copy()
    np.add.at(both[0], at, up)
    np.add.at(both[1], at, down)
    return replace(traffic, up=both[0], down=both[1])


def trials_of(trial: Trial | None) -> int:
    """How many appraisals of candidate models were asked for."""
    return 0 if trial is None else (len(trial.values) - 1) * len(trial.clients)


def record(
    setup: Setup, offer: Offer, roster: Roster, outcome: Outcome, cache: EvaluationCache
) -> LedgerEntry:
    """What the ledger keeps of a round."""
    answers, verdict, trial = outcome.answers, outcome.verdict, outcome.trial
    n, joined, failed = len(roster), answers.decision.yes, answers.failed
    heard = np.isin(roster.clients, answers.replies.roster.clients)

    def spread(values: NDArray[Any], empty: object) -> NDArray[Any]:
        out = np.full(n, empty, dtype=values.dtype)
        out[heard] = values
        return out

    admitted = spread(verdict.admitted, False)
    reason = answers.decision.reason.astype(np.dtypes.StringDType())
    reason[heard & ~admitted] = verdict.reason[~verdict.admitted]
    # S_t: what the admitted count beyond their place in the objective.
    replied = answers.replies.roster
    beyond = np.maximum(verdict.extent - replied.importance, 0.0)
    helped = float((beyond * replied.full).sum())
    objective = setup.population.objective[roster.clients]
    sound = objective[~failed & (admitted | ~joined)].sum()
    traffic = answers.traffic or sizes_of(setup.job.method, offer, roster, answers, cache)
    traffic = tried(traffic, roster, trial, params.nbytes(offer.model))
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
        **({} if setup.job.method.trust is None else {"trials": trials_of(trial)}),
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
        "loss": answers.appraisal.loss,
        offer.score_name: answers.appraisal.score,
        "steps": spread(answers.steps, 0),
        "bytes_up": traffic.up,
        "bytes_down": traffic.down,
    }
    share = float(sound / objective.sum()) if objective.sum() > 0 else 1.0
    return LedgerEntry(row, columns, answered=share)
