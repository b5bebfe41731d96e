"""`muster reproduce`: the papers' experiments, and what they say about the papers' claims."""

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
from .console import say
from .progress_bar import Cells, duration
from .run import whole_number

BROKEN = 1  # the exit code where a check failed
LEFT_OUT = 2  # where an experiment's data is not here
QUICK = "a quick run: few rounds and seeds, for the checks; it gives no verdict on a claim"
KEPT = "results"  # in the folder of the experiments' files


def reproduce(words: argparse.Namespace, console: Console) -> int:
    """`muster reproduce ID...`, `--all`, `--list` or `--pages`."""
    if words.list:
        listing(console)
        return 0
    if words.pages:
        return make_pages(console)
    if words.all == bool(words.ids):
        raise MusterError("reproduce: which experiment? give an id, --all, or --list to see them")
    chosen = list(plans().values()) if words.all else [find(id) for id in words.ids]
    size: Size = "quick" if words.quick else "small" if words.small else "full"
    seeds = whole_number(words.seeds, "--seeds")
    if words.keep and (words.quick or seeds is not None):
        raise MusterError(
            "--keep: only results of all rounds and seeds; leave --quick, --seeds out"
        )
    jobs = whole_number(words.jobs, "--jobs")
    out = Path(words.out or "runs/reproduce")
    if words.panel and len(chosen) != 1:
        raise MusterError("--panel: of one experiment; give one id")
    every = chosen if words.panel else in_order(chosen)
    sound: list[bool] = []
    absent: list[str] = []
    for plan in every:
        try:
            sound.append(one(plan, size, seeds, jobs, out, words.keep, words.panel, console))
        except run_panels.NotHere as error:
            if len(every) == 1:
                raise
            say(console, f"  left out: {error}")
            absent.append(plan.id)
        except KeyboardInterrupt:
            say(console, "interrupted; the same command goes on from here")
            return INTERRUPTED
    if absent:
        say(console, f"left out, as their data is not here: {', '.join(absent)}")
    return BROKEN if not all(sound) else LEFT_OUT if absent else 0


def in_order(chosen: Sequence[Plan]) -> list[Plan]:
    """Experiments with those whose results they use before them, each once."""
    every: dict[str, Plan] = {}
    for plan in chosen:
        for used in (find(id) for id in plan.uses):
            every.setdefault(used.id, used)
        every.setdefault(plan.id, plan)
    return list(every.values())


def one(
    plan: Plan, size: Size, seeds: int | None, jobs: int | None, out: Path, keep: bool,
    only: Sequence[str], console: Console,
) -> bool:  # fmt: skip
    """Run an experiment, or some of its panels, say what came of its claims, draw its figures.
    Whether its checks hold."""
    say(console, f"{plan.id}: {plan.title} ({plan.where})")
    # Sizes and seeds have folders of their own: their runs cannot stand next to each other.
    name = "-".join([size, *([] if seeds is None else [f"{seeds}seeds"])])
    folder = out / name
    found = run_panels.run(plan, folder / plan.id, size, seeds, jobs, progress(console), only)
    store(found, folder, plan)
    whole = panel_results.together(plan, folder)
    assert whole is not None  # just saved
    for name in whole.outdated(plan):
        say(console, f"  note: {name}: {pages.EARLIER}; run it again to judge it as it is now")
    quick = size == "quick"
    if quick:
        say(console, f"  {QUICK}")
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
        say(console, f"  figure: {path}")
    wrong = pages.faults(plan, whole)
    for fault in wrong:
        console.print(Text(f"  failed: {fault}", style="bold red"), soft_wrap=True)
    if keep and not wrong:
        store(found, home() / KEPT, plan)
    say(console, f"  results: {folder / plan.id}.parquet")
    return not wrong


def store(found: panel_results.Results, folder: Path, plan: Plan) -> None:
    """Keep results; panels that were not run now stay as they were."""
    panel_results.save(
        panel_results.renewed(panel_results.load(folder, plan.id), found, plan), folder, plan.id
    )


def progress(console: Console) -> run_panels.OnWork:
    """Say what is at work, how many of its cells are done, and the time left."""

    @contextmanager
    def on_work(what: str, units: int) -> Iterator[OnCell]:
        say(console, f"  {what}")
        with Cells(units, console) as cells:
            yield cells.seen

    return on_work


def listing(console: Console) -> None:
    """Every experiment: what it shows, how long it took, what data it needs and whether it is
    here."""
    table = Table(box=SIMPLE_HEAD, show_lines=True, pad_edge=False)
    for head in ("id", "what it shows", "work", "data"):
        table.add_column(head, overflow="fold")
    for plan in plans().values():
        took = time_of(plan, panel_results.load(home() / KEPT, plan.id))
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
    say(console, "--quick takes about a minute each")


def time_of(plan: Plan, kept: panel_results.Results | None) -> str:
    """How long an experiment takes, as far as that is known."""
    if plan.uses and not plan.own:
        return "none of its own"
    if kept is None:
        return "not run here"
    sizes = [plan.panel(n, made.size).less for n, made in kept.made.items() if n in plan.own]
    return f"{duration(kept.seconds)} of a core ({'small' if any(sizes) else 'full size'})"


def make_pages(console: Console) -> int:
    """docs/claims.md and docs/gallery.md from the results that are kept."""
    folder, docs = home() / KEPT, home().parent / "docs"
    if not docs.is_dir():
        raise MusterError("--pages: only in a checkout of muster, where docs/ is")
    every = list(plans().values())
    shutil.rmtree(docs / "gallery", ignore_errors=True)
    for name, text in (
        ("claims.md", pages.claims_page(every, folder)),
        ("gallery.md", pages.gallery_page(every, folder, docs)),
    ):
        durable.write(docs / name, text)
        say(console, f"{docs / name}")
    return 0
