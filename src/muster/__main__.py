"""The program: `muster`, and `python -m muster`.

The command line is loaded here, where Ctrl-C is met: also while it loads there is nothing to trace.
"""

import signal
import sys

from .base.errors import INTERRUPTED
from .base.lazy import defer_interrupts


def main() -> int:
    """The command line's exit code, or the one for Ctrl-C."""
    try:
        with defer_interrupts():
            from .cli.main import main as command
        return command()
    except KeyboardInterrupt:
        print("muster: interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all that is left to do is to leave


if __name__ == "__main__":
    sys.exit(main())
