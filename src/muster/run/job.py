"""The job: all settings that decide the numbers of a run, as one value.

A simulation, each run of a comparison, the server of a federation and the node of each of its
clients have the same `Job`. How it is computed (`Compute`) and how often it is evaluated and saved
(`Keep`) are separate.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from ..base.checks import check_one_of, check_whole
from ..base.errors import MusterError, command_line, plural
from ..base.lazy import nn
from ..base.params import Params, State
from ..base.registry import check_part
from ..base.rng import MOST
from ..engines.descent import initial_optimizer_state
from ..engines.row_release import refuse_module
from ..engines.row_results import Split
from ..federation import Federation
from ..federation.population import Population
from ..local import Local
from ..methods import Method
from ..models.specs import Spec, as_module
from ..parts.defences.trust import WITNESSES
from ..parts.guard import ReportLimits
from ..parts.participation import Participation
from ..parts.threats.adversary import Attack
from ..privacy.fixed_point import choose_scale
from ..privacy.gaussian import Gaussian
from ..privacy.refusals import check_private, check_private_data, find_privacy_warnings
from ..privacy.row_refusals import check_private_row_data, check_private_rows
from ..protocol import Offer
from ..tasks.classification import Multiclass
from ..tasks.compatibility import match_task
from ..tasks.task import Scoring, Task, as_task

MOST_ROUNDS = 10**6  # results with more are not read back
DecideOn = Literal["train", "held_out"]
DECIDE_ON = ("train", "held_out")


@dataclass(frozen=True)
class Job:
    """The settings of a run: method, model, local work and rounds.

    Attributes:
        model: any nn.Module (its parameters are the starting point) or one of muster.models
        local: the work of a client in a round
        participation: who is free to leave; None: everyone stays
        attack: what a seeded share of the clients does instead of its part
        task: what the model is to be good at: one of muster.tasks, or a function of outputs and
            targets that gives the loss of each row
        decide_on: split used for join, admit and leave decisions, claims and F(w): "train" or
            "held_out"
        tuned_steps: local steps after which clients measure the model once more; 0: none
        privacy: differential privacy of what the run releases; None: there is none
    """

    method: Method
    model: nn.Module | Spec
    local: Local = Local(steps=5, batch_size=32, lr=0.1)
    rounds: int = 200
    seed: int = 0
    participation: Participation | None = None
    attack: Attack | None = None
    task: Task = Multiclass()
    decide_on: DecideOn = "train"
    tuned_steps: int = 0
    privacy: Gaussian | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.method, Method):
            raise MusterError(
                f"method: {type(self.method).__name__}; give one of muster.methods, such as "
                "muster.methods.fedalign()"
            )
        for what, kind in (
            ("local", Local),
            ("participation", Participation | None),
            ("attack", Attack | None),
            ("privacy", Gaussian | None),
        ):
            if not isinstance(given := getattr(self, what), kind):
                if what == "participation" and callable(given):
                    check_part(Participation, given, what)
                if what == "attack" and hasattr(given, "fraction"):
                    check_part(Attack, given, what, "muster.parts.Honest")
                names = str(getattr(kind, "__name__", kind)).replace("muster.", "")
                raise MusterError(f"{what}: {type(given).__name__}; give a {names}")
        check_whole("rounds", self.rounds, 1, MOST_ROUNDS)
        check_whole("seed", self.seed, 0, MOST)
        check_whole("tuned_steps", self.tuned_steps, 0)
        check_one_of("decide_on", self.decide_on, DECIDE_ON)
        for name in ("rounds", "seed", "tuned_steps"):
            object.__setattr__(self, name, int(getattr(self, name)))
        object.__setattr__(self, "task", as_task(self.task))
        if self.privacy is not None and self.protects_rows:
            check_private_rows(
                self.privacy,
                self.method,
                self.local,
                self.participation,
                self.attack,
                self.tuned_steps,
            )
        elif self.privacy is not None:
            check_private(self.privacy, self.method, self.participation, self.attack, self.rounds)

    def with_seed(self, seed: int) -> Job:
        """Return the same job with another seed."""
        return replace(self, seed=seed)

    def check(self, fed: Federation) -> nn.Module:
        """Build the module to train, or raise an error for the first setting that does not fit this
        data, before anything is computed or written."""
        if not isinstance(fed, Federation):
            raise MusterError(f"fed: {type(fed).__name__}; give a Federation")
        if self.decide_on == "held_out" and fed.test is None:
            raise MusterError(
                "decide_on: 'held_out', and this data has no held-out rows; give every client "
                "some, or decide on 'train'"
            )
        if self.decide_on == "held_out" and fed.test is not None and not fed.test.sizes.all():
            who = fed.population.get_name(int(fed.test.sizes.argmin()))
            raise MusterError(
                f"decide_on: 'held_out', and client {who} has no held-out rows; give it some, or "
                "decide on 'train'"
            )
        if fed.requirement is None and self.needs_requirement:
            who = self.method.name if self.participation is None else "participation"
            raise MusterError(
                f"requirement: {who} needs each client's rho_k; give requirement.steps (each "
                "trains that long alone), requirement = 'alone' (as long as in this run) or a "
                "requirement for every client of your data, in Python muster.with_solo(fed, model, "
                "rounds)"
            )
        fed, task = match_task(fed, self.task)
        module = as_module(self.model, fed, self.seed, task)
        if self.protects_rows:
            check_private_row_data(fed)
            refuse_module(module, fed, task)
        elif self.privacy is not None:
            check_private_data(self.privacy, fed, module)
            choose_scale(fed.n, self.noise)
        return module

    @property
    def protects_rows(self) -> bool:
        """True if each row is protected where it is, by its client."""
        return self.privacy is not None and self.privacy.unit == "rows"

    @property
    def protects_clients(self) -> bool:
        """True if a round releases one noisy sum of clients' contributions."""
        return self.privacy is not None and self.privacy.unit == "clients"

    @property
    def hides_clients(self) -> bool:
        """True if the server sees a secure sum of all clients, and nothing of any one."""
        return self.privacy is not None and self.privacy.secure

    @property
    def needs_requirement(self) -> bool:
        """True if a run needs each client's requirement rho_k."""
        return self.method.claim.needs_requirement or self.participation is not None

    @cached_property
    def scoring(self) -> Scoring:
        """The scores of a model that are reported."""
        return Scoring(self.task)

    @cached_property
    def possible(self) -> ReportLimits:
        """Limits of plausible reports; where rows are protected, clients report no score."""
        limits = ReportLimits.of(self.task)
        return replace(limits, undefined=True) if self.protects_rows else limits

    @property
    def split(self) -> Split:
        """The split used for decisions."""
        return "test" if self.decide_on == "held_out" else "train"

    def may_leave(self, t: int) -> bool:
        """Return True if clients may leave in round t."""
        free = self.participation
        return free is not None and t >= free.starts(self.rounds)

    @cached_property
    def warmup(self) -> int:
        """The number of warm-up rounds, which ask only the objective's clients."""
        return self.method.warmup_rounds(self.rounds)

    def find_warnings(self, population: Population, remedy: str = "") -> list[str]:
        """Return a warning if nobody but priority clients takes part, in a method that is made for
        others' help, or if the whole run is warm-up, so that others are never asked; and those of
        its privacy.

        Args:
            remedy: where priority clients are named; default: in the settings of the data
        """
        found = []
        if self.privacy is not None and not self.protects_rows:
            found = find_privacy_warnings(self.privacy, population.n, self.noise)
        if not population.others.any():
            idle = self.method.prefers and len(population.participants) > 1
            return [*found, *([explain_no_others(population, remedy)] if idle else [])]
        if self.warmup < self.rounds or not self.method.refers:
            return found
        return [
            *found,
            f"all {plural(self.rounds, 'round')} are warm-up (warmup = {self.method.warmup}): no "
            "client outside the objective is ever asked; run longer, or with a shorter warm-up",
        ]

    def eps(self, t: int) -> float:
        """Return eps_t of this run."""
        return self.method.eps(t, self.rounds)

    def needs_witnesses(self, offer: Offer) -> bool:
        """Return True in warm-up with `trust`: there helpers train whatever their loss, so that
        their replies tell which priority clients lie."""
        enough = self.method.trust is not None and offer.population >= WITNESSES
        return enough and offer.round < self.warmup

    def get_privacy(self) -> Gaussian:
        """Return the privacy of a private run."""
        assert self.privacy is not None, "a private round is of a private run"
        return self.privacy

    @cached_property
    def noise(self) -> float:
        """z, the deviation of a private run's noise in units of the clip."""
        return self.get_privacy().multiplier(self.rounds, self.warmup)

    def scale(self, offer: Offer) -> int:
        """Return the whole number that stands for the clip in the sums of a private run."""
        privacy, clients = self.get_privacy(), max(1, offer.population)
        colluders = privacy.colluders if privacy.secure else 0
        return choose_scale(clients, self.noise, privacy.members, colluders)

    def noise_deviation(self, offer: Offer) -> int:
        """Return the deviation of the noise that the server, or each member of a committee, adds
        to the sums, in their whole numbers."""
        return math.ceil(self.get_privacy().noise_share(self.noise) * self.scale(offer))

    def count_numbers(self, model: Params) -> int:
        """Return how many numbers a contribution has: the model's, and one for F(w) where it is
        released with the sum."""
        slot = self.get_privacy().folded and self.method.refers
        return sum(t.numel() for t in model.values()) + int(slot)

    def memory(self, model: Params, trainable: tuple[str, ...]) -> State:
        """Return the state of a client before its first round: of its solver and its optimizer.

        Args:
            trainable: names of the parameters that move by gradient (the rest are statistics)
        """
        solver = self.method.solver
        descents = getattr(solver, "descents", 1)
        moving = {name: t for name, t in model.items() if name in trainable}
        state = solver.memory(model) | initial_optimizer_state(
            self.local.optimizer, descents, moving
        )
        tracks = self.method.tracks
        return state if tracks is None else {p: tracks.expand(t) for p, t in state.items()}

    @property
    def has_client_state(self) -> bool:
        """True if clients have state between rounds."""
        return bool(self.memory({}, ()))


def explain_no_others(population: Population, remedy: str = "") -> str:
    """Return the warning of a run in which every client is priority."""
    if not remedy and population.names is not None:
        first = json.dumps([str(population.names[population.participants[0]])], ensure_ascii=False)
        remedy = command_line("--data.priority", first)
    return (
        "every client is priority: there are no others whose help this method could take or "
        "leave, so that it trains on all clients, as FedAvg does; say whose model it is: "
        f"{remedy or 'data.priority'}"
    )
