"""Refusals of the gate: what is answered, and what is written down of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from .wire import line

LINES_A_MINUTE = 30  # in the log, of refusals
LONGEST_LINE = 250  # letters

Say = Callable[[str], None]


class Refused(Exception):
    """A request that is not passed on: with what status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class Log:
    """Says refusals, but not so many that they fill a disk."""

    say: Say
    minute: int = 0
    lines: int = 0

    def __call__(self, text: str) -> None:
        now = int(time.monotonic() // 60)
        if now != self.minute:
            if self.lines > LINES_A_MINUTE:
                self.say(f"and {self.lines - LINES_A_MINUTE} more refusals")
            self.minute, self.lines = now, 0
        self.lines += 1
        if self.lines <= LINES_A_MINUTE:
            self.say(line(text, LONGEST_LINE))


class LogHandler(logging.Handler):
    """Sends what other packages log the same way: a line each, and not too many."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Say one record; of an exception what it is, and not where it came from."""
        error = record.exc_info[1] if record.exc_info else None
        self.log(f"{record.getMessage()} {error!r}" if error else record.getMessage())
