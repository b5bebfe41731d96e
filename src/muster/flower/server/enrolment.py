"""Enrolment: the clients that take part in a run, with the rows and shapes that each states.

All priority clients must enrol; others that are not connected by the timeout, or do not match the
federation, are left out of the run with a reason.
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
from ..transport.keys import KeyRegistry
from ..transport.requests import describe_error, exchange
from ..transport.wire import OFFER, REPORT, clean_line
from .fit_columns import TRANSFORM, Say, missing_client_error
from .messenger import POLL_INTERVAL

HELLO = "query.hello"
MAX_FEATURES, MAX_CLASSES, MAX_AXES = 10**8, 10**6, 8  # limits of a row


@dataclass(frozen=True)
class Enrolment:
    """The clients of a run, and the shapes they share.

    Attributes:
        rows: each client's sample count; 0: it is not enrolled
        counted: the rows that each client counts for
        events: client and text, for the ledger
        whole: True if rows are tokens
        pixels: True if all rows are bytes of images
    """

    registry: KeyRegistry
    rows: Int64
    counted: Int64
    shape: tuple[int, ...]
    classes: int
    events: list[tuple[int, str]]
    target: tuple[int, ...] = ()
    whole: bool = False
    pixels: bool = False

    def population(self) -> Population:
        """Return the clients as their server knows them: keys, roles and numbers of rows."""
        members = self.registry.members
        priority = np.array([m.priority for m in members])
        importance = np.array([1.0 if m.priority else m.importance for m in members])
        unseen = (self.rows == 0) | np.array([m.unseen for m in members])
        names = np.array([m.name for m in members], np.str_)
        return Population(
            np.arange(len(members)),
            priority,
            importance * ~unseen,
            unseen,
            self.rows,
            names,
            self.counted,
        )


def wait_for_clients(
    grid: Grid, registry: KeyRegistry, network: Network, say: Say = print
) -> dict[int, int]:
    """Wait for the clients to connect; return the node of each that did."""
    n = len(registry.members)
    say(f"waiting for {plural(n, 'client')}")
    until = time.monotonic() + network.enrolment_timeout
    while True:
        nodes, _ = registry.find_nodes(grid)
        if len(nodes) == n or time.monotonic() >= until:
            return nodes
        time.sleep(min(POLL_INTERVAL, max(0.0, until - time.monotonic())))


def enrol(
    grid: Grid,
    registry: KeyRegistry,
    nodes: Mapping[int, int],
    network: Network,
    text: str,
    seed: int,
    say: Say = print,
    transform: str = "",
    without: Mapping[int, str] | None = None,
) -> Enrolment:
    """Ask each connected client how many rows it has, of what shape, and enrol those that match.

    All priority clients must enrol, and `min_clients` clients altogether; others are left out.

    Args:
        text: the terms of the run
        transform: the scaler and encoder of features, as text; "": none
        without: the reasons of clients that are left out already
    """
    members, n = registry.members, len(registry.members)
    request = RecordDict({OFFER: ConfigRecord({"experiment": text, "seed": seed})})
    if transform:
        request[TRANSFORM] = ConfigRecord({"text": transform})
    left_out = dict(without or {})
    contents = {k: (node, request) for k, node in nodes.items() if k not in left_out}
    done = exchange(grid, contents, HELLO, network.timeout, {})
    found: dict[int, Table | str] = {**left_out, **done.refused}
    found |= {k: read_introduction(reply) for k, reply in done.replies.items()}
    order = sorted(found, key=lambda k: (not members[k].priority, k))
    rows = np.zeros(n, np.int64)
    reports = {k: found[k] for k in order}
    shape, classes = network.features, network.class_count
    if not classes:
        sound = (r for k, r in sound_reports(reports) if members[k].priority)
        classes = max((int(r["classes"]) for r in sound), default=0)
    why: dict[int, str] = {}
    columns, whole, pixels = "", False, True
    target: tuple[int, ...] | None = None
    for k, report in reports.items():
        if isinstance(report, str):
            why[k] = report
        elif mismatch := find_mismatch(report, shape, columns, classes, target, network.max_rows):
            why[k] = mismatch
        else:
            rows[k], shape = report["rows"], shape or tuple(report["shape"])
            columns = columns or report["columns"]
            target = tuple(report["target"]) if target is None else target
            whole, pixels = whole or report["whole"], pixels and report["pixels"]
    for k in range(n):
        if not rows[k]:
            reason = why.get(k, done.missing.get(k, "it has not connected"))
            if members[k].priority:
                raise missing_client_error(members[k], reason)
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
    if not network.class_count:
        stated = {members[k].name: r["classes"] for k, r in sound_reports(reports) if rows[k]}
        if other_labels := find_other_labels(stated):
            say(other_labels)
    for k, other in ((k, str(w["version"])) for k, w in sound_reports(reports)):
        if rows[k] and other != __version__:
            differs = f"runs muster {clean_line(other, 20)}, the server {__version__}"
            say(f"{members[k].name} {differs}: results may differ; install the same version")
            events.append((k, differs))
    say(f"{int((rows > 0).sum())} of {plural(n, 'client')} are in, with {int(rows.sum())} rows")
    return Enrolment(registry, rows, counted, shape, classes, events, target or (), whole, pixels)


def sound_reports(reports: Mapping[int, Table | str]) -> list[tuple[int, Table]]:
    """Return the introductions that could be read."""
    return [(k, report) for k, report in reports.items() if not isinstance(report, str)]


def find_other_labels(classes: Mapping[str, int]) -> str:
    """Return a warning where the numbers of classes that clients have, by name, differ: one may
    count its labels from 1, or code them in another way; "" where they do not."""
    if len(set(classes.values())) < 2:
        return ""
    few, many = (pick(classes, key=lambda who: classes[who]) for pick in (min, max))
    return (
        f"warning: labels: {few} has {classes[few]} classes and {many} {classes[many]}: it may "
        "code them in another way, such as from 1; list them in network.classes"
    )


def read_introduction(message: Message) -> Table | str:
    """Read a client's introduction, or return what is wrong with it."""
    if failed := describe_error(message):
        return failed
    try:
        report: Table = dict(message.content.config_records[REPORT])
        kinds = {
            "rows": int,
            "shape": list,
            "classes": int,
            "columns": str,
            "version": str,
            "target": list,
            "whole": bool,
            "pixels": bool,
        }
        if all(type(report.get(key)) is kind for key, kind in kinds.items()) and is_possible(
            report
        ):
            return report
    except Exception as error:
        return f"its answer is malformed ({type(error).__name__})"
    return "its answer is malformed"


def is_possible(report: Table) -> bool:
    """Return True if rows can have the shape and classes that a client states, and a model of them
    fits in memory."""
    shapes = (report["shape"], report["target"])
    whole = all(len(s) <= MAX_AXES and all(type(n) is int and n > 0 for n in s) for s in shapes)
    small = whole and all(math.prod(s) <= MAX_FEATURES for s in shapes)
    return small and 0 <= report["classes"] <= MAX_CLASSES


def find_mismatch(
    report: Table,
    shape: tuple[int, ...],
    columns: str,
    classes: int,
    target: tuple[int, ...] | None,
    max_rows: int,
) -> str:
    """Return why a client does not match the federation; "" when it does."""
    if not 1 <= report["rows"] <= max_rows:
        return f"it states {report['rows']} rows (allowed: 1 to {max_rows})"
    if shape and tuple(report["shape"]) != shape:
        return f"its rows have shape {tuple(report['shape'])}, the federation's {shape}"
    if columns and report["columns"] != columns:
        return (
            "its columns differ, or their order does: list them in network.columns (of texts: its "
            "tokenizer makes other tokens)"
        )
    if target is not None and tuple(report["target"]) != target:
        return f"its targets have shape {tuple(report['target'])}, the federation's {target}"
    if (report["classes"] == 0) != (classes == 0):
        return "its targets are numbers" if classes else "its targets are classes"
    if classes and report["classes"] > classes:
        return f"it has {report['classes']} classes, the federation {classes}"
    return ""
