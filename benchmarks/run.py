"""Speed of the simulator, as ratios measured in one run.

    python benchmarks/run.py              all of it (about ten minutes on two cores)
    python benchmarks/run.py W1 scale     some of it
    python benchmarks/run.py --write      all of it, and put the tables into docs/speed.md
    python benchmarks/run.py W1 --write   some of it; rows that were not measured stay

Each workload is run by muster, by the loop most people write first (`naive`), and compared with
the time its arithmetic would take at the matrix-multiply speed measured in the same run
(`limit`). Runs alternate, and the best of each is kept: a busy machine slows both. Timing means
nothing while something else is running.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy

import muster
from machine import name_machine
from muster.engines import Compute, choose
from page import check_machine, write_rows
from workloads import WORKLOADS, Workload, rounds, w4

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"


def naive_round(load: Workload, seed: int) -> float:
    """FedAvg as it is usually written first: a loop over clients, batches and an optimizer."""
    fed, local = load.fed, load.local
    draw = torch.Generator().manual_seed(seed)
    asked = torch.randperm(fed.n, generator=draw)[: load.asked].tolist()
    began = time.perf_counter()
    total: dict[str, torch.Tensor] = {}
    for k in asked:
        x, y = fed.train.client(k)
        model = copy.deepcopy(load.model).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=local.rate(0, 1))
        for _ in range(local.epochs or 0):
            for rows in torch.randperm(len(y), generator=draw).split(local.batch_size or len(y)):
                if len(rows) == 1:
                    continue
                optimizer.zero_grad()
                cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()
        for name, t in model.state_dict().items():
            total[name] = total.get(name, 0) + t.detach() / len(asked)
    return time.perf_counter() - began


def matmul_speed() -> float:
    """Multiply-adds a second, times two, of a large float32 product: the machine's limit."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    best = float("inf")
    for _ in range(6):
        began = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - began)
    return 2.0 * 2048**3 / best


def in_new_process(call: str) -> float:
    """Return the value of an expression of this file in a new process."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import run, workloads; "
        f"print({call})"
    )
    return float(
        subprocess.run(
            [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
        ).stdout
    )


def speed(names: list[str], console: Console) -> list[list[str]]:
    """The workloads against the naive loop and the limit."""
    rows = [
        [
            "",
            "workload",
            "engine",
            "naive s",
            "muster s",
            "limit s",
            "naive / muster",
            "target",
            "muster / limit",
            "naive / limit",
        ]
    ]
    for name in names:
        load = WORKLOADS[name]()
        naive, ours, peaks = [], [], []
        for i in range(load.repeats):
            console.print(f"{name}: repeat {i + 1} of {load.repeats}", style="dim")
            peaks.append(matmul_speed())
            ours += rounds(load, load.rounds)
            naive.append(naive_round(load, i))
        engine = choose(Compute(), load.model, load.fed, load.local).name
        n, m, limit = min(naive), min(ours), load.flops / max(peaks)
        what, target = load.what, load.target
        rows.append(
            [
                name,
                what,
                engine,
                f"{n:.4f}",
                f"{m:.4f}",
                f"{limit:.5f}",
                f"{n / m:.1f}",
                f">= {target:g}",
                f"{m / limit:.1f}",
                f"{n / limit:.1f}",
            ]
        )
    return rows


def methods(console: Console) -> list[list[str]]:
    """Other methods' speed in terms of FedAvg's, on the stacked engine."""
    m = muster.methods
    others = {
        "fedavg": m.fedavg(),
        "fedprox": m.fedprox(),
        "scaffold": m.scaffold(),
        "maxfl": m.maxfl(),
        "fedalign": m.fedalign(1e9, warmup=0),
    }
    rows = [["workload", *others]]
    for name in ("W1", "W2"):
        load = WORKLOADS[name]()
        load = replace(load, fed=replace(load.fed, requirement=np.ones(load.fed.n)))
        seconds: dict[str, list[float]] = {label: [] for label in others}
        for i in range(3):
            console.print(f"methods on {name}: repeat {i + 1} of 3", style="dim")
            for label, method in others.items():
                seconds[label] += rounds(load, 1, method)
        base = min(seconds["fedavg"])
        rows.append([name, *(f"{base / min(s):.2f}" for s in seconds.values())])
    return rows


def scale() -> list[list[str]]:
    """Cost of a round as the population grows and the number asked does not."""
    rows = [["clients", "asked a round", "seconds a round", "ratio to 100 clients"]]
    first = 0.0
    for n in (100, 1_000, 10_000, 100_000):
        best = min(rounds(w4(n, features=60), 30))
        first = first or best
        rows.append([f"{n:,}", "100", f"{best:.4f}", f"{best / first:.2f}"])
    return rows


def busy(console: Console) -> list[list[str]]:
    """Mean seconds a round with the cores muster takes by itself and with one or two forced, on an
    idle machine and next to a process that never sleeps."""
    rows = [["workload", "next to", "default s", "1 core s", "2 cores s", "default / best"]]
    choices = ("", ", processes=1", ", processes=2")
    for name, repeats in (("W5", 3), ("W2", 1)):  # many small clients, and a large model
        for neighbouring in ("nothing", "a busy process"):
            seconds: list[list[float]] = [[] for _ in choices]
            for i in range(repeats):
                console.print(
                    f"{name} next to {neighbouring}: repeat {i + 1} of {repeats}", style="dim"
                )
                with neighbour(neighbouring == "a busy process"):
                    for found, how in zip(seconds, choices, strict=True):
                        found.append(in_new_process(f"workloads.mean_round({name!r}{how})"))
            means = [float(np.median(found)) for found in seconds]
            rows.append(
                [name, neighbouring, *(f"{s:.4f}" for s in means), f"{means[0] / min(means):.2f}"]
            )
    return rows


@contextmanager
def neighbour(wanted: bool) -> Iterator[None]:
    """Another process that keeps one core busy."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-P", "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def show(console: Console, title: str, rows: list[list[str]]) -> None:
    table = Table(*rows[0], title=title)
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)


def main(wanted: list[str]) -> int:
    to_docs = "--write" in wanted
    wanted = [w for w in wanted if w != "--write"]
    known = [*WORKLOADS, "scale", "methods", "busy"]
    wrong = [w for w in wanted if w not in known]
    if wrong:
        print(f"unknown workload '{wrong[0]}'; known: {', '.join(known)}", file=sys.stderr)
        return 2
    console = Console(width=max(150, Console().width))
    chosen = wanted or known
    names = [n for n in WORKLOADS if n in chosen]
    machine = name_machine()
    if to_docs and names:
        check_machine(PAGE, "speed", names, machine)
    parts: list[tuple[str, str, Callable[[], list[list[str]]]]] = [
        (
            "speed",
            "seconds a round (best of the repeats) and ratios",
            lambda: speed(names, console),
        ),
        ("scale", "cost as the population grows", scale),
        ("methods", "speed relative to FedAvg (1: as fast)", lambda: methods(console)),
        ("busy", "idle, and next to a busy process", lambda: busy(console)),
    ]
    for name, title, measure in parts:
        if name in chosen or (name == "speed" and names):
            table = measure()
            show(console, title, table)
            if to_docs:  # at once: what was measured is not lost with what comes after it
                write_rows(PAGE, name, table, machine)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
