"""Flower's supernode, as `muster node` runs it: it ends with its parent, and its waits are bounded.

python -P -m muster.flower.client.supernode PARENT ... < secret     (started by `muster node`)
"""

from __future__ import annotations

import sys

from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode

from ..local.child_processes import end_with
from .pull_timeout import SENT_WITHIN, bound_pulls, until_the_run_ends


def main() -> None:
    """Run Flower's supernode with what the command line says after the parent's number."""
    end_with(int(sys.argv.pop(1)))
    bound_pulls(SENT_WITHIN)
    start_client_internal.pull_objects = until_the_run_ends(pull_objects)  # type: ignore[attr-defined]
    flower_supernode()


if __name__ == "__main__":
    main()
