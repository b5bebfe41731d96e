"""`muster reproduce`: run the papers' experiments and judge the papers' claims."""

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
from ..papers.reproduce.paper_experiment import (
    RESULTS,
    PaperExperiment,
    Size,
    find_checkout,
    find_experiment,
    list_experiments,
    require_checkout,
)
from ..study.units import OnCell
from .console import say
from .progress_bar import Cells, duration
from .run import whole_number

BROKEN = 1  # the exit code where a check failed
LEFT_OUT = 2  # the exit code where an experiment's data is missing
QUICK = "a quick run: few rounds and seeds, for the checks; it gives no verdict on a claim"


def reproduce(words: argparse.Namespace, console: Console) -> int:
    """`muster reproduce ID...`, `--all`, `--list` or `--pages`."""
    if words.list:
        print_list(console)
        return 0
    if words.pages:
        return make_pages(console)
    if words.all == bool(words.ids):
        raise MusterError("reproduce: which experiment? give an id, --all, or --list to see them")
    chosen = (
        list(list_experiments().values())
        if words.all
        else [find_experiment(id) for id in words.ids]
    )
    size: Size = "quick" if words.quick else "small" if words.small else "full"
    seeds = whole_number(words.seeds, "--seeds")
    if words.keep and (words.quick or seeds is not None):
        raise MusterError(
            "--keep: only results of all rounds and seeds; leave --quick, --seeds out"
        )
    if words.keep:
        require_checkout("--keep")
    jobs = whole_number(words.jobs, "--jobs")
    out = Path(words.out or "runs/reproduce")
    if words.panel and len(chosen) != 1:
        raise MusterError("--panel: of one experiment; give one id")
    every = chosen if words.panel else add_used(chosen)
    sound: list[bool] = []
    missing: list[str] = []
    for experiment in every:
        try:
            sound.append(
                run_one(experiment, size, seeds, jobs, out, words.keep, words.panel, console)
            )
        except run_panels.DataMissing as error:
            if len(every) == 1:
                raise
            say(console, f"  left out: {error}")
            missing.append(experiment.id)
        except KeyboardInterrupt:
            say(console, "interrupted; the same command goes on from here")
            return INTERRUPTED
    if missing:
        say(console, f"left out, as their data is not here: {', '.join(missing)}")
    return BROKEN if not all(sound) else LEFT_OUT if missing else 0


def add_used(chosen: Sequence[PaperExperiment]) -> list[PaperExperiment]:
    """Return the experiments, each once, with those whose results they use before them."""
    every: dict[str, PaperExperiment] = {}
    for experiment in chosen:
        for used in (find_experiment(id) for id in experiment.uses):
            every.setdefault(used.id, used)
        every.setdefault(experiment.id, experiment)
    return list(every.values())


def run_one(
    experiment: PaperExperiment,
    size: Size,
    seeds: int | None,
    jobs: int | None,
    out: Path,
    keep: bool,
    only: Sequence[str],
    console: Console,
) -> bool:
    """Run an experiment, or some of its panels, print its verdicts and draw its figures. Return
    True if its checks hold."""
    say(console, f"{experiment.id}: {experiment.title} ({experiment.where})")
    # Each size and number of seeds has its own folder: their runs cannot share one.
    name = "-".join([size, *([] if seeds is None else [f"{seeds}seeds"])])
    folder = out / name
    found = run_panels.run(
        experiment, folder / experiment.id, size, seeds, jobs, progress(console), only
    )
    store(found, folder, experiment)
    whole = panel_results.load_with_used(experiment, folder)
    assert whole is not None  # just saved
    for name in whole.find_outdated(experiment):
        say(console, f"  note: {name}: {pages.EARLIER}; run it again to judge it as it is now")
    quick = size == "quick"
    if quick:
        say(console, f"  {QUICK}")
    for line in pages.describe_panels(experiment, whole):
        console.print(Text(f"  {line}"), soft_wrap=True)
    for verdict in pages.judge_claims(experiment, whole):
        word = "no verdict: a quick run" if quick else verdict.word
        console.print(Text(f"  {verdict.says}\n    {word}"), soft_wrap=True)
        if verdict.numbers:
            console.print(Text(f"      {verdict.numbers}"), soft_wrap=True)
        for finding in verdict.findings:
            line = pages.format_finding(finding, verdict.findings, marked=not quick)
            console.print(Text(f"      {line}"), soft_wrap=True)
    drawn = pages.draw_figures(experiment, whole, folder / experiment.id)
    for path in drawn:
        say(console, f"  figure: {path}")
    wrong = pages.find_faults(experiment, whole)
    for fault in wrong:
        console.print(Text(f"  failed: {fault}", style="bold red"), soft_wrap=True)
    if keep and not wrong:
        store(found, require_checkout("--keep") / RESULTS, experiment)
    say(console, f"  results: {folder / experiment.id}.parquet")
    return not wrong


def store(found: panel_results.Results, folder: Path, experiment: PaperExperiment) -> None:
    """Save results; panels that were not run now stay as they were."""
    panel_results.save(
        panel_results.merge_results(panel_results.load(folder, experiment.id), found, experiment),
        folder,
        experiment.id,
    )


def progress(console: Console) -> run_panels.OnWork:
    """Report the panel at work, how many of its cells are done, and the time left."""

    @contextmanager
    def on_work(what: str, units: int) -> Iterator[OnCell]:
        say(console, f"  {what}")
        with Cells(units, console) as cells:
            yield cells.seen

    return on_work


def print_list(console: Console) -> None:
    """Print every experiment: its title, how long it took, the data it needs, and whether that is
    here."""
    table = Table(box=SIMPLE_HEAD, show_lines=True, pad_edge=False)
    for head in ("id", "what it shows", "work", "data"):
        table.add_column(head, overflow="fold")
    checkout = find_checkout()
    for experiment in list_experiments().values():
        results = (
            None if checkout is None else panel_results.load(checkout / RESULTS, experiment.id)
        )
        took = describe_time(experiment, results)
        data = {}
        for panel in experiment.panels():
            data[panel.data] = (
                run_panels.data_state(panel) or f"missing: {run_panels.missing_command(panel)}"
            )
        needs = ", ".join(f"{name} ({state})" for name, state in data.items())
        uses = f"the runs of {', '.join(experiment.uses)}" if experiment.uses else ""
        own = "generated" if experiment.studies else ""
        table.add_row(
            experiment.id,
            Text(f"{experiment.title}\n{experiment.where}"),
            took,
            Text("; ".join(filter(None, [needs, uses, own]))),
        )
    console.print(table)
    say(console, "--quick takes about a minute each")


def describe_time(experiment: PaperExperiment, results: panel_results.Results | None) -> str:
    """Describe how long an experiment takes, as far as that is known."""
    if experiment.uses and not experiment.panel_tables:
        return "no runs"
    if results is None:
        return "not run here"
    sizes = [
        experiment.panel(n, made.size).less
        for n, made in results.provenance.items()
        if n in experiment.panel_tables
    ]
    return f"{duration(results.seconds)} of a core ({'small' if any(sizes) else 'full size'})"


def make_pages(console: Console) -> int:
    """Write docs/claims.md and docs/gallery.md from the results of the checkout."""
    checkout = require_checkout("--pages")
    folder, docs = checkout / RESULTS, checkout / "docs"
    if not docs.is_dir():
        raise MusterError(f"--pages: no folder {docs}; run it in a checkout of muster")
    every = list(list_experiments().values())
    shutil.rmtree(docs / "gallery", ignore_errors=True)
    for name, text in (
        ("claims.md", pages.claims_page(every, folder)),
        ("gallery.md", pages.gallery_page(every, folder, docs)),
    ):
        durable.write(docs / name, text)
        say(console, f"{docs / name}")
    return 0
