"""Where modules went: names that worked before the house had rooms keep working.

`from muster.admit import Band` finds `muster.parts.admit`. New code imports from the new place;
for the parts of a method that is `muster.parts`.
"""

from __future__ import annotations

import importlib
import importlib.abc
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


class Forward(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module that moved under its old name: both names are one and the same module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, old = fullname.partition(".")
        if package != "muster" or old not in MOVED:
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"muster.{MOVED[spec.name.partition('.')[2]]}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # It ran when it was imported from its own place, which stays its place.
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Let old names be found; modules that exist under a name come first.

    Some of these names are functions now (`muster.compare`, `muster.simulate`,
    `muster.data.digits`). Python would put a module that it imports in their place, but leaves one
    that is imported already: so `from muster.compare import Interval` works, and
    `muster.compare(...)` afterwards too.
    """
    if any(isinstance(finder, Forward) for finder in sys.meta_path):
        return
    sys.meta_path.append(Forward())
    for old, new in MOVED.items():
        parent, _, name = f"muster.{old}".rpartition(".")
        if callable(getattr(sys.modules.get(parent), name, None)):
            sys.modules[f"muster.{old}"] = importlib.import_module(f"muster.{new}")
