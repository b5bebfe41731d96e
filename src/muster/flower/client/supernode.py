"""Flower's SuperNode as `muster node` runs it: it ends with its parent, and its waits time out.

A server that dies after it has announced a message leaves objects behind that nobody will send.
Flower's SuperNode tries for them 500 times, up to ten seconds apart; and when it learns that the
run is over it turns to the next message without a sign to its worker, which tries as often. Here
both time out, and the end of a run is the end of its messages.

    python -P -m muster.flower.client.supernode PARENT ... < secret     (started by `muster node`)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..compat import (
    ObjectPullError,
    RunNotRunningException,
    inflatable_utils,
    pull_objects,
    run_supernode,
    version_error,
)
from ..local.child_processes import end_with

SEND_TIMEOUT = 120.0  # seconds for a server to send a message's objects to its own SuperLink
PULL_TIMEOUT = 600.0  # seconds for a node to pull them, over whatever line it has


def set_pull_timeout(seconds: float) -> None:
    """Bound how long this process waits for objects that are announced and not there."""
    for name in ("pull_objects", "pull_and_inflate_object_from_tree"):
        defaults = getattr(getattr(inflatable_utils, name, None), "__kwdefaults__", None) or {}
        if "max_time" not in defaults:
            raise version_error(f"this version's {name} has no max_time")
        defaults["max_time"] = seconds


def stop_with_run(pull: Callable[..., dict[str, bytes]]) -> Callable[..., dict[str, bytes]]:
    """Wrap Flower's pull so that the end of a run is an error like any other: the message and its
    task are then given up too."""

    def pull_until_end(object_ids: list[str], **options: Any) -> dict[str, bytes]:
        try:
            return pull(object_ids, **options)
        except RunNotRunningException:
            raise ObjectPullError(object_ids[0], "the run is over") from None

    return pull_until_end


def main() -> None:
    """Run Flower's SuperNode with the command line's words after the parent's process id."""
    end_with(int(sys.argv.pop(1)))
    set_pull_timeout(SEND_TIMEOUT)
    run_supernode(stop_with_run(pull_objects))


if __name__ == "__main__":
    main()
