"""One round: offer, invite, appraise, join, train, guard, admit, weigh, step.

This is the server's side, and the order of all steps; the clients' side is `clients`. It does not
depend on where the clients are: in this process, or across a network.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np

from ..base import params
from ..base.arrays import Bool, Float64, Int64, Text
from ..base.errors import MusterWarning
from ..base.lazy import torch
from ..base.params import Params, State
from ..federation import Population
from ..methods import Method
from ..parts.defences.trust import can_witness
from ..parts.evidence import base_weights
from ..parts.guard import MOST_LOSS, check_plausible, find_priority_outliers, guard
from ..parts.sketch import as_model, as_sketches, project
from ..parts.tracks import ALONE, GAIN, cut, cut_offer, cut_replies, mix, pool_clients
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
)
from .audit import TRUST, audit, refuse_turned
from .clients import Clients
from .contributors import Contributors
from .evaluation_cache import EvaluationCache
from .held_out_trial import judge_replies
from .job import Job
from .round_record import Outcome, record_attackers, record_moves, record_round

EARLY = "warm-up: not yet counted"


@dataclass(frozen=True)
class Setup:
    """The parts of a run that stay the same through all rounds.

    Attributes:
        quorum: the least share of the objective's weight whose clients must reply; a round with
            less does not count, and ends the run
        contributors: the same clients in a private run; None: it is not private
    """

    population: Population
    job: Job
    clients: Clients
    quorum: float = 0.0
    contributors: Contributors | None = None


def find_present(setup: Setup, t: int, cache: EvaluationCache) -> Bool:
    """Return True for clients that take part: never the unseen and, where clients may leave, only
    those that decide to stay."""
    if not setup.job.may_leave(t):
        return setup.population.takes_part
    seen, present = setup.population.participants, setup.population.takes_part.copy()
    present[seen[~setup.clients.decide_to_stay(seen, cache)]] = False
    return present


def select_pool(setup: Setup, t: int, present: Bool) -> Int64:
    """Return the clients that may be asked: those present, in warm-up only the objective's; with
    trust everyone where helpers can be witnesses, who do not count yet."""
    if t < setup.job.warmup:
        who = setup.population
        witnesses = setup.job.method.trust is not None and not setup.job.protects_clients
        witnesses &= can_witness(int(present.sum()), int((present & who.priority).sum()))
        present = present & ((who.importance > 0) | witnesses)
    everyone = present is setup.population.takes_part
    return setup.population.participants if everyone else np.flatnonzero(present)


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
    asks = setup.job.method.reference == "asked"
    members = asked[weight[asked] > 0] if asks else setup.population.members
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
    start = project({name: t[None] for name, t in offer.model.items()}, offer, method.sketch)
    model = {name: t[0] for name, t in as_model(start, offer).items()}
    plain = replace(offer, model=model, trainable=seen.trainable)
    first, _ = admit_replies(setup.job, plain, seen, server)
    some = np.where(own, first.extent > 0, first.weight > 0)
    missing = np.where(some, "", first.reason).astype(np.dtypes.StringDType())
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
        missing: why a reply came without its model, or was refused by its sketch ("": neither)
    """
    method, learnt = job.method, State()
    sound = guard(offer, replies, method.reports, method.claim.most, method.losses, job.possible)
    if missing is not None:
        some = missing == ""
        sound = Decision(sound.yes & some, np.where(some, sound.reason, missing))
    elif method.trust is not None:
        all_reply = not method.refers or job.needs_witnesses(offer)
        sound, learnt = refuse_turned(method.trust, offer, replies, sound, server, all_reply)
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
        learnt = learnt | method.weigh.learn(counted, extent[admitted], server)
    weight[admitted] = method.weigh(counted, extent[admitted], {**server, **learnt})
    early = (offer.round < job.warmup) & (replies.roster.importance == 0)
    reason = np.where(early, EARLY, method.admit.reason)
    reason = np.where(sound.yes, reason, sound.reason)
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
        some, taken = roster, steps
        if len(cuts) > 1:
            rows = np.arange(start, min(start + most, n))
            some, taken = roster.pick(rows), None if steps is None else steps[rows]
        memory = {} if state.clients is None else state.clients.get(some.clients)
        answers = setup.clients.respond(offer, some, taken, cache, memory)
        del memory  # or it would stay while the step is taken
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
            answers = answers.without_models()  # or they would stay while the next portion trains
            parts[-1] = (answers, *parts[-1][1:])
    answers = Answers.concat([a for a, _, _ in parts])
    admission = Admission.concat([a for _, a, _ in parts])
    honest = None
    if answers.truth is not None:
        # A portion without an attacker is admitted as it is.
        honest = Admission.concat([h or a for _, a, h in parts]).normalize()
    server = {**server, **learnt}
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
            server,
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
    server = {**server, **learnt, **audited}  # a step returns its own state only
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
    roster = (
        method.invite(population, pool, setup.job.seed, t, lambda who: cache.poll(who).loss)
        if len(pool)
        else Roster.of(population, pool)
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
        population=len(setup.population.participants),
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
