"""`muster federate`: a real federation, on this machine or as an app for `flwr run`."""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..base.durable import numbered_paths
from ..base.errors import MusterError, MusterWarning, command_line
from ..base.lazy import lazy_module
from ..base.rng import as_seeds
from ..base.schema import Table, as_table, parameters
from ..config.dotted_keys import override
from ..config.experiment import Experiment, load
from ..federation import Federation
from ..report.html.advice import REPORT
from ..report.tables import run_table
from ..results import store
from ..study.advice_plan import list_methods
from ..study.advice_runs import choose_task
from ..study.advice_store import is_advice, load_advice
from ..tasks.classification import Binary
from .advise import DEFAULTS as ADVICE
from .arguments import CommandParser
from .console import print_line
from .options import (
    add_configuration,
    add_flags,
    find_resume_folder,
    load_resume_folder,
    needs_flower,
    read_configuration,
    refuse_several_methods,
)
from .result_folder import report_idle

if TYPE_CHECKING:
    from ..flower import terms
    from ..flower.local import loopback
else:  # an extra, slow to load: mistakes in a command line are reported without it
    terms = lazy_module("muster.flower.terms")
    loopback = lazy_module("muster.flower.local.loopback")


def add_arguments(parser: CommandParser) -> None:
    """Add the flags of the command."""
    add_configuration(parser)
    add_flags(
        parser,
        ("--local", "N", "run N clients on this machine"),
        ("--app", "DIR", "write the app that `flwr run` takes"),
    )
    text = "advise the clients: should each join? (docs/advise.md)"
    parser.add_flag("--advise", action="store_true", help=text)


@needs_flower
def execute(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command."""
    local, app = arguments.local, arguments.app
    if (local is None) == (app is None):
        raise MusterError(
            "federate: give --local N for a federation on this machine, or --app DIR to write "
            "the app that `flwr run` takes"
        )
    if app is not None:
        return write_app(arguments, console)
    if not local.isdecimal() or int(local) < 1:
        raise MusterError(f"--local: {local}; give the number of clients, such as 4")
    resumed = find_resume_folder(arguments)
    if resumed is None:
        experiment, folder = read_experiment(arguments, int(local))
    else:
        kind = "comparison" if is_advice(resumed) else "federation"  # of the runs behind it
        experiment = load_resume_folder(resumed, kind, arguments.trust_code)
        folder = resumed
    done = is_advice if experiment.network.advice else store.is_run
    if not done(folder):
        try:
            loopback.federate_local(experiment, int(local), folder, partial(print_line, console))
        except KeyboardInterrupt:
            again = command_line("muster", "federate", "--local", local, "--resume", folder)
            print_line(console, f"interrupted; continue with: {again}")
            raise
    if experiment.network.advice:
        console.print(load_advice(folder))
        print_line(console, f"report:  {folder / REPORT}")
        return 0
    run = store.load(folder)
    console.print(run_table(run, experiment.settings.measures))
    print_line(console, f"report:  {run.report(folder / 'report.html')}")
    return report_idle([run], console)


def write_app(arguments: argparse.Namespace, console: Console) -> int:
    """Write the app of a federation and print its hash; without a configuration, print the hash of
    an app that is there."""
    app = Path(arguments.app)
    if arguments.resume is not None:
        raise MusterError("--resume: with --app, run the app again: it continues by itself")
    if arguments.config is None and not arguments.keys:
        print_line(console, f"app hash: {terms.app_hash(app)}")
        return 0
    experiment, folder = read_experiment(arguments, None)
    app_hash = terms.write_app(app, experiment, folder)
    again = command_line("flwr", "run", app, "SUPERLINK", "--stream")
    print_line(
        console,
        f"app hash: {app_hash}\n"
        "clients agree to it with: muster node --app-hash HASH ...\n"
        f"app: {app}; run it with: {again}\n"
        f"results will be in {folder.resolve()} on this machine",
    )
    return 0


def read_experiment(arguments: argparse.Namespace, clients: int | None) -> tuple[Experiment, Path]:
    """Return the checked configuration and a new folder for its results. With `clients`, data that
    can be split is split over that many."""
    if arguments.config is None:
        raise MusterError("federate: give a configuration, such as examples/federate.toml")
    refuse_several_methods(arguments, "a federation runs one")
    defaults = {"checkpoint_every": 1, **(ADVICE if arguments.advise else {})}
    table = read_configuration(arguments, defaults)
    table.setdefault("network", {})  # a real federation, even if the file has no [network]
    if arguments.advise:
        table = as_advice(table, arguments.method)
    experiment = load(table, trusted=True)
    data = experiment.parts.find(Federation, experiment.data["name"], "data.name")
    if clients is not None and "clients" in parameters(data):
        settings = table.get("data")
        if isinstance(settings, dict) and settings.get("clients", clients) != clients:
            warnings.warn(
                f"--local {clients}: in place of data.clients = {settings['clients']}",
                MusterWarning,
                stacklevel=2,
            )
        experiment = load(override(table, [("data.clients", str(clients))]), trusted=True)
    if arguments.advise and "task" not in table:
        experiment = choose_advised_task(experiment, clients is not None)
    terms.check_federated(experiment)
    places = numbered_paths(Path(experiment.settings.out) / experiment.settings.name)
    return experiment, next(place for place in places if not place.exists())


def as_advice(table: Table, methods: list[str] | None) -> Table:
    """Return a configuration with the methods of advice in place of those it names."""
    if methods:
        raise MusterError("--method: --advise chooses the methods to try; leave it out")
    table = {k: v for k, v in table.items() if k not in ("method", "requirement", "participation")}
    network = as_table("network", table["network"])
    seeds = as_seeds(table.pop("seeds", ADVICE["seeds"]))
    if seeds != tuple(range(len(seeds))):
        raise MusterError(f"seeds: {list(seeds)}; over a network give their number, such as 16")
    more = {"methods": list_methods(), "trust": False, "network": {"advice": len(seeds), **network}}
    return {**table, **more}


def choose_advised_task(experiment: Experiment, here: bool) -> Experiment:
    """Return the experiment with the task that its classes suggest; the rows may be `here`."""
    classes = experiment.network.class_count
    if here and not classes:
        task = choose_task(experiment.rows(experiment.settings.seed))
    else:
        task = Binary() if classes == 2 else experiment.settings.task
    return replace(experiment, settings=replace(experiment.settings, task=task))
