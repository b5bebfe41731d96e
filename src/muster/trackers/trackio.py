"""trackio: runs in a database on this machine; `trackio show` opens them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Tracker, needed


class trackio(Tracker):
    """One trackio run per run.

    Attributes:
        project: what trackio calls them together
    """

    def __init__(self, project: str = "muster") -> None:
        super().__init__()
        self.project = project
        self.made = needed("trackio", "trackio")

    def begin(self, name: str, settings: Mapping[str, Any]) -> None:
        self.made.init(project=self.project, name=name, config=dict(settings), embed=False)

    def log(self, values: Mapping[str, float], round: int) -> None:
        self.made.log(dict(values), step=round)

    def end(self) -> None:
        self.made.finish()
