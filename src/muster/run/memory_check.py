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
from ..engines.modules import examples, measure_layers, measure_saved, stackable
from ..engines.stacked_engine import FETCHED, is_worth_compiling
from ..federation import Federation, Population
from ..optimizers import keeps_state
from ..tasks.task import is_cross_entropy
from .job import Job
from .local_clients import REPLIES
from .round import Setup
from .training_loop import LARGE, expand_tracks

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
        held: of replies and client states, while clients train
        plans: of the rows of every step
        training: of all threads, or worker processes, that train
        measuring: of all threads that measure a model, of client states and of clients' own models
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


def count_kept(need: MemoryNeed, n: int, rounds: int) -> int:
    """Return the bytes of n clients' states between rounds: the table of those that trained before
    the last round, and the rows of the last round, which are not in it yet."""
    table = need.own * min(n, need.asked * (rounds - 1))
    return (table if need.states <= MAPPED_FROM else 0) + need.own * need.asked


def count_own_models(need: MemoryNeed, own: int, n: int, rounds: int) -> int:
    """Return the bytes of copies of clients' own models: as many as are measured at once or, when
    the run has ended, the states of all that trained, unless their models are too large."""
    trained = min(n, need.asked * rounds)
    saved = trained * need.own if trained * own <= LARGE else 0
    return max(min(n * own, REPLIES), saved) if own else 0


def count_fresh_state(job: Job, model: Params) -> int:
    """Return the bytes of an optimizer's state that starts fresh in every round."""
    if keeps_state(job.local.optimizer):
        return 0
    started = job.local.optimizer.start({name: t[None] for name, t in model.items()})
    return sum(map(params.nbytes, started.values()))


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
    sample = examples(fed, next(iter(module.state_dict().values())).dtype)
    layers = measure_layers(module, sample)
    width = max(1, fed.train.x[:1].numel())
    workers = compute.workers()

    # The busiest clients, as asked clients may be any.
    few = np.sort(fed.train.sizes)[::-1][: need.asked]
    steps = count_steps(few, job.local)
    batch = min(int(few.max(initial=1)), job.local.batch_size or int(few.max(initial=1)))
    fresh = count_fresh_state(job, model)
    stacked = find_engine(compute, module, fed)[0] is StackedEngine
    compiled = False
    drawn = max(float(few.sum()), float((steps * batch).sum()))
    if stacked:
        portions = count_portions(need.asked, batch, model)
        work, most_steps = drawn * count_parameters(model) / portions, int(steps.max(initial=0))
        compiled = fits_kernel(module, job, work, most_steps * job.rounds)
        together = -(-need.asked // portions)
        one = together * (2 * size + fresh + need.own)
        if not compiled:  # inputs, of several steps where these are small; layers, their gradients
            inputs = max(FETCHED, together * batch * width)
            one += item * (inputs + together * batch * 2 * layers.kept)
        training = min(workers, portions) * SLACK * one
    else:
        busy = min(workers, need.asked)
        # A client's start and gradient, and its rows: what autograd keeps of them on the way to the
        # loss, and the gradients at one layer on the way back. What is not freed between steps has
        # no slack: state as it comes and as it will be, and a process's own module and offer.
        row = item * (width + layers.at_once) + measure_saved(module, sample, compute.number)
        lasting = 2 * need.own + fresh + (WORKER + 2 * size if busy > 1 else 0)
        training = busy * (SLACK * (2 * size + batch * row) + lasting)
    chunk = count_chunk(width, layers)
    rows = sum(len(part.y) for part in data)
    threads = min(workers, -(-rows // chunk))
    largest = chunk * item * layers.largest
    copied = 0 if fed.train.x.dtype == compute.number else width
    measuring = float(threads * min(chunk, rows) * item * (copied + layers.at_once))
    own = params.nbytes(job.memory(model, params.trainable_names(module)).get("own", {}))
    kept = count_kept(need, fed.n, job.rounds)
    measuring *= 1.0 if largest > MAPPED else LOOSE
    measuring += kept + count_own_models(need, own, fed.n, job.rounds)
    return MemoryForecast(
        process=PROCESS + (COMPILED if compiled else 0),
        rows=float(sum(part.nbytes for part in data)),
        models=(MODELS + workers) * float(size),
        held=float(kept + need.asked * (need.own + need.reply)),  # own: as clients are given it
        plans=PLANNED * drawn * (0.0 if job.local.batch_size is None else 1.0),
        training=float(training),
        measuring=measuring + MEASURED * rows,
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
