"""Clients send column statistics; the server fits one scaler and encoder for all.

Before the first round each client sends the statistics of its training rows and the levels of its
categories. The server fits them together with the simulator's own code and sends the result (the
transform: scaler, encoder, fill values) to every client, under its hash. It is fitted once: a
server that is started again finds it in its checkpoint, and it is saved with the model, for new
rows.

Statistics from a client are untrusted: `read_statistics` accepts any message and returns in a few
words what is wrong with it; such a client is left out of the run. A transform from a server is
checked too: `read_transform` refuses one that does not match the terms that were agreed on.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, ConfigRecordValues, Message, RecordDict
from flwr.serverapp import Grid

from ...base.errors import MusterError
from ...config.network import Member, Network
from ...data.files.codings import describe_codings
from ...data.files.folder import sort_levels
from ...federation import ColumnStatistics, Scaler, TableEncoder
from ..transport.requests import Limits, describe_error, exchange
from ..transport.wire import OFFER, REPORT, clean_line

COLUMNS_QUERY = "query.survey"
LEVELS, TRANSFORM = "levels", "fitted"  # names of records
MAX_BYTES = 2**24  # of a client's statistics, besides its levels
MAX_TEXT = 200  # characters in the name of a column or a level
MAX_VALUE = 1e100  # the largest mean or deviation to believe

Transform = TableEncoder | Scaler
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class ClientStatistics:
    """The column statistics that one client sends.

    Attributes:
        columns: their names; none where rows are arrays
        shape: of a row
        statistics: of its training rows, as a stack of one
        levels: of each category
    """

    columns: tuple[str, ...]
    shape: tuple[int, ...]
    statistics: ColumnStatistics
    levels: dict[str, tuple[str, ...]]


def dump_transform(transform: Transform) -> str:
    """Write a transform as text; `load_transform` reads it to the same bits."""
    shape = {"shape": list(transform.mean.shape)} if isinstance(transform, Scaler) else {}
    return json.dumps({**transform.to_dict(), **shape})


def load_transform(text: str) -> Transform:
    """Read a transform from its text."""
    table: dict[str, Any] = json.loads(text)
    if "columns" in table:
        return TableEncoder.from_dict(table)
    return Scaler.from_dict(table, tuple(table["shape"]))


def hash_transform(text: str) -> str:
    """Return the hash of a transform's text, by which it is known."""
    return hashlib.sha256(text.encode()).hexdigest()


# At a client.


def write_statistics(client: ClientStatistics) -> RecordDict:
    """Write a client's statistics as records. A column of categories has a count and levels, and
    neither mean nor spread."""
    s = client.statistics
    plain = [name not in client.levels for name in client.columns] or [True] * s.count.shape[1]

    def numbers(values: Any) -> list[float]:
        pairs = zip(values[0].tolist(), plain, strict=True)
        return [value if is_plain else 0.0 for value, is_plain in pairs]

    report: dict[str, ConfigRecordValues] = {
        "rows": int(s.rows[0]),
        "shape": list(client.shape),
        "columns": list(client.columns),
        "count": s.count[0].tolist(),
        "mean": numbers(s.mean),
        "spread": numbers(s.spread),
    }
    levels: dict[str, ConfigRecordValues] = {n: list(known) for n, known in client.levels.items()}
    return RecordDict({REPORT: ConfigRecord(report), LEVELS: ConfigRecord(levels)})


def read_transform(text: str, network: Network) -> Transform:
    """Read the transform that a server sends; refuse one that does not match the terms."""
    try:
        made = load_transform(text)
        mean, std = np.array(made.mean, np.float64), np.array(made.std, np.float64)
        sound = bool(np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all())
        sound &= std.shape == mean.shape if network.scale != "none" else not std.size
        if isinstance(made, TableEncoder):
            sound &= len(made.columns) == len(mean) and set(made.levels) == set(network.categories)
            sound &= set(made.holes) <= set(made.columns) and set(made.levels) <= set(made.columns)
            sound &= network.columns in ((), made.columns) and not made.nothing
            sound &= made.fills == (network.missing == "mean") and (made.fills or not made.holes)
        else:
            sound &= not network.categories and network.missing == "error"
    except (KeyError, TypeError, ValueError):
        sound = False
    if not sound:
        raise MusterError(
            "features: the server's scaler and encoder do not match the terms; nothing was done"
        )
    return made


# On the server.


def fit_columns(
    grid: Grid,
    nodes: Mapping[int, int],
    members: Sequence[Member],
    network: Network,
    text: str,
    seed: int,
    say: Say = print,
) -> tuple[Transform, dict[int, str]]:
    """Ask every connected client for its column statistics, and fit one transform to them.

    Clients with impossible statistics are left out; all priority clients are needed. Levels that
    seem to be one, written in different ways by different clients, are reported.

    Returns:
        The transform, and the reason of each client that is left out.
    """
    request = RecordDict({OFFER: ConfigRecord({"experiment": text, "seed": seed})})
    contents = {k: (node, request) for k, node in nodes.items()}
    names = len(network.categories) * network.max_levels * 4 * MAX_TEXT
    limits = dict.fromkeys(nodes, Limits(size=MAX_BYTES + names))
    done = exchange(grid, contents, COLUMNS_QUERY, network.timeout, limits)
    without = {**done.missing, **done.refused}
    clients: dict[int, ClientStatistics] = {}
    for k in sorted(done.replies, key=lambda k: (not members[k].priority, k)):
        first = next(iter(clients.values()), None)
        statistics = read_statistics(done.replies[k], network, first)
        if isinstance(statistics, str):
            without[k] = statistics
        else:
            clients[k] = statistics
    for k, member in enumerate(members):
        if member.priority and k not in clients:
            raise missing_client_error(member, without.get(k, "it has not connected"))
    for line in find_other_codings({members[k].name: c.levels for k, c in clients.items()}):
        say(line)
    priority = np.array([members[k].priority for k in clients])
    return fit(list(clients.values()), priority, network), without


def find_other_codings(levels: Mapping[str, Mapping[str, tuple[str, ...]]]) -> list[str]:
    """Return a line for each category of which clients, by name, seem to write a level in different
    ways: the rule of `muster data check`."""
    columns = next(iter(levels.values()), {})
    lines = []
    for column in columns:
        what = describe_codings({who: set(own[column]) for who, own in levels.items()}, "level")
        if what:
            lines.append(
                f"warning: column '{column}': {what}, and are features apart; if they are the "
                f"same, agree on one, and replace the other with [recode.{column}] in its manifest"
            )
    return lines


def missing_client_error(member: Member, reason: str) -> MusterError:
    """Return the error for a run without one of its priority clients."""
    return MusterError(
        f"clients.{member.name}: a priority client, and {reason}; start its node, or take it off "
        "the list"
    )


def fit(clients: Sequence[ClientStatistics], priority: Any, network: Network) -> Transform:
    """Fit a transform, as the simulator fits it to the same clients' rows."""
    counts = priority if network.scale == "priority" else np.ones(len(clients), np.bool_)
    columns = network.columns or clients[0].columns
    if not clients[0].columns:
        return Scaler.fit(stack_statistics(clients), counts, clients[0].shape)
    levels = {
        name: {level for client in clients for level in client.levels[name]}
        for name in network.categories
    }
    return TableEncoder.fit(
        stack_statistics(clients, columns),
        counts,
        columns,
        sort_levels(levels),
        network.scale != "none",
        network.missing == "mean",
    )


def stack_statistics(
    clients: Sequence[ClientStatistics], columns: tuple[str, ...] = ()
) -> ColumnStatistics:
    """Stack the statistics of several clients, in the order of these columns."""
    every = [client.statistics for client in clients]
    order = [[client.columns.index(name) for name in columns] for client in clients]

    def stack(name: str) -> Any:
        rows = [getattr(s, name)[0] for s in every]
        return np.stack([r[at] for r, at in zip(rows, order, strict=True)] if columns else rows)

    return ColumnStatistics(
        np.concatenate([s.rows for s in every]), stack("count"), stack("mean"), stack("spread")
    )


def read_statistics(
    message: Message, network: Network, first: ClientStatistics | None
) -> ClientStatistics | str:
    """Read a client's statistics, or return what is wrong with them. Never raises, whatever was
    sent. All clients must have the columns of the first."""
    if failed := describe_error(message):
        return failed
    try:
        if set(message.content) != {REPORT, LEVELS}:
            return "its statistics are malformed"
        report: dict[str, Any] = dict(message.content.config_records[REPORT])
        levels: dict[str, Any] = dict(message.content.config_records[LEVELS])
        return _check_statistics(report, levels, network, first) or ClientStatistics(
            tuple(report["columns"]),
            tuple(report["shape"]),
            ColumnStatistics(
                np.array([report["rows"]], np.int64),
                np.array([report["count"]], np.int64),
                np.array([report["mean"]], np.float64),
                np.array([report["spread"]], np.float64),
            ),
            {name: tuple(known) for name, known in levels.items()},
        )
    except Exception as error:
        return f"its statistics are malformed ({type(error).__name__})"


KINDS = {"rows": int, "shape": int, "columns": str, "count": int, "mean": float, "spread": float}


def _check_statistics(
    report: dict[str, Any], levels: dict[str, Any], network: Network, first: Any
) -> str:
    """Return what is wrong with a client's statistics; "" when nothing is."""
    if set(report) != set(KINDS) or type(report["rows"]) is not int:
        return "its statistics are malformed"
    lists = {name: kind for name, kind in KINDS.items() if name != "rows"}
    if any(not _is_list(report[name], kind) for name, kind in lists.items()):
        return "its statistics are malformed"
    if not 1 <= report["rows"] <= network.max_rows:
        return f"it states {report['rows']} rows (allowed: 1 to {network.max_rows})"
    return (
        _check_columns(report, network, first)
        or _check_numbers(report, levels, network)
        or _check_levels(report, levels, network)
    )


def _is_list(value: Any, kind: type) -> bool:
    return type(value) is list and all(type(v) is kind for v in value)


def _check_columns(report: dict[str, Any], network: Network, first: ClientStatistics | None) -> str:
    columns, shape = report["columns"], tuple(report["shape"])
    if len(set(columns)) < len(columns) or not all(map(_is_name, columns)):
        return "its columns have no proper names"
    if columns and shape != (len(columns),):
        return "its statistics are malformed"
    known = network.columns or (first.columns if first else tuple(columns))
    if set(columns) != set(known):
        (name, *_) = sorted(set(columns) ^ set(known))
        return f"column '{clean_line(name, 40)}' is not in both its table and the federation's"
    if first is not None and shape != first.shape:
        return f"its rows have shape {shape}, the federation's {first.shape}"
    if any(n < 1 for n in shape) or any(len(report[n]) != math.prod(shape) for n in NUMBERS):
        return "its statistics are malformed"
    return ""


NUMBERS = ("count", "mean", "spread")


def _check_numbers(report: dict[str, Any], levels: dict[str, Any], network: Network) -> str:
    """Return what is wrong with statistics that no rows can have; "" when nothing is."""
    rows, columns = report["rows"], report["columns"]
    for j, (count, mean, spread) in enumerate(zip(*(report[n] for n in NUMBERS), strict=True)):
        name = f"column '{clean_line(columns[j], 40)}'" if columns else f"feature {j}"
        category = bool(columns) and columns[j] in levels
        least = 0 if network.missing == "mean" else rows
        if not least <= count <= rows:
            return f"{name}: impossible count {count} of {rows} rows"
        # Fewer than two numbers have no spread; none (or categories) have no mean.
        if not 0 <= spread <= count * MAX_VALUE**2 or (spread and (count < 2 or category)):
            return f"{name}: impossible spread {spread:g}"
        if not abs(mean) <= MAX_VALUE or (mean and (category or not count)):
            return f"{name}: impossible mean {mean:g}"
    return ""


def _check_levels(report: dict[str, Any], levels: dict[str, Any], network: Network) -> str:
    if set(levels) != set(network.categories) or not set(levels) <= set(report["columns"]):
        return "its categories differ from the federation's"
    for name, known in levels.items():
        if not _is_list(known, str) or len(set(known)) < len(known):
            return "its levels are malformed"
        if len(known) > network.max_levels:
            return (
                f"column '{clean_line(name, 40)}': {len(known)} levels (network.max_levels "
                f"{network.max_levels})"
            )
        if not all(map(_is_name, known)):
            return f"column '{clean_line(name, 40)}': a level has no proper name"
        if report["count"][report["columns"].index(name)] and not known:
            return f"column '{clean_line(name, 40)}': values, and no level"
    return ""


def _is_name(text: str) -> bool:
    """Return True if a column or a level of a table could have this name."""
    return 0 < len(text) <= MAX_TEXT and text.isprintable()
