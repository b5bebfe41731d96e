"""The benchmark's workloads: what is trained, on what, by how many clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import muster

# Names that earlier versions have too, so that `against.py` can measure them.
from muster.federation import Federation, RaggedRows
from muster.methods import Full, Sample


@dataclass(frozen=True)
class Workload:
    """One line of the benchmark."""

    name: str
    what: str
    fed: Federation
    model: nn.Module
    local: muster.Local
    asked: int
    flops: float  # multiply-adds of one round's training, times two
    target: float  # times faster than the naive loop
    repeats: int
    rounds: int  # enough of them for a mean

    @property
    def method(self) -> muster.Method:
        everyone = self.asked == self.fed.n
        return muster.methods.fedavg(Full() if everyone else Sample(self.asked))


def random_federation(sizes: np.ndarray, shape: tuple[int, ...], classes: int) -> Federation:
    """Clients of these sizes with random rows: speed does not depend on what they say."""
    rows = int(sizes.sum())
    draw = torch.Generator().manual_seed(0)
    x = torch.empty(rows, *shape)
    for part in x.split(100_000):
        part.normal_(generator=draw)
    y = torch.randint(classes, (rows,), generator=draw)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Federation.from_rows(RaggedRows(x, y, offsets), classes=classes)


def dense_flops(widths: tuple[int, ...], rows: float) -> float:
    """Forward, weight gradient, and input gradient of every layer but the first."""
    pairs = list(zip(widths, widths[1:], strict=False))
    return rows * 2.0 * (3 * sum(a * b for a, b in pairs) - pairs[0][0] * pairs[0][1])


def w1() -> Workload:
    fed = random_federation(np.full(60, 1000), (784,), 10)
    model = muster.models.Softmax().build(fed, 0)
    local = muster.Local(epochs=5, batch_size=32, lr=0.1)
    flops = dense_flops((784, 10), 60 * 1000 * 5)
    what = "softmax 784x10, 60 clients x 1000 rows, batch 32, 5 epochs"
    return Workload("W1", what, fed, model, local, 60, flops, 20, 5, 10)


def w2() -> Workload:
    fed = random_federation(np.full(60, 1880), (784,), 47)
    model = muster.models.MLP((200, 200)).build(fed, 0)
    local = muster.Local(epochs=5, batch_size=32, lr=0.1)
    flops = dense_flops((784, 200, 200, 47), 60 * 1880 * 5)
    what = "MLP 784-200-200-47, 60 clients x 1880 rows, batch 32, 5 epochs"
    return Workload("W2", what, fed, model, local, 60, flops, 5, 2, 2)


def w3() -> Workload:
    fed = random_federation(np.full(60, 832), (3, 32, 32), 10)
    model = muster.models.CNN().build(fed, 0)
    local = muster.Local(epochs=1, batch_size=32, lr=0.01)
    # Convolutions: output pixels x kernel x channels, forward and both gradients.
    conv = 2.0 * (2 * 1024 * 75 * 32 + 3 * 256 * 800 * 64)
    flops = 60 * 832 * (conv + 3 * 2.0 * (4096 * 512 + 512 * 128 + 128 * 10))
    what = "CNN on 3x32x32, 60 clients x 832 rows, batch 32, 1 epoch"
    return Workload("W3", what, fed, model, local, 60, flops, 2.5, 1, 1)


def w4(clients: int = 10_000, features: int = 784) -> Workload:
    sizes = np.random.default_rng(0).lognormal(4.0, 0.75, clients).astype(np.int64) + 10
    fed = random_federation(sizes, (features,), 10)
    model = muster.models.Softmax().build(fed, 0)
    local = muster.Local(epochs=5, batch_size=32, lr=0.1)
    flops = dense_flops((features, 10), 100 * float(sizes.mean()) * 5)
    what = f"softmax {features}x10, {clients:,} ragged clients, 100 asked, 5 epochs"
    return Workload("W4", what, fed, model, local, 100, flops, 20, 5, 40)


def w5() -> Workload:
    fed = random_federation(np.full(1000, 60), (60,), 10)
    model = muster.models.Softmax().build(fed, 0)
    local = muster.Local(epochs=5, batch_size=10, lr=0.1)
    flops = dense_flops((60, 10), 10 * 60 * 5)
    what = "softmax 60x10, 1,000 clients x 60 rows, 10 asked, batch 10, 5 epochs"
    return Workload("W5", what, fed, model, local, 10, flops, 5, 5, 100)


WORKLOADS = {"W1": w1, "W2": w2, "W3": w3, "W4": w4, "W5": w5}


def rounds(load: Workload, n: int, method: muster.Method | None = None, **how: Any) -> list[float]:
    """Seconds of each round but the last, which also measures the final model."""
    run = muster.simulate(
        load.fed, method or load.method, load.model, n + 1, load.local, evaluate_every=0, **how
    )
    return run.rounds["seconds"].to_list()[:-1]


def mean_round(name: str, **how: Any) -> float:
    """Mean seconds of a workload's rounds, after as many that load and compile what they need: a
    shorter run may take another way."""
    load = WORKLOADS[name]()
    rounds(load, load.rounds, **how)
    return float(np.mean(rounds(load, load.rounds, **how)))
