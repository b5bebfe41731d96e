"""Evidence for helpers: how much of each helper's reply brings the step closer to its target.

All clients train from the same model w. `m_P` is the mean reply of the objective's clients,
`d_j = m_j - m_P` the way from it to helper j's reply, and `mu` the reply that unlimited rows of the
objective's clients would give. The candidate `m_P + sum_j a_j d_j` with `a >= 0`, `sum a <= 1` has
the expected squared distance to mu

    R(a) = const - 2 c'a + a'Ga,    G_ij = <d_i, d_j>,    c_j = E<d_j, mu - m_P>.

G is known; only c needs evidence, of which there are two sources.

`Stein`: helpers' rows are independent of the objective's, so `c_j = E|m_P - mu|^2 = v` for every
helper, and R is Stein's unbiased estimate of the risk. v is measured: a client of the objective
trains on disjoint folds of its rows, and how far the folds' replies lie apart says how far their
mean is from its own target. Distances are measured in units of each layer's own noise: where
nothing is uncertain, a small difference is a large one (`scale_layers`).

`CrossFit`: for each fold f of the objective's rows there is a model that never saw it (`tracks`),
and from that model the fold's own update `D_V^f`, whose mean is that of unlimited rows. So
`<d_j^f, D_V^f - D_P^f>` is an unbiased measurement of c_j in every round, and rounds add up.

Two rules of others stand next to them, to be compared with: `FedDA`, which weighs each helper by
itself, and `FedFomo`, which weighs every reply by its loss on rows that are held out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ..base.arrays import Bool, Float64
from ..base.checks import check_one_of, check_whole
from ..base.errors import MusterError
from ..base.lazy import linalg, optimize, torch
from ..base.params import Params, State, as_rows, group_by_layer
from ..base.registry import part
from ..protocol import Replies, Roster
from .tracks import FOLDS, SPREAD, VALIDATION, cut
from .weigh import Weigh

MOST_CLIENTS = 2_000  # whose pairs' products are kept: 5 tables of 32 MB
EVIDENCE = "evidence"  # the part of the server's state with the sums over rounds
FAR = 1e9  # squared distance, in gains, from which on a reply counts nothing: less than 1e-9
LEAST_NOISE = 1e-6  # of a layer, in that of the mean layer: nothing is known without error
RIDGE = 1e-8  # of the mean squared distance: the problem stays definite where replies coincide


def minimise(gram: Float64, gain: Float64) -> Float64:
    """Return the weights a >= 0, sum a <= 1, that minimise `a'Ga - 2 c'a`.

    With `1 - sum a` as the weight of one more helper, whose reply is m_P itself (d = 0, c = 0), the
    weights lie on the simplex. There `G = LL'` and `Lb = c` make the objective `|Ba|^2` with
    `B = L' - b1'`, up to a constant; and what minimises `|Bu|^2 + (1'u - 1)^2` over u >= 0 is a
    multiple of the a that minimises `|Ba|^2` on the simplex: one problem of non-negative least
    squares.

    Args:
        gram: G, one row and column per helper; symmetric, no negative eigenvalue
        gain: c, one number per helper

    >>> minimise(np.array([[4.0]]), np.array([1.0])).round(6).tolist()  # min(1, v / |d|^2)
    [0.25]
    """
    n = len(gain)
    if not (gain > 0).any():
        return np.zeros(n)
    near = np.diag(gram) <= FAR * gain.max()
    if not near.all():
        some = np.zeros(n)
        some[near] = minimise(gram[np.ix_(near, near)], gain[near])
        return some
    scale = float(np.trace(gram)) / n
    if not scale > 0:  # everyone's reply is m_P: any weights give the same step
        return np.where(gain > 0, 1.0, 0.0) / np.count_nonzero(gain > 0)
    # In units in which distances are around 1: nothing overflows, however far a reply is away.
    factor = np.linalg.cholesky(gram / scale + RIDGE * np.eye(n))
    target = linalg.solve_triangular(factor, gain / scale, lower=True)
    size = max(1.0, float(np.linalg.norm(target)))
    rows = np.zeros((n + 1, n + 1))
    rows[:n, :n] = factor.T
    rows[:n] -= target[:, None]
    rows[n] = size  # the row of 1'u = 1, as large as the others
    u = optimize.nnls(rows, np.append(np.zeros(n), size))[0]
    weights: Float64 = u[:n] / u.sum()
    return weights


def products(
    models: Params,
    base: Float64,
    helpers: Bool,
    names: tuple[str, ...],
    target: Params | None = None,
) -> tuple[Float64, Float64, float]:
    """Return G, c and |t|^2 in float64: the products of the ways d_j from m_P to each helper's
    reply with one another and with `t`, the way from m_P to the mean of `target`.

    Args:
        base: each reply's weight in m_P; they sum to 1
        helpers: which replies are helpers'
        names: the parameters that move by gradient
        target: a stack of models like `models`, whose mean has the same weights; None: t = 0
    """
    n, length = int(helpers.sum()), 0.0
    own, at = (torch.from_numpy(np.flatnonzero(some)) for some in (base, helpers))
    share = torch.from_numpy(base[base > 0])
    gram, gain = torch.zeros(n, n, dtype=torch.float64), np.zeros(n)
    for name in names:
        rows = as_rows(models[name])
        own, at, share = (t.to(rows.device) for t in (own, at, share))
        mean = share @ rows.index_select(0, own).double()
        away = rows.index_select(0, at).double().sub_(mean)
        # By torch: the threads of scipy's BLAS keep a core busy for long after they are done.
        gram += (away @ away.t()).cpu()
        if target is not None:
            t = share @ as_rows(target[name]).index_select(0, own).double() - mean
            gain += np.asarray((away @ t).cpu().numpy(), np.float64)
            length += float(t @ t)
    # A product of matrices may round (i, j) otherwise than (j, i).
    return (torch.tril(gram) + torch.tril(gram, -1).t()).numpy(), gain, length


def base_weights(roster: Roster, extent: Float64) -> Float64:
    """Return b_k, each reply's weight in m_P; all 0 without a reply of the objective."""
    base = np.minimum(extent, roster.importance) * roster.share
    total = float(base.sum())
    return base / total if total > 0 else np.zeros(len(roster))


def spread_weights(base: Float64, helpers: Bool, a: Float64) -> Float64:
    """Return the weight of each reply in `m_P + sum_j a_j d_j`."""
    weight: Float64 = base * (1 - a.sum())
    weight[helpers] += a
    return weight


@part(Weigh, "stein")
@dataclass(frozen=True)
class Stein:
    """Weights that minimise Stein's unbiased estimate of the step's risk; nothing to set.

    `m_P + sum_j a_j d_j` with a from `minimise(G, c)`, where `c_j = v - b_j v_j`: `v = sum_k b_k^2
    v_k` is the variance of m_P, from the spread v_k that each client of the objective claims, and
    b_k its weight in m_P (0 for a helper outside the objective, so that `c_j = v`). At the optimum
    `a'Ga <= v`: whatever helpers send, the step moves by at most one standard error of the
    objective's own update.

    Of a model of several layers, distances are sums over layers, each in units of its own noise
    (`scale_layers`): the bound then is on the mean square over layers, each in its own standard
    errors.

    Without a reply of the objective nothing can be compared, and nobody counts.

    Attributes:
        pooled: take G and c as sums over the rounds. One round's distances are from one noisy m_P,
            and a mixture chosen by them alone follows its noise. The pull of a round is still at
            most `a'Ga <= v` of that round. Of more than `MOST_CLIENTS` clients no sums are kept.
    """

    pooled: bool = False
    at_once: ClassVar[bool] = True  # a weight depends on all replies: they cannot be streamed
    bounded: ClassVar[bool] = True  # whatever helpers send, the step stays close to m_P
    needs_spread: ClassVar[bool] = True
    refuses: ClassVar[str] = "no evidence that it helps"  # the reason where a weight is 0

    def memory(self, clients: int) -> State:
        """Return the server's state before the first round: no evidence."""
        if not self.pooled or clients > MOST_CLIENTS:
            return {}
        shapes = {"gram": (clients, clients), "gain": (clients,)}
        shapes |= {f"round_{name}": shape for name, shape in shapes.items()}  # of the last alone
        return {EVIDENCE: {n: torch.zeros(s, dtype=torch.float64) for n, s in shapes.items()}}

    def learn(self, replies: Replies, extent: Float64, server: State) -> State:
        """Return the server's evidence with a round's replies added to it."""
        base, helpers = base_weights(replies.roster, extent), replies.roster.importance < 1
        if EVIDENCE not in server or not base.any() or not helpers.any():
            return {}
        at, gram, gain = replies.roster.clients[helpers], *compare_by_spread(replies, base, helpers)
        sums: Params = {}
        for name, place, found in (("gram", np.ix_(at, at), gram), ("gain", at, gain)):
            last = torch.zeros(server[EVIDENCE][name].shape, dtype=torch.float64)
            last.numpy()[place] = found
            sums[f"round_{name}"], sums[name] = last, server[EVIDENCE][name].cpu() + last
        return {EVIDENCE: sums}

    def __call__(self, replies: Replies, extent: Float64, server: State) -> Float64:
        base, helpers = base_weights(replies.roster, extent), replies.roster.importance < 1
        if not base.any() or not helpers.any():
            return base
        if EVIDENCE not in server:
            gram, gain = compare_by_spread(replies, base, helpers)
            return spread_weights(base, helpers, minimise(gram, gain))
        at = replies.roster.clients[helpers]
        tables = {name: t.cpu().numpy() for name, t in server[EVIDENCE].items()}
        a = minimise(tables["gram"][np.ix_(at, at)], tables["gain"][at])
        pull = float(a @ tables["round_gram"][np.ix_(at, at)] @ a)
        most = max(0.0, float(tables["round_gain"][at].max()))
        return spread_weights(base, helpers, a * np.sqrt(most / pull) if pull > most else a)


def compare_by_spread(
    replies: Replies, base: Float64, helpers: Bool, by_layer: bool = True
) -> tuple[Float64, Float64]:
    """Return G and c of the helpers, `c_j = v - b_j v_j`, from the spreads that clients claim.

    Args:
        by_layer: measure in units of each layer's noise, where clients send their layers' shares
    """
    names = replies.trainable or tuple(replies.models)
    spread, layers, scales = np.where(base > 0, replies.claim, 0.0), [names], np.ones(1)
    if by_layer and SPREAD in replies.extra:
        share = replies.extra[SPREAD]["share"].cpu().double().clamp(min=0.0).numpy()
        of_layers = spread[:, None] * share
        scales = scale_layers(base**2 @ of_layers)
        layers, spread = list(group_by_layer(names).values()), of_layers @ scales
    found = [products(replies.models, base, helpers, layer)[0] for layer in layers]
    gram = np.tensordot(scales, np.stack(found), 1)
    gain: Float64 = (base**2 * spread).sum() - (base * spread)[helpers]
    return gram, gain


def scale_layers(noise: Float64) -> Float64:
    """Return `h_l = v / (L v_l)`, by which all L layers have the same part of `v = sum_l v_l`.

    Layers differ: in one, rows decide little, and its noise is large and harmless; in another the
    same distance is a different model. At a minimum of the loss the variance of an estimate is the
    inverse of the loss's curvature, so that distance in standard errors is distance in loss. Layer
    by layer is as fine as one variance can be measured from two halves.

    Args:
        noise: v_l, the variance of m_P in each layer

    >>> scale_layers(np.array([1.0, 3.0])).round(4).tolist()
    [2.0, 0.6667]
    """
    mean = float(noise.mean())
    if not mean > 0:
        return np.ones(len(noise))
    return np.asarray(mean / np.maximum(noise, LEAST_NOISE * mean))


@part(Weigh, "fedda")
@dataclass(frozen=True)
class FedDA:
    """Weights that take each helper by itself (FedDA-auto: Jiang, Zhang and Koyejo, ICLR 2024).

    `sum_j q_j [(1 - beta_j) m_P + beta_j m_j]`, q_j helper j's share of the helpers' data, with
    `beta_j = min(1, c_j / |d_j|^2)`: the solution of `minimise` for that helper alone. The paper
    estimates the variance from gradients of the target's batches; here it is `Stein`'s v.
    """

    at_once: ClassVar[bool] = True
    needs_spread: ClassVar[bool] = True
    refuses: ClassVar[str] = "no evidence that it helps"

    def __call__(self, replies: Replies, extent: Float64, server: State) -> Float64:
        base, helpers = base_weights(replies.roster, extent), replies.roster.importance < 1
        if not base.any() or not helpers.any():
            return base
        gram, gain = compare_by_spread(replies, base, helpers, by_layer=False)
        size = np.diag(gram)
        beta = np.clip(gain / np.where(size > 0, size, 1.0), 0.0, 1.0)
        return spread_weights(base, helpers, beta * data_shares(replies.roster, helpers))


def data_shares(roster: Roster, helpers: Bool) -> Float64:
    """Return q, the helpers' shares of their data; they sum to 1."""
    share: Float64 = roster.full[helpers] / roster.full[helpers].sum()
    return share


IMPROVEMENT = "improvement"  # the part of a reply's extras with its gain on held-out rows


@part(Weigh, "fedfomo")
@dataclass(frozen=True)
class FedFomo:
    """Weights by the loss on rows that are held out (FedFomo: Zhang et al., ICLR 2021).

    `max(0, (L(w) - L(w_k)) / (|w_k - w| + 1e-5))` for every reply, where L is the objective's loss
    on one fold of its clients' rows, the same in every round, on which they never train. Without a
    reply that lowers it the model stays.

    The paper trains a model for each client, which compares it with a few others' models, drawn
    epsilon-greedily, and measures from the client's own previous model. Here there is one model,
    that of the objective: L is the mean over its clients by their weights, every reply is compared
    in every round, and the start is the round's model.

    Attributes:
        hold_out: number of folds, of which one is held out; a client with no more rows than this
            holds out none
    """

    hold_out: int = FOLDS
    at_once: ClassVar[bool] = True
    refuses: ClassVar[str] = "no better on held-out rows"

    def __post_init__(self) -> None:
        check_whole("hold_out", self.hold_out, 2)

    def __call__(self, replies: Replies, extent: Float64, server: State) -> Float64:
        better, distance = (replies.extra[IMPROVEMENT][n].cpu().numpy() for n in ("loss", "way"))
        weight: Float64 = np.maximum(better, 0.0) / (distance + 1e-5)
        return weight * extent


FREEDOMS = ("none", "one", "each", "shrunk")


def solve(freedom: str, gram: Float64, gain: Float64, share: Float64) -> Float64:
    """Return helpers' weights of one degree of freedom.

    Args:
        freedom: "none": all 0; "one": one weight for the helpers' mean by data share, `b s` with
            `b = c's / s'Gs` in [0, 1]; "each": by `minimise`; "shrunk": the same with a
            ridge of trace(G) / n towards the one weight
        share: s, the helpers' shares of their data; they sum to 1
    """
    if freedom == "none":
        return np.zeros(len(gain))
    if freedom == "each":
        return minimise(gram, gain)
    size = float(share @ gram @ share)
    one: Float64 = np.clip(gain @ share / size if size > 0 else 0.0, 0.0, 1.0) * share
    if freedom == "one":
        return one
    ridge = float(np.trace(gram)) / max(len(gain), 1)
    return minimise(gram + ridge * np.eye(len(gain)), gain + ridge * one)


def choose_freedom(gram: Float64, gain: Float64, share: Float64) -> str:
    """Return the freedom with the lowest risk out of fold: weights from the other folds' sums are
    judged on fold f by `a'G_f a - 2 c_f'a`, which is unbiased for them.

    Args:
        gram: G of each fold, `[fold, helper, helper]`
        gain: c of each fold, `[fold, helper]`
    """
    whole, total = gram.sum(0), gain.sum(0)
    risk = dict.fromkeys(FREEDOMS, 0.0)
    for g, c in zip(gram, gain, strict=True):
        for freedom in FREEDOMS[1:]:
            a = solve(freedom, whole - g, total - c, share)
            risk[freedom] += float(a @ g @ a - 2 * c @ a)
    return min(FREEDOMS, key=risk.__getitem__)


@part(Weigh, "crossfit")
@dataclass(frozen=True)
class CrossFit:
    """Weights that minimise the risk measured on rows the models have not seen; nothing to set.

    For every fold f of the objective's rows, sums over rounds of `G_f += d^f d^f'` and
    `c_f += <d^f, D_V^f - D_P^f>`; then the minimum of the risk by all folds' sums, shrunk towards
    one weight for all. The pull of one round, `|sum_j a_j d_j|`, is at most
    `|D_V - D_P|` (both in the mean square over folds), so that a helper cannot save up trust and
    spend it at once. Of a model of several layers, distances are sums over layers, each in units of
    its own `|D_V - D_P|` over the folds of the round (`scale_layers`).

    Attributes:
        folds: F, of the rows of the objective's clients
        freedom: how free the weights are (`solve`); "auto": whichever has the lowest risk out of
            fold, which follows its noise where rows are few
    """

    folds: int = FOLDS
    freedom: Literal["auto", "none", "one", "each", "shrunk"] = "shrunk"
    at_once: ClassVar[bool] = True
    bounded: ClassVar[bool] = True
    refuses: ClassVar[str] = "no evidence that it helps"

    def __post_init__(self) -> None:
        check_whole("folds", self.folds, 2)
        check_one_of("freedom", self.freedom, ("auto", *FREEDOMS))

    def memory(self, clients: int) -> State:
        """Return the server's state before the first round: no evidence."""
        if clients > MOST_CLIENTS:
            raise MusterError(
                f"evidence: sums for each pair of {clients} clients; at most {MOST_CLIENTS} "
                'clients with evidence = "crossfit", any number with "stein"'
            )
        shapes = {
            "gram": (self.folds, clients, clients),
            "gain": (self.folds, clients),
            "round_gram": (clients, clients),  # of the last round alone, over all folds
            "round_target": (1,),  # |D_V - D_P|^2 of the last round, over all folds
        }
        return {EVIDENCE: {n: torch.zeros(s, dtype=torch.float64) for n, s in shapes.items()}}

    def learn(self, replies: Replies, extent: Float64, server: State) -> State:
        """Return the server's evidence with a round's replies added to it."""
        base, helpers = base_weights(replies.roster, extent), replies.roster.importance < 1
        sums = {name: t.clone() for name, t in server[EVIDENCE].items()}
        sums |= {name: torch.zeros_like(sums[name]) for name in ("round_gram", "round_target")}
        if not base.any() or not helpers.any():
            return {EVIDENCE: sums}
        names = replies.trainable or tuple(replies.models)
        at = torch.from_numpy(replies.roster.clients[helpers])
        pairs = (at[:, None], at[None])
        layers = group_by_layer(names).values()
        found = []  # by fold and layer
        for f in range(self.folds):
            models = cut(replies.models, f + 1, 1)
            fold = cut(replies.extra[VALIDATION], f, 1)
            found.append([products(models, base, helpers, layer, fold) for layer in layers])
        scales = scale_layers(np.array([[length for _, _, length in row] for row in found]).sum(0))
        for f, row in enumerate(found):
            gram, gain, length = (
                np.tensordot(scales, np.stack(part), 1) for part in zip(*row, strict=True)
            )
            sums["gram"][f][pairs] += torch.from_numpy(gram)
            sums["gain"][f, at] += torch.from_numpy(gain)
            sums["round_gram"][pairs] += torch.from_numpy(gram)
            sums["round_target"] += float(length)
        return {EVIDENCE: sums}

    def __call__(self, replies: Replies, extent: Float64, server: State) -> Float64:
        base, helpers = base_weights(replies.roster, extent), replies.roster.importance < 1
        if not base.any() or not helpers.any():
            return base
        at = replies.roster.clients[helpers]
        sums = {name: np.asarray(t.cpu().numpy()) for name, t in server[EVIDENCE].items()}
        gram, gain = sums["gram"][:, at[:, None], at[None]], sums["gain"][:, at]
        share = data_shares(replies.roster, helpers)
        auto = self.freedom == "auto"
        freedom = choose_freedom(gram, gain, share) if auto else self.freedom
        a = solve(freedom, gram.sum(0), gain.sum(0), share)
        pull = float(a @ sums["round_gram"][at[:, None], at[None]] @ a)
        most = float(sums["round_target"][0])
        return spread_weights(base, helpers, a * np.sqrt(most / pull) if pull > most else a)
