"""`muster federate`, `keys`, `gate` and `node`: a real federation from the command line."""

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
from ..base.registry import import_object
from ..base.schema import parameters
from ..config.experiment import Experiment, load
from ..config.keys import override
from ..federation import Federation
from ..report.tables import run_table
from ..results import store
from .console import say
from .run import configured, goes_on_with, one_method, resumed, said_if_idle

if TYPE_CHECKING:
    from ..flower import app_folder
    from ..flower.client import node_data, supervisor
    from ..flower.local import loopback
    from ..flower.transport import certificates
    from ..flower.transport import proxy as door
else:
    # Flower takes seconds to load, and is an extra; what is wrong with a line is said without it.
    app_folder, certificates, door, supervisor, loopback, node_data = (
        lazy_module(f"muster.flower.{name}")
        for name in (
            "app_folder",
            "transport.certificates",
            "transport.proxy",
            "client.supervisor",
            "local.loopback",
            "client.node_data",
        )
    )

GATE_PORT, SUPERLINK = 9092, "127.0.0.1:9093"


def federate(words: argparse.Namespace, console: Console) -> int:
    """`muster federate --local N CONFIG`, or `muster federate --app DIR CONFIG`."""
    local, app = words.local, words.app
    if (local is None) == (app is None):
        raise MusterError(
            "federate: give --local N for a federation on this machine, or --app DIR to write "
            "the app that `flwr run` takes"
        )
    if app is not None:
        if words.resume is not None:
            raise MusterError("--resume: with --app, run the app again: it goes on by itself")
        if words.config is None and not words.keys:
            say(console, f"app hash: {app_folder.app_hash(Path(app))}")
            return 0
        chosen, folder = _chosen(words, None)
        name = app_folder.write_app(Path(app), chosen, folder)
        say(
            console,
            f"app hash: {name}\n"
            "clients agree to it with: muster node --app-hash HASH ...\n"
            f"app: {app}; run it with: flwr run {app} SUPERLINK --stream\n"
            f"results will be in {folder.resolve()} on this machine",
        )
        return 0
    if local is None or not local.isdecimal() or int(local) < 1:
        raise MusterError(f"--local: {local}; give the number of clients, such as 4")
    going_on = resumed(words)
    if going_on is None:
        chosen, folder = _chosen(words, int(local))
    else:
        chosen, folder = goes_on_with(going_on, "federation", words.trust_code), going_on
    if not store.is_run(folder):
        try:
            loopback.federate_here(chosen, int(local), folder, partial(say, console))
        except KeyboardInterrupt:
            again = f"muster federate --local {local} --resume {folder}"
            say(console, f"interrupted; go on with: {again}")
            raise
    done = store.load(folder)
    console.print(run_table(done, chosen.settings.measures))
    say(console, f"report:  {done.report(folder / 'report.html')}")
    return said_if_idle([done], console)


def _chosen(words: argparse.Namespace, clients: int | None) -> tuple[Experiment, Path]:
    """The checked configuration and a new folder for its results. With `clients`, its data is
    split over that many, where the data can be split."""
    if words.config is None:
        raise MusterError("federate: give a configuration, such as examples/federate.toml")
    one_method(words, "a federation runs one")
    table = configured(words, {"checkpoint_every": 1})
    table.setdefault("network", {})  # a real federation, whatever the file says of its network
    chosen = load(table, trusted=True)
    data = chosen.parts.find(Federation, chosen.data["name"], "data.name")
    if clients is not None and "clients" in parameters(data):
        given = table.get("data")
        if isinstance(given, dict) and given.get("clients", clients) != clients:
            warnings.warn(
                f"--local {clients}: in place of data.clients = {given['clients']}",
                MusterWarning, stacklevel=2,
            )  # fmt: skip
        chosen = load(override(table, [("data.clients", str(clients))]), trusted=True)
    app_folder.check(chosen)
    places = numbered_paths(Path(chosen.settings.out) / chosen.settings.name)
    return chosen, next(place for place in places if not place.exists())


def keys(words: argparse.Namespace, console: Console) -> int:
    """`muster keys DIR --server HOST --clients NAME ...`."""
    if words.folder is None or not (words.server or words.clients):
        raise MusterError(
            "keys: give a folder, then what to make: muster keys DIR --server HOST ... "
            "--clients NAME ..."
        )
    folder = Path(words.folder)
    certificates.make_keys(folder, words.server, words.clients)
    if words.server:
        say(
            console,
            f"server: {folder / certificates.CA}, and server.crt and server.key for it alone",
        )
    for name in words.clients:
        say(console, f"{name}: {folder / name} (secret, for it alone), {folder / name}.pub")
    return 0


def gate(words: argparse.Namespace, console: Console) -> int:
    """`muster gate DIR --port PORT --superlink ADDRESS`."""
    if words.folder is None:
        raise MusterError("gate: give the folder of the server's keys, as `muster keys` made it")
    door.serve(
        Path(words.folder),
        words.host or "0.0.0.0",
        port_of(words.port, GATE_PORT),
        words.superlink or SUPERLINK,
        partial(say, console),
    )
    return 0


def node(words: argparse.Namespace, console: Console) -> int:
    """`muster node --server ADDRESS --ca FILE --key FILE --data FILE --app-hash HASH`."""
    for flag in ("server", "ca", "key", "data"):
        if getattr(words, flag) is None:
            raise MusterError(f"node: --{flag} is missing; `muster node --help` says what it is")
    owner: dict[str, str | float] = {"data-path": str(Path(words.data).resolve())}
    if words.memory is not None:
        owner["memory-path"] = str(Path(words.memory).resolve())
    for flag in ("requirement", "test_fraction"):
        if (given := getattr(words, flag)) is not None:
            key = flag.replace("_", "-")
            owner[key] = node_data.number({key: given}, key)
    if words.tokenizer is not None:
        import_object(words.tokenizer, "--tokenizer")  # what is wrong with it is said here
        owner["tokenizer"] = words.tokenizer
    settled = supervisor.Settled(
        words.server,
        Path(words.ca),
        Path(words.key),
        tuple(words.app_hash),
        owner,
        port_of(words.port, 0),
    )
    supervisor.Node(settled, partial(say, console)).run()
    return 0


def port_of(text: str | None, default: int) -> int:
    """A port that was typed."""
    if text is not None and not text.isdecimal():
        raise MusterError(f"--port: '{text}'; allowed: whole numbers from 0 to 65535")
    return default if text is None else int(text)
