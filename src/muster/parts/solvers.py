"""Solvers: a client's local training, written over a leading client axis.

A solver never loops over clients or batches. It asks the `Cohort` it is given (the clients at
work this round, however the engine runs them) to descend, or hands it its own direction. It
gives the direction; the optimizer of the local work (`optimizers`) takes the step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from ..base import params
from ..base.arrays import Int64
from ..base.checks import check_above, check_at_least, check_whole
from ..base.lazy import torch
from ..base.params import Params, State
from ..base.registry import part
from ..protocol import Offer


class Gradient(Protocol):
    """Each client's gradient of its mean loss on one batch."""

    def __call__(self, w: Params) -> Params:
        """Return the gradient at w."""
        ...

    def hessian(self, w: Params, v: Params) -> Params:
        """Return the Hessian at w times v, exactly: one more derivative, no matrix."""
        ...


@dataclass(frozen=True)
class Work:
    """The result of a solver: the trained stack, the clients' new state, and what else they
    send."""

    models: Params
    memory: State = field(default_factory=dict)
    extra: State = field(default_factory=dict)


class Cohort(Protocol):
    """Some clients at work: their batches, over a leading client axis.

    Attributes:
        steps: the number of local steps of each
    """

    steps: Int64

    @property
    def plain_rate(self) -> float | None:
        """The lr of a round in which every step is `w <- w - lr d` with the same lr: then
        `(w - w_k) / (steps lr)` is the mean direction. None in any other round."""
        ...

    def descend(
        self,
        stack: Params,
        pull: float = 0.0,
        anchor: Params | None = None,
        correction: Params | None = None,
    ) -> Params:
        """Take all local steps along `g + pull (w - anchor) + correction`, as the optimizer takes
        them: by plain SGD, `w <- w - lr (g + pull (w - anchor) + correction)`.

        `anchor` and `correction` may be one model or a stack. Takes `stack` over.
        """
        ...

    def iterate(
        self, stack: Params, update: Callable[[Params, Sequence[Gradient]], Params]
    ) -> Params:
        """Take all local steps along a direction computed by `update`: by plain
        SGD, `w <- w - lr update(w, grads)`, where `grads[i](v)` is each client's gradient at v on
        the i-th of the step's batches (as many as the solver draws). Takes `stack` over."""
        ...


class Solver(Protocol):
    """A client's local training, written over a leading client axis.

    Write one by inheriting from this class; only `__call__` has no default. A solver that descends
    more than once a round has a field `descents`, so that an optimizer's state is kept for each.
    """

    @property
    def draws(self) -> int:
        """The number of batches that a step uses."""
        return 1

    @property
    def needs(self) -> tuple[str, ...]:
        """The tables of the server's state that clients must be sent, as `offer.server`."""
        return ()

    @property
    def sends(self) -> tuple[str, ...]:
        """The tables that clients send next to their model (`Work.extra`), each in its shape."""
        return ()

    @property
    def adapts(self) -> float:
        """The size of the gradient step on all of its rows that a client takes from the model
        before it uses it; 0: it uses the model as it is."""
        return 0.0

    @property
    def single_gradient(self) -> bool:
        """True if it takes one gradient of each batch and nothing else of clients' rows: then it
        can train where rows are protected. Engines make sure that it takes no more."""
        return False

    @property
    def joint(self) -> bool:
        """True if a client's state must agree with the server's: then a new state counts only when
        the client's reply was admitted."""
        return False

    def memory(self, model: Params) -> State:
        """Return a client's state before its first round: tables of tensors by name, or `{}`.

        Args:
            model: the run's first model, by parameter name
        """
        return {}

    @abstractmethod
    def __call__(self, cohort: Cohort, offer: Offer, memory: State) -> Work:
        """Train some clients.

        Args:
            cohort: the clients at work: `cohort.descend(stack, ...)` or `cohort.iterate(stack,
                update)` takes all local steps, `cohort.steps` is the number of steps of each
            offer: what the server sent: `model` (by parameter name), `trainable` (the names that
                move by gradient; the rest are statistics), `server` (the tables of `needs`), `lr`,
                `round`, `rounds`, `seed`
            memory: the clients' states, each table a stack `[client, *shape]`

        Returns:
            `Work(models, memory, extra)`: the trained stack, the clients' next states, and the
            tables of `sends`
        """
        ...


@part(Solver, "sgd")
@dataclass(frozen=True)
class SGD(Solver):
    """Minibatch SGD from the broadcast model; with `prox` > 0, FedProx:

    `w_k <- w_k - lr (g_k(w_k) + prox (w_k - w))`  (Li et al. 2018).
    """

    prox: float = 0.0
    single_gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_at_least("prox", self.prox)

    def __call__(self, cohort: Cohort, offer: Offer, memory: State) -> Work:
        start = params.expand(offer.model, len(cohort.steps))
        return Work(cohort.descend(start, pull=self.prox, anchor=offer.model))


@part(Solver, "solo")
@dataclass(frozen=True)
class Solo(Solver):
    """Each client continues to train its own model, which nobody else sees."""

    def memory(self, model: Params) -> State:
        return {"own": model}

    def __call__(self, cohort: Cohort, offer: Offer, memory: State) -> Work:
        own = cohort.descend(params.copy(memory["own"]))
        return Work(own, {"own": own})


@part(Solver, "control_variates")
@dataclass(frozen=True)
class ControlVariates(Solver):
    """SCAFFOLD's client (Karimireddy et al. 2020, option II):

    `w_k <- w_k - lr (g_k(w_k) - c_k + c)`, then `c_k'` is the mean of the gradients `g_k` of its
    steps. By plain SGD at one learning rate that is the paper's `c_k - c + (w - w_k) / (steps lr)`,
    and computed so; momentum, Adam, weight decay, clipping or a rate that changes from step to
    step change what `w - w_k` is, so there the gradients themselves are averaged.
    """

    needs: ClassVar[tuple[str, ...]] = ("control",)
    sends: ClassVar[tuple[str, ...]] = ("change",)
    joint: ClassVar[bool] = True
    single_gradient: ClassVar[bool] = True

    def memory(self, model: Params) -> State:
        return {"control": {n: torch.zeros_like(t) for n, t in model.items()}}

    def __call__(self, cohort: Cohort, offer: Offer, memory: State) -> Work:
        c, own = offer.server["control"], memory["control"]
        start = params.expand(offer.model, len(cohort.steps))
        correction = {n: c[n] - own[n] for n in own}
        steps, rate = torch.from_numpy(cohort.steps), cohort.plain_rate
        change: Params = {}
        total: Params = {}
        if rate:
            trained = cohort.descend(start, correction=correction)
        else:
            trained, total = self.descend_and_sum(cohort, start, correction)
        taken = steps.double() * rate if rate else steps
        for n, t in own.items():
            taken = taken.to(t)  # a copy to the device for the first of them
            if n not in offer.trainable:  # statistics (BatchNorm's) move by no gradient
                change[n] = torch.zeros_like(t)
            elif rate:
                change[n] = (offer.model[n] - trained[n]) / params.broadcast_clients(taken, t) - c[
                    n
                ]
            else:
                change[n] = total[n] / params.broadcast_clients(taken, t) - t
            if not bool(steps.all()):  # who takes no step learns nothing of its gradient
                change[n][(steps == 0).to(t.device)] = 0.0
        return Work(trained, {"control": {n: own[n] + change[n] for n in own}}, {"change": change})

    def descend_and_sum(
        self, cohort: Cohort, start: Params, correction: Params
    ) -> tuple[Params, Params]:
        """Return the trained stack, and the sum of the gradients on the way."""
        total = {n: torch.zeros_like(t) for n, t in start.items()}

        def update(w: Params, grads: Sequence[Gradient]) -> Params:
            g = grads[0](w)
            for n, t in g.items():
                total[n][: len(t)] += t  # clients with fewer steps drop off the end
            return {n: t + correction[n][: len(t)] for n, t in g.items()}

        return cohort.iterate(start, update), total


@part(Solver, "meta_gradient")
@dataclass(frozen=True)
class MetaGradient(Solver):
    """Per-FedAvg's client (Fallah et al. 2020), on batches D, D' (and D'' for the Hessian):

    `v = g(w - alpha g(w; D); D')`;  first-order  `w <- w - lr v`
    Hessian-free  `w <- w - lr (v - alpha H(w; D'') v)`

    with the product `H v` taken exactly. The paper prints it as a difference,
    `(g(w + delta v; D'') - g(w - delta v; D'')) / (2 delta)`, which `delta` brings back; where the
    model has kinks (ReLU) between the two points it can be far off.
    """

    alpha: float = 0.01
    hessian_free: bool = False
    delta: float | None = None

    def __post_init__(self) -> None:
        check_at_least("alpha", self.alpha)
        if self.delta is not None:
            check_above("delta", self.delta)

    @property
    def draws(self) -> int:
        return 3 if self.hessian_free else 2

    @property
    def adapts(self) -> float:
        return self.alpha

    def __call__(self, cohort: Cohort, offer: Offer, memory: State) -> Work:
        def update(w: Params, grads: Sequence[Gradient]) -> Params:
            first = grads[0](w)
            v = grads[1]({n: t - self.alpha * first[n] for n, t in w.items()})
            if not self.hessian_free:
                return v
            curved = self.product(grads[2], w, v)
            return {n: v[n] - self.alpha * curved[n] for n in v}

        return Work(cohort.iterate(params.expand(offer.model, len(cohort.steps)), update))

    def product(self, gradient: Gradient, w: Params, v: Params) -> Params:
        """Return `H(w) v`, exactly or as the paper's difference."""
        if self.delta is None:
            return gradient.hessian(w, v)
        up = gradient({n: t + self.delta * v[n] for n, t in w.items()})
        down = gradient({n: t - self.delta * v[n] for n, t in w.items()})
        return {n: (up[n] - down[n]) / (2 * self.delta) for n in v}


@part(Solver, "moreau")
@dataclass(frozen=True)
class Moreau(Solver):
    """pFedMe's client (Dinh et al. 2020): each step finds the personal model near w by `inner`
    gradient steps on `f(theta) + lam/2 |theta - w|^2`, then `w <- w - lr lam (w - theta)`."""

    lam: float = 15.0
    inner: int = 5
    personal_lr: float = 0.01

    def __post_init__(self) -> None:
        check_at_least("lam", self.lam)
        check_at_least("personal_lr", self.personal_lr)
        check_whole("inner", self.inner)

    def memory(self, model: Params) -> State:
        return {"own": model}

    def __call__(self, cohort: Cohort, offer: Offer, memory: State) -> Work:
        own = params.copy(memory["own"])

        def update(w: Params, grads: Sequence[Gradient]) -> Params:
            theta = w
            for _ in range(self.inner):
                g = grads[0](theta)
                # theta - personal_lr (g + lam (theta - w)), in the memory of theta - w
                theta = {
                    n: (t - w[n]).mul_(self.lam).add_(g[n]).mul_(-self.personal_lr).add_(t)
                    for n, t in theta.items()
                }
            for n, t in theta.items():
                own[n][: len(t)] = t
            return {n: self.lam * (t - theta[n]) for n, t in w.items()}

        start = params.expand(offer.model, len(cohort.steps))
        models = cohort.iterate(start, update)
        # Statistics (BatchNorm's) are not personal: they are those of the data seen while training.
        own |= {n: t.clone() for n, t in models.items() if n not in offer.trainable}
        return Work(models, {"own": own})


@part(Solver, "ditto")
@dataclass(frozen=True)
class Ditto(Solver):
    """Ditto's client (Li et al. 2021): FedAvg for the global model, and a personal model held near
    it, `v <- v - lr (g(v) + lam (v - w))`, on the same batches."""

    lam: float = 1.0
    descents: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_at_least("lam", self.lam)

    def memory(self, model: Params) -> State:
        return {"own": model}

    def __call__(self, cohort: Cohort, offer: Offer, memory: State) -> Work:
        trained = cohort.descend(params.expand(offer.model, len(cohort.steps)))
        own = cohort.descend(params.copy(memory["own"]), pull=self.lam, anchor=offer.model)
        return Work(trained, {"own": own})
