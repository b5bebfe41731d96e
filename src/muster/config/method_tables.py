"""Tables of methods: a named method with its parameters, any of its parts replaced."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from ..base.errors import MusterError
from ..base.registry import INSTALLED, Catalogue
from ..base.schema import Table, build, convert, parameters
from ..methods import Method


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
