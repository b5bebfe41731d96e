"""An experiment at work: from a checked configuration to runs, without a command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ..errors import MusterError
from ..federation import Federation
from ..parts.suited import suited
from ..run.foreseen import foreseen
from ..run.measures import MEASURES, named
from ..run.result import OnRound
from ..run.simulate import check
from ..study.compare import CHECKED, SIMULATE, OnStart, compare
from ..study.comparison import Comparison
from .experiments import Experiment
from .settings import Settings


def how(settings: Settings) -> dict[str, Any]:
    """The settings that `simulate` takes."""
    names = {field.name for field in fields(settings)} & set(SIMULATE) - {"rounds", "seed"}
    return {"compute": settings.compute, **{name: getattr(settings, name) for name in names}}


def check_all(chosen: Experiment, fed: Federation, seed: int, solo: bool = False) -> None:
    """Find a bad setting of any method before anything is written, and a measure asked for that
    none of them will take.

    solo  whether clients will have trained models of their own, which this federation has not
    """
    s = chosen.settings
    settings = {name: value for name, value in how(s).items() if name in CHECKED}
    taken: set[str] = set()
    for label in chosen.methods:
        method, spec = chosen.method(label), chosen.spec()
        module = check(fed, method, spec, s.rounds, chosen.local_of(label), seed, **settings)
        suits, task = suited(fed, s.task)
        taken |= foreseen(suits, method, module, task, s.tuned_steps, solo)
    for kind, names in (("measure", s.measures), ("panel", s.panels)):
        for measure in named(names, kind) if names else ():
            if measure.name not in taken and measure.otherwise not in taken:
                raise MusterError(
                    f"{kind} '{measure.name}': no method takes it here ({measure.title}); it needs "
                    f"other data, [requirement], tuned_steps or another task. Taken are "
                    f"{', '.join(n for n, m in MEASURES.items() if n in taken and m.of)}"
                )


def compared(
    chosen: Experiment,
    folder: Path | None,
    data: Callable[[int], Federation] | None = None,
    only: Iterable[int] | None = None,
    on_start: OnStart | None = None,
    on_round: OnRound | None = None,
) -> Comparison:
    """Every method of a configuration on its seeds: see `muster.compare`.

    data  the federation of a seed, where that is not simply the configuration's
    """
    s = chosen.settings
    return compare(
        data or chosen.federation,
        {label: chosen.method(label) for label in chosen.methods},
        chosen.spec(),
        s.rounds,
        {label: chosen.local_of(label) for label in chosen.methods},
        s.all_seeds,
        only=only,
        report_at=s.report_at,
        measures=s.measures,
        panels=s.panels,
        folder=folder,
        config=chosen.resolved(),
        on_start=on_start,
        on_round=on_round,
        **how(s),
    )


def without_solo(chosen: Experiment) -> Experiment:
    """The same with some requirement in place of those that clients would have to train for: all
    that is needed to find bad settings."""
    asks = chosen.requirement is not None
    return replace(chosen, requirement=1.0) if asks else chosen
