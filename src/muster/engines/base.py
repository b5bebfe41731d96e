"""What every engine shares: the module, the data, and measuring a model on clients' data.

An engine answers three questions over a leading client axis: what is the loss of this model on
each of these clients (`appraise`), of each one's own model (`appraise_each`), and what do these
clients send back after training (`train`). A round asks nothing else.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ..arrays import Float64, Int64
from ..federation import Federation
from ..federation.ragged import Ragged, Shared, features
from ..local import Local
from ..params import Memory, Params, of_module, trainable
from ..parts.solvers import Solver, Work
from ..protocol import Appraisal, Offer
from .batches import Plan, plan, steps_of

Split = Literal["train", "test"]

CHUNK = 2**21  # numbers of input looked at together: a few MB, so that they stay in cache


@dataclass(frozen=True)
class Assignment:
    """What to do in place of an ordinary round's work.

    steps    for each client, where they differ from what `Local` asks
    local    other local work altogether
    purpose  what the batches are drawn for, so that each purpose has its own
    """

    steps: Int64 | None = None
    local: Local | None = None
    purpose: str = "batches"


class Engine(Protocol):
    """How models are measured and trained, over a leading client axis."""

    name: str
    device: torch.device

    def appraise(self, model: Params, clients: Int64, split: Split = "train") -> Appraisal:
        """Loss and accuracy of one model on each client's rows."""
        ...

    def appraise_each(self, stack: Params, clients: Int64, split: Split = "train") -> Appraisal:
        """Loss and accuracy of each client's own model on its rows."""
        ...

    def train(
        self,
        solver: Solver,
        offer: Offer,
        clients: Int64,
        memory: Memory,
        assignment: Assignment = Assignment(),
    ) -> tuple[Work, Int64]:
        """The work of these clients, in their order, and the steps each took."""
        ...

    def steps(self, clients: Int64) -> Int64:
        """How many steps `Local` asks of each client."""
        ...

    def close(self) -> None:
        """Let go of processes and memory."""
        ...


class Base:
    """A private copy of the user's module, the federation's data, and how to measure."""

    name = "base"

    def __init__(
        self,
        module: nn.Module,
        fed: Federation,
        local: Local,
        dtype: torch.dtype = torch.float32,
        device: torch.device = torch.device("cpu"),
    ) -> None:
        self.module = copy.deepcopy(module).to(device=device, dtype=dtype)
        self.state = dict(self.module.state_dict())
        self.trainable = trainable(module)
        self.travels = tuple(of_module(self.module, dtype, device))  # what clients send back
        self.fed, self.local, self.dtype, self.device = fed, local, dtype, device
        self.x = {"train": fed.train.x.to(device)}
        self.y = {"train": fed.train.y.to(device)}
        if fed.test is not None:
            self.x["test"], self.y["test"] = fed.test.x.to(device), fed.test.y.to(device)
        width = max(1, int(np.prod(fed.train.x.shape[1:])))
        self.chunk = int(np.clip(CHUNK // width, 64, 8192))

    merge_single = False  # whether a last batch of one row must join the one before it

    def steps(self, clients: Int64) -> Int64:
        """How many steps `Local` asks of each client."""
        return steps_of(self.fed.train.sizes[clients], self.local, self.merge_single)

    def plans(
        self, solver: Solver, offer: Offer, clients: Int64, assignment: Assignment
    ) -> list[Plan]:
        """Rows for every step of these clients."""
        return plan(
            self.fed.train, clients, assignment.local or self.local, offer.seed, offer.round,
            self.merge_single, assignment.steps, solver.draws, assignment.purpose,
            self.fed.population.ids[clients],
        )  # fmt: skip

    def load(self, model: Params) -> None:
        """Put these values into the module."""
        for name, t in model.items():
            self.state[name].copy_(t)

    def data(self, split: Split) -> Ragged:
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
        """Inputs and labels at these rows, ready for the model."""
        if isinstance(rows, slice):
            return features(self.x[split][rows], self.dtype), self.y[split][rows]
        at = torch.from_numpy(rows).to(self.device)
        return self.rows(split, at), self.y[split][at]

    def _measure(self, split: Split, rows: Int64 | None, n: int) -> tuple[Float64, Float64]:
        """Loss and correctness of the loaded module on each row (None: the first n as they lie)."""
        loss, right = np.empty(n), np.empty(n)
        for start in range(0, n, self.chunk):
            span = slice(start, min(start + self.chunk, n))
            x, y = self.batch(split, span if rows is None else rows[span])
            z = self.module(x)
            loss[span] = functional.cross_entropy(z, y, reduction="none").cpu().numpy()
            right[span] = (z.argmax(1) == y).cpu().numpy()
        return loss, right

    @torch.no_grad()
    def appraise(self, model: Params, clients: Int64, split: Split = "train") -> Appraisal:
        """Loss and accuracy of one model on each client's rows, in one pass over the rows."""
        self.load(model)
        self.module.eval()
        data = self.data(split)
        if isinstance(data, Shared):
            return self._appraise_shared(data, split, clients)
        everyone = np.array_equal(clients, np.arange(len(data.sizes)))
        at = data.positions(clients)
        if data.rows is None:
            loss, right = self._measure(split, None if everyone else at, len(at))
        elif len(at) > len(data.y):
            # Clients share rows: look at each row once.
            loss, right = (v[data.rows[at]] for v in self._measure(split, None, len(data.y)))
        else:
            loss, right = self._measure(split, data.rows[at], len(at))
        return reduce(data, clients, at, loss, right)

    def _appraise_shared(self, data: Shared, split: Split, clients: Int64) -> Appraisal:
        """Every row of a label these clients see once, then each client's mix of the labels."""
        mix = data.mix[clients]
        seen = np.flatnonzero((mix > 0).any(0))
        rows, count = data.rows_of_labels(seen), data.count[seen]
        starts = np.cumsum(count) - count
        of = np.zeros((2, mix.shape[1]))
        for mean, values in zip(of, self._measure(split, rows, len(rows)), strict=True):
            mean[seen] = np.add.reduceat(values, starts) / count
        # Summed over all labels, seen or not, so that it does not depend on who else is asked.
        return Appraisal(*((mix * mean).sum(axis=1) for mean in of))

    def appraise_each(self, stack: Params, clients: Int64, split: Split = "train") -> Appraisal:
        """Loss and accuracy of each client's own model on its rows, one client at a time."""
        each = [
            self.appraise({name: t[i] for name, t in stack.items()}, clients[i : i + 1], split)
            for i in range(len(clients))
        ]
        return Appraisal(
            np.concatenate([a.loss for a in each]), np.concatenate([a.accuracy for a in each])
        )

    def close(self) -> None:
        """Nothing to let go of."""


def reduce(data: Ragged, clients: Int64, at: Int64, loss: Float64, right: Float64) -> Appraisal:
    """Each client's mean over its rows (weighted, where rows have weights), in float64."""
    sizes = data.sizes[clients]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    weight = data.counts_by(at)
    if weight is None:
        return Appraisal(
            np.add.reduceat(loss, starts) / sizes, np.add.reduceat(right, starts) / sizes
        )
    return Appraisal(
        np.add.reduceat(loss * weight, starts), np.add.reduceat(right * weight, starts)
    )
