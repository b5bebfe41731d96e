"""Liars in private runs: one sum of everyone, against groups that trust judges.

    python benchmarks/private_groups.py           print the table of docs/privacy.md
    python benchmarks/private_groups.py --write   and write it there (about six minutes)

Digits dealt at random to 60 clients, 15 of them priority, 20 rounds. A quarter of all clients, none
of them priority, send the opposite of what they trained, as long as the clip. Accuracy is on the
held-out rows of all clients; a lead is of the same seed. The rules were chosen on other seeds. The
noise is of the seed, so that the table repeats.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import torch

import muster
from muster.papers.page_tables import fill, format_points, markdown
from muster.privacy import Gaussian, epsilon
from muster.report.intervals import Interval
from muster.schedules import Constant

PAGE = Path(__file__).parents[1] / "docs" / "privacy.md"
SEEDS, CLIENTS, PRIORITY, ROUNDS, GROUPS = range(10, 30), 60, 15, 20, 8
DELTA = 1e-3
NOISE = {
    "no noise (secure sums alone)": {"noise": 0.0, "secure": True},
    f"noise 1 (epsilon {epsilon(1.0, ROUNDS, DELTA):.0f})": {"noise": 1.0},
    "epsilon 8": {"epsilon": 8.0},
}
LIES = {"nobody": 0.0, "a quarter": 0.25}


def measure(seed: int, noise: dict[str, float], lie: float, groups: int) -> float:
    """Return the accuracy of a run, in points."""
    iid = muster.data.IID()
    fed = muster.data.digits(clients=CLIENTS, priority=PRIORITY, seed=seed, partition=iid)
    flip = muster.attacks.ScaleUpdate(lie, -10.0)
    run = muster.simulate(
        fed,
        muster.methods.fedalign(epsilon=99.0, warmup=0, trust=groups > 1),
        muster.models.Softmax(),
        rounds=ROUNDS,
        seed=seed,
        local=muster.Local(steps=5, batch_size=16, lr=0.5),
        attack=muster.attacks.Liars(lie, "outside", flip, wins=False) if lie else None,
        evaluate_every=0,
        privacy=Gaussian(0.5, delta=DELTA, loss=Constant(1.0), groups=groups, seeded=True, **noise),
    )
    rows = run.final["test_rows"].to_numpy()
    return 100 * float(np.average(run.final["test_accuracy"].to_numpy(), weights=rows))


def build_lines(name: str) -> list[list[str]]:
    """Return the lines of the table for a noise, one for each share of liars."""
    lines = []
    for who, lie in LIES.items():
        one, groups = (
            np.array([measure(seed, NOISE[name], lie, count) for seed in SEEDS])
            for count in (1, GROUPS)
        )
        lead = format_points(Interval.of(groups - one))
        lines.append([name, who, f"{one.mean():.1f}", f"{groups.mean():.1f}", lead])
    return lines


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", muster.MusterWarning)
    head = ["", "who lies", "one sum", f"{GROUPS} groups with trust", "lead"]
    table = markdown(head, [line for name in NOISE for line in build_lines(name)])
    print(table)
    if "--write" in sys.argv:
        PAGE.write_text(fill(PAGE.read_text(), {"groups": table}))
