"""Where modules went: names that worked before the house had rooms keep working.

`from muster.admit import Band` finds `muster.parts.admit`. New code imports from the new place;
for the parts of a method that is `muster.parts`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

MOVED = {
    **{
        name: f"parts.{name}"
        for name in (
            "admit", "attacks", "claim", "effort", "guard", "invite", "join", "participation",
            "solvers", "step", "weigh",
        )
    },
    **{
        name: f"run.{name}"
        for name in ("clients", "ledger", "round", "simulate", "solo", "store")
    },
    "appeal": "parts.claim",
    "compare": "report.intervals",
    "metrics": "run.measures",
    "network": "config.network",
    "progress": "cli.progress",
    "ragged": "federation.ragged",
    **{f"data.{name}": f"data.split.{name}" for name in ("label_mix", "partition")},
    "data.parts": "data.split.portions",
    **{f"data.{name}": f"data.sets.{name}" for name in ("digits", "images", "sent140", "synth")},
    **{
        f"data.{name}": f"data.files.{name}"
        for name in ("huggingface", "manifest", "rows", "tables")
    },
    "data.own": "data.files.folder",
    **{
        f"data.{name}": f"data.sources.{name}"
        for name in ("cache", "catalogue", "fetch", "idx", "readers", "tweets")
    },
    "flower.own": "flower.node_data",
}  # fmt: skip


class Forward:
    """Finds a module that moved under its old name: both names are one and the same module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, old = fullname.partition(".")
        if package != "muster" or old not in MOVED:
            return None
        # importlib.abc, whose Loader this is in all but name, takes longer to load than muster.
        return importlib.machinery.ModuleSpec(fullname, self)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"muster.{MOVED[spec.name.partition('.')[2]]}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # It ran when it was imported from its own place, which stays its place.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


class Parent(ModuleType):
    """A package in which some names that modules had are functions now.

    Python puts every module that it imports into its package, under the name it was imported by.
    Here what the package says a name is stays: so `from muster.compare import Interval` works, and
    `muster.compare(...)` afterwards too.
    """

    def __setattr__(self, name: str, value: object) -> None:
        moved = isinstance(value, ModuleType) and value.__name__ != f"{self.__name__}.{name}"
        if not (moved and name in self.__all__):
            super().__setattr__(name, value)


def keep_names(package: str) -> None:
    """Let the public names of a package be what they are when old ones are imported."""
    sys.modules[package].__class__ = Parent


def install() -> None:
    """Let old names be found; modules that exist under a name come first."""
    if not any(isinstance(finder, Forward) for finder in sys.meta_path):
        sys.meta_path.append(Forward())
    keep_names("muster")
