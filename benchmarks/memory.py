"""The memory of runs: its peak, and what `forecast_memory` says before they start.

    python benchmarks/memory.py                 all of it (about ten minutes on two cores)
    python benchmarks/memory.py W1 wide         some of it
    python benchmarks/memory.py --write         all of it, and put the table into docs/speed.md

Each run has a process of its own, which has loaded and compiled everything by a run on a few of
its clients. What it holds then is the *process*; what it holds more at its peak, rows included, is
what the run *needs*. Of one process the peak is the kernel's own (`VmHWM`); of several, the most
that all of them held at any of the moments looked at, shared pages counted once, and files in
memory as those of the first process.
"""

from __future__ import annotations

import ctypes
import gc
import json
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

import muster
from machine import run_apart
from muster.engines import Compute, choose
from muster.federation import Federation, RaggedRows
from muster.run.checkpoint import Keep
from muster.run.job import Job
from muster.run.memory_check import forecast_memory
from muster.run.simulate import run_job
from page import format_table, merge_rows, read_rows, split_page, write_block
from workloads import WORKLOADS, random_federation

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
HEAD = ("run", "engine", "rows MB", "needs MB", "needs / rows", "forecast MB", "forecast / needs")
LOOK = 0.02  # seconds between looks at several processes
FEW = 8  # clients of the first run


@dataclass(frozen=True)
class Case:
    """A run to be measured."""

    what: str
    fed: Federation
    job: Job
    compute: Compute = Compute()


def of_workload(name: str) -> Case:
    load = WORKLOADS[name]()
    return Case(load.what, load.fed, Job(load.method, load.model, load.local, 2))


def even(
    what: str,
    clients: int,
    rows: int,
    shape: tuple[int, ...],
    model: object,
    method: muster.Method | None = None,
    compute: Compute = Compute(),
    classes: int = 10,
    rounds: int = 2,
    **local: object,
) -> Case:
    """Return a run on clients with as many rows each."""
    fed = random_federation(np.full(clients, rows), shape, classes)
    work = muster.Local(lr=0.01, **({"epochs": 1, "batch_size": 32} | local))
    return Case(what, fed, Job(method or muster.methods.fedavg(), model, work, rounds), compute)


def build_mapped() -> nn.Module:
    """Return a module without a stacked form."""
    return nn.Sequential(nn.Linear(300, 256), nn.GroupNorm(8, 256), nn.ReLU(), nn.Linear(256, 10))


def as_bytes(case: Case) -> Case:
    """Return the same run on pixels of a byte each."""
    rows = case.fed.train
    pixels = (rows.x * 40 + 128).clamp(0, 255).to(torch.uint8)
    fed = Federation.from_rows(RaggedRows(pixels, rows.y, rows.offsets), classes=case.fed.classes)
    return replace(case, fed=fed)


M, m = muster.models, muster.methods
CASES: dict[str, Callable[[], Case]] = {
    "W1": lambda: of_workload("W1"),
    "W2": lambda: of_workload("W2"),
    "W3": lambda: of_workload("W3"),
    "W4": lambda: of_workload("W4"),
    "small": lambda: even(
        "MLP 100-64-10, 2,000 clients x 100 rows, full batches",
        *(2000, 100, (100,), M.MLP((64,))), batch_size=None,
    ),
    "wide": lambda: even(
        "MLP 784-1024-1024-10, 40 clients x 500 rows", 40, 500, (784,), M.MLP((1024, 1024))
    ),
    "long": lambda: even("softmax 5000x10, 200 clients x 50 rows", 200, 50, (5000,), M.Softmax()),
    "double": lambda: even(
        "MLP 200-300-10 in float64, 200 clients x 200 rows",
        *(200, 200, (200,), M.MLP((300,))), compute=Compute(dtype="float64"),
    ),
    "scaffold": lambda: even(
        "SCAFFOLD, MLP 784-200-10, 300 clients x 100 rows",
        *(300, 100, (784,), M.MLP((200,)), m.scaffold(m=100)),
    ),
    "loop": lambda: even(
        "MLP 784-400-10, 100 clients x 300 rows",
        *(100, 300, (784,), M.MLP((400,))), compute=Compute("loop"),
    ),
    "images": lambda: even(
        "CNN on 1x28x28, 40 clients x 100 rows", 40, 100, (1, 28, 28), M.CNN()
    ),
    "alone": lambda: even(
        "CNN on 3x32x32, 40 clients x 200 rows, one process",
        *(40, 200, (3, 32, 32), M.CNN()), compute=Compute(processes=1),
    ),
    "ditto": lambda: even(
        "Ditto, CNN on 1x28x28, 40 clients x 100 rows, 10 asked",
        *(40, 100, (1, 28, 28), M.CNN(), m.ditto(m=10)),
    ),
    "mapped": lambda: even(
        "a module with GroupNorm, mapped over clients, 300 clients x 200 rows",
        *(300, 200, (300,), build_mapped()),
    ),
    "momentum": lambda: even(
        "momentum kept by clients, MLP 400-250-10, 400 clients x 80 rows, 60 asked",
        *(400, 80, (400,), M.MLP((250,)), m.fedavg(m.Sample(60))),
        optimizer=muster.optimizers.GradientDescent(momentum=0.9, keep=True),
    ),
    # Not used to choose the constants of the forecast.
    "bytes": lambda: as_bytes(even(
        "MLP 784-500-100-10 on bytes, 80 clients x 1,000 rows",
        *(80, 1000, (784,), M.MLP((500, 100))), epochs=2, batch_size=64,
    )),
    "deep": lambda: even(
        "MLP 256-512-512-512-10, 500 clients x 40 rows, 100 asked",
        *(500, 40, (256,), M.MLP((512, 512, 512)), m.fedavg(m.Sample(100))),
    ),
    "tall": lambda: even(
        "CNN on 3x40x40, batches of 100, 20 clients x 100 rows",
        *(20, 100, (3, 40, 40), M.CNN()), batch_size=100,
    ),
    "adam": lambda: even(
        "Adam kept by clients, MLP 300-400-10, 60 clients x 80 rows, 4 rounds",
        *(60, 80, (300,), M.MLP((400,))), rounds=4, optimizer=muster.optimizers.Adam(keep=True),
    ),
    "pfedme": lambda: even(
        "pFedMe, MLP 400-250-10 in float64, 100 clients x 80 rows, 30 asked, 3 rounds",
        *(100, 80, (400,), M.MLP((250,)), m.pfedme(m=30), Compute(dtype="float64")), rounds=3,
    ),
}  # fmt: skip


def take_few(fed: Federation) -> Federation:
    """Return the first clients, with copies of their rows."""
    offsets = fed.train.offsets[: FEW + 1]
    rows = int(offsets[-1])
    few = RaggedRows(fed.train.x[:rows].clone(), fed.train.y[:rows].clone(), offsets)
    return Federation.from_rows(few, classes=fed.classes)


def read_status(name: str) -> int:
    """Return a number of bytes from this process's status."""
    found = re.search(rf"{name}:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def find_children() -> list[str]:
    threads = Path("/proc/self/task").glob("*/children")
    return [pid for each in threads for pid in each.read_text().split()]


def share_of_memory(pid: str) -> int:
    """Return the bytes of a process apart from files, its share of pages that others have too; 0
    once it ended. Files (libraries) may be shared with any other process of the machine."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return 1024 * sum(map(int, re.findall(r"^Pss_(?:Anon|Shmem):\s*(\d+) kB", text, re.M)))


class Watch:
    """The most memory that this process and its children held at once, while it lasts."""

    def __enter__(self) -> Watch:
        self.most, self._over = 0, threading.Event()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._over.wait(LOOK):
            if children := find_children():
                own = sum(map(share_of_memory, ["self", *children]))
                self.most = max(self.most, own + read_status("RssFile"))

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self.most = max(self.most, read_status("VmHWM"))


def settle() -> None:
    """Give freed memory back to the machine."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def measure(name: str) -> dict:
    """Measure one run, in this process."""
    keep = Keep(evaluate_every=0)
    case = CASES[name]()
    few = take_few(case.fed)
    del case
    case = replace(CASES[name](), fed=few)
    run_job(few, case.job, compute=case.compute, keep=keep)
    del case, few
    settle()
    process = read_status("VmRSS")
    case = CASES[name]()
    module = case.job.check(case.fed)
    forecast = forecast_memory(case.fed, case.job, module, case.compute)
    engine = choose(case.compute, module, case.fed, case.job.local)
    engine.close()
    settle()
    with Watch() as watch:
        run_job(case.fed, case.job, compute=case.compute, keep=keep, module=module)
    return {
        "what": case.what,
        "engine": engine.name,
        "process": process,
        "rows": case.fed.train.nbytes,
        "needs": watch.most - process,
        "forecast": asdict(forecast) | {"run": forecast.run},
    }


def format_row(name: str, found: dict) -> list[str]:
    """Return a row of the table."""
    needs, rows, forecast = found["needs"], found["rows"], found["forecast"]["run"]
    return [
        f"{name}: {found['what']}" if name in WORKLOADS else found["what"],
        found["engine"],
        f"{rows / 1e6:.0f}",
        f"{needs / 1e6:.0f}",
        f"{needs / rows:.2f}",
        f"{forecast / 1e6:.0f}",
        f"{forecast / needs:.2f}",
    ]


def write(row: list[str]) -> None:
    """Write a row into the page's table; those of other runs stay as they are."""
    old = read_rows(split_page(PAGE.read_text(), "memory")[1])
    write_block(PAGE, "memory", format_table([HEAD, *merge_rows(old, [row])]))


def main(wanted: list[str]) -> int:
    """Measure what is wanted, and write each row at once."""
    if wanted[:1] == ["one"]:
        print(json.dumps(measure(wanted[1])))
        return 0
    names = [name for name in wanted if name != "--write"] or list(CASES)
    if wrong := [name for name in names if name not in CASES]:
        print(f"unknown run '{wrong[0]}'; known: {', '.join(CASES)}", file=sys.stderr)
        return 2
    off = []
    for name in names:
        found = run_apart(__file__, name)
        row = format_row(name, found)
        print(f"{name}: {' | '.join(row)} | process {found['process'] / 1e6:.0f} MB", flush=True)
        if "--write" in wanted:
            write(row)
        if not 0.8 <= found["forecast"]["run"] / found["needs"] <= 1.2:
            off.append(name)
    if off:
        print(f"the forecast is off by more than a fifth: {', '.join(off)}")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
