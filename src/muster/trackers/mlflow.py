"""MLflow: runs in an experiment, on a server or in a folder.

Spoken to through its client, so that a run of the caller's own that is active stays as it is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from .base import Tracker, needed


class mlflow(Tracker):
    """One MLflow run per run.

    Attributes:
        experiment: what MLflow calls them together
        uri: where it keeps them: a server, or file:PATH; by default as MLflow is set up
    """

    def __init__(self, experiment: str = "muster", uri: str | None = None) -> None:
        super().__init__()
        self.kinds = needed("mlflow.entities", "mlflow")
        self.client = needed("mlflow", "mlflow").MlflowClient(uri)
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
        told = [self.kinds.Metric(name, value, now, round) for name, value in values.items()]
        self.client.log_batch(self.run, metrics=told)

    def end(self) -> None:
        self.client.set_terminated(self.run)
