"""The Flower server app: gather the registered clients, then run rounds as the simulator does.

Everything the server decides (whom to ask, whom to admit, how much each counts, how the model
moves, what is written down) is the code of the simulator, on clients that are across a network.
It holds no data. A run that is stopped, or whose server dies, goes on from its last checkpoint
when it is started again with the same folder.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from .. import __version__, params
from ..arrays import Int64
from ..config.experiments import Experiment
from ..config.network import Member, Network, counted_rows
from ..engines.batches import needs_two_rows, steps_of
from ..errors import MusterError, plural
from ..federation import Inputs, Population, Preparation, Scale, Space
from ..federation.inputs import REAL, WHOLE
from ..models import as_module
from ..params import dtype_of
from ..parts.scores import Score
from ..report.figure import figures
from ..run import store
from ..run.checkpoint import saved_identity
from ..run.clients import Terms
from ..run.conduct import Keep, beginning, conduct
from ..run.result import OnRound, Run
from ..run.round import Setup
from ..run.trained import Recipe
from ..schema import Table
from .agreed import shared_terms
from .appfolder import check, read_roster, registered
from .files import for_oneself
from .inbox import exchange
from .registry import Registry
from .remote import LOOK_EVERY, Remote, Say, nothing_counted
from .survey import FITTED, Fitted, as_text, lacking, of_text, survey
from .wire import OFFER, WORD, line

HELLO = "query.hello"
PREFIX = "muster| "  # before every line of ours in the stream of a run's log
ERROR = "error: "  # and before the reason why a run stops

# What a checkpoint says of who counts for how many rows, and of how features are made.
COUNTED, MADE_AS, MADE_BY = "rows", "features", "fitted"

MOST_FEATURES, MOST_CLASSES, MOST_AXES = 10**8, 10**6, 8  # of a row that a client may state

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the experiment that the app stands for, with the clients of its roster."""
    # Results hold weights, and what clients said.
    with for_oneself():
        try:
            chosen, place, inputs = read_roster(context.run_config)
            _run(grid, chosen, unfinished(place), inputs)
        except MusterError as error:
            log(f"{ERROR}{error}")
            raise


def _run(grid: Grid, chosen: Experiment, folder: Path, inputs: Inputs | None) -> None:
    result = federate(grid, chosen, folder, log, inputs)
    runs = {next(iter(chosen.methods)): [result]}
    figures(runs, folder, chosen.settings.figures, chosen.settings.shown_in_figure)
    log(f"results: {folder}")
    if result.idle:
        raise MusterError(
            "no success: every round was skipped, so nothing was learned; clients.parquet "
            f"in {folder} says of every client why its reply did not count"
        )


def unfinished(folder: Path) -> Path:
    """Where results go: this folder or, as it holds a finished run, the first of `folder-2`,
    `folder-3`, ... that does not."""
    place, i = folder, 2
    while (place / "run.toml").exists():
        place, i = folder.with_name(f"{folder.name}-{i}"), i + 1
    return place


def log(line: str) -> None:
    """Say a line in the run's log, marked as ours."""
    print(PREFIX + line, flush=True)


def federate(
    grid: Grid, chosen: Experiment, folder: Path, say: Say = print, inputs: Inputs | None = None
) -> Run:
    """Run an experiment on the clients of a grid and save everything to a folder, like the
    simulator's; from the folder's last checkpoint, if it has one. `inputs` is how clients' rows
    were made, where that is known beforehand."""
    check(chosen)
    registry = registered(chosen)
    s, network = chosen.settings, chosen.network
    nodes = awaited(grid, registry, network, say)
    terms_told = shared_terms(chosen)
    fitted, without = kept(folder / "checkpoints", network)
    if network.fits and fitted is None:
        fitted, without = survey(grid, nodes, chosen.members, network, terms_told, s.seed)
    made_by = "" if fitted is None else as_text(fitted)
    came = gather(grid, registry, nodes, network, terms_told, s.seed, say, made_by, without)
    population = came.population()
    # Clients build the same model from the shapes that were agreed on.
    named = network.classes if isinstance(network.classes, tuple) else came.classes
    agreed = replace(network, features=came.shape, classes=named)
    text = shared_terms(replace(chosen, network=agreed))
    method = chosen.method(*chosen.methods)
    space = Space(came.shape, came.classes, network.image or None, came.target, came.whole)
    spec = chosen.spec()
    module = as_module(spec, space, s.seed, s.task)
    taken = inputs or inputs_of(space, network, fitted)
    names = params.trainable(module)
    local = chosen.local_of(*chosen.methods)
    terms = Terms(
        method, local, s.rounds, s.seed, names, s.participation, s.decide_on, s.tuned_steps, s.task,
        params.frozen_digest(module),
    )  # fmt: skip
    merge = needs_two_rows(module)
    steps = steps_of(population.sizes, local, merge)
    effort = steps_of(np.minimum(population.sizes, population.rows), local, merge)
    remote = Remote(
        grid, registry, population, terms, steps, effort, network, text,
        made_by, events=came.events, say=say,
    )  # fmt: skip
    setup = Setup(population, terms, remote)
    start = params.of_module(module, dtype_of(s.dtype), remote.device)
    # Clients that remember keep the last two rounds: a server may fall back by one, not by more.
    often = 1 if terms.memory({}) else s.checkpoint_every
    result = conduct(
        setup,
        module,
        beginning(setup, start, nothing_counted()),
        {
            "dtype": s.dtype,
            "clients": ", ".join(f"{m.name} ({role(m)})" for m in chosen.members),
            COUNTED: json.dumps(population.rows.tolist()),
            "module": params.signature(module, space.example()),
            **({MADE_AS: made_as(network), MADE_BY: made_by} if made_by else {}),
        },
        Keep(s.evaluate_every, folder / "checkpoints", often, resume=True),
        reporter(s.rounds, say, terms.scoring.first),
        quorum=network.quorum,
        recipe=Recipe.of(spec, module, taken, s.task, method.serves),
    )
    result = replace(result, config=chosen.resolved())
    store.save(result, folder)
    store.drop_checkpoints(folder / "checkpoints")
    return result


def inputs_of(space: Space, network: Network, fitted: Fitted | None) -> Inputs:
    """What the model takes. Unless that was agreed on here, what rows are made of and how they are
    scaled stays with the clients."""
    prepare = fitted if isinstance(fitted, Preparation) else None
    return Inputs(
        space.shape,
        space.classes,
        kind=REAL if fitted is not None else WHOLE if space.whole else "",
        labels=network.classes if isinstance(network.classes, tuple) else None,
        image=space.image,
        columns=(prepare.columns if prepare else network.columns) or None,
        label=network.label,
        aside=None if network.columns else (),
        scale=fitted if isinstance(fitted, Scale) else None,
        scaled=fitted is not None,
        target=space.target,
        prepare=prepare,
    )


def role(member: Member) -> str:
    """What a client is to the run."""
    if member.priority:
        return "priority"
    return "unseen" if member.unseen else f"importance {member.importance:g}"


def reporter(rounds: int, say: Say, score: Score) -> OnRound:
    """Says a line a round."""

    def on_round(row: dict[str, Any]) -> None:
        loss = row.get("loss", np.nan)
        figures = f", loss {loss:.4f}" if np.isfinite(loss) else ""
        value = row.get(f"test_{score.name}", np.nan)
        figures += f", test {score.title} {value:.4f}" if np.isfinite(value) else ""
        say(
            f"round {row['round']}/{rounds}: asked {row['asked']}, admitted {row['admitted']}, "
            f"abstained {row['silent']}, failed {row['failed']}, refused {row['refused']}"
            f"{figures}, {row['seconds']:.1f} s, "
            f"up {row['bytes_up'] / 1e3:.1f} kB, down {row['bytes_down'] / 1e3:.1f} kB"
        )

    return on_round


@dataclass(frozen=True)
class Attendance:
    """Who came: each client's sample count (0: it did not) and what it counts for, and the shapes
    they share."""

    registry: Registry
    rows: Int64
    counted: Int64
    shape: tuple[int, ...]
    classes: int
    events: list[tuple[int, str]]
    target: tuple[int, ...] = ()
    whole: bool = False

    def population(self) -> Population:
        """The clients as their server knows them: who, in what role, with how many rows."""
        members = self.registry.members
        priority = np.array([m.priority for m in members])
        importance = np.array([1.0 if m.priority else m.importance for m in members])
        unseen = (self.rows == 0) | np.array([m.unseen for m in members])
        names = np.array([m.name for m in members], np.str_)
        return Population(
            np.arange(len(members)), priority, importance * ~unseen, unseen, self.rows, names,
            self.counted,
        )  # fmt: skip


def made_as(network: Network) -> str:
    """How features are made of columns, in a line."""
    return f"scale {network.scale}, categories {network.categories}, missing {network.missing}"


def kept(folder: Path, network: Network) -> tuple[Fitted | None, dict[int, str]]:
    """What features are made by in a run that goes on: fitted once, it stays as it is. And who
    stays out of it, because it was not in when the run began."""
    saved = saved_identity(folder)
    rows = json.loads(saved.get(COUNTED, "[]"))
    late = {k: "it was not in when the run began" for k, n in enumerate(rows) if not n}
    if MADE_BY not in saved:
        return None, late
    if saved.get(MADE_AS) != made_as(network):
        raise MusterError(
            f"resume: the checkpoint in {folder} was made with {saved.get(MADE_AS)}, this run has "
            f"{made_as(network)}; resume with the same settings or use another folder"
        )
    return of_text(saved[MADE_BY]), late


def awaited(grid: Grid, registry: Registry, network: Network, say: Say = print) -> dict[int, int]:
    """Wait for the clients; the node of each that came."""
    n = len(registry.members)
    say(f"waiting for {plural(n, 'client')}")
    until = time.monotonic() + network.wait
    while True:
        nodes, _ = registry.connected(grid)
        if len(nodes) == n or time.monotonic() >= until:
            return nodes
        time.sleep(min(LOOK_EVERY, max(0.0, until - time.monotonic())))


def gather(
    grid: Grid,
    registry: Registry,
    nodes: Mapping[int, int],
    network: Network,
    text: str,
    seed: int,
    say: Say = print,
    fitted: str = "",
    without: Mapping[int, str] | None = None,
) -> Attendance:
    """Ask each client that came how many rows it has, of what shape; `fitted` is what features are
    made by, and `without` says who is left out already.

    The priority clients must come, all of them, and `at_least` clients altogether; others who are
    not there when the waiting ends, or do not fit, are left out of the run.
    """
    members, n = registry.members, len(registry.members)
    question = RecordDict({OFFER: ConfigRecord({"experiment": text, "seed": seed})})
    if fitted:
        question[FITTED] = ConfigRecord({"text": fitted})
    left = dict(without or {})
    contents = {k: (node, question) for k, node in nodes.items() if k not in left}
    came = exchange(grid, contents, HELLO, network.patience, {})
    heard: dict[int, Table | str] = {**left, **came.refused}
    heard |= {k: introduction(said) for k, said in came.answers.items()}
    order = sorted(heard, key=lambda k: (not members[k].priority, k))
    rows = np.zeros(n, np.int64)
    words = {k: heard[k] for k in order}
    shape, classes = network.features, network.class_count
    if not classes:
        sound = (w for k, w in words.items() if members[k].priority and not isinstance(w, str))
        classes = max((int(w["classes"]) for w in sound), default=0)
    why: dict[int, str] = {}
    columns, whole = "", False
    target: tuple[int, ...] | None = None
    for k, word in words.items():
        if isinstance(word, str):
            why[k] = word
        elif wrong := misfit(word, shape, columns, classes, target, network.most_rows):
            why[k] = wrong
        else:
            rows[k], shape = word["rows"], shape or tuple(word["shape"])
            columns = columns or word["columns"]
            target = tuple(word["target"]) if target is None else target
            whole = whole or word["whole"]
    for k in range(n):
        if not rows[k]:
            reason = why.get(k, came.missing.get(k, "it has not connected"))
            if members[k].priority:
                raise lacking(members[k], reason)
            why[k] = reason
    if int((rows > 0).sum()) < network.at_least:
        raise MusterError(
            f"network.at_least: {network.at_least} clients, and {int((rows > 0).sum())} are there "
            f"after {network.wait:g} s; start more nodes, or lower it"
        )
    events = [(k, f"not in: {w}") for k, w in why.items()]
    for k, reason in why.items():
        say(f"without {members[k].name}: {reason}")
    priority = np.array([m.priority for m in members])
    counted = counted_rows(rows, members, priority, network.most_share)
    for k in np.flatnonzero(counted != rows).tolist():
        by = "declared" if members[k].rows else f"network.most_share {network.most_share:g}"
        events.append((k, f"counts for {counted[k]} rows, not the {rows[k]} it states ({by})"))
        say(f"{members[k].name} {events[-1][1]}")
    for k, other in ((k, str(w["version"])) for k, w in words.items() if not isinstance(w, str)):
        if rows[k] and other != __version__:
            differs = f"runs muster {line(other, 20)}, the server {__version__}"
            say(f"{members[k].name} {differs}: results may differ; install the same version")
            events.append((k, differs))
    say(f"{int((rows > 0).sum())} of {plural(n, 'client')} are in, with {int(rows.sum())} rows")
    return Attendance(registry, rows, counted, shape, classes, events, target or (), whole)


def introduction(message: Message) -> Table | str:
    """A client's answer to hello, or what is wrong with it."""
    if message.has_error():
        said = line(message.error.reason or "", 200)
        return f"its client app failed (code {message.error.code}{said and ': '}{said})"
    try:
        word: Table = dict(message.content.config_records[WORD])
        kinds = {"rows": int, "shape": list, "classes": int, "columns": str, "version": str,
                 "target": list, "whole": bool}  # fmt: skip
        if all(type(word.get(key)) is kind for key, kind in kinds.items()) and possible(word):
            return word
    except Exception as error:
        return f"its answer is malformed ({type(error).__name__})"
    return "its answer is malformed"


def possible(word: Table) -> bool:
    """Whether there are rows of the shape and classes a client states, and room for a model of
    them."""
    shapes = (word["shape"], word["target"])
    whole = all(len(s) <= MOST_AXES and all(type(n) is int and n > 0 for n in s) for s in shapes)
    small = whole and all(math.prod(s) <= MOST_FEATURES for s in shapes)
    return small and 0 <= word["classes"] <= MOST_CLASSES


def misfit(
    word: Table,
    shape: tuple[int, ...],
    columns: str,
    classes: int,
    target: tuple[int, ...] | None,
    most_rows: int,
) -> str:
    """Why a client does not fit the federation; "" when it does."""
    if not 1 <= word["rows"] <= most_rows:
        return f"it states {word['rows']} rows (allowed: 1 to {most_rows})"
    if shape and tuple(word["shape"]) != shape:
        return f"its rows have shape {tuple(word['shape'])}, the federation's {shape}"
    if columns and word["columns"] != columns:
        return "its columns are others, or in another order: list them in network.columns"
    if target is not None and tuple(word["target"]) != target:
        return f"its targets have shape {tuple(word['target'])}, the federation's {target}"
    if (word["classes"] == 0) != (classes == 0):
        return "its targets are numbers" if classes else "its targets are classes"
    if classes and word["classes"] > classes:
        return f"it has {word['classes']} classes, the federation {classes}"
    return ""
