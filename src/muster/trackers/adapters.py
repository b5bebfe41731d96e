"""Adapters: a tracker for each package that people already use.

None of the packages is imported before its tracker is created.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ..base.errors import MusterError
from .tracker import Tracker


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
