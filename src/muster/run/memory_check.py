"""A check of the memory a run needs, before it starts.

Only what is certain is counted (replies and client states), so that no run is refused that would
have fitted.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass

from ..base import params
from ..base.client_states import MAPPED_FROM
from ..base.errors import MusterError
from ..base.lazy import nn, torch
from ..base.memory import format_bytes, free_memory
from ..base.params import Params
from ..engines import Compute
from ..federation import Federation, Population
from .job import Job
from .local_clients import REPLIES
from .round import Setup
from .training_loop import expand_tracks

PROCESS = 3e8  # bytes of a process that has loaded everything, before any data


@dataclass(frozen=True)
class MemoryNeed:
    """The memory that a run needs at once.

    Attributes:
        asked: number of replies that are held
        reply: bytes of each
        states: bytes of all clients' states
    """

    asked: int
    reply: int
    states: int

    @property
    def held(self) -> int:
        """Bytes in memory: large states lie on disk."""
        return self.asked * self.reply + (self.states if self.states <= MAPPED_FROM else 0)


def count_memory(
    job: Job, population: Population, model: Params, trainable: tuple[str, ...], most: int
) -> MemoryNeed:
    """Count what a run needs for replies and states.

    Args:
        most: replies held at once where only their mean is asked for
    """
    method = job.method
    n = len(population.everyone)
    # numpy's small integers overflow
    asked = int(min(n, getattr(method.invite, "max_clients", lambda n: 1)(n)))
    own = sum(params.nbytes(m) for m in job.memory(model, trainable).values())
    if method.step.only_mean and not own:
        asked = min(asked, max(1, most))
    copies = 1 + len(method.solver.sends)
    return MemoryNeed(asked, params.nbytes(model) * copies + own, population.n * own)


def forecast_memory(fed: Federation, job: Job, module: nn.Module, compute: Compute) -> float:
    """Return the bytes that a run on this machine needs: its process, rows, replies and states."""
    model = expand_tracks(
        job.method, params.get_params(module, compute.number, torch.device("cpu"))
    )
    most = REPLIES // max(1, params.nbytes(model))
    need = count_memory(job, fed.population, model, params.trainable_names(module), most)
    rows = [t for part in (fed.train, fed.test) if part is not None for t in (part.x, part.y)]
    return PROCESS + float(sum(t.nbytes for t in rows)) + need.held


def check_memory(setup: Setup, model: Params) -> None:
    """Refuse a run whose replies or client states cannot fit."""
    clients, population = setup.clients, setup.population
    need = count_memory(setup.job, population, model, clients.trainable, clients.max_replies(model))
    free = free_memory(clients.device)
    if need.held > free:
        raise MusterError(
            f"memory: this run needs {format_bytes(need.held)} at once ({need.asked} replies of "
            f"{format_bytes(need.reply)}), and {format_bytes(free)} are free; ask fewer "
            "clients a round, or take a smaller model"
        )
    states, disk = need.states, shutil.disk_usage(tempfile.gettempdir()).free
    if states > MAPPED_FROM and states > disk:
        raise MusterError(
            f"memory: the states of {population.n} clients take up to {format_bytes(states)} on "
            f"disk, and {format_bytes(disk)} are free in {tempfile.gettempdir()}; set TMPDIR to a "
            f"larger disk, or choose a method without client state ({setup.job.method.name} has it)"
        )
