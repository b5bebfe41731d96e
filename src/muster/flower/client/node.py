"""One client of a real federation: its own data, its own decisions, its own memory.

It runs the clients' half of the round, `clients.LocalClients`, on a stack of one. Its data, its
requirement and what it remembers between rounds never leave it; its role is what the server says
it is, because nothing a client says of its own role would count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...base import params
from ...base.errors import MusterError
from ...base.params import Params, State
from ...config.experiment import Experiment
from ...engines import Compute, choose
from ...federation import Federation
from ...local import Local
from ...protocol import Appraisal, Evaluation, Offer, Replies, Roster, RunState
from ...run.clients import LocalClients
from ...run.evaluation_cache import EvaluationCache
from ...run.job import Job
from ...run.solo import with_solo
from ...tasks.compatibility import match_task
from ..transport.wire import PREFIX, SAID, SPLITS, UNSAID, Seat
from .client_state import Diary

HERE = np.array([0])  # where the one client there is stands in its federation of one


class Node:
    """One client, ready to answer: built once for a run, and kept between messages."""

    def __init__(self, job: Job, fed: Federation, compute: Compute) -> None:
        self.job, self.method, self.dtype = job, job.method, compute.number
        self.module = job.check(fed)
        self.fed, task = match_task(fed, job.task)
        # One client's work is for one core.
        engine = choose(replace(compute, processes=1), self.module, self.fed, job.local, task)
        self.stack = LocalClients(self.fed, job, engine)
        self.frozen = params.frozen_digest(self.module)

    @property
    def rows(self) -> int:
        """Its sample count, D_k."""
        return int(self.fed.train.sizes[0])

    def word(self, t: int) -> dict[str, Any]:
        """What every reply says."""
        return {"round": t, "client": int(self.fed.population.ids[0]), "rows": self.rows}

    def memory(self, diary: Diary) -> State:
        """What it remembers, as a stack of one."""
        before = params.get_params(self.module, self.dtype, self.stack.device)
        return diary.memory(self.job.memory(before, self.stack.trainable))

    def build_cache(self, offer: Offer, diary: Diary) -> EvaluationCache:
        """What it makes of the offer's model, as far as its diary knows."""
        cache = EvaluationCache(self.stack.appraise, self.stack.evaluate, 1)
        cache.use(RunState(offer.round, offer.model))
        noted = diary.appraisal(offer.round)
        if noted is not None:
            loss, score = (np.array([value]) for value in noted)
            cache.store(HERE, Appraisal(loss, score))
        return cache

    def measure(self, offer: Offer, seat: Seat, diary: Diary) -> dict[str, Any]:
        """What it makes of the model, and whether it stays."""
        memory = self.memory(diary)
        own_of = (lambda who: memory["own"]) if "own" in memory else None
        view = self.stack.evaluate_model(offer.model, own_of, HERE)
        if seat.counted != UNSAID:  # the whole view is asked for, not what a round needs
            view = self.stack.add_tuned(view, offer.round, offer.model, HERE)
        said, decides = figures(view), PREFIX[self.job.split]
        if self.method.serves == "global":
            diary.note_appraisal(
                offer.round, said[f"{decides}loss"], said[decides + view.score_name]
            )
        cache = self.build_cache(offer, diary)
        said["stays"] = float(self.stack.decide_to_stay(HERE, cache)[0])
        note(cache, offer, diary)
        if self.method.claim.needs_requirement and not self.method.reports:
            # From its loss and its claim together the server could work out its requirement.
            # (A training score may be the loss by another name, as perplexity is.)
            names = ("loss", *self.job.scoring.names)
            for name in names if not decides else ("loss",):
                del said[decides + name]
        return self.word(offer.round) | {n: v for n, v in said.items() if not np.isnan(v)}

    def trial(self, offer: Offer, models: Sequence[Params], diary: Diary) -> dict[str, Any]:
        """What it makes of the offer's model and of others that might follow it."""
        cache = self.build_cache(offer, diary)
        words = self.stack.try_models(offer, models, HERE, cache).values[:, 0]
        note(cache, offer, diary)
        return self.word(offer.round) | {"trial": [float(value) for value in words]}

    def train(
        self, offer: Offer, seat: Seat, diary: Diary
    ) -> tuple[dict[str, Any], Replies | None]:
        """Its answer to the offer: its word, and its replies if it joined."""
        roster = Roster(
            HERE, np.array([seat.priority]), np.array([seat.importance]), np.ones(1),
            ids=np.array([seat.client]),
        )  # fmt: skip
        steps = None if seat.steps < 0 else np.array([seat.steps])
        cache = self.build_cache(offer, diary)
        answers = self.stack.respond(offer, roster, steps, cache, self.memory(diary))
        note(cache, offer, diary)
        joined = bool(answers.decision.yes[0])
        word = self.word(offer.round) | {
            "joined": joined,
            "reason": str(answers.decision.reason[0]),
        }
        if not joined:
            return word, None
        diary.write(offer.round + 1, answers.state)
        word["steps"] = int(answers.steps[0])
        if self.method.reports:
            word["loss"] = float(answers.replies.appraisal.loss[0])
            score = float(answers.replies.appraisal.score[0])
            if not np.isnan(score):  # its rows may leave it without one
                word[offer.score_name] = score
        if self.method.claim.needs_requirement:
            word["claim"] = float(answers.replies.claim[0])
        return word, answers.replies


def note(cache: EvaluationCache, offer: Offer, diary: Diary) -> None:
    """Keep what it measured of the model for the next message about it."""
    if cache.done[0]:
        known = cache.known
        diary.note_appraisal(offer.round, float(known.loss[0]), float(known.score[0]))


def figures(view: Evaluation) -> dict[str, float]:
    """A view of one client as the numbers of its word."""
    said: dict[str, float] = {}
    for prefix, appraisal in zip(
        SPLITS, (view.train, view.test, view.own, view.own_test), strict=True
    ):
        of = appraisal or Appraisal.unknown(1)
        told = {"loss": of.loss, view.score_name: of.score, **of.more}
        said |= {prefix + name: float(values[0]) for name, values in told.items()}
    tuned = {f"tuned_{view.score_name}": view.tuned}
    for name, value in (tuned | {n: getattr(view, n, None) for n in SAID}).items():
        said[name] = np.nan if value is None else float(value[0])
    return said


def seated(own: Federation, seat: Seat) -> Federation:
    """A client's own data in the role the server gives it, under the number by which its
    randomness is keyed: the same as in a simulation of everyone."""
    return replace(
        own,
        ids=np.array([seat.client]),
        priority=np.array([seat.priority]),
        importance=np.array([seat.importance]),
        unseen=np.zeros(1, np.bool_),
    )


def required(fed: Federation, chosen: Experiment, job: Job, diary: Diary) -> Federation:
    """The client's own requirement: what its owner set, or a constant, or what it has alone; in
    the last case worked out once and noted."""
    if fed.requirement is not None or not (job.needs_requirement or chosen.requirement is not None):
        return fed
    if chosen.requirement is None:
        raise MusterError(
            "requirement: this federation's method needs one; start the node with "
            "requirement=NUMBER in --node-config"
        )
    if not isinstance(chosen.requirement, Local):
        return replace(fed, requirement=np.array([float(chosen.requirement)]))
    noted = diary.solo()
    if noted is None:
        compute = replace(chosen.settings.compute, processes=1)
        done = with_solo(
            fed, job.model, chosen.requirement, job.seed, task=job.task, compute=compute
        )
        loss, test_loss, test_score = (
            np.nan if values is None else float(values[0])
            for values in (done.requirement, done.requirement_test, done.solo_score)
        )
        noted = (loss, test_loss, test_score)
        diary.note_solo(*noted)
    rho, rho_test, score = (np.array([value]) for value in noted)
    tested = fed.test is not None
    return replace(
        fed,
        requirement=rho,
        requirement_test=rho_test if tested else None,
        solo_score=score if tested else None,
    )
