"""Experiment trackers: TensorBoard, MLflow, Weights & Biases, trackio.

Each is an `on_round` callback over a package that is imported when it is used:

    muster.simulate(..., on_round=muster.trackers.tensorboard("logs"))

`muster run --track tensorboard` does the same. `on_round` takes any function of a round's row, so
another tracker takes a few lines.
"""

from collections.abc import Callable

from .adapters import mlflow, tensorboard, trackio, wandb
from .tracker import Tracker

# By name; each takes where its runs are stored: a folder, an experiment, a project.
TRACKERS: dict[str, Callable[[str], Tracker]] = {
    "tensorboard": tensorboard,
    "mlflow": mlflow,
    "wandb": wandb,
    "trackio": trackio,
}

__all__ = ["TRACKERS", "Tracker", "mlflow", "tensorboard", "trackio", "wandb"]
