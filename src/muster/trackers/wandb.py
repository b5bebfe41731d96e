"""Weights & Biases: runs in a project, on its servers or kept here until `wandb sync`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .base import Tracker, needed


class wandb(Tracker):
    """One W&B run per run.

    Attributes:
        project: what W&B calls them together
        mode: "online", or "offline": kept in `folder`, sent later with `wandb sync`; by default as
            W&B is set up
        folder: where it keeps its files; by default in the working folder
    """

    def __init__(
        self, project: str = "muster", mode: str | None = None, folder: str | Path | None = None
    ) -> None:
        super().__init__()
        self.project, self.mode, self.folder = project, mode, folder
        self.made = needed("wandb", "wandb")

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        self.run = self.made.init(
            project=self.project, name=name, config=dict(settings), mode=self.mode,
            dir=None if self.folder is None else str(self.folder), reinit="create_new",
        )  # fmt: skip

    def log(self, values: Mapping[str, float], round: int) -> None:
        self.run.log(dict(values), step=round, commit=True)

    def end(self) -> None:
        self.run.finish()
