"""One client of a real federation: its own data, its own decisions, its own memory.

It runs the clients' half of the round, `clients.Stack`, on a stack of one. Its data, its
requirement and what it remembers between rounds never leave it; its role is what the server says
it is, because nothing a client says of its own role would count.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .. import params
from ..arrays import Int64
from ..config.experiments import Experiment
from ..engines import choose
from ..errors import MusterError
from ..federation import Federation
from ..federation.ragged import Ragged
from ..local import Local
from ..models import as_module
from ..params import DTYPES
from ..protocol import Appraisal, Offer, Replies, Roster, View
from ..run.clients import Stack
from ..run.solo import with_solo
from .diary import Diary
from .wire import FIGURES, Place


class Alone:
    """The appraisal of the one client there is, taken at most once a round."""

    def __init__(self, node: Node, offer: Offer, diary: Diary) -> None:
        self.node, self.offer, self.diary = node, offer, diary

    @property
    def known(self) -> Appraisal:
        """Nobody's but what is noted."""
        return self._all(self.diary.appraisal(self.offer.round) or (np.nan, np.nan))

    def of(self, clients: Int64) -> Appraisal:
        """Its own."""
        noted = self.diary.appraisal(self.offer.round)
        if noted is None:
            taken = self.node.stack.appraise(self.offer.round, self.offer.model, clients)
            noted = float(taken.loss[0]), float(taken.accuracy[0])
            self.diary.note_appraisal(self.offer.round, *noted)
        return self._all(noted).pick(clients)

    def _all(self, noted: tuple[float, float]) -> Appraisal:
        n = self.node.fed.n
        return Appraisal(np.full(n, noted[0]), np.full(n, noted[1]))


class Node:
    """A client at its place k, ready to answer."""

    def __init__(
        self, chosen: Experiment, fed: Federation, place: Place, diary: Diary, seed: int
    ) -> None:
        s = chosen.settings
        self.chosen, self.place, self.k = chosen, place, np.array([place.client])
        self.method = chosen.method(*chosen.methods)
        self.dtype = DTYPES[s.dtype]
        self.module = as_module(chosen.spec(), fed, seed)
        needed = self.method.claim.needs_requirement or s.participation is not None
        if needed or chosen.requirement is not None:
            fed = required(fed, chosen, self.k, seed, diary)
        self.fed = fed
        engine = choose(s.engine, self.module, fed, chosen.local, self.dtype, s.device, 1)
        self.stack = Stack(fed, self.method, engine, chosen.local, s.participation)
        self.trainable = params.trainable(self.module)

    @property
    def rows(self) -> int:
        """Its sample count, D_k."""
        return int(self.fed.train.sizes[self.place.client])

    def word(self, t: int) -> dict[str, Any]:
        """What every reply says."""
        return {"round": t, "client": self.place.client, "rows": self.rows}

    def measure(self, offer: Offer, diary: Diary) -> dict[str, Any]:
        """What it makes of the model, and whether it stays."""
        before = params.of_module(self.module, self.dtype, self.stack.device)
        view = self.stack.views(offer.model, diary.memory(self.method, before), self.k)
        said = figures(view)
        if self.method.serves == "global":
            diary.note_appraisal(offer.round, said["loss"], said["accuracy"])
        said["stays"] = float(self.stack.stays(self.k, Alone(self, offer, diary))[0])
        if self.method.claim.needs_requirement and not self.method.reports:
            # From its loss and its claim together the server could work out its requirement.
            del said["loss"], said["accuracy"]
        return self.word(offer.round) | {n: v for n, v in said.items() if not np.isnan(v)}

    def train(self, offer: Offer, diary: Diary) -> tuple[dict[str, Any], Replies | None]:
        """Its answer to the offer: its word, and its replies if it joined."""
        roster = Roster(
            self.k, np.array([self.place.priority]), np.array([self.place.importance]), np.ones(1)
        )
        before = params.of_module(self.module, self.dtype, self.stack.device)
        memory = diary.memory(self.method, before)
        steps = None if self.place.steps < 0 else np.array([self.place.steps])
        answers = self.stack.respond(offer, roster, steps, Alone(self, offer, diary), memory)
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
    for name in ("useful", "meets", "meets_test", "preferred"):
        value = getattr(view, name)
        if value is not None:
            said[name] = float(value[0])
    return said


def at_place(own: Federation, place: Place) -> Federation:
    """A client's own data at its place k: those before it are there and hold nothing, so that its
    number, and with it its randomness, is the same as in a simulation of everyone."""
    k = place.client

    def moved(data: Ragged) -> Ragged:
        return replace(data, offsets=np.concatenate([np.zeros(k, np.int64), data.offsets]))

    role = np.arange(k + 1) == k
    return replace(
        own,
        train=moved(own.train),
        test=None if own.test is None else moved(own.test),
        priority=role & place.priority,
        importance=np.where(role, place.importance, 0.0),
        requirement=None
        if own.requirement is None
        else np.concatenate([np.full(k, np.nan), own.requirement]),
        unseen=np.zeros(k + 1, np.bool_),
        names=None,
    )


def required(fed: Federation, chosen: Experiment, k: Int64, seed: int, diary: Diary) -> Federation:
    """The client's own requirement: what its owner set, or a constant, or what it has alone; in
    the last case worked out once and noted."""
    if fed.requirement is not None:
        return fed

    def alone(value: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.where(np.arange(fed.n) == k[0], value, np.nan)

    if chosen.requirement is None:
        raise MusterError(
            "requirement: this federation's method needs one; start the node with "
            "requirement=NUMBER in --node-config"
        )
    if not isinstance(chosen.requirement, Local):
        return replace(fed, requirement=alone(float(chosen.requirement)))
    noted = diary.solo()
    if noted is None:
        s = chosen.settings
        done = with_solo(
            fed, chosen.spec(), chosen.requirement, seed,
            dtype=s.dtype, engine=s.engine, device=s.device, processes=1, clients=k,
        )  # fmt: skip
        rho, rho_test, accuracy = (
            np.nan if values is None else float(values[k[0]])
            for values in (done.requirement, done.requirement_test, done.solo_accuracy)
        )
        noted = (rho, rho_test, accuracy)
        diary.note_solo(*noted)
    rho, rho_test, accuracy = noted
    tested = fed.test is not None
    return replace(
        fed,
        requirement=alone(rho),
        requirement_test=alone(rho_test) if tested else None,
        solo_accuracy=alone(accuracy) if tested else None,
    )
