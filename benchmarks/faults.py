"""The cost of faults, for docs/trust.md: every fault by the place where clients run.

Run by `python benchmarks/trust.py`; results go to docs/faults.parquet. The places are the two
engines of a simulation and a grid of Flower's in this process, with a server's checks of replies
from a network. Of every run every fifth reply breaks, the priority clients' included. Without a
fault the three places give the same model, and a fault of the model itself hits the same
replies everywhere; what only a network can do to a reply is done on the grid.
"""

from __future__ import annotations

import tempfile
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

import muster
from muster.config.experiment import Experiment, load
from muster.config.network import members_of
from muster.flower.server.app import federate
from muster.flower.testing.faults import AGAIN, TWICE, WIRE, FaultyGrid
from muster.flower.testing.in_process import write_sites
from muster.papers.trust_study import format_interval, points
from muster.parts.threats.faults import FAULTS, Faults
from muster.results.run import NoQuorum

CLIENTS, PRIORITY, ROUNDS, RATE, SEEDS = 10, 5, 15, 0.2, 3
PARTITION = {"kind": "dirichlet", "alpha": 1.0}
MOST_STOPS = 20  # how often a run that stopped for want of a quorum is continued
GRID = "grid"
PLACES = ("stacked", "loop", GRID)
RULES = {"fedalign, trust": True, "fedalign": False}
# Of what the engines have, too, under other names: once.
ALONE = tuple(name for name in WIRE if name not in ("nan", "inf", "huge weights"))
ONLY_GRID = (*ALONE, AGAIN, TWICE)
SHOWN = (
    "killed mid-round",
    "too late",
    AGAIN,
    TWICE,
)  # on every seed; those always refused: on one
NONE = "none"
KEYS = ("rule", "fault", "place", "seed")


@dataclass(frozen=True)
class Case:
    """One run."""

    rule: str
    fault: str
    place: str
    seed: int


def list_places(fault: str) -> tuple[str, ...]:
    """Return the places where a fault can happen."""
    return (GRID,) if fault in ONLY_GRID else PLACES


def cases() -> list[Case]:
    """Every run: each fault wherever it can happen, the most informative first."""
    made = [
        Case(rule, fault, place, seed)
        for rule in RULES
        for fault in (NONE, *FAULTS, *ONLY_GRID)
        if fault not in ONLY_GRID or RULES[rule]  # refused before either rule sees it
        for place in list_places(fault)
        for seed in range(SEEDS)
    ]
    every = {NONE, *FAULTS, *SHOWN}
    return sorted(
        (case for case in made if case.seed == 0 or case.fault in every),
        key=lambda case: (not RULES[case.rule], case.seed),
    )


def chosen_for(rule: str, seed: int) -> Experiment:
    return load(
        {
            "rounds": ROUNDS,
            "seed": seed,
            "evaluate_every": 0,
            "data": {
                "name": "digits",
                "clients": CLIENTS,
                "priority": PRIORITY,
                "partition": PARTITION,
            },
            "method": {"name": "fedalign", "epsilon": 0.5},
            "local": {"steps": 5, "batch_size": 32, "lr": 0.2},
            "network": {"timeout": 0.2, "enrolment_timeout": 1.0},
            "trust": RULES[rule],
        }
    )


def run_simulation(case: Case) -> muster.Run:
    chosen = chosen_for(case.rule, case.seed)
    attack = None if case.fault == NONE else Faults(rate=RATE, kinds=(case.fault,))
    return muster.simulate(
        chosen.federation(case.seed),
        chosen.job.method,
        chosen.spec,
        ROUNDS,
        chosen.local,
        case.seed,
        attack=attack,
        evaluate_every=0,
        engine=case.place,
        processes=1,
    )


def run_federation(case: Case) -> tuple[muster.Run, int]:
    """The run, and how often it stopped and was continued."""
    chosen = chosen_for(case.rule, case.seed)
    fed = chosen.federation(case.seed)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sites = write_sites(fed, folder)
        grid = FaultyGrid(sites, case.fault, 0.0 if case.fault == NONE else RATE, ROUNDS)
        members = members_of(fed, [site.key.decode() for site in sites])
        here = replace(chosen, members=members, network=replace(chosen.network, classes=10))
        for stops in range(MOST_STOPS + 1):
            try:
                return federate(grid, here, folder / "run", lambda line: None), stops
            except NoQuorum:
                if stops == MOST_STOPS:
                    raise
    raise AssertionError


def row(case: Case) -> dict[str, Any]:
    """Run a case and return its row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", muster.MusterWarning)  # far-off losses: that is the fault
        run, stops = run_federation(case) if case.place == GRID else (run_simulation(case), 0)
    return {
        **{key: getattr(case, key) for key in KEYS},
        "accuracy": run.rounds["test_accuracy"][-1],
        "refused": int(run.rounds["refused"].sum()),
        "failed": int(run.rounds["failed"].sum()),
        "asked": int(run.rounds["asked"].sum()),
        "skipped": int(run.rounds["skipped"].sum()),
        "stops": stops,
    }


def cell(frame: pl.DataFrame, rule: str, fault: str, place: str) -> str:
    """Points lost, and the fate of replies and rounds; empty where it was not run."""
    mine = frame.filter(rule=rule, fault=fault, place=place)
    if not len(mine):
        return "" if place in list_places(fault) else "–"
    plain = frame.filter(rule=rule, fault=NONE, place=place).select("seed", clean="accuracy")
    both = mine.join(plain, on="seed")
    lost = points(both["clean"] - both["accuracy"])
    left = 100 * (mine["refused"] + mine["failed"]).sum() / mine["asked"].sum()
    more = [f", {count} {what}" for what in ("skipped", "stops") if (count := mine[what].sum())]
    return f"{format_interval(lost)} ({left:.0f} %{''.join(more)})"


def table(frame: pl.DataFrame) -> str:
    """A table for each rule: faults down, places across."""
    lines: list[str] = []
    for rule in RULES:
        mine = frame.filter(rule=rule)
        plain = mine.filter(fault=NONE)
        if not len(plain):
            continue
        here = [p for p in PLACES if len(plain.filter(place=p))]
        clean = [format_interval(points(plain.filter(place=p)["accuracy"])) for p in here]
        lines += ["", f"### {rule}", "", f"| fault | {' | '.join(here)} |"]
        lines += ["|---" * (len(here) + 1) + "|", f"| accuracy without | {' | '.join(clean)} |"]
        for fault in dict.fromkeys(mine.filter(pl.col("fault") != NONE)["fault"].to_list()):
            cells = [cell(frame, rule, fault, place) for place in here]
            lines.append(f"| {fault} | {' | '.join(cells)} |")
    return "\n".join(lines).strip()
