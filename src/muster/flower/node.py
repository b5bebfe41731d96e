"""One client of a real federation: its own data, its own decisions, its own memory.

It runs the clients' half of the round, `clients.Stack`, on a stack of one. Its data, its
requirement and what it remembers between rounds never leave it; its role is what the server says
it is, because nothing a client says of its own role would count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import params
from ..config.experiments import Experiment, Settings
from ..engines import Compute, choose
from ..errors import MusterError
from ..federation import Federation
from ..local import Local
from ..models import as_module
from ..params import Memory, Params, dtype_of
from ..protocol import Appraisal, Offer, Replies, Roster, State, View
from ..run.clients import Stack, Terms, needs_requirement
from ..run.memo import Memo
from ..run.solo import with_solo
from .diary import Diary
from .wire import FIGURES, PREFIX, UNSAID, Seat

HERE = np.array([0])  # where the one client there is stands in its federation of one


class Node:
    """One client, ready to answer."""

    def __init__(
        self, chosen: Experiment, fed: Federation, seat: Seat, diary: Diary, seed: int
    ) -> None:
        s = chosen.settings
        self.seat, self.dtype = seat, dtype_of(s.dtype)
        self.method = chosen.method(*chosen.methods)
        self.module = as_module(chosen.spec(), fed, seed, s.task)
        needed = needs_requirement(self.method, s.participation)
        if needed or chosen.requirement is not None:
            fed = required(fed, chosen, seed, diary)
        self.fed = fed
        self.trainable = params.trainable(self.module)
        local = chosen.local_of(*chosen.methods)
        engine = choose(one_core(s), self.module, fed, local, s.task)
        terms = Terms(
            self.method, local, s.rounds, seed, self.trainable, s.participation,
            s.decide_on, s.tuned_steps,
        )  # fmt: skip
        self.stack = Stack(fed, terms, engine)

    @property
    def rows(self) -> int:
        """Its sample count, D_k."""
        return int(self.fed.train.sizes[0])

    def word(self, t: int) -> dict[str, Any]:
        """What every reply says."""
        return {"round": t, "client": self.seat.client, "rows": self.rows}

    def memory(self, diary: Diary) -> Memory:
        """What it remembers, as a stack of one."""
        before = params.of_module(self.module, self.dtype, self.stack.device)
        return diary.memory(self.stack.terms.memory(before))

    def memo(self, offer: Offer, diary: Diary) -> Memo:
        """What it makes of the offer's model, as far as its diary knows."""
        memo = Memo(self.stack.appraise, self.stack.view, 1)
        memo.turn(State(offer.round, offer.model))
        noted = diary.appraisal(offer.round)
        if noted is not None:
            memo.put(HERE, Appraisal(*(np.array([value]) for value in noted)))
        return memo

    def measure(self, offer: Offer, diary: Diary) -> dict[str, Any]:
        """What it makes of the model, and whether it stays."""
        memory = self.memory(diary)
        own_of = (lambda who: memory["own"]) if "own" in memory else None
        view = self.stack.views(offer.model, own_of, HERE)
        if self.seat.counted != UNSAID:  # the whole view is asked for, not what a round needs
            view = self.stack.with_tuned(view, offer.round, offer.model, HERE)
        said, decides = figures(view), PREFIX[self.stack.terms.split]
        if self.method.serves == "global":
            diary.note_appraisal(offer.round, said[f"{decides}loss"], said[f"{decides}accuracy"])
        memo = self.memo(offer, diary)
        said["stays"] = float(self.stack.stays(HERE, memo)[0])
        note(memo, offer, diary)
        if self.method.claim.needs_requirement and not self.method.reports:
            # From its loss and its claim together the server could work out its requirement.
            del said[f"{decides}loss"]
            if not decides:
                del said["accuracy"]
        return self.word(offer.round) | {n: v for n, v in said.items() if not np.isnan(v)}

    def trial(self, offer: Offer, models: Sequence[Params], diary: Diary) -> dict[str, Any]:
        """What it makes of the offer's model and of others that might follow it."""
        memo = self.memo(offer, diary)
        words = self.stack.trial(offer, models, HERE, memo).words[:, 0]
        note(memo, offer, diary)
        return self.word(offer.round) | {"trial": [float(value) for value in words]}

    def train(self, offer: Offer, diary: Diary) -> tuple[dict[str, Any], Replies | None]:
        """Its answer to the offer: its word, and its replies if it joined."""
        seat = self.seat
        roster = Roster(
            HERE, np.array([seat.priority]), np.array([seat.importance]), np.ones(1),
            ids=np.array([seat.client]),
        )  # fmt: skip
        steps = None if seat.steps < 0 else np.array([seat.steps])
        memo = self.memo(offer, diary)
        answers = self.stack.respond(offer, roster, steps, memo, self.memory(diary))
        note(memo, offer, diary)
        joined = bool(answers.decision.yes[0])
        word = self.word(offer.round) | {
            "joined": joined,
            "reason": str(answers.decision.reason[0]),
        }
        if not joined:
            return word, None
        diary.write(offer.round + 1, answers.memory)
        word["steps"] = int(answers.steps[0])
        if self.method.reports:
            word["loss"] = float(answers.replies.appraisal.loss[0])
            word["accuracy"] = float(answers.replies.appraisal.accuracy[0])
        if self.method.claim.needs_requirement:
            word["claim"] = float(answers.replies.claim[0])
        return word, answers.replies


def one_core(settings: Settings) -> Compute:
    """As the experiment says, on one core: a client has one client's work."""
    return replace(settings.compute, processes=1)


def note(memo: Memo, offer: Offer, diary: Diary) -> None:
    """Keep what it measured of the model for the next message about it."""
    if memo.done[0]:
        known = memo.known
        diary.note_appraisal(offer.round, float(known.loss[0]), float(known.accuracy[0]))


def figures(view: View) -> dict[str, float]:
    """A view of one client as the numbers of its word."""
    pairs = {
        "": view.train, "test_": view.test, "own_": view.own, "own_test_": view.own_test
    }  # fmt: skip
    said = dict.fromkeys(FIGURES, np.nan)
    for prefix, appraisal in pairs.items():
        if appraisal is not None:
            said[f"{prefix}loss"] = float(appraisal.loss[0])
            said[f"{prefix}accuracy"] = float(appraisal.accuracy[0])
    for name in ("useful", "meets", "meets_test", "preferred", "meets_tuned", "tuned_accuracy"):
        value = getattr(view, name)
        if value is not None:
            said[name] = float(value[0])
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


def required(fed: Federation, chosen: Experiment, seed: int, diary: Diary) -> Federation:
    """The client's own requirement: what its owner set, or a constant, or what it has alone; in
    the last case worked out once and noted."""
    if fed.requirement is not None:
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
        s = chosen.settings
        done = with_solo(
            fed, chosen.spec(), chosen.requirement, seed, task=s.task, compute=one_core(s)
        )
        loss, test_loss, test_accuracy = (
            np.nan if values is None else float(values[0])
            for values in (done.requirement, done.requirement_test, done.solo_accuracy)
        )
        noted = (loss, test_loss, test_accuracy)
        diary.note_solo(*noted)
    rho, rho_test, accuracy = (np.array([value]) for value in noted)
    tested = fed.test is not None
    return replace(
        fed,
        requirement=rho,
        requirement_test=rho_test if tested else None,
        solo_accuracy=accuracy if tested else None,
    )
