"""`muster reproduce`: the papers' experiments, and verdicts on the papers' claims."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..base import durable
from ..base.errors import INTERRUPTED, MusterError
from ..papers.reproduce import pages, panel_results, run_panels
from ..papers.reproduce.plan import Plan, Size, find, home, plans
from ..study.units import OnCell
from .arguments import CommandParser
from .console import print_line
from .options import add_flags, parse_whole
from .progress_bar import Cells, format_duration

DESCRIPTION = """\
Run experiments of the papers again, print a verdict on each claim, and draw the figures.

Finished runs are saved, and not repeated: an interrupted experiment continues where it stopped.
"""
BROKEN = 1  # exit code if a check failed
LEFT_OUT = 2  # exit code if an experiment's data is not here
QUICK = "a quick run: few rounds and seeds, for the checks; it gives no verdict on a claim"
STORED = "results"  # subfolder of the experiments' files


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    parser.description = DESCRIPTION
    parser.add_argument("ids", nargs="*", metavar="ID", help="such as fig2; --list shows them")
    for flag, text in (
        ("--list", "list every experiment: what it shows, its time, the data it needs"),
        ("--all", "run every experiment, one after the other"),
        ("--quick", "few rounds and seeds: about a minute each"),
        ("--small", "smaller where the full size needs a bigger machine"),
        ("--keep", "put the small file of results into experiments/results"),
        ("--pages", "write docs/claims.md and docs/gallery.md from the results stored there"),
    ):
        parser.add_flag(flag, action="store_true", help=text)
    text = "run only this panel; may be repeated. The others keep their results"
    parser.add_flag("--panel", action="append", default=[], metavar="NAME", help=text)
    add_flags(
        parser,
        ("--seeds", "N", "number of seeds, in place of the file's"),
        ("--jobs", "N", "number of parallel processes (default: as many as cores)"),
        ("--out", "FOLDER", "folder of runs and results (runs/reproduce)"),
    )


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if arguments.list:
        list_experiments(console)
        return 0
    if arguments.pages:
        return write_pages(console)
    if arguments.all == bool(arguments.ids):
        raise MusterError("reproduce: which experiment? give an id, --all, or --list to see them")
    chosen = list(plans().values()) if arguments.all else [find(id) for id in arguments.ids]
    size: Size = "quick" if arguments.quick else "small" if arguments.small else "full"
    seeds = parse_whole(arguments.seeds, "--seeds")
    if arguments.keep and (arguments.quick or seeds is not None):
        raise MusterError(
            "--keep: only results of all rounds and seeds; leave --quick, --seeds out"
        )
    jobs = parse_whole(arguments.jobs, "--jobs")
    out = Path(arguments.out or "runs/reproduce")
    if arguments.panel and len(chosen) != 1:
        raise MusterError("--panel: of one experiment; give one id")
    every = chosen if arguments.panel else order_experiments(chosen)
    sound: list[bool] = []
    absent: list[str] = []
    for plan in every:
        try:
            sound.append(
                run_experiment(
                    plan, size, seeds, jobs, out, arguments.keep, arguments.panel, console
                )
            )
        except run_panels.NotHere as error:
            if len(every) == 1:
                raise
            print_line(console, f"  left out: {error}")
            absent.append(plan.id)
        except KeyboardInterrupt:
            print_line(console, "interrupted; the same command continues from here")
            return INTERRUPTED
    if absent:
        print_line(console, f"left out, as their data is not here: {', '.join(absent)}")
    return BROKEN if not all(sound) else LEFT_OUT if absent else 0


def order_experiments(chosen: Sequence[Plan]) -> list[Plan]:
    """Return experiments, each once, after those whose results they use."""
    every: dict[str, Plan] = {}
    for plan in chosen:
        for used in (find(id) for id in plan.uses):
            every.setdefault(used.id, used)
        every.setdefault(plan.id, plan)
    return list(every.values())


def run_experiment(
    plan: Plan,
    size: Size,
    seeds: int | None,
    jobs: int | None,
    out: Path,
    keep: bool,
    only: Sequence[str],
    console: Console,
) -> bool:
    """Run an experiment, or some of its panels, print verdicts on its claims, draw its figures;
    return True if its checks hold."""
    print_line(console, f"{plan.id}: {plan.title} ({plan.where})")
    # Each size and number of seeds has a separate folder: their runs cannot be mixed.
    name = "-".join([size, *([] if seeds is None else [f"{seeds}seeds"])])
    folder = out / name
    found = run_panels.run(plan, folder / plan.id, size, seeds, jobs, progress(console), only)
    save(found, folder, plan)
    whole = panel_results.together(plan, folder)
    assert whole is not None  # just saved
    for name in whole.outdated(plan):
        print_line(
            console, f"  note: {name}: {pages.EARLIER}; run it again to judge it as it is now"
        )
    quick = size == "quick"
    if quick:
        print_line(console, f"  {QUICK}")
    for line in pages.panels_ran(plan, whole):
        console.print(Text(f"  {line}"), soft_wrap=True)
    for verdict in pages.verdicts(plan, whole):
        word = "no verdict: a quick run" if quick else verdict.word
        console.print(Text(f"  {verdict.says}\n    {word}"), soft_wrap=True)
        if verdict.numbers:
            console.print(Text(f"      {verdict.numbers}"), soft_wrap=True)
        for finding in verdict.findings:
            line = pages.line_of(finding, verdict.findings, marked=not quick)
            console.print(Text(f"      {line}"), soft_wrap=True)
    drawn = pages.figures(plan, whole, folder / plan.id)
    for path in drawn:
        print_line(console, f"  figure: {path}")
    wrong = pages.faults(plan, whole)
    for fault in wrong:
        console.print(Text(f"  failed: {fault}", style="bold red"), soft_wrap=True)
    if keep and not wrong:
        save(found, home() / STORED, plan)
    print_line(console, f"  results: {folder / plan.id}.parquet")
    return not wrong


def save(found: panel_results.Results, folder: Path, plan: Plan) -> None:
    """Save results; panels that were not run now stay as they were."""
    panel_results.save(
        panel_results.renewed(panel_results.load(folder, plan.id), found, plan), folder, plan.id
    )


def progress(console: Console) -> run_panels.OnWork:
    """Return a function that prints an experiment's panels and counts their cells."""

    @contextmanager
    def on_work(what: str, units: int) -> Iterator[OnCell]:
        print_line(console, f"  {what}")
        with Cells(units, console) as cells:
            yield cells.count

    return on_work


def list_experiments(console: Console) -> None:
    """Print every experiment: what it shows, its time, and if its data is here."""
    table = Table(box=SIMPLE_HEAD, show_lines=True, pad_edge=False)
    for head in ("id", "what it shows", "work", "data"):
        table.add_column(head, overflow="fold")
    for plan in plans().values():
        took = format_time(plan, panel_results.load(home() / STORED, plan.id))
        data = {}
        for panel in plan.panels():
            data[panel.data] = run_panels.present(panel) or f"missing: {run_panels.absent(panel)}"
        needs = ", ".join(f"{name} ({state})" for name, state in data.items())
        uses = f"the runs of {', '.join(plan.uses)}" if plan.uses else ""
        own = "generated" if plan.studies else ""
        table.add_row(
            plan.id,
            Text(f"{plan.title}\n{plan.where}"),
            took,
            Text("; ".join(filter(None, [needs, uses, own]))),
        )
    console.print(table)
    print_line(console, "--quick takes about a minute each")


def format_time(plan: Plan, stored: panel_results.Results | None) -> str:
    """Return the time an experiment takes, if it is known."""
    if plan.uses and not plan.own:
        return "none"
    if stored is None:
        return "not run here"
    sizes = [plan.panel(n, made.size).less for n, made in stored.made.items() if n in plan.own]
    return f"{format_duration(stored.seconds)} of a core ({'small' if any(sizes) else 'full size'})"


def write_pages(console: Console) -> int:
    """Write docs/claims.md and docs/gallery.md from the stored results."""
    folder, docs = home() / STORED, home().parent / "docs"
    if not docs.is_dir():
        raise MusterError("--pages: only in a checkout of muster, where docs/ is")
    every = list(plans().values())
    shutil.rmtree(docs / "gallery", ignore_errors=True)
    for name, text in (
        ("claims.md", pages.claims_page(every, folder)),
        ("gallery.md", pages.gallery_page(every, folder, docs)),
    ):
        durable.write(docs / name, text)
        print_line(console, f"{docs / name}")
    return 0
