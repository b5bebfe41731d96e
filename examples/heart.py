"""Which hospital gains from which? Heart disease at four hospitals, and a prediction at the end.

    python examples/heart.py              20 seeds
    python examples/heart.py --quick      2 seeds, fewer rounds

Each hospital in turn is the one the model is for. It trains alone, with each of the others, and
with all of them while FedALIGN decides who helps. What is printed is the change of its held-out
loss against training alone (less is better), with a 95 % interval over seeds. Each seed holds out
other patients of the same 920, so that seeds are not independent: the interval is corrected for
that (Nadeau and Bengio 2003).
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

import muster
from muster.report.intervals import Interval

WORK = muster.Local(steps=5, batch_size=16, lr=0.05)
TASK = muster.tasks.binary()
MODEL = muster.models.Linear()


def only(fed: muster.Federation, target: int, helpers: list[int]) -> muster.Federation:
    """The federation for one hospital, in which these others take part and the rest look on."""
    priority = np.arange(fed.n) == target
    unseen = ~priority & ~np.isin(np.arange(fed.n), helpers)
    return replace(fed, priority=priority, importance=priority.astype(float), unseen=unseen)


def held_out_loss(fed: muster.Federation, method: muster.Method, rounds: int, seed: int) -> float:
    """The target's loss on its held-out patients."""
    run = muster.simulate(fed, method, MODEL, rounds, WORK, seed, task=TASK, evaluate_every=0)
    return float(run.rounds["test_loss"][-1])


def main(quick: bool) -> None:
    seeds, rounds = (range(2), 10) if quick else (range(20), 60)
    data = [muster.data.heart(priority="all", seed=seed) for seed in seeds]
    names, variation = data[0].names.tolist(), data[0].variation
    print(
        f"{'for':12} {'alone':>6}   " + "".join(f"with {name:<18}" for name in names) + "FedALIGN"
    )
    for target, name in enumerate(names):
        others = [k for k in range(len(names)) if k != target]
        alone = np.array(
            [
                held_out_loss(only(fed, target, []), muster.methods.fedavg_priority(), rounds, seed)
                for seed, fed in zip(seeds, data, strict=True)
            ]
        )
        cells = []
        for helpers in [[k] if k != target else [] for k in range(len(names))] + [others]:
            if not helpers:
                cells.append(f"{'':23}")
                continue
            together = len(helpers) > 1
            method = muster.methods.fedalign(0.2) if together else muster.methods.fedavg()
            change = [
                held_out_loss(only(fed, target, helpers), method, rounds, seed) - own
                for seed, fed, own in zip(seeds, data, alone, strict=True)
            ]
            gap = Interval.of(change, ratio=variation.ratio(held_out=True))
            sign = "*" if gap.excludes_zero else " "
            cells.append(f"{gap.mean:+.3f} ± {gap.half:.3f}{sign}".ljust(23))
        print(f"{name:12} {alone.mean():6.3f}   " + "".join(cells))
    print(f"* the interval excludes 0; {variation.interval_note(len(seeds))}")

    fed = muster.data.heart()
    run = muster.simulate(fed, muster.methods.fedalign(0.2), MODEL, rounds, WORK, task=TASK)
    said = run.predict(
        {
            "age": ["58"],
            "sex": ["1"],
            "cp": ["4"],
            "trestbps": [""],
            "chol": ["240"],
            "fbs": ["0"],
            "restecg": ["2"],
            "thalach": ["120"],
            "exang": ["1"],
            "oldpeak": ["2.1"],
            "slope": ["2"],
            "ca": [""],
            "thal": ["7"],
        }
    )
    print(
        f"a man of 58, some of it not measured: {said['prediction'][0]} "
        f"(chance of being ill {said['p_ill'][0]:.2f})"
    )


if __name__ == "__main__":
    main("--quick" in sys.argv)
