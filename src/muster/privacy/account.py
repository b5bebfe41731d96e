"""The account of a run: one line for each release, on disk before anything is released.

A run that dies after the charge and before its checkpoint plays the round again, with new noise:
that is a second release, and it is charged again. A line that was not written to its end counts.
Each line has the noise of its release: a run with other noise does not resume the account.
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
        noise: z, the deviation of their noise in units of the clip
        file: where they are written; None: in memory alone, where nothing outlives the run
        charged: the round (from 0) of every release, in order
    """

    noise: float
    file: Path | None = None
    charged: list[int] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path | None, resume: bool, noise: float) -> Account:
        """Return the account in a folder of checkpoints; a run that does not resume what is there
        would forget what it has released, and is refused."""
        if folder is None:
            return cls(noise)
        file = folder / FILE
        try:
            text = read_text(file, LINES)
        except FileNotFoundError:
            return cls(noise, file)
        lines = text.splitlines()
        if lines and not resume:
            raise MusterError(
                f"{file}: {len(lines)} releases are charged there; resume the run, or use another "
                "folder"
            )
        charged = [read_charge(line) for line in lines]
        other = next((z for _, z in charged if z not in (None, noise)), None)
        if other is not None:
            raise MusterError(
                f"{file}: releases with noise {other:g} are charged there, and this run has "
                f"{noise:g}; resume it with the same settings, or use another folder"
            )
        if text and not text.endswith("\n"):
            durable.append(file, "\n")
        return cls(noise, file, [t for t, _ in charged])

    def charge(self, t: int) -> None:
        """Charge the release of round t: on disk and synced when this returns."""
        if self.file is not None:
            new = not self.file.exists()
            durable.append(self.file, json.dumps({"round": t, "noise": self.noise}) + "\n")
            durable.sync(self.file)
            if new:
                durable.sync(self.file.parent)
        self.charged.append(t)

    def count_since(self, charged: int) -> int:
        """Return the releases after a checkpoint that had so many: they are lost, and count."""
        return max(0, len(self.charged) - charged)


def read_charge(line: str) -> tuple[int, float | None]:
    """Return the round of a line, and its noise where it says so; one that was cut off counts as
    late as can be."""
    try:
        found = json.loads(line)
        noise = found.get("noise")
        return int(found["round"]), None if noise is None else float(noise)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return UNKNOWN, None


def count_early(charged: Sequence[int], warmup: int) -> int:
    """Return how many releases were in warm-up."""
    return sum(t < warmup for t in charged)
