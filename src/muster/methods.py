"""The methods by name, each a composition of parts in a few lines.

A method chooses the clients to ask (invite), who trains (join) and how (solver), whose reply is
admitted (admit), its weight (weigh) and the server's update (step). None is a subclass of another.
"""

from __future__ import annotations

from typing import Literal

from .base.checks import check_above, check_at_least, check_one_of
from .base.registry import kinds, part
from .method import Method as Method
from .parts.admit import Band, Everyone, Objective
from .parts.claim import Appeal, Nothing, Spread, Unmet
from .parts.defences.trust import Audit, as_audit
from .parts.effort import ByWeight
from .parts.evidence import CrossFit, FedDA, FedFomo, Stein
from .parts.invite import Full, Invite, PowerOfChoice, Sample
from .parts.join import Aligned, Available, Criterion, Join, Straggling
from .parts.solvers import (
    SGD,
    ControlVariates,
    Ditto,
    MetaGradient,
    Moreau,
    Solo,
)
from .parts.step import (
    Adaptive,
    AdaptiveMoments,
    Agnostic,
    Average,
    Momentum,
    Multiplicative,
    QFair,
    Scaffold,
    Stay,
)
from .parts.tracks import AgainstAlone, Interpolate
from .parts.weigh import Claimed, LossPower, Mixture, Uniform
from .schedules import AUTO, Count, Epsilon, as_schedule


def sample_or_all(m: int | None) -> Invite:
    """Return an invitation of m clients a round, drawn uniformly, or of everyone."""
    return Full() if m is None else Sample(m)


@part(Method, "fedalign")
def fedalign(
    epsilon: Epsilon = 0.2,
    criterion: Criterion = "loss",
    warmup: Count = 0.1,
    prox: float = 0.0,
    invite: Invite = Full(),
    availability: float = 1.0,
    straggler_period: int = 1,
    reference: Literal["all", "asked"] = "all",
    server_lr: float = 1.0,
    trust: bool | Audit = False,
) -> Method:
    """FedALIGN: Ravi & Shomorony, Algorithm 1; others count while |F_k(w) - F(w)| < eps_t.

    Args:
        epsilon: how far a client's loss may be from the priority clients' F(w) to count: a number,
            a schedule over rounds (muster.schedules), or "auto": the best of 5 by 4-fold
            cross-validation of the priority clients' rows, which costs 20 runs before the first
            round, of a quarter of the rounds or 20 of them (simulation only)
        criterion: what is compared, the clients' "loss" or the task's "score" ("accuracy", as the
            paper has it, is the same)
        warmup: rounds (a whole number) or share of rounds (a fraction) in which only priority
            clients are asked; eps_t runs from its end
        prox: FedALIGN on FedProx: weight of the proximal term in local training
        invite: whom the server asks each round: one of the invite parts
        availability: chance that a client outside the objective is there in a round (eq. 54)
        straggler_period: a client outside the objective answers every so many rounds only
        reference: whose data F(w) is measured on: "all" priority clients (the paper), or those
            "asked" in the round
        server_lr: the server's step towards the average of the admitted
        trust: bound what clients outside the objective can do, and have the priority clients check
            it (docs/trust.md); false is the paper's
    """
    join: Join = Aligned(criterion)
    if straggler_period != 1:
        join = Straggling(straggler_period, join)
    if availability != 1.0:
        join = Available(availability, join)
    return Method(
        "fedalign",
        invite=invite,
        join=join,
        solver=SGD(prox=prox),
        admit=Band(criterion),
        step=Average(server_lr),
        epsilon=AUTO if epsilon == AUTO else as_schedule(epsilon, "epsilon"),
        warmup=warmup,
        reference=reference,
        trust=as_audit(trust),
    )


@part(Method, "maxfl")
def maxfl(
    server_lr: float = 1.0,
    epsilon: float = 0.1,
    m: int | None = None,
    tune_steps: int = 0,
    trust: bool | Audit = False,
) -> Method:
    """MaxFL: Cho et al., w' = w + server_lr / (sum q_k + epsilon) sum q_k (w_k - w), where
    q_k = s (1 - s), s = sigmoid(F_k(w) - rho_k), is largest where the model just appeals.

    Args:
        server_lr: the server's step, before it is divided by sum q_k + epsilon
        epsilon: keeps the step finite when every q_k is nearly 0
        m: clients asked each round, drawn uniformly; None: everyone
        tune_steps: local steps a client takes before it judges the model for its q_k (step 7)
        trust: bound what a client can do, and have clients check it (docs/trust.md); false is the
            paper's
    """
    return Method(
        "maxfl",
        invite=sample_or_all(m),
        weigh=Claimed(),
        step=Adaptive(server_lr, epsilon),
        claim=Appeal(),
        tune_steps=tune_steps,
        trust=as_audit(trust),
    )


@part(Method, "assist")
def assist(
    evidence: Literal["stein", "crossfit"] = "stein",
    guard: bool = False,
    sketch: int = 0,
    invite: Invite = Full(),
    prox: float = 0.0,
    server_lr: float = 1.0,
    trust: bool | Audit = False,
) -> Method:
    """Help by evidence: w' = m_P + sum_j a_j (m_j - m_P), where m_P is the priority clients' mean
    reply and a minimises an unbiased estimate of the distance to the reply of unlimited priority
    rows. No epsilon, no warm-up, no threshold; one round moves the model by at most one standard
    error of m_P from it.

    Args:
        evidence: "stein": the variance of m_P, from two halves of each priority client's rows;
            "crossfit": rows that models have not seen, at the cost of five models in place of one
        guard: deploy the helped model only while it beats training alone by one standard error on
            unseen rows
        sketch: for large models: helpers first send so many numbers of a random projection, about
            a thousand, and only those with weight send a model; 0: everyone sends its model
        invite: whom the server asks each round: one of the invite parts
        prox: weight of the proximal term in local training, as in FedProx
        server_lr: the server's step towards the weighted average
        trust: bound what clients outside the objective can do, and have the priority clients check
            it (docs/trust.md)
    """
    check_one_of("evidence", evidence, ("stein", "crossfit"))
    stein = evidence == "stein"
    return Method(
        "assist",
        invite=invite,
        solver=SGD(prox=prox),
        weigh=Stein() if stein else CrossFit(),
        claim=Spread() if stein else Nothing(),
        step=Average(server_lr),
        sketch=sketch,
        deploy=AgainstAlone() if guard else None,
        trust=as_audit(trust),
    )


@part(Method, "interpolation")
def interpolation(
    parts: int = 8, invite: Invite = Full(), prox: float = 0.0, server_lr: float = 1.0
) -> Method:
    """FedAvg on everyone and on the priority clients alone, side by side; the product is the point
    between them, w_alone + b (w_all - w_alone), with the lowest loss on rows that neither has seen
    (model soups, Wortsman et al. 2022, along one way). Five models of each in place of one.

    Args:
        parts: b is one of 0, 1/parts, 2/parts, ..., 1
        invite: whom the server asks each round: one of the invite parts
        prox: weight of the proximal term in local training, as in FedProx
        server_lr: the server's step towards the average
    """
    return Method(
        "interpolation",
        invite=invite,
        solver=SGD(prox=prox),
        step=Average(server_lr),
        deploy=Interpolate(parts=parts),
    )


@part(Method, "fedda")
def fedda(invite: Invite = Full(), server_lr: float = 1.0) -> Method:
    """FedDA-auto: Jiang et al. 2024, helps by each helper alone:
    w' = sum_j q_j [(1 - beta_j) m_P + beta_j m_j], beta_j = min(1, v / |m_j - m_P|^2), where m_P is
    the priority clients' mean reply, v its variance from two halves of their rows, and q_j a
    helper's share of the helpers' data.

    Args:
        invite: whom the server asks each round: one of the invite parts
        server_lr: the server's step towards that average
    """
    weigh, step = FedDA(), Average(server_lr)
    return Method("fedda", invite=invite, weigh=weigh, claim=Spread(), step=step)


@part(Method, "fedfomo")
def fedfomo(hold_out: int = 4, invite: Invite = Full(), server_lr: float = 1.0) -> Method:
    """FedFomo for one model: Zhang et al. 2021, w' = w + sum_k u_k (w_k - w) / sum_k u_k,
    u_k = max(0, (L(w) - L(w_k)) / (|w_k - w| + 1e-5)), where L is the priority clients' loss on
    rows that they hold out of training. Each of them gets every reply, once a round. The paper has
    a model and weights for each client.

    Args:
        hold_out: number of folds of a priority client's rows, of which it holds out one
        invite: whom the server asks each round: one of the invite parts
        server_lr: the server's step towards that average
    """
    return Method("fedfomo", invite=invite, weigh=FedFomo(hold_out), step=Average(server_lr))


@part(Method, "fedavg")
def fedavg(invite: Invite = Full(), server_lr: float = 1.0, warmup: Count = 0) -> Method:
    """FedAvg on every client ("All"): McMahan et al. 2017, w' = sum_k p_k w_k / sum_k p_k.

    Args:
        invite: whom the server asks each round: one of the invite parts
        server_lr: the server's step: how far the model moves towards that average
        warmup: rounds (a whole number) or share of rounds (a fraction) in which only priority
            clients are asked, as FedALIGN does
    """
    return Method("fedavg", invite=invite, step=Average(server_lr), warmup=warmup)


@part(Method, "fedavg_priority")
def fedavg_priority(invite: Invite = Full(), server_lr: float = 1.0) -> Method:
    """FedAvg on the priority clients only ("None"): w' = sum_P p_k w_k.

    Args:
        invite: whom the server asks each round: one of the invite parts
        server_lr: the server's step: how far the model moves towards that average
    """
    # A warm-up that never ends: nobody outside the objective is ever asked.
    step = Average(server_lr)
    return Method("fedavg_priority", invite=invite, admit=Objective(), step=step, warmup=1.0)


@part(Method, "fedprox")
def fedprox(
    mu: float = 1.0,
    priority_only: bool = False,
    invite: Invite = Full(),
    server_lr: float = 1.0,
    warmup: Count = 0,
) -> Method:
    """FedAvg with a proximal term: Li et al. 2018, local gradient g + mu (w_k - w).

    Args:
        mu: weight of the proximal term; 0 is FedAvg
        priority_only: ask priority clients only, as the paper's baseline does
        invite: whom the server asks each round: one of the invite parts
        server_lr: the server's step: how far the model moves towards the clients' average
        warmup: rounds (a whole number) or share of rounds (a fraction) in which only priority
            clients are asked, as FedALIGN does; all of them where it is for priority only
    """
    check_at_least("mu", mu)
    return Method(
        "fedprox",
        invite=invite,
        solver=SGD(prox=mu),
        admit=Objective() if priority_only else Everyone(),
        step=Average(server_lr),
        warmup=1.0 if priority_only else warmup,
    )


@part(Method, "scaffold")
def scaffold(server_lr: float = 1.0, m: int | None = None) -> Method:
    """SCAFFOLD: Karimireddy et al. 2020, option II; control variates c, c_k correct client drift,
    w_k <- w_k - lr (g - c_k + c); sampled clients have equal weight.

    Args:
        server_lr: the server's step along the clients' mean change
        m: clients asked each round, drawn uniformly; None: everyone
    """
    return Method(
        "scaffold",
        invite=sample_or_all(m),
        solver=ControlVariates(),
        weigh=Uniform(),
        step=Scaffold(server_lr),
    )


@part(Method, "perfedavg")
def perfedavg(
    alpha: float = 0.01,
    hessian_free: bool = False,
    delta: float | None = None,
    m: int | None = None,
) -> Method:
    """Per-FedAvg: Fallah et al. 2020, trains the model to be good after one step of size alpha,
    first-order or with a second-order term (exact, or by a difference of gradients delta apart);
    clients have equal weight.

    Args:
        alpha: the size of the step after which the model is to be good, and is measured
        hessian_free: with the second-order term of the gradient, or without (first-order)
        delta: take that term from gradients this far apart, as printed; None: exactly
        m: clients asked each round, drawn uniformly; None: everyone
    """
    return Method(
        "perfedavg",
        invite=sample_or_all(m),
        solver=MetaGradient(alpha, hessian_free, delta),
        weigh=Uniform(),
    )


@part(Method, "pfedme")
def pfedme(
    lam: float = 15.0,
    inner: int = 5,
    personal_lr: float = 0.01,
    beta: float = 1.0,
    m: int | None = None,
) -> Method:
    """pFedMe: Dinh et al. 2020, w_k <- w_k - lr lam (w_k - theta_k), theta_k near w_k by the Moreau
    envelope of weight lam; w' = (1 - beta) w + beta mean(w_k).

    Args:
        lam: how strongly a personal model is held near the client's w_k
        inner: gradient steps that find the personal model
        personal_lr: their size
        beta: how far the server moves towards the clients' mean
        m: clients asked each round, drawn uniformly; None: everyone
    """
    check_above("beta", beta)
    return Method(
        "pfedme",
        invite=sample_or_all(m),
        solver=Moreau(lam, inner, personal_lr),
        weigh=Uniform(),
        step=Average(beta),
    )


@part(Method, "qffl")
def qffl(q: float = 1.0, m: int | None = None) -> Method:
    """q-FFL (q-FedAvg): Li et al. 2019, w' = w - sum F_k^q G_k / sum h_k, G_k = (w - w_k)/lr,
    h_k = q F_k^(q-1) |G_k|^2 + F_k^q / lr; sampled clients differ in weight by their loss alone.

    Args:
        q: how much more a client of high loss counts; 0 is FedAvg with equal weights
        m: clients asked each round, drawn uniformly; None: everyone
    """
    check_at_least("q", q)
    return Method("qffl", invite=sample_or_all(m), weigh=LossPower(q), step=QFair(q), losses=True)


@part(Method, "afl")
def afl(rate: float = 0.1, m: int | None = None) -> Method:
    """AFL: Mohri et al. 2019, minimises the worst mixture of clients: w' = sum lambda_k w_k, then
    lambda' = Proj_simplex(lambda + rate F).

    Args:
        rate: step size of the mixture lambda towards the clients worst off
        m: clients asked each round, drawn uniformly; None: everyone
    """
    return Method("afl", invite=sample_or_all(m), weigh=Mixture(), step=Agnostic(rate), losses=True)


@part(Method, "mwfed")
def mwfed(factor: float = 4.0, m: int | None = None) -> Method:
    """MW-Fed: Blum et al. 2021, the weight of a client whose requirement is not met is multiplied
    by a factor every round, and local steps are dealt in proportion to weight.

    Args:
        factor: what the weight of a client is multiplied by while its requirement is not met
        m: clients asked each round, drawn uniformly; None: everyone
    """
    return Method(
        "mwfed",
        invite=sample_or_all(m),
        weigh=Uniform(),
        step=Multiplicative(factor),
        claim=Unmet(),
        effort=ByWeight(),
    )


@part(Method, "ditto")
def ditto(lam: float = 1.0, m: int | None = None) -> Method:
    """Ditto: Li et al. 2021, FedAvg for the global model, and personal models held near it,
    v_k <- v_k - lr (g(v_k) + lam (v_k - w)).

    Args:
        lam: how strongly personal models are held near the global one
        m: clients asked each round, drawn uniformly; None: everyone
    """
    return Method("ditto", invite=sample_or_all(m), solver=Ditto(lam))


@part(Method, "power_of_choice")
def power_of_choice(d: int = 20, m: int = 10) -> Method:
    """Power-of-Choice: Cho et al. 2020, FedAvg on the m clients of highest loss among d drawn by
    data share, with equal weights.

    Args:
        d: candidates drawn by data share, who report their loss
        m: of them, how many train: those of highest loss
    """
    return Method("power_of_choice", invite=PowerOfChoice(m, d), weigh=Uniform())


@part(Method, "fedavgm")
def fedavgm(server_lr: float = 1.0, beta: float = 0.9, m: int | None = None) -> Method:
    """FedAvgM: Hsu et al. 2019, server momentum, v' = beta v + (mean(w_k) - w), w' = w + lr v'.

    Args:
        server_lr: the server's step along the momentum
        beta: how much of the momentum is kept from round to round
        m: clients asked each round, drawn uniformly; None: everyone
    """
    return Method("fedavgm", invite=sample_or_all(m), step=Momentum(server_lr, beta))


@part(Method, "fedadam")
def fedadam(
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    m: int | None = None,
) -> Method:
    """FedAdam: Reddi et al. 2020, Adam on the server with Delta = mean(w_k) - w as the gradient.

    Args:
        server_lr: the server's step
        beta1: decay of the mean of Delta
        beta2: decay of the mean of its square
        tau: added to the root of the latter: how adaptive the step is
        m: clients asked each round, drawn uniformly; None: everyone
    """
    step = AdaptiveMoments(server_lr, beta1, beta2, tau)
    return Method("fedadam", invite=sample_or_all(m), step=step)


@part(Method, "fedyogi")
def fedyogi(
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    tau: float = 1e-3,
    m: int | None = None,
) -> Method:
    """FedYogi: Reddi et al. 2020, as FedAdam with v' = v - (1 - b2) Delta^2 sign(v - Delta^2).

    Args:
        server_lr: the server's step
        beta1: decay of the mean of Delta
        beta2: how fast v follows Delta^2
        tau: added to the root of v: how adaptive the step is
        m: clients asked each round, drawn uniformly; None: everyone
    """
    step = AdaptiveMoments(server_lr, beta1, beta2, tau, yogi=True)
    return Method("fedyogi", invite=sample_or_all(m), step=step)


@part(Method, "local")
def local() -> Method:
    """Each client alone with its own model and data: what it has without the federation."""
    return Method("local", solver=Solo(), step=Stay(), serves="own")


@part(Method, "compose")
def compose() -> Method:
    """A method of your own from parts: FedAvg until you name others, such as
    `admit = {kind = "band"}`."""
    return Method("compose")


METHODS = kinds(Method)
