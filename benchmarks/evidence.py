"""The processor time of a round of `assist` over that of FedAvg, in turns.

    python benchmarks/evidence.py --write     and put them into docs/assist.md

60 clients, 6 of them priority, softmax regression on Fashion-MNIST, five steps on 32 rows; one
thread. What a run takes before its rounds is taken off by a short run.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from pathlib import Path

import torch

import muster
from page import write_block

PAGE = Path(__file__).parents[1] / "docs" / "assist.md"
TURNS, SHORT, LONG = 15, 4, 44


def measure(fed: muster.Federation, method: muster.Method) -> float:
    """Return the processor seconds of a round."""

    def run(rounds: int) -> float:
        local = muster.Local(steps=5, batch_size=32, lr=0.1)
        start = time.process_time()
        muster.simulate(fed, method, muster.models.Softmax(), rounds, local, evaluate_every=0)
        return time.process_time() - start

    short = run(SHORT)
    return (run(LONG) - short) / (LONG - SHORT)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", muster.MusterWarning)
    fed = muster.data.fmnist(clients=60, priority=6, partition=muster.data.Dirichlet(1.0))
    plain, helped = muster.methods.fedavg(), muster.methods.assist()
    for method in (plain, helped):
        measure(fed, method)
    ratios = [measure(fed, helped) / measure(fed, plain) for _ in range(TURNS)]
    said = f"{statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f})"
    print(f"assist over fedavg: {said}")
    if "--write" in sys.argv[1:]:
        write_block(PAGE, "round", said)
