"""One client of a real federation: its own data, decisions and state.

It runs the clients' half of the round, `LocalClients`, on a stack of one. Its data, its
requirement and its state between rounds never leave it; its role is what the server says it is,
because a client's claim about its role would not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ...base import params
from ...base.arrays import Int64
from ...base.errors import MusterError
from ...base.params import Params, State
from ...config.experiment import Experiment
from ...engines import Compute, choose
from ...federation import Federation
from ...local import Local
from ...privacy.contributions import CONTRIBUTION
from ...privacy.fixed_point import Vectors
from ...protocol import Appraisal, Evaluation, Offer, Replies, Roster, RunState
from ...results.model import assemble
from ...run.contributors import LocalContributors
from ...run.evaluation_cache import EvaluationCache
from ...run.job import Job
from ...run.local_clients import LocalClients
from ...run.row_account import RowAccount, releases_losses
from ...run.solo import with_solo
from ...study.way_records import answer_rows
from ...tasks.compatibility import match_task
from ..transport.wire import EXTRA_FIGURES, PREFIX, SPLITS, UNSTATED, ClientRole
from .client_state import ClientState
from .row_losses import RowLosses

# What it counts: its contributions, and the losses that it released.
GIVEN, LOSSES = "given", "losses"
ONLY = np.array([0])  # the index of the one client in its federation


class Node:
    """One client, ready for requests: built once for a run, and cached between messages."""

    def __init__(self, job: Job, fed: Federation, compute: Compute) -> None:
        self.job, self.method, self.dtype = job, job.method, compute.number
        self.module = job.check(fed)
        self.fed, task = match_task(fed, job.task)
        # One client's work uses one core.
        account = RowAccount.open(job, self.fed.train.sizes)
        self.noise = None if account is None else account.noise
        one = replace(compute, processes=1)
        engine = choose(one, self.module, self.fed, job.local, task, self.noise)
        self.stack = LocalClients(self.fed, job, engine)
        self.frozen = params.frozen_digest(self.module)

    @property
    def rows(self) -> int:
        """Its sample count, D_k; 1 where the server is to see sums alone."""
        return count_rows(self.fed, self.job)

    def base_report(self, t: int) -> dict[str, Any]:
        """Return the entries of every report."""
        return {"round": t, "client": int(self.fed.population.ids[0]), "rows": self.rows}

    def memory(self, state: ClientState) -> State:
        """Return its memory, as a stack of one."""
        before = params.get_params(self.module, self.dtype, self.stack.device)
        return state.get_memory(self.job.memory(before, self.stack.trainable))

    def build_cache(self, offer: Offer, state: ClientState) -> EvaluationCache:
        """Return the cache of its evaluation of the offer's model, with what its state has."""
        appraise = self.stack.appraise if self.noise is None else partial(self.release_loss, state)
        cache = EvaluationCache(appraise, self.stack.evaluate, 1)
        cache.use(RunState(offer.round, offer.model))
        stored = state.get_appraisal(offer.round)
        if stored is not None:
            loss, score = (np.array([value]) for value in stored)
            cache.store(ONLY, Appraisal(loss, score))
        return cache

    def release_loss(self, state: ClientState, t: int, model: Params, clients: Int64) -> Appraisal:
        """Return its released loss of a model, counted, on disk, before it is sent; unknown, once
        as many are released as its account has: one for each round, and the last model's."""
        released = state.get_count(LOSSES)
        if released > self.job.rounds:
            return Appraisal.unknown(len(clients))
        state.put_count(LOSSES, released + 1)
        return self.stack.appraise(t, model, clients)

    def measure_privately(self, offer: Offer, state: ClientState) -> dict[str, Any]:
        """Return the report where rows are protected: its released loss, if a rule of the method
        asks for it, and nothing else."""
        report = self.base_report(offer.round) | {"stays": 1.0}
        if releases_losses(self.method):
            cache = self.build_cache(offer, state)
            loss = float(cache.appraise(ONLY).loss[0])
            store_appraisal(cache, offer, state)
            report |= {} if np.isnan(loss) else {f"{PREFIX[self.job.split]}loss": loss}
        return report

    def view_model(self, offer: Offer, state: ClientState) -> Evaluation:
        """Return its evaluation of the offer's model, and of its own where the method has one."""
        memory, model = self.memory(state), self.method.product(offer.model)
        own_of = (lambda who: memory["own"]) if "own" in memory else None
        return self.stack.evaluate_model(model, own_of, ONLY)

    def measure(self, offer: Offer, role: ClientRole, state: ClientState) -> dict[str, Any]:
        """Evaluate the model; return the report, with 1.0 for `stays` if it stays. Where the server
        is to see sums alone, it gets none."""
        if self.job.hides_clients:
            raise MusterError("privacy: sums are secure, and losses are in none; nothing was sent")
        if self.noise is not None:
            return self.measure_privately(offer, state)
        view, model = self.view_model(offer, state), self.method.product(offer.model)
        if role.counted != UNSTATED:  # the whole view was requested, not what a round needs
            view = self.stack.add_tuning(view, offer.round, model, ONLY)
        numbers, decides = figures(view), PREFIX[self.job.split]
        if self.method.serves == "global":
            state.put_appraisal(
                offer.round, numbers[f"{decides}loss"], numbers[decides + view.score_name]
            )
        cache = self.build_cache(offer, state)
        numbers["stays"] = float(self.stack.decide_to_stay(ONLY, cache)[0])
        store_appraisal(cache, offer, state)
        if self.method.claim.needs_requirement and not self.method.reports:
            # From its loss and its claim together the server could work out its requirement.
            # (A training score may be the loss by another name, as perplexity is.)
            names = ("loss", *self.job.scoring.names)
            for name in names if not decides else ("loss",):
                del numbers[decides + name]
        return self.base_report(offer.round) | {n: v for n, v in numbers.items() if not np.isnan(v)}

    def store_losses(self, offer: Offer, state: ClientState, losses: RowLosses, label: str) -> None:
        """Store the losses of its held-out rows by the model that it gets in the end."""
        model = self.method.product(offer.model)
        if self.method.serves == "own":
            model = {name: t[0] for name, t in self.memory(state)["own"].items()}
        module = assemble(None, params.to_state_dict(self.module, model), self.module)
        test = self.fed.test
        assert test is not None, "advice divides all rows"
        answers = answer_rows(module, *test.client(0), self.fed.classes, self.job.task)
        train_loss = float(self.view_model(offer, state).train.loss[0])
        losses.save(label, self.job.seed, answers, self.fed, train_loss)

    def trial(self, offer: Offer, models: Sequence[Params], state: ClientState) -> dict[str, Any]:
        """Evaluate the offer's model and others that might follow it; return the report."""
        if self.job.privacy is not None:
            raise MusterError("privacy: no trial of models is in the account; nothing was sent")
        cache = self.build_cache(offer, state)
        words = self.stack.try_models(offer, models, ONLY, cache).values[:, 0]
        store_appraisal(cache, offer, state)
        return self.base_report(offer.round) | {"trial": [float(value) for value in words]}

    def build_roster(self, role: ClientRole) -> Roster:
        """Return itself as a roster of one, in its role."""
        return Roster(
            ONLY,
            np.array([role.priority]),
            np.array([role.importance]),
            np.array([role.share]),
            ids=np.array([role.client]),
        )

    def contribute(
        self, offer: Offer, role: ClientRole, state: ClientState
    ) -> tuple[dict[str, Any], Params | None]:
        """Contribute to a private sum, or abstain; return the report, and the contribution. It is
        counted, on disk, before it is sent: the server cannot ask for more than the terms say."""
        given, cache = state.get_count(GIVEN), self.build_cache(offer, state)
        answers = LocalContributors(self.stack).contribute(
            offer, self.build_roster(role), np.array([given]), cache, self.memory(state)
        )
        store_appraisal(cache, offer, state)
        joined = bool(answers.decision.yes[0])
        report = self.base_report(offer.round) | {"joined": joined, "reason": ""}
        if not joined:
            return report, None
        state.put_count(GIVEN, given + 1)
        state.put_memory(offer.round + 1, answers.state)
        assert answers.sums is not None, "a sum that is not secure always comes about"
        return report, {CONTRIBUTION: torch.from_numpy(answers.sums[0])}

    def contribute_securely(self, offer: Offer, role: ClientRole, state: ClientState) -> Vectors:
        """Return its contribution to a secure sum; 0 where it abstains, which nobody can see."""
        _, found = self.contribute(offer, role, state)
        if found is not None:
            return np.asarray(found[CONTRIBUTION].numpy())
        if self.job.has_client_state:  # the server counts every answer
            state.put_memory(offer.round + 1, self.memory(state))
        return np.zeros(self.job.count_numbers(offer.model), np.uint32)

    def train(
        self, offer: Offer, role: ClientRole, state: ClientState
    ) -> tuple[dict[str, Any], Replies | None]:
        """Reply to the offer: its report, and its replies if it joined."""
        roster = self.build_roster(role)
        steps = None if role.steps < 0 else np.array([role.steps])
        given = 0
        if self.noise is not None:
            given, steps = state.get_count(GIVEN), None  # steps as its account has them
            if given >= self.job.rounds:
                spent = {"joined": False, "reason": "budget spent"}
                return self.base_report(offer.round) | spent, None
        cache = self.build_cache(offer, state)
        answers = self.stack.respond(offer, roster, steps, cache, self.memory(state))
        store_appraisal(cache, offer, state)
        joined = bool(answers.decision.yes[0])
        report = self.base_report(offer.round) | {
            "joined": joined,
            "reason": str(answers.decision.reason[0]),
        }
        if not joined:
            return report, None
        if self.noise is not None:
            state.put_count(GIVEN, given + 1)
        state.put_memory(offer.round + 1, answers.state)
        report["steps"] = int(answers.steps[0])
        if self.method.reports:
            report["loss"] = float(answers.replies.appraisal.loss[0])
            score = float(answers.replies.appraisal.score[0])
            if not np.isnan(score):  # its rows may leave it without one
                report[offer.score_name] = score
        if self.method.claims:
            report["claim"] = float(answers.replies.claim[0])
        return report, answers.replies


def count_rows(own: Federation, job: Job) -> int:
    """Return the number of rows that a client states."""
    return 1 if job.hides_clients else int(own.train.sizes[0])


def store_appraisal(cache: EvaluationCache, offer: Offer, state: ClientState) -> None:
    """Store its loss and score at the model for the next message about it."""
    if cache.done[0]:
        known = cache.known
        state.put_appraisal(offer.round, float(known.loss[0]), float(known.score[0]))


def figures(view: Evaluation) -> dict[str, float]:
    """Return the view of one client as the numbers of its report."""
    numbers: dict[str, float] = {}
    for prefix, appraisal in zip(
        SPLITS, (view.train, view.test, view.own, view.own_test), strict=True
    ):
        a = appraisal or Appraisal.unknown(1)
        measured = {"loss": a.loss, view.score_name: a.score, **a.more}
        numbers |= {prefix + name: float(values[0]) for name, values in measured.items()}
    tuned = {f"tuned_{view.score_name}": view.tuned}
    for name, value in (tuned | {n: getattr(view, n, None) for n in EXTRA_FIGURES}).items():
        numbers[name] = np.nan if value is None else float(value[0])
    return numbers


def assign_role(own: Federation, role: ClientRole) -> Federation:
    """Return a client's own data in the role the server gives it, with the number by which its
    randomness is keyed: the same as in a simulation of all clients."""
    return replace(
        own,
        ids=np.array([role.client]),
        priority=np.array([role.priority]),
        importance=np.array([role.importance]),
        unseen=np.zeros(1, np.bool_),
    )


def set_requirement(
    fed: Federation, chosen: Experiment, job: Job, state: ClientState
) -> Federation:
    """Return the data with the client's own requirement: set by its owner, a constant, or the loss
    of training alone, which is computed once and stored."""
    if fed.requirement is not None or not (job.needs_requirement or chosen.requirement is not None):
        return fed
    if chosen.requirement is None:
        raise MusterError(
            "requirement: this federation's method needs one; start the node with "
            "requirement=NUMBER in --node-config"
        )
    if not isinstance(chosen.requirement, Local):
        return replace(fed, requirement=np.array([float(chosen.requirement)]))
    stored = state.get_solo()
    if stored is None:
        compute = replace(chosen.settings.compute, processes=1)
        done = with_solo(
            fed,
            job.model,
            chosen.alone_rounds,
            chosen.requirement,
            job.seed,
            task=job.task,
            compute=compute,
        )
        loss, test_loss, test_score = (
            np.nan if values is None else float(values[0])
            for values in (done.requirement, done.requirement_test, done.solo_score)
        )
        stored = (loss, test_loss, test_score)
        state.put_solo(*stored)
    rho, rho_test, score = (np.array([value]) for value in stored)
    tested = fed.test is not None
    return replace(
        fed,
        requirement=rho,
        requirement_test=rho_test if tested else None,
        solo_score=score if tested else None,
    )
