"""The registry of parts: every part registers under a name, and configurations find it here.

A *role* is the protocol a part implements (`Join`, `Step`, ...) or the type a function returns
(`Method`, `Federation`). `@part(Join, "aligned")` registers a class or function under a name of
that role:

    @part(Weigh, "half_share")
    @dataclass(frozen=True)
    class HalfShare: ...

Now `weigh = {kind = "half_share"}` in a TOML file and `--method.weigh half_share` on the command
line mean `HalfShare()`. A package of parts lists its modules under the entry point group
`muster.parts`; they are found wherever it is installed.

Configurations look names up in a *catalogue*. `INSTALLED`, the default, holds the installed parts;
a look-up imports nothing, so it is safe for tables made by others. `OPEN` also accepts the import
path of code that is in no package, `kind = "mymodule:HalfShare"`: it is for tables that the user
wrote or declared trusted.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from .errors import MusterError, list_names, nearest
from .lazy import metadata

Part = TypeVar("Part", bound=Callable[..., Any])

GROUP = "muster.parts"  # the entry points under which packages of parts list their modules

OPTIONAL = {"max_clients"}  # of an Invite: a forecast of memory does without it

OWN = (
    "muster.data",
    "muster.methods",
    "muster.models",
    "muster.privacy",
)  # importing these registers every part of muster

_parts: dict[Any, dict[str, Callable[..., Any]]] = {}
_imported: dict[Any, dict[str, Callable[..., Any]]] = {}  # by import path, for the open catalogue


if TYPE_CHECKING:
    Code: TypeAlias = Any
else:

    class Code:
        """The type of a parameter that takes code: a function, or in a configuration its import
        path."""


def part(role: Any, name: str) -> Callable[[Part], Part]:
    """Register a class or function as the part `name` of a role."""

    def register(target: Part) -> Part:
        known = _parts.setdefault(role, {})
        before = known.get(name)
        if before is not None and _home(before) != _home(target):
            raise MusterError(
                f"part '{name}': {_home(before)} is already the {role_name(role)} of that name; "
                f"choose another for {_home(target)}"
            )
        known[name] = target
        return target

    return register


def _home(target: Callable[..., Any]) -> str:
    return f"{target.__module__}:{target.__qualname__}"


def role_name(role: Any) -> str:
    """Return a role's name in messages: `Join` is "join"."""
    return str(getattr(role, "__name__", role)).lower()


def kinds(role: Any) -> Mapping[str, Callable[..., Any]]:
    """Return a live view of the parts of a role, by name."""
    return MappingProxyType(_parts.setdefault(role, {}))


def is_role(kind: Any) -> bool:
    """Return True if parts can be chosen by name for this type."""
    return isinstance(kind, type) and kind in _parts


def check_part(role: Any, value: Any, where: str, base: str = "") -> None:
    """Refuse a part that lacks an attribute of its role, and the part it hands on to (`then`).

    Args:
        base: the class to inherit from, which has the defaults; without one, the role itself
    """
    name = type(value).__name__
    if isinstance(value, type):
        raise MusterError(f"{where}: the class {value.__name__}; give an instance of it")
    if "__call__" in vars(role) and not callable(value):
        raise MusterError(f"{where}: {name} has no __call__; see muster.parts.{role.__name__}")
    for needed in (n for n in vars(role) if not n.startswith("_") and n not in OPTIONAL):
        if not hasattr(type(value), needed) and needed not in getattr(value, "__dict__", ()):
            raise MusterError(
                f"{where}: {name} has no {needed}; let the class inherit from "
                f"{base or f'muster.parts.{role.__name__}'}, which has the defaults"
            )
    if (then := getattr(value, "then", None)) is not None:
        check_part(role, then, f"{where} then", base)


def roles() -> list[Any]:
    """Return every role that has parts."""
    return list(_parts)


class Catalogue:
    """The installed parts, by role and name. It imports nothing."""

    def find(self, role: Any, name: Any, where: str) -> Callable[..., Any]:
        """Return the part of a role that a configuration names under the key `where`."""
        known = kinds(role)
        if not isinstance(name, str) or not name:
            raise MusterError(f"{where}: which one? {list_names(known)}")
        if name not in known:
            if ":" in name:
                self.code(name, where)
            raise MusterError(f"{where}: '{name}' is unknown; {nearest(name, known)}")
        return known[name]

    def code(self, path: Any, where: str) -> Any:
        """Return the import path of code; refused in this catalogue."""
        raise MusterError(
            f"{where}: {path!r} is an import path, and what others wrote imports nothing here: "
            "install it as a package of parts on every machine or, if it is code of your own, "
            "give --trust-code (in Python, trusted=True)"
        )


class OpenCatalogue(Catalogue):
    """The installed parts, and the user's own code by its import path."""

    def find(self, role: Any, name: Any, where: str) -> Callable[..., Any]:
        if isinstance(name, str) and name not in kinds(role):
            if ":" in name:
                found = _imported.setdefault(role, {})
                if name not in found:
                    found[name] = import_object(name, where)
                return found[name]
            load_packages()
        return super().find(role, name, where)

    def code(self, path: Any, where: str) -> Any:
        return path


INSTALLED, OPEN = Catalogue(), OpenCatalogue()


def catalogue(trusted: bool) -> Catalogue:
    """Return the catalogue for a table. Installed packages of parts are loaded first, whatever the
    table holds, so that a look-up loads nothing."""
    if trusted:
        return OPEN
    load_packages()
    return INSTALLED


def import_object(path: str, where: str) -> Callable[..., Any]:
    """Import the object at `module:name`, also from the current folder: after everything installed,
    so that no file there shadows a library."""
    module, _, name = path.partition(":")
    if not module or not name:
        raise MusterError(f"{where}: '{path}' is no import path; give module:name")
    here = os.getcwd()
    sys.path.append(here)
    try:
        target: Any = importlib.import_module(module)
        for step in name.split("."):
            target = getattr(target, step)
    except (ImportError, AttributeError, ValueError) as error:
        raise MusterError(f"{where}: '{path}' cannot be imported ({error})") from None
    finally:
        del sys.path[-1 - sys.path[::-1].index(here)]  # ours: it may have been there before
    if not callable(target):
        raise MusterError(f"{where}: '{path}' is no class or function")
    return target  # type: ignore[no-any-return]


@contextmanager
def temporary_parts() -> Iterator[None]:
    """Forget, at the end of the block, every part that was registered in it: for tests."""
    tables = (_parts, _imported)
    before = [{role: dict(known) for role, known in table.items()} for table in tables]
    try:
        yield
    finally:
        for table, was in zip(tables, before, strict=True):
            for role, known in table.items():  # in place: `kinds` gave views of these
                known.clear()
                known.update(was.get(role, {}))


@cache
def load_packages() -> None:
    """Import our own parts and the installed packages of parts, once in a process: to look for
    packages takes tens of milliseconds."""
    for module in OWN:
        importlib.import_module(module)
    for point in metadata.entry_points(group=GROUP):
        point.load()


def find_name(role: Any, value: Any) -> str | None:
    """Return the name under which a part's class is registered; None if it is not."""
    every = {**kinds(role), **_imported.get(role, {})}
    return next((n for n, target in every.items() if target is type(value)), None)
