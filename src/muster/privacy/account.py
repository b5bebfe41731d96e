"""The account of a run: one line for each release, on disk before anything is released.

A run that dies after the charge and before its checkpoint plays the round again, with new noise:
that is a second release, and it is charged again. A line that was not written to its end counts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..base import durable
from ..base.errors import MusterError
from ..base.untrusted_files import LINES, read_text

FILE = "privacy.jsonl"
UNKNOWN = 2**62  # a round after every warm-up


@dataclass
class Account:
    """The releases of a run so far.

    Attributes:
        file: where they are written; None: in memory alone, where nothing outlives the run
        charged: the round (from 0) of every release, in order
    """

    file: Path | None = None
    charged: list[int] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path | None, resume: bool) -> Account:
        """Return the account in a folder of checkpoints; a run that does not resume what is there
        would forget what it has released, and is refused."""
        if folder is None:
            return cls()
        file = folder / FILE
        try:
            text = read_text(file, LINES)
        except FileNotFoundError:
            return cls(file)
        lines = text.splitlines()
        if lines and not resume:
            raise MusterError(
                f"{file}: {len(lines)} releases are charged there; resume the run, or use another "
                "folder"
            )
        if text and not text.endswith("\n"):
            durable.append(file, "\n")
        return cls(file, [read_round(line) for line in lines])

    def charge(self, t: int) -> None:
        """Charge the release of round t: on disk and synced when this returns."""
        if self.file is not None:
            new = not self.file.exists()
            durable.append(self.file, json.dumps({"round": t}) + "\n")
            durable.sync(self.file)
            if new:
                durable.sync(self.file.parent)
        self.charged.append(t)

    def count_since(self, charged: int) -> int:
        """Return the releases after a checkpoint that had so many: they are lost, and count."""
        return max(0, len(self.charged) - charged)


def read_round(line: str) -> int:
    """Return the round of a line; one that was cut off counts as late as can be."""
    try:
        return int(json.loads(line)["round"])
    except (ValueError, KeyError, TypeError):
        return UNKNOWN


def count_early(charged: Sequence[int], warmup: int) -> int:
    """Return how many releases were in warm-up."""
    return sum(t < warmup for t in charged)
