"""`muster watch`: the progress of a run, comparison or federation under way."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from ..base import durable
from ..base.checks import check_above
from ..base.errors import MusterError, command_line, plural
from ..config.experiment import load_table
from ..report.html.content import Content
from ..report.html.page import render_page
from ..report.table_layout import Column, TerminalTable
from ..results.measures import MEASURES
from ..results.run import Run
from ..run.progress import RunProgress, list_progress
from ..study.comparison import is_comparison, read_marker
from ..study.grid import grid
from ..study.load import get_resume_command, is_tuning
from ..study.sweep_result import is_sweep, load_sweep
from ..study.tickets import TicketName, is_held
from ..study.units import CONFIG
from .arguments import CommandParser
from .console import print_line
from .options import add_flags
from .progress_bar import format_duration

LIVE = "live.html"
SPARKS = "▁▂▃▄▅▆▇█"
WIDTH = 12  # letters of a small curve
EVERY = 2.0  # seconds between two updates
BETWEEN, WAITING = 5.0, 600.0  # seconds between two runs at most, and before the first round
SAVING = 1.0  # seconds to save a run


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="such as runs/demo")
    add_flags(parser, ("--every", "SECONDS", "seconds between two updates (2)"))
    text = "also write FOLDER/live.html, a page that reloads itself"
    parser.add_flag("--page", action="store_true", help=text)
    parser.add_flag("--once", action="store_true", help="print the state once, and stop")


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Follow a folder until its runs are done, or have stopped."""
    if arguments.folder is None:
        raise MusterError("watch: which run? give its folder, such as runs/demo")
    folder, every = Path(arguments.folder), _seconds(arguments.every)
    check_above("--every", every)
    seen = read_runs(folder)
    if any(s.state == "stopped" and len(s.rows) == s.rounds for s in seen):
        time.sleep(SAVING)  # a run after its last round is not under way, and not done yet
        seen = read_runs(folder)
    if arguments.page and is_sweep(folder):
        raise MusterError(f"--page: {folder} is a sweep; give one of its cells, or leave it out")
    if arguments.page:
        write_page(folder, seen, every)
        print_line(console, f"page:    {folder / LIVE} (it reloads itself)")
    if arguments.once or not console.is_terminal:
        console.print(build_table(seen, folder))
    if arguments.once:
        stopped = any(s.state == "stopped" for s in seen) and not is_at_work(seen, folder)
        if stopped or is_complete(seen, folder):
            print_line(console, describe_end(seen, folder))
        return 0
    moved = time.monotonic()
    with Live(console=console, auto_refresh=False) as live:
        while not is_complete(seen, folder) and time.monotonic() - moved < find_timeout(
            seen, folder
        ):
            if console.is_terminal:
                live.update(build_table(seen, folder), refresh=True)
            time.sleep(every)
            before, seen = seen, read_runs(folder)
            if _done(before) != _done(seen):
                moved = time.monotonic()
                if arguments.page:
                    write_page(folder, seen, every)
        if console.is_terminal:
            live.update(build_table(seen, folder), refresh=True)
    if arguments.page:
        write_page(folder, seen, 0)
    if not console.is_terminal:
        console.print(build_table(seen, folder))
    print_line(console, describe_end(seen, folder))
    return 0


def _seconds(text: str | None) -> float:
    try:
        return EVERY if text is None else float(text)
    except ValueError:
        raise MusterError(f"--every: '{text}'; give seconds, such as 2") from None


def _done(seen: Sequence[RunProgress]) -> int:
    return sum(len(s.rows) + (s.state == "done") for s in seen)


def is_complete(seen: Sequence[RunProgress], folder: Path) -> bool:
    """Return True if all runs of a folder are done."""
    return sum(s.state == "done" for s in seen) >= count_runs(folder)


def count_runs(folder: Path) -> int:
    """Return the number of runs a folder will have when it is complete."""
    if is_sweep(folder):
        swept = load_sweep(folder)
        return len(grid(swept.over)) * len(swept.methods) * len(swept.seeds)
    if is_tuning(folder):
        every = [load_table(path, follow=False) for path in folder.glob(f"*/{CONFIG}")]
        return sum(len(table["methods"]) * len(table["seeds"]) for table in every)
    if not is_comparison(folder):
        return 1
    listed = read_marker(folder)
    return len(listed["labels"]) * len(listed["seeds"])


def read_runs(folder: Path) -> list[RunProgress]:
    """Read the progress of every run in a folder. A seed whose ticket is held is under way, even
    where locks do not reach."""
    return [
        replace(s, state="under way") if s.state == "stopped" and is_held(get_ticket(s)) else s
        for s in list_progress(folder)
    ]


def get_ticket(s: RunProgress) -> TicketName:
    """Return the name of the tickets of a run's seed."""
    return TicketName(s.place.parent, str(s.seed))


def is_at_work(seen: Sequence[RunProgress], folder: Path) -> bool:
    """Return True if a process is at work in a folder, perhaps between two runs."""
    if any(s.state == "under way" for s in seen) or durable.in_use(folder):
        return True
    return any(map(is_held, {get_ticket(s) for s in seen}))


def find_timeout(seen: Sequence[RunProgress], folder: Path) -> float:
    """Return the seconds without a new round after which a folder's runs have stopped; infinity
    while a process is at work in the folder."""
    if is_at_work(seen, folder):
        return float("inf")
    return WAITING if {s.state for s in seen} == {"waiting"} else BETWEEN


def describe_end(seen: Sequence[RunProgress], folder: Path) -> str:
    """Return the last line of the command: the runs are done, or where they stopped."""
    if is_complete(seen, folder):
        again = command_line("muster", "report", folder)
        if is_tuning(folder):
            again = get_resume_command(folder)  # prints it again
        return f"done: {folder}; see it with: {again}"
    last = next((s for s in seen if s.state != "done"), seen[-1])
    return (
        f"not under way: it stopped after round {len(last.rows)} of {last.label}, "
        f"seed {last.seed}; continue with: {get_resume_command(folder)}"
    )


def build_table(seen: Sequence[RunProgress], folder: Path) -> RenderableType:
    """Return a table with one row per run: its round, loss, score and time left."""
    last = [s.rows[-1] if s.rows else {} for s in seen]
    score = _score(seen)
    losses = [[row["loss"] for row in s.rows if row.get("loss") is not None] for s in seen]
    columns = [
        Column("round", [f"{len(s.rows)}/{s.rounds or '?'}" for s in seen]),
        Column("loss", [_number(_latest(s, "loss")) for s in seen]),
        Column("", [draw_spark(mine) for mine in losses], left=True),
        Column(_head(score), [_number(_latest(s, score)) for s in seen]),
        *(
            Column(name, [str(row.get(name, "-")) for row in last])
            for name in ("admitted", "silent", "failed")
        ),
        *_privacy_columns(last),
        Column("state", [describe_state(s) for s in seen], left=True),
    ]
    labels = [Column("run", [f"{s.label}, seed {s.seed}" for s in seen])]
    done = sum(s.state == "done" for s in seen)
    title = f"{folder}: {done} of {plural(count_runs(folder), 'run')} done"
    return TerminalTable(title, labels, columns)


def _privacy_columns(last: Sequence[dict[str, Any]]) -> list[Column]:
    """Return what each role has spent so far, where a run is private."""
    names = [name for row in last for name in row if name.startswith("epsilon_")]
    return [
        Column(name.replace("_", ", "), [_number(row.get(name)) for row in last])
        for name in dict.fromkeys(names)
    ]


def describe_state(s: RunProgress) -> str:
    """Return the state of a run, or its time left."""
    if s.state == "under way" and s.rows:
        return f"{format_duration(s.left)} left"
    return s.state


def _score(seen: Sequence[RunProgress]) -> str:
    """Return the measure of the task's first score on held-out rows."""
    names = [name for s in seen for row in s.rows[-1:] for name in row if name.startswith("test_")]
    return next((name for name in names if name != "test_loss"), "test_accuracy")


def _head(measure: str) -> str:
    return MEASURES[measure].head if measure in MEASURES else measure.replace("_", " ")


def _latest(s: RunProgress, name: str) -> float | None:
    return next((row[name] for row in reversed(s.rows) if row.get(name) is not None), None)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def draw_spark(values: Sequence[float]) -> str:
    """Return a small curve of values as text.

    >>> draw_spark([1.0, 0.5, 0.0])
    '█▅▁'
    """
    n = len(values)
    some = [values[i * n // min(n, WIDTH)] for i in range(min(n, WIDTH))]
    if not some:
        return ""
    low, span = min(some), max(some) - min(some) or 1.0
    return "".join(SPARKS[round((v - low) / span * (len(SPARKS) - 1))] for v in some)


def write_page(folder: Path, seen: Sequence[RunProgress], every: float) -> Path | None:
    """Write the rounds so far as a page that reloads itself; None before the first round."""
    runs: dict[str, dict[int, Run]] = {}
    for s in seen:
        if s.rows:
            runs.setdefault(s.label, {})[s.seed] = s.run()
    if not runs:
        return None
    # The seeds that every method has begun; before there is one, the first method alone.
    shared = set.intersection(*(set(mine) for mine in runs.values()))
    shown = {label: [mine[s] for s in sorted(shared or set(mine))] for label, mine in runs.items()}
    if not shared:
        label = next(iter(shown))
        shown = {label: shown[label]}
    place = folder / LIVE
    content = Content(shown, complete=is_complete(seen, folder))
    durable.write(place, render_page(content, refresh=max(1, round(every)) if every else 0))
    return place
