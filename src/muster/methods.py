"""Methods: compositions of parts, five to fifteen lines each, and the registry of them.

A method says who is asked (invite), who trains (join), how (solver), whose reply is let in
(admit), how much it counts (weigh) and how the model moves (step). None is a subclass of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .base.checks import check_above, check_at_least, check_one_of, check_whole, is_number
from .base.errors import MusterError
from .base.registry import kinds, part
from .parts.admit import Admit, Band, Everyone, Objective
from .parts.claim import Appeal, Claim, Nothing, Unmet
from .parts.defences.trust import Audit, as_audit
from .parts.effort import AsAsked, ByWeight, Effort
from .parts.invite import Full, Invite, PowerOfChoice, Sample
from .parts.join import Aligned, Always, Available, Criterion, Join, Straggling
from .parts.solvers import (
    SGD,
    ControlVariates,
    Ditto,
    MetaGradient,
    Moreau,
    Solo,
    Solver,
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
    Step,
)
from .parts.weigh import Claimed, DataShare, LossPower, Mixture, Uniform, Weigh
from .schedules import Constant, Count, Schedule, as_schedule, count_rounds, value_after


@dataclass(frozen=True)
class Method:
    """A federated learning method as a composition of parts.

    Attributes:
        claim: the number clients work out from what only they know (MaxFL's q_k)
        effort: how many local steps each client is to take
        losses: whether weigh or step use the clients' losses F_k(w)
        epsilon: eps_t, broadcast in the offer for the rules that need it
        warmup: rounds (int) or fraction of rounds (float) in which only the objective's clients
            (the priority clients) are asked

    tune_steps local steps a client takes before it judges the model for its claim

    Attributes:
        reference: whose data F(w) is measured on: all priority clients (the paper), or those asked,
            whose cost does not grow with the population
        serves: whose model is judged: the global one, or each client's own
        trust: how far clients outside the objective are trusted: None (the papers) believes every
            reply that is not malformed
    """

    name: str
    invite: Invite = Full()
    join: Join = Always()
    solver: Solver = SGD()
    admit: Admit = Everyone()
    weigh: Weigh = DataShare()
    step: Step = Average()
    claim: Claim = Nothing()
    effort: Effort = AsAsked()
    losses: bool = False
    tune_steps: int = 0
    epsilon: float | Schedule = Constant(float("nan"))
    warmup: Count = 0
    reference: Literal["all", "asked"] = "all"
    serves: Literal["global", "own"] = "global"
    trust: Audit | None = None

    def __post_init__(self) -> None:
        count_rounds(self.warmup, 100, "warmup")
        check_one_of("reference", self.reference, ("all", "asked"))
        check_one_of("serves", self.serves, ("global", "own"))
        check_whole("tune_steps", self.tune_steps, 0)
        if is_number(self.epsilon):
            object.__setattr__(self, "epsilon", as_schedule(self.epsilon, "epsilon"))
        check_together(self)

    def warmup_rounds(self, rounds: int) -> int:
        """How many of this many rounds ask only the objective's clients."""
        return count_rounds(self.warmup, rounds, "warmup")

    def eps(self, t: int, rounds: int) -> float:
        """eps_t of a run of this many rounds. A decay begins when the others are first asked, after
        warm-up."""
        return value_after(self.schedule, self.warmup_rounds(rounds), t, rounds)

    @property
    def schedule(self) -> Schedule:
        """epsilon, which may be given as a number."""
        assert isinstance(self.epsilon, Schedule)
        return self.epsilon

    @property
    def refers(self) -> bool:
        """Whether a rule needs F(w), the priority clients' measure of the model."""
        return self.join.appraises or self.admit.appraises

    @property
    def reports(self) -> bool:
        """Whether clients tell the server their loss. A claim does not need it told: from F_k and
        q_k together the server could work out rho_k."""
        return self.refers or self.losses

    @property
    def appraises(self) -> bool:
        """Whether asked clients must measure the model on their data."""
        return self.reports or self.claim.needs_requirement


def check_together(method: Method) -> None:
    """Refuse parts that count on each other and are not both there: SCAFFOLD's clients and its
    server, AFL's weights and its server, MW-Fed's effort and its server."""
    step, solver = method.step, method.solver
    for name in ("only_mean", "memory"):
        if not hasattr(step, name):
            raise MusterError(
                f"method step: {type(step).__name__} has no {name}; let the class inherit from "
                "muster.parts.Step, which has what a step does not say itself"
            )
    kept = named_by(step, "keeps")
    # Of a step that neither says what it keeps nor inherits from ours, nothing is known.
    known = hasattr(step, "keeps") or Step in type(step).__mro__
    for role in ("solver", "weigh", "effort") if known else ():
        part = getattr(method, role)
        for what in set(getattr(part, "needs", ())) - kept:
            able = " or ".join(n for n, s in kinds(Step).items() if what in getattr(s, "keeps", ()))
            raise MusterError(
                f"method {role}: {type(part).__name__} goes by the server's '{what}', which the "
                f"step {type(step).__name__} does not keep; give step = {able} with it"
            )
    for what in named_by(step, "takes") - set(solver.sends):
        able = " or ".join(n for n, s in kinds(Solver).items() if what in getattr(s, "sends", ()))
        raise MusterError(
            f"method step: {type(step).__name__} needs each client's '{what}', which the solver "
            f"{type(solver).__name__} does not send; give solver = {able} with it"
        )


def named_by(step: Step, what: str) -> set[str]:
    """The names that a step `keeps` or `takes`, with those of the step it passes replies to."""
    then = getattr(step, "then", None)
    return set(getattr(step, what, ())) | (set() if then is None else named_by(then, what))


def invited(m: int | None) -> Invite:
    """m clients a round uniformly, or everyone."""
    return Full() if m is None else Sample(m)


@part(Method, "fedalign")
def fedalign(
    epsilon: float | Schedule = 0.2,
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
            or a schedule over rounds (muster.schedules)
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
        epsilon=as_schedule(epsilon, "epsilon"),
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
        invite=invited(m),
        weigh=Claimed(),
        step=Adaptive(server_lr, epsilon),
        claim=Appeal(),
        tune_steps=tune_steps,
        trust=as_audit(trust),
    )


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
    w_k <- w_k - lr (g - c_k + c); sampled clients count alike.

    Args:
        server_lr: the server's step along the clients' mean change
        m: clients asked each round, drawn uniformly; None: everyone
    """
    return Method(
        "scaffold",
        invite=invited(m),
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
    clients count alike.

    Args:
        alpha: the size of the step after which the model is to be good, and is judged
        hessian_free: with the second-order term of the gradient, or without (first-order)
        delta: take that term from gradients this far apart, as printed; None: exactly
        m: clients asked each round, drawn uniformly; None: everyone
    """
    return Method(
        "perfedavg",
        invite=invited(m),
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
        invite=invited(m),
        solver=Moreau(lam, inner, personal_lr),
        weigh=Uniform(),
        step=Average(beta),
    )


@part(Method, "qffl")
def qffl(q: float = 1.0, m: int | None = None) -> Method:
    """q-FFL (q-FedAvg): Li et al. 2019, w' = w - sum F_k^q G_k / sum h_k, G_k = (w - w_k)/lr,
    h_k = q F_k^(q-1) |G_k|^2 + F_k^q / lr; sampled clients count alike but for their loss.

    Args:
        q: how much more a client of high loss counts; 0 is FedAvg with clients alike
        m: clients asked each round, drawn uniformly; None: everyone
    """
    check_at_least("q", q)
    return Method("qffl", invite=invited(m), weigh=LossPower(q), step=QFair(q), losses=True)


@part(Method, "afl")
def afl(rate: float = 0.1, m: int | None = None) -> Method:
    """AFL: Mohri et al. 2019, minimises the worst mixture of clients: w' = sum lambda_k w_k, then
    lambda' = Proj_simplex(lambda + rate F).

    Args:
        rate: step size of the mixture lambda towards the clients worst off
        m: clients asked each round, drawn uniformly; None: everyone
    """
    return Method("afl", invite=invited(m), weigh=Mixture(), step=Agnostic(rate), losses=True)


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
        invite=invited(m),
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
    return Method("ditto", invite=invited(m), solver=Ditto(lam))


@part(Method, "power_of_choice")
def power_of_choice(d: int = 20, m: int = 10) -> Method:
    """Power-of-Choice: Cho et al. 2020, FedAvg on the m clients of highest loss among d drawn by
    data share, counting alike.

    Args:
        d: candidates drawn by data share, who tell their loss
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
    return Method("fedavgm", invite=invited(m), step=Momentum(server_lr, beta))


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
    return Method("fedadam", invite=invited(m), step=step)


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
    return Method("fedyogi", invite=invited(m), step=step)


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
