"""`muster advise`: for each client, if it should join, help or stay out, and what that rests on."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w
from rich.console import Console

from ..base import durable
from ..base.checks import check_whole
from ..base.errors import MusterError, MusterWarning, command_line, plural
from ..base.schema import Table, to_table
from ..config.dotted_keys import override, parse_value
from ..config.experiment import Experiment, load, load_table
from ..data.files.column_check import DataProblem
from ..data.files.data_check import check
from ..data.files.manifest import find_manifest
from ..federation import Federation
from ..report.advice_content import Advice
from ..report.html.advice import REPORT, write_page, write_site_page
from ..study.advice_plan import PAIRS, describe_cost
from ..study.advice_runs import WORK, advise, advise_from, choose_task
from ..study.advice_store import COMPARED, is_advice, load_advice, save_advice, write_table
from ..study.comparison import is_comparison, load_comparison
from ..study.way_records import LEAST_SEEDS
from .arguments import CommandParser
from .console import print_line
from .options import add_flags, list_keys, parse_whole, split_names
from .progress_bar import Seeds

DEFAULTS = {"rounds": 20, "seeds": 16, "local": to_table(WORK), "model": {"name": "linear"}}
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
    parser.list_keys = list_keys
    text = "a folder of files, a data set by name, a TOML file, or a folder of results"
    parser.add_argument("data", nargs="?", metavar="DATA", help=text)
    parser.add_flag("--json", action="store_true", help="print the advice as JSON, nothing else")
    add_flags(
        parser,
        ("--for", "NAME,...", "clients that get a page without the others' numbers"),
        ("--pairs", "N", f"most clients of which every pair is tried (default {PAIRS})"),
        ("--jobs", "N", "seeds at once; default: as many as cores"),
    )


def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    if arguments.data is None:
        raise MusterError("advise: on which data? give a folder of files, or a data set's name")
    place, first = Path(arguments.data), REPORT
    stored = is_advice(place) or is_comparison(place)
    if stored and (arguments.keys or arguments.pairs is not None):
        raise MusterError(f"advise: {place} holds runs that are done; it takes no other keys")
    if is_advice(place):
        found, folder = load_advice(place), place
    elif stored:
        found, folder = advise_from(load_comparison(place)), place
        write_table(found, folder, **{COMPARED: True})
        first = f"advice-{REPORT}"
    else:
        found, folder = run_advice(arguments, console)
    sites = split_names(arguments)
    pages = [write_site_page(found, name, folder) for name in sites]
    report = write_page(found, folder / first)
    if arguments.json:
        shown = found.table
        if sites:
            shown = {**shown, "clients": {name: found[name].table for name in sites}}
        print(json.dumps(shown, indent=1, allow_nan=False))
        return 0
    console.print(found)
    last = "" if stored else f"results: {folder}\n"
    print_line(console, f"{last}report:  {', '.join(str(path) for path in (report, *pages))}")
    return 0


def run_advice(arguments: argparse.Namespace, console: Console) -> tuple[Advice, Path]:
    """Run every way on every seed; return the advice, and the new folder for it."""
    table = read_table(arguments)
    experiment = load(table, trusted=True)
    s = experiment.settings
    with warnings.catch_warnings():  # before anything is written; advise() warns
        warnings.simplefilter("ignore", MusterWarning)
        first = experiment.rows(s.all_seeds[0])
    task = s.task if "task" in table else choose_task(first)
    jobs = parse_whole(arguments.jobs, "--jobs") or s.compute.workers()
    for name in split_names(arguments):
        check_client(first, name)
    pairs = PAIRS if arguments.pairs is None else parse_pairs(arguments.pairs)
    check_whole("seeds", len(s.all_seeds), LEAST_SEEDS)
    problems = find_problems(Path(str(table["data"]["name"])).expanduser())
    remarks = [f"{plural(len(problems), 'problem')} in the data may change this"] * bool(problems)
    for remark in remarks:
        print(f"muster: {remark}: {problems[0]} (all: muster data check)", file=sys.stderr)
    print(describe_cost(first.n, len(s.all_seeds), s.rounds, pairs), file=sys.stderr)
    with Seeds(len(s.all_seeds), Console(stderr=True, quiet=arguments.json)) as progress:
        found = advise(
            SeedData(table),
            experiment.spec,
            s.rounds,
            experiment.local,
            s.all_seeds,
            task=task,
            pairs=pairs,
            compute=s.compute,
            jobs=jobs,
            on_seed=progress.count,
        )
    found = replace(found, remarks=(*found.remarks, *remarks))
    folder = durable.new_folder(Path(s.out) / s.name)
    durable.write(folder / "config.toml", tomli_w.dumps(resolve(experiment, task)))
    save_advice(found, folder)
    return found, folder


def find_problems(place: Path) -> Sequence[DataProblem]:
    """Return the problems that a check of the user's files finds next to their manifest."""
    return check(place).problems if place.exists() and find_manifest(place) else ()


def parse_pairs(text: str) -> int:
    """Return the value of --pairs."""
    value = parse_value(text)
    check_whole("--pairs", value, 0)
    return int(value)


def read_table(arguments: argparse.Namespace) -> Table:
    """Return the configuration of a command line: a TOML file or data, overridden by flags."""
    name = arguments.data
    table: Table = {"name": f"advise-{Path(name).stem}", **DEFAULTS}
    table |= load_table(name) if name.endswith(".toml") else {"data": {"name": name}}
    if table.get("clients") and "data" not in table:
        again = command_line("muster", "federate", name, "--advise", "--app", "DIR")
        raise MusterError(
            f"advise: {name} lists clients of a real federation, whose rows are at their nodes; "
            f"use {again}"
        )
    if "privacy" in table or any(key.split(".")[0] == "privacy" for key in arguments.keys):
        raise MusterError("privacy: advice comes from runs without noise; leave it out")
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
    if name not in known:
        raise MusterError(f"--for: no client '{name}'; there are {', '.join(known[:10])}")
