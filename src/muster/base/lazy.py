"""Lazy imports: large libraries are loaded when they are first used.

torch takes seconds to load, polars a third of one; help, a list of methods or a sentence about a
wrong key needs neither. Our modules write `from .lazy import torch` and use `torch.zeros(...)`
inside functions as usual. A use while a module is imported (a base class, a decorator, a default)
loads the library with that module; a type that is only written in annotations is imported under
`TYPE_CHECKING`.

Code outside this package imports torch as it likes.
"""

from __future__ import annotations

import gc
import importlib
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Defer Ctrl-C, and SIGTERM that is handled, to the end of the block, in which libraries are
    loaded.

    A library that is interrupted while it loads may raise another error ("cannot load module more
    than once per process"), and cannot be loaded again.
    """
    main = threading.current_thread() is threading.main_thread()  # it alone handles signals
    before = {number: signal.getsignal(number) for number in STOPS} if main else {}
    before = {number: handler for number, handler in before.items() if callable(handler)}
    received: list[int] = []
    for number in before:
        signal.signal(number, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


@contextmanager
def pause_collection() -> Iterator[None]:
    """Pause the search for cycles of garbage in the block, in which libraries are loaded: it would
    go over their objects, all of which stay, for a quarter of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def load_module(name: str) -> ModuleType:
    """Import and return the module of this name."""
    with defer_interrupts(), pause_collection():
        return importlib.import_module(name)


def lazy_module(name: str) -> ModuleType:
    """Return a proxy of the module `name` that loads it at the first use.

    Attributes are cached, so that later look-ups cost the same as in the module itself.
    """
    stand_in = ModuleType(name, f"Stands in for {name} until it is used.")

    def look_up(attribute: str) -> Any:
        value = getattr(load_module(name), attribute)
        setattr(stand_in, attribute, value)
        return value

    stand_in.__getattr__ = look_up  # type: ignore[method-assign]
    return stand_in


_PROVIDERS: dict[str, str] = {}


def provide(role: str, module: str) -> None:
    """Register the module of a role. Only the package's root calls this: it imports every room."""
    _PROVIDERS[role] = module


def get_provider(role: str) -> ModuleType:
    """Return a proxy of the module of a role, for a room that must not import a higher one."""
    stand_in = ModuleType(role)
    stand_in.__getattr__ = lambda name: getattr(  # type: ignore[method-assign]
        load_module(_PROVIDERS[role]), name
    )
    return stand_in


if TYPE_CHECKING:
    from importlib import metadata

    import filelock
    import griffe
    import platformdirs
    import polars as pl
    import pooch
    import safetensors.torch as safetensors
    import torch
    from PIL import Image
    from scipy import linalg, optimize, sparse, special
    from sklearn import datasets
    from torch import nn
    from torch.nn import functional
else:
    Image = lazy_module("PIL.Image")
    datasets = lazy_module("sklearn.datasets")
    functional = lazy_module("torch.nn.functional")
    filelock = lazy_module("filelock")
    griffe = lazy_module("griffe")
    linalg = lazy_module("scipy.linalg")
    metadata = lazy_module("importlib.metadata")
    nn = lazy_module("torch.nn")
    optimize = lazy_module("scipy.optimize")
    pl = lazy_module("polars")
    platformdirs = lazy_module("platformdirs")
    pooch = lazy_module("pooch")
    safetensors = lazy_module("safetensors.torch")
    sparse = lazy_module("scipy.sparse")
    special = lazy_module("scipy.special")
    torch = lazy_module("torch")

__all__ = [
    "Image",
    "datasets",
    "defer_interrupts",
    "filelock",
    "functional",
    "griffe",
    "lazy_module",
    "linalg",
    "metadata",
    "nn",
    "optimize",
    "pause_collection",
    "pl",
    "platformdirs",
    "pooch",
    "safetensors",
    "sparse",
    "special",
    "torch",
]
