"""Advice to the clients of a real federation, from what their nodes may tell.

The trainings are those of a simulated advice, each a run of its own over the network, with the same
terms but for the method and the seed; nodes have agreed to all of them. Rows are divided at the
nodes, by the seed. After the last training each node is asked for the summary of its losses on rows
held out (`client.row_losses`), and verdicts follow by the rule of the simulated advice.

A run that is finished is not run again: advice that was interrupted resumes where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from ...base.errors import MusterError
from ...config.experiment import Experiment
from ...report.advice_content import Advice
from ...report.intervals import SampleMoments
from ...report.way_content import Outcomes
from ...results import store
from ...results.run import Run
from ...study.advice_plan import ALONE, Training, describe_cost, list_trainings
from ...study.advice_runs import conclude, describe_rows, record_training
from ...study.advice_store import get_training_folder, save_advice
from ...study.way_records import (
    LEAST_SEEDS,
    LEAST_UNITS,
    ClientSummary,
    WayRecord,
    WaySummary,
    average_scores,
    check_alone,
    has_row_losses,
    merge,
)
from ..terms import build_registry, shared_terms
from ..transport.requests import describe_error, exchange
from ..transport.wire import OFFER, REPORT
from .fit_columns import Say

ADVICE = "query.advice"
Federate = Callable[[Experiment, Path, Say], Run]
UNCAPPED = 1e12  # network.max_share: everybody's rows count in full, as in a simulated advice


def advise(
    grid: Grid, chosen: Experiment, folder: Path, federate: Federate, say: Say = print
) -> Advice:
    """Run every training of advice on the clients of a grid, and save the advice to a folder;
    resume one that was interrupted there.

    Args:
        federate: runs an experiment of one method on the grid, and saves it to a folder
    """
    check_advised(chosen)
    names = [member.name for member in chosen.members]
    network, rounds = chosen.network, chosen.settings.rounds
    trainings = list_trainings(names, network.advice_pairs)
    say(describe_cost(len(names), network.advice, rounds, network.advice_pairs))
    said: set[str] = set()

    def say_once(line: str) -> None:
        if line not in said and not line.startswith("round "):
            said.add(line)
            say(line)

    left = sum(
        not store.is_run(get_training_folder(folder, training.label, seed))
        for training in trainings
        for seed in range(network.advice)
    )
    started, done = time.monotonic(), 0
    records: list[dict[str, WayRecord]] = []
    kept: dict[str, list[Run]] = {}
    for seed in range(network.advice):
        ways: dict[str, list[WayRecord]] = {}
        for i, training in enumerate(trainings):
            place = get_training_folder(folder, training.label, seed)
            here = store.is_run(place)
            mine = get_experiment(chosen, training, seed)
            run = store.load(place) if here else federate(mine, place, say_once)
            record_training(ways, training, run)
            if len(training.priority) == len(names):
                kept.setdefault(training.way, []).append(run)
            if not here:
                done += 1
                minutes = (time.monotonic() - started) / done * (left - done) / 60
                at = f"seed {seed + 1}/{network.advice}, {i + 1}/{len(trainings)}"
                say(f"{at}: {training.label}; about {minutes:.0f} min left")
        records.append({way: merge(found) for way, found in ways.items()})
    clients = ask_summaries(grid, chosen, trainings, records)
    classes = network.classes if isinstance(network.classes, tuple) else ()
    found = conclude(
        clients,
        chosen.settings.name,
        network.advice,
        rounds,
        describe_rows(network.advice),
        classes if len(classes) == 2 else (),
        kept,
    )
    save_advice(found, folder)
    return found


def check_advised(chosen: Experiment) -> None:
    """Refuse advice that no network can give."""
    if chosen.network.advice < LEAST_SEEDS:
        raise MusterError(
            f"network.advice: {chosen.network.advice}; advice needs {LEAST_SEEDS} seeds"
        )
    if not has_row_losses(chosen.settings.task):
        raise MusterError(
            "task: its loss is not one of single rows, over which nodes average; ask for advice in "
            "a simulation"
        )


def get_experiment(chosen: Experiment, training: Training, seed: int) -> Experiment:
    """Return the experiment of one training: one method, on one seed, with its roles."""
    members = tuple(
        replace(
            member,
            priority=k in training.priority,
            importance=0.0,
            unseen=k not in training.some,
            rows=0,
        )
        for k, member in enumerate(chosen.members)
    )
    return replace(
        chosen,
        settings=replace(chosen.settings, seed=seed, evaluate_every=0),
        methods={training.label: chosen.methods[training.way]},
        members=members,
        network=replace(chosen.network, max_share=UNCAPPED),
    )


def ask_summaries(
    grid: Grid,
    chosen: Experiment,
    trainings: Sequence[Training],
    records: Sequence[Mapping[str, WayRecord]],
) -> list[ClientSummary]:
    """Ask every node for the summary of its losses."""
    registry, network = build_registry(chosen), chosen.network
    labels = [
        {training.ways[k]: training.label for training in trainings if k in training.ways}
        for k in range(len(chosen.members))
    ]
    terms = shared_terms(chosen)
    found: dict[int, Message] = {}
    why: dict[int, str] = {}
    for _ in range(1 + network.retries):
        nodes = registry.find_nodes(grid)[0]
        contents = {
            k: (node, ask(terms, list(labels[k].values())))
            for k, node in nodes.items()
            if k not in found
        }
        done = exchange(grid, contents, ADVICE, network.timeout, {})
        why |= {**done.missing, **done.refused}
        for k, reply in done.replies.items():
            if wrong := describe_error(reply):
                why[k] = wrong
            else:
                found[k] = reply
        if len(found) == len(labels):
            break
    clients = []
    for k, member in enumerate(chosen.members):
        if k not in found:
            raise MusterError(
                f"clients.{member.name}: {why.get(k, 'it is not connected')}; start its node, and "
                "continue the advice"
            )
        clients.append(read_summary(found[k], member.name, k, list(labels[k]), records))
    return clients


def ask(terms: str, labels: list[str]) -> RecordDict:
    """Return the request for the summary of these trainings."""
    return RecordDict({OFFER: ConfigRecord({"experiment": terms, "seed": 0, "labels": labels})})


def read_summary(
    message: Message,
    name: str,
    k: int,
    ways: Sequence[str],
    records: Sequence[Mapping[str, WayRecord]],
) -> ClientSummary:
    """Read the summary that a node sent, whatever that is; scores and bytes are of the runs."""
    try:
        report: dict[str, Any] = dict(message.content.config_records[REPORT])
        loss, gain, deviation = (
            np.array(report[key], np.float64) for key in ("loss", "gain", "deviation")
        )
        units, (train, test), counts = report["units"], report["rows"], report["counts"]
        whole = all(type(n) is int and n >= 0 for n in (units, train, test, *counts))
        sound = whole and loss.shape == gain.shape == deviation.shape == (len(ways),)
        sound = sound and len(counts) in (0, 4 * len(ways)) and type(report["thin"]) is bool
        sound = sound and not (deviation < 0).any() and units >= LEAST_UNITS
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise MusterError(f"clients.{name}: the summary of its losses is malformed")
    check_alone(np.full(units, loss[0]), name)
    found = {way: WaySummary(np.nan) for way in records[0]}  # some are not open to this client
    for i, way in enumerate(ways):
        known = np.isfinite([loss[i], gain[i], deviation[i]]).all() and way != ALONE
        counted = [int(n) for n in counts[4 * i : 4 * i + 4]]
        found[way] = WaySummary(
            float(loss[i]),
            SampleMoments(units, float(gain[i]), float(deviation[i])) if known else None,
            *average_scores([record[way] for record in records], way, k),
            Outcomes(counted[0], counted[1], counted[2], counted[3], ()) if counted else None,
        )
    return ClientSummary(name, found, int(train), int(test), report["thin"])
