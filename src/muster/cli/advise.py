"""`muster advise`: for each client, if it should join, help or stay out, and what that rests on."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console

from ..base import durable
from ..base.errors import MusterError
from ..base.schema import Table, to_table
from ..config.dotted_keys import override
from ..config.experiment import Experiment, load, load_table
from ..federation import Federation
from ..report.advice_content import Advice
from ..report.html import advice as advice_page
from ..study.advice_runs import PAIRS, WORK, advise, advise_from, choose_task
from ..study.comparison import is_comparison, load_comparison
from .arguments import CommandParser
from .console import print_line
from .options import add_flags, parse_whole
from .progress_bar import Seeds

DEFAULTS = {"rounds": 20, "seeds": 16, "local": to_table(WORK), "model": {"name": "linear"}}
REPORT, RESULT = "report.html", "advice.json"
DESCRIPTION = f"""\
For each client: alone, with each other one (up to {PAIRS} clients), with everyone, by assist and
by MaxFL, all with as many local steps, on rows held out, over seeds. The verdict of each is join
(with whom), help, stay out or cannot tell; docs/advise.md describes what it means.
"""


@dataclass(frozen=True)
class SeedData:
    """The data of a configuration as a function of the seed, which can be sent to workers."""

    table: Table

    def __call__(self, seed: int) -> Federation:
        return load(self.table, trusted=True).rows(seed)


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    parser.description = DESCRIPTION
    parser.usage = f"{parser.prog} DATA [--KEY VALUE ...]"
    parser.accepts_keys = True
    text = "a folder of files, a data set by name, a TOML file, or the folder of a comparison"
    parser.add_argument("data", nargs="?", metavar="DATA", help=text)
    parser.add_flag("--json", action="store_true", help="print the advice as JSON, nothing else")
    add_flags(
        parser,
        ("--for", "NAME,...", "clients that get a page without the others' numbers"),
        ("--jobs", "N", "seeds at once; default: as many as cores"),
    )


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if arguments.data is None:
        raise MusterError("advise: on which data? give a folder of files, or a data set's name")
    place = Path(arguments.data)
    if is_comparison(place):
        if arguments.keys:
            raise MusterError(f"advise: {place} holds runs that are done; it takes no other keys")
        found, folder = advise_from(load_comparison(place)), place
        first, last = f"advice-{REPORT}", ""
    else:
        found, folder = run_advice(arguments, console)
        first, last = REPORT, f"results: {folder}\n"
    sites = [name.strip() for name in (vars(arguments)["for"] or "").split(",") if name.strip()]
    pages = [advice_page.write_site_page(found, name, folder) for name in sites]
    durable.write(folder / RESULT, json.dumps(found.table, indent=1, allow_nan=False) + "\n")
    report = advice_page.write_page(found, folder / first)
    if arguments.json:
        shown = found.table
        if sites:
            shown = {**shown, "clients": {name: found[name].table for name in sites}}
        print(json.dumps(shown, indent=1, allow_nan=False))
        return 0
    console.print(found)
    print_line(console, f"{last}report:  {', '.join(str(path) for path in (report, *pages))}")
    return 0


def run_advice(arguments: argparse.Namespace, console: Console) -> tuple[Advice, Path]:
    """Run every way on every seed; return the advice, and the new folder for it."""
    table = read_table(arguments)
    experiment = load(table, trusted=True)
    s = experiment.settings
    first = experiment.rows(s.all_seeds[0])  # before anything is written
    task = s.task if "task" in table else choose_task(first)
    jobs = parse_whole(arguments.jobs, "--jobs") or s.compute.workers()
    for name in (vars(arguments)["for"] or "").split(","):
        check_client(first, name.strip())
    with Seeds(len(s.all_seeds), Console(stderr=True, quiet=arguments.json)) as progress:
        found = advise(
            SeedData(table),
            experiment.spec,
            s.rounds,
            experiment.local,
            s.all_seeds,
            task=task,
            compute=s.compute,
            jobs=jobs,
            on_seed=progress.count,
        )
    folder = durable.new_folder(Path(s.out) / s.name)
    durable.write(folder / "config.toml", tomli_w.dumps(resolve(experiment, task)))
    return found, folder


def read_table(arguments: argparse.Namespace) -> Table:
    """Return the configuration of a command line: a TOML file or data, overridden by flags."""
    name = arguments.data
    table: Table = {"name": f"advise-{Path(name).stem}", **DEFAULTS}
    table |= load_table(name) if name.endswith(".toml") else {"data": {"name": name}}
    for key in ("method", "methods", "requirement"):
        table.pop(key, None)  # which methods, and what each requires, is the advice's own question
    return override(table, sorted(arguments.keys.items(), key=lambda flag: flag[0].count(".")))


def resolve(experiment: Experiment, task: Any) -> Table:
    """Return the whole configuration, without the method, which the command chooses."""
    table = {**experiment.resolve(), "task": to_table(task)}
    del table["methods"]
    return table


def check_client(fed: Federation, name: str) -> None:
    """Refuse the name of a client that is not there, before anything runs."""
    known = [fed.population.get_name(k) for k in range(fed.n)]
    if name and name not in known:
        raise MusterError(f"--for: no client '{name}'; there are {', '.join(known[:10])}")
