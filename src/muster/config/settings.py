"""Settings of an experiment other than data, model, method and local work."""

from __future__ import annotations

import dataclasses
from typing import Literal

from ..base.checks import check_one_of, check_whole, require
from ..base.errors import MusterError
from ..base.rng import MOST, as_seeds
from ..engines.compute import Compute
from ..parts.participation import Participation
from ..parts.threats.adversary import Attack
from ..privacy.gaussian import Privacy
from ..report.figure import parse_formats
from ..results.measures import find_measures
from ..run.job import DECIDE_ON, MOST_ROUNDS, DecideOn
from ..tasks.classification import Multiclass
from ..tasks.task import Task


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of an experiment other than data, model, method and local work.

    Attributes:
        name: name of the results, which go to OUT/NAME; numbered when that exists
        rounds: number of communication rounds
        seed: seed of a single run
        seeds: seeds of a comparison: a number of seeds, or a list
        dtype: float32 or float64
        engine: auto, stacked or loop; spread: over all processes that torchrun started
        device: cpu or cuda
        processes: number of cores to use; default: those this process may use
        participation: flexible: clients leave when the model fails their requirement
        attack: attack that some clients carry out
        task: task of the model, which has its loss and scores
        decide_on: split used for join, admit and leave decisions: train or held_out
        tuned_steps: number of local steps of each client after which the model is evaluated as well
            (0: none)
        privacy: differential privacy of what runs release (docs/privacy.md)
        left_out: fraction of rows reserved for tuning; chosen by content hash, so the same in every
            seed (set by `muster tune` where needed); 0: none
        tuned_on: seeds that settings were tuned on (written by `muster tune`): they cannot be
            reported
        trust: true: every method bounds and checks clients outside the objective; false: none does;
            default: fedalign and maxfl do in a real federation, with a network or a list of clients
        evaluate_every: evaluate the model every n rounds (0: only after the last)
        checkpoint_every: save the state every n rounds
        report_at: rounds whose numbers a comparison prints; default: the last
        measures: measures of tables and figure (loss, fairness, ...); default: the usual
        panels: measures of the figure; default: the measures
        figures: formats of the figure: png, pdf, svg
        out: folder of all results
    """

    name: str = "run"
    rounds: int = 200
    seed: int = 0
    seeds: int | tuple[int, ...] = 5
    dtype: Literal["float32", "float64"] = "float32"
    engine: Literal["auto", "stacked", "loop", "spread"] = "auto"
    device: str = "cpu"
    processes: int | None = None
    participation: Participation | None = None
    attack: Attack | None = None
    task: Task = Multiclass()
    decide_on: DecideOn = "train"
    tuned_steps: int = 0
    privacy: Privacy | None = None
    left_out: float = 0.0
    tuned_on: tuple[int, ...] = ()
    trust: bool | None = None
    evaluate_every: int = 1
    checkpoint_every: int = 50
    report_at: tuple[int, ...] = ()
    measures: str | tuple[str, ...] = ()
    panels: str | tuple[str, ...] = ()
    figures: str | tuple[str, ...] = ("png",)
    out: str = "runs"

    def __post_init__(self) -> None:
        check_whole("rounds", self.rounds, 1, MOST_ROUNDS)
        check_whole("seed", self.seed, 0, MOST)
        as_seeds(self.seeds)
        check_whole("tuned_steps", self.tuned_steps, 0)
        require(0 <= self.left_out < 1, "left_out", self.left_out, "from 0 to below 1")
        for seed in self.tuned_on:
            if seed in (self.seed, *self.all_seeds):
                raise MusterError(
                    f"seeds: {seed} is one that settings were tuned on ({list(self.tuned_on)}); "
                    "report others"
                )
        check_one_of("decide_on", self.decide_on, DECIDE_ON)
        assert self.compute  # built, and so checked
        for at in self.report_at:
            check_whole("report_at", at, 1, self.rounds)
        if self.measures:
            find_measures(self.measures)
        if self.panels:
            find_measures(self.panels, "panel")
        parse_formats(self.figures)
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise MusterError(f"name: '{self.name}'; give a plain folder name")

    @property
    def compute(self) -> Compute:
        """The engine, device, dtype and number of processes."""
        return Compute(self.engine, self.device, self.dtype, self.processes)

    @property
    def shown_in_figure(self) -> str | tuple[str, ...]:
        """The panels, or else the measures."""
        return self.panels or self.measures

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds of a comparison."""
        return as_seeds(self.seeds)
