"""Dotted keys: settings of a configuration by name, from flags and sweeps; tables of methods.

`data.priority` is the key `priority` of the table `data`. One method of several is addressed by its
label (`methods.fedalign.epsilon`); `method.epsilon` means the only one, and in a sweep all that
take it. The table of a method is a named method with its parameters, any of its parts replaced
(`build_method`).
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any, get_args, get_origin

from ..base.errors import MusterError, unknown_name
from ..base.registry import INSTALLED, Catalogue, kinds
from ..base.schema import Table, as_named_table, build, convert, fits, label_and_key, parameters
from ..base.untrusted_files import parse_toml
from ..federation import Federation
from ..methods import Method
from .network import Network
from .settings import Settings

CHOSEN = {"data": "synth", "model": "softmax", "method": "fedalign"}  # by name, and by default
SPECIAL = ("epsilon", "reference", "trust", "tune_steps")  # parts that only some methods use
LISTS = ("sweep", "tune")  # tables whose keys are keys of the configuration, with lists of values
RENAMED = {  # keys of earlier versions, which are still read
    "network.patience": "network.timeout",
    "network.wait": "network.enrolment_timeout",
    "network.at_least": "network.min_clients",
    "network.strikes": "network.failures",
    "network.most_rows": "network.max_rows",
    "network.most_share": "network.max_share",
    "network.most_levels": "network.max_levels",
}


def current_names(keys: Iterable[str]) -> dict[str, str]:
    """Return the current name of each dotted key; refuse two names of one key.

    >>> current_names(["network.patience", "rounds"])
    {'network.patience': 'network.timeout', 'rounds': 'rounds'}
    """
    keys = list(keys)
    for key in keys:
        if RENAMED.get(key) in keys:
            raise MusterError(f"{key}: an earlier name of {RENAMED[key]}, also given; give one")
    return {key: RENAMED.get(key, key) for key in keys}


def rename_keys(table: Table) -> Table:
    """Return a configuration with renamed keys under their current names.

    >>> rename_keys({"rounds": 2, "network": {"strikes": 3, "quorum": 1.0}})
    {'rounds': 2, 'network': {'failures': 3, 'quorum': 1.0}}
    """
    table = dict(table)
    for head in dict.fromkeys(key.partition(".")[0] for key in RENAMED):
        inner = table.get(head)
        if isinstance(inner, dict):
            names = current_names(f"{head}.{key}" for key in inner)
            table[head] = {names[f"{head}.{k}"].partition(".")[2]: v for k, v in inner.items()}
    return table


def override(table: Table, flags: list[tuple[str, str]]) -> Table:
    """Override a table with command-line flags (`method.epsilon`, "0.3").

    A bare `--method NAME` replaces the whole table of the method.
    """
    table = rename_keys(deepcopy(table))
    names = current_names(key for key, _ in flags)
    for key, text in flags:
        head, _, rest = key.partition(".")
        if head in LISTS and rest:
            # `tune.budget` and its like are no keys of the configuration.
            read = parse_list if head == "sweep" or "." in rest else parse_value
            table.setdefault(head, {})[rest] = read(text)
        else:
            set_key(table, names[key], read_flag(table, names[key], text), f"--{key}")
    return fill_names(table)


def fill_names(table: Table) -> Table:
    """Set the default name in tables of data, model and method that have none."""
    for name, default in CHOSEN.items():
        if isinstance(table.get(name), dict):
            table[name].setdefault("name", default)
    return table


def set_key(
    table: Table,
    key: str,
    value: Any,
    where: str,
    all_methods: bool = False,
    parts: Catalogue = INSTALLED,
) -> None:
    """Set one key in a table, in place.

    Args:
        all_methods: True if `method.KEY` means all of several methods that take KEY
    """
    key = RENAMED.get(key, key)
    head, _, rest = key.partition(".")
    if not rest:
        if head in CHOSEN and isinstance(value, str):
            value = {"name": value}
        if head == "method":
            table.pop("methods", None)
        table[head] = value
        return
    if head == "methods":
        listed = list_methods(table)
        entry, inner = find_method(listed, rest, where)
        table.pop("method", None)
        table["methods"] = listed
        _set(entry, inner, value, where)
        return
    if head == "method" and "method" not in table:
        listed = list_methods(table)
        if len(listed) > 1:
            if not all_methods:
                raise MusterError(f"{where}: the configuration has several methods; which one?")
            table["methods"] = listed
            for entry in find_takers(listed, rest.partition(".")[0], where, parts):
                _set(entry, rest, value, where)
            return
        table.pop("methods", None)
        table["method"] = listed[0]
    _set(table, key, value, where)


def list_methods(table: Table) -> list[Table]:
    """Return the methods of a configuration as tables."""
    given = table.get("methods") or [table.get("method", CHOSEN["method"])]
    if not isinstance(given, list):
        raise not_methods(given)
    if isinstance(given[0], dict) and "methods" not in table:
        given = [{"name": CHOSEN["method"], **given[0]}]
    return [as_named_table("method", item) for item in given]


def not_methods(given: Any) -> MusterError:
    """Return the error of `methods` that are no list of names or tables."""
    name = given if isinstance(given, str) and "," not in given else "NAME"
    return MusterError(
        f"methods: {given!r}; give --method {name}, several times for several, or in a file a list "
        "of names, or of tables, each with a name"
    )


def get_label(entry: Table) -> str:
    """Return the label of a method of a configuration."""
    return str(entry.get("label", entry["name"]))


def find_method(listed: Sequence[Table], rest: str, where: str) -> tuple[Table, str]:
    """Return the method of `LABEL.KEY`, and the key."""
    found = label_and_key(map(get_label, listed), rest)
    if found is None:
        raise unknown_name(f"method in {where}:", rest.partition(".")[0], map(get_label, listed))
    label, key = found
    return next(entry for entry in listed if get_label(entry) == label), key


def find_takers(listed: Sequence[Table], key: str, where: str, parts: Catalogue) -> Sequence[Table]:
    """Return the methods that a key is for: all, if any method can have it; for a part that few
    methods use, those that take it as a parameter, or all if none does."""
    makers = [parts.find(Method, entry["name"], "method.name") for entry in listed]
    takers = [e for e, maker in zip(listed, makers, strict=True) if key in parameters(maker)]
    any_has = key == "local" or key in parameters(Method, skip=("name",))
    if any_has and (key not in SPECIAL or not takers):
        return listed
    if not takers:
        names = ", ".join(get_label(entry) for entry in listed)
        raise MusterError(f"{where}: none of the methods ({names}) takes '{key}'")
    return takers


def _set(table: Table, key: str, value: Any, where: str) -> None:
    *path, last = key.split(".")
    inner: Any = table
    for depth, step in enumerate(path):
        if isinstance(inner.get(step), str):  # a bare name is short for a table
            chosen = depth == 0 and step in CHOSEN
            inner[step] = {"name" if chosen else "kind": inner[step]}
        inner = inner.setdefault(step, {})
        if not isinstance(inner, dict):
            raise MusterError(f"{where}: '{step}' is not a table here")
    inner[last] = value


def parse_value(text: str) -> Any:
    """Return a flag's value, parsed as TOML; anything else is text.

    >>> parse_value("0.3"), parse_value("[1, 2]"), parse_value("fedavg"), parse_value("true")
    (0.3, [1, 2], 'fedavg', True)
    """
    try:
        return parse_toml(f"v = {text}")["v"]
    except ValueError:
        return text


def read_flag(table: Table, key: str, text: str) -> Any:
    """Return a flag's value for a key: its word as it is where the key takes text, and not what
    TOML reads in the word (a date, a number).

    >>> read_flag({}, "name", "2026-11-19"), read_flag({}, "rounds", "20")
    ('2026-11-19', 20)
    """
    value = parse_value(text)
    if key in CHOSEN:
        return value if isinstance(value, (str, dict)) else text
    kind = find_type(table, key)
    options = get_args(kind) if get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    taken = str not in options or any(fits(value, option) for option in options)
    return value if taken else text


def find_type(table: Table, key: str) -> Any:
    """Return the type of a key of the settings, the data or the network; None: it is not known."""
    head, _, rest = key.partition(".")
    if head == "network":
        return parameters(Network).get(rest)
    if head != "data":
        return parameters(Settings).get(key)
    data, known = table.get("data"), kinds(Federation)
    name = str(data.get("name", CHOSEN["data"]) if isinstance(data, dict) else data)
    if ":" in name:
        return None  # a function of the user's, which is not loaded here
    return parameters(known.get(name) or known["folder"]).get(rest)  # else it is a path


def parse_list(text: str) -> list[Any]:
    """Return a flag's values, separated by commas.

    >>> parse_list("2,6,12"), parse_list("low, high"), parse_list("0.5"), parse_list("[1, 2]")
    ([2, 6, 12], ['low', 'high'], [0.5], [1, 2])
    >>> parse_list('iid, {kind = "dirichlet", alpha = 0.3}')  # tables contain commas
    ['iid', {'kind': 'dirichlet', 'alpha': 0.3}]
    """
    whole = parse_value(text)
    if isinstance(whole, list):
        return whole
    both = parse_value(f"[{text}]")
    if isinstance(both, list):
        return both
    return [parse_value(word.strip()) for word in re.split(r",(?![^{}]*\}|[^\[\]]*\])", text)]


def add_trust(method: Table, trust: Any, federated: bool, parts: Catalogue = INSTALLED) -> Table:
    """Return a method's table with its trust, unless it has one.

    >>> add_trust({"name": "fedalign"}, None, federated=True)
    {'name': 'fedalign', 'trust': True}
    """
    if "trust" in method or trust is False or (trust is None and not federated):
        return method
    maker = parts.find(Method, method["name"], "method.name")
    if "trust" in parameters(maker):
        return {**method, "trust": True}
    if trust is None or build_method(method, parts).serves == "own":
        return method
    return {**method, "trust": {"kind": "audit"}}


def build_method(table: Table, parts: Catalogue = INSTALLED) -> Method:
    """Return the method of a table: a named one with its parameters, any part of it replaced.

    >>> build_method({"name": "fedavg", "solver": {"kind": "sgd", "prox": 0.1}}).solver
    SGD(prox=0.1)
    """
    maker = parts.find(Method, table["name"], "method.name")
    fields = parameters(Method, skip=("name",))
    # A key that the named method takes itself is its own; any other names a part to put in place.
    replaced = {k: v for k, v in table.items() if k in fields and k not in parameters(maker)}
    own = {k: v for k, v in table.items() if k not in replaced and k != "name"}
    method: Method = build(maker, own, "method", also=tuple(fields), parts=parts)
    if not replaced:
        return method
    others = {k: convert(v, fields[k], f"method.{k}", parts) for k, v in replaced.items()}
    refuse_lost_settings(method, maker, own, others, parts)
    made = dataclasses.replace(method, **others)
    refuse_idle_settings(made, replaced)
    return made


def refuse_idle_settings(method: Method, given: Table) -> None:
    """Refuse a setting that no part of a method uses. Parts of the user's are not checked."""
    rules = (method.join, method.admit, method.claim)
    if not all(type(rule).__module__.startswith("muster.") for rule in rules):
        return
    for key, heeded in (
        ("epsilon", method.refers),
        ("reference", method.refers),
        ("tune_steps", method.claim.needs_requirement),
    ):
        if key in given and not heeded:
            raise MusterError(
                f"method.{key}: nothing in '{method.name}' uses it, so it would change nothing; "
                "leave it out, or give a part that does (join, admit, claim)"
            )


def refuse_lost_settings(
    method: Method, maker: Any, own: Table, others: Table, parts: Catalogue
) -> None:
    """Refuse a setting of a method that would be lost because its part is replaced, such as `prox`
    next to another solver."""
    taken = inspect.signature(maker).parameters
    required = {name for name, p in taken.items() if p.default is p.empty}
    for key, value in own.items():
        less = {k: v for k, v in own.items() if k != key}
        if key in required:
            continue
        without: Method = build(maker, less, "method", parts=parts)
        for name in others:
            if getattr(method, name) != getattr(without, name):
                raise MusterError(
                    f"method.{key}: {value!r} is part of the {name} that method.{name} replaces; "
                    f"give one of the two, or say it in method.{name}"
                )
