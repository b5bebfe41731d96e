"""muster next to its peers on the same work, in one run: fedjax, pfl-research, Flower's simulation,
FLGo, and the loop most people write first.

    python benchmarks/peers.py --write              all of it (hours), into docs/speed.md
    python benchmarks/peers.py W2 --write --seconds 900     one workload in a quarter of an hour
    python benchmarks/peers.py W1 W5 --peers muster,fedjax
    python benchmarks/peers.py --tiny               a few clients and rounds: does everything run?

A workload's rows are written as soon as it ends, in place of those of an earlier run; rows of other
workloads stay. `--seconds` bounds each workload: turns that would not fit are left out, and a peer
that has not ended by then is left out with that reason.

Every peer has an environment of its own, made here from the package index (`--cache`). All train
the same federation from the same starting point by FedAvg, with as many rounds, epochs and rows in
a batch; each in the way that is its fastest on this machine, of those tried in its first turn
(`MODES`), of which only that one counts. Data, imports, compilation and the first round are the
start, which is apart. Peers take turns, so that a busy machine slows all of them; the number is the
median over all rounds of all turns, the spread its quartiles. Labels are those of a linear rule
with noise, so that all reach an accuracy, which must agree within `AGREE`. Timing means nothing
while something else is running.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from machine import describe_machine, new_figure, save_figure
from page import (
    format_notes,
    format_table,
    read_notes,
    read_rows,
    split_page,
    write_block,
)
from workloads import WORKLOADS, Workload

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "speed.md"
FIGURE = HERE.parent / "docs" / "peers.svg"
TORCH = "torch==2.13.0"
# What is installed for each peer; those without are run in this environment.
PEERS = {
    "muster": [],
    "naive": [],
    "fedjax": ["fedjax==0.0.17", "jax[cpu]==0.10.2"],
    "pfl": ["pfl[pytorch]==0.6.0", TORCH],
    "flower": ["flwr[simulation]==1.41.0", TORCH],
    "flgo": ["flgo==0.4.4", TORCH],
}
# Ways to run each: threads of torch, fedjax's backend, Flower's actors.
MODES = {
    "muster": ["all"],
    "naive": ["1", "2"],
    "fedjax": ["jit"],
    "pfl": ["1", "2"],
    "flower": ["2"],
    "flgo": ["1", "2"],
}
TURNS = 3
ROUNDS = {"W1": 5, "W2": 2, "W3": 2, "W4": 10, "W5": 100}  # timed, of each turn
LONGEST = 7200.0  # seconds of a workload, unless given
AGREE = 0.02  # largest difference of accuracy to muster's
SAMPLE = 20_000  # rows of which the accuracy is


@dataclass
class Record:
    """Seconds of a peer's rounds and starts on a workload, its accuracy; or why it has none."""

    rounds: list[float]
    starts: list[float]
    accuracy: float = np.nan
    version: str = ""
    mode: str = ""
    why: str = ""


def prepare(peer: str, cache: Path) -> Path:
    """Return the Python of a peer's environment, which is made where it is missing."""
    if not PEERS[peer]:
        return Path(sys.executable)
    place = cache / peer
    python = place / "bin" / "python"
    if not (place / "ready").exists():
        print(f"{peer}: installing {' '.join(PEERS[peer])}", flush=True)
        subprocess.run([sys.executable, "-P", "-m", "venv", "--without-pip", place], check=True)
        subprocess.run(
            [sys.executable, "-P", "-m", "pip", "--python", python, "install", "-q", *PEERS[peer]],
            check=True,
        )
        (place / "ready").touch()
    return python


def shrink(load: Workload) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return the rows of few small clients, and how many of them are asked."""
    sizes = np.minimum(np.diff(load.fed.train.offsets)[:6], 70)
    first = load.fed.train.offsets[:6]
    chosen = np.concatenate([np.arange(a, a + n) for a, n in zip(first, sizes, strict=True)])
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    asked = 6 if load.asked == load.fed.n else 3
    return load.fed.train.x[chosen].numpy(), chosen, offsets, asked


def write_work(load: Workload, rounds: int, tiny: bool, folder: Path) -> np.ndarray:
    """Write a workload for all peers; return its labels."""
    x, offsets, asked = load.fed.train.x.numpy(), load.fed.train.offsets, load.asked
    if tiny:
        x, _, offsets, asked = shrink(load)
    classes = load.fed.classes
    draw = np.random.default_rng(1)
    flat = x.reshape(len(x), -1)
    rule = draw.normal(size=(flat.shape[1], classes)).astype(np.float32) / flat.shape[1] ** 0.5
    y = np.concatenate(
        [(part @ rule).argmax(1) for part in np.array_split(flat, max(1, len(flat) // 50_000))]
    )
    noise = draw.random(len(y)) < 0.1
    y = np.where(noise, draw.integers(classes, size=len(y)), y).astype(np.int64)
    clients = len(offsets) - 1
    order = [draw.permutation(clients)[:asked] for _ in range(rounds + 1)]
    for name, array in (("x", x), ("y", y), ("offsets", offsets), ("asked", np.array(order))):
        np.save(folder / f"{name}.npy", array)
    np.savez(folder / "start.npz", **{n: t.numpy() for n, t in load.model.state_dict().items()})
    table = {
        "layers": [describe_layer(layer) for layer in load.model],
        "epochs": load.local.epochs,
        "batch": load.local.batch_size,
        "lr": float(load.local.rate(0, 1)),
        "classes": classes,
    }
    (folder / "work.json").write_text(json.dumps(table))
    return y


def describe_layer(layer: torch.nn.Module) -> list:
    """Return a layer's name and arguments."""
    kind = type(layer).__name__
    arguments = {
        "Linear": lambda: [layer.in_features, layer.out_features],
        "Conv2d": lambda: [
            *(layer.in_channels, layer.out_channels),
            *(layer.kernel_size[0], layer.stride[0], layer.padding[0]),
        ],
        "BatchNorm2d": lambda: [layer.num_features],
        "BatchNorm1d": lambda: [layer.num_features],
        "MaxPool2d": lambda: [layer.kernel_size],
    }
    return [kind, *arguments.get(kind, list)()]


class Deadline:
    """The end of a workload's time."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._end = seconds, time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until then."""
        return self._end - time.monotonic()


def take_turn(
    peer: str, python: Path, folder: Path, mode: str, deadline: Deadline
) -> tuple[dict, Path] | str:
    """Run a peer once; return its result and where its model is, or why there is none."""
    late = f"not done in {deadline.seconds:.0f} s"
    if deadline.left <= 0:
        return late
    out = Path(tempfile.mkdtemp(dir=folder))
    env = {
        **os.environ,
        "PEER_LAUNCH": str(time.time()),
        "PYTHONPATH": str(HERE / "adapters"),
    }
    command = [python, "-P", HERE / "adapters" / f"with_{peer}.py", folder, out, mode]
    with (out / "log").open("w") as log:
        # A session of its own: what a peer starts (Ray's processes) ends with it.
        process = subprocess.Popen(
            command, env=env, cwd=out, stdout=log, stderr=log, start_new_session=True
        )
        try:
            code = process.wait(deadline.left)
        except subprocess.TimeoutExpired:
            return late
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code or not (out / "result.json").exists():
        lines = [line for line in (out / "log").read_text().splitlines() if line.strip()]
        return (lines or ["no word"])[-1][:200]
    return json.loads((out / "result.json").read_text()), out / "final.npz"


def find_mode(
    peer: str, python: Path, folder: Path, deadline: Deadline
) -> tuple[str, tuple[dict, Path] | str]:
    """Return the quickest way to run a peer on this work, and that turn; or why none runs."""
    best, found = "", "no way to run it"  # type: str, tuple[dict, Path] | str
    for mode in MODES[peer]:
        done = take_turn(peer, python, folder, mode, deadline)
        if isinstance(found, str) or (
            not isinstance(done, str) and find_middle(done) < find_middle(found)
        ):
            best, found = mode, done
    return best, found


def find_middle(done: tuple[dict, Path]) -> float:
    """Return the median of a turn's seconds a round."""
    return float(np.median(done[0]["rounds"]))


def measure_accuracy(load: Workload, path: Path, folder: Path, y: np.ndarray) -> float:
    """Return the share of rows that a final model gets right."""
    model = load.model
    with np.load(path) as found:
        state = {name: torch.from_numpy(np.array(found[name])) for name in found}
    model.load_state_dict(state, strict=False)
    x = np.load(folder / "x.npy", mmap_mode="r")
    rows = np.linspace(0, len(y) - 1, min(SAMPLE, len(y))).astype(np.int64)
    with torch.no_grad():
        z = [model.eval()(torch.from_numpy(x[some])) for some in np.array_split(rows, 20)]
    return float((torch.cat(z).argmax(1).numpy() == y[rows]).mean())


def run_workload(
    name: str, peers: list[str], pythons: dict[str, Path | str], tiny: bool, seconds: float
) -> dict[str, Record]:
    """Let all peers take turns on one workload, for this long."""
    load = WORKLOADS[name]()
    records = {peer: Record([], []) for peer in peers}
    deadline = Deadline(seconds)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place)
        y = write_work(load, 3 if tiny else ROUNDS[name], tiny, folder)
        for turn in range(1 if tiny else TURNS):
            for peer, record in records.items():
                python = pythons[peer]
                if isinstance(python, str):
                    record.why = python
                if record.why:
                    continue
                if turn == 0:
                    record.mode, done = find_mode(peer, python, folder, deadline)
                else:
                    done = take_turn(peer, python, folder, record.mode, deadline)
                if isinstance(done, str):
                    # What it did before its time was over counts.
                    record.why = "" if record.rounds and deadline.left <= 0 else done
                    continue
                record.rounds += done[0]["rounds"]
                record.starts.append(done[0]["start"])
                record.version = done[0]["version"]
                record.accuracy = measure_accuracy(load, done[1], folder, y)
                print(
                    f"{name} {peer} ({record.mode}): {find_middle(done):.4f} s a round, "
                    f"accuracy {record.accuracy:.3f}", flush=True,
                )  # fmt: skip
        for peer, record in records.items():
            if record.why:
                print(f"{name} {peer}: not run: {record.why}", flush=True)
    return records


def check_agreement(found: dict[str, dict[str, Record]]) -> list[str]:
    """Return the peers whose final accuracy is not muster's."""
    return [
        f"{name}: {peer} {record.accuracy:.3f}, muster {records['muster'].accuracy:.3f}"
        for name, records in found.items()
        for peer, record in records.items()
        if not record.why and "muster" in records and not records["muster"].why
        and not abs(record.accuracy - records["muster"].accuracy) <= AGREE
    ]  # fmt: skip


HEAD = ["work", "peer", "s a round", "quartiles", "start s", "accuracy", "times muster's s"]


def format_rows(name: str, records: dict[str, Record]) -> list[list[str]]:
    """Return a workload's rows of the table of docs/speed.md."""
    base, rows = records.get("muster"), []
    for peer, record in records.items():
        label = f"{peer} {record.version}".strip()
        if record.why:
            rows.append([name, label, f"not run: {record.why}", "", "", "", ""])
            continue
        low, middle, high = np.quantile(record.rounds, [0.25, 0.5, 0.75])
        ratio = middle / np.median(base.rounds) if base and base.rounds else np.nan
        spread = f"{low:.4f} to {high:.4f}"
        start, accuracy = f"{np.median(record.starts):.1f}", f"{record.accuracy:.3f}"
        rows.append([name, label, f"{middle:.4f}", spread, start, accuracy, f"{ratio:.2f}"])
    return rows


def write_page(name: str, new: list[list[str]], machine: str) -> None:
    """Put a workload's rows into the page, in place of those it had; others stay."""
    old = split_page(PAGE.read_text(), "peers")[1]
    peers = {row[1].split()[0] for row in new}
    rows = [row for row in read_rows(old) if row[0] != name or row[1].split()[0] not in peers]
    order = {peer: i for i, peer in enumerate(PEERS)}
    rows = sorted([*rows, *new], key=lambda row: (row[0], order[row[1].split()[0]]))
    notes = format_notes(dict(sorted({**read_notes(old), name: machine}.items())))
    picture = "![Seconds a round of every peer](peers.svg)"
    write_block(PAGE, "peers", f"{format_table([HEAD, *rows])}\n\n{notes}\n\n{picture}")
    draw(rows)


def draw(rows: list[list[str]]) -> None:
    """Draw seconds a round of every peer, from the table."""
    works, peers = sorted({row[0] for row in rows}), list(PEERS)
    figure, ((axes,),) = new_figure(1, 7)
    for i, peer in enumerate(peers):
        points = [
            (works.index(row[0]) + (i - len(peers) / 2) * 0.12, float(row[2]))
            for row in rows
            if row[1].split()[0] == peer and not row[2].startswith("not run")
        ]
        if points:
            axes.plot(*zip(*points, strict=True), "o", label=peer, markersize=5)
    axes.set_yscale("log")
    axes.set_xticks(range(len(works)), works)
    axes.set_ylabel("seconds a round")
    axes.legend(ncols=3, fontsize=8)
    save_figure(figure, FIGURE)


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--seconds", type=float, default=LONGEST, help="of each workload")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "muster-peers")
    given = parser.parse_args()
    if given.write and given.tiny:
        parser.error("--write: not with --tiny, whose numbers mean nothing")
    pythons: dict[str, Path | str] = {}
    for peer in given.peers.split(","):
        try:
            pythons[peer] = prepare(peer, given.cache)
        except subprocess.CalledProcessError as error:
            pythons[peer] = f"cannot be installed (pip ended with {error.returncode})"
    found = {}
    for name in given.workloads:
        machine = describe_machine()
        found[name] = run_workload(name, list(pythons), pythons, given.tiny, given.seconds)
        rows = format_rows(name, found[name])
        print(format_table([HEAD, *rows]), flush=True)
        if given.write:
            write_page(name, rows, machine)
    wrong = [] if given.tiny else check_agreement(found)
    for line in wrong:
        print(f"accuracies do not agree: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
