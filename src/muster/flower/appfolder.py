"""The folder `flwr run` takes: names the client and server apps, and carries the experiment."""

from __future__ import annotations

from pathlib import Path

import tomli_w

from ..config.experiments import Experiment
from ..durable import write
from ..errors import MusterError
from .registry import Registry


def check(chosen: Experiment) -> None:
    """Refuse an experiment that is none for a real federation."""
    if len(chosen.methods) != 1:
        raise MusterError("methods: a federation runs one; give one [method]")
    if chosen.settings.attack is not None:
        raise MusterError("attack: a real federation has no simulated attackers; leave it out")


def registered(chosen: Experiment) -> Registry:
    """The clients an experiment lists."""
    if not chosen.members:
        raise MusterError("clients: nobody is registered; list them as [[clients]] name, key")
    return Registry.of(chosen.members)


def write_app(folder: Path, chosen: Experiment, results: Path) -> Path:
    """Write the app of an experiment. Everything a run needs is in it: keys as text, and where
    results go on the server's machine."""
    check(chosen)
    registered(chosen)
    table = {
        "project": {"name": "muster-federation", "version": "1.0.0", "dependencies": []},
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "muster",
                    "components": {
                        "serverapp": "muster.flower.server:app",
                        "clientapp": "muster.flower.client:app",
                    },
                    "config": {
                        "experiment": tomli_w.dumps(chosen.with_keys().resolved()),
                        "folder": str(results.resolve()),
                    },
                }
            }
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "pyproject.toml", tomli_w.dumps(table))
    return folder
