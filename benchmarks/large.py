"""Large populations: processor time of a round, and the peak of memory.

    python benchmarks/large.py                     all of it (a few minutes)
    python benchmarks/large.py invite ledger       the lines whose names begin so
    python benchmarks/large.py --write             all of it, and put table and figure into
                                                   docs/scaling.md

Each line runs in a separate process, so that its peak is its own, and is written when it ends. The
peak leaves out what the process held before the run: libraries, and the data. Processor time is
that of all threads, the median and quartiles of the rounds but the first ones, which warm up, and
the last, which measures the model on everyone.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from machine import describe_machine, new_figure, run_apart, save_figure
from page import (
    format_notes,
    format_table,
    merge_rows,
    read_notes,
    read_rows,
    split_page,
    write_block,
)

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
FIGURE = PAGE.with_name("large.svg")
HEAD = ("what", "clients", "asked", "rounds", "processor ms a round", "quartiles")
HEAD += ("peak GB over the data",)
NAMED = 3  # columns that name the run
LINES = {
    "scaffold 1,000": ("SCAFFOLD, softmax 784x10", 1_000, 100, 20),
    "scaffold 100,000": ("SCAFFOLD, softmax 784x10", 100_000, 100, 20),
    "invite 10,000": ("FedAvg on a sample, softmax 4x2: the invitation", 10_000, 1_000, 20),
    "invite 100,000": ("FedAvg on a sample, softmax 4x2: the invitation", 100_000, 1_000, 20),
    "invite 1,000,000": ("FedAvg on a sample, softmax 4x2: the invitation", 1_000_000, 1_000, 20),
    "ledger 10,000": ("FedAvg on everyone, softmax 4x2: the ledger", 10_000, 10_000, 20),
    "ledger 100,000": ("FedAvg on everyone, softmax 4x2: the ledger", 100_000, 100_000, 10),
    "ledger 1,000,000": ("FedAvg on everyone, softmax 4x2: the ledger", 1_000_000, 1_000_000, 10),
    "cnn 1,000": ("FedAvg on everyone, the CNN on 3x32x32", 1_000, 1_000, 4),
}


def peak() -> float:
    """The most memory this process and its children ever held, in bytes."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return 1024.0 * max(own, children)


def measure(name: str) -> dict[str, Any]:
    """One line, in this process."""
    import muster
    from muster.federation import Federation, RaggedRows

    _, clients, asked, rounds = LINES[name]
    small = (2, (4,), 2)
    sizes = {"scaffold": (2, (784,), 10), "ledger": small, "invite": small}
    rows, shape, classes = sizes.get(name.split()[0], (4, (3, 32, 32), 10))
    x = torch.zeros(1, *shape).expand(clients * rows, *shape)
    y = torch.arange(clients * rows) % classes
    offsets = np.arange(clients + 1) * rows
    fed = Federation.from_rows(RaggedRows(x, y, offsets), classes=classes)
    local = muster.Local(steps=1, batch_size=2, lr=0.01)
    method, model = muster.methods.fedavg(), muster.models.Softmax()
    if name.startswith("scaffold"):
        method = muster.methods.scaffold(m=asked)
    elif name.startswith("invite"):
        method = muster.methods.fedavg(muster.methods.Sample(asked))
    elif name.startswith("cnn"):
        model, local = muster.models.CNN(), muster.Local(steps=1, batch_size=4, lr=0.01)
    muster.simulate(
        muster.data.digits(clients=4), muster.methods.fedavg(), muster.models.Softmax(), 1, local
    )
    before = peak()
    marks = [time.process_time()]
    muster.simulate(
        *(fed, method, model, rounds, local),
        evaluate_every=0,
        on_round=lambda row: marks.append(time.process_time()),
        # One process, as the time of others is not seen from here.
        processes=1 if name.startswith("cnn") else None,
    )
    seconds = np.diff(marks)
    spread = np.quantile(seconds[1 + rounds // 10 : -1], [0.25, 0.5, 0.75])
    return {"seconds": spread.tolist(), "peak": peak() - before}


def write(row: list[str], machine: str) -> None:
    """Put a row into the page's table, in place of the one of the same run, and draw them all."""
    old = split_page(PAGE.read_text(), "large")[1]
    rows = merge_rows(read_rows(old), [row], NAMED)
    notes = format_notes(read_notes(old) | {row[0]: machine})
    picture = "![Processor time of a round and memory by the number of clients](large.svg)"
    write_block(PAGE, "large", f"{format_table([HEAD, *rows])}\n\n{notes}\n\n{picture}")
    draw(rows)


def draw(rows: list[list[str]]) -> None:
    """Draw processor time and memory by the number of clients, from the table."""
    figure, (panels,) = new_figure(2, 9)
    labels = ("processor ms a round", "peak GB over the data")
    for axes, column, label in zip(panels, (4, 6), labels, strict=True):
        for what in dict.fromkeys(row[0] for row in rows):
            mine = [row for row in rows if row[0] == what]
            counts = [int(row[1].replace(",", "")) for row in mine]
            values = [float(row[column]) for row in mine]
            (line,) = axes.plot(counts, values, "o-", label=what, markersize=4)
            if column == 4:
                low, high = zip(*(map(float, row[5].split(" to ")) for row in mine), strict=True)
                axes.vlines(counts, low, high, colors=line.get_color())
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("clients")
        axes.set_ylabel(label)
    panels[0].legend(fontsize=7)
    save_figure(figure, FIGURE)


def main() -> None:
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(measure(sys.argv[2])))
        return
    wanted = tuple(word for word in sys.argv[1:] if word != "--write")
    for name, (what, clients, asked, rounds) in LINES.items():
        if wanted and not name.startswith(wanted):
            continue
        machine = describe_machine()
        found = run_apart(__file__, name)
        row = [what, f"{clients:,}", f"{asked:,}", str(rounds)]
        low, middle, high = (f"{1e3 * value:.1f}" for value in found["seconds"])
        row += [middle, f"{low} to {high}", f"{found['peak'] / 1e9:.2f}"]
        print(" | ".join(row), flush=True)
        if "--write" in sys.argv:
            write(row, machine)


if __name__ == "__main__":
    main()
