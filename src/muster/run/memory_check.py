"""A check of the memory a run needs, before it starts.

Only what is certain is counted (replies and client states), so that no run is refused that would
have fitted.
"""

from __future__ import annotations

import shutil
import tempfile

from ..base import params
from ..base.client_states import MAPPED_FROM
from ..base.errors import MusterError
from ..base.memory import format_bytes, free_memory
from ..base.params import Params
from .round import Setup


def check_memory(setup: Setup, model: Params) -> None:
    """Refuse a run whose replies or client states cannot fit."""
    method, clients, population = setup.job.method, setup.clients, setup.population
    size = params.nbytes(model)
    n = int((~population.unseen).sum())
    asked = min(n, getattr(method.invite, "max_clients", lambda n: 1)(n))
    asked = int(asked)  # numpy's small integers overflow
    own = sum(params.nbytes(m) for m in setup.job.memory(model, clients.trainable).values())
    if method.step.only_mean and not own:
        asked = min(asked, max(1, clients.max_replies(model)))
    copies = 1 + len(method.solver.sends)
    replies = asked * (size * copies + own)
    states = population.n * own
    free = free_memory(clients.device)
    needed = replies + (states if states <= MAPPED_FROM else 0)
    if needed > free:
        raise MusterError(
            f"memory: this run needs {format_bytes(needed)} at once ({asked} replies of "
            f"{format_bytes(size * copies + own)}), and {format_bytes(free)} are free; ask fewer "
            "clients a round, or take a smaller model"
        )
    disk = shutil.disk_usage(tempfile.gettempdir()).free
    if states > MAPPED_FROM and states > disk:
        raise MusterError(
            f"memory: the states of {population.n} clients take up to {format_bytes(states)} on "
            f"disk, and {format_bytes(disk)} are free in {tempfile.gettempdir()}; set TMPDIR to a "
            f"larger disk, or choose a method without client state ({method.name} has it)"
        )
