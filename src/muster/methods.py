"""Methods: compositions of parts, five to fifteen lines each, and the registry of them.

A method says who is asked (invite), who trains (join), how (solver), whose reply is let in
(admit), how much it counts (weigh) and how the model moves (step). None is a subclass of another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .admit import Admit, Band, Everyone, Objective
from .errors import MusterError
from .invite import Full, Invite
from .join import Aligned, Always, Available, Criterion, Join, Straggling
from .schedules import Constant, Count, Schedule, as_schedule, count
from .solvers import SGD, Solo, Solver
from .step import Average, Stay, Step
from .weigh import DataShare, Weigh


@dataclass(frozen=True)
class Method:
    """A federated learning method as a composition of parts.

    epsilon    eps_t, broadcast in the offer for the rules that need it
    warmup     rounds (int) or fraction of rounds (float) in which only the objective's clients
               (the priority clients) are asked
    reference  on whom F(w) is measured: all priority clients (the paper), or only those asked,
               whose cost does not grow with the population
    serves     whose model is judged: the global one, or each client's own
    """

    name: str
    invite: Invite = Full()
    join: Join = Always()
    solver: Solver = SGD()
    admit: Admit = Everyone()
    weigh: Weigh = DataShare()
    step: Step = Average()
    epsilon: Schedule = Constant(float("nan"))
    warmup: Count = 0
    reference: Literal["all", "asked"] = "all"
    serves: Literal["global", "own"] = "global"

    def __post_init__(self) -> None:
        count(self.warmup, 100, "warmup")
        if self.reference not in ("all", "asked"):
            raise MusterError(f"reference: '{self.reference}'; allowed: all, asked")

    @property
    def appraises(self) -> bool:
        """Whether a rule needs the clients' appraisals and F(w)."""
        return self.join.appraises or self.admit.appraises


def fedavg(invite: Invite = Full()) -> Method:
    """FedAvg on every client ("All"): McMahan et al. 2017, w' = sum_k p_k w_k / sum_k p_k."""
    return Method("fedavg", invite=invite)


def fedavg_priority(invite: Invite = Full()) -> Method:
    """FedAvg on the priority clients only ("None"): w' = sum_P p_k w_k."""
    # A warm-up that never ends: nobody outside the objective is ever asked.
    return Method("fedavg_priority", invite=invite, admit=Objective(), warmup=1.0)


def fedprox(mu: float = 1.0, priority_only: bool = False, invite: Invite = Full()) -> Method:
    """FedAvg with a proximal term: Li et al. 2018, local gradient g + mu (w_k - w)."""
    return Method(
        "fedprox",
        invite=invite,
        solver=SGD(prox=mu),
        admit=Objective() if priority_only else Everyone(),
        warmup=1.0 if priority_only else 0,
    )


def fedalign(
    epsilon: float | Schedule = 0.2,
    criterion: Criterion = "loss",
    warmup: Count = 0.1,
    prox: float = 0.0,
    invite: Invite = Full(),
    availability: float = 1.0,
    straggler_period: int = 1,
    reference: Literal["all", "asked"] = "all",
) -> Method:
    """FedALIGN: Ravi & Shomorony, Algorithm 1; others count while |F_k(w) - F(w)| < eps_t."""
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
        epsilon=as_schedule(epsilon, "epsilon"),
        warmup=warmup,
        reference=reference,
    )


def local() -> Method:
    """Each client alone with its own model and data: what it has without the federation."""
    return Method("local", solver=Solo(), step=Stay(), serves="own")


METHODS: dict[str, Callable[..., Method]] = {
    "fedalign": fedalign,
    "fedavg": fedavg,
    "fedavg_priority": fedavg_priority,
    "fedprox": fedprox,
    "local": local,
}
