"""Who takes part: clients that came, and how many rows of what shape each says it has.

The priority clients must come, all of them; others who are not there when the waiting ends, or do
not fit, are left out of the run with a reason.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from ... import __version__
from ...base.arrays import Int64
from ...base.errors import MusterError, plural
from ...base.schema import Table
from ...config.network import Network, cap_rows
from ...federation import Population
from ..transport.requests import exchange
from ..transport.wire import OFFER, WORD, line
from .fit_columns import FITTED, lacking
from .identities import Registry
from .remote_clients import LOOK_EVERY, Say

HELLO = "query.hello"
MOST_FEATURES, MOST_CLASSES, MOST_AXES = 10**8, 10**6, 8  # of a row that a client may state


@dataclass(frozen=True)
class Attendance:
    """Who came: each client's sample count (0: it did not) and what it counts for, the shapes they
    share, and whether rows are tokens (`whole`) or all of them bytes of images (`pixels`)."""

    registry: Registry
    rows: Int64
    counted: Int64
    shape: tuple[int, ...]
    classes: int
    events: list[tuple[int, str]]
    target: tuple[int, ...] = ()
    whole: bool = False
    pixels: bool = False

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


def awaited(grid: Grid, registry: Registry, network: Network, say: Say = print) -> dict[int, int]:
    """Wait for the clients; the node of each that came."""
    n = len(registry.members)
    say(f"waiting for {plural(n, 'client')}")
    until = time.monotonic() + network.enrolment_timeout
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

    All priority clients must enrol, and `min_clients` clients altogether; others that are missing
    when the time is over, or do not fit, are left out of the run.
    """
    members, n = registry.members, len(registry.members)
    question = RecordDict({OFFER: ConfigRecord({"experiment": text, "seed": seed})})
    if fitted:
        question[FITTED] = ConfigRecord({"text": fitted})
    left = dict(without or {})
    contents = {k: (node, question) for k, node in nodes.items() if k not in left}
    came = exchange(grid, contents, HELLO, network.timeout, {})
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
    columns, whole, pixels = "", False, True
    target: tuple[int, ...] | None = None
    for k, word in words.items():
        if isinstance(word, str):
            why[k] = word
        elif wrong := misfit(word, shape, columns, classes, target, network.max_rows):
            why[k] = wrong
        else:
            rows[k], shape = word["rows"], shape or tuple(word["shape"])
            columns = columns or word["columns"]
            target = tuple(word["target"]) if target is None else target
            whole, pixels = whole or word["whole"], pixels and word["pixels"]
    for k in range(n):
        if not rows[k]:
            reason = why.get(k, came.missing.get(k, "it has not connected"))
            if members[k].priority:
                raise lacking(members[k], reason)
            why[k] = reason
    if int((rows > 0).sum()) < network.min_clients:
        raise MusterError(
            f"network.min_clients: {network.min_clients} clients, and {int((rows > 0).sum())} are "
            f"there after {network.enrolment_timeout:g} s; start more nodes, or lower it"
        )
    events = [(k, f"not in: {w}") for k, w in why.items()]
    for k, reason in why.items():
        say(f"without {members[k].name}: {reason}")
    priority = np.array([m.priority for m in members])
    counted = cap_rows(rows, members, priority, network.max_share)
    for k in np.flatnonzero(counted != rows).tolist():
        by = "declared" if members[k].rows else f"network.max_share {network.max_share:g}"
        events.append((k, f"counts for {counted[k]} rows, not the {rows[k]} it states ({by})"))
        say(f"{members[k].name} {events[-1][1]}")
    for k, other in ((k, str(w["version"])) for k, w in words.items() if not isinstance(w, str)):
        if rows[k] and other != __version__:
            differs = f"runs muster {line(other, 20)}, the server {__version__}"
            say(f"{members[k].name} {differs}: results may differ; install the same version")
            events.append((k, differs))
    say(f"{int((rows > 0).sum())} of {plural(n, 'client')} are in, with {int(rows.sum())} rows")
    return Attendance(registry, rows, counted, shape, classes, events, target or (), whole, pixels)


def introduction(message: Message) -> Table | str:
    """A client's answer to hello, or what is wrong with it."""
    if message.has_error():
        said = line(message.error.reason or "", 200)
        return f"its client app failed (code {message.error.code}{said and ': '}{said})"
    try:
        word: Table = dict(message.content.config_records[WORD])
        kinds = {"rows": int, "shape": list, "classes": int, "columns": str, "version": str,
                 "target": list, "whole": bool, "pixels": bool}  # fmt: skip
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
    max_rows: int,
) -> str:
    """Why a client does not fit the federation; "" when it does."""
    if not 1 <= word["rows"] <= max_rows:
        return f"it states {word['rows']} rows (allowed: 1 to {max_rows})"
    if shape and tuple(word["shape"]) != shape:
        return f"its rows have shape {tuple(word['shape'])}, the federation's {shape}"
    if columns and word["columns"] != columns:
        return (
            "its columns are others, or in another order: list them in network.columns (of texts: "
            "its tokenizer makes other tokens)"
        )
    if target is not None and tuple(word["target"]) != target:
        return f"its targets have shape {tuple(word['target'])}, the federation's {target}"
    if (word["classes"] == 0) != (classes == 0):
        return "its targets are numbers" if classes else "its targets are classes"
    if classes and word["classes"] > classes:
        return f"it has {word['classes']} classes, the federation {classes}"
    return ""
