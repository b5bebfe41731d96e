"""The entry point of `muster` and `python -m muster`.

The command line is imported here, where Ctrl-C and SIGTERM are handled: no traceback even while it
loads.
"""

import gc
import signal
import sys
import time
from types import FrameType

from .base.errors import INTERRUPTED, TERMINATED
from .base.lazy import defer_interrupts, pause_collection

AGAIN = 1.0  # seconds after which another SIGTERM is a second one, not the same from `timeout`


class Terminations:
    """SIGTERM (`kill`, `timeout`, systemd, Slurm) as Ctrl-C: what is under way ends in order.

    Attributes:
        last: when the last one came; None: there was none
    """

    def __init__(self) -> None:
        self.last: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        before, self.last = self.last, time.monotonic()
        if before is None or self.last - before > AGAIN:
            raise KeyboardInterrupt


def main() -> int:
    """Run the command line and return its exit code, or the one for Ctrl-C or SIGTERM."""
    ended = Terminations()
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, ended)
    try:
        with defer_interrupts(), pause_collection():
            from .cli.main import main as command
        code = command()
    except KeyboardInterrupt:
        print("muster: interrupted", file=sys.stderr)
        code = INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the exit is left
        gc.freeze()  # which would look for garbage among all objects of the libraries
        if ended is signal.getsignal(signal.SIGTERM):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return TERMINATED if code == INTERRUPTED and ended.last is not None else code


if __name__ == "__main__":
    sys.exit(main())
