"""Cells: the grid that lists of values span, each cell with a name that can be a folder's.

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
        """What the cell is called, in a folder of its own.

        >>> Cell({"data.priority": 2, "data.partition": {"kind": "iid"}}).name
        'data.priority=2,data.partition=iid'
        """
        said = ",".join(f"{key}={shown(value)}" for key, value in self.values.items())
        plain = re.sub(r"[^\w.,=+()-]+", "_", said)
        if plain == said and len(said) <= LONGEST and not said.startswith("."):
            return said
        return f"{plain[:LONGEST].lstrip('.')}-{zlib.crc32(said.encode()):08x}"


def shown(value: Any) -> str:
    """A value as a person reads it: a part by its name, with what it was given.

    >>> shown(0.1), shown(True), shown([1, 2]), shown({"kind": "dirichlet", "alpha": 0.3})
    ('0.1', 'true', '1+2', 'dirichlet(alpha=0.3)')
    """
    if isinstance(value, Mapping):
        rest = {k: v for k, v in value.items() if k not in ("kind", "name")}
        name = str(value.get("kind", value.get("name", "")))
        inner = ",".join(f"{key}={shown(v)}" for key, v in rest.items())
        return f"{name}({inner})" if inner else name
    if isinstance(value, (list, tuple)):
        return "+".join(map(shown, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def column_of(values: Sequence[Any]) -> list[Any]:
    """Values as one column holds them: numbers as numbers, truth as truth, anything else as text.

    >>> column_of([1, 0.5]), column_of(["low", 1]), column_of([True, False]), column_of([1, 1.0])
    ([1.0, 0.5], ['low', '1'], [True, False], ['1', '1.0'])
    """
    if all(isinstance(v, bool) for v in values):
        return list(values)
    if all(is_whole(v) for v in values):
        return [int(v) for v in values]
    if all(is_number(v) for v in values):
        numbers = [float(v) for v in values]
        # 1 and 1.0 may mean different things: a number of clients, and a share of them.
        if len(set(numbers)) == len({shown(v) for v in values}):
            return numbers
    return [shown(v) for v in values]


def as_over(over: Any, where: str = "sweep") -> dict[str, list[Any]]:
    """Lists of values by dotted key; tables within tables are keys with dots.

    >>> as_over({"data": {"priority": [2, 6]}, "local.lr": [0.1]})
    {'data.priority': [2, 6], 'local.lr': [0.1]}
    """
    if not isinstance(over, Mapping):
        raise MusterError(f"{where}: {over!r}; give a table of keys, each with a list of values")
    found: dict[str, list[Any]] = {}
    for key, values in over.items():
        if isinstance(values, Mapping):
            found |= {f"{key}.{inner}": v for inner, v in as_over(values, where).items()}
            continue
        if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
            raise MusterError(f"{where}.{key}: {values!r}; give a list of values")
        every = [shown(v) for v in values]
        if len(set(every)) < len(every):
            raise MusterError(f"{where}.{key}: {', '.join(every)}; give each value once")
        if any(v is None for v in values):
            raise MusterError(f"{where}.{key}: None; a value has to be one that can be written")
        found[key] = list(values)
    return found


def grid(over: Over) -> list[Cell]:
    """Every combination of the values, the last key changing first.

    >>> [cell.name for cell in grid({"a": [1, 2], "b": ["x", "y"]})]
    ['a=1,b=x', 'a=1,b=y', 'a=2,b=x', 'a=2,b=y']
    """
    return [Cell(dict(zip(over, values, strict=True))) for values in product(*over.values())]
