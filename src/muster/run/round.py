"""One round: offer, invite, appraise, join, train, guard, admit, weigh, step.

This is the server's side, and the order of all steps; the clients' side is `clients`. It does not
depend on where the clients are: in this process, or across a network.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import params
from ..base.arrays import Bool, Float64, Int64, Text
from ..base.errors import MusterWarning
from ..base.lazy import torch
from ..base.params import Params, State
from ..federation import Population
from ..methods import Method
from ..parts.evidence import base_weights
from ..parts.guard import MOST_LOSS, check_plausible, find_priority_outliers, guard
from ..parts.sketch import SKETCH, as_sketches
from ..parts.tracks import ALONE, GAIN, PRODUCT, cut, cut_offer, cut_replies, mix, pool_clients
from ..protocol import (
    Admission,
    Answers,
    Appraisal,
    Decision,
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
from .held_out_trial import judge_replies
from .job import Job

SCALAR = 8  # bytes of a number in a message


@dataclass(frozen=True)
class Setup:
    """The parts of a run that stay the same through all rounds.

    Attributes:
        quorum: the least share of the objective's weight whose clients must reply; a round with
            less does not count, and ends the run
    """

    population: Population
    job: Job
    clients: Clients
    quorum: float = 0.0


def find_present(setup: Setup, t: int, cache: EvaluationCache) -> Bool:
    """Return True for clients that take part: never the unseen and, where clients may leave, only
    those that decide to stay."""
    present = ~setup.population.unseen
    if setup.job.may_leave(t):
        seen = np.flatnonzero(present)
        present[seen[~setup.clients.decide_to_stay(seen, cache)]] = False
    return present


def select_pool(setup: Setup, t: int, present: Bool) -> Int64:
    """Return the clients that may be asked: those present, in warm-up only the objective's."""
    if t < setup.job.warmup:
        present = present & (setup.population.importance > 0)
    return np.flatnonzero(present)


def measure_reference(
    setup: Setup, offer: Offer, asked: Int64, cache: EvaluationCache
) -> tuple[float, float, Int64]:
    """Measure F(w) and its score, the weighted mean of what the objective's clients report of w
    (eq. 5), over plausible reports; and find the priority clients whose report is an outlier.
    Clients without a score (the AUC of one class) are left out of the score.

    NaN when none of them was asked and the method measures on the asked only, or none gave a
    plausible report: then no other client can decide whether it is aligned, and all abstain.
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
class Outcome:
    """The result of a round: the answers, the new model and server state, the admission of the
    replies, and that of honest ones where some clients attack."""

    answers: Answers
    model: Params
    server: State
    admission: Admission
    honest: Admission | None
    trial: Trial | None = None


def fetch_models(
    setup: Setup, offer: Offer, roster: Roster, answers: Answers, server: State
) -> Answers:
    """Return the answers with the models of those helpers whom their sketches give a weight; the
    answers themselves where everyone sent its model."""
    method, replies = setup.job.method, answers.replies
    if not method.sketch or not len(replies.roster):
        return answers
    own = replies.roster.importance > 0
    seen = as_sketches(replies, offer, method.sketch, own)
    plain = replace(offer, model={SKETCH: seen.models[SKETCH][0]})
    first, _ = admit_replies(setup.job, plain, replace(seen, extra={}), server)
    missing = np.where(own | (first.weight > 0), "", first.reason).astype(np.dtypes.StringDType())
    wanted = ~own & (first.weight > 0)
    traffic = answers.traffic
    if wanted.any():
        got = setup.clients.fetch(offer, replies.pick(wanted))
        missing[wanted] = got.missing
        models = {name: t.clone() for name, t in replies.models.items()}
        for name, t in models.items():
            t[torch.from_numpy(wanted).to(t.device)] = got.models[name].to(t)
        replies = replace(replies, models=models)
        if traffic is not None:
            at = np.isin(roster.clients, replies.roster.clients[wanted])
            traffic = replace(traffic, up=traffic.up.copy(), down=traffic.down.copy())
            traffic.up[at] += got.up
            traffic.down[at] += got.down
    return replace(answers, replies=replies, missing=missing, traffic=traffic)


def admit_replies(
    job: Job, offer: Offer, replies: Replies, server: State, missing: Text | None = None
) -> tuple[Admission, State]:
    """Guard, admit and weigh replies; return also the parts of the server's state that the rule of
    weights has learnt. Weights are as the rule gives them, not normalized.

    Args:
        missing: why a reply came without its model ("": it has one)
    """
    method, learnt = job.method, State()
    sound = guard(offer, replies, method.reports, method.claim.most, method.losses, job.possible)
    if missing is not None:
        some = missing == ""
        sound = Decision(sound.yes & some, np.where(some, sound.reason, missing))
    extent = np.where(sound.yes, method.admit(offer, replies.roster, replies.appraisal), 0.0)
    if offer.round < job.warmup:
        # Warm-up is for the objective: a client in it by a_k counts by a_k, aligned or not.
        extent = np.minimum(extent, replies.roster.importance)
    admitted = extent > 0
    weight = np.zeros(len(extent))
    counted = replies.pick(admitted)
    if method.tracks is not None:
        counted = cut_replies(counted, method.tracks.helped)
    if hasattr(method.weigh, "learn"):
        learnt = method.weigh.learn(counted, extent[admitted], server)
    weight[admitted] = method.weigh(counted, extent[admitted], {**server, **learnt})
    reason = np.where(sound.yes, method.admit.reason, sound.reason)
    if refuses := getattr(method.weigh, "refuses", ""):
        # The objective's replies are never refused: others may do without them, for one round.
        useless = admitted & (weight == 0) & (replies.roster.importance == 0)
        extent, reason = np.where(useless, 0.0, extent), np.where(useless, refuses, reason)
    return Admission(extent, weight, reason), learnt


def admit_honest_replies(
    job: Job, offer: Offer, answers: Answers, server: State
) -> Admission | None:
    """Return the admission of the replies that clients would have sent without an attack; None
    without an attacker."""
    truth, replies = answers.truth, answers.replies
    if truth is None:
        return None
    truthful = replace(replies, appraisal=truth.appraisal, claim=truth.claim)
    honest, _ = admit_replies(job, offer, truthful, server, answers.missing)
    return replace(honest, weight=np.where(truth.joins, honest.weight, 0.0))


def train_and_step(
    setup: Setup,
    offer: Offer,
    roster: Roster,
    steps: Int64 | None,
    cache: EvaluationCache,
    state: RunState,
) -> Outcome:
    """Ask clients to train, then guard, admit, weigh and step. Without any weight the model stays.

    Where not all replies fit in memory at once, and the step needs only their mean, they are asked
    for in portions, of which only the mean is stored.
    """
    method, server = setup.job.method, state.server
    most = max(1, setup.clients.max_replies(offer.model))
    streams = method.step.only_mean and state.clients is None and method.trust is None
    streams = streams and not getattr(method.weigh, "at_once", False)
    n = len(roster)
    cuts = range(0, n, most) if streams and n > most else range(1)
    parts: list[tuple[Answers, Admission, Admission | None]] = []
    mean, trial = RunningMean(), None
    for start in cuts:
        rows = np.arange(n) if len(cuts) == 1 else np.arange(start, min(start + most, n))
        some, taken = roster.pick(rows), None if steps is None else steps[rows]
        memory = {} if state.clients is None else state.clients.get(some.clients)
        answers = setup.clients.respond(offer, some, taken, cache, memory)
        if method.held_out:
            answers, trial = judge_replies(
                setup.population, setup.clients, setup.job, offer, answers, cache
            )
        answers = fetch_models(setup, offer, some, answers, server)
        admission, learnt = admit_replies(
            setup.job, offer, answers.replies, server, answers.missing
        )
        parts.append((answers, admission, admit_honest_replies(setup.job, offer, answers, server)))
        if len(cuts) > 1:
            admitted = admission.weight > 0
            mean.add(answers.replies.pick(admitted), admission.weight[admitted])
            parts[-1] = (answers.without_models(), *parts[-1][1:])
    answers = Answers.concat([a for a, _, _ in parts])
    admission = Admission.concat([a for _, a, _ in parts])
    honest = None
    if answers.truth is not None:
        # A portion without an attacker is admitted as it is.
        honest = Admission.concat([h or a for _, a, h in parts]).normalize()
    model, audited = offer.model, {k: m for k, m in server.items() if k == TRUST}
    if method.trust is not None and admission.admitted.any():
        result = audit(
            setup.population,
            setup.clients,
            method,
            method.trust,
            offer,
            answers.replies,
            admission,
            {**server, **learnt},
            cache,
        )
        admission, trial, audited = result.admission, result.trial, result.server
        answers = replace(answers, replies=result.replies)
    if admission.weight.sum() > 0:
        if len(cuts) > 1:
            model, server = method.step(offer, mean.reply, mean.weight, server)
        else:
            admitted = admission.admitted
            model, server = take_step(
                method, offer, answers.replies.pick(admitted), admission.weight[admitted], server
            )
    server = {**server, **audited, **learnt}  # a step returns its own state only
    return Outcome(answers, model, server, admission.normalize(), honest, trial)


def take_step(
    method: Method, offer: Offer, replies: Replies, weight: Float64, server: State
) -> tuple[Params, State]:
    """Return the next model and the server's state after the method's step.

    With a rule of deployment the step is taken twice, with help and without, each with its own
    state of the server. The rule chooses the product by what clients measured of the models that
    the round began with.
    """
    tracks, deploy = method.tracks, method.deploy
    if tracks is None or deploy is None:
        return method.step(offer, replies, weight, server)
    base = base_weights(replies.roster, np.ones(len(weight)))
    own = {k: v for k, v in server.items() if not k.startswith(ALONE)}
    others = {k.removeprefix(ALONE): v for k, v in server.items() if k.startswith(ALONE)}
    helped, own = method.step(
        cut_offer(offer, tracks.helped), cut_replies(replies, tracks.helped), weight, own
    )
    alone = cut(offer.model, tracks.unhelped)
    if base.any():
        alone, others = method.step(
            cut_offer(offer, tracks.unhelped),
            cut_replies(replies.pick(base > 0), tracks.unhelped),
            base[base > 0],
            others,
        )
    gain = np.asarray(replies.extra[GAIN]["loss"].double().cpu().numpy())
    share = deploy(*pool_clients(gain, base))
    product = mix(cut(alone, slice(0, 1)), cut(helped, slice(0, 1)), share)
    return join_tracks(product, helped, alone), {
        **own,
        **{ALONE + part: table for part, table in others.items()},
    }


def join_tracks(product: Params, helped: Params, alone: Params) -> Params:
    """Return the tracks of all groups, in the order of `Tracks`."""
    return {n: torch.cat([t, helped[n], alone[n]]) for n, t in product.items()}


def gather_tracks(server: State, part: str) -> Params:
    """Return a part of the server's state for all tracks, where it has one with help and one
    without. Nobody trains the product: it is given the first."""
    if ALONE + part not in server:
        return server[part]
    return join_tracks(cut(server[part], slice(0, 1)), server[part], server[ALONE + part])


def has_help(method: Method, model: Params) -> bool:
    """Return True if the deployed model is another than the one trained without help."""
    assert method.tracks is not None, "a method that deploys trains several models"
    alone = method.tracks.unhelped.start
    return any(not torch.equal(t[PRODUCT], t[alone]) for t in model.values())


class RunningMean:
    """The mean of replies that arrive in portions, as one reply with their total weight."""

    def __init__(self) -> None:
        self.weight = np.zeros(1)

    def add(self, replies: Replies, weight: Float64) -> None:
        """Add a portion."""
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
    """Play one round from `state`, and return the next state and the round's ledger entry. `cache`
    has what is already known of its model."""
    population, clients, method = setup.population, setup.clients, setup.job.method
    t = state.round
    cache.use(state).begin_round()
    present = find_present(setup, t, cache)
    pool = select_pool(setup, t, present)
    roster = Roster.of(population, pool)
    if len(pool):
        roster = method.invite(
            population, pool, setup.job.seed, t, lambda who: cache.poll(who).loss
        )
    asked = roster.clients
    offer = build_offer(setup, state)
    odd = asked[:0]
    if method.refers:
        loss, score, odd = measure_reference(setup, offer, asked, cache)
        offer = replace(offer, loss=loss, score=score, eps=setup.job.eps(t))

    steps = method.effort(roster, clients.steps(asked), state.server) if len(asked) else None
    outcome = train_and_step(setup, offer, roster, steps, cache, state)
    answers, admission = outcome.answers, outcome.admission
    memories = state.clients
    if memories is not None:
        memories = memories.after(*select_client_states(method, answers, admission))
    following = RunState(t + 1, outcome.model, outcome.server, memories, present)
    entry = record_round(method, population, offer, roster, outcome, cache)
    events = (*answers.events, *warn_outliers(setup, answers, odd))
    if outcome.trial is not None:
        events += outcome.trial.events
    moves = record_moves(t, state.present, present, events)
    attackers = record_attackers(clients.attackers, offer, outcome)
    left, back = (int((moves["move"] == m).sum()) for m in ("left", "returned"))
    row = {**entry.round, "pool": len(pool), "left": left, "returned": back}
    return following, replace(entry, round=row, moves=moves, attackers=attackers)


def build_offer(setup: Setup, state: RunState) -> Offer:
    """Return the offer of a state, without F(w)."""
    job, t = setup.job, state.round
    return Offer(
        job.seed,
        t,
        job.rounds,
        setup.clients.deliver(state.model),
        lr=job.local.rate(t, job.rounds),
        population=int((~setup.population.unseen).sum()),
        trainable=setup.clients.trainable,
        server={part: gather_tracks(state.server, part) for part in job.method.solver.needs},
        score_name=job.scoring.first.name,
        higher=job.scoring.first.higher,
    )


def warn_outliers(setup: Setup, answers: Answers, odd: Int64) -> list[tuple[int, str]]:
    """Warn about priority clients whose report is an outlier (it counts all the same), and return
    them as events. `odd` are those found when F(w) was measured."""
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
        name = "" if names is None else f" ({names[k]})"
        warnings.warn(
            f"client {k}{name}, a priority client, reports a loss over "
            f"{MOST_LOSS:g} times the middle one; it counts, because the model is for it: check "
            "its data",
            MusterWarning,
            stacklevel=2,
        )
    return [(k, "loss far above the others', counted: a priority client's") for k in odd.tolist()]


def select_client_states(
    method: Method, answers: Answers, admission: Admission
) -> tuple[Int64, State]:
    """Return the clients whose new state is stored, and these states. State that a client shares
    with the server (SCAFFOLD's c_k) is stored only if its reply was admitted."""
    who, states, admitted = answers.replies.roster.clients, answers.state, admission.admitted
    if not method.solver.joint or admitted.all():
        return who, states
    return who[admitted], {part: params.select(table, admitted) for part, table in states.items()}


def record_moves(
    t: int, before: Bool, after: Bool, events: tuple[tuple[int, str], ...]
) -> dict[str, NDArray[Any]]:
    """Return the rows of `moves`: clients that left the pool or returned, and other events."""
    left, returned = np.flatnonzero(before & ~after), np.flatnonzero(~before & after)
    words = ["left"] * len(left) + ["returned"] * len(returned) + [what for _, what in events]
    move = np.array(words, np.dtypes.StringDType())
    clients = np.concatenate([left, returned, np.array([k for k, _ in events], np.int64)])
    return {"round": np.full(len(clients), t + 1), "client": clients, "move": move}


def record_attackers(attackers: Int64, offer: Offer, outcome: Outcome) -> dict[str, NDArray[Any]]:
    """Return the rows of `attackers`: each one's share of the step, and the share an honest reply
    would have had (0 if it would have abstained)."""
    admission, honest = outcome.admission, outcome.honest
    if honest is None:
        return {}
    clients = outcome.answers.replies.roster.clients
    who = np.isin(clients, attackers)
    return {
        "round": np.full(int(who.sum()), offer.round + 1),
        "client": clients[who],
        "admitted": admission.admitted[who],
        "weight": admission.weight[who],
        "honest_weight": honest.weight[who],
    }


def compute_traffic(
    method: Method, offer: Offer, roster: Roster, answers: Answers, cache: EvaluationCache
) -> Traffic:
    """Compute the bytes a round needs at least: models and the numbers that go with them."""
    asked = roster.clients
    consulted = int(cache.consulted.sum() - cache.consulted[asked].sum())  # and not asked to train
    alone = method.serves == "own"
    model = params.nbytes(offer.model)
    down = 0 if alone else model + sum(params.nbytes(p) for p in offer.server.values())
    down += 2 * SCALAR if method.refers else 0  # F(w) and eps_t
    member = roster.importance > 0
    up = np.where(member, *(reply_size(method, offer.model, whose) for whose in (True, False)))
    up = np.where(alone, 0, up) + SCALAR * (method.reports + method.claims)  # F_k(w), a claim
    polled = SCALAR * cache.polled[asked]  # F_k(w), before the invitation
    if answers.missing is not None:  # models that were fetched after their sketches
        helped = answers.replies.roster.pick(
            (answers.missing == "") & ~(answers.replies.roster.importance > 0)
        )
        up = up + model * np.isin(asked, helped.clients)
    return Traffic(
        np.where(answers.decision.yes, up, 0) + polled,
        np.full(len(asked), down),
        SCALAR * consulted,
        model * consulted,
    )


def reply_size(method: Method, model: Params, member: bool) -> int:
    """Return the bytes of the arrays in a reply of a client of the objective, or of a helper."""
    own, extra = method.reply_shapes({n: tuple(t.shape) for n, t in model.items()}, member)
    numbers = sum(math.prod(shape) for table in (own, *extra.values()) for shape in table.values())
    return numbers * next(iter(model.values())).element_size()


def add_trial_traffic(traffic: Traffic, roster: Roster, trial: Trial | None, model: int) -> Traffic:
    """Add the bytes of a trial: its models down, a number for each of them up."""
    if trial is None:
        return traffic
    models = len(trial.values) - 1  # clients have the round's model
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


def count_trials(trial: Trial | None) -> int:
    """Count the appraisals of candidate models."""
    return 0 if trial is None else (len(trial.values) - 1) * len(trial.clients)


def record_round(
    method: Method,
    population: Population,
    offer: Offer,
    roster: Roster,
    outcome: Outcome,
    cache: EvaluationCache,
) -> LedgerEntry:
    """Return a round's row of `rounds` and its rows of `clients`."""
    answers, admission, trial = outcome.answers, outcome.admission, outcome.trial
    n, joined, failed = len(roster), answers.decision.yes, answers.failed
    heard = np.isin(roster.clients, answers.replies.roster.clients)

    def spread(values: NDArray[Any], empty: object) -> NDArray[Any]:
        out = np.full(n, empty, dtype=values.dtype)
        out[heard] = values
        return out

    admitted = spread(admission.admitted, False)
    reason = answers.decision.reason.astype(np.dtypes.StringDType())
    reason[heard & ~admitted] = admission.reason[~admission.admitted]
    # S_t: the extent of admitted replies beyond their clients' importance in the objective.
    replied = answers.replies.roster
    beyond = np.maximum(admission.extent - replied.importance, 0.0)
    helped = float((beyond * replied.full).sum())
    objective = population.objective[roster.clients]
    # A reply whose weight is 0 by the rule of weights was heard all the same.
    useless = reason == getattr(method.weigh, "refuses", "")
    sound = objective[~failed & (admitted | ~joined | useless)].sum()
    traffic = answers.traffic or compute_traffic(method, offer, roster, answers, cache)
    traffic = add_trial_traffic(traffic, roster, trial, params.nbytes(offer.model))
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
        "skipped": not float(admission.weight.sum()) > 0,
        "theta": 1.0 / (1.0 + helped),
        "steps": int(answers.steps.sum()),
        **({} if method.trust is None else {"trials": count_trials(trial)}),
        **({} if method.deploy is None else {"helped": has_help(method, outcome.model)}),
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
        "weight": spread(admission.weight, 0.0),
        "claim": spread(answers.replies.claim, np.nan),
        "loss": answers.appraisal.loss,
        offer.score_name: answers.appraisal.score,
        "steps": spread(answers.steps, 0),
        "bytes_up": traffic.up,
        "bytes_down": traffic.down,
    }
    share = float(sound / objective.sum()) if objective.sum() > 0 else 1.0
    return LedgerEntry(row, columns, answered=share)
