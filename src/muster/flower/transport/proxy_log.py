"""Refusals of the proxy, and a log of them that cannot fill a disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from .wire import clean_line

LINES_A_MINUTE = 30  # of the log
LONGEST_LINE = 250  # characters

Say = Callable[[str], None]


class Refusal(Exception):
    """A request that is not forwarded: the HTTP status and the reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class Log:
    """A log that writes so many short lines a minute, and then counts."""

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
            self.say(clean_line(text, LONGEST_LINE))


class LogHandler(logging.Handler):
    """A logging handler that sends other packages' records to the same log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record as a line, with its exception but no traceback."""
        error = record.exc_info[1] if record.exc_info else None
        self.log(f"{record.getMessage()} {error!r}" if error else record.getMessage())
