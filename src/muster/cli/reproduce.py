"""`muster reproduce`: run the papers' experiments and judge the papers' claims."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..base import durable
from ..base.errors import INTERRUPTED, MusterError
from ..papers.assist_study import assist_page, when_page
from ..papers.privacy_study import privacy_page
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
from ..study.units import OnCell, Placement, SharesUnderWay
from .arguments import CommandParser
from .console import print_line
from .options import add_flags, parse_whole
from .placement import add_placement, describe_shares, open_placement
from .progress_bar import Cells, format_duration

DESCRIPTION = """\
Run experiments of the papers again, print a verdict on each claim, and draw the figures.

Finished runs are saved, and not repeated: an interrupted experiment continues where it stopped.
"""
BROKEN = 1  # the exit code where a check failed
LEFT_OUT = 2  # the exit code where an experiment's data is missing
QUICK = "a quick run: few rounds and seeds, for the checks; it gives no verdict on a claim"


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
        ("--out", "FOLDER", "folder of runs and results (runs/reproduce)"),
    )
    add_placement(parser)


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if arguments.list:
        print_list(console)
        return 0
    if arguments.pages:
        return write_pages(console)
    if arguments.all == bool(arguments.ids):
        raise MusterError("reproduce: which experiment? give an id, --all, or --list to see them")
    chosen = (
        list(list_experiments().values())
        if arguments.all
        else [find_experiment(id) for id in arguments.ids]
    )
    size: Size = "quick" if arguments.quick else "small" if arguments.small else "full"
    seeds = parse_whole(arguments.seeds, "--seeds")
    if arguments.keep and (arguments.quick or seeds is not None):
        raise MusterError(
            "--keep: only results of all rounds and seeds; leave --quick, --seeds out"
        )
    if arguments.keep:
        require_checkout("--keep")
    out = Path(arguments.out or "runs/reproduce")
    if arguments.panel and len(chosen) != 1:
        raise MusterError("--panel: of one experiment; give one id")
    every = chosen if arguments.panel else order_experiments(chosen)
    sound: list[bool] = []
    missing: list[str] = []
    keep, some = arguments.keep, arguments.panel
    with open_placement(arguments) as where:
        for experiment in every:
            try:
                sound.append(run_one(experiment, size, seeds, where, out, keep, some, console))
            except run_panels.DataMissing as error:
                if len(every) == 1:
                    raise
                print_line(console, f"  left out: {error}")
                missing.append(experiment.id)
            except SharesUnderWay as left:
                again = "the same command without --share"
                print_line(console, f"  {describe_shares(where.share, left, again)}")
            except KeyboardInterrupt:
                print_line(console, "interrupted; the same command continues from here")
                return INTERRUPTED
    if missing:
        print_line(console, f"left out, as their data is not here: {', '.join(missing)}")
    return BROKEN if not all(sound) else LEFT_OUT if missing else 0


def order_experiments(chosen: Sequence[PaperExperiment]) -> list[PaperExperiment]:
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
    where: Placement,
    out: Path,
    keep: bool,
    only: Sequence[str],
    console: Console,
) -> bool:
    """Run an experiment, or some of its panels, print its verdicts and draw its figures. Return
    True if its checks hold."""
    print_line(console, f"{experiment.id}: {experiment.title} ({experiment.where})")
    # Each size and number of seeds has its own folder: their runs cannot share one.
    name = "-".join([size, *([] if seeds is None else [f"{seeds}seeds"])])
    folder = out / name
    found = run_panels.run(
        experiment,
        folder / experiment.id,
        size,
        seeds,
        where.jobs,
        progress(console),
        only,
        where.executor,
        where.share,
    )
    store(found, folder, experiment)
    whole = panel_results.load_results(experiment, folder)
    assert whole is not None  # just saved
    for name in whole.outdated_parts(experiment):
        print_line(console, f"  note: {name}: {pages.EARLIER}; run it again for a current verdict")
    quick = size == "quick"
    if quick:
        print_line(console, f"  {QUICK}")
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
        print_line(console, f"  figure: {path}")
    wrong = pages.find_faults(experiment, whole)
    for fault in wrong:
        console.print(Text(f"  failed: {fault}", style="bold red"), soft_wrap=True)
    if keep and not wrong:
        store(found, require_checkout("--keep") / RESULTS, experiment)
    print_line(console, f"  results: {folder / experiment.id}.parquet")
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
        print_line(console, f"  {what}")
        with Cells(units, console) as cells:
            yield cells.count

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
    print_line(console, "--quick takes about a minute each")


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
    return (
        f"{format_duration(results.seconds)} of a core ({'small' if any(sizes) else 'full size'})"
    )


def fill_pages(docs: Path, folder: Path) -> list[tuple[str, str]]:
    """Return the pages whose tables come from results, by their names relative to docs/."""
    assist, border, privacy = [
        None if found is None else found.frame
        for found in (
            panel_results.load(folder, id) for id in ("assist", "border-align", "privacy")
        )
    ]
    makers: dict[str, Callable[[str], str]] = {
        "assist.md": lambda page: assist_page(page, assist),
        "when.md": lambda page: when_page(page, assist, border),
        "../README.md": lambda page: when_page(page, assist, border),
        "privacy.md": lambda page: privacy_page(page, privacy),
    }
    return [(name, make((docs / name).read_text())) for name, make in makers.items()]


def write_pages(console: Console) -> int:
    """Write docs/claims.md and docs/gallery.md, and the tables of other pages, from the results of
    the checkout."""
    checkout = require_checkout("--pages")
    folder, docs = checkout / RESULTS, checkout / "docs"
    if not docs.is_dir():
        raise MusterError(f"--pages: no folder {docs}; run it in a checkout of muster")
    every = list(list_experiments().values())
    shutil.rmtree(docs / "gallery", ignore_errors=True)
    for name, text in (
        ("claims.md", pages.claims_page(every, folder)),
        ("gallery.md", pages.gallery_page(every, folder, docs)),
        *fill_pages(docs, folder),
    ):
        durable.write(docs / name, text)
        print_line(console, f"{docs / name}")
    return 0
