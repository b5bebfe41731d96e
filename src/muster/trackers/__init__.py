"""Trackers: results where people already look, if they ask for it.

Each is an `on_round` in a file of its own, over a package that is loaded when it is used:

    muster.simulate(..., on_round=muster.trackers.tensorboard("logs"))

`muster run --track tensorboard` does the same. `on_round` takes any function of a round's row: what
is not here takes a few lines.
"""

from collections.abc import Callable

from .base import Tracker
from .mlflow import mlflow
from .tensorboard import tensorboard
from .trackio import trackio
from .wandb import wandb

# By name; each takes where its runs go: a folder, an experiment, a project.
TRACKERS: dict[str, Callable[[str], Tracker]] = {
    "tensorboard": tensorboard,
    "mlflow": mlflow,
    "wandb": wandb,
    "trackio": trackio,
}

__all__ = ["TRACKERS", "Tracker", "mlflow", "tensorboard", "trackio", "wandb"]
