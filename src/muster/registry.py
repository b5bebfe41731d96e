"""Parts by name: every part registers itself, and configuration finds it here.

A *role* is the protocol a part fills (`Join`, `Step`, ...) or what a function returns (`Method`,
`Federation`). `@part(Join, "aligned")` puts a class or function under a name of that role:

    @part(Weigh, "half_share")
    @dataclass(frozen=True)
    class HalfShare: ...

Now `weigh = {kind = "half_share"}` in a TOML file and `--method.weigh half_share` on the command
line mean `HalfShare()`. A package of parts names its modules under the entry point group
`muster.parts`, and they are found by everyone who installs it. What is in no package is found by
its import path, `kind = "mymodule:HalfShare"`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from .errors import MusterError, listed, nearest
from .lazy import metadata

Part = TypeVar("Part", bound=Callable[..., Any])

GROUP = "muster.parts"  # the entry points under which packages of parts list their modules

OWN = ("muster.data", "muster.methods", "muster.models")  # with these, every part of our own

_parts: dict[Any, dict[str, Callable[..., Any]]] = {}
_loaded: set[str] = set()


def part(role: Any, name: str) -> Callable[[Part], Part]:
    """Register a class or function as the part `name` of a role."""

    def register(target: Part) -> Part:
        known = _parts.setdefault(role, {})
        before = known.get(name)
        if before is not None and _home(before) != _home(target):
            raise MusterError(
                f"part '{name}': {_home(before)} is already the {word(role)} of that name; choose "
                f"another for {_home(target)}"
            )
        known[name] = target
        return target

    return register


def _home(target: Callable[..., Any]) -> str:
    return f"{target.__module__}:{target.__qualname__}"


def word(role: Any) -> str:
    """A role in a message: `Join` is "join"."""
    return str(getattr(role, "__name__", role)).lower()


def kinds(role: Any) -> Mapping[str, Callable[..., Any]]:
    """Every part of a role by name; what registers later is in it too."""
    return MappingProxyType(_parts.setdefault(role, {}))


def is_role(kind: Any) -> bool:
    """Whether parts can be chosen by name for this type."""
    return isinstance(kind, type) and kind in _parts


def roles() -> list[Any]:
    """Every role that has parts."""
    return list(_parts)


def find(role: Any, name: Any, where: str) -> Callable[..., Any]:
    """The part of a role that a configuration names; `where` is the key it was named under."""
    known = kinds(role)
    if not isinstance(name, str) or not name:
        raise MusterError(f"{where}: which one? {listed(known)}")
    if name not in known and ":" in name:
        part(role, name)(from_path(name, where))
    if name not in known:
        load_packages()
    if name not in known:
        raise MusterError(f"{where}: '{name}' is unknown; {nearest(name, known)}")
    return known[name]


def from_path(path: str, where: str) -> Callable[..., Any]:
    """What `module:name` means, looked for in the current folder too."""
    module, _, name = path.partition(":")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        target: Any = importlib.import_module(module)
        for step in name.split("."):
            target = getattr(target, step)
    except (ImportError, AttributeError, ValueError) as error:
        raise MusterError(f"{where}: '{path}' cannot be imported ({error})") from None
    finally:
        sys.path.remove(here)
    if not callable(target):
        raise MusterError(f"{where}: '{path}' is no class or function")
    return target  # type: ignore[no-any-return]


def load_packages() -> None:
    """Import our own parts and the installed packages of parts, each once."""
    for module in OWN:
        importlib.import_module(module)
    for point in metadata.entry_points(group=GROUP):
        if point.value not in _loaded:
            _loaded.add(point.value)
            point.load()


def name_of(role: Any, value: Any) -> str | None:
    """The name under which a part's class is registered; None when it is not."""
    return next((n for n, target in kinds(role).items() if target is type(value)), None)
