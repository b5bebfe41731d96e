"""Guard: refuse what is malformed or impossible, with a reason, never an exception.

One broken client must not turn the model to NaN. The guard stands between what clients send and
every rule of the server.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..base import params
from ..base.arrays import Bool
from ..protocol import Appraisal, Decision, Offer, Replies
from ..tasks.base import Scoring, Task, averages_rows, least_loss
from ..tasks.scores import SCORES, Score

MOST_WEIGHT = 1e15  # beyond this a float32 square overflows, and with it every server optimizer
MOST_LOSS = 100.0  # times the middle report of the round (or 1): beyond it, a lie or a bug

NO_LOSS = "loss unknown"  # the reason of clients whose rows say none


@dataclass(frozen=True)
class ReportLimits:
    """What can be true of any model at all, by the task.

    Attributes:
        least: what no loss is below
        score: what its score can be
        undefined: whether a client's rows may leave it without a score (the AUC of one class)
        silent: whether they may leave it without a loss (survival without an event)
    """

    least: float = 0.0
    score: Score = SCORES["accuracy"]
    undefined: bool = False
    silent: bool = False

    @classmethod
    def of(cls, task: Task) -> ReportLimits:
        """By this task."""
        scoring = Scoring(task)
        undefined = any(i == 0 for i, _ in scoring.set_scores)
        return cls(least_loss(task), scoring.first, undefined, not averages_rows(task))


USUAL = ReportLimits()


def check_possible(appraisal: Appraisal, can: ReportLimits = USUAL) -> Decision:
    """Which reports can be true of any model at all: a finite loss from 0, an accuracy of 0 to 1,
    or whatever the task's can be."""
    loss, score = appraisal.loss, appraisal.score
    loss_ok = np.isfinite(loss) & (loss >= can.least)
    score_ok = (score >= can.score.least) & (score <= can.score.most)
    if can.undefined:
        score_ok |= np.isnan(score)
    why = np.where(score_ok, "", f"impossible {can.score.name}")
    bad = np.where(np.isnan(loss) & can.silent, NO_LOSS, "impossible loss")
    return Decision(loss_ok & score_ok, np.where(~loss_ok, bad, why))


def find_outliers(appraisal: Appraisal) -> Bool:
    """Whose loss is far above the others'.

    What a loss may be is judged by the other reports, since a bad model is bad for everyone: with
    most clients honest, the middle report is honest. Of two in the middle it is the lower: then a
    lie is found with one honest client next to it.
    """
    loss = appraisal.loss
    sound = np.sort(loss[np.isfinite(loss) & (loss >= 0)])
    most = MOST_LOSS * max(1.0, float(sound[(len(sound) - 1) // 2])) if len(sound) else 0.0
    return loss > most


def find_priority_outliers(appraisal: Appraisal, priority: Bool, can: ReportLimits = USUAL) -> Bool:
    """The priority clients whose report counts although it is far above the others'."""
    return check_possible(appraisal, can).yes & find_outliers(appraisal) & priority


def check_plausible(appraisal: Appraisal, priority: Bool, can: ReportLimits = USUAL) -> Decision:
    """Which reports count: those that can be true, and are not far above the others'. A priority
    client's counts whenever it can be true (Algorithm 1): the model is for it, and it is it that
    must be told when the model is bad for it."""
    word = check_possible(appraisal, can)
    strange = find_outliers(appraisal) & ~priority
    reason = np.where(word.yes & strange, "impossible loss", word.reason)
    return Decision(word.yes & ~strange, reason)


def guard(
    offer: Offer,
    replies: Replies,
    appraised: bool,
    most_claim: float = float("nan"),
    by_loss: bool = False,
    can: ReportLimits = USUAL,
) -> Decision:
    """Which replies may be looked at: right names and shapes, finite models, possible losses and
    claims (from 0 to `most_claim`; NaN when nothing is claimed).

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
        word = check_plausible(replies.appraisal, replies.roster.priority & (not by_loss), can)
        for why in np.unique(word.reason[~word.yes]):
            refuse(~word.yes & (word.reason == why), str(why))
    if not np.isnan(most_claim):
        refuse(np.isnan(replies.claim) & can.silent, NO_LOSS)
        refuse(~((replies.claim >= 0) & (replies.claim <= most_claim)), "impossible claim")
    return Decision(ok, reason)
