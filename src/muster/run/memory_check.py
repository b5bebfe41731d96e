"""The memory a run needs: a check before it starts, and a forecast.

The check counts only what is certain (replies and client states), so that no run is refused that
would have fitted. The forecast is of the whole: it says how many runs go side by side. How near it
comes is measured by `python benchmarks/memory.py`.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass

import numpy as np

from ..base import params
from ..base.client_states import MAPPED_FROM
from ..base.errors import MusterError
from ..base.lazy import nn, torch
from ..base.memory import format_bytes, free_memory
from ..base.params import Params
from ..engines import Compute, StackedEngine, find_engine
from ..engines.batches import count_parameters, count_portions, count_steps
from ..engines.descent import fusable
from ..engines.engine import count_chunk
from ..engines.modules import examples, measure_layers, stackable
from ..engines.stacked_engine import is_worth_compiling
from ..federation import Federation, Population
from ..tasks.task import is_cross_entropy
from .job import Job
from .local_clients import REPLIES
from .round import Setup
from .training_loop import expand_tracks

PROCESS = 3.2e8  # bytes of a process that has loaded everything, before any data
COMPILED = 1.1e8  # and of the compiled loop of softmax regression
WORKER = 1e7  # bytes of a worker process, beyond pages that it shares with its parent
MODELS = 6  # copies of the model next to those of threads
PLANNED, MEASURED = 80, 40  # bytes for each row of a round's steps, and for each row measured
CLIENT, ENTRY = 160, 80  # bytes for each client, and for each row of the ledger
# The allocator keeps what is freed, in pieces that do not fit what is asked for next: it holds more
# than is in use. Of large blocks every one is mapped, and unmapped when it is freed.
SLACK, LOOSE = 2.0, 1.3
MAPPED = 2**25  # bytes of a large block


@dataclass(frozen=True)
class MemoryNeed:
    """The memory that a run needs at once.

    Attributes:
        asked: number of replies that are held
        reply: bytes of each
        states: bytes of all clients' states
        touched: bytes of the states of clients that train in some round, at most
        own: bytes of the state with which each of them trains
    """

    asked: int
    reply: int
    states: int
    touched: int
    own: int

    @property
    def kept(self) -> int:
        """Bytes of states in memory: large ones lie on disk."""
        return self.touched if self.states <= MAPPED_FROM else 0

    @property
    def held(self) -> int:
        """Bytes of replies and states in memory."""
        return self.asked * self.reply + self.kept


def count_memory(
    job: Job, population: Population, model: Params, trainable: tuple[str, ...], most: int
) -> MemoryNeed:
    """Count what a run needs for replies and states.

    Args:
        most: replies held at once where only their mean is asked for
    """
    method = job.method
    n = len(population.participants)
    # numpy's small integers overflow
    full = asked = int(min(n, getattr(method.invite, "max_clients", lambda n: 1)(n)))
    own = sum(params.nbytes(m) for m in job.memory(model, trainable).values())
    if method.step.only_mean and not own:
        asked = min(asked, max(1, most))
    copies = 1 + len(method.solver.sends)
    reply = params.nbytes(model) * copies + own
    trained = min(population.n, full * job.rounds)
    return MemoryNeed(asked, reply, population.n * own, trained * own, own)


@dataclass(frozen=True)
class MemoryForecast:
    """The bytes that a run on this machine will need.

    Attributes:
        process: of a process that has loaded everything, before any data
        rows: of the data
        models: of single models: the module, its copies for threads, the server's, the result's
        held: of replies and client states
        plans: of the rows of every step
        training: of all threads, or worker processes, that train
        measuring: of all threads that measure a model
        clients: of tables with a row for each client, and of the ledger
    """

    process: float
    rows: float
    models: float
    held: float
    plans: float
    training: float
    measuring: float
    clients: float

    @property
    def run(self) -> float:
        """Bytes beyond those of the process. Replies are gone when a model is measured; memory in
        which clients trained stays with the process."""
        together = self.rows + self.models + self.training + self.clients
        return together + max(self.held + self.plans, self.measuring)

    @property
    def total(self) -> float:
        """Bytes of the process and its run."""
        return self.process + self.run


def fits_kernel(module: nn.Module, job: Job, work: float, steps: float) -> bool:
    """Return True if portions of this much work, in runs of so many steps, are trained by the
    compiled loop."""
    layers = stackable(module)
    plain = job.local.optimizer.plain and is_cross_entropy(job.task) and not job.protects_rows
    alone = not isinstance(layers, str) and len(fusable(layers) or []) == 1
    return plain and alone and is_worth_compiling(work, steps)


def forecast_memory(
    fed: Federation, job: Job, module: nn.Module, compute: Compute
) -> MemoryForecast:
    """Forecast the memory of a run on this machine."""
    plain = params.get_params(module, compute.number, torch.device("cpu"))
    model = expand_tracks(job.method, plain)
    size, item = params.nbytes(model), compute.number.itemsize
    most = REPLIES // max(1, size)
    need = count_memory(job, fed.population, model, params.trainable_names(module), most)
    data = [part for part in (fed.train, fed.test) if part is not None]
    layers = measure_layers(module, examples(fed, next(iter(module.state_dict().values())).dtype))
    width = max(1, fed.train.x[:1].numel())
    workers = compute.workers()

    # The busiest clients, as asked clients may be any.
    few = np.sort(fed.train.sizes)[::-1][: need.asked]
    steps = count_steps(few, job.local)
    batch = min(int(few.max(initial=1)), job.local.batch_size or int(few.max(initial=1)))
    row = item * (width + 2 * layers.kept)  # inputs; layers, and their gradients
    stacked = find_engine(compute, module, fed)[0] is StackedEngine
    compiled = False
    drawn = max(float(few.sum()), float((steps * batch).sum()))
    if stacked:
        portions = count_portions(need.asked, batch, model)
        work, most_steps = drawn * count_parameters(model) / portions, int(steps.max(initial=0))
        compiled = fits_kernel(module, job, work, most_steps * job.rounds)
        one = -(-need.asked // portions) * (2 * size + (0 if compiled else batch * row))
        training = min(workers, portions) * SLACK * one
    else:
        busy = min(workers, need.asked)
        training = busy * (SLACK * (2 * size + batch * row) + (WORKER if busy > 1 else 0))
    chunk = count_chunk(width, layers)
    rows = sum(len(part.y) for part in data)
    threads = min(workers, -(-rows // chunk))
    largest = chunk * item * layers.largest
    copied = 0 if fed.train.x.dtype == compute.number else width
    measuring = threads * min(chunk, rows) * item * (copied + layers.at_once)
    # Clients' own models are measured in copies, as many at once as replies are averaged.
    owned = params.nbytes(job.memory(model, params.trainable_names(module)).get("own", {}))
    owned = min(fed.population.n * owned, REPLIES) + (need.kept if owned else 0)
    return MemoryForecast(
        process=PROCESS + (COMPILED if compiled else 0),
        rows=float(sum(part.nbytes for part in data)),
        models=(MODELS + workers) * float(size),
        held=float(need.held + need.asked * need.own),
        plans=PLANNED * drawn * (0.0 if job.local.batch_size is None else 1.0),
        training=float(training),
        measuring=float(measuring * (1.0 if largest > MAPPED else LOOSE) + MEASURED * rows + owned),
        clients=float(CLIENT * fed.n + ENTRY * need.asked * job.rounds),
    )


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
