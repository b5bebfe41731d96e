"""Faults done to real runs: how often each was tried, outcome, and what was lost.

    python benchmarks/reliability.py            the table on the screen (a few minutes)
    python benchmarks/reliability.py --write    and in docs/reliability.md

Every fault is done to a separate process that runs `muster run`, or to the files it left; the run
is then resumed, and its weights and tables are compared with those of a run nothing
happened to. A fault that loses more than the rounds since the last checkpoint, or changes one bit
of the result, or ends in anything but a line of words, is counted as a failure, and the command
ends with exit code 1.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console

import muster
from page import format_table, write_block

PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
ROUNDS, EVERY = 200, 20
ARGS = [
    "--data",
    "digits",
    "--method",
    "scaffold",
    "--rounds",
    str(ROUNDS),
    "--checkpoint-every",
    str(EVERY),
    "--local.steps",
    "2",
    "--evaluate-every",
    "5",
]
Outcome = tuple[str, str]  # the outcome, and what was lost
DRAW = random.Random(0)


def muster_(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "muster", *words]


def start(name: str, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        muster_("run", *ARGS, "--name", name, *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def resume(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        muster_("run", "--resume", f"runs/{name}"), capture_output=True, text=True, check=False
    )


def last_round(name: str) -> int:
    """The rounds that the last checkpoint of a run holds."""
    found = sorted(Path(f"runs/{name}/checkpoints").glob("round-*"))
    return int(found[-1].name.split("-")[1]) if found else 0


def wait_for(name: str, rounds: int, process: subprocess.Popen[str]) -> None:
    while last_round(name) < rounds and process.poll() is None:
        time.sleep(0.02)


def same(a: muster.Run, b: muster.Run) -> bool:
    """True if two runs have the same weights and tables, to the last bit."""

    def timeless(run: muster.Run, name: str) -> pl.DataFrame:
        frame: pl.DataFrame = getattr(run, name)
        return frame.drop("seconds", strict=False)

    frames = all(
        timeless(a, n).equals(timeless(b, n)) for n in ("rounds", "clients", "moves", "final")
    )
    return frames and all(np.array_equal(a.weights[n], b.weights[n]) for n in a.weights)


def resume_and_compare(name: str, whole: muster.Run) -> Outcome:
    """Resume a run and compare it with one that nothing happened to."""
    said = resume(name)
    if said.returncode or "Traceback" in said.stdout + said.stderr:
        return f"FAILED: {(said.stderr or said.stdout).strip().splitlines()[-1]}", "the run"
    run = muster.load(f"runs/{name}")
    if not same(run, whole):
        return "FAILED: other results", "the result"
    older = "going on from" in said.stderr
    return "same bits", f"rounds since the {'one before' if older else 'last'} checkpoint"


def kill(name: str, whole: muster.Run) -> Outcome:
    process = start(name)
    wait_for(name, DRAW.randrange(0, ROUNDS // 2), process)
    time.sleep(DRAW.random() * 0.3)
    process.kill()
    process.communicate()
    if not Path(f"runs/{name}/config.toml").exists():
        return "nothing was there yet", "nothing"
    return resume_and_compare(name, whole)


def interrupt(name: str, whole: muster.Run) -> Outcome:
    process = start(name)
    wait_for(name, DRAW.randrange(EVERY, ROUNDS // 2), process)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    if process.returncode != 130 or "Traceback" in said:
        return f"FAILED: exit code {process.returncode}", "the run"
    outcome, _ = resume_and_compare(name, whole)
    return outcome, "the round under way"


def worker(name: str, whole: muster.Run, how: signal.Signals) -> Outcome:
    """One of the loop engine's workers is killed, or stopped for good."""
    process = start(name, "--engine", "loop", "--processes", "2")
    wait_for(name, EVERY, process)
    listed = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True)
    victims = [int(pid) for pid in listed.stdout.split()]
    os.kill(DRAW.choice(victims), how)
    said, _ = process.communicate(timeout=600)
    loop = muster.load(f"runs/{name}")
    if process.returncode or "takes over its client" not in said:
        return f"FAILED: exit code {process.returncode}", "the run"
    expected = muster.load("runs/loop")
    return ("same bits", "nothing") if same(loop, expected) else ("FAILED: other results", "")


@contextmanager
def start_and_kill(name: str) -> Iterator[Path]:
    """A run that was killed, with two checkpoints."""
    process = start(name)
    wait_for(name, 3 * EVERY, process)
    process.kill()
    process.communicate()
    yield sorted(Path(f"runs/{name}/checkpoints").glob("round-*"))[-1]


def flip_bit(name: str, whole: muster.Run) -> Outcome:
    with start_and_kill(name) as last:
        file = DRAW.choice(sorted(last.iterdir()))
        raw = bytearray(file.read_bytes())
        raw[DRAW.randrange(len(raw))] ^= 1 << DRAW.randrange(8)
        file.write_bytes(raw)
    return resume_and_compare(name, whole)


def cut_short(name: str, whole: muster.Run) -> Outcome:
    with start_and_kill(name) as last:
        file = DRAW.choice(sorted(last.iterdir()))
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return resume_and_compare(name, whole)


def remove_file(name: str, whole: muster.Run) -> Outcome:
    with start_and_kill(name) as last:
        DRAW.choice(sorted(last.iterdir())).unlink()
    return resume_and_compare(name, whole)


def twice(name: str, whole: muster.Run) -> Outcome:
    """Two runs of the same name at the same time."""
    both = [start(name), start(name)]
    for process in both:
        process.communicate()
    runs = [muster.load(f"runs/{n}") for n in (name, f"{name}-2")]
    return (
        ("same bits, a folder each", "nothing")
        if all(same(r, whole) for r in runs)
        else ("FAILED", "")
    )


def resume_twice(name: str, whole: muster.Run) -> Outcome:
    with start_and_kill(name):
        pass
    both = [
        subprocess.Popen(
            muster_("run", "--resume", f"runs/{name}"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    said = [process.communicate()[0] for process in both]
    refused = sum("in use by another run" in words for words in said)
    done = same(muster.load(f"runs/{name}"), whole)
    traced = any("Traceback" in words for words in said)
    ok = done and not traced and refused <= 1
    return ("same bits; the second is refused, or finds it complete" if ok else "FAILED", "nothing")


def full_disk(name: str, whole: muster.Run) -> Outcome:
    """Files may not grow beyond a few kilobytes, as on a disk that is full."""
    with start_and_kill(name):
        pass
    limit = f"""
import resource, runpy, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
sys.argv = ["muster", "run", "--resume", "runs/{name}"]
runpy.run_module("muster", run_name="__main__")
"""
    said = subprocess.run(
        [sys.executable, "-P", "-c", limit], capture_output=True, text=True, check=False
    )
    lines = [line for line in said.stderr.splitlines() if line.startswith("muster: ")]
    if said.returncode != 2 or len(lines) != 1 or "Traceback" in said.stderr:
        return f"FAILED: {said.stderr.strip().splitlines()[-1:]}", ""
    outcome, lost = resume_and_compare(name, whole)
    return f"one line; then {outcome}", lost


FAULTS: dict[str, tuple[int, Callable[[str, muster.Run], Outcome]]] = {
    "kill -9 at any moment, then --resume": (6, kill),
    "Ctrl-C at any moment, then --resume": (3, interrupt),
    "a bit of the last checkpoint flips": (6, flip_bit),
    "a file of the last checkpoint is cut short": (2, cut_short),
    "a file of the last checkpoint is gone": (2, remove_file),
    "the disk is full, then there is room": (1, full_disk),
    "two runs of the same name at the same time": (1, twice),
    "the same run resumed twice at the same time": (1, resume_twice),
    "a worker process is killed": (2, lambda n, w: worker(n, w, signal.SIGKILL)),
    "a worker process is stopped for good": (1, lambda n, w: worker(n, w, signal.SIGSTOP)),
}


def main() -> int:
    console = Console()
    rows, failed = [], 0
    home = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        start("whole").communicate()
        start("loop", "--engine", "loop").communicate()
        whole = muster.load("runs/whole")
        for number, (fault, (times, do)) in enumerate(FAULTS.items()):
            outcomes: dict[Outcome, int] = {}
            for i in range(times):
                outcome = do(f"fault{number}-{i}", whole)
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
                failed += outcome[0].startswith("FAILED")
                shutil.rmtree(f"runs/fault{number}-{i}", ignore_errors=True)
            for (outcome_text, lost), n in sorted(outcomes.items(), key=lambda o: -o[1]):
                rows.append((fault, f"{n} of {times}", outcome_text, lost))
                console.print(" | ".join(rows[-1]), highlight=False)
        os.chdir(home)
    head = ("fault", "times", "outcome", "what was lost")
    if "--write" in sys.argv:
        write_block(PAGE, "faults", format_table([head, *rows]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
