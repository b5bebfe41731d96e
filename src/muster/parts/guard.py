"""Guard: refuses malformed or impossible replies, with a reason, never an exception.

One broken client must not turn the model to NaN. The guard stands between what clients send and
every rule of the server.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base import params
from ..base.arrays import Bool
from ..protocol import Appraisal, Decision, Offer, Replies
from ..tasks.scores import SCORES, Score
from ..tasks.task import Scoring, Task, averages_rows, least_loss

MOST_WEIGHT = 1e15  # beyond this a float32 square overflows, and with it every server optimizer
MOST_LOSS = 100.0  # times the middle report of the round (or 1): beyond it, a lie or a bug

NO_LOSS = "loss unknown"  # the reason for clients whose rows have no loss


@dataclass(frozen=True)
class ReportLimits:
    """The losses and scores that are possible for any model, by the task.

    Attributes:
        least: the smallest possible loss
        score: the task's score, with its range
        undefined: True if a client's rows may have no score (the AUC of one class)
        silent: True if they may have no loss (survival without an event)
    """

    least: float = 0.0
    score: Score = SCORES["accuracy"]
    undefined: bool = False
    silent: bool = False

    @classmethod
    def of(cls, task: Task) -> ReportLimits:
        """Return the limits of this task."""
        scoring = Scoring(task)
        undefined = any(i == 0 for i, _ in scoring.set_scores)
        return cls(least_loss(task), scoring.first, undefined, not averages_rows(task))


USUAL = ReportLimits()


def check_possible(appraisal: Appraisal, can: ReportLimits = USUAL) -> Decision:
    """Return which reports are possible for any model: a finite loss from 0, an accuracy of 0 to 1,
    or the task's own limits."""
    loss, score = appraisal.loss, appraisal.score
    loss_ok = np.isfinite(loss) & (loss >= can.least)
    score_ok = (score >= can.score.least) & (score <= can.score.most)
    if can.undefined:
        score_ok |= np.isnan(score)
    why = np.where(score_ok, "", f"impossible {can.score.name}")
    bad = np.where(np.isnan(loss) & can.silent, NO_LOSS, "impossible loss")
    return Decision(loss_ok & score_ok, np.where(~loss_ok, bad, why))


def find_outliers(appraisal: Appraisal) -> Bool:
    """Return True for each client whose loss is far above the others'.

    A loss is compared with the other reports, since a bad model is bad for everyone: with most
    clients honest, the median report is honest. Of two in the middle the lower is taken: then a lie
    is found with one honest client next to it.
    """
    loss = appraisal.loss
    sound = np.sort(loss[np.isfinite(loss) & (loss >= 0)])
    most = MOST_LOSS * max(1.0, float(sound[(len(sound) - 1) // 2])) if len(sound) else 0.0
    return loss > most


def find_priority_outliers(appraisal: Appraisal, priority: Bool, can: ReportLimits = USUAL) -> Bool:
    """Return True for priority clients whose report counts although it is far above the others'."""
    return check_possible(appraisal, can).yes & find_outliers(appraisal) & priority


def check_plausible(appraisal: Appraisal, priority: Bool, can: ReportLimits = USUAL) -> Decision:
    """Return which reports count: those that are possible, and not far above the others'. A
    priority client's counts whenever it is possible (Algorithm 1): the model is for it, so a high
    loss of it must reach the server."""
    possible = check_possible(appraisal, can)
    strange = find_outliers(appraisal) & ~priority
    reason = np.where(possible.yes & strange, "impossible loss", possible.reason)
    return Decision(possible.yes & ~strange, reason)


def guard(
    offer: Offer,
    replies: Replies,
    appraised: bool,
    most_claim: float = float("nan"),
    by_loss: bool = False,
    can: ReportLimits = USUAL,
) -> Decision:
    """Return which replies are well-formed: right names and shapes, finite models, possible losses
    and claims (from 0 to `most_claim`; NaN when nothing is claimed).

    `by_loss`: replies are weighed by the loss they report (q-FFL, AFL). Then a priority client's
    is judged like everyone's: a loss is what buys influence there.
    """
    n = len(replies.roster)
    ok = np.ones(n, np.bool_)
    reason = np.full(n, "", dtype="U32")

    def refuse(bad: Bool, why: str) -> None:
        reason[bad & ok] = why
        ok[bad] = False

    expected = {name: tuple(t.shape) for name, t in offer.model.items()}
    got = {name: tuple(t.shape[1:]) for name, t in replies.models.items()}
    if n and expected != got:
        refuse(np.ones(n, np.bool_), "malformed: names or shapes")
        return Decision(ok, reason)
    if n:
        for part in (replies.models, *replies.extra.values()):
            refuse(~params.within_bound(part, MOST_WEIGHT), "malformed: not finite")
        for name, t in replies.models.items():
            if name.endswith("running_var"):
                negative = params.as_rows(t < 0).any(1).cpu().numpy()
                refuse(negative, "malformed: negative variance")
    if appraised:
        report = check_plausible(replies.appraisal, replies.roster.priority & (not by_loss), can)
        for why in np.unique(report.reason[~report.yes]):
            refuse(~report.yes & (report.reason == why), str(why))
    if not np.isnan(most_claim):
        refuse(np.isnan(replies.claim) & can.silent, NO_LOSS)
        refuse(~((replies.claim >= 0) & (replies.claim <= most_claim)), "impossible claim")
    return Decision(ok, reason)
