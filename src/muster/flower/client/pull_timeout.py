"""How long a node waits for a message's objects: as long as they can still come.

A server that dies after it has announced a message leaves objects behind that nobody will send.
Flower's supernode tries for them 500 times, up to ten seconds apart; and when it learns that the
run is over it goes on to the next message without telling its worker, which tries as often. Here
the wait is bounded, and the end of a run is the end of its messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flwr.supercore.inflatable import inflatable_utils
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError
from flwr.supercore.run import RunNotRunningException

from ...base.errors import MusterError

SENT_WITHIN = 120.0  # seconds for a server to send a message's objects to its own superlink
FETCHED_WITHIN = 600.0  # seconds for a node to have fetched them, over whatever line it has


def bound_pulls(seconds: float) -> None:
    """Bound how long this process waits for objects that are announced and not there."""
    for name in ("pull_objects", "pull_and_inflate_object_from_tree"):
        defaults = getattr(getattr(inflatable_utils, name, None), "__kwdefaults__", None) or {}
        if "max_time" not in defaults:
            raise MusterError(
                f"flower: this version's {name} has no max_time; install flwr>=1.41,<1.43"
            )
        defaults["max_time"] = seconds


def until_the_run_ends(pull: Callable[..., dict[str, bytes]]) -> Callable[..., dict[str, bytes]]:
    """Flower's pull, for which the end of a run is an error like any other: the message and its
    task are then given up too."""

    def pull_objects(object_ids: list[str], **how: Any) -> dict[str, bytes]:
        try:
            return pull(object_ids, **how)
        except RunNotRunningException:
            raise ObjectPullError(object_ids[0], "the run is over") from None

    return pull_objects
