"""TensorBoard: `tensorboard --logdir FOLDER` shows the rounds of every run as they come."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .base import Tracker, needed


class tensorboard(Tracker):
    """Event files in a folder, one folder per run.

    Attributes:
        folder: where they go
    """

    def __init__(self, folder: str | Path = "tensorboard") -> None:
        super().__init__()
        self.folder = Path(folder)
        self.made = needed("torch.utils.tensorboard", "tensorboard")

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        self.writer = self.made.SummaryWriter(str(self.folder / name))

    def log(self, values: Mapping[str, float], round: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, round)
        self.writer.flush()

    def end(self) -> None:
        self.writer.close()
