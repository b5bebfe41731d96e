"""Method: a federated learning method as a composition of parts, one for each decision of a round.

The methods by name (`fedalign`, `maxfl`, ...) are in `methods`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from .base.checks import check_one_of, check_whole, is_number
from .base.errors import MusterError
from .base.params import Params, group_by_layer
from .base.registry import check_part, kinds
from .parts.admit import Admit, Everyone, Objective
from .parts.claim import Claim, Nothing
from .parts.defences.trust import Audit
from .parts.effort import AsAsked, Effort
from .parts.invite import Full, Invite
from .parts.join import Always, Join
from .parts.sketch import LEAST, MOST, SKETCH
from .parts.solvers import (
    SGD,
    Solver,
)
from .parts.step import (
    Average,
    Step,
)
from .parts.tracks import GAIN, PRODUCT, SPREAD, VALIDATION, Deploy, Tracks, cut
from .parts.weigh import DataShare, Weigh
from .schedules import (
    AUTO,
    Constant,
    Count,
    Epsilon,
    Schedule,
    as_schedule,
    count_rounds,
    value_after,
)

Shapes = dict[str, tuple[int, ...]]  # of named arrays


@dataclass(frozen=True)
class Method:
    """A federated learning method as a composition of parts.

    Attributes:
        name: as reports print it
        invite: whom the server asks
        join: a client's decision to train
        solver: a client's local training
        admit: the server's rule for replies
        weigh: the weight of each reply
        step: the server's update
        claim: the number clients compute from private facts (MaxFL's q_k)
        effort: the number of local steps of each client
        losses: True if weigh or step use the clients' losses F_k(w)
        tune_steps: local steps a client takes before it measures the model for its claim
        epsilon: eps_t, sent in the offer for the rules that need it; "auto": chosen before the
            run by rows that are held out (`muster.run.auto_epsilon`)
        warmup: rounds (int) or fraction of rounds (float) in which only the objective's clients
            (the priority clients) are asked
        reference: the clients that measure F(w): all priority clients (the paper), or those asked,
            whose cost does not grow with the population
        serves: the model that is evaluated: the global one, or each client's own
        sketch: numbers that helpers send first, by which the server chooses whose model it needs
            (`parts.sketch`); 0: everyone sends its model
        deploy: the rule by which the model is deployed; None: always the one just trained
        trust: bounds and checks on clients outside the objective; None (the papers): every reply
            that is not malformed is accepted
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
    epsilon: Epsilon = Constant(float("nan"))
    warmup: Count = 0
    reference: Literal["all", "asked"] = "all"
    serves: Literal["global", "own"] = "global"
    sketch: int = 0
    deploy: Deploy | None = None
    trust: Audit | None = None

    def __post_init__(self) -> None:
        count_rounds(self.warmup, 100, "warmup")
        check_one_of("reference", self.reference, ("all", "asked"))
        check_one_of("serves", self.serves, ("global", "own"))
        check_whole("tune_steps", self.tune_steps, 0)
        if self.sketch:
            check_whole("sketch", self.sketch, LEAST, MOST)
        if is_number(self.epsilon) or (isinstance(self.epsilon, str) and self.epsilon != AUTO):
            object.__setattr__(self, "epsilon", as_schedule(self.epsilon, "epsilon"))
        check_compatible(self)

    def warmup_rounds(self, rounds: int) -> int:
        """Return the number of warm-up rounds, which ask only the objective's clients."""
        return count_rounds(self.warmup, rounds, "warmup")

    def eps(self, t: int, rounds: int) -> float:
        """Return eps_t of a run of this many rounds. A decay begins at the end of warm-up."""
        return value_after(self.schedule, self.warmup_rounds(rounds), t, rounds)

    @property
    def schedule(self) -> Schedule:
        """epsilon as a schedule; it may be given as a number."""
        assert isinstance(self.epsilon, Schedule), "it is chosen before the first round"
        return self.epsilon

    @property
    def refers(self) -> bool:
        """True if a rule needs F(w), the priority clients' loss of the model."""
        return self.join.appraises or self.admit.appraises

    @property
    def prefers(self) -> bool:
        """True if a rule treats priority clients unlike others, as far as its parts say so."""
        by_evidence = self.folds or self.held_out or self.tracks is not None
        return bool(self.refers or self.warmup or by_evidence or isinstance(self.admit, Objective))

    @property
    def reports(self) -> bool:
        """True if clients report their loss. A claim alone does not: from F_k and q_k together the
        server could compute rho_k."""
        return self.refers or self.losses

    @property
    def folds(self) -> int:
        """Folds of their rows that clients of the objective train on; 0: on all rows at once."""
        return int(getattr(self.claim, "folds", 0))

    @cached_property
    def tracks(self) -> Tracks | None:
        """The models that are trained side by side; None: there is one."""
        folds = int(getattr(self.weigh, "folds", 0))
        if self.deploy is None:
            return Tracks(folds) if folds else None
        return Tracks(folds or self.deploy.folds, alone=True)

    def product(self, model: Params) -> Params:
        """Return the model that is evaluated and deployed, of those trained side by side."""
        return model if self.tracks is None else cut(model, PRODUCT)

    def trainings(self, member: bool) -> int:
        """Return how often a client trains in a round: one of the objective, or a helper."""
        if self.tracks is None:
            return max(1, self.folds) if member else 1
        times, f = self.tracks.reply_count(member), self.tracks.folds
        if member:
            times += (f + 1) * (max(1, self.folds) - 1)  # Stein's halves, in each helped track
            times += f * self.validates
        return times

    def reply_shapes(
        self, model: Shapes, member: bool, trainable: tuple[str, ...]
    ) -> tuple[Shapes, dict[str, Shapes]]:
        """Return the shapes of the arrays in a reply: its model, and what is sent next to it, by
        part; of a client of the objective, or a helper.

        Args:
            model: shapes of the offer's model
            trainable: the offer's parameters that move by gradient
        """
        tracks, layers = self.tracks, len(group_by_layer(trainable))
        spread: dict[str, Shapes] = {}
        if member and self.folds and layers > 1:
            spread[SPREAD] = {"share": (layers,)}
        if self.sketch and not member:
            return {}, {SKETCH: {SKETCH: (self.sketch,)}}
        if tracks is None:
            return model, {**dict.fromkeys(self.solver.sends, model), **spread}
        sent = {name: (tracks.reply_count(member), *shape[1:]) for name, shape in model.items()}
        extra = {**dict.fromkeys(self.solver.sends, sent), **spread}
        if member and self.validates:
            extra[VALIDATION] = {name: (tracks.folds, *shape[1:]) for name, shape in model.items()}
        if member and self.deploy is not None:
            extra[GAIN] = {"loss": (len(self.deploy.points), 2)}
        return sent, extra

    @property
    def validates(self) -> bool:
        """True if the objective's clients also train on the fold that each track leaves out."""
        return bool(getattr(self.weigh, "folds", 0))

    @property
    def held_out(self) -> int:
        """Folds of the objective's rows, one of which nobody trains on and replies are judged by;
        0: none is held out."""
        return int(getattr(self.weigh, "hold_out", 0))

    @property
    def claims(self) -> bool:
        """True if clients send a claim with their reply."""
        return self.claim.needs_requirement or self.folds > 0

    @property
    def appraises(self) -> bool:
        """True if asked clients must measure the model on their data."""
        return self.reports or self.claim.needs_requirement


ROLES = {
    "invite": Invite,
    "join": Join,
    "solver": Solver,
    "admit": Admit,
    "weigh": Weigh,
    "step": Step,
    "claim": Claim,
    "effort": Effort,
}


def check_compatible(method: Method) -> None:
    """Refuse parts that lack an attribute, or need one another and are not both there: SCAFFOLD's
    clients and its server, AFL's weights and its server, MW-Fed's effort and its server."""
    for name, role in ROLES.items():
        check_part(role, getattr(method, name), f"method {name}")
    step, solver = method.step, method.solver
    if getattr(method.weigh, "needs_spread", False) and not method.folds:
        raise MusterError(
            f"method: weigh {type(method.weigh).__name__} needs each client's spread; use "
            'claim = "spread"'
        )
    if method.tracks is not None:
        check_tracks(method)
        if method.sketch:
            raise MusterError(
                "method: sketch: not with several models side by side; use sketch = 0"
            )
    if method.sketch and not (getattr(method.weigh, "needs_spread", False) and not solver.sends):
        raise MusterError(
            "method: sketch needs weights from distances alone, and a solver that sends its model "
            'alone; use weigh = "stein", or sketch = 0'
        )
    if method.held_out and (method.tracks or method.folds or method.trust):
        raise MusterError(
            f"method: weigh {type(method.weigh).__name__} judges replies by rows that it holds "
            'out; leave out claim = "spread", deploy and trust'
        )
    kept = collect_names(step, "keeps")
    # A step that neither has `keeps` nor inherits from Step may keep anything.
    known = hasattr(step, "keeps") or Step in type(step).__mro__
    for name in ("solver", "weigh", "effort") if known else ():
        part = getattr(method, name)
        for what in set(getattr(part, "needs", ())) - kept:
            raise MusterError(
                f"method: {name} {type(part).__name__} needs server state '{what}', but step "
                f"{type(step).__name__} does not keep it; use step = {_find(Step, 'keeps', what)}"
            )
    for what in collect_names(step, "takes") - set(solver.sends):
        raise MusterError(
            f"method: step {type(step).__name__} needs each client's '{what}', but solver "
            f"{type(solver).__name__} does not send it; use solver = "
            f"{_find(Solver, 'sends', what)}"
        )


def check_tracks(method: Method) -> None:
    """Refuse models side by side where clients keep models of their own, or where folds differ."""
    own = method.serves == "own" or "own" in method.solver.memory({})
    if own or method.solver.adapts:
        raise MusterError(
            f"method: {method.name} trains several models side by side, which solver "
            f"{type(method.solver).__name__} cannot: clients keep models of their own there; use "
            'solver = "sgd" or "control_variates"'
        )
    if method.deploy is not None and method.trust is not None:
        raise MusterError(
            "method: guard and trust check replies in different models; use one of both"
        )
    folds = int(getattr(method.weigh, "folds", 0))
    if method.deploy is not None and folds not in (0, method.deploy.folds):
        raise MusterError(
            f"method: weigh has {folds} folds and deploy {method.deploy.folds}; give both the same"
        )


def _find(role: Any, field: str, what: str) -> str:
    """Return the names of the registered parts whose `keeps` or `sends` includes this."""
    able = {name: getattr(kind, field, ()) for name, kind in kinds(role).items()}
    found = [name for name, names in able.items() if isinstance(names, tuple) and what in names]
    return " or ".join(f'"{name}"' for name in found) or f"one that {field} it"


def collect_names(step: Step, what: str) -> set[str]:
    """Return the names that a step `keeps` or `takes`, with those of the step after it (`then`)."""
    then = getattr(step, "then", None)
    return set(getattr(step, what, ())) | (set() if then is None else collect_names(then, what))
