"""Trust: bounds on what clients outside the objective may do to the model, and checks of it by the
priority clients, who hold the data that the model is for.

Seven checks, each on the server, over the stack of replies. P are the priority clients that
replied, `D_k = w_k - w` is an update, m the median of |D_j| over P, or `growth` times that of the
round before where that is less (so that even most of P, broken in one round, move nothing far):

bound      `|D_k| <= norm m`: a longer update is shortened to that; and a weight above that of the
           priority client that counts most is cut to it. So no client outside P moves the model by
           more than `norm m` times its share of the step, whatever it sends. Replies that are
           copies of one another (a cosine above `copy`) share the weight of one. Whoever sends an
           update longer than `absurd m`, priority clients included, is refused.
likeness   `l_k = sum_j cos(D_k, D_j)^3 >= 0` over j in P: an update must be more like those of
           some priority clients than like the opposite of some. The cube lets those of its kind
           speak: clients with other data are nearly at right angles to it. A turned sign turns the
           sum; who has data like nobody's in P passes about as often as not.
pull       the step moves by at most one standard error of the priority clients' own mean from it:
           with m_P the mean update of P, m_G that with a group G of the others, s_G the share of
           G in the step and `v = sum_P b_k^2 / (1 - sum_P b_k^2) sum_P b_k |D_k - m_P|^2` the
           squared standard error of m_P (b_k a client's weight in it), the step is
           `m_P + min(1, s_G v / |m_G - m_P|^2) (m_G - m_P)`: a group that is far away counts less,
           the further. So nothing that is sent to one end for many rounds adds up to much.
turned     a priority client is refused for a round if all replies, helpers' included, say that it
           is turned round: with `near_k` its mean cosine to the tenth of them nearest to it and
           `far_k` to the tenth furthest, and u the median of `near` over all replies,
           `near_k < near u` and `-far_k >= far u`: nobody is like it, and some are as much
           against it as clients usually are like their nearest. Witnesses do not decide what the
           priority clients want: where they speak against half of P or more, nobody is refused.
           Witnesses must be of all kinds, also of those that the model does not suit: where
           helpers decide by their loss whether they train, all of them are asked to in warm-up,
           and only these rounds' replies speak. After it, and with fewer than 20 replies, the
           rounds that spoke decide, by majority.
worth      the priority clients appraise the model that P alone would give, w_P, and those with
           all that are left of the others, with three quarters, half and a quarter of them, the
           likest first: one extra exchange. Counted is the largest group G with
           `F(w_G) - F(w_P) <= worth s_G (F(w) - F(w_P))`, s_G being its share of the step. With
           worth = 1 that is: no worse for the priority clients than clients that send w back.
burden     what the groups that counted have cost a priority client, `F_k(w_G) - F_k(w_P)` summed
           over the rounds, the last ones counting most, stays within `burden` times the median
           size of such a sum: a group that would make one of them pay for the others is refused.
voice      in F, no priority client's change of loss counts for more than `voice` times the median
           change, so that none of them decides alone what counts.

Peers: a federation without anybody outside the objective (MaxFL's usual one) has no such root of
trust: there clients check one another. What follows holds while most clients of every kind of
data are honest. D_k is an update, S are those that count.

kin      `l_k = sum_j cos(D_k, D_j)^3 >= 0` over the others, copies aside. Of those below 0 the one
         that has been the least like over the rounds is left out first and no longer speaks for or
         against the others, and so on until none is below 0: liars lose their say before they turn
         it against the honest clients of their kind. What is remembered decides only between
         clients that are below 0 today: one that never is while others go is kin.
effect   those who are kin appraise the model that S gives, and for each of a few replies, drawn
         in every round, the model without it (for one that is not in S: with it). A reply's effect
         is how much lower the mean of what they say is with it than without, in units of the median
         size of such an effect. Who is kin and not in S still has a voice: else a kind of client
         that is left out once could not speak for itself any more.
crowd    replies that are very like one another (a cosine above `crowd`), three or more, are tried
         together as well, the three largest crowds in S and outside it: of many who push the same
         way none has a large effect. What the crowd does counts as the effect of each of them.
history  what is remembered of a client is the mean of its effects, the last ones counting most. It
         is in S while that mean is not below `-harm` times the median size of the others'. Who is
         not is tried out all the same, and comes back when it does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...base import rng
from ...base.arrays import Bool, Float64, Int64, Text
from ...base.checks import check_above, check_at_least, check_whole, require
from ...base.lazy import torch
from ...base.registry import part
from ...protocol import Offer, Replies
from .geometry import bound_updates, directions, gradient_names, statistic_names, updates

MOST_EFFECT = 10.0  # an effect counts for no more than this many median ones
WITNESSES = 20  # replies, of which a tenth is two: with fewer nobody is newly called turned
CROWD, CROWDS = 3, 3  # replies that make a crowd, and crowds that are tried out
MOST_TRIED = 60  # replies tried out in a round: as many models travel
ABSURD = "update absurdly long"
TURNED = "against clients of its kind"
UNLIKE = "unlike any priority client"
HARM = "priority clients worse off with it"
NO_ROOT = "no priority client to check it"


@dataclass(frozen=True)
class Inquiry:
    """The server's findings about replies before any client appraises them.

    Attributes:
        replies: with updates no longer than the bound
        norm: m of the round
        barred: whose update is absurdly long
        root: who is trusted: the priority clients or, where everyone is one, those like the others
        copies: how many replies share the weight of each
        groups: `[group, reply]`: who counts next to the root in each group, the largest group first
        reason: why each reply that is in none is left out
        like: how like the root each is; where clients check one another, how like the others
    """

    replies: Replies
    norm: float
    barred: Bool
    root: Bool
    copies: Int64
    groups: Bool
    reason: Text
    like: Float64


@dataclass(frozen=True)
class Audit:
    """The bound and the checks of this module.

    Attributes:
        norm: how long an update of a client outside the objective may be, in median updates of the
            priority clients
        root_norm: the same for a priority client
        near: how like its nearest a priority client must be, in what clients usually are
        far: how much against its furthest it may be, in the same unit
        worth: how much the group that counts may cost the priority clients, in what clients that
            send nothing new would cost
        groups: the groups that are tried, as shares of those that are left
        burden: most that groups may cost one priority client over the rounds, in what they cost or
            gain the median one
        voice: most that one appraisal changes F by, in median changes
        loudest: the same where clients check one another: most that one of them says, in what the
            median one says
        copy: cosine of two updates above which one is a copy of the other
        crowd: the same above which clients who check one another try updates out together
        absurd: how long an update is nobody's, in median updates
        growth: how much longer than in the round before the median update may be
        tried: where clients check one another: how many replies are tried out in a round
        harm: how harmful a client's updates may be over the rounds, in median effects
        recall: how much of what is remembered of a client still counts after a round
    """

    norm: float = 1.5
    root_norm: float = 2.0
    near: float = 0.6
    far: float = 0.75
    worth: float = 1.0
    groups: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25)
    burden: float = 2.0
    voice: float = 5.0
    loudest: float = 2.0
    copy: float = 0.999
    crowd: float = 0.9
    absurd: float = 100.0
    growth: float = 3.0
    tried: int = 10
    harm: float = 2.5
    recall: float = 0.9

    def __post_init__(self) -> None:
        positive = ("norm", "root_norm", "near", "far", "burden", "voice", "loudest")
        for name in (*positive, "copy", "crowd", "harm"):
            check_above(name, getattr(self, name))
        check_at_least("worth", self.worth)
        check_whole("tried", self.tried, 1, MOST_TRIED)
        require(0 <= self.recall < 1, "recall", self.recall, "0.0 or more, below 1.0")
        ok = all(0 < g <= 1 for g in self.groups) and sorted(self.groups, reverse=True) == list(
            self.groups
        )
        require(ok and len(self.groups) > 0, "groups", self.groups, "shares from 1.0 down")

    def inquire(
        self, offer: Offer, replies: Replies, everyone: bool, before: float, was: Float64
    ) -> Inquiry:
        """Bound the replies, and find the groups to try.

        Args:
            everyone: there is nobody outside the objective
            before: m of the round before; infinite in the first
            was: how like the others each was in the rounds before
        """
        n = len(replies.roster)
        root = np.ones(n, np.bool_) if everyone else replies.roster.priority
        length = updates(offer, replies.models, gradient_names(offer)).norm(dim=1).cpu().numpy()
        middle = float(np.median(length[root])) if root.any() else 0.0
        middle = min(middle, self.growth * before)
        barred = (length > self.absurd * middle) & (middle > 0)
        root = root & ~barred
        if not root.any():
            nobody = np.zeros((1, n), np.bool_)
            why = np.where(barred, ABSURD, NO_ROOT)
            alone, unknown = np.ones(n, np.int64), np.zeros(n)
            return Inquiry(replies, before, barred, root, alone, nobody, why, unknown)
        replies = self.bound(offer, replies, root, everyone, middle)
        rows = updates(offer, replies.models, gradient_names(offer))
        unit = directions(rows)
        cosine = (unit @ unit.T).cpu().numpy()
        suspects = ~replies.roster.priority | everyone
        same = (cosine > self.copy) & suspects & suspects[:, None]
        copies = np.maximum(1, same.sum(1))
        if everyone:
            kin, like = find_kin(np.where(barred, 0.0, cosine), self.copy, was)
            root = kin & ~barred
        else:
            like = likeness(cosine[:, root])
        left = ~root & ~barred & (like >= 0) & (not everyone)
        reason = np.where(barred, ABSURD, np.where(left | root, HARM, UNLIKE))
        order = np.flatnonzero(left)
        order = order[np.argsort(-like[order], kind="stable")]
        counts = sorted({round(share * len(order)) for share in self.groups}, reverse=True)
        groups = np.zeros((len(counts), n), np.bool_)
        for group, many in zip(groups, counts, strict=True):
            group[order[:many]] = True
        return Inquiry(replies, middle or before, barred, root, copies, groups, reason, like)

    def find_turned(
        self, offer: Offer, replies: Replies, score: Float64, all_reply: bool = True
    ) -> tuple[Bool, Float64]:
        """Return which priority clients' updates are reversed, and their new scores: in how many
        rounds more they were than not. With too few witnesses scores stay, and speak for this
        round.

        Args:
            score: of each reply's client in the rounds before
            all_reply: True if helpers reply whatever their loss: those whom the model suits are of
                other kinds than a liar whom it leaves out, and know nothing of its kind
        """
        roster = replies.roster
        if all_reply and can_witness(len(roster), int(roster.priority.sum())):
            unit = directions(updates(offer, replies.models, gradient_names(offer)))
            near, far = mean_tenths((unit @ unit.T).cpu().numpy())
            usual = max(0.0, float(np.median(near)))
            now = (near < self.near * usual) & (far <= -self.far * usual)
            score = np.where(roster.priority, score + np.where(now, 1.0, -1.0), 0.0)
            turned = roster.priority & now
        else:
            turned = roster.priority & (score > 0)
        minority = roster.share[turned].sum() < 0.5 * roster.share[roster.priority].sum()
        return turned & minority, score

    def bound(
        self, offer: Offer, replies: Replies, root: Bool, everyone: bool, middle: float
    ) -> Replies:
        """Return replies with no update longer than the bound; statistics (BatchNorm's) by
        themselves."""
        factor = np.where(root & (not everyone), self.root_norm, self.norm)
        models = bound_updates(offer, replies.models, factor * middle, gradient_names(offer))
        others = statistic_names(offer)
        if others:
            norm = updates(offer, models, others).norm(dim=1).cpu().numpy()
            models = bound_updates(offer, models, factor * np.median(norm[root]), others)
        return replace(replies, models=models)

    def cap_weights(self, weight: Float64, base: Float64, root: Bool, copies: Int64) -> Float64:
        """Return weights of which copies share one, and none outside the root is above the largest
        that somebody in it has in `base`."""
        weight, most = weight / copies, (base / copies)[root].max(initial=0.0)
        return np.where(root, weight, np.minimum(weight, most))

    def choose_group(
        self, words: Float64, weight: Float64, share: Float64, cost: Float64
    ) -> tuple[int | None, Float64]:
        """Return the place of the first group that is worth it and burdens nobody, from its
        appraisals (None when none does), and what groups have cost each appraiser with it.

        Args:
            words: `[model, appraiser]`: of w, of w_P, and of each group's model; lower is better
            weight: how much each appraiser counts
            share: of the step that each group has
            cost: what groups have cost each appraiser so far
        """
        cost, answered = self.recall * cost, np.isfinite(words).all(0)
        if weight[answered].sum() <= 0.5 * weight.sum():
            return None, cost  # too few to speak for the others
        words, p = words[:, answered], weight[answered] / weight[answered].sum()
        gain = max(0.0, float(p @ self.clip_changes(words[0] - words[1])))
        for at, said in enumerate(words[2:]):
            new = cost[answered] + said - words[1]
            if new.max() > self.burden * float(np.median(np.abs(new))):
                continue
            if p @ self.clip_changes(said - words[1]) <= self.worth * share[at] * gain:
                cost[answered] = new
                return at, cost
        return None, cost

    def clip_changes(self, change: Float64) -> Float64:
        """Return changes of loss, none larger than `voice` median ones."""
        most = self.voice * float(np.median(np.abs(change)))
        return np.clip(change, -most, most)


part(Audit, "audit")(Audit)


def limit_pull(rows: torch.Tensor, base: Float64, full: Float64) -> Float64:
    """Return weights between `base` and `full` by which the mean update is at most one standard
    error of base's mean away from it.

    `b + min(1, s v / |d|^2) (f - b)`, with b and f the normalised weights, s the share that moves
    from b to f, d how far the mean moves with it, and v the squared standard error of b's mean from
    the spread between its clients; of a single one, its squared length: nothing better is known.
    The mean moves by at most `sqrt(v)`, since `min(1, s v / |d|^2)^2 |d|^2 <= s v`.

    Args:
        rows: updates, one row per reply
        base: weights of which nothing is doubted
        full: weights if all of a group count
    """
    if not base.sum() > 0:
        return base
    b, f = (torch.from_numpy(w / w.sum()).to(rows) for w in (base, full))
    mean, same = b @ rows, float(b.square().sum())
    v = float(mean.square().sum())
    if same < 1 - 1e-12:
        v = same / (1 - same) * float(b @ (rows - mean).square().sum(1))
    share, away = float((f - b).clamp(min=0).sum()), float(((f - b) @ rows).square().sum())
    if away <= share * v:
        return full
    part = share * v / away
    return np.asarray(full.sum() * (b + part * (f - b)).cpu().numpy(), np.float64)


def can_witness(replies: int, priority: int) -> bool:
    """Return True if so many replies, of which so many are priority clients', can tell that one of
    these is turned round: there are others, and one is less than half of them."""
    return replies >= WITNESSES and 2 < priority < replies


def mean_tenths(cosine: Float64) -> tuple[Float64, Float64]:
    """Return the mean of each reply's cosines `[reply, reply]` to the tenth of the others that is
    nearest to it, and to the tenth that is furthest."""
    n = len(cosine)
    others = np.sort(cosine[~np.eye(n, dtype=np.bool_)].reshape(n, n - 1), 1)
    return others[:, -(n // 10) :].mean(1), others[:, : n // 10].mean(1)


def likeness(cosine: Float64) -> Float64:
    """Return `sum_j cos^3` of each reply, from its cosines to others `[reply, other]`."""
    return np.asarray((cosine**3).sum(1), np.float64)


def find_kin(cosine: Float64, copy: float, before: Float64) -> tuple[Bool, Float64]:
    """Return which replies are like the others, and how like (l_k), by their cosines `[reply,
    reply]`. Above `copy` they are copies: they do not count for each other, and count as one for
    the others.

    Args:
        before: how like each was in the rounds before
    """
    same = cosine > copy
    cubes = np.where(same, 0.0, cosine) ** 3 / np.maximum(1, same.sum(0))
    like, left = cubes.sum(1), np.ones(len(cubes), np.bool_)
    while (below := left & (like < 0)).any():
        least = int(np.argmin(np.where(below, like + before, np.inf)))
        left[least] = False
        like = like - cubes[:, least]
    return np.asarray(like >= 0, np.bool_), np.asarray(like, np.float64)


def find_crowds(cosine: Float64, some: Bool, like: float) -> list[Bool]:
    """Return the largest groups among some replies that are all this like one of them, at most
    `CROWDS`; no reply is in two."""
    left, found = some.copy(), list[Bool]()
    while len(found) < CROWDS:
        near = (cosine > like) & left & left[:, None]
        sizes = near.sum(1)
        if not sizes.max(initial=0) >= CROWD:
            break
        found.append(near[int(sizes.argmax())])
        left = left & ~found[-1]
    return found


def draw_replies(some: Bool, most: int, offer: Offer, clients: Int64) -> Int64:
    """Return the places of at most this many of some replies, drawn by seed, round and client."""
    key = np.where(some, rng.uniform(rng.keys(offer.seed, "tried", offer.round, clients)), np.inf)
    first = np.argsort(key, kind="stable")[: min(most, int(some.sum()))]
    return np.sort(first)


def estimate_effects(
    words: Float64, inside: Bool, alone: Bool, weight: Float64, voice: float
) -> Float64 | None:
    """Return the effect of each reply that was tried, in median effects; None when too few
    answered.

    Args:
        words: `[model, voter]`: of S, and of S without (with) each of them; lower is better
        inside: which of them are in S
        alone: which are no copies, whose effect is small because they share one weight
        weight: how much each voter counts
        voice: how much a voter may say changes, in what the median voter says
    """
    answered = np.isfinite(words).all(0)
    if not len(inside) or weight[answered].sum() <= 0.5 * weight.sum():
        return None
    change = (words[1:, answered] - words[0, answered]) * np.where(inside, 1.0, -1.0)[:, None]
    size = np.sqrt((change**2).mean(0))
    most = voice * float(np.median(size))
    change = change * np.minimum(1.0, most / np.maximum(size, 1e-300))
    effect = change @ (weight[answered] / weight[answered].sum())
    middle = float(np.median(np.abs(effect[alone if alone.any() else slice(None)])))
    shown = np.clip(effect / max(middle, 1e-300), -MOST_EFFECT, MOST_EFFECT)
    return np.asarray(shown, np.float64)


def as_audit(trust: bool | Audit) -> Audit | None:
    """Return the audit that a switch or an audit means; None for none."""
    if isinstance(trust, bool):
        return Audit() if trust else None
    return trust
