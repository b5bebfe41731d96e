"""`muster federate`: a real federation, on this machine or as an app for `flwr run`."""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ..base.durable import numbered_paths
from ..base.errors import MusterError, MusterWarning
from ..base.lazy import lazy_module
from ..base.schema import parameters
from ..config.dotted_keys import override
from ..config.experiment import Experiment, load
from ..federation import Federation
from ..report.tables import run_table
from ..results import store
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
        ("--local", "N", "N clients on this machine, all set up"),
        ("--app", "DIR", "write the app that `flwr run` takes"),
    )


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
        experiment = load_resume_folder(resumed, "federation", arguments.trust_code)
        folder = resumed
    if not store.is_run(folder):
        try:
            loopback.federate_local(experiment, int(local), folder, partial(print_line, console))
        except KeyboardInterrupt:
            again = f"muster federate --local {local} --resume {folder}"
            print_line(console, f"interrupted; continue with: {again}")
            raise
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
    print_line(
        console,
        f"app hash: {app_hash}\n"
        "clients agree to it with: muster node --app-hash HASH ...\n"
        f"app: {app}; run it with: flwr run {app} SUPERLINK --stream\n"
        f"results will be in {folder.resolve()} on this machine",
    )
    return 0


def read_experiment(arguments: argparse.Namespace, clients: int | None) -> tuple[Experiment, Path]:
    """Return the checked configuration and a new folder for its results. With `clients`, data that
    can be split is split over that many."""
    if arguments.config is None:
        raise MusterError("federate: give a configuration, such as examples/federate.toml")
    refuse_several_methods(arguments, "a federation runs one")
    table = read_configuration(arguments, {"checkpoint_every": 1})
    table.setdefault("network", {})  # a real federation, even if the file has no [network]
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
    terms.check_federated(experiment)
    places = numbered_paths(Path(experiment.settings.out) / experiment.settings.name)
    return experiment, next(place for place in places if not place.exists())
