"""Experiment trackers: TensorBoard, MLflow, Weights & Biases, trackio.

Each is an `on_round` callback over a package that is imported when the tracker is created. Its
`start` is an `on_start`, which names the run that follows:

    muster.simulate(..., on_round=muster.trackers.tensorboard("logs"))
    tracker = muster.trackers.mlflow("my experiment")
    muster.compare(fed, methods, model, rounds=50, on_start=tracker.start, on_round=tracker)

`muster run --track tensorboard` does the same. Without `start`, a round that does not follow the
last one begins another run. Of a private run only what it releases is logged. Another tracker is a
subclass of `Tracker` with `begin`, `log` and `end`.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

import numpy as np

from .base.errors import MusterError
from .results.privacy_statement import keep_released


class Tracker:
    """Base class of trackers: use one as `on_round`, or as a context manager, which closes it."""

    def __init__(self) -> None:
        self.last = 0
        self.open = False
        self.runs = 0
        self.next: tuple[str, dict[str, Any]] | None = None

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        """Begin a run of this name."""
        raise NotImplementedError

    def log(self, values: Mapping[str, float], round: int) -> None:
        """Log the numbers of a round."""
        raise NotImplementedError

    def end(self) -> None:
        """End the run."""
        raise NotImplementedError

    def start(self, label: str, seed: int, already: int = 0) -> None:
        """Announce the run of a method and seed, of whose rounds `already` are done. A run without
        further rounds is not begun."""
        self.close()
        self.next, self.last = (f"{label}-seed{seed}", {"method": label, "seed": seed}), already

    def __call__(self, row: Mapping[str, Any]) -> None:
        t = int(row["round"])
        if self.open and t <= self.last:
            self.close()
        if not self.open:
            self.runs += 1
            self.begin(*(self.next or (f"run-{self.runs}", {})))
            self.open, self.next = True, None
        # Of a private run only what it releases.
        self.log(numbers(keep_released(row) if "releases" in row else row), t)
        self.last = t

    def close(self) -> None:
        """End the current run, if there is one."""
        if self.open:
            self.open, self.last = False, 0
            self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a round's row.

    >>> numbers({"round": 3, "loss": 0.5, "eps": float("nan"), "skipped": False, "note": "x"})
    {'loss': 0.5, 'skipped': 0.0}
    """
    found = {}
    for name, value in row.items():
        if name == "round" or not isinstance(value, (bool, int, float, np.generic)):
            continue
        if math.isfinite(value):
            found[name] = float(value)
    return found


def import_package(module: str, extra: str) -> ModuleType:
    """Import the package of a tracker, or raise an error that names the extra to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MusterError(
            f"{extra}: not installed ({error.name}); get it with: pip install 'muster-fl[{extra}]'"
        ) from None


class tensorboard(Tracker):
    """TensorBoard: event files, one folder per run; `tensorboard --logdir FOLDER` shows them live.

    Attributes:
        folder: where the event files are written
    """

    def __init__(self, folder: str | Path = "tensorboard") -> None:
        super().__init__()
        self.folder = Path(folder)
        self.package = import_package("torch.utils.tensorboard", "tensorboard")

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        self.writer = self.package.SummaryWriter(str(self.folder / name))

    def log(self, values: Mapping[str, float], round: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, round)
        self.writer.flush()

    def end(self) -> None:
        self.writer.close()


class mlflow(Tracker):
    """MLflow: runs in an experiment, on a server or in a folder.

    Uses MLflow's client, so that a run which the caller has active is left alone.

    Attributes:
        experiment: the name of the experiment
        uri: where MLflow stores runs: a server, or file:PATH; default: MLflow's own setting
    """

    def __init__(self, experiment: str = "muster", uri: str | None = None) -> None:
        super().__init__()
        self.entities = import_package("mlflow.entities", "mlflow")
        self.client = import_package("mlflow", "mlflow").MlflowClient(uri)
        found = self.client.get_experiment_by_name(experiment)
        self.experiment = (
            found.experiment_id if found else self.client.create_experiment(experiment)
        )

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        self.run = self.client.create_run(self.experiment, run_name=name).info.run_id
        for key, value in settings.items():
            self.client.log_param(self.run, key, value)

    def log(self, values: Mapping[str, float], round: int) -> None:
        now = int(time.time() * 1000)
        metrics = [self.entities.Metric(name, value, now, round) for name, value in values.items()]
        self.client.log_batch(self.run, metrics=metrics)

    def end(self) -> None:
        self.client.set_terminated(self.run)


class wandb(Tracker):
    """Weights & Biases: runs in a project, on its servers or stored here until `wandb sync`.

    Attributes:
        project: the name of the project
        mode: "online", or "offline": stored in `folder`, uploaded later with `wandb sync`; default:
            W&B's own setting
        folder: where W&B writes its files; default: the working folder
    """

    def __init__(
        self, project: str = "muster", mode: str | None = None, folder: str | Path | None = None
    ) -> None:
        super().__init__()
        self.project, self.mode, self.folder = project, mode, folder
        self.package = import_package("wandb", "wandb")

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        self.run = self.package.init(
            project=self.project,
            name=name,
            config=dict(settings),
            mode=self.mode,
            dir=None if self.folder is None else str(self.folder),
            reinit="create_new",
        )

    def log(self, values: Mapping[str, float], round: int) -> None:
        self.run.log(dict(values), step=round, commit=True)

    def end(self) -> None:
        self.run.finish()


class trackio(Tracker):
    """trackio: runs in a database on this machine; `trackio show` opens them.

    Attributes:
        project: the name of the project
    """

    def __init__(self, project: str = "muster") -> None:
        super().__init__()
        self.project = project
        self.package = import_package("trackio", "trackio")

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        self.package.init(project=self.project, name=name, config=dict(settings), embed=False)

    def log(self, values: Mapping[str, float], round: int) -> None:
        self.package.log(dict(values), step=round)

    def end(self) -> None:
        self.package.finish()


# By name; each takes where its runs are stored: a folder, an experiment, a project.
TRACKERS: dict[str, Callable[[str], Tracker]] = {
    "tensorboard": tensorboard,
    "mlflow": mlflow,
    "wandb": wandb,
    "trackio": trackio,
}

__all__ = ["TRACKERS", "Tracker", "mlflow", "tensorboard", "trackio", "wandb"]
