"""The entry point of `muster` and `python -m muster`.

The command line is imported here, where Ctrl-C is handled: no traceback even while it loads.
"""

import signal
import sys

from .base.errors import INTERRUPTED
from .base.lazy import defer_interrupts


def main() -> int:
    """Run the command line and return its exit code, or the one for Ctrl-C."""
    try:
        with defer_interrupts():
            from .cli.main import main as command
        return command()
    except KeyboardInterrupt:
        print("muster: interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the exit is left


if __name__ == "__main__":
    sys.exit(main())
