"""Does MaxFL keep more clients than FedAvg? Fashion-MNIST, clients free to leave from round 10.

    python examples/appeal_fmnist.py              the whole study (about 20 minutes on two cores)
    python examples/appeal_fmnist.py --quick      a few rounds, to see it run
    python examples/appeal_fmnist.py --write      put the results of the study into docs/appeal.md

100 clients take part and 100 only judge (Dirichlet over labels); a few are asked a round, 30 local
steps, batch 64, MLP 784-64-30-10. Each client requires what it gets alone after a few solo steps.
For every setting (alpha, solo steps) each method is tuned on a validation seed over the same
number of candidates; the winner by final appeal then runs on five other seeds. All of it is
printed, and written to runs/appeal-fmnist.json.
"""

from __future__ import annotations

import json
import multiprocessing as mp
import sys
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import muster
from muster.data.split.partition import Dirichlet
from muster.parts.invite import Sample
from muster.parts.step import Average
from muster.report.intervals import Interval

MODEL = muster.models.MLP((64, 30))
# Dirichlet alpha, solo steps behind each requirement, clients asked a round.
SETTINGS = [(0.1, 30, 5), (0.1, 60, 5), (0.1, 10, 5), (0.1, 45, 10)]
LRS = (0.02, 0.05, 0.1)
# Six candidates for each method: three learning rates and two server step sizes.
GRID = {
    "fedavg": [{"lr": lr, "server_lr": s} for lr, s in product(LRS, (0.5, 1.0))],
    "maxfl": [{"lr": lr, "server_lr": s} for lr, s in product(LRS, (1.0, 2.0))],
}
RESULTS = Path("runs/appeal-fmnist.json")
VALIDATION, SEEDS = 100, (0, 1, 2, 3, 4)
MEASURES = ("gm_appeal", "mean_test_accuracy", "gm_appeal_unseen", "mean_test_accuracy_unseen")


@dataclass(frozen=True)
class Job:
    alpha: float
    solo_steps: int
    method: str
    lr: float
    server_lr: float
    seed: int
    rounds: int
    m: int


def method_of(job: Job) -> muster.Method:
    if job.method == "maxfl":
        return muster.methods.maxfl(job.server_lr, epsilon=0.1, m=job.m)
    return replace(muster.methods.fedavg(Sample(job.m)), step=Average(job.server_lr))


def work(job: Job) -> dict[str, float]:
    fed = muster.data.fmnist(
        clients=200, priority="all", unseen=100, partition=Dirichlet(job.alpha), seed=job.seed
    )
    # The requirement is the client's own affair: the same for every method and learning rate.
    alone = muster.Local(steps=job.solo_steps, batch_size=64, lr=0.05)
    fed = muster.with_solo(fed, MODEL, 1, alone, seed=job.seed)
    run = muster.simulate(
        fed,
        method_of(job),
        MODEL,
        job.rounds,
        muster.Local(steps=30, batch_size=64, lr=job.lr),
        seed=job.seed,
        participation=muster.Flexible(from_round=10),
        evaluate_every=0,
    )
    last = run.rounds.row(-1, named=True)
    return {**{m: last[m] for m in MEASURES}, "skipped": run.rounds["skipped"].sum()}


def start() -> None:
    import torch

    torch.set_num_threads(1)


def main(quick: bool) -> None:
    rounds = 15 if quick else 200
    settings = SETTINGS[:1] if quick else SETTINGS
    seeds = SEEDS[:2] if quick else SEEDS
    # A study that was cut short goes on with the settings that are missing.
    report = json.loads(RESULTS.read_text()) if RESULTS.exists() and not quick else []
    with mp.get_context("spawn").Pool(2, start) as pool:
        for alpha, solo, m in settings:
            if any((r["alpha"], r["solo_steps"], r["asked"]) == (alpha, solo, m) for r in report):
                continue
            chosen = {}
            for method, grid in GRID.items():
                jobs = [
                    Job(alpha, solo, method, **c, seed=VALIDATION, rounds=rounds, m=m) for c in grid
                ]
                results = pool.map(work, jobs, chunksize=1)
                best = max(range(len(grid)), key=lambda i: results[i]["gm_appeal"])
                chosen[method] = grid[best]
                print(f"alpha {alpha}, solo steps {solo}, {m} asked, {method}: validation appeal")
                for c, r in zip(grid, results, strict=True):
                    mark = " <- chosen" if c is grid[best] else ""
                    print(f"  lr {c['lr']}, server_lr {c['server_lr']}: {r['gm_appeal']:.3f}{mark}")
            final = {}
            for method, c in chosen.items():
                jobs = [Job(alpha, solo, method, **c, seed=s, rounds=rounds, m=m) for s in seeds]
                final[method] = pool.map(work, jobs, chunksize=1)
            row = {"alpha": alpha, "solo_steps": solo, "asked": m, "chosen": chosen, "measures": {}}
            for measure in MEASURES:
                ends = {m: Interval.of([r[measure] for r in rs]) for m, rs in final.items()}
                a, b = ends["maxfl"], ends["fedavg"]
                apart = a.mean - a.half > b.mean + b.half
                gap = Interval.of(
                    [
                        x[measure] - y[measure]
                        for x, y in zip(final["maxfl"], final["fedavg"], strict=True)
                    ]
                )
                verdict = "MaxFL above, intervals apart" if apart else "intervals overlap"
                if b.mean - b.half > a.mean + a.half:
                    verdict = "FedAvg above, intervals apart"
                print(f"  {measure:26} maxfl {a}  fedavg {b}  difference {gap}  {verdict}")
                row["measures"][measure] = {
                    "maxfl": [a.mean, a.half],
                    "fedavg": [b.mean, b.half],
                    "difference": [gap.mean, gap.half],
                    "verdict": verdict,
                }
            report.append(row)
            sys.stdout.flush()
            if not quick:
                RESULTS.parent.mkdir(exist_ok=True)
                RESULTS.write_text(json.dumps(report, indent=1))


def write() -> None:
    """The study's results as a table in docs/appeal.md."""
    heads = "alpha | solo steps | asked | measure | MaxFL | FedAvg | paired difference | verdict"
    lines = [f"| {heads} |", "|---|---|---|---|---|---|---|---|"]
    for row in json.loads(RESULTS.read_text()):
        for measure, m in row["measures"].items():
            cells = ["{:.3f} ± {:.3f}".format(*m[k]) for k in ("maxfl", "fedavg", "difference")]
            head = f"| {row['alpha']} | {row['solo_steps']} | {row['asked']} | {measure} | "
            lines.append(head + " | ".join([*cells, m["verdict"]]) + " |")
        for method, c in row["chosen"].items():
            lines.append(
                f"| | | | *{method} chose* | lr {c['lr']}, server_lr {c['server_lr']} | | | |"
            )
    page = Path(__file__).parents[1] / "docs" / "appeal.md"
    begin, end = "<!-- study -->\n", "<!-- end study -->"
    head, rest = page.read_text().split(begin)
    page.write_text(head + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1])


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write()
    else:
        main("--quick" in sys.argv[1:])
