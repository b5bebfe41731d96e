"""The base of every engine: the module, the data, and measuring a model on clients' data.

An engine does three things over a leading client axis: measure one model on each client's rows
(`appraise`), measure each client's own model (`appraise_each`), and train clients (`train`). A
round needs nothing else.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING

import numpy as np

from ..base.arrays import Float64, Int64
from ..base.lazy import functional, nn, torch
from ..base.params import Buffers, Params, State, get_params, select, trainable_names
from ..federation import Federation
from ..federation.ragged_rows import RaggedRows, RowLists, features
from ..local import Local
from ..parts.solvers import Solver, Work
from ..privacy.row_noise import RowNoise
from ..protocol import Appraisal, Offer
from ..tasks.classification import Multiclass
from ..tasks.compatibility import refuse_mixing, refuse_targets
from ..tasks.task import Scoring, StandardTask, Task, averages_rows, is_cross_entropy
from .batches import BatchPlan, count_steps, plan_batches
from .compute import Compute, Key, Room, Tables, ThreadPool, fork_rng
from .modules import LayerSizes, examples, measure_layers, writes_rows
from .ranks import digest, join_ranks
from .row_release import RowRelease, expect_rows
from .row_results import CHUNK, RowSelection, Split

if TYPE_CHECKING:
    from torch import Tensor

TRIED = 6  # rows on which a task is tried before anything trains


def count_chunk(width: int, layers: LayerSizes) -> int:
    """Return the number of rows, of this many numbers, that a model is measured on together: the
    largest of its layers stays in cache."""
    return int(np.clip(CHUNK // max(1, width, layers.largest), 64, 8192))


@dataclass(frozen=True)
class Assignment:
    """Work that differs from an ordinary round's.

    Attributes:
        steps: of each client; None: as `Local` asks
        local: in place of the engine's own local work
        purpose: keys the draw of batches, so that each purpose has its own
        rows: the rows to train on in place of the clients' own, one list for each client
        ids: the numbers that key their randomness, where rows are given
    """

    steps: Int64 | None = None
    local: Local | None = None
    purpose: str = "batches"
    rows: RowLists | None = None
    ids: Int64 | None = None


class Replica:
    """One thread's copy of the module, so that a forward pass may keep things on it."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.state = dict(module.state_dict())
        self.buffers = Buffers(module)

    def begin(self, model: Params) -> None:
        """Put a model into the module, as at the start of a client's work: what earlier passes
        left in buffers that do not travel is gone."""
        self.buffers.restore()
        self.load(model)

    def load(self, model: Params) -> None:
        """Put these values into the module."""
        for name, t in model.items():
            self.state[name].copy_(t)


class Engine:
    """Measures and trains models, over a leading client axis, with a private copy of the user's
    module and the federation's data."""

    name = "base"
    why = ""  # the reason it was chosen

    def __init__(
        self,
        module: nn.Module,
        fed: Federation,
        local: Local,
        compute: Compute = Compute(),
        task: Task = Multiclass(),
        row_noise: RowNoise | None = None,
    ) -> None:
        self.row_noise = row_noise
        self.dtype, self.device = compute.number, compute.place()
        self.fed, self.local, self.task = fed, local, task
        self.scoring = Scoring(task)
        self.threads = ThreadPool(compute.workers())
        self.ranks = join_ranks(compute.engine)
        self.original = module
        self.main = self.replica()
        self.replicas = [self.main]
        self.trainable = trainable_names(module)
        # What clients send back.
        self.travels = tuple(get_params(self.main.module, self.dtype, self.device))
        self.x = {"train": fed.train.x.to(self.device)}
        self.y = {"train": self._targets(fed.train.y)}
        if fed.test is not None:
            self.x["test"], self.y["test"] = fed.test.x.to(self.device), self._targets(fed.test.y)
        few = examples(fed, self.dtype).to(self.device)
        self.chunk = count_chunk(fed.train.x[:1].numel(), measure_layers(self.main.module, few))
        self._try_task()
        self.writes = writes_rows(self.main.module, few)

    def _targets(self, y: Tensor) -> Tensor:
        """Return targets as the task takes them: whole numbers as they are, others in the run's
        dtype, unless rows are compared by them: times that differ must not become the same."""
        real = y.is_floating_point() and averages_rows(self.task)
        return y.to(self.device, self.dtype if real else y.dtype)

    def _try_task(self) -> None:
        """Refuse a task that does not fit the module's outputs for the first rows."""
        if is_cross_entropy(self.task):
            return
        x = features(self.x["train"][:TRIED].clone(), self.dtype)
        with torch.no_grad(), fork_rng(self.device):
            z = self.main.module.eval()(x)
        refuse_mixing(self.task, z, self.y["train"][:TRIED])
        if isinstance(self.task, StandardTask):
            refuse_targets(self.fed, self.task, z.shape[-1])

    merge_single = False  # True if a last batch of one row must be merged with the one before

    def steps(self, clients: Int64) -> Int64:
        """Return the number of steps that `Local` asks of each client."""
        return count_steps(self.fed.train.sizes[clients], self.local, self.merge_single)

    def ids(self, clients: Int64) -> Int64:
        """The numbers by which these clients' randomness is keyed."""
        return self.fed.population.ids[clients]

    def plans(
        self, solver: Solver, offer: Offer, clients: Int64, assignment: Assignment
    ) -> list[BatchPlan]:
        """Return the rows of every step of these clients."""
        rows: RaggedRows | RowLists = self.fed.train
        at, ids = clients, self.ids(clients)
        if assignment.rows is not None and assignment.ids is not None:
            rows, at, ids = assignment.rows, np.arange(len(clients)), assignment.ids
        plans = plan_batches(
            rows,
            at,
            assignment.local or self.local,
            offer.seed,
            offer.round,
            self.merge_single,
            assignment.steps,
            solver.draws,
            assignment.purpose,
            ids,
            self.row_noise is not None and not self.row_noise.seeded,
        )
        if rows is self.fed.train:
            return plans
        return [replace(plan, clients=clients[plan.at]) for plan in plans]

    def row_release(
        self, offer: Offer, clients: Int64, assignment: Assignment
    ) -> RowRelease | None:
        """Return the releases of these clients' gradients in a round; None: rows are not
        protected, and gradients are exact."""
        if self.row_noise is None:
            return None
        assert assignment.rows is None, "the account is of all of a client's rows"
        local = assignment.local or self.local
        expected = expect_rows(self.fed.train.sizes[clients], local.batch_size)
        return RowRelease(self.row_noise, offer, clients, self.ids(clients), expected)

    def data(self, split: Split) -> RaggedRows:
        """The rows of a split."""
        if split == "train":
            return self.fed.train
        assert self.fed.test is not None, "asked for a test split that does not exist"
        return self.fed.test

    def rows(self, split: Split, at: Tensor) -> Tensor:
        """Inputs at these row numbers (of any shape), ready for the model."""
        x = self.x[split]
        # A lookup in a table of rows: what embeddings do, and faster than general indexing.
        flat = functional.embedding(at.flatten(), x.flatten(1))
        return features(flat, self.dtype).view(*at.shape, *x.shape[1:])

    def batch(self, split: Split, rows: Int64 | slice) -> tuple[Tensor, Tensor]:
        """Inputs and targets at these rows, ready for the model."""
        if isinstance(rows, slice):
            return features(self.x[split][rows], self.dtype), self.y[split][rows]
        at = torch.from_numpy(rows).to(self.device)
        return self.rows(split, at), self.y[split][at]

    def protect(self, x: Tensor) -> Tensor:
        """Return rows that the module may take: a copy, if it writes into them."""
        return x.clone() if self.writes else x

    def replica(self) -> Replica:
        """Another copy of the user's own module, which nothing here ever runs."""
        return Replica(copy.deepcopy(self.original).to(device=self.device, dtype=self.dtype))

    def prepare_replicas(self, tasks: int) -> list[Replica]:
        """Return a replica for each thread that takes part in this many tasks, ready to measure."""
        while len(self.replicas) < self.threads.seats(tasks):
            self.replicas.append(self.replica())
        for replica in self.replicas:
            replica.module.eval()
        return self.replicas

    def measure_chunk(self, module: nn.Module, seen: RowSelection, chunk: int) -> None:
        """Measure a module on one chunk of rows."""
        span = slice(chunk * self.chunk, min((chunk + 1) * self.chunk, seen.n))
        x, y = self.batch(seen.split, span if seen.rows is None else seen.rows[span])
        seen.results.put(span, module(self.protect(x)), y)

    def chunks(self, seen: RowSelection) -> int:
        """Return the number of chunks of rows: by their size alone, whatever thread measures
        them."""
        return -(-seen.n // self.chunk)

    def share(
        self,
        count: int,
        work: Callable[[int, Iterator[int]], None],
        places: Callable[[int], Int64],
        room: Room,
        *about: object,
    ) -> None:
        """Run `work(seat, numbers)` in threads of every rank, which take tasks 0 .. count - 1
        between them; task i fills the rows `places(i)` of the room. `about` is what ranks that are
        at the same point agree on."""

        def take(mine: Sequence[int]) -> None:
            @wraps(work)
            def look_up(seat: int, numbers: Iterator[int]) -> None:
                work(seat, (mine[i] for i in numbers))

            self.threads.share(len(mine), look_up)

        self.ranks.run(count, take, places, room, lambda: digest(about))

    def appraise(
        self,
        model: Params,
        clients: Int64,
        split: Split = "train",
        rows: RowLists | None = None,
        most: float = float("inf"),
    ) -> Appraisal:
        """Loss and score of one model on each client's rows, in one pass over the rows; NaN of a
        client that has none. A row's loss counts up to `most`."""
        data = self.data(split)
        if rows is not None:
            data, clients = data.restrict(rows), np.arange(len(rows.sizes))
        some = data.sizes[clients] > 0
        if not some.all():
            kept = None if rows is None else rows.pick(np.flatnonzero(some))
            return self.appraise(model, clients[some], split, kept, most).among(some)
        seen = RowSelection(data, clients, split, self.task, self.scoring, most)
        n = self.chunks(seen)
        seats = self.prepare_replicas(n)

        @torch.no_grad()
        def work(seat: int, chunks: Iterator[int]) -> None:
            seats[seat].begin(model)
            for chunk in chunks:
                self.measure_chunk(seats[seat].module, seen, chunk)

        def get_rows(chunk: int) -> Int64:
            return np.arange(chunk * self.chunk, min((chunk + 1) * self.chunk, seen.n))

        self.share(n, work, get_rows, seen.results, "appraise", split, clients, model)
        return seen.by_client()

    def appraise_each(self, stack: Params, clients: Int64, split: Split = "train") -> Appraisal:
        """Loss and score of each client's own model on its rows, one client at a time; NaN of a
        client that has none."""
        data, n = self.data(split), len(clients)
        some = data.sizes[clients] > 0
        if not some.all():
            mine = select(stack, some)
            return self.appraise_each(mine, clients[some], split).among(some)
        if not n:
            return RowSelection(data, clients, split, self.task, self.scoring).by_client()
        seats = self.prepare_replicas(n)
        found = AppraisalBuffer(n)

        @torch.no_grad()
        def work(seat: int, numbers: Iterator[int]) -> None:
            for i in numbers:
                seats[seat].begin({name: t[i] for name, t in stack.items()})
                seen = RowSelection(data, clients[i : i + 1], split, self.task, self.scoring)
                for chunk in range(self.chunks(seen)):
                    self.measure_chunk(seats[seat].module, seen, chunk)
                found.put(i, seen.by_client())

        self.share(n, work, lambda i: np.array([i]), found, "appraise each", split, clients)
        return found.appraisal()

    def train(
        self,
        solver: Solver,
        offer: Offer,
        clients: Int64,
        memory: State,
        assignment: Assignment = Assignment(),
    ) -> tuple[Work, Int64]:
        """Train these clients; return their work, in their order, and the steps each took."""
        raise NotImplementedError

    def close(self) -> None:
        """End threads and processes, and free memory."""
        self.threads.close()
        self.ranks.end()


class AppraisalBuffer:
    """Space for the appraisals of n clients, each of its own model, filled from any thread."""

    def __init__(self, n: int) -> None:
        self._each: list[Appraisal | None] = [None] * n

    def put(self, at: int, appraisal: Appraisal) -> None:
        """The appraisal of the client at this place."""
        self._each[at] = appraisal

    def take(self, at: Int64) -> Tables:
        """Return the appraisals at these places."""
        some = self.appraisal(at)
        named: dict[Key, Float64] = {("loss",): some.loss, ("score",): some.score}
        named |= {("more", name): values for name, values in some.more.items()}
        return {key: torch.from_numpy(values) for key, values in named.items()}

    def give(self, at: Int64, tables: Tables) -> None:
        """Fill these places from another rank."""
        named = {key: t.numpy() for key, t in tables.items()}
        more = {key[1]: values for key, values in named.items() if len(key) == 2}
        for i, k in enumerate(at.tolist()):
            one = slice(i, i + 1)
            own = {name: values[one] for name, values in more.items()}
            self.put(k, Appraisal(named["loss",][one], named["score",][one], own))

    def appraisal(self, at: Int64 | None = None) -> Appraisal:
        """Return everyone's appraisals, or those at these places."""
        some = self._each if at is None else [self._each[i] for i in at.tolist()]
        return Appraisal.concat([one for one in some if one is not None])


class WorkBuffer:
    """Space for the work of n clients, filled from any thread or process; holds one copy of each
    model."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.models: Params = {}
        self.memory: State = {}
        self.extra: State = {}
        self.steps: Int64 = np.zeros(n, np.int64)
        self._lock = threading.Lock()

    def put(self, at: Int64, work: Work, steps: Int64) -> None:
        """The work of the clients at these places, and the steps they took. Takes it over."""
        self._fill(self.models, at, work.models)
        for mine, given in ((self.memory, work.memory), (self.extra, work.extra)):
            for part, table in given.items():
                with self._lock:
                    room = mine.setdefault(part, {})
                self._fill(room, at, table)
        self.steps[at] = steps

    def _fill(self, room: Params, at: Int64, stack: Params) -> None:
        in_order = np.array_equal(at, np.arange(at[0], at[0] + len(at)))
        where = slice(int(at[0]), int(at[0]) + len(at)) if in_order else torch.from_numpy(at)
        for name, t in stack.items():
            if in_order and len(at) == self.n:
                room[name] = t
                continue
            with self._lock:
                if name not in room:
                    room[name] = t.new_empty(self.n, *t.shape[1:])
            room[name][where] = t

    def take(self, at: Int64) -> Tables:
        """Return the work at these places."""
        where = torch.from_numpy(at)
        tables: Tables = {("steps",): torch.from_numpy(self.steps[at])}
        tables |= {("models", name): t[where] for name, t in self.models.items()}
        for kind, state in (("memory", self.memory), ("extra", self.extra)):
            for part, table in state.items():
                tables |= {(kind, part, name): t[where] for name, t in table.items()}
        return tables

    def give(self, at: Int64, tables: Tables) -> None:
        """Fill these places from another rank."""
        parts: dict[str, State] = {"memory": {}, "extra": {}}
        models: Params = {}
        for key, t in tables.items():
            if key[0] == "models":
                models[key[1]] = t
            elif key[0] in parts:
                parts[key[0]].setdefault(key[1], {})[key[2]] = t
        self.put(at, Work(models, **parts), tables["steps",].numpy())

    def work(self) -> Work:
        """Everyone's work, once it has all come in."""
        return Work(self.models, self.memory, self.extra)
