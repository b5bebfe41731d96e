"""Method: a federated learning method as a composition of parts, one for each decision of a round.

The methods by name (`fedalign`, `maxfl`, ...) are in `methods`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .base.checks import check_one_of, check_whole, is_number
from .base.errors import MusterError
from .base.registry import kinds
from .parts.admit import Admit, Everyone
from .parts.claim import Claim, Nothing
from .parts.defences.trust import Audit
from .parts.effort import AsAsked, Effort
from .parts.invite import Full, Invite
from .parts.join import Always, Join
from .parts.solvers import (
    SGD,
    Solver,
)
from .parts.step import (
    Average,
    Step,
)
from .parts.weigh import DataShare, Weigh
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
        check_compatible(self)

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
    def folds(self) -> int:
        """Folds of their rows that clients of the objective train on; 0: on all rows at once."""
        return int(getattr(self.claim, "folds", 0))

    @property
    def claims(self) -> bool:
        """True if clients send a claim with their reply."""
        return self.claim.needs_requirement or self.folds > 0

    @property
    def appraises(self) -> bool:
        """Whether asked clients must measure the model on their data."""
        return self.reports or self.claim.needs_requirement


def check_compatible(method: Method) -> None:
    """Refuse parts that count on each other and are not both there: SCAFFOLD's clients and its
    server, AFL's weights and its server, MW-Fed's effort and its server."""
    step, solver = method.step, method.solver
    if getattr(method.weigh, "needs_spread", False) and not method.folds:
        raise MusterError(
            f"method weigh: {type(method.weigh).__name__} needs each client's spread; use "
            'claim = "spread"'
        )
    for name in ("only_mean", "memory"):
        if not hasattr(step, name):
            raise MusterError(
                f"method step: {type(step).__name__} has no {name}; let the class inherit from "
                "muster.parts.Step, which has what a step does not say itself"
            )
    kept = collect_names(step, "keeps")
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
    for what in collect_names(step, "takes") - set(solver.sends):
        able = " or ".join(n for n, s in kinds(Solver).items() if what in getattr(s, "sends", ()))
        raise MusterError(
            f"method step: {type(step).__name__} needs each client's '{what}', which the solver "
            f"{type(solver).__name__} does not send; give solver = {able} with it"
        )


def collect_names(step: Step, what: str) -> set[str]:
    """The names that a step `keeps` or `takes`, with those of the step it passes replies to."""
    then = getattr(step, "then", None)
    return set(getattr(step, what, ())) | (set() if then is None else collect_names(then, what))
