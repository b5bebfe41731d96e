"""Grids: the cells that lists of values span, each with a name that can be a folder's.

{"data.priority": [2, 6], "local.lr": [0.1, 0.5]}  ->  4 cells, the last key changing first
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ..base.checks import is_number, is_whole
from ..base.errors import MusterError

Over = Mapping[str, Sequence[Any]]

LONGEST = 100  # letters of a folder's name


@dataclass(frozen=True, eq=False)
class Cell:
    """One value for each swept key."""

    values: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the cell, and of its folder.

        >>> Cell({"data.priority": 2, "data.partition": {"kind": "iid"}}).name
        'data.priority=2,data.partition=iid'
        """
        text = ",".join(f"{key}={format_value(value)}" for key, value in self.values.items())
        plain = re.sub(r"[^\w.,=+()-]+", "_", text)
        if plain == text and len(text) <= LONGEST and not text.startswith("."):
            return text
        return f"{plain[:LONGEST].lstrip('.')}-{zlib.crc32(text.encode()):08x}"


def format_value(value: Any) -> str:
    """Return a value as text: a part by its name, with its settings.

    >>> format_value(0.1), format_value(True), format_value([1, 2])
    ('0.1', 'true', '1+2')
    >>> format_value({"kind": "dirichlet", "alpha": 0.3})
    'dirichlet(alpha=0.3)'
    """
    if isinstance(value, Mapping):
        rest = {k: v for k, v in value.items() if k not in ("kind", "name")}
        name = str(value.get("kind", value.get("name", "")))
        inner = ",".join(f"{key}={format_value(v)}" for key, v in rest.items())
        return f"{name}({inner})" if inner else name
    if isinstance(value, (list, tuple)):
        return "+".join(map(format_value, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_column(values: Sequence[Any]) -> list[Any]:
    """Return values as one column: numbers as numbers, booleans as booleans, others as text.

    >>> as_column([1, 0.5]), as_column(["low", 1]), as_column([True, False]), as_column([1, 1.0])
    ([1.0, 0.5], ['low', '1'], [True, False], ['1', '1.0'])
    """
    if all(isinstance(v, bool) for v in values):
        return list(values)
    if all(is_whole(v) for v in values):
        return [int(v) for v in values]
    if all(is_number(v) for v in values):
        numbers = [float(v) for v in values]
        # 1 and 1.0 may differ: a number of clients, and a fraction of them.
        if len(set(numbers)) == len({format_value(v) for v in values}):
            return numbers
    return [format_value(v) for v in values]


def parse_lists(over: Any, where: str = "sweep") -> dict[str, list[Any]]:
    """Return lists of values by dotted key; nested tables are keys with dots.

    >>> parse_lists({"data": {"priority": [2, 6]}, "local.lr": [0.1]})
    {'data.priority': [2, 6], 'local.lr': [0.1]}
    """
    if not isinstance(over, Mapping):
        raise MusterError(f"{where}: {over!r}; give a table of keys, each with a list of values")
    found: dict[str, list[Any]] = {}
    for key, values in over.items():
        if isinstance(values, Mapping):
            found |= {f"{key}.{inner}": v for inner, v in parse_lists(values, where).items()}
            continue
        if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
            raise MusterError(f"{where}.{key}: {values!r}; give a list of values")
        every = [format_value(v) for v in values]
        if len(set(every)) < len(every):
            raise MusterError(f"{where}.{key}: {', '.join(every)}; give each value once")
        if any(v is None for v in values):
            raise MusterError(f"{where}.{key}: None; a value has to be one that can be written")
        found[key] = list(values)
    return found


def grid(over: Over) -> list[Cell]:
    """Return every combination of the values, the last key changing first.

    >>> [cell.name for cell in grid({"a": [1, 2], "b": ["x", "y"]})]
    ['a=1,b=x', 'a=1,b=y', 'a=2,b=x', 'a=2,b=y']
    """
    return [Cell(dict(zip(over, values, strict=True))) for values in product(*over.values())]
