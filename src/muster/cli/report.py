"""`muster report` and `muster watch`: results as a page, and a run that is under way."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live

from ..base import durable
from ..base.checks import check_above
from ..base.errors import MusterError, plural
from ..report.html.content import Content
from ..report.html.page import render_page
from ..report.table_layout import Column, TerminalTable
from ..results.measures import MEASURES
from ..results.run import Run
from ..run.progress import RunProgress, list_progress
from ..study.comparison import Comparison, is_comparison, read
from ..study.grid import grid
from ..study.load import goes_on, load, together
from ..study.sweep_result import is_sweep, load_sweep
from .console import say
from .progress_bar import duration

REPORT, LIVE = "report.html", "live.html"
SPARKS = "▁▂▃▄▅▆▇█"
WIDTH = 12  # letters of a small curve
EVERY = 2.0  # seconds between two looks
BETWEEN, WAITING = 5.0, 600.0  # seconds between two runs at most, and before the first round


def report(words: argparse.Namespace, console: Console) -> int:
    """`muster report RUN_OR_FOLDER ... [--out FILE.html] [--title TEXT]`."""
    if not words.folders:
        raise MusterError("report: of which results? give a folder, such as runs/demo")
    folders = [Path(folder) for folder in words.folders]
    out = words.out or (folders[0] / REPORT if len(folders) == 1 else REPORT)
    if Path(out).suffix.lower() not in (".html", ".htm"):
        raise MusterError(f"--out: '{out}'; give the name of an .html file")
    found = load(folders[0]) if len(folders) == 1 else together(folders)
    if isinstance(found, Comparison) and not found.seeds:
        again = f"muster compare --resume {folders[0]}"
        raise MusterError(f"{folders[0]}: no seed is complete yet; go on with: {again}")
    say(console, f"report:  {found.report(out, words.title or '')}")
    return 0


def watch(words: argparse.Namespace, console: Console) -> int:
    """`muster watch FOLDER [--every SECONDS] [--page] [--once]`: follow what is under way until it
    is done, or has stopped."""
    if words.folder is None:
        raise MusterError("watch: which run? give its folder, such as runs/demo")
    folder, every = Path(words.folder), _seconds(words.every)
    check_above("--every", every)
    seen = list_progress(folder)
    if words.page and is_sweep(folder):
        raise MusterError(f"--page: {folder} is a sweep; give one of its cells, or leave it out")
    if words.page:
        show_page(folder, seen, every)
        say(console, f"page:    {folder / LIVE} (it loads itself again)")
    if words.once or not console.is_terminal:
        console.print(table(seen, folder))
    if words.once:
        # Where nobody can say whether a folder is in use, nobody can say that it stopped.
        stopped = durable.fcntl is not None and any(s.state == "stopped" for s in seen)
        if complete(seen, folder) or stopped:
            say(console, ended(seen, folder))
        return 0
    moved = time.monotonic()
    with Live(console=console, auto_refresh=False) as live:
        while not complete(seen, folder) and time.monotonic() - moved < patience(seen):
            if console.is_terminal:
                live.update(table(seen, folder), refresh=True)
            time.sleep(every)
            before, seen = seen, list_progress(folder)
            if _done(before) != _done(seen):
                moved = time.monotonic()
                if words.page:
                    show_page(folder, seen, every)
        if console.is_terminal:
            live.update(table(seen, folder), refresh=True)
    if words.page:
        show_page(folder, seen, 0)
    if not console.is_terminal:
        console.print(table(seen, folder))
    say(console, ended(seen, folder))
    return 0


def _seconds(text: str | None) -> float:
    try:
        return EVERY if text is None else float(text)
    except ValueError:
        raise MusterError(f"--every: '{text}'; give seconds, such as 2") from None


def _done(seen: Sequence[RunProgress]) -> int:
    return sum(len(s.rows) + (s.state == "done") for s in seen)


def complete(seen: Sequence[RunProgress], folder: Path) -> bool:
    """Whether everything that is to run has run."""
    return sum(s.state == "done" for s in seen) >= planned(folder)


def planned(folder: Path) -> int:
    """How many runs a folder is to have."""
    if is_sweep(folder):
        swept = load_sweep(folder)
        return len(grid(swept.over)) * len(swept.methods) * len(swept.seeds)
    if not is_comparison(folder):
        return 1
    listed = read(folder)
    return len(listed["labels"]) * len(listed["seeds"])


def patience(seen: Sequence[RunProgress]) -> float:
    """How many seconds without a new round it takes to say that nothing will come any more: as
    many as there are while somebody holds the folder."""
    states = {s.state for s in seen}
    if "under way" in states:
        return float("inf")
    return WAITING if states == {"waiting"} else BETWEEN


def ended(seen: Sequence[RunProgress], folder: Path) -> str:
    """What there is to say once nothing moves any more."""
    if complete(seen, folder):
        return f"done: {folder}; look at it with: muster report {folder}"
    far = next((s for s in seen if s.state != "done"), seen[-1])
    return (
        f"not under way: it stopped after round {len(far.rows)} of {far.label}, seed {far.seed}; "
        f"go on with: {goes_on(folder)}"
    )


def table(seen: Sequence[RunProgress], folder: Path) -> RenderableType:
    """One row per run: how far it is, how it does, how long it has to go."""
    last = [s.rows[-1] if s.rows else {} for s in seen]
    score = _score(seen)
    losses = [[row["loss"] for row in s.rows if row.get("loss") is not None] for s in seen]
    columns = [
        Column("round", [f"{len(s.rows)}/{s.rounds or '?'}" for s in seen]),
        Column("loss", [_number(_latest(s, "loss")) for s in seen]),
        Column("", [spark(mine) for mine in losses], left=True),
        Column(_head(score), [_number(_latest(s, score)) for s in seen]),
        *(
            Column(name, [str(row.get(name, "-")) for row in last])
            for name in ("admitted", "silent", "failed")
        ),
        Column("state", [state_of(s) for s in seen], left=True),
    ]
    labels = [Column("run", [f"{s.label}, seed {s.seed}" for s in seen])]
    done = sum(s.state == "done" for s in seen)
    title = f"{folder}: {done} of {plural(planned(folder), 'run')} done"
    return TerminalTable(title, labels, columns)


def state_of(s: RunProgress) -> str:
    """What a run does, and for how long it still will."""
    if s.state == "under way" and s.rows:
        return f"{duration(s.left)} left"
    return s.state


def _score(seen: Sequence[RunProgress]) -> str:
    """The measure of the task's first score on held-out rows."""
    told = [name for s in seen for row in s.rows[-1:] for name in row if name.startswith("test_")]
    return next((name for name in told if name != "test_loss"), "test_accuracy")


def _head(measure: str) -> str:
    return MEASURES[measure].head if measure in MEASURES else measure.replace("_", " ")


def _latest(s: RunProgress, name: str) -> float | None:
    return next((row[name] for row in reversed(s.rows) if row.get(name) is not None), None)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def spark(values: Sequence[float]) -> str:
    """A small curve of the later values.

    >>> spark([1.0, 0.5, 0.0])
    '█▅▁'
    """
    n = len(values)
    some = [values[i * n // min(n, WIDTH)] for i in range(min(n, WIDTH))]
    if not some:
        return ""
    low, span = min(some), max(some) - min(some) or 1.0
    return "".join(SPARKS[round((v - low) / span * (len(SPARKS) - 1))] for v in some)


def show_page(folder: Path, seen: Sequence[RunProgress], every: float) -> Path | None:
    """Write what there is so far as a page that loads itself again; None before the first round."""
    runs: dict[str, dict[int, Run]] = {}
    for s in seen:
        if s.rows:
            runs.setdefault(s.label, {})[s.seed] = s.run()
    if not runs:
        return None
    # Seeds that every method has begun; the methods that have begun before there is one.
    shared = set.intersection(*(set(mine) for mine in runs.values()))
    shown = {label: [mine[s] for s in sorted(shared or set(mine))] for label, mine in runs.items()}
    if not shared:
        label = next(iter(shown))
        shown = {label: shown[label]}
    place = folder / LIVE
    content = Content(shown, complete=complete(seen, folder))
    durable.write(place, render_page(content, refresh=max(1, round(every)) if every else 0))
    return place
