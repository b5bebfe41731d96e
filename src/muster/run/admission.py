"""Admission of replies: how far each reply of a round counts, and its weight in the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..base.arrays import Bool, Float64, Text
from ..base.params import State
from ..parts.guard import guard
from ..protocol import Answers, Offer, Replies
from .job import Job

FIELDS = ("extent", "weight", "reason")


@dataclass(frozen=True)
class Admission:
    """The server's admission of replies, one entry per reply.

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
        """True for replies that were not refused."""
        return self.extent > 0

    def normalize(self) -> Admission:
        """Return the same with weights that sum to 1, unless all are 0."""
        total = float(self.weight.sum())
        return replace(self, weight=self.weight / total) if total > 0 else self

    @classmethod
    def concatenate(cls, parts: Sequence[Admission]) -> Admission:
        """Concatenate the admissions of portions of replies."""
        return cls(*(np.concatenate([getattr(p, f) for p in parts]) for f in FIELDS))


def admit_replies(job: Job, offer: Offer, replies: Replies, server: State) -> Admission:
    """Guard, admit and weigh replies. Weights are as the rule gives them, not normalized."""
    method = job.method
    sound = guard(offer, replies, method.reports, method.claim.most, method.losses, job.possible)
    extent = np.where(sound.yes, method.admit(offer, replies.roster, replies.appraisal), 0.0)
    if offer.round < job.warmup:
        # Warm-up is for the objective: a client in it by a_k counts by a_k, aligned or not.
        extent = np.minimum(extent, replies.roster.importance)
    admitted = extent > 0
    weight = np.zeros(len(extent))
    weight[admitted] = method.weigh(replies.pick(admitted), extent[admitted], server)
    reason = np.where(sound.yes, method.admit.reason, sound.reason)
    return Admission(extent, weight, reason)


def admit_honest_replies(
    job: Job, offer: Offer, answers: Answers, server: State
) -> Admission | None:
    """Return the admission of the replies that clients would have sent without an attack; None
    without an attacker."""
    truth, replies = answers.truth, answers.replies
    if truth is None:
        return None
    truthful = replace(replies, appraisal=truth.appraisal, claim=truth.claim)
    honest = admit_replies(job, offer, truthful, server)
    return replace(honest, weight=np.where(truth.joins, honest.weight, 0.0))
