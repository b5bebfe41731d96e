"""Lazy: the large libraries, loaded when they are first used and not before.

torch takes seconds to load, polars a third of one; help, a list of methods or a sentence about a
wrong key needs neither. Our modules write `from .lazy import torch` and use `torch.zeros(...)`
inside functions as ever. What would use it while a module is being imported (a base class, a
decorator, a default) has to take another form, or the library loads with that module; a type
that is only written in annotations is imported under `TYPE_CHECKING`.

Code outside this package imports torch as it likes.
"""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait until what is loaded here has been loaded.

    A library that is interrupted while it loads may say something else ("cannot load module more
    than once per process"), and can then not be loaded again.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or (before := signal.getsignal(signal.SIGINT)) is None:
        yield  # signals are not ours to hold
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def load_module(name: str) -> ModuleType:
    """The module of this name."""
    with defer_interrupts():
        return importlib.import_module(name)


def lazy_module(name: str) -> ModuleType:
    """A module that stands in for `name` and loads it at the first use.

    It keeps each thing it was asked for, so that from then on a look-up costs what it costs in the
    module itself.
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
    """Name the module behind a role. The package's root calls this: it alone sees every room."""
    _PROVIDERS[role] = module


def get_provider(role: str) -> ModuleType:
    """A stand-in for the module behind a role, for a room that must not import a higher one."""
    stand_in = ModuleType(role)
    stand_in.__getattr__ = lambda name: getattr(  # type: ignore[method-assign]
        load_module(_PROVIDERS[role]), name
    )
    return stand_in


if TYPE_CHECKING:
    from importlib import metadata

    import griffe
    import platformdirs
    import polars as pl
    import pooch
    import safetensors.torch as safetensors
    import torch
    from PIL import Image
    from scipy import linalg, optimize, sparse
    from sklearn import datasets
    from torch import nn
    from torch.nn import functional
else:
    Image = lazy_module("PIL.Image")
    datasets = lazy_module("sklearn.datasets")
    functional = lazy_module("torch.nn.functional")
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
    torch = lazy_module("torch")

__all__ = [
    "Image",
    "datasets",
    "defer_interrupts",
    "functional",
    "griffe",
    "lazy_module",
    "linalg",
    "metadata",
    "nn",
    "optimize",
    "pl",
    "platformdirs",
    "pooch",
    "safetensors",
    "sparse",
    "torch",
]
