"""Runs on several ranks: `torchrun ... tests/support/spread_cases.py FOLDER CASE ...` runs each
case with the engine `spread` and writes what every rank got; tests compare it with one process.

Portions and chunks are made small, so that every rank has some of each.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

import muster
import tasks
from helpers import nine_clients
from muster.engines import batches, compute, engine, rank_group
from muster.engines.loop_engine import LoopEngine
from muster.protocol import Decision

M, Local = muster.methods, muster.Local
LOCAL = Local(steps=3, batch_size=4, lr=0.2)
MLP = muster.models.MLP((6,))


@dataclass(frozen=True)
class Nobody:
    """No client trains in even rounds."""

    appraises = False

    def __call__(self, offer, roster, appraisal):
        yes = np.full(len(roster), bool(offer.round % 2))
        return Decision(yes, np.where(yes, "odd", "even"))


def seeded(build):
    torch.manual_seed(3)
    return build()


def norm():
    """A module with a statistic, which goes to the loop engine."""
    parts = nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 4)
    return nn.Sequential(*parts)


def drop():
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 4))


def rows_of_clients(clients=9, test=3):
    """Nine clients with held-out rows."""
    fed = nine_clients()
    own = [tuple(t.numpy() for t in fed.train.client(k)) for k in range(fed.n)]
    return muster.Federation.from_arrays(
        [(x[test:], y[test:]) for x, y in own], [(x[:test], y[:test]) for x, y in own],
        priority=[0, 1, 2], classes=4,
    )  # fmt: skip


def go(method, model=MLP, fed=None, rounds=3, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", muster.MusterWarning)
        fed = nine_clients() if fed is None else fed
        return muster.simulate(fed, method, model, rounds, **{"local": LOCAL, **how})


def solo(how):
    return muster.with_solo(rows_of_clients(), MLP, 2, LOCAL, **how)


def task_of(kind, **how):
    how = {"dtype": "float64", **how}
    return go(M.fedavg(), tasks.model_of(kind), tasks.of(kind), task=tasks.TASKS[kind][0], **how)


def images(**how):
    """A convolution, which goes to the loop engine."""
    fed = muster.data.digits(clients=6, priority=2)
    net = lambda: nn.Sequential(  # noqa: E731
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 10)
    )
    return go(M.fedalign(0.5, warmup=0), seeded(net), fed, rounds=2, **how)


# A few that take every path of the engines.
CASES = {
    "fedalign, trust": lambda **how: go(
        M.fedalign(0.5, warmup=0, trust=True), attack=muster.parts.sign_flip(0.2), **how),
    "maxfl, requirement, tuned": lambda **how: go(
        M.maxfl(), fed=solo(how), participation=muster.parts.Flexible(), tuned_steps=2, **how),
    "ditto, adam, dropout": lambda **how: go(
        M.ditto(), seeded(drop), local=replace(LOCAL, optimizer=muster.optimizers.Adam()), **how),
    "loop": lambda **how: go(M.scaffold(), seeded(norm), **how),
    "nobody joins": lambda **how: go(replace(M.fedavg(), join=Nobody()), **how),
    "scores of all rows": lambda **how: task_of("multiclass", **how),
}  # fmt: skip
# All methods, and what else there is.
MORE = {
    **{f"{name} by name": (lambda name=name, **how: go(getattr(M, name)(), fed=solo(how), **how))
       for name in ("fedalign", "interpolation", "fedda", "fedfomo", "fedavg", "fedavg_priority",
                    "fedprox", "pfedme", "qffl", "afl", "mwfed", "power_of_choice", "fedavgm",
                    "fedadam", "fedyogi", "local")},
    "scaffold": lambda **how: go(M.scaffold(m=5), **how),
    "assist": lambda **how: go(M.assist(), rounds=2, **how),
    "loop, own models": lambda **how: go(M.perfedavg(), seeded(norm), rounds=2, **how),
    "images": images,
    "survival": lambda **how: task_of("survival", **how),
    "next token": lambda **how: task_of("next_token", **how),
    "epsilon auto": lambda **how: go(M.fedalign("auto"), rounds=4, **how),
    "seldom evaluated": lambda **how: go(M.fedalign(0.5), rounds=6, evaluate_every=4, **how),
    "full batches": lambda **how: go(
        M.fedavg(), local=Local(epochs=2, batch_size=None, lr=0.1), **how),
}  # fmt: skip


def small_portions(patch=setattr):
    """Cut work into more portions and chunks than these small problems have."""
    patch(batches, "WORTH", 2**6)
    patch(batches, "CACHE", 2**9)
    patch(engine, "CHUNK", 1)


def digest(run):
    """A digest of all numbers of a run, times aside."""
    found = hashlib.sha256()
    for name, values in sorted(run.weights.items()):
        found.update(name.encode() + values.tobytes())
    for frame in (run.rounds.drop("seconds"), run.clients, run.final, run.moves, run.attackers):
        found.update(repr(frame.to_dict(as_series=False)).encode())
    if run.own is not None:
        for name, values in sorted(run.own.models.items()):
            found.update(name.encode() + values.tobytes())
    return found.hexdigest()[:16]


def refusal(**how):
    """An error in one rank's own work, which every rank must raise."""
    real = LoopEngine.train_one

    def broken(self, *args):
        if rank_group.read_numbers().rank == 1:
            raise muster.MusterError("model: broken on purpose")
        return real(self, *args)

    LoopEngine.train_one = broken
    try:
        return go(M.fedavg(), seeded(norm), **how)
    finally:
        LoopEngine.train_one = real


def interrupt(**how):
    """Ctrl-C at one rank, in its own work in the second round."""
    real = LoopEngine.train_one

    def stopped(self, solver, offer, *more):
        if rank_group.read_numbers().rank == 1 and offer.round == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return real(self, solver, offer, *more)

    LoopEngine.train_one = stopped
    try:
        go(M.fedavg(), seeded(norm), processes=1, **how)
    except muster.Interrupted as stop:
        return stop.run
    finally:
        LoopEngine.train_one = real


def other_data(**how):
    """Ranks that do not have the same data."""
    fed = nine_clients() if rank_group.read_numbers().rank else rows_of_clients()
    return go(M.fedavg(), fed=fed, **how)


def other_seed(**how):
    """Ranks that draw other batches."""
    return go(M.fedavg(), seeded(drop), seed=rank_group.read_numbers().rank, **how)


def resume(folder, rounds, until, **how):
    """A run from its last checkpoint, stopped after a round."""

    def stop(row):
        if row["round"] == until:
            raise KeyboardInterrupt

    try:
        return go(M.scaffold(m=5), rounds=rounds, checkpoint=folder, checkpoint_every=1,
                  resume=True, on_round=stop, **how)  # fmt: skip
    except muster.Interrupted as stopped:
        return stopped.run


def death(**how):
    """The second of two ranks is killed in its own work."""
    real = compute.ThreadPool.share

    def share(self, count, work):
        if rank_group.read_numbers().rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, count, work)

    compute.ThreadPool.share = share
    return go(M.fedavg(), **how)


FAULTS = {f.__name__: f for f in (refusal, interrupt, other_data, other_seed, death)}


SCRIPT = Path(__file__)
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node"]
DEVICE = "SPREAD_CASES_DEVICE"


def clean_environment(**more):
    return {**{k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}, **more}


def launch(folder, size, *cases, device="cpu"):
    """What each rank found, and what torchrun printed."""
    done = subprocess.run(
        [*TORCHRUN, str(size), SCRIPT, folder, *cases], capture_output=True, text=True,
        env=clean_environment(PYTHONPATH=str(SCRIPT.parent), **{DEVICE: device}), timeout=280,
    )  # fmt: skip
    files = [folder / f"{rank}.json" for rank in range(size)]
    assert all(file.exists() for file in files), done.stdout + done.stderr
    return [json.loads(file.read_text()) for file in files], done.stdout + done.stderr


def main(folder, *names):
    small_portions()
    rank, results = rank_group.read_numbers().rank, {}
    how = {"engine": "spread", "device": os.environ.get(DEVICE, "cpu")}
    tasks_done = [0]
    real = compute.ThreadPool.share

    def share(self, count, work):
        tasks_done[0] += count
        real(self, count, work)

    compute.ThreadPool.share = share
    for name in names:
        began, tasks_done[0] = time.monotonic(), 0
        try:
            if name == "resume":
                run = resume(folder / "checkpoints", 6, 4, **how)
            else:
                run = {**CASES, **MORE, **FAULTS}[name](**how)
            found = {"digest": digest(run), "rounds": len(run.rounds), "engine": run.engine,
                     "complete": run.complete}  # fmt: skip
        except muster.MusterError as error:
            found = {"error": str(error)}
        found |= {"tasks": tasks_done[0], "seconds": time.monotonic() - began}
        results[name] = found
        (folder / f"{rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
