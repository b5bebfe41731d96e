"""The survey: before the first round everybody comes to make features of columns in the same way.

Each client tells the statistics of its training rows and the levels of its categories; the server
fits them together with the simulator's own code and sends everybody what came of it, under its
hash, by which a client knows whether it has it. It is fitted once: a server that is started again
finds it in its checkpoint, and it is kept with the model, for new rows.

What a client tells is untrusted. `read_told` takes any message and says in a few words what is
wrong with it; such a client is left out of the run. What a server sends is not believed either:
`read_fitted` refuses what does not fit the terms that were agreed on.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, ConfigRecordValues, Message, RecordDict
from flwr.serverapp import Grid

from ...base.errors import MusterError
from ...config.network import Member, Network
from ...data.files.folder import sort_levels
from ...federation import ColumnStatistics, Scaler, TableEncoder
from ..transport.requests import Limits, exchange
from ..transport.wire import OFFER, WORD, line

SURVEY = "query.survey"
LEVELS, FITTED = "levels", "fitted"  # records of levels, and of what was fitted
MOST_BYTES = 2**24  # of what a client tells, besides its levels
MOST_TEXT = 200  # characters in the name of a column or a level
MOST_VALUE = 1e100  # the largest mean or deviation to believe

Fitted = TableEncoder | Scaler


@dataclass(frozen=True, eq=False)
class Told:
    """What one client tells.

    Attributes:
        columns: by name; none where rows are arrays
        shape: of a row
        statistics: of its training rows, as a stack of one
        levels: of each category
    """

    columns: tuple[str, ...]
    shape: tuple[int, ...]
    statistics: ColumnStatistics
    levels: dict[str, tuple[str, ...]]


def as_text(fitted: Fitted) -> str:
    """What features are made by, as it travels and is kept; `of_text` reads it to the same bits."""
    shape = {"shape": list(fitted.mean.shape)} if isinstance(fitted, Scaler) else {}
    return json.dumps({**fitted.to_dict(), **shape})


def of_text(text: str) -> Fitted:
    """What a text says."""
    table: dict[str, Any] = json.loads(text)
    if "columns" in table:
        return TableEncoder.from_dict(table)
    return Scaler.from_dict(table, tuple(table["shape"]))


def named(text: str) -> str:
    """The name of a text: its hash."""
    return hashlib.sha256(text.encode()).hexdigest()


# At a client.


def write_told(told: Told) -> RecordDict:
    """What a client tells, as records. Of categories there is nothing to tell but how many rows
    have one, and which."""
    s = told.statistics
    plain = [name not in told.levels for name in told.columns] or [True] * s.count.shape[1]

    def numbers(values: Any) -> list[float]:
        kept = zip(values[0].tolist(), plain, strict=True)
        return [value if is_plain else 0.0 for value, is_plain in kept]

    word: dict[str, ConfigRecordValues] = {
        "rows": int(s.rows[0]),
        "shape": list(told.shape),
        "columns": list(told.columns),
        "count": s.count[0].tolist(),
        "mean": numbers(s.mean),
        "spread": numbers(s.spread),
    }
    levels: dict[str, ConfigRecordValues] = {n: list(known) for n, known in told.levels.items()}
    return RecordDict({WORD: ConfigRecord(word), LEVELS: ConfigRecord(levels)})


def read_fitted(text: str, network: Network) -> Fitted:
    """What features are to be made by, as far as it is what the terms say."""
    try:
        made = of_text(text)
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
            "features: what the server says they are made by does not fit the terms; nothing was "
            "done"
        )
    return made


# On the server.


def survey(
    grid: Grid,
    nodes: Mapping[int, int],
    members: Sequence[Member],
    network: Network,
    text: str,
    seed: int,
) -> tuple[Fitted, dict[int, str]]:
    """Ask every client that is connected, and fit what they tell. Whoever tells what cannot be is
    left out, and why is said; the priority clients are needed, all of them."""
    question = RecordDict({OFFER: ConfigRecord({"experiment": text, "seed": seed})})
    contents = {k: (node, question) for k, node in nodes.items()}
    names = len(network.categories) * network.max_levels * 4 * MOST_TEXT
    limits = dict.fromkeys(nodes, Limits(size=MOST_BYTES + names))
    came = exchange(grid, contents, SURVEY, network.timeout, limits)
    without = {**came.missing, **came.refused}
    told: dict[int, Told] = {}
    for k in sorted(came.answers, key=lambda k: (not members[k].priority, k)):
        first = next(iter(told.values()), None)
        heard = read_told(came.answers[k], network, first)
        if isinstance(heard, str):
            without[k] = heard
        else:
            told[k] = heard
    for k, member in enumerate(members):
        if member.priority and k not in told:
            raise lacking(member, without.get(k, "it has not connected"))
    priority = np.array([members[k].priority for k in told])
    return fit(list(told.values()), priority, network), without


def lacking(member: Member, reason: str) -> MusterError:
    """A run cannot be without a priority client."""
    return MusterError(
        f"clients.{member.name}: a priority client, and {reason}; start its node, or take it off "
        "the list"
    )


def fit(told: Sequence[Told], priority: Any, network: Network) -> Fitted:
    """What features are made by: as the simulator fits it to the same clients' rows."""
    counts = priority if network.scale == "priority" else np.ones(len(told), np.bool_)
    columns = network.columns or told[0].columns
    if not told[0].columns:
        return Scaler.fit(stacked(told), counts, told[0].shape)
    levels = {
        name: {level for t in told for level in t.levels[name]} for name in network.categories
    }
    return TableEncoder.fit(
        stacked(told, columns), counts, columns, sort_levels(levels), network.scale != "none",
        network.missing == "mean",
    )  # fmt: skip


def stacked(told: Sequence[Told], columns: tuple[str, ...] = ()) -> ColumnStatistics:
    """The statistics of several clients, in the order of these columns."""
    every = [t.statistics for t in told]
    order = [[t.columns.index(name) for name in columns] for t in told]

    def stack(name: str) -> Any:
        rows = [getattr(s, name)[0] for s in every]
        return np.stack([r[at] for r, at in zip(rows, order, strict=True)] if columns else rows)

    return ColumnStatistics(
        np.concatenate([s.rows for s in every]), stack("count"), stack("mean"), stack("spread")
    )


def read_told(message: Message, network: Network, first: Told | None) -> Told | str:
    """What a client tells, or what is wrong with it. Never raises, whatever was sent. All must have
    the columns of the first."""
    if message.has_error():
        said = line(message.error.reason or "", 200)
        return f"its client app failed (code {message.error.code}{said and ': '}{said})"
    try:
        if set(message.content) != {WORD, LEVELS}:
            return "its statistics are malformed"
        word: dict[str, Any] = dict(message.content.config_records[WORD])
        levels: dict[str, Any] = dict(message.content.config_records[LEVELS])
        return _wrong(word, levels, network, first) or Told(
            tuple(word["columns"]),
            tuple(word["shape"]),
            ColumnStatistics(
                np.array([word["rows"]], np.int64),
                np.array([word["count"]], np.int64),
                np.array([word["mean"]], np.float64),
                np.array([word["spread"]], np.float64),
            ),
            {name: tuple(known) for name, known in levels.items()},
        )
    except Exception as error:
        return f"its statistics are malformed ({type(error).__name__})"


KINDS = {"rows": int, "shape": int, "columns": str, "count": int, "mean": float, "spread": float}


def _wrong(word: dict[str, Any], levels: dict[str, Any], network: Network, first: Any) -> str:
    """What is wrong with what a client tells; "" when nothing is."""
    if set(word) != set(KINDS) or type(word["rows"]) is not int:
        return "its statistics are malformed"
    lists = {name: kind for name, kind in KINDS.items() if name != "rows"}
    if any(not _is_list(word[name], kind) for name, kind in lists.items()):
        return "its statistics are malformed"
    if not 1 <= word["rows"] <= network.max_rows:
        return f"it states {word['rows']} rows (allowed: 1 to {network.max_rows})"
    return _wrong_columns(word, network, first) or _wrong_numbers(word, levels, network) or (
        _wrong_levels(word, levels, network)
    )  # fmt: skip


def _is_list(value: Any, kind: type) -> bool:
    return type(value) is list and all(type(v) is kind for v in value)


def _wrong_columns(word: dict[str, Any], network: Network, first: Told | None) -> str:
    columns, shape = word["columns"], tuple(word["shape"])
    if len(set(columns)) < len(columns) or not all(map(_is_name, columns)):
        return "its columns have no proper names"
    if columns and shape != (len(columns),):
        return "its statistics are malformed"
    known = network.columns or (first.columns if first else tuple(columns))
    if set(columns) != set(known):
        (name, *_) = sorted(set(columns) ^ set(known))
        return f"column '{line(name, 40)}' is not in both its table and the federation's"
    if first is not None and shape != first.shape:
        return f"its rows have shape {shape}, the federation's {first.shape}"
    if any(n < 1 for n in shape) or any(len(word[n]) != math.prod(shape) for n in NUMBERS):
        return "its statistics are malformed"
    return ""


NUMBERS = ("count", "mean", "spread")


def _wrong_numbers(word: dict[str, Any], levels: dict[str, Any], network: Network) -> str:
    """Statistics that no rows have."""
    rows, columns = word["rows"], word["columns"]
    for j, (count, mean, spread) in enumerate(zip(*(word[n] for n in NUMBERS), strict=True)):
        name = f"column '{line(columns[j], 40)}'" if columns else f"feature {j}"
        category = bool(columns) and columns[j] in levels
        least = 0 if network.missing == "mean" else rows
        if not least <= count <= rows:
            return f"{name}: impossible count {count} of {rows} rows"
        # Of fewer than two numbers there is no spread, and of none (or of categories) no mean.
        if not 0 <= spread <= count * MOST_VALUE**2 or (spread and (count < 2 or category)):
            return f"{name}: impossible spread {spread:g}"
        if not abs(mean) <= MOST_VALUE or (mean and (category or not count)):
            return f"{name}: impossible mean {mean:g}"
    return ""


def _wrong_levels(word: dict[str, Any], levels: dict[str, Any], network: Network) -> str:
    if set(levels) != set(network.categories) or not set(levels) <= set(word["columns"]):
        return "its categories are others than the federation's"
    for name, known in levels.items():
        if not _is_list(known, str) or len(set(known)) < len(known):
            return "its levels are malformed"
        if len(known) > network.max_levels:
            return (
                f"column '{line(name, 40)}': {len(known)} levels (network.max_levels "
                f"{network.max_levels})"
            )
        if not all(map(_is_name, known)):
            return f"column '{line(name, 40)}': a level has no proper name"
        if word["count"][word["columns"].index(name)] and not known:
            return f"column '{line(name, 40)}': values, and no level"
    return ""


def _is_name(text: str) -> bool:
    """Whether a table could call a column or a level so."""
    return 0 < len(text) <= MOST_TEXT and text.isprintable()
