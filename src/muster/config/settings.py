"""Settings: everything about an experiment that is not data, model, method or local work."""

from __future__ import annotations

import dataclasses
from typing import Literal

from ..base.checks import check_one_of, check_whole, require
from ..base.errors import MusterError
from ..base.rng import MOST, as_seeds
from ..engines.compute import Compute
from ..parts.participation import Participation
from ..parts.threats.attacks import Attack
from ..report.figure import parse_formats
from ..results.measures import find_measures
from ..run.job import DECIDE_ON, DecideOn
from ..tasks.base import Task
from ..tasks.classification import Multiclass


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything about an experiment that is not data, model, method or local work.

    Attributes:
        name: results go to OUT/NAME, numbered when that exists
        rounds: communication rounds
        seed: the seed of a single run
        seeds: the seeds of a comparison: a count, or a list
        dtype: float32 or float64
        engine: auto, stacked or loop
        device: cpu or cuda
        processes: cores to use; default: those this process may use
        participation: flexible: clients leave when the model fails their requirement
        attack: what some clients do instead of their part
        task: what the model is to be good at
        decide_on: the rows all decisions go by: train or held_out
        tuned_steps: measure the model after this many local steps of each client, too (0: do not)
        left_out: the share of all rows that no run trains or tests on, because settings were tuned
            by them: the same rows in every seed, by what is in them (`muster tune` sets it where it
            has to); 0: none
        tuned_on: seeds that settings were chosen on (`muster tune` writes them down): none of them
            can be reported
        trust: true: every method bounds and checks what clients outside the objective do; false:
            none does; default: fedalign and maxfl do where the configuration is that of a real
            federation, with a network or a list of clients
        evaluate_every: measure the model every n rounds (0: only after the last)
        checkpoint_every: save the state every n rounds
        report_at: rounds whose numbers a comparison prints; default: the last
        measures: what tables and the figure show (loss, fairness, ...); default: the usual
        panels: what the figure shows, by the names of measures; default: the measures
        figures: the formats the figure is written in: png, pdf, svg
        out: the folder all results go to
    """

    name: str = "run"
    rounds: int = 200
    seed: int = 0
    seeds: int | tuple[int, ...] = 5
    dtype: Literal["float32", "float64"] = "float32"
    engine: Literal["auto", "stacked", "loop"] = "auto"
    device: str = "cpu"
    processes: int | None = None
    participation: Participation | None = None
    attack: Attack | None = None
    task: Task = Multiclass()
    decide_on: DecideOn = "train"
    tuned_steps: int = 0
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
        check_whole("rounds", self.rounds)
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
        assert self.compute  # made, and so checked
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
        """On what the clients' work is run."""
        return Compute(self.engine, self.device, self.dtype, self.processes)

    @property
    def shown_in_figure(self) -> str | tuple[str, ...]:
        """The panels asked for, or else the measures."""
        return self.panels or self.measures

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds of a comparison."""
        return as_seeds(self.seeds)
