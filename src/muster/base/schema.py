"""Configuration tables, checked against the signatures of the parts they configure.

Every part is a function or a frozen dataclass whose parameters are its configuration. `build`
calls it with the values of a table, after checking every key and every type against its
signature; `resolve` is the inverse: the table with every default filled in. There is no second
list of options to keep in step; their texts are those of the docstrings (`describe_parameters`).
Names are looked up in a catalogue (`muster.base.registry`): unless the caller opens it, no table
makes anything be imported.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import sys
import traceback
import types
import typing
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from .checks import is_number, is_whole
from .errors import MusterError, first_line, nearest
from .lazy import griffe
from .registry import INSTALLED, Catalogue, Code, find_name, is_role, kinds, role_name, roles

Table = dict[str, Any]


def as_named_table(where: str, value: Any) -> Table:
    """Return a table with a name; a bare string is a name."""
    table = {"name": value} if isinstance(value, str) else dict(as_table(where, value))
    if not isinstance(table.get("name"), str):
        raise MusterError(f"{where}: which one? give {where}.name")
    return table


def label_and_key(labels: Iterable[str], rest: str) -> tuple[str, str] | None:
    """Split `LABEL.KEY` into a method's label and the key; None where it has none of the labels.
    Labels may have dots; dashes and underscores are the same, as in flags.

    >>> label_and_key(["all", "all v1.5"], "all v1.5.local.lr")
    ('all v1.5', 'local.lr')
    """
    for label in sorted(labels, key=len, reverse=True):
        if rest.replace("-", "_").startswith(label.replace("-", "_") + "."):
            return label, rest[len(label) + 1 :]
    return None


def as_table(where: str, value: Any) -> Table:
    """Return a table; raise an error that names the key if it is none."""
    if not isinstance(value, dict):
        raise MusterError(f"{where}: {value!r}; give a table of settings")
    return value


def choose(
    role: Any, table: Table, where: str, extra: Table | None = None, parts: Catalogue = INSTALLED
) -> Any:
    """Build the part of a role that a table names. `extra` values come from muster, not the
    user."""
    target = parts.find(role, table["name"], f"{where}.name")
    values = {key: value for key, value in table.items() if key != "name"}
    return build(target, values, where, given=extra or {}, parts=parts)


def parameters(target: Callable[..., Any], skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a part's parameters and their types."""
    return {name: kind for name, kind in parameter_types(target).items() if name not in skip}


@cache
def parameter_types(target: Callable[..., Any]) -> dict[str, Any]:
    """Return the types in a part's signature, cached."""
    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)
    return {name: hints.get(name, Any) for name in inspect.signature(target).parameters}


def check_keys(
    target: Callable[..., Any],
    table: Table,
    where: str,
    skip: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
    parts: Catalogue = INSTALLED,
) -> None:
    """Refuse unknown keys with the nearest known one, and values of the wrong type."""
    allowed = parameters(target, skip)
    dot = f"{where}." if where else ""
    for key, value in complete_parts(target, table).items():
        if key == "name" and "name" not in allowed:
            continue
        if key not in allowed:
            raise MusterError(f"unknown key '{dot}{key}'; {nearest(key, [*allowed, *also])}")
        convert(value, allowed[key], dot + key, parts)


def build(
    target: Callable[..., Any],
    table: Table,
    where: str,
    given: Table | None = None,
    also: tuple[str, ...] = (),
    parts: Catalogue = INSTALLED,
) -> Any:
    """Call a part with the values of a table, checked against its signature."""
    given = given or {}
    check_keys(target, table, where, tuple(given), also, parts)
    allowed = parameters(target)
    dot = f"{where}." if where else ""
    if "name" in table and "name" not in allowed:  # where nothing is chosen by name
        raise MusterError(f"unknown key '{dot}name'; {nearest('name', [*allowed, *also])}")
    values = {
        key: convert(v, allowed[key], dot + key, parts)
        for key, v in complete_parts(target, table).items()
    }
    missing = [
        name
        for name, p in inspect.signature(target).parameters.items()
        if p.default is p.empty and name not in values and name not in given
    ]
    if missing:
        raise MusterError(f"{dot}{missing[0]}: missing; it has no default")
    if target.__module__.startswith("muster."):
        return target(**values, **given)
    try:
        return target(**values, **given)
    except MusterError:
        raise
    except Exception as error:  # the user's code: name the line, as no traceback is shown
        frames = traceback.extract_tb(error.__traceback__)
        theirs = getattr(sys.modules.get(target.__module__), "__file__", None)
        last = next((f for f in reversed(frames) if f.filename == theirs), frames[-1])
        raise MusterError(
            f"{where}: {getattr(target, '__qualname__', target)} raised {type(error).__name__}: "
            f"{first_line(error)} ({Path(last.filename).name}, line {last.lineno})"
        ) from error


def complete_parts(target: Callable[..., Any], table: Table) -> Table:
    """Return the table with the default's `kind` for each part of which only settings are given,
    where the default has these settings.

    >>> from muster import Local
    >>> complete_parts(Local, {"steps": 5, "optimizer": {"momentum": 0.9}})["optimizer"]["kind"]
    'sgd'
    """
    result = dict(table)
    for key, p in inspect.signature(target).parameters.items():
        value = table.get(key)
        if not isinstance(value, dict) or "kind" in value or p.default is p.empty:
            continue
        usual = to_table(p.default)
        if isinstance(usual, dict) and "kind" in usual and value.keys() <= usual.keys():
            result[key] = {**usual, **value}
    return result


def convert(value: Any, kind: Any, where: str, parts: Catalogue = INSTALLED) -> Any:
    """Convert a TOML value to the type of a parameter, or raise an error that names it. Text with
    commas is a list where a list belongs, as flags are written: `age,sex`."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if isinstance(value, str):
        value = read_text(value, kind, where)
    if origin in (types.UnionType, typing.Union):
        for option in sorted(inner, key=lambda k: k is float):
            if fits(value, option):
                try:
                    return convert(value, option, where, parts)
                except MusterError as error:
                    word = isinstance(value, str) and float in inner and is_role(option)
                    if word and value not in kinds(option):  # no part's name, and no number
                        raise MusterError(f"{error}; or give a number") from None
                    raise
        raise MusterError(f"{where}: {value!r}; allowed: {describe(kind)}")
    if origin is tuple and inner[0] in (int, float) and fits(value, inner[0]):
        value = [value]  # a number where a list of numbers may be is a list of one
    if not fits(value, kind):
        raise MusterError(f"{where}: {value!r}; allowed: {describe(kind)}")
    if is_role(kind):
        table = {"kind": value} if isinstance(value, str) else dict(value)
        only = next(iter(kinds(kind))) if len(kinds(kind)) == 1 else None
        chosen = parts.find(kind, table.pop("kind", only), f"{where}.kind")
        return build(chosen, table, where, parts=parts)
    if kind is Code:
        return parts.code(value, where)
    if origin is tuple:
        return tuple(convert(v, inner[0], f"{where}[{i}]", parts) for i, v in enumerate(value))
    if kind is float:
        return float(value)
    return value


def read_text(text: str, kind: Any, where: str) -> Any:
    """Return text for a parameter that is no text: as a list where it takes one; a number in quotes
    is an error that says so.

    >>> read_text("age, sex", tuple[str, ...] | None, "data.features")
    ['age', 'sex']
    """
    options = get_args(kind) if get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    if str in options:
        return text
    lists = [get_args(option)[0] for option in options if get_origin(option) is tuple]
    words = [word.strip() for word in text.split(",")]
    if str in lists:
        return words
    number = any(option in (int, float) for option in options)
    if (number or lists) and all(map(is_number_text, words)):
        numbers = [float(word) if set(word) & set(".eE") else int(word) for word in words]
        if lists and len(words) > 1:
            return numbers
        raise MusterError(f"{where}: '{text}' is text; leave the quotes out: {numbers[0]}")
    return text


def is_number_text(text: str) -> bool:
    """Return True if text is a finite number, written with digits."""
    try:
        return text.isascii() and any(c.isdigit() for c in text) and math.isfinite(float(text))
    except ValueError:
        return False


def fits(value: Any, kind: Any) -> bool:
    """Return True if a TOML value can be of this type."""
    origin = get_origin(kind)
    if is_role(kind):
        return isinstance(value, (str, dict))
    if kind is Code:
        return isinstance(value, str) or callable(value)
    if origin is Literal:
        return value in get_args(kind)
    if origin in (tuple, list) or kind in (tuple, list):
        return isinstance(value, list)
    if kind is bool:
        return isinstance(value, bool)
    if kind is int:
        return is_whole(value)
    if kind is float:
        return is_number(value)
    if kind is str:
        return isinstance(value, str)
    return kind is type(None) and value is None


def describe(kind: Any) -> str:
    """Return a description of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return ", ".join(str(v) for v in inner)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(dict.fromkeys(describe(k) for k in inner if k is not type(None)))
    if is_role(kind):
        return f"a {role_name(kind)}, by name or as a table with kind = {' | '.join(kinds(kind))}"
    if origin is tuple:
        return f"a list in brackets, each {describe(inner[0])}"
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    words |= {Code: "the import path of a function, module:name"}
    return (words | {Path: "text"}).get(kind, str(kind))


def to_table(value: Any) -> Any:
    """Return a part as the table that configures it; None (a default) is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_table(getattr(value, f.name)) for f in dataclasses.fields(value)}
        kind = next((n for role in roles() if (n := find_name(role, value))), None)
        head = {} if kind is None else {"kind": kind}
        return {**head, **{k: v for k, v in fields.items() if v is not None}}
    if isinstance(value, (tuple, list)):
        return [to_table(v) for v in value]
    if isinstance(value, dict):
        return {k: to_table(v) for k, v in value.items() if v is not None}
    return value


def resolve(
    role: Any, table: Table, skip: tuple[str, ...] = (), parts: Catalogue = INSTALLED
) -> Table:
    """Return a named table with its part's defaults filled in."""
    target = parts.find(role, table["name"], "name")
    defaults = {
        name: p.default
        for name, p in inspect.signature(target).parameters.items()
        if p.default is not p.empty and name not in skip
    }
    return typing.cast(Table, to_table({"name": table["name"], **defaults, **table}))


def describe_parameters(target: Any) -> dict[str, str]:
    """Return the text of each entry under `Args:` and `Attributes:` in a docstring.

    >>> from muster.local import Local
    >>> describe_parameters(Local)["steps"]
    'minibatch steps a round'
    """
    text = griffe.Docstring(inspect.getdoc(target) or "", parser="google")
    found: dict[str, str] = {}
    for section in text.parse(warnings=False):
        if section.kind.value in ("parameters", "attributes"):
            found |= {entry.name: " ".join(entry.description.split()) for entry in section.value}
    return found
