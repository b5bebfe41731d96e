"""`muster federate` and `muster keys`: a real federation from the command line."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ..config.experiments import Experiment, experiment, load_table, override
from ..durable import numbered
from ..errors import MusterError
from ..federation import Federation
from ..flower.appfolder import check, write_app
from ..flower.keys import CA, make_keys
from ..flower.loopback import federate_here
from ..registry import find
from ..report.tables import run_table
from ..run import store
from ..schema import parameters
from .flags import flags_of, take


def federate(words: list[str], console: Console) -> int:
    """`muster federate --local N CONFIG`, or `muster federate --app DIR CONFIG`."""
    words, local = take(words, "local")
    words, app = take(words, "app")
    words, resumed = take(words, "resume")
    if (local is None) == (app is None):
        raise MusterError(
            "federate: give --local N for a federation on this machine, or --app DIR to write "
            "the app that `flwr run` takes"
        )
    if app is not None:
        if resumed is not None:
            raise MusterError("--resume: with --app, run the app again: it goes on by itself")
        chosen, folder = _chosen(words, None)
        write_app(Path(app), chosen, folder)
        console.print(
            f"app: {app}; run it with: flwr run {app} SUPERLINK --stream\n"
            f"results will be in {folder.resolve()} on the server's machine",
            soft_wrap=True, highlight=False,
        )  # fmt: skip
        return 0
    if local is None or not local.isdecimal() or int(local) < 1:
        raise MusterError(f"--local: {local}; give the number of clients, such as 4")
    if resumed is None:
        chosen, folder = _chosen(words, int(local))
    else:
        if words:
            raise MusterError("--resume: goes on with the folder's own settings; give no others")
        folder = Path(resumed)
        chosen = experiment(load_table(folder / "config.toml"))

    def say(line: str) -> None:
        console.print(line, soft_wrap=True, highlight=False, markup=False)

    if not store.is_run(folder):
        try:
            federate_here(chosen, int(local), folder, say)
        except KeyboardInterrupt:
            say(f"interrupted; go on with: muster federate --local {local} --resume {folder}")
            raise
    console.print(run_table(store.load(folder)))
    return 0


def _chosen(words: list[str], clients: int | None) -> tuple[Experiment, Path]:
    """The checked configuration and a new folder for its results. With `clients`, its data is
    split over so many, where the data can be split."""
    config, flags = flags_of(words)
    if config is None:
        raise MusterError("federate: give a configuration, such as examples/federate.toml")
    table = {"name": Path(config).stem, "checkpoint_every": 1, **load_table(config)}
    chosen = experiment(override(table, list(flags.items())))
    if clients is not None and "clients" in parameters(
        find(Federation, chosen.data["name"], "data.name")
    ):
        table = override(table, [*flags.items(), ("data.clients", str(clients))])
        chosen = experiment(table)
    check(chosen)
    places = numbered(Path(chosen.settings.out) / chosen.settings.name)
    return chosen, next(place for place in places if not place.exists())


def keys(words: list[str], console: Console) -> int:
    """`muster keys DIR --server HOST --clients NAME ...`."""
    folder, hosts, clients = _key_words(words)
    make_keys(folder, hosts, clients)
    if hosts:
        console.print(f"server: {folder / CA}, and server.crt and server.key for it alone")
    for name in clients:
        console.print(f"{name}: {folder / name} (secret, for it alone), {folder / name}.pub")
    return 0


def _key_words(words: list[str]) -> tuple[Path, list[str], list[str]]:
    lists: dict[str, list[str]] = {"": [], "--server": [], "--clients": []}
    at = ""
    for word in words:
        if word in ("--server", "--clients"):
            at = word
        elif word.startswith("-"):
            raise MusterError(f"keys: '{word}' is not understood; allowed: --server, --clients")
        else:
            lists[at].append(word)
    if len(lists[""]) != 1 or not (lists["--server"] or lists["--clients"]):
        raise MusterError(
            "keys: give a folder, then what to make: muster keys DIR --server HOST ... "
            "--clients NAME ..."
        )
    return Path(lists[""][0]), lists["--server"], lists["--clients"]
